#include <moe/moe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) { /* ./readme CHECKPOINT_DIR < CHECKPOINT_DIR/config.json */
  static char text[1 << 20];
  int64_t hidden_dim = 0, experts = 0, zero_experts = 0;
  moe_error* err = NULL;
  moe_context* context = NULL;
  moe_config* config = NULL;
  moe_selection* selection = NULL;
  moe_weights* weights = NULL;
  moe_packed* packed = NULL;
  moe_layer* layer = NULL;
  const size_t size = fread(text, 1, sizeof text, stdin);
  int bad = moe_context_create(NULL, 0, NULL, &context, &err) || /* a thread for each core */
            moe_config_create_from_hf(text, size, NULL, 0, &config, &err) ||
            moe_config_get_int(config, "/hidden_dim", &hidden_dim, &err) ||
            moe_config_get_int(config, "/num_experts", &experts, &err) ||
            moe_config_get_int(config, "/routing/num_zero_experts", &zero_experts, &err);
  uint16_t* hidden = calloc((size_t)hidden_dim + 1, sizeof *hidden); /* one token, in bfloat16 */
  uint16_t* out = calloc((size_t)hidden_dim + 1, sizeof *out);
  float* logits = calloc((size_t)(experts + zero_experts) + 1, sizeof *logits); /* of its router */
  if (!hidden || !out || !logits) return 1;
  hidden[0] = 0x3f80; /* 1, 0, 0, ... */
  bad = bad || moe_select_backend(context, config, NULL, 0, &selection, &err) ||
        moe_weights_create(config, &weights, &err) ||
        moe_weights_load_safetensors(weights, argc > 1 ? argv[1] : ".", NULL, &err) ||
        moe_convert_weights(context, selection, weights, NULL, &packed, &err) ||
        moe_layer_create(context, selection, packed, NULL, &layer, &err) ||
        moe_apply_flat(layer, 1, MOE_DTYPE_BF16, hidden, MOE_DTYPE_F32, logits, NULL, NULL, MOE_DTYPE_BF16, out, &err);
  if (bad) {
    fprintf(stderr, "%s: %s\n", moe_error_subject(err), moe_error_message(err));
  } else {
    const uint32_t bits = (uint32_t)out[0] << 16; /* a bfloat16 is the upper half of a float */
    float first;
    memcpy(&first, &bits, sizeof first);
    printf("%s computed a first value of %g\n", moe_selection_kernel(selection), first);
  }
  moe_layer_destroy(layer), moe_packed_destroy(packed), moe_weights_destroy(weights), moe_selection_destroy(selection);
  moe_config_destroy(config), moe_context_destroy(context), moe_error_destroy(err);
  free(hidden), free(out), free(logits);
  return bad;
}
