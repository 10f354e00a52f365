// bitsandbytes' objects (checkpoints.md 6). 8-bit weights have a largest value for each row; 4-bit ones have a table of
// 16 numbers in the file, and no kernel here looks numbers up.
#include "base/text.h"
#include "config/quantization/tools.h"

namespace moe::config {

Resolved resolve_bitsandbytes(const Foreign& h, const LayerNames& layer) {
  MOE_TRY(const bool skipped, skips_experts(h, "llm_int8_skip_modules", layer));
  if (skipped) return unquantized();
  const auto says = [&](std::string_view key) -> Result<bool> {
    MOE_TRY(const auto said, h.boolean(key));
    return said.value_or(false);
  };
  MOE_TRY(const bool four, says("load_in_4bit"));
  MOE_TRY(const bool eight, says("load_in_8bit"));
  if (eight && !four)
    return resolved(integer_weights(8, -1, true), std::nullopt, Format::bitsandbytes_int8,
                    {"weight", "SCB", "weight_format"});
  MOE_TRY(const auto table, h.text("bnb_4bit_quant_type"));
  if (!four) return lacks_member(h, "bitsandbytes", "load_in_8bit and load_in_4bit");
  return unread(
      h.at("quant_method"),
      cat("4-bit weights of bitsandbytes (", table.value_or("nf4"),
          ") are not read; model.dequantize() and save_pretrained make a checkpoint that is, and 8-bit ones "
          R"((load_in_8bit) are; experts that it left plain are read with overrides {"quantization": null})"));
}

}  // namespace moe::config
