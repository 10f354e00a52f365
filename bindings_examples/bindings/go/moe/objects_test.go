package moe_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"libmoe.example/go/moe"
)

func TestGoroutinesShareALayer(t *testing.T) {
	p := newPartsWith(t, `{"threads":2}`, moe.Callbacks{})
	p.context.Close()
	expected := p.expected(t)
	var group sync.WaitGroup
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			out := make([]byte, len(p.hidden))
			if err := p.layer.Apply(p.tokens, p.hidden, p.logits, out); err != nil || !bytes.Equal(out, expected) {
				t.Errorf("another result, error %v", err)
			}
		}()
	}
	group.Wait()
}

func TestErrorsSayWhere(t *testing.T) {
	_, err := moe.ConfigFromHF(`{"architectures":["Qwen3MoeForCausalLM"],"hidden_size":-1}`, "{}")
	var failure *moe.Error
	if !errors.As(err, &failure) || failure.Name == "" || failure.Message == "" || len(failure.Details) < 10 {
		t.Fatalf("no *Error with a name, a message and details: %v", err)
	}
}

// How objects are closed: bindings_examples/bindings/PROTOCOL.md. This test and those of Close below hold its rules.
func TestUseAfterCloseIsAnError(t *testing.T) {
	selects := func(p parts) error {
		_, err := moe.SelectWith(p.context, p.config, moe.SelectOptions{Platform: p.platform})
		return err
	}
	converts := func(p parts) error {
		_, err := moe.ConvertWith(p.context, p.selection, p.weights, moe.ConvertOptions{Control: p.control})
		return err
	}
	binds := func(p parts) error { _, err := moe.NewLayer(p.context, p.selection, p.packed); return err }
	sets := func(p parts) error { _, err := moe.NewWeights(p.config); return err }
	loads := func(p parts) error { return p.weights.LoadSafetensors(checkpoint(t)) }
	applies := func(p parts) error { return p.layer.Apply(0, nil, nil, nil) }
	stops := func(p parts) error { return p.control.Cancel() }
	asks := func(p parts) error { _, err := p.control.State(); return err }
	opens := func(p parts) error {
		_, err := moe.OpenCheckpointWith(p.context, checkpoint(t), moe.CheckpointOpenOptions{Control: p.control})
		return err
	}
	makes := func(p parts) error {
		_, err := p.model.LayerWith(p.context, 0, moe.CheckpointLayerOptions{Platform: p.platform,
			Load: moe.LoadOptions{Control: p.control}})
		return err
	}
	packs := func(p parts) error { _, err := p.model.Packed(p.context, p.selection); return err }
	writes := func(p parts) error {
		return p.model.ConvertWith(p.context, t.TempDir(), moe.CheckpointConvertOptions{Platform: p.platform, Control: p.control})
	}
	hashes := func(p parts) error { _, err := p.model.Fingerprint(p.context, false, p.control); return err }
	reads := func(p parts) error { return p.weights.LoadCheckpoint(p.model) }
	describes := func(p parts) error { _, err := p.model.LayerInfo(0); return err }
	for kind, c := range map[string]struct {
		close func(p parts) error
		uses  []func(p parts) error
	}{
		"context":    {func(p parts) error { return p.context.Close() }, []func(p parts) error{selects, converts, binds, opens, makes, packs, writes, hashes}},
		"config":     {func(p parts) error { return p.config.Close() }, []func(p parts) error{selects, sets}},
		"platform":   {func(p parts) error { return p.platform.Close() }, []func(p parts) error{selects, makes, writes}},
		"selection":  {func(p parts) error { return p.selection.Close() }, []func(p parts) error{converts, binds, packs}},
		"weights":    {func(p parts) error { return p.weights.Close() }, []func(p parts) error{loads, converts, reads}},
		"packed":     {func(p parts) error { return p.packed.Close() }, []func(p parts) error{binds}},
		"layer":      {func(p parts) error { return p.layer.Close() }, []func(p parts) error{applies}},
		"control":    {func(p parts) error { return p.control.Close() }, []func(p parts) error{stops, converts, asks, opens, makes, writes, hashes}},
		"checkpoint": {func(p parts) error { return p.model.Close() }, []func(p parts) error{makes, packs, writes, hashes, reads, describes}},
	} {
		p := newParts(t)
		check(t, c.close(p))
		check(t, c.close(p))
		for _, use := range c.uses {
			expectError(t, use(p), moe.ErrInvalidHandle, kind)
		}
	}
}

