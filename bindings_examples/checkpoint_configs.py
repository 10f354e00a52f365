"""The quantization_config that AutoRound 0.16, Quark 0.13, ModelOpt 0.47, torchao 0.18, bitsandbytes 0.50 and
compressed-tensors 0.20 write."""
import json
import re
from typing import NamedTuple

from checkpoint_numbers import TORCH_NAMES


class Job(NamedTuple):
    """What is to be written: make_checkpoint's options, Shape and Family."""
    args: object
    shape: object
    family: object

    def modules(self, name):
        """The modules of a name in all layers."""
        return [f"model.layers.{layer}.{name}" for layer in range(self.args.layers)]

    @property
    def routers(self):
        return self.modules(self.family.router)


# ---- AutoRound ---------------------------------------------------------------------------------
def auto_round(packing, job, data_type="int", bits=4, group_size=None, sym=True, activations=None, **more):
    """activations: members that tell how inputs are quantized at run time."""
    plain = {"bits": 16, "data_type": "float"}
    if activations:
        plain = {"act_bits": 16, "act_data_type": "float", **plain}
    return dict(sorted({
        "autoround_version": "0.16.1", "bits": bits, "block_name_to_quantize": "model.layers", "data_type": data_type,
        "enable_quanted_input": False, "extra_config": {f".*{re.escape(router)}.*": plain for router in job.routers},
        "group_size": job.args.group if group_size is None else group_size, "packing_format": packing,
        "quant_method": "auto-round", "sym": sym, **(activations or {}), **more}.items()))


def inputs(bits, data_type, group_size, dynamic=True):
    return {"act_bits": bits, "act_data_type": data_type, "act_dynamic": dynamic, "act_group_size": group_size, "act_sym": True}


def auto_round_mxfp4(job):
    return auto_round("auto_round:llm_compressor", job, "mx_fp", group_size=32, activations=inputs(4, "mx_fp", 32))


def auto_round_nvfp4(job):
    return auto_round("auto_round:llm_compressor", job, "nv_fp", group_size=16,
                      activations=inputs(4, "nv_fp4_with_static_gs", 16))


def auto_round_fp8_static(job):
    return auto_round("auto_round:fp8_static", job, "fp", 8, -1, activations=inputs(8, "fp", 0, dynamic=False),
                      activation_scheme="static", fmt="e4m3")


def auto_round_fp8_block(job):
    side = job.args.group
    return auto_round("auto_round:fp8", job, "fp", 8, [side, side], activations=inputs(8, "fp", side),
                      activation_scheme="dynamic", fmt="e4m3", ignored_layers=job.routers, weight_block_size=[side, side])


# ---- Quark -------------------------------------------------------------------------------------
def tensor_spec(dtype, observer, qscheme, **more):
    return {"block_size": None, "ch_axis": None, "dtype": dtype, "enable_buffer_reuse": False, "group_size": None,
            "is_dynamic": False, "is_scale_quant": False, "max_input_numel": 4194304, "mx_element_dtype": None,
            "observer_cls": observer, "qscheme": qscheme, "round_method": "half_even", "scale_calculation_mode": None,
            "scale_format": None, "scale_type": "float", "symmetric": True, "zero_point_type": "int32", **more}


def quark_groups(dtype, symmetric):
    return tensor_spec(dtype, "PerGroupMinMaxObserver", "per_group", ch_axis=-1, symmetric=symmetric)


def quark_rows(dtype, **more):
    return tensor_spec(dtype, "PerChannelMinMaxObserver", "per_channel", **{"ch_axis": 0, **more})


def quark_fp4(**more):
    return tensor_spec("fp4", "PerBlockMXObserver", "per_group", ch_axis=-1, symmetric=None, **more)


def quark_mxfp4(**more):
    return quark_fp4(group_size=32, scale_calculation_mode="even", scale_format="e8m0", **more)


def quark_nvfp4(**more):
    """The second stage quantizes the scales of the first."""
    return [quark_fp4(group_size=16, scale_format="float32", scale_type="float32", **more),
            {**QUARK_FP8, "is_scale_quant": True, "scale_type": "float32"}]


