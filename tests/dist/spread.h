// A small layer as a checkpoint's file, run whole, and spread over the threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/capi.h"
#include "support/float4_model.h"
#include "support/float8_model.h"
#include "support/ranks.h"
#include "support/rooms.h"
#include "support/temp_dir.h"
#include "support/wna16_model.h"

namespace moe::test {

struct Sample {
  std::string name, config;
  std::shared_ptr<TempDir> dir;  // model.safetensors
  moe_dtype dtype = MOE_DTYPE_F32;
  std::int64_t T = 0, H = 0, K = 0;
  std::vector<std::byte> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<std::byte> logits;  // [T, G] f32, of router_logits mode

  std::size_t row_bytes() const { return static_cast<std::size_t>(H) * (dtype == MOE_DTYPE_F32 ? 4 : 2); }
  ConfigPtr make() const { return make_config(config); }
  // With members of the config replaced.
  Sample with(const nlohmann::json& more) const;
};

constexpr const char* kModule = "model.layers.0.mlp.experts";

// `file`: of safetensors, its names begin with kModule.
Sample sample(std::string name, const std::string& config, const std::string& file, moe_dtype dtype,
              std::int64_t tokens, std::uint32_t seed = 1);
// `tokens` tokens with all kinds of ids: -1, a whole token of it, the same expert twice.
Sample int4_sample(Model m, std::int64_t tokens, std::uint32_t seed = 1);
Sample int8_sample(Wna16Model m, std::int64_t tokens);
Sample float8_sample(Float8Model m, std::int64_t tokens);
Sample float4_sample(Float4Model m, std::int64_t tokens);
Sample plain_sample(const std::string& dtype, std::int64_t experts, std::int64_t tokens);
// One of each kind of weights.
std::vector<Sample> all_formats(std::int64_t tokens);

LayerPtr layer_of(const Sample& s, const moe_config* config, moe_context* ctx = nullptr);
// What moe_apply gives in one process.
std::vector<std::byte> whole_output(const Sample& s, bool routes = false);

// Tokens [first, first + count) of a sample, as a call.
struct Part {
  Part(const Sample& s, std::int64_t first, std::int64_t count, bool routes = false);
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  std::vector<std::byte> out;
  moe_tensor hidden, ids, weights, logits, result;
  moe_apply_args args{};
};

// fn(rank, comm) on a thread for each rank.
using OnRank = std::function<void(int rank, moe_comm* comm)>;
void on_ranks(int size, const OnRank& fn, const std::string& options = "{\"timeout_ms\":20000}");

DistPtr make_dist(moe_comm* comm, const moe_config* config, const std::string& options, moe_context* ctx = nullptr);
// The layer of this rank's part.
LayerPtr own_layer(const Sample& s, const moe_dist* dist, moe_context* ctx = nullptr);
// Created, with its layer attached.
struct Spread {
  Spread(const Sample& s, moe_comm* comm, const std::string& options = "{}", moe_context* ctx = nullptr);
  ConfigPtr config;
  DistPtr dist;
  LayerPtr layer;
  nlohmann::json told() const;
};

// How many tokens each rank has: evenly, none on the first, all on the last, none at all, ever more.
enum class Cut { even, one_empty, all_on_one, skewed, none };
constexpr Cut kCuts[] = {Cut::even, Cut::one_empty, Cut::all_on_one, Cut::skewed, Cut::none};
std::vector<std::int64_t> cut_tokens(Cut cut, std::int64_t tokens, int ranks);

// The outputs of all ranks one after another.
std::vector<std::byte> spread_output(const Sample& s, int ranks, Cut cut, const std::string& options = "{}",
                                     bool routes = false, const std::string& context = "");

}  // namespace moe::test
