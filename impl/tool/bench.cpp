// moe bench: tokens per second of a model's experts, beside a probe of the memory. As llama-bench, it has rows for
// decode and prefill and for numbers of threads, with mean and deviation.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "tool/bar.h"
#include "tool/commands.h"
#include "tool/layers.h"
#include "tool/machine.h"
#include "tool/plot.h"
#include "tool/runner.h"
#include "tool/shapes.h"

namespace moe_tool {
namespace {

struct BenchOptions {
  std::string directory;
  std::string shape;
  std::string format;  // "": the shape's own
  std::string layers;
  std::string target = "this";
  std::string plot;
  std::vector<int> threads = {0};
  std::vector<std::int64_t> prefill = {512};
  std::vector<std::int64_t> decode = {1};
  int repetitions = 5;
  double seconds = 0.3;  // the least time of a repetition
};

constexpr double kProbeSeconds = 0.2;
constexpr double kMemoryShare = 0.8;        // of what is free; the rest is for tokens and the probe
constexpr std::int64_t kLayersOfShape = 8;  // where nothing else is said
constexpr double kSpread = 0.10;

std::string format_of(const BenchOptions& options) {
  return options.format.empty() ? shape_named(options.shape).format : options.format;
}

// Where layers come from: a directory, or a shape. Layers of a directory that is not converted yet, and those of a
// shape, are packed once and serve all numbers of threads.
class Model {
 public:
  Model(const BenchOptions& options, const Session& session)
      : options_(options), session_(session), target_(target_of(options.target)) {
    if (options.shape.empty()) {
      model_ = open_model(options.directory, largest(options.threads));
      layers_ = layers_of(model_, target_);
      std::erase_if(layers_, [](const ModelLayer& layer) {
        return layer.kind != "experts" || layer.facts.value("multi_token_prediction", false);
      });
      if (layers_.empty()) layer_with_experts(model_, -1);  // says why
      all_ = static_cast<std::int64_t>(layers_.size());
      converted_ = model_.document.contains("converted");
      if (converted_)
        std::erase_if(layers_, [](const ModelLayer& layer) { return !layer.facts.value("converted", false); });
      if (layers_.empty())
        throw Failure(kNo, "no layer of this directory is converted yet; moe convert goes on where it ended");
      keep_asked();
      name_ = printable(model_.document.value("class", ""));
    } else {
      const ModelShape& shape = shape_named(options.shape);
      const WeightFormat& format = format_named(format_of(options));
      model_.context = make_context(largest(options.threads));
      const std::string text = config_text(shape, format);
      ModelLayer layer;
      layer.kind = "experts";
      layer.config = make<ConfigHandle>(moe_config_create, text.data(), text.size());
      if (!target_.patch.empty())
        layer.config =
            make<ConfigHandle>(moe_config_merge, layer.config.get(), target_.patch.data(), target_.patch.size());
      choose_kernel(model_.context.get(), target_, layer);
      layer.format = format_of(options);
      layers_.push_back(std::move(layer));
      all_ = shape.layers;
      name_ = shape.name;
    }
    if (!target_.here)
      throw Failure(kNo, fmt::format("--for {}: this machine lacks what its kernels need", printable(target_.name)));
    for (const ModelLayer& layer : layers_)
      if (!layer.problem.empty()) throw Failure(kNo, fmt::format("layer {}: {}", layer.number, layer.problem));
    choose_layers();
    if (!converted_) pack();
  }

  const std::string& name() const { return name_; }
  const ModelLayer& first() const { return layers_.front(); }
  // Of the layers that are measured, each once.
  std::string weights() const {
    std::set<std::string> out;
    for (std::size_t i = 0; i < std::min(layers_.size(), static_cast<std::size_t>(count_)); ++i)
      out.insert(layers_[i].format);
    return fmt::format("{}", fmt::join(out, "+"));
  }
  std::int64_t all_layers() const { return all_; }
  std::int64_t measured_layers() const { return count_; }
  double measured_bytes() const { return static_cast<double>(packed_bytes_); }

