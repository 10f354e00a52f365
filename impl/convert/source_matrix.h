// One expert's matrix out of a TensorSource: which tensors it is made of, and how gate and up lie in them.
#pragma once

#include <vector>

#include "convert/convert.h"
#include "convert/source.h"
#include "scheme/tensor_source.h"

namespace moe::convert {

struct LeasedMatrix {
  SourceMatrix source;
  std::vector<TensorLease> leases;  // keep the views of `source` alive
};

// Asks for the tensors of w13 or w2 and checks their types, shapes and bytes. A w13 role comes whole, in
// the row order of the job, or as w1 and w3.
Result<LeasedMatrix> lease_matrix(const ConvertJob& job, const TensorSource& source, std::int64_t expert, bool is_w13);

// The g_idx alone, checked; empty without act-order.
Result<std::vector<std::int32_t>> lease_g_idx(const ConvertJob& job, const TensorSource& source, std::int64_t expert,
                                              bool is_w13);

// The most memory that converting one expert takes, input and output not counted, when the source reads from files.
std::uint64_t temp_bytes_per_worker(const ConvertJob& job);

}  // namespace moe::convert
