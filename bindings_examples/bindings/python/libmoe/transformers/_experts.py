"""The modules that run: experts of transformers by its registry, and what stands in their place."""
from __future__ import annotations

import types
from typing import Any, Callable, NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from .. import torch as operator
from .._layer import Layer, convert
from .._model import Config, Selection
from .._weights import Weights
from ..torch import NO_BACKWARD, Registration
from . import _parts
from ._formulas import Unsupported


# --- one call ---------------------------------------------------------------------------------------------------------
class _NoBackward(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    """The result of experts in a graph of gradients: its backward pass raises."""

    @staticmethod
    def forward(ctx: Any, out: Any, *sources: Any) -> Any:
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(NO_BACKWARD)


def _check_inference(module: Any) -> None:
    if module.training:
        raise RuntimeError("libmoe's experts are for inference: call model.eval(), or load the model without libmoe to "
                           "train it")


def _run(registration: Any, hidden: Any, topk_ids: Any, topk_weights: Any, sources: Any = ()) -> Any:
    """`sources`: parameters that the layer was made of, and that a gradient may be wanted for."""
    dtype, wanted = hidden.dtype, []
    if torch.is_grad_enabled():
        wanted = [t for t in (hidden, topk_weights, *sources) if t.requires_grad]
        if wanted and torch.compiler.is_compiling():  # the backward pass is compiled here and now
            raise RuntimeError(NO_BACKWARD)
        hidden, topk_weights = hidden.detach(), topk_weights.detach()
    if dtype is not registration.dtype and torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(registration.dtype)
    if sources and torch.compiler.is_compiling():  # the operator compares the weights, as compiled code does not
        out = torch.ops.libmoe.experts_of(hidden, topk_ids, topk_weights, registration.number, sources)
    else:
        out = torch.ops.libmoe.experts(hidden, topk_ids, topk_weights, registration.number)
    out = out.to(dtype)
    return _NoBackward.apply(out, *wanted) if wanted else out


# --- transformers' own modules, by the registry -----------------------------------------------------------------------
class _State(NamedTuple):
    """Beside a module of transformers: its layer, and which weights that was made of. A pickled module has none."""
    registration: Registration
    top_k: int
    stamp: Any
    pins: Any

    def __deepcopy__(self, _: Any) -> _State:
        return self

    def __reduce__(self) -> Any:
        return _no_state, ()


def _no_state() -> None:
    return None


def _stamp(module: Any) -> Any:
    """Changes with the weights, as far as torch tells: not by `parameter.data.mul_()`, see refresh()."""
    hook = getattr(module, "_hf_hook", None)
    if any(getattr(one, "offload", False) for one in getattr(hook, "hooks", [hook])):
        return "offloaded"  # accelerate brings the same weights to another place in each call
    return operator.stamp_of(module.parameters())


def layer_of(module: Any, top_k: int) -> Layer:
    """A layer of the module's own tensors, which are not needed later. Unsupported says why there is none."""
    parts = _parts.parts_of(module)
    devices = {tensor.device.type for tensor in parts.tensors.values()}
    if devices != {"cpu"}:
        raise Unsupported(
            "its weights are on meta: they are offloaded, or not loaded yet; libmoe.transformers.from_pretrained reads "
            "them from the files" if "meta" in devices else
            f"its weights are on {', '.join(sorted(devices))}, libmoe's experts run on the CPU; call "
            "libmoe.transformers.prepare(model, free=True) before model.to(device), or use its from_pretrained")
    context = operator.context()
    with Config(_parts.document_of(module, parts, top_k)) as config, Selection(config, context) as selection, \
            Weights(config) as weights:
        for role, tensor in parts.tensors.items():
            weights.set(role, tensor.detach())  # by DLPack: without a copy, until it is converted
        with convert(selection, weights, context) as packed:
            return Layer(selection, packed, context)


def state_of(module: Any) -> _State | None:
    state: _State | None = module.__dict__.get("_libmoe")
    return state


@torch.compiler.disable  # type: ignore[misc,untyped-decorator,unused-ignore]
def convert_module(module: Any, top_k: int) -> _State:
    """The state of a module as its weights are now; converts them if they have changed."""
    state, stamp = state_of(module), _stamp(module)
    if state is None or state.stamp != stamp or state.top_k != top_k:
        pins = operator.pins_of(p for p in module.parameters() if p.device.type != "meta")
        state = _State(Registration(layer_of(module, top_k), stamp), top_k, stamp, pins)
        module.__dict__["_libmoe"] = state  # threads that come here at once convert twice, and one stays
    return state


def experts_forward(self: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
    """transformers' experts_implementation "libmoe": converts at the first call, and when weights have changed."""
    if self.__dict__.get("_libmoe_kept"):  # patch() said so; its config is that of modules which have a layer
        return type(self).forward.__wrapped__(self, hidden_states, top_k_index, top_k_weights)
    _check_inference(self)
    state = getattr(self, "_libmoe", None)
    if state is None or not torch.compiler.is_compiling():
        state = convert_module(self, top_k_index.shape[-1])
    return _run(state.registration, hidden_states, top_k_index, top_k_weights, list(self.parameters()))


def agree(module: Any, layer: Layer, top_k: int) -> bool:
    """Whether a layer read from files computes about what a module of the registry does with the tensors that it has.

    Two tokens tell: other weights are as far off as the results are large, other precision is not.
    """
    if not _parts.is_decorated(module) or any(p.device.type != "cpu" for p in module.parameters()):
        return True
    parts = _parts.parts_of(module)
    experts, size = parts.sizes["num_experts"], parts.sizes["hidden_dim"]
    hidden = torch.randn(2, size, generator=torch.Generator().manual_seed(0)).to(parts.dtype)
    ids = torch.stack([torch.arange(top_k), torch.arange(experts - top_k, experts)])
    weights = torch.full(ids.shape, 1 / top_k, dtype=parts.dtype)
    with torch.no_grad():
        own = type(module).forward.__wrapped__(module, hidden, ids, weights).float()
        got = layer.apply(hidden, topk_ids=ids, topk_weights=weights.float(), out=torch.empty_like(hidden)).float()
    return bool((own - got).abs().max() <= 0.25 * own.abs().max())


# --- instead of them --------------------------------------------------------------------------------------------------
class LibmoeExperts(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """Stands where a class's experts stood. It has no parameters: transformers reads none of their tensors."""

    def __init__(self, replaced: Any, where: str) -> None:
        super().__init__()
        self.kind, self.where = type(replaced).__name__, where
        self.config = getattr(replaced, "config", None) if _parts.is_decorated(replaced) else None
        self.registration: Registration | None = None
        self.directory: str | None = None  # whose files hold the experts
        self.train(replaced.training)

    def take(self, layer: Layer, directory: str | None = None) -> None:
        self.registration, self.directory = operator.register(layer), directory
        if self.config is not None:
            self.config._experts_implementation_internal = "libmoe"

    def forward(self, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        """hidden [T, H] or [B, S, H], ids [T, K], weights [T, K] -> the shape, type and device of hidden."""
        _check_inference(self)
        if self.registration is None:
            raise RuntimeError(f"{self.where} has no experts yet: the model was not loaded to the end")
        if self.config is not None and self.config._experts_implementation != "libmoe":
            raise RuntimeError(f"this model's experts are libmoe's and no torch tensors; experts_implementation="
                               f"{self.config._experts_implementation!r} needs those: load it again without libmoe")
        if hidden_states.dim() == 2:
            return _run(self.registration, hidden_states, top_k_index, top_k_weights)
        flat = hidden_states.reshape(-1, hidden_states.shape[-1])
        return _run(self.registration, flat, top_k_index, top_k_weights).view(hidden_states.shape)

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        """What to(), cuda(), half() do to parameters: a device is fine, as hidden states come here; a type is not."""
        if self.registration is not None:
            probe = fn(torch.empty(0, dtype=self.registration.dtype))
            if probe.dtype is not self.registration.dtype:
                raise RuntimeError(f"libmoe's experts were converted for {self.registration.dtype} and cannot become "
                                   f"{probe.dtype}: load the model with dtype={probe.dtype}; this one may be of both "
                                   "types now")
            if probe.is_meta:
                raise RuntimeError("libmoe's experts cannot go to the device meta: delete the model to give their "
                                   "memory back")
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *arguments: Any, **more: Any) -> None:
        if self.registration is not None and any(key.startswith(prefix) for key in state_dict):
            raise RuntimeError(f"this model's experts are libmoe's and no torch tensors: {prefix[:-1]} cannot be given by "
                               "load_state_dict(); write a directory of these weights and load that with "
                               "libmoe.transformers.from_pretrained")
        super()._load_from_state_dict(state_dict, prefix, *arguments, **more)

    def _save_to_state_dict(self, *arguments: Any, **more: Any) -> None:
        if self.registration is not None:
            raise RuntimeError("this model's experts are libmoe's and no torch tensors, so a state_dict() would lack "
                               "them: " + (
                "libmoe.transformers.save(model, DIR) copies the files that it was loaded from" if self.directory else
                "save_pretrained() works before libmoe.transformers.prepare(model, free=True) gives the tensors away"))
        super()._save_to_state_dict(*arguments, **more)

    def extra_repr(self) -> str:
        return f"{self.kind}, {self.registration.layer!r}" if self.registration else f"{self.kind}, not loaded"


def replace(model: Any, name: str, module: Any) -> LibmoeExperts:
    """Puts libmoe's experts, which have no layer yet, where a module's are."""
    made = LibmoeExperts(module, name)
    install = _BLOCKS.get(type(module).__name__)
    if install is None:
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, made)
    else:
        install(module, made)
    return made


# Blocks of transformers that have no experts of the usual three arguments.
def _llama4_forward(self: Any, hidden_states: Any) -> Any:
    """Its router gives a column for each expert, zeros but for the chosen."""
    hidden_states = hidden_states.reshape(-1, self.hidden_dim)
    scores, logits = self.router(hidden_states)
    weights, ids = torch.topk(scores, self.top_k, dim=-1)
    return self.shared_expert(hidden_states) + self.experts(hidden_states, ids, weights), logits


def _jetmoe_forward(self: Any, layer_input: Any) -> Any:
    flat = layer_input.reshape(-1, layer_input.shape[-1])
    chosen, ids = self.router.layer(flat).float().topk(self.router.top_k, dim=1)
    weights = torch.softmax(chosen, dim=1).type_as(flat)
    return self.input_linear(flat, ids, weights).view(layer_input.shape) + self.bias


def _in_llama4(block: Any, experts: LibmoeExperts) -> None:
    if block.top_k != 1:
        raise Unsupported("Llama4TextMoe: weights that multiply inputs are defined for one expert of a token, "
                          f"this model has {block.top_k}")
    block.experts = experts
    block.forward = types.MethodType(_llama4_forward, block)


def _in_jetmoe(block: Any, experts: LibmoeExperts) -> None:
    block.input_linear = experts
    del block.output_linear
    block.forward = types.MethodType(_jetmoe_forward, block)


_BLOCKS: dict[str, Callable[[Any, LibmoeExperts], None]] = {"Llama4TextMoe": _in_llama4, "JetMoeMoE": _in_jetmoe}
