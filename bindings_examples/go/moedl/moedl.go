// Package moedl is libmoe for Go without cgo: the shared library is opened at run time, so that
// CGO_ENABLED=0 programs and cross builds can use it. The API is that of package moe, after Load.
//
// Close ends an object; in any order, for the library keeps what it needs. It waits for the calls
// that use the object in other goroutines; a later call with the object is MOE_ERR_INVALID_HANDLE, a
// second Close does nothing, also on nil. A finalizer does it for objects that were forgotten. A nil
// *Context means one thread.
package moedl

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
func try(call func(h []uintptr, err *uintptr) int32, using ...*object) error {
	h := make([]uintptr, len(using))
	for i, o := range using {
		if o == nil {
			continue
		}
		o.calls.RLock()
		defer o.calls.RUnlock() // also the last use of o: no finalizer runs before
		if h[i] = o.handle; h[i] == 0 {
			return refused(invalidHandle, o.kind, "this %s is closed", o.kind)
		}
	}
	var err uintptr
	status := call(h, &err)
	if status == 0 {
		return nil
	}
	defer errorDestroy(err)
	return &Error{status, statusName(status), errorSubject(err), errorMessage(err), errorDetails(err)}
}

// Statuses of calls that do not reach the library.
const invalidArgument, invalidHandle, wrongShape = 1, 3, 4

func refused(status int32, subject, format string, values ...interface{}) error {
	return &Error{status, statusName(status), subject, fmt.Sprintf(format, values...), "{}"}
}

// object owns one handle. A call holds `calls` for reading, any number at a time, and Close for
// writing. Calls take their objects in one order of kinds, so that none waits for another in a circle.
type object struct {
	kind    string // "layer"
	calls   sync.RWMutex
	handle  uintptr // 0: closed
	destroy func(uintptr)
}

func (o *object) base() *object { return o }

func (o *object) close() {
	if o == nil {
		return
	}
	o.calls.Lock()
	defer o.calls.Unlock()
	if o.handle != 0 {
		o.destroy(o.handle)
		o.handle = 0
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
func create(kind string, destroy func(uintptr), call func(h []uintptr, out, err *uintptr) int32,
	using ...*object) (*object, error) {
	o := &object{kind: kind, destroy: destroy}
	if e := try(func(h []uintptr, err *uintptr) int32 { return call(h, &o.handle, err) }, using...); e != nil {
		return nil, e
	}
	runtime.SetFinalizer(o, (*object).close)
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
	o, err := create("context", contextDestroy, func(_ []uintptr, out, err *uintptr) int32 {
		return contextCreate(options, uintptr(len(options)), 0, out, err)
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
	o, err := create("config", configDestroy, func(_ []uintptr, out, err *uintptr) int32 {
		return configFromHF(hf, uintptr(len(hf)), options, uintptr(len(options)), out, err)
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
		if err := try(func(h []uintptr, err *uintptr) int32 {
			return configInt(h[0], pointer, value, err)
		}, config); err != nil {
			return n, err
		}
	}
	n.columns += n.Experts
	for pointer, value := range map[string]*DType{"/in_dtype": &n.InDType, "/out_dtype": &n.OutDType} {
		if err := try(func(h []uintptr, err *uintptr) int32 {
			var word *byte
			status := configString(h[0], pointer, &word, err)
			*value = DTypeFromName(goString(word))
			return status
		}, config); err != nil {
			return n, err
		}
	}
	return n, nil
}

// goString copies NUL-terminated text of the library; "" for NULL.
func goString(text *byte) string {
	if text == nil {
		return ""
	}
	size := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(text), size)) != 0 {
		size++
	}
	return string(unsafe.Slice(text, size))
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
	o, err := create("selection", selectionDestroy, func(h []uintptr, out, err *uintptr) int32 {
		status := selectBackend(h[0], h[1], 0, 0, out, err)
		s.backend, s.kernel, s.layout = selectionBackend(*out), selectionKernel(*out), selectionLayout(*out)
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
	o, err := create("weights", weightsDestroy, func(h []uintptr, out, err *uintptr) int32 {
		return weightsCreate(h[0], out, err)
	}, of(config))
	if err != nil {
		return nil, err
	}
	return &Weights{o}, nil
}

// LoadSafetensors finds the layer in a file, a model.safetensors.index.json or a directory.
func (w *Weights) LoadSafetensors(path string) error {
	if strings.IndexByte(path, 0) >= 0 {
		return refused(invalidArgument, "path", "%q has a NUL character inside", path)
	}
	return try(func(h []uintptr, err *uintptr) int32 { return weightsSafetensors(h[0], path, 0, err) }, of(w))
}

// Close ends the set.
func (w *Weights) Close() { of(w).close() }

// Packed are converted weights: immutable, shared by any number of layers.
type Packed struct{ *object }

// Convert repacks the weights into the layout of the selection.
func Convert(context *Context, selection *Selection, weights *Weights) (*Packed, error) {
	o, err := create("packed", packedDestroy, func(h []uintptr, out, err *uintptr) int32 {
		return convertWeights(h[0], h[1], h[2], 0, out, err)
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
	o, err := create("layer", layerDestroy, func(h []uintptr, out, err *uintptr) int32 {
		return layerCreate(h[0], h[1], h[2], 0, out, err)
	}, of(context), of(selection), of(packed))
	if err != nil {
		return nil, err
	}
	return &Layer{o, selection.numbers}, nil
}

// Close ends the layer once no goroutine is in Apply.
func (l *Layer) Close() { of(l).close() }

// Apply computes out [T, H] from hidden [T, H], both bytes of the config's dtypes, and router
// logits [T, E]. The slices go to C as they are and stay in place for the call.
func (l *Layer) Apply(tokens int64, hidden []byte, logits []float32, out []byte) error {
	n := l.numbers
	if want := n.InDType.Bytes(tokens, n.Hidden); int64(len(hidden)) != want {
		return refused(wrongShape, "hidden", "%d bytes, %d tokens take %d", len(hidden), tokens, want)
	}
	if want := tokens * n.columns; int64(len(logits)) != want {
		return refused(wrongShape, "router_logits", "%d numbers, %d tokens take %d", len(logits), tokens, want)
	}
	if want := n.OutDType.Bytes(tokens, n.Hidden); int64(len(out)) != want {
		return refused(wrongShape, "out", "%d bytes, %d tokens take %d", len(out), tokens, want)
	}
	return try(func(h []uintptr, err *uintptr) int32 {
		if tokens == 0 {
			return 0 // no byte to point to
		}
		return applyFlat(h[0], tokens, int32(n.InDType), &hidden[0], int32(F32), &logits[0], nil, nil,
			int32(n.OutDType), &out[0], err)
	}, of(l))
}
