"""The files of AutoRound, Quark, ModelOpt, torchao, bitsandbytes and newer compressed-tensors for make_checkpoint: tensors
of a projection.

A row of TOOL_FORMATS says which numbers a format has, how its tensors hold them (a function of Weights), and its
quantization_config (checkpoint_configs.py). Weights.dense() is what a reader of the file must come to.
"""
from functools import partial
from typing import Callable, NamedTuple

import numpy as np

import checkpoint_configs as configs
from checkpoint_numbers import CODES, E2M1, E2M3, E4M3, SAFETENSORS_NAMES, draw, of_dtype, to_dtype

SIGNED = {"e4m3": np.concatenate([E4M3, [np.nan], -E4M3]), "e2m1": np.concatenate([E2M1, -E2M1]),
          "e2m3": np.concatenate([E2M3, -E2M3])}
BITS = {"int2": 2, "int3": 3, "int4": 4, "int5": 5, "int6": 6, "int7": 7}  # of codes that may have zeros
INPUTS_UP_TO = 5  # what a static scale of the inputs is made for


def by_element(grid, block, size):
    """A grid of blocks as a matrix of some size; blocks at its ends may be cut."""
    return np.repeat(np.repeat(grid, block[0], axis=0), block[1], axis=1)[:size[0], :size[1]]


class Weights(NamedTuple):
    """A projection [n, k]: (number of the code - zero) * scale of its block * total * factor of its column."""
    codes: np.ndarray  # [n, k]
    numbers: np.ndarray  # what the codes are; None: integers
    scale: np.ndarray  # [blocks down, blocks across], as stored
    scale_type: str
    block: tuple  # rows and columns that share a scale
    zeros: np.ndarray  # like scale, None: 0
    total: np.float32  # None: 1
    factors: np.ndarray  # of the layer's inputs, [k] as stored, None: 1
    dtype: str  # of the model

    def dense(self):
        """The weights that are meant, as float64."""
        values = self.codes.astype(np.float64) if self.numbers is None else self.numbers[self.codes]
        if self.zeros is not None:
            values = values - by_element(self.zeros, self.block, self.codes.shape)
        values = values * by_element(of_dtype(self.scale, self.scale_type), self.block, self.codes.shape)
        if self.total is not None:
            values = values * np.float64(self.total)
        return values if self.factors is None else values * of_dtype(self.factors, self.dtype)

    def scale_as(self, suffix, *shape):
        return suffix, SAFETENSORS_NAMES[self.scale_type], self.scale.reshape(shape) if shape else self.scale

    def one(self, suffix, number, kind="f32"):
        """A tensor of one number, without dimensions."""
        return suffix, SAFETENSORS_NAMES[kind], to_dtype([number], kind).reshape(())


# ---- packing -----------------------------------------------------------------------------------
IN_ORDER, AWQ_ORDER = (0, 1, 2, 3, 4, 5, 6, 7), (0, 4, 1, 5, 2, 6, 3, 7)  # the nibble of each of eight codes


def words(codes, nibbles=IN_ORDER):
    """[r, c] codes, of which four bits count, as [r, c / 8] words."""
    parts = (codes & 15).astype(np.uint32).reshape(codes.shape[0], -1, 8) << np.array([4 * n for n in nibbles], np.uint32)
    return np.bitwise_or.reduce(parts, axis=2)


def halves(codes):
    """[r, c] codes as [r, c / 2] bytes, the first in the low half."""
    return codes[:, 0::2] | (codes[:, 1::2] << 4)


def stream(codes, bits, dtype):
    """[r, c] codes of some bits without a gap, the first in the lowest bits, as bytes or words."""
    each = codes.astype(np.uint8)[:, :, None] >> np.arange(bits, dtype=np.uint8) & 1
    return np.packbits(each.reshape(len(codes), -1), axis=1, bitorder="little").view(dtype)


def turned(grid):
    return np.ascontiguousarray(grid.T)


# ---- the tensors of a projection: [(suffix, safetensors dtype, array)] ---------------------------
def gptq(w, zero_stored_less=1):
    return [("qweight", "I32", turned(words(w.codes))), ("qzeros", "I32", words(turned(w.zeros - zero_stored_less))),
            ("scales", "F16", turned(w.scale))]


def awq(w):
    return [("qweight", "I32", words(turned(w.codes), AWQ_ORDER)), ("qzeros", "I32", words(turned(w.zeros), AWQ_ORDER)),
            ("scales", "F16", turned(w.scale))]


def packed_fp4(w):
    """As compressed-tensors has it: a divisor of the whole matrix."""
    tensors = [("weight_packed", "U8", halves(w.codes)), w.scale_as("weight_scale")]
    if w.total is not None:
        tensors += [("weight_global_scale", "F32", np.array([1 / w.total], np.float32)),
                    ("input_global_scale", "F32", np.array([448 * 6 / INPUTS_UP_TO], np.float32))]
    return tensors


