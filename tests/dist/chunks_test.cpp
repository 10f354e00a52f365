// Chunks of a call: rows of two travel while a third is computed, and a fault between them ends the call on all ranks.
#include <gtest/gtest.h>

#include <algorithm>

#include "dist/mailbox.h"

namespace moe::test::dist_chunks_test {
namespace {

// What a rank has started and tested, in order: letters for headers (H), dispatch (D) and combine (C); a test is small.
struct Diary {
  std::uint64_t in_row = 0, out_row = 0;
  std::string starts;
  std::vector<std::pair<std::uint64_t, bool>> events;  // number of the operation; whether it was started then

  char letter(std::uint64_t row_bytes) const { return row_bytes == in_row ? 'D' : row_bytes == out_row ? 'C' : 'H'; }
};

std::string starts_of_a_call(std::int64_t chunk_tokens, std::int64_t tokens, Diary& diary) {
  const Sample s = int4_sample({.E = 6, .K = 2}, 2 * tokens);
  diary.in_row = (static_cast<std::uint64_t>(s.K) * 8 + s.row_bytes() + 15) / 16 * 16;
  diary.out_row = static_cast<std::uint64_t>(s.H + 15) / 16 * 64;
  EXPECT_NE(diary.in_row, diary.out_row);
  Mailbox box;
  std::atomic<bool> on{false};
  box.started = [&](int rank, std::uint64_t number, std::uint64_t row_bytes) {
    if (rank != 0 || !on) return;
    diary.starts += diary.letter(row_bytes);
    diary.events.emplace_back(number, true);
  };
  box.tested = [&](int rank, std::uint64_t number, std::uint64_t) {
    if (rank == 0 && on) diary.events.emplace_back(number, false);
  };
  on_mail(box, 2, [&](int rank, moe_comm* comm) {
    const Spread spread(s, comm, "{\"chunk_tokens\":" + std::to_string(chunk_tokens) + "}");
    if (rank == 0) on = true;
    Part part(s, rank * tokens, tokens);
    moe_error* err = nullptr;
    expect_status_ok(moe_dist_apply(spread.dist.get(), &part.args, &err), err);
    if (rank == 0) on = false;
  });
  return diary.starts;
}

TEST(DistChunks, TheOrderOfExchanges) {
  for (const auto& [tokens, want] : std::vector<std::pair<std::int64_t, std::string>>{
           {4, "HDCH"}, {8, "HDHDCCH"}, {12, "HDHDCHDCCH"}, {16, "HDHDCHDCHDCCH"}}) {
    Diary diary;
    EXPECT_EQ(starts_of_a_call(4, tokens, diary), want) << tokens;
  }
}

// Between its start and that of the combine before it, in which the experts run, the second dispatch is looked after.
TEST(DistChunks, RowsTravelWhileAnotherChunkIsComputed) {
  Diary diary;
  ASSERT_EQ(starts_of_a_call(4, 8, diary), "HDHDCCH");
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, start] : diary.events)
    if (start) numbers.push_back(number);
  ASSERT_EQ(numbers.size(), 7U);
  const auto at = [&](std::uint64_t number) {
    return std::find(diary.events.begin(), diary.events.end(), std::pair(number, true));
  };
  EXPECT_GT(std::count(at(numbers[3]), at(numbers[4]), std::pair(numbers[3], false)), 0);
}

// Threads of the caller that leave tasks out from a certain use on.
struct Threads {
  int uses_left = INT_MAX;
  bool in_task = false;
  ContextPtr context;
  Threads() {
    moe_parallel_ops ops{};
    ops.struct_size = sizeof ops;
    ops.num_threads = 2;
    ops.user = this;
    ops.parallel_for = [](void* user, std::size_t count, moe_task_fn task, void* arg) {
      auto& self = *static_cast<Threads*>(user);
      if (--self.uses_left < 0) return;
      self.in_task = true;
      for (std::size_t i = 0; i < count; ++i) task(arg, i);
      self.in_task = false;
    };
    moe_context_callbacks callbacks{};
    callbacks.struct_size = sizeof callbacks;
    callbacks.parallel = &ops;
    context = make<ContextPtr>(
        [&](moe_context** o, moe_error** e) { return moe_context_create("{}", MOE_NUL_TERMINATED, &callbacks, o, e); });
  }
};

// Found between two tasks of the work on one chunk, while the rows of another travel.
TEST(DistChunks, NothingIsStartedOnATransportThatHasFailed) {
  const Sample s = int4_sample({.E = 6, .K = 2}, 30);
  Mailbox box;
  std::atomic<bool> armed{false}, failed{false};
  std::atomic<int> later{0};
  Threads threads;  // of rank 1
  box.test_fails = [&](int rank, std::uint64_t) {
    if (rank != 1 || !armed || !threads.in_task) return MOE_OK;
    failed = true;
    return MOE_ERR_IO;
  };
  box.started = [&](int rank, std::uint64_t, std::uint64_t) { later += rank == 1 && failed ? 1 : 0; };
  on_mail(
      box, 2,
      [&](int rank, moe_comm* comm) {
        const Spread spread(s, comm, R"({"chunk_tokens":2})", rank == 1 ? threads.context.get() : nullptr);
        if (rank == 1) armed = true;
        Part part(s, rank * 15, 15);
        const Failure f = failure([&](moe_error** e) { return moe_dist_apply(spread.dist.get(), &part.args, e); });
        EXPECT_EQ(f.status, MOE_ERR_COMM);
        EXPECT_EQ(f.details["reason"], rank == 1 ? "transport" : "timeout");
        EXPECT_EQ(moe_dist_apply(spread.dist.get(), &part.args, nullptr), MOE_ERR_COMM_POISONED);
      },
      R"({"timeout_ms":250})");
  EXPECT_TRUE(failed);
  EXPECT_EQ(later, 0);
}

TEST(DistChunks, ThreadsThatFailInAnyPlaceEndTheCallOnAllRanks) {
  const Sample s = int4_sample({.E = 6, .K = 2}, 30);
  const std::vector<std::byte> want = whole_output(s);
  on_ranks(3, [&](int rank, moe_comm* comm) {
    Threads threads;
    const Spread spread(s, comm, R"({"chunk_tokens":2})", threads.context.get());
    int failures = 0;
    for (int uses = 0; uses < 20; ++uses) {
      threads.uses_left = rank == 1 ? uses : INT_MAX;
      Part part(s, rank * 10, 10);
      const moe_status bad =
          failure([&](moe_error** e) { return moe_dist_apply(spread.dist.get(), &part.args, e); }).status;
      // Without a failure it is a good call; in the last sums it is this rank's own.
      if (bad != MOE_OK) {
        EXPECT_EQ(bad, rank == 1 ? MOE_ERR_CALLBACK : MOE_ERR_PEER) << uses;
      }
      failures += bad != MOE_OK ? 1 : 0;
      threads.uses_left = INT_MAX;
      Part good(s, rank * 10, 10);
      moe_error* err = nullptr;
      expect_status_ok(moe_dist_apply(spread.dist.get(), &good.args, &err), err);
      EXPECT_EQ(
          std::memcmp(good.out.data(), want.data() + static_cast<std::size_t>(rank) * good.out.size(), good.out.size()),
          0);
    }
    EXPECT_GT(failures, 8);
  });
}

}  // namespace
}  // namespace moe::test::dist_chunks_test
