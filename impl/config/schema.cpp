// The JSON Schema (draft 2020-12) of the document that moe_config_create takes, as data. The checks of
// this room are written by hand; tests/config/schema_agreement.py holds the two against each other.
#include "config/config.h"

namespace moe {

const char* config_schema_text() {
  static constexpr char kText[] =
#include "config/schema.inc"
      ;
  return kText;
}

}  // namespace moe
