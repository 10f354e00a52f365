/* Ranks of MPI that go wrong, and what the others see.
 *
 *   mpirun -n RANKS mpi_ranks SCENARIO [SEED]
 *
 * Every rank makes a small layer, spreads it and calls it in a loop; each result is compared with the bits of a layer of
 * its own. SCENARIO says what the last rank does:
 *
 *   well        nothing: all calls are good, the communicator and MPI end as they should
 *   late        it sleeps for longer than the deadline in its 4th call
 *   killed      it kills itself in a call that SEED chooses
 *   stopped     it stops itself (SIGSTOP) there
 *   other-step  it calls another layer than the others: an error on all ranks, and the next call is good
 *   other-config  it asks for another layer at create: an error on all ranks, and the next create is good
 *   bad-ids     its ids are bad in the 4th call: its own error, MOE_ERR_PEER on the others, the next call is good
 *   endless     nothing, and the calls do not end: something else will (a link)
 *   random      it kills itself after a time that SEED chooses, anywhere in create, attach, apply or destroy
 *   hostile     what it sends changes on its way, as SEED chooses (mpi_spoil.h), in calls or from another create on, in
 *               both modes: some status in time, and no crash
 *   tp          nothing; mode tp: near the layer of its own, the same bits when repeated, which are printed
 *
 * A rank that got what it should prints "rank R: as expected" (and how long it waited); after a deadline it also sees
 * MOE_ERR_COMM_POISONED at once and that its own layer still gives its bits, and ends by _exit, as MPI_Finalize would hang. */
#include <mpi.h>
/* after mpi.h */
#include <moe/moe_mpi.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kExperts = 6, kTopK = 2, kHidden = 64, kMiddle = 32, kTokens = 9, kCalls = 40, kDeadlineMs = 1500 };
static const char kConfig[] =
    "{\"num_experts\":6,\"top_k\":2,\"hidden_dim\":64,\"intermediate_size\":%d,\"activation\":\"silu\",\"in_dtype\":\"float32\"}";

static int rank, size, tp; /* tp: mode */
static const char* scenario;
static moe_error* err;

static void fail(const char* what) {
  fprintf(stderr, "rank %d: %s: %s, %s\n", rank, what, err ? moe_status_name(moe_error_status(err)) : "no error",
          err ? moe_error_message(err) : "");
  fflush(stderr);
  _exit(3);
}
static void check(moe_status status, const char* what) {
  if (status != MOE_OK) fail(what);
}
static void expect(int condition, const char* what) {
  if (!condition) fail(what);
}
#include "mpi_layer.h"
#include "mpi_spoil.h"

static int is(const char* name) { return strcmp(scenario, name) == 0; }
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static float number(uint64_t i) {
  i = (i + 1) * 0x9e3779b97f4a7c15u;
  i ^= i >> 29, i *= 0xbf58476d1ce4e5b9u, i ^= i >> 32;
  return (float)(i >> 40) * 0x1p-24f - 0.5f;
}

/* --- layers ------------------------------------------------------------------------------------------------------- */

static moe_config* config_of(int middle) {
  char text[256];
  moe_config* config = NULL;
  snprintf(text, sizeof text, kConfig, middle);
  check(moe_config_create(text, MOE_NUL_TERMINATED, &config, &err), "config");
  return config;
}

/* Experts of a rank: all rows of some, or in mode tp a piece of all. */
typedef struct {
  int first, experts, middle_first, middle;
} piece;
static piece whole(void) { return (piece){0, kExperts, 0, kMiddle}; }
static piece own(void) {
  const int base = kExperts / size, more = kExperts % size;
  if (tp) return (piece){0, kExperts, rank * (kMiddle / size), kMiddle / size};
  return (piece){rank * base + (rank < more ? rank : more), base + (rank < more), 0, kMiddle};
}

