/* A host program: built against an installed libmoe by pkg-config, by find_package and statically. Asks for
 * the version and walks one failing call, so that the library's own code and its C++ run time are in use. */
#include <moe/moe.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  moe_config* config = NULL;
  moe_error* error = NULL;
  const char* text = "{\"num_experts\": \"four\"}";
  if (moe_abi_version() != MOE_ABI_VERSION) return 1;
  if (strstr(moe_abi_json(), "moe_apply") == NULL) return 2;
  if (moe_config_create(text, strlen(text), &config, &error) != MOE_ERR_INVALID_CONFIG) return 3;
  if (config != NULL || error == NULL || strlen(moe_error_message(error)) == 0) return 4;
  printf("libmoe %s: %s\n", moe_version_string(), moe_error_message(error));
  moe_error_destroy(error);
  return 0;
}
