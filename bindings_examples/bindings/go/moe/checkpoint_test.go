package moe_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"libmoe.example/go/internal/raw"
	"libmoe.example/go/moe"
)

const (
	modelExperts, modelHidden, modelIntermediate = 4, 64, 32
	modelLayers, modelDense                      = 4, 1
)

// writeModel writes a Qwen3-MoE of four layers in bfloat16, the second dense. Another seed: other weights of the same sizes.
func writeModel(t *testing.T, directory string, seed uint32) string {
	t.Helper()
	check(t, os.MkdirAll(directory, 0o700))
	config := fmt.Sprintf(`{"architectures":["Qwen3MoeForCausalLM"],"hidden_act":"silu","torch_dtype":"bfloat16","hidden_size":%d,
		"moe_intermediate_size":%d,"intermediate_size":%[2]d,"num_experts":%d,"num_experts_per_tok":2,"num_hidden_layers":%d,
		"norm_topk_prob":true,"decoder_sparse_step":1,"mlp_only_layers":[%d]}`,
		modelHidden, modelIntermediate, modelExperts, modelLayers, modelDense)
	check(t, os.WriteFile(filepath.Join(directory, "config.json"), []byte(config), 0o600))
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   [2]int   `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header, data := map[string]entry{}, []byte{}
	add := func(name string, rows, columns int) {
		begin := int64(len(data))
		for i := 0; i < rows*columns; i++ {
			seed = seed*1664525 + 1013904223
			bits := uint16(0x3d00+seed>>25) | uint16(seed)&(1<<15) // of size 2^-5 to 2^-4, both signs
			data = append(data, byte(bits), byte(bits>>8))
		}
		header[name] = entry{"BF16", [2]int{rows, columns}, [2]int64{begin, int64(len(data))}}
	}
	for layer := 0; layer < modelLayers; layer++ {
		mlp := fmt.Sprintf("model.layers.%d.mlp.", layer)
		if layer == modelDense {
			add(mlp+"gate_proj.weight", modelIntermediate, modelHidden)
			continue
		}
		add(mlp+"gate.weight", modelExperts, modelHidden)
		for expert := 0; expert < modelExperts; expert++ {
			of := fmt.Sprintf("%sexperts.%d.", mlp, expert)
			add(of+"gate_proj.weight", modelIntermediate, modelHidden)
			add(of+"up_proj.weight", modelIntermediate, modelHidden)
			add(of+"down_proj.weight", modelHidden, modelIntermediate)
		}
	}
	text, err := json.Marshal(header)
	check(t, err)
	size := make([]byte, 8)
	binary.LittleEndian.PutUint64(size, uint64(len(text)))
	check(t, os.WriteFile(filepath.Join(directory, "model.safetensors"), bytes.Join([][]byte{size, text, data}, nil), 0o600))
	return directory
}

func openModel(t *testing.T, directory string) *moe.Checkpoint {
	t.Helper()
	model, err := moe.OpenCheckpoint(nil, directory)
	check(t, err)
	t.Cleanup(func() { model.Close() })
	return model
}

// applied is what a layer gives for three tokens.
func applied(t *testing.T, layer *moe.Layer, err error) []byte {
	t.Helper()
	check(t, err)
	hidden, out, logits := make([]byte, 3*modelHidden*2), make([]byte, 3*modelHidden*2), make([]float32, 3*modelExperts)
	for i := range hidden {
		hidden[i] = [2]byte{byte(0x80 + i%61), 0x3f}[i%2]
	}
	for i := range logits {
		logits[i] = float32(i * 5 % 7)
	}
	check(t, layer.Apply(3, hidden, logits, out))
	if bytes.Equal(out, make([]byte, len(out))) {
		t.Fatal("the layer computed zeros")
	}
	check(t, layer.Close())
	return out
}

// aloneLayer is what the single calls give.
func aloneLayer(t *testing.T, directory string, layer int64) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(directory, "config.json"))
	check(t, err)
	config, err := moe.ConfigFromHF(string(text), fmt.Sprintf(`{"layer_index":%d}`, layer))
	check(t, err)
	selection, err := moe.Select(nil, config)
	check(t, err)
	weights, err := moe.NewWeights(config)
	check(t, err)
	check(t, weights.LoadSafetensors(directory))
	packed, err := moe.Convert(nil, selection, weights)
	check(t, err)
	made, err := moe.NewLayer(nil, selection, packed)
	return applied(t, made, err)
}

func block(t *testing.T, packed *moe.Packed, err error) []byte {
	t.Helper()
	check(t, err)
	var all bytes.Buffer
	_, err = packed.WriteTo(&all)
	check(t, err)
	check(t, packed.Close())
	return all.Bytes()
}

func TestLayersAreDescribed(t *testing.T) {
	model := openModel(t, writeModel(t, t.TempDir(), 1))
	infos, err := model.Layers()
	if err != nil || len(infos) != modelLayers || model.LayerCount() != modelLayers {
		t.Fatalf("%d layers, %d of them described, error %v", model.LayerCount(), len(infos), err)
	}
	for i, info := range infos {
		want := moe.LayerInfo{Layer: int64(i), Kind: moe.LayerDense}
		if i != modelDense {
			want = moe.LayerInfo{Layer: int64(i), Kind: moe.LayerExperts, TopK: 2, Experts: modelExperts, Hidden: modelHidden,
				Intermediate: modelIntermediate, Bytes: 2 * modelExperts * 3 * modelHidden * modelIntermediate,
				Name: fmt.Sprintf("model.layers.%d.mlp.experts", i)}
		}
		if info != want {
			t.Errorf("found %+v, expected %+v", info, want)
		}
	}
	text, err := model.JSON()
	if err != nil || !json.Valid([]byte(text)) || !strings.Contains(text, "model.layers.0.mlp.gate.weight") {
		t.Errorf("%s, error %v", text, err)
	}
	matrix, err := model.Tensor("model.layers.2.mlp.gate.weight")
	if err != nil || matrix.DType != moe.BF16 || len(matrix.Shape) != 2 || matrix.Shape[0] != modelExperts ||
		len(matrix.Data) != modelExperts*modelHidden*2 {
		t.Errorf("a matrix %s%v of %d bytes, error %v", matrix.DType, matrix.Shape, len(matrix.Data), err)
	}
	check(t, model.Close())
	if model.LayerCount() != modelLayers || bytes.Equal(matrix.Data, make([]byte, len(matrix.Data))) {
		t.Error("what was read does not stay")
	}
	for kind, word := range map[moe.LayerKind]string{moe.LayerExperts: "experts", moe.LayerDense: "dense", moe.LayerOther: "other", 77: "other"} {
		if kind.String() != word {
			t.Errorf("%d is %s", kind, kind)
		}
	}
}

func TestLayersRunAsThoseOfSingleCalls(t *testing.T) {
	directory := writeModel(t, t.TempDir(), 1)
	model := openModel(t, directory)
	context, err := moe.NewContext(`{"threads":2}`)
	check(t, err)
	defer context.Close()
	layers, err := model.ExpertLayers(context)
	if err != nil || len(layers) != modelLayers-1 {
		t.Fatalf("%d layers, error %v", len(layers), err)
	}
	var group sync.WaitGroup
	var again [modelLayers - 1]*moe.Layer
	var errs [modelLayers - 1]error
	var wanted [modelLayers - 1][]byte
	for i, layer := range layers {
		number := layer.Info.Layer
		want := aloneLayer(t, directory, number)
		if n := layer.Numbers(); n.Hidden != modelHidden || n.Experts != modelExperts || n.K != 2 || n.InDType != moe.BF16 {
			t.Errorf("numbers %+v", n)
		}
		if !bytes.Equal(applied(t, layer.Layer, nil), want) {
			t.Errorf("layer %d: another result", number)
		}
		// the same in steps
		config, err := model.Config(number, "")
		check(t, err)
		selection, err := moe.Select(nil, config)
		check(t, err)
		weights, err := moe.NewWeights(config)
		check(t, err)
		check(t, weights.LoadCheckpoint(model))
		converted, err := moe.Convert(nil, selection, weights)
		whole := block(t, converted, err)
		packed, err := model.Packed(context, selection)
		if !bytes.Equal(block(t, packed, err), whole) {
			t.Errorf("layer %d: other packed weights", number)
		}
		group.Add(1)
		go func(i int) {
			defer group.Done()
			again[i], errs[i] = model.Layer(nil, number)
		}(i)
		wanted[i] = want
	}
	group.Wait()
	for i, want := range wanted {
		if !bytes.Equal(applied(t, again[i], errs[i]), want) {
			t.Errorf("layer %d of several at once: another result", layers[i].Info.Layer)
		}
	}
	layer, err := model.Layer(nil, 3)
	check(t, model.Close())
	if !bytes.Equal(applied(t, layer, err), aloneLayer(t, directory, 3)) {
		t.Error("a layer that outlives its checkpoint: another result")
	}
}

const rank1 = `{"parallel":{"tp_size":2,"tp_rank":1,"enable_expert_parallel":true}}`

func TestOptionsReachTheLayer(t *testing.T) {
	directory := writeModel(t, t.TempDir(), 1)
	model := openModel(t, directory)
	want := aloneLayer(t, directory, 0)
	layer, err := model.LayerWith(nil, 0, moe.CheckpointLayerOptions{Patch: rank1})
	check(t, err)
	if counts, err := layer.ExpertCounts(false); err != nil || len(counts) != modelExperts/2 {
		t.Errorf("%d experts of a rank of two, error %v", len(counts), err)
	}
	applied(t, layer, nil)
	bare, err := moe.NewPlatform(`{"type":"cpu","arch":"x86_64","features":[]}`)
	check(t, err)
	layer, err = model.LayerWith(nil, 0, moe.CheckpointLayerOptions{Platform: bare})
	check(t, err)
	if text, err := layer.JSON(); err != nil || !strings.Contains(text, "scalar") {
		t.Errorf("%s, error %v", text, err)
	}
	of := moe.LayerOptions{ExpertMap: moe.TensorOf([]int32{0, 1, 2, 3})}
	layer, err = model.LayerWith(nil, 0, moe.CheckpointLayerOptions{Layer: of})
	if !bytes.Equal(applied(t, layer, err), want) {
		t.Error("another result with a map of experts")
	}
	_, err = model.LayerWith(nil, 0, moe.CheckpointLayerOptions{Layer: moe.LayerOptions{ExpertMap: moe.TensorOf([]float32{0})}})
	expectError(t, err, moe.ErrDType, "ExpertMap")
	wish := moe.CheckpointLayerOptions{Patch: `{"moe_backend":"triton"}`}
	if _, err = model.LayerWith(nil, 0, wish); !errors.Is(err, moe.ErrNoBackend) {
		t.Errorf("triton on a CPU: %v", err)
	}
	wish.AllowFallback = true
	_, err = model.LayerWith(nil, 0, wish)
	check(t, err)
	other, err := moe.OpenCheckpointWith(nil, directory, moe.CheckpointOpenOptions{JSON: `{"overrides":{"top_k":1}}`})
	check(t, err)
	if config, err := other.Config(0, ""); err != nil || config.K != 1 {
		t.Errorf("another top_k: error %v", err)
	}
}

func TestAConvertedFolderComesBack(t *testing.T) {
	directory, target := writeModel(t, t.TempDir(), 1), filepath.Join(t.TempDir(), "target")
	model := openModel(t, directory)
	context, err := moe.NewContext("{}")
	check(t, err)
	defer context.Close()
	converted := func() (which []int64, folder *moe.Checkpoint) {
		folder = openModel(t, target)
		infos, err := folder.Layers()
		check(t, err)
		for _, info := range infos {
			if info.IsConverted {
				which = append(which, info.Layer)
			}
		}
		return which, folder
	}
	check(t, model.ConvertWith(context, target, moe.CheckpointConvertOptions{Layers: []int64{3, 0}}))
	which, folder := converted()
	if fmt.Sprint(which) != "[0 3]" {
		t.Errorf("converted: %v", which)
	}
	if _, err = folder.Layer(nil, 2); !errors.Is(err, moe.ErrMissingWeight) {
		t.Errorf("a layer that was not converted: %v", err)
	}
	if layers, err := folder.ExpertLayers(nil); layers != nil || !errors.Is(err, moe.ErrMissingWeight) {
		t.Errorf("%d layers, error %v", len(layers), err)
	}
	check(t, model.Convert(context, target))
	check(t, model.ConvertWith(nil, target, moe.CheckpointConvertOptions{Verify: true}))
	which, folder = converted()
	if fmt.Sprint(which) != "[0 2 3]" {
		t.Errorf("converted: %v", which)
	}
	for _, number := range which {
		want := aloneLayer(t, directory, number)
		for _, load := range []moe.LoadOptions{{}, {Verify: true, Prefault: true}, {MMap: true}} {
			layer, err := folder.LayerWith(context, number, moe.CheckpointLayerOptions{Load: load})
			if !bytes.Equal(applied(t, layer, err), want) {
				t.Errorf("layer %d: another result", number)
			}
		}
		config, err := folder.Config(number, "")
		check(t, err)
		selection, err := moe.Select(nil, config)
		check(t, err)
		packed, err := model.Packed(nil, selection)
		whole := block(t, packed, err)
		packed, err = folder.PackedWith(nil, selection, moe.LoadOptions{MMap: true, Verify: true})
		if !bytes.Equal(block(t, packed, err), whole) {
			t.Errorf("layer %d: other packed weights", number)
		}
	}
	fast, err := model.Fingerprint(context, false, nil)
	same, err2 := folder.Fingerprint(nil, false, nil)
	if err != nil || err2 != nil || !strings.HasPrefix(fast, "fast:") || same != fast {
		t.Errorf("fingerprints %q, %q, errors %v, %v", fast, same, err, err2)
	}
	full, err := model.Fingerprint(nil, true, nil)
	none, err2 := folder.Fingerprint(nil, true, nil)
	if err != nil || err2 != nil || !strings.HasPrefix(full, "full:") || none != "" {
		t.Errorf("fingerprints %q, %q, errors %v, %v", full, none, err, err2)
	}
	// It has no source tensors.
	config, err := folder.Config(0, "")
	check(t, err)
	weights, err := moe.NewWeights(config)
	check(t, err)
	_, err = folder.Tensor("model.layers.0.mlp.gate.weight")
	for _, err := range []error{err, weights.LoadCheckpoint(folder), folder.Convert(nil, t.TempDir())} {
		if !errors.Is(err, moe.ErrUnsupported) {
			t.Errorf("a converted checkpoint as a source: %v", err)
		}
	}
	// One folder holds one source and one cut.
	other := openModel(t, writeModel(t, t.TempDir(), 2))
	for member, err := range map[string]error{`"member":"source"`: other.Convert(nil, target),
		`"member":"parallel`: model.ConvertWith(nil, target, moe.CheckpointConvertOptions{Patch: rank1})} {
		var failure *moe.Error
		if !errors.Is(err, moe.ErrConfigMismatch) || !errors.As(err, &failure) || !strings.Contains(failure.Details, member) {
			t.Errorf("%s: %v", member, err)
		}
	}
}

