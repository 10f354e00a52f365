// The scalar quantizers of float activations against PyTorch's and the tools' own codes and scales, byte for byte, and
// every vector form against the scalar one at the values where rounding turns.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "kernels/ref/float_acts.h"
#include "support/p16.h"
#include "support/vectors.h"

namespace moe::test::act_quant_test {
namespace {

using namespace kernels;  // NOLINT(google-build-using-namespace)

class ActQuant : public ::testing::Test {
 protected:
  VecFile file_ = load_vectors("float/act_quant.safetensors");
  std::vector<float> x_ = file_.at("x").floats();
  std::int64_t rows_ = file_.at("x").shape[0], k_ = file_.at("x").shape[1];

  // Codes of e4m3 and the scales of each `columns` columns.
  void expect_float8(const std::string& name, const FloatActs& acts, std::int64_t columns, float given = 0) const {
    const auto codes = file_.at(name + "_q").data;
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::int64_t k0 = 0; k0 < k_; k0 += columns) {
        const float* x = x_.data() + row * k_ + k0;
        const ref::Float8Scale s = ref::float8_scale(acts, ref::absmax(x, columns), given);
        if (acts.scale == FloatScale::mx) {
          const auto byte =
              static_cast<unsigned>(file_.at(name + "_e").data[static_cast<std::size_t>((row * k_ + k0) / columns)]);
          ASSERT_EQ(s.scale, e8m0_to_f32(byte)) << name << " row " << row << " k " << k0;
        } else if (acts.scale != FloatScale::tensor) {
          ASSERT_EQ(s.scale, file_.at(name + "_s").floats()[static_cast<std::size_t>((row * k_ + k0) / columns)])
              << name << " row " << row << " k " << k0;
        }
        for (std::int64_t k = 0; k < columns; ++k) {
          const auto code = static_cast<unsigned>(codes[static_cast<std::size_t>(row * k_ + k0 + k)]);
          ASSERT_EQ(ref::float8_value(x[k], s), small_to_f32(kE4m3, code)) << name << " row " << row << " k " << k0 + k;
        }
      }
  }
  unsigned nibble(const std::string& name, std::int64_t at) const {
    const auto byte = static_cast<unsigned>(file_.at(name).data[static_cast<std::size_t>(at / 2)]);
    return at % 2 == 0 ? byte & 15 : byte >> 4;
  }
};

TEST_F(ActQuant, EightBitFloats) {
  expect_float8("fp8_token", {FloatScale::token}, k_);
  expect_float8("fp8_static", {FloatScale::tensor}, k_, file_.at("fp8_static_s").floats()[0]);
  expect_float8("fp8_group", {FloatScale::group, 128}, 128);
  expect_float8("fp8_group_ue8m0", {FloatScale::group, 128, true}, 128);
  expect_float8("mx_e4m3fn_rceil", kMxActs, 32);
}

TEST_F(ActQuant, FourBitFloats) {
  for (const bool nv : {false, true}) {
    const std::int64_t columns = nv ? 16 : 32;
    const float up = nv ? file_.at("nvfp4_g").floats()[0] : 1.0f;
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::int64_t k0 = 0; k0 < k_; k0 += columns) {
        const float* x = x_.data() + row * k_ + k0;
        const float absmax = ref::absmax(x, columns);
        const ref::SymmetricScale s = nv ? ref::nvfp4_scale(absmax, 1.0f / up) : ref::mxfp4_scale(absmax);
        const auto at = static_cast<std::size_t>((row * k_ + k0) / columns);
        const auto byte = static_cast<unsigned>(file_.at(nv ? "nvfp4_sf" : "mx_e2m1_even_e").data[at]);
        ASSERT_EQ(s.scale, nv ? small_to_f32(kE4m3, byte) * (1.0f / up) * 0.5f : e8m0_to_f32(byte) * 0.5f)
            << "row " << row << " k " << k0;
        for (std::int64_t k = 0; k < columns; ++k) {
          const unsigned code = nibble(nv ? "nvfp4_packed" : "mx_e2m1_even_q", row * k_ + k0 + k);
          ASSERT_EQ(static_cast<float>(ref::e2m1_code(x[k], s.inverse)), 2.0f * small_to_f32(kE2m1, code))
              << "row " << row << " k " << k0 + k;
        }
      }
  }
}

// Halves between all neighbours, and the numbers beside them; what is beyond the largest; zeros; odd values.
std::vector<float> turning_points(const SmallFloat& format) {
  std::vector<float> all = {0.0f, -0.0f, 1e-30f, -1e-45f, 1e30f};
  for (unsigned code = 0; code < format.largest; ++code) {
    const float half = (small_to_f32(format, code) + small_to_f32(format, code + 1)) / 2;
    for (const float v : {half, std::nextafter(half, 0.0f), std::nextafter(half, 1e9f), small_to_f32(format, code)})
      all.push_back(v), all.push_back(-v);
  }
  return all;
}

TEST(ActQuantRows, TurningPoints) {
  for (const ActFormat act : {ActFormat::e4m3, ActFormat::e2m1})
    for (const Kernel* kernel : runnable_kernels(act)) {
      if (!kernel->exact) continue;
      SCOPED_TRACE(std::string(kernel->id->name));
      std::vector<float> points = turning_points(act == ActFormat::e4m3 ? kE4m3 : kE2m1);
      for (const float odd : {0.0f, NAN, INFINITY}) {
        std::vector<float> x = points;
        if (odd != 0) x[x.size() / 2] = odd;
        x.resize((x.size() + 31) / 32 * 32);
        const auto k = static_cast<std::int64_t>(x.size());
        const bool nv = kernel->id->layout == LayoutKind::p16_nvfp4;
        const P16 m = matrix_for(*kernel, {16, k, nv ? 16 : 32});
        for (const FloatActs& acts : {FloatActs{FloatScale::tensor}, FloatActs{}, FloatActs{FloatScale::group, 64},
                                      FloatActs{FloatScale::group, 96, true}}) {
          const TileShape shape = tile_shape(*kernel, m, acts);
          for (const float scale : {1.0f, 0.25f, 3e-3f})
            ASSERT_EQ(make_tile(*kernel, shape, x.data(), 1, HalfRule::away, scale),
                      make_tile(scalar_of(*kernel), shape, x.data(), 1, HalfRule::away, scale));
        }
      }
    }
}

}  // namespace
}  // namespace moe::test::act_quant_test
