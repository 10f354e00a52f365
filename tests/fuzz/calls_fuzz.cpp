// Sequences of up to 40 calls over eight handles: also NULL and a handle of another kind in the place of the right one,
// memory that runs out, broken texts, destruction in any order. A call succeeds with an object or fails with an error
// that tells; the output of a failed call is as before; nothing leaks (the sanitizers look). The last calls may be made
// by two or three threads at once, on the handles that the others left.
//
//   input: one byte for the function, then one for each choice of its arguments; behind kShare one for the number of
//   threads, the rest is dealt out to them
#include <iterator>
#include <latch>
#include <thread>

#include "fuzz/handles.h"
#include "fuzz/layer.h"
#include "fuzz/short_memory.h"

namespace {

using namespace moe::fuzz;

const std::vector<std::uint8_t>& block() {
  static const std::vector<std::uint8_t> bytes = packed_block(Layer());
  return bytes;
}

void set_weight(Handles& h) {
  static const std::vector<std::int8_t> codes(static_cast<std::size_t>(kExperts * 2 * kIntermediate * kHidden), 3);
  static const std::vector<float> scales(codes.size() / kGroup, 0.125F);
  const bool up = h.bytes().flag(), scale = h.bytes().flag(), odd = h.bytes().below(8) == 7;
  const std::int64_t n = up ? 2 * kIntermediate : kHidden, k = (up ? kHidden : kIntermediate) / (scale ? kGroup : 1);
  const std::string role = std::string(up ? "w13_" : "w2_") + (scale ? "scale" : "weight");
  const void* data = scale ? static_cast<const void*>(scales.data()) : codes.data();
  const moe_tensor t = tensor(scale ? MOE_DTYPE_F32 : MOE_DTYPE_I8, {kExperts, n, odd ? k / 2 : k}, data);
  (void)!moe_weights_set(h.get_own<moe_weights>(), role.c_str(), &t, nullptr, nullptr, nullptr);
}

void convert(Handles& h) {
  moe_convert_options options{};
  options.struct_size = sizeof options;
  options.flags = h.bytes().below(3);
  options.control = h.bytes().flag() ? h.get<moe_control>() : nullptr;
  const bool empties = (options.flags & MOE_CONVERT_RELEASE_SOURCES) != 0;
  h.make<moe_packed>(moe_convert_weights,
                     std::tuple{h.get<moe_context>(), h.get<moe_selection>(),
                                empties ? h.get_own<moe_weights>() : h.get<moe_weights>(), &options});
}

void load(Handles& h) {
  const std::size_t size = h.bytes().below(8) == 7 ? h.bytes().byte() * 16U : block().size();
  const std::uint64_t flags = h.bytes().below(5);
  h.make<moe_packed>(moe_packed_load_memory,
                     std::tuple{h.get<moe_context>(), block().data(), size, flags, nullptr, nullptr});
}

void apply(Handles& h) {
  std::vector<float> x(2 * kHidden, 0.5F), out(x.size(), -99.0F);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(static_cast<std::int32_t>(h.bytes().below(5)) - 2);
  const std::vector<float> weights(4, 0.25F);
  const float* hidden = h.bytes().below(16) == 15 ? nullptr : x.data();
  const moe_status status = moe_apply_flat(h.get<moe_layer>(), 2, MOE_DTYPE_F32, hidden, MOE_DTYPE_F32, nullptr,
                                           ids.data(), weights.data(), MOE_DTYPE_F32, out.data(), nullptr);
  for (const float y : out) MOE_REQUIRE(status == MOE_OK ? std::isfinite(y) && y != -99.0F : y == -99.0F);
}

void look(Handles& h) {
  moe_tensor t{};
  t.struct_size = sizeof t;
  const auto expert = static_cast<std::int64_t>(h.bytes().below(4)) - 1;
  const moe_status status = moe_packed_get(h.get<moe_packed>(), "w13_packed", expert, &t, nullptr);
  MOE_REQUIRE((status == MOE_OK) == (t.data != nullptr));
  std::uint64_t counts[4] = {};
  (void)!moe_layer_expert_counts(h.get<moe_layer>(), counts, h.bytes().below(5), 1, nullptr);
}

constexpr void (*kCalls[])(Handles&) = {
    create_context,
    set_weight,
    convert,
    load,
    apply,
    look,
    [](Handles& h) {
      h.make_from_text<moe_config>(moe_config_create, h.pick({kConfig, kConfig, "{}", "["}));
    },
    [](Handles& h) {
      const auto patch = h.pick({"{}", R"({"has_bias":true})", R"({"top_k":1})", R"({"x":1})"});
      h.make_from_text<moe_config>(moe_config_merge, patch, h.get<moe_config>());
    },
    [](Handles& h) {
      h.make_from_text<moe_platform>(moe_platform_create, h.pick({R"({"type":"cpu","features":["scalar"]})", "{}", "x",
                                                                  R"({"type":"cuda","capability":[9,0]})"}));
    },
    [](Handles& h) {
      h.make<moe_selection>(moe_select_backend, std::tuple{h.get<moe_context>(), h.get<moe_config>(),
                                                           h.get<moe_platform>(), h.bytes().below(5)});
    },
    [](Handles& h) { h.make<moe_weights>(moe_weights_create, std::tuple{h.get<moe_config>()}); },
    [](Handles& h) {
      h.make<moe_layer>(moe_layer_create,
                        std::tuple{h.get<moe_context>(), h.get<moe_selection>(), h.get<moe_packed>(), nullptr});
    },
    [](Handles& h) {
      h.make<moe_control>(moe_control_create, std::tuple{nullptr, nullptr, nullptr});
    },
    [](Handles& h) { moe_control_cancel(h.get<moe_control>()); },
    [](Handles& h) { h.make<moe_buffer>(moe_context_to_json, std::tuple{h.get<moe_context>()}); },
    [](Handles& h) { h.make<moe_buffer>(moe_context_take_log, std::tuple{h.get<moe_context>()}); },
    [](Handles& h) { h.make<moe_buffer>(moe_selection_to_json, std::tuple{h.get<moe_selection>()}); },
    [](Handles& h) { h.make<moe_buffer>(moe_weights_to_json, std::tuple{h.get<moe_weights>()}); },
    [](Handles& h) { h.make<moe_buffer>(moe_packed_to_json, std::tuple{h.get<moe_packed>()}); },
    [](Handles& h) { h.make<moe_buffer>(moe_layer_to_json, std::tuple{h.get<moe_layer>()}); },
    [](Handles& h) { allocations_left = static_cast<int>(h.bytes().below(16)); },
    [](Handles& h) { h.clear(h.bytes().below(8)); },
};

constexpr std::size_t kShare = std::size(kCalls);

void share(const Handles& handles, Producer& p) {
  const std::size_t count = 2 + p.below(2);
  std::vector<std::vector<std::uint8_t>> bytes(count);
  for (std::size_t i = 0; !p.empty(); ++i) bytes[i % count].push_back(p.byte());
  std::latch start(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (const std::vector<std::uint8_t>& own : bytes)
    threads.emplace_back([&handles, &start, &own] {
      Producer choices(own.data(), own.size());
      Handles view(choices, handles);
      start.arrive_and_wait();
      for (int i = 0; i < 40 && !choices.empty(); ++i) kCalls[choices.below(std::size(kCalls))](view);
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // what libFuzzer looks for

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Producer p(data, size);
  allocations_left = 1000;
  Handles handles(p);
  for (int i = 0; i < 40 && !p.empty(); ++i) {
    const std::size_t call = p.below(kShare + 1);
    if (call == kShare) {
      share(handles, p);
      break;
    }
    kCalls[call](handles);
  }
  return 0;
}
