// Transports of the caller: good ones, failing ones, and those that bring what no rank has sent.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "dist/mailbox.h"

namespace moe::test::dist_table_test {
namespace {

constexpr const char* kShort = R"({"timeout_ms":250})";

Failure apply(const Spread& s, Part& part) {
  return failure([&](moe_error** e) { return moe_dist_apply(s.dist.get(), &part.args, e); });
}

TEST(DistTable, TwoFunctionsAreEnough) {
  const Sample s = int4_sample({.E = 6, .K = 2}, 12);
  const std::vector<std::byte> want = whole_output(s);
  for (const char* options : {"{}", R"({"chunk_tokens":2})"}) {
    Mailbox box;
    on_mail(box, 3, [&](int rank, moe_comm* comm) {
      const Spread spread(s, comm, options);
      Part part(s, rank * 4, 4);
      EXPECT_EQ(apply(spread, part).status, MOE_OK);
      EXPECT_EQ(
          std::memcmp(part.out.data(), want.data() + static_cast<std::size_t>(rank) * part.out.size(), part.out.size()),
          0);
    });
    EXPECT_TRUE(box.letters.empty());
  }
}

TEST(DistTable, WhatATableMustHave) {
  Mailbox box;
  MailRank rank(box, 0, 1);
  const struct {
    std::function<void(moe_comm_ops&)> spoil;
    const char* subject;
  } cases[] = {
      {[](moe_comm_ops& o) { o.alltoallv_start = nullptr; }, "alltoallv_start"},
      {[](moe_comm_ops& o) { o.test = nullptr; }, "test"},
      {[](moe_comm_ops& o) { o.size = 0; }, "size"},
      {[](moe_comm_ops& o) { o.size = 1 << 20; }, "size"},
      {[](moe_comm_ops& o) { o.rank = 1; }, "rank"},
      {[](moe_comm_ops& o) { o.rank = -1; }, "rank"},
      {[](moe_comm_ops& o) { o.reserved0 = 1; }, "ops"},
      {[](moe_comm_ops& o) { o.struct_size = 40; }, "ops"},
  };
  int released = 0;
  for (const auto& c : cases) {
    moe_comm_ops ops = rank.ops();
    c.spoil(ops);
    moe_comm* comm = nullptr;
    const Failure f = failure([&](moe_error** e) { return moe_comm_create(&ops, nullptr, 0, &comm, e); });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT) << c.subject;
    EXPECT_EQ(f.subject, c.subject);
    if (ops.struct_size == sizeof ops) ++released;
    EXPECT_EQ(box.released.load(), released);
  }
}

TEST(DistTable, AFunctionThatFailsIsTheCause) {
  const Sample s = int4_sample({.E = 6, .K = 2}, 8);
  Mailbox box;
  std::atomic<std::uint64_t> from{UINT64_MAX};
  box.fails = [&](int rank, std::uint64_t number) { return rank == 1 && number >= from.load() ? MOE_ERR_IO : MOE_OK; };
  on_mail(
      box, 2,
      [&](int rank, moe_comm* comm) {
        const Spread spread(s, comm);
        Part part(s, 0, 4);
        EXPECT_EQ(apply(spread, part).status, MOE_OK);
        if (rank == 1) from = 0;
        const Failure f = apply(spread, part);
        EXPECT_EQ(f.status, MOE_ERR_COMM);
        EXPECT_EQ(f.details["reason"], rank == 1 ? "transport" : "timeout");
        if (rank == 1) {
          EXPECT_EQ(f.details["cause"]["message"], "the cable is cut");
        }
        EXPECT_EQ(apply(spread, part).status, MOE_ERR_COMM_POISONED);
      },
      kShort);
}

// A header of a chunk with another number at one place.
TEST(DistTable, HeadersThatCannotBe) {
  const Sample s = int4_sample({.E = 6, .K = 2}, 8);
  const struct {
    std::size_t at;
    std::int32_t value;
    const char* reason;
  } cases[] = {{0, -1, "protocol"},       {0, 1 << 30, "protocol"}, {0, 2049, "protocol"},
               {4, 12345, "out_of_step"}, {12, 2, "protocol"},      {12, 1, "protocol"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::to_string(c.at) + " " + std::to_string(c.value));
    Mailbox box;
    std::atomic<bool> on{false};
    box.spoil = [&](int from, int to, std::uint64_t, std::uint64_t row_bytes, Mailbox::Letter& letter) {
      if (on && from == 1 && to == 0 && row_bytes == 16) std::memcpy(letter.data() + c.at, &c.value, 4);
      return true;
    };
    on_mail(
        box, 2,
        [&](int rank, moe_comm* comm) {
          const Spread spread(s, comm);
          Part part(s, 0, 4);
          EXPECT_EQ(apply(spread, part).status, MOE_OK);
          if (rank == 1) on = true;
          const Failure f = apply(spread, part);
          if (rank == 0) {
            EXPECT_EQ(f.status, MOE_ERR_COMM) << f.message;
            EXPECT_EQ(f.details["reason"], c.reason);
            EXPECT_EQ(f.details["rank"], 1);
          }
        },
        kShort);
  }
}

// Rows for a rank that holds no expert: it has no layer to run them.
TEST(DistTable, RowsForARankWithoutExperts) {
  const Sample s = int4_sample({.E = 1, .K = 1}, 4);
  Mailbox box;
  std::atomic<bool> on{false};
  box.spoil = [&](int from, int to, std::uint64_t, std::uint64_t row_bytes, Mailbox::Letter& letter) {
    const std::int32_t rows = 1;
    if (on && from == 0 && to == 1 && row_bytes == 16) std::memcpy(letter.data(), &rows, sizeof rows);
    return true;
  };
  on_mail(
      box, 2,
      [&](int rank, moe_comm* comm) {
        const Spread spread(s, comm);
        Part part(s, rank * 2, 2);
        EXPECT_EQ(apply(spread, part).status, MOE_OK);
        if (rank == 0) on = true;
        const Failure f = apply(spread, part);
        EXPECT_EQ(f.status, MOE_ERR_COMM) << f.message;
        if (rank == 1) {
          EXPECT_EQ(f.details["reason"], "protocol");
        }
      },
      kShort);
}

// Bits of any letter change, letters get lost or are cut short: some status, in time, and no access out of bounds
// (which the sanitizers would see).
TEST(DistTable, LettersThatChangeAtRandom) {
  const auto seed = static_cast<std::uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Sample s = int4_sample({.E = 6, .K = 2}, 12);
  std::mt19937 seeds(seed);
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < 40 && std::chrono::steady_clock::now() - begin < std::chrono::seconds(15); ++round) {
    Mailbox box;
    std::mt19937 rng(seeds());
    std::atomic<bool> on{false};
    const int kind = round % 4;
    box.spoil = [&](int, int, std::uint64_t, std::uint64_t row_bytes, Mailbox::Letter& letter) {
      if (!on || letter.empty()) return true;
      if (kind == 0 && row_bytes == 16) letter[rng() % letter.size()] ^= static_cast<std::byte>(1U << rng() % 8);
      if (kind == 1) letter[rng() % letter.size()] = static_cast<std::byte>(rng());
      if (kind == 2 && rng() % 4 == 0) letter.resize(rng() % letter.size());
      return kind != 3 || rng() % 4 != 0;
    };
    on_mail(box, 3, [&](int rank, moe_comm* comm) {
      const Spread spread(s, comm, R"({"chunk_tokens":2})");
      const char options[] = R"({"timeout_ms":60})";  // of calls alone
      EXPECT_EQ(moe_comm_set_options(comm, options, sizeof options - 1, nullptr), MOE_OK);
      if (rank == 0) on = true;
      for (int i = 0; i < 3; ++i) {
        Part part(s, rank * 4, 4);
        const moe_status status = apply(spread, part).status;
        EXPECT_TRUE(status == MOE_OK || status == MOE_ERR_COMM || status == MOE_ERR_PEER ||
                    status == MOE_ERR_COMM_POISONED)
            << status;
      }
    });
  }
}

}  // namespace
}  // namespace moe::test::dist_table_test
