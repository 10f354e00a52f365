// The job: row orders and formats give the same bytes; refused jobs and tensors; which fault is reported;
// progress, cancellation, release; room for groups of several sizes.
#include "convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <thread>

#include "convert/random_layer.h"
#include "convert/random_wna16.h"
#include "layouts/dequantize.h"
#include "support/rooms.h"

namespace moe::test::convert_test {
namespace {

// --- row orders and formats --------------------------------------------------------------------------

std::vector<std::int8_t> reordered(const RandomLayer& l, W13Layout order) {
  std::vector<std::int8_t> out(l.w13.size());
  for (std::int64_t e = 0; e < l.experts; ++e)
    for (std::int64_t r = 0; r < 2 * l.i; ++r) {
      const std::int64_t half = r / l.i, i = r % l.i;
      const std::int64_t to = order == W13Layout::gate_up   ? r
                              : order == W13Layout::up_gate ? (1 - half) * l.i + i
                                                            : 2 * i + half;
      std::copy_n(l.w13.begin() + (e * 2 * l.i + r) * l.h, l.h, out.begin() + (e * 2 * l.i + to) * l.h);
    }
  return out;
}

template <class T>
std::vector<T> reordered_rows(const std::vector<T>& v, const RandomLayer& l, std::int64_t width, W13Layout order) {
  std::vector<T> out(v.size());
  for (std::int64_t e = 0; e < l.experts; ++e)
    for (std::int64_t r = 0; r < 2 * l.i; ++r) {
      const std::int64_t half = r / l.i, i = r % l.i;
      const std::int64_t to = order == W13Layout::gate_up   ? r
                              : order == W13Layout::up_gate ? (1 - half) * l.i + i
                                                            : 2 * i + half;
      std::copy_n(v.begin() + (e * 2 * l.i + r) * width, width, out.begin() + (e * 2 * l.i + to) * width);
    }
  return out;
}

TEST(Convert, RowOrdersOfAWholeW13) {
  const RandomLayer layer(2, 64, 96, 32, true);
  const Bytes want = convert(layer.job(), layer.source());
  for (W13Layout order : {W13Layout::gate_up, W13Layout::up_gate, W13Layout::interleaved}) {
    const auto w = reordered(layer, order);
    const auto s = reordered_rows(layer.s13, layer, layer.groups(layer.h), order);
    const auto b = reordered_rows(layer.b13, layer, 1, order);
    MemorySource source = layer.source();
    source.set_stacked(Role::w13_weight, row_major(DType::i8, {2, 192, 64}, w.data()));
    source.set_stacked(Role::w13_scale, row_major(DType::bf16, {2, 192, 2}, s.data()));
    source.set_stacked(Role::w13_bias, row_major(DType::f32, {2, 192}, b.data()));
    ConvertJob job = layer.job();
    job.w13_layout = order;
    EXPECT_EQ(convert(job, source), want) << static_cast<int>(order);
  }
}

TEST(Convert, HalvesArePlacedByNameWhateverTheRowOrder) {
  const RandomLayer layer(1, 64, 32, 32, false);
  const Bytes want = convert(layer.job(), layer.source());
  MemorySource halves;
  const MemorySource whole = layer.source();
  for (Role r : {Role::w13_weight, Role::w13_scale}) {
    const auto lease = whole.get({r, 0});
    halves.set(r, 0, rows(lease->view, 0, 32), Half::w1);
    halves.set(r, 0, rows(lease->view, 32, 32), Half::w3);
  }
  for (Role r : {Role::w2_weight, Role::w2_scale}) halves.set(r, 0, whole.get({r, 0})->view);
  for (W13Layout order : {W13Layout::gate_up, W13Layout::up_gate, W13Layout::interleaved}) {
    ConvertJob job = layer.job();
    job.w13_layout = order;
    EXPECT_EQ(convert(job, halves), want);
  }
}

TEST(Convert, AnyStrides) {
  const RandomLayer layer(2, 40, 26, -1, false);
  const Bytes want = convert(layer.job(), layer.source());
  std::vector<std::int8_t> transposed(layer.w13.size());  // [H, E, 2I]
  for (std::int64_t e = 0; e < 2; ++e)
    for (std::int64_t r = 0; r < 52; ++r)
      for (std::int64_t k = 0; k < 40; ++k)
        transposed[static_cast<std::size_t>((k * 2 + e) * 52 + r)] =
            layer.w13[static_cast<std::size_t>((e * 52 + r) * 40 + k)];
  TensorView v = row_major(DType::i8, {2, 52, 40}, transposed.data());
  v.strides = {52, 1, 104};
  MemorySource source = layer.source();
  for (std::int64_t e = 0; e < 2; ++e) source.set(Role::w13_weight, e, slice0(v, e));
  EXPECT_EQ(convert(layer.job(), source), want);
}

TEST(Convert, PackQuantizedGivesTheSameBytes) {
  for (const Shape s : {Shape{2, 64, 96, 32, true}, Shape{2, 46, 26, -1, false}}) {
    const RandomLayer layer(s.e, s.h, s.i, s.g, s.bias);
    const auto w13 = packed_words(layer.w13, s.h), w2 = packed_words(layer.w2, s.i);
    MemorySource source = layer.source();
    source.set_stacked(Role::w13_weight, row_major(DType::i32, {s.e, 2 * s.i, (s.h + 7) / 8}, w13.data()));
    source.set_stacked(Role::w2_weight, row_major(DType::i32, {s.e, s.h, (s.i + 7) / 8}, w2.data()));
    ConvertJob job = layer.job();
    job.set = set_of(Format::pack_quantized);
    EXPECT_EQ(convert(job, source), convert(layer.job(), layer.source()));
  }
}

TEST(Convert, UngatedHasOneHalf) {
  RandomLayer layer(2, 64, 48, -1, true);
  layer.layout =
      p16_int4_layout({.experts = 2, .hidden = 64, .intermediate = 48, .groups = {}, .gated = false, .has_bias = true});
  ConvertJob job = layer.job();
  job.gated = false;
  MemorySource source = layer.source();
  source.set_stacked(Role::w13_weight, row_major(DType::i8, {2, 48, 64}, layer.w13.data()));
  source.set_stacked(Role::w13_scale, row_major(DType::bf16, {2, 48, 1}, layer.s13.data()));
  source.set_stacked(Role::w13_bias, row_major(DType::f32, {2, 48}, layer.b13.data()));
  const Bytes out = convert(job, source);
  for (std::int64_t n = 0; n < 48; ++n)
    ASSERT_EQ(code_at(P16{layer.layout.w13},
                      out.data() + static_cast<std::size_t>(n / 16) * P16{layer.layout.w13}.panel_bytes(), n % 16, 63),
              layer.w13[static_cast<std::size_t>(n * 64 + 63)]);
}

// --- faults

TEST(ConvertFaults, TheFirstBadExpertIsNamedForEveryThreadCount) {
  RandomLayer layer(40, 64, 32, 32, false);
  for (std::int64_t e : {11, 12, 30, 39}) layer.w2[static_cast<std::size_t>(e * 64 * 32)] = 8;
  for (int n : {1, 2, 7, 16}) {
    const Parallel parallel{n, &n, ThreadPool::run};
    for (int repeat = 0; repeat < 5; ++repeat)
      EXPECT_EQ(convert_error(layer.job(), layer.source(), parallel).subject, "w2_weight[11,0,0]");
  }
}

TEST(ConvertFaults, WrongTensorsFromASource) {
  const RandomLayer layer(1, 64, 32, 32, false);
  const TensorView good = row_major(DType::i8, {64, 64}, layer.w13.data());
  const auto error_with = [&](TensorView v) {
    MemorySource source = layer.source();
    source.set(Role::w13_weight, 0, v);
    return convert_error(layer.job(), source);
  };
  TensorView v = good;
  v.dtype = DType::u8;
  EXPECT_EQ(error_with(v).code, Code::dtype);
  v = good;
  v.shape[1] = 65;
  EXPECT_EQ(error_with(v).code, Code::shape);
  v = good;
  v.ndim = 1;
  EXPECT_EQ(error_with(v).code, Code::shape);
  v = good;
  v.nbytes -= 1;
  EXPECT_EQ(error_with(v).code, Code::shape);
  v = good;
  v.strides[0] = INT64_MAX;
  EXPECT_EQ(error_with(v).code, Code::shape);
  v = good;
  v.strides[1] = -1;
  EXPECT_EQ(error_with(v).code, Code::shape);
  v = good;
  v.data = nullptr;
  EXPECT_EQ(error_with(v).code, Code::invalid_argument);
  EXPECT_EQ(error_with(v).subject, "w13_weight[0]");
}

TEST(ConvertFaults, MissingTensor) {
  const RandomLayer layer(2, 64, 32, 32, false);
  MemorySource source;
  source.set_stacked(Role::w13_weight, layer.w13_view());
  EXPECT_EQ(convert_error(layer.job(), source).code, Code::missing_weight);
}

TEST(ConvertFaults, JobsThatCannotBeDone) {
  const RandomLayer layer(1, 64, 32, 32, false);
  Bytes out = filled(layer.layout.payload_bytes());
  ConvertJob job = layer.job();
  job.set = nullptr;
  EXPECT_EQ(convert_experts(job, layer.source(), out, {}, nullptr).error().code, Code::unsupported);
  job = layer.job();
  job.layout.kind = LayoutKind::foreign;
  EXPECT_EQ(convert_experts(job, layer.source(), out, {}, nullptr).error().code, Code::unsupported);
  job = layer.job();
  const auto small = convert_experts(job, layer.source(), std::span(out).first(out.size() - 1), {}, nullptr);
  EXPECT_EQ(small.error().code, Code::buffer_too_small);
}

// --- progress, cancellation, release ------------------------------------------------------------------

struct Progress {
  std::vector<std::uint64_t> done{};
  std::thread::id caller{};
  std::uint64_t stop_at = UINT64_MAX;
  std::int32_t status = 0;
  bool foreign_thread = false;

