// The oracles that this build answers. See backend.h.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "oracle/backend.h"

namespace moe::oracle {
namespace {

constexpr std::array kFamilies = {
#define MOE_FAMILY(id_) &families_of::id_,
#define MOE_OWN_FAMILY(id_) &families_of::id_,
#include "oracle/families.inc"
};
constexpr Family kNone = {};

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

const Family& family_of(OracleId id) {
  for (const Family* f : kFamilies)
    if (f->id == id) return *f;
  return kNone;
}

const Family& family_of(const Query& q) {
  if (q.profile == Profile::may_2026) return family_of(q.oracle);
  if (q.profile == Profile::april_2026)
    return q.oracle == OracleId::int_wna16 ? families_of::int_wna16_april_2026 : family_of(q.oracle);
  for (const Family& f : families_november_2026())
    if (f.id == q.oracle) return f;
  return family_of(q.oracle);
}

const Family& family_named(std::string_view name) {
  for (const Family* f : kFamilies)
    if (oracle_name(f->id) == name) return *f;
  return kNone;
}

std::vector<std::string_view> runnable_backends() {
  std::vector<std::string_view> names;
  for (const Family* f : kFamilies)
    for (const BackendRow& row : f->rows) {
      const bool runs = !(row.accepts(Policy::libmoe).layouts == EnumSet<LayoutKind>());
      if (runs && std::find(names.begin(), names.end(), row.backend) == names.end()) names.push_back(row.backend);
    }
  return names;
}

std::string built_oracles() {
  std::string names;
  for (const Family* f : kFamilies) names += cat(names.empty() ? "" : ", ", oracle_name(f->id));
  return names;
}

}  // namespace moe::oracle
