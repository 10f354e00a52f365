/* The four steps from C without the header and without linking: dlopen, dlsym, own prototypes.
 *
 *   cc main.c -o example            (-ldl before glibc 2.34)
 *   LIBMOE_PATH=/path/to/libmoe.so.0 ./example CHECKPOINT_DIR OUTPUT_FILE
 *
 * The context is NULL here: one thread, no log. The output bytes are the same with any number. */
#include <stdio.h>
#include <stdlib.h>

#include "prototypes.h"

static char text[1 << 20], hidden[16 << 20], logits[16 << 20], out[16 << 20];

/* Reads or writes dir/name as `mode` says; the number of bytes, -1 after a message. */
static int64_t transfer(const char* dir, const char* name, const char* mode, char* data, size_t size) {
  char path[4096];
  snprintf(path, sizeof path, "%s%s", dir, name);
  FILE* f = fopen(path, mode);
  if (f) size = *mode == 'r' ? fread(data, 1, size, f) : fwrite(data, 1, size, f);
  if (f && fclose(f) == 0) return (int64_t)size;
  return perror(path), -1;
}

int main(int argc, char** argv) {
  const char* path = getenv("LIBMOE_PATH");
  void* library = dlopen(path ? path : "libmoe.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  FUNCTIONS(RESOLVE)
  if (argc != 3 || moe_abi_version() != 0) return fprintf(stderr, "usage: %s CHECKPOINT_DIR OUTPUT_FILE\n", argv[0]), 2;
  const char *dir = argv[1], *dtype_name = NULL;
  const int64_t text_size = transfer(dir, "/config.json", "rb", text, sizeof text);
  const int64_t bytes = transfer(dir, "/hidden.bin", "rb", hidden, sizeof hidden);
  if (text_size < 0 || bytes < 0 || transfer(dir, "/logits.bin", "rb", logits, sizeof logits) < 0) return 1;

  void *err = NULL, *config = NULL, *selection = NULL, *weights = NULL, *packed = NULL, *layer = NULL;
  int64_t width = 0;
  int bad = moe_config_create_from_hf(text, (size_t)text_size, NULL, 0, &config, &err) ||
            moe_config_get_int(config, "/hidden_dim", &width, &err) ||
            moe_config_get_string(config, "/in_dtype", &dtype_name, &err) ||
            moe_select_backend(NULL, config, NULL, 0, &selection, &err) || moe_weights_create(config, &weights, &err) ||
            moe_weights_load_safetensors(weights, dir, NULL, &err) ||
            moe_convert_weights(NULL, selection, weights, NULL, &packed, &err) ||
            moe_layer_create(NULL, selection, packed, NULL, &layer, &err);
  if (!bad) {
    printf("%s %s %s\n", moe_selection_backend(selection), moe_selection_kernel(selection),
           moe_selection_layout(selection));
    const int32_t dtype = moe_dtype_from_name(dtype_name), f32 = 1;
    const int64_t tokens = bytes / moe_tensor_nbytes(dtype, 1, &width);
    bad = moe_apply_flat(layer, tokens, dtype, hidden, f32, logits, NULL, NULL, dtype, out, &err) != 0;
  }
  if (bad)
    fprintf(stderr, "%s at '%s': %s\n", moe_status_name(moe_error_status(err)), moe_error_subject(err),
            moe_error_message(err));
  else
    bad = transfer("", argv[2], "wb", out, (size_t)bytes) != bytes;
  moe_layer_destroy(layer), moe_packed_destroy(packed), moe_weights_destroy(weights);
  moe_selection_destroy(selection), moe_config_destroy(config), moe_error_destroy(err), dlclose(library);
  return bad;
}
