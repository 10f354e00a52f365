// moe_tensor -> TensorView, with every check that can be made from outside.
//
// Which of several faults is reported does not depend on chance: the order is fixed, over all tensors of a call: first
// all structs, then (in check_tensors) all dtypes, all ranks, all shapes, all strides with byte counts and addresses. A
// tensor of a call is described by one TensorParam row; nothing here allocates unless it fails.
#pragma once

#include <moe/moe.h>

#include <array>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/tensor.h"

namespace moe::api {

constexpr std::uint64_t dtype_bit(DType t) { return std::uint64_t{1} << static_cast<unsigned>(t); }
constexpr std::uint64_t kFloats = dtype_bit(DType::f32) | dtype_bit(DType::f16) | dtype_bit(DType::bf16);
constexpr std::uint64_t kIds = dtype_bit(DType::i32) | dtype_bit(DType::i64);

constexpr std::int64_t kTokens = -1;  // in TensorParam::shape: T, taken from the first row that has it

struct TensorParam {
  const char* name = "";              // subject of an error: the parameter or member
  const moe_tensor* given = nullptr;  // nullptr: not given, skipped
  std::uint64_t dtypes = 0;           // accepted types, a bit each
  int ndim = 0;
  std::array<std::int64_t, 2> shape{};
  const char* letters = "";  // "[T, H]"
  bool writable = false;     // its elements must not share memory
  moe_tensor raw{};          // set by read_structs
  TensorView view{};         // set by check_tensors
};

// The outputs of routing: ids of the given types and weights; their shape is set by the call.
TensorParam topk_ids_out(const moe_tensor* given, std::uint64_t dtypes);
TensorParam topk_weights_out(const moe_tensor* given);

// struct_size and flags.
Result<moe_tensor> read_tensor_struct(const moe_tensor* tensor, const char* name);
Check read_structs(std::span<TensorParam> params);
// Everything else; the last stride of a tensor must be 1. Gives T, 0 when no row has it.
Result<std::int64_t> check_tensors(std::span<TensorParam> params);

// A tensor of any known type, rank and shape with any strides: weights, whose place checks the rest.
Result<TensorView> view_of(const moe_tensor& tensor, const char* name);
// Struct and view in one.
Result<TensorView> read_tensor(const moe_tensor* tensor, const char* name);

// Bytes from the first to the last element, 0 when there is none; the view is checked.
std::size_t extent(const TensorView& view);
bool same_tensor(const TensorView& a, const TensorView& b);
// Do the elements share memory? Exact for 2-d tensors with equal row strides (column blocks of one
// matrix), by byte ranges otherwise.
bool overlaps(const TensorView& a, const TensorView& b);
bool overlaps(const TensorView& a, const void* data, std::size_t bytes);

// The struct for a view, for outputs: all members but struct_size.
moe_tensor tensor_of(const TensorView& view);

}  // namespace moe::api
