// A call's share of the weights to come (GemmArgs::next), fetched into L2 a little with every step of its loop, so that
// memory is busy all the time. Included inside a target region and an anonymous namespace.

struct Share {
  const std::byte* from = nullptr;  // nullptr: none
  std::size_t step = 0;             // bytes of a step of the loop
  int lines = 0;

  Share(const GemmArgs& a, std::size_t panel_bytes, std::int64_t steps) {
    if (a.next == nullptr || steps == 0) return;
    const std::size_t all = static_cast<std::size_t>(a.panel_count) * panel_bytes,
                      parts = static_cast<std::size_t>(a.parts), pieces = static_cast<std::size_t>(steps) * parts;
    from = a.next + all / parts * static_cast<std::size_t>(a.part);
    step = (all + pieces - 1) / pieces;
    lines = static_cast<int>((step + 63) / 64);
  }
  // always_inline: GCC takes a function that only prefetches for one without effects and drops its calls.
  [[gnu::always_inline]] void advance() {
#pragma GCC unroll 1
    for (int i = 0; i < lines; ++i) _mm_prefetch(reinterpret_cast<const char*>(from + 64 * i), _MM_HINT_T1);
    from += step;
  }
};
