package moe_test

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"libmoe.example/go/internal/raw"
	"libmoe.example/go/moe"
)

// plainLayer runs what fill puts into a set, on one token.
func plainLayer(t *testing.T, fill func(*moe.Weights) error) ([]float32, error) {
	t.Helper()
	config, err := moe.NewConfig(plain)
	check(t, err)
	defer config.Close()
	weights, err := moe.NewWeights(config)
	check(t, err)
	defer weights.Close()
	if err := fill(weights); err != nil {
		return nil, err
	}
	return plainResult(t, config, weights, moe.ConvertOptions{})
}

func plainResult(t *testing.T, config *moe.Config, weights *moe.Weights, options moe.ConvertOptions) ([]float32, error) {
	t.Helper()
	selection, err := moe.Select(nil, config)
	check(t, err)
	defer selection.Close()
	packed, err := moe.ConvertWith(nil, selection, weights, options)
	if err != nil {
		return nil, err
	}
	defer packed.Close()
	layer, err := moe.NewLayer(nil, selection, packed)
	check(t, err)
	defer layer.Close()
	hidden, out := make([]float32, 64), make([]float32, 64)
	for i := range hidden {
		hidden[i] = float32(i%5) - 2
	}
	err = layer.Apply(1, moe.BytesOf(hidden), []float32{1, 3, 2, 0}, moe.BytesOf(out))
	return out, err
}

func stacked(w *moe.Weights) error {
	w13, w2 := plainWeights()
	if err := w.Set("w13_weight", moe.TensorOf(w13, 4, 64, 64), nil); err != nil {
		return err
	}
	return w.Set("w2_weight", moe.TensorOf(w2, 4, 64, 32), nil)
}

func same(a, b []float32) bool { return len(a) > 0 && bytes.Equal(moe.BytesOf(a), moe.BytesOf(b)) }

func TestSetsOfEveryForm(t *testing.T) {
	before := raw.Registered()
	want, err := plainLayer(t, stacked)
	check(t, err)
	released := 0
	count := func() { released++ }
	w13, w2 := plainWeights()
	experts, err := plainLayer(t, func(w *moe.Weights) error {
		for e := int64(0); e < 4; e++ {
			gate := moe.TensorOf(w13[e*4096:e*4096+2048], 32, 64)
			up := moe.TensorOf(w13[e*4096+2048:(e+1)*4096], 32, 64)
			check(t, w.SetExpert("w13_weight", e, "w1", gate, count))
			check(t, w.SetExpert("w13_weight", e, "w3", up, count))
			check(t, w.SetExpert("w2_weight", e, "", moe.TensorOf(w2[e*2048:(e+1)*2048], 64, 32), count))
		}
		return nil
	})
	check(t, err)
	if !same(experts, want) || released != 12 {
		t.Errorf("set by experts: equal %t, %d tensors released", same(experts, want), released)
	}
	names, err := plainLayer(t, func(w *moe.Weights) error {
		for e := 0; e < 4; e++ {
			name := func(part string) string {
				return "model.layers.3.mlp.experts." + string(rune('0'+e)) + "." + part + "_proj.weight"
			}
			for _, part := range []struct {
				name  string
				data  []float32
				shape []int64
			}{{"gate", w13[e*4096 : e*4096+2048], []int64{32, 64}}, {"up", w13[e*4096+2048 : (e+1)*4096], []int64{32, 64}},
				{"down", w2[e*2048 : (e+1)*2048], []int64{64, 32}}} {
				consumed, err := w.SetNamed(name(part.name), moe.TensorOf(part.data, part.shape...), nil)
				if err != nil || !consumed {
					t.Fatalf("%s: consumed %t, error %v", name(part.name), consumed, err)
				}
			}
		}
		consumed, err := w.SetNamed("lm_head.weight", moe.TensorOf(w2, 64, 128), count)
		if err != nil || consumed || released != 13 {
			t.Errorf("another layer's tensor: consumed %t, error %v", consumed, err)
		}
		return nil
	})
	check(t, err)
	if !same(names, want) {
		t.Error("set by names: another result")
	}
	nothingKept(t, before)
}

// What a set keeps is neither collected nor moved, whatever the program does with its own references.
func TestASetKeepsMemory(t *testing.T) {
	want, err := plainLayer(t, stacked)
	check(t, err)
	for i := 0; i < 10; i++ {
		got, err := plainLayer(t, func(w *moe.Weights) error {
			err := stacked(w)
			for k := 0; k < 3; k++ {
				runtime.GC()
				for n := 0; n < 20; n++ {
					junk := make([]float32, 4*64*64)
					junk[n] = float32(n)
				}
			}
			return err
		})
		if err != nil || !same(got, want) {
			t.Fatalf("round %d: another result, error %v", i, err)
		}
	}
}

