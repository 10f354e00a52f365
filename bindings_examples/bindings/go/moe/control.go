package moe

import (
	"context"
	"errors"
	"runtime"
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// Control stops long calls (convert, save, load, apply) and tells how far they are. Several may share one.
type Control struct {
	*object
	stop context.CancelFunc // ends the wait for a context
}

// progress is what the library's callback reaches.
type progress struct {
	report func(done, total uint64) error
	faults *faults
}

// NewControl makes a control. progress, which may be nil, is called now and then by the running call; total is
// 0 while unknown, and an error stops the call, which then gives ErrCallback (ErrCancelled for an error of
// that status or of a context) with the error inside.
func NewControl(progress func(done, total uint64) error) (*Control, error) {
	return newControl(progress, nil)
}

// ControlFor is NewControl that also cancels when ctx ends; errors.Is(err, context.Canceled) or
// context.DeadlineExceeded is then true for the errors of the calls. Close ends the wait.
func ControlFor(ctx context.Context, progress func(done, total uint64) error) (*Control, error) {
	if ctx == nil {
		return nil, refused(ErrInvalidArgument, "ctx", "the context is nil")
	}
	c, err := newControl(progress, ctx.Err)
	if err != nil {
		return nil, err
	}
	if ctx.Done() == nil {
		return c, nil
	}
	closed, stop := context.WithCancel(context.Background())
	c.stop = stop
	if ctx.Err() != nil {
		return c, c.Cancel() // before any call
	}
	o := c.object
	go func() {
		select {
		case <-ctx.Done():
			_ = (&Control{object: o}).Cancel()
		case <-closed.Done():
		}
	}()
	// A forgotten control is closed also while a goroutine waits with it: it holds the object, not the Control.
	runtime.SetFinalizer(c, func(c *Control) { c.stop() })
	return c, nil
}

func newControl(report func(done, total uint64) error, why func() error) (*Control, error) {
	c, err := library()
	if err != nil {
		return nil, err
	}
	f := &faults{why: why}
	var fn, user, destroy uintptr
	if report != nil {
		fn, user, destroy = c.Progress, raw.Register(&progress{report, f}), c.Release
	}
	o, err := create("control", func(c *raw.Library, h unsafe.Pointer) { c.ControlDestroy(h) }, nil,
		func(c *raw.Library, _ []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
			return c.ControlCreate(fn, user, destroy, out, err)
		})
	if err != nil {
		return nil, err
	}
	o.faults = []*faults{f}
	return &Control{object: o}, nil
}

// Cancel asks the calls that use this control to stop; they return ErrCancelled soon, later ones at once.
func (c *Control) Cancel() error {
	return withHandle(need("control", of(c)), func(h unsafe.Pointer) error {
		l, err := library()
		if err == nil {
			l.ControlCancel(h)
		}
		return err
	})
}

// Progress is work done and in total of the running or last call.
func (c *Control) Progress() (done, total uint64, err error) {
	err = withHandle(need("control", of(c)), func(h unsafe.Pointer) error {
		l, err := library()
		if err == nil {
			l.ControlProgress(h, &done, &total)
		}
		return err
	})
	return done, total, err
}

// Progress is what the running or last call with a control does.
type Progress struct {
	Phase                   Phase // PhaseNone also for what a newer library knows
	Unit                    Unit  // of Done and Total; UnitNone also for what a newer library knows
	Done, Total             uint64
	Layer                   int64  // the model's number; -1: no layer
	LayersDone, LayersTotal int64  // of a call for several layers; else 0 of 1
	BytesDone, BytesTotal   uint64 // of the whole call: BytesDone never goes back
}

// State is all that can be said of the running or last call. The progress function may ask it, too.
func (c *Control) State() (Progress, error) {
	now := &raw.Progress{StructSize: uint32(unsafe.Sizeof(raw.Progress{}))}
	err := call([]use{need("control", of(c))}, func(l *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		return l.ControlState(h[0], now, err)
	})
	if err != nil {
		return Progress{}, err
	}
	p := Progress{Phase(now.Phase), Unit(now.Unit), now.Done, now.Total, now.Layer, now.LayersDone, now.LayersTotal,
		now.BytesDone, now.BytesTotal}
	if p.Phase < PhaseNone || p.Phase > PhaseApply {
		p.Phase = PhaseNone
	}
	if p.Unit < UnitNone || p.Unit > UnitBytes {
		p.Unit = UnitNone
	}
	return p, nil
}

// String is a word such as "convert".
func (p Phase) String() string {
	return word(int32(p), "none", "open", "convert", "save", "load", "hash", "apply")
}

// String is a word such as "bytes".
func (u Unit) String() string { return word(int32(u), "none", "files", "experts", "bytes") }

// word is the one at a place, the first for places where none is.
func word(at int32, words ...string) string {
	if at < 0 || int(at) >= len(words) {
		at = 0
	}
	return words[at]
}

// Report is for the program's own part of a long call, such as a Source: it tells the progress (total 0: only
// asks) and gives an error when it is time to stop.
func (c *Control) Report(done, total uint64) error {
	return call([]use{need("control", of(c))}, func(l *raw.Library, h []unsafe.Pointer, _ *unsafe.Pointer) int32 {
		return l.ControlReport(h[0], done, total)
	})
}

// WithHandle lends the moe_control* for the time of f.
func (c *Control) WithHandle(f func(handle unsafe.Pointer) error) error {
	return withHandle(need("control", of(c)), f)
}

// Close ends the control, and the wait for its context.
func (c *Control) Close() error {
	err := of(c).close()
	if c != nil && c.stop != nil && !errors.Is(err, ErrBusy) {
		c.stop()
	}
	return err
}
