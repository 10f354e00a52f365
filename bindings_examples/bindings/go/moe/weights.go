package moe

import (
	"errors"
	"sync"
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// Weights are the source tensors of one layer. A call that changes the set wants it for itself, else ErrBusy.
type Weights struct {
	*object
	faults *faults
}

// NewWeights makes an empty set.
func NewWeights(config *Config) (*Weights, error) {
	return newWeights(config, new(faults), func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return c.WeightsCreate(h[0], out, err)
	})
}

func newWeights(config *Config, f *faults, make func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32) (*Weights, error) {
	o, err := create("weights", func(c *raw.Library, h unsafe.Pointer) { c.WeightsDestroy(h) },
		[]use{need("config", of(config))}, make)
	if err != nil {
		return nil, err
	}
	o.faults = []*faults{f}
	return &Weights{o, f}, nil
}

// Set gives a stacked tensor [E, ...] by its role ("w13_weight", "w2_scale"). Its memory is used where it is until the
// set no longer needs it; then release, which may be nil, is called: once, also when Set fails.
func (w *Weights) Set(role string, tensor Tensor, release func()) error {
	_, err := w.set("role", role, "", tensor, release,
		func(c *raw.Library, h unsafe.Pointer, role, _ *byte, t *raw.Tensor, user uintptr, _ *int32, err *unsafe.Pointer) int32 {
			return c.WeightsSet(h, role, t, c.Release, user, err)
		})
	return err
}

// SetExpert is Set for one expert: shard "w1" (gate) or "w3" (up) is half of a w13 role, "" the whole.
func (w *Weights) SetExpert(role string, expert int64, shard string, tensor Tensor, release func()) error {
	_, err := w.set("role", role, shard, tensor, release,
		func(c *raw.Library, h unsafe.Pointer, role, shard *byte, t *raw.Tensor, user uintptr, _ *int32, err *unsafe.Pointer) int32 {
			return c.WeightsSetExpert(h, role, expert, shard, t, c.Release, user, err)
		})
	return err
}

// SetNamed is Set by the name that a checkpoint uses, with the whole tensor. consumed is false for a name that is not
// of this layer.
func (w *Weights) SetNamed(tensorName string, tensor Tensor, release func()) (consumed bool, err error) {
	return w.set("name", tensorName, "", tensor, release,
		func(c *raw.Library, h unsafe.Pointer, name, _ *byte, t *raw.Tensor, user uintptr, consumed *int32, err *unsafe.Pointer) int32 {
			return c.WeightsSetNamed(h, name, t, c.Release, user, consumed, err)
		})
}

func (w *Weights) set(parameter, text, shard string, tensor Tensor, release func(),
	f func(c *raw.Library, h unsafe.Pointer, text, shard *byte, t *raw.Tensor, user uintptr, consumed *int32, err *unsafe.Pointer) int32) (bool, error) {
	k := &kept{release: release}
	if w != nil {
		k.faults = w.faults
	}
	user, reached := raw.Register(k), false
	consumed := new(int32)
	err := func() error {
		key, err := name(parameter, text)
		if err != nil {
			return err
		}
		part, err := optionalName("shard", shard)
		if err != nil {
			return err
		}
		if err = need("weights", of(w)).usable(); err != nil {
			return err
		}
		if err = tensor.check(text); err != nil {
			return err
		}
		t := tensor.raw(&k.pins)
		return call([]use{alone("weights", of(w))}, func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
			reached = true
			return f(c, h[0], key, part, t, user, consumed, err)
		})
	}()
	if !reached {
		released(user)
	}
	return *consumed == 1, err
}

// LoadSafetensors finds the layer in a file, a model.safetensors.index.json or a directory.
func (w *Weights) LoadSafetensors(path string) error { return w.LoadSafetensorsModule(path, "") }

// LoadSafetensorsModule is LoadSafetensors for the tensors of another name prefix; "" is the config's.
func (w *Weights) LoadSafetensorsModule(path, module string) error {
	text, err := name("path", path)
	if err != nil {
		return err
	}
	prefix, err := optionalName("module", module)
	if err != nil {
		return err
	}
	return call([]use{alone("weights", of(w))}, func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		return c.WeightsLoadSafetensors(h[0], text, prefix, err)
	})
}

// LoadCheckpoint is LoadSafetensors from files that a checkpoint has open, for a config of Checkpoint.Config.
func (w *Weights) LoadCheckpoint(checkpoint *Checkpoint) error {
	return call([]use{alone("weights", of(w)), need("checkpoint", of(checkpoint))},
		func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
			return c.WeightsLoadCheckpoint(h[0], h[1], err)
		})
}

