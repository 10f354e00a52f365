/* The prototypes that the dlopen example needs, written by hand: no header of libmoe is used.
 *
 * Handles are void*, statuses and dtypes int32_t. DECLARE makes one function pointer per row,
 * RESOLVE fills it from the handle `library` and returns 1 where a name is missing: a program
 * needs only the functions that it calls, so it runs with any library of the same ABI number. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */
#define FUNCTIONS(X) \
  X(int32_t,     moe_abi_version,              (void)) \
  X(const char*, moe_status_name,              (int32_t status)) \
  X(int32_t,     moe_error_status,             (const void* err)) \
  X(const char*, moe_error_subject,            (const void* err)) \
  X(const char*, moe_error_message,            (const void* err)) \
  X(void,        moe_error_destroy,            (void* err)) \
  X(int32_t,     moe_config_create_from_hf,    (const char* json, size_t, const char*, size_t, void** config, void** err)) \
  X(int32_t,     moe_config_get_int,           (const void* config, const char* pointer, int64_t*, void** err)) \
  X(int32_t,     moe_config_get_string,        (const void* config, const char* pointer, const char**, void** err)) \
  X(void,        moe_config_destroy,           (void* config)) \
  X(int32_t,     moe_select_backend,           (void* ctx, const void* config, const void*, uint64_t, void**, void** err)) \
  X(const char*, moe_selection_backend,        (const void* selection)) \
  X(const char*, moe_selection_kernel,         (const void* selection)) \
  X(const char*, moe_selection_layout,         (const void* selection)) \
  X(void,        moe_selection_destroy,        (void* selection)) \
  X(int32_t,     moe_weights_create,           (const void* config, void** weights, void** err)) \
  X(int32_t,     moe_weights_load_safetensors, (void* weights, const char* path, const char* module, void** err)) \
  X(void,        moe_weights_destroy,          (void* weights)) \
  X(int32_t,     moe_convert_weights,          (void* ctx, const void*, void* weights, const void*, void**, void** err)) \
  X(void,        moe_packed_destroy,           (void* packed)) \
  X(int32_t,     moe_layer_create,             (void* ctx, const void*, const void* packed, const void*, void**, void** err)) \
  X(void,        moe_layer_destroy,            (void* layer)) \
  X(int32_t,     moe_dtype_from_name,          (const char* name)) \
  X(int64_t,     moe_tensor_nbytes,            (int32_t dtype, int32_t ndim, const int64_t* shape)) \
  X(int32_t,     moe_apply_flat,               (const void* layer, int64_t tokens, int32_t, const void* hidden, int32_t, \
                     const void* logits, const int32_t*, const float*, int32_t, void* out, void** err))

#define DECLARE(result, name, parameters) static result(*name) parameters;
#define RESOLVE(result, name, parameters) \
  if (!(*(void**)&name = dlsym(library, #name))) return fprintf(stderr, "%s\n", dlerror()), 1;
/* clang-format on */
FUNCTIONS(DECLARE)