func TestErrorsOfACheckpoint(t *testing.T) {
	directory := writeModel(t, t.TempDir(), 1)
	model := openModel(t, directory)
	for reason, c := range map[string]struct {
		layer  int64
		status moe.Status
	}{"past_the_end": {modelLayers, moe.ErrInvalidArgument}, "dense_layer": {modelDense, moe.ErrInvalidConfig}} {
		_, err := model.Config(c.layer, "")
		_, err2 := model.Layer(nil, c.layer)
		for _, err := range []error{err, err2} {
			expectError(t, err, c.status, "layer")
			var failure *moe.Error
			if !errors.As(err, &failure) || !strings.Contains(failure.Details, `"reason":"`+reason+`"`) || errors.Unwrap(err) != nil {
				t.Errorf("%s: %v", reason, err)
			}
		}
	}
	if info, err := model.LayerInfo(-1); !errors.Is(err, moe.ErrInvalidArgument) || info != (moe.LayerInfo{}) {
		t.Errorf("layer -1: %+v, error %v", info, err)
	}
	if _, err := model.Tensor("no.such"); !errors.Is(err, moe.ErrMissingWeight) {
		t.Errorf("no such tensor: %v", err)
	}
	_, err := model.Tensor("a\x00b")
	expectError(t, err, moe.ErrInvalidArgument, "name")
	expectError(t, model.Convert(nil, "a\x00b"), moe.ErrInvalidArgument, "directory")
	_, err = moe.OpenCheckpoint(nil, "a\x00b")
	expectError(t, err, moe.ErrInvalidArgument, "directory")
	if _, err := model.Config(0, "{"); !errors.Is(err, moe.ErrInvalidConfig) {
		t.Errorf("half a patch: %v", err)
	}
	expectError(t, model.ConvertWith(nil, t.TempDir(), moe.CheckpointConvertOptions{Layers: []int64{0, 0}}), moe.ErrInvalidArgument, "layers")
	expectError(t, model.ConvertWith(nil, t.TempDir(), moe.CheckpointConvertOptions{Layers: []int64{}}), moe.ErrInvalidArgument, "num_layers")

	// A layer that is not understood is not silent.
	name := filepath.Join(directory, "config.json")
	text, err := os.ReadFile(name)
	check(t, err)
	check(t, os.WriteFile(name, bytes.Replace(text, []byte(`"silu"`), []byte(`"none such"`), 1), 0o600))
	strange := openModel(t, directory)
	if info, err := strange.LayerInfo(0); err != nil || info.Kind != moe.LayerOther || info.Problem == "" {
		t.Errorf("%+v, error %v", info, err)
	}
	_, err = strange.ExpertLayers(nil)
	var failure *moe.Error
	if !errors.As(err, &failure) || !strings.Contains(failure.Details, `"reason":"not_understood"`) {
		t.Errorf("a layer that is not understood: %v", err)
	}
}