// Every method of every type, on nil and on what no constructor made, with zero arguments.
func TestNilAndZeroValuesAreErrors(t *testing.T) {
	count := 0
	for _, zero := range []interface{}{new(moe.Context), new(moe.Config), new(moe.Platform), new(moe.Selection), new(moe.Weights),
		new(moe.Packed), new(moe.Layer), new(moe.Control), new(moe.DLPack), new(moe.Checkpoint)} {
		for _, value := range []reflect.Value{reflect.ValueOf(zero), reflect.Zero(reflect.TypeOf(zero))} {
			for i := 0; i < value.NumMethod(); i++ {
				method := value.Type().Method(i)
				if method.Name == "Bytes" {
					continue // of Numbers' types, promoted
				}
				call := value.Method(i)
				args := make([]reflect.Value, call.Type().NumIn())
				for k := range args {
					args[k] = reflect.Zero(call.Type().In(k))
				}
				results := call.Call(args)
				count++
				if n := len(results); n > 0 && results[n-1].Type().String() == "error" && method.Name != "Close" {
					err, _ := results[n-1].Interface().(error)
					var failure *moe.Error
					if !errors.As(err, &failure) || failure.Status != moe.ErrInvalidHandle {
						t.Errorf("%s.%s on %v: %v", value.Type(), method.Name, value, err)
					}
				}
			}
		}
	}
	if count < 110 {
		t.Errorf("only %d methods were called", count)
	}
}

func TestFailedConstructorsGiveNil(t *testing.T) {
	context, err := moe.NewContext("{oops")
	if context.Close(); context != nil || err == nil {
		t.Errorf("context %v, error %v", context, err)
	}
	config, err := moe.ConfigFromHF("{oops", "{}")
	if config.Close(); config != nil || err == nil {
		t.Errorf("config %v, error %v", config, err)
	}
	platform, err := moe.NewPlatform("{oops")
	if platform.Close(); platform != nil || err == nil {
		t.Errorf("platform %v, error %v", platform, err)
	}
	selection, err := moe.Select(context, config)
	if selection.Close(); selection != nil || err == nil {
		t.Errorf("selection %v, error %v", selection, err)
	}
	weights, err := moe.NewWeights(config)
	if weights.Close(); weights != nil || err == nil {
		t.Errorf("weights %v, error %v", weights, err)
	}
	packed, err := moe.Convert(context, selection, weights)
	if packed.Close(); packed != nil || err == nil {
		t.Errorf("packed %v, error %v", packed, err)
	}
	layer, err := moe.NewLayer(context, selection, packed)
	if layer.Close(); layer != nil || err == nil {
		t.Errorf("layer %v, error %v", layer, err)
	}
	model, err := moe.OpenCheckpoint(context, "/no/such/model")
	if model.Close(); model != nil || err == nil {
		t.Errorf("checkpoint %v, error %v", model, err)
	}
	layer, err = model.Layer(context, 0)
	if layer.Close(); layer != nil || err == nil {
		t.Errorf("layer %v, error %v", layer, err)
	}
}

// A call that finds no object says so, not what is wrong with its other arguments.
func TestAnObjectThatIsNoneComesFirst(t *testing.T) {
	p := newParts(t)
	closed, err := moe.NewLayer(nil, p.selection, p.packed)
	check(t, err)
	check(t, closed.Close())
	for text, layer := range map[string]*moe.Layer{"nil": nil, "was made by no function": {}, "is closed": closed} {
		_, counts := layer.ExpertCounts(false)
		for _, err := range []error{layer.Apply(p.tokens, p.hidden[1:], nil, nil), layer.ApplyTensors(moe.ApplyArgs{}), counts} {
			expectError(t, err, moe.ErrInvalidHandle, "layer")
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v does not say: %s", err, text)
			}
		}
	}
	expectError(t, moe.Route(nil, new(moe.Config), moe.RouteArgs{}), moe.ErrInvalidHandle, "config")
}

