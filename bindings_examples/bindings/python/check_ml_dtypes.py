"""Arrays of the package ml_dtypes, whose types numpy lacks: taken as they are, and given back so."""
import unittest

import ml_dtypes
import numpy as np

import libmoe
from test_libmoe import E, H, I, K, batch


class MlDtypes(unittest.TestCase):
    def test_bfloat16(self):
        config = libmoe.Config({"num_experts": E, "top_k": K, "hidden_dim": H, "intermediate_size": I})
        rng, weights, selection = np.random.default_rng(5), libmoe.Weights(config), libmoe.Selection(config)
        for role, shape in (("w13_weight", (E, 2 * I, H)), ("w2_weight", (E, H, I))):
            weights.set(role, rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16))
        hidden, logits = (array.astype(ml_dtypes.bfloat16) for array in batch(5))
        layer = libmoe.Layer(selection, libmoe.convert(selection, weights))
        out = layer.apply(hidden, logits)
        self.assertEqual(out.dtype, ml_dtypes.bfloat16)
        bits = layer.apply(hidden.view(np.uint16), logits)
        self.assertEqual(bits.dtype, np.uint16)
        np.testing.assert_array_equal(out.view(np.uint16), bits)

    def test_8_bit_floats(self):
        config = libmoe.Config({"num_experts": E, "top_k": K, "hidden_dim": H, "intermediate_size": I,
                                "in_dtype": "float32", "quantization": {"scheme": "NVFP4A16"}})
        weights = libmoe.Weights(config)
        weights.set("w2_scale", np.ones((E, H, I // 16), ml_dtypes.float8_e4m3fn))
        self.assertEqual(weights.get("w2_scale").dtype, "f8_e4m3fn")

    def test_bytes_that_hold_less_are_refused(self):
        weights = libmoe.Weights(libmoe.Config({"num_experts": E, "top_k": K, "hidden_dim": H, "intermediate_size": I}))
        for kind in (ml_dtypes.int4, ml_dtypes.float4_e2m1fn):
            with self.assertRaisesRegex(TypeError, "w2_weight: libmoe takes no .* arrays"):
                weights.set("w2_weight", np.zeros((E, H, I), kind))


if __name__ == "__main__":
    unittest.main()
