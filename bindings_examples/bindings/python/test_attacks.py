"""Plain Python must not crash the interpreter or change memory that is not its own, whatever it passes."""
import contextlib
import ctypes
import gc
import io
import itertools
import mmap
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import threading
import types
import unittest
from unittest import mock

import numpy as np

import libmoe
from libmoe._library import load
from test_checkpoint import write_model
from test_dist import Mail
from test_libmoe import DOCUMENT, E, H, I, K, batch, layer, parts, tensors

HERE = pathlib.Path(__file__).parent


def program(text, **environment):
    """Runs Python text in a new process, with this package and its tests in the path."""
    return subprocess.run([sys.executable, "-X", "dev", "-c", textwrap.dedent(text)], cwd=HERE, text=True, timeout=120,
                          capture_output=True, check=False, env={**os.environ, **environment})


class Memory(unittest.TestCase):
    def test_read_only_memory_is_not_written(self):
        hidden, logits = batch(4)
        with tempfile.TemporaryFile() as file, layer() as it:
            file.write(bytes(hidden.nbytes))
            file.flush()
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
                out = np.frombuffer(mapping, np.float32).reshape(hidden.shape)
                for name in ("out", "out_topk_weights"):
                    with self.assertRaisesRegex(ValueError, f"{name}: this array is read-only"):
                        it.apply(hidden, logits, **{name: out})
                del out

    def test_out_shares_no_memory_with_inputs_or_itself(self):
        hidden, logits = batch(4)
        both = np.zeros((8, H), np.float32)
        both[:4] = hidden
        with layer() as it:
            with self.assertRaisesRegex(libmoe.InvalidArgument, "out.*shares memory with hidden"):
                it.apply(both[:4], logits, out=both[1:5])
            with self.assertRaisesRegex(libmoe.Error, "'out'"):
                it.apply(hidden, logits, out=np.lib.stride_tricks.as_strided(both[0], hidden.shape, (0, 4)))
            np.testing.assert_array_equal(both[:4], hidden)
            side = np.zeros((4, 2 * H), np.float32)  # interleaved rows share nothing
            side[:, :H] = hidden
            np.testing.assert_array_equal(it.apply(side[:, :H], logits, out=side[:, H:]), it.apply(hidden, logits))

    def test_a_tensor_reaches_no_further_than_its_array(self):
        config = libmoe.Config({"num_experts": E, "top_k": K, "hidden_dim": H, "intermediate_size": I,
                                "in_dtype": "bfloat16"})
        weights = libmoe.Weights(config)
        weights.set("w13_weight", np.zeros((E, 2 * I, H), np.uint16))
        weights.set("w2_weight", np.zeros((E, H, I), np.uint16))
        it = libmoe.Layer(libmoe.Selection(config), libmoe.convert(libmoe.Selection(config), weights))
        around, logits = np.full((9, H), 7, np.uint16), batch(4)[1]
        hidden = np.zeros((4, H), np.uint16)
        for array, shape in ((around[:1], (4, H)), (around[:0], (4, H)), (around[:4], (4, H, 1)), (around[:1, 0], ())):
            with self.assertRaisesRegex(ValueError, "shape: "):
                it.apply(hidden, logits, out=libmoe.Tensor(array, libmoe.DType.BF16, shape))
        for array, dtype in ((np.zeros(4, object), "u64"), (np.zeros(4, ">u2"), "bf16"), (hidden, "f32"),
                             (hidden.view("u4"), "f32"), (hidden.view("u1"), libmoe.DType.INVALID), ([1], "f32"),
                             (np.ma.array(hidden), "bf16")):
            with self.assertRaises(TypeError):
                libmoe.Tensor(array, dtype)
        with self.assertRaises(ValueError):
            libmoe.Tensor(np.zeros((3, 2), np.uint8), "u4", (3, 5))
        self.assertEqual(libmoe.Tensor(np.zeros((3, 2), np.uint8), "u4", (3, 3)).shape, (3, 3))
        given = libmoe.Tensor(around[:4], libmoe.DType.BF16)
        for name in ("shape", "dtype", "writable"):
            with self.assertRaises(AttributeError):
                setattr(given, name, (10**6, H))
        self.assertIs(it.apply(hidden, logits, out=given), given)
        self.assertTrue((around[:4] == 0).all() and (around[4:] == 7).all())
        strided = libmoe.Tensor(np.full((4, 2 * H), 7, np.uint16)[:, H:], libmoe.DType.BF16)  # to the very end
        it.apply(hidden, logits, out=strided)
        self.assertTrue((strided.numpy() == 0).all() and (strided.numpy().base[:, :H] == 7).all())

    def test_the_library_is_told_how_much_memory_there_is(self):
        """An array that gets another shape after the tensor was made."""
        hidden, logits = batch(4)
        for smaller in ((1, H), (0, H), (1, 1)):
            array = np.zeros((4, H), np.float32)
            out = libmoe.Tensor(array, "f32")
            array.resize(smaller, refcheck=False)
            with layer() as it, self.assertRaisesRegex(libmoe.Error, "out"):
                it.apply(hidden, logits, out=out)

    def test_what_a_class_of_arrays_says_about_itself(self):
        hidden, logits = batch(4)
        for name, lie in (("shape", (10**6, H)), ("strides", (4, 4)), ("ndim", 1), ("dtype", np.dtype("u1")),
                          ("itemsize", 64), ("size", 1), ("ctypes", None), ("flags", np.zeros(1).flags)):
            kind = type("Liar", (np.ndarray,), {name: property(lambda self, lie=lie: lie)})
            with layer() as it:
                expected = it.apply(hidden, logits)
                out = np.zeros_like(hidden)
                it.apply(hidden.view(kind), logits, out=out.view(kind))
                np.testing.assert_array_equal(out, expected)
                out = libmoe.Tensor(np.zeros_like(hidden).view(kind), libmoe.DType.F32)
                it.apply(hidden.view(kind), logits, out=out)
                np.testing.assert_array_equal(out, expected)
                if name == "shape":
                    with self.assertRaises(libmoe.ShapeError):
                        it.apply(hidden[:1].view(kind), np.zeros((10**6, E), np.float32))

    def test_arrays_may_be_dropped_after_set(self):
        config = libmoe.Config({"num_experts": E, "top_k": K, "hidden_dim": H, "intermediate_size": I,
                                "in_dtype": "float32"})
        weights, selection = libmoe.Weights(config), libmoe.Selection(config)
        weights.set("w13_weight", np.full((E, 2 * I, H), 0.5, np.float32))
        weights.set("w2_weight", np.full((E, H, I), 0.5, np.float32))
        gc.collect()
        junk = [np.full((E, 2 * I, H), np.nan, np.float32) for _ in range(50)]
        out = libmoe.Layer(selection, libmoe.convert(selection, weights)).apply(*batch(2))
        self.assertTrue(np.isfinite(out).all() and len(junk) == 50)

    def test_views_outlive_what_they_were_taken_from(self):
        packed = parts().packed
        data, tensor = packed.data, packed.get("w13_packed")
        expected = bytes(data)
        packed.close()
        del packed
        gc.collect()
        junk = [bytes(len(data)) for _ in range(100)]
        self.assertEqual((bytes(data), len(junk)), (expected, 100))
        self.assertIn(tensor.numpy()[0].tobytes(), expected)
        with self.assertRaises(TypeError):
            data[0] = 1

    def test_swapped_and_unfinished_objects(self):
        it = parts()
        for wrong, name, expected, got in ((lambda: libmoe.Layer("x", "y"), "selection", "Selection", "str"),
                                           (lambda: libmoe.Layer(it.packed, it.selection), "selection", "Selection", "Packed"),
                                           (lambda: libmoe.Selection(it.selection), "config", "Config", "Selection"),
                                           (lambda: libmoe.convert(it.selection, it.packed), "weights", "Weights", "Packed")):
            with self.assertRaisesRegex(TypeError, f"{name}: expected a {expected} of libmoe, got {got}"):
                wrong()
        for kind in libmoe._handle.Handle.__subclasses__():
            unfinished = kind.__new__(kind)
            self.assertTrue(unfinished.closed)
            unfinished.close()
            with self.assertRaises(libmoe.InvalidHandle), unfinished.raw():
                pass

    def test_init_of_an_object_that_was_made(self):
        hidden, logits = batch(3)
        it = parts(libmoe.Context(threads=1))
        again = {"config": (DOCUMENT,), "selection": (it.config,), "weights": (it.config,), "context": (),
                 "layer": (it.selection, it.packed, it.context)}
        for name, arguments in again.items():
            one, count = getattr(it, name), len(libmoe._handle.kept._objects)
            with one.raw() as before, self.assertRaisesRegex(libmoe.StateError, f"this {name} was made before"):
                one.__init__(*arguments)
            with one.raw() as after:
                self.assertEqual(before.value, after.value)
            self.assertEqual(len(libmoe._handle.kept._objects), count)
        it.layer.apply(hidden, logits)
        self.assertEqual(it.weights.get("w2_weight", 0).shape, (H, I))
        it.layer.close()
        for one, arguments in ((it.layer, again["layer"]), (libmoe.Platform(), ()), (libmoe.Control(print), (print,))):
            with self.assertRaises(libmoe.StateError):
                one.__init__(*arguments)
        asked = []

        def get(role, expert, shard):
            asked.append(role)
            weights.__init__(it.config)
        weights = libmoe.Weights.from_source(it.config, get)
        with self.assertRaisesRegex(libmoe.CallbackError, "this weights was made before"):
            libmoe.convert(it.selection, weights)
        self.assertEqual(len(asked), 1)
        later = libmoe.Config.__new__(libmoe.Config)  # what failed may be tried again
        with self.assertRaises(libmoe.InvalidConfig):
            later.__init__({"top_k": "x"})
        later.__init__(DOCUMENT)
        self.assertEqual(later.integer("/top_k"), K)

    def test_init_in_several_threads(self):
        for _ in range(100):
            one, start, made = libmoe.Config.__new__(libmoe.Config), threading.Barrier(3), []

            def make(one=one, start=start, made=made):
                start.wait()
                try:
                    one.__init__(DOCUMENT)
                    with one.raw() as pointer:
                        made.append(pointer.value)
                except libmoe.StateError:
                    pass
            threads = [threading.Thread(target=make) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            with one.raw() as pointer:
                self.assertEqual(made, [pointer.value])


class Threads(unittest.TestCase):
    def test_close_races_with_apply(self):
        it, (hidden, logits) = parts(), batch(3)
        for _ in range(200):
            one = libmoe.Layer(it.selection, it.packed)
            threads = [threading.Thread(target=self.use, args=(one, hidden, logits)) for _ in range(3)]
            for thread in threads:
                thread.start()
            one.close()
            for thread in threads:
                thread.join()

    @staticmethod
    def use(one, hidden, logits):
        for _ in range(5):
            try:
                one.apply(hidden, logits)
                one.report()
            except libmoe.InvalidHandle:
                pass

    def test_everything_is_closed_while_it_is_used(self):
        """Each object of a layer, closed by one thread while others use all of them."""
        hidden, logits = batch(3)

        def use(it):
            for call in (lambda: it.layer.apply(hidden, logits), lambda: bytes(it.packed.data[:64]), it.packed.report,
                         lambda: it.packed.get("w13_packed").numpy().sum(), lambda: it.config.document,
                         lambda: it.selection.candidates, lambda: it.config.string("/activation"), it.weights.report,
                         lambda: it.weights.get("w2_weight", 0).numpy().sum(), it.context.report,
                         lambda: libmoe.convert(it.selection, it.weights, it.context)):
                try:
                    call()
                except (libmoe.InvalidHandle, libmoe.Busy):
                    pass
        for _ in range(30):
            it = parts(libmoe.Context(threads=2))
            threads = [threading.Thread(target=use, args=(it,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for part in vars(it).values():
                part.close()
            for thread in threads:
                thread.join()

    def test_one_capsule_given_to_several_threads(self):
        """One of them gets it, and the memory is given back once."""
        module, tensor, given_back = libmoe._tensor, libmoe.empty((4,), "f32"), []
        deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(given_back.append)
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
            ("PyCapsule_New", ctypes.pythonapi))
        own = tensor.__dlpack__()
        plain, taken, rounds, before = module._managed(own)[2].tensor, [], 300, sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, before)
        sys.setswitchinterval(1e-6)

        def take(capsule, start):
            start.wait()
            try:
                taken.append(module.view_of(capsule, "x"))
            except TypeError as error:
                self.assertIn("used before", str(error))
        for i in range(rounds):
            name, kind = ((b"dltensor", module._Managed), (b"dltensor_versioned", module._Versioned))[i % 2]
            managed = kind(tensor=plain, deleter=ctypes.cast(deleter, ctypes.c_void_p))
            if i % 2:
                managed.major = 1
            capsule, start = new(ctypes.addressof(managed), name, None), threading.Barrier(3)
            threads = [threading.Thread(target=take, args=(capsule, start)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(len(taken), 1)
            taken.clear()
            gc.collect(0)
            self.assertEqual(given_back, [ctypes.addressof(managed)])
            given_back.clear()

    def test_the_interpreter_runs_during_a_call(self):
        """A call that waits for another Python thread would wait for ever if it held the interpreter lock."""
        go_on, config = threading.Event(), libmoe.Config(DOCUMENT)

        def get(role, expert, shard):
            self.assertTrue(go_on.wait(10))
            return tensors()[role][expert] if shard is None else None
        timer = threading.Timer(0.05, go_on.set)
        timer.start()
        libmoe.convert(libmoe.Selection(config), libmoe.Weights.from_source(config, get)).close()
        timer.join()
        self.assertIsInstance(libmoe.lib, ctypes.CDLL)
        self.assertNotIsInstance(libmoe.lib, ctypes.PyDLL)


class Processes(unittest.TestCase):
    def test_fork(self):
        hidden, logits = batch(9)
        with libmoe.Context(threads=3) as context:
            it = layer(context)
        expected = it.apply(hidden, logits)
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(it.apply(hidden, logits), expected) else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_objects_do_not_reach_other_processes(self):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            with self.assertRaisesRegex(TypeError, "a Config cannot be copied or pickled"):
                pool.map(type, [libmoe.Config(DOCUMENT)])

    def test_objects_alive_at_exit(self):
        run = program("""
            import threading, libmoe, numpy as np
            from test_libmoe import batch, parts
            it = parts(libmoe.Context(threads=3, log=lambda *line: None))
            keep = [it, it.layer.apply(*batch(9)), it.packed.data, it.packed.get("w2_packed"), libmoe.empty((3,), "bf16"),
                    libmoe.empty((3,), "bf16").__dlpack__(), libmoe.Control(print),
                    libmoe.Weights.from_source(it.config, print)]
            keep.append(keep)
            def use():
                while True:
                    it.layer.apply(*batch(9))
            threading.Thread(target=use, daemon=True).start()
            print("exiting")
            """)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "exiting\n", ""))


    def test_calls_with_callbacks_of_daemon_threads_at_exit(self):
        run = program("""
            import threading, libmoe, numpy as np
            from test_libmoe import batch, parts, tensors
            it, numbers, started, inside = parts(), batch(300), threading.Barrier(4), libmoe.Control()
            def parallel_for(count, task):
                for index in range(count):
                    inside.report(0)
                    task(index)
            one = libmoe.Layer(it.selection, it.packed, libmoe.Context(parallel_for=parallel_for, num_threads=2))
            def source():
                get = lambda role, expert, shard: None if shard else (inside.report(0), tensors()[role][expert])[1]
                libmoe.convert(it.selection, libmoe.Weights.from_source(it.config, get), libmoe.Context(threads=2))
            def use(call):
                started.wait()
                while True:
                    call()
            for call in (lambda: one.apply(*numbers), source, lambda: parts().weights.set("w2_weight", tensors()["w2_weight"])):
                threading.Thread(target=use, args=(call,), daemon=True).start()
            started.wait()
            one.apply(*numbers)
            print("exiting")
            """)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "exiting\n", ""))