// A function that a call waits for, and that waited for the call, would wait for ever.
func TestCloseWithinItsOwnCallIsBusy(t *testing.T) {
	p := newParts(t)
	busy := func(kind string, close func() error) {
		t.Helper()
		err := close()
		expectError(t, err, moe.ErrBusy, kind)
		if err == nil || !strings.Contains(err.Error(), "when the call has ended") {
			t.Errorf("%v does not say why", err)
		}
	}
	idle, err := moe.NewContext("{}")
	check(t, err)
	var deep func(depth int, f func())
	deep = func(depth int, f func()) {
		if depth == 0 {
			f()
		} else {
			deep(depth-1, f)
		}
	}
	var control *moe.Control
	reports := 0
	control, err = moe.NewControl(func(done, total uint64) error {
		reports++
		deep(reports*300%1000, func() {
			busy("context", p.context.Close)
			busy("selection", p.selection.Close)
			busy("weights", p.weights.Close)
			busy("control", control.Close)
		})
		check(t, idle.Close())
		return nil
	})
	check(t, err)
	packed, err := moe.ConvertWith(p.context, p.selection, p.weights, moe.ConvertOptions{Control: control})
	must(t, packed, err).Close()
	if reports == 0 {
		t.Error("no report")
	}
	inside, err := moe.NewControl(func(done, total uint64) error { busy("checkpoint", p.model.Close); return nil })
	check(t, err)
	check(t, p.model.ConvertWith(p.context, t.TempDir(), moe.CheckpointConvertOptions{Control: inside}))
	check(t, inside.Close())
	check(t, control.Close()) // those objects stayed open, and are closed now
	check(t, p.weights.Close())
	_, err = p.weights.JSON()
	expectError(t, err, moe.ErrInvalidHandle, "weights")

	check(t, p.layer.WithHandle(func(unsafe.Pointer) error { busy("layer", p.layer.Close); return nil }))
	check(t, p.packed.View("w13_packed", -1, func(moe.Tensor) error { busy("packed", p.packed.Close); return nil }))
	_, err = p.packed.WriteTo(writer(func() { busy("packed", p.packed.Close) }))
	check(t, err)
	var set *moe.Weights
	set, err = moe.NewWeightsFromSource(p.config, moe.Source{Get: func(string, int64, string) (moe.Tensor, error) {
		busy("weights", set.Close)
		return moe.Tensor{}, moe.ErrMissingWeight
	}})
	check(t, err)
	_, err = moe.Convert(nil, p.selection, set)
	if !errors.Is(err, moe.ErrMissingWeight) {
		t.Errorf("a source without tensors: %v", err)
	}
	check(t, set.Close())
}

type writer func()

func (w writer) Write(b []byte) (int, error) {
	w()
	return len(b), nil
}

// After Close no one writes: out has either all results or none.
func TestCloseWaitsForApply(t *testing.T) {
	p := newParts(t)
	hidden, logits, tokens := bytes.Repeat(p.hidden, 64), floats(bytes.Repeat(read(t, "logits.bin"), 64)), 64*p.tokens
	expected := make([]byte, len(hidden))
	check(t, p.layer.Apply(tokens, hidden, logits, expected))
	for i := 0; i < 80; i++ {
		layer, err := moe.NewLayer(nil, p.selection, p.packed)
		check(t, err)
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
				expectError(t, err, moe.ErrInvalidHandle, "layer")
			}
		}
	}
}

// Close in one goroutine, Apply again and again in others.
func TestCloseRacesWithApply(t *testing.T) {
	p := newParts(t)
	for i := 0; i < 200; i++ {
		layer, err := moe.NewLayer(nil, p.selection, p.packed)
		check(t, err)
		var group sync.WaitGroup
		for k := 0; k < 3; k++ {
			group.Add(1)
			go func() {
				defer group.Done()
				out := make([]byte, len(p.hidden))
				for j := 0; j < 10; j++ {
					if err := layer.Apply(p.tokens, p.hidden, p.logits, out); err != nil && !errors.Is(err, moe.ErrInvalidHandle) {
						t.Error(err)
					}
				}
			}()
		}
		layer.Close()
		group.Wait()
	}
}

