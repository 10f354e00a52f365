package moe

import (
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// maxDims is MOE_MAX_DIMS.
const maxDims = len(raw.Tensor{}.Shape)

// String is the short name of a type, such as "bf16".
func (d DType) String() string {
	c, err := raw.Load("")
	if err != nil {
		return "invalid"
	}
	return raw.Text(c.DTypeName(int32(d)))
}

// DTypeFromName knows "bf16", "bfloat16", "torch.bfloat16", "BF16"; InvalidDType for unknown words.
func DTypeFromName(word string) DType {
	c, err := raw.Load("")
	if err != nil {
		return InvalidDType
	}
	text, err := name("word", word)
	if err != nil {
		return InvalidDType
	}
	return DType(c.DTypeFromName(text))
}

// Bytes of a row-major tensor of this type; -1 where there is none of such a shape.
func (d DType) Bytes(shape ...int64) int64 {
	c, err := raw.Load("")
	if err != nil || len(shape) > maxDims {
		return -1
	}
	var pins raw.Pins
	defer pins.Release()
	var memory [maxDims]int64
	copied := append(memory[:0], shape...)
	return c.TensorNbytes(int32(d), int32(len(copied)), pins.Add(unsafe.Pointer(&memory)))
}

// bits of an element; 0 for what is no type.
func (d DType) bits() int64 {
	if bits := d.Bytes(8); bits > 0 {
		return bits
	}
	return 0
}

// Tensor is a view of memory. Shape and strides count elements; no strides mean row-major without gaps.
// A zero Tensor stands for one that is not given.
type Tensor struct {
	DType   DType
	Shape   []int64
	Strides []int64
	Data    []byte

	readOnly bool // of the library or of another one
}

// Element is what TensorOf takes.
type Element interface {
	~float32 | ~float64 | ~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64
}

// TensorOf views a slice; without a shape it has one dimension. Element types that Go lacks are given by As:
// TensorOf(words, t, h).As(BF16).
func TensorOf[T Element](data []T, shape ...int64) Tensor {
	if len(shape) == 0 {
		shape = []int64{int64(len(data))}
	}
	var zero T
	var dtype DType
	size := int(unsafe.Sizeof(zero))
	switch integer, signed := T(3)/T(2) == T(1), zero-1 < zero; {
	case !integer:
		dtype = map[int]DType{4: F32, 8: F64}[size]
	case signed:
		dtype = map[int]DType{1: I8, 2: I16, 4: I32, 8: I64}[size]
	default:
		dtype = map[int]DType{1: U8, 2: U16, 4: U32, 8: U64}[size]
	}
	return Tensor{DType: dtype, Shape: shape, Data: BytesOf(data)}
}

// BytesOf is the memory of a slice.
func BytesOf[T Element](data []T) []byte {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), len(data)*int(unsafe.Sizeof(data[0])))
}

// As is the same memory with another element type of as many bytes.
func (t Tensor) As(dtype DType) Tensor {
	t.DType = dtype
	return t
}

func (t Tensor) given() bool {
	return t.DType != InvalidDType || t.Shape != nil || t.Strides != nil || t.Data != nil
}

// check is what can be said before the library is asked: nothing of it reads beyond Data.
func (t Tensor) check(subject string) error {
	bits := t.DType.bits()
	if bits == 0 {
		return refused(ErrDType, subject, "element type %d is none", int32(t.DType))
	}
	if len(t.Shape) > maxDims {
		return refused(ErrShape, subject, "%d dimensions, at most %d are possible", len(t.Shape), maxDims)
	}
	if len(t.Strides) != 0 && len(t.Strides) != len(t.Shape) {
		return refused(ErrShape, subject, "%d strides for %d dimensions", len(t.Strides), len(t.Shape))
	}
	need := t.DType.Bytes(t.Shape...)
	if need < 0 {
		return refused(ErrShape, subject, "there is no tensor of shape %v", t.Shape)
	}
	if len(t.Strides) == 0 && int64(len(t.Data)) < need || need > 0 && len(t.Data) == 0 {
		return refused(ErrShape, subject, "%d bytes of data, shape %v of %s takes %d", len(t.Data), t.Shape, t.DType, need)
	}
	if size := uintptr(bits / 8); size > 1 && len(t.Data) > 0 && uintptr(unsafe.Pointer(&t.Data[0]))%size != 0 {
		return refused(ErrShape, subject, "data is not aligned to the %d bytes of an element", size)
	}
	return nil
}