  static std::int32_t fn(void* user, std::uint64_t done, std::uint64_t total) {
    auto& p = *static_cast<Progress*>(user);
    p.foreign_thread |= std::this_thread::get_id() != p.caller;
    EXPECT_LE(done, total);
    p.done.push_back(done);
    return done >= p.stop_at ? p.status : 0;
  }
};

TEST(ConvertControl, ProgressOnTheCallingThreadOnly) {
  const RandomLayer layer(40, 64, 32, 32, false);
  for (int n : {1, 3}) {
    Progress p{.caller = std::this_thread::get_id()};
    Control control(Progress::fn, &p, nullptr);
    const Parallel parallel{n, &n, ThreadPool::run};
    Bytes out = filled(layer.layout.payload_bytes());
    ASSERT_TRUE(convert_experts(layer.job(), layer.source(), out, parallel, &control));
    EXPECT_FALSE(p.foreign_thread);
    ASSERT_GE(p.done.size(), 4u);
    EXPECT_TRUE(std::is_sorted(p.done.begin(), p.done.end()));
    EXPECT_EQ(p.done.back(), 40u);
  }
}

TEST(ConvertControl, CancelBeforeAndDuring) {
  const RandomLayer layer(40, 64, 32, 32, false);
  Bytes out = filled(layer.layout.payload_bytes());
  Control before(nullptr, nullptr, nullptr);
  before.cancel();
  EXPECT_EQ(convert_experts(layer.job(), layer.source(), out, {}, &before).error().code, Code::cancelled);
  EXPECT_EQ(out, filled(out.size()));

  struct Status {
    std::int32_t given;
    Code want;
  };
  for (const Status s : {Status{14 + 1, Code::cancelled}, Status{99, Code::callback}}) {
    Progress p{.caller = std::this_thread::get_id(), .stop_at = 10, .status = s.given};
    Control control(Progress::fn, &p, nullptr);
    EXPECT_EQ(convert_experts(layer.job(), layer.source(), out, {}, &control).error().code, s.want);
    EXPECT_EQ(p.done.back(), 10u);
  }
}

TEST(ConvertControl, EachExpertIsReleasedOnceAfterItsUse) {
  const RandomLayer layer(21, 64, 32, 32, false);
  for (int n : {1, 3}) {
    std::vector<std::int64_t> released;
    ConvertJob job = layer.job();
    for (auto& e : job.experts) e += 100;
    MemorySource source;
    const MemorySource plain = layer.source();
    for (Role r : {Role::w13_weight, Role::w2_weight, Role::w13_scale, Role::w2_scale})
      for (std::int64_t e = 0; e < 21; ++e) source.set(r, 100 + e, plain.get({r, e})->view);
    job.expert_done = [](void* user, std::int64_t e) { static_cast<std::vector<std::int64_t>*>(user)->push_back(e); };
    job.expert_done_user = &released;
    const Parallel parallel{n, &n, ThreadPool::run};
    convert(job, source, parallel);
    EXPECT_EQ(released, job.experts);
  }
}

// --- room for groups of several sizes ------------------------------------------------------------------------------

// Forty experts of the same tensors; some have another list for w2, some have none.
struct ManyExperts : TensorSource {
  RandomWna16 layer{Format::gptq, 4, 64, 64, 32, false, true, 7};
  World one = layer.world();
  std::vector<std::int32_t> uneven = layer.w2.g_idx;
  std::set<std::int64_t> uneven_in, broken_in;
  std::int64_t cancels_in = -1;
  mutable Control* control = nullptr;
  mutable std::atomic<int> reads{0};

