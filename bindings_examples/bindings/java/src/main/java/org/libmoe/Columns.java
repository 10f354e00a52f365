package org.libmoe;

import java.util.Map;

/**
 * What memory has for each token: logits; slots, which are ids and weights: the chosen experts, then the fused shared ones.
 * And the experts of this rank, those included.
 */
record Columns(long logits, long slots, long held) {
  /** Of a config's document, with its defaults. */
  static Columns of(Map<?, ?> config) {
    Map<?, ?> routing = (Map<?, ?>) config.get("routing");
    long fused = (Long) routing.get("num_fused_shared_experts"), zero = (Long) routing.get("num_zero_experts");
    long shared = routing.get("num_shared_logits") instanceof Long count ? count : 0; // shown when set
    return new Columns((Long) config.get("num_experts") + zero + shared, (Long) config.get("top_k") + fused,
        (Long) config.get("num_local_experts") + fused);
  }
}
