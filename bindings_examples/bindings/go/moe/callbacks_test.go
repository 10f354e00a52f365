package moe_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"libmoe.example/go/internal/raw"
	"libmoe.example/go/moe"
)

var errStop = errors.New("stop it")

// stops are the ways in which a callback can fail.
var stops = map[string]struct {
	run  func() error
	text string
}{
	"error":    {func() error { return errStop }, ""},
	"panic":    {func() error { panic("oh dear") }, "oh dear"},
	"nil":      {func() error { var p *int; *p = 1; return nil }, "nil pointer"},
	"goexit":   {func() error { runtime.Goexit(); return nil }, "ended its goroutine"},
	"context":  {func() error { return context.Canceled }, ""},
	"no text":  {func() error { return speechless{} }, "no text"},
	"ends":     {func() error { return speechless{ends: true} }, "ended its goroutine"},
	"no error": {func() error { var none *moe.Error; return none }, "nil pointer"},
}

// speechless is an error that cannot say what it is.
type speechless struct{ ends bool }

func (s speechless) Error() string {
	if s.ends {
		runtime.Goexit()
	}
	panic("no text")
}

func TestProgressAndItsErrors(t *testing.T) {
	p := newParts(t)
	before := raw.Registered()
	var calls int64
	control, err := moe.NewControl(func(done, total uint64) error {
		atomic.AddInt64(&calls, 1)
		if done > total && total != 0 {
			t.Errorf("%d of %d done", done, total)
		}
		return nil
	})
	check(t, err)
	packed, err := moe.ConvertWith(p.context, p.selection, p.weights, moe.ConvertOptions{Control: control})
	must(t, packed, err).Close()
	done, total, err := control.Progress()
	if err != nil || done != total || total == 0 || atomic.LoadInt64(&calls) == 0 {
		t.Errorf("%d of %d after %d reports, error %v", done, total, calls, err)
	}
	check(t, control.Report(1, 2))
	check(t, control.Close())
	for how, stop := range stops {
		control, err := moe.NewControl(func(done, total uint64) error { return stop.run() })
		check(t, err)
		packed, err := moe.ConvertWith(p.context, p.selection, p.weights, moe.ConvertOptions{Control: control})
		status := moe.ErrCallback
		if how == "context" {
			status = moe.ErrCancelled
		}
		if packed != nil || !errors.Is(err, status) || !strings.Contains(err.Error(), stop.text) {
			t.Errorf("%s: %v", how, err)
		}
		if how == "error" && !errors.Is(err, errStop) {
			t.Errorf("the callback's error is not inside of %v", err)
		}
		check(t, control.Close())
	}
	nothingKept(t, before)
}

func TestCancelling(t *testing.T) {
	p := newParts(t)
	convert := func(c *moe.Control) error {
		packed, err := moe.ConvertWith(p.context, p.selection, p.weights, moe.ConvertOptions{Control: c})
		packed.Close()
		return err
	}
	check(t, p.control.Cancel())
	expectError(t, convert(p.control), moe.ErrCancelled, "control")
	if err := p.control.Report(0, 0); !errors.Is(err, moe.ErrCancelled) {
		t.Errorf("Report: %v", err)
	}
	args := p.batch()
	args.Control = p.control
	if err := p.layer.ApplyTensors(args); !errors.Is(err, moe.ErrCancelled) {
		t.Errorf("apply: %v", err)
	}
	if err := p.packed.Save(t.TempDir()+"/x", p.control); !errors.Is(err, moe.ErrCancelled) {
		t.Errorf("save: %v", err)
	}

	var control *moe.Control // cancels itself
	var err error
	control, err = moe.NewControl(func(done, total uint64) error { return control.Cancel() })
	check(t, err)
	if err := convert(control); !errors.Is(err, moe.ErrCancelled) {
		t.Errorf("cancelled from its callback: %v", err)
	}
	check(t, control.Close())
}

