/* A model's experts spread over the ranks of MPI.
 *
 *   mpirun -n 4 cluster DIR [--tokens N] [--calls N] [--combine exact|compact] [--threads N] [--routing model|uniform]
 *
 * Each rank opens the directory and reads its own experts of each layer. N tokens in all, cut evenly among the ranks,
 * go through every layer; hidden states and router logits are random, the same for every number of ranks. With routing
 * uniform the experts of a token are random instead, so that no bias of the model fills one rank. Rank 0 prints
 * tokens/s, how much of the time went into waits for other ranks and into packing, and the SHA-256 of all outputs: with
 * combine exact the one of a single process, which `cluster DIR` without mpirun prints. Threads are those of the rank's
 * CPUs, or its share of them where mpirun binds nothing. */
#include <mpi.h>
/* after mpi.h: moe_mpi_comm_create */
#include <moe/moe_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  moe_dist* dist;
  moe_layer* alone; /* of a single rank, which needs no exchange */
  int64_t number, width, experts, top_k;
} spread_layer;

static moe_error* err;

/* Other ranks get MOE_ERR_PEER or a deadline; MPI_Finalize might wait for ever. */
static void check(moe_status status) {
  if (status == MOE_OK) return;
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  fprintf(stderr, "rank %d: %s at '%s': %s\n", rank, moe_status_name(status), moe_error_subject(err),
          moe_error_message(err));
  fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A member of a small JSON text that the library wrote; 0 where it is not there. */
static double number_in(const char* json, const char* key) {
  const char* found = strstr(json, key);
  return found ? atof(found + strlen(key)) : 0;
}

/* A member that is an object, without its braces' content being read; "" where it is not there. */
static char* object_in(const char* json, const char* key) {
  const char* begin = strstr(json, key);
  if (begin == NULL) return calloc(1, 1);
  begin += strlen(key);
  const char* end = begin;
  int depth = 0, quoted = 0;
  do {
    if (*end == '"' && end[-1] != '\\') quoted = !quoted;
    if (!quoted) depth += *end == '{' ? 1 : *end == '}' ? -1 : 0;
  } while (*end++ != 0 && depth > 0);
  char* copy = calloc((size_t)(end - begin) + 1, 1);
  return copy ? memcpy(copy, begin, (size_t)(end - begin)) : NULL;
}

/* The rank's part of a layer: agreed on, read, attached. */
static spread_layer spread(moe_context* context, moe_comm* comm, const moe_checkpoint* model, int64_t number,
                           int64_t most_tokens, const char* combine) {
  moe_layer_info info = {.struct_size = sizeof info};
  check(moe_checkpoint_layer_info(model, number, &info, &err));
  spread_layer s = {.number = number, .width = info.hidden_dim, .experts = info.num_experts, .top_k = info.top_k};
  moe_config* whole = NULL;
  check(moe_checkpoint_config(model, number, NULL, 0, &whole, &err));
  char options[160];
  snprintf(options, sizeof options, "{\"combine\":\"%s\",\"max_tokens_per_rank\":%lld,\"layer_id\":%lld}", combine,
           (long long)most_tokens, (long long)number);
  check(moe_dist_create(context, comm, whole, options, MOE_NUL_TERMINATED, &s.dist, &err));
  moe_config_destroy(whole);

  moe_buffer* json = NULL;
  check(moe_dist_to_json(s.dist, &json, &err));
  char* patch = object_in(moe_buffer_data(json), "\"patch\":");
  moe_layer* layer = NULL;
  if (strstr(moe_buffer_data(json), "\"patch\":null") == NULL) { /* else there are fewer experts than ranks */
    moe_checkpoint_options o = {
        .struct_size = sizeof o, .load_flags = MOE_LOAD_MMAP, .patch_json = patch, .patch_len = MOE_NUL_TERMINATED};
    check(moe_checkpoint_layer(context, model, number, &o, &layer, &err));
  }
  moe_buffer_destroy(json);
  free(patch);
  check(moe_dist_attach(s.dist, layer, &err));
  if (moe_comm_size(comm) == 1)
    s.alone = layer;
  else
    moe_layer_destroy(layer);
  return s;
}

/* The numbers of token t of a layer: the same on every rank. */
static void make_token(const spread_layer* s, int64_t t, uint16_t* hidden, float* logits) {
  uint64_t state = (uint64_t)(t + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)(s->number + 1) * 0xd1b54a32d192ed03u;
  for (int64_t i = 0; i < s->width + s->experts; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    if (i < s->width)
      hidden[i] = (uint16_t)((state >> 63) << 15 | 0x3e00 | (state & 0x1ff)); /* bfloat16, 0.125 to 0.5 */
    else
      logits[i - s->width] = (float)(state >> 40) * 0x1p-22f;
  }
}

/* Different experts, all of them alike, for token t; their weights are equal. */
static void route_token(const spread_layer* s, int64_t t, const float* logits, int32_t* ids, float* weights) {
  for (int64_t k = 0; k < s->top_k; ++k) {
    int64_t best = -1;
    for (int64_t e = 0; e < s->experts; ++e) { /* of random numbers the largest, then the next */
      int taken = 0;
      for (int64_t j = 0; j < k; ++j) taken |= ids[t * s->top_k + j] == e;
      if (!taken && (best < 0 || logits[e] > logits[best])) best = e;
    }
    ids[t * s->top_k + k] = (int32_t)best;
    weights[t * s->top_k + k] = 1.0f / (float)s->top_k;
  }
}

/* SHA-256 of all outputs, layer by layer in the order of tokens, by the program sha256sum. `rows`: [layers][this rank's
 * tokens]. */
static void print_hash(const uint16_t* rows, size_t layers, int64_t numbers, int rank, int size) {
  const int bytes = (int)(numbers * (int64_t)sizeof *rows);
  int *counts = calloc((size_t)size, sizeof *counts), *places = calloc((size_t)size, sizeof *places), total = 0;
  MPI_Gather(&bytes, 1, MPI_INT, counts, 1, MPI_INT, 0, MPI_COMM_WORLD);
  for (int r = 0; r < size; ++r) places[r] = total, total += counts[r];
  char* all = malloc((size_t)total + 1);
  FILE* pipe = NULL;
  if (rank == 0) {
    printf("SHA-256 of the outputs: ");
    fflush(stdout);
    pipe = popen("sha256sum | cut -c1-64", "w");
  }
  for (size_t l = 0; l < layers; ++l) {
    MPI_Gatherv(rows + l * (size_t)numbers, bytes, MPI_BYTE, all, counts, places, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (pipe != NULL) fwrite(all, 1, (size_t)total, pipe);
  }
  if (rank == 0 && (pipe == NULL || pclose(pipe) != 0)) printf("sha256sum failed\n");
  free(all), free(counts), free(places);
}

/* Microseconds that a rank waited for others and packed rows, and bytes that it sent: so far, of all layers. */
typedef struct {
  double waits, packs, sent;
} traffic;
static traffic read_traffic(const spread_layer* layers, size_t n) {
  traffic t = {0, 0, 0};
  for (size_t l = 0; l < n; ++l) {
    moe_buffer* json = NULL;
    check(moe_dist_to_json(layers[l].dist, &json, &err));
    t.waits = number_in(moe_buffer_data(json), "\"wait_us\":"); /* of the communicator */
    t.packs += number_in(moe_buffer_data(json), "\"pack_us\":");
    t.sent += number_in(moe_buffer_data(json), "\"bytes_sent\":");
    moe_buffer_destroy(json);
  }
  return t;
}

typedef struct {
  int64_t tokens, calls;
  const char *directory, *combine;
  int threads, uniform;
} command;

static int usage(const char* what) {
  if (what[0] != 0) fprintf(stderr, "cluster: %s\n", what);
  fprintf(stderr,
          "usage: mpirun -n RANKS cluster DIR [--tokens N] [--calls N] [--combine exact|compact] [--threads N]\n"
          "                                  [--routing model|uniform]\n");
  return 2;
}

/* NULL, or what is wrong. */
static const char* read_command(int argc, char** argv, command* c) {
  *c = (command){.tokens = 32, .calls = 8, .combine = "exact"};
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], "--", 2) != 0) {
      if (c->directory) return "more than one directory";
      c->directory = argv[i];
      continue;
    }
    if (strcmp(argv[i], "--help") == 0) return "";
    if (i + 1 == argc) return "an option without its value";
    const char *name = argv[i], *value = argv[++i];
    if (strcmp(name, "--tokens") == 0)
      c->tokens = atoll(value);
    else if (strcmp(name, "--calls") == 0)
      c->calls = atoll(value);
    else if (strcmp(name, "--threads") == 0)
      c->threads = atoi(value);
    else if (strcmp(name, "--combine") == 0)
      c->combine = value;
    else if (strcmp(name, "--routing") == 0 && (strcmp(value, "uniform") == 0 || strcmp(value, "model") == 0))
      c->uniform = value[0] == 'u';
    else
      return "an option or value that it does not know";
  }
  if (c->directory == NULL) return "a directory is missing";
  return c->tokens > 0 && c->calls > 0 && c->threads >= 0 ? NULL : "a number that is too small";
}

