"""Selection by the float oracles: moe_describe("oracle") of random questions, against float_oracles.py."""
import json

import float_oracles as O

CAPABILITIES = ([7, 0], [7, 5], [8, 0], [8, 9], [9, 0], [10, 0], [10, 3], [11, 0], [12, 0], [12, 1])
GFX = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1200")
LIBRARIES = ("flashinfer", "deep_gemm", "triton_kernels", "b12x", "aiter")
ROUTING = ("Default", "Renormalize", "RenormalizeNaive", "DeepSeekV3", "Llama4", "TopK", "SigmoidRenorm", "MiniMax2",
           "Simulated", "Custom", "DeepseekV4", "Unspecified")
ALL2ALL = ("allgather_reducescatter", "deepep_low_latency", "deepep_high_throughput", "nixl_ep", "flashinfer_all2allv",
           "flashinfer_nvlink_one_sided", "flashinfer_nvlink_two_sided")
WORDS = sorted({*O.FP8_STRINGS, *O.NVFP4_STRINGS, *O.MXFP4_STRINGS, *O.MXFP8_STRINGS, *O.UNQ_STRINGS, "nonsense"})
FLAGS = ("VLLM_USE_FLASHINFER_MOE_FP8", "VLLM_USE_FLASHINFER_MOE_FP4", "VLLM_USE_FLASHINFER_MOE_FP16",
         "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16", "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8",
         "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS", "VLLM_MXFP4_USE_MARLIN", "VLLM_USE_DEEP_GEMM",
         "VLLM_MOE_USE_DEEP_GEMM", "VLLM_TEST_FORCE_FP8_MARLIN", "VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_MOE",
         "VLLM_BATCH_INVARIANT")
KINDS = ("throughput", "latency", "masked_gemm")
FP8 = (O.FP8_BLOCK, O.FP8_CH_TOK, O.FP8_T_TOK, O.FP8_T_ST, O.FP8_T_DYN, ("kFp8StaticTensorSym", None),
       ("kFp8StaticTensorSym", "kFp8Dynamic128Sym"), ("kFp8StaticChannelSym", "kFp8StaticTensorSym"))
MXFP4_ACTIVATIONS = (None, None, "kMxfp8Dynamic", "kMxfp4Dynamic", "kFp8StaticTensorSym", "kFp8Dynamic128Sym")
# The library has one code where the reference has another word.
REASONS = {"no_act_and_mul": "act_and_mul", "routing": "routing_method", "format": "activation_format"}
ORACLES = ("fp8", "fp8", "int8", "mxfp8", "nvfp4", "nvfp4", "mxfp4", "mxfp4", "mxfp4_deepseek_v4", "unquantized")


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


def chance(rng, p):
    return bool(rng.random() < p)


def platform(rng):
    kind = pick(rng, ("cuda", "cuda", "cuda", "cuda", "rocm", "rocm", "xpu", "cpu", "tpu", "oot"))
    out = {"type": kind, "libs": {name: chance(rng, 0.8) for name in LIBRARIES}}
    if kind == "cuda":
        out["capability"] = pick(rng, CAPABILITIES)
        if chance(rng, 0.3):
            out["cuda_version"] = pick(rng, (12010, 12030, 12060, 12080))
    if kind == "rocm":
        out["gfx"] = pick(rng, GFX)
    return out


def layer(rng):
    activation = pick(rng, ("silu", "silu", "swigluoai", "swigluoai", "relu2", *O.A_TRITON))
    out = {"moe_backend": pick(rng, WORDS) if chance(rng, 0.4) else "auto", "activation": activation,
           "is_act_and_mul": activation in O.GATED, "routing_method": pick(rng, ROUTING),
           "is_lora_enabled": chance(rng, 0.1)}
    if chance(rng, 0.5):
        out["parallel"] = {"dp_size": pick(rng, (1, 2, 4)), "ep_size": pick(rng, (1, 2, 8)), "use_ep": chance(rng, 0.5),
                           "all2all_backend": pick(rng, ALL2ALL), "enable_eplb": chance(rng, 0.2)}
    return out


def switches(rng):
    env = {name: pick(rng, ("0", "1", "1", "true", "no")) for name in FLAGS if chance(rng, 0.06)}
    if chance(rng, 0.2):
        env["VLLM_FLASHINFER_MOE_BACKEND"] = pick(rng, KINDS)
    if chance(rng, 0.1):
        env["VLLM_HUMMING_MOE_GEMM_TYPE"] = pick(rng, ("indexed", "grouped", "Grouped_Contiguous"))
    return env


def keys(rng, oracle):
    out = {}
    if oracle == "fp8":
        out["weight_key"], out["activation_key"] = pick(rng, FP8)
        out["allow_vllm_cutlass"] = chance(rng, 0.5)
    if oracle == "nvfp4":
        out["weight_key"], out["activation_key"] = pick(rng, (O.NVFP4, O.NVFP4, ("kNvfp4Static", None)))
    if oracle == "mxfp4":
        out["activation_key"] = pick(rng, MXFP4_ACTIVATIONS)
        if chance(rng, 0.2):
            out["user_activation"] = pick(rng, MXFP4_ACTIVATIONS)
    return out


def answer(q):
    machine = {**q["platform"], "kind": q["platform"]["type"]}
    if "capability" in machine:
        machine["capability"] = 10 * machine["capability"][0] + machine["capability"][1]
    moe, env = q["moe"], q["env"]
    if q["oracle"] == "fp8":
        return O.select_fp8(machine, moe, q["weight_key"], q["activation_key"], env, q["allow_vllm_cutlass"])
    if q["oracle"] == "nvfp4":
        return O.select_nvfp4(machine, moe, q["weight_key"], q["activation_key"], env)
    if q["oracle"] == "mxfp4":
        return O.select_mxfp4(machine, moe, q["activation_key"], env, q.get("user_activation"))
    return getattr(O, "select_" + q["oracle"])(machine, moe, env=env)


def expected(q):
    """The members that the library's answer, or the details of its refusal, must have."""
    try:
        backend, experts = answer(q)
    except O.SelectError as fault:
        if fault.kind == "unknown_backend_string":
            return {"error": "unknown_backend"}
        if fault.kind == "none_available":
            return {"error": "none"}
        if fault.kind == "unsupported":
            return {"error": "refused", "reason": REASONS.get(fault.reason, fault.reason)}
        return {"error": "refused", "kind": fault.kind}
    return {"backend": backend, "experts": experts}


def check(library, rng, twist):
    oracle = pick(rng, ORACLES)
    q = {"oracle": oracle, "platform": platform(rng), "moe": layer(rng), "env": switches(rng), **keys(rng, oracle)}
    want, text = expected(q), json.dumps(q)
    try:
        got = library.moe.describe("oracle", text)
    except library.moe.Error as fault:
        got = fault.details
    if twist:
        want = {k: f"not {v}" for k, v in want.items()}
    wrong = {k: (got.get(k), v) for k, v in want.items() if got.get(k) != v}
    assert not wrong, f"{text}: (library, reference) {wrong}"
