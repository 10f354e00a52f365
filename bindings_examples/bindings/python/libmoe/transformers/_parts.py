"""What transformers' modules of experts hold: the tensors of libmoe's roles, and what the layer computes with them.

Classes with transformers' decorator `use_experts_implementation` say it by flags; the few others have a row of _OTHERS.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import torch  # type: ignore[import-not-found,unused-ignore]

from . import _formulas
from ._formulas import Unsupported

NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


@dataclass
class Parts:
    """A layer's experts as they stand in torch; tensors may be on meta, then only their shapes are known."""
    tensors: dict[str, Any]  # role -> [E, N, K], bias [E, N]
    own: Callable[[Any], Any]  # the activation, of [.., 2I] or without a gate [.., I]
    gated: bool = True
    interleaved: bool = False
    zero_experts: int = 0
    norm: Any = None  # of each expert's result
    weighs_input: bool = False

    @property
    def dtype(self) -> Any:
        return self.tensors["w2_weight"].dtype

    @property
    def sizes(self) -> dict[str, int]:
        experts, hidden, intermediate = self.tensors["w2_weight"].shape
        return {"num_experts": experts, "hidden_dim": hidden, "intermediate_size": intermediate}


def is_decorated(module: Any) -> bool:
    """Whether set_experts_implementation reaches it."""
    return all(flag in vars(module) for flag in ("has_gate", "has_bias", "is_transposed", "is_concatenated"))


def kind_of(module: Any) -> Callable[[Any], Parts] | None:
    """How the module is read; None if it is not known as experts."""
    return _decorated if is_decorated(module) else _OTHERS.get(type(module).__name__)


def parts_of(module: Any) -> Parts:
    """Unsupported says why libmoe cannot take its tensors."""
    read = kind_of(module)
    if read is None:
        kind = type(module).__name__
        raise Unsupported(f"{kind}: {REFUSED.get(kind, 'libmoe does not know this class')}")
    if getattr(module, "_is_expert_parallel", False):
        raise Unsupported(f"{type(module).__name__}: its experts are spread over processes")
    try:
        parts = read(module)
        dtypes = {tensor.dtype for tensor in parts.tensors.values()}
        ranks = {tensor.dim() for role, tensor in parts.tensors.items() if role.endswith("weight")}
    except AttributeError as error:  # such as those that a quantizer has put there
        raise Unsupported(f"{type(module).__name__} has not the tensors of its class: {error}") from error
    if len(dtypes) != 1 or not dtypes <= NAMES.keys():
        raise Unsupported(f"{type(module).__name__}: its weights are {', '.join(sorted(map(str, dtypes)))}; "
                          "libmoe.transformers.from_pretrained reads quantized experts from the files")
    if ranks != {3}:
        raise Unsupported(f"{type(module).__name__}: its weights are not stacked [experts, rows, columns]")
    return parts


def document_of(module: Any, parts: Parts, top_k: int) -> dict[str, Any]:
    """The config document of a layer of these tensors, which gets ids and weights and does no routing."""
    name, params = _formulas.find(module, parts.own, parts.gated, parts.interleaved)
    experts = parts.sizes["num_experts"]
    document: dict[str, Any] = {
        **parts.sizes, "top_k": top_k, "activation": name, "in_dtype": NAMES[parts.dtype],
        "has_bias": "w2_bias" in parts.tensors, "apply_router_weight_on_input": parts.weighs_input,
        "routing": {"method": "custom", "skip_id": experts}}
    if parts.zero_experts:  # a member of routing as LongCat has it, which is not asked for here
        columns = experts + parts.zero_experts
        document["routing"] = {"num_zero_experts": parts.zero_experts, "e_score_correction_bias": [0.0] * columns,
                               "renormalize": False, "skip_id": columns}
    if params:
        document["activation_params"] = params
    if parts.interleaved:
        document["w13_layout"] = "interleaved"
    if parts.norm is not None:
        document["expert_norm"] = parts.norm.weight.detach().float().tolist()
        eps = getattr(parts.norm, "variance_epsilon", None) or getattr(parts.norm, "eps", None)
        if not eps:
            raise Unsupported(f"{type(module).__name__}: the norm of its experts has no eps")
        document["expert_norm_eps"] = float(eps)
    return document


