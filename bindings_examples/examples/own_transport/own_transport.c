/* A layer over several processes without MPI: a transport of the program's own, two functions over sockets.
 *
 *   own_transport [RANKS]
 *
 * The program makes RANKS processes (3 without a number) with a socket between each two of them. Each holds some
 * experts of a small layer, has tokens of its own, and compares their outputs with those of the layer in one process,
 * bit by bit. A transport of an engine, over TCP or shared memory, fills the same table. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <moe/moe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- the transport ------------------------------------------------------------------------------------------------ */

enum { kMaxRanks = 16 };

/* A stretch of bytes that goes to a rank or comes from it. */
typedef struct {
  char* at;
  size_t left;
} stretch;

/* An operation: what still goes to each rank and comes from it. Sockets keep their order, and all ranks start the same
 * operations, so bytes of the oldest one come first. */
typedef struct operation {
  struct operation* next;
  stretch out[kMaxRanks], in[kMaxRanks];
} operation;

typedef struct {
  int rank, size, sockets[kMaxRanks];
  operation* oldest;
} ends;

/* A failure's text goes to libmoe, which gives it on as the cause of MOE_ERR_COMM. */
static moe_status failed(int r, const char* what, moe_error** err) {
  char text[128];
  snprintf(text, sizeof text, "rank %d: %s", r, what);
  if (err != NULL) *err = moe_error_create(MOE_ERR_IO, text, MOE_NUL_TERMINATED);
  return MOE_ERR_IO;
}

/* All that goes without a wait, with one rank. */
static moe_status move(ends* e, int r, moe_error** err) {
  for (int sending = 0; sending < 2; ++sending)
    for (operation* op = e->oldest; op != NULL; op = op->next) {
      stretch* s = sending ? &op->out[r] : &op->in[r];
      while (s->left > 0) {
        const ssize_t n =
            sending ? send(e->sockets[r], s->at, s->left, MSG_NOSIGNAL) : recv(e->sockets[r], s->at, s->left, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) return failed(r, "it is gone", err);
        if (n < 0 && errno != EAGAIN) return failed(r, strerror(errno), err);
        if (n < 0) break;
        s->at += n, s->left -= (size_t)n;
      }
      if (s->left > 0) break; /* a later operation waits for this one */
    }
  return MOE_OK;
}

static void drop(ends* e, const operation* op) {
  operation** at = &e->oldest;
  while (*at != op) at = &(*at)->next;
  *at = op->next;
  free((void*)op);
}

static moe_status MOE_CALL start(void* user, uint64_t row_bytes, const void* send_rows, const int64_t* send_counts,
                                 const int64_t* send_displs, void* recv_rows, const int64_t* recv_counts,
                                 const int64_t* recv_displs, moe_comm_op** op, moe_error** err) {
  ends* e = user;
  operation* made = calloc(1, sizeof *made);
  if (made == NULL) return failed(e->rank, "out of memory", err);
  for (int r = 0; r < e->size; ++r) {
    char* from = (char*)send_rows + (uint64_t)send_displs[r] * row_bytes;
    char* to = (char*)recv_rows + (uint64_t)recv_displs[r] * row_bytes;
    if (r != e->rank) {
      made->out[r] = (stretch){from, (size_t)send_counts[r] * row_bytes};
      made->in[r] = (stretch){to, (size_t)recv_counts[r] * row_bytes};
    } else if (send_counts[r] > 0) {
      memcpy(to, from, (size_t)send_counts[r] * row_bytes);
    }
  }
  operation** last = &e->oldest;
  while (*last != NULL) last = &(*last)->next;
  *last = made;
  *op = (moe_comm_op*)made;
  return MOE_OK;
}

static moe_status MOE_CALL test(void* user, moe_comm_op* op, int32_t* done, moe_error** err) {
  ends* e = user;
  const operation* asked = (const operation*)op;
  size_t left = 0;
  for (int r = 0; r < e->size; ++r) {
    const moe_status moved = r == e->rank ? MOE_OK : move(e, r, err);
    if (moved != MOE_OK) {
      drop(e, asked);
      return moved;
    }
    left += asked->out[r].left + asked->in[r].left;
  }
  if (left == 0) {
    *done = 1;
    drop(e, asked);
  }
  return MOE_OK;
}

