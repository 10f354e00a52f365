// Conversion: moe_convert_weights. The packed block is the library's or the caller's `dst`; either way it is
// written in place and sealed at the end, so a layer never exists twice.
#include <string>

#include "api/entry.h"
#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "bind/agree.h"
#include "bind/conversion.h"
#include "convert/convert.h"

using moe::usize;
using moe::api::Access;
using moe::api::Use;

namespace {

// The caller's memory, or new memory of the context.
Result<moe::bind::BlockMemory> block_for(const moe_convert_options& options, std::uint64_t needed, moe_context* ctx,
                                         HandedOver& dst_owner) {
  auto owner = std::make_shared<HandedOver>();
  if (options.dst == nullptr) {
    *owner = std::move(dst_owner);  // a release without dst is kept as long as the result, too
    return moe::bind::own_block(needed, object_of(ctx), std::move(owner));
  }
  if (reinterpret_cast<std::uintptr_t>(options.dst) % moe::io::kBlockAlignment != 0)
    return fail(Code::invalid_argument, "dst", cat("dst: must be aligned to ", moe::io::kBlockAlignment, " bytes"));
  if (options.dst_size < needed)
    return fail(Code::buffer_too_small, "dst_size", cat("dst_size: ", needed, " bytes needed, got ", options.dst_size),
                moe::json::members("needed", needed));
  *owner = std::move(dst_owner);
  return moe::bind::BlockMemory{{static_cast<std::byte*>(options.dst), usize(needed)}, "caller", std::move(owner)};
}

Check check_options(const moe_convert_options& options) {
  MOE_CHECK(check_optional(options.control, "control"));
  MOE_CHECK(known_flags(options.flags, MOE_CONVERT_RELEASE_SOURCES | MOE_CONVERT_ANY_NAME));
  return reserved_zero(options.reserved0, "options");
}

void log_conversion(moe_context* ctx, const moe::io::Packed& packed) {
  if (ctx == nullptr) return;
  ctx->object->log().write(
      moe::LogLevel::info, "convert",
      cat("layout ", packed.info.layout_id, ", ", packed.block.size(), " bytes, ", packed.info.scales_rounded,
          " scales rounded, ", packed.info.requantized_experts, " experts requantized"));
}

}  // namespace

moe_status moe_convert_weights(moe_context* ctx, const moe_selection* selection, moe_weights* weights,
                               const moe_convert_options* options, moe_packed** out, moe_error** err) {
  const moe_convert_options given = peek_struct(options).value_or(moe_convert_options{});
  HandedOver dst_owner(given.dst_release, given.dst_user);
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"selection", selection}, {"weights", weights}, {"out", out}}));
    if (options != nullptr) MOE_CHECK(read_struct(options, "options"));
    MOE_CHECK(check_optional(ctx, "ctx"));
    MOE_CHECK(check_handle(selection, "selection"));
    MOE_CHECK(check_handle(weights, "weights"));
    MOE_CHECK(check_options(given));
    const moe::oracle::Selection& s = *selection->object;
    MOE_CHECK(moe::bind::check_built(s));
    moe::Control* control = moe::api::control_of(given.control);
    moe::begin_call(control);
    MOE_CHECK(moe::report(control, 0, 0));
    const bool releases = (given.flags & MOE_CONVERT_RELEASE_SOURCES) != 0;
    moe::weights::WeightSet& set = weights->object->set;
    MOE_TRY(const Use use, Use::begin(*weights->object, releases ? Access::exclusive : Access::shared));
    const moe::Parallel parallel = moe::run::parallel_of(object_of(ctx).get());
    MOE_TRY(moe::bind::Conversion conversion,
            moe::bind::conversion_of(s, set, (given.flags & MOE_CONVERT_ANY_NAME) != 0, given.max_temp_bytes, parallel,
                                     control));
    if (releases) {
      conversion.job.expert_done = [](void* user, std::int64_t expert) {
        static_cast<moe::weights::WeightSet*>(user)->release_expert(expert);
      };
      conversion.job.expert_done_user = &set;
    }
    MOE_TRY(const std::uint64_t needed, moe::io::packed_block_bytes(conversion.info));
    MOE_TRY(moe::bind::BlockMemory block, block_for(given, needed, ctx, dst_owner));
    MOE_TRY(moe::io::Packed packed,
            moe::bind::convert_into(std::move(conversion), set, std::move(block), parallel, control));
    auto object = std::make_shared<const moe::io::Packed>(std::move(packed));
    moe_packed* handle = make_handle<moe_packed>(object);
    if (releases) set.clear();
    *out = handle;
    guard_value(0, [&] { return log_conversion(ctx, *object), 0; });
    return ok();
  });
}