DYNAMIC = {"is_dynamic": True}
QUARK_FP8 = tensor_spec("fp8_e4m3", "PerTensorMinMaxObserver", "per_tensor")
QUARK_INT8 = tensor_spec("int8", "PerTensorMinMaxObserver", "per_tensor")
QUARK_SCHEMES = {  # weights, inputs; a group_size of None is --group
    "mxfp4": (quark_mxfp4(), quark_mxfp4(**DYNAMIC)),
    "fp8": (QUARK_FP8, QUARK_FP8),
    "ptpc_fp8": (quark_rows("fp8_e4m3"), quark_rows("fp8_e4m3", ch_axis=1, **DYNAMIC)),
    "nvfp4": (quark_nvfp4(), quark_nvfp4(**DYNAMIC)),
    "int4_wo": (quark_groups("int4", True), None),
    "uint4_wo": (quark_groups("uint4", False), None),
    "int4_wo_per_channel": (quark_rows("int4"), None),
    "int8": (QUARK_INT8, QUARK_INT8),
}


def quark(scheme, job, pack_method="reorder"):
    weight, activations = QUARK_SCHEMES[scheme]
    if scheme in ("int4_wo", "uint4_wo"):
        weight = {**weight, "group_size": job.args.group}
    routers = [] if job.shape.family == "mixtral" else job.routers  # transformers 5 has no linear layer for Mixtral's
    return {
        "algo_config": None, "exclude": [*routers, "lm_head"],
        "export": {"kv_cache_group": [], "min_kv_scale": 0.0, "pack_method": pack_method,
                   "weight_format": "real_quantized", "weight_merge_groups": None},
        "global_quant_config": {"bias": None, "input_tensors": activations, "output_tensors": None, "target_device": None,
                                "weight": weight},
        "kv_cache_post_rope": False, "kv_cache_quant_config": {}, "layer_quant_config": {}, "layer_type_quant_config": {},
        "quant_method": "quark", "quant_mode": "eager_mode", "softmax_quant_spec": None, "version": "0.13"}


# ---- ModelOpt ----------------------------------------------------------------------------------
def modelopt_group(algorithm):
    """What config_groups say of an algorithm: {} = it has none."""
    if algorithm == "FP8":
        both = {"dynamic": False, "num_bits": 8, "type": "float"}
    elif algorithm == "NVFP4":
        both = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    else:
        return {}
    return {"input_activations": both, "weights": both}


def modelopt(algorithm, job, ignore=None, **more):
    group = modelopt_group(algorithm)
    groups = {"config_groups": {"group_0": {**group, "targets": ["Linear"]}}} if group else {}
    return {**groups, **more, "ignore": ["lm_head", "model.embed_tokens", *job.routers] if ignore is None else ignore,
            "quant_algo": algorithm, "producer": {"name": "modelopt", "version": "0.47.0"}, "quant_method": "modelopt"}


def modelopt_file(config, group):
    """hf_quant_config.json of a config.json's object: the one place that has the group size of W4A16_AWQ."""
    return {"producer": config["producer"],
            "quantization": {"quant_algo": config["quant_algo"], "kv_cache_quant_algo": None, "group_size": group,
                             "has_zero_point": False, "pre_quant_scale": True, "exclude_modules": config["ignore"]}}


def modelopt_mixed(job):
    """The first layer's experts are FP8, the others' NVFP4. What quantized_layers do not name is not quantized."""
    first, *others = job.modules(job.family.module)
    layers = {first: {"quant_algo": "FP8"}, **{module: {"quant_algo": "NVFP4", "group_size": 16} for module in others}}
    groups = [{**modelopt_group("FP8"), "targets": [first]}]
    if others:
        groups.append({**modelopt_group("NVFP4"), "targets": sorted(others)})
    return modelopt("MIXED_PRECISION", job, [], config_groups={f"group_{i}": group for i, group in enumerate(groups)},
                    quantized_layers=layers)


# ---- compressed-tensors 0.20 --------------------------------------------------------------------
def compressed(job, layout, **weights):
    """Its arguments leave out what is not set. Inputs are not quantized."""
    group = {"targets": ["Linear"], "weights": {"dynamic": False, **weights}, "input_activations": None,
             "output_activations": None, "format": layout}
    return {"config_groups": {"group_0": group}, "format": layout, "global_compression_ratio": None,
            "ignore": ["lm_head", *job.routers], "kv_cache_scheme": None, "quant_method": "compressed-tensors",
            "quantization_status": "compressed", "sparsity_config": {}, "transform_config": {}, "version": "0.20.0"}


