/* Read bandwidth probe: every thread sums its own part of one block, prefetching 8 KiB ahead (the
 * hardware prefetcher alone reaches two thirds of it), from huge pages where the kernel gives them.
 * The threads meet at a barrier before and after each pass; thread 0 takes the time between. */
#define _GNU_SOURCE
#include "bandwidth.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { kPasses = 7, kMaxThreads = 64, kAhead = 8192, kLine = 64 };
static const size_t kBlock = (size_t)512 << 20;

typedef struct {
  const unsigned char* data;
  size_t size;
  pthread_barrier_t* barrier;
  uint64_t sum; /* kept, so that the reads are not optimised away */
  double* seconds;
} part;

double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double process_memory(const char* key) {
  char line[256];
  double bytes = 0;
  FILE* f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f))
    if (strncmp(line, key, strlen(key)) == 0) bytes = 1024.0 * atof(line + strlen(key));
  if (f) fclose(f);
  return bytes;
}

static uint64_t read_all(const unsigned char* data, size_t size) {
  uint64_t sums[8] = {0};
  for (size_t i = 0; i + kLine <= size; i += kLine) {
    __builtin_prefetch(data + i + kAhead);
    uint64_t words[8];
    memcpy(words, data + i, sizeof words);
    for (int k = 0; k < 8; ++k) sums[k] += words[k];
  }
  return sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
}

static void* run(void* argument) {
  part* p = argument;
  for (int pass = 0; pass < kPasses; ++pass) {
    pthread_barrier_wait(p->barrier);
    const double start = seconds_now();
    p->sum += read_all(p->data, p->size);
    pthread_barrier_wait(p->barrier);
    if (p->seconds) p->seconds[pass] = seconds_now() - start;
  }
  return NULL;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

double read_bandwidth(int threads) {
  if (threads < 1) threads = 1;
  if (threads > kMaxThreads) threads = kMaxThreads;
  void* block = mmap(NULL, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return 0;
  madvise(block, kBlock, MADV_HUGEPAGE);
  memset(block, 1, kBlock);

  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  double seconds[kPasses];
  part parts[kMaxThreads];
  pthread_t ids[kMaxThreads];
  const size_t each = kBlock / (size_t)threads / kLine * kLine;
  for (int i = 0; i < threads; ++i) {
    parts[i] = (part){(unsigned char*)block + (size_t)i * each, each, &barrier, 0, i == 0 ? seconds : NULL};
    if (i > 0 && pthread_create(&ids[i], NULL, run, &parts[i]) != 0) abort();
  }
  run(&parts[0]);
  for (int i = 1; i < threads; ++i) pthread_join(ids[i], NULL);
  pthread_barrier_destroy(&barrier);
  munmap(block, kBlock);
  qsort(seconds, kPasses, sizeof *seconds, ascending);
  return (double)(each * (size_t)threads) / seconds[kPasses / 2];
}
