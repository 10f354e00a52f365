// The search for a layer's experts in a checkpoint. See place_of_experts.h.
#include "weights/place_of_experts.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "weights/found_instead.h"

namespace moe::weights {

Result<const ExpertPlace*> place_of_experts(const LayerFacts& facts, std::span<const ExpertPlace> places,
                                            std::span<const io::CheckpointEntry> entries) {
  const ExpertPlace* found = nullptr;
  const io::CheckpointEntry* first = nullptr;
  // Of the prefixes that are looked at only those that some name begins with.
  std::set<std::string_view> used;
  for (const io::CheckpointEntry& e : entries)
    for (std::size_t dot = e.entry->name.find('.'); dot != std::string::npos; dot = e.entry->name.find('.', dot + 1))
      used.insert(std::string_view(e.entry->name).substr(0, dot));
  const auto knows = [&](const ExpertPlace& place, const io::CheckpointEntry& e) {
    return parse_tensor_name(e.entry->name, module_at(facts, place)).match != NameMatch::foreign;
  };
  const std::string& own = places.front().prefix;
  for (const ExpertPlace& place : places) {
    if (!place.prefix.empty() && !used.contains(place.prefix)) continue;
    // What was named and is there is what was meant.
    if (found != nullptr && place.prefix != own && facts.config().named_by_class.empty()) break;
    // A tensor that the first names have is theirs, also where others have it as another projection.
    const auto ours = std::find_if(entries.begin(), entries.end(), [&](const io::CheckpointEntry& e) {
      return knows(place, e) && !(found != nullptr && knows(*found, e));
    });
    if (ours == entries.end()) continue;
    if (found != nullptr)
      return fail(Code::unexpected_weight, ours->entry->name,
                  cat(ours->entry->name, ": the experts of this layer are also at ", first->entry->name, ", in ",
                      ours->file->path(), "; the option ",
                      place.prefix == found->prefix ? "projection_names (in overrides)" : "module",
                      " says which are meant, ignored_tensors which are not"));
    found = &place;
    first = &*ours;
  }
  if (found == nullptr) MOE_CHECK(check_no_foreign(facts, places, entries));
  return found;
}

}  // namespace moe::weights
