package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;

/** Progress and cancellation of convert, save, load and apply; several calls may share one. */
public final class Control extends Handle {
  /** Called now and then on the thread of the long call; total is 0 while unknown. false stops the call. */
  @FunctionalInterface
  public interface Progress {
    boolean report(long done, long total);
  }

  public record Units(long done, long total) {}

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
