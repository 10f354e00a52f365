"""The cases of against_tools: what each tool is asked to write, and what libmoe must say to it."""
from typing import Any, NamedTuple

ENVIRONMENTS = {  # name: what pip installs
    "auto-round": ["auto-round==0.16.1", "compressed-tensors==0.20.0", "torchao==0.18.0", "bitsandbytes==0.50.2",
                   "transformers==5.24.0", "torch==2.15.0", "accelerate", "datasets"],
    "modelopt": ["nvidia-modelopt[hf]==0.47.0", "transformers==5.14.1", "torch==2.15.0"],
    "modelopt-4": ["nvidia-modelopt[hf]==0.47.0", "transformers==4.57.6", "torch==2.15.0"],  # experts are modules there
    "quark": ["amd-quark==0.13", "transformers==5.24.0", "torch==2.15.0", "accelerate"],
    "transformers-4": ["torchao==0.18.0", "bitsandbytes==0.50.2", "hqq==0.2.8.post1", "transformers==4.57.6",
                       "torch==2.15.0", "accelerate"],
}
LAYERS, TOP_K = 2, 2  # of every model; what is compared is the last layer
AGREES, REFUSED, UNMADE = "agrees", "refused", "unmade"


class Case(NamedTuple):
    environment: str
    tool: str  # its module is with_<tool>
    scheme: str  # the tool's own words
    model: str
    arguments: dict[str, Any]  # of the tool
    expected: str = AGREES
    says: str = ""  # a regular expression for the message of a refusal, libmoe's or the tool's

    @property
    def name(self):
        """Of a folder, and what --only is matched with."""
        old = "-4" if self.environment.endswith("-4") else ""
        return f"{self.tool}{old}.{self.scheme}.{self.model}".replace(",", "").replace(" ", "-")


def table(environment, tool, rows, models=("qwen3",)):
    """Rows: scheme, arguments, and for what does not agree (expected, says)."""
    return [Case(environment, tool, scheme, model, arguments, *rest) for model in models for scheme, arguments, *rest in rows]


# --- AutoRound --------------------------------------------------------------------------------------------------------
def rounded(scheme, export="auto_round", **settings):
    return {"scheme": scheme, "export": export, "settings": {"iters": 0, "disable_opt_rtn": True, **settings}}


