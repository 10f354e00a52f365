"""The library under test, through the Python binding of bindings_examples and the functions that it leaves out."""
import ctypes
import json
import os
import pathlib
import sys

import numpy as np


class Library:
    """Opened by the path of libmoe.so; `moe` is the binding."""

    def __init__(self, path):
        os.environ["LIBMOE_PATH"] = str(pathlib.Path(path).resolve())
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings_examples/python"))
        import moe  # pylint: disable=import-outside-toplevel  # opens the library that LIBMOE_PATH names
        from moe import _handle, _library  # pylint: disable=import-outside-toplevel
        self.moe, self.handle, lib = moe, _handle, _library.lib
        out, pointer, tensor = ctypes.POINTER(ctypes.c_void_p), _library.HANDLE, _library.TENSOR
        lib.moe_route.restype = lib.moe_packed_get.restype = ctypes.c_int32
        lib.moe_route.argtypes = (pointer, pointer, ctypes.c_void_p, out)
        lib.moe_packed_get.argtypes = (pointer, ctypes.c_char_p, ctypes.c_int64, tensor, out)
        self.struct, self.no_release = _library.TensorStruct, _library.RELEASE()

    def config(self, document):
        return self.moe.Config(document if isinstance(document, (str, bytes)) else json.dumps(document))

    def route(self, document, logits, bias=None, ids=None):
        """(weights, ids); `ids` are read where hash routing takes them from the caller."""
        with self.config(document) as config:
            columns = config.document["top_k"]
            ids = np.zeros((len(logits), columns), np.int32) if ids is None else ids.astype(np.int32)
            weights = np.zeros((len(logits), columns), np.float32)
            views = [self.moe.tensor(a) if a is not None else None for a in (logits, bias, ids, weights)]

            class Args(ctypes.Structure):
                _fields_ = [("struct_size", ctypes.c_uint32), ("reserved0", ctypes.c_uint32)] + [
                    (n, ctypes.POINTER(self.struct)) for n in ("logits", "bias", "ids", "weights")]
            args = Args(ctypes.sizeof(Args), 0, *(ctypes.pointer(v) if v is not None else None for v in views))
            self.handle.call("moe_route", None, config, ctypes.addressof(args))
        return weights, ids

    def convert(self, document, tensors, bf16=(), dtypes=None):
        """(selection, packed) of stacked tensors; 16-bit ones are uint16, f16 unless their name is in `bf16`. `dtypes`:
        numbers of moe_dtype for arrays that hold bytes of types without a name in numpy."""
        config = self.config(document)
        selection, weights, kept = self.moe.Selection(config), self.moe.Weights(config), []
        for role, array in tensors.items():
            if array.dtype == np.uint16 and role not in bf16:
                array = array.view(np.float16)
            array = np.ascontiguousarray(array)
            if dtypes and role in dtypes:
                kept.append(array)
                view = self.moe.tensor(array)
                view.dtype = dtypes[role]
                self.handle.call("moe_weights_set", weights, role.encode(), ctypes.byref(view), self.no_release, None)
                continue
            weights.set(role, array)
        return selection, self.moe.convert(selection, weights)

    def output(self, packed, role, expert=-1):
        """Bytes of a named output of a conversion; None where the layout has none."""
        view = self.struct(struct_size=ctypes.sizeof(self.struct))
        try:
            self.handle.call("moe_packed_get", packed, role.encode(), expert, ctypes.byref(view))
        except self.moe.MissingWeight:
            return None
        return ctypes.string_at(view.data, view.nbytes) if view.nbytes else b""

    def dequantize(self, packed, role, expert, shape):
        out = np.zeros(shape, np.float32)
        self.handle.call("moe_packed_dequantize", packed, role.encode(), expert, ctypes.byref(self.moe.tensor(out)))
        return out
