package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.Cleaner;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * An owned object of the library. close() waits for the calls that use it in other threads; a later call with it is
 * MOE_ERR_INVALID_HANDLE, a second close() does nothing. Objects may end in any order; one that is forgotten ends when it is
 * collected.
 */
public abstract class Handle implements AutoCloseable {
  private static final Cleaner CLEANER = Cleaner.create();

  /** What the cleaner needs; it must not lead back to the handle. */
  private static final class Owned implements Runnable {
    final String kind;
    final MemorySegment pointer;
    final List<Thread> users = new ArrayList<>();
    boolean closed;

    Owned(String kind, MemorySegment pointer) {
      this.kind = kind;
      this.pointer = pointer;
    }

    @Override
    public void run() {
      Library.call("moe_" + kind + "_destroy", pointer);
    }
  }

  private final Owned owned;
  private final Cleaner.Cleanable cleanable;
  /** What functions of the program threw that calls with this object run. */
  Callbacks.Thrown thrown = new Callbacks.Thrown(true);

  Handle(String kind, MemorySegment pointer) {
    owned = new Owned(kind, pointer);
    cleanable = CLEANER.register(this, owned);
  }

  @Override
  public void close() {
    synchronized (owned) {
      if (owned.users.contains(Thread.currentThread()))
        throw failure(MoeException.BUSY, owned.kind, "this " + owned.kind + " is in use by the thread that closes it");
      if (!owned.users.isEmpty() && Callbacks.inside())
        throw failure(MoeException.BUSY, owned.kind, "this " + owned.kind + " is in use by a call that may wait for the function that closes it");
      owned.closed = true;
      boolean interrupted = false;
      while (!owned.users.isEmpty()) {
        try {
          owned.wait();
        } catch (InterruptedException e) {
          interrupted = true;
        }
      }
      if (interrupted) Thread.currentThread().interrupt();
    }
    cleanable.clean(); // once
  }

  /** The address for {@link Library#call}, valid until close(). */
  public MemorySegment pointer() {
    enter();
    leave();
    return owned.pointer;
  }

  private MemorySegment enter() {
    synchronized (owned) {
      if (owned.closed) throw failure(MoeException.INVALID_HANDLE, owned.kind, "this " + owned.kind + " is closed");
      owned.users.add(Thread.currentThread());
      return owned.pointer;
    }
  }

  private void leave() {
    synchronized (owned) {
      owned.users.remove(Thread.currentThread());
      owned.notifyAll();
    }
  }

  /** Runs what reads memory that the object lends: it stays open meanwhile. */
  final <T> T held(java.util.function.Supplier<T> body) {
    enter();
    try {
      return body.get();
    } finally {
      leave();
    }
  }

  static MoeException failure(int status, String subject, String message) {
    return new MoeException(status, Library.text(Library.call("moe_status_name", status)), subject, message, "{}");
  }

  /** A function of moe.h; handles among its arguments stay open meanwhile. */
  static Object invoke(String name, Object... arguments) {
    List<Handle> used = new ArrayList<>();
    try {
      Object[] plain = arguments.clone();
      for (int i = 0; i < plain.length; ++i)
        if (plain[i] instanceof Handle handle) {
          plain[i] = handle.enter();
          used.add(handle);
        }
      return Library.call(name, plain);
    } finally {
      for (Handle handle : used) handle.leave();
    }
  }

  /** A fallible one, without its last parameter: throws what it reports. */
  static void check(String name, Object... arguments) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment error = arena.allocate(ValueLayout.ADDRESS);
      Object[] all = java.util.Arrays.copyOf(arguments, arguments.length + 1);
      all[arguments.length] = error;
      int status = (int) invoke(name, all);
      List<Callbacks.Thrown> thrown = new ArrayList<>();
      for (Object argument : arguments) if (argument instanceof Handle handle) thrown.add(handle.thrown);
      if (status == 0) {
        thrown.forEach(Callbacks.Thrown::take); // came too late to stop it
        return;
      }
      MemorySegment owned = error.get(ValueLayout.ADDRESS, 0);
      try {
        throw new MoeException(status, Library.text(Library.call("moe_status_name", status)),
            Library.text(Library.call("moe_error_subject", owned)), Library.text(Library.call("moe_error_message", owned)),
            Library.text(Library.call("moe_error_details_json", owned)));
      } catch (MoeException e) {
        thrown.forEach(Callbacks.Thrown::rethrow);
        throw e;
      } finally {
        Library.call("moe_error_destroy", owned);
      }
    }
  }

  /** One that gives a pointer before the error: that pointer. */
  static MemorySegment create(String name, Object... arguments) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      Object[] all = java.util.Arrays.copyOf(arguments, arguments.length + 1);
      all[arguments.length] = out;
      check(name, all);
      return out.get(ValueLayout.ADDRESS, 0);
    }
  }

  /** One that gives text in a buffer. */
  static String textOf(String name, Object... arguments) {
    return new String(bytesOf(create(name, arguments)), StandardCharsets.UTF_8);
  }

  /** The bytes of a buffer, which is ended. */
  static byte[] bytesOf(MemorySegment buffer) {
    try {
      MemorySegment data = (MemorySegment) Library.call("moe_buffer_data", buffer);
      return data.reinterpret((long) Library.call("moe_buffer_size", buffer)).toArray(ValueLayout.JAVA_BYTE);
    } finally {
      Library.call("moe_buffer_destroy", buffer);
    }
  }

  /** The value, which must be there. */
  static <T> T given(String name, T value) {
    if (value == null) throw new IllegalArgumentException(name + ": expected one, found null");
    return value;
  }

  /** Text that C reads up to a NUL. */
  static MemorySegment text(Arena arena, String name, String text) {
    if (text == null) return MemorySegment.NULL;
    if (text.indexOf('\0') >= 0) throw new IllegalArgumentException(name + ": expected a text without NUL characters");
    return arena.allocateFrom(text);
  }

  /** Text with its length: one of a (pointer, length) pair of parameters; null for none. */
  static MemorySegment document(Arena arena, String text) {
    if (text == null) return MemorySegment.NULL;
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    return arena.allocate(Math.max(1, bytes.length)).copyFrom(MemorySegment.ofArray(bytes)).asSlice(0, bytes.length);
  }
}
