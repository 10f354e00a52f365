/* All layers of a model, and how fast a token goes through them.
 *
 *   model MODEL_DIR [CONVERTED_DIR]
 *
 * Opens a model's directory. With CONVERTED_DIR its layers are converted there first (what is there already stays, and
 * an interrupted run goes on), and that folder is mapped; without it they are converted in memory. Then a decode loop
 * runs one token after another through all layers, beside a probe of the memory's read bandwidth before and after it.
 * Hidden states are random, and so are logits: each token chooses other experts, as in a model.
 * MODEL_DIR may be a converted folder itself. */
#include <moe/moe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../demo/bandwidth.h"

typedef struct {
  moe_layer* layer;
  int64_t width, experts, top_k;
  double expert_bytes; /* packed, of one expert */
} slot;

static moe_error* err;

static void check(moe_status status) {
  if (status == MOE_OK) return;
  fprintf(stderr, "\n%s at '%s': %s\n", moe_status_name(status), moe_error_subject(err), moe_error_message(err));
  exit(1);
}

/* A member of a small JSON text that the library wrote; 0 where it is not there. */
static double number_in(const char* json, const char* key) {
  const char* found = strstr(json, key);
  return found ? atof(found + strlen(key)) : 0;
}

/* One line that rewrites itself, on a terminal. */
static moe_status show(void* user, uint64_t done, uint64_t total) {
  (void)done, (void)total;
  moe_progress p = {.struct_size = sizeof p};
  if (moe_control_state(*(moe_control**)user, &p, NULL) != MOE_OK || p.bytes_total == 0) return MOE_OK;
  fprintf(stderr, "\r%lld of %lld layers, %3.0f %%", (long long)p.layers_done, (long long)p.layers_total,
          100.0 * (double)p.bytes_done / (double)p.bytes_total);
  return MOE_OK;
}

static void convert(moe_context* context, const moe_checkpoint* model, const char* directory) {
  moe_control* control = NULL;
  check(moe_control_create(show, &control, NULL, &control, &err));
  moe_checkpoint_options options = {.struct_size = sizeof options, .control = control};
  const double start = seconds_now();
  check(moe_checkpoint_convert(context, model, directory, &options, &err));
  moe_progress p = {.struct_size = sizeof p};
  check(moe_control_state(control, &p, &err));
  fprintf(stderr, "\r%60s\r", "");
  printf("%s has %lld layers after %.1f s\n", directory, (long long)p.layers_total, seconds_now() - start);
  moe_control_destroy(control);
}

/* Layers with experts, ready to run. */
static size_t make_layers(moe_context* context, const moe_checkpoint* model, slot** out) {
  const int64_t count = moe_checkpoint_layer_count(model);
  slot* slots = calloc((size_t)count + 1, sizeof *slots);
  size_t n = 0;
  double bytes = 0;
  const double start = seconds_now();
  for (int64_t i = 0; slots && i < count; ++i) {
    moe_layer_info info = {.struct_size = sizeof info};
    check(moe_checkpoint_layer_info(model, i, &info, &err));
    if (info.kind == MOE_LAYER_OTHER) printf("layer %lld is left out: %s\n", (long long)i, info.problem);
    if (info.kind != MOE_LAYER_EXPERTS) continue;
    moe_checkpoint_options options = {.struct_size = sizeof options, .load_flags = MOE_LOAD_MMAP | MOE_LOAD_PREFAULT};
    slot* s = &slots[n++];
    check(moe_checkpoint_layer(context, model, i, &options, &s->layer, &err));
    moe_buffer* json = NULL;
    check(moe_layer_to_json(s->layer, &json, &err));
    const double packed = number_in(moe_buffer_data(json), "\"packed_bytes\":");
    moe_buffer_destroy(json);
    s->width = info.hidden_dim, s->experts = info.num_experts, s->top_k = info.top_k;
    s->expert_bytes = packed / (double)info.num_experts;
    bytes += packed;
    fprintf(stderr, "\rlayer %lld", (long long)i);
  }
  const double seconds = seconds_now() - start;
  fprintf(stderr, "\r%60s\r", "");
  printf("%zu layers, %.2f GB packed, ready in %.2f s (%.2f GB/s), peak memory %.2f GB\n", n, 1e-9 * bytes, seconds,
         1e-9 * bytes / seconds, 1e-9 * process_memory("VmHWM:"));
  *out = slots;
  return n;
}

