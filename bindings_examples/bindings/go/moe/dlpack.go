package moe

import (
	"sync"
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// DLPack's structs, as its header dlpack.h lays them out on 64-bit machines.
type (
	dlTensor struct {
		data           uintptr
		deviceType     int32
		deviceID       int32
		ndim           int32
		code, bits     uint8
		lanes          uint16
		shape, strides uintptr
		byteOffset     uint64
	}
	dlManaged struct {
		tensor           dlTensor
		context, deleter uintptr
	}
	dlManagedVersioned struct {
		major, minor     uint32
		context, deleter uintptr
		flags            uint64
		tensor           dlTensor
	}
)

const (
	dlCPU      = 1
	dlReadOnly = 1
)

// DLPack is a tensor of another library.
type DLPack struct {
	mu      sync.Mutex
	tensor  Tensor
	managed uintptr
	deleter uintptr
}

// FromDLPack takes over a DLManagedTensorVersioned* (of a capsule "dltensor_versioned"), or with versioned false a
// DLManagedTensor* (of a capsule "dltensor"), on the CPU. A failed call leaves it to the caller.
func FromDLPack(managed unsafe.Pointer, versioned bool) (*DLPack, error) {
	if managed == nil {
		return nil, refused(ErrInvalidArgument, "dlpack", "the pointer is nil")
	}
	d := &DLPack{managed: uintptr(managed)}
	whole := (*dlManagedVersioned)(managed)
	if !versioned {
		old := (*dlManaged)(managed)
		d.deleter = old.deleter
		whole = &dlManagedVersioned{major: 1, tensor: old.tensor} // the library reads this form only
	}
	var pins raw.Pins
	defer pins.Release()
	view := &raw.Tensor{StructSize: uint32(unsafe.Sizeof(raw.Tensor{}))}
	err := call(nil, func(c *raw.Library, _ []unsafe.Pointer, err *unsafe.Pointer) int32 {
		return c.TensorFromDLPack(pins.Add(unsafe.Pointer(whole)), view, err)
	})
	if err != nil {
		return nil, err
	}
	d.tensor = viewed(view)
	if versioned { // its version is known by now
		d.deleter, d.tensor.readOnly = whole.deleter, whole.flags&dlReadOnly != 0
	}
	return d, nil
}

// Tensor views the memory; it ends with Close. A zero Tensor after it, and for nil.
func (d *DLPack) Tensor() Tensor {
	if d == nil {
		return Tensor{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tensor
}

// ReadOnly tells that the memory must not be written.
func (d *DLPack) ReadOnly() bool { return d.Tensor().readOnly }

// Close gives the memory back: call it when no Tensor of it is used any more, for instance as release of Weights.Set.
func (d *DLPack) Close() error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	managed, deleter := d.managed, d.deleter
	d.managed, d.deleter, d.tensor = 0, 0, Tensor{}
	d.mu.Unlock()
	if managed == 0 || deleter == 0 {
		return nil
	}
	c, err := library()
	if err == nil {
		c.CallDeleter(deleter, managed)
	}
	return err
}

// exported is what a deleter ends.
type exported struct {
	pins   raw.Pins
	buffer unsafe.Pointer // the C memory of the struct
	done   func()
}

// exports are by address of the managed tensor.
var exports sync.Map

// ToDLPack makes a DLManagedTensorVersioned* (or with versioned false a DLManagedTensor*) of a tensor's memory, which
// stays where it is until the consumer calls the deleter; then release, which may be nil, is called. The consumer may
// write into it unless readOnly is set, which the older form cannot say and is refused for.
func ToDLPack(t Tensor, versioned, readOnly bool, release func()) (unsafe.Pointer, error) {
	if _, err := library(); err != nil {
		return nil, err
	}
	if err := t.check("tensor"); err != nil {
		return nil, err
	}
	if readOnly = readOnly || t.readOnly; readOnly && !versioned {
		return nil, refused(ErrUnsupported, "readOnly", "a DLManagedTensor without version cannot say that it is read-only")
	}
	code, bits, ok := dlType(t.DType)
	if !ok {
		return nil, refused(ErrDType, "tensor", "DLPack has no type for %s", t.DType)
	}
	// One block of C memory: the struct, shape, strides.
	const head, words = unsafe.Sizeof(dlManagedVersioned{}), unsafe.Sizeof([2 * maxDims]int64{})
	e, out := &exported{done: release}, new(unsafe.Pointer)
	var memory unsafe.Pointer
	var deleter uintptr
	err := call(nil, func(c *raw.Library, _ []unsafe.Pointer, err *unsafe.Pointer) int32 {
		deleter = c.Deleter
		status := c.BufferCreate(head+words, 0, out, err)
		memory = c.BufferData(*out)
		return status
	})
	if err != nil {
		return nil, err
	}
	e.buffer = *out
	dims := (*[2 * maxDims]int64)(unsafe.Add(memory, head))
	*dims = [2 * maxDims]int64{}
	copy(dims[:maxDims], t.Shape)
	stride := int64(1)
	for i := len(t.Shape) - 1; i >= 0; i-- {
		dims[maxDims+i] = stride
		stride *= t.Shape[i]
	}
	copy(dims[maxDims:], t.Strides)
	tensor := dlTensor{data: t.raw(&e.pins).Data, deviceType: dlCPU, ndim: int32(len(t.Shape)), code: code, bits: bits, lanes: 1,
		shape: uintptr(unsafe.Pointer(&dims[0])), strides: uintptr(unsafe.Pointer(&dims[maxDims]))}
	exports.Store(uintptr(memory), e)
	if versioned {
		*(*dlManagedVersioned)(memory) = dlManagedVersioned{major: 1, deleter: deleter, flags: flag(readOnly, dlReadOnly), tensor: tensor}
	} else {
		*(*dlManaged)(memory) = dlManaged{tensor: tensor, deleter: deleter}
	}
	return memory, nil
}

// exportDeleted is the deleter of ToDLPack.
func exportDeleted(managed uintptr) {
	value, ok := exports.LoadAndDelete(managed)
	if !ok {
		return
	}
	e := value.(*exported)
	e.pins.Release()
	if c, err := raw.Load(""); err == nil {
		c.BufferDestroy(e.buffer)
	}
	if e.done != nil {
		_, _ = guard("release", func() error { e.done(); return nil }) // there is no one to tell
	}
}

// DLPack exports one named output of the conversion without a copy: what View lends, read-only, for as long as the
// consumer wants; Close waits for it.
func (p *Packed) DLPack(role string, expert int64) (managed unsafe.Pointer, err error) {
	u := need("packed", of(p))
	if _, err := u.enter(); err != nil {
		return nil, err
	}
	err = p.View(role, expert, func(t Tensor) (err error) {
		managed, err = ToDLPack(t, true, true, u.leave)
		return err
	})
	if err != nil {
		u.leave()
	}
	return managed, err
}

// dlType is DLPack's code and bits of an element.
func dlType(d DType) (code, bits uint8, ok bool) {
	known := map[DType][2]uint8{F32: {2, 32}, F64: {2, 64}, F16: {2, 16}, BF16: {4, 16}, I8: {0, 8}, I16: {0, 16}, I32: {0, 32},
		I64: {0, 64}, U8: {1, 8}, U16: {1, 16}, U32: {1, 32}, U64: {1, 64}, BOOL: {6, 8}, F8_E4M3FN: {10, 8}, F8_E5M2: {12, 8},
		F8_E4M3FNUZ: {11, 8}, F8_E5M2FNUZ: {13, 8}, F8_E8M0FNU: {14, 8}}
	t, ok := known[d]
	return t[0], t[1], ok
}
