package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;

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
      MemorySegment memory = Library.allocate(tensor.data(), false);
      return new Given(tensor.struct(arena, memory), memory);
    }
  }

  /** Asked for tensors while they are converted, so that only a few experts are in memory at a time. */
  @FunctionalInterface
  public interface Source {
    /**
     * One expert's tensor as for setExpert, which is copied, or null: there is none. A w13 role is asked for as a whole
     * (shard null) first, then as "w1" and "w3". Threads of a context call at once. What it throws stops the call, and is
     * thrown by it.
     */
    Tensor get(String role, long expert, String shard);
  }

  private record Asked(Source source, Callbacks.Thrown thrown) implements Callbacks.Kept {}

  private static final MemorySegment GET = Callbacks.stub(MethodHandles.lookup(), Weights.class, "get",
      FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.ADDRESS, ValueLayout.JAVA_LONG,
          ValueLayout.ADDRESS, ValueLayout.ADDRESS, ValueLayout.ADDRESS));
  private static final MemorySegment PUT = Callbacks.stub(MethodHandles.lookup(), Weights.class, "put",
      FunctionDescriptor.ofVoid(ValueLayout.ADDRESS, ValueLayout.ADDRESS, ValueLayout.JAVA_LONG, ValueLayout.ADDRESS,
          ValueLayout.ADDRESS));

  /** A set whose tensors come from a function, which is kept until it ends: one that uses the set itself, until close(). */
  public static Weights fromSource(Config config, Source source) {
    if (source == null) throw new IllegalArgumentException("source: expected a function, found null");
    return new Weights(config, new Asked(source, new Callbacks.Thrown(false)));
  }

  private Weights(Config config, Asked asked) {
    super("weights", make(config, asked));
    thrown = asked.thrown();
  }

  private static MemorySegment make(Config config, Asked asked) {
    MemorySegment user = Callbacks.keep(asked);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment ops = Library.struct(arena, "moe_weight_source_ops");
      Library.set(ops, "moe_weight_source_ops", "user", user);
      Library.set(ops, "moe_weight_source_ops", "get", GET);
      Library.set(ops, "moe_weight_source_ops", "put", PUT);
      Library.set(ops, "moe_weight_source_ops", "destroy", Callbacks.RELEASE);
      return create("moe_weights_create_from_source", config, ops);
    } catch (RuntimeException | Error e) {
      Callbacks.forget(user); // a config that is closed: the library was not asked
      throw e;
    }
  }

  private static int get(MemorySegment user, MemorySegment role, long expert, MemorySegment shard, MemorySegment out,
                         MemorySegment error) {
    return Callbacks.guarded(user, Asked.class, asked -> {
      try (Arena arena = Arena.ofConfined()) {
        Tensor found = asked.source().get(Library.text(role), expert, shard.address() == 0 ? null : Library.text(shard));
        if (found == null) return MoeException.MISSING_WEIGHT;
        MemorySegment memory = Library.allocate(found.data(), false);
        MemorySegment struct = found.struct(arena, memory);
        if (found.data().byteSize() == 0) Library.free(memory); // an empty tensor has no memory
        out.reinterpret(struct.byteSize()).copyFrom(struct);
        return 0;
      } catch (Throwable e) {
        report(e, error);
        throw e;
      }
    });
  }

  /** The text of what was thrown, for the library's own error. */
  private static void report(Throwable thrown, MemorySegment error) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = document(arena, String.valueOf(thrown));
      Object made = Library.call("moe_error_create", Callbacks.status(thrown), text, text.byteSize());
      error.reinterpret(ValueLayout.ADDRESS.byteSize()).set(ValueLayout.ADDRESS, 0, (MemorySegment) made);
    }
  }

  private static void put(MemorySegment user, MemorySegment role, long expert, MemorySegment shard, MemorySegment tensor) {
    Callbacks.guarded(user, Asked.class, asked -> {
      MemorySegment data = tensor.reinterpret(Library.offset("moe_tensor", "data") + 8);
      Library.free(data.get(ValueLayout.ADDRESS, Library.offset("moe_tensor", "data")));
      return 0;
    });
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

  /** From the files of a checkpoint, of whose config the set was made; tensors are read during conversion. */
  public void loadCheckpoint(Checkpoint checkpoint) {
    check("moe_weights_load_checkpoint", this, checkpoint);
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