  std::vector<LayerHandle> layers(moe_context* context) const {
    std::vector<LayerHandle> out;
    for (std::int64_t i = 0; i < count_; ++i) {
      Interrupt::check();
      const auto index = static_cast<std::size_t>(i);
      if (converted_) {
        auto request = sized<moe_checkpoint_options>();
        request.platform = target_.platform.get();
        out.push_back(
            make<LayerHandle>(moe_checkpoint_layer, context, model_.checkpoint.get(), layers_[index].number, &request));
      } else {
        auto request = sized<moe_layer_options>();
        request.flags = MOE_LAYER_ANY_NAME;
        const std::size_t of = options_.shape.empty() ? index : 0;
        out.push_back(
            make<LayerHandle>(moe_layer_create, context, layers_[of].selection.get(), packed_[index].get(), &request));
      }
    }
    return out;
  }

 private:
  static int largest(const std::vector<int>& threads) {
    return std::find(threads.begin(), threads.end(), 0) != threads.end()
               ? 0
               : *std::max_element(threads.begin(), threads.end());
  }

  void keep_asked() {
    if (options_.layers.empty()) return;
    const std::vector<std::int64_t> numbers =
        number_list(options_.layers, moe_checkpoint_layer_count(model_.checkpoint.get()) - 1, "--layers");
    std::erase_if(layers_, [&](const ModelLayer& layer) {
      return !std::binary_search(numbers.begin(), numbers.end(), layer.number);
    });
    if (layers_.empty())
      throw Failure(kUsage, fmt::format("--layers {}: none of these has experts here", printable(options_.layers)));
  }

  // Layers of a shape are all alike: --layers is how many.
  std::int64_t layers_of_shape() const {
    if (options_.layers.empty()) return std::min(kLayersOfShape, all_);
    std::int64_t count = 0;
    const char* end = options_.layers.data() + options_.layers.size();
    const auto parsed = std::from_chars(options_.layers.data(), end, count);
    if (parsed.ec == std::errc{} && parsed.ptr == end && count > 0 && count <= all_) return count;
    throw Failure(kUsage, fmt::format("--layers '{}': with --shape it is how many layers are measured, 1 to {}",
                                      printable(options_.layers), all_));
  }

  void choose_layers() {
    const auto memory = static_cast<double>(memory_state().available) * kMemoryShare;
    const std::int64_t wanted = options_.shape.empty() ? static_cast<std::int64_t>(layers_.size()) : layers_of_shape();
    double bytes = 0;
    for (count_ = 0; count_ < wanted; ++count_) {
      const ModelLayer& layer = layers_[options_.shape.empty() ? static_cast<std::size_t>(count_) : 0];
      const double size = converted_ ? layer.facts.value("bytes", 0.0) : static_cast<double>(layer.packed_bytes);
      if (bytes + size > memory) break;
      bytes += size;
      packed_bytes_ += static_cast<std::uint64_t>(size);
    }
    if (count_ == 0)
      throw Failure(kNo, fmt::format("one layer does not fit into the {} that are free", bytes_text(memory)));
  }

  void pack() {
    WeightsHandle made_up;
    if (!options_.shape.empty())
      made_up = made_up_weights(first().config.get(), shape_named(options_.shape), format_named(format_of(options_)));
    for (std::int64_t i = 0; i < count_; ++i) {
      Bar bar(session_, fmt::format("convert layer {}/{}", i + 1, count_));
      if (made_up) {
        auto request = sized<moe_convert_options>();
        request.control = bar.control();
        packed_.push_back(make<PackedHandle>(moe_convert_weights, model_.context.get(), first().selection.get(),
                                             made_up.get(), &request));
      } else {
        auto request = sized<moe_checkpoint_options>();
        request.control = bar.control();
        const moe_selection* selection = layers_[static_cast<std::size_t>(i)].selection.get();
        packed_.push_back(make<PackedHandle>(moe_checkpoint_packed, model_.context.get(), model_.checkpoint.get(),
                                             selection, &request));
      }
    }
  }

