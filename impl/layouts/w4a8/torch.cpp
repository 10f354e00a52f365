// PyTorch's generic blob of W4A8 weights (w4a8_int8.md 4): codes, scales and biases one behind the other, row by row.
// Every number is a float32, one byte of two codes, too.
#include <algorithm>
#include <cstring>

#include "base/index.h"
#include "layouts/w4a8/blobs.h"

namespace moe {
namespace {

// Where the parts begin, in floats.
struct Parts {
  std::size_t codes, scales, bias;

  explicit Parts(const CanonicalRows& r)
      : codes(usize(r.k / 2)), scales(usize(r.count) * codes), bias(scales + usize(r.count * r.groups)) {}
};

void put(std::byte* blob, std::size_t at, float x) { std::memcpy(blob + at * sizeof x, &x, sizeof x); }
float get(const std::byte* blob, std::size_t at) {
  float x;
  std::memcpy(&x, blob + at * sizeof x, sizeof x);
  return x;
}

Check write_torch_blob(CanonicalRows& rows, Which which, const ExpertTensors<std::byte>& out) {
  const Parts parts(rows);
  std::byte* blob = out[blob_name(which)].data();
  std::size_t at = 0;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int8_t* code = rows.row(r);
    for (std::int64_t k = 0; k < rows.k; k += 2)
      put(blob, at++, static_cast<float>(code[k] + 8 + (code[k + 1] + 8) * 16));
  }
  std::memcpy(blob + parts.scales * 4, rows.scales.data(), rows.scales.size() * 4);
  if (out.layout.matrix(which).has_bias) std::memcpy(blob + parts.bias * 4, rows.bias.data(), rows.bias.size() * 4);
  return ok();
}

Check read_torch_blob(const ExpertTensors<const std::byte>& in, Which which, CanonicalRows& rows) {
  const Parts parts(rows);
  const std::byte* blob = in[blob_name(which)].data();
  std::size_t at = 0;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    std::int8_t* code = rows.codes.data() + r * rows.stride;
    for (std::int64_t k = 0; k < rows.k; k += 2) {
      const float stored = get(blob, at++);  // of any file: what is no byte becomes one
      const int byte = stored >= 0.0f && stored <= 255.0f ? static_cast<int>(stored) : 0;
      code[k] = static_cast<std::int8_t>((byte & 15) - 8);
      code[k + 1] = static_cast<std::int8_t>((byte >> 4) - 8);
    }
  }
  std::memcpy(rows.scales.data(), blob + parts.scales * 4, rows.scales.size() * 4);
  if (in.layout.matrix(which).has_bias) std::memcpy(rows.bias.data(), blob + parts.bias * 4, rows.bias.size() * 4);
  return ok();
}

std::string torch_id(const Layout& l) {
  std::string s = "torch/dyn_quant_4bit-" + grouping_word(l.w13);
  if (grouping_word(l.w2) != grouping_word(l.w13)) s += "," + grouping_word(l.w2);
  return s + (l.w13.has_bias ? "-bias/1" : "/1");
}

void list_torch(Layout& l) {
  list_blobs(l, DType::f32, [](const Matrix& m) {
    return m.rows() * m.k / 2 + m.rows() * m.group_count() + (m.has_bias ? m.rows() : 0);
  });
}

}  // namespace

constinit const LayoutFamily layout_families::torch = {torch_id, are_w4a8, list_torch, write_torch_blob,
                                                       read_torch_blob};

}  // namespace moe
