#include <moe/moe.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) { /* ./readme CHECKPOINT_DIR < CHECKPOINT_DIR/config.json */
  static char text[1 << 20];
  int64_t hidden_dim = 0, num_experts = 0;
  moe_error* err = NULL;
  moe_config* config = NULL;
  moe_selection* selection = NULL;
  moe_weights* weights = NULL;
  moe_packed* packed = NULL;
  moe_layer* layer = NULL;
  const size_t size = fread(text, 1, sizeof text, stdin);
  int bad = moe_config_create_from_hf(text, size, NULL, 0, &config, &err) ||
            moe_config_get_int(config, "/hidden_dim", &hidden_dim, &err) ||
            moe_config_get_int(config, "/num_experts", &num_experts, &err);
  uint16_t* hidden = calloc(2 * (size_t)hidden_dim + 1, sizeof *hidden); /* one token, behind it what comes out */
  float* logits = calloc(2 * (size_t)num_experts + 1, sizeof *logits);   /* alike; twice: zero and shared ones, too */
  if (!hidden || !logits) return 1;
  hidden[0] = 0x3f80; /* in bfloat16: 1, 0, 0, ... */
  bad = bad || moe_select_backend(NULL, config, NULL, 0, &selection, &err) ||
        moe_weights_create(config, &weights, &err) ||
        moe_weights_load_safetensors(weights, argc > 1 ? argv[1] : ".", NULL, &err) ||
        moe_convert_weights(NULL, selection, weights, NULL, &packed, &err) ||
        moe_layer_create(NULL, selection, packed, NULL, &layer, &err) ||
        moe_apply_flat(layer, 1, MOE_DTYPE_BF16, hidden, MOE_DTYPE_F32, logits, NULL, NULL, MOE_DTYPE_BF16,
                       hidden + hidden_dim, &err);
  if (bad)
    fprintf(stderr, "%s: %s\n", moe_error_subject(err), moe_error_message(err));
  else
    printf("%s computed a first value of bits %04x\n", moe_selection_kernel(selection), hidden[hidden_dim]);
  moe_layer_destroy(layer), moe_packed_destroy(packed), moe_weights_destroy(weights);
  free(hidden), free(logits), moe_selection_destroy(selection), moe_config_destroy(config), moe_error_destroy(err);
  return bad;
}