func TestMissingFilesAreErrorsOfTheSystem(t *testing.T) {
	p := newParts(t)
	folder := t.TempDir()
	_, open := moe.OpenCheckpoint(nil, filepath.Join(folder, "none"))
	_, load := moe.LoadPacked(nil, filepath.Join(folder, "none.moe"), moe.LoadOptions{})
	for what, err := range map[string]error{"open": open, "load": load, "convert": p.model.Convert(nil, filepath.Join(folder, "none", "below")),
		"safetensors": p.weights.LoadSafetensors(filepath.Join(folder, "none"))} {
		var number syscall.Errno
		if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, moe.ErrIO) || errors.Is(err, fs.ErrPermission) || !errors.As(err, &number) ||
			number != syscall.ENOENT {
			t.Errorf("%s: %v", what, err)
		}
	}
	if errors.Is(p.model.Convert(nil, ""), fs.ErrNotExist) {
		t.Error("an argument is no missing file")
	}
	if os.Geteuid() == 0 {
		return // nothing is forbidden
	}
	secret := filepath.Join(folder, "secret.moe")
	check(t, os.WriteFile(secret, []byte("x"), 0))
	if _, err := moe.LoadPacked(nil, secret, moe.LoadOptions{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a file that may not be read: %v", err)
	}
}

