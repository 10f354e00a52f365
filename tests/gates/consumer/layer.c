/* A host program that runs two small layers, float and int4, and writes the bytes of their outputs to its standard output:
 * the same ones however it and the library were built. */
#include <moe/moe.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { kExperts = 4, kHidden = 64, kInner = 32, kTokens = 9, kGroup = 32 };

typedef struct {
  const char* config;
  moe_dtype dtype; /* of the weights */
} layer_kind;

static const layer_kind kKinds[] = {
    {"{\"num_experts\":4,\"top_k\":2,\"hidden_size\":64,\"intermediate_size\":32,\"in_dtype\":\"float32\"}", MOE_DTYPE_F32},
    {"{\"num_experts\":4,\"top_k\":2,\"hidden_size\":64,\"intermediate_size\":32,\"in_dtype\":\"float32\","
     "\"quantization\":{\"scheme\":\"W4A8\",\"group_size\":32,\"format\":\"int-quantized\"}}",
     MOE_DTYPE_I8}};

static float w13[kExperts * 2 * kInner * kHidden], w2[kExperts * kHidden * kInner];
static float s13[kExperts * 2 * kInner * (kHidden / kGroup)], s2[kExperts * kHidden * (kInner / kGroup)];
static int8_t q13[kExperts * 2 * kInner * kHidden], q2[kExperts * kHidden * kInner];
static float hidden[kTokens * kHidden], logits[kTokens * kExperts], out[kTokens * kHidden];

/* Values that every compiler makes alike: 16 random bits, less `middle`, and a power of two. */
static int32_t next(int32_t middle) {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int32_t)(state >> 48) - middle;
}
static void fill(float* values, size_t count, int32_t middle) {
  for (size_t i = 0; i < count; ++i) values[i] = (float)next(middle) / 65536.0f;
}
static void fill_codes(int8_t* codes, size_t count) {
  for (size_t i = 0; i < count; ++i) codes[i] = (int8_t)(next(32768) / 4096);
}
static int set(moe_weights* weights, const char* role, moe_dtype dtype, int64_t rows, int64_t columns, void* data, moe_error** err) {
  moe_tensor t;
  memset(&t, 0, sizeof t);
  t.struct_size = sizeof t;
  t.dtype = dtype;
  t.ndim = 3;
  t.data = data;
  t.shape[0] = kExperts;
  t.shape[1] = rows;
  t.shape[2] = columns;
  return moe_weights_set(weights, role, &t, NULL, NULL, err);
}

static int run(const layer_kind* kind) {
  const int integers = kind->dtype == MOE_DTYPE_I8;
  moe_error* err = NULL;
  moe_context* ctx = NULL;
  moe_config* config = NULL;
  moe_selection* selection = NULL;
  moe_weights* weights = NULL;
  moe_packed* packed = NULL;
  moe_layer* layer = NULL;
  int bad = moe_context_create("{\"threads\":2}", 13, NULL, &ctx, &err) ||
            moe_config_create(kind->config, strlen(kind->config), &config, &err) ||
            moe_select_backend(ctx, config, NULL, 0, &selection, &err) || moe_weights_create(config, &weights, &err) ||
            set(weights, "w13_weight", kind->dtype, 2 * kInner, kHidden, integers ? (void*)q13 : (void*)w13, &err) ||
            set(weights, "w2_weight", kind->dtype, kHidden, kInner, integers ? (void*)q2 : (void*)w2, &err);
  if (integers)
    bad = bad || set(weights, "w13_scale", MOE_DTYPE_F32, 2 * kInner, kHidden / kGroup, s13, &err) ||
          set(weights, "w2_scale", MOE_DTYPE_F32, kHidden, kInner / kGroup, s2, &err);
  bad = bad || moe_convert_weights(ctx, selection, weights, NULL, &packed, &err) ||
        moe_layer_create(ctx, selection, packed, NULL, &layer, &err) ||
        moe_apply_flat(layer, kTokens, MOE_DTYPE_F32, hidden, MOE_DTYPE_F32, logits, NULL, NULL, MOE_DTYPE_F32, out, &err);
  fprintf(stderr, "%s\n", bad ? moe_error_message(err) : moe_selection_kernel(selection));
  bad = bad || fwrite(out, sizeof out, 1, stdout) != 1;
  moe_layer_destroy(layer), moe_packed_destroy(packed), moe_weights_destroy(weights), moe_selection_destroy(selection);
  moe_config_destroy(config), moe_context_destroy(ctx), moe_error_destroy(err);
  return bad;
}

int main(void) {
  const int32_t around_zero = 32768, positive = -1;
  fill(w13, sizeof w13 / sizeof *w13, around_zero), fill(w2, sizeof w2 / sizeof *w2, around_zero);
  fill(s13, sizeof s13 / sizeof *s13, positive), fill(s2, sizeof s2 / sizeof *s2, positive);
  fill_codes(q13, sizeof q13), fill_codes(q2, sizeof q2);
  fill(hidden, sizeof hidden / sizeof *hidden, around_zero), fill(logits, sizeof logits / sizeof *logits, around_zero);
  for (size_t k = 0; k < sizeof kKinds / sizeof *kKinds; ++k)
    if (run(&kKinds[k])) return 1;
  return 0;
}
