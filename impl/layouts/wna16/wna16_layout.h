// Layouts of int4 and int8 weights with 16-bit activations that kernels of other engines read: sizes and names.
//
//   wna16_marlin      tiles of NVIDIA tensor cores (16 x 64, with 8-bit activations 32 x 32)     marlin.cpp
//   wna16_trtllm      MXINT4 of TensorRT-LLM: shuffled rows in blocks of 128 bytes               trtllm.cpp
//   wna16_xpu         rows of nibbles                                                            rows.cpp
//   wna16_vnni        vLLM's CPU blocks of 32 columns for int8 dot products                      vnni.cpp
//   wna16_on_the_fly  rows of nibbles or bytes, unpacked by the kernel                           rows.cpp
//   wna16_dense       numbers                                                                    dense.cpp
//
// The sources have the pictures. Every layout is a list of tensors [E, ...] in the order of vLLM's conversion; w13 and
// w2 are the same kind of matrix, so a list is seven parts of two matrices. What the matrices of a Layout do not tell
// is in its `variant`.
//
// marlin and trtllm are for NVIDIA GPUs, xpu for Intel's, vnni is vLLM's for CPUs. dense is for a
// backend that dequantizes all weights at load, on_the_fly for one that does it in each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/enum_set.h"
#include "layouts/layout.h"
#include "layouts/part_names.h"
#include "scheme/scheme.h"

namespace moe {

// The workspace is not among them: it belongs to the layer, not to a matrix.
constexpr EnumSet<LayoutPart> kWna16Parts = {LayoutPart::weight,     LayoutPart::scale,
                                             LayoutPart::g_idx,      LayoutPart::g_idx_sort_indices,
                                             LayoutPart::zero_point, LayoutPart::input_global_scale,
                                             LayoutPart::bias};

// One matrix as writers and readers see it. "Padded" sizes are the layout's, the others the checkpoint's.
// It is made from a Layout for each call (wna16_matrix) and never stored, so it may have
// conclusions as members that a Layout only implies.
struct Wna16Matrix {
  LayoutKind kind = LayoutKind::wna16_marlin;
  Which which = Which::w13;
  int bits = 4, halves = 1;
  // Padding of N happens in Marlin only: I is filled up to whole tiles and groups, since as K of w2
  // it must divide into both.
  std::int64_t half_rows = 0, padded_half_rows = 0;  // N of a half: gate or up of w13, all of w2
  std::int64_t k = 0, padded_k = 0;
  std::int64_t groups = 0, padded_groups = 0;  // rows of scales
  bool has_zeros = false, has_bias = false;
  bool awq = false;
  bool act_order = false;  // k in the order of the groups, with the permutation kept
  // Marlin permutes scales so that a thread finds those of its own columns together; the two orders
  // belong to its kernels with several groups and with one.
  bool grouped_scales = false;  // Marlin: which of the two permutations
  // int8 activations: the kernel works in integers, so its scales are integers and one float
  // remains.
  bool folded_scales = false;     // Marlin: scales are int16 in units of input_global_scale
  bool zeros_in_nibbles = false;  // Marlin fp8: codes were rewritten against the zero points, not against 8
  // TensorRT-LLM's activation takes pairs of up and gate.
  bool swap_halves = false;  // TRT-LLM's w13: up goes before gate, row by row
  int zero_shift = 0;        // added to each zero point
  // The on-the-fly kernel has one group size for both matrices: a matrix with larger groups repeats
  // each scale until both agree.
  int repeat = 1;  // on_the_fly: copies of each scale
  MarlinInput input = MarlinInput::none;
  DType scale = DType::f16, bias = DType::f16, number = DType::f16;  // number: of dense weights

  std::int64_t rows() const { return halves * half_rows; }
  std::int64_t padded_rows() const { return halves * padded_half_rows; }
  std::int64_t group() const { return groups == 0 ? k : k / groups; }  // without act-order
  // Codes lie in words of int32 in most of these formats, with the first field in the lowest bits.
  int fields() const { return 32 / bits; }  // in a word
  bool eight_bit() const { return input != MarlinInput::none; }
  // The checkpoint's row behind a padded row; -1 for padding.
  // Padding lies behind each half, so a row's place depends on its half.
  std::int64_t source_row(std::int64_t n) const {
    const std::int64_t r = n % padded_half_rows;
    return r < half_rows ? n / padded_half_rows * half_rows + r : -1;
  }
};
Wna16Matrix wna16_matrix(const Layout& layout, Which which);

bool is_wna16_kind(LayoutKind kind);
// Names of parts that a layout of these kinds has no tensor for.
// moe_packed_to_json shows them: a host learns that None is right there and not an error.
std::vector<std::string_view> wna16_absent(const Layout& layout);

// What vLLM adds to the real zero point on its way into a layout: Marlin and emulation take what is stored, its CPU
// class adds 1 to it unless the format is AWQ, and takes 7 for a missing one.
// It is a table of known mistakes and conventions as of the versions that the vectors were made
// with; wna16.md has the cases.
int vllm_zero_shift(LayoutKind kind, bool awq, bool has_zeros, ZeroPoints stored);

}  // namespace moe
