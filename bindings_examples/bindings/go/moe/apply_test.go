package moe_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"libmoe.example/go/moe"
)

func TestSlicesAreMeasuredBeforeTheCall(t *testing.T) {
	p := newParts(t)
	out := make([]byte, len(p.hidden))
	expectError(t, p.layer.Apply(2, p.hidden[:4], p.logits, out), moe.ErrShape, "hidden")
	expectError(t, p.layer.Apply(p.tokens, p.hidden, p.logits[1:], out), moe.ErrShape, "router_logits")
	expectError(t, p.layer.Apply(p.tokens, p.hidden, p.logits, out[1:]), moe.ErrShape, "out")
	expectError(t, p.layer.Apply(-1, nil, nil, nil), moe.ErrShape, "tokens")
	expectError(t, p.layer.Apply(1<<61, nil, nil, nil), moe.ErrShape, "tokens") // not: they take -1 bytes
	check(t, p.layer.Apply(0, nil, nil, nil))
}

// The library gets addresses without sizes, so what is measured here must be what it reads.
func TestSlicesAreMeasuredByTheLibrarysNumbers(t *testing.T) {
	p := newParts(t)
	p.config.Hidden, p.config.Experts = 1, 1
	selection, err := moe.Select(nil, p.config)
	check(t, err)
	layer, err := moe.NewLayer(nil, selection, p.packed)
	check(t, err)
	small := make([]byte, p.tokens*p.config.InDType.Bytes(1))
	expectError(t, layer.Apply(p.tokens, small, make([]float32, p.tokens), small), moe.ErrShape, "hidden")
}

func TestWeightsOfAnotherLayer(t *testing.T) {
	var selections [2]*moe.Selection
	var weights [2]*moe.Weights
	for i := range selections {
		config, err := moe.NewConfig(fmt.Sprintf(`{"num_experts":4,"top_k":2,"hidden_dim":64,"intermediate_size":32,
			"in_dtype":"float32","name":"model.layers.%d.mlp.experts"}`, i))
		check(t, err)
		selections[i], err = moe.Select(nil, config)
		check(t, err)
		weights[i], err = moe.NewWeights(config)
		check(t, err)
		check(t, stacked(weights[i]))
	}
	packed, err := moe.Convert(nil, selections[0], weights[0])
	check(t, err)
	_, err = moe.NewLayer(nil, selections[1], packed)
	expectError(t, err, moe.ErrConfigMismatch, "/name")
	_, err = moe.NewLayerWith(nil, selections[1], packed, moe.LayerOptions{AnyName: true})
	check(t, err)
	_, err = moe.Convert(nil, selections[0], weights[1])
	expectError(t, err, moe.ErrConfigMismatch, "/name")
	_, err = moe.ConvertWith(nil, selections[0], weights[1], moe.ConvertOptions{AnyName: true})
	check(t, err)
}

func TestZeroExpertsHaveLogitsToo(t *testing.T) {
	config, err := moe.NewConfig(`{"num_experts":4,"top_k":2,"hidden_dim":64,"intermediate_size":32,"in_dtype":"float32",
		"routing":{"scoring_func":"softmax","e_score_correction_bias":true,"num_zero_experts":3}}`)
	check(t, err)
	selection, err := moe.Select(nil, config)
	check(t, err)
	weights, err := moe.NewWeights(config)
	check(t, err)
	check(t, stacked(weights))
	packed, err := moe.Convert(nil, selection, weights)
	check(t, err)
	layer, err := moe.NewLayerWith(nil, selection, packed, moe.LayerOptions{CorrectionBias: moe.TensorOf(make([]float32, 7))})
	check(t, err)
	hidden, out := make([]byte, 256), make([]byte, 256)
	expectError(t, layer.Apply(1, hidden, make([]float32, 4), out), moe.ErrShape, "router_logits")
	check(t, layer.Apply(1, hidden, make([]float32, 7), out))
	_, err = moe.NewLayerWith(nil, selection, packed, moe.LayerOptions{CorrectionBias: moe.TensorOf(make([]float32, 14), 2, 7)})
	expectError(t, err, moe.ErrShape, "CorrectionBias")
	_, err = moe.NewLayerWith(nil, selection, packed, moe.LayerOptions{ExpertMap: moe.TensorOf(make([]float32, 4))})
	expectError(t, err, moe.ErrDType, "ExpertMap")
}

