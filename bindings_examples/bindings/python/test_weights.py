"""Source weights: set whole, by expert, by name, or asked for one at a time; and where they are converted to."""
import unittest

import numpy as np

import libmoe
from test_libmoe import DOCUMENT, E, H, I, tensors


def sources(role, expert, shard):
    return tensors()[role][expert] if shard is None else None


class WeightSets(unittest.TestCase):
    def setUp(self):
        self.config = libmoe.Config({**DOCUMENT, "name": "model.layers.0.mlp.experts"})
        self.selection = libmoe.Selection(self.config)
        self.expected = self.bytes_of(self.filled())

    def bytes_of(self, weights, **options):
        with libmoe.convert(self.selection, weights, **options) as packed:
            return bytes(packed.data)

    def filled(self):
        weights = libmoe.Weights(self.config)
        for role, array in tensors().items():
            weights.set(role, array)
        return weights

    def test_by_expert(self):
        weights = libmoe.Weights(self.config)
        for role, array in tensors().items():
            for e in range(E):
                if role.startswith("w13"):
                    weights.set_expert(role, e, array[e, :I], "w1")
                    weights.set_expert(role, np.int64(e), array[e, I:], "w3")
                else:
                    weights.set_expert(role, e, array[e])
        self.assertEqual(self.bytes_of(weights), self.expected)
        with self.assertRaises(libmoe.StateError):
            weights.set("w2_weight", tensors()["w2_weight"])
        with self.assertRaisesRegex(TypeError, "expert: expected an integer, got str"):
            weights.set_expert("w2_weight", "0", tensors()["w2_weight"][0])
        with self.assertRaisesRegex(ValueError, "expert: expected"):
            weights.set_expert("w2_weight", 2**64, tensors()["w2_weight"][0])

    def test_by_name(self):
        weights, given = libmoe.Weights(self.config), tensors()
        names = {"gate_proj": ("w13", slice(0, I)), "up_proj": ("w13", slice(I, 2 * I)), "down_proj": ("w2", slice(0, H))}
        for e in range(E):
            for name, (role, rows) in names.items():
                prefix = f"model.layers.0.mlp.experts.{e}.{name}.weight"
                self.assertTrue(weights.set_named(prefix, given[role + "_weight"][e, rows]))
                self.assertTrue(weights.set_named(prefix + "_scale", given[role + "_scale"][e, rows]))
        self.assertFalse(weights.set_named("model.layers.1.mlp.experts.0.gate_proj.weight", given["w13_weight"][0, :I]))
        self.assertEqual(self.bytes_of(weights), self.expected)

    def test_by_the_names_of_vllm(self):
        weights = libmoe.Weights(self.config)
        for role, array in tensors().items():
            weights.set(role.replace("_scale", "_weight_scale"), array)
        self.assertEqual(self.bytes_of(weights), self.expected)
        with self.assertRaisesRegex(libmoe.InvalidArgument, "w13_wieght.*w13_weight"):
            weights.set("w13_wieght", tensors()["w13_weight"])

    def test_another_layer(self):
        other = libmoe.Selection(libmoe.Config({**DOCUMENT, "name": "model.layers.1.mlp.experts"}))
        with libmoe.convert(self.selection, self.filled()) as packed:
            with self.assertRaisesRegex(libmoe.ConfigMismatch, "layers.0.*layers.1.*MOE_LAYER_ANY_NAME"):
                libmoe.Layer(other, packed)
            libmoe.Layer(other, packed, flags=libmoe.LayerFlags.ANY_NAME).close()
            with self.assertRaises(libmoe.InvalidArgument):
                libmoe.Layer(other, packed, flags=2)
        with self.assertRaisesRegex(libmoe.ConfigMismatch, "MOE_CONVERT_ANY_NAME"):
            libmoe.convert(other, self.filled())
        libmoe.convert(other, self.filled(), flags=libmoe.ConvertFlags.ANY_NAME).close()

    def test_from_a_source(self):
        asked = []

        def halves(role, expert, shard):
            asked.append((role, expert, shard))
            array = tensors().get(role)
            if array is None or (role.startswith("w13") and shard is None):
                return None
            return array[expert][{"w1": slice(0, I), "w3": slice(I, 2 * I), None: slice(None)}[shard]].copy()
        for serial in (True, False):
            with libmoe.Context(threads=3) as context, \
                    libmoe.Weights.from_source(self.config, halves, serial=serial) as weights:
                with libmoe.convert(self.selection, weights, context) as packed:
                    self.assertEqual(bytes(packed.data), self.expected)
                source, = (s for s in libmoe._handle.kept._objects.values() if getattr(s, "get", None) is halves)
                self.assertTrue(source.used)
                self.assertEqual([views for views in source.used.values() if views], [], "arrays are not given back")
        self.assertIn(("w13_weight", 3, "w3"), asked)

    def test_a_source_that_fails(self):
        def broken(role, expert, shard):
            raise KeyError("no such shard")
        cases = [(broken, libmoe.CallbackError, KeyError), (lambda *_: None, libmoe.MissingWeight, None),
                 (lambda *_: [1, 2], libmoe.CallbackError, TypeError),
                 (lambda *_: np.zeros(3, np.int8), libmoe.ShapeError, None),
                 (lambda *_: (np.zeros((2 * I, H), np.int8), "no dtype"), libmoe.CallbackError, TypeError)]
        for get, failure, cause in cases:
            with self.subTest(failure.__name__), libmoe.Weights.from_source(self.config, get) as weights:
                with self.assertRaises(failure) as caught:
                    libmoe.convert(self.selection, weights)
                self.assertIs(type(caught.exception.__cause__), cause or type(None))
                self.assertIn("w13_weight[0]", caught.exception.subject)

        def interrupted(*_):
            raise KeyboardInterrupt
        with libmoe.Weights.from_source(self.config, interrupted) as weights, self.assertRaises(KeyboardInterrupt):
            libmoe.convert(self.selection, weights)
        with self.assertRaisesRegex(TypeError, "get: "):
            libmoe.Weights.from_source(self.config, 5)

    def test_a_source_ends_with_the_set(self):
        before = len(libmoe._handle.kept._objects)
        weights = libmoe.Weights.from_source(self.config, sources)
        self.assertEqual(len(libmoe._handle.kept._objects), before + 1)
        weights.close()
        self.config.close()
        with self.assertRaises(libmoe.InvalidHandle):
            libmoe.Weights.from_source(self.config, sources)
        self.assertEqual(len(libmoe._handle.kept._objects), before)

    def test_what_was_set_is_given_back_without_a_copy(self):
        weights, array = self.filled(), tensors()["w2_weight"]
        weights.set("w2_weight", array)
        whole, one = weights.get("w2_weight"), weights.get("w2_weight", 1)
        self.assertTrue(np.shares_memory(whole.numpy(), array))
        np.testing.assert_array_equal(one.numpy(), array[1])
        weights.close()
        np.testing.assert_array_equal(whole.numpy(), array)
        with self.assertRaises(ValueError):
            whole.numpy()[0] = 1
        with libmoe.Weights.from_source(self.config, sources) as weights:
            np.testing.assert_array_equal(weights.get("w2_weight", 2).numpy(), array[2])
        strided = np.zeros((E, H, 2 * I), np.int8)[:, :, :I]
        strided[:] = array
        with self.filled() as weights:
            weights.set("w2_weight", strided)
            np.testing.assert_array_equal(weights.get("w2_weight", 1).numpy(), array[1])

    def test_into_memory_of_the_caller(self):
        size, alignment = self.selection.packed_size
        memory = np.zeros(size + alignment, np.uint8)
        into = memory[-memory.ctypes.data % alignment:][:size]
        packed = libmoe.convert(self.selection, self.filled(), into=into)
        self.assertEqual(bytes(into), self.expected)
        packed.close()
        with self.assertRaises(libmoe.BufferTooSmall) as caught:
            libmoe.convert(self.selection, self.filled(), into=into[:64])
        self.assertEqual(caught.exception.details["needed"], size)
        with self.assertRaisesRegex(ValueError, "into: this buffer is read-only"):
            libmoe.convert(self.selection, self.filled(), into=bytes(size))
        with self.assertRaisesRegex(TypeError, "into: "):
            libmoe.convert(self.selection, self.filled(), into=5)

    def test_sources_are_released_when_asked(self):
        weights = self.filled()
        with libmoe.convert(self.selection, weights, flags=libmoe.ConvertFlags.RELEASE_SOURCES):
            self.assertEqual(weights._views, {})


if __name__ == "__main__":
    unittest.main()
