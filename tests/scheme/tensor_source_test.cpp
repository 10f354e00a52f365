// Leases: given back once.
#include "scheme/tensor_source.h"
#include "support/rooms.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace moe::test::tensor_source_test {
namespace {

class CountingSource : public TensorSource {
 public:
  Result<TensorLease> get(const Place& place) const override { return TensorLease(TensorView{}, this, place); }
  void put(const Place& place, const TensorView&) const override { given_back.push_back(place.expert); }
  mutable std::vector<std::int64_t> given_back;
};

TEST(Lease, IsGivenBackOnceAlsoAfterMoves) {
  const CountingSource source;
  {
    Result<TensorLease> lease = source.get({Role::w2_weight, 5});
    ASSERT_TRUE(lease);
    const TensorLease moved = *std::move(lease);
    EXPECT_TRUE(source.given_back.empty());
  }
  EXPECT_EQ(source.given_back, std::vector<std::int64_t>{5});
}

}  // namespace
}  // namespace moe::test::tensor_source_test
