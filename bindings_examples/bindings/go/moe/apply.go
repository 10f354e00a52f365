package moe

import (
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// Apply computes out [T, H] from hidden [T, H], both bytes of the config's types, and router logits [T, G]. The slices
// go to C as they are; out shares no byte with the others.
func (l *Layer) Apply(tokens int64, hidden []byte, logits []float32, out []byte) error {
	if err := need("layer", of(l)).usable(); err != nil {
		return err
	}
	n := l.numbers
	if tokens < 0 {
		return refused(ErrShape, "tokens", "found %d, expected 0 or more", tokens)
	}
	if n.InDType.Bytes(tokens, n.Hidden) < 0 {
		return refused(ErrShape, "tokens", "found %d, whose rows are more than memory holds", tokens)
	}
	if want := n.InDType.Bytes(tokens, n.Hidden); int64(len(hidden)) != want {
		return refused(ErrShape, "hidden", "%d bytes, %d tokens take %d", len(hidden), tokens, want)
	}
	if want := F32.Bytes(tokens, n.columns) / 4; int64(len(logits)) != want {
		return refused(ErrShape, "router_logits", "%d numbers, %d tokens take %d", len(logits), tokens, want)
	}
	if want := n.OutDType.Bytes(tokens, n.Hidden); int64(len(out)) != want {
		return refused(ErrShape, "out", "%d bytes, %d tokens take %d", len(out), tokens, want)
	}
	if err := apart("out", out, "hidden", hidden); err != nil {
		return err
	}
	if err := apart("out", out, "router_logits", BytesOf(logits)); err != nil {
		return err
	}
	var pins raw.Pins
	defer pins.Release()
	first := func(b []byte) uintptr {
		if len(b) == 0 {
			return pins.Add(unsafe.Pointer(&nothing))
		}
		return pins.Add(unsafe.Pointer(&b[0]))
	}
	x, g, y := first(hidden), first(BytesOf(logits)), first(out)
	return call([]use{need("layer", of(l))}, func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		return c.ApplyFlat(h[0], tokens, int32(n.InDType), x, int32(F32), g, 0, 0, int32(n.OutDType), y, err)
	})
}

// ApplyArgs of ApplyTensors. Either RouterLogits is given (routing inside; for hash routing with TopKIDs [T, top_k]) or
// TopKIDs and TopKWeights are (the caller's routing).
type ApplyArgs struct {
	Hidden       Tensor // [T, H] of the config's in_dtype
	RouterLogits Tensor // [T, G] of f32, f16, bf16
	TopKIDs      Tensor // [T, K] of i32 or i64; -1 skips
	TopKWeights  Tensor // [T, K] of f32
	Out          Tensor // [T, H] of the config's out_dtype

	Accumulate bool // Out += result
	InPlace    bool // Out is exactly Hidden
	Workspace  []byte
	Control    *Control

	OutTopKIDs     Tensor // optional [T, K] of i32: what routing chose
	OutTopKWeights Tensor // optional [T, K] of f32
}

// ApplyTensors is Apply with everything that the library can do. Tensors that are written share no byte with others.
func (l *Layer) ApplyTensors(a ApplyArgs) error {
	if err := need("layer", of(l)).usable(); err != nil {
		return err
	}
	if err := a.check(l.numbers); err != nil {
		return err
	}
	var pins raw.Pins
	defer pins.Release()
	args := &raw.ApplyArgs{StructSize: uint32(unsafe.Sizeof(raw.ApplyArgs{})),
		Mode:   int32(flag(!a.RouterLogits.given(), raw.ApplyTOPK)),
		Flags:  flag(a.Accumulate, raw.ApplyAccumulate) | flag(a.InPlace, raw.ApplyInPlace),
		Hidden: a.Hidden.address(&pins), RouterLogits: a.RouterLogits.address(&pins),
		TOPKIds: a.TopKIDs.address(&pins), TOPKWeights: a.TopKWeights.address(&pins), Out: a.Out.address(&pins),
		OutTOPKIds: a.OutTopKIDs.address(&pins), OutTOPKWeights: a.OutTopKWeights.address(&pins)}
	if len(a.Workspace) > 0 {
		args.Workspace, args.WorkspaceSize = pins.Add(unsafe.Pointer(&a.Workspace[0])), uint64(len(a.Workspace))
	}
	return call([]use{need("layer", of(l)), maybe("control", of(a.Control))},
		func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
			args.Control = uintptr(h[1])
			return c.Apply(h[0], args, err)
		})
}

// named is a tensor or a slice with its parameter's name.
type named struct {
	name string
	data []byte
}