  ManyExperts() {
    *std::find(uneven.begin(), uneven.end(), 0) = 1;
    one.job.layout.experts = 40;
    one.job.experts.resize(40);
    std::iota(one.job.experts.begin(), one.job.experts.end(), 0);
  }
  Result<TensorLease> get(const Place& p) const override {
    ++reads;
    if (broken_in.count(p.expert) != 0)
      return fail(Code::io, "file", "expert " + std::to_string(p.expert) + " cannot be read");
    if (p.expert == cancels_in) control->cancel();
    if (p.role == Role::w2_g_idx && uneven_in.count(p.expert) != 0)
      return TensorLease(row_major(DType::i32, {64}, uneven.data()));
    return one.source.get({p.role, 0, p.half});
  }
  Result<Layout> layout(int threads = 1, Control* with = nullptr) const {
    control = with;
    reads = 0;
    return layout_that_fits(one.job, *this, {threads, &threads, ThreadPool::run}, with);
  }
};

TEST(RoomForGroups, TakenWhereOneExpertNeedsIt) {
  for (const int threads : {1, 3}) {
    ManyExperts many;
    EXPECT_EQ(*many.layout(threads), many.one.job.layout);
    EXPECT_EQ(many.reads, 80);
    many.uneven_in = {39};
    EXPECT_EQ(*many.layout(threads), with_any_groups(many.one.job.layout));
    many.uneven_in = {0};
    EXPECT_EQ(*many.layout(threads), with_any_groups(many.one.job.layout));
    EXPECT_LE(many.reads, 2 * 4 * threads);  // nobody reads on
  }
}

TEST(RoomForGroups, TheFirstExpertThatCannotBeRead) {
  for (const int threads : {1, 3}) {
    ManyExperts many;
    many.broken_in = {7, 8, 30};
    const auto none = many.layout(threads);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Code::io);
    EXPECT_EQ(none.error().message, "expert 7 cannot be read");
    many.uneven_in = {6};  // in front of it: conversion will tell
    EXPECT_EQ(*many.layout(threads), with_any_groups(many.one.job.layout));
    many.uneven_in = {8};
    EXPECT_FALSE(many.layout(threads));
  }
}

TEST(RoomForGroups, ControlsAreAsked) {
  for (const int threads : {1, 3}) {
    ManyExperts many;
    Control before(nullptr, nullptr, nullptr), during(nullptr, nullptr, nullptr);
    before.cancel();
    EXPECT_EQ(many.layout(threads, &before).error().code, Code::cancelled);
    EXPECT_EQ(many.reads, 0);
    many.cancels_in = 2;
    EXPECT_EQ(many.layout(threads, &during).error().code, Code::cancelled);
    EXPECT_LT(many.reads, 80);
    many.cancels_in = -1;
    int calls = 0;
    Control refused(
        [](void* user, std::uint64_t done, std::uint64_t total) {
          EXPECT_EQ(done, 0u);
          EXPECT_EQ(total, 40u);
          return ++*static_cast<int*>(user) == 3 ? 77 : 0;
        },
        &calls, nullptr);
    EXPECT_EQ(many.layout(threads, &refused).error().code, Code::callback);
    EXPECT_EQ(many.reads, 2 * 2 * 4 * threads);
  }
}

// A list of columns in packed bytes that names one twice.
TEST(Dequantize, ListsOfColumnsAreChecked) {
  ManyExperts many;
  const Layout& l = many.one.job.layout;
  const Bytes good = convert(many.one.job, many);
  std::vector<float> dense(128 * 64);
  for (const Which which : {Which::w13, Which::w2}) {
    Bytes bad = good;
    std::byte* list = bad.data() + 3 * l.expert_stride() + (which == Which::w13 ? 0 : l.w2_offset()) +
                      P16{l.matrix(which)}.order_offset();
    std::memcpy(list, list + 4, 4);
    const Check read = dequantize(l, bad.data(), 3, Which::w13, row_major(DType::f32, {128, 64}, dense.data()));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, Code::format);
    EXPECT_THAT(read.error().message, testing::HasSubstr(which == Which::w13 ? "columns of w13 of local expert 3"
                                                                             : "columns of w2 of local expert 3"));
    EXPECT_TRUE(dequantize(l, bad.data(), 2, Which::w13, row_major(DType::f32, {128, 64}, dense.data())));
  }
}

}  // namespace
}  // namespace moe::test::convert_test
