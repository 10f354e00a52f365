"""libmoe for Python: ctypes and numpy, no build step.

    with moe.Config.from_hf(text) as config, moe.Selection(config) as selection:
        with moe.Weights(config) as weights:
            weights.load_safetensors(directory)
            packed = moe.convert(selection, weights)
        with packed, moe.Layer(selection, packed) as layer:
            out = layer.apply(hidden, logits)

Every object closes itself at the end of its `with` block, or when it is collected; the order does
not matter. close() waits for the calls that use the object in other threads; a later call with it
raises InvalidHandle, a second close() does nothing. Arrays are passed without a copy. numpy has no
bfloat16: such arrays are uint16 with the raw bits. The shared library is found through LIBMOE_PATH,
else by the loader as libmoe.so.0.
"""
import ctypes
import itertools
import json
import os

import numpy as np

from ._handle import Handle, call, create, invoke, text_of
from ._library import (RELEASE, ApplyStruct, Busy, Cancelled, CandidateStruct, DTypeError, Error,  # noqa: F401
                       FormatError, InputOutputError, InvalidArgument, InvalidConfig, InvalidHandle, MissingWeight,
                       NoBackend, OutOfMemory, ShapeError, TensorStruct, UnexpectedWeight, Unsupported, lib)

LOAD_MMAP, LOAD_PREFAULT, LOAD_VERIFY = 1, 2, 4
EXPLAIN_ONLY, ALLOW_FALLBACK = 1, 2
APPLY_ACCUMULATE = 1
_ROUTER_LOGITS, _TOPK = 0, 1
#                                uint16 stands for bfloat16
_DTYPES = {np.dtype(n): lib.moe_dtype_from_name(c) for n, c in {
    "float32": b"f32", "float16": b"f16", "uint16": b"bf16", "int8": b"i8", "uint8": b"u8", "int32": b"i32",
    "int64": b"i64"}.items()}


def _encode(text):
    data = text if isinstance(text, bytes) else (text if isinstance(text, str) else json.dumps(text)).encode()
    return data, len(data)


def _c_text(text):
    """A path or a name for C, which would stop reading at a NUL."""
    data = os.fsencode(text)
    if b"\0" in data:
        raise ValueError(f"{text!r} has a NUL character inside")
    return data


class Context(Handle):
    """Threads, memory and log of one embedding program; None everywhere means one thread."""
    _kind = "context"

    def __init__(self, **options):
        super().__init__(create("moe_context_create", *_encode(options), None))

    def take_log(self):
        return [json.loads(line) for line in text_of("moe_context_take_log", self).splitlines()]


class Config(Handle):
    """The checked description of one layer; `document` is the resolved one as a dict."""
    _kind = "config"

    def __init__(self, document):
        super().__init__(create("moe_config_create", *_encode(document)))

    @classmethod
    def from_hf(cls, config_json, **options):
        """From the text of a model's config.json; options such as layer_index=3."""
        config = cls.__new__(cls)
        Handle.__init__(config, create("moe_config_create_from_hf", *_encode(config_json), *_encode(options)))
        return config

    @property
    def document(self):
        return json.loads(text_of("moe_config_to_json", self))


class Selection(Handle):
    """Which backend and kernel take this config, and why each other candidate does not."""
    _kind = "selection"

    def __init__(self, config, context=None, flags=0):
        super().__init__(create("moe_select_backend", context, config, None, flags))

    @property
    def backend(self):
        return invoke("moe_selection_backend", self).decode()

    @property
    def kernel(self):
        return invoke("moe_selection_kernel", self).decode()

    @property
    def layout(self):
        return invoke("moe_selection_layout", self).decode()

    @property
    def candidates(self):
        return json.loads(text_of("moe_selection_to_json", self))["candidates"]


