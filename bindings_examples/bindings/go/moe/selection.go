package moe

import (
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// Selection is the backend and kernel for a config on a machine.
type Selection struct {
	*object
	numbers                 Numbers
	backend, kernel, layout string
}

// SelectOptions of SelectWith.
type SelectOptions struct {
	Platform      *Platform // nil: the config's, by default this machine
	ExplainOnly   bool      // no error if no candidate accepts: Backend is ""
	AllowFallback bool      // the backend that the config names is a wish
}

// Candidate is one considered kernel.
type Candidate struct {
	Reason                   Reject // RejectNone: it could run this config
	Chosen                   bool
	Priority                 int // smaller is tried earlier
	Backend, Kernel, Details string
	Subject                  string // pointer into the resolved config, or a feature
}

// Select asks all candidates; when none accepts, the error's details list every reason.
func Select(context *Context, config *Config) (*Selection, error) {
	return SelectWith(context, config, SelectOptions{})
}

// SelectWith is Select with options.
func SelectWith(context *Context, config *Config, options SelectOptions) (*Selection, error) {
	flags := flag(options.ExplainOnly, raw.SelectExplainOnly) | flag(options.AllowFallback, raw.SelectAllowFallback)
	s := new(Selection)
	o, err := create("selection", func(c *raw.Library, h unsafe.Pointer) { c.SelectionDestroy(h) },
		[]use{maybe("context", of(context)), need("config", of(config)), maybe("platform", of(options.Platform))},
		func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
			status := c.SelectBackend(h[0], h[1], h[2], flags, out, err)
			s.backend = raw.Text(c.SelectionBackend(*out))
			s.kernel = raw.Text(c.SelectionKernel(*out))
			s.layout = raw.Text(c.SelectionLayout(*out))
			return status
		})
	if err != nil {
		return nil, err
	}
	s.object, s.numbers = o, config.read
	return s, nil
}

// Backend names the winner, also after Close; "" for nil, or if there is none.
func (s *Selection) Backend() string {
	if s == nil {
		return ""
	}
	return s.backend
}

// Kernel is the winner's kernel, for devices that libmoe does not run its experts class.
func (s *Selection) Kernel() string {
	if s == nil {
		return ""
	}
	return s.kernel
}

// Layout is the identity of the packed layout: converted weights run with any kernel of the same.
func (s *Selection) Layout() string {
	if s == nil {
		return ""
	}
	return s.layout
}

// Candidates are all that were considered, by priority.
func (s *Selection) Candidates() ([]Candidate, error) {
	var all []Candidate
	count := uintptr(0)
	err := withHandle(need("selection", of(s)), func(h unsafe.Pointer) error {
		l, err := library()
		if err == nil {
			count = l.SelectionCandidateCount(h)
		}
		return err
	})
	for i := uintptr(0); err == nil && i < count; i++ {
		c := &raw.Candidate{StructSize: uint32(unsafe.Sizeof(raw.Candidate{}))}
		err = call([]use{need("selection", of(s))}, func(l *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
			status := l.SelectionCandidate(h[0], i, c, err)
			if status == int32(OK) {
				all = append(all, Candidate{Reject(c.Reason), c.Chosen == 1, int(c.Priority), raw.TextAt(c.Backend),
					raw.TextAt(c.Kernel), raw.TextAt(c.Detail), raw.TextAt(c.Subject)})
			}
			return status
		})
	}
	return all, err
}

// PackedSize is bytes and alignment of the converted weights in Layout.
func (s *Selection) PackedSize() (bytes, alignment uint64, err error) {
	err = call([]use{need("selection", of(s))}, func(l *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		return l.SelectionPackedSize(h[0], &bytes, &alignment, err)
	})
	return bytes, alignment, err
}

// JSON is what was asked for and what runs.
func (s *Selection) JSON() (string, error) {
	return document([]use{need("selection", of(s))}, func(l *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return l.SelectionToJSON(h[0], out, err)
	})
}

// WithHandle lends the moe_selection* for the time of f.
func (s *Selection) WithHandle(f func(handle unsafe.Pointer) error) error {
	return withHandle(need("selection", of(s)), f)
}

// Close ends the selection.
func (s *Selection) Close() error { return of(s).close() }