/* Until a socket has something to read, at most. Without this function libmoe only yields. */
static void MOE_CALL wait_hint(void* user, int32_t microseconds) {
  ends* e = user;
  struct pollfd all[kMaxRanks];
  nfds_t n = 0;
  for (int r = 0; r < e->size; ++r)
    if (r != e->rank) all[n++] = (struct pollfd){.fd = e->sockets[r], .events = POLLIN};
  poll(all, n, (microseconds + 999) / 1000);
}

/* --- the layer ---------------------------------------------------------------------------------------------------- */

enum { kExperts = 8, kTopK = 2, kHidden = 128, kMiddle = 64, kTokens = 5 };

static moe_error* last_error;

static void check(moe_status status) {
  if (status == MOE_OK) return;
  fprintf(stderr, "%s at '%s': %s\n", moe_status_name(status), moe_error_subject(last_error),
          moe_error_message(last_error));
  exit(1);
}

static float number(uint64_t i) {
  i = (i + 1) * 0x9e3779b97f4a7c15u;
  i ^= i >> 29, i *= 0xbf58476d1ce4e5b9u, i ^= i >> 32;
  return (float)(i >> 40) * 0x1p-24f - 0.5f;
}

/* Of the experts [first, first + experts) of the whole layer. */
static moe_layer* layer_of(const moe_config* config, int first, int experts) {
  enum { kW13 = 2 * kMiddle * kHidden, kW2 = kHidden * kMiddle };
  float* up = malloc((size_t)experts * kW13 * sizeof *up);
  float* down = malloc((size_t)experts * kW2 * sizeof *down);
  for (int64_t i = 0; i < (int64_t)experts * kW13; ++i) up[i] = number((uint64_t)(first * (int64_t)kW13 + i));
  for (int64_t i = 0; i < (int64_t)experts * kW2; ++i)
    down[i] = number((uint64_t)(1 << 24) + (uint64_t)(first * (int64_t)kW2 + i));
  const moe_tensor u = {
      .struct_size = sizeof u, .dtype = MOE_DTYPE_F32, .ndim = 3, .data = up, .shape = {experts, 2 * kMiddle, kHidden}};
  const moe_tensor d = {
      .struct_size = sizeof d, .dtype = MOE_DTYPE_F32, .ndim = 3, .data = down, .shape = {experts, kHidden, kMiddle}};
  moe_weights* weights = NULL;
  moe_selection* selection = NULL;
  moe_packed* packed = NULL;
  moe_layer* layer = NULL;
  check(moe_weights_create(config, &weights, &last_error));
  check(moe_weights_set(weights, "w13_weight", &u, NULL, NULL, &last_error));
  check(moe_weights_set(weights, "w2_weight", &d, NULL, NULL, &last_error));
  check(moe_select_backend(NULL, config, NULL, 0, &selection, &last_error));
  check(moe_convert_weights(NULL, selection, weights, NULL, &packed, &last_error));
  check(moe_layer_create(NULL, selection, packed, NULL, &layer, &last_error));
  moe_packed_destroy(packed), moe_selection_destroy(selection), moe_weights_destroy(weights);
  free(up), free(down);
  return layer;
}

/* Tokens of a rank: random ids and weights, and room for outputs. */
typedef struct {
  float x[kTokens * kHidden], weights[kTokens * kTopK], out[kTokens * kHidden];
  int32_t ids[kTokens * kTopK];
  moe_tensor hidden, topk_ids, topk_weights, result;
  moe_apply_args args;
} batch;

static moe_tensor matrix(moe_dtype dtype, void* data, int64_t rows, int64_t columns) {
  return (moe_tensor){
      .struct_size = sizeof(moe_tensor), .dtype = dtype, .ndim = 2, .data = data, .shape = {rows, columns}};
}