func TestContextsCancel(t *testing.T) {
	p := newParts(t)
	convert := func(c *moe.Control) error {
		packed, err := moe.ConvertWith(p.context, p.selection, p.weights, moe.ConvertOptions{Control: c})
		packed.Close()
		return err
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	control, err := moe.ControlFor(ended, nil)
	check(t, err)
	if err := convert(control); !errors.Is(err, moe.ErrCancelled) || !errors.Is(err, context.Canceled) {
		t.Errorf("a context that had ended: %v", err)
	}
	check(t, control.Close())

	ends, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	control, err = moe.ControlFor(ends, func(done, total uint64) error {
		<-ends.Done()
		time.Sleep(20 * time.Millisecond)
		return nil
	})
	check(t, err)
	if err := convert(control); !errors.Is(err, moe.ErrCancelled) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a context that ends meanwhile: %v", err)
	}
	check(t, control.Close())

	control, err = moe.ControlFor(context.Background(), nil)
	check(t, err)
	check(t, convert(control))
	check(t, control.Close())

	before := runtime.NumGoroutine()
	lasting, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := 0; i < 20; i++ { // forgotten, while its context goes on
		_, err = moe.ControlFor(lasting, nil)
		check(t, err)
	}
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 200 {
			t.Fatalf("%d goroutines wait for controls that no one has", runtime.NumGoroutine()-before)
		}
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
}

func TestLog(t *testing.T) {
	before := raw.Registered()
	var mu sync.Mutex
	var lines []string
	p := newPartsWith(t, `{"log_level":"trace","threads":2}`, moe.Callbacks{Log: func(level moe.LogLevel, component, message string) {
		mu.Lock()
		defer mu.Unlock()
		if level < moe.LogTrace || level > moe.LogError {
			t.Errorf("level %d", level)
		}
		lines = append(lines, component+": "+message)
	}})
	p.expected(t)
	mu.Lock()
	if len(lines) == 0 || len(lines[0]) < 5 {
		t.Errorf("messages: %q", lines)
	}
	mu.Unlock()
	kept, err := p.context.TakeLog()
	if err != nil || !strings.Contains(kept, "{") {
		t.Errorf("kept messages %q, error %v", kept, err)
	}
	p.close()
	nothingKept(t, before)

	for _, how := range []string{"panic", "goexit"} {
		context, err := moe.NewContextWith(`{"log_level":"trace"}`, moe.Callbacks{Log: func(moe.LogLevel, string, string) { stops[how].run() }})
		if err == nil {
			_, err = moe.Select(context, p.config) // closed, but the context has logged by now or not at all
			config, _ := moe.ConfigFromHF(string(read(t, "config.json")), "{}")
			_, err = moe.Select(context, config)
		}
		if !errors.Is(err, moe.ErrCallback) || !strings.Contains(err.Error(), stops[how].text) {
			t.Errorf("%s in Log: %v", how, err)
		}
		context.Close()
	}
	nothingKept(t, before)
}

