#!/usr/bin/env python3
"""The formats of quantization tools through the library: the weights that are meant, whole and cut over ranks, and files
whose numbers or shapes are wrong.

LIBMOE_PATH names the library; the checkpoints are make_checkpoint's."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

import numpy as np

sys.dont_write_bytecode = True
from made import EXAMPLES, MAKE  # noqa: E402

sys.path.insert(0, str(EXAMPLES / "bindings/python"))
import libmoe  # noqa: E402

ROUNDING = 2e-6  # of float32 products, a factor of which a file may have as its reciprocal
HIDDEN, INTERMEDIATE, RANKS = 256, 256, 2  # each half has whole groups of 128
SAFETENSORS_TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "F8_E4M3": np.uint8, "I8": np.int8, "U8": np.uint8,
                     "I32": np.int32, "I64": np.int64, "F8_E8M0": np.uint8}
NOT_NUMBERS = {"F32": np.float32(np.nan), "F16": np.float16(np.nan), "BF16": np.uint16(0x7FC0), "F8_E4M3": np.uint8(0x7F)}
NOT_A_POWER = np.uint8(255)  # of e8m0
MAKE.SHAPES["cut"] = MAKE.Shape("qwen3", 4, 2, HIDDEN, INTERMEDIATE, "128", "int", 1)


def tensors_of(folder):
    """{name: (safetensors dtype, array)} of the last shard's layer."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                first, last = entry["data_offsets"]
                array = np.frombuffer(data[8 + size + first:8 + size + last], SAFETENSORS_TYPES[entry["dtype"]])
                found[name] = entry["dtype"], array.reshape(entry["shape"])
    return found


class ToolCuts(unittest.TestCase):
    def made(self, name):
        """The folder, options and shape of a checkpoint whose last layer has the format."""
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        arguments = [holder.name, "--shape", "cut", "--format", name, "--layers", "2" if "mixed" in name else "1"]
        with contextlib.redirect_stdout(io.StringIO()):
            MAKE.main(arguments)
        return pathlib.Path(holder.name), *MAKE.parse(arguments)

    def of_each_format(self, check):
        """check(name, folder, options, shape, last layer)."""
        for name in MAKE.TOOL_FORMATS:
            with self.subTest(format=name):
                folder, args, shape = self.made(name)
                check(name, folder, args, shape, args.layers - 1)

    def dense(self, checkpoint, layer, experts, size, **parallel):
        """w13 [len(experts), 2 * size, H] and w2 of a rank, as the library has them after conversion."""
        config = checkpoint.config(layer, {"parallel": parallel} if parallel else None)
        weights = libmoe.Weights(config)
        weights.load_checkpoint(checkpoint)
        packed = libmoe.convert(libmoe.Selection(config), weights)
        w13 = np.zeros((len(experts), 2 * size, HIDDEN), np.float32)
        w2 = np.zeros((len(experts), HIDDEN, size), np.float32)
        for i, e in enumerate(experts):
            packed.dequantize("w13_weight", e, w13[i])
            packed.dequantize("w2_weight", e, w2[i])
        return w13, w2

    def test_whole_and_cut(self):
        def check(_, folder, args, shape, layer):
            checkpoint = libmoe.Checkpoint(folder)
            experts = range(shape.experts)
            w13, w2 = self.dense(checkpoint, layer, experts, INTERMEDIATE)
            for e in experts:
                gate, up, down = (MAKE.tool_weights(args, shape, layer, e, i).dense() for i in range(3))
                for found, meant in ((w13[e], np.concatenate([gate, up])), (w2[e], down)):
                    self.assertLessEqual(np.abs(found - meant).max(), ROUNDING * np.abs(meant).max())
            part, some = INTERMEDIATE // RANKS, shape.experts // RANKS
            for rank in range(RANKS):
                mine = slice(rank * part, (rank + 1) * part)
                cut13, cut2 = self.dense(checkpoint, layer, experts, part, tp_size=RANKS, tp_rank=rank)
                np.testing.assert_array_equal(cut13, np.concatenate([w13[:, :INTERMEDIATE][:, mine], w13[:, INTERMEDIATE:][:, mine]], 1))
                np.testing.assert_array_equal(cut2, w2[:, :, mine])
                local = experts[rank * some:(rank + 1) * some]
                local13, local2 = self.dense(checkpoint, layer, local, INTERMEDIATE, tp_size=RANKS, tp_rank=rank,
                                             enable_expert_parallel=True)
                np.testing.assert_array_equal(local13, w13[local])
                np.testing.assert_array_equal(local2, w2[local])

        self.of_each_format(check)

    def refused(self, checkpoint, layer, name, array, dtype, what):
        """With this tensor in the place of the file's: at the call, or at conversion; the set is as before."""
        config = checkpoint.config(layer)
        weights = libmoe.Weights(config)
        weights.load_checkpoint(checkpoint)
        with self.assertRaises(libmoe.Error, msg=(name, what)) as caught:
            weights.set_named(name, array, dtype)
            libmoe.convert(libmoe.Selection(config), weights)
        self.assertTrue(str(caught.exception), name)

    def test_wrong_numbers_and_shapes(self):
        """One tensor of each kind: no number in a scale, other shapes, another type."""
        def check(_, folder, __, ___, layer):
            checkpoint = libmoe.Checkpoint(folder)
            kinds = set()
            for name, (dtype, array) in tensors_of(folder).items():
                module, suffix = name.rsplit(".", 1)
                if f"layers.{layer}." not in name or "experts" not in name or suffix in kinds:
                    continue
                kinds.add(suffix)
                given = {"BF16": "bf16", "F8_E4M3": "f8_e4m3fn", "F8_E8M0": "f8_e8m0fnu"}.get(dtype)
                is_power = dtype == "F8_E8M0" or (dtype == "U8" and suffix == "weight_scale")
                bad = NOT_A_POWER if is_power else NOT_NUMBERS.get(dtype)
                if bad is not None and array.size and not suffix.startswith(("weight_packed", "qweight")) and suffix != "weight" \
                        and "qdata" not in suffix:
                    broken = array.copy()
                    broken.reshape(-1)[-1] = bad
                    self.refused(checkpoint, layer, name, broken, given, "no number")
                longer = np.zeros((*array.shape[:-1], array.shape[-1] + 1) if array.ndim else (2,), array.dtype)
                self.refused(checkpoint, layer, name, longer, given, "longer")
                if array.ndim == 2 and array.shape[0] != array.shape[1] and 1 not in array.shape:
                    self.refused(checkpoint, layer, name, np.ascontiguousarray(array.T), given, "turned")
                if array.dtype != np.int64:
                    self.refused(checkpoint, layer, name, np.zeros(array.shape, np.int64), None, "another type")
            self.assertGreaterEqual(len(kinds), 2)

        self.of_each_format(check)


if __name__ == "__main__":
    unittest.main()
