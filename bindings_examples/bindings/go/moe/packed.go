package moe

import (
	"io"
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// Packed are converted weights: immutable, shared by any number of layers.
type Packed struct{ *object }

// ConvertOptions of ConvertWith.
type ConvertOptions struct {
	ReleaseSources bool   // release each tensor once used; empties the set, which is used alone
	AnyName        bool   // weights whose config has another layer's name
	MaxTempBytes   uint64 // 0: one expert's worth per thread
	Control        *Control
	// Destination, if not nil, takes the result and is kept by it: AlignedBytes of Selection.PackedSize. Release, which
	// may be nil, is called once when it is no longer used, also when the conversion fails.
	Destination []byte
	Release     func()
}

// AlignedBytes is memory that begins at a multiple of alignment, a power of two.
func AlignedBytes(size, alignment uint64) []byte {
	if alignment == 0 {
		alignment = 1
	}
	b := make([]byte, size+alignment)
	skip := -uint64(uintptr(unsafe.Pointer(&b[0]))) & (alignment - 1)
	return b[skip : skip+size : skip+size]
}

// Convert repacks the weights into the layout of the selection.
func Convert(context *Context, selection *Selection, weights *Weights) (*Packed, error) {
	return ConvertWith(context, selection, weights, ConvertOptions{})
}

// ConvertWith is Convert with options.
func ConvertWith(context *Context, selection *Selection, weights *Weights, options ConvertOptions) (*Packed, error) {
	c, err := library()
	if err != nil {
		return nil, err
	}
	o := &raw.ConvertOptions{StructSize: uint32(unsafe.Sizeof(raw.ConvertOptions{})),
		Flags:        flag(options.ReleaseSources, raw.ConvertReleaseSources) | flag(options.AnyName, raw.ConvertAnyName),
		MaxTempBytes: options.MaxTempBytes}
	if options.Destination != nil || options.Release != nil {
		k := &kept{release: options.Release}
		if weights != nil {
			k.faults = weights.faults
		}
		if len(options.Destination) > 0 {
			o.Dst, o.DstSize = k.pins.Add(unsafe.Pointer(&options.Destination[0])), uint64(len(options.Destination))
		} else {
			o.Dst, o.DstSize = k.pins.Add(unsafe.Pointer(&nothing)), 1
		}
		o.DstUser, o.DstRelease = raw.Register(k), c.Release
	}
	set := need("weights", of(weights))
	set.alone = options.ReleaseSources
	reached := false
	p, err := newPacked([]use{maybe("context", of(context)), need("selection", of(selection)), set, maybe("control", of(options.Control))},
		func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
			reached = true
			o.Control = uintptr(h[3])
			return c.ConvertWeights(h[0], h[1], h[2], o, out, err)
		})
	if !reached && o.DstUser != 0 {
		released(o.DstUser)
	}
	return p, err
}

func newPacked(uses []use, f func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32) (*Packed, error) {
	o, err := create("packed", func(c *raw.Library, h unsafe.Pointer) { c.PackedDestroy(h) }, uses, f)
	if err != nil {
		return nil, err
	}
	return &Packed{o}, nil
}

// JSON is layout, config, experts, named outputs, sizes, content hash.
func (p *Packed) JSON() (string, error) {
	return document([]use{need("packed", of(p))}, func(l *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return l.PackedToJSON(h[0], out, err)
	})
}

// View lends one named output of the conversion ("w13_packed"; JSON lists them) to f: all experts with expert -1, else
// that one's slice. The tensor is read-only and ends with f.
func (p *Packed) View(role string, expert int64, f func(Tensor) error) error {
	text, err := name("role", role)
	if err != nil {
		return err
	}
	view := &raw.Tensor{StructSize: uint32(unsafe.Sizeof(raw.Tensor{}))}
	u := need("packed", of(p)) // entered twice: the view lasts longer than the call
	if _, err := u.enter(); err != nil {
		return err
	}
	defer u.leave()
	err = call([]use{u}, func(l *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		return l.PackedGet(h[0], text, expert, view, err)
	})
	if err != nil {
		return err
	}
	if f == nil {
		return refused(ErrInvalidArgument, "f", "the function is nil")
	}
	t := viewed(view)
	t.readOnly = true
	return lent(func() error { return f(t) })
}

