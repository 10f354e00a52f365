package org.libmoe;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.ToIntFunction;

/** What the library calls: functions of the program, in upcalls that nothing they throw leaves. */
final class Callbacks {
  /** What functions threw, until the call that they stopped has come back. */
  static final class Thrown {
    private final Map<Object, Throwable> first = new ConcurrentHashMap<>();
    private final boolean apart;

    /** apart: functions run on the thread of their call, and several threads may call at once. */
    Thrown(boolean apart) {
      this.apart = apart;
    }

    private Object place() {
      return apart ? Thread.currentThread() : this;
    }

    void put(Throwable thrown) {
      first.putIfAbsent(place(), thrown);
    }

    Throwable take() {
      return first.remove(place());
    }

    /** Throws what was thrown, if anything was. */
    void rethrow() {
      Throwable thrown = take();
      if (thrown instanceof RuntimeException e) throw e;
      if (thrown instanceof Error e) throw e;
      if (thrown != null) throw new IllegalStateException(thrown); // of another language: no function here declares it
    }
  }

  /** What an upcall finds by its `user`. */
  interface Kept {
    Thrown thrown();
  }

  // `user` of a C callback is a number of this table: no memory whose end could come too early.
  private static final Map<Long, Kept> KEPT = new ConcurrentHashMap<>();
  private static final AtomicLong NUMBERS = new AtomicLong();

  // How many functions this thread is in. More would end the stack, at times where nothing can catch it.
  private static final ThreadLocal<Integer> DEPTH = ThreadLocal.withInitial(() -> 0);
  private static final int DEEPEST = 8;

  /** The moe_release_fn of whatever is kept. */
  static final MemorySegment RELEASE =
      stub(MethodHandles.lookup(), Callbacks.class, "forget", FunctionDescriptor.ofVoid(ValueLayout.ADDRESS));

  private Callbacks() {}

  /** The `user` under which an upcall finds the value, until {@link #RELEASE}. */
  static MemorySegment keep(Kept value) {
    long number = NUMBERS.incrementAndGet();
    KEPT.put(number, value);
    return MemorySegment.ofAddress(number);
  }

  /** Also for what the library was never given; the second time does nothing. */
  static void forget(MemorySegment user) {
    KEPT.remove(user.address());
  }

  /** For tests: what the library still has. */
  static Set<Long> numbers() {
    return Set.copyOf(KEPT.keySet());
  }

  /** A static method as a C function that is never freed. */
  static MemorySegment stub(MethodHandles.Lookup lookup, Class<?> owner, String method, FunctionDescriptor type) {
    try {
      return Library.upcall(lookup.findStatic(owner, method, type.toMethodType()), type);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /**
   * The whole of an upcall's body, with the value of `user`: an exception that leaves an upcall ends the virtual machine.
   * The body's status, or that of what it threw, which is kept for the call.
   */
  static <T extends Kept> int guarded(MemorySegment user, Class<T> type, ToIntFunction<T> body) {
    int depth = 0;
    Thrown thrown = null;
    try {
      depth = DEPTH.get();
      T value = type.cast(KEPT.get(user.address()));
      thrown = value.thrown();
      if (depth == DEEPEST)
        throw new IllegalStateException("functions that the library calls have called it, and it them, " + DEEPEST + " times deep");
      DEPTH.set(depth + 1);
      return body.applyAsInt(value);
    } catch (Throwable e) {
      if (thrown != null) thrown.put(e);
      return status(e);
    } finally {
      DEPTH.set(depth);
    }
  }

  static int status(Throwable e) {
    return e instanceof MoeException known && known.status() != 0 ? known.status() : MoeException.CALLBACK;
  }

  /** Whether this thread runs a function that a call of the library may be waiting for. */
  static boolean inside() {
    return DEPTH.get() > 0;
  }
}
