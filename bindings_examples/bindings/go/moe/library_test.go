package moe_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"libmoe.example/go/internal/raw"
	"libmoe.example/go/moe"
)

func TestTheLoadedLibrary(t *testing.T) {
	check(t, moe.Load(""))
	l, err := moe.Loaded()
	if err != nil || !strings.Contains(l.Path, "libmoe") || !strings.HasPrefix(l.Version, raw.Version) || l.Number < 1000 || l.ABI != raw.ABI {
		t.Errorf("%+v, error %v", l, err)
	}
	if err := moe.Load("/nowhere/libmoe.so.0"); err == nil || !strings.Contains(err.Error(), "/nowhere/libmoe.so.0") {
		t.Errorf("a second library: %v", err)
	}
	for what, f := range map[string]func() (string, error){"info": moe.BuildInfo, "schema": moe.ConfigSchema, "abi": moe.ABIDescription} {
		if text, err := f(); err != nil || !json.Valid([]byte(text)) || len(text) < 100 {
			t.Errorf("%s: %q, error %v", what, text, err)
		}
	}
	yes, err := moe.HasFeature("io.mmap")
	no, err2 := moe.HasFeature("io.nothing")
	if err != nil || err2 != nil || !yes || no {
		t.Errorf("io.mmap %t, io.nothing %t, errors %v, %v", yes, no, err, err2)
	}
}

func TestWords(t *testing.T) {
	if moe.BF16.String() != "bf16" || moe.DTypeFromName("torch.bfloat16") != moe.BF16 || moe.DTypeFromName("no\x00ne") != moe.InvalidDType {
		t.Error("element types")
	}
	if moe.BF16.Bytes(3, 5) != 30 || moe.I4.Bytes(3, 5) != 9 || moe.F32.Bytes(1<<62, 2) != -1 || moe.F32.Bytes(1, 1, 1, 1, 1, 1, 1) != -1 {
		t.Error("sizes of tensors")
	}
	if moe.ErrShape.String() != "MOE_ERR_SHAPE" || moe.Status(1234).Error() != "MOE_ERR_UNKNOWN" || moe.RejectISA.String() != "MOE_REJECT_ISA" {
		t.Error("names")
	}
	for _, c := range []struct {
		tensor moe.Tensor
		dtype  moe.DType
	}{{moe.TensorOf([]float32{1}), moe.F32}, {moe.TensorOf([]float64{1}), moe.F64}, {moe.TensorOf([]int8{1}), moe.I8},
		{moe.TensorOf([]uint8{1}), moe.U8}, {moe.TensorOf([]int16{1}), moe.I16}, {moe.TensorOf([]uint16{1}), moe.U16},
		{moe.TensorOf([]int32{1}), moe.I32}, {moe.TensorOf([]uint32{1}), moe.U32}, {moe.TensorOf([]int64{1}), moe.I64},
		{moe.TensorOf([]uint64{1}), moe.U64}, {moe.TensorOf([]uint16{1}).As(moe.BF16), moe.BF16}} {
		if c.tensor.DType != c.dtype || int64(len(c.tensor.Data)) != c.dtype.Bytes(1) {
			t.Errorf("%s of %d bytes, expected %s", c.tensor.DType, len(c.tensor.Data), c.dtype)
		}
	}
}

