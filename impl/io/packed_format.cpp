// Planning and strict reading of packed blocks. See packed_format.h.
#include "io/packed_format.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>

#include "base/checked.h"
#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "io/hash.h"
#include "layouts/families.h"
#include "layouts/p16/p16.h"
#include "layouts/p16/p16_layout.h"

namespace moe::io {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24;  // rows, columns
constexpr std::int64_t kMaxExperts = std::int64_t{1} << 24;
constexpr std::uint64_t kMaxText = std::uint64_t{64} << 20;  // config text

Error bad(const std::string& subject, std::string_view what) {
  return fail(Code::format, subject, cat(subject.empty() ? "packed block" : subject, ": ", what));
}

std::uint8_t byte(bool b) { return b ? 1 : 0; }

constexpr std::uint8_t kAllPanels = 255;
std::uint8_t stored_scale_rows(std::int64_t rows) {
  return rows == kAllRows ? kAllPanels : static_cast<std::uint8_t>(rows / kPanelRows);
}
std::int64_t scale_rows_of(const StoredMatrix& m) {
  return m.scale_panels == kAllPanels ? kAllRows : m.scale_panels == 0 ? 1 : m.scale_panels * kPanelRows;
}

StoredMatrix store(const Matrix& m) {
  const bool uneven = m.source_groups().is_uneven();
  return {.half_rows = m.half_rows,
          .k = m.columns(),
          .group = uneven ? 0 : m.source_groups().size_in(m.columns()),
          .groups = m.source_count(),
          .halves = static_cast<std::uint8_t>(m.halves),
          .element = static_cast<std::uint8_t>(m.element),
          .scales = static_cast<std::uint8_t>(m.scales),
          .has_bias = byte(m.has_bias),
          .has_zeros = byte(m.has_zeros),
          .has_order = byte(m.has_order),
          .any_sizes = byte(uneven),
          .scale_panels = stored_scale_rows(m.scale_rows)};
}

StoredVariant store(const LayoutVariant& v) {
  return {.input = static_cast<std::uint8_t>(v.input),
          .awq = byte(v.awq),
          .bit_compat_vllm = byte(v.bit_compat_vllm),
          .channel_wise = byte(v.channel_wise),
          .zero_shift = v.zero_shift,
          .bias = static_cast<std::int32_t>(v.bias),
          .number = static_cast<std::int32_t>(v.number),
          .multiprocessors = v.multiprocessors,
          .input_scales = byte(v.input_scales),
          .gate_up_pairs = byte(v.gate_up_pairs),
          .fnuz = byte(v.fnuz),
          .reserved = 0,
          .requantized_experts = 0};
}

StoredVariant of_layout(StoredVariant v) {
  v.requantized_experts = 0;
  return v;
}

// nullopt: no variant is stored so.
std::optional<LayoutVariant> variant_of(const StoredVariant& s) {
  const LayoutVariant v{.input = static_cast<MarlinInput>(s.input),
                        .awq = s.awq != 0,
                        .bit_compat_vllm = s.bit_compat_vllm != 0,
                        .channel_wise = s.channel_wise != 0,
                        .zero_shift = s.zero_shift,
                        .bias = static_cast<DType>(s.bias),
                        .number = static_cast<DType>(s.number),
                        .multiprocessors = s.multiprocessors,
                        .input_scales = s.input_scales != 0,
                        .gate_up_pairs = s.gate_up_pairs != 0,
                        .fnuz = s.fnuz != 0};
  return v.input <= MarlinInput::fp8 && store(v) == of_layout(s) ? std::optional(v) : std::nullopt;
}

// Small enough for the unchecked arithmetic of P16: at most 2^21 panels of less than 2^36 bytes (groups of any
// sizes: 2^29 columns).
bool are_extents(const StoredMatrix& m) {
  const auto extent = [](std::int64_t x) { return x >= 1 && x <= kMaxExtent; };
  return extent(m.half_rows) && extent(m.k) && (m.halves == 1 || m.halves == 2) && extent(m.groups) &&
         (m.any_sizes != 0 ? m.group == 0 : extent(m.group) && m.groups == ceil_div(m.k, m.group));
}

bool are_types(const StoredMatrix& m) { return m.element < kElements.size() && m.scales < kScales.size(); }

constexpr std::int64_t kLeastFilled = 16;  // the smallest group that is filled up

// Blocks of floats may be cut short.
bool divides_evenly(const StoredMatrix& m) { return m.any_sizes != 0 || m.k % m.group == 0; }

bool are_p16_groups(const P16Kind& kind, const StoredMatrix& m) {
  const bool integers = is_integer(kind.element);
  if (!integers && (m.any_sizes != 0 || m.has_order != 0)) return false;
  if (m.scale_panels != 0 && (integers || is_value(kind.element))) return false;
  if (integers && !divides_evenly(m)) return false;
  if (m.any_sizes != 0) return m.has_order != 0 && m.groups > 1;
  if (kind.element == Element::e2m1)  // of MX and NVFP4, as kernels know them
    return m.group == (kind.scales == Scales::e4m3 ? 16 : 32) && divides_evenly(m) && m.scale_panels == 0;
  return m.groups == 1 || m.group % 32 == 0 || (m.has_order != 0 && m.group >= kLeastFilled);
}

Matrix with_groups(Matrix m, const StoredMatrix& stored) {
  m.groups = stored.any_sizes != 0 ? Groups::uneven(stored.groups) : Groups::of_size(stored.group, m.k);
  return filled(m);
}

// The layout that the numbers describe, nullopt when they contradict each other.
std::optional<Layout> layout_of(const PackedHead& h) {
  const StoredMatrix &w13 = h.w13, &w2 = h.w2;
  if (h.layout_kind > UINT8_MAX) return std::nullopt;
  const auto kind = static_cast<LayoutKind>(h.layout_kind);
  const bool fits = h.experts <= static_cast<std::uint64_t>(kMaxExperts) && are_extents(w13) && are_extents(w2) &&
                    are_types(w13) && w2.halves == 1 && w2.k == w13.half_rows && w2.half_rows == w13.k &&
                    (w13.group == w2.group || w13.groups == 1 || w2.groups == 1 || w2.any_sizes != 0);
  if (!fits) return std::nullopt;
  const bool channel = w13.groups == 1 && w2.groups == 1;
  LayoutShape shape = {.experts = static_cast<std::int64_t>(h.experts),
                       .hidden = w13.k,
                       .intermediate = w13.half_rows,
                       .groups = {},
                       .gated = w13.halves == 2,
                       .has_bias = w13.has_bias != 0,
                       .scales = static_cast<Scales>(w13.scales),
                       .has_zeros = w13.has_zeros != 0,
                       .has_order = w13.has_order != 0,
                       .element = static_cast<Element>(w13.element),
                       .scale_rows = scale_rows_of(w13)};
  Layout l;
  if (const LayoutFamily* named = layout_family(kind)) {
    const auto variant = variant_of(h.variant);
    if (!variant || w13.any_sizes != 0 || w2.any_sizes != 0) return std::nullopt;
    if (is_integer(shape.element) && (!divides_evenly(w13) || !divides_evenly(w2))) return std::nullopt;
    if (!channel) shape.groups = Groups::even(std::min(w13.group, w2.group));
    l = make_named_layout(kind, shape, *variant);
    l.w13.groups = Groups::of_size(w13.group, w13.k);
    l.w2.groups = Groups::of_size(w2.group, w2.k);
    place_tensors(l);
    if (!named->valid(l)) return std::nullopt;
  } else {
    const P16Kind* row = p16_kind(kind);
    const bool valid = row != nullptr && (!is_value(row->element) || channel) &&
                       (!row->any_float || is_float_scale(shape.scales)) && are_p16_groups(*row, w13) &&
                       are_p16_groups(*row, w2);
    if (!valid) return std::nullopt;
    l = p16_layout(kind, shape);
    l.w13 = with_groups(l.w13, w13);
    l.w2 = with_groups(l.w2, w2);
    l.variant.bit_compat_vllm = h.variant.bit_compat_vllm != 0 && may_share_scales(l);
    l.variant.input_scales = h.variant.input_scales != 0 && may_have_input_scales(l);
  }
  // What the kind settles is stored, too, and agrees.
  const bool same = store(l.w13) == w13 && store(l.w2) == w2 && store(l.variant) == of_layout(h.variant);
  return same ? std::optional(std::move(l)) : std::nullopt;
}

template <class T>
std::vector<T> read_array(std::span<const std::byte> bytes) {
  std::vector<T> v(bytes.size() / sizeof(T));
  if (!v.empty()) std::memcpy(v.data(), bytes.data(), v.size() * sizeof(T));
  return v;
}

std::string read_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool all_distinct(std::vector<std::int64_t> v) {
  std::sort(v.begin(), v.end());
  return std::adjacent_find(v.begin(), v.end()) == v.end() && (v.empty() || (v.front() >= 0 && v.back() < kMaxExperts));
}

}  // namespace

