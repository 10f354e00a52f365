package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** Threads, memory and log for the calls that get it; without one (null): one thread. */
public final class Context extends Handle {
  public Context() {
    this(null);
  }

  /** options: {"threads":0, ...}, see moe_context_create. */
  public Context(String optionsJson) {
    super("context", make(optionsJson));
  }

  private static MemorySegment make(String options) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = document(arena, options);
      return create("moe_context_create", text, text.byteSize(), null);
    }
  }

  /** Options after resolution, and all backends, as JSON. */
  public String report() {
    return textOf("moe_context_to_json", this);
  }

  /** The messages since the last call, one JSON object a line. */
  public String takeLog() {
    return textOf("moe_context_take_log", this);
  }
}
