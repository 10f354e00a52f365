// The codes less the zero points, by wna16.md 2. See wna16_stack.h.
#include "support/wna16_stack.h"

#include <gtest/gtest.h>

#include <span>

#include "support/rooms.h"

namespace moe::test {

VecTensor dense_integers(const VecFile& file, const std::string& matrix) {
  const VecTensor& want = file.expected("dense." + matrix + "_int");
  const std::string &format = file.meta.at("format"), &backend = file.meta.at("backend");
  const bool awq = format == "awq", rows_first = format == "ct_rows", narrow = want.dtype == DType::i8;
  const int symmetric = file.meta.at("bits") == "4" ? 8 : 128, more = format == "gptq" && backend == "CPU" ? 1 : 0;
  const std::int64_t E = want.shape[0], N = want.shape[1], K = want.shape[2];
  const auto groups = file.at("dense." + matrix + "_group").as<std::int32_t>();
  const Stack codes(file, matrix);
  const bool has_zeros = file.has("in." + matrix + "_qzeros");
  const Stack zeros(file, has_zeros ? matrix + "_qzeros" : matrix);
  VecTensor out{.dtype = want.dtype, .shape = want.shape, .data = {}};
  out.data.reserve(static_cast<std::size_t>(E * N * K * (narrow ? 1 : 2)));
  for (std::int64_t e = 0; e < E; ++e)
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t k = 0; k < K; ++k) {
        const std::int64_t g = groups[static_cast<std::size_t>(e * K + k)];
        const unsigned code = awq          ? codes.awq(e, k, n)
                              : rows_first ? codes.plain(e, n, k, false)
                                           : codes.plain(e, k, n, true);
        int zero = symmetric;
        if (has_zeros) zero = static_cast<int>(awq ? zeros.awq(e, g, n) : zeros.plain(e, g, n, false)) + more;
        const int value = static_cast<int>(code) - zero;
        out.data.push_back(static_cast<std::byte>(value & 0xff));
        if (!narrow) out.data.push_back(static_cast<std::byte>(value >> 8 & 0xff));
      }
  EXPECT_EQ(difference(want, out.data), "") << "dense." << matrix << "_int";
  return out;
}

}  // namespace moe::test
