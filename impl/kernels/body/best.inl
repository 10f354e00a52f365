// One candidate for the k best (kernels/route.h). Included inside an anonymous namespace, so that every ISA
// compiles its own.
//
// An insertion sort by one key. k is small (8 is usual), and in the vector rows almost every key
// was refused before it came here, so a heap would only add code. Both comparisons are strict: an
// equal key goes behind those that came before it, and candidates come with ascending ids, so ties
// go to the lower id. There is no case for NaN: RouteKernel::load has replaced them.
// key: what is compared, larger is better. id: the expert, or a group in a search over groups.
inline void offer(Best& best, float key, std::int32_t id) {
  // Not full: the key goes behind the last one and moves up from there. Full: it takes the last
  // place, whose key it beats, and that one falls out.
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
