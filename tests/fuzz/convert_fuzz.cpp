// Conversion: a tiny layer of any checkpoint format into the layout of any platform. What converts dequantizes to the
// numbers that went in (near them where gate and up came to share a scale), has the size that selection declared and is
// found by name; what has a fault is refused with an error that tells, and nothing comes out.
//
//   input: one byte each for fault, its place and platform; then the layer (tiny.h)
#include <cmath>
#include <cstring>
#include <string_view>

#include "fuzz/tiny.h"

namespace {

using namespace moe::fuzz;

constexpr std::array<const char*, 10> kPlatforms = {
    nullptr,
    R"({"type":"cpu","arch":"x86_64","features":[]})",
    R"({"type":"cpu","arch":"x86_64","features":["avx2","fma","f16c"]})",
    R"({"type":"cpu","arch":"aarch64","features":["dotprod","i8mm"]})",
    R"({"type":"cpu","arch":"aarch64","features":[]})",
    R"({"type":"cuda","capability":[8,0]})",
    R"({"type":"cuda","capability":[9,0]})",
    R"({"type":"cuda","capability":[10,0],"libs":{"flashinfer":true}})",
    R"({"type":"xpu"})",
    R"({"type":"rocm","gfx":"gfx942"})"};

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
  for (std::int64_t r = 0; r < m.n; ++r)
    for (std::int64_t c = 0; c < m.k; ++c) {
      const float got = dense[static_cast<std::size_t>(r * m.k + c)], want = m.value(expert, r, c);
      MOE_REQUIRE(made_anew ? std::fabs(got - want) <= std::fabs(want) / 16.0F + 0x1p-18F : got == want);
    }
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
  const char* machine = p.pick(kPlatforms);
  const TinyLayer layer(p);
  if (!layer.can_have(fault)) fault = Fault::none;
  const Config config = make_config(layer.text);
  if (!config) return 0;
  const Platform platform = machine == nullptr ? nullptr : make_platform(machine);
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
  for (std::int64_t e = 0; e < layer.E; ++e) {
    check_dense(packed.get(), "w13_weight", layer.w13, e, made_anew);
    check_dense(packed.get(), "w2_weight", layer.w2, e, false);
  }
  return 0;
}
