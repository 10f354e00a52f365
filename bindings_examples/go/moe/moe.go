// Package moe is libmoe for Go through cgo: Mixture-of-Experts layers on the CPU.
//
//	config, err := moe.ConfigFromHF(text, "{}")
//	selection, err := moe.Select(context, config)
//	weights, err := moe.NewWeights(config)
//	err = weights.LoadSafetensors(directory)
//	packed, err := moe.Convert(context, selection, weights)
//	layer, err := moe.NewLayer(context, selection, packed)
//	err = layer.Apply(tokens, dtype, hidden, logits, out)
//
// Close ends an object; in any order, for the library keeps what it needs. A finalizer does it for
// objects that were forgotten. A nil *Context means one thread. Errors are *Error values that
// belong to the call, not to a thread, so nothing here locks a goroutine to one.
package moe

// #cgo pkg-config: libmoe
// #include <moe/moe.h>
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Error is a failed call: nothing was changed by it.
type Error struct {
	Status  int32
	Name    string // "MOE_ERR_SHAPE"
	Subject string // where: a JSON pointer, a role, a path
	Message string
	Details string // everything a program may want, as JSON
}

func (e *Error) Error() string { return fmt.Sprintf("%s at '%s': %s", e.Name, e.Subject, e.Message) }

// check takes the address of the error: Go may read a plain variable before the call that sets it.
func check(status C.moe_status, err **C.moe_error) error {
	if status == C.MOE_OK {
		return nil
	}
	defer C.moe_error_destroy(*err)
	return &Error{int32(status), C.GoString(C.moe_status_name(status)), C.GoString(C.moe_error_subject(*err)),
		C.GoString(C.moe_error_message(*err)), C.GoString(C.moe_error_details_json(*err))}
}

func invalid(subject, format string, values ...interface{}) error {
	return &Error{C.MOE_ERR_SHAPE, "MOE_ERR_SHAPE", subject, fmt.Sprintf(format, values...), "{}"}
}

// text is a C copy of a Go string and its length; free it with C.free.
func text(s string) (unsafe.Pointer, C.size_t) { return unsafe.Pointer(C.CString(s)), C.size_t(len(s)) }

// DType is an element type by its number.
type DType int32

// F32 is what router logits are in Apply.
const F32 DType = C.MOE_DTYPE_F32

// DTypeFromName knows "bf16", "bfloat16", "torch.bfloat16", "BF16"; 0 for unknown words.
func DTypeFromName(name string) DType {
	s, _ := text(name)
	defer C.free(s)
	return DType(C.moe_dtype_from_name((*C.char)(s)))
}

// Bytes of a row-major tensor of this type.
func (d DType) Bytes(shape ...int64) int64 {
	return int64(C.moe_tensor_nbytes(C.moe_dtype(d), C.int32_t(len(shape)), (*C.int64_t)(unsafe.Pointer(&shape[0]))))
}

// Context lends threads, memory and a log to the calls that get it.
type Context struct{ handle *C.moe_context }

// NewContext takes JSON options; "{}" gives all CPUs of this process.
func NewContext(options string) (*Context, error) {
	json, size := text(options)
	defer C.free(json)
	c, err := new(Context), (*C.moe_error)(nil)
	if e := check(C.moe_context_create((*C.char)(json), size, nil, &c.handle, &err), &err); e != nil {
		return nil, e
	}
	runtime.SetFinalizer(c, (*Context).Close)
	return c, nil
}

func (c *Context) raw() *C.moe_context {
	if c == nil {
		return nil
	}
	return c.handle
}

// Close ends the context; layers made with it go on working.
func (c *Context) Close() { C.moe_context_destroy(c.handle); c.handle = nil }

// Config is the checked description of one layer.
type Config struct {
	handle             *C.moe_config
	Hidden, Experts, K int64
	InDType, OutDType  DType
}

// ConfigFromHF reads the text of a model's config.json; options such as {"layer_index":3}.
func ConfigFromHF(hf, options string) (*Config, error) {
	json, size := text(hf)
	defer C.free(json)
	extra, extraSize := text(options)
	defer C.free(extra)
	c, err := new(Config), (*C.moe_error)(nil)
	if e := check(C.moe_config_create_from_hf((*C.char)(json), size, (*C.char)(extra), extraSize, &c.handle, &err), &err); e != nil {
		return nil, e
	}
	runtime.SetFinalizer(c, (*Config).Close)
	for pointer, value := range map[string]*int64{"/hidden_dim": &c.Hidden, "/num_experts": &c.Experts, "/top_k": &c.K} {
		name, _ := text(pointer)
		defer C.free(name)
		if e := check(C.moe_config_get_int(c.handle, (*C.char)(name), (*C.int64_t)(value), &err), &err); e != nil {
			return nil, e
		}
	}
	for pointer, value := range map[string]*DType{"/in_dtype": &c.InDType, "/out_dtype": &c.OutDType} {
		name, _ := text(pointer)
		defer C.free(name)
		var word *C.char
		if e := check(C.moe_config_get_string(c.handle, (*C.char)(name), &word, &err), &err); e != nil {
			return nil, e
		}
		*value = DType(C.moe_dtype_from_name(word))
	}
	return c, nil
}

