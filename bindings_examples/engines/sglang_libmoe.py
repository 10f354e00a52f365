"""Plain experts of SGLang 0.5.23 on a CPU through libmoe. A sketch, NOT RUN: SGLang's CPU build is not on PyPI.

As a package whose pyproject.toml says, and `pip install` beside SGLang makes it act:

    [project.entry-points."sglang.srt.plugins"]
    libmoe = "sglang_libmoe:register"
"""
import libmoe
import torch

METHOD = "sglang.srt.layers.quantization.unquant.UnquantizedFusedMoEMethod"
CONTEXT = None  # a process of SGLang has one pool of threads


def document_of(layer):
    """libmoe's config of a FusedMoE, or None where SGLang's own kernel must run."""
    run = layer.moe_runner_config
    odd = (run.apply_router_weight_on_input, run.no_combine, run.num_local_experts != run.num_experts,
           run.gemm1_alpha, run.gemm1_clamp_limit, run.swiglu_limit, not run.is_gated, run.activation not in ("silu", "gelu"))
    if any(odd):
        return None
    w13 = layer.w13_weight  # [E, 2I, H], gate rows before up rows
    return {
        "num_experts": w13.shape[0], "top_k": run.top_k, "hidden_dim": w13.shape[2], "intermediate_size": w13.shape[1] // 2,
        "activation": run.activation, "in_dtype": str(w13.dtype).removeprefix("torch."),
        "has_bias": hasattr(layer, "w13_weight_bias"),
        "routing": {"method": "custom", "skip_id": w13.shape[0]},  # SGLang's router has chosen and weighted
    }


def converted(original, method, layer):
    """Around process_weights_after_loading: SGLang would pack the weights for its AMX kernel."""
    document = document_of(layer)
    if document is None:
        return original(method, layer)
    config = libmoe.Config(document)
    selection, weights = libmoe.Selection(config, CONTEXT), libmoe.Weights(config)
    names = {"w13_weight": "w13_weight", "w2_weight": "w2_weight"}
    if document["has_bias"]:
        names |= {"w13_bias": "w13_weight_bias", "w2_bias": "w2_weight_bias"}
    for role, name in names.items():
        weights.set(role, getattr(layer, name).data)  # DLPack: nothing is copied
    layer.libmoe_layer = libmoe.Layer(selection, libmoe.convert(selection, weights, CONTEXT), CONTEXT)
    weights.close()
    for name in names.values():
        getattr(layer, name).data = torch.empty(0, dtype=torch.bfloat16)


def applied(original, method, layer, dispatch_output):
    """Around forward_cpu. Ids of -1 (padding) are no expert's."""
    if getattr(layer, "libmoe_layer", None) is None:
        return original(method, layer, dispatch_output)
    from sglang.srt.layers.moe.token_dispatcher import StandardCombineInput
    x, topk = dispatch_output.hidden_states, dispatch_output.topk_output
    out = torch.empty_like(x)
    layer.libmoe_layer.apply(x, topk_ids=topk.topk_ids, topk_weights=topk.topk_weights.float(), out=out)
    return StandardCombineInput(hidden_states=out)


def register():
    global CONTEXT
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    CONTEXT = CONTEXT or libmoe.Context(threads=torch.get_num_threads())
    HookRegistry.register(f"{METHOD}.process_weights_after_loading", converted, HookType.AROUND)
    HookRegistry.register(f"{METHOD}.forward_cpu", applied, HookType.AROUND)
