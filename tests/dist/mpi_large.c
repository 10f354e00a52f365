/* Messages of more than 2^31 bytes.
 *
 *   mpirun -n 2 mpi_large
 *
 * Rank 0 has all tokens, rank 1 all experts. What comes back in one exchange is 9500 tokens * 8 slots * 7168
 * floats, 2.18 GB; rank 0 compares the outputs with those of a layer of its own. The ranks touch 7 GB together. */
#include <mpi.h>
/* after mpi.h */
#include <moe/moe_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kExperts = 8, kHidden = 7168, kMiddle = 16, kTokens = 9500 };

static moe_error* err;

static void check(moe_status status, const char* what) {
  if (status == MOE_OK) return;
  fprintf(stderr, "%s: %s, %s\n", what, moe_status_name(status), moe_error_message(err));
  fflush(stderr);
  _exit(3);
}
#include "mpi_layer.h"

static void* take(size_t bytes) {
  void* p = malloc(bytes);
  if (p == NULL) fprintf(stderr, "no memory\n"), _exit(3);
  return p;
}
static float number(uint64_t i) {
  i = (i + 1) * 0x9e3779b97f4a7c15u;
  i ^= i >> 29, i *= 0xbf58476d1ce4e5b9u, i ^= i >> 32;
  return (float)(i >> 40) * 0x1p-24f - 0.5f;
}
static moe_tensor tensor(moe_dtype dtype, void* data, int64_t a, int64_t b, int64_t c) {
  return (moe_tensor){
      .struct_size = sizeof(moe_tensor), .dtype = dtype, .ndim = c ? 3 : 2, .data = data, .shape = {a, b, c}};
}

static moe_layer* layer_of(const moe_config* config) {
  const size_t n = (size_t)kExperts * kMiddle * kHidden;
  float *up = take(2 * n * sizeof *up), *down = take(n * sizeof *down);
  for (size_t i = 0; i < 2 * n; ++i) up[i] = number(i);
  for (size_t i = 0; i < n; ++i) down[i] = number(3 * n + i);
  const moe_tensor u = tensor(MOE_DTYPE_F32, up, kExperts, 2 * kMiddle, kHidden);
  const moe_tensor d = tensor(MOE_DTYPE_F32, down, kExperts, kHidden, kMiddle);
  moe_layer* layer = layer_from(config, &u, &d);
  free(up), free(down);
  return layer;
}

int main(int argc, char** argv) {
  int provided = 0, rank = 0, size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) fprintf(stderr, "mpirun -n 2 mpi_large\n"), _exit(2);
  moe_comm* comm = NULL;
  moe_config *config = NULL, *local = NULL;
  moe_dist* dist = NULL;
  moe_layer* layer = NULL;
  check(moe_config_create(
            "{\"num_experts\":8,\"top_k\":8,\"hidden_dim\":7168,\"intermediate_size\":16,\"activation\":\"silu\","
            "\"in_dtype\":\"float32\"}",
            MOE_NUL_TERMINATED, &config, &err),
        "config");
  check(moe_mpi_comm_create(MPI_COMM_WORLD, "{\"timeout_ms\":120000}", MOE_NUL_TERMINATED, &comm, &err), "comm");
  check(moe_dist_create(NULL, comm, config,
                        "{\"placement\":[[],[0,1,2,3,4,5,6,7]],\"max_tokens_per_rank\":9500,\"workspace_mb\":24576}",
                        MOE_NUL_TERMINATED, &dist, &err),
        "dist");
  moe_buffer* told = NULL;
  check(moe_dist_to_json(dist, &told, &err), "report");
  if (strstr(moe_buffer_data(told), "\"chunk_tokens\":9500") == NULL) fprintf(stderr, "chunks\n"), _exit(3);
  moe_buffer_destroy(told);
  if (rank == 1) {
    check(moe_dist_local_config(dist, &local, &err), "local config");
    layer = layer_of(local);
  }
  check(moe_dist_attach(dist, layer, &err), "attach");

  const int64_t tokens = rank == 0 ? kTokens : 0;
  const size_t numbers = (size_t)kTokens * kHidden;
  float *x = take(numbers * sizeof *x), *out = take(numbers * sizeof *out),
        *weights = take(sizeof(float[kTokens * kExperts]));
  int32_t* ids = take(sizeof(int32_t[kTokens * kExperts]));
  for (size_t i = 0; rank == 0 && i < numbers; ++i) x[i] = number(i ^ 0x5555555555u);
  for (int i = 0; i < kTokens * kExperts; ++i)
    ids[i] = (i / kExperts + i * 3) % kExperts, weights[i] = number((uint64_t)i) + 1.0f;
  const moe_tensor hidden = tensor(MOE_DTYPE_F32, x, tokens, kHidden, 0),
                   result = tensor(MOE_DTYPE_F32, out, tokens, kHidden, 0);
  const moe_tensor topk_ids = tensor(MOE_DTYPE_I32, ids, tokens, kExperts, 0);
  const moe_tensor topk_weights = tensor(MOE_DTYPE_F32, weights, tokens, kExperts, 0);
  moe_apply_args args = {.struct_size = sizeof args,
                         .mode = MOE_APPLY_TOPK,
                         .hidden = &hidden,
                         .topk_ids = &topk_ids,
                         .topk_weights = &topk_weights,
                         .out = &result};
  check(moe_dist_apply(dist, &args, &err), "apply");
  moe_dist_destroy(dist), moe_layer_destroy(layer), moe_comm_destroy(comm);
  MPI_Finalize();
  if (rank == 0) {
    float* want = take(numbers * sizeof *want);
    const moe_tensor there = tensor(MOE_DTYPE_F32, want, tokens, kHidden, 0);
    args.out = &there;
    moe_layer* alone = layer_of(config);
    check(moe_apply(alone, &args, &err), "alone");
    if (memcmp(out, want, numbers * sizeof *out) != 0) fprintf(stderr, "other bits\n"), _exit(3);
    printf("2.18 GB in one exchange: the bits of one process\n");
    moe_layer_destroy(alone);
    free(want);
  }
  free(x), free(out), free(ids), free(weights);
  moe_config_destroy(local), moe_config_destroy(config);
  return 0;
}
