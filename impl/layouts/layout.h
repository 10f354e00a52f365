// A packed layout: which kind it is, its two matrices, and of other engines' layouts the tensors.
//
// Kinds of p16 are ours: panels, whose addresses P16 knows (layouts/p16/p16.h).
// Named layouts (families.h) are other libraries' forms, handed to a host tensor by tensor: the same logical
// matrices, and a list of tensors [E, ...] that lie one behind another in the payload.
//
// A Layout is a value: it says all that is needed to find every number in a payload, and has no
// pointer to one. Selection makes it before weights exist, conversion fills a block for it, a
// packed file stores it, and a layer checks that a kernel takes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/index.h"
#include "layouts/matrix.h"
#include "scheme/elements.h"
#include "scheme/groups.h"
#include "scheme/scheme.h"

namespace moe {

// foreign: a backend's layout that this build cannot write. The others are the rows of layout_kinds.inc.
// The number of a kind is in packed files, so the list says it: an enumerator's place would change
// when a row is inserted. 2 is taken by foreign for the same reason.
enum class LayoutKind : std::uint8_t {
  none = 0,
  foreign = 2,
#define MOE_P16(kind_, number_, ...) kind_ = number_,
#define MOE_NAMED(kind_, number_, family_) kind_ = number_,
#include "layouts/layout_kinds.inc"
};

// A kind of p16: its word in ids, what it holds, and how it keeps scales.
struct P16Kind {
  LayoutKind kind;
  // Two kinds may share a word when the rest of the id tells them apart (e4m3 with groups of 32 is
  // MXFP8).
  std::string_view word;
  Element element;
  Scales scales;
  // Scales are of the type of float that the layout of a layer has and its id tells; else of the one above.
  // WNA16 checkpoints have f32, f16 or bf16 scales. Writing them as they are keeps their bits; a
  // fixed bf16 would round them.
  bool any_float;
};
inline constexpr std::array kP16Kinds = {
#define MOE_P16(kind_, number_, word_, element_, scales_, kept_) \
  P16Kind{LayoutKind::kind_, word_, Element::element_, Scales::scales_, std::string_view(#kept_) == "any_float"},
#define MOE_NAMED(...)
#include "layouts/layout_kinds.inc"
};
// nullptr for the other kinds.
// Linear over less than a dozen rows, and often in constants.
constexpr const P16Kind* p16_kind(LayoutKind kind) {
  for (const P16Kind& row : kP16Kinds)
    if (row.kind == kind) return &row;
  return nullptr;
}
constexpr std::optional<Element> p16_element(LayoutKind kind) {
  const P16Kind* row = p16_kind(kind);
  return row != nullptr ? std::optional(row->element) : std::nullopt;
}

// A tensor of a named layout.
// The dimension of the experts comes first in the host's view and is not in `shape`: all experts'
// tensors have the same shape and lie `bytes` apart, so one row describes them.
struct LayoutTensor {
  // No copy: names come from part_names.h or blobs.h and live as long as the program.
  std::string_view name;  // "w13_packed"; a constant
  DType dtype = DType::u8;
  std::vector<std::int64_t> shape;  // of one expert
  // Marlin's workspace, and numbers that follow from all experts.
  bool shared = false;  // one for all experts, without their dimension
  // In elements, the experts' first; empty: row-major. Never of shared ones.
  // DeepGEMM reads scales column by column, with each column padded; a row-major shape cannot say
  // that.
  std::vector<std::int64_t> strides = {};
  // 64 bytes are a cache line and the widest vector, so no tensor begins within another one's line.
  std::size_t offset = 0;  // in the payload, a multiple of 64
  std::size_t bytes = 0;   // of one expert, and its distance to the next

  friend bool operator==(const LayoutTensor&, const LayoutTensor&) = default;
};

// What the matrices of layouts of other engines (layouts/wna16/wna16_layout.h, layouts/floats/float_layout.h) do not
// tell. Other layouts have none: all of it is the default.
// What a form needs beside the matrices, mostly because vLLM's bytes depend on more than the
// numbers. is_variant() of each family refuses combinations that cannot come about, since a packed
// file may claim any of them.
struct LayoutVariant {
  MarlinInput input = MarlinInput::none;
  bool awq = false;
  // A host that compares blobs byte by byte wants it; one that runs the kernels does not.
  bool bit_compat_vllm = false;  // vLLM's bytes, also where they are wrong
  // vLLM picks one of Marlin's two orders of scales by the configured number, not by how many
  // groups there are. A group as wide as the matrix and -1 mean the same weights and may give other
  // bytes.
  bool channel_wise = false;  // group_size as configured was -1
  // Formats differ in what they store (GPTQ v1 stores zero - 1), and some of vLLM's paths do not
  // undo it. The shift is kept so that reading gives back the real zero points.
  int zero_shift = 0;             // of vLLM's zero points against the real ones: -1, 0, 1
  DType bias = DType::invalid;    // f32, f16 or bf16
  DType number = DType::invalid;  // the same, of dense weights; activations of Marlin's NVFP4, f16 or bf16
  // It only sizes a tensor of zeros. 0: the platform did not say, and there is no workspace.
  std::int64_t multiprocessors = 0;  // of the device, for Marlin's workspace
  // Of float layouts: the scale of the activations is among the tensors; rows of w13 are g0 u0 g1 u1 ...; codes are
  // those of AMD's 8-bit floats.
  // fnuz: AMD's older 8-bit floats have another bias, so the same byte means half and scales
  // double.
  bool input_scales = false, gate_up_pairs = false, fnuz = false;

  friend bool operator==(const LayoutVariant&, const LayoutVariant&) = default;
};

// The packed form of one layer's experts.
// w13 and w2 have the same kind: kernels are chosen once per layer.
struct Layout {
  LayoutKind kind = LayoutKind::none;
  Matrix w13, w2;
  std::int64_t experts = 0;
  LayoutVariant variant = {};
  std::vector<LayoutTensor> tensors = {};  // of named layouts, in their order in the payload

  // p16/int4-g32/1, p16/int4-cw-bias/1, p16/int4-g32,cw/1, p16/w8-cw-f32/1, p16/w4-g128-bf16-zp/1, p16/bf16/1,
  // p16/w4-g128,u56-f32-ao/1, p16/f32-bias/1, p16/e4m3-b128x128/1, p16/e4m3-t/1; those of named layouts; "" for none.
  // For people, logs and hosts, which compare it as text; /1 is the version of the packing. It is
  // not parsed: packed files store the members (packed_file.md 2).
  std::string id() const;
  const Matrix& matrix(Which which) const { return which == Which::w13 ? w13 : w2; }
  // An expert of p16 is one piece of memory, w13 and then w2. The offset is a multiple of 64
  // because every panel is.
  std::size_t w2_offset() const;      // within an expert of p16
  std::size_t expert_stride() const;  // of p16; named: all bytes of one expert
  // Without a check for overflow. Sizes of a file go through checked_payload_bytes() (families.h)
  // first.
  std::size_t payload_bytes() const;
  std::size_t end_of(const LayoutTensor& t) const { return t.offset + t.bytes * (t.shared ? 1 : usize(experts)); }

  friend bool operator==(const Layout&, const Layout&) = default;
};

// A rank's share under tensor parallelism, and `experts` those that it holds: a packed block never
// knows about other ranks.
struct LayoutShape {
  std::int64_t experts, hidden, intermediate;  // this rank's
  Groups groups = {};                          // as configured; whole for values
  bool gated, has_bias;
  Scales scales = Scales::f32;  // of p16_w4, p16_w8 and named layouts
  bool has_zeros = false;
  bool has_order = false;           // of integer elements
  Element element = Element::int4;  // of named layouts
  // Of w2, where they are not `groups`: with activation order a tensor-parallel rank holds some columns but the scales
  // of all groups.
  std::optional<Groups> w2_groups = {};
  std::int64_t scale_rows = 1;  // Matrix::scale_rows
};
// "g32", "cw"; "u56": 56 groups of any sizes; "b128x64": blocks of rows and columns; "t": one scale
// It speaks of the checkpoint's groups (Matrix::source), not of the filled ones: the id then says
// what the caller configured.
std::string grouping_word(const Matrix& m);

}  // namespace moe
