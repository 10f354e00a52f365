// Sweeps over moe_abi_json, through the shared library: every function succeeds with good arguments; every
// pointer NULL in turn; every struct with sizes below, at and beyond its own; every enum out of range.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/ffi_world.h"
#include "support/rooms.h"

namespace moe::test::ffi_sweep_test {
namespace {

class FfiSweep : public testing::Test {
 protected:
  FfiWorld w;

  struct Result {
    std::int32_t status = 0;
    std::string subject, message;
  };
  // A call with word `at` replaced; outputs must be cleared when it fails.
  Result call(const json& f, std::size_t at, Word value) {
    FfiWorld::Outputs out;
    std::vector<Word> args = w.arguments(f, out);
    if (at < args.size()) args[at] = value;
    const std::string name = f["name"];
    const bool has_err = fallible(f);
    Word err = 0x1234;
    if (has_err && args.back() != 0) args.back() = word_of(&err);
    Result r;
    const Word result = w.lib.call(name, args);
    if (f["returns"] == "handle:moe_error") {
      EXPECT_NE(result, 0U) << name;
      w.lib.call("moe_error_destroy", {result});
      return r;
    }
    r.status = static_cast<std::int32_t>(result);
    if (has_err && args.back() != 0) {
      EXPECT_EQ(err == 0, r.status == MOE_OK) << name;
      EXPECT_EQ(w.lib.status("moe_error_status", {err}), r.status) << name;
      r.subject = w.lib.text("moe_error_subject", {err});
      r.message = w.lib.text("moe_error_message", {err});
      w.lib.call("moe_error_destroy", {err});
    }
    if (r.status == MOE_OK) {
      w.end(out);
    } else {
      for (const auto& [type, slot] : out.named)
        if (tail_of(type) != "handle:moe_error" && args_has(args, slot)) {
          EXPECT_TRUE(cleared(type, *slot)) << name << " " << type;
        }
    }
    return r;
  }
  // The tensor struct of the world at an address.
  FfiStruct* tensor_at(Word address) {
    for (const char* name :
         {"hidden", "out", "router_logits", "topk_ids", "topk_weights", "out_topk_ids", "out_topk_weights",
          "expert_map", "one_w2", "gate", "dense", "w13_weight", "w2_weight", "w13_scale", "w2_scale"})
      if (w.tensor_of(name).word() == address) return &w.tensor_of(name);
    return nullptr;
  }
  static bool args_has(const std::vector<Word>& args, const Word* slot) {
    return std::find(args.begin(), args.end(), word_of(slot)) != args.end();
  }
  static bool cleared(const std::string& type, Word slot) {
    return ffi_type_of(tail_of(type))->size == 4 ? static_cast<std::uint32_t>(slot) == 0 : slot == 0;
  }
  static bool fallible(const json& f) {
    const json& params = f["params"];
    return f["returns"] == "i32:moe_status" && !params.empty() && head_of(params.back()["type"]) == "out";
  }
};

constexpr std::size_t kNowhere = 1000;

TEST_F(FfiSweep, GoodArgumentsSucceed) {
  int called = 0;
  for (const json& f : w.lib.abi()["functions"]) {
    const Result r = call(f, kNowhere, 0);
    if (fallible(f)) {
      EXPECT_EQ(r.status, MOE_OK) << f["name"] << ": " << r.message;
    }
    ++called;
  }
  EXPECT_GE(called, 80);
}

TEST_F(FfiSweep, EveryPointerNull) {
  int refused = 0;
  for (const json& f : w.lib.abi()["functions"]) {
    for (std::size_t i = 0; i < f["params"].size(); ++i) {
      const json& p = f["params"][i];
      if (!p.contains("nullable")) continue;
      const Result r = call(f, i, 0);
      if (!fallible(f) || p["nullable"] == true) continue;
      EXPECT_EQ(r.status, MOE_ERR_INVALID_ARGUMENT) << f["name"] << "." << p["name"];
      EXPECT_EQ(r.subject, p["name"].get<std::string>()) << f["name"];
      ++refused;
    }
  }
  EXPECT_GE(refused, 100);
}

// What may be NULL is really accepted; where a rule needs another argument then, it says so itself.
TEST_F(FfiSweep, NullableMeansAccepted) {
  for (const json& f : w.lib.abi()["functions"]) {
    if (!fallible(f)) continue;
    for (std::size_t i = 0; i < f["params"].size(); ++i) {
      const json& p = f["params"][i];
      if (!p.value("nullable", false)) continue;
      if (f["name"] == "moe_apply_flat" && p["name"] == "router_logits") continue;  // NULL: ids and weights instead
      if (f["name"] == "moe_dist_attach" && p["name"] == "layer") continue;         // NULL: of a rank without experts
      const Result r = call(f, i, 0);
      EXPECT_EQ(r.status, MOE_OK) << f["name"] << "." << p["name"] << ": " << r.message;
    }
  }
}

TEST_F(FfiSweep, RequiredMembersNull) {
  int refused = 0;
  for (const json& f : w.lib.abi()["functions"]) {
    for (const json& p : f["params"]) {
      if (head_of(p["type"]) != "ptr" || tail_of(p["type"]).empty() || p["const"] == false) continue;
      FfiStruct& s = w.struct_of(tail_of(p["type"]));
      for (const json& m : s.layout()["members"]) {
        if (m.value("nullable", true)) continue;
        const Word before = s.get(m["name"]);
        s.set(m["name"], 0);
        const Result r = call(f, kNowhere, 0);
        s.set(m["name"], before);
        if (p["type"] == "ptr:moe_tensor") continue;
        EXPECT_EQ(r.status, MOE_ERR_INVALID_ARGUMENT) << f["name"] << " " << m["name"];
        EXPECT_EQ(r.subject, m["name"].get<std::string>()) << f["name"];
        ++refused;
      }
    }
  }
  EXPECT_GE(refused, 6);
}

struct SizeCase {
  const char* what;
  std::int64_t relative;
  enum { to_first, to_known, to_zero } base;  // the size in the first release, or now
  bool tail;
  std::int32_t input, output;  // expected status
};

TEST_F(FfiSweep, EveryStructSize) {
  const SizeCase cases[] = {
      {"0", 0, SizeCase::to_zero, false, MOE_ERR_INVALID_ARGUMENT, MOE_ERR_INVALID_ARGUMENT},
      {"v1 - 1", -1, SizeCase::to_first, false, MOE_ERR_INVALID_ARGUMENT, MOE_ERR_INVALID_ARGUMENT},
      {"v1", 0, SizeCase::to_first, false, MOE_OK, MOE_OK},
      {"known", 0, SizeCase::to_known, false, MOE_OK, MOE_OK},
      {"known + 16 zero", 16, SizeCase::to_known, false, MOE_OK, MOE_OK},
      {"known + 16 set", 16, SizeCase::to_known, true, MOE_ERR_VERSION, MOE_OK},
      {"4097", 4097, SizeCase::to_zero, false, MOE_ERR_INVALID_ARGUMENT, MOE_ERR_INVALID_ARGUMENT},
      {"2^32 - 1", UINT32_MAX, SizeCase::to_zero, false, MOE_ERR_INVALID_ARGUMENT, MOE_ERR_INVALID_ARGUMENT}};
  int tried = 0;
  const auto sweep = [&](const json& f, FfiStruct& s, bool input) {
    const std::size_t known = s.layout()["size"];
    const std::int64_t bases[] = {s.layout()["v1_size"].get<std::int64_t>(), static_cast<std::int64_t>(known), 0};
    for (const SizeCase& c : cases) {
      s.set("struct_size", static_cast<Word>(bases[c.base] + c.relative));
      s.data()[known + 15] = c.tail ? 1 : 0;
      const Result r = call(f, kNowhere, 0);
      EXPECT_EQ(r.status, input ? c.input : c.output)
          << f["name"] << " " << s.layout()["name"] << " " << c.what << ": " << r.message;
      s.data()[known + 15] = 0;
      ++tried;
    }
    s.set("struct_size", known);
  };
  for (const json& f : w.lib.abi()["functions"]) {
    FfiWorld::Outputs out;
    const std::vector<Word> args = w.arguments(f, out);
    for (std::size_t i = 0; i < args.size(); ++i) {
      const json& p = f["params"][i];
      const std::string type = tail_of(p["type"]);
      if (head_of(p["type"]) != "ptr" || type.empty()) continue;
      FfiStruct* s = type == "moe_tensor" && p["const"] == true ? tensor_at(args[i]) : &w.struct_of(type);
      ASSERT_NE(s, nullptr) << f["name"];
      sweep(f, *s, p["const"] == true);
      if (p["const"] == false) continue;
      for (const json& m : s->layout()["members"]) {  // structs inside
        if (head_of(m["type"]) != "ptr" || tail_of(m["type"]).empty() || s->get(m["name"]) == 0) continue;
        FfiStruct* inner =
            tail_of(m["type"]) == "moe_tensor" ? tensor_at(s->get(m["name"])) : &w.struct_of(tail_of(m["type"]));
        ASSERT_NE(inner, nullptr) << f["name"];
        sweep(f, *inner, true);
      }
    }
    w.end(out);
  }
  EXPECT_GE(tried, 7 * 20);
}

TEST_F(FfiSweep, EveryEnumOutOfRange) {
  int tried = 0;
  const auto values = [&](const std::string& name) {
    std::int64_t most = 0;
    const json& e = w.lib.item("enums", name);
    for (const auto& [key, value] : e["values"].items()) most = std::max(most, value.get<std::int64_t>());
    return std::vector<std::int64_t>{-1, most + 1, INT32_MIN};
  };
  const auto expect = [&](const json& f, const std::string& name, std::int64_t value, const Result& r) {
    ++tried;
    if (!fallible(f)) return;  // plain accessors name what they do not know
    const bool batched = name == "moe_apply_mode" && value == 2;
    EXPECT_EQ(r.status, batched ? MOE_ERR_UNSUPPORTED : MOE_ERR_INVALID_ARGUMENT)
        << f["name"] << " " << name << " " << value << ": " << r.message;
  };
  for (const json& f : w.lib.abi()["functions"]) {
    for (std::size_t i = 0; i < f["params"].size(); ++i) {
      const json& p = f["params"][i];
      if (head_of(p["type"]) == "i32" && !tail_of(p["type"]).empty())
        for (std::int64_t v : values(tail_of(p["type"])))
          expect(f, tail_of(p["type"]), v, call(f, i, static_cast<Word>(v)));
      if (head_of(p["type"]) != "ptr" || p["const"] == false || tail_of(p["type"]).empty()) continue;
      FfiWorld::Outputs out;
      const std::vector<Word> args = w.arguments(f, out);
      FfiStruct* s = tail_of(p["type"]) == "moe_tensor" ? tensor_at(args[i]) : &w.struct_of(tail_of(p["type"]));
      for (const json& m : s->layout()["members"]) {
        if (head_of(m["type"]) != "i32" || tail_of(m["type"]).empty()) continue;
        const Word before = s->get(m["name"]);
        for (std::int64_t v : values(tail_of(m["type"]))) {
          s->set(m["name"], static_cast<Word>(v));
          expect(f, tail_of(m["type"]), v, call(f, kNowhere, 0));
        }
        s->set(m["name"], before);
      }
      w.end(out);
    }
  }
  EXPECT_GE(tried, 3 * 10);
}

TEST_F(FfiSweep, UnknownFlags) {
  for (const json& f : w.lib.abi()["functions"])
    for (std::size_t i = 0; i < f["params"].size(); ++i)
      if (f["params"][i]["name"] == "flags")
        for (const Word flags : {Word{1} << 20, Word{1} << 63, ~Word{0}}) {
          const Result r = call(f, i, flags);
          EXPECT_EQ(r.status, MOE_ERR_INVALID_ARGUMENT) << f["name"];
          EXPECT_EQ(r.subject, "flags") << f["name"];
        }
}

}  // namespace
}  // namespace moe::test::ffi_sweep_test