std::uint64_t header_hash_of(std::span<const std::byte> header, std::uint32_t side_floats) {
  return xxh3(header.subspan(kHashedFrom)) ^ (side_floats * 0x9e3779b97f4a7c15u);  // a file without is what it was
}

std::int64_t input_scale_count(const Layout& l) {
  return p16_element(l.kind) && l.variant.input_scales ? l.experts : 0;
}

std::vector<float> side_floats(const PackedInfo& info) {
  std::vector<float> all = info.correction_bias;
  all.insert(all.end(), info.expert_scale.begin(), info.expert_scale.end());
  all.insert(all.end(), info.expert_norm.begin(), info.expert_norm.end());
  for (const std::vector<float>& factors : info.input_factors) all.insert(all.end(), factors.begin(), factors.end());
  for (const std::vector<float>& scales : info.input_scales) all.insert(all.end(), scales.begin(), scales.end());
  return all;
}

namespace {

// The other way; false: there are fewer than the header says.
bool split_side_floats(const PackedHead& head, std::vector<float> all, PackedInfo& info) {
  const auto if_has = [&](std::uint32_t flag, std::int64_t count) {
    return (head.side_floats & flag) != 0 ? usize(count) : 0;
  };
  const std::size_t scales = head.side_floats & ~(kHasNorm | kHasInputs | kHasMiddle);
  const std::size_t norm = if_has(kHasNorm, head.w2.half_rows), inputs = if_has(kHasInputs, head.w2.half_rows),
                    middle = if_has(kHasMiddle, head.w13.half_rows);
  const std::size_t of_inputs = usize(input_scale_count(info.layout));
  std::size_t left = all.size();
  for (const std::size_t part : {scales, norm, inputs, middle, of_inputs, of_inputs}) {
    if (left < part) return false;
    left -= part;
  }
  const auto take = [&](std::size_t count, std::vector<float>& to) {
    to.assign(all.end() - static_cast<std::ptrdiff_t>(count), all.end());
    all.resize(all.size() - count);
  };
  take(of_inputs, info.input_scales[1]);
  take(of_inputs, info.input_scales[0]);
  take(middle, info.input_factors[1]);
  take(inputs, info.input_factors[0]);
  take(norm, info.expert_norm);
  take(scales, info.expert_scale);
  info.correction_bias = std::move(all);
  return true;
}

}  // namespace

