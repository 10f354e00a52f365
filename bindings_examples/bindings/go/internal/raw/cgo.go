//go:build cgo && !moe_purego

package raw

// #cgo pkg-config: libmoe
// #cgo LDFLAGS: -ldl
// #include "callbacks_cgo.h"
import "C"

const way = "cgo"

// open gives the library that the program is linked to, which pkg-config found when it was built.
func open(path string) (*Library, error) {
	l := &Library{Table: table, Path: C.GoString(C.go_library_path())}
	if path != "" && path != l.Path {
		return nil, linked{path, l.Path}
	}
	l.Release = uintptr(C.go_release_fn())
	l.Progress = uintptr(C.go_progress_fn())
	l.Log = uintptr(C.go_log_fn())
	l.ParallelFor = uintptr(C.go_parallel_for_fn())
	l.Allocate = uintptr(C.go_allocate_fn())
	l.Deallocate = uintptr(C.go_deallocate_fn())
	l.SourceGet = uintptr(C.go_source_get_fn())
	l.SourcePut = uintptr(C.go_source_put_fn())
	l.Deleter = uintptr(C.go_deleter_fn())
	l.CallTask = func(task, arg, index uintptr) {
		C.go_call_task(C.uintptr_t(task), C.uintptr_t(arg), C.size_t(index))
	}
	l.CallDeleter = func(deleter, managed uintptr) {
		C.go_call_deleter(C.uintptr_t(deleter), C.uintptr_t(managed))
	}
	return l, nil
}

// linked is the error of Load with another path: cgo's library came with the program.
type linked struct{ wanted, found string }

func (e linked) Error() string {
	return "this program is linked to " + e.found + "; with the build tag moe_purego, or with cgo off, it could load " + e.wanted
}
