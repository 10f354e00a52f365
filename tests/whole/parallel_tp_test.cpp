// Tensor parallelism: ranks that hold a part of every expert's width. Their weights are the cut ones of the whole
// checkpoint, bit by bit; the sum of their outputs differs from one rank's only by the quantization of the middle row,
// which each rank does over its own columns.
#include <gtest/gtest.h>

#include "support/ranks.h"
#include "support/rooms.h"

namespace moe::test::parallel_tp_test {
namespace {

struct Case {
  int ranks;
  std::int64_t group, inter;
  bool bias;
};
const Case kCases[] = {
    {2, 32, 128, true}, {4, 32, 128, false}, {2, -1, 92, true},
    {4, -1, 96, false}, {2, 96, 192, true},  {4, 64, 256, true},
};

Model model_of(const Case& c) {
  Model m;
  m.E = 5, m.K = 3, m.H = c.group == 96 ? 96 : 64, m.I = c.inter, m.T = 7, m.group = c.group;
  m.bias = c.bias;
  return random_model(std::move(m), static_cast<std::uint32_t>(c.inter + c.ranks));
}

std::string name_of(const Case& c) {
  return std::to_string(c.ranks) + " ranks, I " + std::to_string(c.inter) + ", g " + std::to_string(c.group);
}

Floats dense(const Rank& r, const char* role, std::int64_t expert, std::int64_t rows, std::int64_t columns) {
  Floats out(static_cast<std::size_t>(rows * columns));
  const moe_tensor t = tensor(MOE_DTYPE_F32, {rows, columns}, out.data());
  EXPECT_EQ(moe_packed_dequantize(r.packed.get(), role, expert, &t, nullptr), MOE_OK);
  return out;
}

TEST(TensorParallel, EverySourceGivesTheSameShare) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Model m = model_of(c);
    const Rank whole = whole_layer(m);
    const std::int64_t part = m.I / c.ranks;
    std::vector<std::vector<std::byte>> first;
    for (const Source source : kSources) {
      const auto ranks = make_ranks(m, nlohmann::json::object(), c.ranks, source);
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        const void* data = nullptr;
        std::uint64_t size = 0;
        ASSERT_EQ(moe_packed_data(ranks[r].packed.get(), &data, &size, nullptr), MOE_OK);
        const auto* bytes = static_cast<const std::byte*>(data);
        if (source == kSources[0]) {
          first.emplace_back(bytes, bytes + size);
          continue;
        }
        EXPECT_EQ(first[r], std::vector<std::byte>(bytes, bytes + size)) << "rank " << r;
      }
      if (source != kSources[0]) continue;
      for (std::size_t r = 0; r < ranks.size(); ++r)
        for (std::int64_t e = 0; e < m.E; ++e) {
          const Floats all13 = dense(whole, "w13_weight", e, 2 * m.I, m.H),
                       own13 = dense(ranks[r], "w13_weight", e, 2 * part, m.H);
          const Floats all2 = dense(whole, "w2_weight", e, m.H, m.I), own2 = dense(ranks[r], "w2_weight", e, m.H, part);
          const auto begin = static_cast<std::int64_t>(r) * part;
          for (std::int64_t half = 0; half < 2; ++half)
            EXPECT_TRUE(std::equal(own13.begin() + half * part * m.H, own13.begin() + (half + 1) * part * m.H,
                                   all13.begin() + (half * m.I + begin) * m.H));
          for (std::int64_t n = 0; n < m.H; ++n)
            EXPECT_TRUE(
                std::equal(own2.begin() + n * part, own2.begin() + (n + 1) * part, all2.begin() + n * m.I + begin));
        }
    }
  }
}

double value_at(const std::vector<std::byte>& floats, std::int64_t i) {
  float v;
  std::memcpy(&v, floats.data() + static_cast<std::size_t>(i) * 4, 4);
  return static_cast<double>(v);
}

