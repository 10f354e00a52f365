"""Arrays of others as the library sees them, and its own memory as arrays: both without a copy."""
from __future__ import annotations

import contextlib
import ctypes
import functools
import weakref
from typing import Any, Sequence

import numpy as np
import numpy.typing as npt

from ._abi import MAX_DIMS, DType, moe_tensor
from ._errors import Error
from ._handle import Buffer, c_text, call, immortal, integer, memory, named
from ._library import lib

# numpy's types of those that the library has. numpy has no bfloat16 and no 8-bit floats: their bits.
NUMPY = {DType.F32: "f4", DType.F16: "f2", DType.F64: "f8", DType.BF16: "u2", DType.I8: "i1", DType.U8: "u1",
          DType.I16: "i2", DType.U16: "u2", DType.I32: "i4", DType.U32: "u4", DType.I64: "i8", DType.U64: "u8",
          DType.BOOL: "?"}
# code and bits of DLPack where it has a name for what numpy has not
_DLPACK = {DType.BF16: (4, 16), DType.BOOL: (6, 8), DType.F8_E4M3FN: (10, 8), DType.F8_E4M3FNUZ: (11, 8),
           DType.F8_E5M2: (12, 8), DType.F8_E5M2FNUZ: (13, 8), DType.F8_E8M0FNU: (14, 8)}
_CPU = (1, 0)


@functools.lru_cache(maxsize=None)
def bits_of(dtype: int) -> int:
    return int(lib.moe_tensor_nbytes(dtype, 1, (ctypes.c_int64 * 1)(8)))


def dtype_of(name: Any) -> DType:
    """"bf16", "torch.bfloat16", a numpy type, ...: the library's number."""
    if isinstance(name, DType):
        return name
    if isinstance(name, np.dtype) or (isinstance(name, type) and issubclass(name, np.generic)):
        name = np.dtype(name).name
    found = DType(lib.moe_dtype_from_name(c_text(name, "dtype")))
    if not found and isinstance(name, str):
        found = DType(lib.moe_dtype_from_name(c_text("torch." + name)))  # numpy writes float32
    if not found:
        raise TypeError(f"dtype: libmoe has no type {name!r}")
    return found


@functools.lru_cache(maxsize=None)
def _dtype_of_numpy(dtype: npt.DTypeLike) -> DType:
    """The library's type of a numpy array's elements; uint16 stands for bfloat16."""
    kind: np.dtype[Any] = np.dtype(dtype)
    name = "torch.bfloat16" if kind.name == "uint16" else "torch." + kind.name
    found = DType(lib.moe_dtype_from_name(name.encode()))
    # ml_dtypes gives a byte to each int4: the library would read two
    if not found or not kind.isnative or bits_of(found) != 8 * kind.itemsize:
        raise TypeError(f"libmoe takes no {kind} arrays; it takes {', '.join(map(str, _KINDS))} and those of ml_dtypes")
    return found


_KINDS = sorted({str(np.dtype(kind)) for kind in NUMPY.values()})


