// Codes of small floats from bit streams of every width, their scales, and the way through a p16 panel and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/float_state.h"
#include "convert/source.h"
#include "layouts/p16/p16_numbers.h"
#include "layouts/p16/write_p16.h"
#include "layouts/rows.h"
#include "support/rooms.h"
#include "support/vectors.h"

namespace moe::test::read_small_floats_test {
namespace {

constexpr std::int64_t kGroup = 32;

// A matrix of codes as a checkpoint has it: streams of bits, a byte of scale per 32 columns.
struct Stored {
  Element element;
  std::int64_t n, k;
  std::vector<unsigned> codes;
  std::vector<std::uint8_t> stream, scales;

  std::int64_t row_bytes() const { return ceil_div(k * row_of(element).bits, std::int64_t{8}); }
  std::int64_t groups() const { return ceil_div(k, kGroup); }

  Stored(Element e, std::int64_t rows, std::int64_t columns, unsigned seed) : element(e), n(rows), k(columns) {
    std::mt19937 random(seed);
    const SmallFloat& f = row_of(e).format;
    stream.resize(static_cast<std::size_t>(n * row_bytes()));
    for (std::int64_t i = 0; i < n * k; ++i) {
      auto code = static_cast<unsigned>(random() % f.codes());
      if (!f.is_finite(code)) code = 0;
      codes.push_back(code);
      for (int b = 0; b < row_of(e).bits; ++b)
        if ((code >> b & 1) != 0) set_bit(i / k, i % k * row_of(e).bits + b);
    }
    for (std::int64_t i = 0; i < n * groups(); ++i) scales.push_back(static_cast<std::uint8_t>(100 + random() % 50));
  }
  void set_bit(std::int64_t row, std::int64_t bit) {
    stream[static_cast<std::size_t>(row * row_bytes() + bit / 8)] |= static_cast<std::uint8_t>(1u << bit % 8);
  }
  SourceMatrix source(DType scale_type) const {
    SourceMatrix m;
    m.codes = Codes::bits;
    m.element = element;
    m.expert = 3;
    m.k = k;
    m.groups = groups();
    m.half[0].codes = row_major(DType::u8, {n, row_bytes()}, stream.data());
    m.half[0].scales = row_major(scale_type, {n, groups()}, scales.data());
    return m;
  }
  P16 packed(Scales s) const {
    return {{.element = element, .scales = s, .half_rows = n, .k = k, .groups = Groups::of_size(kGroup, k)}};
  }
};

class SmallElements : public testing::TestWithParam<Element> {};

TEST_P(SmallElements, CodesAndScalesComeThroughAPanel) {
  for (const std::int64_t k : {std::int64_t{32}, std::int64_t{96}, std::int64_t{128}}) {
    const Stored s(GetParam(), kPanelRows, k, 7);
    const SourceMatrix source = s.source(DType::f8_e8m0fnu);
    const P16 m = s.packed(Scales::e8m0);
    CanonicalRows rows;
    rows.shape(kPanelRows, m);
    ASSERT_TRUE(read_rows(source, 0, 0, kPanelRows, rows));
    std::vector<std::byte> panel(m.panel_bytes(), std::byte{0xee});
    write_p16_panel(m, rows, panel.data());
    for (std::int64_t r = 0; r < kPanelRows; ++r)
      for (std::int64_t c = 0; c < k; ++c) {
        const unsigned code = s.codes[static_cast<std::size_t>(r * k + c)];
        const float want = small_to_f32(row_of(s.element).format, code);
        ASSERT_EQ(code_in(m, panel.data(), r, c), code) << r << "," << c;
        ASSERT_EQ(value_in(m, panel.data(), r, c), want);
        ASSERT_EQ(scale_in(m, panel.data(), r, c / kGroup),
                  std::ldexp(1.0f, s.scales[static_cast<std::size_t>(r * s.groups() + c / kGroup)] - 127));
      }
  }
}

TEST_P(SmallElements, ColumnsThatFillNoByte) {
  Stored s(GetParam(), 2, 29, 8);
  CanonicalRows rows;
  rows.shape(2, s.packed(Scales::e8m0));
  ASSERT_TRUE(read_rows(s.source(DType::u8), 0, 0, 2, rows));
  for (std::int64_t c = 0; c < s.k; ++c)
    EXPECT_EQ(static_cast<std::uint8_t>(rows.row(1)[c]), s.codes[static_cast<std::size_t>(s.k + c)]);
  const int rest = static_cast<int>(s.k * row_of(s.element).bits % 8);
  if (rest == 0) return;
  s.set_bit(1, s.k * row_of(s.element).bits);
  const Check got = read_rows(s.source(DType::u8), 0, 0, 2, rows);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().subject, "w2_weight[3,1,29]");
}

INSTANTIATE_TEST_SUITE_P(Convert, SmallElements,
                         testing::Values(Element::e2m1, Element::e2m3, Element::e3m2, Element::e4m3, Element::e5m2),
                         [](const auto& test) { return std::string(row_of(test.param).name); });

// Of mxfp6-pack-quantized: all 64 codes of e2m3, in every place of the three bytes.
TEST(NarrowFloats, AreTheSameNumbersOfE4m3) {
  Stored s(Element::e2m3, 5, 64, 9);
  std::fill(s.stream.begin(), s.stream.end(), std::uint8_t{0});
  for (std::int64_t i = 0; i < s.n * s.k; ++i) {
    const auto code = static_cast<unsigned>((i + i / s.k) % 64);
    s.codes[static_cast<std::size_t>(i)] = code;
    for (int b = 0; b < 6; ++b)
      if ((code >> b & 1) != 0) s.set_bit(i / s.k, i % s.k * 6 + b);
  }
  SourceMatrix m = s.source(DType::u8);
  m.element = Element::e4m3;
  m.narrow_bits = 6;
  CanonicalRows rows;
  rows.shape(s.n, P16{{.element = Element::e4m3,
                       .scales = Scales::e8m0,
                       .half_rows = s.n,
                       .k = s.k,
                       .groups = Groups::of_size(kGroup, s.k)}});
  ASSERT_TRUE(read_rows(m, 0, 0, s.n, rows));
  std::vector<std::uint8_t> apart(s.stream.size() * 2);
  for (std::size_t j = 0; j < s.stream.size(); ++j) apart[2 * j] = s.stream[j];
  for (int step = 1; step <= 2; ++step) {
    for (std::int64_t r = 0; r < s.n; ++r)
      for (std::int64_t c = 0; c < s.k; ++c) {
        const float want = small_to_f32(kE2m3, s.codes[static_cast<std::size_t>(r * s.k + c)]);
        const float got = small_to_f32(kE4m3, static_cast<std::uint8_t>(rows.row(r)[c]));
        ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want)) << r << "," << c;
      }
    m.half[0].codes = row_major(DType::u8, {s.n, s.row_bytes()}, apart.data());
    m.half[0].codes.strides = {2 * s.row_bytes(), 2};
    m.half[0].codes.nbytes = apart.size();
    ASSERT_TRUE(read_rows(m, 0, 0, s.n, rows));
  }
}

