package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.LongConsumer;

/** Threads, memory and log for the calls that get it; without one (null): one thread. */
public final class Context extends Handle {
  public enum Level { TRACE, DEBUG, INFO, WARN, ERROR }

  /**
   * Gets messages, from any thread, also at once. It must not call this package; a message that it throws at is lost for
   * it, takeLog() has it all the same.
   */
  @FunctionalInterface
  public interface Log {
    void write(Level level, String component, String message);
  }

  private record Logger(Log log) implements Callbacks.Kept {
    @Override
    public Callbacks.Thrown thrown() {
      return new Callbacks.Thrown(true); // there is no call that fails
    }
  }

  private record Threads(Parallel parallel, Callbacks.Thrown thrown) implements Callbacks.Kept {}

  private static final MemorySegment WRITE = Callbacks.stub(MethodHandles.lookup(), Context.class, "write",
      FunctionDescriptor.ofVoid(ValueLayout.ADDRESS, ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.ADDRESS, ValueLayout.JAVA_LONG));
  private static final MemorySegment RUN = Callbacks.stub(MethodHandles.lookup(), Context.class, "run",
      FunctionDescriptor.ofVoid(ValueLayout.ADDRESS, ValueLayout.JAVA_LONG, ValueLayout.ADDRESS, ValueLayout.ADDRESS));
  private static final MethodHandle TASK = Library.function(FunctionDescriptor.ofVoid(ValueLayout.ADDRESS, ValueLayout.JAVA_LONG));

  public Context() {
    this(null);
  }

  /** options: {"threads":0, ...}, see moe_context_create. */
  public Context(String optionsJson) {
    this(optionsJson, null, null);
  }

  /** log gets the messages from "log_level" of the options on, parallel is used instead of threads of its own; both may be null. */
  public Context(String optionsJson, Log log, Parallel parallel) {
    this(optionsJson, log, parallel, new Callbacks.Thrown(true));
  }

  private Context(String options, Log log, Parallel parallel, Callbacks.Thrown thrown) {
    super("context", make(options, log, parallel, thrown));
    this.thrown = thrown;
  }

  private static MemorySegment make(String options, Log log, Parallel parallel, Callbacks.Thrown thrown) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = document(arena, options), callbacks = Library.struct(arena, "moe_context_callbacks");
      int threads = parallel == null ? 0 : parallel.threads(); // the last that can fail before the library has it all
      if (log != null) {
        Library.set(callbacks, "moe_context_callbacks", "log", WRITE);
        Library.set(callbacks, "moe_context_callbacks", "log_user", Callbacks.keep(new Logger(log)));
        Library.set(callbacks, "moe_context_callbacks", "log_destroy", Callbacks.RELEASE);
      }
      if (parallel != null) {
        MemorySegment ops = Library.struct(arena, "moe_parallel_ops");
        Library.set(ops, "moe_parallel_ops", "num_threads", threads);
        Library.set(ops, "moe_parallel_ops", "parallel_for", RUN);
        Library.set(ops, "moe_parallel_ops", "user", Callbacks.keep(new Threads(parallel, thrown)));
        Library.set(ops, "moe_parallel_ops", "destroy", Callbacks.RELEASE);
        Library.set(callbacks, "moe_context_callbacks", "parallel", ops);
      }
      return create("moe_context_create", text, text.byteSize(), callbacks);
    }
  }

  private static void write(MemorySegment user, int level, MemorySegment component, MemorySegment message, long size) {
    Callbacks.guarded(user, Logger.class, logger -> {
      byte[] bytes = message.reinterpret(size).toArray(ValueLayout.JAVA_BYTE);
      logger.log().write(Level.values()[level], Library.text(component), new String(bytes, StandardCharsets.UTF_8));
      return 0;
    });
  }

  /** One loop of the library: its tasks run until the program's function is back. */
  private static final class Loop implements LongConsumer {
    private final MemorySegment task, argument;
    private final ReentrantReadWriteLock running = new ReentrantReadWriteLock();
    private boolean ended;

    Loop(MemorySegment task, MemorySegment argument) {
      this.task = task;
      this.argument = argument;
    }

    @Override
    public void accept(long index) {
      Lock one = running.readLock();
      one.lock();
      try {
        if (ended) throw new IllegalStateException("task " + index + ": the function that it was given to has returned");
        TASK.invokeExact(task, argument, index);
      } catch (RuntimeException | Error e) {
        throw e;
      } catch (Throwable e) {
        throw new IllegalStateException(e); // a downcall throws no other
      } finally {
        one.unlock();
      }
    }

    void end() {
      running.writeLock().lock(); // waits for tasks that still run
      ended = true;
      running.writeLock().unlock();
    }
  }

  private static void run(MemorySegment user, long count, MemorySegment task, MemorySegment argument) {
    Callbacks.guarded(user, Threads.class, threads -> {
      Loop loop = new Loop(task, argument);
      try {
        threads.parallel().run(count, loop);
      } finally {
        loop.end();
      }
      return 0;
    });
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