class Loading(unittest.TestCase):
    def build(self, folder, text):
        source, file = os.path.join(folder, "other.c"), os.path.join(folder, "other.so")
        with open(source, "w") as f:
            f.write(text)
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", file, source], check=True)
        return file

    def test_another_library_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(ImportError, "libmoe is not found: .*none.so.*LIBMOE_PATH"):
                load(os.path.join(folder, "none.so"))
            (pathlib.Path(folder) / "text.so").write_text("text")
            with self.assertRaisesRegex(ImportError, "libmoe is not found: .*text.so.*"):
                load(os.path.join(folder, "text.so"))
            file = self.build(folder, "int other(void) { return 1; }")
            with self.assertRaisesRegex(ImportError, f"{file} is not libmoe: .*moe_abi_version"):
                load(file)

    def test_another_version(self):
        with tempfile.TemporaryDirectory() as folder:
            file = self.build(folder, """
                int moe_abi_version(void) { return 7; }
                const char* moe_version_string(void) { return "9.8.7"; }""")
            self.assertIn(f"ImportError: {file} is libmoe 9.8.7 with ABI 7; this package is {libmoe.__version__} and "
                          f"needs ABI {libmoe.abi.ABI_VERSION}", program("import libmoe", LIBMOE_PATH=file).stderr)
        with tempfile.TemporaryDirectory() as folder:
            file = self.build(folder, """
                int moe_abi_version(void) { return 0; }
                const char* moe_version_string(void) { return "0.0.9"; }""")
            with self.assertRaisesRegex(libmoe.Unsupported, f"{file} is libmoe 0.0.9 and has no moe_apply;"):
                load(file).moe_apply()


