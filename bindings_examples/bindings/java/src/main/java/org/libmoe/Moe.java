package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** What needs no object: the version, questions, routing. */
public final class Moe {
  private Moe() {}

  /** What routing chose for [T, K]; K counts the fused shared experts, too. */
  public record Routed(int[] ids, float[] weights) {}

  public static String version() {
    return Library.text(Library.call("moe_version_string"));
  }

  public static boolean hasFeature(String name) {
    try (Arena arena = Arena.ofConfined()) {
      return (int) Library.call("moe_has_feature", Handle.text(arena, "name", name)) == 1;
    }
  }

  /** Version, compiler, features, kernels, as JSON. */
  public static String buildInfo() {
    return Library.text(Library.call("moe_build_info_json"));
  }

  /** JSON Schema of the document of Config. */
  public static String configSchema() {
    return Library.text(Library.call("moe_config_schema_json"));
  }

  /** Answers one question as JSON, without weights: moe_describe lists the topics. */
  public static String describe(String topic, String queryJson) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment query = Handle.document(arena, queryJson);
      return Handle.textOf("moe_describe", Handle.text(arena, "topic", topic), query, query.byteSize());
    }
  }

  /** Routing alone, with the config's method: logits [T, G]. */
  public static Routed route(Config config, float[] routerLogits) {
    Columns columns = Columns.of(Json.object(config.document()));
    long slots = columns.slots(), tokens = routerLogits.length / columns.logits();
    if (routerLogits.length % columns.logits() != 0)
      throw new IllegalArgumentException("routerLogits: expected rows of " + columns.logits() + " values, found "
          + routerLogits.length);
    int count = Math.toIntExact(tokens * slots);
    Tensor ids = Tensor.of(new int[count], tokens, slots), weights = Tensor.of(new float[count], tokens, slots);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment chosen = arena.allocate(4L * count + 4, 64).asSlice(0, 4L * count);
      MemorySegment by = arena.allocate(4L * count + 4, 64).asSlice(0, 4L * count);
      MemorySegment args = Library.struct(arena, "moe_route_args");
      Library.set(args, "moe_route_args", "router_logits", Tensor.of(routerLogits, tokens, columns.logits()).copied(arena));
      Library.set(args, "moe_route_args", "out_topk_ids", ids.struct(arena, chosen));
      Library.set(args, "moe_route_args", "out_topk_weights", weights.struct(arena, by));
      Handle.check("moe_route", null, config, args);
      return new Routed(chosen.toArray(ValueLayout.JAVA_INT), by.toArray(ValueLayout.JAVA_FLOAT));
    }
  }
}
