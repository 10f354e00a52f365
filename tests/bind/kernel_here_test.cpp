// Selection, layers and emulation agree on the kernel: every scheme, group size, activation, order of columns and input
// type on every instruction set that kernels have, described; and on those of this machine through the ABI.
#include "bind/kernel_here.h"

#include <gtest/gtest.h>

#include <set>

#include "api/handle.h"
#include "oracle/backend.h"
#include "oracle/select_world.h"
#include "support/rooms.h"
#include "support/wna16_targets.h"

namespace moe::test::kernel_here_test {
namespace {

// A machine whose best instruction set is this one, with all lesser ones or with none.
Platform machine_with(Isa isa, Arch arch, bool lesser) {
  Platform p = machine(DeviceType::cpu, arch, {});
  p.features = isa_features(isa);
  for (std::size_t i = 0; lesser && i < static_cast<std::size_t>(isa); ++i)
    if (const Isa less = static_cast<Isa>(i); less == Isa::scalar || isa_arch(less) == arch)
      p.features |= isa_features(less);
  return p;
}
std::vector<Platform> machines() {
  std::set<Isa> words;
  for (const KernelId& k : kKernelIds) words.insert(k.isa);
  std::vector<Platform> all;
  for (const Isa isa : words)
    for (const Arch arch : {Arch::x86_64, Arch::aarch64})
      for (const bool lesser : {false, true})
        if (isa == Isa::scalar || isa_arch(isa) == arch) all.push_back(machine_with(isa, arch, lesser));
  return all;
}

struct Walk {
  int layers = 0, refused = 0;
  std::set<std::string> kernels, layouts;
};

// What a selection took and refused, against pick() and the kernel of a layer.
void agree(const std::shared_ptr<const Config>& config, const Platform& platform, Walk& walk) {
  const Result<Selection> s = select_backend(config, platform, {.explain_only = true});
  ASSERT_TRUE(s) << s.error().message;
  const auto picked = [&](const Layout& layout) {
    KernelNeeds needs = needs_of(layout);
    needs.acts = acts_of(*config);
    return pick(needs, [&](std::size_t i) { return platform.runs(kKernelIds[i].isa); });
  };
  if (!s->winner || !s->kernel) {
    ++walk.refused;
    return;
  }
  ++walk.layers;
  const KernelId& chosen = kKernelIds[*s->kernel];
  walk.kernels.insert(std::string(chosen.name));
  walk.layouts.insert(s->layout_id);
  const auto found = picked(s->layout);
  ASSERT_TRUE(found) << chosen.name << " " << s->layout_id;
  EXPECT_EQ(kKernelIds[*found].name, chosen.name) << s->layout_id;
  const bind::Machine here{platform, [](const Kernel&) { return true; }};
  const Kernel* row = bind::kernel_here(*config, s->layout, here);
  if (const Arch arch = isa_arch(chosen.isa); arch == Arch::automatic || arch == native_arch()) {
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->id->name, chosen.name) << s->layout_id;
  }
  // Each candidate with a kernel of this layout is accepted where the kernel fits and runs, and nowhere else.
  for (const Candidate& c : s->candidates) {
    const std::optional<std::size_t> i = kernel_index(c.kernel);
    if (!i || kKernelIds[*i].layout != s->layout.kind || c.backend != s->backend_name()) continue;
    KernelNeeds needs = needs_of(s->layout);
    needs.acts = acts_of(*config);
    EXPECT_EQ(c.reason == Reject::none, kKernelIds[*i].fits(needs) && platform.runs(kKernelIds[*i].isa))
        << c.kernel << " " << s->layout_id << " " << c.detail;
  }
}

TEST(KernelHere, SelectionAndLayersAgreeOnEveryMachine) {
  const nlohmann::json weights[] = {{{"num_bits", 4}, {"type", "int"}}, {{"num_bits", 8}, {"type", "int"}}};
  Walk walk;
  std::vector<nlohmann::json> quantizations = {nullptr};
  for (const nlohmann::json& bits : weights)
    for (const int group : {-1, 16, 32, 48, 64, 96, 128, 384})
      for (const bool symmetric : {true, false})
        for (const char* order : {"", "group"})
          for (const bool int8 : {false, true}) {
            nlohmann::json q = {{"format", "pack-quantized"}, {"weights", bits}};
            nlohmann::json& w = q["weights"];
            w["symmetric"] = symmetric;
            w["strategy"] = group == -1 ? "channel" : "group";
            if (group != -1) w["group_size"] = group;
            if (*order != '\0') w["actorder"] = order;
            if (int8)
              q["input_activations"] = {{"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}};
            quantizations.push_back(q);
          }
  for (const char* scheme : {"FP8", "FP8_DYNAMIC", "FP8_BLOCK", "MXFP8", "W4AFP8", "MXFP4", "NVFP4"})
    quantizations.push_back({{"scheme", scheme}});
  const std::vector<Platform> platforms = machines();
  for (const nlohmann::json& q : quantizations)
    for (const char* dtype : {"bfloat16", "float16", "float32"})
      for (const char* compute : {"auto", "a16", "a8", "a4", "mxfp8"})
        for (const char* act : {"auto", "per_token", "block32"})
          for (const int tp : {1, 2}) {
            nlohmann::json doc = {
                {"num_experts", 4},  {"top_k", 2},         {"hidden_dim", 384},  {"intermediate_size", 768},
                {"in_dtype", dtype}, {"out_dtype", dtype}, {"compute", compute}, {"activation_quant", act}};
            if (!q.is_null()) doc["quantization"] = q;
            if (tp != 1) doc["parallel"] = {{"tp_size", tp}};
            Result<Config> c = parse_config(doc.dump());
            if (!c) continue;  // combinations that no layer has
            const auto config = std::make_shared<const Config>(*std::move(c));
            SCOPED_TRACE(doc.dump());
            for (const Platform& p : platforms) agree(config, p, walk);
            if (testing::Test::HasFailure()) return;
          }
  // Not by refusing: every kernel was chosen somewhere.
  for (const KernelId& k : kKernelIds) EXPECT_TRUE(walk.kernels.contains(std::string(k.name))) << k.name;
  EXPECT_GT(walk.layers, 5000);
  EXPECT_GT(walk.refused, 100);
  EXPECT_GT(walk.layouts.size(), 40u);
}

struct IsaCap {
  explicit IsaCap(const char* isa) { setenv("MOE_MAX_ISA", isa, 1); }
  ~IsaCap() { unsetenv("MOE_MAX_ISA"); }
  IsaCap(const IsaCap&) = delete;
};

std::string kernel_of(const moe_layer* layer) {
  const BufferPtr text = make<BufferPtr>([&](moe_buffer** o, moe_error** e) { return moe_layer_to_json(layer, o, e); });
  return json_in(text.get())["kernel"].get<std::string>();
}

LayerPtr layer_of(Wna16Layer& run, const moe_packed* packed) {
  run.selection = make_selection(run.config.get());
  return make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(run.context.get(), run.selection.get(), packed, nullptr, o, e);
  });
}

TEST(KernelHere, SelectionLayersAndEmulationAgreeHere) {
  std::set<std::string> seen;
  for (const char* isa : kWna16Isas)
    for (const int bits : {4, 8})
      for (const int group : {32, 64, 96, 192})
        for (const bool order : {false, true})
          for (const moe_dtype dtype : {MOE_DTYPE_F32, MOE_DTYPE_BF16})
            for (const char* compute : {"auto", "a16", "a8"}) {
              Wna16Model m;
              m.E = 1, m.K = 1, m.H = 192, m.I = 192, m.bits = bits, m.group = group, m.order = order, m.dtype = dtype;
              m.extra = {{"compute", compute}};
              m = random_wna16(m, 1);
              SCOPED_TRACE(std::string(isa) + " " + m.config_text());
              const IsaCap cap(isa);
              Wna16Conversion there(m);
              if (there.convert().status == MOE_OK) {
                const std::string selected = moe_selection_kernel(there.selection.get());
                Wna16Layer run;
                run.config = make_config(m.config_text());
                const LayerPtr own = layer_of(run, there.packed.get());
                ASSERT_TRUE(own);
                EXPECT_EQ(kernel_of(own.get()), selected);
                seen.insert(selected);
                if (std::string_view(compute) == "a8") continue;  // a selection refuses to emulate it
                Wna16Model other = m;
                other.extra["moe_backend"] = "emulation";
                if (order) other.extra["emulation_layout"] = "dense";
                run.config = make_config(other.config_text());
                const LayerPtr emulated = layer_of(run, there.packed.get());
                ASSERT_TRUE(emulated);
                EXPECT_EQ(kernel_of(emulated.get()), selected);
              }
            }
  EXPECT_GE(seen.size(), 6u);  // the scalar rows of two widths and three activations at least
}

}  // namespace
}  // namespace moe::test::kernel_here_test
