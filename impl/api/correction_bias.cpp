// Reading a correction bias. See correction_bias.h.
#include "api/correction_bias.h"

#include <cmath>
#include <string>

#include "base/index.h"
#include "base/number_at.h"
#include "base/text.h"

namespace moe::api {

TensorParam bias_param(const moe_tensor* given) {
  return {.name = "correction_bias", .given = given, .dtypes = kFloats, .ndim = 1, .letters = "[G]"};
}

void expect_bias(TensorParam& param, const Config& config) {
  const std::int64_t columns = config.router_columns();
  param.shape = {columns, 0};
  if (param.given == nullptr || param.raw.ndim != 2) return;
  param.ndim = 2;
  param.shape = {1, columns};
  param.letters = "[1, G]";
}

Result<std::vector<float>> bias_values(const TensorParam& param) {
  std::vector<float> values;
  if (param.given == nullptr) return values;
  const TensorView& v = param.view;
  const std::size_t size = usize(dtype_bits(v.dtype) / 8);
  values.resize(usize(v.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_float(v.dtype, v.data + i * size);
    if (std::isfinite(values[i])) continue;
    const std::string place = cat("correction_bias[", i, "]");
    return fail(Code::invalid_argument, place, place + ": must be a finite number");
  }
  return values;
}

}  // namespace moe::api