std::optional<PackedHead> plan_block(const PackedInfo& info) {
  PackedHead h{};
  h.magic = kPackedMagic;
  h.version = kPackedVersion;
  h.layout_kind = static_cast<std::uint64_t>(info.layout.kind);
  h.experts = static_cast<std::uint64_t>(info.layout.experts);
  h.w13 = store(info.layout.w13);
  h.w2 = store(info.layout.w2);
  h.variant = store(info.layout.variant);
  h.variant.requantized_experts = static_cast<std::uint32_t>(info.requantized_experts);
  h.side_floats = static_cast<std::uint32_t>(info.expert_scale.size()) | (info.expert_norm.empty() ? 0 : kHasNorm) |
                  (info.input_factors[0].empty() ? 0 : kHasInputs) | (info.input_factors[1].empty() ? 0 : kHasMiddle);
  const auto layout = layout_of(h);
  if (!layout) return std::nullopt;
  h.expert_stride = layout->expert_stride();
  const auto payload = checked_payload_bytes(*layout);
  if (!payload) return std::nullopt;
  h.payload_bytes = static_cast<std::uint64_t>(*payload);
  h.chunk_bytes = kHashChunk;
  h.scales_rounded = info.scales_rounded;
  const std::array<std::uint64_t, kSectionCount> bytes = {info.layout_id.size(),
                                                          info.backend.size(),
                                                          info.config.size(),
                                                          outputs_json(outputs_of(*layout)).size(),
                                                          info.experts.size() * 8,
                                                          side_floats(info).size() * 4,
                                                          ceil_div(h.payload_bytes, kHashChunk) * 8};
  std::uint64_t at = sizeof(PackedHead);
  for (std::size_t s = 0; s < bytes.size(); ++s) {
    h.sections[s] = {at, bytes[s]};
    at = round_up(at + bytes[s], std::uint64_t{8});
  }
  h.payload_offset = round_up(at, std::uint64_t{kPackedAlignment});
  h.block_bytes = h.payload_offset + h.payload_bytes;
  return h;
}

