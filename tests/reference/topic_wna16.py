"""int4 and int8 weights: bytes, dense numbers and outputs of random layers in every checkpoint format and every layout,
against wna16.py, and p16.py for our own layout."""
import math

import numpy as np

import p16
import wna16 as R
from topic_w4a8 import first_difference

F32 = np.float32
SPOILS = ("byte", "dense", "output")
CUDA = {"type": "cuda", "capability": [9, 0]}
ROCM = {"platform": {"type": "rocm", "gfx": "gfx942"}, "moe_backend": "emulation"}
TARGETS = {
    "ours": {},
    "marlin": {"platform": CUDA, "moe_backend": "marlin"},
    "marlin int8": {"platform": CUDA, "moe_backend": "marlin", "marlin_input_dtype": "int8"},
    "marlin fp8": {"platform": {"type": "cuda", "capability": [8, 9]}, "moe_backend": "marlin", "marlin_input_dtype": "fp8"},
    "trtllm": {"platform": {"type": "cuda", "capability": [10, 0], "libs": {"flashinfer_trtllm_moe": True}},
               "vllm_env": {"VLLM_USE_FLASHINFER_MOE_INT4": "1"}, "router_logits_dtype": "bfloat16"},
    "xpu": {"platform": {"type": "xpu"}},
    "vnni": {"platform": {"type": "cpu"}, "selection_policy": "vllm"},
    "on_the_fly": {**ROCM, "emulation_layout": "on_the_fly"},
    "dense": {**ROCM, "emulation_layout": "dense"},
}
WORDS = {"bf16": "bfloat16", "fp16": "float16", "f32": "float32"}