func (a ApplyArgs) check(n Numbers) error {
	if err := a.Hidden.expect("hidden", []DType{n.InDType}, -1, n.Hidden); err != nil {
		return err
	}
	tokens := a.Hidden.Shape[0]
	switch {
	case a.RouterLogits.given():
		if err := a.RouterLogits.expect("router_logits", []DType{F32, F16, BF16}, tokens, n.columns); err != nil {
			return err
		}
	case !a.TopKIDs.given() || !a.TopKWeights.given():
		return refused(ErrInvalidArgument, "router_logits", "router logits are needed, or ids and weights")
	}
	for _, t := range []struct {
		tensor Tensor
		name   string
		dtypes []DType
		expect func(t Tensor, name string, dtypes []DType, shape ...int64) error
	}{{a.TopKIDs, "topk_ids", []DType{I32, I64}, Tensor.expect}, {a.TopKWeights, "topk_weights", []DType{F32}, Tensor.expect},
		{a.OutTopKIDs, "out_topk_ids", []DType{I32}, Tensor.expectOut},
		{a.OutTopKWeights, "out_topk_weights", []DType{F32}, Tensor.expectOut}} {
		if t.tensor.given() {
			if err := t.expect(t.tensor, t.name, t.dtypes, tokens, -1); err != nil {
				return err
			}
		}
	}
	if err := a.Out.expectOut("out", []DType{n.OutDType}, tokens, n.Hidden); err != nil {
		return err
	}
	written := []named{{"out", a.Out.Data}, {"out_topk_ids", a.OutTopKIDs.Data}, {"out_topk_weights", a.OutTopKWeights.Data},
		{"workspace", a.Workspace}}
	read := []named{{"hidden", a.Hidden.Data}, {"router_logits", a.RouterLogits.Data}, {"topk_ids", a.TopKIDs.Data},
		{"topk_weights", a.TopKWeights.Data}}
	if a.InPlace {
		if len(a.Out.Data) != len(a.Hidden.Data) || len(a.Out.Data) > 0 && &a.Out.Data[0] != &a.Hidden.Data[0] {
			return refused(ErrInvalidArgument, "out", "InPlace is set, but out is not hidden")
		}
		read = read[1:]
		written[0], read = named{"hidden", a.Out.Data}, append([]named{}, read...)
	}
	return allApart(written, read)
}

// allApart checks that nothing written shares a byte with anything else.
func allApart(written, read []named) error {
	for i, w := range written {
		for _, other := range append(append([]named{}, read...), written[i+1:]...) {
			if err := apart(w.name, w.data, other.name, other.data); err != nil {
				return err
			}
		}
	}
	return nil
}

func apart(name string, data []byte, other string, otherData []byte) error {
	if overlap(data, otherData) {
		return refused(ErrInvalidArgument, name, "overlaps %s", other)
	}
	return nil
}

// RouteArgs of Route.
type RouteArgs struct {
	RouterLogits   Tensor // [T, G] of f32, f16, bf16
	CorrectionBias Tensor // [G]; a zero Tensor: the config's
	OutTopKIDs     Tensor // [T, K] of i32 or i64; hash routing: read
	OutTopKWeights Tensor // [T, K] of f32
}

// Route is routing alone, with the config's method.
func Route(context *Context, config *Config, a RouteArgs) error {
	if err := need("config", of(config)).usable(); err != nil {
		return err
	}
	if err := a.RouterLogits.expect("router_logits", []DType{F32, F16, BF16}, -1, -1); err != nil {
		return err
	}
	tokens := a.RouterLogits.Shape[0]
	if err := a.OutTopKIDs.expectOut("out_topk_ids", []DType{I32, I64}, tokens, -1); err != nil {
		return err
	}
	if err := a.OutTopKWeights.expectOut("out_topk_weights", []DType{F32}, tokens, -1); err != nil {
		return err
	}
	if err := biasOrNone(a.CorrectionBias); err != nil {
		return err
	}
	err := allApart([]named{{"out_topk_ids", a.OutTopKIDs.Data}, {"out_topk_weights", a.OutTopKWeights.Data}},
		[]named{{"router_logits", a.RouterLogits.Data}, {"correction_bias", a.CorrectionBias.Data}})
	if err != nil {
		return err
	}
	var pins raw.Pins
	defer pins.Release()
	args := &raw.RouteArgs{StructSize: uint32(unsafe.Sizeof(raw.RouteArgs{})), RouterLogits: a.RouterLogits.address(&pins),
		CorrectionBias: a.CorrectionBias.address(&pins), OutTOPKIds: a.OutTopKIDs.address(&pins), OutTOPKWeights: a.OutTopKWeights.address(&pins)}
	return call([]use{maybe("context", of(context)), need("config", of(config))},
		func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
			return c.Route(h[0], h[1], args, err)
		})
}
