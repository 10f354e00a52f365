// The loop over experts: gather one expert's tensors, read them panel by panel (named layouts: matrix by matrix), write
// the layout.
//
// Experts are taken in ascending order by as many workers as the memory limit allows, in rounds; between
// rounds the calling thread reports progress and ends the use of what is done.
#include "convert/convert.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/decimal.h"
#include "base/each_expert.h"
#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/source.h"
#include "convert/source_matrix.h"
#include "layouts/families.h"
#include "layouts/floats/requantize.h"
#include "layouts/p16/column_order.h"
#include "layouts/p16/p16.h"
#include "layouts/p16/p16_layout.h"
#include "layouts/p16/write_p16.h"
#include "layouts/repack.h"

namespace moe::convert {
namespace {

// --- one expert --------------------------------------------------------------------------------------

std::string input_scale_place(Which which, std::int64_t expert) {
  return cat(role_name(which == Which::w13 ? Role::w13_input_scale : Role::w2_input_scale), "[", expert, "]");
}

Error no_input_scale(const ConvertJob& job, Which which, std::int64_t expert) {
  const std::string place = input_scale_place(which, expert);
  const bool ours = p16_element(job.layout.kind).has_value();
  return fail(Code::missing_weight, place,
              cat(place, ": not set; the kernels of this layout quantise activations with it",
                  ours ? "; with compute a16 it is not needed" : ""));
}

// The scale of an expert's inputs, where the layout keeps them.
Check keep_input_scale(const ConvertJob& job, std::int64_t expert, Which which, std::optional<float> scale,
                       ExpertFacts& facts) {
  at(facts.input_scale, which) = scale;
  if (!job.layout.variant.input_scales) return ok();
  if (!scale) return no_input_scale(job, which, expert);
  if (is_input_scale(*scale) || !p16_element(job.layout.kind)) return ok();
  const std::string place = input_scale_place(which, expert);
  return fail(Code::invalid_argument, place,
              cat(place, ": ", float_text(*scale), " is no scale that activations can be divided by"));
}

// The places of a matrix's columns; empty where the layout has no lists.
Result<ColumnOrder> order_of(const ConvertJob& job, const TensorSource& source, std::int64_t expert, bool is_w13) {
  const Matrix& matrix = is_w13 ? job.layout.w13 : job.layout.w2;
  if (!matrix.has_order) return ColumnOrder();
  MOE_TRY(const std::vector<std::int32_t> g_idx, lease_g_idx(job, source, expert, is_w13));
  return column_order(matrix, g_idx, is_w13, expert);
}

// `order_of_rows`: that of the halves' rows; empty: as they are.
Check write_p16_matrix(const ConvertJob& job, const TensorSource& source, std::int64_t expert, Which which,
                       const ColumnOrder& order, std::span<const std::int32_t> order_of_rows, CanonicalRows& rows,
                       ExpertFacts& facts, std::byte* out) {
  const P16 matrix{job.layout.matrix(which)};
  MOE_TRY(const LeasedMatrix leased, lease_matrix(job, source, expert, which == Which::w13));
  MOE_CHECK(keep_input_scale(job, expert, which, leased.source.input_scale, facts));
  rows.shape(kPanelRows, matrix);
  CanonicalRows placed;
  if (!order.empty()) placed.shape(kPanelRows, matrix, true);
  const std::int64_t panels_of_half = ceil_div(matrix.half_rows, kPanelRows);
  for (std::int64_t p = 0; p < panels_of_half; ++p) {
    const std::int64_t row0 = p * kPanelRows, n = std::min(kPanelRows, matrix.half_rows - row0);
    for (int half = 0; half < matrix.halves; ++half, out += matrix.panel_bytes()) {
      MOE_CHECK(read_rows(leased.source, half, row0, n, rows, order_of_rows));
      if (!order.empty()) arrange_columns(rows, order, placed);
      write_p16_panel(matrix, order.empty() ? rows : placed, out);
    }
  }
  write_list(matrix, order, out);
  return ok();
}

// A worker's memory, and what it says about its experts.
struct Scratch {
  CanonicalRows rows;
  std::uint64_t requantized = 0;
};

// As vLLM does, gate and up come to have one scale first.
Check write_with_one_scale(const ConvertJob& job, const TensorSource& source, std::int64_t expert, Scratch& scratch,
                           ExpertFacts& facts, std::byte* out) {
  const P16 m{job.layout.w13};
  MOE_TRY(const LeasedMatrix leased, lease_matrix(job, source, expert, true));
  MOE_CHECK(keep_input_scale(job, expert, Which::w13, leased.source.input_scale, facts));
  scratch.rows.shape(m.rows(), m);
  MOE_CHECK(read_matrix(leased.source, scratch.rows));
  MOE_CHECK(share_scale(scratch.rows, true, false));
  scratch.requantized += scratch.rows.requantized ? 1 : 0;
  write_p16_rows(scratch.rows, m, {}, {}, out);
  return ok();
}

// `facts`: of this expert.
using WriteExpert = Check (*)(const ConvertJob&, const TensorSource&, std::int64_t local, Scratch&, ExpertFacts& facts,
                              std::byte* payload);

Check write_p16_expert(const ConvertJob& job, const TensorSource& source, std::int64_t local, Scratch& scratch,
                       ExpertFacts& facts, std::byte* payload) {
  CanonicalRows& rows = scratch.rows;
  const Layout& l = job.layout;
  const std::int64_t expert = at(job.experts, local);
  std::byte* out = payload + usize(local) * l.expert_stride();
  MOE_TRY(const ColumnOrder order13, order_of(job, source, expert, true));
  MOE_TRY(const ColumnOrder order2, order_of(job, source, expert, false));
  MOE_CHECK(l.variant.bit_compat_vllm
                ? write_with_one_scale(job, source, expert, scratch, facts, out)
                : write_p16_matrix(job, source, expert, Which::w13, order13, order2.rows(), rows, facts, out));
  MOE_CHECK(write_p16_matrix(job, source, expert, Which::w2, order2, {}, rows, facts, out + l.w2_offset()));
  const std::size_t used = l.w2_offset() + P16{l.w2}.bytes();
  std::memset(out + used, 0, l.expert_stride() - used);
  return ok();
}

Check write_named_expert(const ConvertJob& job, const TensorSource& source, std::int64_t local, Scratch& scratch,
                         ExpertFacts& facts, std::byte* payload) {
  const LayoutFamily& form = *layout_family(job.layout.kind);
  CanonicalRows& rows = scratch.rows;
  bool requantized = false;
  for (const Which which : {Which::w13, Which::w2}) {
    const Matrix& matrix = job.layout.matrix(which);
    MOE_TRY(const LeasedMatrix leased, lease_matrix(job, source, at(job.experts, local), which == Which::w13));
    rows.shape(matrix.rows(), matrix);
    MOE_CHECK(read_matrix(leased.source, rows));
    MOE_CHECK(keep_input_scale(job, at(job.experts, local), which, rows.input_scale, facts));
    MOE_CHECK(form.write(rows, which, {job.layout, payload, local}));
    requantized = requantized || rows.requantized;
  }
  scratch.requantized += requantized ? 1 : 0;
  return ok();
}

// What no expert writes: shared tensors, and the gaps between tensors.
void clear_shared(const Layout& l, std::byte* payload) {
  std::size_t at = 0;
  for (const LayoutTensor& t : l.tensors) {
    std::memset(payload + at, 0, t.offset - at + (t.shared ? t.bytes : 0));
    at = l.end_of(t);
  }
}

// What a layout of ours keeps beside its payload.
std::array<std::vector<float>, 2> kept_input_scales(const ConvertJob& job, std::span<const ExpertFacts> facts) {
  std::array<std::vector<float>, 2> all;
  if (!p16_element(job.layout.kind) || !job.layout.variant.input_scales) return all;
  for (const Which which : {Which::w13, Which::w2}) {
    std::vector<float>& scales = at(all, which);
    for (const ExpertFacts& f : facts) scales.push_back(*at(f.input_scale, which));
  }
  return all;
}

WriteExpert writer_of(LayoutKind kind) {
  return p16_element(kind) ? write_p16_expert : layout_family(kind) != nullptr ? write_named_expert : nullptr;
}

// --- all experts -------------------------------------------------------------------------------------

constexpr std::int64_t kRound = 4;  // experts of a worker between two looks at the control

Check check_job(const ConvertJob& job, std::span<std::byte> payload) {
  if (!can_write(job.layout.kind))
    return fail(Code::unsupported, "layout", cat("this build cannot write the packed layout '", job.layout.id(), "'"));
  if (job.set == nullptr || !can_read(job.set->codes))
    return fail(Code::unsupported, "/quantization/format",
                "this build cannot convert weights that are stored as these are");
  if (static_cast<std::int64_t>(job.experts.size()) != job.layout.experts)
    return fail(Code::internal, "", "the list of experts does not fit the layout");
  if (payload.size() < job.layout.payload_bytes())
    return fail(Code::buffer_too_small, "dst",
                cat("the payload needs ", job.layout.payload_bytes(), " bytes, got ", payload.size()),
                json::members("needed", job.layout.payload_bytes()));
  return ok();
}

std::size_t worker_count(const ConvertJob& job, const Parallel& parallel) {
  const std::size_t n = workers_for(job.layout.experts, parallel);
  if (job.max_temp_bytes == 0) return n;
  const std::uint64_t each = std::max<std::uint64_t>(temp_bytes_per_worker(job), 1);
  return usize(std::clamp<std::uint64_t>(job.max_temp_bytes / each, 1, n));
}

}  // namespace

bool can_write(LayoutKind kind) { return writer_of(kind) != nullptr; }

Result<Layout> layout_that_fits(const ConvertJob& job, const TensorSource& source, const Parallel& parallel,
                                Control* control) {
  const Layout wider = with_any_groups(job.layout);
  if (!job.act_order || wider == job.layout) return job.layout;
  const std::int64_t total = job.layout.experts;
  const std::size_t workers = workers_for(total, parallel);
  // An expert that does not fit ends the search like a fault; the first expert of either kind decides.
  constexpr Code kDoesNotFit = Code::buffer_too_small;
  const auto look = [&](std::size_t, std::int64_t local) -> Check {
    for (const bool is_w13 : {true, false}) {
      MOE_TRY(const std::vector<std::int32_t> g_idx, lease_g_idx(job, source, at(job.experts, local), is_w13));
      if (!holds_groups(job.layout.matrix(is_w13 ? Which::w13 : Which::w2), g_idx)) return fail(kDoesNotFit, "", "");
    }
    return ok();
  };
  const std::int64_t round = kRound * static_cast<std::int64_t>(workers);
  begin_phase(control, Phase::convert, Unit::experts, 0);
  for (std::int64_t begin = 0; begin < total; begin += round) {
    MOE_CHECK(report(control, 0, static_cast<std::uint64_t>(total)));
    Check fits = each_expert(begin, std::min(total, begin + round), workers, parallel, control, look);
    if (!fits && fits.error().code == kDoesNotFit) return wider;
    MOE_CHECK(std::move(fits));
  }
  return job.layout;
}

Result<ConvertReport> convert_experts(const ConvertJob& job, const TensorSource& source, std::span<std::byte> payload,
                                      const Parallel& parallel, Control* control) {
  MOE_CHECK(check_job(job, payload));
  const std::int64_t total = job.layout.experts;
  const auto total_u = static_cast<std::uint64_t>(total);
  begin_phase(control, Phase::convert, Unit::experts, job.layout.payload_bytes());
  MOE_CHECK(report(control, 0, total_u));
  const std::size_t workers = worker_count(job, parallel);
  clear_shared(job.layout, payload.data());
  const WriteExpert write_expert = writer_of(job.layout.kind);
  std::vector<Scratch> scratch(workers);
  std::vector<ExpertFacts> facts(job.experts.size());
  std::atomic<std::uint64_t> done{0};
  const auto convert = [&](std::size_t worker, std::int64_t local) -> Check {
    MOE_CHECK(write_expert(job, source, local, scratch[worker], at(facts, local), payload.data()));
    const std::uint64_t finished = done.fetch_add(1, std::memory_order_relaxed) + 1;
    if (control != nullptr) control->note(finished, total_u);
    return ok();
  };
  // One worker: report after each expert. More: several experts each, so that waiting for the last costs little.
  const std::int64_t round = workers == 1 ? 1 : static_cast<std::int64_t>(workers) * kRound;
  for (std::int64_t begin = 0; begin < total; begin += round) {
    const std::int64_t end = std::min(total, begin + round);
    MOE_CHECK(each_expert(begin, end, workers, parallel, control, convert));
    MOE_CHECK(report(control, done.load(), total_u));
    if (job.expert_done != nullptr)
      for (std::int64_t e = begin; e < end; ++e) job.expert_done(job.expert_done_user, at(job.experts, e));
  }
  ConvertReport result;
  if (const LayoutFamily* form = layout_family(job.layout.kind); form != nullptr && form->finish != nullptr)
    MOE_CHECK(form->finish(job.layout, facts, payload.data(), result.scales_rounded));
  result.input_scales = kept_input_scales(job, facts);
  for (const Scratch& s : scratch) {
    result.scales_rounded += s.rows.scales_rounded;
    result.requantized_experts += s.requantized;
  }
  return result;
}

}  // namespace moe::convert