// Also when the getter is the last use of a selection and the collector runs meanwhile.
func TestNamesOutliveTheSelection(t *testing.T) {
	p := newParts(t)
	names := func(s *moe.Selection) string { return s.Backend() + s.Kernel() + s.Layout() }
	want := names(p.selection)
	p.selection.Close()
	if got := names(p.selection); got != want || want == "" {
		t.Errorf("names %q, after Close %q", want, got)
	}
	var group sync.WaitGroup
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for k := 0; k < 25; k++ {
				selection, err := moe.Select(nil, p.config)
				if err != nil || names(selection) != want {
					t.Errorf("other names, error %v", err)
				}
				runtime.GC()
			}
		}()
	}
	group.Wait()
}

// The last use of every object is a call, the collector runs all the time, and finalizers close.
func TestTheCollectorTakesNothingInUse(t *testing.T) {
	p := newParts(t)
	want := p.expected(t)
	stop := make(chan struct{})
	var collector, group sync.WaitGroup
	collector.Add(1)
	go func() {
		defer collector.Done()
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for k := 0; k < 20; k++ {
				config, err := moe.ConfigFromHF(string(read(t, "config.json")), "{}")
				if err != nil {
					t.Error(err)
					return
				}
				selection, err := moe.Select(nil, config)
				if err != nil {
					t.Error(err)
					return
				}
				weights, err := moe.NewWeights(config)
				if err == nil {
					err = weights.LoadSafetensors(checkpoint(t))
				}
				if err != nil {
					t.Error(err)
					return
				}
				packed, err := moe.Convert(nil, selection, weights)
				if err != nil {
					t.Error(err)
					return
				}
				layer, err := moe.NewLayer(nil, selection, packed)
				if err != nil {
					t.Error(err)
					return
				}
				var out [4096]byte // on the stack, as far as the caller can tell
				if err := layer.Apply(p.tokens, p.hidden, p.logits, out[:len(want)]); err != nil || !bytes.Equal(out[:len(want)], want) {
					t.Errorf("another result, error %v", err)
				}
			}
		}()
	}
	group.Wait()
	close(stop)
	collector.Wait()
}

func TestHandlesAreLent(t *testing.T) {
	p := newParts(t)
	for kind, lend := range map[string]func(func(unsafe.Pointer) error) error{"context": p.context.WithHandle, "config": p.config.WithHandle,
		"platform": p.platform.WithHandle, "selection": p.selection.WithHandle, "weights": p.weights.WithHandle,
		"packed": p.packed.WithHandle, "layer": p.layer.WithHandle, "control": p.control.WithHandle,
		"checkpoint": p.model.WithHandle} {
		seen := errors.New("seen")
		if err := lend(func(h unsafe.Pointer) error {
			if h == nil {
				t.Errorf("%s: no handle", kind)
			}
			return seen
		}); err != seen {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestNilFunctionsAreErrors(t *testing.T) {
	p := newParts(t)
	expectError(t, p.layer.WithHandle(nil), moe.ErrInvalidArgument, "f")
	expectError(t, p.packed.View("w13_packed", -1, nil), moe.ErrInvalidArgument, "f")
	_, err := p.packed.WriteTo(nil)
	expectError(t, err, moe.ErrInvalidArgument, "w")
	var none context.Context
	_, err = moe.ControlFor(none, nil)
	expectError(t, err, moe.ErrInvalidArgument, "ctx")
}

func TestASetIsUsedAlone(t *testing.T) {
	p := newParts(t)
	check(t, p.weights.WithHandle(func(unsafe.Pointer) error {
		expectError(t, p.weights.LoadSafetensors(checkpoint(t)), moe.ErrBusy, "weights")
		_, err := p.weights.JSON()
		expectError(t, err, moe.ErrBusy, "weights")
		return nil
	}))
	check(t, p.weights.LoadSafetensors(checkpoint(t)))
}
