// moe check: a converted model against its own hashes and against float64, and against the source that it was made
// from.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tool/bar.h"
#include "tool/commands.h"
#include "tool/layers.h"
#include "tool/machine.h"
#include "tool/reference.h"
#include "tool/runner.h"

namespace moe_tool {
namespace {

struct CheckOptions {
  std::string directory;
  std::string source;
  std::string layers;
  std::int64_t tokens = 4;
  bool full = false;
  int threads = 0;
};

// What the output of a layer may differ by from float64, by how its activations are rounded on the way; the first row
// whose word is in the kernel's name counts. Activations of 8 bits give 0.01 to 0.03, the others what out_dtype rounds.
struct Allowed {
  const char* word;
  double error;
};
constexpr Allowed kAllowed[] = {{"_tok8_", 0.06}, {"_blk8_", 0.06}, {"", 0.012}};

double allowed_error(const std::string& kernel) {
  for (const Allowed& row : kAllowed)
    if (kernel.find(row.word) != std::string::npos) return row.error;
  return 0;
}

// The folder's own record: what it was made from, and how. Its members: impl/spec/converted.md 2.
Json manifest_of(const std::string& directory) {
  std::ifstream file(directory + "/manifest.json", std::ios::binary);
  Json record = Json::parse(std::istreambuf_iterator<char>(file), {}, nullptr, false);
  // The library has read it before: another process has changed it since.
  if (!record.is_object()) throw Failure(kNo, fmt::format("{}/manifest.json: cannot be read again", directory));
  return record;
}

class FolderCheck {
 public:
  FolderCheck(const CheckOptions& options, const Session& session) : options_(options), session_(session) {
    control_ = make<ControlHandle>(moe_control_create, nullptr, nullptr, nullptr);
    interrupt_.tell(control_.get());
    out_ = open_model(options.directory, options.threads);
    if (!out_.document.contains("converted")) {
      throw Failure(kUsage, fmt::format("{} is not a converted model; moe convert {} OUT makes one",
                                        printable(options.directory), shell_word(options.directory)));
    }
    manifest_ = manifest_of(options.directory);
    target_ = target_of_folder(out_.document["converted"].value("platform", ""));
    if (!options.source.empty()) {
      source_.context = make_context(options.threads);
      const std::string text = manifest_.value("options", Json::object()).dump();
      source_.checkpoint = make<CheckpointHandle>(moe_checkpoint_open, source_.context.get(), options.source.c_str(),
                                                  text.data(), text.size(), control_.get());
      source_.document = document_of(moe_checkpoint_to_json, source_.checkpoint.get());
      // Its layers would be loaded, not converted again, and agree with themselves.
      if (source_.document.contains("converted"))
        throw Failure(kUsage,
                      fmt::format("{} is a converted model too; check compares with the model that OUT was made "
                                  "from, as it comes from Hugging Face",
                                  printable(options.source)));
    }
  }

  Json run() {
    Json out = {{"command", "check"}, {"directory", options_.directory}};
    bool ok = true;
    if (source_.checkpoint) {
      out["source"] = options_.source;
      const Json print = fingerprints();
      ok = ok && print.value("equal", false);
      out["fingerprint"] = print;
    }
    std::vector<std::int64_t> asked;
    if (!options_.layers.empty())
      asked = number_list(options_.layers, moe_checkpoint_layer_count(out_.checkpoint.get()) - 1, "--layers");
    Json layers = Json::array();
    Json missing = Json::array();
    for (const Json& facts : out_.document["layers"]) {
      const auto number = facts.value("layer", std::int64_t{0});
      if (facts.value("kind", "") != "experts" ||
          (!asked.empty() && !std::binary_search(asked.begin(), asked.end(), number)))
        continue;
      if (!facts.value("converted", false) && !facts.contains("problem")) {
        missing.push_back(number);
        continue;
      }
      Interrupt::check();
      if (session_.err.terminal && !session_.json)
        std::fputs(fmt::format("\rcheck layer {}\x1b[K", number).c_str(), stderr);
      Json row = layer(facts, number);
      ok = ok && row.value("ok", false);
      layers.push_back(std::move(row));
    }
    if (session_.err.terminal && !session_.json) std::fputs("\r\x1b[K", stderr);
    if (layers.empty()) throw Failure(kNo, "none of these layers is converted");
    out["layers"] = std::move(layers);
    out["not_converted"] = std::move(missing);
    out["ok"] = ok;
    out["not_proven"] = not_proven();
    return out;
  }

