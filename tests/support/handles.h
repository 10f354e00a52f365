// The objects of moe.h as unique pointers, and its tensors.
#pragma once

#include <moe/moe.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "support/rooms.h"

namespace moe::test {

template <auto destroy>
struct Ended {
  template <class H>
  void operator()(H* h) const {
    destroy(h);
  }
};
using ErrorPtr = std::unique_ptr<moe_error, Ended<moe_error_destroy>>;
using BufferPtr = std::unique_ptr<moe_buffer, Ended<moe_buffer_destroy>>;
using ControlPtr = std::unique_ptr<moe_control, Ended<moe_control_destroy>>;
using ContextPtr = std::unique_ptr<moe_context, Ended<moe_context_destroy>>;
using ConfigPtr = std::unique_ptr<moe_config, Ended<moe_config_destroy>>;
using PlatformPtr = std::unique_ptr<moe_platform, Ended<moe_platform_destroy>>;
using SelectionPtr = std::unique_ptr<moe_selection, Ended<moe_selection_destroy>>;
using WeightsPtr = std::unique_ptr<moe_weights, Ended<moe_weights_destroy>>;
using PackedPtr = std::unique_ptr<moe_packed, Ended<moe_packed_destroy>>;
using LayerPtr = std::unique_ptr<moe_layer, Ended<moe_layer_destroy>>;
using CommPtr = std::unique_ptr<moe_comm, Ended<moe_comm_destroy>>;
using DistPtr = std::unique_ptr<moe_dist, Ended<moe_dist_destroy>>;
using DistCallPtr = std::unique_ptr<moe_dist_call, Ended<moe_dist_call_destroy>>;

// A row-major tensor over memory of the test.
inline moe_tensor tensor(moe_dtype dtype, const std::vector<std::int64_t>& shape, const void* data) {
  moe_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = dtype;
  t.ndim = static_cast<std::int32_t>(shape.size());
  t.data = const_cast<void*>(data);
  for (std::size_t i = 0; i < shape.size(); ++i) t.shape[i] = shape[i];
  return t;
}

}  // namespace moe::test
