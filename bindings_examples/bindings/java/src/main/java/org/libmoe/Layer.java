package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Map;

/**
 * Converted weights bound to a kernel. Several threads may apply one layer at once.
 *
 * <p>Memory segments are used where they are, and stay alive during the call; arrays are copied. hidden and out are [T, H]
 * of the config's types (bfloat16 and float16: short[] of bits), logits [T, G] float, ids [T, K] int, weights [T, K] float;
 * K counts the fused shared experts, too.
 */
public final class Layer extends Handle {
  private final int inType, outType;
  private final long hidden;
  private final Columns columns;

  public Layer(Selection selection, Packed packed) {
    this(selection, packed, null);
  }

  public Layer(Selection selection, Packed packed, Context context) {
    this(selection, packed, context, null, null);
  }

  /** Flag: takes weights whose config has another layer's name. */
  public static final int ANY_NAME = Library.constant("MOE_LAYER_ANY_NAME");

  /** correctionBias [G] and expertMap [G] (i32) instead of the config's and the checkpoint's; each may be null. */
  public Layer(Selection selection, Packed packed, Context context, Tensor correctionBias, Tensor expertMap) {
    this(selection, packed, context, correctionBias, expertMap, 0);
  }

  /** flags: ANY_NAME. */
  public Layer(Selection selection, Packed packed, Context context, Tensor correctionBias, Tensor expertMap, int flags) {
    this(make(selection, packed, context, correctionBias, expertMap, flags), context);
  }

  Layer(MemorySegment pointer, Context context) {
    super("layer", pointer);
    if (context != null) thrown = context.thrown; // its calls run the context's functions
    Map<?, ?> config = (Map<?, ?>) Json.object(report()).get("config");
    hidden = (Long) config.get("hidden_dim");
    columns = Columns.of(config);
    inType = Tensor.code((String) config.get("in_dtype"));
    outType = Tensor.code((String) config.get("out_dtype"));
  }

  private static MemorySegment make(Selection selection, Packed packed, Context context, Tensor bias, Tensor map,
                                    int flags) {
    try (Arena arena = Arena.ofConfined()) {
      return create("moe_layer_create", context, selection, packed, options(arena, bias, map, flags));
    }
  }

  static MemorySegment options(Arena arena, Tensor bias, Tensor map, int flags) {
    MemorySegment options = Library.struct(arena, "moe_layer_options");
    if (bias != null) Library.set(options, "moe_layer_options", "correction_bias", bias.copied(arena));
    if (map != null) Library.set(options, "moe_layer_options", "expert_map", map.copied(arena));
    Library.set(options, "moe_layer_options", "flags", flags);
    return options;
  }

  /** Routing inside. */
  public void apply(long tokens, MemorySegment hidden, MemorySegment routerLogits, MemorySegment out) {
    need("routerLogits", routerLogits, tokens, columns.logits(), Library.constant("MOE_DTYPE_F32"));
    flat(tokens, hidden, routerLogits, null, null, out);
  }

  /** The caller's routing. */
  public void applyTopk(long tokens, MemorySegment hidden, MemorySegment ids, MemorySegment weights, MemorySegment out) {
    need("ids", ids, tokens, columns.slots(), Library.constant("MOE_DTYPE_I32"));
    need("weights", weights, tokens, columns.slots(), Library.constant("MOE_DTYPE_F32"));
    flat(tokens, hidden, null, ids, weights, out);
  }

  private void flat(long tokens, MemorySegment in, MemorySegment logits, MemorySegment ids, MemorySegment weights,
                    MemorySegment out) {
    need("hidden", in, tokens, hidden, inType);
    need("out", out, tokens, hidden, outType);
    if (out.isReadOnly()) throw new IllegalArgumentException("out: expected memory that can be written, found a read-only segment");
    check("moe_apply_flat", this, tokens, inType, in, Library.constant("MOE_DTYPE_F32"), logits, ids, weights, outType, out);
  }

