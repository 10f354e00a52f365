/* The four steps from C, linked through pkg-config: select, convert, create, apply.
 *
 *   cc main.c $(pkg-config --cflags --libs libmoe) -o example
 *   ./example CHECKPOINT_DIR OUTPUT_FILE
 *
 * CHECKPOINT_DIR holds config.json, safetensors files, hidden.bin [T, H] in the model's dtype and
 * logits.bin [T, E] in float32. Each step fails with an owned error object that says where and why;
 * a destroy takes NULL, and the order does not matter, so one clean-up serves all ways out. */
#include <moe/moe.h>
#include <stdio.h>
#include <stdlib.h>

/* The bytes of dir/name with a NUL behind them; NULL after a message. */
static char* read_file(const char* dir, const char* name, size_t* size) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE* f = fopen(path, "rb");
  const long length = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
  char* data = length >= 0 ? calloc((size_t)length + 1, 1) : NULL;
  if (data) {
    rewind(f);
    *size = fread(data, 1, (size_t)length, f);
  }
  if (f) fclose(f);
  if (!data) perror(path);
  return data;
}

static int write_file(const char* path, const char* data, size_t size) {
  FILE* f = fopen(path, "wb");
  const int bad = !f || fwrite(data, 1, size, f) != size || fclose(f) != 0;
  if (bad) perror(path);
  return bad;
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: %s CHECKPOINT_DIR OUTPUT_FILE\n", argv[0]), 2;
  const char *dir = argv[1], *dtype_name = NULL;
  size_t text_size, hidden_size, logits_size;
  char* text = read_file(dir, "config.json", &text_size);
  char* hidden = read_file(dir, "hidden.bin", &hidden_size);
  char* logits = read_file(dir, "logits.bin", &logits_size);
  char* out = hidden ? calloc(hidden_size + 1, 1) : NULL;
  int64_t width = 0, experts = 0;
  moe_error* err = NULL;
  moe_context* ctx = NULL;
  moe_config* config = NULL;
  moe_selection* selection = NULL;
  moe_weights* weights = NULL;
  moe_packed* packed = NULL;
  moe_layer* layer = NULL;

  int bad = !text || !logits || !out;
  bad = bad || moe_context_create(NULL, 0, NULL, &ctx, &err) ||
        moe_config_create_from_hf(text, text_size, NULL, 0, &config, &err) ||
        moe_config_get_int(config, "/hidden_dim", &width, &err) ||
        moe_config_get_int(config, "/num_experts", &experts, &err) ||
        moe_config_get_string(config, "/in_dtype", &dtype_name, &err) ||
        moe_select_backend(ctx, config, NULL, 0, &selection, &err) || moe_weights_create(config, &weights, &err) ||
        moe_weights_load_safetensors(weights, dir, NULL, &err) ||
        moe_convert_weights(ctx, selection, weights, NULL, &packed, &err) ||
        moe_layer_create(ctx, selection, packed, NULL, &layer, &err);
  if (!bad) {
    printf("%s %s %s\n", moe_selection_backend(selection), moe_selection_kernel(selection),
           moe_selection_layout(selection));
    const moe_dtype dtype = moe_dtype_from_name(dtype_name);
    const int64_t tokens = (int64_t)hidden_size / moe_tensor_nbytes(dtype, 1, &width);
    bad = (int64_t)logits_size != tokens * experts * 4 && fputs("logits.bin is not [T, E]\n", stderr) != EOF;
    bad = bad || moe_apply_flat(layer, tokens, dtype, hidden, MOE_DTYPE_F32, logits, NULL, NULL, dtype, out, &err);
    bad = bad || write_file(argv[2], out, hidden_size);
  }
  if (err)
    fprintf(stderr, "%s at '%s': %s\n", moe_status_name(moe_error_status(err)), moe_error_subject(err),
            moe_error_message(err));
  moe_layer_destroy(layer), moe_packed_destroy(packed), moe_weights_destroy(weights), moe_selection_destroy(selection);
  moe_config_destroy(config), moe_context_destroy(ctx), moe_error_destroy(err);
  free(out), free(logits), free(hidden), free(text);
  return bad;
}
