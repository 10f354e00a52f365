//go:build !cgo || moe_purego

package raw

import (
	"fmt"
	"os"

	"github.com/ebitengine/purego"
)

const way = "purego"

// open takes path, else LIBMOE_PATH, else what the system's loader finds.
func open(path string) (*Library, error) {
	if path == "" {
		path = os.Getenv("LIBMOE_PATH")
	}
	if path == "" {
		path = fmt.Sprintf("libmoe.so.%d", ABI)
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l := &Library{Path: path}
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
	if l.ABIVersion() != ABI {
		return l, nil // refused by Load
	}
	for name, function := range functions(&l.Table) {
		symbol, err := purego.Dlsym(handle, name)
		if err != nil {
			return nil, fmt.Errorf("%s, libmoe %s, lacks a function of %s: %w", path, Text(l.VersionString()), Version, err)
		}
		purego.RegisterFunc(function, symbol)
	}
	callbacks(l)
	return l, nil
}

// callbacks makes the C functions that libmoe gets; purego never frees one, so there is one of each kind.
func callbacks(l *Library) {
	l.Release = purego.NewCallback(func(user uintptr) { On.Release(user) })
	l.Progress = purego.NewCallback(func(user uintptr, done, total uint64) int32 { return On.Progress(user, done, total) })
	l.Log = purego.NewCallback(func(user uintptr, level int32, component, message, size uintptr) {
		On.Log(user, level, component, message, size)
	})
	l.ParallelFor = purego.NewCallback(func(user, count, task, arg uintptr) { On.ParallelFor(user, count, task, arg) })
	l.Allocate = purego.NewCallback(func(user, size, alignment uintptr, node int32) uintptr {
		return On.Allocate(user, size, alignment, node)
	})
	l.Deallocate = purego.NewCallback(func(user, memory, size, alignment uintptr) {
		On.Deallocate(user, memory, size, alignment)
	})
	l.SourceGet = purego.NewCallback(func(user, role uintptr, expert int64, shard, tensor, err uintptr) int32 {
		return On.SourceGet(user, role, expert, shard, tensor, err)
	})
	l.SourcePut = purego.NewCallback(func(user, role uintptr, expert int64, shard, tensor uintptr) {
		On.SourcePut(user, role, expert, shard, tensor)
	})
	l.Deleter = purego.NewCallback(func(managed uintptr) { On.Deleter(managed) })
	l.CallTask = func(task, arg, index uintptr) { purego.SyscallN(task, arg, index) }
	l.CallDeleter = func(deleter, managed uintptr) { purego.SyscallN(deleter, managed) }
}
