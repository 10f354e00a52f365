// Eight slots for handles of every kind, for the target calls: arguments are taken from them, results put there.
// Threads begin with the handles of others, and own what they make.
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
  // Those of `lender`, who keeps them until this is gone.
  Handles(Producer& p, const Handles& lender) : p_(p), slots_(lender.slots_), next_(lender.next_) {
    for (Slot& s : slots_) s.owned = false;
  }
  ~Handles() {
    for (Slot& s : slots_) s.clear();
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  Producer& bytes() { return p_; }
  template <class T>
  T* get() {  // one of this kind, now and then NULL or one of any kind
    return find<T>(false);
  }
  template <class T>
  T* get_own() {  // for calls that moe.h marks [excl]
    return find<T>(true);
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
    Slot slot{made<std::unique_ptr<T, Drop>>(call).release(), drop<T>, true};
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
    bool owned = false;
    void clear() {
      if (handle != nullptr && owned) drop(handle);
      handle = nullptr;
    }
  };
  template <class T>
  T* find(bool own) {
    const std::uint8_t b = p_.byte();
    const auto fits = [own](const Slot& s) { return s.handle != nullptr && (s.owned || !own); };
    if (b >= 0xf8) return nullptr;
    if (b >= 0xf0) return fits(slots_[b % 8]) ? static_cast<T*>(slots_[b % 8].handle) : nullptr;
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (const Slot& s = slots_[(b + i) % 8]; fits(s) && s.drop == drop<T>) return static_cast<T*>(s.handle);
    return nullptr;
  }
  Producer& p_;
  std::array<Slot, 8> slots_{};
  std::size_t next_ = 0;
};

}  // namespace moe::fuzz
