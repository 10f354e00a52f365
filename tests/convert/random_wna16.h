// Random WNA16 weights of one expert as the tensors of a checkpoint format, and the job that converts them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "convert/convert.h"
#include "layouts/p16/p16_layout.h"
#include "support/memory_source.h"
#include "support/rooms.h"
#include "support/tensor_sets.h"

namespace moe::test {

// A job and its tensors.
struct World {
  ConvertJob job;
  MemorySource source;
};

// Stored codes, zero points and groups of one expert, and the same as tensors of a format.
struct RandomWna16 {
  Format format;
  int bits;
  std::int64_t h, i, g;
  bool zeros, order;
  struct Matrix {
    std::int64_t n, k, groups;
    std::vector<std::uint8_t> codes, zeros;  // [n][k], [n][groups], stored
    std::vector<float> scales;
    std::vector<std::int32_t> g_idx;
    std::vector<std::uint32_t> words, zero_words;
    std::vector<float> scale_tensor;
    std::int64_t k_words, n_words;
  } w13, w2;

  RandomWna16(Format f, int b, std::int64_t hidden, std::int64_t inter, std::int64_t group, bool with_zeros,
              bool with_order, unsigned seed)
      : format(f), bits(b), h(hidden), i(inter), g(group), zeros(with_zeros), order(with_order) {
    std::mt19937 rng(seed);
    w13 = matrix(2 * i, h, rng);
    w2 = matrix(h, i, rng);
  }

  Matrix matrix(std::int64_t n, std::int64_t k, std::mt19937& rng) const {
    Matrix m{n, k, g == -1 ? 1 : k / g, {}, {}, {}, {}, {}, {}, {}, 0, 0};
    const unsigned range = 1u << bits, pf = 32 / static_cast<unsigned>(bits);
    const bool narrow = is_narrow(format);
    for (std::int64_t j = 0; j < n * k; ++j) m.codes.push_back(static_cast<std::uint8_t>(rng() % range));
    for (std::int64_t j = 0; j < n * m.groups; ++j) {
      m.zeros.push_back(static_cast<std::uint8_t>(rng() % (range - 1)));
      m.scales.push_back(0.001f * static_cast<float>(static_cast<int>(rng() % 101) - 50));
    }
    for (std::int64_t j = 0; j < k; ++j) m.g_idx.push_back(static_cast<std::int32_t>(j / (k / m.groups)));
    if (order) std::shuffle(m.g_idx.begin(), m.g_idx.end(), rng);
    m.k_words = narrow ? (k * bits + 31) / 32 : (k + pf - 1) / pf;
    m.n_words = narrow ? (n * bits + 31) / 32 : (n + pf - 1) / pf;
    const bool awq = format == Format::awq, k_first = awq || format == Format::gptq;
    const auto put = [&](std::vector<std::uint32_t>& words, std::size_t at, std::int64_t c, std::uint8_t v) {
      constexpr unsigned kInv4[] = {0, 4, 1, 5, 2, 6, 3, 7}, kInv8[] = {0, 2, 1, 3};
      const unsigned p = !awq ? static_cast<unsigned>(c) % pf : bits == 4 ? kInv4[c % 8] : kInv8[c % 4];
      words[at] |= static_cast<std::uint32_t>(v) << (static_cast<unsigned>(bits) * p);
    };
    m.words.assign(static_cast<std::size_t>(awq ? k * m.n_words : m.k_words * n), 0);
    m.zero_words.assign(static_cast<std::size_t>(m.n_words * m.groups), 0);
    m.scale_tensor.resize(m.scales.size());
    // Bit by bit, in words that are `step` apart.
    const auto stream = [&](std::vector<std::uint32_t>& words, std::int64_t first, std::int64_t step, std::int64_t c,
                            std::uint8_t v) {
      for (std::int64_t b = c * bits; b < (c + 1) * bits; ++b)
        words[static_cast<std::size_t>(first + b / 32 * step)] |= (v >> (b - c * bits) & 1u) << b % 32;
    };
    for (std::int64_t r = 0; narrow && r < n; ++r) {
      for (std::int64_t c = 0; c < k; ++c)
        stream(m.words, r * m.k_words, 1, c, m.codes[static_cast<std::size_t>(r * k + c)]);
      for (std::int64_t c = 0; c < m.groups; ++c)
        stream(m.zero_words, c, m.groups, r, m.zeros[static_cast<std::size_t>(r * m.groups + c)]);
    }
    if (narrow) m.scale_tensor = m.scales;
    for (std::int64_t r = 0; !narrow && r < n; ++r) {
      for (std::int64_t c = 0; c < k; ++c) {
        const std::int64_t at = awq ? c * m.n_words + r / pf : k_first ? c / pf * n + r : r * m.k_words + c / pf;
        put(m.words, static_cast<std::size_t>(at), awq ? r : c, m.codes[static_cast<std::size_t>(r * k + c)]);
      }
      for (std::int64_t c = 0; c < m.groups; ++c) {
        const auto from = static_cast<std::size_t>(r * m.groups + c);
        m.scale_tensor[k_first ? static_cast<std::size_t>(c * n + r) : from] = m.scales[from];
        const std::int64_t at = k_first ? c * m.n_words + r / pf : r / pf * m.groups + c;
        const auto word = static_cast<std::size_t>(at);
        if (awq)
          put(m.zero_words, word, r, m.zeros[from]);
        else
          m.zero_words[word] |= static_cast<std::uint32_t>(m.zeros[from])
                                << (static_cast<unsigned>(bits) * static_cast<unsigned>(r % pf));
      }
    }
    return m;
  }