// Close ends the config.
func (c *Config) Close() { C.moe_config_destroy(c.handle); c.handle = nil }

// Selection is the backend and kernel for a config on this machine.
type Selection struct {
	handle *C.moe_selection
	config *Config
}

// Select asks all candidates; when nobody accepts, the error's details list every reason.
func Select(context *Context, config *Config) (*Selection, error) {
	s, err := &Selection{config: config}, (*C.moe_error)(nil)
	e := check(C.moe_select_backend(context.raw(), config.handle, nil, 0, &s.handle, &err), &err)
	runtime.KeepAlive(context)
	if e != nil {
		return nil, e
	}
	runtime.SetFinalizer(s, (*Selection).Close)
	return s, nil
}

// Backend, Kernel and Layout name the winner.
func (s *Selection) Backend() string { return C.GoString(C.moe_selection_backend(s.handle)) }
func (s *Selection) Kernel() string  { return C.GoString(C.moe_selection_kernel(s.handle)) }
func (s *Selection) Layout() string  { return C.GoString(C.moe_selection_layout(s.handle)) }

// Close ends the selection.
func (s *Selection) Close() { C.moe_selection_destroy(s.handle); s.handle = nil }

// Weights are the source tensors of one layer; one goroutine at a time.
type Weights struct{ handle *C.moe_weights }

// NewWeights makes an empty set.
func NewWeights(config *Config) (*Weights, error) {
	w, err := new(Weights), (*C.moe_error)(nil)
	if e := check(C.moe_weights_create(config.handle, &w.handle, &err), &err); e != nil {
		return nil, e
	}
	runtime.KeepAlive(config)
	runtime.SetFinalizer(w, (*Weights).Close)
	return w, nil
}

// LoadSafetensors finds the layer in a file, a model.safetensors.index.json or a directory.
func (w *Weights) LoadSafetensors(path string) error {
	name, _ := text(path)
	defer C.free(name)
	var err *C.moe_error
	defer runtime.KeepAlive(w)
	return check(C.moe_weights_load_safetensors(w.handle, (*C.char)(name), nil, &err), &err)
}

// Close ends the set.
func (w *Weights) Close() { C.moe_weights_destroy(w.handle); w.handle = nil }

// Packed are converted weights: immutable, shared by any number of layers.
type Packed struct{ handle *C.moe_packed }

// Convert repacks the weights into the layout of the selection.
func Convert(context *Context, selection *Selection, weights *Weights) (*Packed, error) {
	p, err := new(Packed), (*C.moe_error)(nil)
	e := check(C.moe_convert_weights(context.raw(), selection.handle, weights.handle, nil, &p.handle, &err), &err)
	runtime.KeepAlive(context)
	runtime.KeepAlive(selection)
	runtime.KeepAlive(weights)
	if e != nil {
		return nil, e
	}
	runtime.SetFinalizer(p, (*Packed).Close)
	return p, nil
}

// Close ends the packed weights; layers made of them go on working.
func (p *Packed) Close() { C.moe_packed_destroy(p.handle); p.handle = nil }

// Layer is ready to run; any number of goroutines may call Apply at once.
type Layer struct {
	handle *C.moe_layer
	config *Config
}

// NewLayer binds converted weights to a kernel.
func NewLayer(context *Context, selection *Selection, packed *Packed) (*Layer, error) {
	l, err := &Layer{config: selection.config}, (*C.moe_error)(nil)
	e := check(C.moe_layer_create(context.raw(), selection.handle, packed.handle, nil, &l.handle, &err), &err)
	runtime.KeepAlive(context)
	runtime.KeepAlive(selection)
	runtime.KeepAlive(packed)
	if e != nil {
		return nil, e
	}
	runtime.SetFinalizer(l, (*Layer).Close)
	return l, nil
}

// Close ends the layer.
func (l *Layer) Close() { C.moe_layer_destroy(l.handle); l.handle = nil }

// Apply computes out [T, H] from hidden [T, H], both bytes of the config's dtypes, and router
// logits [T, E]. The slices go to C as they are; cgo keeps them in place for the call.
func (l *Layer) Apply(tokens int64, hidden []byte, logits []float32, out []byte) error {
	c := l.config
	if want := c.InDType.Bytes(tokens, c.Hidden); int64(len(hidden)) != want {
		return invalid("hidden", "%d bytes, %d tokens take %d", len(hidden), tokens, want)
	}
	if want := tokens * c.Experts; int64(len(logits)) != want {
		return invalid("router_logits", "%d numbers, %d tokens take %d", len(logits), tokens, want)
	}
	if want := c.OutDType.Bytes(tokens, c.Hidden); int64(len(out)) != want {
		return invalid("out", "%d bytes, %d tokens take %d", len(out), tokens, want)
	}
	if tokens == 0 {
		return nil
	}
	var err *C.moe_error
	defer runtime.KeepAlive(l)
	return check(C.moe_apply_flat(l.handle, C.int64_t(tokens), C.moe_dtype(c.InDType), unsafe.Pointer(&hidden[0]),
		C.moe_dtype(F32), unsafe.Pointer(&logits[0]), nil, nil, C.moe_dtype(c.OutDType), unsafe.Pointer(&out[0]), &err), &err)
}
