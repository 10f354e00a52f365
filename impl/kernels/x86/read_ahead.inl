// Fetching weights before they are used. Included inside a target region and an anonymous namespace. always_inline
// everywhere: GCC takes a function that only prefetches for one without effects and drops its calls.

// One stream of weights: the lines PrefetchPolicy::ahead bytes behind those about to be used; behind `end` it goes on
// at `next`. Every line of a panel must be asked for, headers too: a handful of lines that come unforeseen in each
// panel cost a tenth of a core's bandwidth. Without fetches each panel's header is read at once: a gap of seven lines
// ends the hardware's own reading ahead, and a new start in each panel costs half of the bandwidth.
struct Stream {
  const std::byte *end, *next;
  std::ptrdiff_t ahead;
  bool into_l2;

  Stream(const GemmArgs& a, std::size_t panel_bytes, const std::byte* after)
      : end(a.panels + usize(a.panel_count) * panel_bytes),
        next(after),
        ahead(a.n == 1 && a.prefetch.in_order ? 0 : a.prefetch.ahead),
        into_l2(a.prefetch.into_l2) {}
  // A panel begins: `bytes` at w before its first codes.
  [[gnu::always_inline]] void header(const std::byte* w, std::size_t bytes) const {
    if (ahead != 0) return fetch(w, bytes);
#pragma GCC unroll 1
    for (std::size_t i = 0; i < bytes; i += 64) (void)*static_cast<const volatile std::byte*>(w + i);
  }
  // A token's 64 bytes of digits at p are about to be read. They are a quarter of the bytes of an int4 panel and leave
  // a small L1 with every panel; in order they are fetched back from L2.
  [[gnu::always_inline]] void digits(const std::int8_t* p) const {
    if (ahead == 0) _mm_prefetch(reinterpret_cast<const char*>(p + 1024), _MM_HINT_T0);
  }
  // What lies at w, in order, is about to be read.
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
  template <auto Hint>
  [[gnu::always_inline]] static void lines(const std::byte* p, std::size_t bytes) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), Hint);
  }
};

// Two panels side by side that few tokens meet, once: two streams into L1, each half as far ahead. Behind a pair's
// first panel the stream goes on at the next pair's.
struct PairOfStreams {
  const std::byte *end, *next;
  std::ptrdiff_t ahead;
  std::size_t stride;
  bool wanted;
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
struct Share {
  const std::byte* from = nullptr;  // nullptr: none
  std::size_t step = 0;             // bytes of a step of the loop
  int lines = 0;

  Share(const GemmArgs& a, std::size_t panel_bytes, std::int64_t steps) {
    if (a.next == nullptr || steps == 0) return;
    const std::size_t all = usize(a.panel_count) * panel_bytes, parts = usize(a.parts), pieces = usize(steps) * parts;
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
