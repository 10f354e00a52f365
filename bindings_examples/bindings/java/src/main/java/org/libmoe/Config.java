package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** The checked description of one layer; immutable. */
public final class Config extends Handle {
  public Config(String json) {
    this(make("moe_config_create", null, json));
  }

  private Config(MemorySegment pointer) {
    super("config", pointer);
  }

  private static MemorySegment make(String function, Config base, String text) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment document = document(arena, text);
      if (base == null) return create(function, document, document.byteSize());
      return create(function, base, document, document.byteSize());
    }
  }

  /** From the text of a model's config.json. */
  public static Config fromHf(String configJson) {
    return fromHf(configJson, null);
  }

  /** options: {"layer_index":3, ...} */
  public static Config fromHf(String configJson, String optionsJson) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = document(arena, configJson), options = document(arena, optionsJson);
      return new Config(create("moe_config_create_from_hf", text, text.byteSize(), options, options.byteSize()));
    }
  }

  static Config ofLayer(Checkpoint checkpoint, long layer, String patchJson) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment patch = document(arena, patchJson);
      return new Config(create("moe_checkpoint_config", checkpoint, layer, patch, patch.byteSize()));
    }
  }

  /** A new one: this document with a JSON merge patch. */
  public Config merge(String patchJson) {
    return new Config(make("moe_config_merge", this, patchJson));
  }

  /** The resolved document: defaults written out. */
  public String document() {
    return textOf("moe_config_to_json", this);
  }

  /** By JSON pointer: "/num_experts". */
  public long getInt(String pointer) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
      check("moe_config_get_int", this, text(arena, "pointer", pointer), out);
      return out.get(ValueLayout.JAVA_LONG, 0);
    }
  }

  public double getFloat(String pointer) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_DOUBLE);
      check("moe_config_get_float", this, text(arena, "pointer", pointer), out);
      return out.get(ValueLayout.JAVA_DOUBLE, 0);
    }
  }

  public String getString(String pointer) {
    return held(() -> {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
        check("moe_config_get_string", this, text(arena, "pointer", pointer), out);
        return Library.text(out.get(ValueLayout.ADDRESS, 0));
      }
    });
  }
}
