// What goes wrong on one rank, and what all of them say about it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>

#include "dist/spread.h"

namespace moe::test::dist_faults_test {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

Sample small() { return int4_sample({.E = 6, .I = 96, .K = 2}, 12); }
constexpr const char* kShort = R"({"timeout_ms":300})";

Failure apply(const Spread& s, Part& part) {
  return failure([&](moe_error** e) { return moe_dist_apply(s.dist.get(), &part.args, e); });
}

TEST(DistFaults, AnArgumentErrorOfOneRankIsPeerOnTheOthersAndTheNextCallIsGood) {
  const Sample s = small();
  const std::vector<std::byte> want = whole_output(s);
  on_ranks(3, [&](int rank, moe_comm* comm) {
    const Spread spread(s, comm, R"({"max_tokens_per_rank":8})");
    const struct {
      std::function<void(Part&)> spoil;
      moe_status status;
    } faults[] = {
        {[](Part& p) { static_cast<std::int32_t*>(p.ids.data)[1] = 99; }, MOE_ERR_INVALID_ARGUMENT},
        {[](Part& p) { p.args.topk_ids = nullptr; }, MOE_ERR_INVALID_ARGUMENT},
        {[](Part& p) { p.args.mode = 7; }, MOE_ERR_INVALID_ARGUMENT},
        {[](Part& p) { p.hidden.shape[1] = 5; }, MOE_ERR_SHAPE},
        {[](Part& p) { p.hidden.dtype = MOE_DTYPE_I8; }, MOE_ERR_DTYPE},
        {[](Part& p) { p.args.struct_size = 3; }, MOE_ERR_INVALID_ARGUMENT},
        {[](Part& p) { p.args.workspace = &p; }, MOE_ERR_UNSUPPORTED},
    };
    for (const auto& fault : faults) {
      Part part(s, rank * 4, 4);
      std::vector<std::int32_t> ids(s.ids.begin() + rank * 4 * s.K, s.ids.begin() + (rank + 1) * 4 * s.K);
      part.ids.data = ids.data();
      alignas(64) static std::byte room[64];
      if (rank == 1) fault.spoil(part);
      if (part.args.workspace != nullptr) part.args.workspace = room, part.args.workspace_size = sizeof room;
      const Failure f = apply(spread, part);
      EXPECT_EQ(f.status, rank == 1 ? fault.status : MOE_ERR_PEER) << f.message;
      if (rank != 1) {
        EXPECT_EQ(f.details["rank"], 1);
        EXPECT_EQ(f.details["peer_status"], fault.status);
      }
      EXPECT_EQ(part.out, std::vector<std::byte>(part.out.size(), std::byte{0xA5}));
    }
    Part many(s, 0, rank == 2 ? 12 : 4);
    EXPECT_EQ(apply(spread, many).status, rank == 2 ? MOE_ERR_BUFFER_TOO_SMALL : MOE_ERR_PEER);
    Part good(s, rank * 4, 4);
    EXPECT_EQ(apply(spread, good).status, MOE_OK);
    EXPECT_EQ(
        std::memcmp(good.out.data(), want.data() + static_cast<std::size_t>(rank) * good.out.size(), good.out.size()),
        0);
  });
}

TEST(DistFaults, ACancelBeforeTheExchange) {
  const Sample s = small();
  on_ranks(2, [&](int rank, moe_comm* comm) {
    const Spread spread(s, comm);
    const ControlPtr control = make<ControlPtr>(
        [](moe_control** o, moe_error** e) { return moe_control_create(nullptr, nullptr, nullptr, o, e); });
    if (rank == 0) moe_control_cancel(control.get());
    Part part(s, rank * 4, 4);
    part.args.control = control.get();
    EXPECT_EQ(apply(spread, part).status, rank == 0 ? MOE_ERR_CANCELLED : MOE_ERR_PEER);
    Part good(s, rank * 4, 4);
    EXPECT_EQ(apply(spread, good).status, MOE_OK);
  });
}

TEST(DistFaults, EveryMemberOfConfigAndOptionsMustAgree) {
  const Sample s = small();
  const struct {
    nlohmann::json config;
    const char* options;
    const char* pointer;
  } cases[] = {
      {{{"hidden_dim", 128}}, "{}", "/config/hidden_dim"},
      {{{"intermediate_size", 192}}, "{}", "/config/intermediate_size_per_partition"},
      {{{"num_experts", 7}}, "{}", "/config/num_experts"},
      {{{"top_k", 1}}, "{}", "/config/top_k"},
      {{{"activation", "gelu"}}, "{}", "/config/activation"},
      {{{"routing", {{"routed_scaling_factor", 2.0}}}}, "{}", "/config/routing/routed_scaling_factor"},
      {{{"out_dtype", "bfloat16"}}, "{}", "/config/out_dtype"},
      {nullptr, R"({"layer_id":4})", "/options/layer_id"},
      {nullptr, R"({"placement":"round_robin"})", "/options/placement"},
      {nullptr, R"({"combine":"compact"})", "/options/combine"},
      {nullptr, R"({"mode":"tp"})", "/options/mode"},
      {nullptr, R"({"max_tokens_per_rank":9})", "/options/max_tokens_per_rank"},
      {nullptr, R"({"chunk_tokens":9})", "/options/chunk_tokens"},
      {nullptr, R"({"workspace_mb":9})", "/options/workspace_mb"},
  };
  on_ranks(3, [&](int rank, moe_comm* comm) {
    for (const auto& c : cases) {
      const bool other = rank == 2;
      const ConfigPtr config = other && c.config.is_object() ? s.with(c.config).make() : s.make();
      const std::string options = other ? c.options : "{}";
      moe_dist* dist = nullptr;
      const Failure f = failure([&](moe_error** e) {
        return moe_dist_create(nullptr, comm, config.get(), options.c_str(), options.size(), &dist, e);
      });
      EXPECT_EQ(f.status, MOE_ERR_CONFIG_MISMATCH) << f.message;
      EXPECT_EQ(f.details["pointer"], c.pointer);
      EXPECT_EQ(f.details["ranks"], (nlohmann::json{0, 2}));
      EXPECT_EQ(dist, nullptr);
    }
    const Spread good(s, comm);
  });
}

TEST(DistFaults, BadOptionsOfOneRank) {
  const Sample s = small();
  on_ranks(2, [&](int rank, moe_comm* comm) {
    for (const char* bad : {"{\"mod\":1}", "{", R"({"mode":"tp","combine":"exact"})", R"({"workspace_mb":0})", "[]",
                            R"({"placement":[[0,1,2],[3,4]]})", R"({"placement":[[0,1,2],[2,3,4,5]]})",
                            R"({"placement":[[0,1,2,3,4,5]]})", R"({"placement":[[0,1,2],[3,4,6]]})",
                            R"({"placement":[0]})", R"({"placement":[[0],[1]],"mode":"tp"})"}) {
      const ConfigPtr config = s.make();
      const std::string options = rank == 0 ? bad : R"({"layer_id":5})";
      moe_dist* dist = nullptr;
      const Failure f = failure([&](moe_error** e) {
        return moe_dist_create(nullptr, comm, config.get(), options.c_str(), options.size(), &dist, e);
      });
      EXPECT_EQ(f.status, rank == 0 ? MOE_ERR_INVALID_CONFIG : MOE_ERR_PEER) << f.message;
      if (rank != 0) {
        EXPECT_NE(f.message.find("rank 0 failed with MOE_ERR_INVALID_CONFIG (2)"), std::string::npos) << f.message;
      }
    }
    moe_dist* dist = nullptr;
    const ConfigPtr config = s.make();
    EXPECT_EQ(moe_dist_create(nullptr, comm, rank == 0 ? nullptr : config.get(), nullptr, 0, &dist, nullptr),
              rank == 0 ? MOE_ERR_INVALID_ARGUMENT : MOE_ERR_PEER);
  });
}

TEST(DistFaults, TheLayerMustBeTheRanks) {
  const Sample s = small();
  on_ranks(2, [&](int rank, moe_comm* comm) {
    const ConfigPtr config = s.make();
    const DistPtr dist = make_dist(comm, config.get(), "{}");
    Part part(s, 0, 4);
    EXPECT_EQ(moe_dist_apply(dist.get(), &part.args, nullptr), MOE_ERR_STATE);
    const LayerPtr whole = layer_of(s, config.get());
    const LayerPtr right = own_layer(s, dist.get());
    EXPECT_EQ(moe_dist_attach(dist.get(), rank == 0 ? whole.get() : right.get(), nullptr),
              rank == 0 ? MOE_ERR_CONFIG_MISMATCH : MOE_ERR_PEER);
    EXPECT_EQ(moe_dist_attach(dist.get(), rank == 0 ? nullptr : right.get(), nullptr),
              rank == 0 ? MOE_ERR_INVALID_ARGUMENT : MOE_ERR_PEER);
    EXPECT_EQ(moe_dist_attach(dist.get(), right.get(), nullptr), MOE_OK);
    EXPECT_EQ(moe_dist_attach(dist.get(), right.get(), nullptr), MOE_ERR_STATE);
    EXPECT_EQ(moe_dist_apply(dist.get(), &part.args, nullptr), MOE_OK);
  });
}

TEST(DistFaults, ConfigsThatAreCutAlready) {
  const Sample s = small().with({{"parallel", {{"tp_size", 2}, {"enable_expert_parallel", true}}}});
  on_ranks(2, [&](int, moe_comm* comm) {
    const ConfigPtr config = s.make();
    moe_dist* dist = nullptr;
    EXPECT_EQ(moe_dist_create(nullptr, comm, config.get(), nullptr, 0, &dist, nullptr), MOE_ERR_UNSUPPORTED);
  });
}

TEST(DistFaults, ARankWithoutExpertsHasNoConfig) {
  const Sample s = int4_sample({.E = 2, .K = 2}, 4);
  on_ranks(3, [&](int rank, moe_comm* comm) {
    const ConfigPtr config = s.make();
    const DistPtr dist = make_dist(comm, config.get(), "{}");
    moe_config* local = nullptr;
    EXPECT_EQ(moe_dist_local_config(dist.get(), &local, nullptr), rank == 2 ? MOE_ERR_STATE : MOE_OK);
    moe_config_destroy(local);
  });
}

TEST(DistFaults, OneRankCallsAnotherLayer) {
  const Sample s = small();
  on_ranks(3, [&](int rank, moe_comm* comm) {
    const Spread seven(s, comm, R"({"layer_id":7})"), eight(s, comm, R"({"layer_id":8})");
    Part part(s, 0, 4);
    const Failure f = apply(rank == 1 ? eight : seven, part);
    EXPECT_EQ(f.status, MOE_ERR_COMM);
    EXPECT_EQ(f.details["reason"], "out_of_step");
    EXPECT_EQ(f.details["rank"], rank == 1 ? 0 : 1);
    EXPECT_EQ(apply(seven, part).status, MOE_OK);  // all ranks have made the same steps
  });
}

// Without layer_ids of their own, too.
TEST(DistFaults, OneRankTakesItsLayersInAnotherOrder) {
  const Sample s = small();
  on_ranks(2, [&](int rank, moe_comm* comm) {
    const Spread one(s, comm), two(s, comm);
    Part part(s, 0, 4);
    for (int i = 0; i < 2; ++i) {
      const Failure f = apply((rank == 1) == (i == 0) ? two : one, part);
      EXPECT_EQ(f.status, MOE_ERR_COMM);
      EXPECT_EQ(f.details["reason"], "out_of_step");
      EXPECT_EQ(f.details["call"], "moe_dist_apply");
      EXPECT_EQ(f.details["layer_id"], 0);
    }
    EXPECT_EQ(apply(one, part).status, MOE_OK);
    EXPECT_EQ(apply(two, part).status, MOE_OK);
  });
}

TEST(DistFaults, ARankThatForgotToAttachIsToldSo) {
  const Sample s = small();
  on_ranks(2, [&](int rank, moe_comm* comm) {
    const ConfigPtr config = s.make();
    const DistPtr dist = make_dist(comm, config.get(), "{}");
    Part part(s, 0, 4);
    if (rank == 1) {
      EXPECT_EQ(moe_dist_apply(dist.get(), &part.args, nullptr), MOE_ERR_STATE);
      return;
    }
    const LayerPtr layer = own_layer(s, dist.get());
    const Failure f = failure([&](moe_error** e) { return moe_dist_attach(dist.get(), layer.get(), e); });
    EXPECT_EQ(f.status, MOE_ERR_COMM);
    EXPECT_EQ(f.details["reason"], "out_of_step");
    EXPECT_EQ(f.details["call"], "moe_dist_attach");
  });
}

TEST(DistFaults, ARankThatSleepsIsWaitedForUntilTheDeadline) {
  const Sample s = small();
  std::atomic<int> left{2};
  on_ranks(
      3,
      [&](int rank, moe_comm* comm) {
        const Spread spread(s, comm);
        Part part(s, 0, 4);
        EXPECT_EQ(apply(spread, part).status, MOE_OK);
        if (rank == 2) {
          while (left.load() > 0) std::this_thread::yield();
          return;
        }
        const Clock::time_point begin = Clock::now();
        const Failure f = apply(spread, part);
        const double waited = seconds_since(begin);
        EXPECT_EQ(f.status, MOE_ERR_COMM);
        EXPECT_GE(waited, 0.29);
        EXPECT_LE(waited, 1.3);
        EXPECT_EQ(f.details["reason"], "timeout");
        EXPECT_EQ(f.details["timeout_ms"], 300);
        EXPECT_EQ(f.details["step"], "headers");
        EXPECT_EQ(f.details["rank"], 2);
        const Clock::time_point again = Clock::now();
        EXPECT_EQ(apply(spread, part).status, MOE_ERR_COMM_POISONED);
        EXPECT_LE(seconds_since(again), 0.2);
        EXPECT_TRUE(spread.told()["poisoned"]);
        moe_dist* dist = nullptr;
        EXPECT_EQ(moe_dist_create(nullptr, comm, spread.config.get(), nullptr, 0, &dist, nullptr),
                  MOE_ERR_COMM_POISONED);
        const std::vector<std::byte> alone = whole_output(s);  // a single process goes on
        EXPECT_EQ(alone, whole_output(s));
        --left;
      },
      kShort);
}

// Its deadline is far: threads see that a rank is gone.
TEST(DistFaults, ARankThatVanishesAtAnyTime) {
  const Sample s = small();
  for (int when = 0; when < 4; ++when) {
    SCOPED_TRACE(when);
    on_ranks(
        3,
        [&](int rank, moe_comm* comm) {
          const bool vanishes = rank == 1;
          if (vanishes && when == 0) return;
          const ConfigPtr config = s.make();
          moe_dist* made = nullptr;
          const moe_status created = moe_dist_create(nullptr, comm, config.get(), nullptr, 0, &made, nullptr);
          const DistPtr dist(made);
          if (when == 0) {
            EXPECT_EQ(created, MOE_ERR_COMM);
            return;
          }
          ASSERT_EQ(created, MOE_OK);
          if (vanishes && when == 1) return;
          const ConfigPtr local =
              make<ConfigPtr>([&](moe_config** o, moe_error** e) { return moe_dist_local_config(dist.get(), o, e); });
          const LayerPtr layer = layer_of(s, local.get());
          const moe_status attached = moe_dist_attach(dist.get(), layer.get(), nullptr);
          if (when == 1) {
            EXPECT_EQ(attached, MOE_ERR_COMM);
            return;
          }
          ASSERT_EQ(attached, MOE_OK);
          Part part(s, 0, 4);
          if (vanishes) {
            if (when == 2) return;
            // In the middle of a call: its headers are out.
            moe_dist_call* call = nullptr;
            EXPECT_EQ(moe_dist_begin(dist.get(), &part.args, &call, nullptr), MOE_OK);
            moe_dist_call_destroy(call);
            return;
          }
          const Clock::time_point begin = Clock::now();
          const Failure f = failure([&](moe_error** e) { return moe_dist_apply(dist.get(), &part.args, e); });
          EXPECT_EQ(f.status, MOE_ERR_COMM) << f.message;
          EXPECT_LE(seconds_since(begin), 5.0);  // it is seen, not waited for
          EXPECT_EQ(moe_dist_apply(dist.get(), &part.args, nullptr), MOE_ERR_COMM_POISONED);
        },
        R"({"timeout_ms":20000})");
  }
}

TEST(DistFaults, RanksThatSleepOrLeaveAtRandom) {
  const auto seed = static_cast<std::uint32_t>(Clock::now().time_since_epoch().count());
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Sample s = small();
  std::mt19937 rng(seed);
  for (int round = 0; round < 20; ++round) {
    const int ranks = 2 + static_cast<int>(rng() % 4), victim = static_cast<int>(rng() % static_cast<unsigned>(ranks));
    const int calls = static_cast<int>(rng() % 5), kind = static_cast<int>(rng() % 3);
    std::atomic<int> left{ranks - 1};
    on_ranks(
        ranks,
        [&](int rank, moe_comm* comm) {
          const Spread spread(s, comm, R"({"chunk_tokens":2})");
          Part part(s, 0, 6);
          for (int i = 0; i < calls; ++i) EXPECT_EQ(apply(spread, part).status, MOE_OK);
          if (rank == victim) {
            if (kind == 1) {  // in the middle of a call
              moe_dist_call* call = nullptr;
              EXPECT_EQ(moe_dist_begin(spread.dist.get(), &part.args, &call, nullptr), MOE_OK);
              std::int32_t done = 0;
              for (int i = 0; i < 3; ++i) EXPECT_EQ(moe_dist_poll(call, &done, nullptr), MOE_OK);
              moe_dist_call_destroy(call);
            }
            while (kind == 2 && left.load() > 0) std::this_thread::yield();
            return;
          }
          const Clock::time_point begin = Clock::now();
          moe_status status = apply(spread, part).status;
          if (kind == 1 && status == MOE_OK) status = apply(spread, part).status;  // three polls may be a whole call
          EXPECT_TRUE(status == MOE_ERR_COMM || status == MOE_ERR_PEER) << status;
          EXPECT_LE(seconds_since(begin), 1.3);
          EXPECT_EQ(apply(spread, part).status, MOE_ERR_COMM_POISONED);
          --left;
        },
        kShort);
  }
}

}  // namespace
}  // namespace moe::test::dist_faults_test