func TestConfigsAndPlatforms(t *testing.T) {
	p := newParts(t)
	n, err := p.config.Int("/num_experts")
	if err != nil || n != 4 {
		t.Errorf("%d experts, error %v", n, err)
	}
	if f, err := p.config.Float("/routing/routed_scaling_factor"); err != nil || f != 1 {
		t.Errorf("factor %v, error %v", f, err)
	}
	if s, err := p.config.Text("/in_dtype"); err != nil || s == "" {
		t.Errorf("type %q, error %v", s, err)
	}
	if _, err := p.config.Int("/nothing"); err == nil {
		t.Error("no error for a member that is not there")
	}
	_, err = p.config.Text("/in\x00dtype")
	expectError(t, err, moe.ErrInvalidArgument, "pointer")
	merged, err := p.config.Merge(`{"top_k":1}`)
	if must(t, merged, err).K != 1 || p.config.K != 2 {
		t.Errorf("top_k %d of %d", merged.K, p.config.K)
	}
	text, err := merged.JSON()
	if err != nil || !strings.Contains(text, `"top_k":1`) {
		t.Errorf("%s, error %v", text, err)
	}
	if _, err = p.config.Merge(`{"top_k":99}`); err == nil {
		t.Error("no error for 99 of 4 experts")
	}

	text, err = p.platform.JSON()
	check(t, err)
	again, err := moe.NewPlatform(text)
	check(t, err)
	again.Close()
	old, err := moe.NewPlatform(`{"type":"cpu","arch":"x86_64","features":["avx2","fma","f16c"]}`)
	check(t, err)
	yes, _ := old.Has("avx2")
	no, err := old.Has("avx512_vnni")
	if err != nil || !yes || no {
		t.Errorf("avx2 %t, avx512_vnni %t, error %v", yes, no, err)
	}
	selection, err := moe.SelectWith(nil, p.config, moe.SelectOptions{Platform: old})
	if must(t, selection, err); !strings.HasSuffix(selection.Kernel(), "_avx2") {
		t.Errorf("%s for a machine with AVX2", selection.Kernel())
	}
	candidates, err := selection.Candidates()
	chosen := 0
	for _, c := range candidates {
		if c.Chosen {
			chosen++
			if c.Kernel != selection.Kernel() || c.Backend != selection.Backend() || c.Reason != moe.RejectNone {
				t.Errorf("chosen: %+v", c)
			}
		}
		if c.Reason != moe.RejectNone && c.Details == "" {
			t.Errorf("refused without a word: %+v", c)
		}
	}
	if err != nil || len(candidates) < 3 || chosen != 1 {
		t.Errorf("%d candidates, %d chosen, error %v", len(candidates), chosen, err)
	}
	text, err = selection.JSON()
	if err != nil || !strings.Contains(text, selection.Kernel()) {
		t.Errorf("%s, error %v", text, err)
	}
	stuck, err := moe.NewConfig(`{"num_experts":8,"top_k":2,"hidden_dim":256,"intermediate_size":256,"moe_backend":"triton"}`)
	check(t, err)
	_, err = moe.Select(nil, stuck)
	if status := moe.ErrNoBackend; err == nil || !strings.Contains(err.Error(), status.String()) {
		t.Errorf("triton on a CPU: %v", err)
	}
	explained, err := moe.SelectWith(nil, stuck, moe.SelectOptions{ExplainOnly: true})
	if must(t, explained, err); explained.Backend() != "" {
		t.Errorf("triton on a CPU runs by %s", explained.Backend())
	}
	if fallback, err := moe.SelectWith(nil, stuck, moe.SelectOptions{AllowFallback: true}); err != nil || fallback.Backend() == "" {
		t.Errorf("another backend than triton: %v", err)
	}
	text, err = p.context.JSON()
	if err != nil || !strings.Contains(text, "threads") {
		t.Errorf("%s, error %v", text, err)
	}
}

func TestDescribe(t *testing.T) {
	text, err := moe.Describe("activation", `{"activation":"silu"}`)
	if err != nil || !json.Valid([]byte(text)) {
		t.Errorf("%q, error %v", text, err)
	}
	if _, err = moe.Describe("nothing", "{}"); err == nil {
		t.Error("no error for an unknown topic")
	}
	_, err = moe.Describe("acti\x00vation", "{}")
	expectError(t, err, moe.ErrInvalidArgument, "topic")
}

// Every function that the loaded library describes has a place in the table, and every one is called by this package.
func TestEveryFunctionIsThere(t *testing.T) {
	text, err := moe.ABIDescription()
	check(t, err)
	var description struct{ Functions []struct{ Name string } }
	check(t, json.Unmarshal([]byte(text), &description))
	members := map[string]string{} // by the name without case and underscores
	table := reflect.TypeOf(raw.Table{})
	for i := 0; i < table.NumField(); i++ {
		members["moe"+strings.ToLower(table.Field(i).Name)] = table.Field(i).Name
	}
	used := map[string]bool{}
	files, err := filepath.Glob("*.go")
	check(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		check(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok {
				if on, ok := selector.X.(*ast.Ident); ok && (on.Name == "c" || on.Name == "l") {
					used[selector.Sel.Name] = true
				}
			}
			return true
		})
	}
	if len(description.Functions) < 80 || table.NumField() < len(description.Functions) {
		t.Errorf("%d functions described, %d in the table", len(description.Functions), table.NumField())
	}
	for _, f := range description.Functions {
		member := members[strings.ReplaceAll(f.Name, "_", "")]
		if member == "" {
			t.Errorf("%s has no place in the table: go generate ./...", f.Name)
		} else if strings.HasPrefix(f.Name, "moe_comm_") || strings.HasPrefix(f.Name, "moe_dist_") {
			continue // ranks have no types in this package yet: internal/raw calls them
		} else if !used[member] {
			t.Errorf("%s: no function of this package calls %s", f.Name, member)
		}
	}
}