// A finalizer closes what was forgotten: the set, then its config.
func TestForgottenObjectsAreClosed(t *testing.T) {
	before := raw.Registered()
	released := make(chan bool, 1)
	func() {
		config, err := moe.NewConfig(plain)
		check(t, err)
		w, err := moe.NewWeights(config)
		check(t, err)
		w13, _ := plainWeights()
		check(t, w.Set("w13_weight", moe.TensorOf(w13, 4, 64, 64), func() { released <- true }))
	}()
	nothingKept(t, before)
	<-released
}

func TestReleaseIsCalledOnceAlsoWhenSetFails(t *testing.T) {
	before := raw.Registered()
	config, err := moe.NewConfig(plain)
	check(t, err)
	w, err := moe.NewWeights(config)
	check(t, err)
	w13, _ := plainWeights()
	good := moe.TensorOf(w13, 4, 64, 64)
	short := good
	short.Data = short.Data[:100]
	released := 0
	count := func() { released++ }
	for i, fails := range []struct {
		call    func() error
		status  moe.Status
		subject string
	}{
		{func() error { return w.Set("w13_weight", short, count) }, moe.ErrShape, "w13_weight"},
		{func() error { return w.Set("w13_weight", moe.TensorOf(w13, 4, 32, 128), count) }, moe.ErrShape, "w13_weight"},
		{func() error { return w.Set("w13_weight", good.As(moe.I32), count) }, moe.ErrDType, "w13_weight"},
		{func() error { return w.Set("w13_weight", good.As(77), count) }, moe.ErrDType, "w13_weight"},
		{func() error { return w.Set("w13_weight", moe.Tensor{}, count) }, moe.ErrDType, "w13_weight"},
		{func() error { return w.Set("w13\x00weight", good, count) }, moe.ErrInvalidArgument, "role"},
		{func() error { return w.Set("w14_weight", good, count) }, moe.ErrInvalidArgument, "role"},
		{func() error { return w.SetExpert("w13_weight", 4, "", moe.TensorOf(w13[:4096], 64, 64), count) }, moe.ErrInvalidArgument, "expert"},
		{func() error { return (*moe.Weights)(nil).Set("w13_weight", good, count) }, moe.ErrInvalidHandle, "weights"},
	} {
		expectError(t, fails.call(), fails.status, fails.subject)
		if released != i+1 {
			t.Errorf("case %d: released %d times", i, released)
		}
	}
	panics := func() { panic("oh dear") }
	check(t, w.Set("w13_weight", good, panics))
	if err := w.Set("w13_weight", good, panics); !errors.Is(err, moe.ErrCallback) || !strings.Contains(err.Error(), "oh dear") {
		t.Errorf("a release that panics: %v", err)
	}
	if err := w.Close(); !errors.Is(err, moe.ErrCallback) {
		t.Errorf("a release that panics, in Close: %v", err)
	}
	check(t, config.Close())
	nothingKept(t, before)
}

func TestTensorsOfASet(t *testing.T) {
	config, err := moe.NewConfig(plain)
	check(t, err)
	w, err := moe.NewWeights(config)
	check(t, err)
	check(t, stacked(w))
	w13, _ := plainWeights()
	one, err := w.Tensor("w13_weight", 2)
	if err != nil || one.DType != moe.F32 || len(one.Shape) != 2 || !bytes.Equal(one.Data, moe.BytesOf(w13[2*4096:3*4096])) {
		t.Errorf("%v %v, error %v", one.DType, one.Shape, err)
	}
	text, err := w.JSON()
	if err != nil || !strings.Contains(text, `"complete":true`) {
		t.Errorf("%s, error %v", text, err)
	}
	w.Close()
	if !bytes.Equal(one.Data, moe.BytesOf(w13[2*4096:3*4096])) {
		t.Error("a copy changes with its set")
	}
	p := newParts(t)
	if all, err := p.weights.Tensor("w2_weight", -1); err != nil || len(all.Shape) != 3 || len(all.Data) == 0 {
		t.Errorf("read from files: %v, error %v", all.Shape, err)
	}
}

