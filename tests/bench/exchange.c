/* What an exchange of libmoe's costs over an MPI: MPI_Ialltoallv, tested until it is done, as moe_mpi.c does.
 *
 *   mpirun -n RANKS exchange
 *
 * One line for each size: bytes to each other rank, and the least and the middle of the microseconds that the slowest rank needs. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRounds = 201 };

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  int rank = 0, size = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int *counts = calloc((size_t)size, sizeof *counts), *places = calloc((size_t)size, sizeof *places);
  static double times[kRounds];
  for (int bytes = 16; bytes <= 4 << 20; bytes *= 4) {
    char *send = calloc((size_t)size, (size_t)bytes), *recv = calloc((size_t)size, (size_t)bytes);
    for (int r = 0; r < size; ++r) counts[r] = r == rank ? 0 : bytes, places[r] = r * bytes;
    const int rounds = bytes > 1 << 18 ? 21 : kRounds;
    for (int i = -3; i < rounds; ++i) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      MPI_Request request;
      int done = 0;
      MPI_Ialltoallv(send, counts, places, MPI_BYTE, recv, counts, places, MPI_BYTE, MPI_COMM_WORLD, &request);
      while (!done) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      const double mine = MPI_Wtime() - begin;
      double slowest = 0;
      MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (i >= 0) times[i] = slowest;
    }
    qsort(times, (size_t)rounds, sizeof *times, by_size);
    if (rank == 0) printf("%d %.1f %.1f\n", bytes, 1e6 * times[0], 1e6 * times[rounds / 2]);
    free(send), free(recv);
  }
  free(counts), free(places);
  MPI_Finalize();
  return 0;
}
