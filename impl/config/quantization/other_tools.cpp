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
    OtherTool{"auto-round", "AutoRound", ""},
    OtherTool{"auto_round", "AutoRound", ""},
    OtherTool{"intel/auto-round", "AutoRound", ""},
    OtherTool{"bitsandbytes", "bitsandbytes", kDequantize},
    OtherTool{"torchao", "torchao"},
    OtherTool{"hqq", "HQQ"},
    OtherTool{"quark", "AMD Quark", "what it exports in its mode fp8 is"},
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

// AutoRound's containers are those of other tools.
std::string auto_round_cure(const Foreign& h) {
  struct Packing {
    std::string_view ends, whose, object;
  };
  constexpr std::array kPackings = {
      Packing{":auto_gptq", "GPTQ",
              R"({"quant_method": "gptq", "bits": .., "group_size": .., "desc_act": false, "sym": ..})"},
      Packing{":auto_awq", "AWQ",
              R"({"quant_method": "awq", "bits": 4, "group_size": .., "zero_point": true, "version": "gemm"})"},
      Packing{":llm_compressor", "compressed-tensors",
              R"({"quant_method": "compressed-tensors", "config_groups": ..})"},
      Packing{":fp8", "FP8 in blocks",
              R"({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": ..})"},
  };
  const json::Value* packing = h.get("packing_format");
  if (packing != nullptr && packing->string() != nullptr)
    for (const Packing& p : kPackings)
      if (packing->string()->ends_with(p.ends))
        return cat("packing_format ", fields::brief(*packing), " is that of ", p.whose,
                   ", which the option quantization_config reads with ", p.object);
  return "of its packing_format those of GPTQ (auto_gptq), AWQ (auto_awq) and compressed-tensors (llm_compressor) are, "
         "with the object of these as option quantization_config";
}

}  // namespace

Error unread(const std::string& pointer, const std::string& what) {
  return fail(Code::unsupported, pointer, cat(pointer, ": ", what));
}

std::optional<Error> of_other_tool(const Foreign& h, std::string_view method, const std::string& pointer) {
  const auto tool =
      std::find_if(kOtherTools.begin(), kOtherTools.end(), [&](const OtherTool& row) { return row.method == method; });
  if (tool == kOtherTools.end()) return std::nullopt;
  return unread(pointer,
                cat("an object of ", tool->whose, " (", tool->method, "), whose quantized tensors are not read: ",
                    tool->cure.empty() ? auto_round_cure(h) : std::string(tool->cure),
                    R"(; experts that it left plain are read with overrides {"quantization": null})"));
}

Error no_method(const Foreign& h) {
  const std::string pointer = h.at("quant_method");
  const auto has = [&](std::string_view key) { return h.has(key); };
  if (has("desc_act") || has("sym")) return fields::missing(pointer, "\"gptq\", as the other members are GPTQ's");
  if (has("w_bit") || has("q_group_size") || has("zero_point"))
    return fields::missing(pointer, "\"awq\", as the other members are AWQ's");
  if (has("bits") && has("group_size")) return *of_other_tool(h, "mlx", pointer);
  return fields::missing(pointer, "a string");
}

}  // namespace moe::config
