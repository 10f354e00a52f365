#!/usr/bin/python3
"""What the Python package promises: errors with a place, no copies, no leaks, threads side by side, no crash.

How objects are closed: bindings_examples/bindings/PROTOCOL.md, which names the tests of its rules here and in the other files.
"""
import copy
import gc
import os
import pathlib
import pickle
import resource
import signal
import threading
import time
import types
import unittest
import weakref
from unittest import mock

import numpy as np

import libmoe

E, K, H, I = 4, 2, 64, 32
DOCUMENT = {"num_experts": E, "top_k": K, "hidden_dim": H, "intermediate_size": I, "in_dtype": "float32",
            "quantization": {"scheme": "W4A8", "group_size": 32}}


def tensors():
    rng = np.random.default_rng(7)
    scale = np.uint16(0x3C80)  # 2^-6 in bfloat16
    return {"w13_weight": rng.integers(-8, 8, (E, 2 * I, H), np.int8),
            "w13_scale": np.full((E, 2 * I, H // 32), scale),
            "w2_weight": rng.integers(-8, 8, (E, H, I), np.int8),
            "w2_scale": np.full((E, H, I // 32), scale)}


def parts(context=None):
    """A layer and all that it was made of."""
    it = types.SimpleNamespace(context=context, config=libmoe.Config(DOCUMENT))
    it.selection, it.weights = libmoe.Selection(it.config, context), libmoe.Weights(it.config)
    for role, array in tensors().items():
        it.weights.set(role, array)
    it.packed = libmoe.convert(it.selection, it.weights, context)
    it.layer = libmoe.Layer(it.selection, it.packed, context)
    return it


def layer(context=None):
    it = parts(context)
    for part in (it.config, it.selection, it.weights, it.packed):
        part.close()
    return it.layer


def batch(tokens):
    rng = np.random.default_rng(3)
    return rng.standard_normal((tokens, H), np.float32), rng.standard_normal((tokens, E), np.float32)


class Promises(unittest.TestCase):
    def test_an_error_says_what_where_and_why(self):
        with self.assertRaises(libmoe.InvalidConfig) as caught:
            libmoe.Config({**DOCUMENT, "num_experts": 0})
        self.assertEqual(caught.exception.name, "MOE_ERR_INVALID_CONFIG")
        self.assertEqual(caught.exception.subject, "/num_experts")
        self.assertEqual(caught.exception.details["subject"], "/num_experts")

    def test_a_refused_selection_lists_every_reason(self):
        with self.assertRaises(libmoe.NoBackend) as caught:
            libmoe.Selection(libmoe.Config({**DOCUMENT, "quantization": {"scheme": "W4A8", "group_size": 16}}))
        candidates = caught.exception.details["candidates"]
        self.assertTrue(candidates)
        self.assertTrue(all(c["reason"] != "MOE_REJECT_NONE" and c["detail"] for c in candidates))

    def test_what_is_missing_is_named(self):
        with libmoe.Config(DOCUMENT) as config, libmoe.Weights(config) as weights:
            arrays = tensors()
            weights.set("w13_weight", arrays["w13_weight"])
            self.assertFalse(weights.report()["complete"])
            with self.assertRaises(libmoe.MissingWeight), libmoe.Selection(config) as selection:
                libmoe.convert(selection, weights)
            with self.assertRaises(libmoe.UnexpectedWeight):
                weights.set("w13_bias", np.zeros((E, 2 * I), np.float32))

    def test_strided_arrays_are_views(self):
        hidden, logits = batch(6)
        wide = np.zeros((6, 2 * H), np.float32)
        wide[:, :H] = hidden
        with layer() as it:
            np.testing.assert_array_equal(it.apply(wide[:, :H], logits), it.apply(hidden, logits))

    def test_bytes_are_8_bit_floats_when_asked(self):
        config = libmoe.Config(dict(DOCUMENT, quantization={"scheme": "NVFP4A16"}))
        ones = {"w13": (E, 2 * I, H), "w2": (E, H, I)}  # codes of 1, scales of 1 (0x38): sums of the input
        with libmoe.Selection(config) as selection, libmoe.Weights(config) as weights:
            for name, shape in ones.items():
                scales = np.full(shape[:2] + (shape[2] // 16,), 0x38, np.uint8)
                weights.set(name + "_weight", np.full(shape[:2] + (shape[2] // 2,), 0x22, np.uint8))
                with self.assertRaisesRegex(libmoe.DTypeError, "f8_e4m3fn, got u8"):
                    weights.set(name + "_scale", scales)
                weights.set(name + "_scale", scales, "f8_e4m3fn")
                weights.set(name + "_scale_2", np.ones((E, 2) if name == "w13" else E, np.float32))
                for dtype in ("f4_e2m1fn", "bf16", "f8", ""):
                    with self.assertRaisesRegex(TypeError, f"{name}_scale: .*{dtype}"):
                        weights.set(name + "_scale", scales, dtype)
                with self.assertRaisesRegex(TypeError, "expected elements of 8 bits for 'f8_e4m3fn', got i32"):
                    weights.set(name + "_scale", scales.astype(np.int32), "f8_e4m3fn")
            layer = libmoe.Layer(selection, libmoe.convert(selection, weights))
        out = layer.apply(np.full((1, H), 1 / H, np.float32), np.zeros((1, E), np.float32))
        np.testing.assert_allclose(out, I / (1 + np.exp(-1)), rtol=1e-6)

    def test_given_experts_equal_routed_ones(self):
        hidden, logits = batch(5)
        ids = np.argsort(-logits, axis=1, kind="stable")[:, :K].astype(np.int32)
        chosen = np.take_along_axis(logits, ids, 1).astype(np.float64)
        weights = np.exp(chosen - chosen.max(1, keepdims=True))
        weights = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
        with layer() as it:
            given, routed = it.apply(hidden, topk_ids=ids, topk_weights=weights), it.apply(hidden, logits)
        np.testing.assert_allclose(given, routed, rtol=0, atol=1e-6 * np.abs(routed).max())

    def test_wrong_shapes_and_types_are_refused(self):
        hidden, logits = batch(4)
        with layer() as it:
            with self.assertRaises(libmoe.ShapeError):
                it.apply(hidden, logits[:3])
            with self.assertRaises(libmoe.DTypeError):
                it.apply(hidden.astype(np.float16), logits)
            with self.assertRaises(TypeError):
                it.apply(hidden.astype(np.complex64), logits)

    def test_threads_share_a_layer(self):
        hidden, logits = batch(33)
        with libmoe.Context(threads=2) as context:
            it = layer(context)
        expected, results = it.apply(hidden, logits), {}
        threads = [threading.Thread(target=lambda i=i: results.update({i: it.apply(hidden, logits)})) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), 4)
        for result in results.values():
            np.testing.assert_array_equal(result, expected)

    def test_use_after_close_is_an_error(self):
        uses = {
            "context": [lambda it: libmoe.Selection(it.config, it.context), lambda it: it.context.take_log(),
                        lambda it: libmoe.convert(it.selection, it.weights, it.context),
                        lambda it: libmoe.Layer(it.selection, it.packed, it.context)],
            "config": [lambda it: it.config.document, lambda it: libmoe.Selection(it.config),
                       lambda it: libmoe.Weights(it.config)],
            "selection": [lambda it: it.selection.backend, lambda it: it.selection.kernel,
                          lambda it: it.selection.layout, lambda it: it.selection.candidates,
                          lambda it: libmoe.convert(it.selection, it.weights),
                          lambda it: libmoe.Layer(it.selection, it.packed)],
            "weights": [lambda it: it.weights.report(), lambda it: it.weights.load_safetensors("nowhere"),
                        lambda it: it.weights.set("w2_weight", tensors()["w2_weight"]),
                        lambda it: libmoe.convert(it.selection, it.weights)],
            "packed": [lambda it: it.packed.report(), lambda it: it.packed.save("nowhere"),
                       lambda it: libmoe.Layer(it.selection, it.packed)],
            "layer": [lambda it: it.layer.apply(*batch(1))]}
        for kind, calls in uses.items():
            it = parts(libmoe.Context(threads=1))
            getattr(it, kind).close()
            getattr(it, kind).close()
            for number, use in enumerate(calls):
                with self.subTest(kind, use=number), self.assertRaises(libmoe.InvalidHandle) as caught:
                    use(it)
                self.assertEqual(caught.exception.subject, kind)
        with self.assertRaises(libmoe.InvalidHandle):
            libmoe.Layer.__new__(libmoe.Layer).apply(*batch(1))
        with self.assertRaisesRegex(TypeError, "config: expected a Config of libmoe, got int"):
            libmoe.Selection(12345)

    def test_close_waits_for_apply(self):
        """After close() no one writes: out has either all results or none."""
        it, (hidden, logits) = parts(), batch(1500)
        expected = it.layer.apply(hidden, logits)
        for number in range(60):
            one, outs, failures = libmoe.Layer(it.selection, it.packed), [np.zeros_like(hidden) for _ in range(3)], {}

            def run(k):
                try:
                    one.apply(hidden, logits, out=outs[k])
                except libmoe.Error as error:
                    failures[k] = error
            threads = [threading.Thread(target=run, args=(k,)) for k in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(number % 20 * 1e-4)
            one.close()
            seen = [out.copy() for out in outs]
            for thread in threads:
                thread.join()
            for k, out in enumerate(seen):
                if k in failures:
                    self.assertIsInstance(failures[k], libmoe.InvalidHandle)
                else:
                    np.testing.assert_array_equal(out, expected)

    def test_a_thread_cannot_close_what_it_uses(self):
        """As a signal handler may try in the midst of a call."""
        def close(_):
            with self.assertRaises(libmoe.Busy):
                it.close()
            return b"called"
        with libmoe.Selection(libmoe.Config(DOCUMENT)) as it, mock.patch.object(libmoe.lib, "moe_selection_kernel", close):
            self.assertEqual(it.kernel, "called")

    def test_a_forked_child_does_not_wait_for_threads_it_does_not_have(self):
        called, go_on = threading.Event(), threading.Event()

        def wait(_):
            called.set()
            go_on.wait(10)
            return b""
        it = libmoe.Selection(libmoe.Config(DOCUMENT))
        with mock.patch.object(libmoe.lib, "moe_selection_kernel", wait):
            caller, closer = threading.Thread(target=lambda: it.kernel), threading.Thread(target=it.close)
            caller.start()
            called.wait(10)
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                it.close()
                os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            closer.start()
            closer.join(0.02)
            self.assertTrue(closer.is_alive(), "close() waits in the parent")
            go_on.set()
            closer.join(10)
            caller.join(10)
            self.assertFalse(closer.is_alive())

    def test_objects_are_not_copied(self):
        it = parts(libmoe.Context(threads=1))
        for part in vars(it).values():
            for way in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, f"a {type(part).__name__} cannot be copied or pickled"):
                    way(part)

    def test_errors_are_copied_and_pickled(self):
        class Own(libmoe.ShapeError):
            def __init__(self, place):
                super().__init__(4, place, "too long", {"subject": place})
        globals()["Own"], Own.__qualname__ = Own, "Own"
        with self.assertRaises(libmoe.NoBackend) as caught:
            libmoe.Selection(libmoe.Config({**DOCUMENT, "quantization": {"scheme": "W4A8", "group_size": 16}}))
        for error in (caught.exception, Own("here")):
            error.note = "kept"
            for again in (pickle.loads(pickle.dumps(error)), pickle.loads(pickle.dumps(error, 0)), copy.copy(error)):
                self.assertIs(type(again), type(error))
                self.assertEqual(vars(again), vars(error))
                self.assertEqual(str(again), str(error))

    def test_out_is_checked(self):
        hidden, logits = batch(4)
        fixed = bytes(hidden.nbytes)
        with layer() as it:
            with self.assertRaisesRegex(ValueError, "out: .*read-only"):
                it.apply(hidden, logits, out=np.frombuffer(fixed, np.float32).reshape(hidden.shape))
            self.assertEqual(fixed, bytes(hidden.nbytes))
            for out in (bytearray(hidden.nbytes), [0.0], np.zeros(hidden.shape, complex)):
                with self.assertRaisesRegex(TypeError, "^out: "):
                    it.apply(hidden, logits, out=out)
            for out in (hidden[:3].copy(), np.asfortranarray(hidden), np.zeros((8, H), np.float32)[::-2]):
                with self.assertRaises(libmoe.ShapeError) as caught:
                    it.apply(hidden, logits, out=out)
                self.assertEqual(caught.exception.subject, "out")
            summed = it.apply(hidden, logits, flags=libmoe.ApplyFlags.ACCUMULATE)
            np.testing.assert_array_equal(summed, it.apply(hidden, logits))

    def test_strides_that_cannot_be_told_are_refused(self):
        hidden, logits = batch(4)
        record = np.zeros(hidden.shape, [("value", np.float32), ("byte", np.int8)])["value"]
        with layer() as it:
            for array in (np.broadcast_to(np.float32(1), hidden.shape), record):
                with self.assertRaisesRegex(ValueError, "hidden: .*strides"):
                    it.apply(array, logits)

    def test_arrays_live_as_long_as_the_library_reads_them(self):
        weights = libmoe.Weights(libmoe.Config(DOCUMENT))

        def given(role):
            array = tensors()["w13_weight"].copy()
            weights.set(role, array)
            return weakref.ref(array)
        first = given("w13_weight")
        self.assertIsNotNone(first())
        second = given("w13")  # the same place by its other name
        self.assertIsNone(first())
        with self.assertRaises(libmoe.Error):
            weights.set("w13", np.zeros((1, 2, 3), np.int8))
        self.assertIsNotNone(second())
        weights.close()
        self.assertIsNone(second())

    def test_a_path_does_not_end_at_a_nul(self):
        with libmoe.Config(DOCUMENT) as config, libmoe.Weights(config) as weights:
            for call in (lambda: weights.load_safetensors("/\0x"), lambda: libmoe.Packed.load("/\0x"),
                         lambda: weights.set("w13\0x", tensors()["w13_weight"])):
                with self.assertRaisesRegex(ValueError, "NUL"):
                    call()

    def test_nothing_leaks(self):
        def rounds(count):
            for _ in range(count):
                layer().close()
                with self.assertRaises(libmoe.InvalidConfig):
                    libmoe.Config("{")
            gc.collect()
            return int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize() // 1024
        sizes = [rounds(count) for count in (100, 400, 400, 400)]
        grown = [after - before for before, after in zip(sizes, sizes[1:])]
        self.assertLess(min(grown), 1024, f"kilobytes grown in 400 rounds, three times: {grown}")  # a leak grows each time


if __name__ == "__main__":
    unittest.main()
