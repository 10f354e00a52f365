/* What libmoe does with a checkpoint, with the figures of this machine.
 *
 *   demo CHECKPOINT_DIR WORK_DIR
 *
 * Prints which kernel was selected and why each other candidate was not; converts the weights; runs
 * the layer at 1, 16 and 256 tokens beside a read-bandwidth probe; saves the converted weights and
 * maps them back. The inputs are CHECKPOINT_DIR/hidden.bin [T, H] in the model's dtype and
 * logits.bin [T, E] in float32; the outputs go to WORK_DIR/demo.out. Exits with 1 when a call fails,
 * or when the bits of a token depend on its batch or on the way the weights were loaded. */
#include <moe/moe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bandwidth.h"

enum { kMaxCalls = 4096 };

typedef struct {
  moe_dtype dtype;
  int64_t tokens, width, experts;
  size_t row; /* bytes of one token */
  char *hidden, *logits, *out;
} batch;

static void fail(const char* what) {
  fprintf(stderr, "demo: %s\n", what);
  exit(1);
}

static void check(moe_status status, moe_error* err) {
  if (status == MOE_OK) return;
  fprintf(stderr, "%s at '%s': %s\n", moe_status_name(status), moe_error_subject(err), moe_error_message(err));
  moe_error_destroy(err);
  exit(1);
}
/* One call whose last argument is &err. */
#define CHECK(call)                 \
  do {                              \
    moe_error* err = NULL;          \
    const moe_status status = call; \
    check(status, err);             \
  } while (0)

static char* path_of(char* buffer, size_t size, const char* dir, const char* name) {
  if ((size_t)snprintf(buffer, size, "%s/%s", dir, name) >= size) fail("path too long");
  return buffer;
}

static char* read_file(const char* dir, const char* name, size_t* size) {
  char path[4096];
  FILE* f = fopen(path_of(path, sizeof path, dir, name), "rb");
  if (!f || fseek(f, 0, SEEK_END) != 0) perror(path), exit(1);
  const long length = ftell(f);
  char* data = length < 0 ? NULL : calloc((size_t)length + 1, 1);
  if (!data) perror(path), exit(1);
  rewind(f);
  *size = fread(data, 1, (size_t)length, f);
  fclose(f);
  return data;
}

static void write_file(const char* dir, const char* name, const void* data, size_t size) {
  char path[4096];
  FILE* f = fopen(path_of(path, sizeof path, dir, name), "wb");
  if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) perror(path), exit(1);
}

/* Starts a new maximum of VmHWM. */
static void reset_peak_memory(void) {
  FILE* f = fopen("/proc/self/clear_refs", "w");
  if (f) {
    fputs("5", f);
    fclose(f);
  }
}

/* How many threads the context has, from its own report. */
static int thread_count(const moe_context* ctx) {
  moe_buffer* json = NULL;
  CHECK(moe_context_to_json(ctx, &json, &err));
  const char* found = strstr(moe_buffer_data(json), "\"threads\":");
  const int threads = found ? atoi(found + strlen("\"threads\":")) : 1;
  moe_buffer_destroy(json);
  return threads;
}

static void print_machine(int threads) {
  static const char* const features[] = {"avx2",     "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16",
                                         "amx_int8", "neon",     "dotprod", "i8mm",        "sve"};
  moe_platform* platform = NULL;
  CHECK(moe_platform_create(NULL, 0, &platform, &err));
  printf("libmoe %s, %d thread%s, this machine has", moe_version_string(), threads, threads == 1 ? "" : "s");
  for (size_t i = 0; i < sizeof features / sizeof *features; ++i)
    if (moe_platform_has(platform, features[i])) printf(" %s", features[i]);
  printf("\n\n");
  moe_platform_destroy(platform);
}

static void print_candidates(const moe_selection* selection) {
  for (size_t i = 0; i < moe_selection_candidate_count(selection); ++i) {
    moe_candidate c = {.struct_size = sizeof c};
    CHECK(moe_selection_candidate(selection, i, &c, &err));
    printf("  %s %-20s %-26s %-28s %s\n", c.chosen ? "->" : "  ", c.backend, c.kernel,
           c.reason == MOE_REJECT_NONE ? "accepted" : moe_reject_name(c.reason), c.detail);
  }
}

