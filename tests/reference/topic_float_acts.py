"""Activations quantized to floats as the file says (float_oracles.md 9.6): outputs of random layers, bit by bit, against
the chains of numerics.md 2.2 and 2.7 with the quantizers of float_oracles.py."""
import numpy as np

import float_formats as ff
import float_oracles as R
from w4a8_int8 import fma32

F32 = np.float32
SPOILS = ("scale", "output")
SCALAR = {"type": "cpu", "features": []}  # rows of bf16 units have bits of their own
FP8 = {"num_bits": 8, "type": "float"}


def choice(rng, *values):
    return values[int(rng.integers(len(values)))]


class Weights:
    """Codes [E, N, K] of small floats, their scales as float32 by row and column, and the tensors of a checkpoint."""

    def __init__(self, rng, form, count, n, k):
        self.form, self.n, self.k = form, n, k
        four = form in ("mxfp4", "nvfp4")
        self.codes = rng.integers(0, 16 if four else 256, (count, n, k)).astype(np.uint8)
        if not four:
            self.codes = np.where((self.codes & 0x7F) == 0x7F, self.codes ^ 0x40, self.codes).astype(np.uint8)
        self.columns = {"mxfp4": 32, "mxfp8": 32, "nvfp4": 16, "group": 64, "block": 128}.get(form, k)
        groups, self.tensor_scale = -(-k // self.columns), np.ones(count, F32)
        rows = {"block": -(-n // 128), "tensor": 1}.get(form, n)
        if form in ("mxfp4", "mxfp8"):
            self.given = rng.integers(118, 130, (count, rows, groups)).astype(np.uint8)
            s = ff.e8m0_decode(self.given)
        elif form == "nvfp4":
            self.given = rng.integers(0x20, 0x60, (count, rows, groups)).astype(np.uint8)
            s = ff.E4M3FN.decode(self.given).astype(F32)
            self.tensor_scale = rng.uniform(1e-3, 1e-2, count).astype(F32)
        else:
            self.given = s = rng.uniform(1e-3, 1e-2, (count, rows, groups)).astype(F32)
        self.scales = np.repeat(s, 128 if form == "block" else n if form == "tensor" else 1, 1)[:, :n]

    def tensors(self, name, e4m3):
        packed = self.codes if self.form not in ("mxfp4", "nvfp4") else ff.pack_fp4(self.codes)
        given = self.given[:, 0, 0] if self.form == "tensor" else self.given
        tensors, types = {name + "_weight": packed, name + "_scale": given}, {}
        if self.form not in ("mxfp4", "nvfp4"):
            types[name + "_weight"] = e4m3
        if self.form == "nvfp4":
            types[name + "_scale"] = e4m3
            tensors[name + "_scale_2"] = self.tensor_scale
        return tensors, types

    def values(self, e):
        return (ff.E2M1 if self.form in ("mxfp4", "nvfp4") else ff.E4M3FN).decode(self.codes[e]).astype(F32)

    def times_floats(self, e, x):
        """x [T, K] float32: a chain of fma of each 32 columns, which meets its scale."""
        end = -(-self.k // 32) * 32
        w, x = np.pad(self.values(e), ((0, 0), (0, end - self.k))), np.pad(x, ((0, 0), (0, end - self.k)))
        a = np.zeros((len(x), self.n), F32)
        for k0 in range(0, end, 32):
            b = np.zeros_like(a)
            for k in range(k0, k0 + 32):
                b = fma32(x[:, k, None], w[None, :, k], b)
            a = fma32(b, self.scales[e][None, :, k0 // self.columns], a)
        return a + F32(0)

    def times_codes(self, e, codes, scales, tensor_scale):
        """Doubled codes [T, K] and the scales of their groups: integer sums."""
        w = (2 * self.values(e)).astype(np.int64)
        a = np.zeros((len(codes), self.n), F32)
        for g in range(self.k // self.columns):
            part = slice(g * self.columns, (g + 1) * self.columns)
            sums = (codes[:, part].astype(np.int64) @ w[:, part].T).astype(F32)
            a = fma32(sums, (self.scales[e][None, :, g] * scales[:, g, None]).astype(F32), a)
        a = a * F32(0.5)
        return (a * tensor_scale if self.form == "nvfp4" else a) + F32(0)


def float8(x, rule):
    """Codes times their scales, of the kind that the config asks for."""
    kind, columns, given = rule
    if kind == "mx":
        q, e = R.mx_quant(np.pad(x, ((0, 0), (0, -x.shape[1] % 32))), "e4m3fn", "rceil")
        s = np.repeat(ff.e8m0_decode(e).astype(F32), 32, 1)[:, :x.shape[1]]
        q = q[:, :x.shape[1]]
    elif kind == "tensor":
        q, s = R.fp8_static_quant(x, given), np.full_like(x, given)
    elif kind == "token":
        q, s = R.fp8_per_token(x)
    else:
        pieces = [R.fp8_per_group(x[:, k:k + columns], min(columns, x.shape[1] - k), ue8m0=kind == "ue8m0")
                  for k in range(0, x.shape[1], columns)]
        q = np.concatenate([p[0] for p in pieces], 1)
        s = np.concatenate([np.repeat(p[1], p[0].shape[1], 1) for p in pieces], 1)
    return (ff.E4M3FN.decode(q).astype(F32) * s + F32(0)).astype(F32)


def float4(x, form, given):
    """Doubled codes and half of their scales."""
    if form == "mxfp4":
        q, e = R.mx_quant(x, "e2m1", "even")
        s = ff.e8m0_decode(e).astype(F32)
    else:
        g = F32(1) / F32(given)
        q, sb = R.nvfp4_quant(x, g)
        s = ff.E4M3FN.decode(sb).astype(F32) * (F32(1) / g)
    return (2 * ff.E2M1.decode(q)).astype(np.int64), (s * F32(0.5)).astype(F32)


def check(library, rng, twist):
    form = str(choice(rng, "tensor", "channel", "group", "block", "mxfp8", "mxfp4", "nvfp4"))
    compute = "a4" if form == "nvfp4" else choice(rng, "a4", "mxfp8") if form == "mxfp4" else "a8"
    step = {"mxfp4": 32, "mxfp8": 32, "nvfp4": 16, "group": 64, "block": 128}.get(form, 1)
    h, i = (step * int(rng.integers(1, max(2, 300 // step))) for _ in range(2))
    count, tokens = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    quantization, rule = {"scheme": {"mxfp8": "MXFP8", "mxfp4": "MXFP4A16", "nvfp4": "NVFP4"}.get(form)}, ("mx", 32)
    if quantization["scheme"] is None:
        kind = choice(rng, "tensor", "token", "group", "ue8m0")
        columns = int(choice(rng, 32, 64, 96)) if kind in ("group", "ue8m0") else None
        weights = {**FP8, "strategy": form}
        weights.update({"group": {"group_size": 64}, "block": {"block_structure": [128, 128]}}.get(form, {}))
        inputs = {**FP8, "strategy": "group" if columns else kind, "group_size": columns, "dynamic": kind != "tensor"}
        if kind == "ue8m0":
            inputs["scale_format"] = "ue8m0"
        quantization, rule = {"weights": weights, "input_activations": inputs, "format": "float-quantized"}, (kind, columns)
    document = {"num_experts": count, "top_k": count, "hidden_dim": h, "intermediate_size": i, "activation": "relu2_no_mul",
                "in_dtype": "float32", "out_dtype": "float32", "compute": compute, "platform": SCALAR,
                "quantization": quantization}
    try:
        compare(library, rng, document, (form, rule, tokens), twist)
    except Exception as fault:
        raise type(fault)(f"{document}: {fault}") if isinstance(fault, AssertionError) else \
            RuntimeError(f"{document}: {type(fault).__name__}: {fault}") from None


def compare(library, rng, document, case, twist):
    form, rule, tokens = case
    h, i, count = document["hidden_dim"], document["intermediate_size"], document["num_experts"]
    w13, w2 = Weights(rng, form, count, i, h), Weights(rng, form, count, h, i)
    inputs = rng.uniform(1e-3, 1e-2, (2, count)).astype(F32)
    tensors, types = {}, {}
    for name, w, s in (("w13", w13, inputs[0]), ("w2", w2, inputs[1])):
        more = w.tensors(name, int(library.moe.DType.F8_E4M3FN))
        tensors.update(more[0])
        types.update(more[1])
        if form == "nvfp4" or rule[0] == "tensor":
            tensors[name + "_input_scale"] = s
    selection, packed = library.convert(document, tensors, dtypes=types)
    x = rng.normal(0, float(choice(rng, 0.1, 1, 5)), (tokens, h)).astype(F32)
    x[rng.random(x.shape) < 0.05] = 0
    if rng.random() < 0.2:
        x[rng.integers(tokens)] = 0
    ids = np.tile(np.arange(count, dtype=np.int32), (tokens, 1))
    gates = rng.uniform(0.05, 1, ids.shape).astype(F32)
    got = library.moe.Layer(selection, packed).apply(x, topk_ids=ids, topk_weights=gates)
    if twist == "scale":
        inputs, rule = inputs * F32(2), rule if rule[0] in ("tensor", "mx") else ("tensor", None)
        w2.scales = np.nextafter(w2.scales, F32(1))

    def multiply(w, e, values, which):
        if document["compute"] == "a4":
            return w.times_codes(e, *float4(values, form, inputs[which][e]), w.tensor_scale[e])
        return w.times_floats(e, float8(values, (*rule, inputs[which][e])))

    want = np.zeros((tokens, h), F32)
    for e in range(count):
        middle = np.maximum(multiply(w13, e, x, 0), F32(0))
        want = fma32(multiply(w2, e, middle * middle, 1), gates[:, e, None], want)
    if twist == "output":
        want = np.nextafter(want, F32(np.inf))
    assert got.tobytes() == want.tobytes(), f"output: {np.argwhere(got != want)[:4].tolist()} differ, by {np.abs(got - want).max()}"