// The middle row of one token and expert, in float64 and without quantization.
std::vector<double> middle(const Model& m, const Floats& w13, std::int64_t t, std::int64_t e, double on_input) {
  std::vector<double> act;
  for (std::int64_t n = 0; n < m.I; ++n) {
    double y[2];
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t row = half * m.I + n;
      y[half] = m.bias ? value_at(m.b13, e * 2 * m.I + row) : 0.0;
      for (std::int64_t k = 0; k < m.H; ++k)
        y[half] +=
            value_at(m.x, t * m.H + k) * on_input * static_cast<double>(w13[static_cast<std::size_t>(row * m.H + k)]);
    }
    act.push_back(y[0] / (1 + std::exp(-y[0])) * y[1]);
  }
  return act;
}

// Steps of the quantization of columns [begin, end): (max - min) / 255, zero included.
double step_of(const std::vector<double>& act, std::int64_t begin, std::int64_t end) {
  double low = 0, high = 0;
  for (std::int64_t k = begin; k < end; ++k) {
    low = std::min(low, act[static_cast<std::size_t>(k)]);
    high = std::max(high, act[static_cast<std::size_t>(k)]);
  }
  return (high - low) / 255;
}

// How far the sum of the ranks and one rank may be apart (a step per weight for each side), with a
// tenth for the quantization of the input, and the roundings of the sums.
std::vector<double> bound(const Model& m, const Rank& whole, int ranks) {
  std::vector<double> b(static_cast<std::size_t>(m.T * m.H), 1e-6);
  const std::int64_t part = m.I / ranks;
  for (std::int64_t e = 0; e < m.E; ++e) {
    const Floats w13 = dense(whole, "w13_weight", e, 2 * m.I, m.H), w2 = dense(whole, "w2_weight", e, m.H, m.I);
    for (std::int64_t s = 0; s < m.T * m.K; ++s) {
      if (m.ids[static_cast<std::size_t>(s)] != e) continue;
      const std::int64_t t = s / m.K;
      const double weight = std::fabs(static_cast<double>(m.weights[static_cast<std::size_t>(s)]));
      const auto act = middle(m, w13, t, e, m.on_input ? weight : 1.0);
      const double whole_step = step_of(act, 0, m.I);
      std::vector<double> steps;  // of each column: one rank's and this part's
      for (std::int64_t begin = 0; begin < m.I; begin += part)
        steps.insert(steps.end(), static_cast<std::size_t>(part), whole_step + step_of(act, begin, begin + part));
      for (std::int64_t n = 0; n < m.H; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < m.I; ++k)
          sum += std::fabs(static_cast<double>(w2[static_cast<std::size_t>(n * m.I + k)])) *
                 steps[static_cast<std::size_t>(k)];
        b[static_cast<std::size_t>(t * m.H + n)] += 1.1 * sum * (m.on_input ? 1.0 : weight);
      }
    }
  }
  return b;
}

void expect_sum_within(const Model& m, const Rank& whole, const std::vector<Rank>& ranks) {
  const Floats single = apply_topk(whole.layer.get(), m);
  std::vector<double> sum(single.size());
  for (const Rank& r : ranks) {
    const Floats out = apply_topk(r.layer.get(), m);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(out[i]);
  }
  const auto limit = bound(m, whole, static_cast<int>(ranks.size()));
  double largest = 0, worst = 0, size = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double error = std::fabs(sum[i] - static_cast<double>(single[i]));
    ASSERT_LE(error, limit[i]) << i << ": " << sum[i] << " " << single[i];
    largest = std::max(largest, std::fabs(static_cast<double>(single[i])));
    worst = std::max(worst, error);
    size = std::max(size, limit[i]);
  }
  EXPECT_GT(worst, 0.0);             // the ranks do quantize apart
  EXPECT_LT(size, 0.5 * largest);    // the bound says something
  EXPECT_LT(worst, 0.05 * largest);  // and a wrong part of a matrix would not pass
}

TEST(TensorParallel, TheSumIsOneRanksWithinTheBound) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Model m = model_of(c);
    expect_sum_within(m, whole_layer(m), make_ranks(m, nlohmann::json::object(), c.ranks, Source::file));
  }
}

