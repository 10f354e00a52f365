// Contexts: options, the caller's hooks, the pool, the log. See context.h.
//
// The number of threads of an own pool: the option, else one per physical core of the CPUs that the
// affinity mask (and the option `cpus`) leaves, but no more than the whole CPUs of the cgroup's quota:
// a group that has used up its quota stops all its threads at once.
#include "run/context/context.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/checked.h"
#include "base/float_state.h"
#include "base/index.h"
#include "base/json.h"
#include "base/os/topology.h"
#include "base/text.h"
#include "config/fields.h"
#include "run/context/pool.h"

namespace moe::run {
namespace {

constexpr int kMaxThreads = 4096;
constexpr std::array<std::string_view, 8> kOptionNames = {"threads",    "cpus",      "spin_us",  "numa",
                                                          "huge_pages", "log_level", "log_ring", "flush_denormals"};
constexpr std::array<std::string_view, 6> kLogLevelNames = {"trace", "debug", "info", "warn", "error", "off"};
// The words from `interleave` on are known and not built.
enum class Numa : std::uint8_t { automatic, off, interleave, stripes, mirror };
constexpr std::array<std::string_view, 5> kNumaNames = {"auto", "off", "interleave", "shard", "mirror"};
enum class HugePages : std::uint8_t { attempt, off };
constexpr std::array<std::string_view, 2> kHugePageNames = {"try", "off"};

struct Options {
  std::int64_t threads = 0;
  CpuList cpus;  // as given; empty = not given
  std::int64_t spin_us = 50;
  Numa numa = Numa::automatic;
  HugePages huge_pages = HugePages::attempt;
  std::optional<LogLevel> log_level;
  std::int64_t log_ring = 256;
  bool flush_denormals = false;
};

// The options without members that are null: null means "not set".
json::Value without_nulls(const json::Value& document) {
  json::Object kept;
  if (document.object() != nullptr)
    for (const json::Member& m : *document.object())
      if (!m.second.is_null()) kept.push_back(m);
  return json::Value(std::move(kept));
}

constexpr const char* kCpuList = "a list of CPUs like \"0-7,16\"";

Result<CpuList> parse_cpus(const std::string& text, const std::string& pointer) {
  const auto cpus = parse_cpu_list(text);
  if (!cpus || cpus->empty()) return fields::fault(pointer, cat("found ", in_quotes(text), ", expected ", kCpuList));
  const CpuList allowed = allowed_cpus();
  for (int cpu : *cpus)
    if (!allowed.empty() && !std::binary_search(allowed.begin(), allowed.end(), cpu))
      return fields::fault(pointer,
                           cat("CPU ", cpu, " is none of those this process may use (", cpu_list_text(allowed), ")"));
  return *cpus;
}

Result<Options> parse_options(std::string_view text) {
  Options o;
  if (text.empty()) return o;
  MOE_TRY(const json::Value document, json::parse(text));
  MOE_CHECK(fields::Members::open(&document, "", kOptionNames));
  const json::Value given = without_nulls(document);
  MOE_TRY(const fields::Members m, fields::Members::open(&given, "", kOptionNames));
  MOE_TRY(o.threads, m.integer("threads", {0, kMaxThreads}, 0));
  if (const json::Value* cpus = m.get("cpus"); cpus != nullptr && cpus->string() == nullptr)
    return fields::unexpected(m.at("cpus"), *cpus, kCpuList);
  MOE_TRY(const std::optional<std::string> cpus, m.text("cpus", 65536));
  if (cpus) {
    MOE_TRY(o.cpus, parse_cpus(*cpus, m.at("cpus")));
  }
  MOE_TRY(o.spin_us, m.integer("spin_us", {0, 1000000}, o.spin_us));
  MOE_TRY(o.numa, m.word("numa", kNumaNames, o.numa));
  if (o.numa >= Numa::interleave)
    return fail(Code::unsupported, m.at("numa"),
                cat(m.at("numa"), ": \"", at(kNumaNames, o.numa), "\" is not built, expected auto or off"));
  MOE_TRY(o.huge_pages, m.word("huge_pages", kHugePageNames, o.huge_pages));
  MOE_TRY(const std::optional<std::size_t> level, m.word("log_level", kLogLevelNames));
  if (level) o.log_level = static_cast<LogLevel>(*level);
  MOE_TRY(o.log_ring, m.integer("log_ring", {0, 1000000}, o.log_ring));
  MOE_TRY(o.flush_denormals, m.boolean("flush_denormals", false));
  return o;
}

// CPUs that the pool may use, and how many threads it has.
struct PoolThreads {
  CpuList cpus;
  NodeMap nodes;  // of the CPUs
  int count = 1;
};

PoolThreads resolve_threads(const Options& o) {
  PoolThreads t;
  t.cpus = o.cpus.empty() ? allowed_cpus() : o.cpus;
  if (o.numa != Numa::off) t.nodes = node_map(t.cpus, "");
  t.count = o.threads > 0 ? static_cast<int>(o.threads) : default_threads(t.cpus, "");
  return t;
}

// The caller's functions; gives each back once, last of all.
struct OwnedHooks {
  explicit OwnedHooks(const ContextHooks& h) : hooks(h) {}
  OwnedHooks(OwnedHooks&& o) noexcept : hooks(std::exchange(o.hooks, ContextHooks{})) {}
  OwnedHooks& operator=(OwnedHooks&&) = delete;
  ~OwnedHooks() {
    if (hooks.parallel_destroy != nullptr) hooks.parallel_destroy(hooks.threads->host().user);
    if (hooks.allocator_destroy != nullptr) hooks.allocator_destroy(hooks.allocator.user);
    if (hooks.log_destroy != nullptr) hooks.log_destroy(hooks.log.user);
  }
  ContextHooks hooks;
};

// huge_pages off: plain aligned memory, nothing asked of the kernel.
void* plain_allocate(void*, std::size_t size, std::size_t alignment, std::int32_t) {
  if (size > std::size_t{PTRDIFF_MAX} - alignment) return nullptr;
  return std::aligned_alloc(alignment, round_up(std::max<std::size_t>(size, 1), alignment));
}
void plain_deallocate(void*, void* ptr, std::size_t, std::size_t) { std::free(ptr); }

struct MoeLog {
  std::optional<LogLevel> level;
  std::string unknown;
};

MoeLog level_of_environment() {
  const char* text = std::getenv("MOE_LOG");
  if (text == nullptr || *text == '\0') return {};
  const auto i = fields::index_of(kLogLevelNames, text);
  return i ? MoeLog{static_cast<LogLevel>(*i), {}} : MoeLog{std::nullopt, text};
}

struct Job {
  TaskFn task;
  void* arg;
};

void flushed_task(void* p, std::size_t index) {
  const FlushDenormals scope;
  const Job& job = *static_cast<Job*>(p);
  job.task(job.arg, index);
}

}  // namespace

struct Context::State {
  State(OwnedHooks&& h, Options o, PoolThreads t, LogLevel l)
      : hooks(std::move(h)),
        options(std::move(o)),
        threads(std::move(t)),
        level(l),
        log(hooks.hooks.log, l, usize(options.log_ring)),
        pool({.threads = threads.count, .spin_us = static_cast<int>(options.spin_us), .cpus = options.cpus}) {
    if (hooks.hooks.allocator.allocate != nullptr) {
      allocator = hooks.hooks.allocator;
    } else {
      allocator = options.huge_pages == HugePages::attempt ? system_allocator()
                                                           : Allocator{nullptr, plain_allocate, plain_deallocate};
    }
  }
  bool own_threads() const { return hooks.hooks.threads == nullptr; }
  Check run(std::size_t count, TaskFn task, void* arg) {
    if (!own_threads()) return hooks.hooks.threads->run(count, task, arg);
    pool.run(count, task, arg);
    return ok();
  }