std::vector<std::int64_t> NamedOutput::strides() const {
  if (!own_strides.empty()) return own_strides;
  std::vector<std::int64_t> steps(shape.size());
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0; step *= shape[d]) steps[d] = step;
  if (!shared) steps[0] = static_cast<std::int64_t>(expert_stride * 8 / usize(dtype_bits(dtype)));
  return steps;
}

std::vector<NamedOutput> outputs_of(const Layout& l) {
  std::vector<NamedOutput> list;
  if (p16_element(l.kind)) {
    const auto output = [&](const char* name, const P16& m, std::size_t offset) {
      list.push_back(
          {name, DType::u8, {l.experts, static_cast<std::int64_t>(m.bytes())}, offset, l.expert_stride(), false});
    };
    output("w13_packed", P16{l.w13}, 0);
    output("w2_packed", P16{l.w2}, l.w2_offset());
  }
  for (const LayoutTensor& t : l.tensors) {
    std::vector<std::int64_t> shape = t.shape;
    if (!t.shared) shape.insert(shape.begin(), l.experts);
    list.push_back(
        {std::string(t.name), t.dtype, std::move(shape), t.offset, t.shared ? 0 : t.bytes, t.shared, t.strides});
  }
  return list;
}

std::string outputs_json(const std::vector<NamedOutput>& outputs) {
  json::Writer w;
  w.begin_array();
  for (const NamedOutput& o : outputs) {
    w.begin_object().member("name", o.name).member("dtype", dtype_name(o.dtype)).key("shape").array(o.shape);
    w.key("strides").array(o.strides()).member("offset", o.offset).end_object();
  }
  return w.end_array().take();
}

std::span<const std::byte> section(const PackedHead& head, std::span<const std::byte> block, PackedSection which) {
  const StoredSection& s = head.sections[which];
  return block.subspan(usize(s.offset), usize(s.bytes));
}

Result<PackedHead> read_head(std::span<const std::byte> first, std::uint64_t total, const std::string& subject) {
  constexpr std::size_t kVersionEnd = 12;
  const std::size_t known = std::min(first.size(), kPackedMagic.size());
  if (known < kPackedMagic.size() || std::memcmp(first.data(), kPackedMagic.data(), known) != 0)
    return bad(subject, "does not begin like a packed layer");
  PackedHead h{};
  std::memcpy(&h, first.data(), std::min(first.size(), sizeof h));
  if (first.size() < kVersionEnd) return bad(subject, "ends inside its header");
  if (h.version != kPackedVersion && h.version != 0)
    return fail(
        Code::version, subject,
        cat(subject.empty() ? "packed block" : subject, ": format version ", h.version, "; this library reads version ",
            kPackedVersion, h.version < kPackedVersion ? ": convert the weights again" : ""));
  if (h.version == 0) return bad(subject, "format version 0");
  if (first.size() < sizeof h) return bad(subject, "ends inside its header");
  if (h.block_bytes != total) return bad(subject, cat("has ", total, " bytes, its header says ", h.block_bytes));
  constexpr std::uint64_t kMostHeader = kSectionCount * (kMaxText + kPackedAlignment);
  if (h.payload_offset < sizeof h || h.payload_offset > std::min(h.block_bytes, kMostHeader) ||
      h.payload_offset % kPackedAlignment != 0 || h.payload_bytes != h.block_bytes - h.payload_offset ||
      h.chunk_bytes != kHashChunk)
    return bad(subject, "payload offset or size do not fit the block");
  return h;
}

