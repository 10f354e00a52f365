// One call, step by step. Every rank starts the same exchanges in the same order. Turn t of n chunks:
//
//   headers t done      pack chunk t            start dispatch t
//   dispatch t-1 done   experts on its rows     start combine t-1, after chunk n-1 the end, too
//   combine t-2 done    its routed sums         start headers t+1
//
// Chunk n-1 is the first after which no rank has another one. So the rows of one chunk come and those of another go
// back while a third is computed; between its tasks this thread looks after them (poll.h). A call of one chunk is
// headers, dispatch, combine.
//
// The end is a header and says whether rows were right. An error of this rank before its headers ends the call on all
// ranks there, after what is under way; after them this rank goes on, with rows that are not used, and says so in the
// next headers.
#include <algorithm>
#include <cstdint>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "dist/dist.h"
#include "dist/lap.h"
#include "dist/owner.h"
#include "dist/poll.h"
#include "run/engine/zero_experts.h"

namespace moe::dist {
namespace {

std::int32_t status_of(const std::optional<Error>& failure) {
  return failure ? static_cast<std::int32_t>(failure->code) : 0;
}

// Leaves a call if something throws on the way.
class Leaver {
 public:
  explicit Leaver(Dist& dist) : dist_(&dist) {}
  Leaver(const Leaver&) = delete;
  Leaver& operator=(const Leaver&) = delete;
  ~Leaver() {
    if (dist_ != nullptr) dist_->drop();
  }
  void done() { dist_ = nullptr; }

