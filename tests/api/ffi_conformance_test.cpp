// A caller that has nothing but the library and its description (no header, no compiler) can use everything.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/ffi_world.h"
#include "support/rooms.h"

namespace moe::test::ffi_conformance_test {
namespace {

TEST(FfiConformance, EveryFunctionTakesNullAndZero) {
  const FfiLibrary lib(MOE_LIBRARY);
  int called = 0;
  for (const json& f : lib.abi()["functions"]) {
    const std::string name = f["name"];
    ASSERT_NE(lib.symbol(name), nullptr) << name;
    const Word r = lib.call(name, std::vector<Word>(f["params"].size()));
    const std::string returns = f["returns"];
    const bool fallible = returns == "i32:moe_status" && !f["params"].empty() && f["params"].back()["name"] == "err" &&
                          name != "moe_error_status";
    if (fallible && name != "moe_platform_create" && name != "moe_context_create") {
      EXPECT_EQ(static_cast<std::int32_t>(r), MOE_ERR_INVALID_ARGUMENT) << name;
    }
    if (returns == "cstr") {
      EXPECT_NE(r, 0U) << name;
    }
    if (name == "moe_error_create") lib.call("moe_error_destroy", {r});
    ++called;
  }
  EXPECT_GE(called, 80);
}

TEST(FfiConformance, FallibleFunctionsListTheirStatuses) {
  const FfiLibrary lib(MOE_LIBRARY);
  int lists = 0, without = 0;
  for (const json& f : lib.abi()["functions"]) {
    const bool fallible = f["returns"] == "i32:moe_status" && f["name"] != "moe_error_status";
    ASSERT_EQ(f.contains("statuses"), fallible) << f["name"];
    if (!fallible) continue;
    EXPECT_EQ(f["statuses"][0], "MOE_OK") << f["name"];
    EXPECT_NO_THROW(lib.expect_listed(f, MOE_ERR_OUT_OF_MEMORY)) << f["name"];
    ++lists;
    if (std::find(f["statuses"].begin(), f["statuses"].end(), "MOE_ERR_COMM") != f["statuses"].end()) continue;
    ++without;  // all but those of several ranks
    EXPECT_THROW(lib.expect_listed(f, MOE_ERR_COMM), std::runtime_error) << f["name"];
  }
  EXPECT_GE(without, 44);
  EXPECT_GE(lists, 44);
}

TEST(FfiConformance, TheDescriptionIsTheHeaders) {
  const FfiLibrary lib(MOE_LIBRARY);
  EXPECT_EQ(lib.abi(), json::parse(moe_abi_json()));
  EXPECT_EQ(lib.value("MOE_ERR_CONFIG_MISMATCH"), MOE_ERR_CONFIG_MISMATCH);
  EXPECT_EQ(lib.value("MOE_DTYPE_F4_E2M1FN"), MOE_DTYPE_F4_E2M1FN);
  EXPECT_EQ(lib.value("MOE_REJECT_CUSTOM"), MOE_REJECT_CUSTOM);
  EXPECT_EQ(lib.item("structs", "moe_tensor")["size"], sizeof(moe_tensor));
  EXPECT_EQ(lib.item("structs", "moe_apply_args")["size"], sizeof(moe_apply_args));
  EXPECT_EQ(lib.item("structs", "moe_convert_options")["size"], sizeof(moe_convert_options));
}

TEST(FfiConformance, FourStepsGiveTheSameBits) {
  FfiWorld w;
  Word err = 0;
  ASSERT_EQ(w.lib.status("moe_apply", {w.layer, w.struct_of("moe_apply_args").word(), word_of(&err)}), MOE_OK);
  const Steps s = four_steps(w.model);
  Call call(w.model);
  ASSERT_EQ(moe_apply(s.layer.get(), &call.args, nullptr), MOE_OK);
  EXPECT_EQ(w.out_bytes, call.out);
  // and the packed bytes
  Word data = 0, size = 0;
  ASSERT_EQ(w.lib.status("moe_packed_data", {w.packed, word_of(&data), word_of(&size), 0}), MOE_OK);
  const void* mine = nullptr;
  std::uint64_t my_size = 0;
  ASSERT_EQ(moe_packed_data(s.packed.get(), &mine, &my_size, nullptr), MOE_OK);
  ASSERT_EQ(size, my_size);
  EXPECT_EQ(std::memcmp(pointer_of<void>(data), mine, size), 0);
}

TEST(FfiConformance, OutputsOfEveryWidth) {
  FfiWorld w;
  Word i = ~Word{0}, text = 0;
  double d = 0;
  ASSERT_EQ(w.lib.status("moe_config_get_int", {w.config, w.keep("/hidden_dim"), word_of(&i), 0}), MOE_OK);
  EXPECT_EQ(i, 64U);
  ASSERT_EQ(w.lib.status("moe_config_get_float", {w.config, w.keep("/routing/routed_scaling_factor"), word_of(&d), 0}),
            MOE_OK);
  EXPECT_EQ(d, 1.0);
  ASSERT_EQ(w.lib.status("moe_config_get_string", {w.config, w.keep("/activation"), word_of(&text), 0}), MOE_OK);
  EXPECT_STREQ(pointer_of<const char>(text), "silu");
  FfiStruct c(w.lib, "moe_candidate");
  ASSERT_EQ(w.lib.status("moe_selection_candidate", {w.selection, 0, c.word(), 0}), MOE_OK);
  EXPECT_STREQ(pointer_of<const char>(c.get("backend")), "CPU_INT4");
  EXPECT_EQ(static_cast<std::int64_t>(w.lib.call("moe_tensor_nbytes", {1, 7, 0})), -1);
  EXPECT_EQ(w.lib.call("moe_buffer_size", {w.buffer}), 64U);
}

TEST(FfiConformance, CallbacksOfAContext) {
  FfiWorld w;
  const auto nothing = [](FfiCallback&, const std::vector<Word>&) -> Word { return 0; };
  FfiCallback log(w.lib, "moe_log_fn", [](FfiCallback& self, const std::vector<Word>& a) -> Word {
    *static_cast<std::string*>(self.context) +=
        std::string(pointer_of<const char>(a[2])) + ": " + std::string(pointer_of<const char>(a[3]), a[4]) + "\n";
    return 0;
  });
  std::string lines;
  log.context = &lines;
  FfiCallback log_end(w.lib, "moe_release_fn", nothing), parallel_end(w.lib, "moe_release_fn", nothing),
      allocator_end(w.lib, "moe_release_fn", nothing);
  w.struct_of("moe_parallel_ops").set("destroy", parallel_end.word()).set("num_threads", 3);
  w.struct_of("moe_allocator_ops").set("destroy", allocator_end.word());
  FfiStruct& callbacks = w.struct_of("moe_context_callbacks").set("log", log.word()).set("log_destroy", log_end.word());
  Word context = 0, selection = 0, packed = 0, layer = 0;
  ASSERT_EQ(w.lib.status("moe_context_create", {0, 0, callbacks.word(), word_of(&context), 0}), MOE_OK);
  ASSERT_EQ(w.lib.status("moe_select_backend", {context, w.config, 0, 0, word_of(&selection), 0}), MOE_OK);
  ASSERT_EQ(w.lib.status("moe_convert_weights", {context, selection, w.weights, 0, word_of(&packed), 0}), MOE_OK);
  ASSERT_EQ(w.lib.status("moe_layer_create", {context, selection, packed, 0, word_of(&layer), 0}), MOE_OK);
  w.lib.call("moe_context_destroy", {context});
  ASSERT_EQ(w.lib.status("moe_apply", {layer, w.struct_of("moe_apply_args").word(), 0}), MOE_OK);
  EXPECT_NE(lines.find("select: "), std::string::npos);
  EXPECT_NE(lines.find("convert: "), std::string::npos);
  EXPECT_EQ(log_end.calls + parallel_end.calls + allocator_end.calls, 0);
  w.lib.call("moe_layer_destroy", {layer});
  w.lib.call("moe_packed_destroy", {packed});
  w.lib.call("moe_selection_destroy", {selection});
  EXPECT_EQ(log_end.calls, 1);
  EXPECT_EQ(parallel_end.calls, 1);
  EXPECT_EQ(allocator_end.calls, 1);
}

TEST(FfiConformance, ProgressAndReleases) {
  FfiWorld w;
  const auto nothing = [](FfiCallback&, const std::vector<Word>&) -> Word { return 0; };
  FfiCallback progress(w.lib, "moe_progress_fn", nothing), control_end(w.lib, "moe_release_fn", nothing),
      dst_end(w.lib, "moe_release_fn", nothing), tensor_end(w.lib, "moe_release_fn", nothing);
  Word control = 0, packed = 0, weights = 0;
  ASSERT_EQ(w.lib.status("moe_control_create", {progress.word(), 0, control_end.word(), word_of(&control), 0}), MOE_OK);
  FfiStruct& options = w.struct_of("moe_convert_options").set("control", control).set("dst_release", dst_end.word());
  ASSERT_EQ(w.lib.status("moe_convert_weights", {0, w.selection, w.weights, options.word(), word_of(&packed), 0}),
            MOE_OK);
  EXPECT_GT(progress.calls, 0);
  EXPECT_EQ(dst_end.calls, 0);
  w.lib.call("moe_packed_destroy", {packed});
  EXPECT_EQ(dst_end.calls, 1);
  w.lib.call("moe_control_destroy", {control});
  EXPECT_EQ(control_end.calls, 1);
  ASSERT_EQ(w.lib.status("moe_weights_create", {w.config, word_of(&weights), 0}), MOE_OK);
  ASSERT_EQ(w.lib.status("moe_weights_set",
                         {weights, w.keep("w2_weight"), w.tensor_of("w2_weight").word(), tensor_end.word(), 0, 0}),
            MOE_OK);
  EXPECT_EQ(tensor_end.calls, 0);
  w.lib.call("moe_weights_destroy", {weights});
  EXPECT_EQ(tensor_end.calls, 1);
}

// Gives each expert's slice of the world's stacked tensors.
struct SliceSource {
  FfiWorld* world;
  int lent = 0, returned = 0;
};
Word give_slice(FfiCallback& self, const std::vector<Word>& a) {
  auto& source = *static_cast<SliceSource*>(self.context);
  const std::string role = pointer_of<const char>(a[1]);
  const Word expert = a[2];
  if (a[3] != 0) return MOE_ERR_MISSING_WEIGHT;
  for (const char* known : {"w13_weight", "w2_weight", "w13_scale", "w2_scale"}) {
    if (role != known) continue;
    FfiStruct& all = source.world->tensor_of(role);
    FfiStruct one(source.world->lib, "moe_tensor");
    std::int64_t shape[2] = {};
    one.set("dtype", all.get("dtype")).set("ndim", 2);
    for (std::size_t d = 0; d < 2; ++d) {
      shape[d] = static_cast<std::int64_t>(all.get("shape", d + 1));
      one.set("shape", static_cast<Word>(shape[d]), d);
    }
    const Word bytes = source.world->lib.call("moe_tensor_nbytes", {all.get("dtype"), 2, word_of(shape)});
    one.set("data", all.get("data") + expert * bytes);
    std::memcpy(pointer_of<void>(a[4]), one.data(), one.layout()["size"].get<std::size_t>());
    ++source.lent;
    return MOE_OK;
  }
  return MOE_ERR_MISSING_WEIGHT;
}

TEST(FfiConformance, AWeightSourceOfClosures) {
  FfiWorld w;
  SliceSource source{&w};
  FfiCallback get(w.lib, "moe_weight_source_ops.get", give_slice, &source);
  FfiCallback put(
      w.lib, "moe_weight_source_ops.put",
      [](FfiCallback& self, const std::vector<Word>&) -> Word {
        return static_cast<Word>(++static_cast<SliceSource*>(self.context)->returned);
      },
      &source);
  FfiCallback ended(w.lib, "moe_release_fn", [](FfiCallback&, const std::vector<Word>&) -> Word { return 0; });
  FfiStruct& ops = w.struct_of("moe_weight_source_ops")
                       .set("get", get.word())
                       .set("put", put.word())
                       .set("destroy", ended.word())
                       .set("serial", 1);
  Word weights = 0, packed = 0, err = 0;
  ASSERT_EQ(w.lib.status("moe_weights_create_from_source", {w.config, ops.word(), word_of(&weights), 0}), MOE_OK);
  ASSERT_EQ(w.lib.status("moe_convert_weights", {0, w.selection, weights, 0, word_of(&packed), word_of(&err)}), MOE_OK)
      << w.lib.text("moe_error_message", {err});
  EXPECT_GT(source.lent, 0);
  EXPECT_EQ(source.lent, source.returned);
  Word mine[2], other[2];
  ASSERT_EQ(w.lib.status("moe_packed_data", {packed, word_of(&mine[0]), word_of(&mine[1]), 0}), MOE_OK);
  ASSERT_EQ(w.lib.status("moe_packed_data", {w.packed, word_of(&other[0]), word_of(&other[1]), 0}), MOE_OK);
  ASSERT_EQ(mine[1], other[1]);
  EXPECT_EQ(std::memcmp(pointer_of<void>(mine[0]), pointer_of<void>(other[0]), mine[1]), 0);
  w.lib.call("moe_packed_destroy", {packed});
  EXPECT_EQ(ended.calls, 0);
  w.lib.call("moe_weights_destroy", {weights});
  EXPECT_EQ(ended.calls, 1);
}

TEST(FfiConformance, LoadedAndUnloadedManyTimes) {
  for (int i = 0; i < 50; ++i) {
    FfiWorld w;
    ASSERT_EQ(w.lib.status("moe_apply", {w.layer, w.struct_of("moe_apply_args").word(), 0}), MOE_OK);
  }
}

}  // namespace
}  // namespace moe::test::ffi_conformance_test