  const BenchOptions& options_;
  const Session& session_;
  TargetMachine target_;
  OpenModel model_;
  std::vector<ModelLayer> layers_;
  std::vector<PackedHandle> packed_;
  std::string name_;
  std::int64_t all_ = 0;
  std::int64_t count_ = 0;
  std::uint64_t packed_bytes_ = 0;
  bool converted_ = false;
};

struct Statistics {
  double mean = 0, deviation = 0, spread = 0;
};
Statistics statistics_of(const std::vector<double>& values) {
  Statistics out;
  for (const double v : values) out.mean += v / static_cast<double>(values.size());
  double squares = 0;
  for (const double v : values) squares += (v - out.mean) * (v - out.mean);
  if (values.size() > 1) out.deviation = std::sqrt(squares / static_cast<double>(values.size() - 1));
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (out.mean > 0) out.spread = (*high - *low) / out.mean;
  return out;
}

// One row: `tokens` tokens go through all layers in turn, so that a layer's weights have left the caches when it comes
// again.
class Row {
 public:
  Row(const std::vector<LayerHandle>& layers, const std::vector<Json>& reports, std::int64_t tokens) : layers_(layers) {
    // The system gives more memory than there is, and kills who uses it.
    double needed = 0;
    for (const Json& report : reports) needed += memory_of_batch(sizes_of(report.at("config")), tokens);
    const auto free = static_cast<double>(memory_state().available);
    if (needed > free)
      throw Failure(kNo, fmt::format("{} tokens in {} take {}, {} is free", tokens,
                                     count_text(static_cast<std::int64_t>(layers.size()), "layer"), bytes_text(needed),
                                     bytes_text(free)));
    for (std::size_t i = 0; i < layers.size(); ++i) batches_.emplace_back(sizes_of(reports[i].at("config")), tokens, i);
    for (std::size_t i = 0; i < layers.size(); ++i) {  // the first pass is the warm-up; it also counts what is read
      Interrupt::check();
      batches_[i].run(layers[i].get());
      const auto& ids = batches_[i].ids();
      std::set<std::int32_t> distinct(ids.begin(), ids.end());
      // Zero experts have no weights. Of a rank that holds a part of the experts, the same part of these is read.
      const std::int64_t experts = sizes_of(reports[i].at("config")).with_weights;
      std::erase_if(distinct, [&](std::int32_t id) { return id < 0 || id >= experts; });
      bytes_ += static_cast<double>(distinct.size()) / static_cast<double>(experts) *
                reports[i]["memory"].value("packed_bytes", 0.0);
    }
  }

  double bytes() const { return bytes_; }  // that a pass reads, of weights

  // Seconds of one pass: the mean of as many as `seconds` have.
  double time(double seconds) {
    double spent = 0;
    int passes = 0;
    while (spent < seconds || passes == 0) {
      for (TokenBatch& batch : batches_) batch.choose_again();
      const double start = seconds_now();
      for (std::size_t i = 0; i < layers_.size(); ++i) {
        batches_[i].run(layers_[i].get());
        Interrupt::check();
      }
      spent += seconds_now() - start;
      ++passes;
    }
    return spent / passes;
  }

