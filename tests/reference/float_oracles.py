"""Float-format MoE oracles: backend selection, kernel-format conversion, numerics (numpy only).

Part 1 is selection (no arrays), part 2 is conversion (byte exact), part 3 is numerics.
See impl/spec/float_oracles.md for the same facts as tables.
"""
import numpy as np

try:
    from . import float_formats as ff
except ImportError:  # run from its own folder
    import float_formats as ff

F32 = np.float32

# =====================================================================================
# Part 1: selection
# =====================================================================================
STD, BATCHED = "standard", "batched"

GATED = {"silu", "gelu", "gelu_tanh", "relu2", "swigluoai", "swiglustep"}
A_TRITON = ("silu", "gelu", "gelu_tanh", "swigluoai", "swiglustep", "silu_no_mul", "gelu_no_mul",
            "gelu_tanh_no_mul", "relu2_no_mul")
A_BATCHED_TRITON = tuple(a for a in A_TRITON if a != "swiglustep")
A_CUTLASS4 = ("silu", "gelu", "swigluoai", "swiglustep", "silu_no_mul", "gelu_no_mul", "relu2_no_mul")

FP8_BLOCK = ("kFp8Static128BlockSym", "kFp8Dynamic128Sym")
FP8_CH_TOK = ("kFp8StaticChannelSym", "kFp8DynamicTokenSym")
FP8_T_TOK = ("kFp8StaticTensorSym", "kFp8DynamicTokenSym")
FP8_T_ST = ("kFp8StaticTensorSym", "kFp8StaticTensorSym")
FP8_T_DYN = ("kFp8StaticTensorSym", "kFp8DynamicTensorSym")
MXFP8 = ("kMxfp8Static", "kMxfp8Dynamic")
NVFP4 = ("kNvfp4Static", "kNvfp4Dynamic")
MX4_16 = ("kMxfp4Static", None)
MX4_MX8 = ("kMxfp4Static", "kMxfp8Dynamic")
MX4_MX4 = ("kMxfp4Static", "kMxfp4Dynamic")
MX4_FP8 = ("kMxfp4Static", "kFp8StaticTensorSym")
MX4_DG = ("kMxfp4Static", "kFp8Dynamic128Sym")
UNQ = (None, None)
INT8 = ("kInt8StaticChannelSym", "kInt8DynamicTokenSym")

R_TRTLLM_FP8 = {"DeepSeekV3", "Renormalize", "RenormalizeNaive", "SigmoidRenorm", "MiniMax2", "Simulated"}
R_RENORM = {"Renormalize", "RenormalizeNaive"}
R_CPU = {"Default"} | R_RENORM
MARLIN_WEIGHTS = {"kFp8Static128BlockSym", "kFp8StaticChannelSym", "kFp8StaticTensorSym", "kMxfp4Static",
                  "kMxfp8Static", "kNvfp4Static", "kInt4Static", "kInt8Static"}


class Ctx:
    """Platform + environment view. cap is major*10+minor, or None."""

    def __init__(self, platform, env):
        self.kind = platform["kind"]
        self.cap = platform.get("capability")
        self.gfx = platform.get("gfx") or ""
        self.libs = platform.get("libs", {})
        self.cuda_version = platform.get("cuda_version", 12080)
        self.env = env or {}

    def is_set(self, name):
        return name in self.env

    def flag(self, name, default):
        v = self.env.get(name)
        if v is None:
            return default
        return str(v).strip().lower() in ("1", "true")

    cuda = property(lambda s: s.kind == "cuda")

    def ge(self, c):
        return self.cap is not None and self.cap >= c

    def eq(self, c):
        return self.cap is not None and self.cap == c

    def fam(self, c):
        return self.cap is not None and self.cap // 10 == c // 10

    def supports_fp8(self):
        if self.kind == "cuda":
            return self.ge(89)
        if self.kind == "rocm":
            return self.gfx in ("gfx90a", "gfx942", "gfx950") or self.gfx.startswith("gfx12")
        return self.kind == "xpu"

    def gfx9(self):
        return self.kind == "rocm" and self.gfx in ("gfx90a", "gfx942", "gfx950")

    def flashinfer(self):
        return bool(self.libs.get("flashinfer"))

    def deep_gemm(self):
        return (self.flag("VLLM_USE_DEEP_GEMM", True) and bool(self.libs.get("deep_gemm"))
                and self.cuda and (self.eq(90) or self.fam(100)))

    def group_gemm(self):
        if not self.cuda or self.cap is None:
            return False
        if self.cap >= 100:
            return self.cuda_version >= 12080
        return self.cap >= 90 and self.cuda_version >= 12030

    def aiter(self):
        return (self.kind == "rocm" and self.gfx in ("gfx942", "gfx950") and bool(self.libs.get("aiter"))
                and self.flag("VLLM_ROCM_USE_AITER", False))

    def aiter_moe(self):
        return self.aiter() and self.flag("VLLM_ROCM_USE_AITER_MOE", True)

    def oai_triton(self):
        if not self.libs.get("triton_kernels"):
            return False
        if self.cuda:
            return self.cap is not None and 90 <= self.cap < 110
        return self.kind == "rocm" and (self.gfx9() or self.gfx.startswith(("gfx11", "gfx12")))


class Par:
    def __init__(self, d):
        d = d or {}
        self.dp = d.get("dp_size", 1)
        self.ep = d.get("ep_size", 1)
        self.use_ep = d.get("use_ep", False)
        self.a2a = d.get("all2all_backend", "allgather_reducescatter")
        self.eplb = d.get("enable_eplb", False)
        self.all2all = self.dp > 1 and self.use_ep
        self.deepep_ht = self.all2all and self.a2a == "deepep_high_throughput"
        self.deepep_ll = self.all2all and self.a2a == "deepep_low_latency"
        self.nixl = self.all2all and self.a2a == "nixl_ep"
        self.nvl = self.all2all and self.a2a in ("flashinfer_all2allv", "flashinfer_nvlink_two_sided",
                                                 "flashinfer_nvlink_one_sided")
        self.ag_rs = self.all2all and self.a2a == "allgather_reducescatter"
        self.batched = self.deepep_ll or self.nixl


def _any(p):
    return True


def _no_nvl(p):
    return not p.nvl


def _mono(p):
    return not p.all2all and not p.eplb


def _mono_dp1(p):
    return _mono(p) and p.dp <= 1


def _trtllm(p):
    return (not p.all2all or p.ag_rs) and not p.eplb


def _one_of(*schemes):
    return lambda c, w, a: (w, a) in schemes


def _triton_scheme(c, w, a):
    ok = [UNQ]
    if c.cuda and c.ge(75):
        ok.append(INT8)
    if c.supports_fp8():
        ok += [FP8_BLOCK, FP8_CH_TOK, FP8_T_TOK, FP8_T_ST, FP8_T_DYN]
    return (w, a) in ok


def _batched_triton_scheme(c, w, a):
    ok = [UNQ]
    if c.gfx9() or (c.cuda and c.ge(89)):
        ok += [FP8_BLOCK, FP8_CH_TOK, FP8_T_TOK, FP8_T_ST, FP8_T_DYN]
    return (w, a) in ok


def _fi_cutlass_scheme(c, w, a):
    s = (w, a)
    return ((s in (UNQ, FP8_T_ST) and c.ge(90)) or (s in (MX4_16, FP8_BLOCK) and c.eq(90))
            or (s in (MX4_MX8, NVFP4) and c.ge(100)))


def _aiter_scheme(c, w, a):
    if (w, a) not in (UNQ, FP8_BLOCK, FP8_T_ST, FP8_T_DYN, FP8_CH_TOK, MX4_16, MX4_MX4):
        return False
    return w != "kMxfp4Static" or c.gfx == "gfx950"


def _E(dev, no_mul, acts, scheme, par=_any, route=None, fmt=STD, lora=False, binv=False):
    return dict(dev=dev, no_mul=no_mul, acts=acts, scheme=scheme, par=par, route=route, fmt=fmt,
                lora=lora, binv=binv)


def _blackwell_fi(c):
    return c.cuda and c.fam(100) and c.flashinfer()


_TRITON_DEV = lambda c: c.kind in ("cuda", "rocm", "xpu")
_MARLIN = dict(dev=lambda c: c.cuda and c.ge(75), no_mul=True, acts=A_TRITON,
               scheme=lambda c, w, a: w in MARLIN_WEIGHTS, par=_no_nvl)
_CUTLASS8 = dict(dev=lambda c: c.group_gemm(), no_mul=False, acts=("silu", "gelu", "swigluoai"),
                 scheme=_one_of(FP8_CH_TOK, FP8_T_DYN, FP8_T_ST))
_XPU = dict(dev=lambda c: c.kind == "xpu", no_mul=True, acts=("silu", "gelu", "swigluoai", "relu2_no_mul"))
_TRT8 = dict(dev=_blackwell_fi, no_mul=True, acts=("silu", "relu2_no_mul"), par=_trtllm)
_TRT4 = dict(dev=_blackwell_fi, no_mul=True, acts=("silu", "relu2_no_mul", "gelu"), scheme=_one_of(NVFP4))
_TRTMX = dict(dev=_blackwell_fi, no_mul=False, acts=("swigluoai", "silu"), scheme=_one_of(MX4_16, MX4_MX8))