func TestSource(t *testing.T) {
	want, err := plainLayer(t, stacked)
	check(t, err)
	before := raw.Registered()
	w13, w2 := plainWeights()
	config, err := moe.NewConfig(plain)
	check(t, err)
	var mu sync.Mutex
	got, put, closed := 0, 0, 0
	get := func(role string, expert int64, shard string) (moe.Tensor, error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case role == "w13_weight" && shard == "": // asks again for both halves
			return moe.Tensor{}, moe.ErrMissingWeight
		case role == "w13_weight":
			got++
			begin := expert*4096 + map[string]int64{"w1": 0, "w3": 2048}[shard]
			return moe.TensorOf(append([]float32{}, w13[begin:begin+2048]...), 32, 64), nil
		case role == "w2_weight":
			got++
			return moe.TensorOf(append([]float32{}, w2[expert*2048:(expert+1)*2048]...), 64, 32), nil
		}
		return moe.Tensor{}, moe.ErrMissingWeight
	}
	source := moe.Source{Get: get, Serial: true,
		Put: func(role string, expert int64, shard string, tensor moe.Tensor) {
			runtime.GC()
			mu.Lock()
			defer mu.Unlock()
			put++
		},
		Close: func() { closed++ }}
	w, err := moe.NewWeightsFromSource(config, source)
	check(t, err)
	result, err := plainResult(t, config, w, moe.ConvertOptions{})
	check(t, err)
	check(t, w.Close())
	if !same(result, want) || got != 12 || put != got || closed != 1 {
		t.Errorf("equal %t, %d tensors given, %d back, closed %d times", same(result, want), got, put, closed)
	}

	for how, stop := range stops {
		w, err := moe.NewWeightsFromSource(config, moe.Source{Get: func(string, int64, string) (moe.Tensor, error) { return moe.Tensor{}, stop.run() }})
		check(t, err)
		_, err = plainResult(t, config, w, moe.ConvertOptions{})
		status := moe.ErrCallback
		if how == "context" {
			status = moe.ErrCancelled
		}
		if !errors.Is(err, status) || !strings.Contains(err.Error(), stop.text) || how == "error" && !errors.Is(err, errStop) {
			t.Errorf("%s in Get: %v", how, err)
		}
		check(t, w.Close())
	}
	for how, bad := range map[string]moe.Tensor{"short": {DType: moe.F32, Shape: []int64{64, 64}, Data: make([]byte, 8)},
		"none": {}, "type": {DType: moe.I8, Shape: []int64{64, 64}, Data: make([]byte, 4096)}} {
		w, err := moe.NewWeightsFromSource(config, moe.Source{Get: func(string, int64, string) (moe.Tensor, error) { return bad, nil }})
		check(t, err)
		if _, err = plainResult(t, config, w, moe.ConvertOptions{}); err == nil {
			t.Errorf("%s: no error", how)
		}
		check(t, w.Close())
	}
	source.Put = func(string, int64, string, moe.Tensor) { panic("oh dear") }
	w, err = moe.NewWeightsFromSource(config, source)
	check(t, err)
	if _, err = plainResult(t, config, w, moe.ConvertOptions{}); !errors.Is(err, moe.ErrCallback) || !strings.Contains(err.Error(), "oh dear") {
		t.Errorf("panic in Put: %v", err)
	}
	check(t, w.Close())
	missing, err := moe.NewWeightsFromSource(config, moe.Source{Get: func(string, int64, string) (moe.Tensor, error) { return moe.Tensor{}, moe.ErrMissingWeight }})
	check(t, err)
	if _, err = plainResult(t, config, missing, moe.ConvertOptions{}); !errors.Is(err, moe.ErrMissingWeight) {
		t.Errorf("an empty source: %v", err)
	}
	check(t, missing.Close())
	_, err = moe.NewWeightsFromSource(config, moe.Source{})
	expectError(t, err, moe.ErrInvalidArgument, "Source")
	closed = 0
	_, err = moe.NewWeightsFromSource(nil, source)
	expectError(t, err, moe.ErrInvalidHandle, "config")
	if closed != 1 {
		t.Errorf("a source that was refused is closed %d times", closed)
	}
	nothingKept(t, before)
}

func TestConvertOptions(t *testing.T) {
	before := raw.Registered()
	p := newParts(t)
	want := p.expected(t)
	size, alignment, err := p.selection.PackedSize()
	check(t, err)
	released := 0
	destination := moe.AlignedBytes(size, alignment)
	packed, err := moe.ConvertWith(p.context, p.selection, p.weights,
		moe.ConvertOptions{Destination: destination, Release: func() { released++ }, MaxTempBytes: 1 << 20, ReleaseSources: true})
	check(t, err)
	layer, err := moe.NewLayer(nil, p.selection, packed)
	check(t, err)
	check(t, packed.Close())
	runtime.GC()
	out := make([]byte, len(want))
	check(t, layer.Apply(p.tokens, p.hidden, p.logits, out))
	if !bytes.Equal(out, want) || bytes.Equal(destination, make([]byte, size)) || released != 0 {
		t.Errorf("equal %t, released %d", bytes.Equal(out, want), released)
	}
	check(t, layer.Close())
	for i := 0; released == 0 && i < 100; i++ {
		time.Sleep(time.Millisecond)
	}
	_, err = moe.Convert(p.context, p.selection, p.weights)
	if released != 1 || !errors.Is(err, moe.ErrMissingWeight) {
		t.Errorf("released %d times; the set after ReleaseSources: %v", released, err)
	}
	_, err = moe.ConvertWith(nil, p.selection, p.weights, moe.ConvertOptions{Destination: destination[:64], Release: func() { released++ }})
	if err == nil || released != 2 {
		t.Errorf("released %d times, error %v", released, err)
	}
	_, err = moe.ConvertWith(nil, nil, p.weights, moe.ConvertOptions{Destination: destination[:0], Release: func() { released++ }})
	expectError(t, err, moe.ErrInvalidHandle, "selection")
	if released != 3 {
		t.Errorf("released %d times", released)
	}
	nothingKept(t, before)
}
