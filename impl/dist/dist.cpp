// A spread layer is made: agreement, memory, the layer of this rank's part.
#include "dist/dist.h"

#include <algorithm>

#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "dist/agree.h"
#include "kernels/kernel.h"

namespace moe::dist {
namespace {

constexpr int kPatience = 10;  // times the deadline: converting a layer takes longer than a call

std::uint64_t half_of(const DistOptions& o) { return static_cast<std::uint64_t>(o.workspace_mb) << 19; }

SpreadShape shape_of(const Config& c, const DistOptions& o, int ranks) {
  SpreadShape s;
  s.ranks = ranks;
  s.tp = o.mode == Mode::tp;
  s.exact = o.combine == Combine::exact;
  s.experts = c.num_weight_experts();
  s.top_k = c.slots_per_token();
  s.hidden = c.hidden_dim;
  s.row_floats = round_up(c.hidden_dim, kPanelRows);
  s.element = c.in_dtype == DType::f32 ? 4 : 2;
  return s;
}

// What all ranks must have alike.
std::string agreement_text(const Config& c, const DistOptions& o) {
  const std::string options = o.canonical();
  json::Writer w;
  w.begin_object().member("config", json::Text{c.canonical}).member("options", json::Text{options});
  return w.member("version", 1).end_object().take();
}

const Elementwise* any_steps() {
  for (const Kernel* k : built_kernels())
    if (k->id->isa == Isa::scalar) return k->steps;
  return nullptr;
}

// Of a rank without experts. Where its config wants a bias or scales that it does not have, there is space for them.
Result<run::Router> make_empty_router(const Config& c) {
  const RouteKernel& kernel = route_kernel_within(Isa::scalar);
  MOE_TRY(run::Router router, run::make_router(c, kernel, {}));
  if (!router.lacks_bias && !router.lacks_scale) return router;
  const std::vector<float> bias(router.lacks_bias ? router.columns : 0), scale(router.lacks_scale ? router.experts : 0);
  return run::make_router(c, kernel, {.option = {}, .loaded = bias, .scale = scale});
}

}  // namespace

RankHeader Dist::header(SyncStep step) const {
  return {.tag = tag_of(step, {number_, made_, options_.layer_id, step == SyncStep::end ? last_ : turn_})};
}

Check Dist::prepare(const Result<std::shared_ptr<const Config>>& config, std::string_view options) {
  if (!config) return config.error();
  config_ = *config;
  MOE_TRY(options_, parse_dist_options(options));
  MOE_CHECK(check_whole(*config_, options_));
  MOE_TRY(places_, place_experts(*config_, options_, comm_->size()));
  if (places_.holds_any(comm_->rank())) {
    MOE_TRY(Config local, config::merge_config(*config_, local_patch(options_, places_, comm_->rank())));
    local_ = std::make_shared<const Config>(std::move(local));
  }
  MOE_CHECK(run::check_num_tokens(*config_, options_.max_tokens, "/max_tokens_per_rank"));
  shape_ = shape_of(*config_, options_, comm_->size());
  return ok();
}

Check Dist::reserve() {
  const std::int64_t wanted =
      options_.chunk_tokens > 0 ? std::min(options_.chunk_tokens, options_.max_tokens) : options_.max_tokens;
  shape_.chunk = chunk_within(shape_, wanted, options_.max_tokens, half_of(options_));
  const bool fits = shape_.chunk > 0;
  shape_.chunk = std::max<std::int64_t>(shape_.chunk, 1);
  const auto at_once = usize(chunks_at_once(shape_.chunk, options_.max_tokens));
  const std::size_t bytes = carve(shape_, nullptr).bytes;
  if (!fits) {
    const std::size_t needed = at_once * bytes * 2;
    return fail(Code::out_of_memory, "/workspace_mb",
                cat("/workspace_mb: ", needed, " bytes are needed for one token of a rank"),
                json::members("needed", needed));
  }
  MOE_TRY(chunk_buffer_, comm_->call_memory(CallPart::chunks, at_once * bytes, context_));
  for (std::size_t i = 0; i < at_once; ++i) chunks_[i].memory = carve(shape_, chunk_buffer_->data() + i * bytes);
  return ok();
}

Result<std::shared_ptr<Dist>> Dist::create(std::shared_ptr<run::Context> context, std::shared_ptr<Comm> comm,
                                           Result<std::shared_ptr<const Config>> config, std::string_view options) {
  Comm& c = *comm;
  MOE_CHECK(c.claim({"moe_dist_create"}));
  const Claimed claimed(c);
  const std::uint32_t number = c.next_call();
  std::shared_ptr<Dist> dist;
  std::optional<Agreement> agreement;
  Check prepared = taking_memory([&]() -> Check {
    dist.reset(new Dist(std::move(context), comm));
    MOE_CHECK(dist->prepare(config, options));
    agreement.emplace(c, agreement_text(*dist->config_, dist->options_));
    return ok();
  });
  // The others wait, whatever has failed here.
  MOE_CHECK(c.meet_with(std::move(prepared), {.tag = tag_of(SyncStep::create, {.call = number})}));
  dist->number_ = dist->made_ = number;
  MOE_CHECK(agreement->reach(c, tag_of(SyncStep::texts, {.call = number})));
  Check reserved = taking_memory([&] { return dist->reserve(); });
  MOE_CHECK(c.meet_with(std::move(reserved), dist->header(SyncStep::created)));
  return dist;
}

Dist::~Dist() { drop(); }

Result<std::shared_ptr<const Config>> Dist::local_config() const {
  if (local_ != nullptr) return local_;
  return fail(Code::state, "dist",
              cat("dist: rank ", comm_->rank(), " holds no expert: there are ", shape_.experts, " for ", shape_.ranks,
                  " ranks"));
}

Check Dist::check_layer(const Result<std::shared_ptr<const run::Layer>>& layer) {
  if (!layer) return layer.error();
  if (attached_) return fail(Code::state, "dist", "dist: it has a layer already");
  if ((*layer != nullptr) != (local_ != nullptr))
    return fail(Code::invalid_argument, "layer",
                local_ == nullptr ? "layer: must be NULL on a rank that holds no expert"
                                  : "layer: must not be NULL, this rank holds experts");
  if (*layer != nullptr && (*layer)->config().canonical != local_->canonical)
    return fail(Code::config_mismatch, "layer", "layer: is not made from the config of moe_dist_local_config");
  if (*layer != nullptr && (*layer)->places_experts_itself())
    return fail(Code::unsupported, "layer",
                "layer: has an expert_map; a spread layer's experts are where `placement` of moe_dist_create says");
  return reserve_call(*layer);
}

Check Dist::reserve_call(const std::shared_ptr<const run::Layer>& layer) {
  std::size_t engine = 0;
  if (layer != nullptr) {
    router_ = layer->router();
    rules_ = layer->sum_rules();
    engine_rows_ = most_engine_rows(shape_);
    while (engine_rows_ > 1 && layer->rows_bytes(engine_rows_, !shape_.exact) > half_of(options_)) engine_rows_ /= 2;
    engine = layer->rows_bytes(engine_rows_, !shape_.exact);
  } else {
    MOE_TRY(router_, make_empty_router(*config_));
  }
  if (LayerValues::are_told(*config_, places_, shape_.ranks, shape_.tp))
    values_.emplace(layer.get(), router_, shape_.ranks);
  const std::size_t routing = run::route_scratch_bytes(router_, options_.max_tokens);
  const std::size_t bytes = carve_call(shape_, options_.max_tokens, routing, engine, nullptr).bytes;
  MOE_TRY(call_buffer_, comm_->call_memory(CallPart::layer, bytes, context_));
  call_memory_ = carve_call(shape_, options_.max_tokens, routing, engine, call_buffer_->data());
  return ok();
}

// The kernels of all ranks must round alike; a rank without experts does as they do. RankHeader::rows: 1, 2 with
// rounding.
Check Dist::agree_on_sums(const run::Layer* layer) {
  const RankHeader* headers = comm_->headers();
  std::int32_t first = 0;
  for (int r = 0; r < comm_->size(); ++r) {
    const std::int32_t here = headers[r].rows;
    if (here < 0 || here > 2) return comm_->distrust(r, "no kind of sums");
    if (here == 0) continue;
    if (first != 0 && here != first)
      return fail(Code::config_mismatch, "layer",
                  cat("layer: the kernel of rank ", r, " rounds as those of ranks before it do not"),
                  json::members("rank", r));
    first = here;
  }
  if (layer != nullptr) return ok();
  const Elementwise* steps = any_steps();
  if (steps == nullptr) return fail(Code::unsupported, "layer", "layer: this build has no scalar kernel");
  rules_ = run::sum_rules_of(*config_, *steps, first == 2);
  return ok();
}

Check Dist::attach(Result<std::shared_ptr<const run::Layer>> layer) {
  MOE_CHECK(comm_->claim({"moe_dist_attach", options_.layer_id}));
  const Claimed claimed(*comm_);
  number_ = comm_->next_call();
  turn_ = 0;
  Check mine = taking_memory([&] { return check_layer(layer); });
  RankHeader header = this->header(SyncStep::attach);
  if (mine && *layer != nullptr) header.rows = rules_.rounded ? 2 : 1;
  MOE_CHECK(comm_->meet_with(std::move(mine), header, kPatience));
  MOE_CHECK(agree_on_sums(layer->get()));
  if (values_) {
    MOE_CHECK(values_->tell(*comm_));
    if (*layer == nullptr) values_->fill(router_);
    values_.reset();
  }
  layer_ = *layer;
  attached_ = true;
  return ok();
}

std::string Dist::to_json() const {
  json::Writer w;
  const int rank = comm_->rank();
  const std::string patch = local_patch(options_, places_, rank);
  w.begin_object().member("rank", rank).member("size", comm_->size());
  w.member("options", json::Text{options_.canonical()});
  w.key("experts").array(places_.experts[usize(rank)]);
  w.key("patch");
  if (local_ == nullptr)
    w.null();
  else
    w.value(json::Text{patch});
  w.member("attached", attached_).member("poisoned", comm_->is_poisoned());
  w.member("chunk_tokens", shape_.chunk).member("layer_rows", engine_rows_);
  w.member("workspace_bytes", chunk_buffer_->size() + (call_buffer_ == nullptr ? 0 : call_buffer_->size()));
  w.member("calls", calls_.load(std::memory_order_relaxed));
  w.member("rows_sent", rows_sent_.load(std::memory_order_relaxed));
  w.member("bytes_sent", bytes_sent_.load(std::memory_order_relaxed));
  w.member("pack_us", pack_ns_.load(std::memory_order_relaxed) / 1000);
  return w.member("wait_us", comm_->wait_us()).end_object().take();
}

}  // namespace moe::dist