EXPERTS = {
    "TritonExperts": _E(_TRITON_DEV, True, A_TRITON, _triton_scheme, _no_nvl, lora=True, binv=True),
    "BatchedTritonExperts": _E(lambda c: c.kind in ("cuda", "rocm"), True, A_BATCHED_TRITON,
                               _batched_triton_scheme, fmt=BATCHED),
    # intersection of DeepGEMM and Triton; runtime falls back to Triton by shape
    "TritonOrDeepGemmExperts": _E(lambda c: c.deep_gemm(), False, ("silu", "swiglustep"), _one_of(FP8_BLOCK), _no_nvl),
    "BatchedDeepGemmExperts": _E(lambda c: c.deep_gemm(), False, ("silu",), _one_of(FP8_BLOCK), fmt=BATCHED),
    # intersection of CUTLASS and Triton; runtime uses Triton for <= 8 tokens on SM100
    "TritonOrCutlassExperts": _E(_CUTLASS8["dev"], False, ("silu", "gelu", "swigluoai"), _CUTLASS8["scheme"],
                                 lambda p: not (p.nvl or p.deepep_ht)),
    "CutlassBatchedExpertsFp8": _E(fmt=BATCHED, **_CUTLASS8),
    "FlashInferExperts": _E(lambda c: c.cuda and (c.eq(90) or c.fam(100) or c.fam(120)) and c.flashinfer(), True,
                            ("silu", "relu2_no_mul", "swigluoai"), _fi_cutlass_scheme),
    "TrtLlmFp8ExpertsMonolithic": _E(scheme=_one_of(FP8_BLOCK, FP8_T_ST, MXFP8), route="trtllm_fp8", **_TRT8),
    "TrtLlmFp8ExpertsModular": _E(scheme=_one_of(FP8_BLOCK, MXFP8), **_TRT8),
    "TrtLlmBf16Experts": _E(_blackwell_fi, False, ("silu",), _one_of(UNQ), _trtllm,
                            {"DeepSeekV3", "Llama4"} | R_RENORM),
    "TrtLlmNvFp4ExpertsMonolithic": _E(par=_mono, route=R_TRTLLM_FP8 | {"Llama4"}, **_TRT4),
    "TrtLlmNvFp4ExpertsModular": _E(**_TRT4),
    "TrtLlmMxfp4ExpertsMonolithic": _E(par=_mono_dp1, route=R_RENORM, **_TRTMX),
    "TrtLlmMxfp4ExpertsModular": _E(**_TRTMX),
    "FlashInferCuteDSLExperts": _E(_blackwell_fi, False, ("silu",), _one_of(NVFP4)),
    "FlashInferCuteDSLBatchedExperts": _E(_blackwell_fi, False, ("silu",), _one_of(NVFP4), fmt=BATCHED),
    "CutlassExpertsFp4": _E(lambda c: c.cuda and (c.fam(100) or c.fam(110) or c.fam(120)), True, A_CUTLASS4,
                            _one_of(NVFP4), lambda p: p.ep == 1),
    "CutlassExpertsMxfp4": _E(lambda c: c.cuda and c.fam(100), True, A_CUTLASS4, _one_of(MX4_MX4),
                              lambda p: p.ep == 1),
    "B12xExperts": _E(lambda c: c.cuda and c.fam(120) and bool(c.libs.get("b12x")), True, ("silu", "swigluoai"),
                      _one_of(NVFP4), lambda p: not p.use_ep and p.ep <= 1 and not p.all2all and not p.eplb),
    "MarlinExperts": _E(lora=True, **_MARLIN),
    "BatchedMarlinExperts": _E(fmt=BATCHED, **_MARLIN),
    "AiterExperts": _E(lambda c: c.aiter_moe(), False, ("silu", "gelu", "swigluoai"), _aiter_scheme, _no_nvl),
    "AiterW4A8ExpertsMonolithic": _E(lambda c: c.aiter() and c.gfx == "gfx950", False, ("swigluoai",),
                                     _one_of(MX4_FP8), _mono_dp1, R_RENORM),
    "OAITritonExperts": _E(lambda c: c.oai_triton(), False, ("swigluoai",), _one_of(MX4_16)),
    "OAITritonMxfp4ExpertsMonolithic": _E(lambda c: c.oai_triton(), False, ("swigluoai",), _one_of(MX4_16),
                                          _mono_dp1, R_RENORM),
    "UnfusedOAITritonExperts": _E(lambda c: c.oai_triton(), False, ("silu", "gelu", "swigluoai", "swiglustep"),
                                  _one_of(MX4_16), lora=True),
    "DeepGemmFP4Experts": _E(lambda c: c.deep_gemm() and c.fam(100), False, ("silu", "swiglustep"),
                             _one_of(MX4_DG), _no_nvl),
    "Nvfp4QuantizationEmulationTritonExperts": _E(_TRITON_DEV, True, A_TRITON, _one_of(NVFP4), _no_nvl,
                                                  lora=True, binv=True),
    "OCP_MXQuantizationEmulationTritonExperts": _E(_TRITON_DEV, True, A_TRITON, lambda c, w, a: True, _no_nvl,
                                                   lora=True, binv=True),
    "XPUExperts": _E(scheme=_one_of(UNQ, ("kFp8StaticTensorSym", None), FP8_T_DYN), **_XPU),
    "XPUExpertsFp8": _E(scheme=_one_of(("kFp8StaticTensorSym", None), FP8_T_DYN), **_XPU),
    "XPUExpertsMxfp8": _E(scheme=_one_of(("kMxfp8Static", None), MXFP8), **_XPU),
    "XPUExpertsMXFp4": _E(scheme=_one_of(MX4_16), **_XPU),
    "CPUExpertsFp8": _E(lambda c: c.kind == "cpu", False, ("silu",), _one_of(FP8_BLOCK), _any, R_CPU),
    "CPUExpertsMxfp4": _E(lambda c: c.kind == "cpu", False, ("silu", "swigluoai"), _one_of(MX4_16), _any, R_CPU),
    "HummingIndexedExperts": dict(humming="indexed", fmt=STD),
    "HummingGroupedExperts": dict(humming="grouped_contiguous", fmt=STD),
    "BatchedHummingGroupedExperts": dict(humming="grouped_masked", fmt=BATCHED),
}


def supports(name, ctx, cfg, weight, act, fmt):
    """None when supported, else the category of the first failing check."""
    e = EXPERTS[name]
    if "humming" in e:
        if e["fmt"] != fmt:
            return "format"
        if fmt == STD:
            want = (ctx.env.get("VLLM_HUMMING_MOE_GEMM_TYPE") or "").lower()
            want = "grouped_contiguous" if want in ("grouped", "grouped_contiguous") else "indexed"
            if want != e["humming"]:
                return "gemm_type"
        return None
    if not e["dev"](ctx):
        return "device"
    if not (cfg.get("is_act_and_mul", True) or e["no_mul"]):
        return "no_act_and_mul"
    if cfg.get("activation", "silu") not in e["acts"]:
        return "activation"
    if not e["scheme"](ctx, weight, act):
        return "quant_scheme"
    par = Par(cfg.get("parallel"))
    if not e["par"](par):
        return "parallel"
    route = e["route"]
    if route == "trtllm_fp8":
        route = R_TRTLLM_FP8 | ({"Llama4"} if (weight, act) == FP8_T_ST else set())
    if route is not None and cfg.get("routing_method", "Renormalize") not in route:
        return "routing"
    if fmt != e["fmt"]:
        return "format"
    if ctx.flag("VLLM_BATCH_INVARIANT", False) and not e["binv"]:
        return "batch_invariance"
    if cfg.get("is_lora_enabled") and not e["lora"]:
        return "lora"
    return None


class SelectError(Exception):
    """kind: unknown_backend_string | unsupported | none_available | disabled | bad_flashinfer_backend | conflict"""

    def __init__(self, kind, py, reason=None, backend=None):
        super().__init__(f"{kind}: {reason}")
        self.kind, self.py, self.reason, self.backend = kind, py, reason, backend


class Selector:
    def __init__(self, ctx, cfg, classes):
        self.ctx, self.cfg, self.classes = ctx, cfg, classes
        self.fmt = BATCHED if Par(cfg.get("parallel")).batched else STD

    def first(self, backend, w, a):
        last = None
        for k in self.classes[backend]:
            last = supports(k, self.ctx, self.cfg, w, a, self.fmt)
            if last is None:
                return k, None
        return None, last

    def need(self, backend, w, a):
        k, why = self.first(backend, w, a)
        if k is None:
            raise SelectError("unsupported", "ValueError", why, backend)
        return backend, k

    def scan(self, backends, w, a):
        for b in backends:
            k, _ = self.first(b, w, a)
            if k:
                return b, k
        return None


def _map(table, s):
    if s not in table:
        raise SelectError("unknown_backend_string", "ValueError")
    return table[s]


def _fi_backend(ctx):
    """VLLM_FLASHINFER_MOE_BACKEND -> family. 'latency' needs SM100 family, else it degrades to CUTLASS."""
    v = ctx.env.get("VLLM_FLASHINFER_MOE_BACKEND", "latency")
    if v == "latency" and not ctx.fam(100):
        return "CUTLASS"
    return {"throughput": "CUTLASS", "latency": "TENSORRT_LLM", "masked_gemm": "CUTEDSL"}[v]


FP8_CLASSES = {
    "FLASHINFER_TRTLLM": ["TrtLlmFp8ExpertsMonolithic", "TrtLlmFp8ExpertsModular"],
    "FLASHINFER_CUTLASS": ["FlashInferExperts"], "DEEPGEMM": ["TritonOrDeepGemmExperts"],
    "BATCHED_DEEPGEMM": ["BatchedDeepGemmExperts"], "MARLIN": ["MarlinExperts"], "TRITON": ["TritonExperts"],
    "BATCHED_TRITON": ["BatchedTritonExperts"], "AITER": ["AiterExperts"],
    "VLLM_CUTLASS": ["TritonOrCutlassExperts"], "BATCHED_VLLM_CUTLASS": ["CutlassBatchedExpertsFp8"],
    "XPU": ["XPUExpertsFp8", "XPUExpertsMxfp8"], "CPU": ["CPUExpertsFp8"],
}
FP8_STRINGS = {"triton": "TRITON", "deep_gemm": "DEEPGEMM", "cutlass": "VLLM_CUTLASS",
               "flashinfer_trtllm": "FLASHINFER_TRTLLM", "flashinfer_cutlass": "FLASHINFER_CUTLASS",
               "marlin": "MARLIN", "aiter": "AITER"}


