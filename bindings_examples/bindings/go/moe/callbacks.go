package moe

import (
	"fmt"
	"sync"
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// faults keep what went wrong in callbacks until the call that they serve has come back.
type faults struct {
	mu    sync.Mutex
	err   error
	fatal bool         // an error also where the library saw none
	why   func() error // of a control: why its context ended
}

func (f *faults) put(err error, fatal bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil || fatal && !f.fatal {
		f.err, f.fatal = err, fatal
	}
}

// take ends what is kept. After a success that is what is fatal: other errors belong to a call that fails.
func take(all []*faults, success bool) (err error, fatal bool) {
	for _, f := range all {
		f.mu.Lock()
		if success && !f.fatal {
			f.mu.Unlock()
			continue
		}
		if f.err != nil && (err == nil || f.fatal && !fatal) {
			err, fatal = f.err, f.fatal
		}
		if err == nil && f.why != nil {
			err = f.why()
		}
		f.err, f.fatal = nil, false
		f.mu.Unlock()
	}
	return err, fatal
}

func callbackFailed(cause error) error {
	e := refused(ErrCallback, "callback", "%v", cause)
	e.cause = cause
	return e
}

// guard runs a callback's Go function on a goroutine of its own, so that neither a panic nor runtime.Goexit
// (t.Fatal) unwinds the C code that called. broken: one of them came.
func guard(what string, f func() error) (err error, broken bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		broken = true
		defer func() {
			if value := recover(); value != nil {
				err = fmt.Errorf("panic in %s: %v", what, value)
			} else if broken {
				err = fmt.Errorf("%s ended its goroutine", what)
			}
		}()
		if err = lent(f); err != nil { // asked here: what its methods do must not unwind C code either
			_, _ = statusOf(err), err.Error()
		}
		broken = false
	}()
	<-done
	return err, broken
}

// kept is memory of Go that C keeps until it calls Release with the number.
type kept struct {
	pins    raw.Pins
	faults  *faults
	release func() // may be nil
}

// released ends one number of raw.Register: what C does, or what is done where C was never asked.
func released(user uintptr) {
	switch value := raw.Forget(user).(type) {
	case *kept:
		value.pins.Release()
		if value.release != nil {
			if err, _ := guard("release", func() error { value.release(); return nil }); err != nil && value.faults != nil {
				value.faults.put(err, true)
			}
		}
	case *source:
		for _, loans := range value.lent { // a library that keeps to its rules left none
			for _, l := range loans {
				l.pins.Release()
			}
		}
		if value.Close != nil {
			if err, _ := guard("Source.Close", func() error { value.Close(); return nil }); err != nil {
				value.faults.put(err, true)
			}
		}
	}
}

// cError leaves a callback's error in the library's out parameter.
func cError(err error, out uintptr) int32 {
	status := statusOf(err)
	c, _ := raw.Load("") // it is loaded: it called
	var pins raw.Pins
	defer pins.Release()
	address, size := sized(err.Error(), &pins)
	if slot := (*unsafe.Pointer)(raw.Pointer(&out)); slot != nil {
		*slot = c.ErrorCreate(int32(status), address, size)
	}
	return int32(status)
}

func init() {
	raw.On.Release = released
	raw.On.Progress = func(user uintptr, done, total uint64) int32 {
		p, ok := raw.Value(user).(*progress)
		if !ok {
			return int32(OK)
		}
		err, broken := guard("progress", func() error { return p.report(done, total) })
		if err == nil {
			return int32(OK)
		}
		p.faults.put(err, broken)
		return int32(statusOf(err))
	}
	raw.On.Log = func(user uintptr, level int32, component, message, size uintptr) {
		l, ok := raw.Value(user).(*logger)
		if !ok {
			return
		}
		from, text := raw.TextAt(component), string(raw.Bytes(raw.Pointer(&message), size))
		if err, _ := guard("Log", func() error { l.log(LogLevel(level), from, text); return nil }); err != nil {
			l.faults.put(err, true)
		}
	}
	raw.On.ParallelFor = parallelFor
	raw.On.Allocate = func(user, size, alignment uintptr, node int32) (address uintptr) {
		a, ok := raw.Value(user).(*allocator)
		if !ok {
			return 0
		}
		err, _ := guard("Allocate", func() error {
			address = uintptr(a.Allocate(size, alignment, int(node)))
			return nil
		})
		if err != nil {
			a.faults.put(err, true)
			return 0
		}
		return address
	}
	raw.On.Deallocate = func(user, memory, size, alignment uintptr) {
		a, ok := raw.Value(user).(*allocator)
		if !ok {
			return
		}
		pointer := raw.Pointer(&memory)
		if err, _ := guard("Deallocate", func() error { a.Deallocate(pointer, size, alignment); return nil }); err != nil {
			a.faults.put(err, true)
		}
	}
	raw.On.SourceGet = sourceGet
	raw.On.SourcePut = sourcePut
	raw.On.Deleter = exportDeleted
}

// parallelFor runs the caller's For. A task that is called after For has returned does nothing.
func parallelFor(user, count, task, arg uintptr) {
	p, ok := raw.Value(user).(*parallel)
	if !ok {
		return
	}
	c, _ := raw.Load("")
	var running sync.RWMutex
	ended := false
	err, _ := guard("Parallel.For", func() error {
		p.For(int(count), func(index int) {
			running.RLock()
			defer running.RUnlock()
			if !ended {
				c.CallTask(task, arg, uintptr(index))
			}
		})
		return nil
	})
	running.Lock() // waits for tasks that still run
	ended = true
	running.Unlock()
	if err != nil {
		p.faults.put(err, true)
	}
}