def fp4(w, input_scale="input_scale", largest_input=448 * 6):
    """A factor of the whole matrix, if any."""
    tensors = [("weight", "U8", halves(w.codes)), w.scale_as("weight_scale")]
    if w.total is not None:
        tensors += [w.one("weight_scale_2", w.total), w.one(input_scale, INPUTS_UP_TO / largest_input)]
    return tensors


def fp8_rows(w, input_scale=False):
    tensors = [("weight", "F8_E4M3", w.codes), w.scale_as("weight_scale", -1)]
    if input_scale:
        tensors.append(("input_scale", SAFETENSORS_NAMES[w.dtype], to_dtype([INPUTS_UP_TO / 448], w.dtype)))
    return tensors


def fp8_blocks(w):
    return [("weight", "F8_E4M3", w.codes), w.scale_as("weight_scale_inv")]


def fp8_matrix(w):
    scale = ("weight_scale", SAFETENSORS_NAMES[w.scale_type], w.scale.reshape(()))
    return [("weight", "F8_E4M3", w.codes), scale, w.one("input_scale", INPUTS_UP_TO / 448, w.scale_type)]


def quark_groups(w, nibbles=AWQ_ORDER):
    """AWQ's tensors under other names. Symmetric codes are two's complement around zeros of 0."""
    zeros = np.zeros(w.scale.shape, np.int8) if w.zeros is None else w.zeros
    return [("weight", "I32", words(turned(w.codes), nibbles)), w._replace(scale=turned(w.scale)).scale_as("weight_scale"),
            ("weight_zero_point", "I32", words(turned(zeros), nibbles))]


