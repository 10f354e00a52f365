// Eight slots for handles of every kind, for the target calls: arguments are taken from them, results put there.
#pragma once

#include <initializer_list>
#include <string_view>
#include <tuple>

#include "fuzz/tiny.h"
#include "support/rooms.h"

namespace moe::fuzz {

template <class T>
void drop(void* p) {
  const auto destroy = [p](auto* end) { end(static_cast<T*>(p)); };
  if constexpr (std::is_same_v<T, moe_context>) destroy(moe_context_destroy);
  if constexpr (std::is_same_v<T, moe_config>) destroy(moe_config_destroy);
  if constexpr (std::is_same_v<T, moe_platform>) destroy(moe_platform_destroy);
  if constexpr (std::is_same_v<T, moe_selection>) destroy(moe_selection_destroy);
  if constexpr (std::is_same_v<T, moe_weights>) destroy(moe_weights_destroy);
  if constexpr (std::is_same_v<T, moe_packed>) destroy(moe_packed_destroy);
  if constexpr (std::is_same_v<T, moe_layer>) destroy(moe_layer_destroy);
  if constexpr (std::is_same_v<T, moe_control>) destroy(moe_control_destroy);
  if constexpr (std::is_same_v<T, moe_buffer>) destroy(moe_buffer_destroy);
}

class Handles {
 public:
  explicit Handles(Producer& p) : p_(p) {}
  ~Handles() {
    for (Slot& s : slots_) s.clear();
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  Producer& bytes() { return p_; }
  template <class T>
  T* get() {  // one of this kind, now and then NULL or one of any kind
    const std::uint8_t b = p_.byte();
    if (b >= 0xf8) return nullptr;
    if (b >= 0xf0) return static_cast<T*>(slots_[b % 8].handle);
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (const Slot& s = slots_[(b + i) % 8]; s.handle != nullptr && s.drop == drop<T>)
        return static_cast<T*>(s.handle);
    return nullptr;
  }
  // Calls function(arguments..., T** out, moe_error** err). In a tuple with braces arguments are drawn in their order.
  template <class T, class Function, class... Arguments>
  void make(Function function, std::tuple<Arguments...> arguments) {
    struct Drop {
      void operator()(T* p) const { drop<T>(p); }
    };
    const auto call = [&](T** out, moe_error** err) {
      return std::apply([&](auto... a) { return function(a..., out, err); }, arguments);
    };
    Slot slot{made<std::unique_ptr<T, Drop>>(call).release(), drop<T>};
    if (slot.handle == nullptr) return;
    std::swap(slots_[next_++ % 8], slot);
    slot.clear();
  }
  template <class T, class Function, class... Arguments>
  void make_from_text(Function function, std::string_view text, Arguments... before) {
    make<T>(function, std::tuple{before..., text.data(), text.size()});
  }
  void clear(std::size_t i) { slots_[i % 8].clear(); }
  std::string_view pick(std::initializer_list<std::string_view> choices) {
    return choices.begin()[p_.below(choices.size())];
  }

 private:
  struct Slot {
    void* handle = nullptr;
    void (*drop)(void*) = nullptr;
    void clear() {
      if (handle != nullptr) drop(handle);
      handle = nullptr;
    }
  };
  Producer& p_;
  std::array<Slot, 8> slots_{};
  std::size_t next_ = 0;
};

}  // namespace moe::fuzz
