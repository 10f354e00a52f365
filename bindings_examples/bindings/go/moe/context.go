package moe

import (
	"sync"
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// Context lends threads, memory and a log to the calls that get it, and to the layers made with it.
type Context struct{ *object }

// Callbacks are what a context may get from the program; each may be nil.
type Callbacks struct {
	// Log gets messages, from any thread, also at once. It must not call this package.
	Log       func(level LogLevel, component, message string)
	Parallel  *Parallel
	Allocator *Allocator
}

// Parallel is the program's own pool of threads.
type Parallel struct {
	Threads int // how many tasks run at once
	// For runs task(i) once for each i from 0 to count-1, in any order, and returns when all are done. A task
	// left out makes the call ErrCallback.
	For func(count int, task func(index int))
}

// Goroutines is a Parallel of goroutines.
func Goroutines(threads int) *Parallel {
	return &Parallel{threads, func(count int, task func(int)) {
		indices := make(chan int, count)
		for i := 0; i < count; i++ {
			indices <- i
		}
		close(indices)
		var all sync.WaitGroup
		for i := 0; i < threads && i < count; i++ {
			all.Add(1)
			go func() {
				defer all.Done()
				for index := range indices {
					task(index)
				}
			}()
		}
		all.Wait()
	}}
}

// Allocator gives memory for weights and workspaces; never memory of Go, which must not be kept by C.
type Allocator struct {
	// Allocate gives nil when memory is out. alignment is a power of two of at least 64; node is a NUMA node or -1.
	Allocate   func(size, alignment uintptr, node int) unsafe.Pointer
	Deallocate func(memory unsafe.Pointer, size, alignment uintptr)
}

// What the library's callbacks reach.
type (
	logger struct {
		log    func(level LogLevel, component, message string)
		faults *faults
	}
	parallel struct {
		*Parallel
		faults *faults
	}
	allocator struct {
		*Allocator
		faults *faults
	}
)

// NewContext takes JSON options (moe_context_create in moe.h); "{}" gives all CPUs of this process.
func NewContext(options string) (*Context, error) { return NewContextWith(options, Callbacks{}) }

// NewContextWith is NewContext with callbacks.
func NewContextWith(options string, callbacks Callbacks) (*Context, error) {
	c, err := library()
	if err != nil {
		return nil, err
	}
	if p := callbacks.Parallel; p != nil && (p.For == nil || p.Threads < 1) {
		return nil, refused(ErrInvalidArgument, "Parallel", "%d threads, For is nil: %t; needs at least one thread, and For", p.Threads, p.For == nil)
	}
	if a := callbacks.Allocator; a != nil && (a.Allocate == nil || a.Deallocate == nil) {
		return nil, refused(ErrInvalidArgument, "Allocator", "needs both Allocate and Deallocate")
	}
	var pins raw.Pins
	defer pins.Release()
	f := new(faults)
	ops := &raw.ContextCallbacks{StructSize: uint32(unsafe.Sizeof(raw.ContextCallbacks{}))}
	if callbacks.Log != nil {
		ops.Log, ops.LogUser, ops.LogDestroy = c.Log, raw.Register(&logger{callbacks.Log, f}), c.Release
	}
	if p := callbacks.Parallel; p != nil {
		ops.Parallel = pins.Add(unsafe.Pointer(&raw.ParallelOps{StructSize: uint32(unsafe.Sizeof(raw.ParallelOps{})),
			NumThreads: int32(p.Threads), User: raw.Register(&parallel{p, f}), ParallelFor: c.ParallelFor, Destroy: c.Release}))
	}
	if a := callbacks.Allocator; a != nil {
		ops.Allocator = pins.Add(unsafe.Pointer(&raw.AllocatorOps{StructSize: uint32(unsafe.Sizeof(raw.AllocatorOps{})),
			User: raw.Register(&allocator{a, f}), Allocate: c.Allocate, Deallocate: c.Deallocate, Destroy: c.Release}))
	}
	json, size := sized(options, &pins)
	o, err := create("context", func(c *raw.Library, h unsafe.Pointer) { c.ContextDestroy(h) }, nil,
		func(c *raw.Library, _ []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
			return c.ContextCreate(json, size, ops, out, err)
		})
	if err != nil {
		return nil, err
	}
	o.faults = []*faults{f}
	return &Context{o}, nil
}

// JSON is the options after resolution and all backends.
func (c *Context) JSON() (string, error) {
	return document([]use{need("context", of(c))}, func(l *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return l.ContextToJSON(h[0], out, err)
	})
}

// TakeLog gives the messages since the last call, one JSON object a line.
func (c *Context) TakeLog() (string, error) {
	return document([]use{need("context", of(c))}, func(l *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return l.ContextTakeLog(h[0], out, err)
	})
}

// WithHandle lends the moe_context* for the time of f.
func (c *Context) WithHandle(f func(handle unsafe.Pointer) error) error {
	return withHandle(need("context", of(c)), f)
}

// Close ends the context; layers made with it go on working.
func (c *Context) Close() error { return of(c).close() }
