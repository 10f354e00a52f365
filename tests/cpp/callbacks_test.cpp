// Callbacks of moe.hpp: lambdas that work, say no, and throw.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "cpp/world.h"

namespace cpp_test {
namespace {

using namespace libmoe;

class CppCallbacks : public testing::Test {
 protected:
  Weights weights() {
    Weights made = Weights::create(config);
    made.set("w13_weight", {n.w13, {kExperts, 2 * kInner, kHidden}});
    made.set("w2_weight", {n.w2, {kExperts, kHidden, kInner}});
    return made;
  }
  moe_status convert(const Control* control, const Context& context = {}) {
    Weights set = weights();
    ConvertOptions options;
    options.control = control;
    const auto made = Packed::try_convert(selection, set, context, std::move(options));
    return made ? MOE_OK : made.error().status();
  }

  Numbers n;
  Config config = Config::create(kConfig);
  Selection selection = Selection::create(config);
};

TEST_F(CppCallbacks, ProgressGoesOnStopsAndThrows) {
  std::uint64_t last = 0, all = 0;
  const Control counting = Control::create([&](std::uint64_t done, std::uint64_t total) {
    last = done;
    all = total;
    return true;
  });
  EXPECT_EQ(convert(&counting), MOE_OK);
  EXPECT_GT(all, 0U);
  EXPECT_EQ(last, all);
  EXPECT_EQ(counting.progress().done, last);
  EXPECT_EQ(counting.progress().total, all);

  const Control stopping = Control::create([](std::uint64_t, std::uint64_t) { return false; });
  EXPECT_EQ(convert(&stopping), MOE_ERR_CANCELLED);
  std::size_t calls = 0;
  const Control silent = Control::create([&](std::uint64_t, std::uint64_t) { ++calls; });
  EXPECT_EQ(convert(&silent), MOE_OK);
  EXPECT_GT(calls, 0U);
  const Control going_on = Control::create([](std::uint64_t, std::uint64_t) -> moe_status { return MOE_OK; });
  EXPECT_EQ(convert(&going_on), MOE_OK);
  const Control leaving = Control::create([](std::uint64_t, std::uint64_t) -> moe_status { return MOE_ERR_CANCELLED; });
  EXPECT_EQ(convert(&leaving), MOE_ERR_CANCELLED);
  const Control failing = Control::create([](std::uint64_t, std::uint64_t) -> moe_status { return MOE_ERR_IO; });
  EXPECT_EQ(convert(&failing), MOE_ERR_CALLBACK);
  const Control empty = Control::create(std::function<bool(std::uint64_t, std::uint64_t)>());
  EXPECT_EQ(convert(&empty), MOE_OK);

  const Control throwing =
      Control::create([](std::uint64_t, std::uint64_t) -> bool { throw std::runtime_error("no"); });
  EXPECT_EQ(convert(&throwing), MOE_ERR_CALLBACK);

  const Control plain = Control::create();
  EXPECT_EQ(plain.report(1, 2), MOE_OK);
  std::thread([&] { plain.cancel(); }).join();
  EXPECT_EQ(plain.report(2, 2), MOE_ERR_CANCELLED);
  EXPECT_EQ(convert(&plain), MOE_ERR_CANCELLED);
}

TEST_F(CppCallbacks, ParallelForRunsTheTasks) {
  std::atomic<std::size_t> tasks{0};
  bool broken = false;
  Callbacks lent;
  lent.num_threads = 3;
  lent.parallel_for = [&](std::size_t count, Task task) {
    if (broken) throw 7;
    std::thread first([&] {
      for (std::size_t i = 0; i < count; i += 2) task(i);
    });
    for (std::size_t i = 1; i < count; i += 2) task(i);
    first.join();
    tasks += count;
  };
  const Context context = Context::create({}, std::move(lent));
  EXPECT_EQ(convert(nullptr, context), MOE_OK);
  EXPECT_GT(tasks, 0U);
  broken = true;
  EXPECT_EQ(convert(nullptr, context), MOE_ERR_CALLBACK);
  EXPECT_NE(context.to_json().text().find("threads"), std::string_view::npos);
}

TEST_F(CppCallbacks, AllocatorsAreWholeAndMayThrow) {
  std::atomic<int> held{0};
  bool empty = false;
  Callbacks lent;
  lent.allocator.allocate = [&](std::size_t size, std::size_t alignment, std::int32_t) -> void* {
    if (empty) throw std::bad_alloc();
    ++held;
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  };
  EXPECT_EQ(Context::try_create({}, lent).error().status(), MOE_ERR_INVALID_ARGUMENT) << "half an allocator";
  lent.allocator.deallocate = [&](void* memory, std::size_t, std::size_t) {
    --held;
    std::free(memory);
  };
  {
    const Context context = Context::create({}, lent);
    Weights set = weights();
    const Packed packed = Packed::convert(selection, set, context);
    EXPECT_GT(held, 0);
    empty = true;
    EXPECT_EQ(convert(nullptr, context), MOE_ERR_OUT_OF_MEMORY);
  }
  EXPECT_EQ(held, 0);
}

TEST_F(CppCallbacks, LogLines) {
  std::atomic<int> lines{0};
  Callbacks lent;
  lent.log = [&](moe_log_level, std::string_view component, std::string_view message) {
    lines += !component.empty() && !message.empty();
    throw std::runtime_error("dropped");
  };
  const Context context = Context::create(R"({"log_level":"trace"})", std::move(lent));
  EXPECT_EQ(convert(nullptr, context), MOE_OK);
  EXPECT_GT(lines, 0);
  EXPECT_NE(context.take_log().text().find("message"), std::string_view::npos);
}

TEST_F(CppCallbacks, SourceGivesTakesBackAndThrows) {
  std::atomic<int> given{0}, taken{0};
  std::string trouble;
  Source source;
  source.get = [&](std::string_view role, std::int64_t expert, std::string_view shard) -> Result<ConstTensor> {
    if (!trouble.empty()) throw std::runtime_error(trouble);
    if (!shard.empty()) return Error(MOE_ERR_MISSING_WEIGHT, "no halves here");
    const bool w13 = role == "w13_weight";
    if (!w13 && role != "w2_weight") return Error(MOE_ERR_MISSING_WEIGHT, "no such role");
    const std::int64_t rows = w13 ? 2 * kInner : kHidden, columns = w13 ? kHidden : kInner;
    ++given;
    return ConstTensor(View<const float>((w13 ? n.w13 : n.w2).data() + expert * rows * columns,
                                         static_cast<std::size_t>(rows * columns)),
                       {rows, columns});
  };
  source.put = [&](std::string_view, std::int64_t, std::string_view, const ConstTensor& tensor) {
    taken += tensor.dtype() == MOE_DTYPE_F32;
    throw std::runtime_error("dropped");
  };
  Weights asked = Weights::from_source(config, source);
  const Packed packed = Packed::convert(selection, asked);
  EXPECT_GT(given, 0);
  EXPECT_EQ(given, taken);
  Weights set = weights();
  EXPECT_EQ(packed.to_json().text(), Packed::convert(selection, set).to_json().text());

  trouble = "the disk is gone";
  const auto failed = Packed::try_convert(selection, asked);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().status(), MOE_ERR_CALLBACK);
  EXPECT_NE(std::string(failed.error().details()).find(trouble), std::string::npos);
  EXPECT_EQ(Weights::try_from_source(config, {}).error().status(), MOE_ERR_INVALID_ARGUMENT);
}

TEST_F(CppCallbacks, ReleaseOnceInEveryCase) {
  std::map<std::string, int> ended;
  const auto release = [&ended](const char* name) { return [&ended, name] { ++ended[name]; }; };
  {
    Weights set = Weights::create(config);
    const ConstTensor w2(View<const float>(n.w2.data(), kHidden * kInner), {kHidden, kInner});
    const ConstTensor half(View<const float>(n.w13.data(), kInner * kHidden), {kInner, kHidden});
    set.set_expert("w2_weight", 0, nullptr, w2, release("kept"));
    set.set_expert("w13_weight", 0, "w1", half, release("kept"));
    EXPECT_EQ(ended["kept"], 0);
    EXPECT_TRUE(set.set_named("layer.experts.1.gate_proj.weight", half, release("named")));
    EXPECT_FALSE(set.set_named("other.weight", half, release("foreign")));
    EXPECT_EQ(ended["foreign"], 1);
    EXPECT_FALSE(set.try_set_expert("w2_weight", 99, nullptr, w2, release("bad expert")));
    EXPECT_FALSE(set.try_set(std::string("w2\0", 3), w2, release("cut")));
    EXPECT_FALSE(set.try_set("w2_weight", {}, release("absent")));
    EXPECT_FALSE(Weights().try_set("w2_weight", w2, release("empty set")));
    for (const char* name : {"bad expert", "cut", "absent", "empty set"}) EXPECT_EQ(ended[name], 1) << name;
    EXPECT_NE(set.to_json().text().find("missing"), std::string_view::npos);
    const HeldTensor held = set.get("w2_weight", 0);
    EXPECT_EQ(held.tensor.data(), n.w2.data());
    EXPECT_FALSE(held.hold);
    EXPECT_EQ(set.try_get("w2_weight", 3).error().status(), MOE_ERR_MISSING_WEIGHT);
    EXPECT_EQ(set.try_load_safetensors("/no such place").error().status(), MOE_ERR_IO);
  }
  EXPECT_EQ(ended["kept"], 2);
  EXPECT_EQ(ended["named"], 1);
}

}  // namespace
}  // namespace cpp_test