func TestTheWholeStateIsTold(t *testing.T) {
	before := raw.Registered()
	model := openModel(t, writeModel(t, t.TempDir(), 1))
	var control *moe.Control
	var states []moe.Progress
	control, err := moe.NewControl(func(done, total uint64) error {
		now, err := control.State()
		if now.Done != done || now.Total != total {
			t.Errorf("%d of %d, the state says %+v", done, total, now)
		}
		states = append(states, now)
		return err
	})
	check(t, err)
	check(t, model.ConvertWith(nil, filepath.Join(t.TempDir(), "target"), moe.CheckpointConvertOptions{Control: control}))
	seen, last := map[string]bool{}, moe.Progress{}
	for _, now := range states {
		if now.BytesDone < last.BytesDone || now.BytesDone > now.BytesTotal || now.LayersTotal != modelLayers-1 || now.LayersDone < last.LayersDone {
			t.Errorf("%+v after %+v", now, last)
		}
		seen[now.Phase.String()+" "+now.Unit.String()], last = true, now
	}
	if !seen["hash bytes"] || !seen["convert experts"] || !seen["save bytes"] {
		t.Errorf("seen: %v", seen)
	}
	if now, err := control.State(); err != nil || now.LayersDone != modelLayers-1 || now.BytesDone != now.BytesTotal || now.BytesTotal == 0 {
		t.Errorf("at the end %+v, error %v", now, err)
	}
	check(t, control.Close())

	quiet, err := moe.NewControl(nil)
	check(t, err)
	phase := func(want moe.Phase, layer int64) {
		t.Helper()
		if now, err := quiet.State(); err != nil || now.Phase != want || now.Layer != layer {
			t.Errorf("found %+v, expected %s of layer %d, error %v", now, want, layer, err)
		}
	}
	phase(moe.PhaseNone, -1)
	layer, err := model.LayerWith(nil, 2, moe.CheckpointLayerOptions{Load: moe.LoadOptions{Control: quiet}})
	phase(moe.PhaseConvert, 2)
	applied(t, layer, err)
	_, err = model.Fingerprint(nil, true, quiet)
	check(t, err)
	phase(moe.PhaseHash, -1)
	check(t, quiet.Cancel())
	_, err = model.Fingerprint(nil, true, quiet)
	expectError(t, err, moe.ErrCancelled, "control")
	check(t, quiet.Close())
	if moe.Phase(99).String() != "none" || moe.Unit(-1).String() != "none" {
		t.Error("words for numbers that are not known")
	}
	nothingKept(t, before)
}

