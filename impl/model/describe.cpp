// What a checkpoint says of itself as JSON, and single tensors of it. See checkpoint.h.
#include <array>
#include <set>
#include <string>
#include <utility>

#include "base/buffer.h"
#include "base/index.h"
#include "base/tensor.h"
#include "base/text.h"
#include "model/checkpoint.h"
#include "scheme/scheme.h"
#include "weights/tensor_bytes.h"

namespace moe::model {
namespace {

constexpr std::array<std::string_view, 3> kKinds = {"other", "experts", "dense"};

void write_layer(json::Writer& w, std::int64_t number, const LayerFound& layer, const Manifest* manifest) {
  w.begin_object().member("layer", number).member("kind", at(kKinds, layer.kind));
  if (layer.predicts) w.member("multi_token_prediction", true);
  if (layer.kind == LayerKind::experts) {
    w.member("name", layer.name).member("num_experts", layer.num_experts).member("top_k", layer.top_k);
    w.member("hidden_dim", layer.hidden).member("intermediate_size", layer.intermediate);
    if (!layer.format.empty()) w.member("format", layer.format);
    if (layer.plain) w.member("plain", true);
    w.member("bytes", layer.bytes);
    if (manifest == nullptr) w.member("tensors", layer.tensors);
  }
  if (!layer.routers.empty()) w.key("router").array(layer.routers);
  if (!layer.shared_experts.empty()) w.key("shared_experts").array(layer.shared_experts);
  if (manifest != nullptr) w.member("converted", layer.converted);
  if (layer.fault)
    w.member("problem", layer.fault->message).member("status", static_cast<std::int32_t>(layer.fault->code));
  w.end_object();
}

}  // namespace

std::string Checkpoint::to_json() const {
  json::Writer w;
  std::uint64_t bytes = 0;
  std::set<const io::SafetensorsFile*> files;
  for (const io::CheckpointEntry& e : entries_) {
    bytes += e.entry->bytes;
    files.insert(e.file.get());
  }
  w.begin_object().member("directory", folder()).member("class", class_name_).member("dtype", dtype_);
  w.member("quantization_from", documents_.quantization_from);
  w.member("files", files.size()).member("tensors", entries_.size()).member("bytes", bytes);
  w.key("layers").begin_array();
  for (std::int64_t l = 0; l < std::ssize(layers_); ++l)
    write_layer(w, l, at(layers_, l), manifest_ ? &*manifest_ : nullptr);
  w.end_array();
  if (manifest_) {
    std::set<std::string> layouts;
    for (const StoredLayer& l : manifest_->layers) layouts.insert(l.layout);
    w.key("converted").begin_object().member("source", manifest_->source).member("platform", manifest_->platform);
    w.key("parallel").value(manifest_->parallel, json::MemberOrder::sorted);
    w.key("layouts").array(layouts).end_object();
  }
  return w.end_object().take();
}

Result<TensorLease> Checkpoint::tensor(std::string_view name) const {
  const io::CheckpointEntry* found = io::find_entry(entries_, name);
  if (found == nullptr)
    return fail(Code::missing_weight, std::string(name),
                cat("the files of ", folder(), " have no tensor ", in_quotes(name, 1024)));
  const io::SafetensorsEntry& e = *found->entry;
  if (e.dtype == DType::invalid)
    return fail(Code::dtype, e.name, cat(e.name, ": its type is none that a tensor of moe.h has"));
  if (e.ndim > kMaxDims)
    return fail(Code::shape, e.name,
                cat(e.name, ": has ", e.ndim, " dimensions, at most ", kMaxDims, " are handed out"));
  MOE_TRY(Buffer bytes, Buffer::create(usize(e.bytes)));
  MOE_CHECK(found->file->read(e, 0, bytes.bytes()));
  const TensorView view = weights::dense_view(e.dtype, e.shape(), bytes);
  return TensorLease(view, std::move(bytes));
}

}  // namespace moe::model