class Weights(Handle):
    """Source tensors of one layer; one thread at a time, else Busy. Arrays given to `set` are not
    copied: they are kept until the library says that it no longer uses them."""
    _kind = "weights"
    _arrays, _numbers = {}, itertools.count(1)  # of all sets: what the library uses, by number

    def __init__(self, config):
        super().__init__(create("moe_weights_create", config))

    def load_safetensors(self, path, module=None):
        call("moe_weights_load_safetensors", self, _c_text(path), None if module is None else _c_text(module))

    def set(self, role, array, dtype=None):
        """A stacked tensor [E, ...]. dtype: of 8-bit floats, which numpy lacks, given as their bytes: "f8_e4m3fn"."""
        role, view, number = _c_text(role), tensor(array, role, dtype), next(self._numbers)
        self._arrays[number] = array
        try:
            call("moe_weights_set", self, role, ctypes.byref(view), _release, number)
        except Error:
            self._arrays.pop(number, None)  # a closed set: the library was not asked, so it releases nothing
            raise

    def report(self):
        return json.loads(text_of("moe_weights_to_json", self))


@RELEASE
def _release(number):
    Weights._arrays.pop(number, None)


class Packed(Handle):
    """Converted weights: immutable, shared by any number of layers, saved and mapped again."""
    _kind = "packed"

    @classmethod
    def load(cls, path, context=None, flags=LOAD_MMAP):
        return cls(create("moe_packed_load", context, _c_text(path), flags, None))

    def save(self, path):
        call("moe_packed_save", self, _c_text(path), 0, None)

    def report(self):
        return json.loads(text_of("moe_packed_to_json", self))


def convert(selection, weights, context=None):
    """Repacks the weights into the layout of the selection."""
    return Packed(create("moe_convert_weights", context, selection, weights, None))


class Layer(Handle):
    """Converted weights bound to a kernel. Several threads may call `apply` at once."""
    _kind = "layer"

    def __init__(self, selection, packed, context=None):
        super().__init__(create("moe_layer_create", context, selection, packed, None))

    def apply(self, hidden, logits=None, *, topk_ids=None, topk_weights=None, out=None, flags=0):
        """hidden [T, H] and either router logits [T, E] or ids and weights [T, K] -> out [T, H]."""
        args = ApplyStruct(struct_size=ctypes.sizeof(ApplyStruct), flags=flags,
                           mode=_TOPK if logits is None else _ROUTER_LOGITS)
        routing = {"router_logits": logits, "topk_ids": topk_ids, "topk_weights": topk_weights}
        views = {name: tensor(array, name) for name, array in routing.items() if array is not None}
        views["hidden"] = tensor(hidden, "hidden")
        if out is None:
            out = np.zeros(hidden.shape, hidden.dtype)  # what APPLY_ACCUMULATE adds to
        views["out"] = tensor(out, "out")
        if not out.flags.writeable:
            raise ValueError("out: this array is read-only")
        for name, view in views.items():
            setattr(args, name, ctypes.pointer(view))
        call("moe_apply", self, ctypes.byref(args))
        return out


def tensor(array, name="array", dtype=None):
    """A moe_tensor that views a numpy array, strided ones too; dtype as in Weights.set."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{name}: expected a numpy array, got {type(array).__name__}")
    if array.dtype not in _DTYPES:
        raise TypeError(f"{name}: libmoe takes no {array.dtype} arrays; it takes {', '.join(map(str, _DTYPES))}")
    code = _DTYPES[array.dtype]
    if dtype is not None:
        code = lib.moe_dtype_from_name(_c_text(dtype)) if dtype.startswith("f8_") else 0
        if not code or array.itemsize != 1:
            raise TypeError(f"{name}: expected bytes of an 8-bit float, got {array.dtype} as {dtype!r}")
    view = TensorStruct(struct_size=ctypes.sizeof(TensorStruct), dtype=code, ndim=array.ndim,
                        data=array.ctypes.data)
    if array.ndim > len(view.shape):
        raise ValueError(f"{name}: {array.ndim} dimensions, libmoe takes {len(view.shape)}")
    view.shape[:array.ndim] = array.shape
    if not array.flags.c_contiguous:
        if not any(array.strides) or any(stride % array.itemsize for stride in array.strides):
            # none at all would mean "without gaps"
            raise ValueError(f"{name}: libmoe takes no strides of {array.strides} bytes")
        view.strides[:array.ndim] = [stride // array.itemsize for stride in array.strides]
    return view