TEST(TensorParallel, WeightOnTheInput) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    Model m = model_of(c);
    m.K = 1;
    m.ids.resize(static_cast<std::size_t>(m.T));
    m.weights.resize(static_cast<std::size_t>(m.T));
    m.on_input = true;
    expect_sum_within(m, whole_layer(m), make_ranks(m, nlohmann::json::object(), c.ranks, Source::named));
  }
}

TEST(TensorParallel, RoutingInside) {
  Model m = model_of(kCases[0]);
  std::vector<std::int32_t> ids;
  const Rank whole = whole_layer(m);
  apply_logits(whole.layer.get(), m, &m.ids, &m.weights);
  for (const Rank& r : make_ranks(m, nlohmann::json::object(), 2, Source::stacked)) {
    EXPECT_TRUE(same_bits(apply_logits(r.layer.get(), m, &ids), apply_topk(r.layer.get(), m)));
    EXPECT_EQ(ids, m.ids);
  }
}

// With w2 all zero an output is its bias, and only the first rank adds it.
TEST(TensorParallel, TheBiasOfW2CountsOnce) {
  for (const Case& c : kCases) {
    if (!c.bias) continue;
    SCOPED_TRACE(name_of(c));
    Model m = model_of(c);
    std::fill(m.s2.begin(), m.s2.end(), std::byte{0});
    const Floats single = apply_topk(whole_layer(m).layer.get(), m);
    for (const Source source : kSources) {
      const auto ranks = make_ranks(m, nlohmann::json::object(), c.ranks, source);
      EXPECT_TRUE(same_bits(apply_topk(ranks[0].layer.get(), m), single));
      EXPECT_NE(single, Floats(single.size()));
      for (std::size_t r = 1; r < ranks.size(); ++r)
        EXPECT_EQ(apply_topk(ranks[r].layer.get(), m), Floats(single.size())) << r;
    }
  }
}

// Without expert parallelism data ranks cut as well: dp_rank, then tp_rank.
TEST(TensorParallel, DataRanksShardToo) {
  const Model m = model_of(kCases[1]);
  const auto four = make_ranks(m, nlohmann::json::object(), 4, Source::file);
  for (int dp = 0; dp < 2; ++dp)
    for (int tp = 0; tp < 2; ++tp) {
      const Rank r =
          make_rank(m, config_of(m, {{"dp_size", 2}, {"dp_rank", dp}, {"tp_size", 2}, {"tp_rank", tp}}), Source::file);
      const Rank& same = four[static_cast<std::size_t>(2 * dp + tp)];
      EXPECT_TRUE(same_bits(apply_topk(r.layer.get(), m), apply_topk(same.layer.get(), m))) << dp << tp;
    }
}

// Words of eight codes along K: the columns of w2 are cut between words.
TEST(TensorParallel, PackedCodes) {
  for (const Case& c : {kCases[0], kCases[3]}) {
    SCOPED_TRACE(name_of(c));
    const Model m = model_of(c);
    const nlohmann::json packed = {{"quantization", {{"format", "pack-quantized"}}}};
    for (int rank = 0; rank < c.ranks; ++rank) {
      const nlohmann::json parallel = {{"tp_size", c.ranks}, {"tp_rank", rank}};
      const Rank want = make_rank(m, config_of(m, parallel), Source::file);
      const ConfigPtr config = make_config(config_of(m, parallel, packed));
      const WeightsPtr set =
          make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
      std::vector<std::vector<std::int32_t>> words;
      for (const NamedTensor& n : named_tensors(m)) {
        NamedTensor t = n;
        if (n.dtype == MOE_DTYPE_I8) {
          const auto* codes = static_cast<const std::int8_t*>(n.data);
          std::vector<std::uint32_t> w(static_cast<std::size_t>(n.shape[0] * n.shape[1] / 8));
          for (std::size_t i = 0; i < w.size() * 8; ++i)
            w[i / 8] |= static_cast<std::uint32_t>(codes[i] + 8) << (4 * (i % 8));
          words.emplace_back(w.begin(), w.end());
          t = {n.name + "_packed", MOE_DTYPE_I32, {n.shape[0], n.shape[1] / 8}, words.back().data()};
        }
        const moe_tensor given = tensor(t.dtype, t.shape, t.data);
        std::int32_t consumed = 0;
        moe_error* err = nullptr;
        expect_status_ok(moe_weights_set_named(set.get(), t.name.c_str(), &given, nullptr, nullptr, &consumed, &err),
                         err);
      }
      const PackedPtr result = make<PackedPtr>([&](moe_packed** o, moe_error** e) {
        return moe_convert_weights(nullptr, want.selection.get(), set.get(), nullptr, o, e);
      });
      ASSERT_NE(result, nullptr);
      const void *a = nullptr, *b = nullptr;
      std::uint64_t size_a = 0, size_b = 0;
      ASSERT_EQ(moe_packed_data(want.packed.get(), &a, &size_a, nullptr), MOE_OK);
      ASSERT_EQ(moe_packed_data(result.get(), &b, &size_b, nullptr), MOE_OK);
      ASSERT_EQ(size_a, size_b);
      EXPECT_EQ(std::memcmp(a, b, size_a), 0) << "rank " << rank;
    }
  }
}

