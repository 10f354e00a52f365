// The two probes. See probes.h. Threads are started per call and joined: nothing of them is left while a layer runs.
#include "bench/probes.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/target.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace moe::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{512} << 20;

std::byte* probe_memory() {
  static std::byte* const memory = [] {
    auto* p = static_cast<std::byte*>(std::aligned_alloc(std::size_t{2} << 20, kBytes));
    (void)madvise(p, kBytes, MADV_HUGEPAGE);
    std::memset(p, 1, kBytes);
    return p;
  }();
  return memory;
}

// Time of the median round from the first start to the last end, `rounds` rounds of body(thread).
double timed(int threads, int rounds, const std::function<void(int)>& body) {
  std::vector<double> times;
  std::barrier<> line(threads);
  std::vector<double> begin(static_cast<std::size_t>(threads)), end(begin);
  for (int round = 0; round < rounds; ++round) {
    const auto work = [&](int i) {
      line.arrive_and_wait();
      begin[static_cast<std::size_t>(i)] = seconds();
      body(i);
      end[static_cast<std::size_t>(i)] = seconds();
    };
    std::vector<std::thread> pool;
    for (int i = 1; i < threads; ++i) pool.emplace_back(work, i);
    work(0);
    for (std::thread& t : pool) t.join();
    times.push_back(*std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end()));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void read_plain(const std::byte* p, std::size_t n) {
  std::uint64_t sum = 0, v;
  for (std::size_t i = 0; i < n; i += 8) {
    std::memcpy(&v, p + i, 8);
    sum ^= v;
  }
  volatile std::uint64_t sink = sum;
  (void)sink;
}

}  // namespace

#if defined(__x86_64__)
MOE_TARGET_BEGIN("avx2")
static void read_avx2(const std::byte* p, std::size_t n) {
  __m256i a = _mm256_setzero_si256(), b = a;
  for (std::size_t i = 0; i < n; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 8192), _MM_HINT_T0);
    a = _mm256_xor_si256(a, _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i)));
    b = _mm256_xor_si256(b, _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i + 32)));
  }
  volatile int sink = _mm256_extract_epi32(_mm256_xor_si256(a, b), 0);
  (void)sink;
}
MOE_TARGET_END
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 flags its own _mm512_undefined_*
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
MOE_TARGET_BEGIN("avx512f,avx512vnni")
static void read_avx512(const std::byte* p, std::size_t n) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (std::size_t i = 0; i < n; i += 256) {
    for (std::size_t k = 0; k < 256; k += 64)
      _mm_prefetch(reinterpret_cast<const char*>(p + i + k + 8192), _MM_HINT_T0);
    a = _mm512_xor_si512(a, _mm512_load_si512(p + i));
    b = _mm512_xor_si512(b, _mm512_load_si512(p + i + 64));
    c = _mm512_xor_si512(c, _mm512_load_si512(p + i + 128));
    d = _mm512_xor_si512(d, _mm512_load_si512(p + i + 192));
  }
  volatile int sink = _mm512_reduce_add_epi32(_mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
  (void)sink;
}
static void dots_avx512(std::int64_t rounds) {
  __m512i x = _mm512_set1_epi32(0x01020304), y = _mm512_set1_epi32(0x01010101);
  __m512i c[16];
  for (__m512i& v : c) v = _mm512_setzero_si512();
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) c[k] = _mm512_dpbusd_epi32(c[k], x, y);
    asm volatile("" : "+v"(x), "+v"(y));  // the loop stays a loop
  }
  int sum = 0;
  for (const __m512i& v : c) sum ^= _mm512_reduce_add_epi32(v);
  volatile int sink = sum;
  (void)sink;
}
MOE_TARGET_END
#endif

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

long involuntary_switches() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return u.ru_nivcsw;
}

double read_bandwidth(int threads) {
  void (*read)(const std::byte*, std::size_t) = read_plain;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) read = read_avx2;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni")) read = read_avx512;
#endif
  const std::size_t part = kBytes / static_cast<std::size_t>(threads) / 4096 * 4096;
  const std::byte* p = probe_memory();
  const double t = timed(threads, 5, [&](int i) { read(p + static_cast<std::size_t>(i) * part, part); });
  return static_cast<double>(part) * threads / t / 1e9;
}

double dot_peak(int threads) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vnni")) {
    constexpr std::int64_t kRounds = 400000;
    const double t = timed(threads, 5, [](int) { dots_avx512(kRounds); });
    return static_cast<double>(kRounds) * 16 * 64 * 2 * threads / t / 1e12;
  }
#endif
  (void)threads;
  return 0;
}

}  // namespace moe::bench
