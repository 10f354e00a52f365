// Package moe is libmoe for Go through cgo: Mixture-of-Experts layers on the CPU.
//
//	config, err := moe.ConfigFromHF(text, "{}")
//	selection, err := moe.Select(context, config)
//	weights, err := moe.NewWeights(config)
//	err = weights.LoadSafetensors(directory)
//	packed, err := moe.Convert(context, selection, weights)
//	layer, err := moe.NewLayer(context, selection, packed)
//	err = layer.Apply(tokens, hidden, logits, out)
//
// Close ends an object; in any order, for the library keeps what it needs. It waits for the calls
// that use the object in other goroutines; a later call with the object is MOE_ERR_INVALID_HANDLE, a
// second Close does nothing, also on nil. A finalizer does it for objects that were forgotten. A nil
// *Context means one thread. Errors are *Error values that belong to the call, not to a thread, so
// nothing here locks a goroutine to one.
package moe

// #cgo pkg-config: libmoe
// #include <moe/moe.h>
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
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

// try makes a call whose last parameter is the error. `using` stay open meanwhile; h has their
// handles, the library's NULL for nil.
func try(call func(h []unsafe.Pointer, err **C.moe_error) C.moe_status, using ...*object) error {
	h := make([]unsafe.Pointer, len(using))
	for i, o := range using {
		if o == nil {
			continue
		}
		o.calls.RLock()
		defer o.calls.RUnlock() // also the last use of o: no finalizer runs before
		if h[i] = o.handle; h[i] == nil {
			return refused(C.MOE_ERR_INVALID_HANDLE, o.kind, "this %s is closed", o.kind)
		}
	}
	var err *C.moe_error
	status := call(h, &err)
	if status == C.MOE_OK {
		return nil
	}
	defer C.moe_error_destroy(err)
	return &Error{int32(status), C.GoString(C.moe_status_name(status)), C.GoString(C.moe_error_subject(err)),
		C.GoString(C.moe_error_message(err)), C.GoString(C.moe_error_details_json(err))}
}

// refused is the error of a call that does not reach the library.
func refused(status C.moe_status, subject, format string, values ...interface{}) error {
	name := C.GoString(C.moe_status_name(status))
	return &Error{int32(status), name, subject, fmt.Sprintf(format, values...), "{}"}
}

// object owns one handle. A call holds `calls` for reading, any number at a time, and Close for
// writing. Calls take their objects in one order of kinds, so that none waits for another in a circle.
type object struct {
	kind    string // "layer"
	calls   sync.RWMutex
	handle  unsafe.Pointer // nil: closed
	destroy func(unsafe.Pointer)
}

func (o *object) base() *object { return o }

func (o *object) close() {
	if o == nil {
		return
	}
	o.calls.Lock()
	defer o.calls.Unlock()
	if o.handle != nil {
		o.destroy(o.handle)
		o.handle = nil
	}
}

// of is the object behind a pointer to one of the types below, nil for nil.
func of[T any, P interface {
	*T
	base() *object
}](owner P) *object {
	if owner == nil {
		return nil
	}
	return owner.base()
}

