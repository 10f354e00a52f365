package moe_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"libmoe.example/go/internal/raw"
	"libmoe.example/go/moe"
)

func TestPackedWeightsComeBack(t *testing.T) {
	before := raw.Registered()
	p := newParts(t)
	want := p.expected(t)
	path := filepath.Join(t.TempDir(), "layer.moe")
	check(t, p.packed.Save(path, p.control))
	var block bytes.Buffer
	var writer io.WriterTo = p.packed
	n, err := writer.WriteTo(&block)
	if err != nil || n != int64(block.Len()) || n == 0 {
		t.Fatalf("%d bytes, error %v", n, err)
	}
	aligned := moe.AlignedBytes(uint64(n), 64)
	copy(aligned, block.Bytes())
	released := 0
	for how, load := range map[string]func() (*moe.Packed, error){
		"read": func() (*moe.Packed, error) {
			return moe.LoadPacked(p.context, path, moe.LoadOptions{Control: p.control})
		},
		"mapped": func() (*moe.Packed, error) {
			return moe.LoadPacked(nil, path, moe.LoadOptions{MMap: true, Prefault: true, Verify: true})
		},
		"memory": func() (*moe.Packed, error) {
			return moe.LoadPackedMemory(nil, aligned, moe.LoadOptions{Verify: true}, func() { released++ })
		},
		"shifted": func() (*moe.Packed, error) {
			shifted := append(make([]byte, 1, n+1), block.Bytes()...)
			return moe.LoadPackedMemory(p.context, shifted[1:], moe.LoadOptions{}, func() { released++ })
		},
	} {
		packed, err := load()
		check(t, err)
		layer, err := moe.NewLayer(nil, p.selection, packed)
		check(t, err)
		check(t, packed.Close())
		runtime.GC()
		out := make([]byte, len(want))
		if err := layer.Apply(p.tokens, p.hidden, p.logits, out); err != nil || !bytes.Equal(out, want) {
			t.Errorf("%s: another result, error %v", how, err)
		}
		check(t, layer.Close())
	}
	if released != 2 {
		t.Errorf("memory was released %d times", released)
	}
	_, err = moe.LoadPackedMemory(nil, aligned[:100], moe.LoadOptions{}, func() { released++ })
	if !errors.Is(err, moe.ErrFormat) || released != 3 {
		t.Errorf("a cut block: released %d times, error %v", released, err)
	}
	_, err = moe.LoadPackedMemory(nil, nil, moe.LoadOptions{}, func() { released++ })
	expectError(t, err, moe.ErrInvalidArgument, "data")
	_, err = moe.LoadPackedMemory(nil, aligned, moe.LoadOptions{Control: p.control}, func() { released++ })
	expectError(t, err, moe.ErrInvalidArgument, "Control")
	if released != 5 {
		t.Errorf("refused memory: released %d times", released)
	}
	check(t, os.WriteFile(path, []byte("no layer"), 0o600))
	if _, err = moe.LoadPacked(nil, path, moe.LoadOptions{}); !errors.Is(err, moe.ErrFormat) {
		t.Errorf("another file: %v", err)
	}
	if _, err = moe.LoadPacked(nil, path+".none", moe.LoadOptions{}); !errors.Is(err, moe.ErrIO) {
		t.Errorf("no file: %v", err)
	}
	_, err = moe.LoadPacked(nil, path+"\x00x", moe.LoadOptions{})
	expectError(t, err, moe.ErrInvalidArgument, "path")
	expectError(t, p.packed.Save(path+"\x00x", nil), moe.ErrInvalidArgument, "path")
	expectError(t, p.weights.LoadSafetensors(checkpoint(t)+"\x00x"), moe.ErrInvalidArgument, "path")
	nothingKept(t, before)
}

func TestPackedTensorsByName(t *testing.T) {
	p := newParts(t)
	text, err := p.packed.JSON()
	if err != nil || !strings.Contains(text, `"w13_packed"`) {
		t.Fatalf("%s, error %v", text, err)
	}
	all, err := p.packed.Tensor("w13_packed", -1)
	check(t, err)
	one, err := p.packed.Tensor("w13_packed", 1)
	check(t, err)
	if len(one.Data)*4 != len(all.Data) || !bytes.Equal(one.Data, all.Data[len(one.Data):2*len(one.Data)]) {
		t.Errorf("one expert has %d bytes, all have %d", len(one.Data), len(all.Data))
	}
	seen := errors.New("seen")
	err = p.packed.View("w13_packed", 1, func(v moe.Tensor) error {
		if !bytes.Equal(v.Data, one.Data) {
			t.Error("a view shows something else than the copy")
		}
		expectError(t, p.packed.Dequantize("w13_weight", 1, v), moe.ErrDType, "out")
		return seen
	})
	if err != seen {
		t.Errorf("View: %v", err)
	}
	_, err = p.packed.Tensor("w99", -1)
	expectError(t, err, moe.ErrInvalidArgument, "role")
	if _, err = p.packed.Tensor("w13_packed", 4); err == nil {
		t.Error("no such expert: no error")
	}
	out := make([]float32, 64*64)
	check(t, p.packed.Dequantize("w13_weight", 0, moe.TensorOf(out, 64, 64)))
	if same(out, make([]float32, len(out))) {
		t.Error("the weights are zero")
	}
	expectError(t, p.packed.Dequantize("w13_weight", 0, moe.TensorOf(out[:100], 64, 64)), moe.ErrShape, "out")
	expectError(t, p.packed.Dequantize("w13_weight", 0, moe.TensorOf(make([]int32, 4096), 64, 64)), moe.ErrDType, "out")
	if err := p.packed.Dequantize("w13_weight", 0, moe.TensorOf(out, 32, 128)); !errors.Is(err, moe.ErrShape) {
		t.Errorf("another shape: %v", err)
	}
}
