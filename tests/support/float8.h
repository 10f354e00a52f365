// Weights of 8-bit floats with their scales, and rows that meet them: what the tests of FP8 and MXFP8 rows draw.
#pragma once

#include <cmath>
#include <string>

#include "kernels/ref/float_acts.h"
#include "support/p16.h"
#include "support/rooms.h"

namespace moe::test {

struct Float8Case {
  P16 m;
  ActFormat act;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, bias, x;
  std::vector<std::byte> packed;
  int n;
  FloatActs floats = {};  // of e4m3
  bool halves = false;

  TileShape shape() const { return {m.k, m.groups, act, m.sum_factor(), false, 0, floats, halves}; }
  // What rows of activations are once they are quantized: codes times their scales in float64.
  std::vector<double> inputs() const {
    std::vector<double> all(x.begin(), x.end());
    if (act != ActFormat::e4m3) return all;
    const std::int64_t columns = shape().scaled_columns();
    for (std::int64_t row = 0; row < n; ++row)
      for (std::int64_t k0 = 0; k0 < m.k; k0 += columns) {
        const std::int64_t k1 = std::min(k0 + columns, m.k);
        const float* from = x.data() + row * m.k;
        const auto scale = kernels::ref::float8_scale(floats, kernels::ref::absmax(from + k0, k1 - k0), kInputScale);
        for (std::int64_t k = k0; k < k1; ++k)
          all[static_cast<std::size_t>(row * m.k + k)] =
              static_cast<double>(kernels::ref::float8_value(from[k], scale)) * static_cast<double>(scale.scale);
      }
    return all;
  }
  std::int64_t ld() const { return m.panels() * kPanelRows + n % 3; }
  std::size_t result(int row, std::int64_t weight_row) const {
    return static_cast<std::size_t>(row * ld() + m.panel_of(weight_row) * kPanelRows + m.lane_of(weight_row));
  }
  double scale(std::int64_t row, std::int64_t k) const {
    const std::int64_t group = m.groups.is_whole() ? 0 : k / m.group();
    return static_cast<double>(scales[static_cast<std::size_t>(row * m.group_count() + group)]);
  }
  double weight(std::int64_t row, std::int64_t k) const {
    const unsigned code = codes[static_cast<std::size_t>(row * m.k + k)];
    return static_cast<double>(small_to_f32(row_of(m.element).format, code)) * scale(row, k);
  }
  std::string words() const {
    return "rows " + std::to_string(m.rows()) + ", k " + std::to_string(m.k) + ", group " + std::to_string(m.group()) +
           ", scale rows " + std::to_string(m.scale_rows) + ", " + std::to_string(n) + " tokens";
  }
};

// The powers of e8m0 scales that a case draws from: around 1; subnormal ones too; all of them; the least and the
// largest with which all codes are normal bf16 numbers, and now and then the next one, with which they are not.
enum class Powers { near, low, all, edges };

class Float8Maker {
 public:
  explicit Float8Maker(const Kernel& kernel, unsigned seed = 20261125)
      : mx_(kernel.id->layout == LayoutKind::p16_mxfp8), kernel_(kernel), rng_(seed) {}

  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }
  float normal() { return normal_(rng_); }

  Float8Case make(int n, Powers powers) {
    Float8Case c;
    c.n = n;
    c.act = kernel_.id->act;
    constexpr int kGroups[] = {32, 64, 96, 128, 256, -1};
    constexpr std::int64_t kScaleRows[] = {1, 1, 16, 32, 64, 128, kAllRows};
    const int group = mx_ && pick(0, 7) != 0 ? 32 : kGroups[pick(0, 5)];
    c.m = {{.element = *p16_element(kernel_.id->layout),
            .scales = mx_ ? Scales::e8m0 : Scales::f32,
            .half_rows = pick(1, 90),
            .halves = pick(1, 2),
            .k = pick(0, 9) == 0 ? pick(1, 1500) : pick(1, 300)}};  // the last group is cut short
    c.m.groups = Groups::of_size(group, c.m.k);
    c.m.has_bias = pick(0, 1) == 1;
    c.halves = c.act == ActFormat::e4m3 && kernel_.takes_halves;
    c.floats = mx_ ? kMxActs : any_floats();
    c.m.scale_rows = mx_ ? 1 : kScaleRows[pick(0, 6)];
    fill(c, powers);
    return c;
  }

  void fill(Float8Case& c, Powers powers) {
    const int kind = pick(0, 3);  // 0: small and subnormal codes alone; 1: hardly a subnormal one
    c.codes.resize(static_cast<std::size_t>(c.m.rows() * c.m.k));
    for (auto& code : c.codes) {
      code = random_code(row_of(c.m.element).format, rng_);
      if (kind == 0) code &= 0x8f;
      if (kind == 1 && pick(0, 2000) != 0) code |= 0x08;
      if ((code & 0x7f) == 0x7f) code ^= 0x40;  // no NaN
    }
    const bool edges = powers == Powers::edges, high = edges && pick(0, 1) == 1;
    c.scales = scales_of_blocks(c.m, [&] {
      if (!mx_) return normal() / 16;
      if (edges) return std::ldexp(1.0f, (high ? 119 : -117) + (pick(0, 99) == 0 ? (high ? 1 : -1) : 0));
      const int least = powers == Powers::near ? -8 : -127, most = powers == Powers::all ? 127 : least + 16;
      return std::ldexp(1.0f, pick(least, most));
    });
    c.bias.resize(static_cast<std::size_t>(c.m.rows()));
    for (auto& v : c.bias) v = edges ? 0.0f : normal();
    c.x.resize(static_cast<std::size_t>(c.n * c.m.k));
    const float size = edges ? std::ldexp(1.0f, high ? -40 : 40) : 3.0f;  // of products that are normal, too
    for (auto& v : c.x) v = bf16_to_f32(f32_to_bf16(normal() * size));
    c.packed = pack_p16_codes(c.m, c.codes, c.scales, c.m.has_bias ? c.bias : std::vector<float>{});
  }

  FloatActs any_floats() {
    constexpr int kColumns[] = {32, 64, 96, 128, 256};
    const auto scale = static_cast<FloatScale>(pick(0, 2));
    if (scale != FloatScale::group) return {scale};
    return {scale, kColumns[pick(0, 4)], pick(0, 1) == 1};
  }

 private:
  bool mx_;
  const Kernel& kernel_;
  std::mt19937 rng_;
  std::normal_distribution<float> normal_;
};

inline std::vector<float> results(const Kernel& kernel, const Float8Case& c, bool next = false) {
  const auto tile = make_tile(kernel, c.shape(), c.x.data(), c.n, HalfRule::away);
  std::vector<float> out(static_cast<std::size_t>(c.n * c.ld()), -1.0f);
  multiply(kernel, {&c.m, c.packed.data(), c.m.panels(), tile.data(), c.n, c.shape(), out.data(), c.ld(),
                    next ? c.packed.data() : nullptr});
  for (float& y : out) y = std::isnan(y) ? NAN : y;  // NaNs are all alike
  return out;
}

}  // namespace moe::test
