// Settings that have several names in a document: who reads one, merges a patch or overrides a member asks here.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "config/field_rows.h"

namespace moe::config {

struct Setting {
  std::array<std::string_view, 4> list;  // its first name, aliases of that, then names with a meaning of their own
  std::size_t count = 0, aliases = 0;
  bool required = false;

  constexpr std::string_view first() const { return list[0]; }
  constexpr std::span<const std::string_view> names() const { return {list.data(), count}; }
  constexpr std::span<const std::string_view> alias_names() const { return names().subspan(1, aliases); }
  constexpr bool has(std::string_view name) const {
    for (const std::string_view n : names())
      if (n == name) return true;
    return false;
  }
  constexpr void add(std::string_view name) { list[count++] = name; }
};

struct Settings {
  std::array<Setting, 8> list;
  std::size_t count = 0;

  constexpr const Setting* begin() const { return list.data(); }
  constexpr const Setting* end() const { return list.data() + count; }
  // nullptr: a member with one name.
  constexpr const Setting* find(std::string_view name) const {
    for (const Setting& s : *this)
      if (s.has(name)) return &s;
    return nullptr;
  }
  constexpr void add(std::string_view first, std::string_view aliases) {
    Setting& s = list[count++];
    s.required = true;
    s.add(first);
    fields::each_word(aliases, [&](std::string_view alias) { s.add(alias); });
    s.aliases = s.count - 1;
  }
  constexpr void one_of_two(std::string_view first, std::string_view second) {
    for (std::size_t i = 0; i < count; ++i)
      if (list[i].first() == first) return list[i].add(second);
    list[count].add(first);
    list[count++].add(second);
  }
};

inline constexpr Settings kSettings = [] {
  Settings s;
#define MOE_FIELDS_LAYER
#define MOE_FIELD_SIZE(member, turn, shown, aliases, low, high, then, meaning) s.add(#member, aliases);
#define MOE_FIELD_ONE_OF_TWO(first, second) s.one_of_two(#first, #second);
#include "config/fields.inc"
  return s;
}();

}  // namespace moe::config
