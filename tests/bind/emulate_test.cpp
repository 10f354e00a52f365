// Backend EMULATION and packed files that say two things: the header describes weights of another size than the config
// beside it. Hashes are right, so only the sizes tell. Children of fork() use layers whose panels are made in each
// call. Act-order groups of several sizes need a wider layout, and a kernel that takes it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "api/handle.h"
#include "bind/emulate.h"
#include "io/packed.h"
#include "support/rooms.h"
#include "support/sanitizers.h"
#include "support/wna16_targets.h"

namespace moe::test::emulate_test {
namespace {

Wna16Model model_of(std::int64_t hidden, std::int64_t intermediate) {
  Wna16Model m;
  m.E = 2, m.H = hidden, m.I = intermediate;
  return random_wna16(m, 1);
}

Packed opened(const moe_packed* packed) {
  const void* data = nullptr;
  std::uint64_t size = 0;
  EXPECT_EQ(moe_packed_data(packed, &data, &size, nullptr), MOE_OK);
  return *open_packed({static_cast<const std::byte*>(data), size}, {.verify = true}, "caller", nullptr, {});
}

// The weights and layout of one block with the config of another.
std::vector<std::byte> mixed(const moe_packed* weights, const moe_packed* config) {
  const Packed of = opened(weights);
  PackedInfo info = of.info;
  info.config = opened(config).info.config;
  Buffer memory = *Buffer::create(static_cast<std::size_t>(*packed_block_bytes(info)));
  std::memcpy(memory.data() + packed_payload_offset(info), of.payload.data(), of.payload.size());
  const auto sealed = seal_packed(info, memory.bytes(), {}, "owned", nullptr);
  EXPECT_TRUE(sealed);
  return {sealed->block.begin(), sealed->block.end()};
}

TEST(Emulate, LayoutOfAnotherSizeThanTheConfig) {
  const Wna16Model small = model_of(128, 64);
  Wna16Model runs = small;
  runs.extra = {{"moe_backend", "emulation"}};
  for (const Wna16Target& t : wna16_targets()) {
    const std::string name = t.name;
    if (name != "ours" && name != "on_the_fly" && name != "dense") continue;
    for (const Wna16Model& other : {small, model_of(256, 64), model_of(128, 128)}) {
      SCOPED_TRACE(name + " " + std::to_string(other.H) + " " + std::to_string(other.I));
      Wna16Model a = other, b = small;
      a.extra = b.extra = t.members;
      Wna16Conversion weights(a), config(b);
      ASSERT_EQ(weights.convert().status, MOE_OK);
      ASSERT_EQ(config.convert().status, MOE_OK);
      const std::vector<std::byte> block = mixed(weights.packed.get(), config.packed.get());
      Wna16Layer run;
      run.config = make_config(runs.config_text());
      run.selection = make_selection(run.config.get());
      run.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
        return moe_packed_load_memory(nullptr, block.data(), block.size(), 0, nullptr, nullptr, o, e);
      });
      const Failure f = failure([&](moe_error** e) {
        moe_layer* out = nullptr;
        const moe_status s =
            moe_layer_create(run.context.get(), run.selection.get(), run.packed.get(), nullptr, &out, e);
        run.layer.reset(out);
        return s;
      });
      const bool same = other.H == small.H && other.I == small.I;
      EXPECT_EQ(f.status, same ? MOE_OK : MOE_ERR_CONFIG_MISMATCH) << f.message;
      if (same) continue;
      EXPECT_NE(f.message.find("[2, " + std::to_string(other.I) + ", " + std::to_string(other.H)), std::string::npos)
          << f.message;
    }
  }
}

// Marlin's weights in groups of 64: in order, act-ordered, act-ordered with every column in any group.
enum class Groups { in_order, even, uneven };
struct Case {
  const char* layout;
  Groups groups;
};
constexpr Case kCases[] = {
    {"on_the_fly", Groups::in_order}, {"dense", Groups::in_order}, {"dense", Groups::even}, {"dense", Groups::uneven}};

Wna16Model marlin(Groups groups) {
  Wna16Model m;
  m.E = 2, m.H = 256, m.I = 128, m.group = 64, m.order = groups != Groups::in_order, m.dtype = MOE_DTYPE_BF16;
  m = random_wna16(m, 3);
  for (const Wna16Target& t : wna16_targets())
    if (std::string_view(t.name) == "marlin") m.extra = t.members;
  std::mt19937 rng(5);
  for (auto* matrices : {&m.w13, &m.w2})
    for (Matrix13or2& w : *matrices) {
      for (float& scale : w.scales) scale = bf16_to_f32(f32_to_bf16(scale));  // as Marlin has them
      for (std::int32_t& g : w.g_idx)
        if (groups == Groups::uneven) g = static_cast<std::int32_t>(rng() % static_cast<std::uint32_t>(w.groups));
    }
  return m;
}

// The same, to be run by backend EMULATION.
Wna16Model emulated(Wna16Model m, const char* layout) {
  m.extra = {{"moe_backend", "emulation"}, {"emulation_layout", layout}};
  return m;
}