// layerOf is one of four small experts.
func layerOf(t *testing.T, config string) *moe.Layer {
	t.Helper()
	c, err := moe.NewConfig(config)
	check(t, err)
	selection, err := moe.Select(nil, c)
	check(t, err)
	weights, err := moe.NewWeights(c)
	check(t, err)
	check(t, stacked(weights))
	packed, err := moe.Convert(nil, selection, weights)
	check(t, err)
	layer, err := moe.NewLayer(nil, selection, packed)
	check(t, err)
	return layer
}

func TestSharedExpertsHaveColumnsAndCounts(t *testing.T) {
	hidden, out := make([]byte, 256), make([]byte, 256)
	shared := layerOf(t, `{"num_experts":4,"top_k":2,"hidden_dim":64,"intermediate_size":32,"in_dtype":"float32",
		"routing":{"scoring_func":"sigmoid","num_shared_logits":2}}`)
	expectError(t, shared.Apply(1, hidden, make([]float32, 4), out), moe.ErrShape, "router_logits")
	check(t, shared.Apply(1, hidden, make([]float32, 6), out))
	fused := layerOf(t, `{"num_experts":3,"top_k":2,"hidden_dim":64,"intermediate_size":32,"in_dtype":"float32",
		"routing":{"scoring_func":"softmax","num_fused_shared_experts":1}}`)
	check(t, fused.Apply(1, hidden, make([]float32, 3), out))
	counts, err := fused.ExpertCounts(false)
	check(t, err)
	if len(counts) != 4 || counts[3] != 1 {
		t.Errorf("counts %v, expected four, the last 1", counts)
	}
}

func TestOverlapIsRefused(t *testing.T) {
	p := newParts(t)
	n := len(p.hidden)
	both := append(append([]byte{}, p.hidden...), make([]byte, n)...)
	expectError(t, p.layer.Apply(p.tokens, both[:n], p.logits, both[2:n+2]), moe.ErrInvalidArgument, "out")
	expectError(t, p.layer.Apply(p.tokens, both[:n], p.logits, both[:n]), moe.ErrInvalidArgument, "out")
	check(t, p.layer.Apply(p.tokens, both[:n], p.logits, both[n:]))
	logits := make([]float32, n/4) // large enough for both
	expectError(t, p.layer.Apply(p.tokens, p.hidden, logits[:len(p.logits)], moe.BytesOf(logits)), moe.ErrInvalidArgument, "out")

	ids := make([]int32, 2*p.tokens)
	for name, change := range map[string]func(a *moe.ApplyArgs){
		"out":          func(a *moe.ApplyArgs) { a.Out.Data = a.Hidden.Data },
		"out_topk_ids": func(a *moe.ApplyArgs) { a.OutTopKWeights = a.OutTopKIDs.As(moe.F32) },
		"out_topk_weights": func(a *moe.ApplyArgs) {
			a.OutTopKWeights = moe.TensorOf(p.logits, p.tokens, 4)
		},
		"workspace": func(a *moe.ApplyArgs) { a.Workspace = a.Hidden.Data },
	} {
		a := p.batch()
		a.OutTopKIDs = moe.TensorOf(ids, p.tokens, 2)
		change(&a)
		expectError(t, p.layer.ApplyTensors(a), moe.ErrInvalidArgument, name)
	}
	logit := moe.TensorOf(p.logits, p.tokens, 4)
	expectError(t, moe.Route(nil, p.config, moe.RouteArgs{RouterLogits: logit, OutTopKIDs: moe.TensorOf(ids, p.tokens, 2),
		OutTopKWeights: moe.Tensor{DType: moe.F32, Shape: []int64{p.tokens, 2}, Data: moe.BytesOf(ids)}}), moe.ErrInvalidArgument, "out_topk_ids")
}

