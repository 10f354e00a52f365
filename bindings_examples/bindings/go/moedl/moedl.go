// Package moedl is libmoe for Go without cgo: the shared library is opened at run time, so that programs
// built with CGO_ENABLED=0 and cross builds can use it. Package moeapi documents everything; package moe is
// the same through cgo.
package moedl

import (
	"fmt"
	"os"

	"github.com/ebitengine/purego"

	"libmoe.example/go/internal/raw"
)

func init() { raw.Bind("libmoe.example/go/moedl", open) }

// open takes path, else LIBMOE_PATH, else what the system's loader finds.
func open(path string) (*raw.Library, error) {
	if path == "" {
		path = os.Getenv("LIBMOE_PATH")
	}
	if path == "" {
		path = fmt.Sprintf("libmoe.so.%d", raw.ABI)
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l := &raw.Library{Path: path}
	// The number first: another ABI may lack functions.
	version, err := purego.Dlsym(handle, "moe_abi_version")
	if err != nil {
		return nil, fmt.Errorf("%s is no libmoe: %w", path, err)
	}
	purego.RegisterFunc(&l.ABIVersion, version)
	if text, err := purego.Dlsym(handle, "moe_version_string"); err == nil {
		purego.RegisterFunc(&l.VersionString, text)
	} else {
		l.VersionString = func() *byte { return nil }
	}
	if l.ABIVersion() != raw.ABI {
		return l, nil // refused by raw.Load
	}
	for name, function := range functions(&l.Table) {
		symbol, err := purego.Dlsym(handle, name)
		if err != nil {
			return nil, fmt.Errorf("%s, libmoe %s, lacks a function of %s: %w", path, raw.Text(l.VersionString()), raw.Version, err)
		}
		purego.RegisterFunc(function, symbol)
	}
	callbacks(l)
	return l, nil
}

// callbacks makes the C functions that libmoe gets; purego never frees one, so there is one of each kind.
func callbacks(l *raw.Library) {
	l.Release = purego.NewCallback(func(user uintptr) { raw.On.Release(user) })
	l.Progress = purego.NewCallback(func(user uintptr, done, total uint64) int32 { return raw.On.Progress(user, done, total) })
	l.Log = purego.NewCallback(func(user uintptr, level int32, component, message, size uintptr) {
		raw.On.Log(user, level, component, message, size)
	})
	l.ParallelFor = purego.NewCallback(func(user, count, task, arg uintptr) { raw.On.ParallelFor(user, count, task, arg) })
	l.Allocate = purego.NewCallback(func(user, size, alignment uintptr, node int32) uintptr {
		return raw.On.Allocate(user, size, alignment, node)
	})
	l.Deallocate = purego.NewCallback(func(user, memory, size, alignment uintptr) {
		raw.On.Deallocate(user, memory, size, alignment)
	})
	l.SourceGet = purego.NewCallback(func(user, role uintptr, expert int64, shard, tensor, err uintptr) int32 {
		return raw.On.SourceGet(user, role, expert, shard, tensor, err)
	})
	l.SourcePut = purego.NewCallback(func(user, role uintptr, expert int64, shard, tensor uintptr) {
		raw.On.SourcePut(user, role, expert, shard, tensor)
	})
	l.Deleter = purego.NewCallback(func(managed uintptr) { raw.On.Deleter(managed) })
	l.CallTask = func(task, arg, index uintptr) { purego.SyscallN(task, arg, index) }
	l.CallDeleter = func(deleter, managed uintptr) { purego.SyscallN(deleter, managed) }
}