 private:
  Json fingerprints() {
    const std::string stored = out_.document["converted"].value("source", "");
    const bool full = stored.starts_with("full:");
    const auto now = make<BufferHandle>(moe_checkpoint_fingerprint, source_.context.get(), source_.checkpoint.get(),
                                        full ? 1 : 0, control_.get());
    const std::string text = static_cast<const char*>(moe_buffer_data(now.get()));
    return {{"stored", stored}, {"source", text}, {"equal", stored == text}};
  }

  std::string file_of(std::int64_t number) const {
    for (const Json& row : manifest_.value("layers", Json::array()))
      if (row.value("layer", std::int64_t{-1}) == number) return row.value("file", "");
    return "";
  }

  Json layer(const Json& facts, std::int64_t number) {
    Json out = {{"layer", number}, {"ok", false}};
    if (facts.contains("problem")) {
      out["problem"] = facts["problem"];
      return out;
    }
    try {
      const std::string path = options_.directory + "/" + file_of(number);
      const auto packed = make<PackedHandle>(moe_packed_load, out_.context.get(), path.c_str(),
                                             std::uint64_t{MOE_LOAD_MMAP | MOE_LOAD_VERIFY}, control_.get());
      out["hashes"] = true;
      const bool same = compare_with_float64(number, packed.get(), out);
      const bool equal = !source_.checkpoint || compare_with_source(number, packed.get(), out);
      out["ok"] = same && equal;
    } catch (const Failure& failure) {
      if (failure.exit_code() == kInterrupted) throw;
      out["problem"] = failure.what();
    }
    return out;
  }

  // Runs tokens through the layer and through the reference; true where both agree, or where only the hashes can be
  // checked.
  bool compare_with_float64(std::int64_t number, const moe_packed* packed, Json& out) {
    auto request = sized<moe_checkpoint_options>();
    request.load_flags = MOE_LOAD_MMAP;
    request.control = control_.get();
    LayerHandle layer;
    try {
      layer = make<LayerHandle>(moe_checkpoint_layer, out_.context.get(), out_.checkpoint.get(), number, &request);
    } catch (const Failure& failure) {
      if (failure.status() != MOE_ERR_NO_BACKEND && failure.status() != MOE_ERR_UNSUPPORTED) throw;
      out["not_run"] = failure.what();
      return true;
    }
    const Json report = document_of(moe_layer_to_json, layer.get());
    const std::string kernel = report.value("kernel", "");
    const Json& config = report.at("config");
    out["kernel"] = kernel;
    const ReferenceLayer reference(config, packed);
    if (!reference.problem().empty()) {
      out["not_run"] = reference.problem();
      return true;
    }
    const CallSizes sizes = sizes_of(config);
    TokenBatch batch(sizes, options_.tokens, static_cast<std::uint64_t>(number));
    batch.run(layer.get(), control_.get());
    const std::vector<double> expected = reference.outputs(batch, out_.threads);
    Interrupt::check();
    const double error = relative_error(batch, sizes, expected);
    const double allowed = allowed_error(kernel);
    out["tokens"] = options_.tokens;
    out["relative_error"] = std::isfinite(error) ? Json(error) : Json(nullptr);
    out["allowed_error"] = allowed;
    const bool same = error <= allowed;  // also false for NaN
    if (!same)
      out["problem"] = fmt::format("its output differs from float64 by {:.3f}, {:.3f} is allowed", error, allowed);
    return same && compare_routing(number, sizes, batch, out);
  }

  // moe_route on its own, with the same logits, must choose what the layer chose. It needs a correction bias that is in
  // the packed file alone, so layers with one are left out.
  bool compare_routing(std::int64_t number, const CallSizes& sizes, const TokenBatch& batch, Json& out) {
    if (!sizes.routes) return true;
    const auto config =
        make<ConfigHandle>(moe_checkpoint_config, out_.checkpoint.get(), number, nullptr, std::size_t{0});
    const auto again = batch.route(out_.context.get(), config.get());
    if (!again) return true;
    std::int64_t equal = 0;
    const auto chosen = static_cast<std::size_t>(sizes.chosen);
    for (std::size_t t = 0; t < static_cast<std::size_t>(batch.tokens()); ++t) {
      const auto begin = static_cast<std::ptrdiff_t>(t * chosen);
      const auto end = begin + static_cast<std::ptrdiff_t>(chosen);
      equal += std::equal(batch.ids().begin() + begin, batch.ids().begin() + end, again->begin() + begin) ? 1 : 0;
    }
    out["routing_equal"] = equal;
    if (equal == batch.tokens()) return true;
    out["problem"] =
        fmt::format("routing chose other experts for {} of {} tokens", batch.tokens() - equal, batch.tokens());
    return false;
  }

