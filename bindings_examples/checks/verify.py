#!/usr/bin/python3
"""Checks outputs of the library against a plain reference: W4A8, FP8 and FP4 written out step by step in numpy.

    verify.py CHECKPOINT_DIR OUTPUT_FILE [--tokens 0,1,-1]

Shares no code with the library and reads the same files. For one token x [H] and its experts, W4A8:

    (q, recip, z) = quantize(x)                       int8 codes, one scale and offset per row
    y13 = matmul(q, w13[e])                           exact integer sums per group of the weights
    act = round(round(silu(gate)) * up)               rounded to the model's dtype, as y13 is
    y   = matmul(quantize(act), w2[e])                float32
    out = round(fma(weight_e, y, out) by ascending e) float32 until the one rounding at the end

FP8, MXFP8, MXFP4, NVFP4, plain: activations are not quantized, weights are what code * scale (NVFP4: divided
by the matrix's divisor) is, sums are float64 (the library's are float32 or integers: the order of its
additions is not part of this reference):

    y13 = x w13[e] + b13[e];  act = round(silu(gate) * up);  y = act w2[e] + b2[e]
    out as above, times the model's factor
    gpt-oss: act = round((up + 1) * gate * sigmoid(1.702 * gate)), with gate <= limit, -limit <= up <= limit

Files of other tools than llmcompressor (tool_weights.py): the same, weights are what the tool's own formula makes of
them. Where there is a pre_quant_scale p, W (p * x) stands for W x, and p * x is float32.

It passes when the largest difference is within the format's bound relative to the largest output,
and tells how many values agree in every bit.
"""
import argparse
import json
import os
import re
import sys

import numpy as np

import tool_weights
from tool_weights import E2M1, E4M3, halves, powers

F32 = np.float32
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
# architecture: number of experts, whether the chosen weights are normalised (None = as norm_topk_prob says), names,
# whether experts are chosen in groups, by sigmoid and bias, and gpt-oss's limit of the activation without swiglu_limit
ARCHITECTURES = {
    "MixtralForCausalLM": ("num_local_experts", True, ("w1", "w3", "w2"), False, None),
    "Qwen2MoeForCausalLM": ("num_experts", None, PROJECTIONS, False, None),
    "Qwen3MoeForCausalLM": ("num_experts", None, PROJECTIONS, False, None),
    "DeepseekV3ForCausalLM": ("n_routed_experts", None, PROJECTIONS, True, None),
    "GptOssForCausalLM": ("num_local_experts", True, PROJECTIONS, False, 7.0),
}
# gpt-oss as published: a tensor of all experts, and which of its rows are the projection's
STACKED = {"gate_proj": ("gate_up_proj", slice(0, None, 2)), "up_proj": ("gate_up_proj", slice(1, None, 2)),
           "down_proj": ("down_proj", slice(None))}
