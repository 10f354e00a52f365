/* C functions that libmoe gets as callbacks; each calls a Go function of callbacks_cgo.go. */
#ifndef MOE_GO_CALLBACKS_H_
#define MOE_GO_CALLBACKS_H_

#include <stddef.h>
#include <stdint.h>

uintptr_t go_release_fn(void);
uintptr_t go_progress_fn(void);
uintptr_t go_log_fn(void);
uintptr_t go_parallel_for_fn(void);
uintptr_t go_allocate_fn(void);
uintptr_t go_deallocate_fn(void);
uintptr_t go_source_get_fn(void);
uintptr_t go_source_put_fn(void);
uintptr_t go_deleter_fn(void);

void go_call_task(uintptr_t task, uintptr_t arg, size_t index);
void go_call_deleter(uintptr_t deleter, uintptr_t managed);

/* The file that the loaded library came from. */
const char* go_library_path(void);

#endif
