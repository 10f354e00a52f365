"""Every call of the package: what it takes and what it gives."""
import ctypes
import gc
import glob
import json
import os
import pathlib
import re
import resource
import tempfile
import unittest
import weakref

import numpy as np

import libmoe
from libmoe import LoadFlags, Reject, Status
from test_libmoe import DOCUMENT, E, H, I, K, batch, layer, parts, tensors

PLAIN = {"num_experts": E, "top_k": K, "hidden_dim": H, "intermediate_size": I, "in_dtype": "bfloat16"}
# what these would tell is known without the call, or told by another one
OTHERWISE = {"moe_status_name": "Status", "moe_reject_name": "Reject", "moe_version_number": "version",
             "moe_apply_flat": "Layer.apply"}


class OnlyDlpack:
    """A tensor of another framework: nothing but the protocol; `versions` False: made before there were versions."""

    def __init__(self, tensor, versions=True, device=(1, 0)):
        self.tensor, self.device = tensor, device
        self.__dlpack__ = None
        self.capsule = (lambda **options: tensor.__dlpack__(**options)) if versions else (lambda: tensor.__dlpack__())

    def __getattribute__(self, name):
        return object.__getattribute__(self, "capsule" if name == "__dlpack__" else name)

    def __dlpack_device__(self):
        return self.device


class Interface(unittest.TestCase):
    def test_every_function_of_the_library_is_in_the_package(self):
        here = os.path.dirname(libmoe.__file__)
        text = "".join(pathlib.Path(name).read_text() for name in glob.glob(os.path.join(here, "_[!a]*.py")))
        used = set(re.findall(r"\bmoe_\w+", text))
        kinds = {name[4:] for name in libmoe.abi_description()["handles"]} - {"error"}
        self.assertEqual({cls._kind for cls in libmoe._handle.Handle.__subclasses__()}, kinds)
        used |= {f"moe_{kind}_destroy" for kind in kinds}
        missing = {f["name"] for f in libmoe.abi_description()["functions"]} - used - set(OTHERWISE)
        self.assertEqual(missing, set())
        for name in OTHERWISE.values():
            self.assertTrue(hasattr(libmoe, name.split(".")[0]), name)

    def test_declarations_are_those_of_the_loaded_library(self):
        description = libmoe.abi_description()
        self.assertEqual(set(libmoe.abi.PROTOTYPES), {f["name"] for f in description["functions"]})
        for struct in description["structs"]:
            declared = getattr(libmoe.abi, struct["name"])
            self.assertEqual(ctypes.sizeof(declared), struct["size"], struct["name"])
            self.assertEqual([(name, getattr(declared, name).offset) for name, *_ in declared._fields_],
                             [(m["name"], m["offset"]) for m in struct["members"]])
        for status in Status:
            self.assertIn(status.name, libmoe.lib.moe_status_name(status).decode())
            if status:
                self.assertIsNot(libmoe._errors.CLASSES[status], libmoe.Error)
        for reason in Reject:
            self.assertEqual(libmoe.lib.moe_reject_name(reason).decode(), "MOE_REJECT_" + reason.name)
        for dtype in libmoe.DType:
            self.assertEqual(libmoe.lib.moe_dtype_name(dtype).decode().upper(), dtype.name)

    def test_it_tells_about_itself(self):
        self.assertEqual(libmoe.version().split("-")[0], libmoe.__version__)
        self.assertEqual(libmoe.lib.moe_version_number(), 1000 * int(libmoe.__version__.split(".")[1]))
        self.assertIn("kernels", libmoe.build_info())
        self.assertTrue(libmoe.has_feature("backend.CPU_INT4"))
        self.assertFalse(libmoe.has_feature("backend.NONE"))
        self.assertIn("num_experts", libmoe.Config.schema()["properties"])
        self.assertTrue(os.path.samefile(libmoe.lib.path, os.environ.get("LIBMOE_PATH", libmoe.lib.path)))
        self.assertEqual(libmoe.describe("activation", {"activation": "silu"})["gated"], True)
        with self.assertRaises(libmoe.InvalidArgument):
            libmoe.describe("weather", {})

    def test_raw_pointers(self):
        it, (hidden, logits) = parts(), batch(3)
        out, err = np.zeros_like(hidden), ctypes.c_void_p()
        with it.layer.raw() as pointer:
            self.assertEqual(libmoe.lib.moe_apply_flat(pointer, 3, 1, hidden.ctypes.data, 1, logits.ctypes.data, None,
                                                       None, 1, out.ctypes.data, ctypes.byref(err)), 0)
            with self.assertRaises(libmoe.Busy):
                it.layer.close()
        np.testing.assert_array_equal(out, it.layer.apply(hidden, logits))
        made = ctypes.c_void_p()
        text = json.dumps(DOCUMENT).encode()
        self.assertEqual(libmoe.lib.moe_config_create(text, len(text), ctypes.byref(made), None), 0)
        with libmoe.Config.adopt(made.value) as config:
            self.assertEqual(config.integer("/num_experts"), E)
        for nothing in (0, None, "x"):
            with self.assertRaisesRegex(TypeError, "address of a config"):
                libmoe.Config.adopt(nothing)


