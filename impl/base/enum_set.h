// A set of enum values as a constant: cells of tables ("these activations", "any dtype").
// Values are 0..127; all() also holds numbers that have no name yet, so "any" stays any.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace moe {

template <class Enum>
class EnumSet {
 public:
  constexpr EnumSet() = default;
  constexpr EnumSet(std::initializer_list<Enum> values) {
    for (Enum v : values) word_[index(v) / 64] |= bit(v);
  }
  static constexpr EnumSet all() {
    EnumSet s;
    s.word_[0] = s.word_[1] = ~std::uint64_t{0};
    return s;
  }

  constexpr bool has(Enum v) const { return index(v) < 128 && (word_[index(v) / 64] & bit(v)) != 0; }
  constexpr EnumSet with(std::initializer_list<Enum> values) const {
    EnumSet s = *this;
    const EnumSet more(values);
    s.word_[0] |= more.word_[0];
    s.word_[1] |= more.word_[1];
    return s;
  }
  constexpr EnumSet without(std::initializer_list<Enum> values) const {
    EnumSet s = *this;
    const EnumSet less(values);
    s.word_[0] &= ~less.word_[0];
    s.word_[1] &= ~less.word_[1];
    return s;
  }
  friend constexpr EnumSet operator&(const EnumSet& a, const EnumSet& b) {
    EnumSet s;
    for (int i = 0; i < 2; ++i) s.word_[i] = a.word_[i] & b.word_[i];
    return s;
  }
  friend constexpr EnumSet operator|(const EnumSet& a, const EnumSet& b) {
    EnumSet s;
    for (int i = 0; i < 2; ++i) s.word_[i] = a.word_[i] | b.word_[i];
    return s;
  }
  friend constexpr bool operator==(const EnumSet&, const EnumSet&) = default;

 private:
  static constexpr std::uint64_t index(Enum v) { return static_cast<std::uint64_t>(v); }
  static constexpr std::uint64_t bit(Enum v) { return std::uint64_t{1} << (index(v) % 64); }
  std::uint64_t word_[2] = {0, 0};
};

}  // namespace moe
