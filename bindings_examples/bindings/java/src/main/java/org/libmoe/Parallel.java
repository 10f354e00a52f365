package org.libmoe;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;

/** Threads of the program for the calls that get a {@link Context} made with it, and for its layers. */
public interface Parallel {
  /** How many tasks can run at once. */
  int threads();

  /**
   * Runs task.accept(i) once for each i below count, on any threads, and returns when all are done. Called by several
   * threads at once when the library is. What it throws stops the call, and is thrown by it; a task left out makes it
   * MOE_ERR_CALLBACK.
   */
  void run(long count, LongConsumer task);

  /** The calling thread, and threads of an executor when it has some free: nothing waits for those that it has not. */
  static Parallel on(Executor executor, int threads) {
    if (executor == null) throw new IllegalArgumentException("executor: expected one, found null");
    return new Parallel() {
      @Override
      public int threads() {
        return threads;
      }

      @Override
      public void run(long count, LongConsumer task) {
        AtomicLong next = new AtomicLong();
        CountDownLatch left = new CountDownLatch(Math.toIntExact(count));
        Runnable some = () -> {
          for (long i = next.getAndIncrement(); i < count; i = next.getAndIncrement()) {
            try {
              task.accept(i);
            } finally {
              left.countDown();
            }
          }
        };
        for (int i = 1; i < threads && i < count; ++i) {
          try {
            executor.execute(some);
          } catch (RejectedExecutionException e) {
            if (executor instanceof ExecutorService service && service.isShutdown()) {
              next.set(count); // those that it took before find nothing to do
              throw e;
            }
            break; // it has none free
          }
        }
        some.run();
        boolean interrupted = false;
        while (left.getCount() > 0) {
          try {
            left.await();
          } catch (InterruptedException e) {
            interrupted = true;
          }
        }
        if (interrupted) Thread.currentThread().interrupt();
      }
    };
  }
}