func TestTensorsAreCheckedBeforeTheCall(t *testing.T) {
	p := newParts(t)
	for what, c := range map[string]struct {
		change  func(a *moe.ApplyArgs)
		status  moe.Status
		subject string
	}{
		"no hidden":  {func(a *moe.ApplyArgs) { a.Hidden = moe.Tensor{} }, moe.ErrInvalidArgument, "hidden"},
		"hidden f32": {func(a *moe.ApplyArgs) { a.Hidden.DType = moe.F32 }, moe.ErrShape, "hidden"},
		"hidden f16": {func(a *moe.ApplyArgs) { a.Hidden.DType = moe.F16 }, moe.ErrDType, "hidden"},
		"short":      {func(a *moe.ApplyArgs) { a.Hidden.Data = a.Hidden.Data[:10] }, moe.ErrShape, "hidden"},
		"empty":      {func(a *moe.ApplyArgs) { a.Hidden.Data = nil }, moe.ErrShape, "hidden"},
		"strided":    {func(a *moe.ApplyArgs) { a.Hidden.Strides = []int64{1} }, moe.ErrShape, "hidden"},
		"beyond":     {func(a *moe.ApplyArgs) { a.Hidden.Strides = []int64{1 << 40, 1} }, moe.ErrShape, "hidden"},
		"negative":   {func(a *moe.ApplyArgs) { a.Hidden.Shape = []int64{-1, 64} }, moe.ErrShape, "hidden"},
		"flat":       {func(a *moe.ApplyArgs) { a.Hidden.Shape = []int64{p.tokens * 64} }, moe.ErrShape, "hidden"},
		"unaligned": {func(a *moe.ApplyArgs) {
			odd := moe.AlignedBytes(uint64(len(p.hidden))+1, 64)
			copy(odd[1:], p.hidden)
			a.Hidden.Data = odd[1:]
		}, moe.ErrShape, "hidden"},
		"logits i32":   {func(a *moe.ApplyArgs) { a.RouterLogits.DType = moe.I32 }, moe.ErrDType, "router_logits"},
		"logits shape": {func(a *moe.ApplyArgs) { a.RouterLogits.Shape = []int64{p.tokens * 2, 2} }, moe.ErrShape, "router_logits"},
		"no routing":   {func(a *moe.ApplyArgs) { a.RouterLogits = moe.Tensor{} }, moe.ErrInvalidArgument, "router_logits"},
		"no out":       {func(a *moe.ApplyArgs) { a.Out = moe.Tensor{} }, moe.ErrInvalidArgument, "out"},
		"out tokens": {func(a *moe.ApplyArgs) {
			a.Out.Shape = []int64{p.tokens - 1, 64}
		}, moe.ErrShape, "out"},
		"in place":  {func(a *moe.ApplyArgs) { a.InPlace = true }, moe.ErrInvalidArgument, "out"},
		"ids float": {func(a *moe.ApplyArgs) { a.OutTopKIDs = moe.TensorOf(make([]float32, 2*p.tokens), p.tokens, 2) }, moe.ErrDType, "out_topk_ids"},
	} {
		a := p.batch()
		a.Hidden.Data = append([]byte{}, a.Hidden.Data...)
		c.change(&a)
		err := p.layer.ApplyTensors(a)
		var failure *moe.Error
		if !errors.As(err, &failure) || failure.Status != c.status || failure.Subject != c.subject {
			t.Errorf("%s: expected %s at '%s', got %v", what, c.status, c.subject, err)
		}
	}
}

