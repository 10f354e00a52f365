"""What the weights in files of AutoRound, Quark, ModelOpt, torchao, bitsandbytes, GPTQ, AWQ and, where inputs are not
quantized, of compressed-tensors are, for verify.py.

    read(quantization_config, module, tensors) -> Matrix

module is the experts' module; tensors are those of one projection of one expert by the last part of their names, numbers
as float32 or integers, but 8-bit floats as their codes and int32 words as uint32. Nothing is shared with make_checkpoint.
"""
from typing import NamedTuple

import numpy as np


class Matrix(NamedTuple):
    weights: np.ndarray  # [n, k] float64
    integers: bool = False  # whether the codes are
    inputs: np.ndarray = None  # what the layer multiplies its inputs by, [k]; None = 1


def e4m3_numbers():
    """What the 256 codes of e4m3 are; 0x7F and 0xFF are NaN."""
    code = np.arange(128)
    positive = np.where(code < 8, code * 2.0**-9, (8 + code % 8) * 2.0 ** (code // 8 - 10))
    positive[127] = np.nan
    return np.concatenate([positive, -positive])


E4M3 = e4m3_numbers()
E2M3 = np.array([sign * value for sign in (1, -1) for value in
                 [*np.arange(0, 2, 0.125), *np.arange(2, 4, 0.25), *np.arange(4, 8, 0.5)]])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
AWQ = [0, 4, 1, 5, 2, 6, 3, 7]  # which nibble of a word each of eight neighbours is


class Refused(Exception):
    """The reference does not know such a file."""


def halves(packed):
    """Two codes a byte, the first in the low half; rows of bytes, or of blocks of bytes."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)


def powers(scale):
    """What the codes of e8m0 are."""
    return np.exp2(scale.astype(np.float64) - 127)


def nibbles(words, order=range(8)):
    """[r, c] words as [r, 8 c] codes 0..15."""
    return np.stack([words >> np.uint32(4 * n) & 15 for n in order], axis=-1).reshape(len(words), -1).astype(np.int64)


def signed(codes):
    """Two's complement of four bits."""
    return (codes + 8) % 16 - 8


def scaled(numbers, scale):
    """[n, k] numbers times scales: of the matrix, of each row, or of groups of each row."""
    scale = np.asarray(scale, np.float64)
    scale = scale.reshape(-1, 1) if scale.ndim < 2 else scale
    (n, k), (rows, groups) = numbers.shape, scale.shape
    if rows not in (1, n) or k % groups:
        raise Refused(f"{scale.shape} scales of a {numbers.shape} matrix")
    return numbers * np.repeat(scale, k // groups, axis=1)


def blocks(numbers, scale, height, width):
    """[n, k] numbers times a scale for every block; blocks at the ends may be cut."""
    return numbers * scale.astype(np.float64).repeat(height, 0)[:len(numbers)].repeat(width, 1)[:, :numbers.shape[1]]


def fp4(packed, scale, factor=1.0):
    return Matrix(scaled(E2M1[halves(packed)], scale * np.float64(factor)))


def from_groups(codes, zeros, scales):
    """[k, n] codes with zeros and scales [groups, n]."""
    group = len(codes) // len(scales)
    of_row = np.arange(len(codes)) // group
    return Matrix(((codes - zeros[of_row]) * scales[of_row].astype(np.float64)).T, integers=True)


# ---- a function for each quant_method ----------------------------------------------------------
def gptq(quantization, tensors, one_less):
    """one_less: whether stored zeros are one less than the zeros."""
    bits = quantization["bits"]
    if bits not in (4, 8):
        raise Refused(f"{bits} bits")
    shifts, mask = np.arange(0, 32, bits, dtype=np.uint32), np.uint32(2**bits - 1)
    words, zeros, scales = (tensors[name] for name in ("qweight", "qzeros", "scales"))
    codes = (words[:, None, :] >> shifts[:, None] & mask).reshape(-1, words.shape[1]).astype(np.int64)
    zeros = (zeros[:, :, None] >> shifts & mask).reshape(len(zeros), -1).astype(np.int64) + one_less
    group_of = tensors.get("g_idx", np.arange(len(codes)) // (len(codes) // len(scales)))
    return Matrix(((codes - zeros[group_of]) * scales[group_of].astype(np.float64)).T, integers=True)


def awq(tensors):
    return from_groups(nibbles(tensors["qweight"], AWQ), nibbles(tensors["qzeros"], AWQ), tensors["scales"])


def auto_round(quantization, _, tensors):
    kind, packing = (quantization["data_type"], quantization["bits"]), quantization["packing_format"]
    if kind[0] == "int" and packing == "auto_round:auto_awq":
        return awq(tensors)
    if kind[0] == "int":
        return gptq(quantization, tensors, one_less=packing == "auto_round:auto_gptq")
    if kind == ("mx_fp", 4):
        return fp4(tensors["weight_packed"], powers(tensors["weight_scale"]))
    if kind == ("nv_fp", 4):
        return fp4(tensors["weight_packed"], E4M3[tensors["weight_scale"]], 1 / np.float64(tensors["weight_global_scale"][0]))
    if kind == ("fp", 8) and "weight_block_size" in quantization:
        return Matrix(blocks(E4M3[tensors["weight"]], tensors["weight_scale_inv"], *quantization["weight_block_size"]))
    if kind == ("fp", 8):
        return Matrix(scaled(E4M3[tensors["weight"]], tensors["weight_scale"]))
    raise Refused(f"auto-round with {kind}")


def quark(quantization, _, tensors):
    spec, weight, scale = quantization["global_quant_config"]["weight"], tensors["weight"], tensors["weight_scale"]
    if quantization["layer_quant_config"] or quantization["export"]["weight_format"] != "real_quantized":
        raise Refused("quark with a layer_quant_config or without real quantization")
    stages = spec if isinstance(spec, list) else [spec]
    kind = [stage["dtype"] for stage in stages]
    if kind == ["fp4", "fp8_e4m3"] and stages[1]["is_scale_quant"]:
        return fp4(weight, E4M3[scale], tensors["weight_scale_2"])
    if kind == ["fp4"] and spec["scale_format"] == "e8m0":
        return fp4(weight, powers(scale))
    if kind == ["fp8_e4m3"]:
        return Matrix(scaled(E4M3[weight], scale))
    if kind == ["int8"]:
        return Matrix(scaled(weight - tensors["weight_zero_point"].astype(np.float64), scale), integers=True)
    if kind not in (["int4"], ["uint4"]):
        raise Refused(f"quark with {kind}")
    order = AWQ if quantization["export"]["pack_method"] == "reorder" else range(8)
    codes, zeros = nibbles(weight, order), nibbles(np.atleast_2d(tensors["weight_zero_point"]), order)
    if kind == ["int4"]:
        codes, zeros = signed(codes), signed(zeros)
    if spec["qscheme"] == "per_group":
        return from_groups(codes, zeros, scale)
    return Matrix(scaled(codes - zeros.T, scale), integers=True)


def modelopt(quantization, module, tensors):
    algorithm, weight = quantization["quant_algo"], tensors["weight"]
    if algorithm == "MIXED_PRECISION":
        algorithm = quantization["quantized_layers"][module]["quant_algo"]
    scale = tensors["weight_scale"]
    if algorithm in ("mxfp4", "W4A8_MXFP4_FP8"):
        return fp4(weight, powers(scale))
    if algorithm in ("NVFP4", "W4A8_NVFP4_FP8"):
        return fp4(weight, E4M3[scale], tensors["weight_scale_2"])
    if algorithm == "FP8":
        return Matrix(scaled(E4M3[weight], scale))
    if algorithm == "W4A16_AWQ":
        weight = signed(np.stack([weight & 15, weight >> 4], axis=1).reshape(-1, weight.shape[1]).astype(np.int64))
    elif algorithm not in ("W8A16", "W8A8_SQ_PER_CHANNEL"):
        raise Refused(f"modelopt with {algorithm}")
    return Matrix(scaled(weight, scale), True, tensors.get("pre_quant_scale"))


def torchao(_, __, tensors):
    codes, scale = tensors["_weight_qdata"], tensors["_weight_scale"]
    if codes.dtype == np.uint8:
        return Matrix(scaled(E4M3[codes], scale))
    zeros = tensors.get("_weight_zero_point", np.zeros(scale.shape))
    return Matrix(scaled(codes, scale) - scaled(np.ones(codes.shape), zeros * scale.astype(np.float64)), integers=True)


def bitsandbytes(quantization, _, tensors):
    if not quantization["load_in_8bit"] or tensors["weight_format"] != 0:
        raise Refused("bitsandbytes of less than 8 bits, or not in rows")
    return Matrix(scaled(tensors["weight"], tensors["SCB"].astype(np.float64) / 127), integers=True)


def gptq_file(quantization, _, tensors):
    return gptq(quantization, tensors, one_less=quantization.get("checkpoint_format") != "gptq_v2")


def from_stream(words, bits, count):
    """The first codes of each row of words: code i begins at bit bits * i of the row, and may end in the next word."""
    first = np.arange(count) * bits
    pairs = np.pad(words, ((0, 0), (0, 1))).astype(np.uint64)
    pairs = pairs[:, first // 32] | pairs[:, first // 32 + 1] << np.uint64(32)
    return (pairs >> (first % 32).astype(np.uint64)).astype(np.int64) % 2**bits


def compressed_tensors(quantization, _, tensors):
    """Inputs are not quantized; W4A8 has a reference of its own."""
    weights, scale = quantization["config_groups"]["group_0"]["weights"], tensors["weight_scale"]
    if "weight_packed" not in tensors or weights["type"] not in ("int", "float"):
        raise Refused(f"compressed-tensors with {weights}")
    bits, packed = weights["num_bits"], tensors["weight_packed"]
    if weights["type"] == "float":
        if (bits, weights["group_size"]) != (6, 32):
            raise Refused(f"compressed-tensors with {weights}")
        three = packed.reshape(len(packed), -1, 3).astype(np.uint32)
        four = three[:, :, 0] + 256 * three[:, :, 1] + 65536 * three[:, :, 2]
        codes = np.stack([four // 64**place % 64 for place in range(4)], axis=-1).reshape(len(packed), -1)
        return Matrix(scaled(E2M3[codes], powers(scale)))
    rows, columns = tensors["weight_shape"]
    codes = from_stream(packed, bits, columns) - 2 ** (bits - 1)
    if weights["symmetric"]:
        return Matrix(scaled(codes, scale), integers=True)
    zeros = from_stream(tensors["weight_zero_point"].T, bits, rows).T - 2 ** (bits - 1)
    return Matrix(scaled(codes - np.repeat(zeros, columns // zeros.shape[1], axis=1), scale), integers=True)


TOOLS = {"auto-round": auto_round, "quark": quark, "modelopt": modelopt, "torchao": torchao, "bitsandbytes": bitsandbytes,
         "gptq": gptq_file, "awq": lambda _, __, tensors: awq(tensors)}


def read(quantization, module, tensors):
    return TOOLS.get(quantization["quant_method"], compressed_tensors)(quantization, module, tensors)
