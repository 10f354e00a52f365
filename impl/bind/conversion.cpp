// See conversion.h.
#include "bind/conversion.h"

#include <utility>

#include "base/buffer.h"
#include "base/index.h"
#include "bind/agree.h"

namespace moe::bind {
namespace {

ConvertJob job_of(const Selection& selection, const WeightSet& set) {
  const Config &c = *selection.config, &stored = set.config();
  ConvertJob job;
  job.layout = selection.layout;
  job.set = tensor_set(stored.quantization);
  job.w13_layout = stored.w13_layout.value_or(W13Layout::gate_up);
  job.zero_points = stored.quantization.zero_point_convention.value_or(ZeroPoints::as_stored);
  job.gated = is_gated(c.activation);
  job.groups = c.weight_groups();
  job.block = stored.stored_numbers().block;
  if (const auto& weights = c.quantization.weights) {
    job.symmetric = weights->symmetric;
    job.act_order = weights->actorder == ActOrder::group;
  }
  if (!job.act_order && job.groups.is_even())
    job.w2_first_group = c.parallel.tp_rank * c.intermediate_size_per_partition / job.groups.as_written();
  return job;
}

}  // namespace

Result<Conversion> conversion_of(const Selection& selection, const WeightSet& set, bool any_name,
                                 std::uint64_t max_temp_bytes, const Parallel& parallel, Control* control) {
  MOE_CHECK(check_same_config(set.config().resolved, selection.config->resolved, "weights"));
  const bool guessed = !set.config().named_by_class.empty() || !selection.config->named_by_class.empty();
  if (!any_name)
    MOE_CHECK(check_same_layer(set.config().name, *selection.config, guessed, "weights",
                               "MOE_CONVERT_ANY_NAME (flags of moe_convert_options)"));
  MOE_CHECK(set.check_complete());
  Conversion c{.info = packed_info(selection), .job = job_of(selection, set)};
  c.info.correction_bias = set.loaded().correction_bias;
  c.info.expert_scale = set.loaded().expert_scale;
  c.info.expert_norm = set.loaded().expert_norm;
  MOE_TRY(c.info.input_factors, set.input_factors());
  c.job.experts = c.info.experts;
  c.job.max_temp_bytes = max_temp_bytes;
  auto layout = layout_that_fits(c.job, set, parallel, control);
  if (!layout) return set.in_callers_names(std::move(layout.error()));
  c.job.layout = *std::move(layout);
  c.info.layout = c.job.layout;
  c.info.layout_id = c.info.layout.id();
  const bool ours = p16_element(c.job.layout.kind).has_value();
  if (!ours && !(c.info.input_factors[0].empty() && c.info.input_factors[1].empty()))
    return fail(Code::unsupported, "pre_quant_scale",
                cat("pre_quant_scale: the inputs are multiplied by a factor for each column, which layout ",
                    c.info.layout_id, " has no place for; this library's own layouts have one"));
  return c;
}

Result<BlockMemory> own_block(std::uint64_t bytes, const std::shared_ptr<Context>& context,
                              std::shared_ptr<const void> also_kept) {
  struct Own {
    Buffer buffer;
    std::shared_ptr<const void> also_kept;
  };
  auto own = std::make_shared<Own>();
  MOE_TRY(own->buffer, Buffer::create(usize(bytes), kPackedAlignment, allocator_of(context.get()), context));
  own->also_kept = std::move(also_kept);
  const std::span<std::byte> memory = own->buffer.bytes();
  return BlockMemory{memory, "owned", std::move(own)};
}

Result<Packed> convert_into(Conversion conversion, const WeightSet& set, BlockMemory block, const Parallel& parallel,
                            Control* control) {
  PackedInfo& info = conversion.info;
  const auto payload = block.bytes.subspan(packed_payload_offset(info), info.layout.payload_bytes());
  auto converted = convert_experts(conversion.job, set, payload, parallel, control);
  if (!converted) return set.in_callers_names(std::move(converted.error()));
  info.scales_rounded = converted->scales_rounded;
  info.input_scales = std::move(converted->input_scales);
  info.requantized_experts = converted->requantized_experts;
  return seal_packed(info, block.bytes, parallel, std::move(block.word), std::move(block.keep));
}

}  // namespace moe::bind