 private:
  const std::vector<LayerHandle>& layers_;
  std::vector<TokenBatch> batches_;
  double bytes_ = 0;
};

Json measure(const BenchOptions& options, const Session& session) {
  const Model model(options, session);
  const double scale = static_cast<double>(model.measured_layers()) / static_cast<double>(model.all_layers());
  Json rows = Json::array();
  std::set<std::string> warnings;
  std::string kernel;
  const Interrupt interrupt;
  for (const int asked : options.threads) {
    const ContextHandle context = make_context(asked);
    const int threads = threads_of(context.get());
    const std::vector<LayerHandle> layers = model.layers(context.get());
    std::vector<Json> reports;
    for (const LayerHandle& layer : layers) reports.push_back(document_of(moe_layer_to_json, layer.get()));
    std::set<std::string> kernels;
    for (const Json& report : reports) kernels.insert(report.value("kernel", ""));
    kernel = fmt::format("{}", fmt::join(kernels, "+"));
    if (const std::string busy = busy_warning(threads); !busy.empty() && rows.empty()) warnings.insert(busy);
    std::vector<std::pair<const char*, std::int64_t>> tests;
    for (const std::int64_t tokens : options.decode) tests.emplace_back("decode", tokens);
    for (const std::int64_t tokens : options.prefill) tests.emplace_back("prefill", tokens);
    for (const auto& [test, tokens] : tests) {
      if (session.err.terminal && !session.json)
        std::fputs(fmt::format("\rmeasure {} {}, {}\x1b[K", test, tokens, count_text(threads, "thread")).c_str(),
                   stderr);
      Row row(layers, reports, tokens);
      const double before = read_bandwidth(threads, kProbeSeconds).bytes_a_second;
      std::vector<double> rates;
      double seconds = 0;
      for (int i = 0; i < options.repetitions; ++i) {
        const double pass = row.time(options.seconds);
        rates.push_back(static_cast<double>(tokens) / pass * scale);
        seconds += pass / options.repetitions;
      }
      const double after = read_bandwidth(threads, kProbeSeconds).bytes_a_second;
      const Statistics s = statistics_of(rates);
      const double rate = row.bytes() / seconds;
      rows.push_back({{"kernel", kernel},
                      {"threads", threads},
                      {"test", test},
                      {"tokens", tokens},
                      {"tokens_per_second", s.mean},
                      {"deviation", s.deviation},
                      {"spread", s.spread},
                      {"repetitions", rates},
                      {"bytes_per_second", rate},
                      {"probe_before", before},
                      {"probe_after", after},
                      {"share_of_probe", rate / std::max(before, after)}});
      if (s.spread > kSpread)
        warnings.insert(
            fmt::format("{} {} with {}: repetitions differ by {:.0f} %, the machine was busy or slowed down", test,
                        tokens, count_text(threads, "thread"), 100 * s.spread));
      if (std::fabs(before - after) > 0.25 * std::max(before, after))
        warnings.insert(fmt::format("{} {} with {}: the probe gave {} before and {} after, so the share says little",
                                    test, tokens, count_text(threads, "thread"), rate_text(before), rate_text(after)));
    }
  }
  if (session.err.terminal && !session.json) std::fputs("\r\x1b[K", stderr);
  if (model.measured_bytes() < 4 * static_cast<double>(last_level_cache_bytes()))
    warnings.insert(fmt::format("{} of weights may stay in caches of {}: a whole model will be slower",
                                bytes_text(model.measured_bytes()),
                                bytes_text(static_cast<double>(last_level_cache_bytes()))));
  Json out = {{"command", "bench"}};
  out["model"] = {{"name", model.name()},
                  {"weights", model.weights()},
                  {"layers", model.all_layers()},
                  {"layers_measured", model.measured_layers()},
                  {"packed_bytes", model.measured_bytes()},
                  {"kernel", kernel}};
  out["processor"] = printable(processor_name());
  out["peak_memory_bytes"] = peak_memory_bytes();
  out["rows"] = std::move(rows);
  out["warnings"] = warnings;
  return out;
}

void show(const Json& found, const BenchOptions& options, const Session& session) {
  const Screen& screen = session.out;
  const Json& model = found["model"];
  const auto all = model.value("layers", std::int64_t{0});
  const auto measured = model.value("layers_measured", std::int64_t{0});
  const std::string name = fmt::format("{} {}L {}", model.value("name", ""), all, model.value("weights", ""));
  const std::string size =
      bytes_text(model.value("packed_bytes", 0.0) * static_cast<double>(all) / static_cast<double>(measured));
  Table table({{"model", false, false},
               {"size", true, false},
               {"kernel", false, false},
               {"threads", true, false},
               {"test", false, false},
               {"tokens/s", true, false},
               {"GB/s", true, false},
               {"of probe", true, false}});
  for (const Json& row : found["rows"]) {
    const bool wide = row.value("spread", 0.0) > kSpread;
    table.row({name, size, row.value("kernel", ""), fmt::format("{}", row.value("threads", 0)),
               fmt::format("{} {}", row.value("test", ""), row.value("tokens", 0)),
               fmt::format("{}{}{}{}", wide ? "! " : "", number_text(row.value("tokens_per_second", 0.0)),
                           screen.plus_minus(), number_text(row.value("deviation", 0.0))),
               number_text(1e-9 * row.value("bytes_per_second", 0.0)),
               fmt::format("{:.2f}", row.value("share_of_probe", 0.0))});
  }
  const std::string markdown = table.markdown();
  const bool narrow =
      screen.width > 0 && columns_of(markdown.substr(0, markdown.find('\n'))) > static_cast<std::size_t>(screen.width);
  session.text(narrow ? table.text(screen) : markdown);
  if (measured == all) {
    session.line("all {} with experts in turn; attention and the rest of the model come on top",
                 count_text(all, "layer"));
  } else {
    session.line(
        "{} of {} layers were run in turn, and tokens/s are for all {}; attention and the rest of the model come on "
        "top",
        measured, all, all);
  }
  std::fflush(stdout);
  for (const Json& warning : found["warnings"]) session.warn(warning.get<std::string>());
  if (!options.plot.empty()) session.line("wrote {}", shell_word(options.plot));
  const std::string what = options.shape.empty() ? shell_word(options.directory) : "--shape " + options.shape;
  session.next(options.plot.empty() ? fmt::format("moe bench {} --plot bench.svg", what)
                                    : fmt::format("moe bench {} --json for programs", what));
}

}  // namespace

void declare_bench(CLI::App& command, Session& session) {
  const auto options = std::make_shared<BenchOptions>();
  std::vector<std::string> names;
  for (const ModelShape& shape : shapes()) names.emplace_back(shape.name);
  CLI::Option* directory = command.add_option("DIR", options->directory, "The model's directory")->type_name("");
  CLI::Option* shape =
      command.add_option("--shape", options->shape, fmt::format("Instead of a directory: {}", fmt::join(names, ", ")))
          ->type_name("NAME")
          ->excludes(directory);
  command
      .add_option(
          "--format", options->format,
          fmt::format("Weights of --shape, by default those it is known in: {}", fmt::join(format_names(), ", ")))
      ->type_name("F")
      ->needs(shape);
  command.add_option("-t,--threads", options->threads, "Numbers of threads; 0: all cores")
      ->delimiter(',')
      ->check(CLI::Range(0, 1024))
      ->type_name("LIST");
  command.add_option("-p,--prefill", options->prefill, "Tokens of a prompt that go through a layer at once")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("LIST");
  command.add_option("-n,--decode", options->decode, "Tokens of a decode step: one for each sequence")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("LIST");
  command.add_option("-r,--repetitions", options->repetitions, "Repetitions of a row")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  command.add_option("--seconds", options->seconds, "The least time of a repetition")
      ->check(seconds_up_to(60))
      ->type_name("S");
  command.add_option("--layers", options->layers, "Only these layers, such as 0-3; with --shape how many")
      ->type_name("LIST");
  command.add_option("--plot", options->plot, "Also draw the rows (SVG, needs gnuplot)")->type_name("FILE");
  add_target(command, options->target);
  command.callback([options, &session] {
    if (options->directory.empty() == options->shape.empty())
      throw Failure(kUsage, "bench needs a model's directory, or --shape NAME; see moe bench --help");
    std::optional<Picture> picture;
    if (!options->plot.empty()) picture.emplace(options->plot);
    Json found = measure(*options, session);
    try {
      if (picture) picture->draw(found);
    } catch (const Failure& failure) {  // what was measured is shown all the same
      found["warnings"].push_back(failure.what());
      options->plot.clear();
      session.exit_code = failure.exit_code();
    }
    session.document(found);
    show(printable_document(found), *options, session);
  });
}

}  // namespace moe_tool