Result<PackedInfo> read_info(const PackedHead& head, std::span<const std::byte> header, const std::string& subject) {
  header = header.first(usize(head.payload_offset));
  if (header_hash_of(header, head.side_floats) != head.header_hash)
    return bad(subject, "header hash does not match: the header is damaged");
  PackedInfo info;
  const auto layout = layout_of(head);
  if (!layout) return bad(subject, "the layout numbers are unknown or contradict each other");
  info.layout = *layout;
  for (const StoredSection& s : head.sections)
    if (s.offset > header.size() || s.bytes > header.size() - s.offset || s.bytes > kMaxText)
      return bad(subject, "a section lies outside the header");
  info.layout_id = read_text(section(head, header, kLayoutId));
  info.backend = read_text(section(head, header, kBackend));
  info.config = read_text(section(head, header, kConfigText));
  info.experts = read_array<std::int64_t>(section(head, header, kExperts));
  if (!split_side_floats(head, read_array<float>(section(head, header, kCorrectionBias)), info))
    return bad(subject, "fewer numbers of routing and experts than the header says");
  for (const std::vector<float>& scales : info.input_scales)
    for (const float scale : scales)
      if (!is_input_scale(scale))
        return bad(subject, "a scale of the inputs is no positive number with a normal reciprocal");
  info.scales_rounded = head.scales_rounded;
  info.requantized_experts = head.variant.requantized_experts;
  if (info.requantized_experts > head.experts) return bad(subject, "more requantized experts than there are");
  // Everything that was not free to choose must be what this library would have written.
  const auto planned = plan_block(info);
  PackedHead expected = planned.value_or(PackedHead{});
  expected.header_hash = head.header_hash;
  if (!planned || std::memcmp(&expected, &head, sizeof head) != 0)
    return bad(subject, "sizes do not follow from the layout");
  if (info.layout_id != info.layout.id())
    return bad(subject, "layout id '" + info.layout_id + "' is not that of its numbers");
  if (read_text(section(head, header, kTensorList)) != outputs_json(outputs_of(info.layout)))
    return bad(subject, "the list of tensors does not follow from the layout");
  if (static_cast<std::int64_t>(info.experts.size()) != info.layout.experts || !all_distinct(info.experts))
    return bad(subject, "the list of experts does not fit the layout");
  auto config = json::parse(info.config, {.max_bytes = usize(kMaxText), .max_depth = 32});
  if (!config || config->object() == nullptr) return bad(subject, "the config is not a JSON object");
  info.document = std::make_shared<const json::Value>(*std::move(config));
  return info;
}

Check verify_payload(const PackedHead& head, std::span<const std::byte> block, const std::string& subject,
                     const Parallel& parallel) {
  const auto payload = block.subspan(usize(head.payload_offset));
  const std::byte* stored = section(head, block, kChunkHashes).data();
  std::atomic<std::size_t> first_bad{SIZE_MAX};
  auto body = [&](std::size_t i) {
    const std::size_t at = i * kHashChunk;
    std::uint64_t want;
    std::memcpy(&want, stored + i * 8, 8);
    if (xxh3(payload.subspan(at, std::min<std::size_t>(kHashChunk, payload.size() - at))) == want) return;
    for (std::size_t seen = first_bad; i < seen && !first_bad.compare_exchange_weak(seen, i);) {
    }
  };
  MOE_CHECK(parallel.each(usize(ceil_div(head.payload_bytes, kHashChunk)), body));
  if (first_bad == SIZE_MAX) return ok();
  return bad(subject, cat("payload hash does not match in bytes [", first_bad * kHashChunk, ", ",
                          std::min<std::size_t>((first_bad + 1) * kHashChunk, payload.size()), ")"));
}

}  // namespace moe::io