def select_fp8(platform, cfg, weight, act, env=None, allow_vllm_cutlass=False):
    c = Ctx(platform, env)
    s = Selector(c, cfg, FP8_CLASSES)
    pri = ["AITER", "FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS", "DEEPGEMM", "VLLM_CUTLASS", "TRITON", "MARLIN",
           "BATCHED_DEEPGEMM", "BATCHED_VLLM_CUTLASS", "BATCHED_TRITON", "XPU", "CPU"]

    def front(b):
        pri.remove(b)
        pri.insert(0, b)

    if c.cuda and c.eq(90) and (weight, act) == FP8_BLOCK:
        front("FLASHINFER_CUTLASS" if Par(cfg.get("parallel")).ep > 1 else "TRITON")
    if c.kind == "xpu":
        front("XPU")
    if c.kind == "cpu":
        front("CPU")

    req = cfg.get("moe_backend", "auto")
    if req != "auto":
        b = _map(FP8_STRINGS, req)
        if s.fmt == BATCHED:
            b = {"DEEPGEMM": "BATCHED_DEEPGEMM", "TRITON": "BATCHED_TRITON",
                 "VLLM_CUTLASS": "BATCHED_VLLM_CUTLASS"}.get(b, b)
        if b in ("VLLM_CUTLASS", "BATCHED_VLLM_CUTLASS") and not allow_vllm_cutlass:
            raise SelectError("disabled", "ValueError", None, b)
        return s.need(b, weight, act)

    if c.is_set("VLLM_USE_FLASHINFER_MOE_FP8"):
        if not c.flag("VLLM_USE_FLASHINFER_MOE_FP8", False):
            pri = [b for b in pri if not b.startswith("FLASHINFER")]
        elif c.is_set("VLLM_FLASHINFER_MOE_BACKEND"):
            fam = _fi_backend(c)
            if fam == "CUTEDSL":
                raise SelectError("bad_flashinfer_backend", "ValueError")
            return s.need({"CUTLASS": "FLASHINFER_CUTLASS", "TENSORRT_LLM": "FLASHINFER_TRTLLM"}[fam], weight, act)
        else:
            r = s.scan(["FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS"], weight, act)
            if r:
                return r
            raise SelectError("none_available", "NotImplementedError")
    if c.is_set("VLLM_USE_DEEP_GEMM") or c.is_set("VLLM_MOE_USE_DEEP_GEMM"):
        if not (c.flag("VLLM_USE_DEEP_GEMM", True) and c.flag("VLLM_MOE_USE_DEEP_GEMM", True)):
            pri = [b for b in pri if b not in ("DEEPGEMM", "BATCHED_DEEPGEMM")]
        else:
            return s.need("DEEPGEMM" if s.fmt == STD else "BATCHED_DEEPGEMM", weight, act)
    if c.flag("VLLM_TEST_FORCE_FP8_MARLIN", False):
        return s.need("MARLIN", weight, act)
    if c.is_set("VLLM_ROCM_USE_AITER") or c.is_set("VLLM_ROCM_USE_AITER_MOE"):
        if not (c.flag("VLLM_ROCM_USE_AITER", False) and c.flag("VLLM_ROCM_USE_AITER_MOE", True)):
            pri.remove("AITER")
        else:
            return s.need("AITER", weight, act)
    if not allow_vllm_cutlass:
        pri = [b for b in pri if "VLLM_CUTLASS" not in b]
    r = s.scan(pri, weight, act)
    if r:
        return r
    if c.kind in ("cuda", "rocm"):
        raise SelectError("none_available", "NotImplementedError")
    return "NONE", None


def select_int8(platform, cfg, weight="kInt8StaticChannelSym", act="kInt8DynamicTokenSym", env=None):
    s = Selector(Ctx(platform, env), cfg, {"TRITON": ["TritonExperts"]})
    req = cfg.get("moe_backend", "auto")
    if req != "auto":
        return s.need(_map({"triton": "TRITON"}, req), weight, act)
    r = s.scan(["TRITON"], weight, act)
    if r:
        return r
    raise SelectError("none_available", "NotImplementedError")


NVFP4_CLASSES = {
    "B12X": ["B12xExperts"],
    "FLASHINFER_TRTLLM": ["TrtLlmNvFp4ExpertsMonolithic", "TrtLlmNvFp4ExpertsModular"],
    "FLASHINFER_CUTEDSL": ["FlashInferCuteDSLExperts"],
    "FLASHINFER_CUTEDSL_BATCHED": ["FlashInferCuteDSLBatchedExperts"],
    "FLASHINFER_CUTLASS": ["FlashInferExperts"], "VLLM_CUTLASS": ["CutlassExpertsFp4"],
    "MARLIN": ["MarlinExperts"], "EMULATION": ["Nvfp4QuantizationEmulationTritonExperts"],
}
NVFP4_STRINGS = {"b12x": "B12X", "cutlass": "VLLM_CUTLASS", "flashinfer_trtllm": "FLASHINFER_TRTLLM",
                 "flashinfer_cutlass": "FLASHINFER_CUTLASS", "flashinfer_cutedsl": "FLASHINFER_CUTEDSL",
                 "marlin": "MARLIN", "emulation": "EMULATION"}
NVFP4_FI = ["FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS", "FLASHINFER_CUTEDSL", "FLASHINFER_CUTEDSL_BATCHED"]


def is_global_sf_supported_for_nvfp4_backend(backend):
    return backend in NVFP4_FI


def select_nvfp4(platform, cfg, weight, act, env=None):
    c = Ctx(platform, env)
    s = Selector(c, cfg, NVFP4_CLASSES)
    pri = list(NVFP4_CLASSES)
    req = cfg.get("moe_backend", "auto")
    if req != "auto":
        b = _map(NVFP4_STRINGS, req)
        if s.fmt == BATCHED and b == "FLASHINFER_CUTEDSL":
            b = "FLASHINFER_CUTEDSL_BATCHED"
        return s.need(b, weight, act)
    if c.is_set("VLLM_USE_FLASHINFER_MOE_FP4"):
        if not c.flag("VLLM_USE_FLASHINFER_MOE_FP4", False):
            pri = [b for b in pri if b not in NVFP4_FI]
        elif c.is_set("VLLM_FLASHINFER_MOE_BACKEND"):
            fam = _fi_backend(c)
            return s.need({"CUTLASS": "FLASHINFER_CUTLASS", "TENSORRT_LLM": "FLASHINFER_TRTLLM",
                           "CUTEDSL": "FLASHINFER_CUTEDSL"}[fam], weight, act)
        else:
            r = s.scan(NVFP4_FI, weight, act)
            if r:
                return r
            raise SelectError("none_available", "NotImplementedError")
    if c.flag("VLLM_TEST_FORCE_FP8_MARLIN", False):
        return s.need("MARLIN", weight, act)
    r = s.scan(pri, weight, act)
    if r:
        return r
    raise SelectError("none_available", "NotImplementedError")


MXFP4_CLASSES = {
    "DEEPGEMM_MXFP4": ["DeepGemmFP4Experts"],
    "FLASHINFER_TRTLLM_MXFP4_MXFP8": ["TrtLlmMxfp4ExpertsMonolithic", "TrtLlmMxfp4ExpertsModular"],
    "FLASHINFER_TRTLLM_MXFP4_BF16": ["TrtLlmMxfp4ExpertsMonolithic", "TrtLlmMxfp4ExpertsModular"],
    "FLASHINFER_CUTLASS_MXFP4_MXFP8": ["FlashInferExperts"], "FLASHINFER_CUTLASS_MXFP4_BF16": ["FlashInferExperts"],
    "BATCHED_MARLIN": ["BatchedMarlinExperts"], "MARLIN": ["MarlinExperts"],
    "AITER_MXFP4_BF16": ["AiterExperts"], "AITER_MXFP4_FP8": ["AiterW4A8ExpertsMonolithic"],
    "AITER_MXFP4_MXFP4": ["AiterExperts"],
    "TRITON": ["OAITritonMxfp4ExpertsMonolithic", "OAITritonExperts"], "TRITON_UNFUSED": ["UnfusedOAITritonExperts"],
    "XPU": ["XPUExpertsMXFp4"], "CPU": ["CPUExpertsMxfp4"],
    "EMULATION": ["OCP_MXQuantizationEmulationTritonExperts"],
    "HUMMING": ["BatchedHummingGroupedExperts", "HummingGroupedExperts", "HummingIndexedExperts"],
}
MXFP4_STRINGS = {
    "deep_gemm": ["DEEPGEMM_MXFP4"],
    "flashinfer_trtllm": ["FLASHINFER_TRTLLM_MXFP4_BF16", "FLASHINFER_TRTLLM_MXFP4_MXFP8"],
    "flashinfer_trtllm_afp8": ["FLASHINFER_TRTLLM_MXFP4_MXFP8"],
    "flashinfer_cutlass": ["FLASHINFER_CUTLASS_MXFP4_BF16", "FLASHINFER_CUTLASS_MXFP4_MXFP8"],
    "flashinfer_cutlass_afp8": ["FLASHINFER_CUTLASS_MXFP4_MXFP8"],
    "triton": ["TRITON"], "triton_unfused": ["TRITON_UNFUSED"], "humming": ["HUMMING"], "marlin": ["MARLIN"],
    "aiter": ["AITER_MXFP4_BF16", "AITER_MXFP4_FP8", "AITER_MXFP4_MXFP4"],
    "aiter_mxfp4_fp8": ["AITER_MXFP4_FP8"], "aiter_mxfp4_mxfp4": ["AITER_MXFP4_MXFP4"],
    "xpu": ["XPU"], "cpu": ["CPU"], "emulation": ["EMULATION"],
}
MXFP4_GPT_OSS = ["FLASHINFER_TRTLLM_MXFP4_BF16", "FLASHINFER_TRTLLM_MXFP4_MXFP8", "AITER_MXFP4_BF16",
                 "AITER_MXFP4_FP8", "AITER_MXFP4_MXFP4", "TRITON", "FLASHINFER_CUTLASS_MXFP4_BF16",
                 "FLASHINFER_CUTLASS_MXFP4_MXFP8", "MARLIN", "BATCHED_MARLIN", "XPU"]
