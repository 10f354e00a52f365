// What the readers share: faults of values with their place, a table of readers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/load.h"
#include "base/number_at.h"
#include "convert/source.h"
#include "layouts/p16/p16.h"

namespace moe::convert {

struct Fault {
  std::int64_t k;
  std::string what;
};
using MaybeFault = std::optional<Fault>;

// invalid_argument, "w13_weight[e,n,k]", indices in the order of the caller's tensor; what: "weight", "scale" or
// "zero_point", r: the row within its half.
Error value_error(const SourceMatrix& m, const char* what, const RowNumbers& rows, std::int64_t r, const Fault& fault);

constexpr std::int64_t codes_of_word(Element integer) { return 32 / row_of(integer).bits; }

// Row r of a half becomes row i; the codes before `column` are there.
struct RowPlace {
  std::int64_t r, i, column;
};

// One half's rows of the formats of a file: codes or values, and scales; read_rows() adds the bias.
using ReadRow = Check (*)(const SourceMatrix& m, const SourceHalf& half, const RowPlace& at, CanonicalRows& out);
Check read_int8_codes(const SourceMatrix& m, const SourceHalf& half, const RowPlace& at, CanonicalRows& out);
Check read_packed_codes(const SourceMatrix& m, const SourceHalf& half, const RowPlace& at, CanonicalRows& out);
Check read_row_words(const SourceMatrix& m, const SourceHalf& half, const RowPlace& at, CanonicalRows& out);
Check read_row_pairs(const SourceMatrix& m, const SourceHalf& half, const RowPlace& at, CanonicalRows& out);
Check read_small_floats(const SourceMatrix& m, const SourceHalf& half, const RowPlace& at, CanonicalRows& out);
Check read_floats(const SourceMatrix& m, const SourceHalf& half, const RowPlace& at, CanonicalRows& out);
// The first columns' codes of `rows`, at most kPanelRows, which become rows i, i + 1, ...: how many columns, 0 where
// these rows are no block.
using ReadBlock = std::int64_t (*)(const SourceMatrix& m, const SourceHalf& half, std::span<const std::int64_t> rows,
                                   std::int64_t i, CanonicalRows& out);
std::int64_t read_packed_block(const SourceMatrix& m, const SourceHalf& half, std::span<const std::int64_t> rows,
                               std::int64_t i, CanonicalRows& out);
std::int64_t read_row_words_block(const SourceMatrix& m, const SourceHalf& half, std::span<const std::int64_t> rows,
                                  std::int64_t i, CanonicalRows& out);
// Parts of them.
Check read_row_scales(const SourceMatrix& m, const SourceHalf& half, std::int64_t r, std::int64_t i,
                      CanonicalRows& out);
Check read_row_zeros(const SourceMatrix& m, const SourceHalf& half, std::int64_t r, std::int64_t i, CanonicalRows& out);

// The code in field number `field`, in the order of m, of a column of a tensor whose rows share words.
int shared_code(const SourceMatrix& m, const TensorView& words, std::int64_t field, std::int64_t column);

}  // namespace moe::convert