  // Converts one expert again, or with --full all of them, and compares bytes.
  bool compare_with_source(std::int64_t number, const moe_packed* stored, Json& out) {
    const Json report = document_of(moe_packed_to_json, stored);
    const auto experts = report.at("experts").size();
    const std::int64_t expert = report["experts"][static_cast<std::size_t>(number * 7919 + 3) % experts];
    const Json patch =
        manifest_.contains("patch") && manifest_["patch"].is_object() ? manifest_["patch"] : Json::object();
    PackedHandle made;
    if (!options_.full && !patch.contains("parallel")) made = convert_one(number, report, patch, expert);
    if (!made) made = convert_again(number, patch);
    const Json mine = document_of(moe_packed_to_json, made.get());
    if (mine.value("layout", "") != report.value("layout", "")) {
      out["problem"] = fmt::format("the source converts to {} here, the folder has {}", mine.value("layout", ""),
                                   report.value("layout", ""));
      return false;
    }
    std::vector<std::int64_t> compared;
    for (const Json& id : mine.at("experts")) compared.push_back(id);
    for (const std::int64_t id : compared) {
      for (const Json& output : mine.at("outputs")) {
        const std::string name = output.value("name", "");
        if (same_bytes(stored, made.get(), name, id)) continue;
        out["problem"] = fmt::format("{} of expert {} differs from what the source converts to", name, id);
        return false;
      }
    }
    out["experts_compared"] = compared.size();
    return true;
  }

  PackedHandle convert_again(std::int64_t number, const Json& patch) {
    const std::string text = patch.dump();
    const auto config =
        make<ConfigHandle>(moe_checkpoint_config, source_.checkpoint.get(), number, text.data(), text.size());
    const auto selection = make<SelectionHandle>(moe_select_backend, source_.context.get(), config.get(),
                                                 target_.platform.get(), std::uint64_t{0});
    auto request = sized<moe_checkpoint_options>();
    request.control = control_.get();
    return make<PackedHandle>(moe_checkpoint_packed, source_.context.get(), source_.checkpoint.get(), selection.get(),
                              &request);
  }

  // The rank that holds nothing but this expert, where all experts were shared out one by one; null where the layer
  // cannot be cut like this or is packed otherwise then.
  PackedHandle convert_one(std::int64_t number, const Json& report, Json patch, std::int64_t expert) {
    const auto experts = report.at("config").value("num_experts", std::int64_t{1});
    patch["parallel"] = {{"tp_size", experts}, {"tp_rank", expert}, {"enable_expert_parallel", true}};
    try {
      PackedHandle made = convert_again(number, patch);
      const Json mine = document_of(moe_packed_to_json, made.get());
      if (mine.value("layout", "") == report.value("layout", "") && mine.at("experts") == Json::array({expert}))
        return made;
    } catch (const Failure& failure) {
      if (failure.status() == MOE_ERR_CANCELLED || failure.status() == MOE_ERR_IO) throw;
    }
    return nullptr;
  }

  static bool same_bytes(const moe_packed* a, const moe_packed* b, const std::string& name, std::int64_t expert) {
    auto left = sized<moe_tensor>();
    auto right = sized<moe_tensor>();
    try {
      call(moe_packed_get, a, name.c_str(), expert, &left);
      call(moe_packed_get, b, name.c_str(), expert, &right);
    } catch (const Failure& failure) {
      if (failure.status() != MOE_ERR_INVALID_ARGUMENT) throw;
      return true;  // one tensor for all experts, such as a workspace
    }
    return left.nbytes == right.nbytes && std::memcmp(left.data, right.data, left.nbytes) == 0;
  }

  Json not_proven() const {
    Json out = Json::array();
    if (!source_.checkpoint)
      out.push_back("that the files come from a certain source: moe check OUT DIR compares with one");
    if (source_.checkpoint && !options_.full) {
      out.push_back("experts other than the one that was converted again in each layer: --full converts all of them");
      out.push_back("bytes of the source that its fingerprint does not sample (16 pieces of 4 KiB of each file)");
    }
    if (!options_.layers.empty()) out.push_back("layers other than those of --layers");
    out.push_back("other tokens than the random ones, and other machines' kernels");
    return out;
  }

