// The tests run through cgo with CGO_ENABLED=1, and through purego with 0 or with -tags moe_purego.
package moe_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"libmoe.example/go/internal/raw"
	"libmoe.example/go/moe"
)

// checkpoint is the directory that the tests run on: real file formats, tiny shapes.
func checkpoint(t *testing.T) string {
	t.Helper()
	directory := os.Getenv("MOE_TEST_CHECKPOINT")
	if directory == "" {
		t.Fatal("set MOE_TEST_CHECKPOINT to what bindings_examples/make_checkpoint --shape tiny wrote")
	}
	return directory
}

func must[T any](t *testing.T, value T, err error) T {
	t.Helper()
	check(t, err)
	return value
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(checkpoint(t), name))
	return must(t, data, err)
}

func floats(raw []byte) []float32 {
	logits := make([]float32, len(raw)/4)
	for i := range logits {
		b := raw[4*i:]
		logits[i] = math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
	}
	return logits
}

// expectError wants a status and a subject.
func expectError(t *testing.T, err error, status moe.Status, subject string) {
	t.Helper()
	var failure *moe.Error
	if !errors.As(err, &failure) || !errors.Is(err, status) || failure.Name != status.String() || failure.Subject != subject {
		t.Errorf("expected %s at '%s', got %v", status, subject, err)
	}
}

// parts are one layer with all that it was made of, and a batch.
type parts struct {
	context   *moe.Context
	config    *moe.Config
	platform  *moe.Platform
	selection *moe.Selection
	weights   *moe.Weights
	packed    *moe.Packed
	layer     *moe.Layer
	control   *moe.Control
	model     *moe.Checkpoint
	hidden    []byte
	logits    []float32
	tokens    int64
}

func newParts(t *testing.T) (p parts) {
	t.Helper()
	return newPartsWith(t, "{}", moe.Callbacks{})
}

func newPartsWith(t *testing.T, options string, callbacks moe.Callbacks) (p parts) {
	t.Helper()
	var err error
	p.context, err = moe.NewContextWith(options, callbacks)
	check(t, err)
	p.config, err = moe.ConfigFromHF(string(read(t, "config.json")), "{}")
	check(t, err)
	p.platform, err = moe.NewPlatform("")
	check(t, err)
	p.selection, err = moe.Select(p.context, p.config)
	check(t, err)
	p.weights, err = moe.NewWeights(p.config)
	check(t, err)
	check(t, p.weights.LoadSafetensors(checkpoint(t)))
	p.packed, err = moe.Convert(p.context, p.selection, p.weights)
	check(t, err)
	p.layer, err = moe.NewLayer(p.context, p.selection, p.packed)
	check(t, err)
	p.control, err = moe.NewControl(nil)
	check(t, err)
	p.model, err = moe.OpenCheckpoint(p.context, checkpoint(t))
	check(t, err)
	p.hidden, p.logits = read(t, "hidden.bin"), floats(read(t, "logits.bin"))
	p.tokens = int64(len(p.logits)) / p.config.Experts
	t.Cleanup(p.close)
	return p
}

func (p parts) close() {
	p.layer.Close()
	p.packed.Close()
	p.weights.Close()
	p.selection.Close()
	p.platform.Close()
	p.config.Close()
	p.control.Close()
	p.model.Close()
	p.context.Close()
}

// expected is what Apply gives, once and for comparison.
func (p parts) expected(t *testing.T) []byte {
	t.Helper()
	out := make([]byte, len(p.hidden))
	check(t, p.layer.Apply(p.tokens, p.hidden, p.logits, out))
	if bytes.Equal(out, make([]byte, len(out))) {
		t.Fatal("the layer computed zeros")
	}
	return out
}

// batch is ApplyArgs of the batch with a new out.
func (p parts) batch() moe.ApplyArgs {
	n := p.config.Numbers
	return moe.ApplyArgs{Hidden: moe.Tensor{DType: n.InDType, Shape: []int64{p.tokens, n.Hidden}, Data: p.hidden},
		RouterLogits: moe.TensorOf(p.logits, p.tokens, n.Experts),
		Out:          moe.Tensor{DType: n.OutDType, Shape: []int64{p.tokens, n.Hidden}, Data: make([]byte, len(p.hidden))}}
}

// plain is a config of 4 experts with float weights, and such weights.
const plain = `{"num_experts":4,"top_k":2,"hidden_dim":64,"intermediate_size":32,"in_dtype":"float32","name":"model.layers.3.mlp.experts"}`

func plainWeights() (w13, w2 []float32) {
	w13, w2 = make([]float32, 4*64*64), make([]float32, 4*64*32)
	for i := range w13 {
		w13[i] = float32(i%17-8) / 16
	}
	for i := range w2 {
		w2[i] = float32(i%13-6) / 16
	}
	return w13, w2
}

// nothingKept waits until the library has released all that the program's objects registered.
func nothingKept(t *testing.T, before int) {
	t.Helper()
	for i := 0; raw.Registered() > before; i++ {
		if i == 200 {
			t.Fatalf("%d callbacks or buffers are never released", raw.Registered()-before)
		}
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
}
