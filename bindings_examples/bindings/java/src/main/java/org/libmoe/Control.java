package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;

/** Progress and cancellation of long calls: those of Checkpoint, convert, save, load and apply; several calls may share one. */
public final class Control extends Handle {
  /** Called now and then on the thread of the long call; total is 0 while unknown. false stops the call. */
  @FunctionalInterface
  public interface Progress {
    boolean report(long done, long total);
  }

  public record Units(long done, long total) {}

  /** What a long call is doing. */
  public enum Phase { NONE, OPEN, CONVERT, SAVE, LOAD, HASH, APPLY }

  /** What done and total of a phase count. */
  public enum Unit { NONE, FILES, EXPERTS, BYTES }

  /**
   * All that is known. done and total count in the phase alone. layer is the model's number, -1: no layer. Bytes are of the
   * whole call: bytesDone never goes back.
   */
  public record State(Phase phase, Unit unit, long done, long total, long layer, long layersDone, long layersTotal,
                      long bytesDone, long bytesTotal) {}

  /** As Progress, but it gets all that is known. */
  @FunctionalInterface
  public interface Watcher {
    boolean report(State state);
  }

  private record Listener(Progress progress, Callbacks.Thrown thrown) implements Callbacks.Kept {}

  private static final MemorySegment REPORT = Callbacks.stub(MethodHandles.lookup(), Control.class, "report",
      FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.JAVA_LONG, ValueLayout.JAVA_LONG));

  /** Without a function: any thread may ask {@link #progress}. */
  public Control() {
    super("control", create("moe_control_create", null, null, null));
  }

  public Control(Progress progress) {
    this(new Listener(progress, new Callbacks.Thrown(true)));
  }

  public static Control watching(Watcher watcher) {
    if (watcher == null) throw new IllegalArgumentException("watcher: expected a function, found null");
    MemorySegment[] self = new MemorySegment[1]; // no handle: it would never be collected
    Control control = new Control((done, total) -> watcher.report(state(self[0])));
    self[0] = control.pointer();
    return control;
  }

  private Control(Listener listener) {
    super("control", register(listener));
    thrown = listener.thrown();
  }

  private static MemorySegment register(Listener listener) {
    if (listener.progress() == null) throw new IllegalArgumentException("progress: expected a function, found null");
    return create("moe_control_create", REPORT, Callbacks.keep(listener), Callbacks.RELEASE);
  }

  /** Stops the calls that use it, and later ones; from any thread. */
  public void cancel() {
    invoke("moe_control_cancel", this);
  }

  public Units progress() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment done = arena.allocate(ValueLayout.JAVA_LONG), total = arena.allocate(ValueLayout.JAVA_LONG);
      invoke("moe_control_progress", this, done, total);
      return new Units(done.get(ValueLayout.JAVA_LONG, 0), total.get(ValueLayout.JAVA_LONG, 0));
    }
  }

  /** What the running or last call with this control does; also for its progress function. */
  public State state() {
    return state(this);
  }

  private static State state(Object control) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment now = Library.struct(arena, "moe_progress");
      check("moe_control_state", control, now);
      return new State(known(Phase.values(), Library.getInt(now, "moe_progress", "phase")),
          known(Unit.values(), Library.getInt(now, "moe_progress", "unit")), number(now, "done"), number(now, "total"),
          number(now, "layer"), number(now, "layers_done"), number(now, "layers_total"), number(now, "bytes_done"),
          number(now, "bytes_total"));
    }
  }

  private static long number(MemorySegment state, String member) {
    return Library.getLong(state, "moe_progress", member);
  }

  /** Values of a later library are the first one, which says nothing. */
  static <E> E known(E[] values, int value) {
    return values[value >= 0 && value < values.length ? value : 0];
  }

  /** Runs a call whose options hold this control. */
  <T> T watched(java.util.function.Supplier<T> call) {
    try {
      T result = call.get();
      thrown.take(); // came too late to stop it
      return result;
    } catch (MoeException e) {
      thrown.rethrow(); // what stopped it
      throw e;
    }
  }

  private static int report(MemorySegment user, long done, long total) {
    return Callbacks.guarded(user, Listener.class, l -> l.progress().report(done, total) ? 0 : MoeException.CANCELLED);
  }
}
