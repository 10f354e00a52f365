"""Numpy-free reference of libmoe's configuration objects (see impl/spec/config.md).

dtype names used here: "fp32" "fp16" "bf16" "int8" "fp8_e4m3fn" "fp8_e4m3fnuz"
"int4" "nvfp4" "mxfp4" "mxfp6_e3m2" "mxfp6_e2m3" "mxfp8" "fp8", None = unquantized.
The first six are machine types; the rest are format tags ("str" types upstream).
Only presence of tensors matters to a config, so tensors are passed as any non-None object.
"""
import fnmatch
import json
import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

TAGS = {"int4", "nvfp4", "mxfp4", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp8", "fp8",
        "mxfp8_e4m3", "mxfp8_e5m2", "mxint8"}
ACT_TAGS_MAKE = {"nvfp4", "mxfp4", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp8"}
WEIGHT_TAGS_MAKE = ACT_TAGS_MAKE | {"int4"}
OCP_MX_BLOCK = 32
OCP_MX_TAGS = {"mxfp4", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp8_e4m3", "mxfp8_e5m2", "mxint8"}


class GroupShape(NamedTuple):
    row: int
    col: int

    def is_per_tensor(self): return self == (-1, -1)
    def is_per_token(self): return self == (1, -1)
    def is_per_channel(self): return self == (-1, 1)
    def is_per_group(self): return self.row == 1 and self.col >= 1


PER_TENSOR, PER_TOKEN, PER_CHANNEL = GroupShape(-1, -1), GroupShape(1, -1), GroupShape(-1, 1)


@dataclass
class QuantDesc:
    dtype: Optional[str] = None
    shape: Optional[GroupShape] = None
    scale: Any = None
    alpha_or_gscale: Any = None
    zp: Any = None
    bias: Any = None


_OCP = {
    (None, "mxfp4"): "w_mxfp4",
    ("mxfp4", "mxfp4"): "w_mxfp4_a_mxfp4",
    ("mxfp6_e3m2", "mxfp4"): "w_mxfp4_a_mxfp6_e3m2",
    ("mxfp6_e2m3", "mxfp4"): "w_mxfp4_a_mxfp6_e2m3",
    ("fp8", "mxfp4"): "w_mxfp4_a_fp8",
    (None, "mxfp6_e3m2"): "w_mxfp6_e3m2",
    ("mxfp6_e3m2", "mxfp6_e3m2"): "w_mxfp6_e3m2_a_mxfp6_e3m2",
    ("fp8", "mxfp6_e3m2"): "w_mxfp6_e3m2_a_fp8",
    (None, "mxfp6_e2m3"): "w_mxfp6_e2m3",
    ("mxfp6_e2m3", "mxfp6_e2m3"): "w_mxfp6_e2m3_a_mxfp6_e2m3",
    ("fp8", "mxfp6_e2m3"): "w_mxfp6_e2m3_a_fp8",
}


def ocp_mx_scheme(act, weight):
    """None when either side is a machine type, when neither side is MX, or when the pair is unknown."""
    for d in (act, weight):
        if d is not None and d not in TAGS:
            return None
    if act not in OCP_MX_TAGS and weight not in OCP_MX_TAGS:
        return None
    return _OCP.get((act, weight))


class ConfigError(ValueError):
    pass


def _need(cond, why):
    if not cond:
        raise ConfigError(why)


@dataclass
class QuantConfig:
    a1: QuantDesc
    a2: QuantDesc
    w1: QuantDesc
    w2: QuantDesc
    is_scale_swizzled: bool = True
    gemm1_alpha: Optional[float] = None
    gemm1_beta: Optional[float] = None
    gemm1_clamp_limit: Optional[float] = None
    mx_alignment: int = 0
    fp8_dtype: str = "fp8_e4m3fn"            # platform property
    profile: str = "seed"                     # "seed" | "2026-05"

    def __post_init__(self):
        _need(not self.per_act_token_quant or self.block_shape is None, "illegal quantization")

    quant_dtype = property(lambda s: s.a1.dtype)
    weight_quant_dtype = property(lambda s: s.w1.dtype)
    is_quantized = property(lambda s: s.a1.dtype is not None)
    per_act_token_quant = property(lambda s: s.a1.shape == PER_TOKEN)
    is_per_act_token = per_act_token_quant
    per_out_ch_quant = property(lambda s: s.w1.shape == PER_TOKEN)
    is_per_tensor = property(lambda s: s.a1.shape == PER_TENSOR)
    is_block_quantized = property(lambda s: s.block_shape is not None)
    a1_scale = property(lambda s: s.a1.scale)
    a2_scale = property(lambda s: s.a2.scale)
    a1_gscale = property(lambda s: s.a1.alpha_or_gscale)
    a2_gscale = property(lambda s: s.a2.alpha_or_gscale)
    w1_scale = property(lambda s: s.w1.scale)
    w2_scale = property(lambda s: s.w2.scale)
    w1_zp = property(lambda s: s.w1.zp)
    w2_zp = property(lambda s: s.w2.zp)
    w1_bias = property(lambda s: s.w1.bias)
    w2_bias = property(lambda s: s.w2.bias)
    g1_alphas = property(lambda s: s.w1.alpha_or_gscale)
    g2_alphas = property(lambda s: s.w2.alpha_or_gscale)

    @property
    def block_shape(self):
        s = self.a1.shape
        return None if s in (None, PER_TENSOR, PER_TOKEN) else [s.row, s.col]

    @property
    def use_fp8_w8a8(self):
        want = "fp8_e4m3fn" if self.profile == "seed" else self.fp8_dtype
        return self.a1.dtype == want

    use_int8_w8a8 = property(lambda s: s.a1.dtype == "int8")
    use_int8_w8a16 = property(lambda s: s.a1.dtype is None and s.w1.dtype == "int8")
    use_fp8_w8a16 = property(lambda s: s.a1.dtype is None and s.w1.dtype == s.fp8_dtype)
    use_int4_w4a16 = property(lambda s: s.a1.dtype is None and s.w1.dtype == "int4")
    use_nvfp4_w4a16 = property(lambda s: s.a1.dtype is None and s.w1.dtype == "nvfp4")
    use_mxfp4_w4a16 = property(lambda s: s.a1.dtype is None and s.w1.dtype == "mxfp4")
    use_mxfp4_w4a4 = property(lambda s: s.a1.dtype == "mxfp4" and s.w1.dtype == "mxfp4")
    use_nvfp4_w4a4 = property(lambda s: s.a1.dtype == "nvfp4")
    use_mxfp4_w4a8 = property(lambda s: s.a1.dtype == "fp8" and s.w1.dtype == "mxfp4")
    ocp_mx_scheme = property(lambda s: ocp_mx_scheme(s.a1.dtype, s.w1.dtype))

    def config_name(self, dtype):
        return config_dtype_str(dtype, self.use_fp8_w8a8, self.use_fp8_w8a16, self.use_int8_w8a16,
                                self.use_int4_w4a16, self.ocp_mx_scheme)

    def scale_shape(self, max_tokens, hidden_dim):
        if not self.is_quantized:
            return None
        if self.is_block_quantized:
            return (max_tokens, -(-hidden_dim // self.block_shape[1]))
        return (max_tokens, 1) if self.per_act_token_quant else (1, 1)

    def batched_scale_shape(self, num_experts, max_tokens, hidden_dim):
        s = self.scale_shape(max_tokens, hidden_dim)
        return None if s is None else (num_experts, *s)


def config_dtype_str(dtype, fp8_w8a8=False, fp8_w8a16=False, int8_w8a16=False, int4_w4a16=False, ocp=None):
    if fp8_w8a8: return "fp8_w8a8"
    if fp8_w8a16: return "fp8_w8a16"
    if int8_w8a16: return "int8_w8a16"
    if int4_w4a16: return "int4_w4a16"
    if ocp is not None: return None
    return "float32" if dtype == "fp32" else None


def flags_to_group_shape(quant_dtype, per_act_token, per_out_ch, block_shape):
    if block_shape is not None:
        _need(not per_act_token and not per_out_ch, "block_shape excludes per-token and per-channel")
        g = GroupShape(*block_shape)
        return g, g
    a = None if quant_dtype is None else PER_TENSOR
    if per_act_token:
        a = PER_TOKEN
    return a, (PER_TOKEN if per_out_ch else None)


def make(quant_dtype=None, per_act_token_quant=False, per_out_ch_quant=False, block_shape=None, *,
         w1_scale=None, w2_scale=None, a1_scale=None, a2_scale=None, g1_alphas=None, g2_alphas=None,
         a1_gscale=None, a2_gscale=None, w1_bias=None, w2_bias=None, w1_zp=None, w2_zp=None,
         weight_dtype=None, is_scale_swizzled=True, gemm1_alpha=None, gemm1_beta=None,
         gemm1_clamp_limit=None, fp8_dtype="fp8_e4m3fn", profile="seed"):
    _need(quant_dtype not in TAGS or quant_dtype in ACT_TAGS_MAKE, "activation format not allowed")
    _need(weight_dtype not in TAGS or weight_dtype in WEIGHT_TAGS_MAKE, "weight format not allowed")
    if weight_dtype is None:
        weight_dtype = quant_dtype
    a, w = flags_to_group_shape(quant_dtype, per_act_token_quant, per_out_ch_quant, block_shape)
    q = QuantConfig(QuantDesc(quant_dtype, a, a1_scale, a1_gscale), QuantDesc(quant_dtype, a, a2_scale, a2_gscale),
                    QuantDesc(weight_dtype, w, w1_scale, g1_alphas, w1_zp, w1_bias),
                    QuantDesc(weight_dtype, w, w2_scale, g2_alphas, w2_zp, w2_bias),
                    is_scale_swizzled, gemm1_alpha, gemm1_beta, gemm1_clamp_limit,
                    fp8_dtype=fp8_dtype, profile=profile)
    # the flags must survive the trip through group shapes
    _need(q.per_act_token_quant == per_act_token_quant, "per_act_token_quant lost")
    _need(q.per_out_ch_quant == per_out_ch_quant, "per_out_ch_quant lost")
    _need(q.block_shape == block_shape, "block_shape lost")
    return q


def fp8_w8a8(w1_scale, w2_scale, fp8_dtype="fp8_e4m3fn", profile="seed", **k):
    d = "fp8_e4m3fn" if profile == "seed" else fp8_dtype
    return make(d, w1_scale=w1_scale, w2_scale=w2_scale, fp8_dtype=fp8_dtype, profile=profile, **k)


def int8_w8a8(w1_scale, w2_scale, a1_scale, a2_scale, w1_bias=None, w2_bias=None, per_act_token_quant=False):
    return make("int8", per_act_token_quant, w1_scale=w1_scale, w2_scale=w2_scale, a1_scale=a1_scale,
                a2_scale=a2_scale, w1_bias=w1_bias, w2_bias=w2_bias)


def _wna16(bits, group_size, w1_scale, w2_scale, w1_zp, w2_zp, w1_bias, w2_bias, a1_gscale=None, a2_gscale=None):
    shape = None if group_size == -1 else GroupShape(1, group_size)
    if bits not in (4, 8):
        raise ConfigError(f"Unsupported weight_bits: {bits}")
    wd = "int4" if bits == 4 else "int8"
    return QuantConfig(QuantDesc(None, shape, None, a1_gscale), QuantDesc(None, shape, None, a2_gscale),
                       QuantDesc(wd, shape, w1_scale, None, w1_zp, w1_bias),
                       QuantDesc(wd, shape, w2_scale, None, w2_zp, w2_bias))


def gptq_marlin(w1_scale, w2_scale, weight_bits, group_size, w1_zp=None, w2_zp=None, w1_bias=None, w2_bias=None):
    return _wna16(weight_bits, group_size, w1_scale, w2_scale, w1_zp, w2_zp, w1_bias, w2_bias)


def awq_marlin(w1_scale, w2_scale, w1_zp, w2_zp, weight_bits, group_size, w1_bias=None, w2_bias=None,
               a1_gscale=None, a2_gscale=None):
    return _wna16(weight_bits, group_size, w1_scale, w2_scale, w1_zp, w2_zp, w1_bias, w2_bias, a1_gscale, a2_gscale)


def _block_w(wd, act_has_shape, w1_scale, w2_scale, w1_zp, w2_zp, block_shape, fp8_dtype="fp8_e4m3fn"):
    g = None if block_shape is None else GroupShape(*block_shape)
    a = g if act_has_shape else None
    return QuantConfig(QuantDesc(None, a), QuantDesc(None, a), QuantDesc(wd, g, w1_scale, None, w1_zp),
                       QuantDesc(wd, g, w2_scale, None, w2_zp), fp8_dtype=fp8_dtype)


def int4_w4a16(w1_scale, w2_scale, w1_zp, w2_zp, block_shape=None):
    return _block_w("int4", True, w1_scale, w2_scale, w1_zp, w2_zp, block_shape)


def int8_w8a16(w1_scale, w2_scale, w1_zp, w2_zp, block_shape=None):
    return _block_w("int8", True, w1_scale, w2_scale, w1_zp, w2_zp, block_shape)


def fp8_w8a16(w1_scale, w2_scale, block_shape=None, fp8_dtype="fp8_e4m3fn"):
    return _block_w(fp8_dtype, False, w1_scale, w2_scale, None, None, block_shape, fp8_dtype)


def int4_w4afp8(w1_scale, w2_scale, g1_alphas, g2_alphas, per_act_token_quant=False, per_out_ch_quant=False, block_shape=None):
    return make("fp8_e4m3fn", per_act_token_quant, per_out_ch_quant, block_shape, w1_scale=w1_scale,
                w2_scale=w2_scale, g1_alphas=g1_alphas, g2_alphas=g2_alphas, weight_dtype="int4")


def _mxfp4(act, w1_scale, w2_scale, w1_bias, w2_bias, a1_scale=None, a2_scale=None):
    return QuantConfig(QuantDesc(act, None, a1_scale), QuantDesc(act, None, a2_scale),
                       QuantDesc("mxfp4", None, w1_scale, None, None, w1_bias),
                       QuantDesc("mxfp4", None, w2_scale, None, None, w2_bias))


def mxfp4_w4a16(w1_scale, w2_scale, w1_bias=None, w2_bias=None):
    return _mxfp4(None, w1_scale, w2_scale, w1_bias, w2_bias)


def mxfp4_mxfp8(w1_scale, w2_scale, a1_scale=None, a2_scale=None, w1_bias=None, w2_bias=None, block_shape=None):
    return _mxfp4("mxfp8", w1_scale, w2_scale, w1_bias, w2_bias)     # a*_scale and block_shape are dropped


def mxfp4_w4a8(w1_scale, w2_scale, a1_scale=None, a2_scale=None, w1_bias=None, w2_bias=None, block_shape=None):
    return _mxfp4("fp8", w1_scale, w2_scale, w1_bias, w2_bias, a1_scale, a2_scale)


def ocp_mx(quant_dtype, w1_scale, w2_scale, weight_dtype=None, a1_scale=None, a2_scale=None, w1_bias=None,
           w2_bias=None, block_shape=None):
    _need(quant_dtype in OCP_MX_TAGS, "not an OCP MX format")
    return make(quant_dtype, block_shape=block_shape, weight_dtype=weight_dtype, w1_scale=w1_scale,
                w2_scale=w2_scale, a1_scale=a1_scale, a2_scale=a2_scale, w1_bias=w1_bias, w2_bias=w2_bias)


def nvfp4(g1_alphas, g2_alphas, a1_gscale, a2_gscale, w1_scale, w2_scale, w1_bias=None, w2_bias=None, is_scale_swizzled=True):
    return make("nvfp4", w1_scale=w1_scale, w2_scale=w2_scale, w1_bias=w1_bias, w2_bias=w2_bias, a1_gscale=a1_gscale,
                a2_gscale=a2_gscale, g1_alphas=g1_alphas, g2_alphas=g2_alphas, is_scale_swizzled=is_scale_swizzled)


def nvfp4_w4a16(g1_alphas, g2_alphas, w1_scale, w2_scale):
    return make(None, w1_scale=w1_scale, w2_scale=w2_scale, g1_alphas=g1_alphas, g2_alphas=g2_alphas, weight_dtype="nvfp4")


def biased(w1_bias, w2_bias):
    return QuantConfig(QuantDesc(), QuantDesc(), QuantDesc(bias=w1_bias), QuantDesc(bias=w2_bias))


def w4a8_int8(block_shape=None):
    """CPU int4 experts: weights already packed with their scales; every dtype is None."""
    g = None if block_shape is None else GroupShape(*block_shape)
    return QuantConfig(QuantDesc(None, g), QuantDesc(None, g), QuantDesc(None, g), QuantDesc(None, g))


BUILDERS = {f.__name__: f for f in (fp8_w8a8, int8_w8a8, gptq_marlin, awq_marlin, int4_w4a16, int8_w8a16, fp8_w8a16,
                                    int4_w4afp8, mxfp4_w4a16, mxfp4_mxfp8, mxfp4_w4a8, ocp_mx, nvfp4, nvfp4_w4a16,
                                    biased, w4a8_int8)}
UNQUANTIZED = make()
PREDICATES = ["quant_dtype", "weight_quant_dtype", "is_quantized", "per_act_token_quant", "per_out_ch_quant",
              "is_per_tensor", "block_shape", "is_block_quantized", "use_fp8_w8a8", "use_int8_w8a8", "use_int8_w8a16",
              "use_fp8_w8a16", "use_int4_w4a16", "use_nvfp4_w4a16", "ocp_mx_scheme", "use_mxfp4_w4a16",
              "use_mxfp4_w4a4", "use_nvfp4_w4a4", "use_mxfp4_w4a8"]


# --------------------------------------------------------------------------
# routing method
# --------------------------------------------------------------------------
# ABI numbers of libmoe: the seed numbers 0..8, later names from 100 on.
ROUTING_METHOD = {"Default": 0, "Renormalize": 1, "DeepSeekV3": 2, "Llama4": 3, "RenormalizeNaive": 4, "TopK": 5,
                  "Custom": 6, "Simulated": 7, "Unspecified": 8,
                  "SigmoidRenorm": 100, "MiniMax2": 101, "Sigmoid": 102, "DeepseekV4": 103, "SparseMixer": 104}


def routing_method_seed(scoring_func, top_k, renormalize, num_expert_group, has_bias):
    if has_bias:
        return "DeepSeekV3" if (num_expert_group or 0) > 0 and scoring_func == "sigmoid" else "Unspecified"
    if scoring_func == "sigmoid":
        return "Llama4" if top_k == 1 else "Unspecified"
    if scoring_func == "softmax":
        return "Renormalize" if renormalize else "Default"
    return "Unspecified"


def routing_method_2026_05(scoring_func, top_k, renormalize, num_expert_group, has_bias):
    if scoring_func == "sqrtsoftplus":
        return "DeepseekV4" if renormalize else "Unspecified"
    if has_bias:
        if scoring_func != "sigmoid":
            return "Unspecified"
        return "DeepSeekV3" if (num_expert_group or 0) > 0 else "MiniMax2"
    if scoring_func == "sigmoid":
        if top_k == 1:
            return "Llama4"
        return "SigmoidRenorm" if renormalize else "Unspecified"
    return routing_method_seed(scoring_func, top_k, renormalize, num_expert_group, has_bias)


# --------------------------------------------------------------------------
# parallel
# --------------------------------------------------------------------------
ALL2ALL = ["naive", "pplx", "allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency",
           "flashinfer_all2allv", "flashinfer_nvlink_two_sided", "flashinfer_nvlink_one_sided", "mori", "nixl_ep",
           "deepep_v2", "mori_high_throughput", "mori_low_latency", "moonep", "passthrough"]


@dataclass
class ParallelConfig:
    tp_size: int = 1
    pcp_size: int = 1
    dp_size: int = 1
    ep_size: int = 1
    tp_rank: int = 0
    pcp_rank: int = 0
    dp_rank: int = 0
    ep_rank: int = 0
    sp_size: int = 1
    use_ep: bool = False
    all2all_backend: str = "allgather_reducescatter"
    enable_eplb: bool = False

    is_sequence_parallel = property(lambda s: s.sp_size > 1)
    use_all2all_kernels = property(lambda s: s.dp_size > 1 and s.use_ep)

    def _a2a(self, *names):
        return self.use_all2all_kernels and self.all2all_backend in names

    use_deepep_ht_kernels = property(lambda s: s._a2a("deepep_high_throughput"))
    use_deepep_ll_kernels = property(lambda s: s._a2a("deepep_low_latency"))
    use_fi_all2allv_kernels = property(lambda s: s._a2a("flashinfer_all2allv"))                    # seed
    use_naive_all2all_kernels = property(lambda s: s._a2a("naive", "allgather_reducescatter"))     # seed
    use_mori_kernels = property(lambda s: s._a2a("mori"))
    use_fi_nvl_two_sided_kernels = property(lambda s: s._a2a("flashinfer_all2allv", "flashinfer_nvlink_two_sided"))
    use_fi_nvl_one_sided_kernels = property(lambda s: s._a2a("flashinfer_nvlink_one_sided"))
    use_ag_rs_all2all_kernels = property(lambda s: s._a2a("allgather_reducescatter"))
    use_nixl_ep_kernels = property(lambda s: s._a2a("nixl_ep"))
    use_batched_activation_format = property(lambda s: s._a2a("deepep_low_latency", "nixl_ep"))
    needs_round_robin_routing_tables = use_batched_activation_format


def make_parallel(tp_size=1, pcp_size=1, dp_size=1, sp_size=1, *, tp_rank=0, pcp_rank=0, dp_rank=0,
                  enable_expert_parallel=False, all2all_backend="allgather_reducescatter", enable_eplb=False):
    """Sizes and ranks are those of the machine's groups; a group of size 1 forces its rank to 0."""
    tp_rank = tp_rank if tp_size > 1 else 0
    pcp_rank = pcp_rank if pcp_size > 1 else 0
    dp_rank = dp_rank if dp_size > 1 else 0
    flat = dp_size * pcp_size * tp_size
    rank = (dp_rank * pcp_size + pcp_rank) * tp_size + tp_rank
    ep = enable_expert_parallel and flat > 1
    return ParallelConfig(tp_size=1 if ep else flat, tp_rank=0 if ep else rank, pcp_size=pcp_size, pcp_rank=pcp_rank,
                          dp_size=dp_size, dp_rank=dp_rank, ep_size=flat if ep else 1, ep_rank=rank if ep else 0,
                          sp_size=sp_size, use_ep=ep, all2all_backend=all2all_backend, enable_eplb=enable_eplb)


# --------------------------------------------------------------------------
# quantization keys
# --------------------------------------------------------------------------
def _key(dtype, sdtype, static, shape, scale2=None, sym=True):
    return {"dtype": dtype, "scale": {"dtype": sdtype, "static": static, "group_shape": list(shape)},
            "scale2": scale2, "symmetric": sym}


_T2 = {"dtype": "fp32", "static": True, "group_shape": [-1, -1]}
QUANT_KEYS = {
    "kFp8StaticTensorSym": _key("fp8", "fp32", True, PER_TENSOR),
    "kFp8DynamicTensorSym": _key("fp8", "fp32", False, PER_TENSOR),
    "kFp8StaticTokenSym": _key("fp8", "fp32", True, PER_TOKEN),
    "kFp8StaticChannelSym": _key("fp8", "fp32", True, PER_CHANNEL),
    "kFp8DynamicTokenSym": _key("fp8", "fp32", False, PER_TOKEN),
    "kFp8Dynamic128Sym": _key("fp8", "fp32", False, (1, 128)),
    "kFp8Dynamic64Sym": _key("fp8", "fp32", False, (1, 64)),
    "kFp8Static128BlockSym": _key("fp8", "fp32", True, (128, 128)),
    "kNvfp4Static": _key("u8x2_fp4", "fp8", True, (1, 16), _T2),
    "kNvfp4Dynamic": _key("u8x2_fp4", "fp8", False, (1, 16), _T2),
    "kMxfp8Static": _key("fp8", "u8", True, (1, 32)),
    "kMxfp8Dynamic": _key("fp8", "u8", False, (1, 32)),
    "kMxfp4Static": _key("u8x2_fp4", "u8", True, (1, 32)),
    "kMxfp4Dynamic": _key("u8x2_fp4", "u8", False, (1, 32)),
    "kInt4Static": _key("uint4b8", "fp16", True, (1, -1)),
    "kInt8Static": _key("uint8b128", "fp16", True, (1, -1)),
    "kInt8StaticChannelSym": _key("int8", "fp32", True, PER_CHANNEL),
    "kInt8DynamicTokenSym": _key("int8", "fp32", False, PER_TOKEN),
}


# --------------------------------------------------------------------------
# moe_config_create: strict JSON -> resolved dict, or (pointer, message)
# --------------------------------------------------------------------------
class JsonConfigError(ValueError):
    def __init__(self, pointer, why):
        super().__init__(f"{pointer or '/'}: {why}")
        self.pointer, self.why = pointer, why


def _esc(k):
    return k.replace("~", "~0").replace("/", "~1")


MAX_BYTES, MAX_DEPTH = 1 << 20, 32


def parse_strict(text):
    """RFC 8259 JSON, no duplicate keys, no NaN/Infinity, depth <= 32, size <= 1 MiB, root object."""
    raw = text.encode() if isinstance(text, str) else bytes(text)
    if len(raw) > MAX_BYTES:
        raise JsonConfigError("", "document larger than 1 MiB")
    try:
        s = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise JsonConfigError("", "not UTF-8")
    if s.startswith("\ufeff"):
        raise JsonConfigError("", "byte order mark")

    def pairs(p):
        seen = set()
        for k, _ in p:
            if k in seen:
                raise JsonConfigError("", f"duplicate key {k!r}")
            seen.add(k)
        return dict(p)

    def const(c):
        raise JsonConfigError("", f"{c} is not JSON")

    def number(t):
        x = float(t)
        if math.isinf(x):
            raise JsonConfigError("", f"number {t} does not fit a double")
        return x

    depth = cur = 0
    in_string = skip = False
    for ch in s:
        if skip:
            skip = False
        elif in_string:
            if ch == "\\":
                skip = True
            elif ch == '"':
                in_string = False
        elif ch == '"':
            in_string = True
        elif ch in "[{":
            cur += 1
            depth = max(depth, cur)
        elif ch in "]}":
            cur -= 1
    if depth > MAX_DEPTH:
        raise JsonConfigError("", "nesting deeper than 32")
    try:
        doc = json.loads(s, object_pairs_hook=pairs, parse_constant=const, parse_float=number)
    except json.JSONDecodeError as e:
        raise JsonConfigError("", f"syntax error at byte {e.pos}")
    if not isinstance(doc, dict):
        raise JsonConfigError("", "root must be an object")

    def no_surrogates(x):
        if isinstance(x, str):
            if any(0xD800 <= ord(c) <= 0xDFFF for c in x):
                raise JsonConfigError("", "lone surrogate in a string")
        elif isinstance(x, dict):
            for k, y in x.items():
                no_surrogates(k)
                no_surrogates(y)
        elif isinstance(x, list):
            for y in x:
                no_surrogates(y)
    no_surrogates(doc)
    return doc


DTYPES = ["float32", "float16", "bfloat16"]
BACKENDS = ["auto", "cpu", "b12x", "triton", "deep_gemm", "deep_gemm_mega_moe", "cutlass", "flashinfer_trtllm",
            "flashinfer_cutlass", "flashinfer_cutedsl", "marlin", "humming", "triton_unfused", "aiter", "emulation",
            "batched_triton", "flashinfer_moe_ep_cutedsl", "flashinfer_moe_ep_mega_deep_gemm", "flashinfer_b12x", "aiter_mega_moe",
            "aiter_triton_mxfp4_bf16", "aiter_triton_mxfp4_mxfp4", "flydsl", "hpc", "rdna3"]
ACTIVATIONS = ["silu", "gelu", "gelu_tanh", "gelu_pytorch_tanh", "relu2", "swigluoai", "swigluoai_uninterleave",
               "swiglustep", "silu_no_mul", "gelu_no_mul", "gelu_tanh_no_mul", "relu2_no_mul"]
FORMATS = ["none", "pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized",
           "mxfp4-pack-quantized", "mxfp8-quantized", "gptq", "awq", "mxfp4-gpt-oss",
           "quark-reorder", "quark-order", "quark-int8", "modelopt-int4", "bitsandbytes-int8", "nvfp4-group-32",
           "pack-quantized-w2", "pack-quantized-w3", "pack-quantized-w5", "pack-quantized-w6", "pack-quantized-w7",
           "mxfp6-pack-quantized"]
CT_FORMATS = FORMATS[1:8] + ["mxfp6-pack-quantized"]  # words of compressed-tensors
# Formats whose codes have fewer bits than the weights that they become: bits in files, weights.
NARROW = {**{f"pack-quantized-w{b}": (b, "int", 4 if b < 4 else 8) for b in (2, 3, 5, 6, 7)},
          "mxfp6-pack-quantized": (6, "float", 8)}
SCHEMES = ["none", "W4A16", "W4A16_ASYM", "W8A16", "W8A8", "W4A8", "W4AFP8", "FP8", "FP8_DYNAMIC", "FP8_BLOCK",
           "NVFP4", "NVFP4A16", "MXFP4", "MXFP4A16", "MXFP8", "MXFP8A16"]
ALIASES = {"experts_per_token": "top_k", "num_experts_per_tok": "top_k", "hidden_size": "hidden_dim",
           "moe_intermediate_size": "intermediate_size"}


class _V:
    """Walks an object, type-checks members, reports the first fault in key order of the rules."""

    def __init__(self, obj, ptr, allowed):
        if not isinstance(obj, dict):
            raise JsonConfigError(ptr, "must be an object")
        for k in obj:
            if k not in allowed:
                raise JsonConfigError(f"{ptr}/{_esc(k)}", "unknown key")
        self.o, self.p = obj, ptr

    def has(self, k): return k in self.o

    def _get(self, k, default):
        return self.o.get(k, default)

    def int(self, k, lo, hi, default=None):
        v = self._get(k, default)
        if k in self.o:
            if isinstance(v, bool) or not (isinstance(v, int) or (isinstance(v, float) and v.is_integer())):
                raise JsonConfigError(f"{self.p}/{k}", "must be an integer")
            v = int(v)
            if not lo <= v <= hi:
                raise JsonConfigError(f"{self.p}/{k}", f"must be in [{lo}, {hi}]")
        return v

    def num(self, k, lo, hi, default=None, open_lo=False):
        v = self._get(k, default)
        if k in self.o:
            if isinstance(v, bool) or not isinstance(v, (int, float)):
                raise JsonConfigError(f"{self.p}/{k}", "must be a number")
            if not math.isfinite(v) or v > hi or v < lo or (open_lo and v == lo):
                raise JsonConfigError(f"{self.p}/{k}", "out of range")
        return v

    def bool(self, k, default):
        v = self._get(k, default)
        if k in self.o and not isinstance(v, bool):
            raise JsonConfigError(f"{self.p}/{k}", "must be true or false")
        return v

    def enum(self, k, allowed, default=None, norm=None):
        v = self._get(k, default)
        if k in self.o:
            if not isinstance(v, str):
                raise JsonConfigError(f"{self.p}/{k}", "must be a string")
            v = norm(v) if norm else v
            if v not in allowed:
                raise JsonConfigError(f"{self.p}/{k}", "not one of " + ", ".join(allowed))
        return v

    def str(self, k, maxlen, default=None):
        v = self._get(k, default)
        if k in self.o and (not isinstance(v, str) or len(v) > maxlen):
            raise JsonConfigError(f"{self.p}/{k}", f"must be a string of at most {maxlen} characters")
        return v


I31 = (1 << 31) - 1
TOP = {"$schema", "version", "name", "projection_names", "num_experts", "top_k", "experts_per_token", "num_experts_per_tok", "hidden_dim",
       "hidden_size", "intermediate_size", "moe_intermediate_size", "intermediate_size_per_partition", "activation",
       "activation_params", "w13_layout", "has_bias", "in_dtype", "out_dtype", "router_logits_dtype", "moe_backend",
       "max_num_tokens", "apply_router_weight_on_input", "disable_inplace", "quantization", "hf_quantization_config",
       "parallel", "routing", "platform", "selection_policy", "bit_compat", "compute", "activation_quant",
       "marlin_input_dtype", "emulation_layout", "vllm_env"}
VLLM_ENV = {"VLLM_" + n for n in (
    "BATCH_INVARIANT", "CPU_SGL_KERNEL", "FLASHINFER_MOE_BACKEND", "HUMMING_MOE_GEMM_TYPE", "MOE_USE_DEEP_GEMM", "MXFP4_USE_MARLIN",
    "ROCM_USE_AITER", "ROCM_USE_AITER_MOE", "TEST_FORCE_FP8_MARLIN", "USE_DEEP_GEMM", "USE_DEEP_GEMM_E8M0",
    "USE_FLASHINFER_MOE_FP16",
    "USE_FLASHINFER_MOE_FP4", "USE_FLASHINFER_MOE_FP8", "USE_FLASHINFER_MOE_INT4", "USE_FLASHINFER_MOE_MXFP4_BF16",
    "USE_FLASHINFER_MOE_MXFP4_MXFP8", "USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS")}


def resolve(doc):
    """Semantic validation of a parsed document. Returns the resolved configuration."""
    v = _V(doc, "", TOP)
    r = {"version": v.int("version", 1, 1, 1), "name": v.str("name", 512, "")}
    v.str("$schema", 2048)
    pn = doc.get("projection_names", ["gate_proj", "up_proj", "down_proj"])
    if not isinstance(pn, list) or len(pn) != 3:
        raise JsonConfigError("/projection_names", "needs the names of gate, up and down")
    for i, x in enumerate(pn):
        if not isinstance(x, str) or not 1 <= len(x) <= 64:
            raise JsonConfigError(f"/projection_names/{i}", "must be a string of 1 to 64 characters")
        if x in pn[:i]:
            raise JsonConfigError(f"/projection_names/{i}", "listed twice")
    r["projection_names"] = list(pn)
    r["num_experts"] = v.int("num_experts", 1, 65536)
    if r["num_experts"] is None:
        raise JsonConfigError("/num_experts", "required")

    def one_of(canon, names, lo, hi, required=True):
        given = [n for n in names if v.has(n)]
        if len(given) > 1:
            raise JsonConfigError(f"/{given[1]}", f"same setting as {given[0]}")
        if not given:
            if required:
                raise JsonConfigError(f"/{canon}", "required")
            return None, None
        return v.int(given[0], lo, hi), given[0]

    k, kn = one_of("top_k", ["top_k", "experts_per_token", "num_experts_per_tok"], 1, 65536)
    if k > r["num_experts"]:
        raise JsonConfigError(f"/{kn}", "larger than num_experts")
    r["top_k"] = k
    r["hidden_dim"], _ = one_of("hidden_dim", ["hidden_dim", "hidden_size"], 1, 1 << 20)
    inter, iname = one_of("intermediate_size", ["intermediate_size", "moe_intermediate_size",
                                                "intermediate_size_per_partition"], 1, 1 << 20)
    act = v.enum("activation", ACTIVATIONS, "silu")
    act = {"gelu_pytorch_tanh": "gelu_tanh"}.get(act, act)
    gated = not act.endswith("_no_mul")
    r["activation"], r["is_gated"] = act, gated
    ap = _V(doc.get("activation_params", {}), "/activation_params", {"alpha", "beta", "limit"})
    alpha, beta, limit = (ap.num("alpha", -1e6, 1e6), ap.num("beta", -1e6, 1e6), ap.num("limit", 0, 1e30, open_lo=True))
    oai = act in ("swigluoai", "swigluoai_uninterleave")
    for nm, val in (("alpha", alpha), ("beta", beta)):
        if val is not None and not oai:
            raise JsonConfigError(f"/activation_params/{nm}", f"not used by activation {act}")
    if limit is not None and not (oai or act in ("silu", "swiglustep")):
        raise JsonConfigError("/activation_params/limit", f"not used by activation {act}")
    r["activation_params"] = {"alpha": alpha if alpha is not None else (1.702 if oai else None),
                              "beta": beta if beta is not None else (1.0 if oai else None),
                              "limit": limit if limit is not None else (7.0 if oai or act == "swiglustep" else None)}
    lay = v.enum("w13_layout", ["gate_up", "up_gate", "interleaved"], None)
    if lay and not gated:
        raise JsonConfigError("/w13_layout", "an ungated activation has no gate/up layout")
    if lay and act == "swigluoai" and lay != "interleaved":
        raise JsonConfigError("/w13_layout", "swigluoai is defined on interleaved rows; use swigluoai_uninterleave")
    if lay == "interleaved" and act == "swigluoai_uninterleave":
        raise JsonConfigError("/w13_layout", "swigluoai_uninterleave is defined on concatenated rows; use swigluoai")
    r["w13_layout"] = None if not gated else (lay or ("interleaved" if act == "swigluoai" else "gate_up"))
    r["has_bias"] = v.bool("has_bias", False)
    r["in_dtype"] = v.enum("in_dtype", DTYPES, "bfloat16")
    r["out_dtype"] = v.enum("out_dtype", DTYPES, None) or r["in_dtype"]
    r["router_logits_dtype"] = v.enum("router_logits_dtype", DTYPES, None) or r["in_dtype"]
    r["moe_backend"] = v.enum("moe_backend", BACKENDS, "auto", norm=lambda s: s.lower().replace("-", "_"))
    r["max_num_tokens"] = v.int("max_num_tokens", 1, 1 << 24, 256)
    r["apply_router_weight_on_input"] = v.bool("apply_router_weight_on_input", False)
    r["disable_inplace"] = v.bool("disable_inplace", True)
    compute = v.enum("compute", ["auto", "a16", "a8", "a4", "mxfp8"], "auto")
    act_quant = v.enum("activation_quant", ["auto", "per_token", "block32"], "auto")
    marlin_in = v.enum("marlin_input_dtype", ["none", "int8", "fp8"], "none")
    r["compute"], r["activation_quant"], r["marlin_input_dtype"] = compute, act_quant, marlin_in
    r["emulation_layout"] = v.enum("emulation_layout", ["on_the_fly", "dense"], "on_the_fly")

    # ---- parallel
    pv = _V(doc.get("parallel", {}), "/parallel",
            {"tp_size", "tp_rank", "pcp_size", "pcp_rank", "dp_size", "dp_rank", "sp_size", "enable_expert_parallel",
             "all2all_backend", "enable_eplb", "num_redundant_experts", "expert_placement_strategy", "local_experts"})
    sz = {n: pv.int(f"{n}_size", 1, 65536, 1) for n in ("tp", "pcp", "dp")}
    rk = {n: pv.int(f"{n}_rank", 0, 65535, 0) for n in ("tp", "pcp", "dp")}
    for n in ("tp", "pcp", "dp"):
        if rk[n] >= sz[n]:
            raise JsonConfigError(f"/parallel/{n}_rank", f"must be less than {n}_size")
    sp = pv.int("sp_size", 1, 65536, 1)
    if sp not in (1, sz["tp"]):
        raise JsonConfigError("/parallel/sp_size", "must be 1 or tp_size")
    eep, eplb = pv.bool("enable_expert_parallel", False), pv.bool("enable_eplb", False)
    a2a = pv.enum("all2all_backend", ALL2ALL, "allgather_reducescatter")
    red = pv.int("num_redundant_experts", 0, 65536, 0)
    plc = pv.enum("expert_placement_strategy", ["linear", "round_robin"], "linear")
    par = make_parallel(sz["tp"], sz["pcp"], sz["dp"], sp, tp_rank=rk["tp"], pcp_rank=rk["pcp"], dp_rank=rk["dp"],
                        enable_expert_parallel=eep, all2all_backend=a2a, enable_eplb=eplb)
    if red and not eplb:
        raise JsonConfigError("/parallel/num_redundant_experts", "needs enable_eplb")
    if eplb and not par.use_ep:
        raise JsonConfigError("/parallel/enable_eplb", "needs expert parallelism over more than one rank")
    phys = r["num_experts"] + red
    if par.ep_size > phys:
        raise JsonConfigError("/parallel/enable_expert_parallel", "more ranks than experts")
    if eplb and phys % par.ep_size:
        raise JsonConfigError("/parallel/num_redundant_experts", "physical experts must divide evenly over the ranks")
    r["parallel"] = {kk: getattr(par, kk) for kk in par.__dataclass_fields__}
    r["parallel"].update(num_redundant_experts=red, expert_placement_strategy=plc)
    r["num_logical_experts"], r["num_physical_experts"] = r["num_experts"], phys
    base, rem = divmod(phys, par.ep_size)
    r["num_local_experts"] = base + (1 if par.ep_rank < rem else 0)
    if "local_experts" in pv.o:
        held = pv.o["local_experts"]
        if not isinstance(held, list) or not held or any(not isinstance(e, int) for e in held) or held != sorted(set(held)):
            raise JsonConfigError("/parallel/local_experts", "must be ascending numbers of experts")
        if not par.use_ep or eplb or held[0] < 0 or held[-1] >= r["num_experts"]:
            raise JsonConfigError("/parallel/local_experts", "needs expert parallelism, and experts that there are")
        r["parallel"]["local_experts"], r["num_local_experts"] = held, len(held)
    if iname == "intermediate_size_per_partition":
        r["intermediate_size_per_partition"] = inter
    else:
        if inter % par.tp_size:
            raise JsonConfigError(f"/{iname}", "must be a multiple of the flattened tp_size")
        r["intermediate_size_per_partition"] = inter // par.tp_size

    # ---- routing
    rv = _V(doc.get("routing", {}), "/routing",
            {"method", "scoring_func", "renormalize", "use_grouped_topk", "num_expert_group", "topk_group",
             "routed_scaling_factor", "apply_routed_scale_to_output", "e_score_correction_bias", "jitter_eps",
             "simulation_strategy", "seed", "num_fused_shared_experts", "num_zero_experts", "hash_routing"})
    meth = rv.enum("method", ["auto", "topk", "custom", "simulated", "sparsemixer"], "auto")
    sc = rv.enum("scoring_func", ["softmax", "sigmoid", "sqrtsoftplus"], "softmax")
    rn = rv.bool("renormalize", True)
    ng, tg = rv.int("num_expert_group", 1, 65536, None), rv.int("topk_group", 1, 65536, None)
    ug = rv.bool("use_grouped_topk", ng is not None)
    rsf = rv.num("routed_scaling_factor", 0, 1e6, 1.0, open_lo=True)
    rso = rv.bool("apply_routed_scale_to_output", False)
    nz = rv.int("num_zero_experts", 0, 65536, 0)
    eb = rv.o.get("e_score_correction_bias", False)
    if isinstance(eb, list):
        if len(eb) != r["num_experts"] + nz:
            raise JsonConfigError("/routing/e_score_correction_bias", "needs one number per expert, zero experts included")
        for i, x in enumerate(eb):
            if isinstance(x, bool) or not isinstance(x, (int, float)) or not math.isfinite(x):
                raise JsonConfigError(f"/routing/e_score_correction_bias/{i}", "must be a finite number")
    elif not isinstance(eb, bool):
        raise JsonConfigError("/routing/e_score_correction_bias", "must be a boolean or an array")
    has_bias = isinstance(eb, list) or eb
    jit = rv.num("jitter_eps", 0, 1, None)
    sim = rv.enum("simulation_strategy", ["uniform_random", "normal_routing"], None)
    seed = rv.int("seed", 0, (1 << 63) - 1, 0 if meth == "simulated" else None)
    fse = rv.int("num_fused_shared_experts", 0, 64, 0)
    hashed = rv.bool("hash_routing", False)
    if ug and ng is None:
        raise JsonConfigError("/routing/num_expert_group", "required with use_grouped_topk")
    if ug and tg is None:
        raise JsonConfigError("/routing/topk_group", "required with use_grouped_topk")
    if not ug and tg is not None:
        raise JsonConfigError("/routing/topk_group", "needs use_grouped_topk")
    if ug:
        E = r["num_experts"]
        if E % ng:
            raise JsonConfigError("/routing/num_expert_group", "num_experts must be a multiple of it")
        if tg > ng:
            raise JsonConfigError("/routing/topk_group", "larger than num_expert_group")
        if has_bias and E // ng < 2:
            raise JsonConfigError("/routing/num_expert_group", "a correction bias needs two experts per group")
        if k > tg * (E // ng):
            raise JsonConfigError("/routing/topk_group", "top_k exceeds the experts of the kept groups")
    if meth == "sparsemixer" and k != 2:
        raise JsonConfigError(f"/{kn}", "sparsemixer selects exactly two experts")
    if jit is not None and meth != "sparsemixer":
        raise JsonConfigError("/routing/jitter_eps", "used by sparsemixer only")
    if meth == "simulated" and sim is None:
        raise JsonConfigError("/routing/simulation_strategy", "required with method simulated")
    if sim is not None and meth != "simulated":
        raise JsonConfigError("/routing/simulation_strategy", "needs method simulated")
    if nz and not has_bias:
        raise JsonConfigError("/routing/num_zero_experts", "needs e_score_correction_bias")
    if fse and (nz or par.ep_size > 1):
        raise JsonConfigError("/routing/num_fused_shared_experts", "excludes zero experts and expert parallelism")
    if hashed and (meth != "auto" or ug or nz):
        raise JsonConfigError("/routing/hash_routing", "excludes a method, groups and zero experts")
    if r["apply_router_weight_on_input"] and k != 1:
        raise JsonConfigError("/apply_router_weight_on_input", "defined for top_k = 1 only")
    name = {"topk": "TopK", "custom": "Custom", "simulated": "Simulated", "sparsemixer": "SparseMixer"}.get(meth) or \
        routing_method_2026_05(sc, k, rn, ng if ug else None, has_bias)
    if name == "Unspecified" and not has_bias and sc == "sigmoid":
        name = "Sigmoid"
    r["routing"] = {"method": name, "method_id": ROUTING_METHOD[name], "scoring_func": sc, "renormalize": rn,
                    "num_expert_group": ng if ug else None, "topk_group": tg if ug else None,
                    "routed_scaling_factor": rsf, "apply_routed_scale_to_output": rso, "has_bias": has_bias,
                    "jitter_eps": (0.01 if jit is None else jit) if meth == "sparsemixer" else None,
                    "simulation_strategy": sim, "seed": seed, "num_fused_shared_experts": fse, "num_zero_experts": nz,
                    "hash_routing": hashed}

    # ---- quantization
    if v.has("quantization") and v.has("hf_quantization_config"):
        raise JsonConfigError("/hf_quantization_config", "exclusive with quantization")
    if v.has("hf_quantization_config"):
        h = doc["hf_quantization_config"]
        if not isinstance(h, dict):
            raise JsonConfigError("/hf_quantization_config", "must be an object")
        qm = h.get("quant_method")
        if not isinstance(qm, str):
            raise JsonConfigError("/hf_quantization_config/quant_method", "required string")
        if qm not in ("compressed-tensors", "gptq", "awq", "fp8", "mxfp4", "modelopt", "modelopt_fp4", "quark", "auto-round",
                      "torchao"):
            raise JsonConfigError("/hf_quantization_config/quant_method", "unknown method")
        q = resolve_hf(h, r["name"], r["projection_names"])
        if q is None:
            q = dict(_UNQUANTIZED)
        else:
            q.pop("suffixes")
            _check_sizes(q["weights"], q["format"], r, *["/hf_quantization_config"] * 2)
        r["quantization"] = {"hf": qm, **q}
    else:
        r["quantization"] = resolve_quant(doc.get("quantization", {"scheme": "none"}), r)
    w, ia = r["quantization"]["weights"], r["quantization"]["input_activations"]
    int_w = w is not None and w["type"] == "int"
    int8_a = ia is not None and ia["type"] == "int" and ia["num_bits"] == 8
    float_w = w is not None and w["type"] == "float"
    if compute == "a8" and not (float_w or (int_w and (ia is None or int8_a))):
        raise JsonConfigError("/compute", "a8 needs float weights, or integer ones with 16-bit or int8 activations")
    check_float_acts(compute, r["quantization"])
    if compute == "a16" and ia is not None and not float_w:
        raise JsonConfigError("/compute", "the checkpoint quantizes its activations")
    if act_quant != "auto" and not (int8_a or (compute == "a8" and (int_w or (float_w and w["num_bits"] == 4)))):
        raise JsonConfigError("/activation_quant", "needs int8 activations")
    if marlin_in != "none":
        if not int_w or ia is not None:
            raise JsonConfigError("/marlin_input_dtype", "needs integer weights with 16-bit activations")
        if w["actorder"] == "group":
            raise JsonConfigError("/marlin_input_dtype", "8-bit activation tiles exclude activation order")
        if marlin_in == "fp8" and w["num_bits"] != 4:
            raise JsonConfigError("/marlin_input_dtype", "fp8 needs 4-bit weights")

    # ---- platform
    fv = _V(doc.get("platform", {}), "/platform", {"type", "arch", "features", "num_threads", "numa_node", "capability",
                                                   "gfx", "cuda_version", "libs", "multiprocessor_count"})
    pt = fv.enum("type", ["auto", "cpu", "cuda", "rocm", "xpu", "tpu", "oot"], "auto")
    ar = fv.enum("arch", ["auto", "x86_64", "aarch64", "riscv64", "ppc64le", "s390x"], "auto")
    th = fv.int("num_threads", 0, 4096, 0)
    nu = fv.int("numa_node", -1, 1023, -1)
    fl = fv.o.get("features")
    if fv.has("features"):
        if not isinstance(fl, list):
            raise JsonConfigError("/platform/features", "must be an array")
        for i, x in enumerate(fl):
            if not isinstance(x, str):
                raise JsonConfigError(f"/platform/features/{i}", "must be a string")
            if x not in FEATURES:
                raise JsonConfigError(f"/platform/features/{i}", "unknown CPU feature")
            if x in fl[:i]:
                raise JsonConfigError(f"/platform/features/{i}", "listed twice")
    r["platform"] = {"type": pt, "arch": ar, "features": fl, "num_threads": th, "numa_node": nu}
    cap = fv.o.get("capability")
    if fv.has("capability"):
        if not isinstance(cap, list) or len(cap) != 2:
            raise JsonConfigError("/platform/capability", "must be [major, minor]")
        for i, x in enumerate(cap):
            if isinstance(x, bool) or not isinstance(x, int) or not 0 <= x <= 255:
                raise JsonConfigError(f"/platform/capability/{i}", "must be in [0, 255]")
    elif pt == "cuda":
        raise JsonConfigError("/platform/capability", "required for cuda")
    gfx = fv.str("gfx", 8)
    if fv.has("gfx") and not re.fullmatch("gfx[0-9a-f]{3,5}", gfx):
        raise JsonConfigError("/platform/gfx", "not an architecture name")
    if pt == "rocm" and gfx is None:
        raise JsonConfigError("/platform/gfx", "required for rocm")
    fv.int("cuda_version", 0, 1000000)
    fv.int("multiprocessor_count", 1, 4096)
    if fv.has("libs"):
        if not isinstance(fv.o["libs"], dict):
            raise JsonConfigError("/platform/libs", "must be an object")
        for kk, x in fv.o["libs"].items():
            if not isinstance(x, bool):
                raise JsonConfigError(f"/platform/libs/{_esc(kk)}", "must be true or false")
    for kk in ("capability", "gfx", "cuda_version", "libs", "multiprocessor_count"):   # written only when given
        if fv.has(kk):
            r["platform"][kk] = fv.o[kk]
    ev = _V(doc.get("vllm_env", {}), "/vllm_env", VLLM_ENV)
    r["vllm_env"] = {n: ev.str(n, 64) for n in ev.o}
    r["selection_policy"] = v.enum("selection_policy", ["libmoe", "vllm"], "libmoe")
    r["bit_compat"] = v.enum("bit_compat", ["libmoe", "vllm"], "libmoe")
    return r


FEATURES = ["scalar", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx_vnni", "avx512_bf16",
            "avx512_fp16", "avx512_vbmi", "amx_tile", "amx_int8", "amx_bf16", "amx_fp8", "neon", "dotprod", "i8mm", "bf16", "fp16",
            "sve", "sve2", "sme", "sme2", "rvv"]


def _arg(num_bits, typ, strategy, **k):
    d = {"num_bits": num_bits, "type": typ, "strategy": strategy, "group_size": None, "block_structure": None,
         "symmetric": True, "dynamic": False, "actorder": None}
    d.update(k)
    return d


_TOK8 = _arg(8, "int", "token", dynamic=True)
_TOKF8 = _arg(8, "float", "token", dynamic=True)
PRESETS = {
    "none": (None, None, "none"),
    "W4A16": (_arg(4, "int", "group", group_size=128), None, "pack-quantized"),
    "W4A16_ASYM": (_arg(4, "int", "group", group_size=128, symmetric=False), None, "pack-quantized"),
    "W8A16": (_arg(8, "int", "group", group_size=128), None, "pack-quantized"),
    "W8A8": (_arg(8, "int", "channel"), _TOK8, "int-quantized"),
    "W4A8": (_arg(4, "int", "group", group_size=128), _TOK8, "int-quantized"),
    "W4AFP8": (_arg(4, "int", "group", group_size=128), _TOKF8, "pack-quantized"),
    "FP8": (_arg(8, "float", "tensor"), _arg(8, "float", "tensor"), "float-quantized"),
    "FP8_DYNAMIC": (_arg(8, "float", "channel"), _TOKF8, "float-quantized"),
    "FP8_BLOCK": (_arg(8, "float", "block", block_structure=[128, 128]),
                  _arg(8, "float", "group", group_size=128, dynamic=True), "float-quantized"),
    "NVFP4": (_arg(4, "float", "tensor_group", group_size=16),
              _arg(4, "float", "tensor_group", group_size=16, dynamic="local"), "nvfp4-pack-quantized"),
    "NVFP4A16": (_arg(4, "float", "tensor_group", group_size=16), None, "nvfp4-pack-quantized"),
    "MXFP4": (_arg(4, "float", "group", group_size=32), _arg(4, "float", "group", group_size=32, dynamic=True),
              "mxfp4-pack-quantized"),
    "MXFP4A16": (_arg(4, "float", "group", group_size=32), None, "mxfp4-pack-quantized"),
    "MXFP8": (_arg(8, "float", "group", group_size=32), _arg(8, "float", "group", group_size=32, dynamic=True),
              "mxfp8-quantized"),
    "MXFP8A16": (_arg(8, "float", "group", group_size=32), None, "mxfp8-quantized"),
}


def check_float_acts(compute, quantization):
    """Activations that become floats (float_oracles.md 9.6)."""
    w, a = quantization["weights"], quantization["input_activations"]
    floats = lambda x, bits: x is not None and x["type"] == "float" and x["num_bits"] == bits
    mxfp4 = floats(w, 4) and w["symmetric"] and w["strategy"] == "group" and w["group_size"] == 32
    nvfp4 = floats(w, 4) and w["symmetric"] and w["strategy"] == "tensor_group" and w["group_size"] == 16
    if compute == "a4" and not mxfp4 and not (nvfp4 and floats(a, 4) and a["dynamic"] is not True):
        raise JsonConfigError("/compute", "needs 4-bit float weights, NVFP4's with a scale of the inputs")
    place = "/quantization/input_activations/"
    if compute == "a4" and not mxfp4:
        if a["group_size"] != w["group_size"]:
            raise JsonConfigError(place + "group_size", "that of the weights")
        if not a["symmetric"]:
            raise JsonConfigError(place + "symmetric", "no zero points")
    if compute == "mxfp8" and not mxfp4:
        raise JsonConfigError("/compute", "needs MXFP4 weights")
    if compute != "a8" or not floats(w, 8) or not w["symmetric"] or a is None:
        return
    if not floats(a, 8):
        raise JsonConfigError("/compute", "needs 8-bit float activations or none")
    if not a["symmetric"]:
        raise JsonConfigError(place + "symmetric", "no zero points")
    grouped = a["strategy"] == "group" and a["dynamic"] is True
    if quantization["format"] in ("mxfp8-quantized", "mxfp6-pack-quantized"):
        if not (grouped and a["group_size"] == 32):
            raise JsonConfigError(place + "strategy", "MXFP8 weights have groups of 32")
    elif a["strategy"] not in ("tensor", "token"):
        if not grouped:
            raise JsonConfigError(place + "strategy", "tensor, token or dynamic group")
        if a["group_size"] % 32:
            raise JsonConfigError(place + "group_size", "a multiple of 32")


def _resolve_args(obj, ptr, is_act):
    v = _V(obj, ptr, {"num_bits", "type", "strategy", "group_size", "block_structure", "symmetric", "dynamic", "actorder",
                      "scale_format"})
    bits = v.int("num_bits", 1, 8, 8)
    typ = v.enum("type", ["int", "float"], "int")
    if typ == "int" and bits not in (4, 8):
        raise JsonConfigError(f"{ptr}/num_bits", "integer weights and activations have 4 or 8 bits")
    if typ == "float" and bits not in (4, 8):
        raise JsonConfigError(f"{ptr}/num_bits", "float formats have 4 or 8 bits")
    gs = None if v.o.get("group_size") is None else v.int("group_size", -1, 65536)
    if gs == 0:
        raise JsonConfigError(f"{ptr}/group_size", "0 is not a group size")
    st = v.enum("strategy", ["tensor", "channel", "group", "block", "token", "tensor_group"], None)
    if st is None:
        st = "tensor" if gs is None else ("channel" if gs == -1 else "group")
    sym = v.bool("symmetric", True)
    dyn = v.o.get("dynamic", False)
    if not (isinstance(dyn, bool) or dyn == "local"):
        raise JsonConfigError(f"{ptr}/dynamic", "must be a boolean or \"local\"")
    bs = v.o.get("block_structure")
    if bs is not None:
        if not isinstance(bs, list) or len(bs) != 2:
            raise JsonConfigError(f"{ptr}/block_structure", "must be [rows, cols]")
        for i, x in enumerate(bs):
            if isinstance(x, bool) or not isinstance(x, int) or not 1 <= x <= 65536:
                raise JsonConfigError(f"{ptr}/block_structure/{i}", "must be a positive integer")
    ao = v.o.get("actorder")
    if isinstance(ao, bool):
        ao = "group" if ao else None
    if ao is not None:
        if ao not in ("group", "weight", "dynamic", "static"):
            raise JsonConfigError(f"{ptr}/actorder", "not one of group, weight, dynamic, static")
        ao = {"dynamic": "group", "static": "weight"}.get(ao, ao)
        if is_act:
            raise JsonConfigError(f"{ptr}/actorder", "not defined for activations")
    scale_format = v.enum("scale_format", ["float32", "ue8m0"], "float32")
    if scale_format != "float32" and not is_act:
        raise JsonConfigError(f"{ptr}/scale_format", "for activations")
    if st == "token" and not dyn:
        raise JsonConfigError(f"{ptr}/dynamic", "token strategy is dynamic")
    if st == "token" and not is_act:
        raise JsonConfigError(f"{ptr}/strategy", "token strategy is for activations")
    if st in ("channel", "block") and is_act:
        raise JsonConfigError(f"{ptr}/strategy", f"{st} strategy is for weights")
    if st in ("group", "tensor_group") and (gs is None or gs <= 0):
        raise JsonConfigError(f"{ptr}/group_size", "required and positive for group strategies")
    if gs is not None and gs > 0 and st not in ("group", "tensor_group"):
        raise JsonConfigError(f"{ptr}/group_size", "needs a group strategy")
    if st == "block" and bs is None:
        raise JsonConfigError(f"{ptr}/block_structure", "required for block strategy")
    if bs is not None and st != "block":
        raise JsonConfigError(f"{ptr}/block_structure", "needs block strategy")
    if ao == "group" and st not in ("group", "tensor_group"):
        raise JsonConfigError(f"{ptr}/actorder", "group activation order needs a group strategy")
    if dyn == "local" and st != "tensor_group":
        raise JsonConfigError(f"{ptr}/dynamic", "local needs tensor_group")
    if scale_format != "float32" and not (typ == "float" and bits == 8 and st == "group" and dyn is True):
        raise JsonConfigError(f"{ptr}/scale_format", "for dynamic groups of 8-bit floats")
    if not is_act and dyn:
        raise JsonConfigError(f"{ptr}/dynamic", "weights are static")
    return _arg(bits, typ, st, group_size=gs, block_structure=bs, symmetric=sym, dynamic=dyn, actorder=ao,
                **({} if scale_format == "float32" else {"scale_format": scale_format}))


def resolve_quant(obj, r):
    p = "/quantization"
    v = _V(obj, p, {"scheme", "weights", "input_activations", "format", "group_size", "zero_point_convention",
                    "is_transposed"})
    if v.has("scheme"):
        s = v.enum("scheme", SCHEMES, norm=lambda t: "none" if t.lower() == "none" else t.upper())
        for other in ("weights", "input_activations"):
            if v.has(other):
                raise JsonConfigError(f"{p}/{other}", "exclusive with scheme")
        w, a, fmt = PRESETS[s]
        gs = v.int("group_size", -1, 65536, None)
        if gs == 0:
            raise JsonConfigError(f"{p}/group_size", "0 is not a group size")
        if gs is not None:
            if w is None or w["type"] != "int" or w["strategy"] != "group":
                raise JsonConfigError(f"{p}/group_size", f"scheme {s} has a fixed grouping")
            w = dict(w, group_size=None if gs == -1 else gs, strategy="channel" if gs == -1 else "group")
    else:
        if v.has("group_size"):
            raise JsonConfigError(f"{p}/group_size", "goes inside weights")
        if not v.has("weights"):
            raise JsonConfigError(f"{p}/weights", "required without scheme")
        w = _resolve_args(obj["weights"], f"{p}/weights", False)
        ia = obj.get("input_activations")
        a = None if ia is None else _resolve_args(ia, f"{p}/input_activations", True)
        fmt = None
    if v.has("format"):
        fmt = v.enum("format", FORMATS)
    elif fmt is None:
        fmt = infer_format(w, a)
    zpc = v.enum("zero_point_convention", ["auto", "as_stored", "plus_one", "twos_complement"], "auto")
    signed = zpc == "twos_complement"
    if zpc != "auto" and (w is None or w["type"] != "int"):
        raise JsonConfigError(f"{p}/zero_point_convention", "needs integer weights")
    if (zpc != "auto" and not signed) if fmt == "modelopt-int4" else (signed and fmt not in ("quark-reorder", "quark-order")):
        raise JsonConfigError(f"{p}/zero_point_convention", "the format has another one")
    tr = v.bool("is_transposed", None)
    if tr is not None and fmt not in ("gptq", "awq", "pack-quantized"):
        raise JsonConfigError(f"{p}/is_transposed", "needs a packed integer format")
    if tr is False and fmt != "pack-quantized":
        raise JsonConfigError(f"{p}/is_transposed", f"{fmt} is always K-first")
    if w is None:
        if fmt != "none":
            raise JsonConfigError(f"{p}/format", "unquantized weights have format none")
        return dict(_UNQUANTIZED)
    need = {"gptq": lambda: w["type"] == "int", "awq": lambda: w["type"] == "int" and w["num_bits"] == 4,
            "pack-quantized": lambda: w["type"] == "int", "int-quantized": lambda: w["type"] == "int",
            "float-quantized": lambda: w["type"] == "float" and w["num_bits"] == 8,
            "nvfp4-pack-quantized": lambda: w["type"] == "float" and w["num_bits"] == 4 and w["group_size"] == 16,
            "mxfp4-pack-quantized": lambda: w["type"] == "float" and w["num_bits"] == 4 and w["group_size"] == 32,
            "mxfp4-gpt-oss": lambda: w["type"] == "float" and w["num_bits"] == 4 and w["group_size"] == 32,
            "mxfp8-quantized": lambda: w["type"] == "float" and w["num_bits"] == 8 and w["group_size"] == 32,
            "nvfp4-group-32": lambda: w["type"] == "float" and w["num_bits"] == 4 and w["group_size"] == 16,
            **{f: lambda: w["type"] == "int" and w["num_bits"] == 4 for f in ("quark-reorder", "quark-order", "modelopt-int4")},
            **{f: lambda: w["type"] == "int" and w["num_bits"] == 8 for f in ("quark-int8", "bitsandbytes-int8")},
            **{f: lambda t=t, b=b: w["type"] == t and w["num_bits"] == b and (t == "int" or w["group_size"] == 32)
               for f, (_, t, b) in NARROW.items()},
            "naive-quantized": lambda: True, "none": lambda: False}[fmt]
    if not need():
        raise JsonConfigError(f"{p}/format", "does not hold these weights")
    if w["actorder"] == "group" and fmt not in ("gptq", "pack-quantized"):
        raise JsonConfigError(f"{p}/weights/actorder", "needs format gptq or pack-quantized")
    gp = f"{p}/group_size" if v.has("group_size") else (f"{p}/weights/group_size" if v.has("weights") else f"{p}/scheme")
    bp = f"{p}/weights/block_structure" if v.has("weights") else f"{p}/scheme"
    _check_sizes(w, fmt, r, gp, bp)
    return {"weights": w, "input_activations": a, "format": fmt, **_storage(w, fmt, zpc, tr)}


_UNQUANTIZED = {"weights": None, "input_activations": None, "format": "none", "zero_point_convention": None,
                "is_transposed": None}


def _storage(w, fmt, zpc="auto", transposed=None):
    """How zero points and stacked tensors are stored; None where the question does not arise."""
    if zpc == "auto":
        zpc = None if w["type"] != "int" else {"gptq": "plus_one", "modelopt-int4": "twos_complement"}.get(fmt, "as_stored")
    if transposed is None:
        transposed = {"gptq": True, "awq": True, "pack-quantized": False}.get(fmt)
    return {"zero_point_convention": zpc, "is_transposed": transposed}


def _check_sizes(w, fmt, r, gp, bp):
    """Groups and blocks must divide the sizes; gp, bp: pointers blamed."""
    if w["strategy"] in ("group", "tensor_group"):
        g = w["group_size"]
        if r["hidden_dim"] % g:
            raise JsonConfigError(gp, "hidden_dim is not a multiple of the group size")
        if r["intermediate_size_per_partition"] % g:
            raise JsonConfigError(gp, "intermediate_size_per_partition is not a multiple of the group size")
        if fmt == "nvfp4-group-32" and (r["hidden_dim"] % 32 or r["intermediate_size_per_partition"] % 32):
            raise JsonConfigError(gp, "two groups share a scale")
    if w["strategy"] == "block":
        bn, bk = w["block_structure"]
        if r["intermediate_size_per_partition"] % bn:
            raise JsonConfigError(bp, "intermediate_size_per_partition is not a multiple of the block rows")
        if r["parallel"]["tp_size"] > 1 and r["intermediate_size_per_partition"] % bk:
            raise JsonConfigError(bp, "intermediate_size_per_partition is not a multiple of the block columns")
    if w["type"] == "int" and w["num_bits"] == 4 and fmt in ("pack-quantized", "gptq", "awq", "quark-reorder", "quark-order") and (
            r["hidden_dim"] % 8 or r["intermediate_size_per_partition"] % 8):
        raise JsonConfigError(gp, "4-bit packing needs sizes that are multiples of 8")
    if fmt in NARROW and w["type"] == "int":
        codes = 32 // math.gcd(32, NARROW[fmt][0])
        if r["hidden_dim"] % codes or r["intermediate_size_per_partition"] % codes:
            raise JsonConfigError(gp, "codes do not fill whole words")


def infer_format(w, a):
    """On-disk container of a compressed-tensors scheme, in the priority order of that project."""
    if w is None:
        return "none"
    if w["type"] == "float":
        if w["num_bits"] == 4:
            return {32: "mxfp4-pack-quantized", 16: "nvfp4-pack-quantized"}.get(w["group_size"], "naive-quantized")
        if w["strategy"] == "group" and w["group_size"] == 32:
            return "mxfp8-quantized"
        return "float-quantized" if a is not None else "naive-quantized"
    if a is not None and a["type"] == "int":
        return "int-quantized"
    return "pack-quantized"


# --------------------------------------------------------------------------
# a checkpoint's own quantization_config -> the strict object (or None = unquantized)
# --------------------------------------------------------------------------
def ct_match(name, target, by_class=False):
    """compressed-tensors: exact, 're:' anchored at the start, or (classes only) substring without case."""
    if target.startswith("re:"):
        return re.match(target[3:], name) is not None
    return target.lower() in name.lower() if by_class else target == name


def ct_scheme_for(cfg, name, class_name="FusedMoE"):
    """The config group of one projection, or None when ignored or not targeted. First target wins."""
    if any(ct_match(name, t) for t in cfg.get("ignore") or []):
        return None
    groups = {}
    for gname, g in (cfg.get("config_groups") or {}).items():
        if isinstance(g, list):
            w, a, f = PRESETS[gname.upper()]
            g = {"targets": g, "weights": w, "input_activations": a, "format": None}
        if len(g["targets"]) == 1 and g["targets"][0].endswith("Attention"):
            continue
        for t in g["targets"]:
            groups[t] = g
    if "Linear" in groups and "FusedMoE" not in groups:
        groups["FusedMoE"] = groups["Linear"]
    hit = next((t for t in groups if ct_match(name, t)), None)
    if hit is None:
        hit = next((t for t in groups if ct_match(class_name, t, True)), None)
    return None if hit is None else groups[hit]


def gptq_dynamic(dynamic, name):
    """False = not quantized, else the override dict of the first matching rule ({} if none)."""
    for pat, over in (dynamic or {}).items():
        if pat.startswith("-:"):
            if re.match(pat[2:], name):
                return False
        elif re.match(pat[2:] if pat.startswith("+:") else pat, name):
            return over
    return {}


def list_skips_experts(entries, name):
    """fp8 style lists for an expert layer: an entry about experts that contains the layer's name."""
    return any("experts" in e and name in e for e in entries or [])


def _ct_args(d):
    keep = ("num_bits", "type", "strategy", "group_size", "block_structure", "symmetric", "dynamic", "actorder")
    d = {k: v for k, v in d.items() if k in keep and v is not None}
    if isinstance(d.get("block_structure"), str):
        d["block_structure"] = [int(x) for x in d["block_structure"].split("x")]
    if "strategy" not in d:
        g = d.get("group_size")
        d["strategy"] = "tensor" if g is None else ("channel" if g == -1 else "group")
    return _arg(d.pop("num_bits", 8), d.pop("type", "int"), d.pop("strategy"), **d)


def resolve_hf(h, name, projections=("gate_proj", "up_proj", "down_proj")):
    """name: e.g. model.layers.3.mlp.experts; projections: the names on disk. Returns {"weights", "input_activations", "format", "suffixes"} or None."""
    qm, p = h.get("quant_method"), "/hf_quantization_config"

    def out(w, a, fmt, suffixes, zpc="auto"):
        return {"weights": w, "input_activations": a, "format": fmt, **_storage(w, fmt, zpc), "suffixes": suffixes}

    def need(k, typ):
        if k not in h:
            raise JsonConfigError(f"{p}/{k}", "required")
        v = h[k]
        if not isinstance(v, typ) or (typ is int and isinstance(v, bool)):
            raise JsonConfigError(f"{p}/{k}", "wrong type")
        return v

    if qm == "gptq":
        over = gptq_dynamic(h.get("dynamic"), name)
        if over is False:
            return None
        bits, gs = over.get("bits", need("bits", int)), over.get("group_size", need("group_size", int))
        act, sym = over.get("desc_act", need("desc_act", bool)), over.get("sym", need("sym", bool))
        if bits not in (4, 8):
            raise JsonConfigError(f"{p}/bits", "4 or 8")
        if gs != -1 and gs < 1:
            raise JsonConfigError(f"{p}/group_size", "-1 or positive")
        act = act and gs != -1
        w = _arg(bits, "int", "channel" if gs == -1 else "group", group_size=None if gs == -1 else gs, symmetric=sym,
                 actorder="group" if act else None)
        cf = h.get("checkpoint_format", "gptq")
        if cf not in ("gptq", "gptq_v2"):
            raise JsonConfigError(f"{p}/checkpoint_format", "gptq or gptq_v2")
        return out(w, None, "gptq", ["qweight", "scales", "qzeros", "g_idx"], "as_stored" if cf == "gptq_v2" else "auto")
    if qm == "awq":
        if any(e in name for e in h.get("modules_to_not_convert") or []):
            return None
        bits = h.get("w_bit", h.get("bits"))
        gs = h.get("q_group_size", h.get("group_size"))
        if bits != 4:
            raise JsonConfigError(f"{p}/bits", "awq is 4 bit")
        if not isinstance(gs, int) or isinstance(gs, bool) or (gs != -1 and gs < 1):
            raise JsonConfigError(f"{p}/group_size", "-1 or positive")
        w = _arg(4, "int", "channel" if gs == -1 else "group", group_size=None if gs == -1 else gs,
                 symmetric=not need("zero_point", bool))
        return out(w, None, "awq", ["qweight", "scales", "qzeros"])
    if qm == "fp8":
        if list_skips_experts(h.get("ignored_layers") or h.get("modules_to_not_convert"), name):
            return None
        sch = need("activation_scheme", str)
        if sch not in ("dynamic", "static"):
            raise JsonConfigError(f"{p}/activation_scheme", "dynamic or static")
        b = h.get("weight_block_size")
        if b is not None:
            if not isinstance(b, list) or len(b) != 2:
                raise JsonConfigError(f"{p}/weight_block_size", "needs two numbers")
            if sch != "dynamic":
                raise JsonConfigError(f"{p}/activation_scheme", "block weights need dynamic activations")
            fmt = h.get("scale_fmt")
            powers = {"scale_format": "ue8m0"} if isinstance(fmt, str) and fmt.lower() == "ue8m0" else {}
            return out(_arg(8, "float", "block", block_structure=b), _arg(8, "float", "group", group_size=b[1], dynamic=True, **powers),
                       "float-quantized", ["weight", "weight_scale_inv"])
        st = sch == "static"
        return out(_arg(8, "float", "tensor"), _arg(8, "float", "tensor", dynamic=not st), "float-quantized",
                   ["weight", "weight_scale"] + (["input_scale"] if st else []))
    if qm == "mxfp4":
        if list_skips_experts(h.get("modules_to_not_convert"), name):
            return None
        return out(_arg(4, "float", "group", group_size=32), None, "mxfp4-gpt-oss", ["_blocks", "_scales", "_bias"])
    if qm in ("modelopt", "modelopt_fp4"):
        q = h.get("quantization", h)
        ex = q.get("exclude_modules" if q is not h else "ignore") or []
        if any(fnmatch.fnmatch(name, e) or (e.endswith("*") and e[:-1] == name) for e in ex):
            return None
        algo = str(q.get("quant_algo") or "").upper()
        if algo == "FP8":
            t = _arg(8, "float", "tensor")
            return out(t, dict(t), "float-quantized", ["weight", "weight_scale", "input_scale"])
        if algo == "FP8_PER_CHANNEL_PER_TOKEN":
            return out(_arg(8, "float", "channel"), dict(_TOKF8), "float-quantized", ["weight", "weight_scale"])
        if algo in ("NVFP4", "W4A16_NVFP4"):
            w, a, f = PRESETS["NVFP4" if algo == "NVFP4" else "NVFP4A16"]
            return out(w, a, f, ["weight", "weight_scale", "weight_scale_2"] + (["input_scale"] if a else []))
        if algo == "MXFP8":
            w, a, f = PRESETS["MXFP8"]
            return out(w, a, f, ["weight", "weight_scale"])
        raise JsonConfigError(p + ("/quantization/quant_algo" if q is not h else "/quant_algo"), "unsupported algorithm")
    if qm == "compressed-tensors":
        got = [ct_scheme_for(h, f"{name}.0.{x}") for x in projections]
        if any(g != got[0] for g in got):
            raise JsonConfigError(f"{p}/config_groups", "the projections of an expert have different schemes")
        g = got[0]
        if g is None or g.get("weights") is None:
            return None
        w, a = _ct_args(g["weights"]), None if g.get("input_activations") is None else _ct_args(g["input_activations"])
        fmt = g.get("format") or h.get("format")
        stated = fmt not in (None, "fakequant", "mixed-precision")
        if stated and fmt not in CT_FORMATS:
            raise JsonConfigError(f"{p}/format", "unsupported format")
        for narrow, (bits, typ, wide) in NARROW.items():
            if (w["num_bits"], w["type"]) == (bits, typ) and (typ == "int" or w["group_size"] == 32):
                packed = "mxfp6-pack-quantized" if typ == "float" else "pack-quantized"
                in_words = fmt == packed if stated else typ == "float" or a is None or a["type"] != "int"
                if in_words or fmt == "int-quantized" or not stated:
                    w = dict(w, num_bits=wide)
                    fmt, stated = (narrow, True) if in_words else (fmt, stated)
                break
        else:
            if fmt == "mxfp6-pack-quantized":
                raise JsonConfigError(f"{p}/format", "other weights")
        if not stated:
            fmt = infer_format(w, a)
        if fmt.startswith("pack-quantized"):
            sfx = ["weight_packed", "weight_scale", "weight_shape"]
        elif fmt == "nvfp4-pack-quantized":
            sfx = ["weight_packed", "weight_scale", "weight_global_scale"] + (
                ["input_global_scale"] if a is not None and a["dynamic"] is not True else [])
        elif fmt in ("mxfp4-pack-quantized", "mxfp6-pack-quantized"):
            sfx = ["weight_packed", "weight_scale"]
        else:
            sfx = ["weight", "weight_scale"] + (["input_scale"] if a is not None and not a["dynamic"] else [])
        if not w["symmetric"]:
            sfx.append("weight_zero_point")
        if w["actorder"] in ("group", "dynamic", True):
            sfx.append("weight_g_idx")
        return out(w, a, fmt, sfx)
    raise JsonConfigError(f"{p}/quant_method", "unknown or not yet supported method")


def load(text):
    return resolve(parse_strict(text))
