package moedl

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
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
	tokens := int64(len(logits)) / layer.numbers.Experts
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

// parts are one layer with all that it was made of.
type parts struct {
	context   *Context
	config    *Config
	selection *Selection
	weights   *Weights
	packed    *Packed
	layer     *Layer
}

func newParts(t *testing.T) (p parts) {
	t.Helper()
	var err error
	p.context, err = NewContext("{}")
	must(t, 0, err)
	p.config, err = ConfigFromHF(string(read(t, "config.json")), "{}")
	must(t, 0, err)
	p.selection, err = Select(p.context, p.config)
	must(t, 0, err)
	p.weights, err = NewWeights(p.config)
	must(t, 0, err)
	must(t, 0, p.weights.LoadSafetensors(checkpoint(t)))
	p.packed, err = Convert(p.context, p.selection, p.weights)
	must(t, 0, err)
	p.layer, err = NewLayer(p.context, p.selection, p.packed)
	must(t, 0, err)
	return p
}

func expectError(t *testing.T, err error, name, subject string) {
	t.Helper()
	var failure *Error
	if !errors.As(err, &failure) || failure.Name != name || failure.Subject != subject {
		t.Errorf("expected %s at '%s', got %v", name, subject, err)
	}
}

func TestUseAfterCloseIsAnError(t *testing.T) {
	selects := func(p parts) error { _, err := Select(p.context, p.config); return err }
	converts := func(p parts) error { _, err := Convert(p.context, p.selection, p.weights); return err }
	binds := func(p parts) error { _, err := NewLayer(p.context, p.selection, p.packed); return err }
	sets := func(p parts) error { _, err := NewWeights(p.config); return err }
	loads := func(p parts) error { return p.weights.LoadSafetensors(checkpoint(t)) }
	applies := func(p parts) error { return p.layer.Apply(0, nil, nil, nil) }
	for kind, c := range map[string]struct {
		close func(p parts)
		uses  []func(p parts) error
	}{
		"context":   {func(p parts) { p.context.Close() }, []func(p parts) error{selects, converts, binds}},
		"config":    {func(p parts) { p.config.Close() }, []func(p parts) error{selects, sets}},
		"selection": {func(p parts) { p.selection.Close() }, []func(p parts) error{converts, binds}},
		"weights":   {func(p parts) { p.weights.Close() }, []func(p parts) error{loads, converts}},
		"packed":    {func(p parts) { p.packed.Close() }, []func(p parts) error{binds}},
		"layer":     {func(p parts) { p.layer.Close() }, []func(p parts) error{applies}},
	} {
		p := newParts(t)
		c.close(p)
		c.close(p)
		for _, use := range c.uses {
			expectError(t, use(p), "MOE_ERR_INVALID_HANDLE", kind)
		}
	}
}

// After Close nobody writes: out has either all results or none.
func TestCloseWaitsForApply(t *testing.T) {
	hidden, logits := bytes.Repeat(read(t, "hidden.bin"), 64), logitsOf(bytes.Repeat(read(t, "logits.bin"), 64))
	p := newParts(t)
	tokens := int64(len(logits)) / p.config.Experts
	expected := make([]byte, len(hidden))
	must(t, 0, p.layer.Apply(tokens, hidden, logits, expected))
	for i := 0; i < 80; i++ {
		layer, err := NewLayer(nil, p.selection, p.packed)
		must(t, 0, err)
		outs, errs := [3][]byte{}, [3]error{}
		var started, ended sync.WaitGroup
		for k := range outs {
			k, out := k, make([]byte, len(hidden))
			outs[k] = out
			started.Add(1)
			ended.Add(1)
			go func() {
				defer ended.Done()
				started.Done()
				errs[k] = layer.Apply(tokens, hidden, logits, out)
			}()
		}
		started.Wait()
		time.Sleep(time.Duration(i%20) * 50 * time.Microsecond)
		layer.Close()
		var seen [3][]byte
		for k := range outs {
			seen[k] = append(seen[k], outs[k]...)
		}
		ended.Wait()
		for k, err := range errs {
			if err == nil && !bytes.Equal(seen[k], expected) {
				t.Fatalf("round %d: Close came back while Apply was writing", i)
			} else if err != nil {
				expectError(t, err, "MOE_ERR_INVALID_HANDLE", "layer")
			}
		}
	}
}

