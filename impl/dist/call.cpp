// One call, step by step. Every rank starts the same exchanges in the same order:
//
//   headers 0, dispatch 0, combine 0, headers 1, ..., combine n, end
//
// where n is the first chunk after which no rank has another one. The end is a header, too, and is under way together
// with the last combine: it says whether rows were right. An error of this rank before its headers ends the call on all
// ranks there; after them this rank goes on, with rows that nobody will use, and says so in the next headers.
#include <algorithm>
#include <string>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "dist/dist.h"
#include "dist/owner.h"
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
  MOE_CHECK(comm_->claim());
  Leaver leaver(*this);
  stage_ = Stage::headers;
  number_ = comm_->next_call();
  calls_.fetch_add(1, std::memory_order_relaxed);
  chunk_ = first_token_ = 0;
  args_ = {};
  failure_.reset();
  result_ = ok();
  if (Check read = read_args(args); !read) failure_ = std::move(read.error());
  start_chunk();
  leaver.done();
  if (!failure_ && stage_ != Stage::over) return ok();
  return finish();
}

void Dist::start_chunk() {
  tokens_ = {};
  RankHeader mine = header(SyncStep::chunk);
  mine.status = status_of(failure_);
  std::fill_n(memory_.header_rows, shape_.ranks, std::int64_t{0});
  if (!failure_) {
    const std::int64_t count = std::min(shape_.chunk, args_.num_tokens - first_token_);
    if (count > 0)
      tokens_ = {count, rows(args_.hidden, first_token_, count), rows(ids_, first_token_, count),
                 rows(weights_, first_token_, count), rows(args_.out, first_token_, count)};
    place(spread(), tokens_, memory_);
    mine.more = first_token_ + tokens_.count < args_.num_tokens ? 1 : 0;
  }
  stage_ = Stage::headers;
  if (Check started = comm_->start_headers(mine, memory_.header_rows, heads_); !started) stop(std::move(started));
}

Check Dist::after_headers() {
  const RankHeader mine = header(SyncStep::chunk);
  Check met = comm_->check_headers(mine);
  if (failure_ && (met || met.error().code == Code::peer)) return std::move(*failure_);
  MOE_CHECK(std::move(met));
  const RankHeader* headers = comm_->headers();
  last_ = true;
  for (int r = 0; r < shape_.ranks; ++r) {
    const RankHeader& h = headers[r];
    const bool wrong = h.rows < 0 || h.rows > shape_.chunk || h.more > 1 || (h.more == 1 && chunk_ + 1 >= chunks());
    const bool forged = r == comm_->rank() && h.rows != memory_.header_rows[r];
    if (wrong || forged) {
      comm_->poison();
      return bad_peer(r, "a header that cannot be");
    }
    if (h.more == 1) last_ = false;
  }
  if (Check packed = pack(spread(), tokens_, headers, memory_, parallel()); !packed)
    failure_ = std::move(packed.error());
  std::int64_t sent = 0;
  for (int r = 0; r < shape_.ranks; ++r) sent += r == comm_->rank() ? 0 : memory_.dispatch.send[r];
  rows_sent_.fetch_add(static_cast<std::uint64_t>(sent), std::memory_order_relaxed);
  bytes_sent_.fetch_add(static_cast<std::uint64_t>(sent) * shape_.in_row(), std::memory_order_relaxed);
  const Counts& n = memory_.dispatch;
  const Exchange x{shape_.in_row(), memory_.send, n.send, n.send_at, memory_.recv, n.recv, n.recv_at};
  stage_ = Stage::dispatch;
  return shape_.tp ? comm_->start_allgather(x, "dispatch", rows_) : comm_->start(x, "dispatch", rows_);
}

Check Dist::after_dispatch() {
  if (Check read = read_rows(spread(), memory_); !read) {
    comm_->poison();
    return read;
  }
  if (Check run = run_rows(spread(), layer_.get(), engine_rows_, {call_memory_.engine, call_memory_.engine_bytes},
                           memory_, parallel());
      !run)
    failure_ = std::move(run.error());
  const Counts& n = memory_.combine;
  std::int64_t sent = 0;
  for (int r = 0; r < shape_.ranks; ++r) sent += n.send[r];
  bytes_sent_.fetch_add(static_cast<std::uint64_t>(sent) * shape_.out_row(), std::memory_order_relaxed);
  stage_ = Stage::combine;
  MOE_CHECK(comm_->start({shape_.out_row(), reinterpret_cast<const std::byte*>(memory_.back_send), n.send, n.send_at,
                          reinterpret_cast<std::byte*>(memory_.results), n.recv, n.recv_at},
                         "combine", rows_));
  if (!last_) return ok();
  RankHeader mine = header(SyncStep::end);
  mine.status = status_of(failure_);
  return comm_->start_headers(mine, nullptr, heads_);
}

Check Dist::after_combine() {
  if (!failure_ && tokens_.count > 0) {
    run::EngineCall call;
    call.tokens = tokens_.count;
    call.accumulate = args_.accumulate;
    call.hidden = tokens_.hidden;
    call.out = tokens_.out;
    call.parallel = parallel();
    if (config_->routing.num_zero_experts != 0 && config_->routing.zero_experts == ZeroExperts::identity)
      call.identity = call_memory_.identity + first_token_;
    if (Check summed = sum(rules_, spread(), memory_, call); !summed) failure_ = std::move(summed.error());
  }
  if (last_) {
    stage_ = Stage::end;
    return ok();
  }
  first_token_ += tokens_.count;
  ++chunk_;
  start_chunk();
  return ok();
}

Check Dist::after_end() {
  Check met = comm_->check_headers(header(SyncStep::end));
  if (failure_ && (met || met.error().code == Code::peer)) return std::move(*failure_);
  stage_ = Stage::over;
  return met;
}

Pending* Dist::waits_for() {
  switch (stage_) {
    case Stage::headers:
    case Stage::end:
      return &heads_;
    case Stage::dispatch:
    case Stage::combine:
      return &rows_;
    case Stage::none:
    case Stage::over:
      break;
  }
  return nullptr;
}

Check Dist::step() {
  switch (stage_) {
    case Stage::headers:
      return after_headers();
    case Stage::dispatch:
      return after_dispatch();
    case Stage::combine:
      return after_combine();
    case Stage::end:
      return after_end();
    case Stage::none:
    case Stage::over:
      break;
  }
  return ok();
}

// What still runs will not be asked for; its buffers are never given back.
void Dist::stop(Check result) {
  result_ = std::move(result);
  stage_ = Stage::over;
  const bool left = rows_.running || heads_.running;
  comm_->abandon(rows_);
  comm_->abandon(heads_);
  if (left) {
    comm_->keep(chunk_buffer_);
    if (call_buffer_ != nullptr) comm_->keep(call_buffer_);
  }
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
      stop(std::move(stepped));
    }
  }
  leaver.done();
  return true;
}

Check Dist::finish() {
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
