// The objects behind the handles of moe.h.
//
// A handle is a small block of its own: a magic number for its kind and a shared_ptr to the C++
// object. What an object needs it holds by shared_ptr as well, so handles may be destroyed in any
// order. The magic number is changed when a handle ends: a destroyed handle or one of another kind
// is refused as far as that can be seen (its memory may have been given away since).
#pragma once

#include <moe/moe.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "api/guard.h"
#include "base/buffer.h"
#include "base/control.h"
#include "base/platform.h"
#include "base/text.h"
#include "config/config.h"
#include "dist/comm.h"
#include "dist/dist.h"
#include "io/packed.h"
#include "model/checkpoint.h"
#include "oracle/selection.h"
#include "run/context/context.h"
#include "run/layer.h"
#include "weights/weight_set.h"

namespace moe::api {

constexpr std::uint64_t magic_of(std::uint32_t kind) { return 0x6d6f652d00000000u | kind; }  // "moe-" + kind
constexpr std::uint64_t kDead = 0x6d6f652ddeadu;

template <std::uint32_t kKind, class T>
struct Handle {
  using Object = T;
  static constexpr std::uint64_t kMagic = magic_of(kKind);
  std::uint64_t magic = kMagic;
  std::shared_ptr<T> object;

  explicit Handle(std::shared_ptr<T> o) : object(std::move(o)) {}
};

// Text or bytes that the caller owns.
using OwnedBytes = std::variant<std::string, Buffer>;

// A progress callback with what ends it.
struct ControlBox {
  ControlBox(moe_progress_fn progress, void* user) : control(progress, user, nullptr) {}
  HandedOver owner;
  Control control;
};

// A weight set with a count of the calls that use it: -1 while one has it to itself.
struct WeightsBox {
  explicit WeightsBox(std::shared_ptr<const Config> config) : set(std::move(config)) {}
  WeightsBox(std::shared_ptr<const Config> config, std::shared_ptr<const TensorSource> source)
      : set(std::move(config), std::move(source)) {}
  WeightSet set;
  std::atomic<int> users{0};
};

enum class Access : std::uint8_t { shared, exclusive };

// Holds a weight set during a call. A second call beside an exclusive one: MOE_ERR_BUSY.
class Use {
 public:
  static Result<Use> begin(WeightsBox& box, Access access) {
    int seen = box.users.load(std::memory_order_relaxed);
    do {
      if (seen < 0 || (access == Access::exclusive && seen > 0))
        return fail(Code::busy, "weights", "weights: another call uses this set");
    } while (!box.users.compare_exchange_weak(seen, access == Access::exclusive ? -1 : seen + 1,
                                              std::memory_order_acquire, std::memory_order_relaxed));
    return Use(&box, access);
  }
  Use(Use&& o) noexcept : box_(std::exchange(o.box_, nullptr)), access_(o.access_) {}
  Use& operator=(Use&&) = delete;
  ~Use() {
    if (box_ == nullptr) return;
    if (access_ == Access::exclusive)
      box_->users.store(0, std::memory_order_release);
    else
      box_->users.fetch_sub(1, std::memory_order_release);
  }

 private:
  Use(WeightsBox* box, Access access) : box_(box), access_(access) {}
  WeightsBox* box_;
  Access access_;
};

}  // namespace moe::api

struct moe_buffer : moe::api::Handle<2, moe::api::OwnedBytes> {
  using Handle::Handle;
};
struct moe_context : moe::api::Handle<3, moe::run::Context> {
  using Handle::Handle;
};
struct moe_config : moe::api::Handle<4, const moe::config::Config> {
  using Handle::Handle;
};
struct moe_platform : moe::api::Handle<5, const moe::Platform> {
  using Handle::Handle;
};
struct moe_selection : moe::api::Handle<6, const moe::oracle::Selection> {
  using Handle::Handle;
};
struct moe_weights : moe::api::Handle<7, moe::api::WeightsBox> {
  using Handle::Handle;
};
struct moe_packed : moe::api::Handle<8, const moe::io::Packed> {
  using Handle::Handle;
};
struct moe_layer : moe::api::Handle<9, const moe::run::Layer> {
  using Handle::Handle;
};
struct moe_control : moe::api::Handle<10, moe::api::ControlBox> {
  using Handle::Handle;
};

struct moe_checkpoint : moe::api::Handle<11, const moe::model::Checkpoint> {
  using Handle::Handle;
};

struct moe_comm : moe::api::Handle<12, moe::dist::Comm> {
  using Handle::Handle;
};
struct moe_dist : moe::api::Handle<13, moe::dist::Dist> {
  using Handle::Handle;
};
struct moe_dist_call : moe::api::Handle<14, moe::dist::Dist> {
  using Handle::Handle;
};

namespace moe::api {

// Misaligned pointers are no handles and are not read.
template <class H>
bool is_live(const H* handle) noexcept {
  return handle != nullptr && reinterpret_cast<std::uintptr_t>(handle) % alignof(H) == 0 && handle->magic == H::kMagic;
}

template <class H>
Check check_handle(const H* handle, const char* name) {
  if (!is_live(handle))
    return fail(Code::invalid_handle, name, cat(name, ": this handle was destroyed or is of another kind"));
  return ok();
}

// nullptr is accepted and stays nullptr.
template <class H>
Check check_optional(const H* handle, const char* name) {
  return handle == nullptr ? ok() : check_handle(handle, name);
}

// The object of a checked optional handle.
template <class H>
std::shared_ptr<typename H::Object> object_of(const H* handle) {
  return handle == nullptr ? nullptr : handle->object;
}

inline Control* control_of(moe_control* control) noexcept {
  return control == nullptr ? nullptr : &control->object->control;
}

template <class H>
H* make_handle(std::shared_ptr<typename H::Object> object) {
  return new H(std::move(object));
}

// NULL, and as far as that can be seen a handle that is not one: nothing happens.
template <class H>
void end_handle(H* handle) noexcept {
  if (!is_live(handle)) return;
  *const_cast<volatile std::uint64_t*>(&handle->magic) = kDead;
  delete handle;
}

inline moe_buffer* make_text(std::string text) {
  return make_handle<moe_buffer>(std::make_shared<OwnedBytes>(std::move(text)));
}

}  // namespace moe::api
