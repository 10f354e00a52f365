// One candidate for the k best (kernels/route.h). Included inside an anonymous namespace, so that every ISA
// compiles its own.
inline void offer(Best& best, float key, std::int32_t id) {
  std::size_t place = best.n;
  if (best.n == best.k) {
    if (!(key > best.keys[best.k - 1])) return;
    place = best.k - 1;
  } else {
    ++best.n;
  }
  for (; place > 0 && best.keys[place - 1] < key; --place) {
    best.keys[place] = best.keys[place - 1];
    best.ids[place] = best.ids[place - 1];
  }
  best.keys[place] = key;
  best.ids[place] = id;
}