  World world(ZeroPoints convention = ZeroPoints::as_stored) const {
    World w;
    w.job.set = set_of(format);
    w.job.layout = p16_layout(bits <= 4 ? LayoutKind::p16_w4 : LayoutKind::p16_w8, {.experts = 1,
                                                                                    .hidden = h,
                                                                                    .intermediate = i,
                                                                                    .groups = Groups::of_size(g),
                                                                                    .gated = true,
                                                                                    .has_bias = false,
                                                                                    .has_zeros = zeros,
                                                                                    .has_order = order});
    w.job.groups = Groups::of_size(g);
    w.job.symmetric = !zeros;
    w.job.act_order = order;
    w.job.zero_points = convention;
    w.job.experts = {0};
    const bool awq = format == Format::awq, k_first = awq || format == Format::gptq;
    for (const bool up : {true, false}) {
      const Matrix& m = up ? w13 : w2;
      const auto shape = [&](std::int64_t a, std::int64_t b, DType t, const void* p) {
        return k_first ? row_major(t, {b, a}, p) : row_major(t, {a, b}, p);
      };
      w.source.set(
          up ? Role::w13_weight : Role::w2_weight, 0,
          awq ? shape(m.n_words, m.k, DType::i32, m.words.data()) : shape(m.n, m.k_words, DType::i32, m.words.data()));
      w.source.set(up ? Role::w13_scale : Role::w2_scale, 0, shape(m.n, m.groups, DType::f32, m.scale_tensor.data()));
      if (zeros)
        w.source.set(up ? Role::w13_zero_point : Role::w2_zero_point, 0,
                     shape(m.n_words, m.groups, DType::i32, m.zero_words.data()));
      if (order) w.source.set(up ? Role::w13_g_idx : Role::w2_g_idx, 0, row_major(DType::i32, {m.k}, m.g_idx.data()));
    }
    return w;
  }

  float value(const Matrix& m, std::int64_t n, std::int64_t k, int more) const {
    const auto at = static_cast<std::size_t>(n * m.groups + m.g_idx[static_cast<std::size_t>(k)]);
    const int zero = zeros ? m.zeros[at] + more : 1 << (bits - 1);
    return static_cast<float>(m.codes[static_cast<std::size_t>(n * m.k + k)] - zero) * m.scales[at];
  }
};

}  // namespace moe::test
