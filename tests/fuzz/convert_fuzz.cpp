// Conversion: a tiny layer of any checkpoint format into the layout of any platform. What converts dequantizes to the
// numbers that went in (near them where gate and up came to share a scale), has the size that selection declared and is
// found by name; what has a fault is refused with an error that tells, and nothing comes out.
//
//   input: one byte each for fault, its place (and the expert that is looked at) and platform; then the layer (tiny.h)
#include <cmath>
#include <cstring>
#include <string_view>

#include "fuzz/tiny.h"

namespace {

using namespace moe::fuzz;

// Kept, because a look at this machine takes as long as a conversion.
const Platform& pick_platform(Producer& p) {
  static const std::array<Platform, 10> all = {
      make_platform(R"({"type":"auto"})"),
      make_platform(R"({"type":"cpu","arch":"x86_64","features":[]})"),
      make_platform(R"({"type":"cpu","arch":"x86_64","features":["avx2","fma","f16c"]})"),
      make_platform(R"({"type":"cpu","arch":"aarch64","features":["dotprod","i8mm"]})"),
      make_platform(R"({"type":"cpu","arch":"aarch64","features":[]})"),
      make_platform(R"({"type":"cuda","capability":[8,0]})"),
      make_platform(R"({"type":"cuda","capability":[9,0]})"),
      make_platform(R"({"type":"cuda","capability":[10,0],"libs":{"flashinfer":true}})"),
      make_platform(R"({"type":"xpu"})"),
      make_platform(R"({"type":"rocm","gfx":"gfx942"})")};
  return p.pick(all);
}

// made_anew: codes were rounded to three bits of mantissa, or to steps of 2^-9 of a scale that is at most 2^-8.
void check_dense(const moe_packed* packed, const char* role, const Matrix& m, std::int64_t expert, bool made_anew) {
  std::vector<float> dense(static_cast<std::size_t>(m.n * m.k), -99.0F);
  const moe_tensor out = tensor(MOE_DTYPE_F32, {m.n, m.k}, dense.data());
  const moe_status status = moe_packed_dequantize(packed, role, expert, &out, nullptr);
  if (status != MOE_OK) {  // some layouts of other engines are written only; a failed call changes nothing
    MOE_REQUIRE(status == MOE_ERR_UNSUPPORTED);
    for (const float x : dense) MOE_REQUIRE(x == -99.0F);
    return;
  }
  const std::vector<float> want = m.values(expert);
  for (std::size_t i = 0; i < dense.size(); ++i)
    MOE_REQUIRE(made_anew ? std::fabs(dense[i] - want[i]) <= std::fabs(want[i]) / 16.0F + 0x1p-18F
                          : dense[i] == want[i]);
}

std::string outputs_of(const moe_packed* packed) {
  moe_buffer* text = nullptr;
  MOE_REQUIRE(moe_packed_to_json(packed, &text, nullptr) == MOE_OK);
  std::string s(static_cast<const char*>(moe_buffer_data(text)), moe_buffer_size(text));
  moe_buffer_destroy(text);
  return s;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Producer p(data, size);
  auto fault = static_cast<Fault>(p.below(8));
  const std::size_t where = p.below(256);
  const Platform& platform = pick_platform(p);
  const TinyLayer layer(p);
  if (!layer.can_have(fault)) fault = Fault::none;
  const Config config = make_config(layer.text);
  if (!config) return 0;
  const Selection selection = made<Selection>(
      [&](auto** o, auto** e) { return moe_select_backend(nullptr, config.get(), platform.get(), 0, o, e); });
  if (!selection) return 0;
  const Weights weights = layer.weights(config.get(), fault, where);
  if (!weights) return 0;
  moe_status status = MOE_OK;
  const Packed packed = made<Packed>(
      [&](auto** o, auto** e) { return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e); },
      &status);
  if (fault != Fault::none) {
    MOE_REQUIRE(status != MOE_OK);
    return 0;
  }
  MOE_REQUIRE(status == MOE_OK);  // what select accepts, convert can do
  std::uint64_t bytes = 0, alignment = 0, block = 0;
  const void* at = nullptr;
  MOE_REQUIRE(moe_selection_packed_size(selection.get(), &bytes, &alignment, nullptr) == MOE_OK);
  MOE_REQUIRE(moe_packed_data(packed.get(), &at, &block, nullptr) == MOE_OK);
  MOE_REQUIRE(reinterpret_cast<std::uintptr_t>(at) % alignment == 0);
  const std::string about = outputs_of(packed.get());
  const bool as_selected = about.find(moe_selection_layout(selection.get())) != std::string::npos;
  const std::string_view word = "\"requantized_experts\":";
  const std::size_t said = about.find(word);
  const bool made_anew = said != std::string::npos && about[said + word.size()] != '0';
  MOE_REQUIRE(as_selected ? block == bytes : layer.uneven && block >= bytes);  // room for groups of several sizes
  const auto expert = static_cast<std::int64_t>(where) % layer.E;
  check_dense(packed.get(), "w13_weight", layer.w13, expert, made_anew);
  check_dense(packed.get(), "w2_weight", layer.w2, expert, false);
  return 0;
}