MXFP4_ACT = {"DEEPGEMM_MXFP4": "kFp8Dynamic128Sym", "FLASHINFER_TRTLLM_MXFP4_MXFP8": "kMxfp8Dynamic",
             "FLASHINFER_CUTLASS_MXFP4_MXFP8": "kMxfp8Dynamic", "AITER_MXFP4_FP8": "kFp8StaticTensorSym",
             "AITER_MXFP4_MXFP4": "kMxfp4Dynamic"}
W4 = "kMxfp4Static"


def _filter_act(backends, act):
    if act is not None:
        return [b for b in backends if MXFP4_ACT.get(b) == act or b == "EMULATION"]
    bf16 = [b for b in backends if MXFP4_ACT.get(b) is None]
    return bf16 or list(backends)


def select_mxfp4(platform, cfg, act=None, env=None, user_act=None):
    """gpt-oss / Quark path. act: from the checkpoint; user_act: from the user's quantization config."""
    c = Ctx(platform, env)
    s = Selector(c, cfg, MXFP4_CLASSES)
    if user_act is not None:
        if act is not None and act != user_act:
            raise SelectError("conflict", "ValueError")
        act = user_act
    req = cfg.get("moe_backend", "auto")
    if req != "auto":
        bs = _map(MXFP4_STRINGS, req)
        if s.fmt == BATCHED:
            bs = ["BATCHED_MARLIN" if b == "MARLIN" else b for b in bs]
        bs = _filter_act(bs, act)
        if not bs:
            raise SelectError("unsupported", "ValueError", "activation_key")
        err = None
        for b in bs:
            try:
                return s.need(b, W4, act if act is not None else MXFP4_ACT.get(b))
            except SelectError as e:
                err = e
        raise err
    pri = _filter_act(MXFP4_GPT_OSS, act)
    if c.is_set("VLLM_USE_FLASHINFER_MOE_MXFP4_BF16"):
        if not c.flag("VLLM_USE_FLASHINFER_MOE_MXFP4_BF16", False):
            pri = [b for b in pri if not (b.startswith("FLASHINFER") and b.endswith("BF16"))]
        elif c.eq(90):
            return s.need("FLASHINFER_CUTLASS_MXFP4_BF16", W4, None)
        elif c.fam(100):
            return s.need("FLASHINFER_TRTLLM_MXFP4_BF16", W4, None)
        else:
            raise SelectError("unsupported", "ValueError", "device")
    if c.flag("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", False):
        return s.need("FLASHINFER_TRTLLM_MXFP4_MXFP8", W4, "kMxfp8Dynamic")
    if c.flag("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS", False):
        return s.need("FLASHINFER_CUTLASS_MXFP4_MXFP8", W4, "kMxfp8Dynamic")
    if c.flag("VLLM_MXFP4_USE_MARLIN", False):
        return s.need("MARLIN", W4, None)
    for b in pri:
        k, _ = s.first(b, W4, act if act is not None else MXFP4_ACT.get(b))
        if k:
            return b, k
    if c.kind == "xpu":
        return s.need("XPU", W4, None)
    if c.kind == "cpu":
        return s.need("CPU", W4, None)
    if c.kind in ("cuda", "rocm"):
        raise SelectError("none_available", "NotImplementedError")
    return "NONE", None


def select_mxfp4_deepseek_v4(platform, cfg, env=None):
    c = Ctx(platform, env)
    s = Selector(c, cfg, MXFP4_CLASSES)
    req = cfg.get("moe_backend", "auto")
    if req != "auto":
        bs = _map(MXFP4_STRINGS, req)
        if s.fmt == BATCHED:
            bs = ["BATCHED_MARLIN" if b == "MARLIN" else b for b in bs]
        err = None
        for b in bs:
            try:
                return s.need(b, W4, MXFP4_ACT.get(b))
            except SelectError as e:
                err = e
        raise err
    if c.kind == "rocm":
        pri = ["AITER_MXFP4_BF16"]
        if cfg.get("routing_method") == "DeepseekV4":
            pri = ["TRITON_UNFUSED", "AITER_MXFP4_BF16"]
    else:
        pri = ["FLASHINFER_TRTLLM_MXFP4_MXFP8", "DEEPGEMM_MXFP4", "MARLIN", "BATCHED_MARLIN"]
    for b in pri:
        k, _ = s.first(b, W4, MXFP4_ACT.get(b))
        if k:
            return b, k
    raise SelectError("none_available", "NotImplementedError")


