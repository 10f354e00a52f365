// The quantization configs that vLLM's float oracles make for the backend they took (float_oracles.md 6): cells
// `quant_config` of the families. No backend, no config.
#pragma once

#include <string_view>

#include "base/result.h"
#include "config/config.h"
#include "vllm/quant_config.h"

namespace moe::oracle {

Result<QuantConfig> fp8_config(const Config& c, std::string_view backend);
Result<QuantConfig> mxfp8_config(const Config& c, std::string_view backend);
Result<QuantConfig> nvfp4_config(const Config& c, std::string_view backend);
Result<QuantConfig> mxfp4_config(const Config& c, std::string_view backend);
Result<QuantConfig> w4a8_fp8_config(const Config& c, std::string_view backend);

}  // namespace moe::oracle