  OwnedHooks hooks;  // first member: given back after everything that uses them
  const Options options;
  const PoolThreads threads;
  const LogLevel level;
  Log log;
  Pool pool;
  Allocator allocator;
  Workspaces workspaces;
};

Context::Context() = default;
Context::~Context() = default;

Result<std::shared_ptr<Context>> Context::create(std::string_view options_json, ContextHooks hooks) {
  OwnedHooks owned(hooks);
  MOE_TRY(Options options, parse_options(options_json));
  const MoeLog environment = level_of_environment();
  const LogLevel level = options.log_level ? *options.log_level : environment.level.value_or(LogLevel::info);
  PoolThreads threads = resolve_threads(options);
  if (owned.hooks.threads != nullptr)
    threads = {{}, threads.nodes, std::max(1, owned.hooks.threads->host().num_threads)};

  std::shared_ptr<Context> context(new Context);
  context->state_ = std::make_unique<State>(std::move(owned), std::move(options), std::move(threads), level);
  if (!environment.unknown.empty())
    context->log().write(LogLevel::warn, "context",
                         cat("MOE_LOG: unknown level ", in_quotes(environment.unknown), ", expected ",
                             fields::join(kLogLevelNames), "; it is ignored"));
  return context;
}

// With flush_denormals every task passes through flushed_task; code that a call runs outside of Parallel keeps
// denormals.
Parallel Context::parallel() {
  State& s = *state_;
  Parallel p{.num_threads = s.threads.count, .self = &s};
  if (s.options.flush_denormals) {
    p.also_single = true;
    p.run = [](void* self, std::size_t count, TaskFn task, void* arg) {
      Job job{task, arg};
      return static_cast<State*>(self)->run(count, flushed_task, &job);
    };
  } else if (!s.own_threads() || s.threads.count > 1) {
    p.run = [](void* self, std::size_t count, TaskFn task, void* arg) {
      return static_cast<State*>(self)->run(count, task, arg);
    };
  }
  return p;
}

const Allocator& Context::allocator() const { return state_->allocator; }
Log& Context::log() { return state_->log; }
Workspaces& Context::workspaces() { return state_->workspaces; }
int Context::num_threads() const { return state_->threads.count; }
const NodeMap& Context::nodes() const { return state_->threads.nodes; }
std::string Context::take_log() { return state_->log.take(); }

std::string Context::options_json() const {
  const State& s = *state_;
  json::Writer w;
  w.member("threads", s.threads.count);
  w.member("own_threads", s.own_threads());
  w.member("cpus", cpu_list_text(s.threads.cpus));
  w.member("spin_us", s.options.spin_us);
  w.member("numa", at(kNumaNames, s.options.numa));
  w.member("numa_nodes", s.threads.nodes.count);
  w.member("huge_pages", at(kHugePageNames, s.options.huge_pages));
  w.member("log_level", at(kLogLevelNames, s.level));
  w.member("log_ring", s.options.log_ring);
  w.member("flush_denormals", s.options.flush_denormals);
  return w.take();
}

int default_threads(const CpuList& cpus, const std::string& root) {
  const auto cores = static_cast<std::int64_t>(one_per_core(cpus, root).size());
  const double quota = std::floor(cpu_quota(root).value_or(kMaxThreads));
  const auto whole = static_cast<std::int64_t>(std::min<double>(quota, kMaxThreads));
  return static_cast<int>(std::clamp<std::int64_t>(std::min(cores, whole), 1, kMaxThreads));
}

Parallel parallel_of(Context* ctx) { return ctx == nullptr ? Parallel{} : ctx->parallel(); }
const Allocator& allocator_of(Context* ctx) { return ctx == nullptr ? system_allocator() : ctx->allocator(); }
const NodeMap* nodes_of(const Context* ctx) { return ctx == nullptr ? nullptr : &ctx->nodes(); }

}  // namespace moe::run
