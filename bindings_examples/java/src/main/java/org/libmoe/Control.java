package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** Progress and cancellation of convert, save, load and apply; several calls may share one. */
public final class Control extends Handle {
  /** Called now and then on the thread of the long call; total is 0 while unknown. false stops the call. */
  @FunctionalInterface
  public interface Progress {
    boolean report(long done, long total);
  }

  public record Units(long done, long total) {}

  private static final class Listener {
    final Progress progress;
    volatile Throwable thrown;

    Listener(Progress progress) {
      this.progress = progress;
    }
  }

  // `user` of the C callback is a number of this table: no memory whose end could come too early.
  private static final Map<Long, Listener> LISTENERS = new ConcurrentHashMap<>();
  private static final AtomicLong NUMBERS = new AtomicLong();
  private static final MemorySegment REPORT, RELEASE;

  static {
    try {
      MethodHandles.Lookup here = MethodHandles.lookup();
      REPORT = Library.upcall(
          here.findStatic(Control.class, "report", MethodType.methodType(int.class, MemorySegment.class, long.class, long.class)),
          FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.JAVA_LONG, ValueLayout.JAVA_LONG));
      RELEASE = Library.upcall(here.findStatic(Control.class, "release", MethodType.methodType(void.class, MemorySegment.class)),
          FunctionDescriptor.ofVoid(ValueLayout.ADDRESS));
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final Listener listener;

  /** Without a function: any thread may ask {@link #progress}. */
  public Control() {
    super("control", create("moe_control_create", null, null, null));
    listener = null;
  }

  public Control(Progress progress) {
    this(new Listener(progress), NUMBERS.incrementAndGet());
  }

  private Control(Listener listener, long number) {
    super("control", register(listener, number));
    this.listener = listener;
  }

  private static MemorySegment register(Listener listener, long number) {
    if (listener.progress == null) throw new IllegalArgumentException("progress: expected a function, found null");
    LISTENERS.put(number, listener);
    return create("moe_control_create", REPORT, MemorySegment.ofAddress(number), RELEASE);
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
      return call.get();
    } catch (MoeException e) {
      rethrow();
      throw e;
    }
  }

  /** What the program's function threw stopped the call, and is what the call fails with. */
  void rethrow() {
    Throwable thrown = listener == null ? null : listener.thrown;
    if (thrown == null) return;
    listener.thrown = null;
    if (thrown instanceof RuntimeException e) throw e;
    throw (Error) thrown; // Progress declares no others
  }

  // An exception that leaves an upcall ends the virtual machine.
  private static int report(MemorySegment user, long done, long total) {
    Listener listener = LISTENERS.get(user.address());
    try {
      return listener.progress.report(done, total) ? 0 : 15; // MOE_ERR_CANCELLED
    } catch (Throwable e) {
      if (listener != null) listener.thrown = e;
      return 17; // MOE_ERR_CALLBACK
    }
  }

  private static void release(MemorySegment user) {
    LISTENERS.remove(user.address());
  }
}
