//go:build cgo && !moe_purego

/* Between libmoe's callbacks, whose parameters are pointers, and Go's exported functions, which get integers:
 * numbers given as `user` are no addresses, and Go must not see a pointer that is none. */
#define _GNU_SOURCE
#include "callbacks_cgo.h"

#include <dlfcn.h>
#include <moe/moe.h>

#include "_cgo_export.h"

#define N(pointer) ((uintptr_t)(pointer))

static void release(void* user) { goRelease(N(user)); }
static moe_status progress(void* user, uint64_t done, uint64_t total) { return goProgress(N(user), done, total); }
static void log_line(void* user, moe_log_level level, const char* component, const char* message, size_t size) {
  goLog(N(user), level, N(component), N(message), size);
}
static void parallel_for(void* user, size_t count, moe_task_fn task, void* arg) {
  goParallelFor(N(user), count, N(task), N(arg));
}
static void* allocate(void* user, size_t size, size_t alignment, int32_t node) {
  return (void*)goAllocate(N(user), size, alignment, node);
}
static void deallocate(void* user, void* memory, size_t size, size_t alignment) {
  goDeallocate(N(user), N(memory), size, alignment);
}
static moe_status source_get(void* user, const char* role, int64_t expert, const char* shard, moe_tensor* out,
                             moe_error** err) {
  return goSourceGet(N(user), N(role), expert, N(shard), N(out), N(err));
}
static void source_put(void* user, const char* role, int64_t expert, const char* shard, const moe_tensor* tensor) {
  goSourcePut(N(user), N(role), expert, N(shard), N(tensor));
}
static void deleter(void* managed) { goDeleter(N(managed)); }

/* The types of moe.h are checked where an address is taken. */
uintptr_t go_release_fn(void) {
  moe_release_fn f = release;
  return N(f);
}
uintptr_t go_progress_fn(void) {
  moe_progress_fn f = progress;
  return N(f);
}
uintptr_t go_log_fn(void) {
  moe_log_fn f = log_line;
  return N(f);
}
uintptr_t go_parallel_for_fn(void) {
  moe_parallel_ops o = {.parallel_for = parallel_for};
  return N(o.parallel_for);
}
uintptr_t go_allocate_fn(void) {
  moe_allocator_ops o = {.allocate = allocate};
  return N(o.allocate);
}
uintptr_t go_deallocate_fn(void) {
  moe_allocator_ops o = {.deallocate = deallocate};
  return N(o.deallocate);
}
uintptr_t go_source_get_fn(void) {
  moe_weight_source_ops o = {.get = source_get};
  return N(o.get);
}
uintptr_t go_source_put_fn(void) {
  moe_weight_source_ops o = {.put = source_put};
  return N(o.put);
}
uintptr_t go_deleter_fn(void) { return N(deleter); }

void go_call_task(uintptr_t task, uintptr_t arg, size_t index) { ((moe_task_fn)task)((void*)arg, index); }
void go_call_deleter(uintptr_t f, uintptr_t managed) { ((void (*)(void*))f)((void*)managed); }

const char* go_library_path(void) {
  Dl_info info;
  return dladdr((void*)N(moe_abi_version), &info) && info.dli_fname ? info.dli_fname : "libmoe";
}