func TestAFailureLeavesWholeLayers(t *testing.T) {
	directory, target := writeModel(t, t.TempDir(), 1), filepath.Join(t.TempDir(), "target")
	model := openModel(t, directory)
	for how, stop := range stops {
		var control *moe.Control
		control, err := moe.NewControl(func(done, total uint64) error {
			if now, err := control.State(); err != nil || now.Layer == 2 && now.Phase == moe.PhaseSave {
				return stop.run()
			}
			return nil
		})
		check(t, err)
		err = model.ConvertWith(nil, target, moe.CheckpointConvertOptions{Control: control})
		status := moe.ErrCallback
		if how == "context" {
			status = moe.ErrCancelled
		}
		if !errors.Is(err, status) || !strings.Contains(err.Error(), stop.text) {
			t.Errorf("%s: %v", how, err)
		}
		check(t, control.Close())
		folder := openModel(t, target)
		layer, err := folder.Layer(nil, 0)
		if !bytes.Equal(applied(t, layer, err), aloneLayer(t, directory, 0)) {
			t.Errorf("%s: another result", how)
		}
		if info, err := folder.LayerInfo(2); err != nil || info.IsConverted {
			t.Errorf("%s: %+v, error %v", how, info, err)
		}
	}
	check(t, model.Convert(nil, target))
	openModel(t, target)
}

