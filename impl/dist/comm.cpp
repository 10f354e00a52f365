// Waits with a deadline, and what happens to a communicator that misses one.
#include "dist/comm.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"

namespace moe::dist {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t elapsed_us(Clock::time_point since) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - since).count();
}

std::string text_of(const Doing& d) {
  return d.layer_id < 0 ? std::string(d.call) : cat(d.call, " of layer_id ", d.layer_id);
}
std::string members_of(const Doing& d) {
  return "," + (d.layer_id < 0 ? json::members("call", d.call) : json::members("call", d.call, "layer_id", d.layer_id));
}

}  // namespace

// What an unfinished operation may still write to.
struct Comm::Left {
  std::vector<std::shared_ptr<void>> kept;
  std::array<std::vector<RankHeader>, 2> headers;
  std::array<std::vector<std::int64_t>, 3> numbers;
  Left* before = nullptr;
};
constinit std::atomic<Comm::Left*> Comm::all_left_{nullptr};

Comm::Comm(std::unique_ptr<Transport> transport, const CommOptions& options)
    : transport_(std::move(transport)), options_(options), left_(std::make_unique<Left>()) {
  const std::size_t n = usize(size());
  kept_.reserve(8);
  sent_.resize(n);
  received_.resize(n);
  ones_.assign(n, 1);
  zeros_.assign(n, 0);
  places_.resize(n);
  std::iota(places_.begin(), places_.end(), 0);
}

Result<std::shared_ptr<Comm>> Comm::create(std::unique_ptr<Transport> transport, const CommOptions& options) {
  return std::shared_ptr<Comm>(new Comm(std::move(transport), options));
}