AUTO_ROUND = [
    ("W4A16 g128", rounded("W4A16")),
    ("W4A16 g32", rounded("W4A16", group_size=32)),
    ("W4A16 g32 asym", rounded("W4A16", group_size=32, sym=False)),
    ("W4A16 g32 tuned", rounded("W4A16", group_size=32, iters=2, disable_opt_rtn=False, enable_torch_compile=False)),
    ("W8A16", rounded("W8A16")),
    ("W8A16 channel", rounded("W8A16", group_size=-1)),
    ("MXFP4", rounded("MXFP4")),
    ("MXFP8", rounded("MXFP8")),
    ("NVFP4", rounded("NVFP4")),
    ("FP8_STATIC", rounded("FP8_STATIC")),
    ("FP8_BLOCK", rounded("FP8_BLOCK")),
    ("FPW8A16", rounded("FPW8A16")),
    ("W4A16 auto_gptq", rounded("W4A16", "auto_gptq")),
    ("W4A16 g32 asym auto_gptq", rounded("W4A16", "auto_gptq", group_size=32, sym=False)),
    ("W8A16 auto_gptq", rounded("W8A16", "auto_gptq")),
    ("W4A16 auto_awq", rounded("W4A16", "auto_awq")),
    ("W4A16 g32 asym auto_awq", rounded("W4A16", "auto_awq", group_size=32, sym=False)),
    ("W4A16 g32 llm_compressor", rounded("W4A16", "llm_compressor", group_size=32)),
    ("W4A16 asym llm_compressor", rounded("W4A16", "llm_compressor", sym=False)),
    ("INT8 llm_compressor", rounded("INT8", "llm_compressor")),
    ("MXFP4 llm_compressor", rounded("MXFP4", "llm_compressor")),
    ("MXFP8 llm_compressor", rounded("MXFP8", "llm_compressor")),
    ("NVFP4 llm_compressor", rounded("NVFP4", "llm_compressor")),
    ("FP8_STATIC llm_compressor", rounded("FP8_STATIC", "llm_compressor")),
    ("FP8_BLOCK llm_compressor", rounded("FP8_BLOCK", "llm_compressor")),
    ("W8A16 g32", rounded("W8A16", group_size=32)),
    ("MXFP4_RCEIL", rounded("MXFP4_RCEIL")),
    ("MXFP8_RCEIL", rounded("MXFP8_RCEIL")),
    ("W4A16_MIXED", rounded("W4A16_MIXED")),
    ("W4A16, layer 0 of 8 bits", rounded("W4A16", layer_config={"model.layers.0.mlp.experts": {"bits": 8}})),
    ("INT4 llm_compressor", rounded("INT4", "llm_compressor"), UNMADE, "Currently only support"),
    ("MXFP6", rounded("MXFP6"), UNMADE, "4,8 bits"),
    ("W8A16 asym", rounded("W8A16", sym=False), UNMADE, "8-bit asymmetric"),
    ("W5A16", rounded("W5A16"), UNMADE, "bits=5"),
    ("W6A16", rounded("W6A16"), UNMADE, "bits=6"),
    ("W3A16", rounded("W3A16"), REFUSED, "3-bit int"),
    ("W2A16 g32", rounded("W2A16G32"), REFUSED, "2-bit int"),
    ("W2A16 g32 asym", rounded("W2A16G32", sym=False), REFUSED, "2-bit int"),
    ("MXINT4", rounded("MXINT4"), REFUSED, "MXINT4"),
    ("NVFP4_E5M3", rounded("NVFP4_E5M3"), REFUSED, "NVFP4_E5M3"),
]
AUTO_ROUND_OTHERS = [row for row in AUTO_ROUND if row[0] in (
    "W4A16 g32", "W4A16 g32 asym", "W8A16", "MXFP4", "MXFP8", "NVFP4", "FP8_STATIC", "W4A16 auto_gptq",
    "W4A16 g32 asym auto_awq", "W4A16 g32 llm_compressor")]

# --- ModelOpt: names of its configs; "MIXED" is FP8 with NVFP4 experts --------------------------------------------------
MODELOPT = [(scheme, {"config": config}, *rest) for scheme, config, *rest in [
    ("FP8", "FP8_DEFAULT_CFG"),
    ("FP8_PER_CHANNEL_PER_TOKEN", "FP8_PER_CHANNEL_PER_TOKEN_CFG"),
    ("FP8_PB_WO", "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG"),
    ("NVFP4", "NVFP4_DEFAULT_CFG"),
    ("NVFP4 experts only", "NVFP4_EXPERTS_ONLY_CFG"),
    ("NVFP4 MLP only", "NVFP4_MLP_ONLY_CFG"),
    ("W4A16_NVFP4", "W4A16_NVFP4_CFG"),
    ("W4A8_NVFP4_FP8", "W4A8_NVFP4_FP8_CFG"),
    ("MXFP8", "MXFP8_DEFAULT_CFG"),
    ("MXFP4", "MXFP4_DEFAULT_CFG"),
    ("MXFP4 MLP only", "MXFP4_MLP_WEIGHT_ONLY_CFG"),
    ("W4A8_MXFP4_FP8", "W4A8_MXFP4_FP8_CFG"),
    ("W8A16", "INT8_WEIGHT_ONLY_CFG"),
    ("W8A8", "INT8_DEFAULT_CFG"),
    ("SmoothQuant", "INT8_SMOOTHQUANT_CFG"),
    ("MIXED_PRECISION", "MIXED"),
    ("MXINT8", "MXINT8_DEFAULT_CFG", UNMADE, "not subscriptable"),
    ("MXFP6", "MXFP6_DEFAULT_CFG", UNMADE, "num_bits"),
    ("NVFP4 AWQ", "NVFP4_AWQ_LITE_CFG", UNMADE),
    ("NVFP4 SVD", "NVFP4_SVDQUANT_DEFAULT_CFG", UNMADE),
    ("NVFP4 four over six", "NVFP4_FOUR_OVER_SIX_CFG", UNMADE),
    ("INT4 AWQ", "INT4_AWQ_CFG", UNMADE),
]]
MODELOPT_OTHERS = [row for row in MODELOPT if row[0] in (
    "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4", "W4A16_NVFP4", "MXFP8", "MXFP4", "W8A16")]
