// What a rank reads, keeps and allocates: its own experts, and nothing in a call.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <tuple>

#include "dist/spread.h"
#include "support/model_dir.h"
#include "support/sanitizers.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
thread_local int until_none = -1;  // allocations of this thread before there is no memory; below 0: there always is
thread_local bool none_was = false;
void* counted(std::size_t size) noexcept {
  if (until_none == 0) {
    none_was = true;
    return nullptr;
  }
  if (until_none > 0) --until_none;
  if (counting.load(std::memory_order_relaxed)) ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void* counted_or_throw(std::size_t size) {
  if (void* p = counted(size)) return p;
  throw std::bad_alloc();
}
}  // namespace
void* operator new(std::size_t size) { return counted_or_throw(size); }
void* operator new[](std::size_t size) { return counted_or_throw(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace moe::test::dist_own_part_test {
namespace {

// Memory of a context, counted while calls run.
struct Memory {
  static void* take(void*, std::size_t size, std::size_t alignment, std::int32_t) {
    if (counting.load()) ++allocations;
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  }
  static void give(void*, void* p, std::size_t, std::size_t) { std::free(p); }
};

ContextPtr context_with(decltype(moe_allocator_ops::allocate) allocate) {
  moe_allocator_ops memory{};
  memory.struct_size = sizeof memory;
  memory.allocate = allocate;
  memory.deallocate = Memory::give;
  moe_context_callbacks callbacks{};
  callbacks.struct_size = sizeof callbacks;
  callbacks.allocator = &memory;
  return make<ContextPtr>([&](moe_context** o, moe_error** e) {
    return moe_context_create("{\"threads\":1}", MOE_NUL_TERMINATED, &callbacks, o, e);
  });
}

TEST(DistOwnPart, ACallAllocatesNothing) {
  const Sample s = int4_sample({.E = 6, .K = 2}, 12);
  constexpr int kSize = 3;
  for (const char* options : {"{}", R"({"chunk_tokens":2})", R"({"combine":"compact"})"})
    for (const bool routes : {false, true}) {
      std::atomic<int> ready{0}, done{0};
      on_ranks(kSize, [&](int rank, moe_comm* comm) {
        const ContextPtr ctx = context_with(Memory::take);
        const Spread spread(s, comm, options, ctx.get());
        Part part(s, rank * 4, 4, routes);
        ++ready;
        while (ready.load() < kSize) std::this_thread::yield();
        counting = true;
        const moe_status status = moe_dist_apply(spread.dist.get(), &part.args, nullptr);
        ++done;
        while (done.load() < kSize) std::this_thread::yield();
        counting = false;
        EXPECT_EQ(status, MOE_OK);
        ++done;
        while (done.load() < 2 * kSize) std::this_thread::yield();
      });
      EXPECT_EQ(allocations.exchange(0), 0) << options;
    }
}

TEST(DistOwnPart, LayersOfOneCommunicatorShareTheMemoryOfCalls) {
  const Sample s = int4_sample({.E = 6, .K = 2}, 12), wide = int4_sample({.E = 5, .H = 192, .K = 3}, 12, 2);
  static thread_local int blocks = 0;
  const auto count = [](void* user, std::size_t size, std::size_t alignment, std::int32_t node) {
    ++blocks;
    return Memory::take(user, size, alignment, node);
  };
  const std::vector<std::byte> want = whole_output(s), want_wide = whole_output(wide);
  on_ranks(2, [&](int rank, moe_comm* comm) {
    const ContextPtr ctx = context_with(count), other = context_with(count);
    const Spread first(s, comm, "{}", ctx.get());
    const auto taken = [&](const Sample& sample, const std::string& options, moe_context* context) {
      const int before = blocks;
      const ConfigPtr config = sample.make();
      const DistPtr dist = make_dist(comm, config.get(), options, context);
      return blocks - before;
    };
    EXPECT_EQ(taken(s, "{}", ctx.get()), 0);
    EXPECT_EQ(taken(s, R"({"max_tokens_per_rank":16})", ctx.get()), 0);
    EXPECT_EQ(taken(s, R"({"max_tokens_per_rank":4096})", ctx.get()), 1);
    EXPECT_EQ(taken(s, "{}", other.get()), 1);
    const Spread second(wide, comm, "{}", ctx.get());
    for (int round = 0; round < 3; ++round)
      for (const auto& [spread, sample, whole] :
           {std::tuple{&first, &s, &want}, std::tuple{&second, &wide, &want_wide}}) {
        Part part(*sample, rank * 6, 6);
        EXPECT_EQ(moe_dist_apply(spread->dist.get(), &part.args, nullptr), MOE_OK);
        EXPECT_EQ(0, std::memcmp(part.out.data(), whole->data() + static_cast<std::size_t>(rank) * part.out.size(),
                                 part.out.size()));
      }
  });
}

TEST(DistOwnPart, MemoryThatIsNotThereOnOneRank) {
  const Sample s = int4_sample({.E = 6, .K = 2}, 12);
  on_ranks(2, [&](int rank, moe_comm* comm) {
    const ContextPtr ctx = context_with([](void*, std::size_t, std::size_t, std::int32_t) -> void* { return nullptr; });
    const ConfigPtr config = s.make();
    moe_dist* dist = nullptr;
    EXPECT_EQ(moe_dist_create(rank == 1 ? ctx.get() : nullptr, comm, config.get(), nullptr, 0, &dist, nullptr),
              rank == 1 ? MOE_ERR_OUT_OF_MEMORY : MOE_ERR_PEER);
    const Spread good(s, comm);
  });
}

// Wherever it fails, the others hear of it before their deadline, and the communicator is good for the next layer.
TEST(DistOwnPart, NoMemoryAnywhereInCreateOfOneRank) {
  const Sample s = int4_sample({.E = 2, .K = 1}, 2);
  for (const bool alike : {true, false}) {
    const Sample other = alike ? s : s.with({{"activation", "gelu"}});
    std::atomic<bool> more{true};
    int rounds = 0, told = 0;
    for (; more.load(); ++rounds) {
      std::atomic<int> status{MOE_OK};
      on_ranks(2, [&](int rank, moe_comm* comm) {
        ASSERT_EQ(moe_comm_set_options(comm, R"({"timeout_ms":5000})", MOE_NUL_TERMINATED, nullptr), MOE_OK);
        const ConfigPtr config = (rank == 1 ? other : s).make();
        moe_dist* dist = nullptr;
        none_was = false;
        until_none = rank == 1 ? rounds : -1;
        const moe_status mine = moe_dist_create(nullptr, comm, config.get(), nullptr, 0, &dist, nullptr);
        until_none = -1;
        EXPECT_EQ(mine == MOE_OK, dist != nullptr);
        moe_dist_destroy(dist);
        if (rank == 0) status = mine;
        if (rank == 1) {
          more = none_was;
          EXPECT_EQ(mine == MOE_ERR_OUT_OF_MEMORY, none_was) << rounds;
        }
        const moe_status again = moe_dist_create(nullptr, comm, s.make().get(), nullptr, 0, &dist, nullptr);
        EXPECT_EQ(again, MOE_OK) << rounds;
        moe_dist_destroy(dist);
      });
      const int last = alike ? MOE_OK : MOE_ERR_CONFIG_MISMATCH;
      told += status == MOE_ERR_PEER ? 1 : 0;
      EXPECT_TRUE(status == last || (more && status == MOE_ERR_PEER)) << rounds << ": " << status;
    }
    EXPECT_GT(told, 20);
  }
}

TEST(DistOwnPart, AWorkspaceThatIsTooSmallSaysWhatItNeeds) {
  const Sample s = int4_sample({.E = 2, .H = 8192, .I = 32, .K = 2, .group = -1}, 1);
  on_ranks(32, [&](int, moe_comm* comm) {
    const ConfigPtr config = s.make();
    moe_dist* dist = nullptr;
    const Failure f = failure([&](moe_error** e) {
      return moe_dist_create(nullptr, comm, config.get(), R"({"workspace_mb":1})", MOE_NUL_TERMINATED, &dist, e);
    });
    EXPECT_EQ(f.status, MOE_ERR_OUT_OF_MEMORY);
    EXPECT_GT(f.details.value("needed", 0), 1 << 20);
  });
}

TEST(DistOwnPart, AModelsDirectoryIsReadInParts) {
  const TempDir dir;
  ModelDir model;
  model.E = 8;
  model.write(dir.path() + "/model");
  const CheckpointPtr checkpoint = open_model(dir.path() + "/model");
  const auto read = [&](const std::string& patch, LayerPtr* layer) {
    const ControlPtr control = make<ControlPtr>(
        [](moe_control** o, moe_error** e) { return moe_control_create(nullptr, nullptr, nullptr, o, e); });
    moe_checkpoint_options options{};
    options.struct_size = sizeof options;
    options.control = control.get();
    options.patch_json = patch.c_str();
    options.patch_len = patch.size();
    *layer = make<LayerPtr>([&](moe_layer** o, moe_error** e) {
      return moe_checkpoint_layer(nullptr, checkpoint.get(), 1, &options, o, e);
    });
    moe_progress p{};
    p.struct_size = sizeof p;
    EXPECT_EQ(moe_control_state(control.get(), &p, nullptr), MOE_OK);
    return p.bytes_done;
  };
  LayerPtr whole;
  const std::uint64_t all = read("{}", &whole);
  EXPECT_GT(all, 0U);
  std::atomic<std::uint64_t> sum{0};
  Sample s;
  s.dtype = MOE_DTYPE_BF16, s.T = 9, s.H = model.H, s.K = model.K;
  std::vector<float> x(static_cast<std::size_t>(s.T * s.H));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) / 16.0f - 0.5f;
  s.x = in_dtype(x, s.dtype);
  for (std::int64_t i = 0; i < s.T * s.K; ++i) {
    s.ids.push_back(static_cast<std::int32_t>(i * 5 % model.E));
    s.weights.push_back(0.5f);
  }
  Part want(s, 0, s.T);
  moe_error* err = nullptr;
  expect_status_ok(moe_apply(whole.get(), &want.args, &err), err);
  on_ranks(4, [&](int rank, moe_comm* comm) {
    const ConfigPtr config = config_of(checkpoint.get(), 1);
    const DistPtr dist = make_dist(comm, config.get(), "{}");
    const auto told = json_of([&](moe_buffer** o, moe_error** e) { return moe_dist_to_json(dist.get(), o, e); });
    EXPECT_EQ(told["experts"], (nlohmann::json{rank * 2, rank * 2 + 1}));
    LayerPtr layer;
    const std::uint64_t mine = read(told["patch"].dump(), &layer);
    EXPECT_EQ(mine * 4, all);
    sum += mine;
    moe_error* e = nullptr;
    expect_status_ok(moe_dist_attach(dist.get(), layer.get(), &e), e);
    Part part(s, rank * 2, rank == 3 ? 3 : 2);
    expect_status_ok(moe_dist_apply(dist.get(), &part.args, &e), e);
    EXPECT_EQ(std::memcmp(part.out.data(), want.out.data() + static_cast<std::size_t>(rank * 2) * s.row_bytes(),
                          part.out.size()),
              0);
  });
  EXPECT_EQ(sum.load(), all);
}

}  // namespace
}  // namespace moe::test::dist_own_part_test
