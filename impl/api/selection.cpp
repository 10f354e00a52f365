// Backend selection: moe_select_backend, moe_selection_*.
#include <string>

#include "api/entry.h"
#include "base/text.h"
#include "bind/agree.h"

namespace {

constexpr uint64_t kSelectFlags = MOE_SELECT_EXPLAIN_ONLY | MOE_SELECT_ALLOW_FALLBACK;

void log_selection(moe_context* ctx, const moe::oracle::Selection& s) {
  if (ctx == nullptr) return;
  moe::Log& log = ctx->object->log();
  if (!s.warning.empty()) log.write(moe::LogLevel::warn, "select", s.warning);
  const std::string text = s.winner ? cat("backend ", s.backend_name(), ", kernel ", s.candidates[*s.winner].kernel,
                                          ", layout ", s.layout_id)
                                    : cat("no backend among ", s.candidates.size(), " candidates");
  log.write(moe::LogLevel::info, "select", text);
}

// The winner's row, nullptr for no selection or none.
const moe::oracle::Candidate* winner_of(const moe_selection* selection) {
  if (!is_live(selection) || !selection->object->winner) return nullptr;
  return &selection->object->candidates[*selection->object->winner];
}

}  // namespace

moe_status moe_select_backend(moe_context* ctx, const moe_config* config, const moe_platform* platform, uint64_t flags,
                              moe_selection** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"config", config}, {"out", out}}));
    MOE_CHECK(check_optional(ctx, "ctx"));
    MOE_CHECK(check_handle(config, "config"));
    MOE_CHECK(check_optional(platform, "platform"));
    MOE_CHECK(known_flags(flags, kSelectFlags));
    MOE_TRY(const moe::Platform where, platform != nullptr ? Result<moe::Platform>(*platform->object)
                                                           : moe::config::effective_platform(*config->object));
    const moe::oracle::SelectFlags how{.explain_only = (flags & MOE_SELECT_EXPLAIN_ONLY) != 0,
                                       .allow_fallback = (flags & MOE_SELECT_ALLOW_FALLBACK) != 0};
    MOE_TRY(moe::oracle::Selection selection, moe::oracle::select_backend(config->object, where, how));
    auto object = std::make_shared<const moe::oracle::Selection>(std::move(selection));
    moe_selection* handle = make_handle<moe_selection>(object);
    *out = handle;
    guard_value(0, [&] { return log_selection(ctx, *object), 0; });
    return ok();
  });
}

const char* moe_selection_backend(const moe_selection* selection) {
  const moe::oracle::Candidate* w = winner_of(selection);
  return w == nullptr ? "" : w->backend.c_str();
}

const char* moe_selection_kernel(const moe_selection* selection) {
  const moe::oracle::Candidate* w = winner_of(selection);
  return w == nullptr ? "" : w->kernel.c_str();
}

const char* moe_selection_layout(const moe_selection* selection) {
  return is_live(selection) ? selection->object->layout_id.c_str() : "";
}

size_t moe_selection_candidate_count(const moe_selection* selection) {
  return is_live(selection) ? selection->object->candidates.size() : 0;
}

moe_status moe_selection_candidate(const moe_selection* selection, size_t index, moe_candidate* out, moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"selection", selection}, {"out", out}}));
    MOE_CHECK(check_struct_size(out, "out"));
    MOE_CHECK(check_handle(selection, "selection"));
    const auto& candidates = selection->object->candidates;
    if (index >= candidates.size())
      return fail(Code::invalid_argument, "index", cat("index: ", index, " of ", candidates.size(), " candidates"));
    const moe::oracle::Candidate& c = candidates[index];
    write_struct(out, moe_candidate{.struct_size = sizeof(moe_candidate),
                                    .reason = static_cast<moe_reject>(c.reason),
                                    .chosen = c.chosen ? 1 : 0,
                                    .priority = c.priority,
                                    .backend = c.backend.c_str(),
                                    .kernel = c.kernel.c_str(),
                                    .detail = c.detail.c_str(),
                                    .subject = c.subject.c_str()});
    return ok();
  });
}

moe_status moe_selection_packed_size(const moe_selection* selection, uint64_t* bytes, uint64_t* alignment,
                                     moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(bytes);
    clear(alignment);
    MOE_CHECK(not_null({{"selection", selection}, {"bytes", bytes}, {"alignment", alignment}}));
    MOE_CHECK(check_handle(selection, "selection"));
    MOE_CHECK(moe::bind::check_built(*selection->object));
    MOE_TRY(const std::uint64_t n, moe::io::packed_block_bytes(moe::bind::packed_info(*selection->object)));
    *bytes = n;
    *alignment = moe::io::kBlockAlignment;
    return ok();
  });
}

moe_status moe_selection_to_json(const moe_selection* selection, moe_buffer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"selection", selection}, {"out", out}}));
    MOE_CHECK(check_handle(selection, "selection"));
    *out = make_text(moe::oracle::selection_to_json(*selection->object));
    return ok();
  });
}

void moe_selection_destroy(moe_selection* selection) { end_handle(selection); }