  private void need(String name, MemorySegment memory, long rows, long columns, int dtype) {
    if (memory == null || !memory.isNative())
      throw new IllegalArgumentException(name + ": expected native memory, found " + (memory == null ? "null" : "memory of the heap"));
    if (rows < 0) throw new IllegalArgumentException("tokens: expected a number from 0, found " + rows);
    long bytes = Tensor.nbytes(dtype, rows, columns);
    if (bytes < 0) throw new IllegalArgumentException("tokens: " + rows + " rows of " + columns + " are more than memory holds");
    if (memory.byteSize() != bytes)
      throw new IllegalArgumentException(name + ": expected " + rows + " x " + columns + " " + Tensor.name(dtype) + ", which is "
          + bytes + " bytes, found " + memory.byteSize());
  }

  /** Of a layer of float32. */
  public float[] apply(float[] hidden, float[] routerLogits) {
    return apply(hidden, routerLogits, null);
  }

  /** control may be null. */
  public float[] apply(float[] hidden, float[] routerLogits, Control control) {
    float[] out = new float[given("hidden", hidden).length];
    arrays(MemorySegment.ofArray(hidden), "float[]", routerLogits, MemorySegment.ofArray(out), control);
    return out;
  }

  /** Of a layer of bfloat16 or float16: bits. */
  public short[] apply(short[] hidden, float[] routerLogits) {
    return apply(hidden, routerLogits, null);
  }

  public short[] apply(short[] hidden, float[] routerLogits, Control control) {
    short[] out = new short[given("hidden", hidden).length];
    arrays(MemorySegment.ofArray(hidden), "short[]", routerLogits, MemorySegment.ofArray(out), control);
    return out;
  }

  private void arrays(MemorySegment in, String found, float[] routerLogits, MemorySegment out, Control control) {
    String[] arrays = {"?", "float[]", "short[]", "short[]"}; // f32, f16, bf16
    if (!arrays[inType].equals(found) || inType != outType)
      throw new IllegalArgumentException("hidden: this layer takes " + Tensor.name(inType) + " and gives " + Tensor.name(outType)
          + ": expected " + arrays[inType] + ", found " + found);
    long width = hidden * (found.equals("float[]") ? 4 : 2), tokens = in.byteSize() / width;
    if (in.byteSize() % width != 0)
      throw new IllegalArgumentException("hidden: expected rows of " + hidden + " values, found " + in.byteSize() / (width / hidden)
          + " values");
    if (given("routerLogits", routerLogits).length != tokens * columns.logits())
      throw new IllegalArgumentException("routerLogits: expected " + tokens + " x " + columns.logits() + " values, found "
          + routerLogits.length);
    Tensor output = new Tensor(out, Tensor.name(outType), tokens, hidden);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment result = arena.allocate(Math.max(1, out.byteSize()), 64).asSlice(0, out.byteSize());
      MemorySegment args = Library.struct(arena, "moe_apply_args");
      set(args, "hidden", new Tensor(in, Tensor.name(inType), tokens, hidden).copied(arena));
      set(args, "router_logits", Tensor.of(routerLogits, tokens, columns.logits()).copied(arena));
      set(args, "out", output.struct(arena, result));
      if (control == null) {
        check("moe_apply", this, args);
      } else {
        control.held(() -> {
          set(args, "control", control.pointer());
          return control.watched(() -> {
            check("moe_apply", this, args);
            return null;
          });
        });
      }
      out.copyFrom(result);
    }
  }

  private static void set(MemorySegment args, String member, MemorySegment value) {
    Library.set(args, "moe_apply_args", member, value);
  }

  /** Of a call with routing inside. */
  public Selection.Size workspaceSize(long tokens) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment bytes = arena.allocate(ValueLayout.JAVA_LONG), alignment = arena.allocate(ValueLayout.JAVA_LONG);
      check("moe_layer_workspace_size", this, 0, tokens, bytes, alignment);
      return new Selection.Size(bytes.get(ValueLayout.JAVA_LONG, 0), alignment.get(ValueLayout.JAVA_LONG, 0));
    }
  }

  /** Tokens that went to each expert of this rank since the last reset. */
  public long[] expertCounts(boolean reset) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment counts = arena.allocate(ValueLayout.JAVA_LONG, columns.held());
      check("moe_layer_expert_counts", this, counts, columns.held(), reset ? 1 : 0);
      return counts.toArray(ValueLayout.JAVA_LONG);
    }
  }

  /** Config, kernel, threads, memory, as JSON. */
  public String report() {
    return textOf("moe_layer_to_json", this);
  }
}