def check(document: dict[str, Any], module: Any, parts: Parts) -> None:
    """Unsupported unless a resolved config document, made from a file, describes this module."""
    said = {"num_experts": document["num_experts"], "hidden_dim": document["hidden_dim"],
            "intermediate_size": document["intermediate_size_per_partition"]}
    said_more = {"has_bias": document["has_bias"], "zero experts": document["routing"]["num_zero_experts"],
                 "weights on inputs": document["apply_router_weight_on_input"],
                 "norm": bool(document.get("expert_norm") or document.get("expert_norm_name"))}
    # A module that knows of no zero experts is never asked for one: its block sees to them.
    has_more = {"has_bias": "w2_bias" in parts.tensors, "zero experts": parts.zero_experts or said_more["zero experts"],
                "weights on inputs": parts.weighs_input, "norm": parts.norm is not None}
    for theirs, ours in ((parts.sizes, said), (has_more, said_more)):
        for what, value in theirs.items():
            if ours[what] != value:
                raise Unsupported(f"{type(module).__name__}: {what} is {value} in the model and {ours[what]} in the "
                                  "files")
    _formulas.check(document, module, parts.own, parts.gated, parts.interleaved)


# --- classes ----------------------------------------------------------------------------------------------------------
def _decorated(module: Any) -> Parts:
    up = "gate_up_proj" if module.has_gate else "up_proj"
    tensors = {"w13_weight": getattr(module, up), "w2_weight": module.down_proj}
    if module.is_transposed:
        tensors = {role: tensor.transpose(1, 2) for role, tensor in tensors.items()}
    if module.has_bias:
        tensors.update(w13_bias=getattr(module, f"{up}_bias"), w2_bias=module.down_proj_bias)
    return Parts(tensors, module._apply_gate if module.has_gate else module.act_fn, bool(module.has_gate),
                 not module.is_concatenated,
                 norm=module.post_expert_norm if getattr(module, "has_post_expert_norm", False) else None)


def _product(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def own(x: Any) -> Any:
        gate, up = x.chunk(2, -1)
        return function(gate) * up
    return own


def _step(module: Any) -> Parts:
    return Parts({"w13_weight": module.gate_up_proj, "w2_weight": module.down_proj}, module._apply_gate)


def _longcat(module: Any) -> Parts:
    """The rows of gate_up_proj behind the real experts are of nothing."""
    return Parts({"w13_weight": module.gate_up_proj[:module.num_routed_experts], "w2_weight": module.down_proj},
                 _product(module.act_fn), zero_experts=int(module.zero_expert_num))


def _dbrx(module: Any) -> Parts:
    shape = module.num_experts, module.ffn_hidden_size, module.hidden_size
    gate, up, down = (getattr(module.mlp, name).view(shape) for name in ("w1", "v1", "w2"))
    return Parts({"w13_weight": torch.cat((gate, up), 1), "w2_weight": down.transpose(1, 2)},
                 _product(module.mlp.activation_fn))


def _llama4(module: Any) -> Parts:
    experts = module.experts
    if hasattr(experts, "gate_up_proj"):
        w13, w2, act = experts.gate_up_proj.transpose(1, 2), experts.down_proj.transpose(1, 2), experts.act_fn
    else:  # as transformers has them for some quantizers
        w13 = torch.stack([torch.cat((one.gate_proj.weight, one.up_proj.weight)) for one in experts])
        w2, act = torch.stack([one.down_proj.weight for one in experts]), experts[0].activation_fn
    return Parts({"w13_weight": w13, "w2_weight": w2}, _product(act), weighs_input=True)


def _jetmoe(module: Any) -> Parts:
    return Parts({"w13_weight": module.input_linear.weight, "w2_weight": module.output_linear.weight},
                 _product(module.activation))


# Outside transformers' registry: set_experts_implementation does not reach them, they are replaced.
_OTHERS: dict[str, Callable[[Any], Parts]] = {
    "Step3p7Experts": _step, "LongcatFlashExperts": _longcat, "DbrxExperts": _dbrx,
    "Llama4TextMoe": _llama4, "JetMoeMoE": _jetmoe,
}
REFUSED = {
    "DogeCDMoE": "its experts are rows of embeddings",
    "NllbMoeExperts": "its experts are modules of their own, by default with relu, which libmoe has not",
    "SwitchTransformersExperts": "its experts are modules of their own, by default with relu, which libmoe has not",
}
