package moedl

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
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

func TestMain(m *testing.M) {
	if err := Load(os.Getenv("LIBMOE_PATH")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func must[T any](t *testing.T, value T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(checkpoint(t), name))
	return must(t, data, err)
}

// newLayer closes everything but the layer.
func newLayer(t *testing.T, context *Context) *Layer {
	t.Helper()
	config, err := ConfigFromHF(string(read(t, "config.json")), "{}")
	defer must(t, config, err).Close()
	selection, err := Select(context, config)
	defer must(t, selection, err).Close()
	weights, err := NewWeights(config)
	defer must(t, weights, err).Close()
	must(t, 0, weights.LoadSafetensors(checkpoint(t)))
	packed, err := Convert(context, selection, weights)
	defer must(t, packed, err).Close()
	layer, err := NewLayer(context, selection, packed)
	return must(t, layer, err)
}

func logitsOf(raw []byte) []float32 {
	logits := make([]float32, len(raw)/4)
	for i := range logits {
		b := raw[4*i:]
		logits[i] = math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
	}
	return logits
}

func TestGoroutinesShareALayer(t *testing.T) {
	context, err := NewContext(`{"threads":2}`)
	layer := newLayer(t, must(t, context, err))
	context.Close()
	defer layer.Close()
	hidden, logits := read(t, "hidden.bin"), logitsOf(read(t, "logits.bin"))
	tokens := int64(len(logits)) / layer.config.Experts
	expected := make([]byte, len(hidden))
	must(t, 0, layer.Apply(tokens, hidden, logits, expected))
	var group sync.WaitGroup
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			out := make([]byte, len(hidden))
			if err := layer.Apply(tokens, hidden, logits, out); err != nil || !bytes.Equal(out, expected) {
				t.Errorf("another result, error %v", err)
			}
		}()
	}
	group.Wait()
}

func TestErrorsSayWhere(t *testing.T) {
	_, err := ConfigFromHF(`{"architectures":["Qwen3MoeForCausalLM"],"hidden_size":-1}`, "{}")
	var failure *Error
	if !errors.As(err, &failure) || failure.Name == "" || failure.Message == "" {
		t.Fatalf("no *Error with a name and a message: %v", err)
	}
}

func TestSlicesAreMeasuredBeforeTheCall(t *testing.T) {
	layer := newLayer(t, nil)
	defer layer.Close()
	hidden, logits := read(t, "hidden.bin"), logitsOf(read(t, "logits.bin"))
	var failure *Error
	err := layer.Apply(2, hidden[:4], logits, make([]byte, len(hidden)))
	if !errors.As(err, &failure) || failure.Subject != "hidden" {
		t.Fatalf("a short slice: %v", err)
	}
	if err := layer.Apply(0, nil, nil, nil); err != nil {
		t.Fatalf("no tokens: %v", err)
	}
}
