package moe_test

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"libmoe.example/go/moe"
)

func TestDLPackThereAndBack(t *testing.T) {
	for _, versioned := range []bool{true, false} {
		w13, w2 := plainWeights()
		want, err := plainLayer(t, stacked)
		check(t, err)
		var released int64
		count := func() { atomic.AddInt64(&released, 1) }
		got, err := plainLayer(t, func(w *moe.Weights) error {
			for role, tensor := range map[string]moe.Tensor{"w13_weight": moe.TensorOf(w13, 4, 64, 64), "w2_weight": moe.TensorOf(w2, 4, 64, 32)} {
				managed, err := moe.ToDLPack(tensor, versioned, false, count)
				check(t, err)
				runtime.GC()
				d, err := moe.FromDLPack(managed, versioned)
				check(t, err)
				if back := d.Tensor(); back.DType != moe.F32 || len(back.Shape) != 3 || &back.Data[0] != &tensor.Data[0] || d.ReadOnly() {
					t.Errorf("%s: %s %v, read-only %t", role, back.DType, back.Shape, d.ReadOnly())
				}
				check(t, w.Set(role, d.Tensor(), func() { check(t, d.Close()) }))
			}
			return nil
		})
		if err != nil || !same(got, want) || atomic.LoadInt64(&released) != 2 {
			t.Errorf("versioned %t: equal %t, %d released, error %v", versioned, same(got, want), released, err)
		}
	}
}

func TestDLPackRefuses(t *testing.T) {
	_, err := moe.FromDLPack(nil, true)
	expectError(t, err, moe.ErrInvalidArgument, "dlpack")
	_, err = moe.ToDLPack(moe.Tensor{}, true, false, nil)
	expectError(t, err, moe.ErrDType, "tensor")
	_, err = moe.ToDLPack(moe.TensorOf([]float32{1}), false, true, nil)
	expectError(t, err, moe.ErrUnsupported, "readOnly")

	p := newParts(t)
	a := p.batch()
	managed, err := moe.ToDLPack(a.Out, true, true, nil)
	check(t, err)
	d, err := moe.FromDLPack(managed, true)
	check(t, err)
	if !d.ReadOnly() {
		t.Error("the flag is lost")
	}
	a.Out = d.Tensor()
	expectError(t, p.layer.ApplyTensors(a), moe.ErrInvalidArgument, "out")
	check(t, d.Close())
	check(t, d.Close())
	if d.Tensor().Data != nil {
		t.Error("memory after Close")
	}

	// a device that is none of ours, and a version that is not known: both stay the caller's
	for at, value := range map[uintptr]int32{40: 2, 0: 9} {
		var released int64
		managed, err := moe.ToDLPack(moe.TensorOf([]float32{1, 2}), true, false, func() { atomic.AddInt64(&released, 1) })
		check(t, err)
		field := (*int32)(unsafe.Add(managed, at))
		good := *field
		*field = value
		if d, err := moe.FromDLPack(managed, true); err == nil || d != nil || atomic.LoadInt64(&released) != 0 {
			t.Errorf("%v, error %v", d, err)
		}
		*field = good
		d, err := moe.FromDLPack(managed, true)
		check(t, err)
		check(t, d.Close())
		if atomic.LoadInt64(&released) != 1 {
			t.Errorf("released %d times", released)
		}
	}
}

func TestPackedTensorsAsDLPack(t *testing.T) {
	p := newParts(t)
	one, err := p.packed.Tensor("w2_packed", 1)
	check(t, err)
	managed, err := p.packed.DLPack("w2_packed", 1)
	check(t, err)
	closed := make(chan error)
	go func() { closed <- p.packed.Close() }()
	runtime.GC()
	d, err := moe.FromDLPack(managed, true)
	check(t, err)
	if !d.ReadOnly() || !bytes.Equal(d.Tensor().Data[:16], one.Data[:16]) {
		t.Errorf("read-only %t, other bytes than the copy", d.ReadOnly())
	}
	select {
	case <-closed:
		t.Error("Close did not wait for the consumer")
	default:
	}
	check(t, d.Close())
	check(t, <-closed)
	if _, err = p.packed.DLPack("w2_packed", 1); err == nil {
		t.Error("no error after Close")
	}
}
