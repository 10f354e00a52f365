"""All layers of a model: opened, run, converted, opened again; their errors, progress, reprs; the programs of README.md."""
import ctypes
import errno
import json
import os
import pathlib
import pickle
import re
import struct
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import numpy as np

import libmoe
from libmoe import LayerKind, LoadFlags, Phase, Unit

E, K, H, I = 4, 2, 64, 32
HERE = pathlib.Path(__file__).parent
ROUTER = "model.layers.{}.mlp.gate.weight"


def write_model(folder, layers=3, dense=(), seed=0):
    """A small Qwen3 model of int4 codes, as Hugging Face has it."""
    folder, rng, tensors = pathlib.Path(folder), np.random.default_rng(seed), {}
    folder.mkdir()
    for number in set(range(layers)) - set(dense):
        for expert in range(E):
            for name, shape in (("gate_proj", (I, H)), ("up_proj", (I, H)), ("down_proj", (H, I))):
                weight = f"model.layers.{number}.mlp.experts.{expert}.{name}.weight"
                tensors[weight] = "I8", rng.integers(-8, 8, shape, np.int8)
                tensors[weight + "_scale"] = "BF16", np.full((shape[0], shape[1] // 32), 0x3C80, np.uint16)
        tensors[ROUTER.format(number)] = "BF16", rng.integers(0x3C00, 0x3E00, (E, H), np.uint16)
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
    inputs = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu", "hidden_size": H,
        "intermediate_size": 2 * H, "moe_intermediate_size": I, "num_experts": E, "num_experts_per_tok": K,
        "num_hidden_layers": layers, "mlp_only_layers": list(dense), "decoder_sparse_step": 1, "norm_topk_prob": True,
        "torch_dtype": "bfloat16", "quantization_config": {
            "quant_method": "compressed-tensors", "format": "int-quantized",
            "config_groups": {"g": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}}}}))
    return tensors


def numbers(tokens=5):
    rng = np.random.default_rng(3)
    return rng.integers(0x3E00, 0x3F80, (tokens, H), np.uint16), rng.standard_normal((tokens, E), np.float32)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tensors = write_model(self.folder / "model", dense=(1,))
        self.context = libmoe.Context()
        self.model = libmoe.open(self.folder / "model", self.context)