# Its scales of rows and of 32 columns do not know gpt-oss's experts, whose inputs come first.
MODELOPT_GPT_OSS = [row if row[0] in ("FP8", "NVFP4", "W4A16_NVFP4") else (*row, UNMADE, "size of tensor")
                    for row in MODELOPT_OTHERS]
MODELOPT_4 = [(scheme, {"config": config}, *rest) for scheme, config, *rest in [
    ("INT4 AWQ", "INT4_AWQ_CFG"),
    ("INT4 blockwise", "INT4_BLOCKWISE_WEIGHT_ONLY_CFG"),
    ("SmoothQuant", "INT8_SMOOTHQUANT_CFG"),
    ("FP8", "FP8_DEFAULT_CFG"),
    ("NVFP4", "NVFP4_DEFAULT_CFG"),
    ("MIXED_PRECISION", "MIXED"),
    ("W4A8 AWQ", "W4A8_AWQ_BETA_CFG", UNMADE),
]]

# --- Quark: schemes of its templates ------------------------------------------------------------------------------------
def quarked(scheme, layers=None, **export):
    """`layers`: patterns of modules with a scheme of their own."""
    return {"scheme": scheme, "layers": layers, "export": export}


QUARK = [
    ("mxfp4", quarked("mxfp4")),
    ("mxfp4_weight_only", quarked("mxfp4_weight_only")),
    ("mxfp4_mxfp6_e2m3", quarked("mxfp4_mxfp6_e2m3")),
    ("mxfp4_fp8", quarked("mxfp4_fp8")),
    ("nvfp4", quarked("nvfp4")),
    ("fp8", quarked("fp8")),
    ("ptpc_fp8", quarked("ptpc_fp8")),
    ("int8", quarked("int8")),
    ("int4_wo_128", quarked("int4_wo_128")),
    ("int4_wo_32 order", quarked("int4_wo_32", pack_method="order")),
    ("int4_wo_per_channel", quarked("int4_wo_per_channel")),
    ("uint4_wo_32", quarked("uint4_wo_32")),
    ("uint4_wo_per_channel", quarked("uint4_wo_per_channel")),
    ("uint4_wo_128 as awq", quarked("uint4_wo_128", custom_mode="awq"), UNMADE, "custom mode"),
    ("fp8 as fp8", quarked("fp8", custom_mode="fp8")),
    ("fp8, experts mxfp4", quarked("fp8", {"*.experts.*": "mxfp4"})),
    ("mxfp4 fake_quantized", quarked("mxfp4", weight_format="fake_quantized"), REFUSED, "fake_quantized"),
    ("mxfp6_e3m2", quarked("mxfp6_e3m2"), REFUSED, "fp6_e3m2"),
    ("mxfp6_e2m3", quarked("mxfp6_e2m3"), REFUSED, "fp6_e2m3"),
    ("int4_fp8", quarked("int4_fp8"), REFUSED),
]
QUARK_OTHERS = [row for row in QUARK if row[0] in (
    "mxfp4", "nvfp4", "fp8", "ptpc_fp8", "int8", "int4_wo_128", "uint4_wo_32", "uint4_wo_per_channel")]