static moe_layer* layer_of(const moe_config* config, piece p) {
  const size_t rows = (size_t)p.experts * 2 * (size_t)p.middle, columns = (size_t)p.experts * kHidden;
  float* up = malloc(rows * kHidden * sizeof *up);
  float* down = malloc(columns * (size_t)p.middle * sizeof *down);
  for (size_t row = 0; row < rows; ++row) { /* of gate, then of up */
    const size_t half = row / (size_t)p.middle, at = row % (size_t)p.middle;
    const size_t in_whole = ((size_t)p.first * 2 + half) * kMiddle + (size_t)p.middle_first + at;
    for (size_t k = 0; k < kHidden; ++k) up[row * kHidden + k] = number(in_whole * kHidden + k);
  }
  for (size_t row = 0; row < columns; ++row)
    for (size_t k = 0; k < (size_t)p.middle; ++k)
      down[row * (size_t)p.middle + k] =
          number(1000000 + ((size_t)p.first * kHidden + row) * kMiddle + (size_t)p.middle_first + k);
  moe_tensor u = {.struct_size = sizeof u, .dtype = MOE_DTYPE_F32, .ndim = 3, .data = up, .shape = {p.experts, 2 * p.middle, kHidden}};
  moe_tensor d = {.struct_size = sizeof d, .dtype = MOE_DTYPE_F32, .ndim = 3, .data = down, .shape = {p.experts, kHidden, p.middle}};
  moe_layer* layer = layer_from(config, &u, &d);
  free(up), free(down);
  return layer;
}