class Checkpoints(Folder):
    def by_hand(self, layer):
        """The same layer by the calls for single layers."""
        config = libmoe.Config.from_hf((self.folder / "model" / "config.json").read_bytes(), layer_index=layer)
        selection, weights = libmoe.Selection(config), libmoe.Weights(config)
        weights.load_safetensors(self.folder / "model")
        return libmoe.convert(selection, weights), selection

    def test_what_it_is(self):
        self.assertEqual(len(self.model), 3)
        self.assertTrue(self.model)
        first, dense, last = self.model
        self.assertEqual(first, (0, LayerKind.EXPERTS, False, False, E, K, H, I, 26112, "model.layers.0.mlp.experts", ""))
        self.assertEqual((dense.kind, dense.name, dense.num_experts), (LayerKind.DENSE, "", 0))
        self.assertEqual(self.model.layers, [first, dense, last])
        self.assertEqual((self.model[-1], self.model[1:]), (last, [dense, last]))
        for index in (3, -4, 2**80):
            with self.assertRaisesRegex(IndexError, "of 3 layers"):
                self.model[index]
        with self.assertRaises(TypeError):
            self.model["x"]
        report = self.model.report()
        self.assertEqual((report["class"], report["quantization_from"]), ("Qwen3MoeForCausalLM", "config.json"))
        self.assertEqual(report["layers"][2]["router"], [ROUTER.format(2)])

    def test_kinds_that_are_not_known_are_other(self):
        def info(checkpoint, layer, out, err):
            out._obj.kind, out._obj.flags, out._obj.name, out._obj.problem = 99, 5, b"", b"new"
            return 0
        with mock.patch.object(libmoe.lib, "moe_checkpoint_layer_info", info):
            it = self.model[0]
        self.assertEqual((it.kind, it.is_mtp, it.is_converted, it.problem), (LayerKind.OTHER, True, False, "new"))

    def test_layers_give_the_bytes_of_single_calls_and_of_converted_ones(self):
        hidden, logits = numbers()
        self.model.convert(self.folder / "converted")
        converted = libmoe.open(self.folder / "converted", self.context)
        self.assertEqual([it.is_converted for it in converted], [True, False, True])
        self.assertEqual(converted.report()["converted"]["source"], self.model.fingerprint())
        outs = []
        for number in (0, 2):
            packed, selection = self.by_hand(number)
            expected = libmoe.Layer(selection, packed).apply(hidden, logits)
            outs.append(expected)
            for one in (self.model.layer(number), converted.layer(number), converted.layer(number, load_flags=0),
                        converted.layer(number, load_flags=LoadFlags.MMAP | LoadFlags.VERIFY),
                        self.model.layer(number, libmoe.Context(threads=1))):
                np.testing.assert_array_equal(one.apply(hidden, logits), expected)
            for one in (self.model, converted):
                chosen = libmoe.Selection(one.config(number))
                self.assertEqual(bytes(one.packed(chosen).data), bytes(packed.data))
            weights = libmoe.Weights(self.model.config(number))
            weights.load_checkpoint(self.model)
            self.assertEqual(bytes(libmoe.convert(selection, weights).data), bytes(packed.data))
        self.assertFalse(np.array_equal(*outs))
        it = self.model.layer(2)
        self.assertEqual((it.name, it.num_experts, it.top_k, it.hidden_dim), ("model.layers.2.mlp.experts", E, K, H))
        self.assertEqual(self.model.layer(0).report()["threads"], self.context.report()["threads"])
        self.assertEqual(self.model.layer(0, libmoe.Context(threads=1)).report()["threads"], 1)

    def test_objects_may_end_before_what_was_made_of_them(self):
        hidden, logits = numbers()
        layer = self.model.layer(2)
        expected = layer.apply(hidden, logits)
        self.model.close()
        self.context.close()
        np.testing.assert_array_equal(layer.apply(hidden, logits), expected)

    def test_some_layers_and_one_part(self):
        self.model.convert(self.folder / "some", layers=(number for number in (2,)), verify=True)
        some = libmoe.open(self.folder / "some")
        self.assertEqual([it.is_converted for it in some], [False, False, True])
        with self.assertRaises(libmoe.MissingWeight):
            some.layer(0)
        before = (self.folder / "some" / "layer-00002.moe").stat().st_ino
        self.model.convert(self.folder / "some", verify=True)
        self.assertEqual((self.folder / "some" / "layer-00002.moe").stat().st_ino, before)
        self.assertEqual([it.is_converted for it in libmoe.open(self.folder / "some")], [True, False, True])
        patch = {"parallel": {"tp_size": 2, "tp_rank": 1, "enable_expert_parallel": True}}
        self.assertEqual(self.model.config(0, patch).integer("/num_local_experts"), E // 2)
        self.model.convert(self.folder / "half", patch=patch)
        half = libmoe.open(self.folder / "half")
        self.assertEqual(half.config(0).integer("/num_local_experts"), E // 2)
        self.assertIn(f"{E // 2} of {E} experts", repr(self.model.layer(0, patch=patch)))
        with self.assertRaises(libmoe.ConfigMismatch):
            self.model.convert(self.folder / "half")
        arm = libmoe.Platform({"type": "cpu", "arch": "aarch64", "features": ["neon", "dotprod", "i8mm"]})
        self.model.convert(self.folder / "arm", platform=arm, layers=[0])
        self.assertEqual(libmoe.open(self.folder / "arm").report()["converted"]["platform"], "cpu aarch64")
        gpu = libmoe.Platform({"type": "cuda", "arch": "x86_64", "capability": [9, 0]})
        for call in (lambda: self.model.layer(0, platform=gpu), lambda: self.model.convert(self.folder / "x", platform=gpu)):
            with self.assertRaisesRegex(libmoe.NoBackend, "cuda 9.0"):
                call()

    def test_a_backend_that_is_a_wish(self):
        flags = []

        def note(*arguments):
            flags.append(next(a._obj for a in arguments if hasattr(a, "_obj")).select_flags)
            return 0
        for name, call in (("layer", lambda allow: self.model.layer(0, allow_fallback=allow)),
                           ("convert", lambda allow: self.model.convert("x", allow_fallback=allow))):
            for allow in (False, True):
                with mock.patch.object(libmoe.lib, "moe_checkpoint_" + name, note):
                    call(allow)
        self.assertEqual(flags, 2 * [0, libmoe.SelectFlags.ALLOW_FALLBACK])

    def test_tensors(self):
        tensor = self.model.tensor(ROUTER.format(0))
        self.assertEqual((tensor.dtype, tensor.shape, tensor.writable), ("bf16", (E, H), True))
        self.model.close()
        np.testing.assert_array_equal(tensor.numpy(), self.tensors[ROUTER.format(0)][1])
        tensor.numpy()[:] = 0
        tensor.__dlpack__()
        with libmoe.open(self.folder / "model") as model:
            np.testing.assert_array_equal(model.tensor(ROUTER.format(0)).numpy(), self.tensors[ROUTER.format(0)][1])
            with self.assertRaisesRegex(libmoe.MissingWeight, "no tensor"):
                model.tensor("nothing")

    def test_fingerprints(self):
        fast, full = self.model.fingerprint(), self.model.fingerprint(full=True)
        self.assertRegex(fast, "^fast:xxh3:[0-9a-f]{16}$")
        self.assertRegex(full, "^full:xxh3:[0-9a-f]{16}$")
        write_model(self.folder / "other", dense=(1,), seed=1)
        other = libmoe.open(self.folder / "other")
        self.assertNotIn(other.fingerprint(), (fast, ""))
        self.model.convert(self.folder / "converted")
        converted = libmoe.open(self.folder / "converted")
        self.assertEqual((converted.fingerprint(), converted.fingerprint(full=True)), (fast, ""))

    def test_errors(self):
        for number, reason, kind in ((3, "past_the_end", libmoe.InvalidArgument), (1, "dense_layer", libmoe.InvalidConfig),
                                     (-1, "past_the_end", libmoe.InvalidArgument)):
            for call in (self.model.layer, self.model.config):
                with self.assertRaises(kind) as caught:
                    call(number)
                self.assertEqual(caught.exception.details["reason"], reason)
        self.model.convert(self.folder / "converted")
        write_model(self.folder / "other", dense=(1,), seed=1)
        with self.assertRaisesRegex(libmoe.ConfigMismatch, "source is fast:.*this call's is fast:"):
            libmoe.open(self.folder / "other").convert(self.folder / "converted")
        converted = libmoe.open(self.folder / "converted")
        for call in (lambda: converted.tensor(ROUTER.format(0)),
                     lambda: libmoe.Weights(converted.config(0)).load_checkpoint(converted)):
            with self.assertRaisesRegex(libmoe.Unsupported, "no source tensors"):
                call()
        with self.assertRaises(libmoe.InvalidConfig):
            libmoe.open(self.folder / "model", layer_index=3)
        with self.assertRaisesRegex(TypeError, "layers: expected an integer, got str"):
            self.model.convert(self.folder / "x", layers=["0"])
        with self.assertRaisesRegex(ValueError, "layers: expected at least one"):
            self.model.convert(self.folder / "x", layers=[])
        with self.assertRaisesRegex(TypeError, "layers: expected integers, got str"):
            self.model.convert(self.folder / "x", layers="012")

    def test_errors_of_files_are_pythons(self):
        with self.assertRaises(FileNotFoundError) as caught:
            libmoe.open(self.folder / "nowhere")
        error = caught.exception
        self.assertIsInstance(error, libmoe.InputOutputError)
        self.assertIs(type(error), libmoe.FileNotFound)
        self.assertEqual((error.errno, error.strerror), (errno.ENOENT, os.strerror(errno.ENOENT)))
        self.assertEqual(error.filename, str(self.folder / "nowhere" / "config.json"))
        self.assertEqual(str(error), f"MOE_ERR_IO at '{error.filename}': {error.message}")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), vars(again), str(again), again.errno, again.strerror, again.filename),
                         (type(error), vars(error), str(error), error.errno, error.strerror, error.filename))
        with self.assertRaises(FileNotFoundError):
            libmoe.Packed.load(self.folder / "nowhere")
        with self.assertRaises(FileNotFoundError):
            self.model.convert(self.folder / "nowhere" / "below")
        with self.assertRaises(OSError) as caught:
            libmoe.open(self.folder / "model" / "config.json")
        self.assertIsInstance(caught.exception, libmoe.InputOutputError)
        for number, kind in ((errno.EACCES, PermissionError), (errno.ENOTDIR, NotADirectoryError),
                             (errno.EISDIR, IsADirectoryError), (errno.ENOSPC, OSError)):
            error = libmoe._errors.failure(12, "file", "it failed", {"errno": number})
            self.assertIsInstance(error, kind)
            self.assertEqual((error.errno, error.filename), (number, "file"))
        self.assertIsNone(libmoe._errors.failure(12, "", "it failed").errno)
        if os.geteuid():
            (self.folder / "model" / "config.json").chmod(0)
            with self.assertRaises(PermissionError):
                libmoe.open(self.folder / "model")


