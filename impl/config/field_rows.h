// What the rows of fields.inc are to the reader and the writer of a section: one value of Field each.
//
//   constexpr Field<Owner> kFields[] = { rows };      open_fields -> read_fields -> (checks) -> write_fields
//
// Owner is what the functions of a section fill: the draft of a configuration, or a smaller thing of their own.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/fields.h"

namespace moe::config::fields {

template <class Owner>
struct Field {
  std::string_view name, aliases;  // separated by blanks
  int turn;
  Check (*read)(const Members&, Owner&);       // nullptr: another row's function reads it
  void (*write)(const Owner&, json::Object&);  // nullptr: not in the resolved document
};

enum class Shown : std::uint8_t { always, set, never };

template <class T>
Check put(Result<T> read, T& out) {
  MOE_TRY(out, std::move(read));
  return ok();
}

template <class T, class Fallback>
void show(json::Object& out, std::string_view name, const T& value, Shown shown, const Fallback& fallback) {
  if (shown == Shown::never || (shown == Shown::set && value == fallback)) return;
  if constexpr (std::is_same_v<Fallback, std::nullopt_t>) {
    out.emplace_back(name, value ? json::Value(*value) : json::Value());
  } else {
    out.emplace_back(name, json::Value(value));
  }
}

// Calls visit for each word of a text that is separated by blanks.
template <class Visit>
constexpr void each_word(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = text.find(' ') == std::string_view::npos ? text.size() : text.find(' ');
    visit(text.substr(0, end));
    text.remove_prefix(end == text.size() ? end : end + 1);
  }
}

// Every name that members may have, in the order of the rows.
template <class Owner, std::size_t n>
std::vector<std::string_view> names_of(const Field<Owner> (&rows)[n]) {
  std::vector<std::string_view> names;
  for (const Field<Owner>& row : rows) {
    names.push_back(row.name);
    each_word(row.aliases, [&](std::string_view alias) { names.push_back(alias); });
  }
  return names;
}

template <class Owner, std::size_t n>
Result<Members> open_fields(const json::Value* object, std::string pointer, const Field<Owner> (&rows)[n]) {
  return Members::open(object, std::move(pointer), names_of(rows));
}

// One turn after another, each in the order of the rows.
template <class Owner, std::size_t n>
Check read_fields(const Members& members, const Field<Owner> (&rows)[n], Owner& owner) {
  int last = 0;
  for (int turn = 0; turn <= last; ++turn) {
    for (const Field<Owner>& row : rows) {
      if (row.turn > last) last = row.turn;
      if (row.turn == turn && row.read != nullptr) MOE_CHECK(row.read(members, owner));
    }
  }
  return ok();
}

template <class Owner, std::size_t n>
json::Object write_fields(const Field<Owner> (&rows)[n], const Owner& owner) {
  json::Object out;
  for (const Field<Owner>& row : rows)
    if (row.write != nullptr) row.write(owner, out);
  return out;
}

}  // namespace moe::config::fields