// JSON lists what is there and what is missing.
func (w *Weights) JSON() (string, error) {
	return document([]use{need("weights", of(w))}, func(l *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return l.WeightsToJSON(h[0], out, err)
	})
}

// Tensor is a copy of one expert's tensor of a role, or of all ([E, ...]) with expert -1.
func (w *Weights) Tensor(role string, expert int64) (t Tensor, err error) {
	text, err := name("role", role)
	if err != nil {
		return t, err
	}
	view := &raw.Tensor{StructSize: uint32(unsafe.Sizeof(raw.Tensor{}))}
	hold := new(unsafe.Pointer)
	err = call([]use{need("weights", of(w))}, func(l *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		status := l.WeightsGet(h[0], text, expert, view, hold, err)
		if status == int32(OK) {
			t = viewed(view).clone()
		}
		l.BufferDestroy(*hold)
		return status
	})
	return t, err
}

// WithHandle lends the moe_weights* for the time of f, and the set to no one else.
func (w *Weights) WithHandle(f func(handle unsafe.Pointer) error) error {
	return withHandle(alone("weights", of(w)), f)
}

// Close ends the set.
func (w *Weights) Close() error { return of(w).close() }

// Source is asked for tensors while Convert runs, so that only a few experts are in memory at a time.
type Source struct {
	// Get gives one expert's tensor as Weights.SetExpert takes it. ErrMissingWeight says that there is none; a w13
	// role is asked for as a whole (shard "") first, then as "w1" and "w3". Any other error ends the conversion.
	Get    func(role string, expert int64, shard string) (Tensor, error)
	Put    func(role string, expert int64, shard string, tensor Tensor) // ends a tensor's use; may be nil
	Serial bool                                                         // one call at a time
	Close  func()                                                       // the set is gone; may be nil
}

// source is what the library's callbacks reach.
type source struct {
	Source
	faults *faults
	mu     sync.Mutex
	lent   map[uintptr][]loan // by address
}

type loan struct {
	tensor Tensor
	pins   *raw.Pins
}

// NewWeightsFromSource makes a set whose tensors come from a source.
func NewWeightsFromSource(config *Config, from Source) (*Weights, error) {
	c, err := library()
	if err != nil {
		return nil, err
	}
	if from.Get == nil {
		return nil, refused(ErrInvalidArgument, "Source", "Get is nil")
	}
	s := &source{Source: from, faults: new(faults), lent: map[uintptr][]loan{}}
	ops := &raw.WeightSourceOps{StructSize: uint32(unsafe.Sizeof(raw.WeightSourceOps{})), User: raw.Register(s),
		Get: c.SourceGet, Put: c.SourcePut, Destroy: c.Release}
	if from.Serial {
		ops.Serial = 1
	}
	reached := false
	w, err := newWeights(config, s.faults, func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		reached = true
		return c.WeightsCreateFromSource(h[0], ops, out, err)
	})
	if !reached {
		released(ops.User)
	}
	return w, err
}

func sourceGet(user, role uintptr, expert int64, shard, tensor, out uintptr) int32 {
	s, ok := raw.Value(user).(*source)
	if !ok {
		return cError(errors.New("the source is gone"), out)
	}
	word, part := raw.TextAt(role), raw.TextAt(shard)
	var t Tensor
	err, broken := guard("Source.Get", func() (err error) {
		if t, err = s.Get(word, expert, part); err == nil {
			err = t.check(word)
		}
		return err
	})
	if err != nil {
		if statusOf(err) != ErrMissingWeight {
			s.faults.put(err, broken)
		}
		return cError(err, out)
	}
	l := loan{t, new(raw.Pins)}
	view := (*raw.Tensor)(raw.Pointer(&tensor))
	size := view.StructSize
	*view = *t.raw(l.pins)
	view.StructSize = size
	s.mu.Lock()
	s.lent[view.Data] = append(s.lent[view.Data], l)
	s.mu.Unlock()
	return int32(OK)
}

func sourcePut(user, role uintptr, expert int64, shard, tensor uintptr) {
	s, ok := raw.Value(user).(*source)
	if !ok {
		return
	}
	address := (*raw.Tensor)(raw.Pointer(&tensor)).Data
	s.mu.Lock()
	loans := s.lent[address]
	if len(loans) == 0 {
		s.mu.Unlock()
		return
	}
	l := loans[len(loans)-1]
	if s.lent[address] = loans[:len(loans)-1]; len(loans) == 1 {
		delete(s.lent, address)
	}
	s.mu.Unlock()
	l.pins.Release()
	if s.Put == nil {
		return
	}
	word, part := raw.TextAt(role), raw.TextAt(shard)
	if err, _ := guard("Source.Put", func() error { s.Put(word, expert, part, l.tensor); return nil }); err != nil {
		s.faults.put(err, true)
	}
}
