"""Plain experts of vLLM 0.33 on a CPU through libmoe. A sketch, NOT RUN: vLLM's CPU build is not on PyPI.

As a package whose pyproject.toml says, and `pip install` beside vLLM makes it act:

    [project.entry-points."vllm.general_plugins"]
    libmoe = "vllm_libmoe:register"
"""
import libmoe
import torch

CONTEXT = None  # a process of vLLM has one pool of threads


def document_of(layer, moe):
    """libmoe's config of a RoutedExperts, or None where vLLM's own kernel must run."""
    parallel = moe.moe_parallel_config
    if parallel.use_ep or layer.apply_router_weight_on_input or moe.hidden_dim != moe.hidden_dim_unpadded:
        return None
    w13 = layer.w13_weight  # [E, 2I, H], gate rows before up rows; swigluoai: a gate row, an up row, in turn
    gated = not layer.activation.value.endswith("_no_mul")
    document = {
        "num_experts": w13.shape[0], "top_k": layer.top_k, "hidden_dim": w13.shape[2],
        "intermediate_size": w13.shape[1] // (2 if gated else 1), "activation": layer.activation.value,
        "in_dtype": str(w13.dtype).removeprefix("torch."), "has_bias": moe.has_bias,
        "routing": {"method": "custom", "skip_id": w13.shape[0]},  # vLLM's router has chosen and weighted
    }
    given = {"limit": layer.swiglu_limit, "alpha": layer.swiglu_alpha, "beta": layer.swiglu_beta}
    params = {name: value for name, value in given.items() if value is not None}
    return {**document, "activation_params": params} if params else document


def register():
    global CONTEXT
    if CONTEXT is not None:  # vLLM may call this more than once
        return
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
    from vllm.model_executor.utils import replace_parameter
    CONTEXT = libmoe.Context(threads=torch.get_num_threads())

    @UnquantizedFusedMoEMethod.register_oot(name="UnquantizedFusedMoEMethod")
    class LibmoeMethod(UnquantizedFusedMoEMethod):
        libmoe_layer = None

        def process_weights_after_loading(self, layer):
            document = document_of(layer, self.moe)
            try:
                config = libmoe.Config(document) if document else None
            except libmoe.Error as refusal:  # an activation that libmoe has not, say
                print(f"libmoe: {layer.layer_name}: {refusal}; vLLM's own kernel runs")
                config = None
            if config is None:
                return super().process_weights_after_loading(layer)
            selection, weights = libmoe.Selection(config, CONTEXT), libmoe.Weights(config)
            names = ["w13_weight", "w2_weight"] + (["w13_bias", "w2_bias"] if self.moe.has_bias else [])
            for name in names:
                weights.set(name, getattr(layer, name).data)  # DLPack: nothing is copied
            self.libmoe_layer = libmoe.Layer(selection, libmoe.convert(selection, weights, CONTEXT), CONTEXT)
            weights.close()
            for name in names:
                replace_parameter(layer, name, torch.empty(0, dtype=layer.params_dtype))

        def apply(self, layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input):
            if self.libmoe_layer is None:
                return super().apply(layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input)
            out = torch.empty_like(x)  # shared experts: the runner runs them, as this method has no kernel of vLLM's
            self.libmoe_layer.apply(x, topk_ids=topk_ids, topk_weights=topk_weights.float(), out=out)
            return out
