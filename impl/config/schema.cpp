// The JSON Schema (draft 2020-12) of the document that moe_config_create takes, put together by the compiler from the
// rows of fields.inc. tests/config/schema_agreement.py holds it against what the reader accepts.
#include <array>
#include <string_view>
#include <utility>

#include "config/fields.h"
#include "config/sections.h"
#include "config/settings.h"
#include "scheme/activation.h"

namespace moe::config {
namespace {

// JSON text that grows; a member or element after another gets its comma.
struct SchemaText {
  std::array<char, 32768> data{};
  std::size_t size = 0;
  fields::Words listed;    // words to name at the end of the description
  std::size_t opened = 0;  // where the property begins
  bool left_out = false;   // the property is none of this object

  constexpr void put(std::string_view s) {
    for (const char c : s) data[size++] = c;
  }
  constexpr void comma() {
    const char last = size == 0 ? '{' : data[size - 1];
    if (last != '{' && last != '[') put(",");
  }
  constexpr void quoted(std::string_view s) {
    comma();
    put("\"");
    put(s);
    put("\"");
  }
  constexpr void key(std::string_view name) {
    quoted(name);
    put(":");
  }
  // key: value, and nothing for a value that is not said
  constexpr void json_member(std::string_view name, std::string_view value) {
    if (value.empty()) return;
    key(name);
    put(value);
  }
  constexpr void text_member(std::string_view name, std::string_view value) {
    key(name);
    put("\"");
    put(value);
    put("\"");
  }
  constexpr void list(std::string_view name, fields::Words words) {
    key(name);
    put("[");
    for (const std::string_view word : words) quoted(word);
    put("]");
  }

  // --- a property: open, one of the descriptions of a value, close -------------------------------------
  constexpr void open(std::string_view name) {
    opened = size;
    comma();
    put("\n  \"");
    put(name);
    put("\":{");
  }
  constexpr void close(std::string_view meaning) {
    if (left_out) size = opened;
    if (std::exchange(left_out, false)) return;
    key("description");
    put("\"");
    put(meaning);
    for (std::size_t i = 0; i < listed.size(); ++i) {
      put(i == 0 ? ": " : ", ");
      put(listed[i]);
    }
    put("\"}");
    listed = {};
  }
  constexpr void typed(std::string_view type) { text_member("type", type); }
  constexpr void json(std::string_view members) {
    comma();
    put(members);
  }
  constexpr void ref(std::string_view name) {
    key("$ref");
    put("\"#/$defs/");
    put(name);
    put("\"");
  }
  constexpr void number(std::string_view type, bool above, std::string_view low, std::string_view high,
                        std::string_view fallback) {
    typed(type);
    json_member(above ? "exclusiveMinimum" : "minimum", low);
    json_member("maximum", high);
    json_member("default", fallback);
  }
  constexpr void words(fields::Words words, std::string_view fallback = "") {
    list("enum", words);
    if (!fallback.empty()) text_member("default", fallback);
  }
  // Words without regard to case; any character of `gap` stands for an underscore.
  constexpr void pattern(fields::Words words, std::string_view gap, std::string_view fallback = "") {
    typed("string");
    key("pattern");
    put("\"^(?:");
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (i != 0) put("|");
      for (const char c : words[i]) {
        const bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z';
        const char both[] = {'[', lower ? c : static_cast<char>(c - 'A' + 'a'),
                             lower ? static_cast<char>(c - 'a' + 'A') : c, ']'};
        put(lower || upper ? std::string_view(both, 4) : c == '_' ? gap : std::string_view(&c, 1));
      }
    }
    put(")$\"");
    if (!fallback.empty()) text_member("default", fallback);
    listed = words;
  }
  constexpr void activation_names() {
    key("enum");
    put("[");
    for (const std::string_view name : kActivationNames) {
      quoted(name);
      if (name == kAliasedActivation) quoted(kActivationAlias);
    }
    put("]");
    text_member("default", kActivationNames[0]);
  }
  constexpr void hf_quantization() {
    typed("object");
    json(R"("required":["quant_method"],"properties":{"quant_method":{)");
    words(kHfMethodNames);
    put("}}");
  }
  constexpr void vllm_env() {
    typed("object");
    json(R"("propertyNames":{)");
    words(kVllmEnvNames);
    put(R"(},"additionalProperties":{"type":"string","maxLength":64},"default":{})");
  }
  constexpr void features() {
    json(R"("type":"array","uniqueItems":true,"items":{)");
    words(kFeatureNames);
    put("}");
  }
  constexpr void code_bits() {
    key("enum");
    put("[");
    for (int bits = 1; bits <= 8; ++bits) {
      if (!has_bits(NumType::integer, bits) && !has_bits(NumType::floating, bits)) continue;
      comma();
      data[size++] = static_cast<char>('0' + bits);
    }
    put("]");
    json_member("default", "8");
  }
  constexpr void strategies(Operand operand) {
    constexpr std::array<std::string_view, 5> kWeights = {"tensor", "channel", "group", "block", "tensor_group"};
    constexpr std::array<std::string_view, 4> kActivations = {"tensor", "group", "token", "tensor_group"};
    words(operand == Operand::weights ? fields::Words(kWeights) : fields::Words(kActivations));
  }
  constexpr void dynamics(Operand operand) {
    json(operand == Operand::weights ? R"("const":false,"default":false)"
                                     : R"("enum":[false,true,"local"],"default":false)");
  }
  constexpr void scale_formats(Operand operand) {
    words(operand == Operand::weights ? fields::Words(kScaleFormatNames).first(1) : fields::Words(kScaleFormatNames),
          "float32");
  }
  constexpr void actorders(Operand operand) {
    if (operand == Operand::activations) {  // the reader takes an empty one; writers should leave it out
      left_out = true;
      return;
    }
    json(R"("enum":[null,false,true,"group","weight","dynamic","static"],"default":null)");
  }
  constexpr void activation_params();
  constexpr void side_tensor() {
    json(R"("anyOf":[{"type":"string","minLength":1,"maxLength":128},)"
         R"({"type":"array","items":{"type":"number"},"minItems":1,"maxItems":1048576}])");
  }

