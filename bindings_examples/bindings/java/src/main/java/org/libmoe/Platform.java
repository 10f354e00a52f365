package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** This machine, or one that is described; immutable. */
public final class Platform extends Handle {
  /** This machine. */
  public Platform() {
    this(null);
  }

  public Platform(String json) {
    super("platform", make(json));
  }

  private static MemorySegment make(String json) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = document(arena, json);
      return create("moe_platform_create", text, text.byteSize());
    }
  }

  /** "avx512_vnni", "i8mm" */
  public boolean has(String feature) {
    try (Arena arena = Arena.ofConfined()) {
      return (int) invoke("moe_platform_has", this, text(arena, "feature", feature)) == 1;
    }
  }

  public String document() {
    return textOf("moe_platform_to_json", this);
  }
}
