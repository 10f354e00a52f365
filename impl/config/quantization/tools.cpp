// What the readers of tools' objects share. See tools.h.
#include "config/quantization/tools.h"

#include <utility>

namespace moe::config {

Result<std::int64_t> check_group(std::int64_t group, const std::string& pointer) {
  if (group == 0) return fields::fault(pointer, "found 0, expected -1 (the whole column) or a positive group size");
  return group;
}

QuantArgs quant_args(int bits, NumType type, Strategy strategy) {
  QuantArgs a;
  a.num_bits = bits;
  a.type = type;
  a.strategy = strategy;
  return a;
}

QuantArgs integer_weights(int bits, std::int64_t group, bool symmetric) {
  QuantArgs w = quant_args(bits, NumType::integer, group == -1 ? Strategy::channel : Strategy::group);
  if (group != -1) w.group_size = group;
  w.symmetric = symmetric;
  return w;
}

Resolved unquantized() { return std::optional<HfQuantization>(); }

Resolved resolved(QuantArgs weights, std::optional<QuantArgs> activations, Format format,
                  std::vector<std::string> suffixes, std::optional<ZeroPoints> zero_points) {
  HfQuantization r;
  r.quantization.weights = weights;
  r.quantization.input_activations = activations;
  r.quantization.format = format;
  fill_storage(r.quantization, zero_points, std::nullopt);
  r.suffixes = std::move(suffixes);
  return std::optional(std::move(r));
}

Resolved resolved(std::string_view preset, std::vector<std::string> suffixes) {
  const Preset& p = *find_preset(preset);
  return resolved(*p.weights, p.input_activations, p.format, std::move(suffixes));
}

}  // namespace moe::config
