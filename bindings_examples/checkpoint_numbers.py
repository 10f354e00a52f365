"""The numbers of a checkpoint for make_checkpoint: how files store them, and tables of codes as real quantizers leave them."""
import functools
import statistics

import numpy as np

TORCH_NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
SAFETENSORS_NAMES = {"bf16": "BF16", "f16": "F16", "f32": "F32", "e8m0": "U8", "int4": "I8", "e4m3": "F8_E4M3"}

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])  # the codes 0..7; 8 more are their negatives
E2M3 = np.array([c / 8 if c < 8 else (8 + c % 8) * 2.0 ** (c // 8 - 4) for c in range(32)])
E4M3 = np.array([c * 2.0**-9 if c < 8 else (8 + c % 8) * 2.0 ** (c // 8 - 10) for c in range(127)])


def nearest(values, numbers):
    """Codes of the numbers, which ascend, that are nearest to positive values."""
    return np.searchsorted((numbers[1:] + numbers[:-1]) / 2, values).astype(np.uint8)


def to_dtype(values, dtype):
    """float32 -> the bytes of bf16 (nearest even, finite input), f16, f32, e8m0 (powers of two), or e4m3 (positive)."""
    values = np.ascontiguousarray(values, np.float32)
    if dtype == "bf16":
        bits = values.view(np.uint32)
        return ((bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16).astype(np.uint16)
    if dtype == "e8m0":
        return (127 + np.rint(np.log2(values))).astype(np.uint8)
    if dtype == "e4m3":
        return nearest(values, E4M3)
    return values.astype(np.float16 if dtype == "f16" else np.float32)


def of_dtype(stored, dtype):
    """What to_dtype's bytes are, as float64."""
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype == "e8m0":
        return np.exp2(stored.astype(np.float64) - 127)
    return E4M3[stored] if dtype == "e4m3" else stored.astype(np.float64)


@functools.cache
def int4_table():
    """256 equally likely codes: a normal distribution of deviation 2.8 in steps of the int4 grid."""
    normal = statistics.NormalDist(0.0, 2.8)
    steps = [round(normal.inv_cdf((i + 0.5) / 256)) for i in range(256)]
    return np.clip(steps, -8, 7).astype(np.int8)


@functools.cache
def small_int_table(bits):
    """As int4_table with steps for as many bits."""
    normal, end = statistics.NormalDist(0.0, 2.8 * 2.0 ** (bits - 4)), 1 << (bits - 1)
    return np.clip([round(normal.inv_cdf((i + 0.5) / 256)) for i in range(256)], -end, end - 1).astype(np.int8)


@functools.cache
def int8_table():
    """65536 equally likely codes: a normal distribution of deviation 31, of which both ends are in the table."""
    normal = statistics.NormalDist(0.0, 31.0)
    return np.clip([round(normal.inv_cdf((i + 0.5) / 65536)) for i in range(65536)], -128, 127).astype(np.int8)


@functools.cache
def e4m3_table():
    """65536 equally likely codes: a normal distribution of deviation 112, whose fourth multiple is
    the largest e4m3 number. Every finite code is there: the smallest, which are closer together than
    65536 steps are, once each."""
    normal = statistics.NormalDist(0.0, 112.0)
    magnitudes = [normal.inv_cdf(0.5 + i / 65536) for i in range(32768)]
    positive = np.minimum(nearest(magnitudes, E4M3), np.arange(32768)).astype(np.uint8)
    return np.concatenate([positive, positive | 0x80])


@functools.cache
def e2m1_table():
    """256 equally likely codes: a normal distribution of deviation 2; 8, the negative zero, is there as others are."""
    normal = statistics.NormalDist(0.0, 2.0)
    positive = nearest([normal.inv_cdf(0.5 + (i + 0.5) / 256) for i in range(128)], E2M1)
    return np.concatenate([positive, positive | 8])


@functools.cache
def e2m3_table():
    """256 equally likely codes: a normal distribution of deviation 2.5; 32, the negative zero, is there as others are."""
    normal = statistics.NormalDist(0.0, 2.5)
    positive = nearest([normal.inv_cdf(0.5 + (i + 0.5) / 256) for i in range(128)], E2M3)
    return np.concatenate([positive, positive | 32])


@functools.cache
def normal_table():
    """65536 equally likely numbers of a normal distribution of deviation 1."""
    normal = statistics.NormalDist(0.0, 1.0)
    return np.array([normal.inv_cdf((i + 0.5) / 65536) for i in range(65536)], np.float32)


#        equally likely codes, their deviation
CODES = {"int4": (int4_table, 2.8), "int8": (int8_table, 31.0), "e4m3": (e4m3_table, 112.0), "e2m1": (e2m1_table, 2.0),
         "normal": (normal_table, 1.0), "e2m3": (e2m3_table, 2.5),
         **{f"int{bits}": (functools.partial(small_int_table, bits), 2.8 * 2.0 ** (bits - 4)) for bits in (2, 3, 5, 6, 7)}}


def draw(bits, table, count):
    """`count` codes of a table; piece by piece, because memory that the system has just given is slow."""
    index, piece = np.dtype(np.uint8 if len(table) == 256 else np.uint16), 1 << 15
    codes = np.empty(count, table.dtype)
    for first in range(0, count, piece):
        part = codes[first:first + piece]
        drawn = bits.random_raw((part.size * index.itemsize + 7) // 8).view(index)[:part.size]
        np.take(table, drawn, out=part, mode="wrap")  # every index is in the table; wrap is the fast way
    return codes
