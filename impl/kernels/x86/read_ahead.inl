// Fetching weights before they are used. Included inside a target region and an anonymous namespace. always_inline
// everywhere: GCC takes a function that only prefetches for one without effects and drops its calls.
//
// With few tokens a layer is a stream of weights, and its speed is that of memory. A prefetch never
// faults, so addresses need not be checked against the end of memory; those that are beyond are
// only wasted.
//
// Gives Stream (one panel at a time), PairOfStreams (two, few tokens) and Share (panels that
// several tiles meet). Which one a row takes follows from its number of tokens.

// One stream of weights: the lines PrefetchPolicy::ahead bytes behind those about to be used; behind `end` it goes on
// at `next`. Every line of a panel must be asked for, headers too: a handful of lines that come unforeseen in each
// panel cost a tenth of a core's bandwidth. Without fetches each panel's header is read at once: a gap of seven lines
// ends the hardware's own reading ahead, and a new start in each panel costs half of the bandwidth.
// By value in each loop: four words that the compiler keeps in registers.
struct Stream {
  // end: behind the last panel of the call. next: where the weights of the next call begin, or
  // nullptr, which ends the stream.
  const std::byte *end, *next;
  // 0 turns all fetches off, but for the header's reads.
  std::ptrdiff_t ahead;
  bool into_l2;

  // `after` is a.next for the one call that reads on, nullptr for others of the same weights.
  Stream(const GemmArgs& a, std::size_t panel_bytes, const std::byte* after)
      : end(a.panels + usize(a.panel_count) * panel_bytes),
        next(after),
        // in_order is measured with a single token (prefetch_policy.cpp); for more of them lines
        // are fetched.
        ahead(a.n == 1 && a.prefetch.in_order ? 0 : a.prefetch.ahead),
        into_l2(a.prefetch.into_l2) {}
  // A panel begins: `bytes` at w before its first codes.
  // A volatile read and no prefetch, so that the hardware sees a stream of loads without a gap.
  [[gnu::always_inline]] void header(const std::byte* w, std::size_t bytes) const {
    if (ahead != 0) return fetch(w, bytes);
#pragma GCC unroll 1
    for (std::size_t i = 0; i < bytes; i += 64) (void)*static_cast<const volatile std::byte*>(w + i);
  }
  // A token's 64 bytes of digits at p are about to be read. They are a quarter of the bytes of an int4 panel and leave
  // a small L1 with every panel; in order they are fetched back from L2.
  // 1024 bytes are 8 units of one token (blk16: 128 bytes each).
  [[gnu::always_inline]] void digits(const std::int8_t* p) const {
    if (ahead == 0) _mm_prefetch(reinterpret_cast<const char*>(p + 1024), _MM_HINT_T0);
  }
  // What lies at w, in order, is about to be read.
  // The address may be up to `ahead` beyond the end: it then goes on in the next stream by the
  // rest.
  [[gnu::always_inline]] void fetch(const std::byte* w, std::size_t bytes) const {
    if (ahead == 0) return;
    const std::byte* p = w + ahead;
    if (p >= end) {
      if (next == nullptr) return;
      p = next + (p - end);
    }
    if (into_l2) return lines<_MM_HINT_T1>(p, bytes);
    lines<_MM_HINT_T0>(p, bytes);
  }
  // The hint is an immediate operand of the instruction, so it is a template argument.
  template <auto Hint>
  [[gnu::always_inline]] static void lines(const std::byte* p, std::size_t bytes) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), Hint);
  }
};

// Two panels side by side that few tokens meet, once: two streams into L1, each half as far ahead. Behind a pair's
// first panel the stream goes on at the next pair's.
// Both panels lie one behind the other in memory, so the second one is `stride` further; behind the
// end of the first the addresses skip the second, which was read in the meantime.
struct PairOfStreams {
  const std::byte *end, *next;
  std::ptrdiff_t ahead;
  // From a panel to the next.
  std::size_t stride;
  // Not with several tiles for the same panels: they are in L2 after the first.
  bool wanted;
  // Ahead::header sets it when a pair begins.
  const std::byte* edge = nullptr;  // the end of the first panel

  PairOfStreams(const GemmArgs& a, std::size_t panel_bytes)
      : end(a.panels + usize(a.panel_count) * panel_bytes),
        next(a.next),
        ahead(a.prefetch.ahead / 2),
        stride(panel_bytes),
        wanted(a.prefetch.pairs && a.parts == 1) {}
  // What lies at w of both panels, in order, is about to be read.
  [[gnu::always_inline]] void fetch(const std::byte* w, std::size_t bytes) const {
#pragma GCC unroll 1
    for (std::size_t i = 0; i < bytes; i += 64) {
      const std::byte* p = w + ahead + i;
      if (p >= edge) p += stride;
      if (p >= end) {
        if (next == nullptr) return;
        p = next + (p - end);
      }
      _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(p + stride), _MM_HINT_T0);
    }
  }
};

// A call's share of the weights to come (GemmArgs::next), fetched into L2 a little with every step of its loop, so that
// memory is busy all the time.
// For calls that arithmetic bounds: memory would otherwise idle while they compute and be the
// bottleneck of the next call. Into L2, because L1 holds the weights and activations that are being
// multiplied.
struct Share {
  // Moves on with each step. nullptr: there is nothing to come, and `lines` is 0, so advance() does
  // nothing.
  const std::byte* from = nullptr;  // nullptr: none
  std::size_t step = 0;             // bytes of a step of the loop
  // Of 64 bytes, rounded up: a step that is no whole number of lines asks for one of them twice.
  int lines = 0;

  // `steps`: how often the loop will call advance(). Rounding up asks for a few lines twice, never
  // for too few.
  Share(const GemmArgs& a, std::size_t panel_bytes, std::int64_t steps) {
    if (a.next == nullptr || steps == 0) return;
    const std::size_t all = usize(a.panel_count) * panel_bytes, parts = usize(a.parts), pieces = usize(steps) * parts;
    // Calls of the same weights (one per tile) share the bytes to come: call `part` begins at its
    // own share.
    from = a.next + all / parts * usize(a.part);
    step = (all + pieces - 1) / pieces;
    lines = static_cast<int>((step + 63) / 64);
  }
  [[gnu::always_inline]] void advance() {
#pragma GCC unroll 1
    for (int i = 0; i < lines; ++i) _mm_prefetch(reinterpret_cast<const char*>(from + 64 * i), _MM_HINT_T1);
    from += step;
  }
};