class Models(unittest.TestCase):
    def test_config(self):
        with libmoe.Config(DOCUMENT) as config, config.merge({"top_k": 1, "name": "layers.0"}) as other:
            self.assertEqual((config.integer("/top_k"), other.integer("/top_k")), (K, 1))
            self.assertEqual(other.string("/name"), "layers.0")
            self.assertEqual(other.number("/routing/routed_scaling_factor"), 1.0)
            with self.assertRaises(libmoe.InvalidArgument):
                other.integer("/nothing")
        for wrong in (5, None, ["x"], {"num_experts": {1}}):
            with self.assertRaises((TypeError, libmoe.InvalidArgument)):
                libmoe.Config(wrong)

    def test_platform_and_selection(self):
        with libmoe.Platform() as here, libmoe.Platform({"type": "cuda", "arch": "x86_64", "capability": [9, 0]}) as gpu:
            self.assertEqual(here.description["type"], "cpu")
            self.assertFalse(gpu.has("avx512_vnni"))
            self.assertEqual(here.has("avx2"), "avx2" in here.description["features"])
            with libmoe.Config(DOCUMENT) as config, libmoe.Selection(config, platform=here) as selection:
                candidates = selection.candidates
                self.assertEqual(len(candidates), len(selection.report()["candidates"]))
                chosen, = (c for c in candidates if c.chosen)
                self.assertEqual((chosen.backend, chosen.kernel), (selection.backend, selection.kernel))
                self.assertEqual(chosen.reason, Reject.NONE)
                self.assertTrue(all(c.detail for c in candidates if c.reason))
                size, alignment = selection.packed_size
                self.assertTrue(size > E * 3 * H * I // 2 and alignment >= 64)
            bad = libmoe.Config({**DOCUMENT, "quantization": {"scheme": "W4A8", "group_size": 16}})
            with libmoe.Selection(bad, flags=libmoe.SelectFlags.EXPLAIN_ONLY) as refused:
                self.assertEqual(refused.backend, "")
                self.assertFalse(any(c.chosen for c in refused.candidates))
                with self.assertRaises(libmoe.NoBackend):
                    refused.packed_size


class PackedWeights(unittest.TestCase):
    def test_saved_mapped_and_loaded(self):
        it, (hidden, logits) = parts(), batch(5)
        expected = it.layer.apply(hidden, logits)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "layer.moe")
            steps = []
            with libmoe.Control(lambda done, total: steps.append((done, total))) as control:
                it.packed.save(path, control=control)
                self.assertEqual(control.progress[0], control.progress[1])
            self.assertTrue(steps)
            for flags in (LoadFlags.MMAP | LoadFlags.PREFAULT, LoadFlags.VERIFY, 0):
                with libmoe.Packed.load(path, flags=flags) as packed:
                    np.testing.assert_array_equal(libmoe.Layer(it.selection, packed).apply(hidden, logits), expected)
            block = np.fromfile(path, np.uint8)[:100]
            with self.assertRaises(libmoe.FormatError):
                libmoe.Packed.load_memory(block)
        with self.assertRaises(libmoe.InputOutputError):
            libmoe.Packed.load("nowhere")
        for block in (it.packed.data, bytes(it.packed.data), bytearray(it.packed.data)):
            with libmoe.Packed.load_memory(block, flags=LoadFlags.VERIFY) as packed:
                del block
                np.testing.assert_array_equal(libmoe.Layer(it.selection, packed).apply(hidden, logits), expected)
        with self.assertRaisesRegex(TypeError, "buffer: expected a buffer"):
            libmoe.Packed.load_memory("text")

    def test_outputs_by_name(self):
        it = parts()
        names = [output["name"] for output in it.packed.report()["outputs"]]
        whole = {name: it.packed.get(name) for name in names}
        data = it.packed.data
        for name, tensor in whole.items():
            self.assertFalse(tensor.writable)
            np.testing.assert_array_equal(tensor.numpy()[1], it.packed.get(name, 1).numpy())
            self.assertTrue(np.shares_memory(tensor.numpy(), np.frombuffer(data, np.uint8)))
        it.layer.close()
        it.packed.close()  # views stay
        self.assertEqual(sum(int(t.numpy().astype(np.int64).sum()) > 0 for t in whole.values()), len(names))
        with self.assertRaises(libmoe.InvalidHandle):
            it.packed.get(names[0])
        with self.assertRaisesRegex(libmoe.InvalidArgument, "w9_packed"):
            parts().packed.get("w9_packed")

    def test_outputs_by_dlpack(self):
        """They are read-only, which a capsule has to say."""
        tensor = parts().packed.get("w13_packed", 1)
        with self.assertRaisesRegex(BufferError, "read-only.*numpy 2.1.*copy=True"):
            tensor.__dlpack__()
        says = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
        for version, copy in ((None, True), ((1, 0), True), *([((1, 0), None)] if says else [])):
            view = libmoe._tensor.view_of(tensor.__dlpack__(max_version=version, copy=copy), "x")
            self.assertEqual(view.writable, bool(copy))
            self.assertEqual(ctypes.string_at(view.struct.data, tensor.numpy().nbytes), tensor.numpy().tobytes())
        if not says:
            with self.assertRaisesRegex(BufferError, "read-only"):
                tensor.__dlpack__(max_version=(1, 0))

    def test_dequantized(self):
        it, dense = parts(), np.zeros((H, I), np.float32)
        it.packed.dequantize("w2_weight", 1, dense)
        np.testing.assert_array_equal(dense, tensors()["w2_weight"][1] * np.float32(2**-6))
        with self.assertRaises(libmoe.ShapeError):
            it.packed.dequantize("w2_weight", 1, dense[1:])
        dense.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "out: this array is read-only"):
            it.packed.dequantize("w2_weight", 1, dense)