  // --- an object with the rows of a section -----------------------------------------------------------
  constexpr void object() {
    typed("object");
    json(R"("additionalProperties":false,"properties":{)");
  }
};

#define MOE_JSON(...) json(#__VA_ARGS__)

constexpr void layer_rows(SchemaText& t) {
#define MOE_FIELDS_LAYER
#include "config/field_schema.inc"
}
constexpr void SchemaText::activation_params() {
  object();
  SchemaText& t = *this;
#define MOE_FIELDS_ACTIVATION_PARAMS
#include "config/field_schema.inc"
  put("}");
}
constexpr void parallel_rows(SchemaText& t) {
#define MOE_FIELDS_PARALLEL
#include "config/field_schema.inc"
}
constexpr void routing_rows(SchemaText& t) {
#define MOE_FIELDS_ROUTING
#include "config/field_schema.inc"
}
constexpr void quantization_rows(SchemaText& t) {
#define MOE_FIELDS_QUANTIZATION
#include "config/field_schema.inc"
}
constexpr void quant_args_rows(SchemaText& t, Operand operand) {
#define MOE_FIELDS_QUANT_ARGS
#include "config/field_schema.inc"
}
constexpr void platform_rows(SchemaText& t) {
#define MOE_FIELDS_PLATFORM
#include "config/field_schema.inc"
}

// Names that one document must have, and those that it must not have together.
constexpr void setting_rules(SchemaText& t) {
  for (const Setting& s : kSettings) {
    t.comma();
    t.put("\n  {");
    if (s.required && s.count == 1) t.list("required", s.names());
    if (s.required && s.count > 1) {
      t.key("oneOf");
      t.put("[");
      for (const std::string_view& name : s.names()) {
        t.comma();
        t.put("{");
        t.list("required", {&name, 1});
        t.put("}");
      }
      t.put("]");
    }
    if (!s.required) {
      t.put(R"("not":{)");
      t.list("required", s.names());
      t.put("}");
    }
    t.put("}");
  }
}

constexpr SchemaText whole() {
  SchemaText t;
  t.put(R"({"$schema":"https://json-schema.org/draft/2020-12/schema",
 "$id":"https://libmoe.invalid/schema/moe-config-1.json",
 "title":"libmoe layer configuration, version 1",
 "description":"The document given to moe_config_create. Cross-field rules that JSON Schema cannot express are checked by moe_config_create as well.",
)");
  t.put(R"( "type":"object","additionalProperties":false,"properties":{)");
  layer_rows(t);
  t.put("},\n \"allOf\":[");
  setting_rules(t);
  t.put("],\n \"$defs\":{");
  const auto section = [&](std::string_view name, auto rows, std::string_view rules = "") {
    t.comma();
    t.put("\n \"");
    t.put(name);
    t.put("\":{");
    t.object();
    rows(t);
    t.put("}");
    t.put(rules);
    t.put("}");
  };
  section("weight_args", [](SchemaText& text) { quant_args_rows(text, Operand::weights); });
  section("activation_args", [](SchemaText& text) { quant_args_rows(text, Operand::activations); });
  section("quantization", quantization_rows,
          R"(,
  "oneOf":[{"required":["scheme"],"not":{"anyOf":[{"required":["weights"]},{"required":["input_activations"]}]}},
           {"required":["weights"],"not":{"anyOf":[{"required":["scheme"]},{"required":["group_size"]}]}}])");
  section("parallel", parallel_rows);
  section("routing", routing_rows);
  section("platform", platform_rows);
  t.put(R"(},
 "examples":[
  {"num_experts":8,"top_k":2,"hidden_dim":4096,"intermediate_size":14336,"quantization":{"scheme":"W4A16"}},
  {"num_experts":256,"num_experts_per_tok":8,"hidden_size":7168,"moe_intermediate_size":2048,
   "routing":{"scoring_func":"sigmoid","num_expert_group":8,"topk_group":4,"routed_scaling_factor":2.5,"e_score_correction_bias":true},
   "quantization":{"scheme":"FP8_BLOCK"}}]}
)");
  return t;
}

}  // namespace

const char* config_schema_text() {
  static constexpr SchemaText kText = whole();
  return kText.data.data();
}

}  // namespace moe::config