def quark_rows(w):
    n = len(w.codes)
    return [("weight", "I32", words(w.codes, AWQ_ORDER)), w.scale_as("weight_scale", -1),
            ("weight_zero_point", "I32", np.zeros(n // 8, np.uint32))]


def quark_int8(w):
    zero = np.zeros((), np.int8)
    return [("weight", "I8", w.codes), ("weight_scale", "F32", w.scale.reshape(())), ("weight_zero_point", "I8", zero),
            w.one("input_scale", INPUTS_UP_TO / 127), ("input_zero_point", "I8", zero)]


def with_factors(w, tensors):
    if w.factors is not None:
        tensors.append(("pre_quant_scale", SAFETENSORS_NAMES[w.dtype], w.factors))
    return tensors


def modelopt_int8(w, input_scale=False):
    tensors = [("weight", "I8", w.codes), w.scale_as("weight_scale", -1)]
    return with_factors(w, tensors + ([w.one("input_scale", INPUTS_UP_TO / 127)] if input_scale else []))


def modelopt_int4(w):
    """A byte has two rows of a column, the even one in the low half."""
    codes = w.codes.view(np.uint8) & 15
    return with_factors(w, [("weight", "U8", codes[0::2] | (codes[1::2] << 4)), w.scale_as("weight_scale")])


def torchao(w):
    tensors = [("_weight_qdata", "F8_E4M3" if w.numbers is not None else "I8", w.codes), w.scale_as("_weight_scale", -1, 1)]
    if w.numbers is None:
        tensors.append(("_weight_zero_point", "I8", np.zeros((len(w.codes), 1), np.int8)))
    return tensors


def dense_words(w, bits):
    """compressed-tensors 0.18 and later: codes and zeros count from the smallest, -2^(bits - 1)."""
    codes = w.codes + (1 << (bits - 1)) if w.zeros is None else w.codes
    tensors = [("weight_packed", "I32", stream(codes, bits, np.uint32)), w.scale_as("weight_scale"),
               ("weight_shape", "I64", np.array(codes.shape, np.int64))]
    if w.zeros is not None:
        tensors.append(("weight_zero_point", "I32", turned(stream(turned(w.zeros), bits, np.uint32))))
    return tensors


def mxfp6(w):
    return [("weight_packed", "U8", stream(w.codes, 6, np.uint8)), w.scale_as("weight_scale")]


def bitsandbytes_int8(w):
    """SCB is the largest weight of a row, 127 of its scales."""
    return [("weight", "I8", w.codes), ("SCB", "F32", w.scale.reshape(-1)), ("weight_format", "U8", np.zeros((), np.uint8))]


def bitsandbytes_router(router):
    """bitsandbytes takes a router for a linear layer like any other."""
    largest = np.abs(router).max(axis=1, keepdims=True)
    codes = np.rint(router * (127 / largest)).astype(np.int8)
    return [("weight", "I8", codes), ("SCB", "F32", largest.reshape(-1)), ("weight_format", "U8", np.zeros((), np.uint8))]


# ---- the formats -------------------------------------------------------------------------------
class ToolFormat(NamedTuple):
    codes: str  # of CODES
    scale_type: str  # "" = the model's
    block: Callable  # --group -> rows and columns of codes that share a scale, 0 = all
    tensors: Callable  # Weights -> [(suffix, safetensors dtype, array)]
    config: Callable  # Job -> quantization_config
    groups: tuple = ()  # of --group
    signed_scales: bool = False  # half of them are negative
    zeros: tuple = ()  # the smallest and largest zero of codes from 0 on; () = codes around 0
    scale_multiple: float = 1  # as many scales are what the file has as one
    has_total: bool = False  # the largest scale of a matrix is e4m3's largest number, a further factor makes up for it
    has_factors: bool = False  # the layer's inputs are multiplied, column by column
    first_layer: str = ""  # the format of layer 0 where that is another one
    stacked: bool = False  # a tensor holds all experts
    families: tuple = ("qwen3", "mixtral", "deepseek")
    router: Callable = None  # the router's matrix -> its tensors; None = one in the model's dtype
    metadata: Callable = None  # Job -> members of the safetensors files' __metadata__


def by_group(group):
    return 1, group


def by_row(_):
    return 1, 0


def by_matrix(_):
    return 0, 0


def by_square(group):
    return group, group


def by_16(_):
    return 1, 16


def by_32(_):
    return 1, 32


GROUPS = ("32", "64", "128")
ANY_ZERO = (4, 12)
WIDTHS = (2, 3, 5, 6, 7)


def dense(bits, block=by_group, zeros=()):
    return ToolFormat(f"int{bits}", "", block, partial(dense_words, bits=bits), partial(configs.dense_integers, bits, not zeros),
                      GROUPS if block is by_group else (), zeros=zeros)


auto_round, quark, modelopt, per_expert = configs.auto_round, configs.quark, configs.modelopt, configs.torchao_metadata
TOOL_FORMATS = {
    "auto-round-gptq": ToolFormat("int4", "f16", by_group, gptq, partial(auto_round, "auto_round:auto_gptq"), GROUPS,
                                  signed_scales=True, zeros=(8, 8)),
    "auto-round-awq": ToolFormat("int4", "f16", by_group, awq, partial(auto_round, "auto_round:auto_awq", sym=False), GROUPS,
                                 zeros=ANY_ZERO),
    "auto-round-v2": ToolFormat("int4", "f16", by_group, partial(gptq, zero_stored_less=0),
                                partial(auto_round, "auto_round", sym=False), GROUPS, zeros=ANY_ZERO),
    "auto-round-mxfp4": ToolFormat("e2m1", "e8m0", by_32, packed_fp4, configs.auto_round_mxfp4),
    "auto-round-nvfp4": ToolFormat("e2m1", "e4m3", by_16, packed_fp4, configs.auto_round_nvfp4, has_total=True),
    "auto-round-fp8-static": ToolFormat("e4m3", "", by_row, partial(fp8_rows, input_scale=True), configs.auto_round_fp8_static),
    "auto-round-fp8-block": ToolFormat("e4m3", "", by_square, fp8_blocks, configs.auto_round_fp8_block, GROUPS),
    "quark-mxfp4": ToolFormat("e2m1", "e8m0", by_32, fp4, partial(quark, "mxfp4")),
    "quark-fp8": ToolFormat("e4m3", "", by_matrix, fp8_matrix, partial(quark, "fp8")),
    "quark-ptpc-fp8": ToolFormat("e4m3", "", by_row, fp8_rows, partial(quark, "ptpc_fp8")),
    "quark-nvfp4": ToolFormat("e2m1", "e4m3", by_16, partial(fp4, input_scale="input_scale_2"), partial(quark, "nvfp4"),
                              has_total=True),
    "quark-int4": ToolFormat("int4", "", by_group, quark_groups, partial(quark, "int4_wo"), GROUPS),
    "quark-uint4": ToolFormat("int4", "", by_group, quark_groups, partial(quark, "uint4_wo"), GROUPS, zeros=ANY_ZERO),
    "quark-int4-order": ToolFormat("int4", "", by_group, partial(quark_groups, nibbles=IN_ORDER),
                                   partial(quark, "int4_wo", pack_method="order"), GROUPS),
    "quark-int4-channel": ToolFormat("int4", "", by_row, quark_rows, partial(quark, "int4_wo_per_channel")),
    "quark-int8": ToolFormat("int8", "f32", by_matrix, quark_int8, partial(quark, "int8")),
    "modelopt-fp8": ToolFormat("e4m3", "f32", by_matrix, fp8_matrix, partial(modelopt, "FP8")),
    "modelopt-mxfp4": ToolFormat("e2m1", "e8m0", by_32, fp4, partial(modelopt, "mxfp4")),
    "modelopt-w4a8-mxfp4-fp8": ToolFormat("e2m1", "e8m0", by_32, fp4, partial(modelopt, "W4A8_MXFP4_FP8")),
    "modelopt-nvfp4": ToolFormat("e2m1", "e4m3", by_16, fp4, partial(modelopt, "NVFP4"), has_total=True),
    "modelopt-w4a8-nvfp4-fp8": ToolFormat("e2m1", "e4m3", by_32, partial(fp4, largest_input=448),
                                          partial(modelopt, "W4A8_NVFP4_FP8"), has_total=True),
    "modelopt-w8a16": ToolFormat("int8", "f32", by_row, modelopt_int8, partial(modelopt, "W8A16")),
    "modelopt-w8a8": ToolFormat("int8", "f32", by_row, partial(modelopt_int8, input_scale=True),
                                partial(modelopt, "W8A8_SQ_PER_CHANNEL")),
    "modelopt-w8a8-smoothquant": ToolFormat("int8", "f32", by_row, partial(modelopt_int8, input_scale=True),
                                            partial(modelopt, "W8A8_SQ_PER_CHANNEL"), has_factors=True),
    "modelopt-int4": ToolFormat("int4", "f32", by_group, modelopt_int4, partial(modelopt, "W4A16_AWQ"), GROUPS),
    "modelopt-int4-awq": ToolFormat("int4", "f32", by_group, modelopt_int4, partial(modelopt, "W4A16_AWQ"), GROUPS,
                                    has_factors=True),
    "modelopt-mixed": ToolFormat("e2m1", "e4m3", by_16, fp4, configs.modelopt_mixed, has_total=True, first_layer="modelopt-fp8"),
    "torchao-int8": ToolFormat("int8", "f32", by_row, torchao, partial(configs.torchao, configs.TORCHAO_INT8),
                               metadata=partial(per_expert, configs.INT8_TENSOR)),
    "torchao-fp8": ToolFormat("e4m3", "f32", by_row, torchao, partial(configs.torchao, configs.TORCHAO_FP8),
                              metadata=partial(per_expert, configs.FP8_TENSOR)),
    "torchao-int8-stacked": ToolFormat("int8", "f32", by_row, torchao, configs.torchao_stacked, families=("qwen3", "deepseek"),
                                       stacked=True, metadata=configs.torchao_stacked_metadata),
    **{f"pack-w{bits}": dense(bits) for bits in WIDTHS},
    **{f"pack-w{bits}-asym": dense(bits, zeros=(1 << (bits - 2), 3 << (bits - 2))) for bits in WIDTHS},
    **{f"pack-w{bits}-channel": dense(bits, by_row) for bits in WIDTHS},
    "mxfp6": ToolFormat("e2m3", "e8m0", by_32, mxfp6, configs.mxfp6),
    "bitsandbytes-int8": ToolFormat("int8", "f32", by_row, bitsandbytes_int8, configs.bitsandbytes_int8, scale_multiple=127,
                                    router=bitsandbytes_router),
}


def format_of(name, layer):
    """The row that serves a layer."""
    row = TOOL_FORMATS[name]
    return TOOL_FORMATS[row.first_layer] if row.first_layer and layer == 0 else row


def draw_weights(row, group, dtype, bits, size, deviation, factors_seed):
    """A projection [n, k] in a format, its weights of some deviation. factors_seed: of what inputs are multiplied by."""
    (n, k), generator = size, np.random.Generator(bits)
    table, code_deviation = CODES[row.codes]
    codes = draw(bits, table(), n * k).reshape(n, k)
    block = tuple(side or whole for side, whole in zip(row.block(group), size))
    grid = -(-n // block[0]), -(-k // block[1])
    scale = np.exp(np.float32(0.25) * generator.standard_normal(grid, np.float32)) * np.float32(deviation / code_deviation)
    zeros = total = factors = None
    if row.signed_scales:
        scale *= generator.choice(np.array([-1, 1], np.float32), grid)
    if row.zeros:
        zeros = generator.integers(*row.zeros, grid, np.int8, endpoint=True)
        codes = np.clip(codes.astype(np.int16) + by_element(zeros, block, size), 0, (1 << BITS[row.codes]) - 1).astype(np.uint8)
    if row.has_total:
        total = scale.max() / np.float32(448)
        scale = scale / total
    if row.scale_multiple != 1:
        total, scale = 1 / row.scale_multiple, scale * np.float32(row.scale_multiple)
    if row.has_factors:  # their mean square is 1
        factors = np.random.default_rng(factors_seed).standard_normal(k, np.float32)
        factors = to_dtype(np.exp(np.float32(0.5) * factors - np.float32(0.25)), dtype)
    scale_type = row.scale_type or dtype
    return Weights(codes, SIGNED.get(row.codes), to_dtype(scale, scale_type), scale_type, block, zeros, total, factors, dtype)