def dense_integers(bits, symmetric, job):
    return compressed(job, "pack-quantized", num_bits=bits, type="int", symmetric=symmetric, group_size=job.args.group or None,
                      strategy="group" if job.args.group else "channel")


def mxfp6(job):
    return compressed(job, "mxfp6-pack-quantized", num_bits=6, type="float", symmetric=True, group_size=32, strategy="group",
                      scale_dtype="torch.uint8")


# ---- torchao -----------------------------------------------------------------------------------
def typed(name, version, **data):
    return {"_data": data, "_type": name, "_version": version}


PER_ROW = typed("PerRow", 1, dim=-1)
TORCHAO_INT8 = typed("Int8WeightOnlyConfig", 2, granularity=PER_ROW, group_size=None, set_inductor_config=True)
TORCHAO_FP8 = typed("Float8WeightOnlyConfig", 2, granularity=PER_ROW, set_inductor_config=True,
                    weight_dtype={"_data": "float8_e4m3fn", "_type": "torch.dtype"})


def torchao(config, _):
    """As transformers 4.57 writes it."""
    return {"include_input_output_embeddings": False, "modules_to_not_convert": None, "quant_method": "torchao",
            "quant_type": {"default": config}, "quant_type_kwargs": {}, "untie_embedding_weights": False}


def torchao_stacked(job):
    """As transformers 5 writes it."""
    by_name = {"_default": None, **{f"re:.*\\.experts\\.{name}": TORCHAO_INT8 for name in ("down_proj", "gate_up_proj")}}
    config = torchao(typed("FqnToConfig", 1, fqn_to_config=by_name, module_fqn_to_config=by_name), job)
    del config["quant_type_kwargs"]
    return config


INT8_TENSOR = ("Int8Tensor", ["zero_point", "qdata", "scale"], {"act_quant_kwargs": None, "reduce_range": False})
FP8_TENSOR = ("Float8Tensor", ["qdata", "scale"],
              {"mm_config": None, "act_quant_kwargs": None, "kernel_preference": {"_type": "KernelPreference", "_data": "AUTO"}})


def tensor_entry(kind, block, dtype):
    name, parts, members = kind
    data = {**members, "block_size": block, "dtype": {"_type": "torch.dtype", "_data": dtype}}
    return json.dumps({"_type": name, "_data": data, "_tensor_data_names": parts})


def with_names(job, entries):
    entries.update((f"{router}.weight", json.dumps({"_type": "Tensor"})) for router in job.routers)
    return {**entries, "tensor_names": json.dumps(list(entries))}


def torchao_metadata(kind, job):
    """Every file's metadata has all quantized matrices of the model: their class, and which tensors are its parts."""
    dtype = TORCH_NAMES[job.args.dtype]
    columns = (job.shape.hidden, job.shape.hidden, job.shape.intermediate)
    return with_names(job, {
        f"{module}.{expert}.{name}.weight": tensor_entry(kind, [1, width], dtype)
        for module in job.modules(job.family.module) for expert in range(job.shape.experts)
        for name, width in zip(job.family.projections, columns)})


def torchao_stacked_metadata(job):
    dtype = TORCH_NAMES[job.args.dtype]
    return with_names(job, {
        f"{module}.{name}": tensor_entry(INT8_TENSOR, [1, 1, width], dtype) for module in job.modules(job.family.module)
        for name, width in (("gate_up_proj", job.shape.hidden), ("down_proj", job.shape.intermediate))})


# ---- bitsandbytes ------------------------------------------------------------------------------
def bitsandbytes_int8(_):
    return {"_load_in_4bit": False, "_load_in_8bit": True, "bnb_4bit_compute_dtype": "float32",
            "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": False,
            "llm_int8_enable_fp32_cpu_offload": False, "llm_int8_has_fp16_weight": False, "llm_int8_skip_modules": None,
            "llm_int8_threshold": 6.0, "load_in_4bit": False, "load_in_8bit": True, "quant_method": "bitsandbytes"}