// create makes an object from a call with one owned result.
func create(kind string, destroy func(unsafe.Pointer),
	call func(h []unsafe.Pointer, out unsafe.Pointer, err **C.moe_error) C.moe_status,
	using ...*object) (*object, error) {
	o, out := &object{kind: kind, destroy: destroy}, new(unsafe.Pointer)
	if e := try(func(h []unsafe.Pointer, err **C.moe_error) C.moe_status {
		return call(h, unsafe.Pointer(out), err)
	}, using...); e != nil {
		return nil, e
	}
	o.handle = *out
	runtime.SetFinalizer(o, (*object).close)
	return o, nil
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
type Context struct{ *object }

// NewContext takes JSON options; "{}" gives all CPUs of this process.
func NewContext(options string) (*Context, error) {
	json, size := text(options)
	defer C.free(json)
	o, err := create("context", func(h unsafe.Pointer) { C.moe_context_destroy((*C.moe_context)(h)) },
		func(_ []unsafe.Pointer, out unsafe.Pointer, err **C.moe_error) C.moe_status {
			return C.moe_context_create((*C.char)(json), size, nil, (**C.moe_context)(out), err)
		})
	if err != nil {
		return nil, err
	}
	return &Context{o}, nil
}

// Close ends the context; layers made with it go on working.
func (c *Context) Close() { of(c).close() }

// Numbers of a config, as buffers need them.
type Numbers struct {
	Hidden, Experts, K int64
	InDType, OutDType  DType
	columns            int64 // of router logits: Experts and zero experts
}

// Config is the checked description of one layer.
type Config struct {
	*object
	Numbers
	read Numbers // the same from the library: Apply measures by these, whatever is done to the others
}

// ConfigFromHF reads the text of a model's config.json; options such as {"layer_index":3}.
func ConfigFromHF(hf, options string) (*Config, error) {
	json, size := text(hf)
	defer C.free(json)
	extra, extraSize := text(options)
	defer C.free(extra)
	o, err := create("config", func(h unsafe.Pointer) { C.moe_config_destroy((*C.moe_config)(h)) },
		func(_ []unsafe.Pointer, out unsafe.Pointer, err **C.moe_error) C.moe_status {
			return C.moe_config_create_from_hf((*C.char)(json), size, (*C.char)(extra), extraSize, (**C.moe_config)(out), err)
		})
	if err != nil {
		return nil, err
	}
	n, err := numbersOf(o)
	if err != nil {
		return nil, err
	}
	return &Config{o, n, n}, nil
}

func numbersOf(config *object) (n Numbers, err error) {
	for pointer, value := range map[string]*int64{"/hidden_dim": &n.Hidden, "/num_experts": &n.Experts, "/top_k": &n.K,
		"/routing/num_zero_experts": &n.columns} {
		name, _ := text(pointer)
		defer C.free(name)
		if err := try(func(h []unsafe.Pointer, err **C.moe_error) C.moe_status {
			return C.moe_config_get_int((*C.moe_config)(h[0]), (*C.char)(name), (*C.int64_t)(value), err)
		}, config); err != nil {
			return n, err
		}
	}
	n.columns += n.Experts
	for pointer, value := range map[string]*DType{"/in_dtype": &n.InDType, "/out_dtype": &n.OutDType} {
		name, _ := text(pointer)
		defer C.free(name)
		if err := try(func(h []unsafe.Pointer, err **C.moe_error) C.moe_status {
			var word *C.char
			status := C.moe_config_get_string((*C.moe_config)(h[0]), (*C.char)(name), &word, err)
			*value = DType(C.moe_dtype_from_name(word))
			return status
		}, config); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close ends the config.
func (c *Config) Close() { of(c).close() }

// Selection is the backend and kernel for a config on this machine.
type Selection struct {
	*object
	numbers                 Numbers
	backend, kernel, layout string
}

// Select asks all candidates; when nobody accepts, the error's details list every reason.
func Select(context *Context, config *Config) (*Selection, error) {
	s := new(Selection)
	o, err := create("selection", func(h unsafe.Pointer) { C.moe_selection_destroy((*C.moe_selection)(h)) },
		func(h []unsafe.Pointer, out unsafe.Pointer, err **C.moe_error) C.moe_status {
			made := (**C.moe_selection)(out)
			status := C.moe_select_backend((*C.moe_context)(h[0]), (*C.moe_config)(h[1]), nil, 0, made, err)
			s.backend = C.GoString(C.moe_selection_backend(*made))
			s.kernel = C.GoString(C.moe_selection_kernel(*made))
			s.layout = C.GoString(C.moe_selection_layout(*made))
			return status
		}, of(context), of(config))
	if err != nil {
		return nil, err
	}
	s.object, s.numbers = o, config.read
	return s, nil
}

// Backend, Kernel and Layout name the winner, also after Close.
func (s *Selection) Backend() string { return s.backend }
func (s *Selection) Kernel() string  { return s.kernel }
func (s *Selection) Layout() string  { return s.layout }

// Close ends the selection.
func (s *Selection) Close() { of(s).close() }

// Weights are the source tensors of one layer; one goroutine at a time, else MOE_ERR_BUSY.
type Weights struct{ *object }

// NewWeights makes an empty set.
func NewWeights(config *Config) (*Weights, error) {
	o, err := create("weights", func(h unsafe.Pointer) { C.moe_weights_destroy((*C.moe_weights)(h)) },
		func(h []unsafe.Pointer, out unsafe.Pointer, err **C.moe_error) C.moe_status {
			return C.moe_weights_create((*C.moe_config)(h[0]), (**C.moe_weights)(out), err)
		}, of(config))
	if err != nil {
		return nil, err
	}
	return &Weights{o}, nil
}

// LoadSafetensors finds the layer in a file, a model.safetensors.index.json or a directory.
func (w *Weights) LoadSafetensors(path string) error {
	if strings.IndexByte(path, 0) >= 0 {
		return refused(C.MOE_ERR_INVALID_ARGUMENT, "path", "%q has a NUL character inside", path)
	}
	name, _ := text(path)
	defer C.free(name)
	return try(func(h []unsafe.Pointer, err **C.moe_error) C.moe_status {
		return C.moe_weights_load_safetensors((*C.moe_weights)(h[0]), (*C.char)(name), nil, err)
	}, of(w))
}

// Close ends the set.
func (w *Weights) Close() { of(w).close() }

// Packed are converted weights: immutable, shared by any number of layers.
type Packed struct{ *object }

// Convert repacks the weights into the layout of the selection.
func Convert(context *Context, selection *Selection, weights *Weights) (*Packed, error) {
	o, err := create("packed", func(h unsafe.Pointer) { C.moe_packed_destroy((*C.moe_packed)(h)) },
		func(h []unsafe.Pointer, out unsafe.Pointer, err **C.moe_error) C.moe_status {
			return C.moe_convert_weights((*C.moe_context)(h[0]), (*C.moe_selection)(h[1]), (*C.moe_weights)(h[2]), nil,
				(**C.moe_packed)(out), err)
		}, of(context), of(selection), of(weights))
	if err != nil {
		return nil, err
	}
	return &Packed{o}, nil
}

// Close ends the packed weights; layers made of them go on working.
func (p *Packed) Close() { of(p).close() }

// Layer is ready to run; any number of goroutines may call Apply at once.
type Layer struct {
	*object
	numbers Numbers
}

// NewLayer binds converted weights to a kernel.
func NewLayer(context *Context, selection *Selection, packed *Packed) (*Layer, error) {
	o, err := create("layer", func(h unsafe.Pointer) { C.moe_layer_destroy((*C.moe_layer)(h)) },
		func(h []unsafe.Pointer, out unsafe.Pointer, err **C.moe_error) C.moe_status {
			return C.moe_layer_create((*C.moe_context)(h[0]), (*C.moe_selection)(h[1]), (*C.moe_packed)(h[2]), nil,
				(**C.moe_layer)(out), err)
		}, of(context), of(selection), of(packed))
	if err != nil {
		return nil, err
	}
	return &Layer{o, selection.numbers}, nil
}

// Close ends the layer once no goroutine is in Apply.
func (l *Layer) Close() { of(l).close() }

// Apply computes out [T, H] from hidden [T, H], both bytes of the config's dtypes, and router
// logits [T, E]. The slices go to C as they are; cgo keeps them in place for the call.
func (l *Layer) Apply(tokens int64, hidden []byte, logits []float32, out []byte) error {
	n := l.numbers
	if want := n.InDType.Bytes(tokens, n.Hidden); int64(len(hidden)) != want {
		return refused(C.MOE_ERR_SHAPE, "hidden", "%d bytes, %d tokens take %d", len(hidden), tokens, want)
	}
	if want := tokens * n.columns; int64(len(logits)) != want {
		return refused(C.MOE_ERR_SHAPE, "router_logits", "%d numbers, %d tokens take %d", len(logits), tokens, want)
	}
	if want := n.OutDType.Bytes(tokens, n.Hidden); int64(len(out)) != want {
		return refused(C.MOE_ERR_SHAPE, "out", "%d bytes, %d tokens take %d", len(out), tokens, want)
	}
	return try(func(h []unsafe.Pointer, err **C.moe_error) C.moe_status {
		if tokens == 0 {
			return C.MOE_OK // no byte to point to
		}
		return C.moe_apply_flat((*C.moe_layer)(h[0]), C.int64_t(tokens), C.moe_dtype(n.InDType), unsafe.Pointer(&hidden[0]),
			C.moe_dtype(F32), unsafe.Pointer(&logits[0]), nil, nil, C.moe_dtype(n.OutDType), unsafe.Pointer(&out[0]), err)
	}, of(l))
}
