package moe

import (
	"errors"
	"reflect"
	"runtime"
	"sync"
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// library is the table of C functions, or why there is none.
func library() (*raw.Library, error) {
	c, err := raw.Load("")
	if err == nil {
		return c, nil
	}
	return nil, notLoaded(err)
}

func notLoaded(err error) error {
	status := ErrIO
	if errors.Is(err, raw.ErrVersion) {
		status = ErrVersion
	}
	e := refused(status, "libmoe", "%v", err)
	e.cause = err
	return e
}

// object owns one handle. Calls are counted; Close refuses new ones and waits for those that run, unless it is called
// by a function that may belong to one of them.
type object struct {
	kind    string // "layer"
	destroy func(*raw.Library, unsafe.Pointer)
	faults  []*faults // of the callbacks that calls with it may run

	mu      sync.Mutex
	idle    chan struct{}  // Close waits for it; a sync.Cond would be a cycle, which no finalizer ends
	handle  unsafe.Pointer // nil: closed
	calls   int
	alone   bool // one call that bears no other
	closing bool
}

// unmade stands for what no constructor made.
var unmade = &object{}

func (o *object) base() *object {
	if o == nil {
		return unmade
	}
	return o
}

// of is the object behind a pointer to one of the public types, nil for nil.
func of[T any, P interface {
	*T
	base() *object
}](owner P) *object {
	if owner == nil {
		return nil
	}
	return owner.base()
}

// use is one object of a call.
type use struct {
	kind     string
	object   *object
	optional bool // may be nil
	alone    bool // no other call meanwhile
}

func need(kind string, o *object) use  { return use{kind: kind, object: o} }
func maybe(kind string, o *object) use { return use{kind: kind, object: o, optional: true} }
func alone(kind string, o *object) use { return use{kind: kind, object: o, alone: true} }

// enter gives the handle for a call; leave ends its use. No finalizer runs between them, for leave reads the object.
func (u use) enter() (unsafe.Pointer, error) {
	o := u.object
	if o == nil {
		if u.optional {
			return nil, nil
		}
		return nil, refused(ErrInvalidHandle, u.kind, "the %s is nil", u.kind)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o == unmade:
		return nil, refused(ErrInvalidHandle, u.kind, "this %s was made by no function of this package", u.kind)
	case o.closing:
		return nil, refused(ErrInvalidHandle, u.kind, "this %s is closed", u.kind)
	case o.alone || u.alone && o.calls > 0:
		return nil, refused(ErrBusy, u.kind, "another call uses this %s", u.kind)
	}
	o.calls++
	o.alone = u.alone
	return o.handle, nil
}

func (u use) leave() {
	o := u.object
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.alone = false
	if o.calls--; o.calls == 0 && o.idle != nil {
		close(o.idle)
		o.idle = nil
	}
	runtime.KeepAlive(o)
}

// usable says what enter would, before other arguments are looked at.
func (u use) usable() error {
	_, err := u.enter()
	if err == nil {
		u.leave()
	}
	return err
}

// lent runs a function of the program while calls may use objects: Close knows such a function by this one's frame.
func lent(f func() error) error { return f() }

var lentName = runtime.FuncForPC(reflect.ValueOf(lent).Pointer()).Name()

// withinLent tells whether the goroutine is in a function that lent runs.
func withinLent() bool {
	pcs := make([]uintptr, 256)
	for skip := 0; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var frame runtime.Frame
			if frame, more = frames.Next(); frame.Function == lentName {
				return true
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}

func (o *object) close() error {
	if o == nil || o == unmade {
		return nil
	}
	o.mu.Lock()
	if o.calls > 0 && withinLent() {
		o.mu.Unlock()
		return refused(ErrBusy, o.kind, "a call uses this %s, and Close was called by a function that it may be waiting for "+
			"(a callback, or that of WithHandle, View or WriteTo): close it when the call has ended", o.kind)
	}
	o.closing = true
	if o.calls > 0 {
		if o.idle == nil {
			o.idle = make(chan struct{})
		}
		idle := o.idle
		o.mu.Unlock()
		<-idle
		o.mu.Lock()
	}
	handle := o.handle
	o.handle = nil
	o.mu.Unlock()
	if handle == nil {
		return nil
	}
	runtime.SetFinalizer(o, nil)
	c, err := library()
	if err != nil {
		return err
	}
	o.destroy(c, handle)
	if fault, fatal := take(o.faults, true); fatal {
		return callbackFailed(fault)
	}
	return nil
}

// call makes a call whose last parameter is the error. h has the handles, the library's NULL for nil.
func call(uses []use, f func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32) error {
	c, err := library()
	if err != nil {
		return err
	}
	h := make([]unsafe.Pointer, len(uses))
	var watched []*faults
	for i, u := range uses {
		if h[i], err = u.enter(); err != nil {
			return err
		}
		defer u.leave()
		if u.object != nil {
			watched = append(watched, u.object.faults...)
		}
	}
	failure := new(unsafe.Pointer)
	status := Status(f(c, h, failure))
	cause, fatal := take(watched, status == OK)
	if status == OK {
		if fatal {
			return callbackFailed(cause)
		}
		return nil
	}
	if described := Status(c.ErrorStatus(*failure)); described != OK { // else the function has no error object
		status = described
	}
	e := &Error{Status: status, Name: status.String(), Subject: raw.Text(c.ErrorSubject(*failure)),
		Message: raw.Text(c.ErrorMessage(*failure)), Details: raw.Text(c.ErrorDetailsJSON(*failure))}
	c.ErrorDestroy(*failure)
	if status == ErrIO {
		e.cause = systemError(e.Details)
	}
	if cause != nil && (status == ErrCallback || status == ErrCancelled) {
		e.cause = cause
		if fatal {
			e.Message += ": " + cause.Error()
		}
	}
	return e
}

// create makes an object from a call with one owned result.
func create(kind string, destroy func(*raw.Library, unsafe.Pointer), uses []use,
	f func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32) (*object, error) {
	out := new(unsafe.Pointer) // alone: cgo looks through the whole of what it is given
	err := call(uses, func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 { return f(c, h, out, err) })
	if err != nil {
		if *out != nil { // a callback failed, the library did not
			if c, e := library(); e == nil {
				destroy(c, *out)
			}
		}
		return nil, err
	}
	o := &object{kind: kind, destroy: destroy, handle: *out}
	for _, u := range uses {
		if u.object != nil && kind == "layer" && u.kind != "control" {
			o.faults = append(o.faults, u.object.faults...) // its calls use the context's callbacks
		}
	}
	runtime.SetFinalizer(o, func(o *object) { _ = o.close() })
	return o, nil
}

// withHandle lends the C handle.
func withHandle(u use, f func(handle unsafe.Pointer) error) error {
	h, err := u.enter()
	if err != nil {
		return err
	}
	defer u.leave()
	if f == nil {
		return refused(ErrInvalidArgument, "f", "the function is nil")
	}
	return lent(func() error { return f(h) })
}

// document is the text of a call whose result is a buffer of text.
func document(uses []use, f func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32) (string, error) {
	text, out := "", new(unsafe.Pointer)
	err := call(uses, func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		status := f(c, h, out, err)
		text = string(raw.Bytes(c.BufferData(*out), c.BufferSize(*out)))
		c.BufferDestroy(*out)
		return status
	})
	return text, err
}

// name is a NUL-terminated copy of a parameter's text.
func name(parameter, text string) (*byte, error) {
	b := append([]byte(text), 0)
	for i, c := range b[:len(text)] {
		if c == 0 {
			return nil, refused(ErrInvalidArgument, parameter, "%q has a NUL character at byte %d", text, i)
		}
	}
	return &b[0], nil
}

// optionalName is name, but C's NULL for "".
func optionalName(parameter, text string) (*byte, error) {
	if text == "" {
		return nil, nil
	}
	return name(parameter, text)
}

// sized is a text as address and length.
func sized(text string, pins *raw.Pins) (address, size uintptr) {
	b := append([]byte(text), 0)
	return pins.Add(unsafe.Pointer(&b[0])), uintptr(len(text))
}

// optionalSized is sized, but NULL and 0 for "".
func optionalSized(text string, pins *raw.Pins) (address, size uintptr) {
	if text == "" {
		return 0, 0
	}
	return sized(text, pins)
}

// flag is a bit of a C flags word.
func flag(on bool, bit uint64) uint64 {
	if on {
		return bit
	}
	return 0
}