// On a machine with everything this build has rows for: the first row takes groups of 64 and no others.
TEST(Emulate, TheKernelTakesTheLayoutThatTheWeightsNeed) {
  bind::Machine machine{{}, [](const Kernel&) { return true; }};
  machine.platform.arch = native_arch();
  machine.platform.features.set();
  for (const Case& c : kCases) {
    const bool uneven = c.groups == Groups::uneven;
    SCOPED_TRACE(std::string(c.layout) + (uneven ? " uneven" : ""));
    const Wna16Model m = marlin(c.groups);
    Wna16Conversion there(m);
    ASSERT_EQ(there.convert().status, MOE_OK);
    const ConfigPtr config = make_config(emulated(m, c.layout).config_text());
    const SelectionPtr selection = make_selection(config.get());
    ASSERT_TRUE(selection);
    const auto e = bind::emulate(there.packed->object, *selection->object, nullptr, machine);
    ASSERT_TRUE(e) << e.error().message;
    const Layout& used = e->panels ? e->panels->layout() : e->weights->info.layout;
    EXPECT_EQ(used.w13.group(), uneven ? 32 : 64);
    EXPECT_TRUE(e->kernel->id->fits(needs_of(used))) << e->kernel->id->name << " " << used.id();
#if defined(__x86_64__)
    EXPECT_EQ(e->kernel->id->isa, uneven ? Isa::amxbf16 : Isa::amxint8);
#endif
  }
}

// The numbers of such weights, on every instruction set of this machine.
TEST(Emulate, GroupsOfAnySizesOnEveryInstructionSet) {
  for (const Case& c : kCases) {
    const Wna16Model m = marlin(c.groups);
    const std::vector<double> want = plain_layer(m);
    Wna16Conversion there(m);
    ASSERT_EQ(there.convert().status, MOE_OK);
    for (const char* isa : kWna16Isas) {
      SCOPED_TRACE(std::string(isa) + " " + c.layout + (c.groups == Groups::uneven ? " uneven" : ""));
      setenv("MOE_MAX_ISA", isa, 1);
      Wna16Layer run;
      run.config = make_config(emulated(m, c.layout).config_text());
      run.selection = make_selection(run.config.get());
      run.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
        return moe_layer_create(run.context.get(), run.selection.get(), there.packed.get(), nullptr, o, e);
      });
      unsetenv("MOE_MAX_ISA");
      ASSERT_TRUE(run.layer);
      EXPECT_LE(relative_rms(floats_of(run.run(m, 0, m.T), m.dtype), want), bound_of(m));
    }
  }
}

// More calls at once than the layer has rooms; what the rooms take is in the layer's figures.
TEST(Emulate, CallsThatShareARoom) {
  Wna16Model m = model_of(128, 64);
  for (const Wna16Target& t : wna16_targets())
    if (std::string_view(t.name) == "on_the_fly") m.extra = t.members;
  Wna16Conversion there(m);
  ASSERT_EQ(there.convert().status, MOE_OK);
  for (const char* layout : {"on_the_fly", "dense"}) {
    m.extra = {{"moe_backend", "emulation"}, {"emulation_layout", layout}};
    Wna16Layer run;
    run.config = make_config(m.config_text());
    run.selection = make_selection(run.config.get());
    run.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_layer_create(run.context.get(), run.selection.get(), there.packed.get(), nullptr, o, e);
    });
    ASSERT_TRUE(run.layer);
    const std::vector<std::byte> want = run.run(m, 0, m.T);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int turn = 0; turn < 20; ++turn) wrong += run.run(m, 0, m.T) != want;
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
    moe_buffer* text = nullptr;
    ASSERT_EQ(moe_layer_to_json(run.layer.get(), &text, nullptr), MOE_OK);
    const auto memory = nlohmann::json::parse(
        std::string(static_cast<const char*>(moe_buffer_data(text)), moe_buffer_size(text)))["memory"];
    moe_buffer_destroy(text);
    ASSERT_EQ(memory.contains("panel_bytes"), std::string_view(layout) == "on_the_fly") << memory;
    if (memory.contains("panel_bytes")) {
      EXPECT_GT(memory["panel_bytes"].get<std::uint64_t>(), 16u * 128 / 2) << memory;
    }
  }
}

#if !MOE_TSAN  // which ends processes that start threads after a fork of threads

// The parent's other thread is in a call on the same layer, and holds a room for panels that the child never sees
// given back. A child that hangs is ended by its alarm. Nothing is allocated after the first fork.
TEST(Emulate, AChildUsesTheLayerThatTheParentIsIn) {
  Wna16Model m = model_of(512, 512);
  for (const Wna16Target& t : wna16_targets())
    if (std::string_view(t.name) == "on_the_fly") m.extra = t.members;
  Wna16Conversion there(m);
  ASSERT_EQ(there.convert().status, MOE_OK);
  m.extra = {{"moe_backend", "emulation"}, {"emulation_layout", "on_the_fly"}};
  Wna16Layer run;
  run.config = make_config(m.config_text());
  run.selection = make_selection(run.config.get());
  run.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(run.context.get(), run.selection.get(), there.packed.get(), nullptr, o, e);
  });
  ASSERT_TRUE(run.layer);
  const auto apply = [&](std::vector<float>& out) {
    return moe_apply_flat(run.layer.get(), m.T, MOE_DTYPE_F32, m.x.data(), MOE_DTYPE_F32, nullptr, m.ids.data(),
                          m.weights.data(), MOE_DTYPE_F32, out.data(), nullptr) == MOE_OK;
  };
  std::vector<float> want(m.x.size()), busy_out(m.x.size()), out(m.x.size());
  ASSERT_TRUE(apply(want));
  std::atomic<bool> done{false};
  std::atomic<int> calls{0};
  std::thread busy([&] {
    for (; !done.load() && apply(busy_out); ++calls) {
    }
  });
  std::string ends;
  for (int round = 0; round < 5 && ends.find('x') == std::string::npos; ++round) {
    for (const int before = calls.load(); calls.load() == before;) std::this_thread::yield();  // it is at it
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);
      _exit(apply(out) && out == want ? 0 : 1);
    }
    int status = -1;
    ends += waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? '.' : 'x';
  }
  done = true;
  busy.join();
  EXPECT_EQ(ends, ".....");
}
#endif

}  // namespace
}  // namespace moe::test::emulate_test
