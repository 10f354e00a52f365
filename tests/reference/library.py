"""The library under test, through the Python binding of bindings_examples."""
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
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings_examples/bindings/python"))
        import libmoe  # pylint: disable=import-outside-toplevel  # opens the library that LIBMOE_PATH names
        self.moe = libmoe

    def config(self, document):
        return self.moe.Config(document if isinstance(document, (str, bytes)) else json.dumps(document))

    def route(self, document, logits, bias=None, ids=None):
        """(weights, ids); `ids` are read where hash routing takes them from the caller."""
        with self.config(document) as config:
            columns = config.document["top_k"]
            ids = np.zeros((len(logits), columns), np.int32) if ids is None else ids.astype(np.int32)
            weights = np.zeros((len(logits), columns), np.float32)
            self.moe.route(config, logits, correction_bias=bias, topk_ids=ids, topk_weights=weights)
        return weights, ids

    def convert(self, document, tensors, bf16=(), dtypes=None):
        """(selection, packed) of stacked tensors; 16-bit ones are uint16, f16 unless their name is in `bf16`. `dtypes`:
        numbers of moe_dtype for arrays that hold bytes of types without a name in numpy."""
        config = self.config(document)
        selection, weights = self.moe.Selection(config), self.moe.Weights(config)
        for role, array in tensors.items():
            if array.dtype == np.uint16 and role not in bf16:
                array = array.view(np.float16)
            number = (dtypes or {}).get(role)
            weights.set(role, np.ascontiguousarray(array), None if number is None else self.moe.DType(number))
        return selection, self.moe.convert(selection, weights)

    def output(self, packed, role, expert=-1):
        """Bytes of a named output of a conversion, gaps between its rows included; None where the layout has none."""
        view = self.moe.abi.moe_tensor(struct_size=ctypes.sizeof(self.moe.abi.moe_tensor))
        with packed.raw() as pointer:
            status = self.moe.lib.moe_packed_get(pointer, role.encode(), expert, ctypes.byref(view), None)
            if status == self.moe.Status.MISSING_WEIGHT:
                return None
            assert status == 0, (role, status)
            return ctypes.string_at(view.data, view.nbytes) if view.nbytes else b""

    def dequantize(self, packed, role, expert, shape):
        out = np.zeros(shape, np.float32)
        packed.dequantize(role, expert, out)
        return out
