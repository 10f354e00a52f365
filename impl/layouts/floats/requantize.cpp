// A code's new value depends on the code and on few scales, so each scale has a table of 256 codes. See requantize.h.
#include "layouts/floats/requantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/decimal.h"
#include "base/float_formats.h"
#include "base/index.h"
#include "base/text.h"
#include "layouts/p16/p16_numbers.h"

namespace moe {
namespace {

using CodeTable = std::array<std::uint8_t, 256>;

float value(unsigned code) { return small_value<Element::e4m3>(code); }
std::uint8_t code_of(float x) { return static_cast<std::uint8_t>(f32_to_small(kE4m3, std::clamp(x, -448.0f, 448.0f))); }
float to_f16(float x) { return f16_to_f32(f32_to_f16(x)); }

template <class NewValue>
CodeTable table_of(NewValue new_value) {
  CodeTable t{};
  for (unsigned code = 0; code < t.size(); ++code) t[code] = code_of(new_value(value(code)));
  return t;
}

// Whether a code changed.
bool apply(const CodeTable& table, std::int8_t* codes, std::int64_t count) {
  bool changed = false;
  for (std::int64_t k = 0; k < count; ++k) {
    const auto old = static_cast<std::uint8_t>(codes[k]), made = table[old];
    changed = changed || made != old;
    codes[k] = static_cast<std::int8_t>(made);
  }
  return changed;
}

}  // namespace

Check share_scale(CanonicalRows& rows, bool through_f16, bool half_codes) {
  const std::int64_t half = rows.count / 2;
  const std::array<float, 2> scale = {rows.scales[0], at(rows.scales, half * rows.groups)};
  const float most = std::max(scale[0], scale[1]);
  if (most == 0.0f || (scale[0] == scale[1] && !through_f16)) return ok();
  const float unit = half_codes ? 0.5f : 1.0f, factor = 1.0f / most;
  for (std::int64_t h = 0; h < 2; ++h) {
    const float own = at(scale, h);
    bool finite = true;
    CodeTable table = table_of([&](float x) {
      const float product = through_f16 ? to_f16(x * unit * to_f16(own)) : x * unit * own;
      // The reciprocal of a subnormal may be infinite.
      const float made = (std::isfinite(factor) ? product * factor : product / most) / unit;
      finite = finite && (std::isfinite(made) || !std::isfinite(x));
      return made;
    });
    if (!finite)
      return fail(Code::invalid_argument, "w13_scale",
                  cat("w13_scale: the scales ", float_text(scale[0]), " and ", float_text(scale[1]),
                      " of gate and up cannot become one", through_f16 ? " by way of float16" : ""));
    if (half_codes) std::replace(table.begin(), table.end(), std::uint8_t{0x80}, std::uint8_t{0});  // there is no -0
    for (std::int64_t r = h * half; r < (h + 1) * half; ++r)
      if (apply(table, rows.codes.data() + r * rows.stride, rows.k)) rows.requantized = true;
  }
  if (scale[0] != scale[1]) rows.requantized = true;
  std::fill(rows.scales.begin(), rows.scales.end(), most);
  return ok();
}

void share_tensor_scale(CanonicalRows& rows, bool as_vllm) {
  const std::int64_t half = rows.count / 2;
  const float gate = rows.tensor_scales[0], up = at(rows.tensor_scales, half), most = std::max(gate, up);
  const bool close = std::abs(gate - up) <= 1e-5f * most;
  const float shared = as_vllm || close ? gate : most;
  std::fill(rows.tensor_scales.begin(), rows.tensor_scales.end(), shared);
  if (as_vllm || close) return;
  const float own = std::min(gate, up), factor = own / most;
  const std::int64_t first = gate < up ? 0 : half * rows.groups;
  for (std::int64_t i = first; i < first + half * rows.groups; ++i) {
    float& scale = at(rows.scales, i);
    const float made = value(code_of(scale * factor));
    const double want = static_cast<double>(scale) * static_cast<double>(own);
    rows.scales_rounded += static_cast<double>(made) * static_cast<double>(most) != want ? 1 : 0;
    scale = made;
  }
}

void use_power_scales(CanonicalRows& rows) {
  constexpr std::int64_t kBlock = 128;
  constexpr float kLeastPeak = 1e-4f;
  for (std::int64_t r0 = 0; r0 < rows.count; r0 += kBlock)
    for (std::int64_t g = 0; g < rows.groups; ++g) {
      const std::int64_t k0 = g * kBlock, count = std::min(kBlock, rows.k - k0);
      const float own = rows.row_scales(r0)[g];
      unsigned peak = 0;  // the magnitudes of codes are in the order of their values
      for (std::int64_t r = r0; r < r0 + kBlock; ++r)
        for (std::int64_t k = k0; k < k0 + count; ++k)
          peak = std::max(peak, kE4m3.magnitude(static_cast<std::uint8_t>(rows.row(r)[k])));
      const float most = std::max(value(peak) * own, kLeastPeak) / 448.0f;
      const auto bits = std::bit_cast<std::uint32_t>(most);  // a normal number: at least 1e-4 / 448
      const std::uint32_t exponent = std::min<std::uint32_t>((bits + 0x7fffffu) >> 23, 254);
      const float scale = e8m0_to_f32(exponent), factor = 1.0f / scale;
      const CodeTable table = table_of([&](float x) { return x * own * factor; });
      for (std::int64_t r = r0; r < r0 + kBlock; ++r) {
        apply(table, rows.codes.data() + r * rows.stride + k0, count);
        at(rows.scales, r * rows.groups + g) = scale;
      }
    }
  rows.requantized = true;
}

SplitScales split_scales(CanonicalRows& rows) {
  constexpr float kLeast = 1.0f / (448.0f * 512.0f), kInt4 = 8.0f;
  SplitScales s;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    float* scales = rows.scales.data() + r * rows.groups;
    float largest = 0.0f;  // of magnitudes
    for (std::int64_t g = 0; g < rows.groups; ++g) largest = std::max(largest, std::fabs(scales[g]));
    const float own = std::max(largest / 448.0f, kLeast);
    s.rows.push_back(own * kInt4);
    for (std::int64_t g = 0; g < rows.groups; ++g) {
      const std::uint8_t code = code_of(value(code_of(scales[g] / own)) / kInt4);
      s.codes.push_back(code);
      const float kept = value(code) * s.rows.back();
      rows.scales_rounded += kept != scales[g] ? 1 : 0;
      scales[g] = kept;
    }
  }
  return s;
}

}  // namespace moe
