"""FP8, MXFP8, W4AFP8 and unquantized weights in the layouts of other engines: every named output of random layers, byte
for byte, against the conversions of float_oracles.py."""
import numpy as np

import float_formats as F
import float_oracles as R
from topic_w4a8 import first_difference

F32 = np.float32
E4M3, E8M0, U16 = 20, 24, np.uint16
LEAST = F32(1e-10)  # of FlashInfer's block scales


def cuda(major, word, **more):
    return {"platform": {"type": "cuda", "capability": [major, 0], "libs": {"flashinfer": True, "deep_gemm": True}},
            "moe_backend": word, **more}


def rocm(gfx):
    return {"platform": {"type": "rocm", "gfx": gfx, "libs": {"aiter": True}}, "vllm_env": {"VLLM_ROCM_USE_AITER": "1"}}


CPU = {"platform": {"type": "cpu", "arch": "x86_64", "features": ["avx512_bf16", "avx512_vnni"]},
       "selection_policy": "vllm", "vllm_env": {"VLLM_CPU_SGL_KERNEL": "1"}}
# document, what weights it takes, steps of H and I
TARGETS = {
    "triton": (cuda(9, "triton"), "tensor channel block values", 8, 8),
    "fi_cutlass": (cuda(9, "flashinfer_cutlass"), "tensor block values", 8, 8),
    "trtllm": (cuda(10, "flashinfer_trtllm"), "tensor block mx values", 32, 8),
    "marlin": (cuda(8, "marlin"), "tensor channel block mx", 64, 32),
    "deep_gemm": (cuda(9, "deep_gemm"), "block", 128, 128),
    "deep_gemm_f32": (cuda(9, "deep_gemm", vllm_env={"VLLM_USE_DEEP_GEMM_E8M0": "0"}), "block", 128, 128),
    "aiter": (rocm("gfx950"), "tensor channel block values", 32, 32),
    "aiter_fnuz": (rocm("gfx942"), "tensor channel block", 32, 32),
    "xpu": ({"platform": {"type": "xpu"}}, "tensor mx values", 8, 8),
    "vnni": (CPU, "block values", 32, 32),
    "w4a8": ({"platform": {"type": "cuda", "capability": [9, 0]}}, "int4", 256, 256),
}


def weights_of(grain):
    a = {"num_bits": 8, "type": "float", "strategy": grain}
    if grain == "block":
        a["block_structure"] = [128, 128]
    if grain == "mx":
        a.update(strategy="group", group_size=32)
    return a


def inputs_of(grain, static):
    a = {"num_bits": 8, "type": "float", "dynamic": not static}
    a["strategy"] = {"tensor": "tensor" if static else "token", "channel": "token"}.get(grain, "group")
    if a["strategy"] == "group":
        a["group_size"] = 128 if grain == "block" else 32
    return a


