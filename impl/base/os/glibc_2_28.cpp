// libmoe.so and the program `moe`, where they are to run with every C library since glibc 2.28 (MOE_GLIBC_2_28): what a
// later one gave a new version number, or has for the first time, is taken from here instead. All of it was there
// before, under older numbers. Each of the two has these functions for itself; with MOE_PROGRAM there is also what only
// a program asks for.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/float_rules.h"

#if defined(__x86_64__)
#define MOE_FIRST "GLIBC_2.2.5"  // the number of what was always there
#define MOE_SETAFFINITY "GLIBC_2.3.4"
#define MOE_AT "GLIBC_2.4"
constexpr int kStat = 1;  // which struct stat is meant, to the functions that stat() was before 2.33
#elif defined(__aarch64__)
#define MOE_FIRST "GLIBC_2.17"
#define MOE_SETAFFINITY MOE_FIRST
#define MOE_AT MOE_FIRST
constexpr int kStat = 0;
#endif

// MOE_OLD(of, version, result, parameters) declares old_<of>: that version of a function of the C library.
#define MOE_OLD(of, version, result, parameters) \
  result old_##of parameters;                    \
  __asm__(".symver old_" #of "," #of "@" version)

// MOE_TAKE(name): the linker sends all that call `name` to this function (--wrap; impl/cmake/flags.cmake reads the
// names here).
#define MOE_TAKE(name, result, parameters)                       \
  [[gnu::visibility("hidden")]] result __wrap_##name parameters; \
  result __wrap_##name parameters

extern "C" {

// --- a new number, the same function ---

MOE_OLD(exp, MOE_FIRST, double, (double x));
MOE_TAKE(exp, double, (double x)) { return old_exp(x); }

MOE_OLD(log, MOE_FIRST, double, (double x));
MOE_TAKE(log, double, (double x)) { return old_log(x); }

// Threads were in libpthread.so.0 before 2.34, which is why both ask for that as well.
MOE_OLD(pthread_create, MOE_FIRST, int, (pthread_t*, const pthread_attr_t*, void* (*)(void*), void*));
MOE_TAKE(pthread_create, int, (pthread_t * out, const pthread_attr_t* attributes, void* (*run)(void*), void* user)) {
  return old_pthread_create(out, attributes, run, user);
}

MOE_OLD(pthread_join, MOE_FIRST, int, (pthread_t, void**));
MOE_TAKE(pthread_join, int, (pthread_t thread, void** out)) { return old_pthread_join(thread, out); }

MOE_OLD(pthread_mutex_trylock, MOE_FIRST, int, (pthread_mutex_t*));
MOE_TAKE(pthread_mutex_trylock, int, (pthread_mutex_t * mutex)) { return old_pthread_mutex_trylock(mutex); }

MOE_OLD(pthread_once, MOE_FIRST, int, (pthread_once_t*, void (*)()));
MOE_TAKE(pthread_once, int, (pthread_once_t * once, void (*run)())) { return old_pthread_once(once, run); }

MOE_OLD(__pthread_key_create, MOE_FIRST, int, (pthread_key_t*, void (*)(void*)));
MOE_TAKE(__pthread_key_create, int, (pthread_key_t * out, void (*end)(void*))) {
  return old___pthread_key_create(out, end);
}

MOE_OLD(pthread_sigmask, MOE_FIRST, int, (int, const sigset_t*, sigset_t*));
MOE_TAKE(pthread_sigmask, int, (int how, const sigset_t* set, sigset_t* old)) {
  return old_pthread_sigmask(how, set, old);
}

MOE_OLD(pthread_attr_setaffinity_np, MOE_SETAFFINITY, int, (pthread_attr_t*, size_t, const cpu_set_t*));
MOE_TAKE(pthread_attr_setaffinity_np, int, (pthread_attr_t * attributes, size_t size, const cpu_set_t* cpus)) {
  return old_pthread_attr_setaffinity_np(attributes, size, cpus);
}

// --- another name, the same function ---

MOE_OLD(__xstat, MOE_FIRST, int, (int, const char*, struct stat*));
MOE_TAKE(stat, int, (const char* path, struct stat* out)) { return old___xstat(kStat, path, out); }

MOE_OLD(__fxstat, MOE_FIRST, int, (int, int, struct stat*));
MOE_TAKE(fstat, int, (int file, struct stat* out)) { return old___fxstat(kStat, file, out); }

MOE_OLD(__fxstat64, MOE_FIRST, int, (int, int, struct stat64*));
MOE_TAKE(fstat64, int, (int file, struct stat64* out)) { return old___fxstat64(kStat, file, out); }

MOE_OLD(__fxstatat, MOE_AT, int, (int, int, const char*, struct stat*, int));
MOE_TAKE(fstatat, int, (int folder, const char* path, struct stat* out, int flags)) {
  return old___fxstatat(kStat, folder, path, out, flags);
}

// --- new ---

// Always false: shared_ptr counts with atomic operations, as it does in every program with threads.
[[gnu::visibility("hidden")]] extern char __libc_single_threaded;
char __libc_single_threaded = 0;

#ifdef DLFO_EH_SEGMENT_TYPE
// The unwinder asks which loaded object holds an address of code, and where its unwind table lies. Unwinders of GCC 11
// and older went over the objects themselves, as this does.
static int visit(dl_phdr_info* object, size_t, void* user) {
  auto& out = *static_cast<dl_find_object*>(user);
  const auto pc = reinterpret_cast<ElfW(Addr)>(out.dlfo_map_start);
  const ElfW(Phdr)* code = nullptr;
  const ElfW(Phdr)* table = nullptr;
  for (const ElfW(Phdr)* p = object->dlpi_phdr; p != object->dlpi_phdr + object->dlpi_phnum; ++p) {
    if (p->p_type == PT_LOAD && pc - (object->dlpi_addr + p->p_vaddr) < p->p_memsz) code = p;
    if (p->p_type == DLFO_EH_SEGMENT_TYPE) table = p;
  }
  if (code == nullptr) return 0;
  if (table == nullptr) return -1;
  const ElfW(Addr) begin = object->dlpi_addr + code->p_vaddr;
  out = {};
  out.dlfo_map_start = reinterpret_cast<void*>(begin);
  out.dlfo_map_end = reinterpret_cast<void*>(begin + code->p_memsz);
  out.dlfo_eh_frame = reinterpret_cast<void*>(object->dlpi_addr + table->p_vaddr);
  return 1;
}

[[gnu::visibility("hidden")]] int _dl_find_object(void* pc, dl_find_object* out) noexcept {
  out->dlfo_map_start = pc;  // for visit()
  return dl_iterate_phdr(visit, out) == 1 ? 0 : -1;
}
#endif

#ifdef MOE_PROGRAM
// --- of the program alone ---

// These were in libdl.so.2 before 2.34, which is why the program asks for that as well.
MOE_OLD(dlsym, MOE_FIRST, void*, (void*, const char*));
MOE_TAKE(dlsym, void*, (void* library, const char* name)) { return old_dlsym(library, name); }

MOE_OLD(dladdr, MOE_FIRST, int, (const void*, Dl_info*));
MOE_TAKE(dladdr, int, (const void* address, Dl_info* out)) { return old_dladdr(address, out); }

// A program begins in the C library's crt1.o, which hands main() to __libc_start_main(). Before 2.34 crt1.o brought the
// function that runs the program's constructors, too. A later crt1.o hands over none: the new __libc_start_main() runs
// them itself. The old one does not, so it gets that function from here. (Destructors are the loader's, old or new.)
using Main = int(int, char**, char**);
using Constructor = void(int, char**, char**);
[[gnu::visibility("hidden")]] extern Constructor* __init_array_start[];
[[gnu::visibility("hidden")]] extern Constructor* __init_array_end[];
[[gnu::visibility("hidden")]] void _init();

static void construct(int count, char** arguments, char** environment) {
  _init();
  for (Constructor** run = __init_array_start; run != __init_array_end; ++run) (*run)(count, arguments, environment);
}

MOE_OLD(__libc_start_main, MOE_FIRST, int, (Main*, int, char**, Constructor*, void (*)(), void (*)(), void*));
MOE_TAKE(__libc_start_main, int,
         (Main * program, int count, char** arguments, Constructor* given, void (*end)(), void (*loader_end)(),
          void* stack)) {
  return old___libc_start_main(program, count, arguments, given ? given : construct, end, loader_end, stack);
}
#endif
}  // extern "C"
