// moe_describe("checkpoint"): what a quantization object means for a layer, what a whole config.json means, with the
// tensors to expect on disk, what tensors tell of an unknown class, and which classes are known (describe.md 10).
#include <algorithm>
#include <array>

#include "base/index.h"
#include "base/text.h"
#include "config/quantization/quantization.h"
#include "hf/architecture_list.h"
#include "hf/hf.h"
#include "hf/infer.h"
#include "scheme/checkpoint.h"

namespace moe::hf {
namespace {

using fields::Members;

constexpr std::string_view kQuantization = "hf_quantization_config", kConfig = "config", kConfigToo = "hf_config",
                           kOptionsMember = "options", kTensors = "tensors", kArchitectures = "architectures";
constexpr std::array<std::string_view, 3> kResolveMembers = {"name", "projection_names", kQuantization};
constexpr std::array<std::string_view, 3> kModelMembers = {kConfig, kConfigToo, kOptionsMember};
constexpr std::array<std::string_view, 3> kTensorMembers = {kConfig, kConfigToo, kTensors};
constexpr std::array<std::string_view, 1> kListMembers = {kArchitectures};
constexpr std::size_t kMaxName = 512, kMaxProjection = 64;

// --- form (a): {name, projection_names, hf_quantization_config} -----------------------------------------

Result<std::vector<std::string>> projection_names(const Members& query) {
  std::vector<std::string> names = {"gate_proj", "up_proj", "down_proj"};
  const json::Value* v = query.get("projection_names");
  if (v == nullptr) return names;
  const std::string pointer = query.at("projection_names");
  if (v->array() == nullptr || v->array()->size() != names.size())
    return fields::unexpected(pointer, *v, "the names of gate, up and down");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const json::Value& entry = (*v->array())[i];
    const std::string* s = entry.string();
    const std::string at = cat(pointer, "/", i);
    if (s == nullptr || s->empty() || character_count(*s) > kMaxProjection)
      return fields::unexpected(at, entry, "a string of 1 to 64 characters");
    names[i] = *s;
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), *s) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      return fields::unexpected(at, entry, "a name that is not listed before");
  }
  return names;
}

Result<std::string> describe_quantization(const json::Value& query_value) {
  MOE_TRY(const Members query, Members::open(&query_value, "", kResolveMembers));
  MOE_TRY(const auto name, query.text("name", kMaxName));
  MOE_TRY(const auto projections, projection_names(query));
  MOE_TRY(const auto hf, resolve_hf_quantization(*query.get(kQuantization), name.value_or(""), projections, 1));
  json::Value resolved;
  if (hf) {
    Quantization q = hf->quantization;
    q.hf.reset();
    resolved = quantization_value(q);
    resolved.set("suffixes", json::Array(hf->suffixes.begin(), hf->suffixes.end()));
  }
  return json::Writer().begin_object().member("resolved", resolved).end_object().take();
}

// --- form (b): {config, options} ----------------------------------------------------------------------

// Faults of the options are pointers into the query here.
Error in_query(Error e) {
  if (!e.subject.starts_with(kOptions)) return e;
  const std::string pointer = fields::child("", kOptionsMember).append(e.subject, kOptions.size());
  return moved(std::move(e), pointer);
}

// The experts whose tensors this rank reads: copies of redundant experts come from the logical one.
std::vector<std::int64_t> experts_on_disk(const Config& c) {
  std::vector<std::int64_t> experts = local_experts(c);
  for (std::int64_t& e : experts)
    if (e >= c.num_experts) e = (e - c.num_experts) % c.num_experts;
  std::sort(experts.begin(), experts.end());
  experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
  return experts;
}

void write_tensor(json::Writer& w, const Config& c, const ExpertModule& module, std::int64_t expert, Projection p,
                  const CheckpointTensor& row) {
  const MatrixSize size = projection_size(p, c.hidden_dim, c.intermediate_size, c.stored_numbers());
  const auto role = role_of(p, row.kind);
  const Half half = half_of(p, module.gated);
  const char* whole = p == Projection::down ? "w2" : "w13";
  w.begin_object().member("name", tensor_name(module, expert, p, row));
  w.member("role", role ? std::optional(role_name(*role)) : std::nullopt).member("expert", expert);
  w.member("shard", half == Half::w1 ? "w1" : half == Half::w3 ? "w3" : whole);
  w.member("dtype", dtype_name(row.follows_model_dtype() ? c.in_dtype : row.dtypes[0]));
  w.key("shape").array(row.shape(size).span()).end_object();
}