class Tensor:
    """An array in memory of the library, or of a type that numpy lacks: shape, dtype, and the ways out.

    `numpy()` gives the array without a copy, bfloat16 as uint16 and 8-bit floats as uint8, smaller ones as rows of
    bytes; other frameworks take it by DLPack (`torch.from_dlpack(tensor)`), with its real type; read-only ones as
    `__dlpack__` says. The memory stays as long as any of them.
    """

    def __init__(self, array: npt.NDArray[Any], dtype: DType, shape: Sequence[int] | None = None) -> None:
        """`array` holds the elements of `shape`, those of less than a byte as rows of bytes."""
        if not isinstance(array, np.ndarray):
            raise TypeError(f"array: expected a numpy array, got {type(array).__name__}")
        array, dtype = _plain(array), dtype_of(dtype)
        extents = tuple(integer(n, "shape", ctypes.c_int64) for n in (array.shape if shape is None else shape))
        kind, bits = np.dtype(NUMPY.get(dtype, "u1")), bits_of(dtype)
        if array.dtype != kind or bits < 1:
            raise TypeError(f"array: expected {kind} for {dtype.name}, got {array.dtype}")
        if array.shape != _lies(extents, bits):
            raise ValueError(f"shape: {list(extents)} of {dtype.name} is no array of {list(array.shape)} {kind}")
        self._array, self._dtype, self._shape = array, dtype, extents

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> str:
        return str(lib.moe_dtype_name(self._dtype).decode())

    @property
    def writable(self) -> bool:
        return self._array.flags.writeable

    def numpy(self) -> npt.NDArray[Any]:
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if dtype is not None and np.dtype(dtype) != self._array.dtype:
            raise TypeError(f"numpy() of {self.dtype} is {self._array.dtype}, which is not converted to {np.dtype(dtype)}")
        return self._array.copy() if copy else self._array

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A capsule of numpy's, its type changed to the real one. That memory is read-only, as of Packed.get, can be
        said by numpy 2.1 and newer, to who asks for `max_version` (1, 0): else BufferError, unless `copy` is True."""
        if stream is not None or dl_device not in (None, _CPU):
            raise BufferError(f"this tensor is on the CPU; asked for device {dl_device}, stream {stream!r}")
        if bits_of(self._dtype) < 8:
            raise BufferError(f"DLPack has no rows of packed {self.dtype}; numpy() gives their bytes")
        array = self._array.view(np.uint8) if self._dtype is DType.BOOL else self._array
        array = array.copy() if copy else array
        options: dict[str, Any] = {}
        if max_version and np.lib.NumpyVersion(np.__version__) >= "2.1.0":
            options["max_version"] = max_version
        elif not array.flags.writeable:
            raise BufferError("this tensor is read-only, which DLPack cannot say without numpy 2.1 and a consumer that "
                              "asks for a version; __dlpack__(copy=True) gives a copy, numpy() the array")
        capsule = array.__dlpack__(**options)
        if self._dtype in _DLPACK:
            _set_type(capsule, *_DLPACK[self._dtype])
        return capsule

    def __repr__(self) -> str:
        return f"<libmoe.Tensor {self.dtype} {list(self.shape)}{'' if self.writable else ' read-only'}>"


def empty(shape: Sequence[int], dtype: Any) -> Tensor:
    """A writable tensor in memory of the library, aligned to 64 bytes; its content is unspecified."""
    shape = [integer(extent, "shape", ctypes.c_int64) for extent in shape]
    view = moe_tensor(dtype=dtype_of(dtype), ndim=len(shape))
    if len(shape) > MAX_DIMS or any(extent < 0 for extent in shape):
        raise ValueError(f"shape: expected at most {MAX_DIMS} extents from 0, got {list(shape)}")
    view.shape[:len(shape)] = shape
    size = lib.moe_tensor_nbytes(view.dtype, view.ndim, view.shape)
    if size < 0:
        raise ValueError(f"shape: {list(shape)} is too large")
    with Buffer("moe_buffer_create", size, 0) as buffer:
        return _tensor(view, buffer.memory)


def tensor_at(view: moe_tensor, keep: object) -> Tensor:
    """A read-only tensor over memory of the library, which keeps `keep`."""
    first, size = View(view, keep, False).extent()
    return _tensor(view, memory(first, size, keep).toreadonly(), (view.data or 0) - first)


def owned_tensor(view: moe_tensor, data: memoryview) -> Tensor:
    """A writable tensor of bytes that no one else has."""
    return _tensor(view, data)


def _lies(shape: tuple[int, ...], bits: int) -> tuple[int, ...]:
    """The shape of numpy's array: what is smaller than a byte lies in rows of bytes."""
    return (*shape[:-1], (shape[-1] * bits + 7) // 8) if bits < 8 and shape else shape


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Without what a class of its own says about it: its `shape` may be anything."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("libmoe has no masked arrays; fill it first")
    return np.asarray(array)


def _tensor(view: moe_tensor, data: memoryview, offset: int = 0) -> Tensor:
    dtype, shape, strides = DType(view.dtype), tuple(view.shape[:view.ndim]), tuple(view.strides[:view.ndim])
    bits = bits_of(dtype)
    if bits < 8 and shape:
        strides = strides and (*(stride * bits // 8 for stride in strides[:-1]), 1)
    else:
        strides = tuple(stride * bits // 8 for stride in strides)
    array: npt.NDArray[Any] = np.ndarray(_lies(shape, bits), NUMPY.get(dtype, "u1"), data, offset if data.nbytes else 0,
                                         strides if any(view.strides) else None)
    return Tensor(array, dtype, shape)


class View:  # see view_of
    """A moe_tensor of the caller's array, and what keeps that array."""
    __slots__ = ("struct", "keep", "writable")

    def __init__(self, struct: moe_tensor, keep: object, writable: bool) -> None:
        struct.struct_size = ctypes.sizeof(moe_tensor)
        self.struct, self.keep, self.writable = struct, keep, writable

    def extent(self) -> tuple[int, int]:
        """Address of the first byte, and how many there are."""
        shape, strides = self.struct.shape[:self.struct.ndim], self.struct.strides[:self.struct.ndim]
        bits = bits_of(self.struct.dtype)
        if not any(strides):
            size: int = lib.moe_tensor_nbytes(self.struct.dtype, self.struct.ndim, self.struct.shape)
            return self.struct.data or 0, size
        below = sum((n - 1) * s for n, s in zip(shape, strides) if s < 0)
        reach = sum((n - 1) * abs(s) for n, s in zip(shape, strides)) + 1
        return (self.struct.data or 0) + below * bits // 8, reach * bits // 8


def view_of(array: Any, name: str, dtype: Any = None, write: bool = False) -> View:
    """A numpy array (strided ones too), a Tensor, or anything with `__dlpack__` in CPU memory, as the library sees
    it. `dtype`: what the elements really are, where numpy has no such type: "bf16" of uint16, "f8_e4m3fn" of bytes."""
    try:
        if isinstance(array, Tensor):
            view = _of_numpy(array._array, array._dtype, array.shape)
        elif isinstance(array, np.ndarray):
            array = _plain(array)
            view = _of_numpy(array, _dtype_of_numpy(array.dtype), array.shape)
        else:
            view = _of_dlpack(array)
        if dtype is not None:
            real = dtype_of(dtype)
            if bits_of(real) != bits_of(view.struct.dtype) or bits_of(real) < 8:
                raise TypeError(f"expected elements of {bits_of(real)} bits for {dtype!r}, "
                                f"got {lib.moe_dtype_name(view.struct.dtype).decode()}")
            view.struct.dtype = real
        if write and not view.writable:
            raise ValueError("this array is read-only")
        return view
    except (TypeError, ValueError, BufferError) as error:
        raise named(error, name) from error
    except Error as error:
        error.subject = error.subject or name
        raise


def _of_numpy(array: npt.NDArray[Any], dtype: DType, shape: tuple[int, ...]) -> View:
    """`nbytes` says what is really there, so that the library refuses a shape that needs more."""
    if len(shape) > MAX_DIMS:
        raise ValueError(f"{len(shape)} dimensions, libmoe takes {MAX_DIMS}")
    struct = moe_tensor(dtype=dtype, ndim=len(shape))
    struct.shape[:len(shape)] = shape
    if not array.flags.c_contiguous:
        if not any(array.strides) or any(stride % array.itemsize for stride in array.strides) or bits_of(dtype) < 8:
            # none at all would mean "without gaps"
            raise ValueError(f"libmoe takes no strides of {array.strides} bytes")
        struct.strides[:array.ndim] = [stride // array.itemsize for stride in array.strides]
    if array.size:  # nbytes 0 would mean "as many as the shape needs": then there is no address
        reach = sum((n - 1) * max(stride, 0) for n, stride in zip(array.shape, array.strides))
        struct.data, struct.nbytes = array.ctypes.data, reach + array.itemsize
    return View(struct, array, array.flags.writeable)


# --- DLPack ------------------------------------------------------------------------------------------------------

class _Plain(ctypes.Structure):
    """DLTensor and DLManagedTensor of dlpack.h"""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Plain), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned of dlpack.h"""
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Plain)]


_READ_ONLY = 1
_NAMES = {b"dltensor_versioned": (_Versioned, b"used_dltensor_versioned"), b"dltensor": (_Managed, b"used_dltensor")}
_deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)  # with the interpreter lock, which some deleters take for granted
_object = ctypes.py_object
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, _object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, _object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
for _names in _NAMES.items():
    immortal(_names[0]), immortal(_names[1][1])  # capsules point at their name


class _Holder:
    """Keeps the memory of a consumed capsule."""
    __slots__ = ("__weakref__",)


def _managed(capsule: Any, take: bool = False) -> tuple[bytes, int, Any]:
    """Name, address and struct of a capsule that no one has consumed; `take`: from now on it is used.

    Looking and renaming run within one step of the interpreter (`map` and `partial` are C), so that no other thread
    takes it between them.
    """
    for name, (kind, used) in _NAMES.items():
        steps = [functools.partial(_pointer_of, capsule, name), functools.partial(_rename, capsule, used)]
        with contextlib.suppress(ValueError):  # it has another name
            address, *_ = map(functools.partial.__call__, steps if take else steps[:1])
            return name, address, kind.from_address(address)
    raise TypeError("expected a numpy array or an object with __dlpack__, got "
                    + ("a capsule that was used before, or of something else"
                       if type(capsule).__name__ == "PyCapsule" else type(capsule).__name__))


def _set_type(capsule: Any, code: int, bits: int) -> None:
    tensor = _managed(capsule)[2].tensor
    tensor.code, tensor.bits = code, bits


def _of_dlpack(array: Any) -> View:
    """The library reads the capsule, which is then used: its memory ends with the view's `keep`."""
    capsule = array
    if hasattr(array, "__dlpack__"):
        device = tuple(map(int, array.__dlpack_device__())) if hasattr(array, "__dlpack_device__") else _CPU
        if device[0] != _CPU[0]:
            raise TypeError(f"expected memory of the CPU, got a {type(array).__name__} on DLPack device {device}")
        try:
            capsule = array.__dlpack__(max_version=(1, 0))
        except TypeError:  # made before there were versions
            capsule = array.__dlpack__()
    name, address, managed = _managed(capsule, take=True)
    try:
        read_only, versioned = False, managed
        if name == b"dltensor":  # memory that is read-only is not given without a version
            versioned = _Versioned(major=1, tensor=managed.tensor)
        else:
            read_only = bool(managed.flags & _READ_ONLY)
        struct = moe_tensor(struct_size=ctypes.sizeof(moe_tensor))
        call("moe_tensor_from_dlpack", ctypes.byref(versioned), ctypes.byref(struct))
    except BaseException:
        _rename(capsule, name)
        raise
    holder = _Holder()
    if managed.deleter:
        weakref.finalize(holder, _deleter(managed.deleter), address).atexit = False
    return View(struct, holder, not read_only)