class Layers(unittest.TestCase):
    def test_what_routing_chose_and_counts(self):
        it, (hidden, logits) = parts(), batch(7)
        ids, weights = np.zeros((7, K), np.int32), np.zeros((7, K), np.float32)
        out = it.layer.apply(hidden, logits, out_topk_ids=ids, out_topk_weights=weights)
        routed_ids, routed_weights = libmoe.route(it.config, logits)
        np.testing.assert_array_equal(ids, routed_ids)
        np.testing.assert_array_equal(weights, routed_weights)
        np.testing.assert_array_equal(it.layer.apply(hidden, topk_ids=ids, topk_weights=weights), out)
        counts = it.layer.expert_counts(reset=True)
        np.testing.assert_array_equal(counts, 2 * np.bincount(ids.ravel(), minlength=E))
        self.assertEqual(it.layer.expert_counts().sum(), 0)
        given = np.zeros((7, K), np.int64)
        self.assertIs(libmoe.route(it.config, logits, topk_ids=given)[0], given)
        np.testing.assert_array_equal(given, ids)
        for wrong in (np.array([[0, E]] * 7, np.int32), np.array([[0, -9]] * 7, np.int64)):
            with self.assertRaises(libmoe.InvalidArgument):
                it.layer.apply(hidden, topk_ids=wrong, topk_weights=weights)

    def test_workspace_in_place_and_options(self):
        it, (hidden, logits) = parts(), batch(6)
        out = it.layer.apply(hidden, logits)
        size, alignment = it.layer.workspace_size(6)
        memory = np.zeros(size + alignment, np.uint8)
        workspace = memory[-memory.ctypes.data % alignment:][:size]
        np.testing.assert_array_equal(it.layer.apply(hidden, logits, workspace=workspace), out)
        with self.assertRaises(libmoe.BufferTooSmall):
            it.layer.apply(hidden, logits, workspace=workspace[:64])
        with self.assertRaisesRegex(ValueError, "workspace: .*read-only"):
            it.layer.apply(hidden, logits, workspace=bytes(size))
        config = libmoe.Config({**DOCUMENT, "disable_inplace": False})
        with libmoe.Layer(libmoe.Selection(config), libmoe.convert(libmoe.Selection(config), it.weights)) as layer:
            layer.apply(hidden, logits, out=hidden, flags=libmoe.ApplyFlags.IN_PLACE)
        np.testing.assert_array_equal(hidden, out)
        self.assertEqual(it.layer.report()["threads"], 1)
        with self.assertRaises(libmoe.Error):
            libmoe.Layer(it.selection, it.packed, correction_bias=np.zeros(E + 1, np.float32))
        with libmoe.Layer(it.selection, it.packed, expert_map=np.arange(E, dtype=np.int32)) as same:
            np.testing.assert_array_equal(same.apply(*batch(6)), out)

    def test_a_batch_of_no_tokens(self):
        with layer() as it:
            self.assertEqual(it.apply(*batch(0)).shape, (0, H))

    def test_dlpack_in_and_out(self):
        config = libmoe.Config({**PLAIN, "router_logits_dtype": "float32"})
        weights, rng = libmoe.Weights(config), np.random.default_rng(1)
        for role, shape in (("w13_weight", (E, 2 * I, H)), ("w2_weight", (E, H, I))):
            bits = (rng.standard_normal(shape).astype(np.float32) / 8).view(np.uint32) >> 16
            tensor = libmoe.empty(shape, "torch.bfloat16")
            tensor.numpy()[:] = bits
            weights.set(role, OnlyDlpack(tensor, versions=role == "w2_weight"))
            del tensor
        it = libmoe.Layer(libmoe.Selection(config), libmoe.convert(libmoe.Selection(config), weights))
        hidden, logits = np.full((3, H), 0x3f80, np.uint16), batch(3)[1]
        expected = it.apply(hidden, logits)
        self.assertEqual(expected.dtype, np.uint16)
        given = libmoe.empty(hidden.shape, "bf16")
        given.numpy()[:] = hidden
        for versions in (True, False):
            out = it.apply(OnlyDlpack(given, versions), OnlyDlpack(logits, versions))
            self.assertEqual(repr(out), f"<libmoe.Tensor bf16 [3, {H}]>")
            np.testing.assert_array_equal(out.numpy(), expected)
            into = libmoe.empty(hidden.shape, "bf16")
            foreign = OnlyDlpack(into, versions)
            self.assertIs(it.apply(given.__dlpack__(), logits, out=foreign), foreign)
            np.testing.assert_array_equal(into.numpy(), expected)
        capsule = given.__dlpack__()
        self.assertIn("dltensor", repr(capsule))
        libmoe.Layer.apply(it, capsule, logits, out=into)
        with self.assertRaisesRegex(TypeError, "hidden: .*used before"):
            it.apply(capsule, logits, out=into)
        with self.assertRaisesRegex(TypeError, "hidden: expected memory of the CPU"):
            it.apply(OnlyDlpack(given, device=(2, 0)), logits)
        with self.assertRaisesRegex(BufferError, "device"):
            given.__dlpack__(dl_device=(2, 0))
        numbers = libmoe.empty((2, 3), "f32")
        numbers.numpy()[:] = 1
        self.assertTrue(np.shares_memory(np.from_dlpack(numbers), numbers.numpy()))
        np.testing.assert_array_equal(np.asarray(numbers), np.ones((2, 3)))
        with self.assertRaisesRegex(TypeError, "bf16 is uint16"):
            np.asarray(given, np.float32)
        for shape in ((-1,), (1,) * 7, (2**62, 4)):
            with self.assertRaisesRegex(ValueError, "shape: "):
                libmoe.empty(shape, "f32")

    def test_memory_taken_by_dlpack_is_given_back(self):
        config, array = libmoe.Config(DOCUMENT), tensors()["w2_weight"].copy()
        gone = weakref.ref(array)
        with libmoe.Weights(config) as weights:
            weights.set("w2_weight", OnlyDlpack(array, versions=False))
            capsule = array.__dlpack__()
            with self.assertRaises(libmoe.ShapeError):
                weights.set("w2_weight", OnlyDlpack(array[1:], versions=False))
            with self.assertRaises(libmoe.UnexpectedWeight):
                weights.set("w2_bias", capsule)
            del array, capsule
            gc.collect()
            self.assertIsNotNone(gone())
        self.assertIsNone(gone())

    def test_outputs_have_the_type_of_the_config(self):
        config = libmoe.Config({**DOCUMENT, "out_dtype": "bfloat16"})
        weights = libmoe.Weights(config)
        for role, array in tensors().items():
            weights.set(role, array)
        selection = libmoe.Selection(config)
        with libmoe.Layer(selection, libmoe.convert(selection, weights)) as it:
            self.assertEqual(it.apply(*batch(2)).dtype, np.uint16)

    def test_nothing_leaks(self):
        it, (hidden, logits) = parts(), batch(2)
        config = libmoe.Config(DOCUMENT)

        def one():
            with libmoe.Weights.from_source(config, lambda role, expert, shard: None) as weights:
                with self.assertRaises(libmoe.MissingWeight):
                    libmoe.convert(it.selection, weights)
            with libmoe.Control(lambda done, total: None) as control, libmoe.Context(log=print) as context:
                libmoe.Packed.load_memory(it.packed.data, context).get("w2_packed", 1).numpy().sum()
                it.layer.apply(OnlyDlpack(libmoe.empty((2, H), "f32"), versions=False), logits, control=control)
            with self.assertRaises(libmoe.ShapeError):
                it.layer.apply(hidden, logits[:1])
            libmoe.empty((10000,), "f32").__dlpack__()
            it.selection.candidates, libmoe.Platform(), libmoe.route(config, logits)

        def rounds(count):
            for _ in range(count):
                one()
            gc.collect()
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before, kept = rounds(100), len(libmoe._handle.kept._objects)
        self.assertLess(rounds(300) - before, 2048, "kilobytes grown in 300 rounds")
        self.assertEqual(len(libmoe._handle.kept._objects), kept)


if __name__ == "__main__":
    unittest.main()