  const CheckOptions& options_;
  const Session& session_;
  ControlHandle control_;
  Interrupt interrupt_;  // ends before what it tells
  OpenModel out_;
  OpenModel source_;
  Json manifest_;
  TargetMachine target_;
};

void show(const Json& found, const CheckOptions& options, const Session& session) {
  const Screen& screen = session.out;
  std::vector<double> errors;
  double allowed = 0;
  bool exact = true;
  std::int64_t hashed = 0;
  std::int64_t good = 0;
  std::int64_t compared = 0;
  std::int64_t routed = 0;
  std::string not_run;
  Table bad({{"layer", true, false}, {"what is wrong", false, true}});
  for (const Json& row : found["layers"]) {
    if (row.contains("relative_error")) {
      // What is not a number is no agreement either.
      const double error = row["relative_error"].is_number() ? row.value("relative_error", 0.0) : HUGE_VAL;
      errors.push_back(error);
      exact = exact && error <= row.value("allowed_error", 0.0);
    }
    allowed = std::max(allowed, row.value("allowed_error", 0.0));
    hashed += row.value("hashes", false) ? 1 : 0;
    compared += row.value("experts_compared", std::int64_t{0});
    routed += row.contains("routing_equal") ? 1 : 0;
    if (row.contains("not_run")) not_run = row.value("not_run", "");
    if (row.value("ok", false)) {
      ++good;
    } else {
      bad.row({fmt::format("{}", row.value("layer", 0)), screen.no() + " " + row.value("problem", "")});
    }
  }
  const auto count = static_cast<std::int64_t>(found["layers"].size());
  const auto row = [&](bool ok, const std::string& text) {
    for (const std::string& line :
         wrapped(fmt::format("{} {}", ok ? screen.yes() : screen.no(), text), static_cast<std::size_t>(screen.width)))
      session.line("{}", line);
  };
  if (found.contains("fingerprint")) {
    const Json& print = found["fingerprint"];
    const bool equal = print.value("equal", false);
    row(equal, equal
                   ? fmt::format("made from {} (fingerprint {})", shell_word(options.source), print.value("stored", ""))
                   : fmt::format("not made from {}: its fingerprint is {}, the folder's {}", shell_word(options.source),
                                 print.value("source", ""), print.value("stored", "")));
  }
  row(hashed == count, fmt::format("{} of {}: all hashes are right", hashed, count_text(count, "layer")));
  if (!errors.empty()) {
    std::sort(errors.begin(), errors.end());
    row(exact,
        fmt::format("{} of each layer in float64: relative error {:.4f} (median), {:.4f} (worst); {:.3f} is allowed",
                    count_text(options.tokens, "token"), errors[errors.size() / 2], errors.back(), allowed));
  }
  if (routed > 0 && good == count)
    row(true, fmt::format("routing chose the same experts on its own, in {}", count_text(routed, "layer")));
  if (compared > 0)
    row(true, fmt::format("{} converted again, byte for byte the same", count_text(compared, "expert")));
  if (!not_run.empty()) session.line("not compared with float64: {}", not_run);
  if (!bad.empty()) session.text(bad.text(screen));
  if (const auto missing = static_cast<std::int64_t>(found["not_converted"].size()); missing > 0)
    session.line("{} not converted", count_text(missing, "layer is", "layers are"));
  for (const Json& text : found["not_proven"])
    for (const std::string& line :
         wrapped("not proven: " + text.get<std::string>(), static_cast<std::size_t>(screen.width)))
      session.line("{}", screen.toned(line, Tone::kDim));
  const std::string directory = shell_word(options.directory);
  const bool other_source = found.contains("fingerprint") && !found["fingerprint"].value("equal", false);
  if (!found.value("ok", false) && (options.source.empty() || other_source)) {
    session.next(fmt::format("moe check {} DIR, with the model that it was made from", directory));
  } else if (!found.value("ok", false)) {
    session.next(
        fmt::format("moe convert {} {} --verify makes damaged layers again", shell_word(options.source), directory));
  } else if (errors.empty() && !not_run.empty()) {
    session.next(fmt::format("copy {} to a machine that runs it", directory));
  } else {
    session.next(fmt::format("moe bench {}", directory));
  }
}

}  // namespace

void declare_check(CLI::App& command, Session& session) {
  const auto options = std::make_shared<CheckOptions>();
  add_directory(command, options->directory, "OUT", "A directory that moe convert wrote");
  command.add_option("DIR", options->source, "The model that it was made from")->type_name("");
  command.add_option("--layers", options->layers, "Only these, such as 0-3,7")->type_name("LIST");
  command.add_option("--tokens", options->tokens, "Tokens that are compared with float64, in each layer")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  command.add_flag("--full", options->full, "With DIR: convert all experts again, not one of each layer");
  command.add_option("-t,--threads", options->threads, "Threads; 0: all cores")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  command.callback([options, &session] {
    FolderCheck check(*options, session);
    const Json found = check.run();
    session.document(found);
    show(printable_document(found), *options, session);
    if (!found.value("ok", false)) session.exit_code = kNo;
  });
}

}  // namespace moe_tool
