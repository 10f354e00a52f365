// A layer that is spread over the ranks of a communicator.
//
// What is collective takes its input as a Result: an error in it travels to the other ranks, in the header that they
// wait for anyway, before it is returned here.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/buffer.h"
#include "base/result.h"
#include "config/config.h"
#include "dist/comm.h"
#include "dist/layer_values.h"
#include "dist/memory.h"
#include "dist/options.h"
#include "dist/origin.h"
#include "dist/placement.h"
#include "run/context/context.h"
#include "run/layer.h"

namespace moe::dist {

class Dist {
 public:
  static Result<std::shared_ptr<Dist>> create(std::shared_ptr<run::Context> context, std::shared_ptr<Comm> comm,
                                              Result<std::shared_ptr<const Config>> config, std::string_view options);
  Dist(const Dist&) = delete;
  Dist& operator=(const Dist&) = delete;
  ~Dist();

  const Config& config() const { return *config_; }
  Result<std::shared_ptr<const Config>> local_config() const;
  Check attach(Result<std::shared_ptr<const run::Layer>> layer);
  std::string to_json() const;

  // A call: begin, then progress until it is true, then finish. An error in `args` is returned by begin, and no call is
  // left. Nothing is allocated unless something fails.
  Check begin(Result<run::ApplyArgs> args);
  // Goes on without waiting for another rank; true at the end of the call.
  bool progress();
  Check finish();
  // Leaves a call that has not come to its end.
  void drop();

 private:
  // A turn waits for the headers of chunk t, the dispatch of chunk t - 1, the combine of chunk t - 2 (call.cpp).
  enum class Stage : std::uint8_t { none, headers, dispatch, combine, end, over };
  struct Chunk {
    Memory memory;
    ChunkTokens tokens;
    std::int64_t first_token = 0;
    Pending rows;  // its dispatch, then its combine
  };

  Dist(std::shared_ptr<run::Context> context, std::shared_ptr<Comm> comm)
      : context_(std::move(context)), comm_(std::move(comm)) {}
  // create
  Check prepare(const Result<std::shared_ptr<const Config>>& config, std::string_view options);
  Check reserve();
  // attach
  Check check_layer(const Result<std::shared_ptr<const run::Layer>>& layer);
  Check reserve_call(const std::shared_ptr<const run::Layer>& layer);
  Check agree_on_sums(const run::Layer* layer);
  // call
  Check read_args(Result<run::ApplyArgs>& args);
  Check route_tokens(const Parallel& parallel);
  Check start_chunk();
  Check step();  // what comes after the exchange that has ended
  Check advance();
  Check after_headers();
  Check read_headers(bool& last);
  Check start_dispatch();
  Check after_dispatch();
  Check after_combine();
  Check after_end();
  Pending* waits_for();
  void look();
  void end_early(Check result);
  void stop(Check result);
  std::int64_t chunks() const { return ceil_div(options_.max_tokens, shape_.chunk); }
  std::int64_t number_of(Stage stage) const { return turn_ - (stage == Stage::combine ? 2 : stage == Stage::dispatch); }
  Chunk& chunk_of(Stage stage) { return chunks_[usize(number_of(stage) % kChunks)]; }
  RankHeader header(SyncStep step) const;
  Spread spread() const { return {shape_, places_, comm_->rank()}; }
  Parallel parallel() const { return run::parallel_of(context_.get()); }

  const std::shared_ptr<run::Context> context_;
  const std::shared_ptr<Comm> comm_;
  std::shared_ptr<const Config> config_, local_;  // local_ null: this rank holds no expert
  DistOptions options_;
  ExpertPlaces places_;
  SpreadShape shape_;
  std::shared_ptr<Buffer> chunk_buffer_, call_buffer_;
  std::array<Chunk, kChunks> chunks_;
  WholeCall call_memory_;
  std::shared_ptr<const run::Layer> layer_;
  bool attached_ = false;
  std::int64_t engine_rows_ = 1;
  run::Router router_;
  std::optional<LayerValues> values_;  // during attach
  run::SumRules rules_;

  // The call under way.
  Stage stage_ = Stage::none;
  run::ApplyArgs args_;
  TensorView ids_, weights_;             // of all its tokens
  std::uint32_t number_ = 0, made_ = 0;  // of the call under way, and of the one that made this
  std::int64_t turn_ = 0, last_ = 0;     // last_: the last chunk, once it is known
  bool ends_early_ = false;              // what is under way is waited for, and not used
  std::optional<Error> failure_;         // of this rank
  std::optional<Error> lost_;            // of the transport, found by look()
  Check result_ = ok();
  Pending heads_;

  std::atomic<std::uint64_t> calls_{0}, rows_sent_{0}, bytes_sent_{0}, pack_ns_{0};
};

}  // namespace moe::dist
