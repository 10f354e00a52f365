// Error objects and the names of statuses; handles of the wrong kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "api/guard.h"
#include "support/capi.h"
#include "support/rooms.h"
#include "support/safetensors_writer.h"

extern "C" moe_status __wrap_moe_apply(const moe_layer* layer, const moe_apply_args* args, moe_error** err);

namespace moe::test::error_test {
namespace {

TEST(Error, ObjectOfACallback) {
  const char text[] = {'d', 'i', 's', 'k', '!'};  // no NUL
  const ErrorPtr e(moe_error_create(MOE_ERR_IO, text, 4));
  EXPECT_EQ(moe_error_status(e.get()), MOE_ERR_IO);
  EXPECT_STREQ(moe_error_message(e.get()), "disk");
  EXPECT_STREQ(moe_error_subject(e.get()), "");
  const auto d = nlohmann::json::parse(moe_error_details_json(e.get()));
  EXPECT_EQ(d["status"], "MOE_ERR_IO");
  EXPECT_EQ(d["message"], "disk");
}

TEST(Error, IsNeverOk) {
  const ErrorPtr e(moe_error_create(MOE_OK, "x", MOE_NUL_TERMINATED));
  EXPECT_EQ(moe_error_status(e.get()), MOE_ERR_INTERNAL);
  const ErrorPtr empty(moe_error_create(MOE_ERR_CANCELLED, nullptr, 0));
  EXPECT_EQ(moe_error_status(empty.get()), MOE_ERR_CANCELLED);
  const ErrorPtr foreign(moe_error_create(12345, "from a newer library", MOE_NUL_TERMINATED));
  EXPECT_EQ(moe_error_status(foreign.get()), 12345);
}

TEST(Error, AccessorsTakeNull) {
  EXPECT_EQ(moe_error_status(nullptr), MOE_OK);
  EXPECT_STREQ(moe_error_message(nullptr), "");
  EXPECT_STREQ(moe_error_subject(nullptr), "");
  EXPECT_STREQ(moe_error_details_json(nullptr), "{}");
  moe_error_destroy(nullptr);
}

// --- texts ------------------------------------------------------------------------------------------------

bool has_control_character(const std::string& s) {
  for (std::size_t i = 0; i < s.size(); ++i) {
    const auto c = static_cast<unsigned char>(s[i]), next = static_cast<unsigned char>(i + 1 < s.size() ? s[i + 1] : 0);
    if (c < 0x20 || c == 0x7f || (c == 0xc2 && next < 0xa0)) return true;
  }
  return false;
}

// What moe.h says of the three texts, by nlohmann's decoder: it throws at what is no UTF-8.
void expect_clean(const moe_error* e, const std::string& what) {
  const std::string message = moe_error_message(e), subject = moe_error_subject(e), details = moe_error_details_json(e);
  for (const std::string& s : {message, subject, details}) {
    EXPECT_NO_THROW((void)nlohmann::json(s).dump()) << what;
    EXPECT_FALSE(has_control_character(s)) << what << ": " << s;
  }
  const auto d = nlohmann::json::parse(details, nullptr, false);
  ASSERT_FALSE(d.is_discarded()) << what << ": " << details;
  EXPECT_EQ(d["message"].get<std::string>(), message) << what;  // so no NUL ended one early
  EXPECT_EQ(d["subject"].get<std::string>(), subject) << what;
  EXPECT_FALSE(!subject.empty() && message.starts_with(subject + ":")) << what << ": the subject is repeated";
}

// Runs a call that fails; gives its message.
template <class F>
std::string clean_failure(const std::string& what, F&& call) {
  moe_error* err = nullptr;
  EXPECT_NE(call(&err), MOE_OK) << what;
  const ErrorPtr e(err);
  expect_clean(err, what);
  return moe_error_message(err);
}

// Characters of one to four bytes, some of which steer a terminal, and bytes that are none.
const std::vector<std::string>& pieces() {
  static const std::vector<std::string> p = {
      "a",  "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\x1b", "\x7f", "\xc2\x9b",          "\n",
      "\"", "\\",       "\xff",         "\xe2\x82",         "\xc3", "\x80", std::string(1, '\0')};
  return p;
}

TEST(ErrorText, OfAnyBytes) {
  std::mt19937 random(7);
  for (int i = 0; i < 5000; ++i) {
    std::string s;
    for (std::size_t n = random() % 50; n > 0; --n)
      s += random() % 2 == 0 ? pieces()[random() % pieces().size()] : std::string(1, static_cast<char>(random() % 256));
    const ErrorPtr e(moe_error_create(MOE_ERR_IO, s.data(), s.size()));
    expect_clean(e.get(), "created");
  }
  const ErrorPtr nul(moe_error_create(MOE_ERR_IO, "a\0b\xff\n", 5));
  EXPECT_STREQ(moe_error_message(nul.get()), "a\\u0000b\\xff\\u000a");
}

// Names and types of a file, so long that any cut within a message meets a character of each length.
TEST(ErrorText, OfNamesInFiles) {
  const TempDir dir;
  const ConfigPtr config = make_config(random_model().config_text());
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  const auto load = [&](const nlohmann::json& header, const std::string& what) {
    const std::string path = dir.write("t.safetensors", safetensors_bytes(header.dump(), "x"));
    return clean_failure(
        what, [&](moe_error** e) { return moe_weights_load_safetensors(w.get(), path.c_str(), nullptr, e); });
  };
  for (const std::string& piece : pieces()) {
    if (piece == "\xff" || piece == "\xe2\x82" || piece == "\xc3" || piece == "\x80") continue;  // no JSON
    for (std::size_t before = 0; before < 56; ++before) {
      std::string name(before, 'x');
      for (int i = 0; i < 56; ++i) name += piece;
      const std::string what = nlohmann::json(name).dump(-1, ' ', true);
      load({{"a", {{"dtype", name}, {"shape", {1}}, {"data_offsets", {0, 1}}}}}, "dtype " + what);
      load({{"a", {{name, 1}}}}, "member " + what);
      load({{name, {{"dtype", "I8"}, {"shape", {9}}, {"data_offsets", {0, 1}}}}}, "name " + what);
    }
    std::string longest(1000, 'z');
    for (int i = 0; i < 30; ++i) longest += piece;
    load({{longest, {{"dtype", "I8"}, {"shape", {9}}, {"data_offsets", {0, 1}}}}}, "a long name");
    const std::string index =
        dir.write("model.safetensors.index.json", nlohmann::json{{"weight_map", {{"a" + longest, longest}}}}.dump());
    clean_failure("shard",
                  [&](moe_error** e) { return moe_weights_load_safetensors(w.get(), index.c_str(), nullptr, e); });
  }
  EXPECT_THAT(load({{"a", {{"dtype", std::string("Q\0rest", 6)}, {"shape", {1}}, {"data_offsets", {0, 1}}}}}, "NUL"),
              testing::HasSubstr("\"Q\\u0000rest\" at byte"));
}

// Paths, topics, roles and environment words need not be UTF-8; documents must, but hold any character.
TEST(ErrorText, OfCallersAndDocuments) {
  const ConfigPtr config = make_config(random_model().config_text());
  const WeightsPtr w =
      make<WeightsPtr>([&](moe_weights** o, moe_error** e) { return moe_weights_create(config.get(), o, e); });
  for (const std::string& piece : pieces())
    for (std::size_t before = 0; before < 56; ++before) {
      std::string s(before, 'x');
      for (int i = 0; i < 56; ++i) s += piece;
      moe_buffer* buffer = nullptr;
      moe_config* made = nullptr;
      const moe_tensor t = tensor(MOE_DTYPE_F32, {1}, &t);
      clean_failure("path",
                    [&](moe_error** e) { return moe_weights_load_safetensors(w.get(), s.c_str(), nullptr, e); });
      clean_failure("topic", [&](moe_error** e) { return moe_describe(s.c_str(), "{}", 2, &buffer, e); });
      clean_failure("role",
                    [&](moe_error** e) { return moe_weights_set(w.get(), s.c_str(), &t, nullptr, nullptr, e); });
      clean_failure("text", [&](moe_error** e) { return moe_config_create(s.data(), s.size(), &made, e); });
      const std::string quoted = nlohmann::json(s).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
      for (const std::string& text :
           {R"({"num_experts":)" + quoted + "}", "{" + quoted + ":1}", "[" + quoted + "," + s + "]"})
        clean_failure("document", [&](moe_error** e) { return moe_config_create(text.data(), text.size(), &made, e); });
      clean_failure("query", [&](moe_error** e) {
        const std::string text = "{" + quoted + ":1}";
        return moe_describe("oracle", text.data(), text.size(), &buffer, e);
      });
    }
}

// The text of a callback is part of our message and, as its error, of the details.
TEST(ErrorText, OfCallbacks) {
  const ConfigPtr config = make_config(random_model().config_text());
  moe_weight_source_ops ops{};
  ops.struct_size = sizeof ops;
  ops.get = [](void*, const char*, int64_t, const char*, moe_tensor*, moe_error** e) {
    *e = moe_error_create(MOE_ERR_IO, "disk\0gone\xff\x1b[2J", 14);
    return static_cast<moe_status>(MOE_ERR_IO);
  };
  const WeightsPtr w = make<WeightsPtr>(
      [&](moe_weights** o, moe_error** e) { return moe_weights_create_from_source(config.get(), &ops, o, e); });
  moe_tensor out{};
  out.struct_size = sizeof out;
  moe_buffer* hold = nullptr;
  moe_error* err = nullptr;
  EXPECT_EQ(moe_weights_get(w.get(), "w13_weight", 0, &out, &hold, &err), MOE_ERR_CALLBACK);
  const ErrorPtr e(err);
  expect_clean(err, "callback");
  EXPECT_THAT(moe_error_message(err), testing::EndsWith(": disk\\u0000gone\\xff\\u001b[2J"));
  EXPECT_EQ(nlohmann::json::parse(moe_error_details_json(err))["cause"]["message"], "disk\\u0000gone\\xff\\u001b[2J");
}

TEST(ErrorText, OfNoMemory) {
  moe_error* err = nullptr;
  EXPECT_EQ(api::guard(&err, []() -> Check { throw std::bad_alloc(); }), MOE_ERR_OUT_OF_MEMORY);
  expect_clean(err, "the static object");
}

TEST(Error, NamesOfStatuses) {
  EXPECT_STREQ(moe_status_name(MOE_OK), "MOE_OK");
  EXPECT_STREQ(moe_status_name(MOE_ERR_CONFIG_MISMATCH), "MOE_ERR_CONFIG_MISMATCH");
  for (moe_status s : {-1, 23, 98, 100, INT32_MIN, INT32_MAX}) EXPECT_STREQ(moe_status_name(s), "MOE_ERR_UNKNOWN");
}

TEST(Handles, OfAnotherKindAreRefused) {
  const ConfigPtr config = make_config(random_model().config_text());
  const PlatformPtr platform =
      make<PlatformPtr>([](moe_platform** o, moe_error** e) { return moe_platform_create(nullptr, 0, o, e); });
  moe_buffer* out = reinterpret_cast<moe_buffer*>(8);
  const Failure f = failure(
      [&](moe_error** e) { return moe_config_to_json(reinterpret_cast<const moe_config*>(platform.get()), &out, e); });
  EXPECT_EQ(f.status, MOE_ERR_INVALID_HANDLE);
  EXPECT_EQ(f.subject, "config");
  EXPECT_EQ(out, nullptr);
  moe_config_destroy(reinterpret_cast<moe_config*>(platform.get()));  // not ended: it is no config
  EXPECT_NE(moe_platform_has(platform.get(), "scalar"), 0);
  EXPECT_EQ(moe_platform_has(reinterpret_cast<const moe_platform*>(config.get()), "scalar"), 0);
  EXPECT_EQ(moe_selection_candidate_count(reinterpret_cast<const moe_selection*>(config.get())), 0U);
}

TEST(Handles, MisalignedPointersAreNotRead) {
  const ConfigPtr config = make_config(random_model().config_text());
  auto* odd = reinterpret_cast<const moe_config*>(reinterpret_cast<const char*>(config.get()) + 1);
  moe_buffer* out = nullptr;
  EXPECT_EQ(failure([&](moe_error** e) { return moe_config_to_json(odd, &out, e); }).status, MOE_ERR_INVALID_HANDLE);
}

TEST(Handles, NullComesBeforeTheHandle) {
  int64_t value = 7;
  const ErrorPtr wrong(moe_error_create(MOE_ERR_IO, "x", 1));
  const Failure f = failure([&](moe_error** e) {
    return moe_config_get_int(reinterpret_cast<const moe_config*>(wrong.get()), nullptr, &value, e);
  });
  EXPECT_EQ(f.status, MOE_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(f.subject, "pointer");
  EXPECT_EQ(value, 0);
}

// The linker leads the calls of this program to support/listed_statuses.cpp, which ends it on a status that is not
// listed.
TEST(ErrorStatuses, CallsAreHeldAgainstTheLists) {
  decltype(&moe_apply) volatile called = &moe_apply;  // volatile: a compiler knows that two functions are two
  EXPECT_EQ(called, &__wrap_moe_apply);
}

}  // namespace
}  // namespace moe::test::error_test
