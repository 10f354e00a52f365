"""What an activation computes, found by trying.

transformers has no name for a class's activation: `_apply_gate` is code. So libmoe's formulas and the class's own
function get the same numbers, and what does not agree is refused.
"""
from __future__ import annotations

import math
import re
from typing import Any, Callable

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.nn import functional as F  # type: ignore[import-not-found,unused-ignore]

Formula = Callable[[Any, Any, "dict[str, float]"], Any]


class Unsupported(ValueError):
    """libmoe cannot compute what this module computes."""


def _clamped(gate: Any, up: Any, params: dict[str, float]) -> tuple[Any, Any]:
    limit = params.get("limit", math.inf)
    return gate.clamp(max=limit), up.clamp(-limit, limit)


def _gated(function: Callable[[Any], Any]) -> Formula:
    def formula(gate: Any, up: Any, params: dict[str, float]) -> Any:
        gate, up = _clamped(gate, up, params)
        return function(gate) * up
    return formula


def _swigluoai(gate: Any, up: Any, params: dict[str, float]) -> Any:
    gate, up = _clamped(gate, up, {"limit": 7.0, **params})
    return (up + params.get("beta", 1.0)) * gate * torch.sigmoid(params.get("alpha", 1.702) * gate)


def _swiglustep(gate: Any, up: Any, params: dict[str, float]) -> Any:
    limit = params.get("limit", math.inf)
    return F.silu(gate).clamp(max=limit) * up.clamp(-limit, limit)


def _softcap(gate: Any, up: Any, params: dict[str, float]) -> Any:
    capped = [cap * torch.tanh(x / cap) if cap else x
              for x, cap in ((gate, params.get("gate_cap")), (up, params.get("up_cap")))]
    return capped[0] * torch.sigmoid(gate) * capped[1]


def _gelu_tanh(x: Any) -> Any:
    return F.gelu(x, approximate="tanh")


def _relu2(x: Any) -> Any:
    return F.relu(x) ** 2


_PLAIN = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": _gelu_tanh, "relu2": _relu2}
# The names of libmoe's config document -> f(gate, up, activation_params); those without a gate ignore `up`.
FORMULAS: dict[str, Formula] = {
    **{name: _gated(function) for name, function in _PLAIN.items()},
    "gelu_pytorch_tanh": _gated(_gelu_tanh), "swigluoai_uninterleave": _swigluoai, "swigluoai": _swigluoai,
    "swiglustep": _swiglustep, "swiglu_softcap": _softcap, "situ": _softcap,
    **{f"{name}_no_mul": (lambda gate, up, params, function=function: function(gate))  # type: ignore[misc]
       for name, function in _PLAIN.items()},
}


_SIZES = (9.0, 40.0, 200.0, 1e3, 1e5)  # a limit shows where numbers exceed it


def _numbers(limits: list[float]) -> Any:
    """128 numbers a row, gate and up in no order: rows for each size, and half as much again as each limit."""
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(-1, 1, 128, dtype=torch.float32)
    sizes = [*_SIZES, *(1.5 * limit for limit in limits)]
    return torch.stack([size * x[torch.randperm(128, generator=generator)] for size in sizes for _ in range(3)])


def _limits(module: Any, params: dict[str, float]) -> list[float]:
    """What may be a limit, of the module and of a formula."""
    named = {**_settings(module), **params}
    return [abs(value) for name, value in named.items() if re.search("limit|cap", name) and value]


def _split(x: Any, interleaved: bool) -> Any:
    return (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)


def _settings(module: Any) -> dict[str, float]:
    """Numbers of a module and its config that an activation may use, by their names."""
    found: dict[str, float] = {}
    for where in (getattr(module, "config", None), module):
        for name, value in vars(where).items() if where is not None else ():
            if re.search("limit|alpha|beta|softcap", name) and type(value) in (int, float) and math.isfinite(value):
                found[name] = float(value)
    return found


def _candidates(module: Any, gated: bool, interleaved: bool) -> Any:
    """Names with parameters, the plain ones first."""
    if not gated:
        yield from ((f"{name}_no_mul", {}) for name in _PLAIN)
        return
    settings = _settings(module)
    limits = [value for name, value in settings.items() if "limit" in name and value > 0]
    alphas = [*(value for name, value in settings.items() if "alpha" in name), 1.702]
    oai = "swigluoai" if interleaved else "swigluoai_uninterleave"
    yield from ((name, {}) for name in _PLAIN)
    for limit in limits:
        yield from ((name, {"limit": limit}) for name in ("silu", "swiglustep"))
        yield from ((oai, {"alpha": alpha, "beta": 1.0, "limit": limit}) for alpha in alphas)
    caps = {part: next((v for name, v in settings.items() if re.search(f"{part}.*softcap", name) and v > 0), None)
            for part in ("gate", "up")}
    if all(caps.values()):
        yield "swiglu_softcap", {"gate_cap": caps["gate"], "up_cap": caps["up"]}


def _agree(module: Any, name: str, params: dict[str, float], own: Callable[[Any], Any], gated: bool, interleaved: bool) -> bool:
    with torch.no_grad(), torch.device("cpu"):  # while a model is loaded it is meta
        x = _numbers(_limits(module, params))
        gate, up = _split(x, interleaved) if gated else (x, None)
        got, want = FORMULAS[name](gate, up, params), own(x).float()
    if got.shape != want.shape:
        return False
    return bool(((got - want).abs().amax(-1) <= 1e-5 * want.abs().amax(-1)).all())  # each size of numbers by itself


def find(module: Any, own: Callable[[Any], Any], gated: bool, interleaved: bool) -> tuple[str, dict[str, float]]:
    """Name and activation_params of the function `own` of [.., 2I], without a gate of [.., I]; Unsupported: none."""
    for name, params in _candidates(module, gated, interleaved):
        if _tried(module, name, params, own, gated, interleaved):
            return name, params
    raise Unsupported(f"{type(module).__name__}: libmoe has no such activation")


def check(document: dict[str, Any], module: Any, own: Callable[[Any], Any], gated: bool, interleaved: bool) -> None:
    """Unsupported unless the activation of a resolved config document is the module's own."""
    name = document["activation"]
    params = {k: v for k, v in (document.get("activation_params") or {}).items() if v is not None}
    known = name in FORMULAS and gated != name.endswith("_no_mul")
    if not known or not _tried(module, name, params, own, gated, interleaved):
        said = f"{name} {params}" if params else name
        raise Unsupported(f"{type(module).__name__}: the file's config.json says {said}, the module computes something else")


def _tried(module: Any, name: str, params: dict[str, float], own: Callable[[Any], Any], gated: bool,
           interleaved: bool) -> bool:
    try:
        return _agree(module, name, params, own, gated, interleaved)
    except Exception as error:
        raise Unsupported(f"{type(module).__name__}: its activation cannot be tried: {error}") from error
