// Hosts in other floating-point states: a pool that is born there, tasks on threads that are there, conversion,
// routing, a config's numbers. The bits are those of every other run, no trap comes, and the state is as it was.
#include <gtest/gtest.h>

#include <thread>

#include "support/capi.h"
#include "support/float_states.h"
#include "support/rooms.h"

namespace moe::test::float_state_test {
namespace {

// Enough tokens for the pool; results among the smallest numbers, where flushing shows.
Model small_numbers() {
  Model m;
  m.T = 70;
  m.compat = "libmoe";
  m = random_model(std::move(m), 3);
  for (float& w : m.weights) w *= 0x1p-126f;
  return m;
}

std::vector<std::byte> bytes_of_packed(const moe_packed* packed) {
  const void* data = nullptr;
  std::uint64_t size = 0;
  EXPECT_EQ(moe_packed_data(packed, &data, &size, nullptr), MOE_OK);
  const auto* first = static_cast<const std::byte*>(data);
  return {first, first + size};
}

std::string text_of(const moe_config* config) {
  const BufferPtr text =
      make<BufferPtr>([&](moe_buffer** o, moe_error** e) { return moe_config_to_json(config, o, e); });
  return {static_cast<const char*>(moe_buffer_data(text.get())), moe_buffer_size(text.get())};
}

struct Results {
  std::string config;
  std::vector<std::byte> packed, out, routed;
  friend bool operator==(const Results&, const Results&) = default;
};

std::vector<std::byte> applied(const moe_layer* layer, const Model& m, bool routed) {
  Call c(m);
  if (routed) {
    c.args.mode = MOE_APPLY_ROUTER_LOGITS;
    c.args.topk_ids = c.args.topk_weights = nullptr;
    c.args.router_logits = &c.logits;
  }
  EXPECT_EQ(moe_apply(layer, &c.args, nullptr), MOE_OK);
  return c.out;
}

Results results_of(const Model& m, moe_context* context) {
  Steps s;
  s.config = make_config(m.config_text());
  s.selection = make_selection(s.config.get(), context);
  s.weights = make_weights(s.config.get(), m);
  s.packed = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
    return moe_convert_weights(context, s.selection.get(), s.weights.get(), nullptr, o, e);
  });
  s.layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
    return moe_layer_create(context, s.selection.get(), s.packed.get(), nullptr, o, e);
  });
  return {text_of(s.config.get()), bytes_of_packed(s.packed.get()), applied(s.layer.get(), m, false),
          applied(s.layer.get(), m, true)};
}

TEST(FloatState, BitsAreThoseOfEveryOtherRun) {
  const Model m = small_numbers();
  const Results want = results_of(m, make_context("{\"threads\":3}").get());
  for (const HostFloats& floats : host_floats()) {
    const ContextPtr context = make_context("{\"threads\":3,\"spin_us\":0}");  // its threads start at the first use
    Results there;
    Call c(m);
    const FloatsLeft left = within(floats, [&] { there = results_of(m, context.get()); });
    EXPECT_TRUE(there == want) << floats.name;
    EXPECT_EQ(left.control, floats.control) << floats.name;
    EXPECT_EQ(left.rounding, floats.rounding) << floats.name;
    EXPECT_TRUE(results_of(m, context.get()) == want) << "after " << floats.name;
  }
}

// Threads of the host, each in the state.
struct Lent {
  const HostFloats* floats;
  bool restored = true;
  static void run(void* user, std::size_t count, moe_task_fn task, void* arg) {
    Lent& lent = *static_cast<Lent*>(user);
    for (std::size_t t = 0; t < 2; ++t)
      std::thread([&lent, count, task, arg, t] {
        const FloatsLeft left = within(*lent.floats, [&] {
          for (std::size_t i = t; i < count; i += 2) task(arg, i);
        });
        lent.restored = lent.restored && left.control == lent.floats->control && left.rounding == lent.floats->rounding;
      }).join();
  }
};

TEST(FloatState, TasksOnThreadsOfTheHost) {
  const Model m = small_numbers();
  const Results want = results_of(m, make_context("{\"threads\":1}").get());
  for (const HostFloats& floats : host_floats()) {
    Lent lent{&floats};
    const moe_parallel_ops ops{sizeof ops, 2, &lent, Lent::run, nullptr};
    moe_context_callbacks callbacks{};
    callbacks.struct_size = sizeof callbacks;
    callbacks.parallel = &ops;
    const ContextPtr context = make<ContextPtr>(
        [&](moe_context** o, moe_error** e) { return moe_context_create(nullptr, 0, &callbacks, o, e); });
    EXPECT_TRUE(results_of(m, context.get()) == want) << floats.name;
    EXPECT_TRUE(lent.restored) << floats.name;
  }
}

}  // namespace
}  // namespace moe::test::float_state_test