/* Started by another MPI's mpirun each process is alone, and does the whole work. */
static int is_lonely(int size) {
  const char *open_mpi = getenv("OMPI_COMM_WORLD_SIZE"), *mpich = getenv("PMI_SIZE");
  return size == 1 && ((open_mpi != NULL && atoi(open_mpi) > 1) || (mpich != NULL && atoi(mpich) > 1));
}

/* CPUs of this rank: its own where mpirun binds ranks, else its share of the host's. */
static int own_threads(void) {
  MPI_Comm host;
  int ranks = 1, rank = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_size(host, &ranks);
  MPI_Comm_rank(host, &rank);
  MPI_Comm_free(&host);
  moe_context* context = NULL;
  moe_buffer* json = NULL;
  check(moe_context_create(NULL, 0, NULL, &context, &err));
  check(moe_context_to_json(context, &json, &err));
  const int usable = (int)number_in(moe_buffer_data(json), "\"threads\":");
  moe_buffer_destroy(json);
  moe_context_destroy(context);
  const int is_bound = usable < sysconf(_SC_NPROCESSORS_ONLN);
  const int threads = is_bound ? usable : usable / ranks;
  return threads < 1 ? 1 : threads;
}

int main(int argc, char** argv) {
  int level = 0, rank = 0, size = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  command c;
  const char* wrong = read_command(argc, argv, &c);
  if (wrong == NULL && is_lonely(size)) wrong = "its MPI is not the one whose mpirun started it";
  if (wrong != NULL) {
    MPI_Finalize();
    return rank == 0 ? usage(wrong) : 2;
  }
  const int threads = c.threads > 0 ? c.threads : own_threads();
  char options[64];
  snprintf(options, sizeof options, "{\"threads\":%d}", threads);
  moe_context* context = NULL;
  moe_comm* comm = NULL;
  moe_checkpoint* model = NULL;
  check(moe_context_create(options, MOE_NUL_TERMINATED, NULL, &context, &err));
  check(moe_mpi_comm_create(MPI_COMM_WORLD, NULL, 0, &comm, &err));
  check(moe_checkpoint_open(context, c.directory, NULL, 0, NULL, &model, &err));

  const int64_t begin = c.tokens * rank / size, mine = c.tokens * (rank + 1) / size - begin;
  const int64_t most = (c.tokens + size - 1) / size, count = moe_checkpoint_layer_count(model);
  spread_layer* layers = calloc((size_t)count + 1, sizeof *layers);
  size_t n = 0;
  double start = MPI_Wtime();
  for (int64_t i = 0; i < count; ++i) {
    moe_layer_info info = {.struct_size = sizeof info};
    check(moe_checkpoint_layer_info(model, i, &info, &err));
    if (info.kind == MOE_LAYER_EXPERTS) layers[n++] = spread(context, comm, model, i, most, c.combine);
  }
  if (n == 0) {
    if (rank == 0) fprintf(stderr, "%s: no layer has experts\n", c.directory);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (rank == 0)
    printf("%d rank%s of %d thread%s, %zu layers, %lld experts each, loaded in %.1f s, MPI: %s\n", size,
           size == 1 ? "" : "s", threads, threads == 1 ? "" : "s", n, (long long)layers[0].experts, MPI_Wtime() - start,
           moe_mpi_built_for());

  const int64_t width = layers[0].width, experts = layers[0].experts, top_k = layers[0].top_k;
  uint16_t* hidden = calloc((size_t)(mine * width) + 1, sizeof *hidden);
  uint16_t* out = calloc(n * (size_t)(mine * width) + 1, sizeof *out);
  float* logits = calloc((size_t)(mine * experts) + 1, sizeof *logits);
  int32_t* ids = calloc((size_t)(mine * top_k) + 1, sizeof *ids);
  float* weights = calloc((size_t)(mine * top_k) + 1, sizeof *weights);
  double seconds = 0;
  traffic before = {0, 0, 0};
  for (int64_t call = -1; call < c.calls; ++call) { /* the first one warms up */
    if (call == 0) before = read_traffic(layers, n);
    for (size_t l = 0; l < n; ++l) {
      for (int64_t t = 0; t < mine; ++t) {
        make_token(&layers[l], begin + t, hidden + t * width, logits + t * experts);
        if (c.uniform) route_token(&layers[l], t, logits + t * experts, ids, weights);
      }
      moe_tensor x = {
          .struct_size = sizeof x, .dtype = MOE_DTYPE_BF16, .ndim = 2, .data = hidden, .shape = {mine, width}};
      moe_tensor g = {
          .struct_size = sizeof g, .dtype = MOE_DTYPE_F32, .ndim = 2, .data = logits, .shape = {mine, experts}};
      moe_tensor y = x;
      y.data = out + l * (size_t)(mine * width);
      moe_tensor i = {.struct_size = sizeof i, .dtype = MOE_DTYPE_I32, .ndim = 2, .data = ids, .shape = {mine, top_k}};
      moe_tensor w = {
          .struct_size = sizeof w, .dtype = MOE_DTYPE_F32, .ndim = 2, .data = weights, .shape = {mine, top_k}};
      moe_apply_args args = {.struct_size = sizeof args, .hidden = &x, .out = &y};
      if (c.uniform)
        args.mode = MOE_APPLY_TOPK, args.topk_ids = &i, args.topk_weights = &w;
      else
        args.mode = MOE_APPLY_ROUTER_LOGITS, args.router_logits = &g;
      MPI_Barrier(MPI_COMM_WORLD);
      start = MPI_Wtime();
      check(layers[l].alone ? moe_apply(layers[l].alone, &args, &err) : moe_dist_apply(layers[l].dist, &args, &err));
      if (call >= 0) seconds += MPI_Wtime() - start;
    }
  }

  const traffic after = read_traffic(layers, n);
  const double mine_of[] = {seconds, after.waits - before.waits, after.packs - before.packs};
  const double sent = after.sent - before.sent;
  double most_of[3], all_sent = 0;
  MPI_Reduce(mine_of, most_of, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&sent, &all_sent, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%.1f tokens/s through the experts of all layers, %lld tokens a call\n",
           (double)(c.tokens * c.calls) / most_of[0], (long long)c.tokens);
    printf("exchange: at most %.1f %% of the time waited for, %.2f %% packing, %.1f KB sent for a token and layer\n",
           100e-6 * most_of[1] / most_of[0], 100e-6 * most_of[2] / most_of[0],
           1e-3 * all_sent / (double)(c.tokens * c.calls) / (double)n);
  }
  print_hash(out, n, mine * width, rank, size);
  for (size_t l = 0; l < n; ++l) moe_dist_destroy(layers[l].dist), moe_layer_destroy(layers[l].alone);
  moe_comm_destroy(comm);
  moe_checkpoint_destroy(model);
  moe_context_destroy(context);
  free(hidden), free(out), free(logits), free(ids), free(weights), free(layers);
  MPI_Finalize();
  return 0;
}
