// Quantization objects of tools whose tensors are not read: whose they are and what helps.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "config/quantization/foreign.h"

namespace moe::config {
namespace {

// Objects of tools whose tensors are not read: by the word in quant_method, whose they are and what helps.
struct OtherTool {
  std::string_view method, whose, cure = "the model that it was made from is";
};
constexpr std::string_view kDequantize = "what transformers' dequantize and save_pretrained make of them is";
constexpr std::array kOtherTools = {
    OtherTool{"hqq", "HQQ"},
    OtherTool{"mlx", "MLX", "what mlx_lm.convert --dequantize makes of them is"},
    OtherTool{"quanto", "Quanto"},
    OtherTool{"eetq", "EETQ"},
    OtherTool{"fbgemm_fp8", "FBGEMM"},
    OtherTool{"higgs", "HIGGS", kDequantize},
    OtherTool{"aqlm", "AQLM"},
    OtherTool{"vptq", "VPTQ"},
    OtherTool{"spqr", "SpQR"},
    OtherTool{"bitnet", "BitNet"},
    OtherTool{"fp_quant", "FP-Quant"},
    OtherTool{"sinq", "SINQ"},
    OtherTool{"exl2", "ExLlamaV2"},
    OtherTool{"exl3", "ExLlamaV3"},
    OtherTool{"fouroversix", "Four Over Six"},
    OtherTool{"metal", "transformers' Metal kernels"},
    OtherTool{"gguf", "GGUF", kDequantize},
};

}  // namespace

Error unread(const std::string& pointer, const std::string& what) {
  return fail(Code::unsupported, pointer, cat(pointer, ": ", what));
}

std::optional<Error> of_other_tool(std::string_view method, const std::string& pointer) {
  const auto tool =
      std::find_if(kOtherTools.begin(), kOtherTools.end(), [&](const OtherTool& row) { return row.method == method; });
  if (tool == kOtherTools.end()) return std::nullopt;
  return unread(pointer, cat("an object of ", tool->whose, " (", tool->method,
                             "), whose quantized tensors are not read: ", tool->cure,
                             R"(; experts that it left plain are read with overrides {"quantization": null})"));
}

Error lacks_member(const Foreign& h, std::string_view tool, std::string_view member) {
  return unread(h.at("quant_method"),
                cat("an object of ", tool, " without ", member,
                    R"(: what its weights are is not said; experts that it left plain are read with overrides )"
                    R"({"quantization": null})"));
}

Error no_method(const Foreign& h) {
  const std::string pointer = h.at("quant_method");
  const auto has = [&](std::string_view key) { return h.has(key); };
  if (has("desc_act") || has("sym")) return fields::missing(pointer, "\"gptq\", as the other members are GPTQ's");
  if (has("w_bit") || has("q_group_size") || has("zero_point"))
    return fields::missing(pointer, "\"awq\", as the other members are AWQ's");
  if (has("bits") && has("group_size")) return *of_other_tool("mlx", pointer);
  return fields::missing(pointer, "a string");
}

}  // namespace moe::config