// expect checks also the type (one of those) and the shape; -1 takes any extent.
func (t Tensor) expect(subject string, types []DType, shape ...int64) error {
	if !t.given() {
		return refused(ErrInvalidArgument, subject, "a tensor is needed")
	}
	if err := t.check(subject); err != nil {
		return err
	}
	known := false
	for _, dtype := range types {
		known = known || dtype == t.DType
	}
	if !known && len(types) > 0 {
		return refused(ErrDType, subject, "found %s, expected %v", t.DType, types)
	}
	same := len(shape) == len(t.Shape)
	for i := 0; same && i < len(shape); i++ {
		same = shape[i] == -1 || shape[i] == t.Shape[i]
	}
	if !same {
		return refused(ErrShape, subject, "found shape %v, expected %v", t.Shape, shape)
	}
	return nil
}

// expectOut is expect for a tensor that is written.
func (t Tensor) expectOut(subject string, types []DType, shape ...int64) error {
	if err := t.expect(subject, types, shape...); err != nil {
		return err
	}
	if t.readOnly {
		return refused(ErrInvalidArgument, subject, "its memory is read-only")
	}
	return nil
}

// nothing is what tensors without elements point to.
var nothing [64]byte

// raw is the C struct; its memory is pinned.
func (t Tensor) raw(pins *raw.Pins) *raw.Tensor {
	r := &raw.Tensor{StructSize: uint32(unsafe.Sizeof(raw.Tensor{})), DType: int32(t.DType), Ndim: int32(len(t.Shape))}
	copy(r.Shape[:], t.Shape)
	copy(r.Strides[:], t.Strides)
	if len(t.Data) == 0 {
		r.Data = pins.Add(unsafe.Pointer(&nothing))
		return r
	}
	r.Data, r.Nbytes = pins.Add(unsafe.Pointer(&t.Data[0])), uint64(len(t.Data))
	return r
}

// address is raw as an address, 0 for a tensor that is not given.
func (t Tensor) address(pins *raw.Pins) uintptr {
	if !t.given() {
		return 0
	}
	return pins.Add(unsafe.Pointer(t.raw(pins)))
}

// viewed is a tensor of the library: a view of its memory.
func viewed(r *raw.Tensor) Tensor {
	t := Tensor{DType: DType(r.DType), Shape: append([]int64{}, r.Shape[:r.Ndim]...)}
	strided := false
	for _, stride := range r.Strides[:r.Ndim] {
		strided = strided || stride != 0
	}
	size := t.DType.Bytes(t.Shape...)
	if strided {
		t.Strides = append(t.Strides, r.Strides[:r.Ndim]...)
		size = int64(r.Nbytes)
	}
	if size > 0 {
		t.Data = raw.Bytes(raw.Pointer(&r.Data), uintptr(size))
	}
	return t
}

// clone copies the elements, row-major without gaps.
func (t Tensor) clone() Tensor {
	c := Tensor{DType: t.DType, Shape: t.Shape}
	size := int(t.DType.bits() / 8)
	if len(t.Strides) == 0 || size == 0 { // types below a byte have no gaps
		c.Data = append([]byte{}, t.Data...)
		return c
	}
	c.Data = make([]byte, 0, t.DType.Bytes(t.Shape...))
	var rows func(dim int, at int64)
	rows = func(dim int, at int64) {
		switch {
		case dim == len(t.Shape):
			c.Data = append(c.Data, t.Data[int(at)*size:int(at+1)*size]...)
		case dim == len(t.Shape)-1 && t.Strides[dim] == 1:
			c.Data = append(c.Data, t.Data[int(at)*size:int(at+t.Shape[dim])*size]...)
		default:
			for i := int64(0); i < t.Shape[dim]; i++ {
				rows(dim+1, at+i*t.Strides[dim])
			}
		}
	}
	rows(0, 0)
	return c
}

// overlap tells whether two slices share a byte.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}
