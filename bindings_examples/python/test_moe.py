#!/usr/bin/python3
"""What the Python package promises: errors with a place, no copies, no leaks, threads side by side."""
import gc
import resource
import threading
import unittest

import numpy as np

import moe

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


def layer(context=None):
    with moe.Config(DOCUMENT) as config, moe.Selection(config, context) as selection, moe.Weights(config) as weights:
        for role, array in tensors().items():
            weights.set(role, array)
        with moe.convert(selection, weights, context) as packed:
            return moe.Layer(selection, packed, context)


def batch(tokens):
    rng = np.random.default_rng(3)
    return rng.standard_normal((tokens, H), np.float32), rng.standard_normal((tokens, E), np.float32)


class Promises(unittest.TestCase):
    def test_an_error_says_what_where_and_why(self):
        with self.assertRaises(moe.InvalidConfig) as caught:
            moe.Config({**DOCUMENT, "num_experts": 0})
        self.assertEqual(caught.exception.name, "MOE_ERR_INVALID_CONFIG")
        self.assertEqual(caught.exception.subject, "/num_experts")
        self.assertEqual(caught.exception.details["subject"], "/num_experts")

    def test_a_refused_selection_lists_every_reason(self):
        with self.assertRaises(moe.NoBackend) as caught:
            moe.Selection(moe.Config({**DOCUMENT, "quantization": {"scheme": "W4A8", "group_size": 16}}))
        candidates = caught.exception.details["candidates"]
        self.assertTrue(candidates)
        self.assertTrue(all(c["reason"] != "MOE_REJECT_NONE" and c["detail"] for c in candidates))

    def test_what_is_missing_is_named(self):
        with moe.Config(DOCUMENT) as config, moe.Weights(config) as weights:
            arrays = tensors()
            weights.set("w13_weight", arrays["w13_weight"])
            self.assertFalse(weights.report()["complete"])
            with self.assertRaises(moe.MissingWeight), moe.Selection(config) as selection:
                moe.convert(selection, weights)
            with self.assertRaises(moe.UnexpectedWeight):
                weights.set("w13_bias", np.zeros((E, 2 * I), np.float32))

    def test_strided_arrays_are_views(self):
        hidden, logits = batch(6)
        wide = np.zeros((6, 2 * H), np.float32)
        wide[:, :H] = hidden
        with layer() as it:
            np.testing.assert_array_equal(it.apply(wide[:, :H], logits), it.apply(hidden, logits))

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
            with self.assertRaises(moe.ShapeError):
                it.apply(hidden, logits[:3])
            with self.assertRaises(moe.DTypeError):
                it.apply(hidden.astype(np.float16), logits)
            with self.assertRaises(TypeError):
                it.apply(hidden.astype(np.complex64), logits)

    def test_threads_share_a_layer(self):
        hidden, logits = batch(33)
        with moe.Context(threads=2) as context:
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

    def test_nothing_leaks(self):
        def rounds(count):
            for _ in range(count):
                layer().close()
                with self.assertRaises(moe.InvalidConfig):
                    moe.Config("{")
            gc.collect()
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before = rounds(100)
        self.assertLess(rounds(400) - before, 1024, "kilobytes grown in 400 rounds")


if __name__ == "__main__":
    unittest.main()
