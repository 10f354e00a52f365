// Package moe is libmoe for Go through cgo: Mixture-of-Experts layers on the CPU. The library is found by
// pkg-config when a program is built. Package moeapi documents everything; package moedl is the same
// without cgo.
package moe

// #cgo pkg-config: libmoe
// #cgo LDFLAGS: -ldl
// #include "callbacks.h"
import "C"

import (
	"libmoe.example/go/internal/raw"
)

func init() {
	raw.Bind("libmoe.example/go/moe", func(path string) (*raw.Library, error) {
		l := &raw.Library{Table: table, Path: C.GoString(C.go_library_path())}
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
	})
}

// linked is the error of Load with another path: cgo's library came with the program.
type linked struct{ wanted, found string }

func (e linked) Error() string {
	return "this program is linked to " + e.found + "; only package moedl can load " + e.wanted
}
