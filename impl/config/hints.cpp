// What helps against a refusal, in the words of the caller's own file. See config.h.
#include "base/text.h"
#include "config/config.h"

namespace moe::config {

std::string Config::member_text(std::string_view pointer) const {
  std::string text(pointer.substr(1));
  for (char& c : text)
    if (c == '/') c = '.';
  text += " of the config";
  std::string said;  // the last one counts
  for (const auto& [member, key] : file_keys)
    if (member == pointer) said = cat(" (", key, key[0] == '/' ? " of config.json)" : ")");
  return text + said;
}

std::string Config::cut_hint(std::int64_t lines) const {
  if (parallel.tp_size == 1) return "";
  const bool whole = intermediate_size % lines == 0;
  return cat("; tp_size ", parallel.tp_size, " cuts intermediate_size ", intermediate_size,
             " in parts, where ep_size (enable_expert_parallel) leaves the experts whole",
             whole ? std::string() : cat(", but ", intermediate_size, " is no multiple of ", lines, " either"));
}

}  // namespace moe::config
