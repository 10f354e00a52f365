#!/usr/bin/env python3
"""The formats of quantization tools, without the library: what make_checkpoint means is what verify.py reads."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

import numpy as np

sys.dont_write_bytecode = True
from made import MAKE  # noqa: E402  (first: it tells where verify is)
import checkpoint_formats  # noqa: E402
import tool_weights  # noqa: E402
import verify  # noqa: E402

SHAPES = ("tiny", "tiny_mixtral")
LAYERS = 2
ROUNDING = 1e-6  # of factors that a file has as float32, one of them as its reciprocal
WITH_FACTORS = ("modelopt-int4-awq", "modelopt-w8a8-smoothquant")
METHODS = {"auto": "auto-round", "quark": "quark", "modelopt": "modelopt", "torchao": "torchao", "bitsandbytes": "bitsandbytes",
           "pack": "compressed-tensors", "mxfp6": "compressed-tensors"}

# Bits, columns and words of the codes 0, 1, 2, ..., as pack_to_int32 of compressed-tensors 0.20 packs them.
DENSE_WORDS = (
    (2, 16, ["e4e4e4e4"]),
    (3, 32, ["88fac688", "c688fac6", "fac688fa"]),
    (5, 32, ["8a418820", "c5a92839", "ca307b9a", "38bdab49", "ffbbcdeb"]),
    (6, 16, ["440c2040", "a2481c61", "3ce34c2c"]),
    (7, 32, ["40608080", "880e1828", "68c16284", "88901e38", "58a94264", "668c982e", "3e78e9c3"]),
)
# Numbers of e2m3 and their bytes, as its pack_fp6_to_uint8 packs them.
E2M3 = (0, 0.125, -0.125, 7.5, 1, -1, 1.875, 2, -7.5, -0.0, 4, 3.75)
E2M3_BYTES = "40107e08fa403f885d"


def metadata_of(path):
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]


class ToolFormats(unittest.TestCase):
    def made(self, *options):
        """The folder, options and shape of a checkpoint."""
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        arguments = [holder.name, "--layers", str(LAYERS), *options]
        with contextlib.redirect_stdout(io.StringIO()):
            MAKE.main(arguments)
        return pathlib.Path(holder.name), *MAKE.parse(arguments)

    def of_each_format(self, check):
        """check(name, row, folder, options, shape) of all that can be made."""
        for name, row in MAKE.TOOL_FORMATS.items():
            for shape in SHAPES:
                if MAKE.SHAPES[shape].family in row.families:
                    with self.subTest(format=name, shape=shape):
                        check(name, row, *self.made("--format", name, "--shape", shape))

    def compare(self, folder, args, shape):
        """All matrices of all layers, and which of them have factors of their inputs."""
        factors = []
        for layer in range(LAYERS):
            checkpoint = verify.Checkpoint(folder, layer)
            for expert in range(shape.experts):
                for i, projection in enumerate(checkpoint.names):
                    matrix = checkpoint.tool_matrix(expert, projection)
                    found = matrix.weights * (1 if matrix.inputs is None else matrix.inputs.astype(np.float64))
                    meant = MAKE.tool_weights(args, shape, layer, expert, i).dense()
                    self.assertEqual(found.shape, meant.shape)
                    self.assertLessEqual(np.abs(found - meant).max(), ROUNDING * np.abs(meant).max(), (layer, expert, projection))
                    factors.append(matrix.inputs)
        return factors

    def test_weights(self):
        def check(name, row, folder, args, shape):
            factors = self.compare(folder, args, shape)
            self.assertEqual({f is not None for f in factors}, {name in WITH_FACTORS})
            if name in WITH_FACTORS:  # gate, up and down of an expert in turn
                np.testing.assert_array_equal(factors[0], factors[1])
                self.assertNotEqual(factors[0].tobytes()[:32], factors[2].tobytes()[:32])
            config = json.loads((folder / "config.json").read_text())["quantization_config"]
            self.assertEqual(config["quant_method"], METHODS[name.split("-")[0]])
            checkpoint = verify.Checkpoint(folder)
            integers = row.codes.startswith("int")
            self.assertEqual(checkpoint.bounds, verify.INTEGER_BOUNDS if integers else verify.FLOAT_BOUNDS)

        self.of_each_format(check)

    def test_groups_and_types(self):
        for name, options in (("auto-round-gptq", "--group 64 --dtype f16"), ("quark-uint4", "--group 64 --dtype f32"),
                              ("modelopt-int4-awq", "--dtype f16"), ("auto-round-fp8-block", "--group 128")):
            with self.subTest(format=name):
                self.compare(*self.made("--format", name, "--shape", "tiny_deepseek", *options.split()))

    def test_outputs(self):
        """A layer's outputs are of order 1."""
        def check(_, __, folder, ___, shape):
            checkpoint = verify.Checkpoint(folder)
            hidden = verify.bf16_to_f32(np.fromfile(folder / "hidden.bin", np.uint16)).reshape(-1, shape.hidden)
            logits = np.fromfile(folder / "logits.bin", np.float32).reshape(-1, shape.experts)
            size = np.sqrt(np.mean(verify.layer(checkpoint, hidden[:4], logits[:4]) ** 2))
            self.assertTrue(0.2 < size < 5, size)

        self.of_each_format(check)

    def test_negative_scales(self):
        folder, _, shape = self.made("--format", "auto-round-gptq", "--shape", "tiny_mixtral")
        checkpoint = verify.Checkpoint(folder)
        tensors = [checkpoint.tool_tensors(e, name) for e in range(shape.experts) for name in checkpoint.names]
        negative = np.concatenate([t["scales"].ravel() for t in tensors]) < 0
        self.assertTrue(0.4 < negative.mean() < 0.6, negative.mean())
        self.assertEqual({int(word) for t in tensors for word in t["qzeros"].ravel()}, {0x77777777})

    def test_dense_words(self):
        for bits, columns, words in DENSE_WORDS:
            with self.subTest(bits=bits):
                codes = np.arange(columns).reshape(1, -1) % (1 << bits)
                found = checkpoint_formats.stream(codes, bits, np.uint32)
                self.assertEqual([f"{word:08x}" for word in found[0]], words)
                np.testing.assert_array_equal(tool_weights.from_stream(found, bits, columns), codes)

    def test_mxfp6_bytes(self):
        numbers = [number.tobytes() for number in checkpoint_formats.SIGNED["e2m3"]]  # 0 and -0 are two of them
        codes = np.array([[numbers.index(np.float64(x).tobytes()) for x in E2M3]])
        self.assertEqual(checkpoint_formats.stream(codes, 6, np.uint8).tobytes().hex(), E2M3_BYTES)

    def test_torchao_metadata(self):
        """Every part that a file's metadata tells of is a tensor of the checkpoint, and the other way round."""
        for name in ("torchao-int8", "torchao-fp8", "torchao-int8-stacked"):
            with self.subTest(format=name):
                folder, *_ = self.made("--format", name, "--shape", "tiny")
                names = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
                metadata = metadata_of(folder / names[next(iter(names))])
                found = set()
                for tensor in json.loads(metadata["tensor_names"]):
                    entry, (module, last) = json.loads(metadata[tensor]), tensor.rsplit(".", 1)
                    parts = entry.get("_tensor_data_names")  # a plain tensor has none
                    found |= {f"{module}._{last}_{part}" for part in parts} if parts else {tensor}
                self.assertEqual(found, set(names))

    def test_refused(self):
        for options in ("torchao-int8-stacked --shape tiny_mixtral", "quark-fp8 --shape tiny_gptoss", "quark-int4 --group channel",
                        "modelopt-nvfp4 --group 32"):
            with self.subTest(options=options), self.assertRaises(SystemExit):
                MAKE.parse(["none", "--format", *options.split()])


if __name__ == "__main__":
    unittest.main()