 private:
  Dist* dist_;
};

}  // namespace

Check Dist::route_tokens(const Parallel& parallel) {
  const Config& c = *config_;
  if (args_.mode == run::ApplyMode::topk) {
    const run::KnownIds known{.end = shape_.experts + c.routing.num_zero_experts, .skip = c.routing.skip_id};
    MOE_CHECK(run::check_ids(args_.topk_ids, known, parallel));
    ids_ = args_.topk_ids;
    weights_ = args_.topk_weights;
  } else {
    MOE_CHECK(run::check_router(router_));
    if (router_.rule == run::RouteRule::hash)
      MOE_CHECK(run::check_hash_ids(router_, args_.topk_ids, "topk_ids", parallel));
    MOE_CHECK(run::route(router_,
                         {.num_tokens = args_.num_tokens,
                          .logits_dtype = args_.router_logits.dtype,
                          .logits = args_.router_logits.data,
                          .row_stride = args_.router_logits.strides[0],
                          .hash_ids = &args_.topk_ids,
                          .ids = call_memory_.ids,
                          .weights = call_memory_.weights,
                          .scratch = call_memory_.route_scratch},
                         parallel));
    MOE_CHECK(run::give_routed(args_, call_memory_.ids, call_memory_.weights, parallel));
    ids_ = row_major(DType::i32, {args_.num_tokens, shape_.top_k}, call_memory_.ids);
    weights_ = row_major(DType::f32, {args_.num_tokens, shape_.top_k}, call_memory_.weights);
  }
  if (c.routing.num_zero_experts == 0 || c.routing.zero_experts != ZeroExperts::identity) return ok();
  return run::sum_zero_weights(ids_, weights_, {c.num_experts, c.router_columns()}, call_memory_.identity, parallel);
}

Check Dist::read_args(Result<run::ApplyArgs>& args) {
  if (!attached_) return fail(Code::state, "dist", "dist: moe_dist_attach comes first");
  if (!args) return std::move(args.error());
  args_ = *args;
  if (args_.num_tokens > options_.max_tokens)
    return fail(Code::buffer_too_small, "hidden",
                cat("hidden: ", args_.num_tokens, " tokens, max_tokens_per_rank is ", options_.max_tokens),
                json::members("needed", args_.num_tokens));
  begin_call(args_.control);
  begin_phase(args_.control, Phase::apply, Unit::none, 0);
  MOE_CHECK(report(args_.control, 0, 0));
  return args_.num_tokens == 0 ? ok() : route_tokens(parallel());
}

Check Dist::begin(Result<run::ApplyArgs> args) {
  MOE_CHECK(comm_->claim({"moe_dist_apply", options_.layer_id}));
  Leaver leaver(*this);
  stage_ = Stage::headers;
  number_ = comm_->next_call();
  calls_.fetch_add(1, std::memory_order_relaxed);
  turn_ = 0;
  last_ = INT64_MAX;
  ends_early_ = false;
  args_ = {};
  failure_.reset();
  lost_.reset();
  result_ = ok();
  Check read = taking_memory([&] { return read_args(args); });
  if (!read) failure_ = std::move(read.error());  // the others wait, whatever has failed here
  if (Check started = start_chunk(); !started) stop(std::move(started));
  leaver.done();
  if (!failure_ && stage_ != Stage::over) return ok();
  return finish();
}

// Of turn_.
Check Dist::start_chunk() {
  Chunk& c = chunk_of(Stage::headers);
  c.tokens = {};
  c.first_token = turn_ * shape_.chunk;
  RankHeader mine = header(SyncStep::chunk);
  mine.status = status_of(failure_);
  std::fill_n(c.memory.header_rows, shape_.ranks, std::int64_t{0});
  if (!failure_) {
    const std::int64_t left = args_.num_tokens - c.first_token, count = std::min(shape_.chunk, left);
    if (count > 0)
      c.tokens = {count, rows(args_.hidden, c.first_token, count), rows(ids_, c.first_token, count),
                  rows(weights_, c.first_token, count), rows(args_.out, c.first_token, count)};
    const Lap lap(pack_ns_);
    place(spread(), c.tokens, c.memory);
    mine.more = left > shape_.chunk ? 1 : 0;
  }
  return comm_->start_headers(mine, c.memory.header_rows, heads_);
}

// last: no rank has another chunk.
Check Dist::read_headers(bool& last) {
  const RankHeader* headers = comm_->headers();
  last = true;
  for (int r = 0; r < shape_.ranks; ++r) {
    const RankHeader& h = headers[r];
    const bool nowhere = h.rows > 0 && !places_.holds_any(comm_->rank());
    const bool wrong =
        nowhere || h.rows < 0 || h.rows > shape_.chunk || h.more > 1 || (h.more == 1 && turn_ + 1 >= chunks());
    const bool forged = r == comm_->rank() && h.rows != chunk_of(Stage::headers).memory.header_rows[r];
    if (wrong || forged) return bad_peer(r, "a header that cannot be");
    if (h.more == 1) last = false;
  }
  return ok();
}

Check Dist::after_headers() {
  Check met = comm_->check_headers(header(SyncStep::chunk));
  if (failure_) met = std::move(*failure_);
  if (!met) {
    end_early(std::move(met));
    return ok();
  }
  bool last = false;
  MOE_CHECK(read_headers(last));
  if (last) last_ = turn_;
  return start_dispatch();
}

Check Dist::start_dispatch() {
  Chunk& c = chunk_of(Stage::headers);
  Memory& m = c.memory;
  {
    const Lap lap(pack_ns_);
    Polling polling(parallel(), [this] { look(); });
    if (Check packed = pack(spread(), c.tokens, comm_->headers(), m, polling.parallel()); !packed)
      failure_ = std::move(packed.error());
  }
  if (lost_) return ok();  // step() says so; nothing is started on a transport that has failed
  std::int64_t sent = 0;
  for (int r = 0; r < shape_.ranks; ++r) sent += r == comm_->rank() ? 0 : m.dispatch.send[r];
  rows_sent_.fetch_add(static_cast<std::uint64_t>(sent), std::memory_order_relaxed);
  bytes_sent_.fetch_add(static_cast<std::uint64_t>(sent) * shape_.in_row(), std::memory_order_relaxed);
  const Counts& n = m.dispatch;
  const Exchange x{shape_.in_row(), m.send, n.send, n.send_at, m.recv, n.recv, n.recv_at};
  return shape_.tp ? comm_->start_allgather(x, "dispatch", c.rows) : comm_->start(x, "dispatch", c.rows);
}

Check Dist::after_dispatch() {
  Chunk& c = chunk_of(Stage::dispatch);
  Memory& m = c.memory;
  {
    const Lap lap(pack_ns_);
    MOE_CHECK(read_rows(spread(), m));
  }
  Polling polling(layer_ == nullptr ? Parallel{} : layer_->parallel(), [this] { look(); });
  if (Check run = run_rows(spread(), layer_.get(), engine_rows_, {call_memory_.engine, call_memory_.engine_bytes}, m,
                           polling.parallel(), pack_ns_);
      !run)
    failure_ = std::move(run.error());
  if (lost_) return ok();
  const Counts& n = m.combine;
  std::int64_t sent = 0;
  for (int r = 0; r < shape_.ranks; ++r) sent += n.send[r];
  bytes_sent_.fetch_add(static_cast<std::uint64_t>(sent) * shape_.out_row(), std::memory_order_relaxed);
  MOE_CHECK(comm_->start({shape_.out_row(), reinterpret_cast<const std::byte*>(m.back_send), n.send, n.send_at,
                          reinterpret_cast<std::byte*>(m.results), n.recv, n.recv_at},
                         "combine", c.rows));
  if (number_of(Stage::dispatch) != last_) return ok();
  RankHeader mine = header(SyncStep::end);
  mine.status = status_of(failure_);
  return comm_->start_headers(mine, nullptr, heads_);
}

Check Dist::after_combine() {
  const Chunk& c = chunk_of(Stage::combine);
  if (failure_ || c.tokens.count == 0) return ok();
  Polling polling(parallel(), [this] { look(); });
  run::EngineCall call;
  call.tokens = c.tokens.count;
  call.accumulate = args_.accumulate;
  call.hidden = c.tokens.hidden;
  call.out = c.tokens.out;
  call.parallel = polling.parallel();
  if (config_->routing.num_zero_experts != 0 && config_->routing.zero_experts == ZeroExperts::identity)
    call.identity = call_memory_.identity + c.first_token;
  if (Check summed = sum(rules_, spread(), chunk_of(Stage::combine).memory, call); !summed)
    failure_ = std::move(summed.error());
  return ok();
}

Check Dist::after_end() {
  Check met = comm_->check_headers(header(SyncStep::end));
  if (failure_) return std::move(*failure_);
  return met;
}

Pending* Dist::waits_for() {
  switch (stage_) {
    case Stage::headers:
    case Stage::end:
      return &heads_;
    case Stage::dispatch:
    case Stage::combine:
      return &chunk_of(stage_).rows;
    case Stage::none:
    case Stage::over:
      break;
  }
  return nullptr;
}

// To the next exchange that is waited for.
Check Dist::advance() {
  do {
    switch (stage_) {
      case Stage::headers:
        stage_ = Stage::dispatch;
        break;
      case Stage::dispatch:
        stage_ = Stage::combine;
        break;
      case Stage::combine:
        ++turn_;
        stage_ = Stage::headers;
        if (turn_ <= last_) return start_chunk();
        if (turn_ - 2 <= last_) break;
        stage_ = ends_early_ ? Stage::over : Stage::end;
        return ok();
      case Stage::end:
        stage_ = Stage::over;
        return ok();
      case Stage::none:
      case Stage::over:
        return ok();
    }
  } while (number_of(stage_) < 0 || number_of(stage_) > last_);
  return ok();
}

Check Dist::step() {
  if (!ends_early_ || stage_ == Stage::end) {
    switch (stage_) {
      case Stage::headers:
        MOE_CHECK(after_headers());
        break;
      case Stage::dispatch:
        MOE_CHECK(after_dispatch());
        break;
      case Stage::combine:
        MOE_CHECK(after_combine());
        break;
      case Stage::end:
        result_ = after_end();
        break;
      case Stage::none:
      case Stage::over:
        break;
    }
  }
  if (lost_) return std::move(*lost_);
  return advance();
}

// Between two tasks of the work on a chunk: the exchanges of the others go on.
void Dist::look() {
  if (lost_) return;
  try {
    for (Chunk& c : chunks_)
      if (Result<bool> done = comm_->test(c.rows); !done) lost_ = std::move(done.error());
    if (Result<bool> done = comm_->test(heads_); !done) lost_ = std::move(done.error());
  } catch (...) {  // a task's caller takes no exception
    lost_ = fail(Code::internal, "comm", "look: failed");
  }
}

// All ranks know: no other exchange begins.
void Dist::end_early(Check result) {
  result_ = std::move(result);
  ends_early_ = true;
  last_ = turn_ - 1;
}

// What still runs will not be asked for; its buffers are never given back.
void Dist::stop(Check result) {
  result_ = std::move(result);
  stage_ = Stage::over;
  bool left = heads_.running;
  for (const Chunk& c : chunks_) left |= c.rows.running;
  if (left) {
    comm_->keep(chunk_buffer_);
    if (call_buffer_ != nullptr) comm_->keep(call_buffer_);
  }
  for (Chunk& c : chunks_) comm_->abandon(c.rows);
  comm_->abandon(heads_);
}

bool Dist::progress() {
  Leaver leaver(*this);
  while (Pending* pending = waits_for()) {
    Result<bool> done = comm_->test(*pending);
    if (done && !*done) {
      leaver.done();
      return false;
    }
    if (!done) {
      stop(std::move(done.error()));
    } else if (Check stepped = step(); !stepped) {
      comm_->poison();
      stop(std::move(stepped));
    }
  }
  leaver.done();
  return true;
}

Check Dist::finish() {
  if (stage_ == Stage::none) return fail(Code::state, "call", "call: it was left after a failure");
  Leaver leaver(*this);
  while (!progress())
    if (Check waited = comm_->wait(*waits_for()); !waited) stop(std::move(waited));
  leaver.done();
  stage_ = Stage::none;
  comm_->release();
  return std::move(result_);
}

void Dist::drop() {
  if (stage_ == Stage::none) return;
  const bool early = stage_ != Stage::over;
  stop(ok());
  if (early) comm_->poison();
  stage_ = Stage::none;
  comm_->release();
}

}  // namespace moe::dist
