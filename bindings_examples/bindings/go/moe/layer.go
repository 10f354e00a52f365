package moe

import (
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// Layer is ready to run; any number of goroutines may call Apply at once.
type Layer struct {
	*object
	numbers Numbers
}

// LayerOptions of NewLayerWith; a zero Tensor: the config's or the checkpoint's.
type LayerOptions struct {
	CorrectionBias Tensor // [G] or [1, G] of f32, f16, bf16
	ExpertMap      Tensor // [G] of i32: place in [E, ...] or -1
	AnyName        bool   // weights whose config has another layer's name
}

// NewLayer binds converted weights to a kernel.
func NewLayer(context *Context, selection *Selection, packed *Packed) (*Layer, error) {
	return NewLayerWith(context, selection, packed, LayerOptions{})
}

// NewLayerWith is NewLayer with options.
func NewLayerWith(context *Context, selection *Selection, packed *Packed, options LayerOptions) (*Layer, error) {
	if _, err := library(); err != nil {
		return nil, err
	}
	if err := options.check(); err != nil {
		return nil, err
	}
	var pins raw.Pins
	defer pins.Release()
	opts := options.raw(&pins)
	o, err := create("layer", func(c *raw.Library, h unsafe.Pointer) { c.LayerDestroy(h) },
		[]use{maybe("context", of(context)), need("selection", of(selection)), need("packed", of(packed))},
		func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
			return c.LayerCreate(h[0], h[1], h[2], opts, out, err)
		})
	if err != nil {
		return nil, err
	}
	return &Layer{o, selection.numbers}, nil
}

func (o LayerOptions) check() error {
	if err := biasOrNone(o.CorrectionBias); err != nil || !o.ExpertMap.given() {
		return err
	}
	return o.ExpertMap.expect("ExpertMap", []DType{I32}, -1)
}

// raw is the C struct; its memory and that of the tensors is pinned by who uses it.
func (o LayerOptions) raw(pins *raw.Pins) *raw.LayerOptions {
	return &raw.LayerOptions{StructSize: uint32(unsafe.Sizeof(raw.LayerOptions{})), CorrectionBias: o.CorrectionBias.address(pins),
		ExpertMap: o.ExpertMap.address(pins), Flags: flag(o.AnyName, raw.LayerAnyName)}
}

func biasOrNone(bias Tensor) error {
	if !bias.given() {
		return nil
	}
	shape := []int64{-1}
	if len(bias.Shape) == 2 {
		shape = []int64{1, -1}
	}
	return bias.expect("CorrectionBias", []DType{F32, F16, BF16}, shape...)
}

// Numbers are those of the layer's config, also after Close; zeros for nil.
func (l *Layer) Numbers() Numbers {
	if l == nil {
		return Numbers{}
	}
	return l.numbers
}

// WorkspaceSize is bytes and alignment of ApplyArgs.Workspace for a number of tokens; topk: with ids and weights
// instead of logits.
func (l *Layer) WorkspaceSize(topk bool, tokens int64) (bytes, alignment uint64, err error) {
	mode := int32(flag(topk, raw.ApplyTOPK))
	err = call([]use{need("layer", of(l))}, func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		return c.LayerWorkspaceSize(h[0], mode, tokens, &bytes, &alignment, err)
	})
	return bytes, alignment, err
}

// JSON is config, kernel, threads, memory use.
func (l *Layer) JSON() (string, error) {
	return document([]use{need("layer", of(l))}, func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return c.LayerToJSON(h[0], out, err)
	})
}

// ExpertCounts are the tokens routed to each held expert since the last reset.
func (l *Layer) ExpertCounts(reset bool) ([]uint64, error) {
	if err := need("layer", of(l)).usable(); err != nil {
		return nil, err
	}
	counts := make([]uint64, l.numbers.held+1) // one more: there is a first
	again := int32(flag(reset, 1))
	err := call([]use{need("layer", of(l))}, func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		return c.LayerExpertCounts(h[0], &counts[0], uintptr(len(counts)), again, err)
	})
	if err != nil {
		return nil, err
	}
	return counts[:l.numbers.held], nil
}

// WithHandle lends the moe_layer* for the time of f.
func (l *Layer) WithHandle(f func(handle unsafe.Pointer) error) error {
	return withHandle(need("layer", of(l)), f)
}

// Close ends the layer once no goroutine is in Apply.
func (l *Layer) Close() error { return of(l).close() }
