/* A host program that loads the library named in its argument and calculates a denormal number before and after: a library
 * linked with -ffast-math makes that zero, in the whole process. Ends with 0 when nothing changed. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  volatile float small = 1e-38f;
  if (argc != 2 || small / 4 == 0) return 2;
  if (dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == NULL) return fprintf(stderr, "%s\n", dlerror()), 3;
  return small / 4 == 0;
}