// A transport that was left in the middle may write for as long as the process runs, so its buffers stay.
Comm::~Comm() {
  const bool forgets = transport_->forgets_buffers();
  transport_.reset();
  if (!stuck_ || forgets) return;
  Left* const left = left_.release();
  left->kept = std::move(kept_);
  left->headers = {std::move(sent_), std::move(received_)};
  left->numbers = {std::move(ones_), std::move(places_), std::move(zeros_)};
  left->before = all_left_.load(std::memory_order_relaxed);
  while (!all_left_.compare_exchange_weak(left->before, left, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

Check Comm::claim(const Doing& doing) {
  if (claimed_.exchange(true, std::memory_order_acquire))
    return fail(Code::busy, "comm", "comm: another call of this communicator has not ended");
  doing_ = doing;
  if (!is_poisoned()) return ok();
  release();
  return fail(Code::comm_poisoned, "comm", "comm: an earlier call failed, no other can succeed: destroy it");
}

Result<std::shared_ptr<Buffer>> Comm::call_memory(CallPart part, std::size_t bytes,
                                                  const std::shared_ptr<run::Context>& context) {
  Lent& lent = at(lent_, static_cast<std::size_t>(part));
  if (std::shared_ptr<Buffer> old = lent.buffer.lock();
      old != nullptr && lent.context == context.get() && old->size() >= bytes)
    return old;
  MOE_TRY(Buffer made, Buffer::create(bytes, 64, run::allocator_of(context.get()), context));
  auto buffer = std::make_shared<Buffer>(std::move(made));
  lent = {context.get(), buffer};
  return buffer;
}

Check Comm::set_options(const CommOptions& options) {
  MOE_CHECK(claim({"moe_comm_set_options"}));
  options_ = options;
  release();
  return ok();
}

Check Comm::start(const Exchange& x, const char* step, Pending& pending) {
  pending = {nullptr, step, true};
  Check started = in_transport([&] { return transport_->alltoallv(x, pending.op); });
  if (!started) pending.running = false, poison();
  return started;
}

Check Comm::start_allgather(const Exchange& x, const char* step, Pending& pending) {
  pending = {nullptr, step, true};
  Result<bool> started = in_transport([&] { return transport_->allgatherv(x, pending.op); });
  if (started && !*started) return start(x, step, pending);
  if (started) return ok();
  pending.running = false;
  poison();
  return std::move(started.error());
}

Check Comm::start_headers(const RankHeader& mine, const std::int64_t* rows, Pending& pending) {
  for (std::size_t r = 0; r < sent_.size(); ++r) {
    sent_[r] = mine;
    if (rows != nullptr) sent_[r].rows = static_cast<std::int32_t>(rows[r]);
  }
  const auto* send = reinterpret_cast<const std::byte*>(sent_.data());
  auto* recv = reinterpret_cast<std::byte*>(received_.data());
  pending = {nullptr, "headers", true};
  Result<bool> started = in_transport([&] { return transport_->alltoall(sizeof(RankHeader), send, recv, pending.op); });
  if (started && *started) return ok();
  if (started)
    return start({.row_bytes = sizeof(RankHeader),
                  .send = send,
                  .send_counts = ones_.data(),
                  .send_displs = places_.data(),
                  .recv = recv,
                  .recv_counts = ones_.data(),
                  .recv_displs = places_.data()},
                 "headers", pending);
  pending.running = false;
  poison();
  return std::move(started.error());
}

Result<bool> Comm::test(Pending& pending) {
  if (!pending.running) return true;
  Result<bool> done = in_transport([&] { return transport_->test(pending.op); });
  if (!done) poison();
  if (!done || *done) pending.running = false;
  return done;
}

Error Comm::timed_out(const Pending& pending, std::int64_t ms) {
  stuck_ = true;
  poison();
  const int rank = transport_->missing(pending.op);
  std::string details = json::members("reason", "timeout", "timeout_ms", ms, "step", pending.step) + members_of(doing_);
  if (rank >= 0) details += "," + json::members("rank", rank);
  if (options_.aborts) transport_->abort(1);
  return fail(
      Code::comm, "comm",
      cat("comm: ", rank < 0 ? std::string("a rank") : cat("rank ", rank), " did not come to ", text_of(doing_),
          " within ", ms, " ms (step ", pending.step, "); every rank makes the same calls, also without tokens"),
      std::move(details));
}

Check Comm::wait(Pending& pending, int times) {
  const Clock::time_point begin = Clock::now();
  const std::int64_t ms = options_.timeout_ms * times;
  for (;;) {
    MOE_TRY(const bool done, test(pending));
    const std::int64_t us = elapsed_us(begin);
    if (done) {
      wait_us_.fetch_add(static_cast<std::uint64_t>(us), std::memory_order_relaxed);
      return ok();
    }
    if (us / 1000 >= ms) return timed_out(pending, ms);
    transport_->pause(options_.poll_us);
  }
}

Check Comm::gather(Gathering& rows, const char* step) {
  Pending pending;
  struct Keeper {  // however this ends
    Comm& comm;
    Pending& pending;
    Gathering& rows;
    ~Keeper() {
      if (!pending.running) return;
      comm.keep(rows.memory());
      comm.abandon(pending);
    }
  } const keeper{*this, pending, rows};
  MOE_CHECK(start_allgather({.row_bytes = rows.bytes(),
                             .send = rows.mine(),
                             .send_counts = ones_.data(),
                             .send_displs = zeros_.data(),
                             .recv = rows.mine() + rows.bytes(),
                             .recv_counts = ones_.data(),
                             .recv_displs = places_.data()},
                            step, pending));
  return wait(pending);
}

Check Comm::check_headers(const RankHeader& mine) const {
  for (int r = 0; r < size(); ++r)
    if (const RankHeader& h = received_[usize(r)]; h.tag != mine.tag)
      return fail(Code::comm, "comm",
                  cat("comm: out of step: rank ", r, " makes another call than this rank's ", text_of(doing_)),
                  json::members("reason", "out_of_step", "rank", r) + members_of(doing_));
  for (int r = 0; r < size(); ++r)
    if (const RankHeader& h = received_[usize(r)]; h.status != 0 && r != rank()) return peer_failed(r, h.status);
  return ok();
}

Check Comm::meet(const RankHeader& mine, int times) {
  Pending pending;
  MOE_CHECK(start_headers(mine, nullptr, pending));
  MOE_CHECK(wait(pending, times));
  return check_headers(mine);
}

Check Comm::meet_with(Check mine, RankHeader header, int times) {
  header.status = mine ? 0 : static_cast<std::int32_t>(mine.error().code);
  Check met = meet(header, times);
  return mine ? std::move(met) : std::move(mine);
}

}  // namespace moe::dist
