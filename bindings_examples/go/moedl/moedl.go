// Package moedl is libmoe for Go without cgo: the shared library is opened at run time, so that
// CGO_ENABLED=0 programs and cross builds can use it. The API is that of package moe, after Load.
//
// Close ends an object; in any order, for the library keeps what it needs. A finalizer does it for
// objects that were forgotten. A nil *Context means one thread.
package moedl

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

// try makes a call whose last parameter is the error.
func try(call func(err *uintptr) int32) error {
	var err uintptr
	status := call(&err)
	if status == 0 {
		return nil
	}
	defer errorDestroy(err)
	return &Error{status, statusName(status), errorSubject(err), errorMessage(err), errorDetails(err)}
}

func invalid(subject, format string, values ...interface{}) error {
	const shape = 4
	return &Error{shape, statusName(shape), subject, fmt.Sprintf(format, values...), "{}"}
}

// object owns one handle.
type object struct {
	handle  uintptr
	destroy func(uintptr)
}

// Close ends the object; a second call does nothing.
func (o *object) Close() {
	o.destroy(o.handle)
	o.handle = 0
}

// create makes an object from a call with one owned result.
func create(destroy func(uintptr), call func(out, err *uintptr) int32) (*object, error) {
	o := &object{destroy: destroy}
	if e := try(func(err *uintptr) int32 { return call(&o.handle, err) }); e != nil {
		return nil, e
	}
	runtime.SetFinalizer(o, (*object).Close)
	return o, nil
}

// DType is an element type by its number.
type DType int32

// F32 is what router logits are in Apply.
const F32 DType = 1

// DTypeFromName knows "bf16", "bfloat16", "torch.bfloat16", "BF16"; 0 for unknown words.
func DTypeFromName(name string) DType { return DType(dtypeFromName(name)) }

// Bytes of a row-major tensor of this type.
func (d DType) Bytes(shape ...int64) int64 {
	return tensorBytes(int32(d), int32(len(shape)), &shape[0])
}

// Context lends threads, memory and a log to the calls that get it.
type Context struct{ *object }

// NewContext takes JSON options; "{}" gives all CPUs of this process.
func NewContext(options string) (*Context, error) {
	o, err := create(contextDestroy, func(out, err *uintptr) int32 {
		return contextCreate(options, uintptr(len(options)), 0, out, err)
	})
	return &Context{o}, err
}

func (c *Context) raw() uintptr {
	if c == nil {
		return 0
	}
	return c.handle
}

// Config is the checked description of one layer.
type Config struct {
	*object
	Hidden, Experts, K int64
	InDType, OutDType  DType
}

// ConfigFromHF reads the text of a model's config.json; options such as {"layer_index":3}.
func ConfigFromHF(hf, options string) (*Config, error) {
	o, err := create(configDestroy, func(out, err *uintptr) int32 {
		return configFromHF(hf, uintptr(len(hf)), options, uintptr(len(options)), out, err)
	})
	if err != nil {
		return nil, err
	}
	c := &Config{object: o}
	for pointer, value := range map[string]*int64{"/hidden_dim": &c.Hidden, "/num_experts": &c.Experts, "/top_k": &c.K} {
		if err := try(func(err *uintptr) int32 { return configInt(o.handle, pointer, value, err) }); err != nil {
			return nil, err
		}
	}
	for pointer, value := range map[string]*DType{"/in_dtype": &c.InDType, "/out_dtype": &c.OutDType} {
		var word *byte
		if err := try(func(err *uintptr) int32 { return configString(o.handle, pointer, &word, err) }); err != nil {
			return nil, err
		}
		*value = DTypeFromName(goString(word))
	}
	return c, nil
}

// goString copies NUL-terminated text of the library.
func goString(text *byte) string {
	size := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(text), size)) != 0 {
		size++
	}
	return string(unsafe.Slice(text, size))
}

// Selection is the backend and kernel for a config on this machine.
type Selection struct {
	*object
	config *Config
}

// Select asks all candidates; when nobody accepts, the error's details list every reason.
func Select(context *Context, config *Config) (*Selection, error) {
	o, err := create(selectionDestroy, func(out, err *uintptr) int32 {
		return selectBackend(context.raw(), config.handle, 0, 0, out, err)
	})
	runtime.KeepAlive(context)
	return &Selection{o, config}, err
}

// Backend, Kernel and Layout name the winner.
func (s *Selection) Backend() string { return selectionBackend(s.handle) }
func (s *Selection) Kernel() string  { return selectionKernel(s.handle) }
func (s *Selection) Layout() string  { return selectionLayout(s.handle) }

// Weights are the source tensors of one layer; one goroutine at a time.
type Weights struct{ *object }

// NewWeights makes an empty set.
func NewWeights(config *Config) (*Weights, error) {
	o, err := create(weightsDestroy, func(out, err *uintptr) int32 { return weightsCreate(config.handle, out, err) })
	runtime.KeepAlive(config)
	return &Weights{o}, err
}

// LoadSafetensors finds the layer in a file, a model.safetensors.index.json or a directory.
func (w *Weights) LoadSafetensors(path string) error {
	defer runtime.KeepAlive(w)
	return try(func(err *uintptr) int32 { return weightsSafetensors(w.handle, path, 0, err) })
}

// Packed are converted weights: immutable, shared by any number of layers.
type Packed struct{ *object }

// Convert repacks the weights into the layout of the selection.
func Convert(context *Context, selection *Selection, weights *Weights) (*Packed, error) {
	o, err := create(packedDestroy, func(out, err *uintptr) int32 {
		return convertWeights(context.raw(), selection.handle, weights.handle, 0, out, err)
	})
	runtime.KeepAlive(context)
	runtime.KeepAlive(selection)
	runtime.KeepAlive(weights)
	return &Packed{o}, err
}

// Layer is ready to run; any number of goroutines may call Apply at once.
type Layer struct {
	*object
	config *Config
}

// NewLayer binds converted weights to a kernel.
func NewLayer(context *Context, selection *Selection, packed *Packed) (*Layer, error) {
	o, err := create(layerDestroy, func(out, err *uintptr) int32 {
		return layerCreate(context.raw(), selection.handle, packed.handle, 0, out, err)
	})
	runtime.KeepAlive(context)
	runtime.KeepAlive(packed)
	return &Layer{o, selection.config}, err
}

// Apply computes out [T, H] from hidden [T, H], both bytes of the config's dtypes, and router
// logits [T, E]. The slices go to C as they are and stay in place for the call.
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
	defer runtime.KeepAlive(l)
	return try(func(err *uintptr) int32 {
		return applyFlat(l.handle, tokens, int32(c.InDType), &hidden[0], int32(F32), &logits[0], nil, nil,
			int32(c.OutDType), &out[0], err)
	})
}