TEST(SmallFloatFaults, CodesThatAreNoNumbersAreNamed) {
  for (const auto& [element, code] :
       {std::pair(Element::e4m3, 0x7fu), std::pair(Element::e4m3, 0xffu), std::pair(Element::e5m2, 0x7cu)}) {
    for (const std::size_t column : {std::size_t{0}, std::size_t{5}, std::size_t{30}, std::size_t{31}}) {
      Stored s(element, 2, 32, 9);
      s.stream[32 + column] = static_cast<std::uint8_t>(code);
      CanonicalRows rows;
      rows.shape(2, s.packed(Scales::e8m0));
      const Check got = read_rows(s.source(DType::u8), 0, 0, 2, rows);
      ASSERT_FALSE(got);
      EXPECT_EQ(got.error().code, Code::invalid_argument);
      EXPECT_EQ(got.error().subject, "w2_weight[3,1," + std::to_string(column) + "]");
      EXPECT_THAT(got.error().message, testing::HasSubstr(std::string(row_of(element).name)));
    }
  }
}

TEST(SmallFloatFaults, ScalesThatAreNoNumbersAreNamed) {
  for (const auto& [type, kind, code] :
       {std::tuple(DType::f8_e8m0fnu, Scales::e8m0, 255), std::tuple(DType::u8, Scales::e8m0, 255),
        std::tuple(DType::f8_e4m3fn, Scales::e4m3, 0x7f), std::tuple(DType::f8_e4m3fn, Scales::e4m3, 0x81)}) {
    Stored s(Element::e2m1, 2, 64, 10);
    for (std::uint8_t& scale : s.scales) scale = 0x38;
    CanonicalRows rows;
    rows.shape(2, s.packed(kind));
    EXPECT_TRUE(read_rows(s.source(type), 0, 0, 2, rows));
    s.scales[3] = static_cast<std::uint8_t>(code);
    const Check got = read_rows(s.source(type), 0, 0, 2, rows);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().subject, "w2_scale[3,1,1]");
  }
}

// A packed file may hold any byte.
TEST(SmallFloatPanels, EveryByteIsANumber) {
  for (const Element e : {Element::e2m1, Element::e2m3, Element::e3m2, Element::e4m3, Element::e5m2})
    for (unsigned byte = 0; byte < 256; ++byte) {
      const float want = small_to_f32(row_of(e).format, byte % row_of(e).format.codes());
      EXPECT_TRUE(small_value(e, byte) == want || std::isnan(want)) << row_of(e).name << " " << byte;
    }
}

TEST(SmallFloatPanels, ByteScalesAreWhatTheyStandFor) {
  for (unsigned byte = 0; byte < 255; ++byte) EXPECT_EQ(byte_scale(Scales::e8m0, byte), e8m0_to_f32(byte)) << byte;
  for (unsigned byte = 0; byte < 0x7f; ++byte)
    EXPECT_EQ(byte_scale(Scales::e4m3, byte), small_to_f32(kE4m3, byte)) << byte;
  EXPECT_EQ(byte_scale(Scales::e8m0, 255), INFINITY);
  EXPECT_EQ(byte_scale(Scales::e4m3, 0x80), 512.0f);
}

// A host may have numbers below 2^-126 count as 0: 2^-127 stays what it is.
TEST(SmallFloatScales, TheLeastPowerStaysWhereDenormalsAreFlushed) {
  const FlushDenormals flushed;
  for (unsigned byte = 0; byte < 255; ++byte) {
    std::byte stored{0xaa};
    store_scale(Scales::e8m0, e8m0_to_f32(byte), &stored);
    EXPECT_EQ(static_cast<unsigned>(stored), byte);
  }
}

TEST(SmallFloatScales, BothZerosAreScales) {
  Stored s(Element::e2m1, 2, 64, 10);
  for (const std::uint8_t zero : {std::uint8_t{0}, std::uint8_t{0x80}}) {
    for (std::uint8_t& scale : s.scales) scale = zero;
    CanonicalRows rows;
    rows.shape(2, s.packed(Scales::e4m3));
    EXPECT_TRUE(read_rows(s.source(DType::f8_e4m3fn), 0, 0, 2, rows));
    EXPECT_EQ(rows.row_scales(0)[0], 0.0f);
  }
}

}  // namespace
}  // namespace moe::test::read_small_floats_test
