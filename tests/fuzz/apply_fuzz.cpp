// A tiny layer of any format on this machine, with any bits as activations, ids and weights. A foreign id is refused
// and leaves the output alone; a token's bits do not depend on its batch; integer kernels give the bits
// of the scalar ones, and plain numbers lead to what float64 says, within what 8-bit activations allow. The same of
// weights in another engine's layout, run by backend EMULATION.
//
//   input: bytes for tokens, kind of numbers, compute and the other engine, machine; then the layer (tiny.h), ids,
//   gates and activations
#include <optional>

#include "fuzz/tiny_reference.h"

namespace {

using namespace moe::fuzz;

struct Call {
  std::int64_t tokens, alone;  // alone: the token that runs by itself, too
  std::vector<std::uint8_t> x;
  std::vector<std::int32_t> ids;
  std::vector<float> gates;
  bool plain, foreign = false;
};

Call draw_call(Producer& p, const TinyLayer& l, std::int64_t tokens, std::int64_t alone, bool plain) {
  Call c{tokens, alone, {}, {}, {}, plain};
  for (std::int64_t i = 0; i < tokens * l.top_k; ++i) {
    const std::uint8_t b = p.byte();
    c.ids.push_back(b == 255 ? static_cast<std::int32_t>(l.E) : static_cast<std::int32_t>(b % (l.E + 1)) - 1);
    c.foreign |= c.ids.back() >= l.E;
    c.gates.push_back(plain ? static_cast<float>(p.byte() % 8) / 8.0F : std::bit_cast<float>(p.word()));
  }
  Noise noise(p.word());
  for (std::int64_t i = 0; i < tokens * l.H; ++i) {
    std::uint32_t bits = p.empty() ? 0x3f800000U | noise.below(1U << 24) << 7 : p.word();  // 1 to 4
    if (plain) bits = std::bit_cast<std::uint32_t>(static_cast<float>(noise.below(33)) / 16.0F - 1.0F);
    if (l.dtype == MOE_DTYPE_F32) {
      for (int k = 0; k < 4; ++k) c.x.push_back(static_cast<std::uint8_t>(bits >> 8 * k));
    } else {  // plain numbers have 6 bits, so that they are exact
      const std::uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
      const std::uint32_t f16 = rest == 0 ? 0 : sign | (((rest >> 13) - (112U << 10)) & 0x7fff);
      const std::uint32_t h = l.dtype == MOE_DTYPE_F16 && plain ? f16 : bits >> 16;
      c.x.push_back(static_cast<std::uint8_t>(h));
      c.x.push_back(static_cast<std::uint8_t>(h >> 8));
    }
  }
  return c;
}

std::vector<std::uint8_t> run(const moe_layer* layer, const TinyLayer& l, const Call& c, std::int64_t first,
                              std::int64_t count) {
  const auto row = static_cast<std::size_t>(l.H) * bytes_of(l.dtype);
  std::vector<std::uint8_t> out(static_cast<std::size_t>(count) * row, 0xa5);
  const moe_status status =
      moe_apply_flat(layer, count, l.dtype, c.x.data() + static_cast<std::size_t>(first) * row, MOE_DTYPE_F32, nullptr,
                     c.ids.data() + first * l.top_k, c.gates.data() + first * l.top_k, l.dtype, out.data(), nullptr);
  if (status != MOE_OK) {
    MOE_REQUIRE(status == MOE_ERR_INVALID_ARGUMENT && c.foreign);
    for (const std::uint8_t b : out) MOE_REQUIRE(b == 0xa5);
  } else {
    MOE_REQUIRE(!c.foreign || count < c.tokens);
  }
  return out;
}

// The outputs of a batch, after one of its tokens alone gave the same.
std::vector<std::uint8_t> run_batch(const moe_layer* layer, const TinyLayer& l, const Call& call,
                                    const std::optional<Reference>& reference) {
  std::vector<std::uint8_t> out = run(layer, l, call, 0, call.tokens);
  const auto row = static_cast<std::size_t>(l.H) * bytes_of(l.dtype);
  if (!call.foreign && call.tokens > 1) {
    const std::vector<std::uint8_t> alone = run(layer, l, call, call.alone, 1);
    MOE_REQUIRE(std::equal(alone.begin(), alone.end(), out.begin() + static_cast<std::ptrdiff_t>(row) * call.alone));
  }
  for (std::int64_t t = 0; reference && t < call.tokens; ++t)
    reference->check_token({call.x.data(), call.ids.data(), call.gates.data(), out.data()}, t);
  return out;
}

void run_emulated(const TinyLayer& l, const Call& call, const std::optional<Reference>& reference, const char* there,
                  bool dense, const Platform& this_machine) {
  const Config theirs = make_config(l.with(there));
  const Config ours = make_config(
      l.with(dense ? R"(,"moe_backend":"emulation","emulation_layout":"dense")" : R"(,"moe_backend":"emulation")"));
  if (!theirs || !ours) return;
  const auto select = [](const Config& config, const moe_platform* platform) {
    return made<Selection>(
        [&](auto** o, auto** e) { return moe_select_backend(nullptr, config.get(), platform, 0, o, e); });
  };
  const Selection made_for = select(theirs, nullptr), here = select(ours, this_machine.get());
  if (!made_for || !here) return;
  const Weights weights = l.weights(theirs.get());
  const Packed packed = made<Packed>(
      [&](auto** o, auto** e) { return moe_convert_weights(nullptr, made_for.get(), weights.get(), nullptr, o, e); });
  MOE_REQUIRE(packed);
  const RunLayer layer = made<RunLayer>(
      [&](auto** o, auto** e) { return moe_layer_create(nullptr, here.get(), packed.get(), nullptr, o, e); });
  MOE_REQUIRE(layer);
  (void)run_batch(layer.get(), l, call, reference);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Kept, because a look at this machine takes longer than to run a layer. NULL: of another architecture.
  static const Platform scalar = make_platform(R"({"type":"cpu","features":["scalar"]})");
  static const std::array<Platform, 3> machines = {make_platform(R"({"type":"auto"})"),
                                                   make_platform(R"({"type":"cpu","features":["avx2","fma","f16c"]})"),
                                                   make_platform(R"({"type":"cpu","features":["neon","dotprod"]})")};
  constexpr std::array<const char*, 6> kElsewhere = {
      nullptr,
      R"(,"platform":{"type":"cuda","capability":[9,0]},"moe_backend":"marlin")",
      R"(,"platform":{"type":"xpu"})",
      R"(,"platform":{"type":"cpu"},"selection_policy":"vllm")",
      R"(,"platform":{"type":"rocm","gfx":"gfx942"},"moe_backend":"emulation","emulation_layout":"on_the_fly")",
      R"(,"platform":{"type":"rocm","gfx":"gfx942"},"moe_backend":"emulation","emulation_layout":"dense")"};
  Producer p(data, size);
  const std::int64_t first = p.byte(), tokens = first % 5, alone = tokens > 0 ? first / 5 % tokens : 0;
  const bool plain = p.flag();
  const std::uint8_t mode = p.byte();
  // Where weights are no 4-bit floats, the last two are refused.
  constexpr std::array<const char*, 4> kCompute = {"", R"(,"compute":"a8")", R"(,"compute":"a4")",
                                                   R"(,"compute":"mxfp8")"};
  const auto asked = static_cast<std::size_t>((mode & 1) | (mode >> 6 & 2));
  const char* compute = kCompute[asked];
  const bool dense = (mode & 2) != 0;
  const char* there = kElsewhere[static_cast<std::size_t>(mode >> 2) % kElsewhere.size()];
  const Platform& other = p.pick(machines);
  const TinyLayer l(p, compute);
  const Call call = draw_call(p, l, tokens, alone, plain);
  const Config config = make_config(l.text);
  if (!config) return 0;
  std::optional<Reference> reference;
  if (plain && l.silu && asked < 2 && tokens > 0 && !call.foreign) reference.emplace(l);
  if (there != nullptr && *l.form->scheme == 0 && l.form->scale_rows == 0)
    run_emulated(l, call, reference, there, dense, machines[0]);
  const Weights weights = l.weights(config.get());
  Packed packed;  // for both machines, when their kernels read one layout
  std::string layout;
  std::vector<std::uint8_t> exact;
  for (const Platform* platform : {&scalar, &other}) {
    if (*platform == nullptr) continue;
    const Selection selection = made<Selection>(
        [&](auto** o, auto** e) { return moe_select_backend(nullptr, config.get(), platform->get(), 0, o, e); });
    if (!selection) continue;
    if (!packed || layout != moe_selection_layout(selection.get())) {
      layout = moe_selection_layout(selection.get());
      packed = made<Packed>([&](auto** o, auto** e) {
        return moe_convert_weights(nullptr, selection.get(), weights.get(), nullptr, o, e);
      });
    }
    MOE_REQUIRE(packed);
    const RunLayer layer = made<RunLayer>(
        [&](auto** o, auto** e) { return moe_layer_create(nullptr, selection.get(), packed.get(), nullptr, o, e); });
    if (!layer) continue;  // not this machine's
    const std::vector<std::uint8_t> out = run_batch(layer.get(), l, call, reference);
    if (call.foreign) continue;
    const std::string kernel = moe_selection_kernel(selection.get());
    const char* const exact_acts[] = {"_tok8_", "_blk8_", "_blk16_", "_e2m1_"};
    if (std::none_of(std::begin(exact_acts), std::end(exact_acts),
                     [&](const char* act) { return kernel.find(act) != std::string::npos; }))
      continue;
    if (exact.empty()) exact = out;
    for (std::size_t i = 0; i < out.size() / bytes_of(l.dtype); ++i) {
      const float a = number(l.dtype, out.data(), i), b = number(l.dtype, exact.data(), i);
      MOE_REQUIRE(std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (a != a && b != b));
    }
  }
  return 0;
}