def mxfp4_round_up_sizes(backend, hidden, inter, kind="cuda"):
    """(hidden, intermediate) after padding for the backend."""
    up = lambda v, m: -(-v // m) * m
    if backend == "DEEPGEMM_MXFP4" or backend.startswith("FLASHINFER_CUTLASS"):
        return up(hidden, 128), up(inter, 128)
    if backend in ("MARLIN", "BATCHED_MARLIN"):
        return up(hidden, 128 if kind == "xpu" else 256), up(inter, 128)
    if backend.startswith("FLASHINFER_TRTLLM") or kind == "rocm":
        return up(hidden, 256), up(inter, 256)
    if backend == "CPU":
        return up(hidden, 32), up(inter, 32)
    return hidden, up(inter, 64)


MXFP8_STRINGS = {"flashinfer_trtllm": "FLASHINFER_TRTLLM", "marlin": "MARLIN", "xpu": "XPU"}


def select_mxfp8(platform, cfg, env=None):
    s = Selector(Ctx(platform, env), cfg, FP8_CLASSES)
    req = cfg.get("moe_backend", "auto")
    if req != "auto":
        return s.need(_map(MXFP8_STRINGS, req), *MXFP8)
    r = s.scan(["FLASHINFER_TRTLLM", "MARLIN", "XPU"], *MXFP8)
    if r:
        return r
    raise SelectError("none_available", "ValueError")


UNQ_CLASSES = {"FLASHINFER_TRTLLM": ["TrtLlmBf16Experts"], "FLASHINFER_CUTLASS": ["FlashInferExperts"],
               "AITER": ["AiterExperts"], "TRITON": ["TritonExperts"], "BATCHED_TRITON": ["BatchedTritonExperts"],
               "XPU": ["XPUExperts"]}
UNQ_STRINGS = {"triton": "TRITON", "flashinfer_trtllm": "FLASHINFER_TRTLLM",
               "flashinfer_cutlass": "FLASHINFER_CUTLASS", "aiter": "AITER"}


def select_unquantized(platform, cfg, env=None):
    c = Ctx(platform, env)
    if c.kind in ("cpu", "tpu", "oot"):
        return c.kind.upper(), None
    if cfg.get("is_lora_enabled"):
        return "TRITON", "TritonExperts"
    s = Selector(c, cfg, UNQ_CLASSES)
    if c.kind == "rocm":
        pri = ["AITER", "TRITON", "BATCHED_TRITON"]
    elif c.kind == "xpu":
        pri = ["XPU"]
    else:
        pri = ["FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS", "TRITON", "BATCHED_TRITON"]
        if Par(cfg.get("parallel")).dp > 1:
            pri = ["FLASHINFER_TRTLLM", "TRITON", "BATCHED_TRITON", "FLASHINFER_CUTLASS"]
    req = cfg.get("moe_backend", "auto")
    if req != "auto":
        b = _map(UNQ_STRINGS, req)
        if s.fmt == BATCHED and b == "TRITON":
            b = "BATCHED_TRITON"
        return s.need(b, None, None)
    if c.is_set("VLLM_USE_FLASHINFER_MOE_FP16"):
        if not c.flag("VLLM_USE_FLASHINFER_MOE_FP16", False):
            pri = [b for b in pri if not b.startswith("FLASHINFER")]
        elif c.is_set("VLLM_FLASHINFER_MOE_BACKEND"):
            fam = _fi_backend(c)
            if fam == "CUTEDSL":
                raise SelectError("bad_flashinfer_backend", "ValueError")
            return s.need({"CUTLASS": "FLASHINFER_CUTLASS", "TENSORRT_LLM": "FLASHINFER_TRTLLM"}[fam], None, None)
        else:
            r = s.scan(["FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS"], None, None)
            if r:
                return r
            raise SelectError("none_available", "NotImplementedError")
    if c.is_set("VLLM_ROCM_USE_AITER") or c.is_set("VLLM_ROCM_USE_AITER_MOE"):
        if not (c.flag("VLLM_ROCM_USE_AITER", False) and c.flag("VLLM_ROCM_USE_AITER_MOE", True)):
            pri = [b for b in pri if b != "AITER"]
        else:
            return s.need("AITER", None, None)
    r = s.scan(pri, None, None)
    if r:
        return r
    raise SelectError("none_available", "NotImplementedError")


def select(case):
    """One entry for selection.json: case = {oracle, platform, config, keys, env, ...}."""
    o, p, cfg, env = case["oracle"], case["platform"], case.get("config", {}), case.get("env", {})
    k = case.get("keys", {})
    if o == "fp8":
        return select_fp8(p, cfg, k.get("weight"), k.get("activation"), env, case.get("allow_vllm_cutlass", False))
    if o == "int8":
        return select_int8(p, cfg, k.get("weight", INT8[0]), k.get("activation", INT8[1]), env)
    if o == "nvfp4":
        return select_nvfp4(p, cfg, k.get("weight"), k.get("activation"), env)
    if o == "mxfp4":
        return select_mxfp4(p, cfg, k.get("activation"), env, case.get("user_activation"))
    if o == "mxfp4_deepseek_v4":
        return select_mxfp4_deepseek_v4(p, cfg, env)
    if o == "mxfp8":
        return select_mxfp8(p, cfg, env)
    if o == "unquantized":
        return select_unquantized(p, cfg, env)
    raise ValueError(o)


# =====================================================================================
# Part 2: conversion to kernel formats (byte exact)
# =====================================================================================
def cdiv(a, b):
    return -(-a // b)


def round_up(a, b):
    return cdiv(a, b) * b


# ---------------------------------------------------------------- scale-factor layouts
def swizzle_128x4(sf):
    """[.., M, K] bytes -> [.., roundup(M,128), roundup(K,4)], zero padded, 128x4 block layout.
    Within a 512-byte tile the byte of (m, k) is (m%32)*16 + (m//32)%4*4 + k%4; tiles are row major."""
    sf = np.asarray(sf)
    *lead, m, k = sf.shape
    mp, kp = round_up(m, 128), round_up(k, 4)
    p = np.zeros((*lead, mp, kp), sf.dtype)
    p[..., :m, :k] = sf
    p = p.reshape(*lead, mp // 128, 4, 32, kp // 4, 4)
    n = len(lead)
    p = p.transpose(*range(n), n, n + 3, n + 2, n + 1, n + 4)
    return np.ascontiguousarray(p).reshape(*lead, mp, kp)


def unswizzle_128x4(sw, m, k):
    sw = np.asarray(sw)
    mp, kp = round_up(m, 128), round_up(k, 4)
    lead = sw.shape[:-2] if sw.ndim >= 2 and sw.shape[-2:] == (mp, kp) else ()
    p = sw.reshape(*lead, mp // 128, kp // 4, 32, 4, 4)
    n = len(lead)
    p = p.transpose(*range(n), n, n + 3, n + 2, n + 1, n + 4)
    return np.ascontiguousarray(p).reshape(*lead, mp, kp)[..., :m, :k]


def interleave_moe_scales_sm90(scales, group_size=32):
    """uint8 [E, R, K/g] -> [E, R/64, K/128, 64/(16/(128/g)), 16]: folded 16-byte scale rows (Hopper)."""
    e, r, kg = scales.shape
    per128 = 128 // group_size
    cols = 16 // scales.dtype.itemsize
    slices = cols // per128
    fold = 64 // slices
    assert r % 64 == 0 and kg % per128 == 0
    x = scales.reshape(e, r // 64, slices, fold, kg // per128, per128)
    return np.ascontiguousarray(x.transpose(0, 1, 4, 3, 2, 5)).reshape(e, r // 64, kg // per128, fold, cols)


# destination bit of each source bit inside the 32-bit word of 8 fp4 values (Hopper mixed GEMM)
def _sm90_bitmap():
    m = {}

    def mv(bits, left):
        for b in bits:
            m[b] = b + left
    mv([7], 24); mv([4, 5, 6], 18); mv([3], 12); mv([0, 1, 2], 6)
    mv([15], 13); mv([12, 13, 14], 7); mv([11], 1); mv([8, 9, 10], -5)
    mv([23], 2); mv([20, 21, 22], -4); mv([19], -10); mv([16, 17, 18], -16)
    mv([31], -1); mv([28], 1); mv([29, 30], -3); mv([27], -13); mv([24], -11); mv([25, 26], -15)
    return m


def interleave_moe_weights_sm90_fp4(w):
    """uint8 [E, R, K/2] -> same shape (FlashInfer SM90 mixed-input GEMM, fp4 x bf16). R%16==0, K%64==0."""
    w = np.asarray(w, np.uint8)
    e, rows, kb = w.shape
    assert rows % 16 == 0 and kb % 32 == 0
    out = np.zeros_like(w)
    bm = _sm90_bitmap()
    blk = np.arange(rows // 2)
    row = blk // 8 * 16 + blk % 8
    for part in range(kb // 32):
        for lane in range(16):
            mma = lane // 4
            col = part * 32 + mma * 8 + lane % 4
            raw = (w[:, row, col].astype(np.uint32) | w[:, row + 8, col].astype(np.uint32) << 8
                   | w[:, row, col + 4].astype(np.uint32) << 16 | w[:, row + 8, col + 4].astype(np.uint32) << 24)
            x = np.zeros_like(raw)
            for s, d in bm.items():
                x |= ((raw >> np.uint32(s)) & np.uint32(1)) << np.uint32(d)
            drow = row + (mma % 2) * 8
            dcol = part * 32 + lane // 8 * 16 + (lane % 4) * 4
            for i in range(4):
                out[:, drow, dcol + i] = (x >> np.uint32(8 * i)) & np.uint32(255)
    return out


# ---------------------------------------------------------------- row shuffles (TRT-LLM)
def swap_halves(x, axis=-2):
    """[w1; w3] <-> [w3; w1]."""
    a, b = np.split(np.asarray(x), 2, axis=axis)
    return np.concatenate([b, a], axis=axis)


def gated_interleave_rows(m):
    """index list: new row 2i = old i, new row 2i+1 = old m/2+i."""
    idx = np.empty(m, np.int64)
    idx[0::2], idx[1::2] = np.arange(m // 2), np.arange(m // 2, m)
    return idx


def shuffle_rows_a(m, epilogue_tile_m):
    """row index list for the transposed-MMA shuffle. Block is 32 rows when tile % 128 == 0, else 16.
    Inside a block old row r goes to new row (r % n)*8 + r // n with n = 4 (block 32) or 2 (block 16)."""
    blk = 32 if epilogue_tile_m % 128 == 0 else 16
    assert m % blk == 0
    n = blk // 8
    old = np.arange(m)
    r = old % blk
    new = old - r + (r % n) * 8 + r // n
    idx = np.empty(m, np.int64)
    idx[new] = old
    return idx


def block_major_k(x, block_bytes=128):
    """[M, Kbytes] -> [Kbytes/block, M, block]."""
    m, k = x.shape
    return np.ascontiguousarray(x.reshape(m, k // block_bytes, block_bytes).transpose(1, 0, 2))


def _bytes(x):
    return np.ascontiguousarray(x).view(np.uint8)


def fi_pad_fp8(w13, w2, act_and_mul, align=16):
    e, h, i = w2.shape
    ip = round_up(i, align)
    if ip == i:
        return w13, w2, i
    mult = 2 if act_and_mul else 1
    p13 = np.zeros((e, mult * ip, h), w13.dtype)
    p13[:, :w13.shape[1]] = w13
    p2 = np.zeros((e, h, ip), w2.dtype)
    p2[:, :, :i] = w2
    return p13, p2, ip


def fi_pad_fp4_intermediate(w13, s13, w2, s2, act_and_mul, align=16):
    e, h, ib = w2.shape
    i = ib * 2
    ip = round_up(i, align)
    if ip == i:
        return w13, s13, w2, s2, i
    rows = (2 if act_and_mul else 1) * ip
    out = []
    for src, shape in ((w13, (e, rows, h // 2)), (s13, (e, rows, h // 16)),
                       (w2, (e, h, ip // 2)), (s2, (e, h, ip // 16))):
        d = np.zeros(shape, src.dtype)
        d[:, :src.shape[1], :src.shape[2]] = src
        out.append(d)
    return (*out, ip)


def fi_pad_fp4_hidden(w13, s13, w2, s2, align=256):
    e, rows, hb = w13.shape
    h = hb * 2
    hp = round_up(h, align)
    if hp == h:
        return w13, s13, w2, s2, h
    out = []
    for src, shape in ((w13, (e, rows, hp // 2)), (s13, (e, rows, hp // 16)),
                       (w2, (e, hp, w2.shape[2])), (s2, (e, hp, s2.shape[2]))):
        d = np.zeros(shape, src.dtype)
        d[:, :src.shape[1], :src.shape[2]] = src
        out.append(d)
    return (*out, hp)


def fi_fp8_per_tensor_trtllm(w13, w2, gated=True):
    """bytes [E, 2I, H], [E, H, I] after swap to [w3; w1]."""
    r13 = shuffle_rows_a(w13.shape[1], 128)
    if gated:
        r13 = gated_interleave_rows(w13.shape[1])[r13]
    return w13[:, r13], w2[:, shuffle_rows_a(w2.shape[1], 128)]


def fi_fp8_block_trtllm(w13, w2):
    """after swap; -> [E, K/128, M, 128] bytes (shuffle tile 64, block-major K)."""
    f = lambda w: np.stack([block_major_k(x[shuffle_rows_a(w.shape[1], 64)]) for x in w])
    return f(w13), f(w2)


def fi_mxfp8_trtllm(w13, w2, s13, s2, gated=True):
    """after swap. Scales [E, rows, K/32] are row shuffled, then swizzled 128x4, reshaped back."""
    r13 = shuffle_rows_a(w13.shape[1], 128)
    if gated:
        r13 = gated_interleave_rows(w13.shape[1])[r13]
    r2 = shuffle_rows_a(w2.shape[1], 128)
    z = lambda s, r: swizzle_128x4(s[:, r])
    return w13[:, r13], w2[:, r2], z(s13, r13).reshape(s13.shape), z(s2, r2).reshape(s2.shape)


def fi_bf16_trtllm(w13, w2):
    """uint16 [E, 2I, H] ([w3; w1]) -> [E, H*2/128, 2I, 64] uint16 (128-byte blocks)."""
    r13 = gated_interleave_rows(w13.shape[1])[shuffle_rows_a(w13.shape[1], 128)]
    r2 = shuffle_rows_a(w2.shape[1], 128)
    f = lambda w, r: np.stack([block_major_k(_bytes(x)[r]).view(np.uint16) for x in w])
    return f(w13, r13), f(w2, r2)


def nvfp4_trtllm(w13, s13, w2, s2, gated=True):
    """after swap and padding; bytes. Scales: same row permutation, then 128x4 swizzle."""
    r13 = shuffle_rows_a(w13.shape[1], 128)
    if gated:
        r13 = gated_interleave_rows(w13.shape[1])[r13]
    r2 = shuffle_rows_a(w2.shape[1], 128)
    return (w13[:, r13], swizzle_128x4(s13[:, r13]).reshape(s13.shape),
            w2[:, r2], swizzle_128x4(s2[:, r2]).reshape(s2.shape))


def nvfp4_interleave64(x, axis=1, group=64):
    """CuteDSL: [up(all); gate(all)] -> alternating groups of 64 rows."""
    x = np.asarray(x)
    n = x.shape[axis]
    assert n % (2 * group) == 0
    sh = x.shape[:axis] + (2, n // (2 * group), group) + x.shape[axis + 1:]
    return np.ascontiguousarray(np.swapaxes(x.reshape(sh), axis, axis + 1)).reshape(x.shape)


def convert_nvfp4(backend, w13, s13, g13, a13, w2, s2, g2, a2, gated=True, act_and_mul=True):
    """All scales already in multiply form: w = code * s * g, a13 [E,2] or [E], a2 [E] (1/global).
    Returns dict with w13, s13, g13, a13, w2, s2, g2, a2 (+ hidden/intermediate when padded)."""
    e = w13.shape[0]
    out = {}
    if backend == "FLASHINFER_CUTEDSL":
        w13, s13 = swap_halves(w13, 1), swap_halves(s13, 1)
        w13, s13 = nvfp4_interleave64(w13), nvfp4_interleave64(s13)
        s13, s2 = swizzle_128x4(s13), swizzle_128x4(s2)   # MMA layout is a strided view of these bytes
        a13, a2 = np.full(e, a13.max(), F32), np.full(e, a2.max(), F32)
    elif backend in ("FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS", "FLASHINFER_CUTEDSL_BATCHED", "VLLM_CUTLASS", "B12X"):
        if gated and act_and_mul and backend in ("B12X", "FLASHINFER_CUTLASS", "FLASHINFER_TRTLLM"):
            w13, s13 = swap_halves(w13, 1), swap_halves(s13, 1)
            if g13.ndim == 2 and g13.shape[1] == 2:
                g13 = g13[:, ::-1].copy()
        if is_global_sf_supported_for_nvfp4_backend(backend):
            a13, a2 = np.full(e, a13.max(), F32), np.full(e, a2.max(), F32)
        else:
            a13 = a13.max(axis=1).astype(F32)
        if backend == "FLASHINFER_TRTLLM":
            w13, s13, w2, s2, out["hidden"] = fi_pad_fp4_hidden(w13, s13, w2, s2)
            w13, s13, w2, s2, out["intermediate"] = fi_pad_fp4_intermediate(
                w13, s13, w2, s2, act_and_mul, 16 if gated else 128)
            w13, s13, w2, s2 = nvfp4_trtllm(w13, s13, w2, s2, gated)
        else:
            s13 = swizzle_128x4(s13)
            pad = s13.shape[1] - w13.shape[1]
            if pad > 0:
                if act_and_mul:
                    raise NotImplementedError("intermediate padding of a gated layer")
                w13 = np.pad(w13, ((0, 0), (0, pad), (0, 0)))
                w2 = np.pad(w2, ((0, 0), (0, 0), (0, pad // 2)))
                s2 = np.pad(s2, ((0, 0), (0, 0), (0, pad // 16)))
            s2 = swizzle_128x4(s2)
    elif backend == "MARLIN":
        a13 = a2 = None
        w13, s13, g13, w2, s2, g2 = nvfp4_marlin_moe(w13, s13, g13, w2, s2, g2)
    elif backend == "EMULATION":
        if a13 is None or a2 is None:
            raise ValueError("activation global scales are required")
        a13, a2 = F32(1) / F32(a13.max()), F32(1) / F32(a2.max())
    else:
        raise ValueError(backend)
    out.update(w13=w13, s13=s13, g13=g13, a13=a13, w2=w2, s2=s2, g2=g2, a2=a2)
    return out


# ---------------------------------------------------------------- Marlin
def marlin_weight_perm(num_bits):
    p = []
    for i in range(32):
        col = i // 4
        one = [16 * row + col + 8 * blk for blk in (0, 1)
               for row in (2 * (i % 4), 2 * (i % 4) + 1, 2 * (i % 4 + 4), 2 * (i % 4 + 4) + 1)]
        for j in range(4):
            p += [v + 256 * j for v in one]
    inter = {4: [0, 2, 4, 6, 1, 3, 5, 7], 8: [0, 2, 1, 3]}[num_bits]
    return np.array(p).reshape(-1, len(inter))[:, inter].ravel()


def marlin_repack(q, num_bits):
    """codes [K, N] (unsigned) -> int32 [K/16, N*16*num_bits/32]. K%16==0, N%64==0."""
    q = np.asarray(q).astype(np.uint32)
    k, n = q.shape
    perm = marlin_weight_perm(num_bits)
    t = q.reshape(k // 16, 16, n // 16, 16).transpose(0, 2, 1, 3).reshape(k // 16, n * 16)
    t = t.reshape(-1, perm.size)[:, perm].reshape(k // 16, n * 16)
    f = 32 // num_bits
    out = np.zeros((k // 16, n * 16 // f), np.uint32)
    for i in range(f):
        out |= t[:, i::f] << np.uint32(num_bits * i)
    return out.view(np.int32)


_SP = np.array([i + 8 * j for i in range(8) for j in range(8)])
_SPS = np.array([2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)])


def marlin_permute_scales(s, size_k, size_n, group_size):
    """s [groups, N]; grouped scales use the 64 permutation, one scale per column the 32 permutation."""
    p = _SP if (group_size != -1 and group_size < size_k) else _SPS
    return np.asarray(s).reshape(-1, p.size)[:, p].reshape(-1, size_n)


def marlin_permute_bias(b):
    return np.asarray(b).reshape(-1, _SPS.size)[:, _SPS].reshape(np.shape(b))


def fp8_marlin_weights(w):
    """e4m3 bytes [E, N, K] -> int32 [E, K/16, N*4]."""
    return np.stack([marlin_repack(x.T, 8) for x in w])


def fp8_marlin_scales(scale, size_n, size_k, block=None, dtype="bf16"):
    """scale f32: [E] / [E,1] / [E,2] / [E,N,1] or block [E, ceil(N/bn), K/bk] -> f32 values of dtype
    [E, groups, N], with the exponent-bias factor 2^8 (fp16) or 2^120 (bf16) folded in."""
    scale = ff.round_to(scale, dtype)
    e = scale.shape[0]
    if block is None:
        s = scale.reshape(e, 1, -1)
        if s.shape[2] != size_n:
            s = np.repeat(s, size_n // s.shape[2], axis=2)
        group = -1
    else:
        s = np.repeat(scale.transpose(0, 2, 1), block[0], axis=2)[..., :size_n]
        group = block[1]
    s = np.stack([marlin_permute_scales(x, size_k, size_n, group) for x in s])
    with np.errstate(over="ignore"):
        return ff.round_to(s.astype(np.float64) * 2.0 ** (120 if dtype == "bf16" else 8), dtype)


_SWAP12 = [0, 2, 1, 3]


def _swap12(s):
    return s.reshape(-1, 4)[:, _SWAP12].reshape(s.shape)


def mx_marlin_scales(scale_bytes, size_n, size_k):
    """E8M0 bytes [E, N, K/32] -> bytes [E, K/32, N] (MXFP4 and MXFP8 with 16-bit activations)."""
    return np.stack([_swap12(marlin_permute_scales(x.T, size_k, size_n, 32)) for x in scale_bytes])


def fp4_marlin_weights(w):
    """packed fp4 [E, N, K/2] -> int32 [E, K/16, N*2]."""
    return np.stack([marlin_repack(ff.unpack_fp4(x).T, 4) for x in w])


def nvfp4_scale_factor(scales, dtype):
    """Power of two >= 1 that lifts the largest block scale to the top of its range; 1 for fp16."""
    if dtype == "fp16":
        return F32(1)
    s = np.asarray(scales, F32) * F32(128)
    nz = s[s > 0]
    if nz.size and nz.max() < 448 * 128:
        return F32(2.0 ** np.floor(np.log2(F32(448 * 128) / nz.max())))
    return F32(1)


def nvfp4_marlin_scales(s_bytes, g, size_n, size_k, dtype="bf16"):
    """e4m3 block scales [E, N, K/16] + g [E] f32 -> (S0E5M3 bytes [E, K/16, N], g' [E] f32)."""
    s = ff.round_to(ff.E4M3FN.decode(s_bytes), dtype)
    sf = nvfp4_scale_factor(s, dtype)
    out = []
    for x in s:
        p = _swap12(marlin_permute_scales(np.ascontiguousarray(x.T), size_k, size_n, 16))
        h = (p.astype(np.float16).astype(F32) * sf).astype(np.float16) if sf > 1 else p.astype(np.float16)
        h = (h.astype(F32) * F32(128)).astype(np.float16)
        h[h < 2] = 0
        out.append(((h.view(np.uint16) << np.uint16(1)) >> np.uint16(8)).astype(np.uint8))
    bias = (2 ** 7 if dtype == "bf16" else 2 ** 4) - 2
    return np.stack(out), (np.asarray(g, F32) * F32(2.0 ** (bias - 7)) / sf).astype(F32)


def nvfp4_marlin_moe(w13, s13, g13, w2, s2, g2, dtype="bf16"):
    n13, k13, n2, k2 = w13.shape[1], w13.shape[2] * 2, w2.shape[1], w2.shape[2] * 2
    a, ga = nvfp4_marlin_scales(s13, g13, n13, k13, dtype)
    b, gb = nvfp4_marlin_scales(s2, g2, n2, k2, dtype)
    return fp4_marlin_weights(w13), a, ga, fp4_marlin_weights(w2), b, gb


# ---------------------------------------------------------------- MXFP4 (gpt-oss)
def swap_row_pairs(x, axis):
    """interleaved gate/up -> up/gate (TRT-LLM SwiGLU order)."""
    x = np.asarray(x)
    axis %= x.ndim
    idx = np.arange(x.shape[axis]).reshape(-1, 2)[:, ::-1].ravel()
    return np.take(x, idx, axis=axis)


def deinterleave_rows(x, axis=1):
    """g0 u0 g1 u1 .. -> g0 g1 .. u0 u1 .."""
    n = np.asarray(x).shape[axis]
    return np.take(x, np.r_[0:n:2, 1:n:2], axis=axis)


def interleave_rows(x, axis=1):
    n = np.asarray(x).shape[axis]
    return np.take(x, gated_interleave_rows(n), axis=axis)


def mxfp4_trtllm(w13, w2, s13, s2, b13, b2, interleaved=True):
    """gpt-oss checkpoints (interleaved=True) or [gate; up] checkpoints -> TRT-LLM layout; biases become f32."""
    if interleaved:
        fix = lambda x: swap_row_pairs(x, 1)
    else:
        fix = lambda x: interleave_rows(swap_halves(x, 1), 1)
    w13, s13 = fix(w13), fix(s13)
    b13 = None if b13 is None else fix(np.asarray(b13, F32))
    r13, r2 = shuffle_rows_a(w13.shape[1], 128), shuffle_rows_a(w2.shape[1], 128)
    e = w13.shape[0]
    if interleaved:       # swizzled per expert
        z = lambda s, r: swizzle_128x4(s[:, r]).reshape(s.shape)
    else:                 # swizzled over the stacked [E*N] rows; same bytes when N % 128 == 0
        z = lambda s, r: swizzle_128x4(s[:, r].reshape(-1, s.shape[2])).reshape(s.shape)
    return (w13[:, r13], w2[:, r2], z(s13, r13), z(s2, r2),
            None if b13 is None else b13[:, r13], None if b2 is None else np.asarray(b2, F32)[:, r2])


def mxfp4_fi_cutlass(w13, w2, s13, s2, b13, b2, mxfp8_act):
    """gpt-oss interleaved rows -> [up; gate]. b13 f32 rounded to bf16 values; b2 unchanged."""
    fix = lambda x: swap_halves(deinterleave_rows(x), 1)
    w13, s13, b13 = fix(w13), fix(s13), ff.round_bf16(fix(np.asarray(b13, F32)))
    if mxfp8_act:
        return w13, w2, swizzle_128x4(s13).reshape(s13.shape), swizzle_128x4(s2).reshape(s2.shape), b13, b2
    return (interleave_moe_weights_sm90_fp4(w13), interleave_moe_weights_sm90_fp4(w2),
            interleave_moe_scales_sm90(s13), interleave_moe_scales_sm90(s2), b13, b2)


def mxfp4_marlin(w13, w2, s13, s2, b13=None, b2=None):
    n13, k13, n2, k2 = w13.shape[1], w13.shape[2] * 2, w2.shape[1], w2.shape[2] * 2
    f = lambda b: None if b is None else np.stack([marlin_permute_bias(x) for x in b])
    return (fp4_marlin_weights(w13), fp4_marlin_weights(w2), mx_marlin_scales(s13, n13, k13),
            mx_marlin_scales(s2, n2, k2), f(b13), f(b2))


# ---------------------------------------------------------------- AITER (ROCm)
def aiter_shuffle_weight(x, in_=16, ik=16):
    """16x16 layout used for fp8/bf16 and packed fp4 weights; ik is in bytes per half K block."""
    x = np.asarray(x)
    bk, kk = ik * 2, 16 // x.dtype.itemsize
    *lead, n, k = x.shape
    assert n % in_ == 0 and k % bk == 0
    t = x.reshape(-1, n // in_, in_, k // bk, bk // kk, kk).transpose(0, 1, 3, 4, 2, 5)
    return np.ascontiguousarray(t).reshape(x.shape)


def aiter_shuffle_weight_a16w4(x, nlane=16, gate_up=False):
    e, n, kp = x.shape
    kl, pack = 64 // nlane, 16
    if gate_up:
        t = x.reshape(e, 2, n // 2 // nlane, nlane, kp // (kl * pack), kl, pack).transpose(0, 2, 1, 4, 5, 3, 6)
    else:
        t = x.reshape(e, n // nlane, nlane, kp // (kl * pack), kl, pack).transpose(0, 1, 3, 4, 2, 5)
    return np.ascontiguousarray(t).reshape(x.shape)


def aiter_shuffle_scale_a16w4(s, experts, gate_up=False):
    r, k = s.shape
    n = r // experts
    if gate_up:
        t = s.reshape(experts, 2, n // 32, 16, k // 8, 2, 4).transpose(0, 2, 4, 6, 3, 5, 1)
    else:
        t = s.reshape(experts, n // 32, 2, 16, k // 8, 2, 4).transpose(0, 1, 4, 6, 3, 5, 2)
    return np.ascontiguousarray(t).reshape(s.shape)


def aiter_e8m0_shuffle(s):
    """[m, n] -> padded to (256, 8) multiples. Upstream leaves the padding uninitialised; here it is 0."""
    m, n = s.shape
    p = np.zeros((round_up(m, 256), round_up(n, 8)), s.dtype)
    p[:m, :n] = s
    sm, sn = p.shape
    return np.ascontiguousarray(p.reshape(sm // 32, 2, 16, sn // 8, 2, 4).transpose(0, 3, 5, 2, 4, 1)).reshape(sm, sn)


# ---------------------------------------------------------------- x86 CPU packing (block N = 32)
def cpu_pack_vnni2(w):
    """bf16/fp16 (uint16) or fp8 (uint8) [.., N, K] -> same shape, per block of 32 rows: [K/2, n, 2]."""
    w = np.asarray(w)
    *lead, n, k = w.shape
    assert n % 16 == 0 and k % 32 == 0
    flat = w.reshape(-1, n, k)
    out = np.empty_like(flat)
    for b in range(0, n, 32):
        blk = flat[:, b:b + 32]
        nb = blk.shape[1]
        out[:, b:b + nb] = blk.reshape(-1, nb, k // 2, 2).transpose(0, 2, 1, 3).reshape(-1, nb, k)
    return out.reshape(w.shape)


def cpu_pack_int8(w):
    """int8 [E, N, K] -> int8 [E, N, K+4]; per 32-row block: [K/4, 32, 4] then int32 comp[32] = 128*rowsum."""
    e, n, k = w.shape
    assert n % 32 == 0 and k % 32 == 0
    out = np.empty((e, n // 32, 32 * (k + 4)), np.int8)
    for b in range(n // 32):
        blk = w[:, b * 32:(b + 1) * 32]
        out[:, b, :32 * k] = blk.reshape(e, 32, k // 4, 4).transpose(0, 2, 1, 3).reshape(e, -1)
        comp = (blk.astype(np.int32).sum(2) * 128).astype(np.int32)
        out[:, b, 32 * k:] = np.ascontiguousarray(comp).view(np.int8)
    return out.reshape(e, n, k + 4)


def cpu_pack_mxfp4(w):
    """packed fp4 [E, N, K/2] -> same size. Per 32-row block and byte column kb the 64 nibbles
    (row-major, low nibble first) u[0..63] are stored as byte n = u[n] | u[n+32] << 4, n = 0..31."""
    e, n, kb = w.shape
    assert n % 32 == 0 and kb % 16 == 0
    blk = w.reshape(e, n // 32, 32, kb)
    u = np.stack([blk & 15, blk >> 4], axis=3).transpose(0, 1, 4, 2, 3).reshape(e, n // 32, kb, 64)
    return (u[..., :32] | (u[..., 32:] << 4)).reshape(e, n, kb)


def cpu_pack_scale(s):
    """uint8 [E, N, G] -> per 32-row block [G, 32]."""
    e, n, g = s.shape
    assert n % 32 == 0
    return np.ascontiguousarray(s.reshape(e, n // 32, 32, g).transpose(0, 1, 3, 2)).reshape(e, n, g)


# ---------------------------------------------------------------- fp8 checkpoints
def normalize_e4m3fn_to_e4m3fnuz(w, scale, input_scale=None):
    """0x80 (-0) becomes 0x00, bits otherwise unchanged, scales doubled (same bits mean half the value)."""
    w = np.where(w == 0x80, 0, w).astype(np.uint8)
    return w, scale * F32(2), None if input_scale is None else input_scale * F32(2)


def fp8_static_quant(x, scale):
    """multiply by the float32 reciprocal, clamp, RNE."""
    inv = F32(1) / np.asarray(scale, F32)
    v = np.asarray(x, F32) * inv
    return ff.E4M3FN.encode(np.clip(v, F32(-448), F32(448)))


def fp8_requantize_w13(w, scales, shard):
    """bytes [E, 2I, H], scales [E, 2] -> (bytes, [E] max scale). Dequantization goes through float16:
    value(e4m3) as fp16, times the scale rounded to fp16, product rounded to fp16."""
    w = w.copy()
    smax = scales.max(axis=1).astype(F32)
    for e in range(w.shape[0]):
        for i in range(2):
            sl = slice(i * shard, (i + 1) * shard)
            dq = ff.round_fp16(ff.E4M3FN.decode(w[e, sl]).astype(F32) * ff.round_fp16(scales[e, i]))
            w[e, sl] = fp8_static_quant(dq, smax[e])
    return w, smax


def fp8_requant_ue8m0(w, s, block=(128, 128)):
    """DeepGEMM: dequantize with the f32 block scales, requantize with power-of-two scales.
    amax clamped below by 1e-4; sf = 2^ceil(log2(amax/448)); codes = RNE(x * (1/sf)), no clamp needed."""
    e, m, k = w.shape
    bm, bk = block
    ws, ss = np.empty_like(w), np.empty_like(s, dtype=F32)
    for i in range(e):
        sx = np.repeat(np.repeat(s[i].astype(F32), bm, 0), bk, 1)[:m, :k]
        x = ff.E4M3FN.decode(w[i]).astype(F32) * sx
        p = np.zeros((round_up(m, bm), round_up(k, bk)), F32)
        p[:m, :k] = x
        v = p.reshape(p.shape[0] // bm, bm, p.shape[1] // bk, bk)
        amax = np.maximum(np.abs(v).max(axis=(1, 3)), F32(1e-4))
        sf = ff.e8m0_decode(ff.e8m0_ceil(amax / F32(448)))
        q = ff.E4M3FN.encode(v * (F32(1) / sf)[:, None, :, None])
        ws[i] = q.reshape(p.shape)[:m, :k]
        ss[i] = sf
    return ws, ss


def pack_ue8m0_mn_major(sf_bytes):
    """E8M0 bytes [mn, G] -> (int32 flat buffer, shape, strides): 4 consecutive groups per int32 (first in the
    low byte), column major with the row count aligned to 4; missing groups and rows are 0."""
    mn, g = sf_bytes.shape
    gp, mp = cdiv(g, 4), round_up(mn, 4)
    p = np.zeros((mp, gp * 4), np.uint8)
    p[:mn, :g] = sf_bytes
    buf = np.ascontiguousarray(p).view("<i4").T.copy()       # [gp, mp]
    return buf.ravel(), (mn, gp), (1, mp)


# ---------------------------------------------------------------- W4A8-FP8 (CUTLASS, int4 weights)
def uint4b8_to_int4(packed):
    """int32 words of eight biased nibbles -> eight two's-complement nibbles (nibble ^ 8)."""
    return (np.asarray(packed).view(np.uint32) ^ np.uint32(0x88888888)).view(np.int32)


def cutlass_encode_int4(packed_bytes):
    """per nibble: 1..7 -> 8 - v; 0 and 8..15 unchanged. The tile reorder that follows is a GPU library step."""
    lut = np.array([v if v == 0 or v & 8 else 8 - v for v in range(16)], np.uint8)
    b = np.asarray(packed_bytes, np.uint8)
    return lut[b & 15] | (lut[b >> 4] << 4)


def w4a8fp8_split_scales(scales):
    """group scales [E, N, G] (bf16 values) -> (e4m3 bytes [E, N, G], channel scale [E, N, 1] f32).
    Per-row dynamic fp8 quantization, then codes/8 re-rounded and the channel scale times 8."""
    q, s = fp8_per_token(scales.reshape(-1, scales.shape[-1]))
    q8 = ff.E4M3FN.encode(ff.E4M3FN.decode(q) / F32(8))
    return q8.reshape(scales.shape), (s * F32(8)).reshape(*scales.shape[:-1], 1)


# =====================================================================================
# Part 3: numerics
# =====================================================================================
FP8_MIN_SCALE = F32(1) / F32(448 * 512)


def fp8_per_token(x, scale_ub=None):
    """scale = max(min(amax, ub)/448, 1/(448*512)); code = RNE(clamp(x / scale))."""
    x = np.asarray(x, F32)
    amax = np.abs(x).max(axis=-1, keepdims=True)
    if scale_ub is not None:
        amax = np.minimum(amax, F32(scale_ub))
    s = np.maximum(amax / F32(448), FP8_MIN_SCALE).astype(F32)
    return ff.E4M3FN.encode(np.clip(x / s, F32(-448), F32(448))), s


def fp8_per_tensor(x):
    x = np.asarray(x, F32)
    s = F32(np.abs(x).max() / F32(448))
    return (fp8_static_quant(x, s) if s > 0 else np.zeros(x.shape, np.uint8)), s


def fp8_per_group(x, group=128, eps=1e-10, ue8m0=False):
    """scale = max(amax, eps)/448 (or its power-of-two ceiling); code = RNE(clamp(x / scale))."""
    x = np.asarray(x, F32)
    g = x.reshape(*x.shape[:-1], -1, group)
    s = (np.maximum(np.abs(g).max(-1, keepdims=True), F32(eps)) / F32(448)).astype(F32)
    if ue8m0:
        s = ff.e8m0_decode(ff.e8m0_ceil(np.maximum(s, F32(1e-10))))
    q = ff.E4M3FN.encode(np.clip(g / s, F32(-448), F32(448)))
    return q.reshape(x.shape), s[..., 0]


def fp8_group_dequant(q, s, group=128):
    v = ff.E4M3FN.decode(q).reshape(*q.shape[:-1], -1, group)
    return (v * s[..., None]).reshape(q.shape).astype(F32)


def fp8_block_dequant(w, s, block=(128, 128)):
    m, k = w.shape[-2:]
    sx = np.repeat(np.repeat(s, block[0], -2), block[1], -1)[..., :m, :k]
    return (ff.E4M3FN.decode(w) * sx).astype(F32)


def int8_per_token(x, eps=1e-10, mode="away"):
    """scale = max(amax, eps)/127; code = round(x * (127/amax)); 'away' = half away from zero, 'even' = RNE."""
    x = np.asarray(x, F32)
    a = np.maximum(np.abs(x).max(-1, keepdims=True), F32(eps))
    v = x * (F32(127) / a)
    r = np.sign(v) * np.floor(np.abs(v).astype(np.float64) + 0.5) if mode == "away" else np.rint(v)
    return np.clip(r, -128, 127).astype(np.int8), (a / F32(127)).astype(F32)


def int8_weight_per_channel(w):
    s = (np.abs(w).max(-1, keepdims=True) / F32(127)).astype(F32)
    with np.errstate(invalid="ignore", divide="ignore"):
        q = np.where(s > 0, np.clip(np.rint(w / s), -127, 127), 0)
    return q.astype(np.int8), s


def nvfp4_quant(x, g):
    """two-level quantization of [.., K] with the *large* global scale g (= 448*6/amax).
    block scale = e4m3(clamp(g * (amax * (1/6)))); factor = 1/(s * (1/g)), 0 when s == 0. -> codes, e4m3 bytes"""
    x = np.asarray(x, F32)
    g = F32(g)
    b = x.reshape(*x.shape[:-1], -1, 16)
    amax = np.abs(b).max(-1, keepdims=True)
    sb = ff.E4M3FN.encode(np.clip(g * (amax * F32(1.0 / 6.0)), F32(-448), F32(448)))
    s = ff.E4M3FN.decode(sb).astype(F32)
    with np.errstate(divide="ignore"):
        f = np.where(s == 0, F32(0), F32(1) / (s * (F32(1) / g))).astype(F32)
    q = ff.E2M1.encode(np.clip(b * f, F32(-6), F32(6)))
    return q.reshape(x.shape), sb[..., 0]


def nvfp4_dequant(codes, sb, g_mul):
    """value = e2m1 * (e4m3 * g_mul) with the *small* multiply-form global scale."""
    c = ff.E2M1.decode(codes).reshape(*codes.shape[:-1], -1, 16)
    s = (ff.E4M3FN.decode(sb) * F32(g_mul)).astype(F32)
    return (c * s[..., None]).reshape(codes.shape).astype(F32)


def nvfp4_qdq(x, g):
    q, sb = nvfp4_quant(x, g)
    c = ff.E2M1.decode(q).reshape(*q.shape[:-1], -1, 16)
    s = ff.E4M3FN.decode(sb).astype(F32) / F32(g)
    return (c * s[..., None]).reshape(q.shape).astype(F32)


def mx_quant(x, fmt, mode):
    """MX block-32 quantization. Returns element codes and E8M0 bytes."""
    x = np.asarray(x, F32)
    b = x.reshape(*x.shape[:-1], -1, 32)
    e = ff.mx_scale(np.abs(b).max(-1), fmt, mode)
    with np.errstate(over="ignore"):
        q = ff.FORMATS[fmt].encode(b.astype(np.float64) / np.ldexp(1.0, e.astype(np.int64) - 127)[..., None])
    return q.reshape(x.shape), e


def mx_dequant(q, e, fmt):
    v = ff.FORMATS[fmt].decode(q).reshape(*q.shape[:-1], -1, 32)
    return (v.astype(np.float64) * np.ldexp(1.0, np.asarray(e).astype(np.int64) - 127)[..., None]) \
        .reshape(q.shape).astype(F32)


def mx_qdq(x, fmt, mode):
    return mx_dequant(*mx_quant(x, fmt, mode), fmt)


# ---------------------------------------------------------------- activations
def _sig(x):
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-x))


_erf = np.vectorize(__import__("math").erf, otypes=[np.float64])


def activation(name, h, alpha=1.702, limit=7.0):
    """float64 in and out. Gated input is [gate | up]; swigluoai input is interleaved gate, up pairs."""
    h = np.asarray(h, np.float64)
    if name == "swigluoai":
        g, u = np.minimum(h[..., 0::2], limit), np.clip(h[..., 1::2], -limit, limit)
        return (u + 1) * g * _sig(alpha * g)
    fn = {"silu": lambda v: v * _sig(v), "gelu": lambda v: 0.5 * v * (1 + _erf(v / np.sqrt(2))),
          "gelu_tanh": lambda v: 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v ** 3))),
          "relu2": lambda v: np.maximum(v, 0) ** 2}
    if name.endswith("_no_mul"):
        return fn[name[:-7]](h)
    d = h.shape[-1] // 2
    g, u = h[..., :d], h[..., d:]
    if name == "swiglustep":
        return np.minimum(fn["silu"](g), limit) * np.clip(u, -limit, limit)
    if name == "silu_clamped":          # swiglu_limit > 0 on the weight-only kernels
        return fn["silu"](np.minimum(g, limit)) * np.clip(u, -limit, limit)
    return fn[name](g) * u


def moe(x, ids, weights, w13, w2, act="silu", b13=None, b2=None, q1=None, q2=None, dtype="bf16",
        weight_on_input=False, **kw):
    """Reference MoE on dequantized weights.
    x [M,H] f32 (already of dtype), ids/weights [M,topk]; q1/q2: activation quantize-dequantize functions or None.
    Rounding points: after GEMM1 (+bias), after the activation, after GEMM2*weight, at the end.
    ids < 0 are skipped."""
    x = np.asarray(x, F32)
    r = lambda v: ff.round_to(np.asarray(v, F32), dtype)
    m, topk = ids.shape
    out = np.zeros((m, w2.shape[1]), np.float64)
    if q1 is not None and not weight_on_input:
        xq = q1(x)
    for t in range(m):
        for j in range(topk):
            e = int(ids[t, j])
            if e < 0:
                continue
            row = x[t]
            if weight_on_input:
                row = r(row * F32(weights[t, j]))
            a = (q1(row[None])[0] if weight_on_input else xq[t]) if q1 is not None else row
            h = w13[e].astype(np.float64) @ a.astype(np.float64)
            if b13 is not None:
                h = h + b13[e]
            h = r(activation(act, r(h), **kw))
            a2 = q2(h[None])[0] if q2 is not None else h
            y = w2[e].astype(np.float64) @ a2.astype(np.float64)
            if b2 is not None:
                y = y + b2[e]
            out[t] += r(y if weight_on_input else y * float(weights[t, j]))
    return r(out)
