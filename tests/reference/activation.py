"""Numpy reference of the MoE activations (see config.md 10)."""
import math

import numpy as np

GATED = ["silu", "gelu", "gelu_tanh", "relu2", "swigluoai", "swigluoai_uninterleave", "swiglustep"]
UNGATED = ["silu_no_mul", "gelu_no_mul", "gelu_tanh_no_mul", "relu2_no_mul"]
ALIASES = {"gelu_pytorch_tanh": "gelu_tanh"}
DEFAULTS = {"alpha": 1.702, "beta": 1.0, "limit": 7.0}

_erf = np.vectorize(math.erf, otypes=[np.float64])


def is_gated(name):
    return not ALIASES.get(name, name).endswith("_no_mul")


def without_mul(name):
    name = ALIASES.get(name, name)
    return name + "_no_mul" if name in ("silu", "gelu", "gelu_tanh", "relu2") else name


def sigmoid(x):
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    return 0.5 * x * (1.0 + _erf(x * math.sqrt(0.5)))


def gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def relu2(x):
    r = np.maximum(x, 0.0)
    return r * r


def apply(name, x, *, alpha=None, beta=None, limit=None):
    """x [..., 2d] (gated) or [..., d] -> [..., d]. float64 inside, float32 out."""
    name = ALIASES.get(name, name)
    x = np.asarray(x, np.float64)
    if name in UNGATED:
        f = {"silu_no_mul": silu, "gelu_no_mul": gelu, "gelu_tanh_no_mul": gelu_tanh, "relu2_no_mul": relu2}[name]
        return f(x).astype(np.float32)
    if name not in GATED:
        raise ValueError(f"unknown MoE activation {name!r}")
    if x.shape[-1] % 2:
        raise ValueError("a gated activation needs an even last dimension")
    d = x.shape[-1] // 2
    if name == "swigluoai":
        g, u = x[..., 0::2], x[..., 1::2]
    else:
        g, u = x[..., :d], x[..., d:]
    if name in ("swigluoai", "swigluoai_uninterleave"):
        a = DEFAULTS["alpha"] if alpha is None else alpha
        b = DEFAULTS["beta"] if beta is None else beta
        lim = DEFAULTS["limit"] if limit is None else limit
        g = np.minimum(g, lim)
        u = np.clip(u, -lim, lim)
        y = (u + b) * (g * sigmoid(a * g))
    elif name == "swiglustep":
        lim = DEFAULTS["limit"] if limit is None else limit
        y = np.minimum(silu(g), lim) * np.clip(u, -lim, lim)
    elif name == "silu":
        if limit is not None:                    # clamp BEFORE the activation
            g = np.minimum(g, limit)
            u = np.clip(u, -limit, limit)
        y = silu(g) * u
    elif name == "gelu":
        y = gelu(g) * u
    elif name == "gelu_tanh":
        y = gelu_tanh(g) * u
    else:                                        # relu2, gated
        y = relu2(g) * u
    return y.astype(np.float32)
