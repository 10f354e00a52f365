"""libmoe for Python: ctypes and numpy, no build step.

    with moe.Config.from_hf(text) as config, moe.Selection(config) as selection:
        with moe.Weights(config) as weights:
            weights.load_safetensors(directory)
            packed = moe.convert(selection, weights)
        with packed, moe.Layer(selection, packed) as layer:
            out = layer.apply(hidden, logits)

Every object closes itself at the end of its `with` block, or when it is collected; the order does
not matter. Arrays are passed without a copy. numpy has no bfloat16: such arrays are uint16 with the
raw bits. The shared library is found through LIBMOE_PATH, else by the loader as libmoe.so.0.
"""
import ctypes
import json

import numpy as np

from ._library import (ApplyStruct, Cancelled, CandidateStruct, DTypeError, Error, FormatError,  # noqa: F401
                       InputOutputError, InvalidArgument, InvalidConfig, MissingWeight, NoBackend, OutOfMemory,
                       ShapeError, TensorStruct, UnexpectedWeight, Unsupported, call, create, lib, text_of)

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


class _Handle:
    """One owned object of the library."""
    _destroy = None

    def __init__(self, handle):
        self._handle = handle

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def close(self):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._destroy(handle)


class Context(_Handle):
    """Threads, memory and log of one embedding program; None everywhere means one thread."""
    _destroy = lib.moe_context_destroy

    def __init__(self, **options):
        super().__init__(create("moe_context_create", *_encode(options), None))

    def take_log(self):
        return [json.loads(line) for line in text_of("moe_context_take_log", self._handle).splitlines()]


class Config(_Handle):
    """The checked description of one layer; `document` is the resolved one as a dict."""
    _destroy = lib.moe_config_destroy

    def __init__(self, document):
        super().__init__(create("moe_config_create", *_encode(document)))

    @classmethod
    def from_hf(cls, config_json, **options):
        """From the text of a model's config.json; options such as layer_index=3."""
        config = cls.__new__(cls)
        _Handle.__init__(config, create("moe_config_create_from_hf", *_encode(config_json), *_encode(options)))
        return config

    @property
    def document(self):
        return json.loads(text_of("moe_config_to_json", self._handle))


class Selection(_Handle):
    """Which backend and kernel take this config, and why each other candidate does not."""
    _destroy = lib.moe_selection_destroy

    def __init__(self, config, context=None, flags=0):
        super().__init__(create("moe_select_backend", _raw(context), config._handle, None, flags))

    @property
    def backend(self):
        return lib.moe_selection_backend(self._handle).decode()

    @property
    def kernel(self):
        return lib.moe_selection_kernel(self._handle).decode()

    @property
    def layout(self):
        return lib.moe_selection_layout(self._handle).decode()

    @property
    def candidates(self):
        return json.loads(text_of("moe_selection_to_json", self._handle))["candidates"]


class Weights(_Handle):
    """Source tensors of one layer. Arrays given to `set` are kept alive, not copied."""
    _destroy = lib.moe_weights_destroy

    def __init__(self, config):
        super().__init__(create("moe_weights_create", config._handle))
        self._arrays = {}

    def load_safetensors(self, path, module=None):
        call("moe_weights_load_safetensors", self._handle, str(path).encode(), module and module.encode())

    def set(self, role, array):
        """A stacked tensor [E, ...]."""
        call("moe_weights_set", self._handle, role.encode(), ctypes.byref(tensor(array)), None, None)
        self._arrays[role] = array

    def report(self):
        return json.loads(text_of("moe_weights_to_json", self._handle))


class Packed(_Handle):
    """Converted weights: immutable, shared by any number of layers, saved and mapped again."""
    _destroy = lib.moe_packed_destroy

    @classmethod
    def load(cls, path, context=None, flags=LOAD_MMAP):
        return cls(create("moe_packed_load", _raw(context), str(path).encode(), flags, None))

    def save(self, path):
        call("moe_packed_save", self._handle, str(path).encode(), 0, None)

    def report(self):
        return json.loads(text_of("moe_packed_to_json", self._handle))


def convert(selection, weights, context=None):
    """Repacks the weights into the layout of the selection."""
    return Packed(create("moe_convert_weights", _raw(context), selection._handle, weights._handle, None))


class Layer(_Handle):
    """Converted weights bound to a kernel. Several threads may call `apply` at once."""
    _destroy = lib.moe_layer_destroy

    def __init__(self, selection, packed, context=None):
        super().__init__(create("moe_layer_create", _raw(context), selection._handle, packed._handle, None))

    def apply(self, hidden, logits=None, *, topk_ids=None, topk_weights=None, out=None, flags=0):
        """hidden [T, H] and either router logits [T, E] or ids and weights [T, K] -> out [T, H]."""
        if out is None:
            out = np.empty(hidden.shape, hidden.dtype)
        args = ApplyStruct(struct_size=ctypes.sizeof(ApplyStruct), flags=flags,
                           mode=_TOPK if logits is None else _ROUTER_LOGITS)
        arrays = {"hidden": hidden, "router_logits": logits, "topk_ids": topk_ids, "topk_weights": topk_weights,
                  "out": out}
        views = {name: tensor(array) for name, array in arrays.items() if array is not None}
        for name, view in views.items():
            setattr(args, name, ctypes.pointer(view))
        call("moe_apply", self._handle, ctypes.byref(args))
        return out


def tensor(array):
    """A moe_tensor that views a numpy array, strided ones too."""
    if array.dtype not in _DTYPES:
        raise TypeError(f"libmoe takes no {array.dtype} arrays; it takes {', '.join(map(str, _DTYPES))}")
    view = TensorStruct(struct_size=ctypes.sizeof(TensorStruct), dtype=_DTYPES[array.dtype], ndim=array.ndim,
                        data=array.ctypes.data)
    view.shape[:array.ndim] = array.shape
    if not array.flags.c_contiguous:
        view.strides[:array.ndim] = [stride // array.itemsize for stride in array.strides]
    return view


def _raw(handle):
    return None if handle is None else handle._handle
