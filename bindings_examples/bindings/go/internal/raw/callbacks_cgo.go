//go:build cgo && !moe_purego

package raw

// #include <stddef.h>
// #include <stdint.h>
import "C"

// The functions that callbacks_cgo.c calls.

//export goRelease
func goRelease(user C.uintptr_t) { On.Release(uintptr(user)) }

//export goProgress
func goProgress(user C.uintptr_t, done, total C.uint64_t) C.int32_t {
	return C.int32_t(On.Progress(uintptr(user), uint64(done), uint64(total)))
}

//export goLog
func goLog(user C.uintptr_t, level C.int32_t, component, message C.uintptr_t, size C.size_t) {
	On.Log(uintptr(user), int32(level), uintptr(component), uintptr(message), uintptr(size))
}

//export goParallelFor
func goParallelFor(user C.uintptr_t, count C.size_t, task, arg C.uintptr_t) {
	On.ParallelFor(uintptr(user), uintptr(count), uintptr(task), uintptr(arg))
}

//export goAllocate
func goAllocate(user C.uintptr_t, size, alignment C.size_t, node C.int32_t) C.uintptr_t {
	return C.uintptr_t(On.Allocate(uintptr(user), uintptr(size), uintptr(alignment), int32(node)))
}

//export goDeallocate
func goDeallocate(user, memory C.uintptr_t, size, alignment C.size_t) {
	On.Deallocate(uintptr(user), uintptr(memory), uintptr(size), uintptr(alignment))
}

//export goSourceGet
func goSourceGet(user, role C.uintptr_t, expert C.int64_t, shard, tensor, err C.uintptr_t) C.int32_t {
	return C.int32_t(On.SourceGet(uintptr(user), uintptr(role), int64(expert), uintptr(shard), uintptr(tensor), uintptr(err)))
}

//export goSourcePut
func goSourcePut(user, role C.uintptr_t, expert C.int64_t, shard, tensor C.uintptr_t) {
	On.SourcePut(uintptr(user), uintptr(role), int64(expert), uintptr(shard), uintptr(tensor))
}

//export goDeleter
func goDeleter(managed C.uintptr_t) { On.Deleter(uintptr(managed)) }