INT4_BOUNDS = {"float32": 1e-6, "float16": 2.0**-9, "bfloat16": 2.0**-6}
# One step of the output's type at its largest value; float32: the library's sums. With FP4 weights and 16-bit input the
# library holds activations as integers, which moves them by at most 2^-14 of their block's largest: less than a step.
FLOAT_BOUNDS = {"float32": 2e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# Integer weights with inputs that are not quantized: the library's kernels may round them or the weights to 16 bits on the
# way. The steps are not part of this reference, so the bound does not depend on the output's type.
INTEGER_BOUNDS = dict.fromkeys(FLOAT_BOUNDS, 0.008)


# ---- numbers -----------------------------------------------------------------------------------
def bf16_to_f32(bits):
    return (np.atleast_1d(np.asarray(bits, np.uint16)).astype(np.uint32) << 16).view(F32)


def round_bf16(x):
    """float32 -> the nearest bf16, ties to even, as float32."""
    bits = np.asarray(x, F32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(F32)


ROUND = {"float32": lambda x: np.asarray(x, F32), "bfloat16": round_bf16,
         "float16": lambda x: np.asarray(x, F32).astype(np.float16).astype(F32)}


def half_away(x):
    """Nearest integer, halves away from zero."""
    return np.trunc(x.astype(np.float64) + np.copysign(0.5, x))


def fma(a, b, c):
    """float32 a*b + c with one rounding: the product is exact in float64; the sum is rounded to
    odd there, so that the second rounding to float32 cannot see a false tie."""
    p = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    c = np.asarray(c, np.float64)
    s = np.atleast_1d(p + c)
    t = s - p
    rest = np.atleast_1d((p - (s - t)) + (c - t))  # what the float64 sum lost
    even = (s.view(np.int64) & 1) == 0
    toward = np.where(rest > 0, np.inf, -np.inf)
    s = np.where((rest != 0) & even, np.nextafter(s, toward), s)
    return s.astype(F32).reshape(np.shape(p + c))


def exp(x):
    """The library's exp, which is part of the format's definition: float32 multiplications and
    additions only, at most 1 ulp from the true value."""
    x = np.asarray(x, F32)
    t = x * F32(float.fromhex("0x1.715476p+0")) + F32(12582912.0)
    k = t - F32(12582912.0)
    r = (x - k * F32(0.693359375)) - k * F32(float.fromhex("-0x1.bd0106p-13"))
    q = np.full_like(x, float.fromhex("0x1.6a2434p-10"))
    for c in ("0x1.1239e2p-7", "0x1.5558f2p-5", "0x1.555492p-3", "0x1.fffffcp-2"):
        q = q * r + F32(float.fromhex(c))
    p = F32(1) + (r + (r * r) * q)
    y = (np.atleast_1d(p).view(np.uint32) + (np.atleast_1d(t).view(np.uint32) << 23)).view(F32)
    y = np.where(x > F32(float.fromhex("0x1.62e42ep+6")), F32(np.inf), y.reshape(x.shape))
    return np.where(x < F32(float.fromhex("-0x1.5d589ep+6")), F32(0), y)


# ---- the checkpoint ----------------------------------------------------------------------------
class Checkpoint:
    """config.json and the tensors of a MoE layer, the first one if not said, in a directory of safetensors files."""

    def __init__(self, directory, layer=None):
        with open(os.path.join(directory, "config.json")) as f:
            config = json.load(f)
        self.read_quantization(config.get("quantization_config"))
        config = config.get("text_config", config)
        self.dtype = config.get("torch_dtype") or config.get("dtype") or "bfloat16"
        self.hidden = config["hidden_size"]
        self.top_k = config["num_experts_per_tok"]
        architecture = config["architectures"][0]
        if architecture not in ARCHITECTURES or config.get("hidden_act") != "silu":
            sys.exit(f"verify: the reference knows {', '.join(ARCHITECTURES)} with silu, this is {architecture} "
                     f"with {config.get('hidden_act')}")
        experts, renormalize, self.names, grouped, self.limit = ARCHITECTURES[architecture]
        if self.limit:
            self.limit = config.get("swiglu_limit", self.limit)
            if self.expert is int4_expert:
                sys.exit("verify: the reference does not know W4A8 layers of gpt-oss")
        self.experts = next(config[key] for key in (experts, "num_local_experts") if key in config)
        self.renormalize = bool(config.get("norm_topk_prob")) if renormalize is None else renormalize
        self.tensors = {}
        for name in shards(directory):
            path = os.path.join(directory, name)
            with open(path, "rb") as f:
                size = int.from_bytes(f.read(8), "little")
                header = json.loads(f.read(size))
            header.pop("__metadata__", None)
            self.tensors.update((k, (path, 8 + size, v)) for k, v in header.items())
        found = [re.match(r"(.*\blayers\.(\d+)\..*experts)\.(?:0\.|_?gate_up_proj)", n) for n in self.tensors]
        self.module = min((int(m[2]), m[1]) for m in found if m and layer in (None, int(m[2])))[1]
        self.stacked = self.module + ".gate_up_proj_blocks" in self.tensors
        if any(name.startswith(f"{self.module}.0.gate_proj.") for name in self.tensors):
            self.names = PROJECTIONS  # some tools rename those of Mixtral
        if self.tool:
            self.bounds = INTEGER_BOUNDS if self.tool_matrix(0, self.names[0]).integers else FLOAT_BOUNDS
        self.factor, self.bias = F32(1), None
        if grouped:
            self.groups, self.kept_groups = config["n_group"], config["topk_group"]
            self.factor = F32(config["routed_scaling_factor"])
            self.bias = self.tensor(self.module.replace("experts", "gate.e_score_correction_bias")).astype(F32)

    def read_quantization(self, quantization):
        """Which reference serves: expert(checkpoint, e, rows), its bounds, and what shares a scale."""
        self.numbers, self.tool = (), None
        if not quantization:
            self.expert, self.bounds, self.block, self.numbers = float_expert, FLOAT_BOUNDS, (0, 0), None
            return
        if quantization["quant_method"] == "mxfp4":
            self.expert, self.bounds, self.numbers, self.block = float_expert, FLOAT_BOUNDS, E2M1, (1, 32)
            return
        if quantization["quant_method"] == "fp8" and quantization.get("weight_block_size"):
            self.expert, self.bounds, self.numbers = float_expert, FLOAT_BOUNDS, E4M3
            self.suffix, self.block = "weight_scale_inv", quantization["weight_block_size"]
            return
        if quantization["quant_method"] in tool_weights.TOOLS:
            self.expert, self.tool = float_expert, quantization
            return
        group = next(iter(quantization.get("config_groups", {}).values()), {})
        weights, activations = group.get("weights") or {}, group.get("input_activations") or {}
        kind = weights.get("type"), weights.get("num_bits"), activations.get("type")
        self.suffix = "weight_scale"
        if kind == ("int", 4, "int"):
            self.expert, self.bounds = int4_expert, INT4_BOUNDS
            self.group = None if weights["strategy"] == "channel" else weights["group_size"]
        elif kind[::2] == ("int", None) or kind[:2] == ("float", 6):
            self.expert, self.tool = float_expert, quantization
        elif kind[:2] in (("float", 8), ("float", 4)):
            self.expert, self.bounds, self.numbers = float_expert, FLOAT_BOUNDS, E4M3 if kind[1] == 8 else E2M1
            width = weights["group_size"]
            self.block = {"tensor": (0, 0), "channel": (1, 0), "group": (1, width), "tensor_group": (1, width),
                          "block": weights["block_structure"]}[weights["strategy"]]
        else:
            sys.exit(f"verify: the reference knows W4A8, integers alone, FP8, MXFP8, MXFP6, MXFP4, NVFP4 and files of "
                     f"{', '.join(tool_weights.TOOLS)}; this is {quantization['quant_method']} with weights and "
                     f"activations {kind}")

    def tensor(self, name, rows=...):
        """A tensor, or some of its rows; numbers, but 8-bit floats as their codes."""
        path, start, entry = self.tensors[name]
        kinds = {"I8": np.int8, "I32": np.uint32, "I64": np.int64, "BF16": np.uint16, "F16": np.float16, "F32": F32,
                 "F8_E4M3": np.uint8, "F8_E8M0": np.uint8, "U8": np.uint8}
        data = np.memmap(path, kinds[entry["dtype"]], "r", start + entry["data_offsets"][0], tuple(entry["shape"]))
        data = np.array(data[rows])
        return bf16_to_f32(data).reshape(data.shape) if entry["dtype"] == "BF16" else data

    def matrix(self, expert, projection):
        """(codes [N, K] int32, or uint8 of e4m3 or e2m1; scales float) of one projection of one expert."""
        if self.stacked:
            name, rows = STACKED[projection]
            name = f"{self.module}.{name}_"
            return halves(self.tensor(name + "blocks", (expert, rows))), powers(self.tensor(name + "scales", (expert, rows)))
        prefix = f"{self.module}.{expert}.{projection}."
        if self.numbers is None:
            return self.tensor(prefix + "weight"), np.ones((1, 1))
        scale = self.tensor(prefix + self.suffix)
        if prefix + "weight_global_scale" in self.tensors:
            scale = E4M3[scale] / self.tensor(prefix + "weight_global_scale").astype(np.float64)
        scale = powers(scale) if scale.dtype == np.uint8 else scale.astype(np.promote_types(scale.dtype, F32))
        if prefix + "weight" in self.tensors:
            codes = self.tensor(prefix + "weight")
            return codes if codes.dtype == np.uint8 else codes.astype(np.int32), scale
        words = self.tensor(prefix + "weight_packed")
        if words.dtype == np.uint8:
            return halves(words), scale
        nibbles = (words[:, :, None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
        return nibbles.reshape(len(words), -1).astype(np.int32) - 8, scale

    def tool_matrix(self, expert, projection):
        """A projection of an expert in a file of one of tool_weights.TOOLS."""
        try:
            return tool_weights.read(self.tool, self.module, self.tool_tensors(expert, projection))
        except tool_weights.Refused as error:
            sys.exit(f"verify: the reference does not know {error}")

    def tool_tensors(self, expert, projection):
        """Its tensors by the last part of their names, as if every expert had its own."""
        name, rows = STACKED.get(projection, ("", None))
        if f"{self.module}._{name}_qdata" in self.tensors:  # torchao: gate above up
            prefix = f"{self.module}._{name}_"
            half = self.tensors[prefix + "qdata"][2]["shape"][1] // 2
            rows = {"gate_proj": slice(half), "up_proj": slice(half, None)}.get(projection, slice(None))
            return {"_weight_" + n[len(prefix):]: self.tensor(n, (expert, rows)) for n in self.tensors if n.startswith(prefix)}
        if f"{self.module}.{name}_weight_scale" in self.tensors:  # ModelOpt's gpt-oss: inputs first, gate and up in turn
            prefix = f"{self.module}.{name}_"
            found = {n[len(prefix):]: n for n in self.tensors if n.startswith(prefix)} | {"weight": self.module + "." + name}
            return {suffix: self.tensor(n, (expert, slice(None), rows)).T if len(self.tensors[n][2]["shape"]) == 3
                    else self.tensor(n) for suffix, n in found.items() if suffix != "bias"}
        prefix = f"{self.module}.{expert}.{projection}."
        return {n[len(prefix):]: self.tensor(n) for n in self.tensors if n.startswith(prefix)}

    def projection_bias(self, expert, projection):
        name, rows = STACKED.get(projection, ("", None))
        if f"{self.module}.{name}_bias" in self.tensors:
            return self.tensor(f"{self.module}.{name}_bias", (expert, rows))
        name = f"{self.module}.{expert}.{projection}.bias"
        return self.tensor(name) if name in self.tensors else 0


def shards(directory):
    """The safetensors files that the index names, all without one."""
    try:
        with open(os.path.join(directory, "model.safetensors.index.json")) as f:
            return sorted(set(json.load(f)["weight_map"].values()))
    except FileNotFoundError:
        return sorted(n for n in os.listdir(directory) if n.endswith(".safetensors"))


# ---- the layer ---------------------------------------------------------------------------------
def route(logits, top_k, renormalize):
    """Ids by descending logit, ties to the lowest id, and their softmax weights."""
    ids = np.argsort(-logits, kind="stable")[:top_k]
    e = exp(logits - logits.max())
    if renormalize:
        total = F32(0)
        for i in ids:
            total = total + e[i]
    else:  # 16 partial sums over all experts, folded
        padded = np.concatenate([e, np.zeros(-len(e) % 16, F32)]).reshape(-1, 16)
        total = np.zeros(16, F32)
        for row in padded:
            total = total + row
        while len(total) > 1:
            total = total[: len(total) // 2] + total[len(total) // 2:]
        total = total[0]
    return ids, e[ids] / total


def route_groups(checkpoint, logits):
    """DeepSeek-V3: by descending sigmoid + bias in the best groups, ties to the lowest id or group; a group's
    score is the sum of its two best. The weights are the scores without the bias."""
    scores = F32(1) / (F32(1) + exp(-logits))
    keys = (scores + checkpoint.bias).reshape(checkpoint.groups, -1)
    best = np.sort(keys, axis=1)
    order = np.argsort(-(best[:, -1] + best[:, -2]), kind="stable")
    keys[order[checkpoint.kept_groups:]] = -np.inf
    ids = np.argsort(-keys.ravel(), kind="stable")[:checkpoint.top_k]
    weights = scores[ids]
    if checkpoint.renormalize:
        total = F32(0)
        for weight in weights:
            total = total + weight
        weights = weights / total
    return ids, weights


def quantize(x, even):
    """Asymmetric int8 of one row: (codes, 1/scale, -zero point), each step in float32."""
    low, high = min(F32(0), x.min()), max(F32(0), x.max())
    scale = F32(1) if low == high else F32(255) / (high - low)
    recip = F32(1) / scale
    dmin, dmax = low * scale, high * scale
    zero = -F32(128) - dmin if (F32(-128) + dmin) + (F32(127) + dmax) > 0 else F32(127) - dmax
    zero = np.rint(np.clip(zero, -128, 127))
    scaled = x * scale
    codes = np.rint(scaled) if even else half_away(scaled)
    if even:  # columns past the last whole 8 are rounded half away
        tail = len(x) // 8 * 8
        codes[tail:] = half_away(scaled[tail:])
    return np.clip(codes + zero, -128, 127).astype(np.int32), recip, int(-zero)


def matmul(x, codes, scales, group, dtype):
    """One row times int4 [N, K]: channel-wise, or group by group with bf16 scales."""
    n, k = codes.shape
    if group in (None, k):
        q, recip, z = quantize(x, even=dtype == "bfloat16")
        scale = scales[:, 0] if group is None else round_bf16(scales[:, 0])
        total = codes @ q + z * codes.sum(axis=1)
        return (F32(16) * total.astype(F32)) * ((scale * F32(0.0625)) * recip) + F32(0)
    q, recip, z = quantize(x, even=False)
    scales = round_bf16(scales)
    sums = (codes * q).reshape(n, k // group, group).sum(axis=2)
    acc = np.zeros(n, F32)
    for g in range(k // group):
        acc = fma(sums[:, g].astype(F32), scales[:, g], acc)
    halves = codes.reshape(n, k // 32, 2, 2, 8).sum(axis=(2, 4))  # [N, chunk, half]
    rsum = np.zeros(n, F32)
    for c in range(k // 32):
        for half in range(2):
            rsum = rsum + halves[:, c, half].astype(F32) * scales[:, c * 32 // group]
    return fma(rsum, F32(z), acc) * recip + F32(0)


def int4_expert(checkpoint, expert, rows):
    """One expert's output for some tokens [T, H], each for itself."""
    round_to, group, dtype = ROUND[checkpoint.dtype], checkpoint.group, checkpoint.dtype
    gate_up_down, out = [checkpoint.matrix(expert, name) for name in checkpoint.names], []
    for x in rows:
        gate, up = (round_to(matmul(x, *matrix, group, dtype)) for matrix in gate_up_down[:2])
        act = round_to(round_to(gate / (F32(1) + exp(-gate))) * up)
        out.append(matmul(act, *gate_up_down[2], group, dtype))
    return np.stack(out)


def float_matmul(checkpoint, x, expert, projection):
    """Rows [T, K] times codes [N, K] with a scale per block (0: all rows or columns), plus bias, in float64."""
    if checkpoint.tool:
        matrix = checkpoint.tool_matrix(expert, projection)
        x = x if matrix.inputs is None else x * matrix.inputs  # in float32, as both are
        return x.astype(np.float64) @ matrix.weights.T + checkpoint.projection_bias(expert, projection)
    codes, scales = checkpoint.matrix(expert, projection)
    n, k = codes.shape
    height, width = checkpoint.block[0] or n, checkpoint.block[1] or k
    scales, out = scales.astype(np.float64).reshape(-(-n // height), -1), np.zeros((len(x), n))
    for i, first in enumerate(range(0, k, width)):
        columns = slice(first, first + width)
        weights = codes[:, columns] if checkpoint.numbers is None else checkpoint.numbers[codes[:, columns]]
        sums = x[:, columns].astype(np.float64) @ weights.T
        out += sums * np.repeat(scales[:, i], height)[:n]
    return out + checkpoint.projection_bias(expert, projection)


def float_expert(checkpoint, expert, rows):
    """As int4_expert, with the activations as they are."""
    gate, up = (float_matmul(checkpoint, rows, expert, name) for name in checkpoint.names[:2])
    if checkpoint.limit:
        gate, up = np.minimum(gate, checkpoint.limit), np.clip(up, -checkpoint.limit, checkpoint.limit)
        act = (up + 1) * gate / (1 + np.exp(-1.702 * gate))
    else:
        act = gate / (1 + np.exp(-gate)) * up
    return float_matmul(checkpoint, ROUND[checkpoint.dtype](act), expert, checkpoint.names[2]).astype(F32)


def layer(checkpoint, x, logits):
    """The outputs of some tokens, as float32 values of the model's dtype."""
    chosen = [route(row, checkpoint.top_k, checkpoint.renormalize) if checkpoint.bias is None
              else route_groups(checkpoint, row) for row in logits]
    out = np.zeros(x.shape, F32)
    for expert in sorted({e for ids, _ in chosen for e in ids}):
        rows = [t for t, (ids, _) in enumerate(chosen) if expert in ids]
        weights = np.array([chosen[t][1][list(chosen[t][0]).index(expert)] for t in rows], F32)[:, None]
        out[rows] = fma(weights, checkpoint.expert(checkpoint, expert, x[rows]), out[rows])
    return ROUND[checkpoint.dtype](out * checkpoint.factor)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("output")
    parser.add_argument("--tokens", default="0,1,-1", help="rows to check; negative ones from the end")
    args = parser.parse_args()
    checkpoint = Checkpoint(args.checkpoint)
    kind = {"float32": F32, "float16": np.float16, "bfloat16": np.uint16}[checkpoint.dtype]

    def rows(path):
        data = np.fromfile(path, kind).reshape(-1, checkpoint.hidden)
        return bf16_to_f32(data) if checkpoint.dtype == "bfloat16" else data.astype(F32)

    hidden, found = rows(os.path.join(args.checkpoint, "hidden.bin")), rows(args.output)
    if found.shape != hidden.shape:
        sys.exit(f"verify: WRONG, {len(found)} tokens for {len(hidden)}")
    logits = np.fromfile(os.path.join(args.checkpoint, "logits.bin"), F32).reshape(-1, checkpoint.experts)
    tokens = sorted({int(t) % len(found) for t in args.tokens.split(",")})
    expected = layer(checkpoint, hidden[tokens], logits[tokens])
    error = float(np.abs(found[tokens] - expected).max() / np.abs(expected).max())
    equal = int((found[tokens].view(np.uint32) == expected.view(np.uint32)).sum())
    bound = checkpoint.bounds[checkpoint.dtype]
    right = error <= bound and bool(np.isfinite(found).all())
    print(f"verify: {'ok' if right else 'WRONG'}, {len(tokens)} of {len(found)} tokens, "
          f"largest error {error:.2g} of max|out| (bound {bound:.2g}), {equal} of {expected.size} values equal in every bit")
    sys.exit(not right)


if __name__ == "__main__":
    main()
