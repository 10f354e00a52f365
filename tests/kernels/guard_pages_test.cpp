// The functions of every kernel row on buffers that end, or begin, at a guard page: no row of a tail may be read or
// written beyond its end. Inputs are read-only, results are those of the scalar row in plain memory.
#include "support/guard_pages.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "support/p16.h"
#include "support/rooms.h"
#include "support/share.h"

namespace moe::test::guard_pages_test {
namespace {

constexpr std::int64_t kTails[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 46, 63, 65, 96, 127, 160};  // K without groups

std::vector<float> normal_values(std::size_t n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(rng);
  return v;
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& v) {
  std::vector<std::byte> b(v.size() * sizeof(T));
  if (!b.empty()) std::memcpy(b.data(), v.data(), b.size());
  return b;
}

struct Shape {
  std::int64_t rows, k, group;
};

// Tails of K alone and with groups, of N in both halves.
std::vector<Shape> shapes_of(const Kernel& kernel) {
  std::vector<Shape> shapes;
  std::int64_t rows = 1;
  for (const std::int64_t k : kTails) shapes.push_back({rows += 5, k, k});
  if (is_value(*p16_element(kernel.id->layout))) return shapes;
  for (const std::int64_t group : {32, 64, 96, 128, 160})
    for (const std::int64_t groups : {1, 2, 3, 5}) shapes.push_back({rows = rows % 47 + 3, group * groups, group});
  return shapes;
}

class GuardedRows : public testing::TestWithParam<const Kernel*> {
 protected:
  const Kernel& kernel() const { return *GetParam(); }
  const Kernel& scalar() const { return scalar_of(kernel()); }
};

TEST_P(GuardedRows, QuantizeAndGemm) {
  std::mt19937 rng(1);
  Turns turns;
  for (const Shape& s : shapes_of(kernel()))
    for (int n = 1; n <= kernel().tile_rows; n += n < 5 ? 1 : 3) {
      if (!turns.next()) continue;
      const Scales scales = static_cast<Scales>(static_cast<int>(Scales::f32) + n % 3);
      const bool zeros = kernel().id->takes_zeros() && n % 2 == 0;
      const std::int64_t scale_rows = kernel().id->layout == LayoutKind::p16_e4m3 && n % 2 == 0 ? 32 : 1;
      const P16 m = matrix_for(kernel(), {s.rows, s.k, s.group, 1 + n % 2, n % 3 == 0, scales, zeros, scale_rows});
      if (!takes(kernel(), m)) continue;
      const TileShape shape =
          tile_shape(kernel(), m, {static_cast<FloatScale>(n % 3), n % 3 == 2 ? 32 + 32 * (n % 2) : 0});
      const auto packed = random_panels(m, rng);
      const auto x = normal_values(static_cast<std::size_t>(n * s.k), rng);
      const auto digits = make_tile(scalar(), shape, x.data(), n, HalfRule::away);
      const auto tile = shape.has_values(n) ? make_tile(kernel(), shape, x.data(), n, HalfRule::away) : digits;
      const std::int64_t columns = m.panels() * kPanelRows, ld = columns + n % 3;
      std::vector<float> want(static_cast<std::size_t>((n - 1) * ld + columns), -1.0f);
      const std::vector<float> before = want;
      multiply(scalar(), {&m, packed.data(), m.panels(), digits.data(), n, shape, want.data(), ld, nullptr});
      for (const Flush flush : kFlushes) {
        const Guarded made(tile.size(), flush, 64);
        std::memset(made.data(), 0, made.size());
        for (int r = 0; r < n; ++r) {
          const Guarded row(x.data() + r * s.k, static_cast<std::size_t>(s.k) * 4, flush, 4);
          kernel().quantize({shape, row.as<const float>(), HalfRule::away, {made.data(), n, r}, kInputScale});
        }
        ASSERT_EQ(made.bytes(), tile) << kernel().id->name << " k " << s.k << " g " << s.group << " n " << n;
        const Guarded panels(packed.data(), packed.size(), flush, 64), a(tile.data(), tile.size(), flush, 64);
        const Guarded out(before.size() * 4, flush, 4);
        std::memcpy(out.data(), before.data(), out.size());
        // prefetching past the weights is no access
        const std::byte* next = panels.data() + panels.size();
        const PrefetchPolicy prefetch{.in_order = columns % 32 == 0, .pairs = columns % 32 != 0};
        multiply(kernel(),
                 {&m, panels.data(), m.panels(), a.data(), n, shape, out.as<float>(), ld, next, 0, 0, 1, prefetch});
        ASSERT_EQ(out.bytes(), bytes_of(want)) << kernel().id->name << " k " << s.k << " g " << s.group << " n " << n;
      }
    }
}

std::vector<const Kernel*> all_runnable() {
  std::vector<const Kernel*> rows;
  for (const ActFormat act : {ActFormat::tok8, ActFormat::blk8, ActFormat::blk16, ActFormat::e2m1, ActFormat::e4m3,
                              ActFormat::bf16, ActFormat::f32})
    for (const Kernel* k : runnable_kernels(act)) rows.push_back(k);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(All, GuardedRows, testing::ValuesIn(all_runnable()),
                         [](const auto& param) { return std::string(param.param->id->name); });

// The pages are guarded, and copies are read-only.
TEST(GuardedDeathTest, OneByteTooFar) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::vector<std::byte> some(100, std::byte{1});
  const Guarded right(some.data(), some.size(), Flush::right), left(100, Flush::left);
  const auto read = [](const std::byte* at) { return static_cast<int>(*static_cast<const volatile std::byte*>(at)); };
  EXPECT_EQ(read(right.data() + 99), 1);
  EXPECT_DEATH(std::exit(read(right.data() + 100)), "");
  EXPECT_DEATH(*static_cast<volatile std::byte*>(right.data()) = std::byte{2}, "");
  EXPECT_EQ(read(left.data()), 0);
  EXPECT_DEATH(std::exit(read(left.data() - 1)), "");
}

// --- the steps of an instruction set ------------------------------------------------------------------------

// One kernel row per set of steps.
std::vector<const Kernel*> runnable_steps() {
  std::vector<const Kernel*> rows;
  std::set<const Elementwise*> seen;
  std::vector<const Kernel*> all = all_runnable();
  for (const Kernel* k : runnable_kernels(LayoutKind::kai, ActFormat::tok8)) all.push_back(k);
  for (const Kernel* k : all)
    if (seen.insert(k->steps).second) rows.push_back(k);
  return rows;
}

class GuardedSteps : public testing::TestWithParam<const Kernel*> {
 protected:
  const Elementwise& steps() const { return *GetParam()->steps; }
};

TEST_P(GuardedSteps, WidenAndNarrow) {
  std::mt19937 rng(2);
  for (const DType d : {DType::f32, DType::bf16, DType::f16})
    for (std::int64_t count = 0; count <= 70; ++count) {
      const auto n = static_cast<std::size_t>(count), size = static_cast<std::size_t>(dtype_bits(d) / 8);
      const auto values = normal_values(n, rng);
      std::vector<std::byte> narrow(n * size);
      std::vector<float> wide(n);
      scalar_kernel().steps->narrow(d, values.data(), count, narrow.data());
      scalar_kernel().steps->widen(d, narrow.data(), count, wide.data());
      for (const Flush flush : kFlushes) {
        const Guarded in(values, flush), out(n * size, flush, size);
        steps().narrow(d, in.as<const float>(), count, out.data());
        ASSERT_EQ(out.bytes(), narrow) << dtype_name(d) << " " << count;
        const Guarded back(n * 4, flush, 4), from(narrow.data(), narrow.size(), flush, size);
        steps().widen(d, from.data(), count, back.as<float>());
        ASSERT_EQ(back.bytes(), bytes_of(wide)) << dtype_name(d) << " " << count;
      }
    }
}

TEST_P(GuardedSteps, Activate) {
  std::mt19937 rng(3);
  for (std::size_t f = 0; f < kActivationNames.size(); ++f)
    for (const DType d : {DType::f32, DType::bf16, DType::f16})
      for (std::int64_t blocks = 1; blocks <= 5; ++blocks) {
        const auto activation = static_cast<Activation>(f);
        const int rows = 1 + static_cast<int>(rng() % 4);
        const std::int64_t columns = blocks * kPanelRows * (is_gated(activation) ? 2 : 1), ld = columns + rows,
                           out_columns = blocks * kPanelRows, out_ld = out_columns + 2 * rows;
        const auto y13 = normal_values(static_cast<std::size_t>((rows - 1) * ld + columns), rng);
        std::vector<float> want(static_cast<std::size_t>((rows - 1) * out_ld + out_columns));
        ActivateArgs args{activation, true, 1.702f, 1.0f,   7.0f,        d,     Rounding::stepwise,
                          y13.data(), ld,   rows,   blocks, want.data(), out_ld};
        const std::vector<float> before = want;
        scalar_kernel().steps->activate(args);
        for (const Flush flush : kFlushes) {
          const Guarded in(y13, flush), out(before.size() * 4, flush, 4);
          std::memcpy(out.data(), before.data(), out.size());
          args.y13 = in.as<const float>();
          args.out = out.as<float>();
          steps().activate(args);
          ASSERT_EQ(out.bytes(), bytes_of(want)) << kActivationNames[f] << " " << blocks << " blocks";
        }
      }
}

TEST_P(GuardedSteps, Combine) {
  std::mt19937 rng(4);
  for (const bool rounded : {false, true})
    for (const DType d : {DType::f32, DType::bf16, DType::f16})
      for (int rows = 1; rows <= 5; ++rows)
        for (const std::int64_t count : {16, 48, 80}) {
          const std::int64_t tokens = 3, ld = count + rows, acc_ld = count + 5 - rows;
          const auto y = normal_values(static_cast<std::size_t>((rows - 1) * ld + count), rng),
                     start = normal_values(static_cast<std::size_t>((tokens - 1) * acc_ld + count), rng),
                     weights = normal_values(static_cast<std::size_t>(rows), rng);
          std::vector<std::int32_t> of;
          for (int r = 0; r < rows; ++r) of.push_back(static_cast<std::int32_t>(rng() % tokens));
          std::vector<float> want = start;
          CombineArgs args{want.data(), acc_ld, of.data(), weights.data(), y.data(), ld, rows, count, rounded, d};
          scalar_kernel().steps->combine(args);
          for (const Flush flush : kFlushes) {
            const Guarded acc(start.size() * 4, flush, 4), slots(of, flush), w(weights, flush), in(y, flush);
            std::memcpy(acc.data(), start.data(), acc.size());
            steps().combine({acc.as<float>(), acc_ld, slots.as<const std::int32_t>(), w.as<const float>(),
                             in.as<const float>(), ld, rows, count, rounded, d});
            ASSERT_EQ(acc.bytes(), bytes_of(want)) << rounded << dtype_name(d) << rows << " " << count;
          }
        }
}

INSTANTIATE_TEST_SUITE_P(All, GuardedSteps, testing::ValuesIn(runnable_steps()), [](const auto& param) {
  return std::string(kIsaNames[static_cast<std::size_t>(param.param->id->isa)]);
});

}  // namespace
}  // namespace moe::test::guard_pages_test