/* Selection needs a description of the machine, not the machine: what would run elsewhere, and why not. */
static void print_other_machines(moe_context* ctx, const moe_config* config) {
  static const char* const machines[][2] = {
      {"an x86-64 machine with AVX2",
       "{\"type\":\"cpu\",\"arch\":\"x86_64\",\"features\":[\"avx2\",\"fma\",\"f16c\"]}"},
      {"an Arm machine with dotprod", "{\"type\":\"cpu\",\"arch\":\"aarch64\",\"features\":[\"neon\",\"dotprod\"]}"},
      {"a CUDA device of capability 9.0", "{\"type\":\"cuda\",\"capability\":[9,0]}"},
  };
  for (size_t i = 0; i < sizeof machines / sizeof *machines; ++i) {
    moe_platform* platform = NULL;
    moe_selection* selection = NULL;
    CHECK(moe_platform_create(machines[i][1], MOE_NUL_TERMINATED, &platform, &err));
    CHECK(moe_select_backend(ctx, config, platform, MOE_SELECT_EXPLAIN_ONLY, &selection, &err));
    printf("on %s:\n", machines[i][0]);
    print_candidates(selection);
    moe_selection_destroy(selection);
    moe_platform_destroy(platform);
  }
  printf("\n");
}

static batch read_batch(const moe_config* config, const char* dir) {
  batch b = {0};
  const char* dtype = NULL;
  CHECK(moe_config_get_string(config, "/in_dtype", &dtype, &err));
  CHECK(moe_config_get_int(config, "/hidden_dim", &b.width, &err));
  CHECK(moe_config_get_int(config, "/num_experts", &b.experts, &err));
  b.dtype = moe_dtype_from_name(dtype);
  b.row = (size_t)moe_tensor_nbytes(b.dtype, 1, &b.width);
  size_t hidden_size = 0, logits_size = 0;
  b.hidden = read_file(dir, "hidden.bin", &hidden_size);
  b.logits = read_file(dir, "logits.bin", &logits_size);
  b.tokens = (int64_t)(hidden_size / b.row);
  if (b.tokens == 0 || logits_size != (size_t)(b.tokens * b.experts) * 4)
    fail("hidden.bin and logits.bin do not match");
  b.out = calloc(hidden_size, 1);
  if (!b.out) fail("out of memory");
  return b;
}

/* `count` tokens from `first` on. */
static void apply(const moe_layer* layer, const batch* b, int64_t first, int64_t count, char* out) {
  const char* hidden = b->hidden + (size_t)first * b->row;
  const char* logits = b->logits + (size_t)(first * b->experts) * 4;
  CHECK(moe_apply_flat(layer, count, b->dtype, hidden, MOE_DTYPE_F32, logits, NULL, NULL, b->dtype,
                       out + (size_t)first * b->row, &err));
}

static moe_packed* convert(moe_context* ctx, const moe_config* config, const moe_selection* selection,
                           const char* dir) {
  uint64_t size = 0, alignment = 0;
  int64_t experts = 0, width = 0, inner = 0;
  CHECK(moe_selection_packed_size(selection, &size, &alignment, &err));
  CHECK(moe_config_get_int(config, "/num_local_experts", &experts, &err));
  CHECK(moe_config_get_int(config, "/hidden_dim", &width, &err));
  CHECK(moe_config_get_int(config, "/intermediate_size_per_partition", &inner, &err));
  moe_weights* weights = NULL;
  moe_packed* packed = NULL;
  CHECK(moe_weights_create(config, &weights, &err));
  CHECK(moe_weights_load_safetensors(weights, dir, NULL, &err));
  reset_peak_memory();
  const double before = process_memory("VmRSS:"), start = seconds_now();
  CHECK(moe_convert_weights(ctx, selection, weights, NULL, &packed, &err));
  const double seconds = seconds_now() - start, peak = process_memory("VmHWM:") - before;
  moe_weights_destroy(weights);
  printf("converted %.4g million weights to %.4g MB in %.2f s (%.2f GB/s of packed bytes)\n",
         3e-6 * (double)(experts * width * inner), 1e-6 * (double)size, seconds, 1e-9 * (double)size / seconds);
  printf("peak memory of the conversion: %.1f MB, %.1f MB more than the packed weights\n\n", 1e-6 * peak,
         1e-6 * (peak - (double)size));
  return packed;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Walks over all tokens in calls of `count`, so that decoding meets other experts in every call as it
 * does in a model; repeats that for about a second. Prints one row; leaves the outputs in `out`. */
static void measure(const moe_layer* layer, const batch* b, int64_t count, double expert_bytes, double bandwidth,
                    char* out) {
  static double times[kMaxCalls];
  uint64_t* counts = calloc((size_t)b->experts, sizeof *counts);
  if (!counts) fail("out of memory");
  double active = 0;
  size_t calls = 0;
  apply(layer, b, 0, count, out); /* first call of this size: allocates the workspace */
  CHECK(moe_layer_expert_counts(layer, counts, (size_t)b->experts, 1, &err));
  const double start = seconds_now();
  do {
    for (int64_t first = 0; first + count <= b->tokens && calls < kMaxCalls; first += count, ++calls) {
      const double t = seconds_now();
      apply(layer, b, first, count, out);
      times[calls] = seconds_now() - t;
      CHECK(moe_layer_expert_counts(layer, counts, (size_t)b->experts, 1, &err));
      for (int64_t e = 0; e < b->experts; ++e) active += counts[e] != 0;
    }
  } while (seconds_now() - start < 1.0 && calls < kMaxCalls);
  active /= (double)calls;
  qsort(times, calls, sizeof *times, ascending);
  const double seconds = times[calls / 2], rate = active * expert_bytes / seconds;
  printf("%8lld %12.3f %12.0f %10.1f %10.1f %14.2f\n", (long long)count, 1e3 * seconds, (double)count / seconds, active,
         1e-9 * rate, rate / bandwidth);
  free(counts);
}

static void measure_all(const moe_layer* layer, const batch* b, const moe_selection* selection, int threads) {
  static const int64_t sizes[] = {1, 16, 256};
  uint64_t size = 0, alignment = 0;
  CHECK(moe_selection_packed_size(selection, &size, &alignment, &err));
  char* out = calloc((size_t)b->tokens, b->row);
  if (!out) fail("out of memory");
  apply(layer, b, 0, b->tokens, b->out);
  const double before = read_bandwidth(threads);
  printf("%8s %12s %12s %10s %10s %14s\n", "tokens", "ms per call", "tokens/s", "experts", "GB/s", "of bandwidth");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    if (sizes[i] > b->tokens) continue;
    memset(out, 0, (size_t)b->tokens * b->row);
    measure(layer, b, sizes[i], (double)size / (double)b->experts, before, out);
    if (memcmp(out, b->out, (size_t)(b->tokens / sizes[i] * sizes[i]) * b->row) != 0)
      fail("a token's bits depend on its batch");
  }
  printf("read bandwidth of %d thread%s: %.1f GB/s before, %.1f GB/s after; median times\n", threads,
         threads == 1 ? "" : "s", 1e-9 * before, 1e-9 * read_bandwidth(threads));
  printf("every token has the same bits at all these batch sizes\n\n");
  free(out);
}