# --- quantizers of transformers: torchao, bitsandbytes, HQQ -------------------------------------------------------------
EXPERTS_ALONE = [("Int8 experts", {"experts": "Int8WeightOnlyConfig"}),
                 ("Int8 experts g32", {"experts": "Int8WeightOnlyConfig", "group": 32}),
                 ("Int8 dynamic experts", {"experts": "Int8DynamicActivationInt8WeightConfig"}),
                 ("Float8 experts", {"experts": "Float8WeightOnlyConfig"})]
TORCHAO_5 = [  # experts stay plain unless names say so
    ("Int8WeightOnly", {"config": "Int8WeightOnlyConfig"}),
    ("Int8DynamicActivation", {"config": "Int8DynamicActivationInt8WeightConfig"}),
    ("Float8WeightOnly", {"config": "Float8WeightOnlyConfig"}),
    ("Int4WeightOnly", {"config": "Int4WeightOnlyConfig", "settings": {"group_size": 32}}, UNMADE, "conversion of the weights"),
    *EXPERTS_ALONE]
TORCHAO_4 = [
    ("Float8WeightOnly", {"config": "Float8WeightOnlyConfig"}),
    ("Int8WeightOnly", {"config": "Int8WeightOnlyConfig"}, UNMADE, "not serializable"),
    ("Int4WeightOnly", {"config": "Int4WeightOnlyConfig", "settings": {"group_size": 32}}, UNMADE, "mslk")]
BITSANDBYTES_5 = [  # experts stay plain
    ("int8", {"load_in_8bit": True}),
    ("nf4", {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"})]
BITSANDBYTES_4 = [
    ("int8", {"load_in_8bit": True}),
    ("nf4", {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, REFUSED, "nf4"),
    ("nf4 double", {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}, REFUSED, "nf4"),
    ("fp4", {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}, REFUSED, "fp4")]
HQQ = [("4 bits g64", {"nbits": 4, "group_size": 64}, REFUSED, "hqq"),
       ("8 bits g128", {"nbits": 8, "group_size": 128}, REFUSED, "hqq")]

# --- compressed-tensors: its presets, scales by its calculate_qparams ---------------------------------------------------
COMPRESSED = [(preset, {"preset": preset}, *rest) for preset, *rest in [
    ("W4A16",), ("W4A16_ASYM",), ("W8A16",), ("W8A8",), ("W4A8",), ("W4AFP8",), ("FP8_DYNAMIC",), ("MXFP4A16",),
    ("MXFP8",), ("MXFP8A16",), ("MXFP4XFP8",),
    ("W2A16",), ("W3A16",), ("W5A16",), ("W6A16",), ("W7A16",), ("MXFP6A16",)]]

CASES = [
    *table("auto-round", "auto-round", AUTO_ROUND), *table("auto-round", "auto-round", AUTO_ROUND_OTHERS, ("mixtral", "gptoss")),
    *table("modelopt", "modelopt", MODELOPT), *table("modelopt", "modelopt", MODELOPT_OTHERS, ("mixtral",)),
    *table("modelopt", "modelopt", MODELOPT_GPT_OSS, ("gptoss",)),
    *table("modelopt-4", "modelopt", MODELOPT_4, ("qwen3", "mixtral")),
    *table("quark", "quark", QUARK), *table("quark", "quark", QUARK_OTHERS, ("mixtral", "gptoss")),
    *table("auto-round", "torchao", TORCHAO_5), *table("auto-round", "torchao", EXPERTS_ALONE, ("mixtral",)),
    *table("transformers-4", "torchao", TORCHAO_4, ("qwen3", "mixtral")),
    *table("auto-round", "bitsandbytes", BITSANDBYTES_5),
    *table("transformers-4", "bitsandbytes", BITSANDBYTES_4, ("qwen3", "mixtral")),
    *table("transformers-4", "hqq", HQQ),
    *table("auto-round", "compressed-tensors", COMPRESSED),
]
BY_NAME = {case.name: case for case in CASES}