static moe_dist* spread(moe_comm* comm, const moe_config* config, int id) {
  char options[96];
  moe_dist* dist = NULL;
  snprintf(options, sizeof options, "{\"max_tokens_per_rank\":16,\"layer_id\":%d,\"mode\":\"%s\"}", id, tp ? "tp" : "ep");
  check(moe_dist_create(NULL, comm, config, options, MOE_NUL_TERMINATED, &dist, &err), "dist");
  moe_config* local = NULL;
  moe_layer* layer = NULL;
  if (own().experts > 0) {
    check(moe_dist_local_config(dist, &local, &err), "local config");
    layer = layer_of(local, own());
  }
  check(moe_dist_attach(dist, layer, &err), "attach");
  moe_layer_destroy(layer), moe_config_destroy(local);
  return dist;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

typedef struct {
  float x[kTokens * kHidden], weights[kTokens * kTopK], out[kTokens * kHidden], want[kTokens * kHidden];
  int32_t ids[kTokens * kTopK];
  int64_t tokens;
  moe_tensor hidden, topk_ids, topk_weights, result;
  moe_apply_args args;
} call;

static moe_tensor matrix(moe_dtype dtype, void* data, int64_t rows, int64_t columns) {
  return (moe_tensor){.struct_size = sizeof(moe_tensor), .dtype = dtype, .ndim = 2, .data = data, .shape = {rows, columns}};
}

/* Of another number of tokens each time, also 0. */
static void prepare(call* c, int i) {
  c->tokens = (i * 5 + rank * 3) % (kTokens + 1);
  for (int64_t k = 0; k < c->tokens * kHidden; ++k) c->x[k] = number((uint64_t)(2000000 + i * 7919 + rank * 104729 + k));
  for (int64_t k = 0; k < c->tokens * kTopK; ++k) {
    c->ids[k] = (int32_t)((k * 5 + i + rank) % (kExperts + 1)) - 1;
    c->weights[k] = number((uint64_t)(k + i)) + 1.0f;
  }
  c->hidden = matrix(MOE_DTYPE_F32, c->x, c->tokens, kHidden);
  c->topk_ids = matrix(MOE_DTYPE_I32, c->ids, c->tokens, kTopK);
  c->topk_weights = matrix(MOE_DTYPE_F32, c->weights, c->tokens, kTopK);
  c->result = matrix(MOE_DTYPE_F32, c->out, c->tokens, kHidden);
  c->args = (moe_apply_args){.struct_size = sizeof c->args, .mode = MOE_APPLY_TOPK, .hidden = &c->hidden,
                             .topk_ids = &c->topk_ids, .topk_weights = &c->topk_weights, .out = &c->result};
}

static void compare(call* c, const moe_layer* alone) {
  memcpy(c->want, c->out, sizeof c->want);
  check(moe_apply(alone, &c->args, &err), "the layer of its own");
  expect(memcmp(c->want, c->out, (size_t)c->tokens * kHidden * sizeof(float)) == 0, "other bits than one process");
}

static uint64_t bits = 14695981039346656037u; /* of all results: FNV-1a */

/* Mode tp: one float32 sum more or less. */
static void compare_near(call* c, const moe_layer* alone) {
  double distance = 0, norm = 0;
  memcpy(c->want, c->out, sizeof c->want);
  check(moe_apply(alone, &c->args, &err), "the layer of its own");
  for (int64_t i = 0; i < c->tokens * kHidden; ++i) {
    distance += pow((double)c->want[i] - (double)c->out[i], 2), norm += pow((double)c->out[i], 2);
    uint32_t word;
    memcpy(&word, &c->want[i], sizeof word);
    bits = (bits ^ word) * 1099511628211u;
  }
  expect(distance <= 1e-12 * norm, "far from one process");
}

/* After a deadline: poisoned at once, the layer of its own as good as before. */
static void survive(moe_dist* dist, const moe_layer* alone, call* c, double waited) {
  expect(waited < 1e-3 * kDeadlineMs + 1, "the deadline came late");
  const double begin = now();
  expect(moe_dist_apply(dist, &c->args, &err) == MOE_ERR_COMM_POISONED, "not poisoned");
  expect(now() - begin < 0.1, "poisoned, but not at once");
  check(moe_apply(alone, &c->args, &err), "the layer of its own");
  printf("rank %d: as expected, after %.2f s, spoiled %d\n", rank, waited, spoiled);
  fflush(stdout);
  sleep(is("hostile") ? 4 : 2); /* so that all ranks have seen it before the job ends */
  _exit(0);
}

static void go_wrong(int i, int when) {
  if (rank != size - 1) return;
  if (is("late") && i == 3) {
    usleep(3000 * kDeadlineMs);
    _exit(0);
  }
  if (i != when) return;
  if (is("killed")) raise(SIGKILL);
  if (is("stopped")) raise(SIGSTOP);
}

static void* kill_later(void* seconds) {
  usleep((useconds_t)(1e6 * *(const double*)seconds));
  raise(SIGKILL);
  return NULL;
}

static const char* reason(void) { return err ? moe_error_details_json(err) : ""; }

/* MOE_ERR_COMM, which may come from any collective call where a rank may vanish at any time. */
static void run_random(moe_comm* comm, const moe_config* config, const moe_layer* alone, call* c) {
  for (int round = 0;; ++round) {
    double begin = now();
    moe_dist* dist = NULL;
    moe_status status = moe_dist_create(NULL, comm, config, "{\"max_tokens_per_rank\":16}", MOE_NUL_TERMINATED, &dist, &err);
    moe_layer* layer = NULL;
    moe_config* local = NULL;
    if (status == MOE_OK && own().experts > 0) {
      check(moe_dist_local_config(dist, &local, &err), "local config");
      layer = layer_of(local, own());
    }
    double limit = 1e-3 * kDeadlineMs + 1;
    if (status == MOE_OK) begin = now(), limit = 10e-3 * kDeadlineMs + 1, status = moe_dist_attach(dist, layer, &err);
    for (int i = 0; i < 20 && status == MOE_OK; ++i) {
      prepare(c, i);
      begin = now(), limit = 1e-3 * kDeadlineMs + 1;
      status = moe_dist_apply(dist, &c->args, &err);
      if (status == MOE_OK) compare(c, alone);
    }
    moe_layer_destroy(layer), moe_config_destroy(local);
    if (status != MOE_OK) {
      expect(status == MOE_ERR_COMM && now() - begin < limit, "another end than a deadline");
      printf("rank %d: as expected, after %.2f s, in round %d\n", rank, now() - begin, round);
      fflush(stdout);
      sleep(2);
      _exit(0);
    }
    moe_dist_destroy(dist);
  }
}

/* Its bytes change: there may be other numbers in a result, but no call lasts longer than the deadline. */
static void run_hostile(moe_comm* comm, const moe_config* config, moe_dist* dist, const moe_layer* alone, call* c,
                        unsigned seed) {
  if (rank == size - 1) {
    spoil_state = seed * 2654435761u + 1;
    spoiling = 1 + (int)(seed % (kSpoils - 1));
  }
  prepare(c, 0);
  for (int i = 0; i < 8 && seed / 16 % 2 == 1; ++i) {
    moe_dist* other = NULL;
    const double begin = now();
    const moe_status status = moe_dist_create(NULL, comm, config, NULL, 0, &other, &err);
    const int out_of_step = status == MOE_ERR_COMM && strstr(reason(), "out_of_step") != NULL;
    if (status == MOE_ERR_COMM && !out_of_step) survive(dist, alone, c, now() - begin);
    expect(status == MOE_OK || status == MOE_ERR_PEER || status == MOE_ERR_CONFIG_MISMATCH || out_of_step, "another status");
    expect(now() - begin < 2e-3 * kDeadlineMs + 1, "it came late");
    moe_dist_destroy(other);
  }
  for (int i = 0; i < kCalls; ++i) {
    prepare(c, i);
    const double begin = now();
    const moe_status status = moe_dist_apply(dist, &c->args, &err);
    const int out_of_step = status == MOE_ERR_COMM && strstr(reason(), "out_of_step") != NULL; /* the next call is good */
    if (status == MOE_ERR_COMM && !out_of_step) survive(dist, alone, c, now() - begin);
    expect(status == MOE_OK || status == MOE_ERR_PEER || out_of_step, "another status");
    expect(now() - begin < 1e-3 * kDeadlineMs + 1, "it came late");
  }
  printf("rank %d: as expected, no error, spoiled %d\n", rank, spoiled);
  fflush(stdout);
  sleep(4); /* another rank may still wait */
  _exit(0);
}

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  scenario = argc > 1 ? argv[1] : "well";
  const unsigned seed = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 7;
  const int when = 2 + (int)(seed % (kCalls - 4)), last = rank == size - 1;
  tp = is("tp") || (is("hostile") && size == 2 && seed / 8 % 2 == 1);
  char options[64];
  snprintf(options, sizeof options, "{\"timeout_ms\":%d}", kDeadlineMs);
  moe_comm* comm = NULL;
  check(moe_mpi_comm_create(MPI_COMM_WORLD, options, MOE_NUL_TERMINATED, &comm, &err), "communicator");
  expect(moe_comm_rank(comm) == rank && moe_comm_size(comm) == size, "rank or size");
  moe_config* config = config_of(kMiddle);
  moe_layer* alone = layer_of(config, whole());
  call c;
  if (is("random")) {
    static double seconds;
    seconds = (double)(seed * 2654435761u >> 8) * 0x1p-24 * 0.2;
    pthread_t killer;
    if (last) pthread_create(&killer, NULL, kill_later, &seconds);
    run_random(comm, config, alone, &c);
  }
  if (is("other-config")) {
    moe_config* other = config_of(last ? 2 * kMiddle : kMiddle);
    moe_dist* dist = NULL;
    expect(moe_dist_create(NULL, comm, other, NULL, 0, &dist, &err) == MOE_ERR_CONFIG_MISMATCH, "configs differ");
    expect(strstr(reason(), "intermediate_size") != NULL, "the member is not named");
    moe_config_destroy(other);
  }
  moe_dist* dist = spread(comm, config, 7);
  moe_dist* second = is("other-step") ? spread(comm, config, 8) : NULL;
  if (is("hostile")) run_hostile(comm, config, dist, alone, &c, seed);
  for (int i = 0; i < kCalls || is("endless"); ++i) {
    go_wrong(i, when);
    prepare(&c, i);
    if (is("bad-ids") && i == 3) {
      c.tokens = c.hidden.shape[0] = c.topk_ids.shape[0] = c.topk_weights.shape[0] = c.result.shape[0] = 1;
      c.ids[0] = last ? kExperts + 5 : 0, c.ids[1] = -1, c.weights[0] = c.weights[1] = 1;
      const moe_status status = moe_dist_apply(dist, &c.args, &err);
      expect(status == (last ? MOE_ERR_INVALID_ARGUMENT : MOE_ERR_PEER), "bad ids of one rank");
      continue;
    }
    if (second != NULL && i == 3) {
      expect(moe_dist_apply(last ? second : dist, &c.args, &err) == MOE_ERR_COMM, "another step");
      expect(strstr(reason(), "out_of_step") != NULL, "the reason is not named");
      continue;
    }
    const double begin = now();
    const moe_status status = moe_dist_apply(dist, &c.args, &err);
    if (status == MOE_ERR_COMM && (is("late") || is("killed") || is("stopped") || is("endless"))) survive(dist, alone, &c, now() - begin);
    check(status, "apply");
    (tp ? compare_near : compare)(&c, alone);
  }
  moe_dist_destroy(second), moe_dist_destroy(dist), moe_layer_destroy(alone), moe_config_destroy(config);
  moe_comm_destroy(comm), moe_error_destroy(err);
  if (is("tp"))
    printf("rank %d: as expected, bits %016llx\n", rank, (unsigned long long)bits);
  else
    printf("rank %d: as expected\n", rank);
  MPI_Finalize();
  return 0;
}
