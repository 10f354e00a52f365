// The probe of the memory's read bandwidth. Every thread sums its own part of one block and asks for lines 8 KiB ahead:
// the processor's own prefetching alone reaches two thirds of what the memory gives. The threads meet before and after
// a pass.
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <optional>
#include <thread>

#include "tool/library.h"
#include "tool/machine.h"

namespace moe_tool {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kAhead = 8192;
// Twice the caches, which else would give a part of the block; at least the first of these, at most the second.
constexpr std::size_t kUsual = std::size_t{512} << 20U;
constexpr std::size_t kLargest = std::size_t{2} << 30U;
constexpr std::size_t kSmallest = std::size_t{16} << 20U;

std::uint64_t sum_of(const unsigned char* data, std::size_t size) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + kLine <= size; i += kLine) {
    __builtin_prefetch(data + i + kAhead);
    std::uint64_t words[8];
    std::memcpy(words, data + i, sizeof words);
    for (int k = 0; k < 8; ++k) sums[k] += words[k];
  }
  return sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
}

// A block from huge pages where the system gives them. Nothing of it is there before it is written.
class Block {
 public:
  // Of `size` bytes, or less where limits allow less.
  explicit Block(std::size_t size) : size_(size) {
    void* data = MAP_FAILED;
    for (;; size_ /= 2) {
      data = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data != MAP_FAILED) break;
      if (size_ < 2 * kSmallest) throw Failure(kNo, "no memory for the probe of read bandwidth");
    }
    madvise(data, size_, MADV_HUGEPAGE);
    data_ = static_cast<unsigned char*>(data);
  }
  ~Block() { munmap(data_, size_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  unsigned char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  unsigned char* data_;
  std::size_t size_;
};

}  // namespace

Bandwidth read_bandwidth(int threads, double seconds) {
  const std::size_t wanted = std::clamp<std::size_t>(2 * last_level_cache_bytes(), kUsual, kLargest);
  const std::size_t size = std::clamp<std::size_t>(memory_state().available / 4, kSmallest, wanted);
  const Block block(size);
  std::size_t each = 0;
  std::optional<std::barrier<>> meet;
  // Threads wait for how many there are: fewer than asked for where the system gives no more.
  std::atomic<bool> go = false;
  std::vector<double> passes;
  bool more = true;  // written by the first thread between two meetings
  std::atomic<std::uint64_t> kept = 0;
  const auto run = [&](std::size_t part) {
    go.wait(false);
    unsigned char* data = block.data() + part * each;
    std::memset(data, 1,
                each);  // by the thread that reads it: the pages lie on its NUMA node, as stripes of weights do
    meet->arrive_and_wait();
    const double begin = seconds_now();
    std::uint64_t sum = 0;
    for (;;) {
      meet->arrive_and_wait();
      if (!more) break;
      const double start = seconds_now();
      sum += sum_of(data, each);
      meet->arrive_and_wait();
      if (part != 0) continue;
      const double now = seconds_now();
      passes.push_back(now - start);
      more = passes.size() < 3 || now - begin < seconds;
    }
    kept += sum;
  };
  std::vector<std::jthread> others;
  others.reserve(static_cast<std::size_t>(std::max(threads, 1)));
  try {
    for (int part = 1; part < threads; ++part) others.emplace_back(run, static_cast<std::size_t>(part));
  } catch (const std::exception&) {  // also of memory: the others must be told
  }
  const std::size_t count = others.size() + 1;
  each = block.size() / count / kLine * kLine;
  meet.emplace(static_cast<std::ptrdiff_t>(count));
  go = true;
  go.notify_all();
  run(0);
  others.clear();
  std::sort(passes.begin(), passes.end());
  const double median = passes[passes.size() / 2];
  return {static_cast<double>(each * count) / median, (passes.back() - passes.front()) / median,
          static_cast<int>(count)};
}

}  // namespace moe_tool
