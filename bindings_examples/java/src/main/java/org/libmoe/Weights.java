package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Source tensors of one layer; one thread at a time. Tensors that are set are copied into memory of the library, which it
 * frees itself; large checkpoints are better read from files.
 */
public final class Weights extends Handle {
  public Weights(Config config) {
    super("weights", create("moe_weights_create", config));
  }

  // A struct over a copy that the library ends, by release(user).
  private record Given(MemorySegment tensor, MemorySegment memory) {
    static Given of(Arena arena, Tensor tensor) {
      if (tensor == null) throw new IllegalArgumentException("tensor: expected one, found null");
      MemorySegment memory = Library.allocate(tensor.data());
      return new Given(tensor.struct(arena, memory), memory);
    }
  }

  /** A stacked tensor [E, ...]. */
  public void set(String role, Tensor tensor) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment name = text(arena, "role", role);
      held(() -> {
        Given given = Given.of(arena, tensor);
        check("moe_weights_set", this, name, given.tensor(), Library.FREE, given.memory());
        return null;
      });
    }
  }

  /** One expert's; shard: "w1" (gate) or "w3" (up) for half of a w13 role, null for all of it. */
  public void setExpert(String role, long expert, String shard, Tensor tensor) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment name = text(arena, "role", role), half = text(arena, "shard", shard);
      held(() -> {
        Given given = Given.of(arena, tensor);
        check("moe_weights_set_expert", this, name, expert, half, given.tensor(), Library.FREE, given.memory());
        return null;
      });
    }
  }

  /** By the name in a checkpoint; false: the name is not of this layer. */
  public boolean setNamed(String name, Tensor tensor) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = text(arena, "name", name), consumed = arena.allocate(ValueLayout.JAVA_INT);
      return held(() -> {
        Given given = Given.of(arena, tensor);
        check("moe_weights_set_named", this, text, given.tensor(), Library.FREE, given.memory(), consumed);
        return consumed.get(ValueLayout.JAVA_INT, 0) == 1;
      });
    }
  }

  /** A file, an index or a directory; tensors are read during conversion. */
  public void loadSafetensors(String path) {
    loadSafetensors(path, null);
  }

  public void loadSafetensors(String path, String module) {
    try (Arena arena = Arena.ofConfined()) {
      check("moe_weights_load_safetensors", this, text(arena, "path", path), text(arena, "module", module));
    }
  }

  /** One expert's tensor, all with -1; copied. */
  public Tensor get(String role, long expert) {
    return held(() -> {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment tensor = Library.struct(arena, "moe_tensor"), hold = arena.allocate(ValueLayout.ADDRESS);
        check("moe_weights_get", this, text(arena, "role", role), expert, tensor, hold);
        try {
          return Tensor.taken(tensor);
        } finally {
          Library.call("moe_buffer_destroy", hold.get(ValueLayout.ADDRESS, 0));
        }
      }
    });
  }

  /** complete, missing, unexpected, experts, tensors, as JSON. */
  public String report() {
    return textOf("moe_weights_to_json", this);
  }
}