/* Saves, maps back, runs: the same bits again. */
static void save_and_load(moe_context* ctx, const moe_selection* selection, const moe_packed* packed, const batch* b,
                          const char* work) {
  char path[4096];
  path_of(path, sizeof path, work, "demo.moe");
  double start = seconds_now();
  CHECK(moe_packed_save(packed, path, 0, NULL, &err));
  const double save = seconds_now() - start;
  moe_packed* mapped = NULL;
  moe_layer* layer = NULL;
  start = seconds_now();
  CHECK(moe_packed_load(ctx, path, MOE_LOAD_MMAP, NULL, &mapped, &err));
  CHECK(moe_layer_create(ctx, selection, mapped, NULL, &layer, &err));
  const double load = seconds_now() - start;
  char* out = calloc((size_t)b->tokens, b->row);
  if (!out) fail("out of memory");
  apply(layer, b, 0, b->tokens, out);
  if (memcmp(out, b->out, (size_t)b->tokens * b->row) != 0) fail("the mapped weights give other bits");
  printf("saved in %.2f s, ready again from the mapped file in %.2f ms, same bits\n", save, 1e3 * load);
  free(out);
  moe_layer_destroy(layer);
  moe_packed_destroy(mapped);
  remove(path);
}

int main(int argc, char** argv) {
  const int elsewhere = argc == 4 && strcmp(argv[3], "--other-machines") == 0;
  if (argc != 3 + elsewhere)
    return fprintf(stderr, "usage: %s CHECKPOINT_DIR WORK_DIR [--other-machines]\n", argv[0]), 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  const char *dir = argv[1], *work = argv[2];
  size_t size = 0;
  char* text = read_file(dir, "config.json", &size);
  moe_context* ctx = NULL;
  moe_config* config = NULL;
  moe_selection* selection = NULL;
  moe_layer* layer = NULL;
  CHECK(moe_context_create(NULL, 0, NULL, &ctx, &err));
  CHECK(moe_config_create_from_hf(text, size, NULL, 0, &config, &err));
  const int threads = thread_count(ctx);
  print_machine(threads);
  CHECK(moe_select_backend(ctx, config, NULL, 0, &selection, &err));
  printf("selected %s / %s, layout %s; all candidates:\n", moe_selection_backend(selection),
         moe_selection_kernel(selection), moe_selection_layout(selection));
  print_candidates(selection);
  printf("\n");
  if (elsewhere) print_other_machines(ctx, config);
  batch b = read_batch(config, dir);
  moe_packed* packed = convert(ctx, config, selection, dir);
  CHECK(moe_layer_create(ctx, selection, packed, NULL, &layer, &err));
  measure_all(layer, &b, selection, threads);
  save_and_load(ctx, selection, packed, &b, work);
  write_file(work, "demo.out", b.out, (size_t)b.tokens * b.row);

  moe_layer_destroy(layer), moe_packed_destroy(packed), moe_selection_destroy(selection);
  moe_config_destroy(config), moe_context_destroy(ctx);
  free(b.hidden), free(b.logits), free(b.out), free(text);
  return 0;
}
