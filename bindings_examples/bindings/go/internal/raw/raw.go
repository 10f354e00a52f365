// Package raw stands between the API (package moe) and C: a table of the library's functions, and what C calls back. Build tags
// choose who fills the table: cgo.go, or purego.go where cgo is off or the tag moe_purego is set.
package raw

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Library is a loaded libmoe.
type Library struct {
	Table
	Path string
	// Addresses of C functions that call On.
	Release, Progress, Log, ParallelFor, Allocate, Deallocate, SourceGet, SourcePut, Deleter uintptr
	// CallTask calls a moe_task_fn, CallDeleter the deleter of a DLPack object.
	CallTask    func(task, arg, index uintptr)
	CallDeleter func(deleter, managed uintptr)
}

// On is what the C functions of a Library call; package moe sets it. All pointers arrive as integers.
var On struct {
	Release     func(user uintptr)
	Progress    func(user uintptr, done, total uint64) int32
	Log         func(user uintptr, level int32, component, message, size uintptr)
	ParallelFor func(user, count, task, arg uintptr)
	Allocate    func(user, size, alignment uintptr, node int32) uintptr
	Deallocate  func(user, memory, size, alignment uintptr)
	SourceGet   func(user, role uintptr, expert int64, shard, tensor, err uintptr) int32
	SourcePut   func(user, role uintptr, expert int64, shard, tensor uintptr)
	Deleter     func(managed uintptr)
}

// loader keeps what open found.
type loader struct {
	open   func(path string) (*Library, error)
	mu     sync.Mutex
	loaded atomic.Pointer[Library] // read by every call
}

var program = loader{open: open}

// ErrVersion is the error of a library with another ABI number.
var ErrVersion = errors.New("another version")

// Load gives the library, which the first success loads for good. Path "" is open's own way.
func Load(path string) (*Library, error) { return program.load(path) }

func (o *loader) load(path string) (*Library, error) {
	if l := o.loaded.Load(); l != nil && path == "" {
		return l, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.loaded.Load(); l != nil && (path == "" || path == l.Path) {
		return l, nil
	} else if l != nil {
		return nil, fmt.Errorf("%s is loaded already, %s cannot be", l.Path, path)
	}
	library, err := o.open(path)
	if err != nil {
		return nil, err
	}
	if found := library.ABIVersion(); found != ABI {
		return nil, fmt.Errorf("%s is libmoe %s with ABI %d, this binding (Go, %s) needs ABI %d: %w",
			library.Path, Text(library.VersionString()), found, way, ABI, ErrVersion)
	}
	o.loaded.Store(library)
	return library, nil
}

// Loaded is the library if there is one by now.
func Loaded() *Library { return program.loaded.Load() }

// Pointer is the address that an integer variable holds. Only for memory of C.
func Pointer(address *uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(address)) }

// Text copies NUL-terminated text of the library; "" for NULL.
func Text(text *byte) string {
	if text == nil {
		return ""
	}
	size := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(text), size)) != 0 {
		size++
	}
	return string(unsafe.Slice(text, size))
}

// TextAt is Text for an address that came as an integer.
func TextAt(address uintptr) string { return Text((*byte)(Pointer(&address))) }

// Bytes is memory of C as a slice; it ends when C says so.
func Bytes(memory unsafe.Pointer, size uintptr) []byte {
	if memory == nil || size == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(memory), size)
}

// users are the Go values behind the `user` pointers that C keeps: numbers that no memory has.
var users struct {
	sync.Mutex
	last   uintptr
	values map[uintptr]interface{}
}

// Register gives a value the number that C gets as `user`.
func Register(value interface{}) uintptr {
	users.Lock()
	defer users.Unlock()
	if users.values == nil {
		users.values = map[uintptr]interface{}{}
	}
	users.last++
	users.values[users.last] = value
	return users.last
}

// Value is the value of a number, nil once it is forgotten.
func Value(user uintptr) interface{} {
	users.Lock()
	defer users.Unlock()
	return users.values[user]
}

// Forget ends a number and gives its value.
func Forget(user uintptr) interface{} {
	users.Lock()
	defer users.Unlock()
	value := users.values[user]
	delete(users.values, user)
	return value
}

// Registered counts the numbers in use; tests look for what is never released.
func Registered() int {
	users.Lock()
	defer users.Unlock()
	return len(users.values)
}
