#!/usr/bin/env python3
"""The sketches of bindings_examples/engines on stand-ins for what they touch of vLLM and SGLang, against dense experts in float64.

Part of the label transformers: needs torch, LIBMOE_PATH. What it does not show: that these engines call as their sources say.
"""
import contextlib
import enum
import io
import pathlib
import sys
import types
import unittest

import torch
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bindings_examples/engines"), str(ROOT / "bindings_examples/bindings/python")]
sys.dont_write_bytecode = True
EXPERTS, MIDDLE, HIDDEN, TOP_K, TOKENS = 8, 96, 128, 3, 5
BOUND = 8e-3  # of the largest output: bfloat16


class Activation(enum.Enum):
    SILU = "silu"
    RELU2 = "relu2_no_mul"
    UNKNOWN = "nothing"


def silu(h):
    gate, up = h.chunk(2)
    return F.silu(gate) * up


FUNCTIONS = {Activation.SILU: silu, Activation.RELU2: lambda h: F.relu(h) ** 2}


def module(name, **members):
    """Puts a module, and those it lies in, where `import` finds them."""
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(parts[i - 1]))
    vars(sys.modules[name]).update(members)


def experts(gated=True):
    """A layer's tensors, and copies of them."""
    layer = torch.nn.Module()
    for name, shape in (("w13_weight", (EXPERTS, (2 if gated else 1) * MIDDLE, HIDDEN)), ("w2_weight", (EXPERTS, HIDDEN, MIDDLE))):
        layer.register_parameter(name, torch.nn.Parameter((torch.randn(shape) * 0.1).bfloat16(), requires_grad=False))
    return layer, [layer.w13_weight.clone(), layer.w2_weight.clone()]


def tokens():
    ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(TOKENS)])
    return torch.randn(TOKENS, HIDDEN).bfloat16(), ids, torch.rand(TOKENS, TOP_K)


class Engines(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def expect(self, got, x, weights, ids, gates, function):
        want = torch.zeros(x.shape, dtype=torch.float64)
        for t, j in ((t, j) for t in range(TOKENS) for j in range(TOP_K) if ids[t, j] >= 0):
            w13, w2 = (w[ids[t, j]].double() for w in weights)
            want[t] += gates[t, j].double() * (w2 @ function(w13 @ x[t].double()))
        self.assertLess(float((got.double() - want).abs().max() / want.abs().max()), BOUND)


class Vllm(Engines):
    @classmethod
    def setUpClass(cls):
        class Method:
            registered = {}

            def __init__(self, moe):
                self.moe, self.ran = moe, []

            @classmethod
            def register_oot(cls, name):
                return lambda own: cls.registered.setdefault(name, own)

            def process_weights_after_loading(self, layer):
                self.ran.append("convert")

            def apply(self, *_):
                return "vLLM's own"

        def replace_parameter(layer, name, tensor):
            layer.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))

        module("vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method", UnquantizedFusedMoEMethod=Method)
        module("vllm.model_executor.utils", replace_parameter=replace_parameter)
        import vllm_libmoe
        vllm_libmoe.register()
        vllm_libmoe.register()  # as vLLM may
        cls.method = Method.registered["UnquantizedFusedMoEMethod"]

    def loaded(self, activation, use_ep=False):
        layer, weights = experts(gated=activation is not Activation.RELU2)
        layer.activation, layer.top_k, layer.layer_name, layer.params_dtype = activation, TOP_K, "layer", torch.bfloat16
        layer.apply_router_weight_on_input = False
        layer.swiglu_limit = layer.swiglu_alpha = layer.swiglu_beta = None
        moe = types.SimpleNamespace(moe_parallel_config=types.SimpleNamespace(use_ep=use_ep), hidden_dim=HIDDEN,
                                    hidden_dim_unpadded=HIDDEN, has_bias=False)
        method = self.method(moe)
        method.process_weights_after_loading(layer)
        return method, layer, weights

    def test_numbers(self):
        for activation, function in FUNCTIONS.items():
            with self.subTest(activation):
                method, layer, weights = self.loaded(activation)
                x, ids, gates = tokens()
                self.expect(method.apply(layer, x, gates, ids, None, None), x, weights, ids, gates, function)
                self.assertEqual(layer.w13_weight.numel() + layer.w2_weight.numel(), 0)

    def test_what_libmoe_does_not_run_stays_with_vllm(self):
        for activation, use_ep in ((Activation.UNKNOWN, False), (Activation.SILU, True)):
            with self.subTest(activation), contextlib.redirect_stdout(io.StringIO()) as said:
                method, layer, _ = self.loaded(activation, use_ep)
                self.assertEqual(method.apply(layer, *tokens(), None, None), "vLLM's own")
                self.assertEqual(method.ran, ["convert"])
                self.assertEqual("vLLM's own kernel runs" in said.getvalue(), not use_ep)


class Sglang(Engines):
    @classmethod
    def setUpClass(cls):
        cls.hooks = {}
        registry = types.SimpleNamespace(register=lambda target, hook, kind: cls.hooks.update({target.rpartition(".")[2]: hook}))
        module("sglang.srt.plugins.hook_registry", HookRegistry=registry, HookType=types.SimpleNamespace(AROUND="around"))
        module("sglang.srt.layers.moe.token_dispatcher", StandardCombineInput=types.SimpleNamespace)
        import sglang_libmoe
        sglang_libmoe.register()

    def run_layer(self, **settings):
        layer, weights = experts()
        none = dict.fromkeys(("gemm1_alpha", "gemm1_clamp_limit", "swiglu_limit"))
        layer.moe_runner_config = types.SimpleNamespace(**{
            **none, "apply_router_weight_on_input": False, "no_combine": False, "num_local_experts": EXPERTS,
            "num_experts": EXPERTS, "is_gated": True, "activation": "silu", "top_k": TOP_K, **settings})
        own = []
        self.hooks["process_weights_after_loading"](lambda *_: own.append("convert"), None, layer)
        x, ids, gates = tokens()
        ids[0, 1] = -1  # padding
        given = types.SimpleNamespace(hidden_states=x, topk_output=types.SimpleNamespace(topk_ids=ids.int(), topk_weights=gates))
        out = self.hooks["forward_cpu"](lambda *_: own.append("run"), None, layer, given)
        return own, out, (x, weights, ids, gates)

    def test_numbers(self):
        own, out, given = self.run_layer()
        self.assertEqual(own, [])
        self.expect(out.hidden_states, *given, silu)

    def test_what_libmoe_does_not_run_stays_with_sglang(self):
        for settings in ({"activation": "relu2"}, {"gemm1_clamp_limit": 7.0}, {"num_local_experts": 2}):
            with self.subTest(settings):
                self.assertEqual(self.run_layer(**settings)[0], ["convert", "run"])


if __name__ == "__main__":
    unittest.main()