TEST(TensorParallel, CutsThatCannotBe) {
  struct Row {
    std::int64_t inter, group;
    int ranks;
    const char *format, *pointer;
  };
  const Row rows[] = {
      {96, 32, 2, "int-quantized", "/quantization/group_size"},  // 48 columns: a group and a half
      {128, 128, 2, "int-quantized", "/quantization/group_size"},
      {90, -1, 4, "int-quantized", "/intermediate_size"},         // no whole number of columns
      {92, -1, 2, "pack-quantized", "/quantization/group_size"},  // 46: inside a word of eight codes
  };
  for (const Row& r : rows) {
    Model m;
    m.H = 128, m.I = r.inter, m.group = r.group;
    const std::string whole = config_of(m, {{"tp_size", 1}}, {{"quantization", {{"format", "int-quantized"}}}});
    if (r.inter % 32 == 0) {
      EXPECT_NE(make_config(whole), nullptr);
    }
    const std::string text = config_of(m, {{"tp_size", r.ranks}}, {{"quantization", {{"format", r.format}}}});
    const Failure f = failure([&](moe_error** e) {
      moe_config* config = nullptr;
      return moe_config_create(text.data(), text.size(), &config, e);
    });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_CONFIG) << r.inter;
    EXPECT_EQ(f.subject, r.pointer) << f.message;
  }
}

// What a set of rank 1 says of its part.
TEST(TensorParallel, TheReportTellsThePart) {
  const Model m = model_of(kCases[0]);
  const Rank r = make_rank(m, config_of(m, {{"tp_size", 2}, {"tp_rank", 1}}), Source::named);
  const auto told = json_of([&](moe_buffer** o, moe_error** e) { return moe_weights_to_json(r.weights.get(), o, e); });
  for (const auto& t : told["tensors"]) {
    const bool up = t["role"].get<std::string>().rfind("w13", 0) == 0;
    EXPECT_EQ(t["part"], (nlohmann::json{{"row0", up ? 64 : 0}, {"rows", 64}, {"col0", up ? 0 : 64}, {"cols", 64}}))
        << t;
  }
  moe_tensor out{};
  out.struct_size = sizeof out;
  moe_buffer* hold = nullptr;
  ASSERT_EQ(moe_weights_get(r.weights.get(), "w2_weight", 3, &out, &hold, nullptr), MOE_OK);
  const BufferPtr held(hold);
  EXPECT_EQ(out.shape[1], 64);
  const auto* codes = static_cast<const std::int8_t*>(out.data);
  const std::int64_t stride = out.strides[0] == 0 ? 64 : out.strides[0];
  for (std::int64_t n = 0; n < m.H; ++n)
    for (std::int64_t k = 0; k < 64; ++k)
      ASSERT_EQ(codes[n * stride + k], m.w2[static_cast<std::size_t>((3 * m.H + n) * m.I + 64 + k)]);
}

}  // namespace
}  // namespace moe::test::parallel_tp_test