// A tensor of all experts.
void write_stack(json::Writer& w, const Config& c, const ExpertModule& module, Projection p,
                 const CheckpointTensor& row) {
  MatrixSize size = projection_size(p, c.hidden_dim, c.intermediate_size, c.stored_numbers());
  const bool apart = module.stack_names().is_apart();
  size.halves = p != Projection::down && module.gated && !apart ? 2 : 1;
  size.n *= size.halves;
  const auto role = role_of(p, row.kind);
  w.begin_object().member("name", tensor_name(module, 0, p, row));
  w.member("role", role ? std::optional(role_name(*role)) : std::nullopt).key("expert").null();
  const char* half = p == Projection::gate ? "w1" : apart && module.gated ? "w3" : "w13";
  w.member("shard", p == Projection::down ? "w2" : half);
  w.member("dtype", dtype_name(row.follows_model_dtype() ? c.in_dtype : row.dtypes[0]));
  std::vector<std::int64_t> shape = {c.num_experts};
  const TensorShape one = row.shape(size);
  for (const std::int64_t d : one.span()) shape.push_back(d);
  if (module.is_flat()) {
    shape[1] *= shape[0];
    shape.erase(shape.begin());
  }
  if (row.shape_kind == ShapeKind::blocks) {
    shape.back() /= kBlockBytes;
    shape.push_back(kBlockBytes);
  }
  w.key("shape").array(shape).end_object();
}

void write_expected_tensors(json::Writer& w, const Config& c, bool stacks) {
  ExpertModule module;
  module.prefix = c.name;
  for (std::size_t i = 0; i < module.projections.size(); ++i) module.projections[i] = c.projection_names[i];
  module.num_experts = c.num_experts;
  const std::vector<const TensorSet*> sets = file_sets(c.quantization, c.stacked_weights);
  module.set = stacks ? sets.back() : sets.front();
  for (std::size_t i = 0; i < c.stacked_names.size(); ++i) module.stack.names[i] = c.stacked_names[i];
  module.gated = is_gated(c.activation);
  module.has_bias = c.has_bias;
  const Extras extras = extras_of(c.quantization, c.has_bias);
  w.begin_array();
  for (const Projection p : {Projection::gate, Projection::up, Projection::down}) {
    if (!module.is_stacked() || (p == Projection::gate && !module.stack_names().is_apart())) continue;
    for (const CheckpointTensor& row : module.tensors(p))
      if (row.need(extras) != Need::absent) write_stack(w, c, module, p, row);
  }
  if (module.is_stacked()) {
    w.end_array();
    return;
  }
  for (const std::int64_t expert : experts_on_disk(c))
    for (const Projection p : {Projection::gate, Projection::up, Projection::down}) {
      if (p == Projection::gate && !module.gated) continue;
      for (const CheckpointTensor& row : module.tensors())
        if (row.need(extras) != Need::absent) write_tensor(w, c, module, expert, p, row);
    }
  w.end_array();
}

Result<std::string> describe_model(const json::Value& query_value, const json::Value& hf_config) {
  MOE_TRY(const Members query, Members::open(&query_value, "", kModelMembers));
  const json::Value none = json::Object{};
  const json::Value& options = query.has(kOptionsMember) ? *query.get(kOptionsMember) : none;
  auto built = build_document(hf_config, options);
  if (!built) return in_query(std::move(built.error()));
  auto config = built->config();
  if (!config) return in_query(std::move(config.error()));
  if (tensor_set(config->quantization) == nullptr) {
    Error e = fail(Code::unsupported, "/quantization",
                   cat("/quantization: tensors of format ", at(kFormatNames, config->quantization.format),
                       " with these arguments are not read yet"));
    e = built->relocate(std::move(e));
    return in_query(e.subject == "/quantization" ? moved(std::move(e), "/quantization_config") : std::move(e));
  }
  json::Writer w;
  w.begin_object().member("config", built->document);
  write_expected_tensors(w.key("tensors"), *config, built->stacks);
  return w.end_object().take();
}

// --- forms (c) and (d): {config, tensors}, {architectures: true} --------------------------------------

Result<std::string> describe_tensors(const json::Value& query_value, const json::Value& hf_config) {
  MOE_TRY(const Members query, Members::open(&query_value, "", kTensorMembers));
  return infer_architecture(hf_config, *query.get(kTensors), query.at(kTensors));
}

Result<std::string> list_architectures(const json::Value& query_value) {
  MOE_TRY(const Members query, Members::open(&query_value, "", kListMembers));
  MOE_TRY(const bool all, query.boolean(kArchitectures, true));
  if (!all) return fields::unexpected(query.at(kArchitectures), *query.get(kArchitectures), "true");
  return architecture_list();
}

}  // namespace

Result<std::string> describe_checkpoint(const json::Value& query) {
  int given = 0;
  for (const std::string_view form : {kQuantization, kConfig, kConfigToo, kArchitectures})
    given += query.find(form) != nullptr ? 1 : 0;
  if (given != 1)
    return fields::fault("", cat("found ", given, " of ", kQuantization, ", ", kConfig, " and ", kArchitectures,
                                 ", expected one of them"));
  if (query.find(kQuantization) != nullptr) return describe_quantization(query);
  if (query.find(kArchitectures) != nullptr) return list_architectures(query);
  const std::string_view member = query.find(kConfig) != nullptr ? kConfig : kConfigToo;
  const json::Value& hf_config = *query.find(member);
  if (hf_config.object() == nullptr) return fields::unexpected(fields::child("", member), hf_config, "an object");
  return query.find(kTensors) != nullptr ? describe_tensors(query, hf_config) : describe_model(query, hf_config);
}

}  // namespace moe::hf
