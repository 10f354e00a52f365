// Source weights through the ABI: releases in every outcome, callback sources, reading back.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <set>

#include "support/capi.h"
#include "support/rooms.h"

namespace moe::test::weights_test {
namespace {

WeightsPtr empty_weights(const moe_config* config) {
  return make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config, o, e); });
}

class Weights : public testing::Test {
 protected:
  Model m = random_model();
  ConfigPtr config = make_config(m.config_text());
  WeightsPtr w = empty_weights(config.get());
  int released = 0;
  moe_tensor w13 = tensor(MOE_DTYPE_I8, {m.E, 2 * m.I, m.H}, m.w13.data());

  Failure set(const char* role, const moe_tensor* t) {
    return failure([&](moe_error** e) { return moe_weights_set(w.get(), role, t, count_release, &released, e); });
  }
  Failure set_expert(const char* role, std::int64_t expert, const char* shard, const moe_tensor* t) {
    return failure([&](moe_error** e) {
      return moe_weights_set_expert(w.get(), role, expert, shard, t, count_release, &released, e);
    });
  }
};

TEST_F(Weights, ReleasedOnceWhereverTheCallFails) {
  struct Row {
    const char* what;
    moe_status status;
    const char *role, *subject;
    void (*spoil)(moe_tensor&);
  };
  const Row rows[] = {
      {"unknown role", MOE_ERR_INVALID_ARGUMENT, "w99", "role", [](moe_tensor&) {}},
      {"role without place", MOE_ERR_UNEXPECTED_WEIGHT, "w13_zero_point", "w13_zero_point", [](moe_tensor&) {}},
      {"struct_size", MOE_ERR_INVALID_ARGUMENT, "w13_weight", "tensor", [](moe_tensor& t) { t.struct_size = 4; }},
      {"newer struct", MOE_ERR_INVALID_ARGUMENT, "w13_weight", "tensor", [](moe_tensor& t) { t.struct_size = 5000; }},
      {"rank", MOE_ERR_SHAPE, "w13_weight", "w13_weight", [](moe_tensor& t) { t.ndim = 2; }},
      {"extent", MOE_ERR_SHAPE, "w13_weight", "w13_weight", [](moe_tensor& t) { t.shape[0] = 3; }},
      {"dtype", MOE_ERR_DTYPE, "w13_weight", "w13_weight", [](moe_tensor& t) { t.dtype = MOE_DTYPE_F8_E5M2; }},
      {"data", MOE_ERR_INVALID_ARGUMENT, "w13_weight", "tensor", [](moe_tensor& t) { t.data = nullptr; }},
  };
  for (const Row& r : rows) {
    released = 0;
    moe_tensor t = w13;
    r.spoil(t);
    const Failure f = set(r.role, &t);
    EXPECT_EQ(f.status, r.status) << r.what << ": " << f.message;
    EXPECT_EQ(f.subject, r.subject) << r.what << ": " << f.message;
    EXPECT_EQ(released, 1) << r.what;
  }
  released = 0;
  EXPECT_EQ(moe_weights_set(nullptr, "w13_weight", &w13, count_release, &released, nullptr), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(moe_weights_set(w.get(), nullptr, &w13, count_release, &released, nullptr), MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(moe_weights_set(w.get(), "w13_weight", nullptr, count_release, &released, nullptr),
            MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(moe_weights_set(reinterpret_cast<moe_weights*>(config.get()), "w13_weight", &w13, count_release, &released,
                            nullptr),
            MOE_ERR_INVALID_HANDLE);
  EXPECT_EQ(released, 4);
}

TEST_F(Weights, ReleasedWhenReplacedAndAtTheEnd) {
  EXPECT_EQ(set("w13_weight", &w13).status, MOE_OK);
  EXPECT_EQ(released, 0);
  EXPECT_EQ(set("w13", &w13).status, MOE_OK);  // the other name of the same place
  EXPECT_EQ(released, 1);
  w.reset();
  EXPECT_EQ(released, 2);
}

TEST_F(Weights, HalvesFitTheirRole) {
  const moe_tensor half = tensor(MOE_DTYPE_I8, {m.I, m.H}, m.w13.data()),
                   whole = tensor(MOE_DTYPE_I8, {2 * m.I, m.H}, m.w13.data());
  const moe_tensor w2 = tensor(MOE_DTYPE_I8, {m.H, m.I}, m.w2.data());
  EXPECT_EQ(set_expert("w13_weight", 0, "w1", &half).status, MOE_OK);
  EXPECT_EQ(set_expert("w13_weight", 0, "w3", &half).status, MOE_OK);
  EXPECT_EQ(set_expert("w13_weight", 1, nullptr, &whole).status, MOE_OK);
  EXPECT_EQ(set_expert("w13_weight", 2, "w13", &whole).status, MOE_OK);
  EXPECT_EQ(set_expert("w2_weight", 0, "w2", &w2).status, MOE_OK);
  for (const auto& [role, shard] :
       {std::pair{"w13_weight", "w2"}, std::pair{"w13_weight", ""}, std::pair{"w13_weight", "w4"},
        std::pair{"w2_weight", "w1"}, std::pair{"w2_weight", "w13"}}) {
    const Failure f = set_expert(role, 0, shard, &w2);
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT) << role << shard;
    EXPECT_EQ(f.subject, "shard");
  }
  EXPECT_EQ(set("w13_weight", &w13).status, MOE_ERR_STATE);  // stacked beside per expert
  for (const std::int64_t expert : {std::int64_t{-1}, m.E, INT64_MAX, INT64_MIN})
    EXPECT_EQ(set_expert("w2_weight", expert, nullptr, &w2).status, MOE_ERR_INVALID_ARGUMENT) << expert;
}

TEST_F(Weights, NamedTensors) {
  const moe_tensor gate = tensor(MOE_DTYPE_I8, {m.I, m.H}, m.w13.data());
  std::int32_t consumed = 7;
  const auto named = [&](const char* name) {
    return failure([&](moe_error** e) {
      return moe_weights_set_named(w.get(), name, &gate, count_release, &released, &consumed, e);
    });
  };
  EXPECT_EQ(named("model.layers.0.mlp.experts.1.gate_proj.weight").status, MOE_OK);
  EXPECT_EQ(consumed, 1);
  EXPECT_EQ(released, 0);
  EXPECT_EQ(named("model.layers.1.mlp.experts.1.gate_proj.weight").status, MOE_OK);
  EXPECT_EQ(consumed, 0);
  EXPECT_EQ(released, 1);  // not ours: given back at once
  consumed = 7;
  EXPECT_EQ(named("model.layers.0.mlp.experts.1.gate_proj.weight_zero_point").status, MOE_ERR_UNEXPECTED_WEIGHT);
  EXPECT_EQ(consumed, 0);
  EXPECT_EQ(released, 2);
}

TEST_F(Weights, ReportsWhatIsMissing) {
  EXPECT_EQ(set("w13_weight", &w13).status, MOE_OK);
  const auto j = json_of([&](moe_buffer** o, moe_error** e) { return moe_weights_to_json(w.get(), o, e); });
  EXPECT_EQ(j["complete"], false);
  EXPECT_FALSE(j["missing"].empty());
  const SelectionPtr s = make_selection(config.get());
  moe_packed* out = nullptr;
  const Failure f =
      failure([&](moe_error** e) { return moe_convert_weights(nullptr, s.get(), w.get(), nullptr, &out, e); });
  EXPECT_EQ(f.status, MOE_ERR_MISSING_WEIGHT);
  EXPECT_NE(f.message.find("w2_weight"), std::string::npos);
  EXPECT_NE(f.message.find("w13_scale"), std::string::npos);
}

TEST_F(Weights, ReadingBack) {
  w = make_weights(config.get(), m);
  moe_tensor t{};
  t.struct_size = sizeof t;
  moe_buffer* hold = nullptr;
  ASSERT_EQ(moe_weights_get(w.get(), "w2_weight", 1, &t, &hold, nullptr), MOE_OK);
  const BufferPtr owned(hold);
  EXPECT_EQ(t.ndim, 2);
  EXPECT_EQ(t.shape[0], m.H);
  EXPECT_EQ(std::memcmp(t.data, m.w2.data() + m.H * m.I, static_cast<std::size_t>(m.H * m.I)), 0);
  moe_buffer* all = nullptr;
  ASSERT_EQ(moe_weights_get(w.get(), "w2", -1, &t, &all, nullptr), MOE_OK);
  moe_buffer_destroy(all);
  EXPECT_EQ(t.ndim, 3);
  EXPECT_EQ(t.shape[0], m.E);
  const moe_tensor before = t;
  const Failure f = failure([&](moe_error** e) { return moe_weights_get(w.get(), "w2_weight", m.E, &t, &all, e); });
  EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT) << f.message;
  EXPECT_EQ(std::memcmp(&before, &t, sizeof t), 0);
}

// --- a source of callbacks --------------------------------------------------------------------------
struct Source {
  Model m = random_model();
  std::mutex mutex;
  std::atomic<int> gets{0}, puts{0}, inside{0}, most{0};
  int ended = 0, fail_at = -1;
  moe_status failure = MOE_ERR_IO;
  bool wrong_shape = false, stale_error = false, by_columns = false;
  std::vector<std::int8_t> columns;
  std::function<void(const std::string&)> before;
  moe_weight_source_ops ops{
      sizeof(moe_weight_source_ops), 0, this, get, put, [](void* u) { ++static_cast<Source*>(u)->ended; }};

  static moe_status get(void* u, const char* role, std::int64_t expert, const char* shard, moe_tensor* out,
                        moe_error** err) {
    auto& s = *static_cast<Source*>(u);
    const int now = ++s.inside;
    int most = s.most;
    while (now > most && !s.most.compare_exchange_weak(most, now)) {
    }
    const moe_status r = s.answer(role, expert, shard, out, err);
    --s.inside;
    return r;
  }
  moe_status answer(const std::string& role, std::int64_t expert, const char* shard, moe_tensor* out, moe_error** err) {
    EXPECT_NE(err, nullptr);
    EXPECT_EQ(out->struct_size, sizeof *out);
    EXPECT_EQ(out->data, nullptr);
    if (before) before(role);
    const int n = gets++;
    if (n == fail_at) {
      *err = moe_error_create(failure, "the disk is gone", MOE_NUL_TERMINATED);
      return failure;
    }
    if (stale_error) *err = moe_error_create(MOE_ERR_IO, "but it worked", MOE_NUL_TERMINATED);
    if (shard != nullptr) return MOE_ERR_MISSING_WEIGHT;
    for (const StackedTensor& t : stacked(m)) {
      if (role != t.role) continue;
      *out = t.tensor;
      out->ndim = 2;
      out->shape[0] = t.tensor.shape[1];
      out->shape[1] = t.tensor.shape[2] + (wrong_shape ? 1 : 0);
      out->shape[2] = 0;
      const std::int64_t one = moe_tensor_nbytes(out->dtype, 2, t.tensor.shape + 1);
      out->data = static_cast<char*>(t.tensor.data) + expert * one;
      if (by_columns && out->dtype == MOE_DTYPE_I8) lay_by_columns(out);
      ++lent;
      return MOE_OK;
    }
    return MOE_ERR_MISSING_WEIGHT;
  }
  void lay_by_columns(moe_tensor* t) {
    const std::int64_t rows = t->shape[0], count = rows * t->shape[1];
    columns.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      columns[static_cast<std::size_t>(i % t->shape[1] * rows + i / t->shape[1])] =
          static_cast<const std::int8_t*>(t->data)[i];
    t->data = columns.data();
    t->strides[0] = 1;
    t->strides[1] = rows;
  }
  static void put(void* u, const char*, std::int64_t, const char*, const moe_tensor* t) {
    auto& s = *static_cast<Source*>(u);
    EXPECT_NE(t->data, nullptr);
    ++s.puts;
  }
  std::atomic<int> lent{0};
};

struct Converted {
  moe_status status;
  Failure failure;
  std::vector<char> bytes;
};
Converted convert_from(Source& source, const char* context = "{\"threads\":3}") {
  const ContextPtr ctx = make_context(context);
  const ConfigPtr config = make_config(source.m.config_text());
  const SelectionPtr selection = make_selection(config.get());
  const WeightsPtr w = make<WeightsPtr>(
      [&](moe_weights** o, moe_error** e) { return moe_weights_create_from_source(config.get(), &source.ops, o, e); });
  moe_packed* out = nullptr;
  Converted c{};
  c.failure = failure(
      [&](moe_error** e) { return moe_convert_weights(ctx.get(), selection.get(), w.get(), nullptr, &out, e); });
  c.status = c.failure.status;
  const PackedPtr packed(out);
  if (out != nullptr) {
    const void* data = nullptr;
    std::uint64_t size = 0;
    EXPECT_EQ(moe_packed_data(out, &data, &size, nullptr), MOE_OK);
    c.bytes.assign(static_cast<const char*>(data), static_cast<const char*>(data) + size);
  }
  EXPECT_EQ(source.ended, 0);
  return c;
}

TEST(WeightSource, GivesTheBytesOfStackedTensors) {
  for (const int serial : {0, 1}) {
    Source source;
    source.ops.serial = serial;
    source.stale_error = serial == 1;
    const Converted c = convert_from(source);
    ASSERT_EQ(c.status, MOE_OK) << c.failure.message;
    const Steps s = four_steps(source.m);
    const void* data = nullptr;
    std::uint64_t size = 0;
    ASSERT_EQ(moe_packed_data(s.packed.get(), &data, &size, nullptr), MOE_OK);
    ASSERT_EQ(c.bytes.size(), size);
    EXPECT_EQ(std::memcmp(c.bytes.data(), data, size), 0);
    EXPECT_EQ(source.lent, source.puts);
    EXPECT_EQ(source.ended, 1);
    if (serial == 1) {
      EXPECT_EQ(source.most, 1);
    }
  }
}

// A gate may be computed from what the set says of another tensor.
TEST(WeightSource, IsAskedByItself) {
  for (const int serial : {0, 1}) {
    Source source;
    source.ops.serial = serial;
    const ConfigPtr config = make_config(source.m.config_text());
    moe_weights* set = nullptr;
    int asked = 0;
    source.before = [&](const std::string& role) {
      if (role != "w13_weight") return;
      moe_tensor t{};
      t.struct_size = sizeof t;
      moe_buffer* hold = nullptr;
      EXPECT_EQ(moe_weights_get(set, "w2_weight", 1, &t, &hold, nullptr), MOE_OK);
      moe_buffer_destroy(hold);
      ++asked;
    };
    const WeightsPtr w = make<WeightsPtr>([&](moe_weights** o, moe_error** e) {
      return moe_weights_create_from_source(config.get(), &source.ops, o, e);
    });
    set = w.get();
    moe_tensor t{};
    t.struct_size = sizeof t;
    moe_buffer* hold = nullptr;
    EXPECT_EQ(moe_weights_get(set, "w13_weight", 0, &t, &hold, nullptr), MOE_OK);
    moe_buffer_destroy(hold);
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(source.lent, source.puts);
  }
}

TEST(WeightSource, ReadsBackWhatLiesByColumns) {
  Source source;
  source.by_columns = true;
  const ConfigPtr config = make_config(source.m.config_text());
  const WeightsPtr w = make<WeightsPtr>(
      [&](moe_weights** o, moe_error** e) { return moe_weights_create_from_source(config.get(), &source.ops, o, e); });
  moe_tensor t{};
  t.struct_size = sizeof t;
  moe_buffer* hold = nullptr;
  ASSERT_EQ(moe_weights_get(w.get(), "w2_weight", 1, &t, &hold, nullptr), MOE_OK);
  const BufferPtr owned(hold);
  const std::int64_t size = source.m.H * source.m.I;
  EXPECT_EQ(t.strides[0], source.m.I);
  EXPECT_EQ(t.strides[1], 1);
  EXPECT_EQ(std::memcmp(t.data, source.m.w2.data() + size, static_cast<std::size_t>(size)), 0);
}

TEST(WeightSource, FailuresCarryTheirCause) {
  for (int n = 0; n < 12; ++n) {
    Source source;
    source.fail_at = n;
    const Converted c = convert_from(source);
    EXPECT_EQ(c.status, MOE_ERR_CALLBACK);
    EXPECT_EQ(c.failure.details["cause"]["status"], "MOE_ERR_IO");
    EXPECT_EQ(c.failure.details["cause"]["message"], "the disk is gone");
    EXPECT_EQ(source.lent, source.puts);
    EXPECT_EQ(source.ended, 1);
  }
}

TEST(WeightSource, CancelledPasses) {
  Source source;
  source.fail_at = 3;
  source.failure = MOE_ERR_CANCELLED;
  EXPECT_EQ(convert_from(source).status, MOE_ERR_CANCELLED);
  EXPECT_EQ(source.lent, source.puts);
}

TEST(WeightSource, WrongShapesAreRefusedAndGivenBack) {
  Source source;
  source.wrong_shape = true;
  const Converted c = convert_from(source);
  EXPECT_EQ(c.status, MOE_ERR_SHAPE) << c.failure.message;
  EXPECT_EQ(source.lent, source.puts);
}

TEST(WeightSource, EndedOnceWhenRefused) {
  const ConfigPtr config = make_config(random_model().config_text());
  moe_weights* out = nullptr;
  {
    Source s;
    s.ops.get = nullptr;
    const Failure f =
        failure([&](moe_error** e) { return moe_weights_create_from_source(config.get(), &s.ops, &out, e); });
    EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(f.subject, "get");
    EXPECT_EQ(s.ended, 1);
  }
  {
    Source s;
    s.ops.serial = 2;
    EXPECT_EQ(moe_weights_create_from_source(config.get(), &s.ops, &out, nullptr), MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(moe_weights_create_from_source(nullptr, &s.ops, &out, nullptr), MOE_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(s.ended, 2);
  }
}

TEST(WeightSource, TensorsReadBackOutliveTheirLease) {
  Source source;
  const ConfigPtr config = make_config(source.m.config_text());
  const WeightsPtr w = make<WeightsPtr>(
      [&](moe_weights** o, moe_error** e) { return moe_weights_create_from_source(config.get(), &source.ops, o, e); });
  moe_tensor t{};
  t.struct_size = sizeof t;
  moe_buffer* hold = nullptr;
  ASSERT_EQ(moe_weights_get(w.get(), "w2_weight", 2, &t, &hold, nullptr), MOE_OK);
  const BufferPtr owned(hold);
  EXPECT_NE(hold, nullptr);
  EXPECT_EQ(source.lent, source.puts);
  EXPECT_EQ(t.data, moe_buffer_data(hold));
  EXPECT_EQ(std::memcmp(t.data, source.m.w2.data() + 2 * source.m.H * source.m.I,
                        static_cast<std::size_t>(source.m.H * source.m.I)),
            0);
}

}  // namespace
}  // namespace moe::test::weights_test
