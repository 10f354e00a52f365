package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Map;

/** Converted weights: immutable, shared by any number of layers. */
public final class Packed extends Handle {
  public static final int MMAP = Library.constant("MOE_LOAD_MMAP"), PREFAULT = Library.constant("MOE_LOAD_PREFAULT"),
                          VERIFY = Library.constant("MOE_LOAD_VERIFY");

  /** Flag of convert: takes weights whose config has another layer's name. */
  public static final int ANY_NAME = Library.constant("MOE_CONVERT_ANY_NAME");

  Packed(MemorySegment pointer) {
    super("packed", pointer);
  }

  public static Packed convert(Selection selection, Weights weights) {
    return convert(selection, weights, null, null);
  }

  public static Packed convert(Selection selection, Weights weights, Context context) {
    return convert(selection, weights, context, null);
  }

  /** Repacks the weights into the layout of the selection. context and control may be null. */
  public static Packed convert(Selection selection, Weights weights, Context context, Control control) {
    return convert(selection, weights, context, control, 0);
  }

  /** flags: ANY_NAME. */
  public static Packed convert(Selection selection, Weights weights, Context context, Control control, int flags) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment options = Library.struct(arena, "moe_convert_options");
      Library.set(options, "moe_convert_options", "flags", flags);
      if (control == null) return new Packed(create("moe_convert_weights", context, selection, weights, options));
      return control.held(() -> {
        Library.set(options, "moe_convert_options", "control", control.pointer());
        return new Packed(control.watched(() -> create("moe_convert_weights", context, selection, weights, options)));
      });
    }
  }

  public static Packed load(String path) {
    return load(path, MMAP, null, null);
  }

  /** flags: MMAP, PREFAULT, VERIFY; context and control may be null. */
  public static Packed load(String path, int flags, Context context, Control control) {
    try (Arena arena = Arena.ofConfined()) {
      return new Packed(create("moe_packed_load", context, text(arena, "path", path), flags, control));
    }
  }

  /** From the bytes of toBytes(), copied. */
  public static Packed fromBytes(byte[] bytes) {
    MemorySegment memory = Library.allocate(MemorySegment.ofArray(given("bytes", bytes)), true);
    return new Packed(create("moe_packed_load_memory", null, memory, memory.byteSize(), 0L, Library.FREE, memory));
  }

  public void save(String path) {
    save(path, null);
  }

  public void save(String path, Control control) {
    try (Arena arena = Arena.ofConfined()) {
      check("moe_packed_save", this, text(arena, "path", path), 0L, control);
    }
  }

  public byte[] toBytes() {
    return held(() -> {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment data = arena.allocate(ValueLayout.ADDRESS), size = arena.allocate(ValueLayout.JAVA_LONG);
        check("moe_packed_data", this, data, size);
        return data.get(ValueLayout.ADDRESS, 0).reinterpret(size.get(ValueLayout.JAVA_LONG, 0)).toArray(ValueLayout.JAVA_BYTE);
      }
    });
  }

  /** One named output, of one expert or (-1) all, copied; report() lists the names. */
  public Tensor get(String name, long expert) {
    return held(() -> {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment tensor = Library.struct(arena, "moe_tensor");
        check("moe_packed_get", this, text(arena, "name", name), expert, tensor);
        return Tensor.taken(tensor);
      }
    });
  }

  /** One expert's "w13_weight" or "w2_weight" as float32, for checks. */
  public Tensor dequantize(String role, long expert) {
    Map<?, ?> config = (Map<?, ?>) Json.object(report()).get("config");
    long hidden = (Long) config.get("hidden_dim"), inner = (Long) config.get("intermediate_size_per_partition");
    long[] shape = given("role", role).startsWith("w2") ? new long[] {hidden, inner}
                                         : new long[] {Boolean.TRUE.equals(config.get("is_gated")) ? 2 * inner : inner, hidden};
    Tensor out = Tensor.of(new float[Math.toIntExact(shape[0] * shape[1])], shape);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment memory = arena.allocate(out.data().byteSize(), 64);
      check("moe_packed_dequantize", this, text(arena, "role", role), expert, out.struct(arena, memory));
      out.data().copyFrom(memory);
      return out;
    }
  }

  /** Layout, config, experts, named outputs, sizes, content hash, as JSON. */
  public String report() {
    return textOf("moe_packed_to_json", this);
  }
}
