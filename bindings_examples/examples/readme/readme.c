#include <moe/moe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static moe_error* err;
static void check(moe_status status) {
  if (status == MOE_OK) return;
  fprintf(stderr, "%s: %s\n", moe_error_subject(err), moe_error_message(err));
  exit(1);
}

int main(int argc, char** argv) { /* ./readme MODEL_DIR */
  moe_context* context;
  moe_checkpoint* model;
  moe_layer* layers[256];
  moe_layer_info info = {.struct_size = sizeof info};
  moe_checkpoint_options mapped = {.struct_size = sizeof mapped, .load_flags = MOE_LOAD_MMAP};
  size_t n = 0, width = 0, experts = 0;
  check(moe_context_create(NULL, 0, NULL, &context, &err)); /* a thread for each core */
  check(moe_checkpoint_open(context, argc > 1 ? argv[1] : ".", NULL, 0, NULL, &model, &err));
  for (int64_t i = 0; i < moe_checkpoint_layer_count(model) && n < 256; ++i) {
    check(moe_checkpoint_layer_info(model, i, &info, &err));
    if (info.kind == MOE_LAYER_DENSE || info.flags & MOE_LAYER_IS_MTP) continue;
    check(moe_checkpoint_layer(context, model, i, &mapped, &layers[n++], &err)); /* or says what is not understood */
    width = (size_t)info.hidden_dim, experts = (size_t)info.num_experts;
  }
  uint16_t x[8192] = {0x3f80}, y[8192]; /* a token's hidden states, in bfloat16: 1, 0, 0, ... */
  float logits[1024] = {0}, first;      /* of the model's router, which is yours */
  if (n == 0 || width > 8192 || experts > 1024) return puts("no layers of experts, or too wide ones"), 1;
  for (size_t i = 0; i < n; ++i)
    check(moe_apply_flat(layers[i], 1, MOE_DTYPE_BF16, x, MOE_DTYPE_F32, logits, NULL, NULL, MOE_DTYPE_BF16, y, &err));
  memcpy(&first, (uint16_t[2]){0, y[0]}, sizeof first); /* a bfloat16 is the upper half of a float */
  printf("%zu layers ran, the last one's first value is %g\n", n, first);
  for (size_t i = 0; i < n; ++i) moe_layer_destroy(layers[i]);
  moe_checkpoint_destroy(model);
  moe_context_destroy(context);
  return 0;
}