JUNK = [None, 0, -1, 2**70, 1.5, "x", "", "a\0b", "\ud800", b"\xff", [], {}, (), object(), print,
        np.zeros(3, np.float32), np.zeros((0,)), np.array("text"), np.zeros((2, 2), object), np.ma.masked_array(np.zeros((4, H), np.float32)),
        np.zeros((4, H), ">f4"), np.float32(1), float("nan"), True, libmoe.empty((0, 2), "i4")]


class BadInput(unittest.TestCase):
    def test_apply_without_routing_says_what_is_expected(self):
        hidden, _ = batch(1)
        for given in ({}, {"logits": None}, {"topk_weights": np.ones((1, 2), np.float32)}):
            with self.assertRaisesRegex(TypeError, "apply: expected logits, or topk_ids and topk_weights"):
                parts(libmoe.Context(threads=1)).layer.apply(hidden, **given)

    def calls(self):
        """Every call with arguments that are right: name -> function, arguments."""
        it, (hidden, logits) = parts(libmoe.Context(threads=1)), batch(4)
        ids, weights = libmoe.route(it.config, logits)
        arrays = tensors()
        block = bytes(it.packed.data)
        loose = libmoe.Config({**DOCUMENT, "name": "m"})
        write_model("model", layers=1)
        model = libmoe.open("model", it.context)
        first = libmoe.Selection(model.config(0))

        def fresh(use):
            return lambda *a, **k: use(libmoe.Weights(loose))(*a, **k)

        def alone():
            return libmoe.Dist(libmoe.Comm.threads(1)[0], it.config, {"max_tokens_per_rank": 8, "workspace_mb": 1})

        def attached():
            dist = alone()
            dist.attach(it.layer)
            return dist

        def from_mpi(**given):
            def create(handle, text, size, out, err):
                return libmoe.lib.moe_comm_create_threads(1, out, err)
            library = types.SimpleNamespace(moe_mpi_comm_create_f=create)
            with mock.patch.multiple(libmoe._dist, _mpi_library=lambda path: library, _mpi_path=lambda: "libmoe_mpi.so"):
                return libmoe.Comm.from_mpi(**given)
        return {
            "Context": (libmoe.Context, {"log": print, "parallel_for": lambda n, task: [task(i) for i in range(n)],
                                         "num_threads": 1, "allocator": None, "threads": 1, "log_level": "info"}),
            "Control": (libmoe.Control, {"progress": print}),
            "Control.report": (libmoe.Control().report, {"done": 1, "total": 2}),
            "Config": (libmoe.Config, {"document": DOCUMENT}),
            "Config.from_hf": (libmoe.Config.from_hf, {"config_json": "{}", "layer_index": 1}),
            "Config.merge": (it.config.merge, {"patch": {"top_k": 1}}),
            "Config.integer": (it.config.integer, {"pointer": "/top_k"}),
            "Config.number": (it.config.number, {"pointer": "/top_k"}),
            "Config.string": (it.config.string, {"pointer": "/name"}),
            "Platform": (libmoe.Platform, {"description": {"type": "cpu"}}),
            "Platform.has": (libmoe.Platform().has, {"feature": "avx2"}),
            "Selection": (libmoe.Selection, {"config": it.config, "context": it.context, "platform": None, "flags": 0}),
            "describe": (libmoe.describe, {"topic": "activation", "query": {"activation": "silu"}}),
            "has_feature": (libmoe.has_feature, {"name": "x"}),
            "empty": (libmoe.empty, {"shape": (2, 3), "dtype": "bf16"}),
            "Weights": (libmoe.Weights, {"config": it.config}),
            "Weights.from_source": (libmoe.Weights.from_source, {"config": it.config, "get": print, "serial": True}),
            "Weights.load_safetensors": (fresh(lambda w: w.load_safetensors), {"path": "nowhere", "module": "m"}),
            "Weights.load_checkpoint": (lambda checkpoint: libmoe.Weights(model.config(0)).load_checkpoint(checkpoint),
                                        {"checkpoint": model}),
            "Weights.set": (fresh(lambda w: w.set), {"role": "w2_weight", "array": arrays["w2_weight"], "dtype": None}),
            "Weights.set_expert": (fresh(lambda w: w.set_expert), {
                "role": "w13_weight", "expert": 1, "array": arrays["w13_weight"][1, :I], "shard": "w1", "dtype": "i8"}),
            "Weights.set_named": (fresh(lambda w: w.set_named), {
                "name": "m.0.down_proj.weight", "array": arrays["w2_weight"][0], "dtype": None}),
            "Weights.get": (it.weights.get, {"role": "w2_weight", "expert": 0}),
            "Packed.load": (libmoe.Packed.load, {"path": "nowhere", "context": None, "flags": 0, "control": None}),
            "Packed.load_memory": (libmoe.Packed.load_memory, {"buffer": block, "context": None, "flags": 0}),
            "Packed.save": (it.packed.save, {"path": "/dev/null", "control": None}),
            "Packed.get": (it.packed.get, {"role": "w2_packed", "expert": 0}),
            "Packed.dequantize": (it.packed.dequantize, {
                "role": "w2_weight", "expert": 0, "out": np.zeros((H, I), np.float32)}),
            "convert": (libmoe.convert, {"selection": it.selection, "weights": it.weights, "context": None, "into": None,
                                         "flags": 0, "max_temp_bytes": 0, "control": None}),
            "Checkpoint": (libmoe.Checkpoint, {"directory": "model", "context": None, "control": None, "progress": None,
                                               "architecture": "Qwen3MoeForCausalLM"}),
            "open": (libmoe.open, {"directory": "model", "context": None, "control": None, "progress": None}),
            "Checkpoint.config": (model.config, {"layer": 0, "patch": None}),
            "Checkpoint.layer": (model.layer, {
                "layer": 0, "context": None, "patch": None, "platform": None, "load_flags": 0, "allow_fallback": False,
                "correction_bias": None, "expert_map": None, "flags": 0, "control": None, "progress": None}),
            "Checkpoint.packed": (model.packed, {"selection": first, "context": None, "load_flags": 0, "control": None,
                                                 "progress": None}),
            "Checkpoint.convert": (model.convert, {
                "directory": "converted", "context": None, "layers": [0], "platform": None, "patch": None,
                "verify": False, "allow_fallback": False, "control": None, "progress": None}),
            "Checkpoint.tensor": (model.tensor, {"name": "model.layers.0.mlp.gate.weight"}),
            "Checkpoint.fingerprint": (model.fingerprint, {"full": False, "context": None, "control": None,
                                                           "progress": None}),
            "tqdm_progress": (libmoe.Control, {"progress": None}),
            "Layer": (libmoe.Layer, {"selection": it.selection, "packed": it.packed, "context": None,
                                     "correction_bias": None, "expert_map": np.arange(E, dtype=np.int32)}),
            "Layer.apply": (it.layer.apply, {"hidden": hidden, "logits": logits, "out": np.zeros_like(hidden), "flags": 0,
                                             "control": None, "workspace": None, "out_topk_ids": ids.copy(),
                                             "out_topk_weights": weights.copy()}),
            "Layer.apply, TOPK": (it.layer.apply, {"hidden": hidden, "topk_ids": ids, "topk_weights": weights}),
            "Layer.workspace_size": (it.layer.workspace_size, {"num_tokens": 1, "mode": 0}),
            "Layer.expert_counts": (it.layer.expert_counts, {"reset": False}),
            "Comm.threads": (libmoe.Comm.threads, {"size": 2}),
            "Comm.from_transport": (libmoe.Comm.from_transport, {"transport": Mail.all(1)[0],
                                                                 "options": {"timeout_ms": 100}}),
            "Comm.from_mpi": (from_mpi, {"comm": types.SimpleNamespace(py2f=lambda: 0), "library": "libmoe_mpi.so",
                                         "options": {"timeout_ms": 100}}),
            "Comm.set_options": (libmoe.Comm.threads(1)[0].set_options, {"options": {"timeout_ms": 100}}),
            "Dist": (libmoe.Dist, {"comm": libmoe.Comm.threads(1)[0], "config": it.config,
                                   "options": {"chunk_tokens": 8}, "context": None}),
            "Dist.attach": (lambda layer: alone().attach(layer), {"layer": it.layer}),
            "Dist.apply": (attached().apply, {
                "hidden": hidden, "logits": logits, "out": np.zeros_like(hidden), "flags": 0, "control": None,
                "workspace": None, "out_topk_ids": ids.copy(), "out_topk_weights": weights.copy()}),
            "Dist.begin": (lambda **given: attached().begin(**given).finish(), {
                "hidden": hidden, "topk_ids": ids, "topk_weights": weights, "out": None, "control": None}),
            "route": (libmoe.route, {"config": it.config, "logits": logits, "context": None, "correction_bias": None,
                                     "topk_ids": ids, "topk_weights": weights}),
        }

    def setUp(self):  # a path may be any text
        folder, here = tempfile.TemporaryDirectory(), os.getcwd()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, here)
        os.chdir(folder.name)

    def test_junk_for_every_argument(self):
        calls, refused = self.calls(), 0
        for name, (function, arguments) in calls.items():
            with self.subTest(name):
                try:
                    function(**arguments)
                except (libmoe.InvalidConfig, libmoe.InputOutputError) as error:
                    self.assertIn(name, ("Config.from_hf", "Weights.load_safetensors", "Packed.load", "Packed.save"), error)
            for argument, junk in itertools.product(arguments, JUNK):
                try:
                    with contextlib.redirect_stdout(io.StringIO()):  # print, as progress
                        function(**{**arguments, argument: junk})
                except (TypeError, ValueError, BufferError, libmoe.Error) as error:
                    refused += 1
                    self.assertNotIn("takes exactly", str(error), (name, argument, junk))
                    self.assertTrue(str(error), (name, argument, junk))
                    self.assertNotIsInstance(error, libmoe.InternalError, (name, argument, junk))
        self.assertGreater(refused, 1000)

    def test_junk_names_the_argument(self):
        calls = self.calls()
        for name, argument in (("Layer.apply", "hidden"), ("Layer.apply", "logits"), ("Layer.apply", "out"),
                               ("Layer.apply", "control"), ("Layer.apply", "flags"), ("Layer.apply", "workspace"),
                               ("Weights.set_expert", "expert"), ("Weights.set", "role"), ("Selection", "config"),
                               ("convert", "selection"), ("Packed.load", "path"), ("describe", "topic"),
                               ("Layer.workspace_size", "num_tokens"), ("Context", "num_threads"),
                               ("open", "directory"), ("open", "progress"), ("Checkpoint.layer", "layer"),
                               ("Checkpoint.layer", "load_flags"), ("Checkpoint.layer", "platform"),
                               ("Checkpoint.layer", "patch"), ("Checkpoint.convert", "layers"),
                               ("Checkpoint.convert", "control"), ("Checkpoint.packed", "selection"),
                               ("Weights.load_checkpoint", "checkpoint"), ("Checkpoint.tensor", "name"),
                               ("Comm.threads", "size"), ("Comm.from_transport", "transport"),
                               ("Comm.from_transport", "options"), ("Comm.from_mpi", "comm"),
                               ("Comm.set_options", "options"), ("Dist", "comm"), ("Dist", "config"),
                               ("Dist", "context"), ("Dist.attach", "layer"), ("Dist.apply", "hidden"),
                               ("Dist.apply", "out"), ("Dist.apply", "flags"), ("Dist.begin", "control")):
            function, arguments = calls[name]
            with self.subTest(name, argument=argument), self.assertRaisesRegex(TypeError, f"^{argument}: .*object"):
                function(**{**arguments, argument: object()})

    def test_every_public_call_is_in_the_table(self):
        named = {name.split(",")[0] for name in self.calls()}
        for name in libmoe.__all__:
            value = getattr(libmoe, name)
            if isinstance(value, type) and issubclass(value, libmoe._handle.Handle):
                methods = {m for m, f in vars(value).items() if not m.startswith("_") and not isinstance(f, property)}
                methods -= {"report", "take_log", "cancel", "schema", "close", "local_config", "poll",
                            "finish"}  # without arguments
                self.assertEqual({f"{name}.{method}" for method in methods} - named, set())
            elif callable(value) and getattr(value, "__module__", "").startswith("libmoe") and not isinstance(value, type):
                self.assertTrue(name in named | {"version", "build_info", "abi_description"}, name)


if __name__ == "__main__":
    unittest.main()