// The program of the README is cmd/model.
func TestTheProgramOfTheReadmeRuns(t *testing.T) {
	program, err := os.ReadFile("../cmd/model/main.go")
	check(t, err)
	readme, err := os.ReadFile("../README.md")
	check(t, err)
	if !strings.Contains(string(readme), "```go\n"+string(program)+"```\n") {
		t.Error("README.md and cmd/model/main.go differ")
	}
	if os.Getenv("MOE_LAUNCHER") != "" {
		t.Skip("a launcher is for programs that load libmoe, and not for the go command")
	}
	built := filepath.Join(t.TempDir(), "model")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", built, "../cmd/model")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	directory, target := writeModel(t, t.TempDir(), 1), filepath.Join(t.TempDir(), "target")
	check(t, openModel(t, directory).Convert(nil, target))
	first, err := exec.Command(built, directory).Output()
	if err != nil || strings.Count(string(first), "3 layers computed") != 3 {
		t.Errorf("%s, error %v", first, err)
	}
	if second, err := exec.Command(built, target).Output(); err != nil || !bytes.Equal(second, first) {
		t.Errorf("of the converted folder %s, error %v", second, err)
	}
	missing, err := exec.Command(built, filepath.Join(target, "none")).CombinedOutput()
	if err == nil || !strings.Contains(string(missing), "MOE_ERR_IO") {
		t.Errorf("of no folder %s, error %v", missing, err)
	}
}