func TestApplyTensors(t *testing.T) {
	p := newParts(t)
	want := p.expected(t)
	check(t, func() error { _, err := p.layer.ExpertCounts(true); return err }())
	a := p.batch()
	ids, weights := make([]int32, 2*p.tokens), make([]float32, 2*p.tokens)
	a.OutTopKIDs, a.OutTopKWeights = moe.TensorOf(ids, p.tokens, 2), moe.TensorOf(weights, p.tokens, 2)
	size, alignment, err := p.layer.WorkspaceSize(false, p.tokens)
	check(t, err)
	a.Workspace, a.Control = moe.AlignedBytes(size, alignment), p.control
	check(t, p.layer.ApplyTensors(a))
	if !bytes.Equal(a.Out.Data, want) {
		t.Error("another result than Apply's")
	}
	counts, err := p.layer.ExpertCounts(false)
	check(t, err)
	sum := uint64(0)
	for _, n := range counts {
		sum += n
	}
	if len(counts) != 4 || sum != uint64(2*p.tokens) {
		t.Errorf("counts %v of %d tokens", counts, p.tokens)
	}

	// the caller's routing, of both integer types
	wide := make([]int64, len(ids))
	for i, id := range ids {
		wide[i] = int64(id)
	}
	for _, topk := range []moe.Tensor{moe.TensorOf(ids, p.tokens, 2), moe.TensorOf(wide, p.tokens, 2)} {
		b := p.batch()
		b.RouterLogits, b.TopKIDs, b.TopKWeights = moe.Tensor{}, topk, moe.TensorOf(weights, p.tokens, 2)
		check(t, p.layer.ApplyTensors(b))
		if !bytes.Equal(b.Out.Data, want) {
			t.Errorf("another result with ids of %s", topk.DType)
		}
	}
	if bytes, _, err := p.layer.WorkspaceSize(true, p.tokens); err != nil || bytes == 0 {
		t.Errorf("workspace of %d bytes, error %v", bytes, err)
	}
	bad := p.batch()
	bad.RouterLogits, bad.TopKIDs, bad.TopKWeights = moe.Tensor{}, moe.TensorOf([]int32{9, 9}, 1, 2), moe.TensorOf([]float32{1, 1}, 1, 2)
	expectError(t, p.layer.ApplyTensors(bad), moe.ErrShape, "topk_ids")
	bad.TopKIDs = moe.TensorOf(append([]int32{9}, ids[1:]...), p.tokens, 2)
	bad.TopKWeights = moe.TensorOf(weights, p.tokens, 2)
	if err := p.layer.ApplyTensors(bad); !errors.Is(err, moe.ErrInvalidArgument) {
		t.Errorf("an expert that does not exist: %v", err)
	}

	in := p.batch()
	in.Hidden.Data = append([]byte{}, p.hidden...)
	in.Out, in.InPlace = in.Hidden, true
	check(t, p.layer.ApplyTensors(in))
	if !bytes.Equal(in.Out.Data, want) {
		t.Error("another result in place")
	}
	add := p.batch()
	add.Accumulate = true
	check(t, p.layer.ApplyTensors(add))
	if !bytes.Equal(add.Out.Data, want) {
		t.Error("another result added to zeros")
	}
	check(t, p.layer.ApplyTensors(add))
	if bytes.Equal(add.Out.Data, want) {
		t.Error("nothing was added")
	}

	routedIDs, routedWeights := make([]int32, len(ids)), make([]float32, len(ids))
	check(t, moe.Route(p.context, p.config, moe.RouteArgs{RouterLogits: moe.TensorOf(p.logits, p.tokens, 4),
		OutTopKIDs: moe.TensorOf(routedIDs, p.tokens, 2), OutTopKWeights: moe.TensorOf(routedWeights, p.tokens, 2)}))
	if !bytes.Equal(moe.BytesOf(routedIDs), moe.BytesOf(ids)) || !same(routedWeights, weights) {
		t.Error("Route chooses others than Apply")
	}
	none := p.batch()
	none.Hidden.Shape, none.Out.Shape, none.RouterLogits.Shape = []int64{0, 64}, []int64{0, 64}, []int64{0, 4}
	none.Hidden.Data, none.Out.Data, none.RouterLogits.Data = nil, nil, nil
	check(t, p.layer.ApplyTensors(none))

	text, err := p.layer.JSON()
	if err != nil || !strings.Contains(text, p.selection.Kernel()) {
		t.Errorf("%s, error %v", text, err)
	}
}

// Memory that is not Go's: a mapped file, a block of C.
func TestMappedMemory(t *testing.T) {
	p := newParts(t)
	want := p.expected(t)
	mapped, err := syscall.Mmap(-1, 0, 3<<16, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	check(t, err)
	defer syscall.Munmap(mapped)
	hidden, out := mapped[:len(want)], mapped[1<<16:1<<16+len(want)]
	copy(hidden, p.hidden)
	check(t, p.layer.Apply(p.tokens, hidden, p.logits, out))
	if !bytes.Equal(out, want) {
		t.Error("another result")
	}
	result, err := plainLayer(t, stacked)
	check(t, err)
	again, err := plainLayer(t, func(w *moe.Weights) error {
		w13, w2 := plainWeights()
		copy(mapped, moe.BytesOf(w13))
		copy(mapped[2<<16:], moe.BytesOf(w2))
		check(t, w.Set("w13_weight", moe.Tensor{DType: moe.F32, Shape: []int64{4, 64, 64}, Data: mapped[:len(w13)*4]}, nil))
		return w.Set("w2_weight", moe.Tensor{DType: moe.F32, Shape: []int64{4, 64, 32}, Data: mapped[2<<16 : 2<<16+len(w2)*4]}, nil)
	})
	if err != nil || !same(result, again) {
		t.Errorf("weights in mapped memory: another result, error %v", err)
	}
}