static void prepare(batch* b, int rank) {
  const int64_t tokens = kTokens - rank % 3;
  for (int i = 0; i < kTokens * kHidden; ++i) b->x[i] = number((uint64_t)(rank * 7919 + i));
  for (int i = 0; i < kTokens * kTopK; ++i) {
    b->ids[i] = (rank + i * 3) % kExperts;
    b->weights[i] = number((uint64_t)(rank * 31 + i)) + 1.0f;
  }
  memset(b->out, 0, sizeof b->out);
  b->hidden = matrix(MOE_DTYPE_F32, b->x, tokens, kHidden);
  b->topk_ids = matrix(MOE_DTYPE_I32, b->ids, tokens, kTopK);
  b->topk_weights = matrix(MOE_DTYPE_F32, b->weights, tokens, kTopK);
  b->result = matrix(MOE_DTYPE_F32, b->out, tokens, kHidden);
  b->args = (moe_apply_args){.struct_size = sizeof b->args,
                             .mode = MOE_APPLY_TOPK,
                             .hidden = &b->hidden,
                             .topk_ids = &b->topk_ids,
                             .topk_weights = &b->topk_weights,
                             .out = &b->result};
}

/* One rank. Its outputs are compared with those of a layer of its own that has all experts. */
static int run(ends* e) {
  static const char config_text[] =
      "{\"num_experts\":8,\"top_k\":2,\"hidden_dim\":128,\"intermediate_size\":64,\"activation\":\"silu\",\"in_dtype\":"
      "\"float32\"}";
  const moe_comm_ops ops = {.struct_size = sizeof ops,
                            .rank = e->rank,
                            .size = e->size,
                            .user = e,
                            .alltoallv_start = start,
                            .test = test,
                            .wait_hint = wait_hint};
  moe_comm* comm = NULL;
  moe_config *whole = NULL, *local = NULL;
  moe_dist* dist = NULL;
  moe_layer* layer = NULL;
  check(moe_comm_create(&ops, "{\"timeout_ms\":10000}", MOE_NUL_TERMINATED, &comm, &last_error));
  check(moe_config_create(config_text, MOE_NUL_TERMINATED, &whole, &last_error));
  check(moe_dist_create(NULL, comm, whole, "{\"max_tokens_per_rank\":8}", MOE_NUL_TERMINATED, &dist, &last_error));
  const int base = kExperts / e->size, more = kExperts % e->size;
  const int first = e->rank * base + (e->rank < more ? e->rank : more), experts = base + (e->rank < more);
  if (experts > 0) { /* else there are fewer experts than ranks */
    check(moe_dist_local_config(dist, &local, &last_error));
    layer = layer_of(local, first, experts);
  }
  check(moe_dist_attach(dist, layer, &last_error));

  moe_layer* alone = layer_of(whole, 0, kExperts);
  batch mine, want;
  prepare(&mine, e->rank), prepare(&want, e->rank);
  check(moe_dist_apply(dist, &mine.args, &last_error));
  check(moe_apply(alone, &want.args, &last_error));
  const int same = memcmp(mine.out, want.out, sizeof mine.out) == 0;
  printf("rank %d of %d, %d experts from %d on, %d tokens: %s\n", e->rank, e->size, experts, first,
         (int)mine.hidden.shape[0], same ? "the bits of one process" : "WRONG");
  moe_layer_destroy(alone), moe_layer_destroy(layer), moe_dist_destroy(dist), moe_comm_destroy(comm);
  moe_config_destroy(local), moe_config_destroy(whole);
  return same ? 0 : 1;
}

int main(int argc, char** argv) {
  const int size = argc > 1 ? atoi(argv[1]) : 3;
  if (size < 1 || size > kMaxRanks) {
    fprintf(stderr, "usage: own_transport [RANKS], 1 to %d\n", kMaxRanks);
    return 2;
  }
  int sockets[kMaxRanks][kMaxRanks];
  memset(sockets, -1, sizeof sockets);
  for (int a = 0; a < size; ++a)
    for (int b = a + 1; b < size; ++b) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) return perror("socketpair"), 1;
      sockets[a][b] = pair[0], sockets[b][a] = pair[1];
    }
  for (int r = 0; r < size; ++r)
    if (fork() == 0) {
      ends e = {.rank = r, .size = size};
      for (int a = 0; a < size; ++a)
        for (int b = 0; b < size; ++b)
          if (a == r)
            e.sockets[b] = sockets[a][b];
          else if (sockets[a][b] >= 0)
            close(sockets[a][b]);
      return run(&e);
    }
  int failures = 0, status = 0;
  for (int a = 0; a < size; ++a)
    for (int b = 0; b < size; ++b)
      if (sockets[a][b] >= 0) close(sockets[a][b]);
  while (wait(&status) > 0) failures += status != 0;
  return failures != 0;
}