static uint32_t next(uint32_t* state) { return *state = *state * 1664525u + 1013904223u; }

/* Tokens for about `seconds`, each through all layers; gives tokens/s and the bytes that a token reads. */
static double decode(const slot* slots, size_t n, double seconds, double* token_bytes) {
  int64_t width = 1, experts = 1;
  for (size_t i = 0; i < n; ++i) {
    width = slots[i].width > width ? slots[i].width : width;
    experts = slots[i].experts > experts ? slots[i].experts : experts;
  }
  uint16_t* x = calloc((size_t)width, sizeof *x); /* bfloat16 */
  uint16_t* y = calloc((size_t)width, sizeof *y);
  float* logits = calloc((size_t)experts * 2 + 1, sizeof *logits);
  if (!x || !y || !logits) exit(1);
  uint32_t state = 1;
  long tokens = 0;
  double start = 0;
  *token_bytes = 0;
  for (size_t i = 0; i < n; ++i) *token_bytes += slots[i].expert_bytes * (double)slots[i].top_k;
  for (int warm = 1; warm >= 0; --warm) {
    start = seconds_now();
    for (tokens = 0; warm ? tokens < 2 : seconds_now() - start < seconds; ++tokens)
      for (size_t i = 0; i < n; ++i) {
        for (int64_t k = 0; k < slots[i].width; ++k) x[k] = (uint16_t)(0x3f00 | (next(&state) >> 24));
        for (int64_t e = 0; e < slots[i].experts; ++e) logits[e] = (float)(next(&state) >> 8) * 0x1p-22f;
        check(moe_apply_flat(slots[i].layer, 1, MOE_DTYPE_BF16, x, MOE_DTYPE_F32, logits, NULL, NULL, MOE_DTYPE_BF16, y,
                             &err));
      }
  }
  const double elapsed = seconds_now() - start;
  free(x), free(y), free(logits);
  return (double)tokens / elapsed;
}

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: model MODEL_DIR [CONVERTED_DIR]\n");
    return 2;
  }
  moe_context* context = NULL;
  moe_checkpoint* model = NULL;
  moe_buffer* json = NULL;
  slot* slots = NULL;
  check(moe_context_create(NULL, 0, NULL, &context, &err));
  check(moe_context_to_json(context, &json, &err));
  const int threads = (int)number_in(moe_buffer_data(json), "\"threads\":");
  moe_buffer_destroy(json);

  const double start = seconds_now();
  check(moe_checkpoint_open(context, argv[1], NULL, 0, NULL, &model, &err));
  printf("%s: %lld layers, opened in %.1f ms\n", argv[1], (long long)moe_checkpoint_layer_count(model),
         1e3 * (seconds_now() - start));
  if (argc == 3) {
    convert(context, model, argv[2]);
    moe_checkpoint_destroy(model);
    check(moe_checkpoint_open(context, argv[2], NULL, 0, NULL, &model, &err));
  }
  const size_t n = make_layers(context, model, &slots);
  if (n == 0) return fprintf(stderr, "%s: no layer has experts\n", argv[1]), 1;

  double token_bytes = 0;
  const double before = read_bandwidth(threads);
  const double rate = decode(slots, n, 3.0, &token_bytes);
  const double after = read_bandwidth(threads);
  printf("decode, %d thread%s: %.1f tokens/s through the experts of all layers, %.2f GB/s\n", threads,
         threads == 1 ? "" : "s", rate, 1e-9 * rate * token_bytes);
  printf("read bandwidth: %.2f GB/s before, %.2f GB/s after; the layers reach %.2f of it\n", 1e-9 * before,
         1e-9 * after, rate * token_bytes / (before > after ? before : after));
  for (size_t i = 0; i < n; ++i) moe_layer_destroy(slots[i].layer);
  moe_checkpoint_destroy(model);
  moe_context_destroy(context);
  free(slots);
  return 0;
}