func TestFailedConstructorsGiveNil(t *testing.T) {
	context, err := NewContext("{oops")
	if context.Close(); context != nil || err == nil {
		t.Errorf("context %v, error %v", context, err)
	}
	config, err := ConfigFromHF("{oops", "{}")
	if config.Close(); config != nil || err == nil {
		t.Errorf("config %v, error %v", config, err)
	}
	selection, err := Select(context, config)
	if selection.Close(); selection != nil || err == nil {
		t.Errorf("selection %v, error %v", selection, err)
	}
	weights, err := NewWeights(config)
	if weights.Close(); weights != nil || err == nil {
		t.Errorf("weights %v, error %v", weights, err)
	}
	packed, err := Convert(context, selection, weights)
	if packed.Close(); packed != nil || err == nil {
		t.Errorf("packed %v, error %v", packed, err)
	}
	layer, err := NewLayer(context, selection, packed)
	if layer.Close(); layer != nil || err == nil {
		t.Errorf("layer %v, error %v", layer, err)
	}
	new(Layer).Close()
}

// Also when the getter is the last use of a selection and the collector runs meanwhile.
func TestNamesOutliveTheSelection(t *testing.T) {
	p := newParts(t)
	want := p.selection.Backend() + p.selection.Kernel() + p.selection.Layout()
	p.selection.Close()
	if got := p.selection.Backend() + p.selection.Kernel() + p.selection.Layout(); got != want || want == "" {
		t.Errorf("names %q, after Close %q", want, got)
	}
	var group sync.WaitGroup
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for k := 0; k < 25; k++ {
				selection, err := Select(nil, p.config)
				if err != nil || selection.Backend()+selection.Kernel()+selection.Layout() != want {
					t.Errorf("other names, error %v", err)
				}
				runtime.GC()
			}
		}()
	}
	group.Wait()
}

// The library gets addresses without sizes, so what is measured here must be what it reads.
func TestSlicesAreMeasuredByTheLibrarysNumbers(t *testing.T) {
	p := newParts(t)
	tokens := int64(len(read(t, "logits.bin"))) / 4 / p.config.Experts
	p.config.Hidden, p.config.Experts = 1, 1
	selection, err := Select(nil, p.config)
	layer, err := NewLayer(nil, must(t, selection, err), p.packed)
	small := make([]byte, tokens*p.config.InDType.Bytes(1))
	err = must(t, layer, err).Apply(tokens, small, make([]float32, tokens), small)
	expectError(t, err, "MOE_ERR_SHAPE", "hidden")
}

func TestZeroExpertsHaveLogitsToo(t *testing.T) {
	config, err := ConfigFromHF(string(read(t, "config.json")),
		`{"overrides":{"routing":{"scoring_func":"softmax","e_score_correction_bias":true,"num_zero_experts":3}}}`)
	selection, err := Select(nil, must(t, config, err))
	layer := Layer{must(t, selection, err).object, selection.numbers} // Apply does not come as far as the handle
	hidden, raw := read(t, "hidden.bin"), read(t, "logits.bin")
	err = layer.Apply(int64(len(raw))/4/config.Experts, hidden, logitsOf(raw), hidden)
	expectError(t, err, "MOE_ERR_SHAPE", "router_logits")
}

func TestAPathDoesNotEndAtANUL(t *testing.T) {
	expectError(t, newParts(t).weights.LoadSafetensors(checkpoint(t)+"\x00x"), "MOE_ERR_INVALID_ARGUMENT", "path")
}