class Case:
    def __init__(self, rng):
        one_of = lambda *values: values[int(rng.integers(len(values)))]
        self.target = t = one_of(*TARGETS)
        self.grain = g = one_of(*TARGETS[t][1].split())
        self.vllm = bool(rng.random() < 0.5)
        self.gated = t not in ("triton", "fi_cutlass", "trtllm", "marlin") or (t == "trtllm" and g == "values") \
            or bool(rng.random() < 0.7)
        self.dtype = "bf16" if g == "values" and t in ("trtllm", "vnni") else one_of("bf16", "fp16")
        self.static = g == "tensor" and (t in ("fi_cutlass", "trtllm", "aiter", "aiter_fnuz") or (t == "triton" and self.vllm))
        step_h, step_i = TARGETS[t][2:]
        if g == "mx":
            step_h, step_i = (128, 128) if t == "trtllm" else (max(step_h, 32), max(step_i, 32))
        if g == "block":
            step_h, step_i = 128 if t == "trtllm" else step_h, 128
        if g == "values" and t == "trtllm":
            step_h, step_i = 64, 64
        if t == "marlin" and not self.gated:
            step_i = max(step_i, 64)
        self.H, self.I = (step * int(rng.integers(1, max(2, 300 // step + 1))) for step in (step_h, step_i))
        self.E = int(rng.integers(1, 4))
        self.S = 2 if self.gated else 1
        self.w, self.s, self.a = {}, {}, {}
        for name, n, k in (("w13", self.S * self.I, self.H), ("w2", self.H, self.I)):
            self.matrix(rng, name, n, k)

    def matrix(self, rng, name, n, k):
        e, g = self.E, self.grain
        if g == "values":
            x = rng.normal(0, 1, (e, n, k)).astype(F32)
            self.w[name] = (F.f32_to_bf16 if self.dtype == "bf16" else F.f32_to_fp16)(x).astype(U16)
            return
        if g == "int4":
            self.w[name] = rng.integers(0, 1 << 32, (e, n, k // 8), np.uint64).astype(np.uint32).view(np.int32)
            s = rng.uniform(.001, .03, (e, n, k // 128)) * rng.choice([-1, 1], (e, n, k // 128))
            self.s[name] = F.bf16_to_f32(F.f32_to_bf16(s.astype(F32)))
            return
        w = rng.integers(0, 256, (e, n, k)).astype(np.uint8)
        self.w[name] = np.where((w & 127) == 127, 0, w).astype(np.uint8)
        if g == "mx":
            self.s[name] = rng.integers(100, 140, (e, n, k // 32)).astype(np.uint8)
            return
        halves = self.S if name == "w13" else 1
        shape = {"tensor": (e, halves), "channel": (e, n, 1), "block": (e, R.cdiv(n, 128), R.cdiv(k, 128))}[g]
        self.s[name] = np.exp2(rng.uniform(-14, -6, shape)).astype(F32)
        if g == "tensor" and rng.random() < 0.3:
            self.s[name][:] = self.s[name][:, :1]
        if self.static:
            self.a[name] = rng.uniform(.1, 2, (e, halves)).astype(F32)

    def document(self):
        quantization = {"scheme": "none"} if self.grain == "values" else {"scheme": "W4AFP8"}
        if self.grain not in ("values", "int4"):
            xpu = self.target == "xpu" and self.grain == "tensor"
            quantization = {"weights": weights_of(self.grain),
                            "input_activations": None if xpu else inputs_of(self.grain, self.static)}
        return {"num_experts": self.E, "top_k": 1, "hidden_dim": self.H, "intermediate_size": self.I,
                "activation": "silu" if self.gated else "relu2_no_mul",
                "in_dtype": "bfloat16" if self.dtype == "bf16" else "float16",
                "bit_compat": "vllm" if self.vllm else "libmoe", "quantization": quantization, **TARGETS[self.target][0]}

    def given(self):
        """Stacked tensors, and types that numpy has no name for."""
        tensors, dtypes = {}, {}
        for name in ("w13", "w2"):
            tensors[name + "_weight"] = self.w[name]
            if self.grain not in ("values", "int4"):
                dtypes[name + "_weight"] = E4M3
            squeeze = lambda x: x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x
            if name in self.s:
                tensors[name + "_scale"] = squeeze(self.s[name])
            if name in self.a:
                tensors[name + "_input_scale"] = squeeze(self.a[name])
        return tensors, dtypes

    # --- what comes out ---

    def shared(self):
        """Per tensor: codes and one scale of each expert."""
        w, s = self.w["w13"].copy(), self.s["w13"]
        if not self.gated:
            return w, s[:, 0]
        if self.vllm:
            return R.fp8_requantize_w13(w, s, self.I)
        most = s.max(axis=1)
        for e in range(self.E):
            for i in range(2 if s[e, 0] != s[e, 1] else 0):
                half = slice(i * self.I, (i + 1) * self.I)
                w[e, half] = R.fp8_static_quant(F.E4M3FN.decode(w[e, half]).astype(F32) * s[e, i], most[e])
        return w, most

    def swapped(self, x):
        return R.swap_halves(x, 1) if self.gated else x

    def padded(self, w13, w2):
        align = 16 if self.gated else 128
        if self.vllm or not self.gated:
            w13, w2, _ = R.fi_pad_fp8(w13, w2, self.gated, align)
            return w13, w2
        extra = R.round_up(self.I, align) - self.I
        both = w13.reshape(self.E, 2, self.I, self.H)
        return (np.pad(both, ((0, 0), (0, 0), (0, extra), (0, 0))).reshape(self.E, -1, self.H),
                np.pad(w2, ((0, 0), (0, 0), (0, extra))))

    def expected(self):
        t, g, w13, w2 = self.target, self.grain, self.w["w13"], self.w["w2"]
        if g == "int4":
            return self.int4()
        if t == "marlin":
            return self.marlin()
        if t.startswith("deep_gemm"):
            return self.deep_gemm()
        out = {}
        if g == "tensor":
            w13, s13 = self.shared()
            out["s13"], out["s2"] = s13, self.s["w2"][:, 0]
            for name, short in (("w13", "a13"), ("w2", "a2")):
                if self.static:
                    out[short] = self.a[name].max().reshape(1)
            if t in ("fi_cutlass", "trtllm"):
                w13, w2 = self.padded(w13, w2)
        elif g != "values":
            out["s13"], out["s2"] = self.s["w13"], self.s["w2"]
        if t in ("fi_cutlass", "trtllm"):
            w13 = self.swapped(w13)
            if g in ("block", "mx"):
                out["s13"] = self.swapped(out["s13"])
            if g == "block":
                out["s13"], out["s2"] = np.maximum(out["s13"], LEAST), np.maximum(out["s2"], LEAST)
        if t == "fi_cutlass" and g == "tensor":
            out["g1_alphas"], out["g2_alphas"] = out["s13"] * out["a13"], out["s2"] * out["a2"]
        if t == "trtllm" and g == "mx":
            w13, w2, out["s13"], out["s2"] = R.fi_mxfp8_trtllm(w13, w2, out["s13"], out["s2"], self.gated)
        elif t == "trtllm" and g == "tensor":
            w13, w2 = R.fi_fp8_per_tensor_trtllm(w13, w2, self.gated)
        elif t == "trtllm":
            w13, w2 = R.fi_fp8_block_trtllm(w13, w2) if g == "block" else R.fi_bf16_trtllm(w13, w2)
        if t == "aiter_fnuz":
            # equal scales alone in per-tensor layers (below): requantization has no place between
            w13, out["s13"], _ = R.normalize_e4m3fn_to_e4m3fnuz(w13, out["s13"])
            w2, out["s2"], _ = R.normalize_e4m3fn_to_e4m3fnuz(w2, out["s2"])
            for a in ("a13", "a2"):
                if a in out:
                    out[a] = out[a] * F32(2)
        change = {"aiter": R.aiter_shuffle_weight, "aiter_fnuz": R.aiter_shuffle_weight, "vnni": R.cpu_pack_vnni2,
                  "xpu": lambda x: x.transpose(0, 2, 1)}.get(t, lambda x: x)
        return {"w13": change(w13), "w2": change(w2), **out}

    def marlin(self):
        w13, s13 = self.w["w13"], self.s["w13"]
        if self.grain == "mx":
            scales = lambda name: R.mx_marlin_scales(self.s[name], *self.w[name].shape[1:])
            return {"w13": R.fp8_marlin_weights(w13), "w2": R.fp8_marlin_weights(self.w["w2"]), "s13": scales("w13"),
                    "s2": scales("w2")}
        if self.grain == "tensor" and self.vllm:
            w13, s13 = self.shared()
        narrow = F.f32_to_bf16 if self.dtype == "bf16" else F.f32_to_fp16
        block = [128, 128] if self.grain == "block" else None
        scales = lambda s, w: narrow(R.fp8_marlin_scales(s, *w.shape[1:], block=block, dtype=self.dtype)).astype(U16)
        return {"w13": R.fp8_marlin_weights(w13), "w2": R.fp8_marlin_weights(self.w["w2"]), "s13": scales(s13, w13),
                "s2": scales(self.s["w2"], self.w["w2"])}

    def deep_gemm(self):
        out = {}
        for name, short in (("w13", "s13"), ("w2", "s2")):
            w, s = self.w[name], self.s[name]
            if self.target == "deep_gemm":
                w, s = R.fp8_requant_ue8m0(w, s)
                rows = np.repeat((s.view(np.uint32) >> 23).astype(np.uint8), 128, axis=1)
                out[short] = np.stack([R.pack_ue8m0_mn_major(x)[0] for x in rows])
            else:
                buffer = np.zeros((self.E, s.shape[2], R.round_up(s.shape[1], 4)), F32)
                buffer[:, :, :s.shape[1]] = s.transpose(0, 2, 1)
                out[short] = buffer
            out[name] = w
        return out

    def int4(self):
        out = {}
        for name, short, g in (("w13", "s13", "g13"), ("w2", "s2", "g2")):
            words = R.uint4b8_to_int4(self.w[name])
            out[name] = R.cutlass_encode_int4(np.ascontiguousarray(words).view(np.uint8))
            out[short], out[g] = R.w4a8fp8_split_scales(self.s[name])
        return out


def check(library, rng, twist):
    case = Case(rng)
    if case.target == "aiter_fnuz" and case.grain == "tensor":
        case.vllm, case.s["w13"][:] = False, case.s["w13"][:, :1]
    tensors, dtypes = case.given()
    document = case.document()
    bf16 = [r for r, a in tensors.items() if a.dtype == U16 and case.dtype == "bf16"]
    _, packed = library.convert(document, tensors, bf16, dtypes)
    listed, expected = {o["name"] for o in packed.report()["outputs"]}, case.expected()
    what = f"{case.target} {case.grain} {document}"
    assert len(listed) == len(expected), f"{what}: outputs {listed}, expected {set(expected)}"
    for name, want in expected.items():
        got, want = library.output(packed, name), np.ascontiguousarray(want).tobytes()
        if twist and name == "w2":
            got = bytes([got[0] ^ 1]) + got[1:]
        assert got == want, f"{what}: {name} differs: {first_difference(got, want)}"
