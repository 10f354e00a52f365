// Which row a name stands for: of a class, of its base model or of another head on it, of a text model's model_type.
#pragma once

#include <string_view>

#include "hf/architecture.h"

namespace moe::hf {

// One of them is there, or none.
struct NamedClass {
  const Architecture* row = nullptr;
  const Unread* unread = nullptr;
};
// `name` itself, else the class that generates text of whose model it is the base (Qwen3MoeModel, Gemma4TextModel) or
// that it puts another head on (Qwen3MoeForSequenceClassification): the same experts.
NamedClass class_named(std::string_view name);
// Of a model_type that a part of any model may have; nullptr: it is not known.
const Architecture* class_of_model_type(std::string_view model_type);

// The row with the values of this model type, where the class is made for several.
const Architecture& row_of_type(const Architecture& row, std::string_view model_type);

}  // namespace moe::hf
