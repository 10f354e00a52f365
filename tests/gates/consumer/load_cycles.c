/* A host program that loads and unloads a library 1100 times: the bytes in use after the last time are those after the
 * 100th.
 *   load_cycles LIBMOE [PLUGIN]     PLUGIN: a library that needs LIBMOE; its plugin_main() is called each time */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>

static size_t in_use(void) {
  const struct mallinfo2 m = mallinfo2();
  return m.uordblks + m.hblkhd;
}

int main(int argc, char** argv) {
  size_t before = 0;
  for (int i = 1; i <= 1100; ++i) {
    void* library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
    if (argc > 2) {
      int (*run)(void);
      *(void**)&run = dlsym(library, "plugin_main");
      if (run == NULL || run() != 0) return fprintf(stderr, "plugin_main failed\n"), 3;
    }
    dlclose(library);
    if (dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL) return fprintf(stderr, "%s is still loaded\n", argv[1]), 4;
    if (i == 100) before = in_use();
  }
  if (in_use() == before) return 0;
  fprintf(stderr, "%ld bytes more in use after 1000 loads\n", (long)in_use() - (long)before);
  return 5;
}