class Case:
    """What a round draws; `ck` holds the stacked tensors under the names of wna16.md 2.2."""

    def __init__(self, rng):
        one_of = lambda *values: values[int(rng.integers(len(values)))]
        self.target = t = str(rng.choice(list(TARGETS), p=[.28, .16, .1, .1, .04, .08, .08, .08, .08]))
        marlin = t.startswith("marlin")
        self.format = "ct" if t == "trtllm" else one_of("gptq", "ct") if t == "xpu" else one_of("gptq", "awq", "ct")
        self.bits = 4 if self.format == "awq" or t in ("marlin fp8", "trtllm", "xpu", "vnni") else one_of(4, 8)
        self.group = 32 if t == "trtllm" else one_of(32, 64, 128) if t == "vnni" else one_of(-1, 32, 64, 128) if marlin or t == "xpu" \
            else one_of(-1, 16, 24, 32, 48, 64, 96, 128) if t == "ours" else one_of(-1, 32, 64, 96, 128)
        # AWQ in Marlin has zero points always, symmetric GPTQ none there
        self.zeros = bool(rng.random() < 0.5) and t not in ("xpu", "trtllm") and not (marlin and self.format == "gptq")
        if marlin and self.format == "awq":
            self.zeros = True
        if t in ("on_the_fly", "dense") and self.bits == 8:
            self.zeros = False
        if t == "marlin fp8" and self.format == "ct":
            self.zeros = False
        self.vllm = bool(rng.random() < 0.5)
        self.rank_sizes(rng, one_of, marlin)
        self.order = (self.format != "awq" and self.group != -1 and t in ("ours", "marlin") and rng.random() < 0.4
                      and self.H > self.group and self.I > self.group and (t == "ours" or self.I % math.lcm(64, self.group) == 0))
        self.plus_one = bool(self.zeros and rng.random() < 0.4 and (t in ("ours", "vnni") or not self.vllm))
        self.bias = bool(rng.random() < 0.4) and t not in ("trtllm", "vnni")
        self.gated = not (t == "ours" and rng.random() < 0.2)
        self.tag = "bf16" if t == "trtllm" else one_of("bf16", "fp16")
        self.dtype = one_of("bf16", "fp16", "f32") if t in ("ours", "dense") else self.tag
        self.E = int(rng.integers(1, 4))
        self.K = int(rng.integers(1, self.E + 1))
        self.transposed = self.format != "ct" or (t != "trtllm" and (marlin or t != "ours" or bool(rng.random() < 0.5)))
        self.plain_g_idx = bool(self.format != "awq" and not self.order and rng.random() < 0.5)
        # symmetric GPTQ files hold zero points all the same; who reads them as written is not given any
        self.idle_zeros = bool(self.format == "gptq" and not self.zeros and (t in ("ours", "xpu") or marlin) and rng.random() < 0.5)
        self.negative = float(rng.choice([0, 0.5, 1]))  # share of the scales
        self.ck, self.values = {}, {}
        for name, n, k in (("w13", (2 if self.gated else 1) * self.I, self.H), ("w2", self.H, self.I)):
            self.matrix(rng, name, n, k)

    def rank_sizes(self, rng, one_of, marlin):
        g, t = self.group, self.target
        step = {"trtllm": 256, "xpu": max(g, 32), "vnni": max(g, 32)}.get(t, g if g > 0 else 8)
        if marlin:
            self.H = 128 * int(rng.integers(1, 4))
            step = max(g, 32) if rng.random() < 0.5 else max(g, 64)
            self.I = step * int(rng.integers(1, max(2, 384 // step)))
            return
        step = math.lcm(step, 8)  # words along both axes
        self.H, self.I = (step * int(rng.integers(1, max(2, (512 if t == "trtllm" else 256) // step + 1))) for _ in "HI")

    def matrix(self, rng, name, n, k):
        e, bits, groups = self.E, self.bits, 1 if self.group == -1 else k // self.group
        q = rng.integers(0, 1 << bits, (e, k, n))
        sign = rng.choice([-1, 1], (e, groups, n), p=(self.negative, 1 - self.negative))
        s = R.from_f32((sign * rng.uniform(0.5, 1.5, (e, groups, n))).astype(F32) / F32(1 << bits) / F32(math.sqrt(k)), self.tag)
        fits = self.bits == 4 and self.target in ("ours", "vnni")  # a zero point of 16: no other layout has room for 2^bits
        z = rng.integers(0, (1 << bits) - (self.plus_one and not fits), (e, groups, n)) if self.zeros else None
        ck = self.ck
        ck[name + "_scale"] = s
        if self.format == "awq":
            ck[name] = R.awq_pack(q, bits)
        else:
            ck[name] = R.pack(q, bits, 1)
        if z is not None:
            ck[name + "_qzeros"] = R.awq_pack(z, bits) if self.format == "awq" else R.pack(z, bits, -1)
        if self.order:
            ck[name + "_g_idx"] = np.stack([rng.permutation(np.arange(k) // self.group) for _ in range(e)]).astype(np.int32)
        if self.bias:
            ck[name + "_bias"] = R.from_f32(rng.normal(0, 0.3, (e, n)).astype(F32), self.tag)
        self.values[name] = (q.transpose(0, 2, 1), s.transpose(0, 2, 1), None if z is None else z.transpose(0, 2, 1))

    def document(self):
        weights = {"num_bits": self.bits, "type": "int", "dynamic": False, "symmetric": not self.zeros,
                   "strategy": "channel" if self.group == -1 else "group"}
        if self.group != -1:
            weights["group_size"] = self.group
        if self.order:
            weights["actorder"] = "group"
        quantization = {"weights": weights, "format": "pack-quantized" if self.format == "ct" else self.format,
                        "zero_point_convention": "plus_one" if self.plus_one else "as_stored"}
        if self.format == "ct":
            quantization["is_transposed"] = self.transposed
        return {"num_experts": self.E, "top_k": self.K, "hidden_dim": self.H, "intermediate_size": self.I,
                "activation": "silu" if self.gated else "relu2_no_mul",
                "has_bias": self.bias, "in_dtype": WORDS[self.dtype], "bit_compat": "vllm" if self.vllm else "libmoe",
                "quantization": quantization, **TARGETS[self.target]}

    def given(self):
        """The tensors as the library takes them."""
        ck = dict(self.ck)
        if self.plain_g_idx:
            ck.update(self.natural_groups())
        if self.idle_zeros:
            for name in ("w13", "w2"):
                e, groups, n = self.ck[name + "_scale"].shape
                ck[name + "_qzeros"] = R.pack(np.full((e, groups, n), (1 << (self.bits - 1)) - 1), self.bits, -1)
        if self.transposed:
            return ck
        turn = lambda k, a: a if a.ndim < 3 else np.ascontiguousarray(a.transpose(0, 2, 1))
        return {k: turn(k, a) for k, a in ck.items()}

    def natural_groups(self):
        groups = lambda k: np.arange(k) // (k if self.group == -1 else self.group)
        return {w + "_g_idx": np.tile(groups(k), (self.E, 1)).astype(np.int32) for w, k in (("w13", self.H), ("w2", self.I))}

    def read(self):
        """The stacked tensors as a converter of the reference takes them."""
        ck = dict(self.ck)
        if self.target in ("vnni", "trtllm") and self.format != "awq":
            # known difference: these layouts hold a g_idx whether one was given or not; upstream passes on what it got
            ck.update(self.natural_groups())
        if self.plus_one and self.target not in ("ours", "vnni"):
            for w in ("w13", "w2"):
                z = self.values[w][2].transpose(0, 2, 1) + 1
                ck[w + "_qzeros"] = R.awq_pack(z, self.bits) if self.format == "awq" else R.pack(z, self.bits, -1)
        return ck

    def kept_bias(self, w):
        """In layouts where upstream has none. Known difference: it has the layer's type, whatever type was given, because
        the layout is known before the weights are."""
        if not self.bias or self.vllm:
            return None
        b = R.to_f32(self.ck[w + "_bias"], self.tag)
        return b if self.dtype == "f32" else R.from_f32(b, self.dtype)

    def outputs(self):
        """What wna16.py makes of it: named outputs, and the dense numbers of them (int, scale) of each matrix."""
        t, rule = self.target, "upstream" if self.vllm else "correct"
        ck = self.read()
        algo = "awq" if self.format == "awq" else "gptq"
        if t.startswith("marlin"):
            dtype = t[7:] or None
            args = (ck, self.bits, self.group, self.tag, dtype)
            run = (lambda r: R.process_awq_marlin(*args, scale_rule=r)) if algo == "awq" else \
                (lambda r: R.process_marlin(*args, "group" if self.order else None, scale_rule=r))
            back = R.crop_padded(R.read_marlin(run("correct"), self.bits, self.tag, dtype), self.I)
            return run(rule), back
        if t == "trtllm":
            out = R.process_trtllm_mxint4({k: v if v.ndim < 3 else np.ascontiguousarray(v.transpose(0, 2, 1)) for k, v in ck.items()})
            return out, R.read_trtllm(out, self.H, self.I)
        if t == "xpu":
            out = R.process_xpu(ck)
            return out, R.read_xpu(out, self.tag)
        if t == "vnni":
            more = None if self.vllm else int(self.plus_one)
            out = R.process_cpu(ck, algo, self.tag, more)
            return out, R.read_cpu(out)
        if t == "on_the_fly":
            out = R.process_otf(ck, algo, self.bits)
            back = R.read_otf(out, self.bits, self.tag)
            out.update({w + "_bias": self.kept_bias(w) for w in ("w13", "w2")})
            return out, back
        if t == "dense":
            out = R.process_emulation(ck, algo, self.bits, self.tag, self.dtype)
            out.update({w + "_bias": self.kept_bias(w) for w in ("w13", "w2")})
            return out, None
        return None, R.read_checkpoint(ck, algo, self.bits, self.tag, self.plus_one)


def compare_p16(case, library, packed, spoil):
    """Our own layout, where p16.py has it: neither lists nor filled groups."""
    if case.order or case.group not in (-1, 32, 64, 96, 128):
        return
    kind = packed.report()["layout"]
    same = "-" + {"bf16": "bf16", "fp16": "f16"}[case.tag]
    for name, halves in (("w13", 2 if case.gated else 1), ("w2", 1)):
        q, s, z = case.values[name]
        zeros = None if z is None else z + int(case.plus_one)
        scales = s if same in kind else R.to_f32(s, case.tag)
        assert same in kind or "-f32" in kind, f"layout {kind}: no scales of {case.tag}"
        bias = R.to_f32(case.ck[name + "_bias"], case.tag) if case.bias else None
        for e in range(case.E):
            want = p16.pack_plain(q[e], scales[e], None if z is None else zeros[e], None if bias is None else bias[e],
                                  case.bits, halves)
            if spoil == "byte":
                want = want[:-1] + bytes([want[-1] ^ 1])
            got = library.output(packed, name + "_weight", e)
            assert got[:len(want)] == want and not any(got[len(want):]), \
                f"{name}_weight of expert {e} in {kind}: {first_difference(got, want)}"


def compare_outputs(library, packed, want, spoil):
    for name, array in want.items():
        got = library.output(packed, name)
        if array is None:
            assert got is None, f"{name} must be absent"
            continue
        array = np.asarray(array).tobytes()
        if spoil == "byte" and array:
            array = array[:-1] + bytes([array[-1] ^ 1])
        assert got == array, f"{name}: {first_difference(got, array)}"


def forward(case, dense, x, ids, gates):
    """float64, but for the values between the two matrices, which have the layer's type."""
    y = np.zeros((len(x), case.H))
    bias = {w: R.to_f32(case.ck[w + "_bias"], case.tag).astype(np.float64) if case.bias else np.zeros((case.E, 1))
            for w in ("w13", "w2")}
    for t, row in enumerate(x.astype(np.float64)):
        for e, gate in zip(ids[t], gates[t].astype(np.float64)):
            h = dense["w13"][e].astype(np.float64) @ row + bias["w13"][e]
            if case.gated:
                g, u = h[:case.I], h[case.I:]
                act = g / (1 + np.exp(-g)) * u
            else:
                act = np.maximum(h, 0) ** 2
            if case.dtype != "f32":
                act = R.to_f32(R.from_f32(act.astype(F32), case.dtype), case.dtype).astype(np.float64)
            y[t] += gate * (dense["w2"][e].astype(np.float64) @ act + bias["w2"][e])
    return y


def check(library, rng, twist):
    case = Case(rng)
    try:
        compare(library, rng, case, twist)
    except AssertionError as fault:
        raise AssertionError(f"{case.target} {case.document()}: {fault}") from None
    except Exception as fault:
        raise RuntimeError(f"{case.target} {case.document()}: {type(fault).__name__}: {fault}") from fault


def compare(library, rng, case, spoil):
    given = case.given()
    bf16 = [k for k, a in given.items() if a.dtype == np.uint16] if case.tag == "bf16" else []
    selection, packed = library.convert(case.document(), given, bf16)
    want, back = case.outputs()
    if want is None:
        compare_p16(case, library, packed, spoil)
    else:
        compare_outputs(library, packed, want, spoil)
    dense = {}
    for name in ("w13", "w2"):
        if back is None:
            q = want[name + "_qweight"]
            dense[name] = q if case.dtype == "f32" else R.to_f32(q, case.dtype)
        else:
            dense[name] = R.dense(back[name])
        for e in range(case.E):
            expected = np.nextafter(dense[name][e], F32(np.inf)) if spoil == "dense" else dense[name][e]
            got = library.dequantize(packed, name + "_weight", e, dense[name][e].shape)
            assert got.tobytes() == expected.tobytes(), f"{name} of expert {e} dequantized: {(got != expected).sum()} numbers differ"
    if case.target != "ours":
        return
    tokens = int(rng.integers(1, 9))
    x = rng.normal(0, 1, (tokens, case.H)).astype(F32)
    hidden = x if case.dtype == "f32" else R.from_f32(x, case.dtype)
    x = x if case.dtype == "f32" else R.to_f32(hidden, case.dtype)
    ids = np.stack([rng.permutation(case.E)[:case.K] for _ in range(tokens)]).astype(np.int32)
    gates = rng.uniform(0.2, 1, ids.shape).astype(F32)
    got = library.moe.Layer(selection, packed).apply(hidden.view(np.float16) if case.dtype == "fp16" else hidden,
                                                     topk_ids=ids, topk_weights=gates)
    got = got if case.dtype == "f32" else R.to_f32(got.view(np.uint16), case.dtype)
    expected = forward(case, dense, x, ids, gates)
    if spoil == "output":
        expected = expected * 1.02
    error = np.sqrt(((got - expected) ** 2).sum() / (expected ** 2).sum())
    bound = {"f32": 1e-5, "bf16": 4e-3, "fp16": 7e-4}[case.dtype]  # 16 bits: rounding of the result, and of its input
    assert error <= bound, f"output: relative distance {error} from the reference, {bound} is allowed"