// Tensor is a copy of what View lends.
func (p *Packed) Tensor(role string, expert int64) (t Tensor, err error) {
	err = p.View(role, expert, func(view Tensor) error {
		t = view.clone()
		return nil
	})
	return t, err
}

// WriteTo writes the whole result as one block, which LoadPackedMemory takes back. It implements io.WriterTo.
func (p *Packed) WriteTo(w io.Writer) (written int64, err error) {
	data, size := new(unsafe.Pointer), uint64(0)
	u := need("packed", of(p))
	if _, err := u.enter(); err != nil {
		return 0, err
	}
	defer u.leave()
	err = call([]use{u}, func(l *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		return l.PackedData(h[0], data, &size, err)
	})
	if err != nil {
		return 0, err
	}
	if w == nil {
		return 0, refused(ErrInvalidArgument, "w", "the writer is nil")
	}
	err = lent(func() error {
		n, err := w.Write(raw.Bytes(*data, uintptr(size)))
		written = int64(n)
		return err
	})
	return written, err
}

// Dequantize reverses the packing of one expert's "w13_weight" or "w2_weight" into out, f32, f16 or bf16 of [N1, H] or
// [H, I]. For checks.
func (p *Packed) Dequantize(role string, expert int64, out Tensor) error {
	text, err := name("role", role)
	if err != nil {
		return err
	}
	if err := need("packed", of(p)).usable(); err != nil {
		return err
	}
	if err := out.expectOut("out", []DType{F32, F16, BF16}, -1, -1); err != nil {
		return err
	}
	var pins raw.Pins
	defer pins.Release()
	t := out.raw(&pins)
	return call([]use{need("packed", of(p))}, func(l *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		return l.PackedDequantize(h[0], text, expert, t, err)
	})
}

// Save writes a file that appears only when it is complete. control may be nil.
func (p *Packed) Save(path string, control *Control) error {
	text, err := name("path", path)
	if err != nil {
		return err
	}
	return call([]use{need("packed", of(p)), maybe("control", of(control))},
		func(l *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
			return l.PackedSave(h[0], text, 0, h[1], err)
		})
}

// LoadOptions of LoadPacked and LoadPackedMemory.
type LoadOptions struct {
	MMap     bool // share the file's pages: the file must not change meanwhile
	Prefault bool // touch all pages first
	Verify   bool // compare content hashes
	Control  *Control
}

func (o LoadOptions) flags() uint64 {
	return flag(o.MMap, raw.LoadMmap) | flag(o.Prefault, raw.LoadPrefault) | flag(o.Verify, raw.LoadVerify)
}

// LoadPacked reads a file of Save.
func LoadPacked(context *Context, path string, options LoadOptions) (*Packed, error) {
	text, err := name("path", path)
	if err != nil {
		return nil, err
	}
	return newPacked([]use{maybe("context", of(context)), maybe("control", of(options.Control))},
		func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
			return c.PackedLoad(h[0], text, options.flags(), h[1], out, err)
		})
}

// LoadPackedMemory takes a block of WriteTo. It is used where it is if it is aligned to 64 bytes (AlignedBytes), else
// copied; release, which may be nil, is called once when it is no longer used, also when the call fails.
func LoadPackedMemory(context *Context, data []byte, options LoadOptions, release func()) (*Packed, error) {
	k := &kept{release: release, faults: new(faults)}
	user, reached := raw.Register(k), false
	p, err := func() (*Packed, error) {
		if options.Control != nil {
			return nil, refused(ErrInvalidArgument, "Control", "memory is loaded without one")
		}
		if len(data) == 0 {
			return nil, refused(ErrInvalidArgument, "data", "there are no bytes")
		}
		address := k.pins.Add(unsafe.Pointer(&data[0]))
		return newPacked([]use{maybe("context", of(context))},
			func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
				reached = true
				return c.PackedLoadMemory(h[0], address, uintptr(len(data)), options.flags(), c.Release, user, out, err)
			})
	}()
	if !reached {
		released(user)
	}
	if p != nil {
		p.faults = []*faults{k.faults}
	}
	return p, err
}

// WithHandle lends the moe_packed* for the time of f.
func (p *Packed) WithHandle(f func(handle unsafe.Pointer) error) error {
	return withHandle(need("packed", of(p)), f)
}

// Close ends the packed weights; layers made of them go on working.
func (p *Packed) Close() error { return of(p).close() }
