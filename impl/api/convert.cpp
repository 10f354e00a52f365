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

struct Block {
  std::span<std::byte> bytes;
  std::string memory;  // "owned", "caller"
  std::shared_ptr<const void> keep;
};

// The caller's memory, or new memory of the context.
Result<Block> block_for(const moe_convert_options& options, std::uint64_t needed, moe_context* ctx,
                        HandedOver& dst_owner) {
  auto owner = std::make_shared<HandedOver>();
  if (options.dst != nullptr) {
    if (reinterpret_cast<std::uintptr_t>(options.dst) % moe::io::kBlockAlignment != 0)
      return fail(Code::invalid_argument, "dst", cat("dst: must be aligned to ", moe::io::kBlockAlignment, " bytes"));
    if (options.dst_size < needed)
      return fail(Code::buffer_too_small, "dst_size",
                  cat("dst_size: ", needed, " bytes needed, got ", options.dst_size),
                  moe::json::members("needed", needed));
    *owner = std::move(dst_owner);
    return Block{{static_cast<std::byte*>(options.dst), usize(needed)}, "caller", std::move(owner)};
  }
  struct Own {
    moe::Buffer buffer;
    std::shared_ptr<HandedOver> owner;  // a release without dst is kept as long as the result, too
  };
  auto own = std::make_shared<Own>();
  MOE_TRY(own->buffer, moe::Buffer::create(usize(needed), moe::io::kPackedAlignment,
                                           moe::run::allocator_of(object_of(ctx).get()), object_of(ctx)));
  *owner = std::move(dst_owner);
  own->owner = std::move(owner);
  const std::span<std::byte> bytes = own->buffer.bytes();
  return Block{bytes, "owned", std::move(own)};
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
    MOE_CHECK(moe::report(control, 0, 0));
    const bool releases = (given.flags & MOE_CONVERT_RELEASE_SOURCES) != 0;
    moe::weights::WeightSet& set = weights->object->set;
    MOE_TRY(const Use use, Use::begin(*weights->object, releases ? Access::exclusive : Access::shared));
    const moe::Parallel parallel = moe::run::parallel_of(object_of(ctx).get());
    MOE_TRY(moe::bind::Conversion conversion,
            moe::bind::conversion_of(s, set, (given.flags & MOE_CONVERT_ANY_NAME) != 0, given.max_temp_bytes, parallel,
                                     control));
    moe::io::PackedInfo& info = conversion.info;
    moe::convert::ConvertJob& job = conversion.job;
    if (releases) {
      job.expert_done = [](void* user, std::int64_t expert) {
        static_cast<moe::weights::WeightSet*>(user)->release_expert(expert);
      };
      job.expert_done_user = &set;
    }
    MOE_TRY(const std::uint64_t needed, moe::io::packed_block_bytes(info));
    MOE_TRY(Block block, block_for(given, needed, ctx, dst_owner));
    const auto payload = block.bytes.subspan(moe::io::packed_payload_offset(info), info.layout.payload_bytes());
    auto converted = moe::convert::convert_experts(job, set, payload, parallel, control);
    if (!converted) return set.in_callers_names(std::move(converted.error()));
    const moe::convert::ConvertReport& report = *converted;
    info.scales_rounded = report.scales_rounded;
    info.requantized_experts = report.requantized_experts;
    MOE_TRY(moe::io::Packed packed,
            moe::io::seal_packed(info, block.bytes, parallel, std::move(block.memory), std::move(block.keep)));
    auto object = std::make_shared<const moe::io::Packed>(std::move(packed));
    moe_packed* handle = make_handle<moe_packed>(object);
    if (releases) set.clear();
    *out = handle;
    guard_value(0, [&] { return log_conversion(ctx, *object), 0; });
    return ok();
  });
}