class Closing(Folder):
    """bindings_examples/bindings/PROTOCOL.md"""

    def test_use_after_close_is_an_error(self):
        selection, weights = libmoe.Selection(self.model.config(0)), libmoe.Weights(self.model.config(0))
        self.model.close()
        self.model.close()
        for use in (lambda: len(self.model), lambda: self.model[0], lambda: list(self.model), lambda: self.model.layers,
                    lambda: self.model.layer(0), lambda: self.model.config(0), lambda: self.model.packed(selection),
                    lambda: self.model.convert(self.folder / "x"), lambda: self.model.tensor("x"), self.model.report,
                    self.model.fingerprint, lambda: weights.load_checkpoint(self.model)):
            with self.assertRaisesRegex(libmoe.InvalidHandle, "this checkpoint is closed") as caught:
                use()
            self.assertEqual(caught.exception.subject, "checkpoint")
        self.assertFalse((self.folder / "x").exists())
        self.assertEqual(repr(self.model), "<libmoe.Checkpoint closed>")

    def test_a_closed_context_is_an_error(self):
        self.context.close()
        with self.assertRaisesRegex(libmoe.InvalidHandle, "this context is closed"):
            self.model.layer(0)
        self.model.layer(0, libmoe.Context(threads=1)).close()

    def test_close_inside_its_own_call_is_busy(self):
        seen = []

        def close(done, total):
            for thing in (self.model, self.context, control):
                with self.assertRaises(libmoe.Busy):
                    thing.close()
            seen.append(len(self.model))  # calls that only read go on
        with libmoe.Control(close) as control:
            self.model.convert(self.folder / "converted", control=control)
        self.assertEqual(set(seen), {3})
        self.model.close()

    def test_close_waits(self):
        inside, go_on = threading.Event(), threading.Event()

        def wait(done, total):
            inside.set()
            go_on.wait(10)
        caller = threading.Thread(target=self.model.convert, args=(self.folder / "converted",), kwargs={"progress": wait})
        closer = threading.Thread(target=self.model.close)
        caller.start()
        self.assertTrue(inside.wait(10))
        closer.start()
        closer.join(0.05)
        self.assertTrue(closer.is_alive())
        go_on.set()
        for thread in (caller, closer):
            thread.join(20)
            self.assertFalse(thread.is_alive())
        self.assertTrue(self.model.closed)
        self.assertEqual(sum(it.is_converted for it in libmoe.open(self.folder / "converted")), 2)

    def test_it_is_closed_while_it_is_used(self):
        def use(model):
            for _ in range(5):
                try:
                    model.layer(0).close()
                    self.assertEqual(len(model.layers), 3)
                    model.tensor(ROUTER.format(0)).numpy().sum()
                except libmoe.InvalidHandle:
                    pass
        for _ in range(30):
            model = libmoe.open(self.folder / "model")
            threads = [threading.Thread(target=use, args=(model,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            model.close()
            for thread in threads:
                thread.join()

    def test_forgotten_ones_give_their_files_back(self):
        def files():  # of the model; other threads open files, too
            links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
            return sorted(name for name in map(os.path.realpath, links) if name.startswith(os.path.realpath(self.folder)))
        before = files()  # of self.model
        self.assertGreater(len(before), 0)
        for _ in range(20):
            libmoe.open(self.folder / "model").layer(0)
        self.assertEqual(files(), before)


class ProgressOfCalls(Folder):
    def test_the_state_within_the_callback_and_after(self):
        seen = []
        with libmoe.Control(lambda done, total: seen.append((control.state, done, total))) as control:
            self.assertEqual(control.state, (Phase.NONE, Unit.NONE, 0, 0, None, 0, 0, 0, 0))
            self.assertEqual(repr(control), "<libmoe.Control idle>")
            self.model.convert(self.folder / "converted", control=control)
            last = control.state
            self.assertRegex(repr(control), "^<libmoe.Control save layer 2, (.*) of \\1>$")
        states = [state for state, _, _ in seen]
        self.assertEqual(states[-1], last._replace(layers_done=1))
        self.assertEqual(last.layers_done, 2)
        for state, done, total in seen:
            self.assertEqual((state.done, state.total), (done, total))
            self.assertEqual(state.unit, {Phase.HASH: Unit.BYTES, Phase.CONVERT: Unit.EXPERTS, Phase.SAVE: Unit.BYTES}[state.phase])
        self.assertEqual({(s.phase, s.layer) for s in states},
                         {(Phase.HASH, None), *((p, n) for p in (Phase.CONVERT, Phase.SAVE) for n in (0, 2))})
        self.assertEqual([s.bytes_done for s in states], sorted(s.bytes_done for s in states))
        self.assertEqual((last.bytes_done, last.layers_total), (last.bytes_total, 2))
        self.assertGreater(last.bytes_total, 0)

    def test_each_long_call_has_progress(self):
        calls = {Phase.OPEN: lambda **how: libmoe.open(self.folder / "model", **how),
                 Phase.HASH: lambda **how: self.model.fingerprint(True, **how),
                 Phase.CONVERT: lambda **how: self.model.layer(0, **how)}
        calls2 = {Phase.LOAD: lambda **how: libmoe.open(self.folder / "converted").layer(0, **how)}
        self.model.convert(self.folder / "converted")
        for phase, call in {**calls, **calls2}.items():
            with self.subTest(phase), libmoe.Control() as control:
                call(control=control)
                self.assertEqual(control.state.phase, phase)
                seen = []
                call(progress=lambda *how, seen=seen: seen.append(how))
                self.assertTrue(seen)
                with self.assertRaisesRegex(TypeError, "progress: expected None beside a control"):
                    call(progress=print, control=control)
                control.cancel()
                with self.assertRaises(libmoe.Cancelled):
                    call(control=control)

                def broken(*_):
                    raise RuntimeError("enough")
                with self.assertRaises(libmoe.CallbackError) as caught:
                    call(progress=broken)
                self.assertEqual(str(caught.exception.__cause__), "enough")

    def test_a_cancelled_conversion_goes_on(self):
        def stop(done, total):
            if control.state.layers_done == 1:
                control.cancel()
        with libmoe.Control(stop) as control, self.assertRaises(libmoe.Cancelled):
            self.model.convert(self.folder / "converted", control=control)
        self.assertEqual([it.is_converted for it in libmoe.open(self.folder / "converted")], [True, False, False])
        self.model.convert(self.folder / "converted")
        self.assertEqual([it.is_converted for it in libmoe.open(self.folder / "converted")], [True, False, True])

    def test_long_calls_where_no_thread_can_start(self):
        seen = []
        with mock.patch("_thread.start_new_thread", side_effect=RuntimeError("can't start new thread")):
            self.model.fingerprint(True, progress=lambda *numbers: seen.append(numbers))
            with self.assertRaisesRegex(libmoe.CallbackError, "progress"):
                self.model.fingerprint(True, progress=lambda: None)
        self.assertTrue(seen)

    def test_words_that_are_not_known(self):
        def state(control, out, err):
            out._obj.phase, out._obj.unit, out._obj.layer = 77, 88, -1
            return 0
        with libmoe.Control() as control, mock.patch.object(libmoe.lib, "moe_control_state", state):
            self.assertEqual(control.state[:2], (Phase.NONE, Unit.NONE))

    def test_a_bar(self):
        bars = []

        class Bar:
            def __init__(self, total, **options):
                self.total, self.options, self.n, self.desc, self.open, self.seen = total, options, 0, "", True, []
                bars.append(self)

            def set_description(self, text, refresh):
                self.desc = text + ": "
                self.seen.append(text)

            def update(self, more):
                assert more >= 0 and self.open
                self.n += more

            def close(self):
                self.open = False
        self.assertNotIn("tqdm", sys.modules)
        with mock.patch.dict(sys.modules, {"tqdm": None, "tqdm.auto": None}), self.assertRaises(ImportError):
            libmoe.Control("tqdm")
        fake = types.SimpleNamespace(tqdm=Bar)
        with mock.patch.dict(sys.modules, {"tqdm": fake, "tqdm.auto": fake}):
            self.model.convert(self.folder / "converted", progress="tqdm")
            bar, = bars
            self.assertEqual((bar.n, bar.open, bar.options["unit"]), (bar.total, False, "B"))
            self.assertEqual(bar.seen, ["hash", "convert layer 0", "save layer 0", "convert layer 2", "save layer 2"])
            progress = libmoe.tqdm_progress(leave=False)
            self.assertEqual(repr(progress), "<libmoe.TqdmProgress no call>")
            with libmoe.Control(progress) as control:
                for _ in range(2):  # a bar for each call
                    self.model.fingerprint(True, control=control)
                self.assertEqual([b.open for b in bars], [False, False, True])
                with self.assertRaisesRegex(ValueError, "progress: this bar has a Control already"):
                    libmoe.Control(progress)
            self.assertEqual([(b.open, b.n, b.options.get("leave")) for b in bars[1:]], [(False, bars[1].total, False)] * 2)
            with self.assertRaises(libmoe.Error):
                self.model.layer(1, progress="tqdm")
        with self.assertRaisesRegex(TypeError, "progress: expected a function or \"tqdm\", got str"):
            libmoe.Control("bar")


class Texts(Folder):
    def test_reprs(self):
        document = self.model.config(0)
        selection, weights = libmoe.Selection(document), libmoe.Weights(document)
        self.assertRegex(repr(weights), r"^<libmoe.Weights 0 tensors, \d+ missing>$")
        weights.load_checkpoint(self.model)
        packed, threads = libmoe.convert(selection, weights), self.context.report()["threads"]
        kernel, sizes = selection.kernel, f"{E} experts top {K}, {H} x {I}"
        self.assertEqual(repr(self.model.layer(0)),
                         f"<libmoe.Layer {kernel}, {sizes}, {threads} thread{'s' * (threads > 1)}>")
        self.assertEqual(repr(libmoe.Layer(selection, packed)), f"<libmoe.Layer {kernel}, {sizes}, 1 thread>")
        self.assertEqual(repr(libmoe.Context(threads=1)), "<libmoe.Context 1 thread>")
        self.assertEqual(repr(document), f"<libmoe.Config model.layers.0.mlp.experts, {sizes}>")
        self.assertEqual(repr(selection), f"<libmoe.Selection {selection.backend} {kernel} {selection.layout}>")
        self.assertEqual(repr(weights), "<libmoe.Weights 4 tensors, complete>")
        self.assertRegex(repr(packed), rf"^<libmoe.Packed {re.escape(selection.layout)}, {sizes}, \d+ kB>$")
        self.assertEqual(repr(self.model),
                         f"<libmoe.Checkpoint Qwen3MoeForCausalLM, 3 layers, 52 kB, {self.folder / 'model'}>")
        self.model.convert(self.folder / "converted")
        self.assertRegex(repr(libmoe.open(self.folder / "converted")), "3 layers, .* kB, converted, ")
        self.assertEqual(repr(libmoe.Platform({"type": "cuda", "arch": "x86_64", "capability": [9, 0]})),
                         "<libmoe.Platform cuda x86_64 9.0>")
        self.assertRegex(repr(libmoe.Platform()), r"^<libmoe.Platform cpu \w+>$")
        for kind in libmoe._handle.Handle.__subclasses__():
            self.assertEqual(repr(kind.__new__(kind)), f"<libmoe.{kind.__name__} closed>")
        made = ctypes.c_void_p()
        self.assertEqual(libmoe.lib.moe_buffer_create(3, 0, ctypes.byref(made), None), 0)
        self.assertEqual(repr(libmoe._handle.Buffer.adopt(made.value)), "<libmoe.Buffer 3 bytes>")
        for size, text in ((0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (9949, "9.9 kB"), (9960, "10 kB"),
                           (999600, "1.0 MB"), (61 * 10**7, "610 MB"), (10**16, "10000 TB")):
            self.assertEqual(libmoe._handle.size_text(size), text)

    def test_a_repr_within_a_conversion(self):
        seen = []

        def get(role, expert, shard):
            seen.append(repr(weights))
            return None
        weights = libmoe.Weights.from_source(self.model.config(0), get)
        with self.assertRaises(libmoe.MissingWeight):
            libmoe.convert(libmoe.Selection(self.model.config(0)), weights)
        self.assertTrue(all(text.startswith("<libmoe.Weights ") for text in seen) and seen)

    def test_programs_of_the_readme(self):
        programs = re.findall(r"^```python\n(.*?)^```$", (HERE / "README.md").read_text(), re.M | re.S)
        self.assertEqual([program.count("\n") for program in programs], [10, 6])
        write_model(self.folder / "other")
        config = json.loads((self.folder / "other" / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "bitsandbytes"}
        (self.folder / "other" / "config.json").write_text(json.dumps(config))
        for program, lines in zip(programs, (1, 6)):
            path = filter(None, (str(HERE), os.environ.get("PYTHONPATH")))
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
            for folder in (self.folder / "model", self.folder / "nowhere", self.folder / "other"):
                run = subprocess.run([sys.executable, "-", folder], input=program, capture_output=True, text=True,
                                     check=False, env=environment)
                if folder.name == "model":
                    self.assertEqual((run.returncode, run.stderr), (0, ""))
                    self.assertEqual(run.stdout.count("<libmoe.Layer "), lines)
                else:
                    self.assertEqual(run.returncode, 1)
                    self.assertRegex(run.stderr, "nowhere/config.json'" if folder.name == "nowhere" else "libmoe.*bitsandbytes")


if __name__ == "__main__":
    unittest.main()