func TestParallelFor(t *testing.T) {
	want := newParts(t).expected(t)
	before := raw.Registered()
	var calls int64
	pool := moe.Goroutines(3)
	counted := &moe.Parallel{Threads: 3, For: func(count int, task func(int)) {
		atomic.AddInt64(&calls, 1)
		pool.For(count, task)
	}}
	var late []func(int)
	var mu sync.Mutex
	keeping := &moe.Parallel{Threads: 2, For: func(count int, task func(int)) {
		for i := 0; i < count; i++ {
			task(i)
			task(i) // a second time: no error
		}
		mu.Lock()
		late = append(late, task)
		mu.Unlock()
	}}
	for _, parallel := range []*moe.Parallel{counted, keeping} {
		p := newPartsWith(t, "{}", moe.Callbacks{Parallel: parallel})
		if got := p.expected(t); !bytes.Equal(got, want) {
			t.Error("another result")
		}
		p.close()
	}
	if atomic.LoadInt64(&calls) == 0 || len(late) == 0 {
		t.Error("For was never called")
	}
	for _, task := range late {
		task(0) // its context is gone
	}
	nothingKept(t, before)

	for how, run := range map[string]func(count int, task func(int)){
		"nothing": func(int, func(int)) {},
		"beyond":  func(count int, task func(int)) { task(count + 1); task(-1) },
		"panic":   func(int, func(int)) { panic("oh dear") },
		"late panic": func(count int, task func(int)) {
			for i := 0; i < count; i++ {
				task(i)
			}
			panic("oh dear")
		},
		"goexit": func(int, func(int)) { runtime.Goexit() },
	} {
		context, err := moe.NewContextWith("{}", moe.Callbacks{Parallel: &moe.Parallel{Threads: 2, For: run}})
		check(t, err)
		p := newParts(t)
		packed, err := moe.Convert(context, p.selection, p.weights)
		if err == nil || packed != nil || !errors.Is(err, moe.ErrCallback) {
			t.Errorf("%s: %v", how, err)
		}
		if strings.Contains(how, "panic") && !strings.Contains(err.Error(), "oh dear") {
			t.Errorf("%s: %v", how, err)
		}
		layer, err := moe.NewLayer(context, p.selection, p.packed)
		if err == nil {
			err = layer.Apply(p.tokens, p.hidden, p.logits, make([]byte, len(p.hidden)))
		}
		if !errors.Is(err, moe.ErrCallback) {
			t.Errorf("%s in Apply: %v", how, err)
		}
		layer.Close()
		context.Close()
		p.close()
	}
	nothingKept(t, before)
	_, err := moe.NewContextWith("{}", moe.Callbacks{Parallel: &moe.Parallel{Threads: 2}})
	expectError(t, err, moe.ErrInvalidArgument, "Parallel")
}

// arena gives memory of C: that of Selection.PackedSize's kind, from the library itself.
type arena struct {
	mu   sync.Mutex
	used map[unsafe.Pointer]func()
}

func TestAllocator(t *testing.T) {
	before := raw.Registered()
	c := must(t, (*raw.Library)(nil), nil)
	c, err := raw.Load("")
	check(t, err)
	a := &arena{used: map[unsafe.Pointer]func(){}}
	allocations := 0
	allocator := &moe.Allocator{
		Allocate: func(size, alignment uintptr, node int) unsafe.Pointer {
			out := new(unsafe.Pointer)
			if c.BufferCreate(size, alignment, out, nil) != 0 {
				return nil
			}
			memory := c.BufferData(*out)
			a.mu.Lock()
			defer a.mu.Unlock()
			allocations++
			a.used[memory] = func() { c.BufferDestroy(*out) }
			return memory
		},
		Deallocate: func(memory unsafe.Pointer, size, alignment uintptr) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.used[memory]()
			delete(a.used, memory)
		},
	}
	want := newParts(t).expected(t)
	p := newPartsWith(t, "{}", moe.Callbacks{Allocator: allocator})
	if !bytes.Equal(p.expected(t), want) {
		t.Error("another result")
	}
	p.close()
	if allocations == 0 || len(a.used) != 0 {
		t.Errorf("%d allocations, %d left", allocations, len(a.used))
	}
	for how, allocate := range map[string]func(uintptr, uintptr, int) unsafe.Pointer{
		"none":  func(uintptr, uintptr, int) unsafe.Pointer { return nil },
		"panic": func(uintptr, uintptr, int) unsafe.Pointer { panic("oh dear") },
	} {
		context, err := moe.NewContextWith("{}", moe.Callbacks{Allocator: &moe.Allocator{Allocate: allocate, Deallocate: allocator.Deallocate}})
		check(t, err)
		p := newParts(t)
		_, err = moe.Convert(context, p.selection, p.weights)
		if !errors.Is(err, moe.ErrOutOfMemory) {
			t.Errorf("%s: %v", how, err)
		}
		context.Close()
		p.close()
	}
	nothingKept(t, before)
}
