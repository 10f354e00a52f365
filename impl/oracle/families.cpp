// The oracles and how each treats a backend that is asked for by name. See backend.h.
#include "base/text.h"
#include "oracle/backend.h"

#include <algorithm>

namespace moe {
namespace {

// An oracle without a table of rows is not built.
constexpr std::array kFamilies = {
    Family{.id = OracleId::w4a8_int8,
           .table = w4a8_int8_rows,
           .device_before_name = true,
           .named = OnMissingDevice::refuse},
    Family{.id = OracleId::int_wna16,
           .table = int_wna16_rows,
           .device_before_name = false,
           .named = OnMissingDevice::warn_and_auto},
    Family{.id = OracleId::fp8},
    Family{.id = OracleId::int8, .table = int8_rows},
    Family{.id = OracleId::nvfp4},
    Family{.id = OracleId::mxfp4},
    Family{.id = OracleId::mxfp4_deepseek_v4},
    Family{.id = OracleId::mxfp8},
    Family{.id = OracleId::unquantized, .table = unquantized_rows, .steer = steer_unquantized},
    Family{.id = OracleId::no_oracle},
};

}  // namespace

const Family& family_of(OracleId id) {
  for (const Family& f : kFamilies)
    if (f.id == id) return f;
  return kFamilies.back();
}

std::vector<std::string_view> runnable_backends() {
  std::vector<std::string_view> names;
  for (const Family& f : kFamilies)
    for (const BackendRow& row : f.rows()) {
      const bool runs = !(row.accepts(Policy::libmoe).layouts == EnumSet<LayoutKind>());
      if (runs && std::find(names.begin(), names.end(), row.backend) == names.end()) names.push_back(row.backend);
    }
  return names;
}

std::string built_oracles() {
  std::string names;
  for (const Family& f : kFamilies)
    if (f.table != nullptr) names += cat(names.empty() ? "" : ", ", oracle_name(f.id));
  return names;
}

}  // namespace moe
