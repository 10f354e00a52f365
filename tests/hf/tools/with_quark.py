"""Quark: a scheme of its template for the model, exported; its packing and its kernel read it again."""
import torch

import models
import written

PACKAGE = "amd-quark"
TEMPLATES = {"qwen3": "qwen3_moe", "mixtral": "mixtral", "gptoss": "gpt_oss"}


def write(case, plain, folder):
    from quark.torch import LLMTemplate, ModelQuantizer, export_safetensors
    from quark.torch.utils.llm.model_preparation import preprocess_for_quantization
    model = models.load(plain)
    preprocess_for_quantization(model)
    arguments = case.arguments
    tool = ModelQuantizer(LLMTemplate.get(TEMPLATES[case.model]).get_config(scheme=arguments["scheme"],
                                                                            layer_config=arguments["layers"]))
    export_safetensors(tool.freeze(tool.quantize_model(model, models.calibration())), folder, **arguments["export"])
    method = written.quantization(folder)["quant_method"]
    if method == "quark":
        return written.of_experts(folder, dense)
    return written.of_experts(folder, {"awq": awq, "fp8": fp8}[method])


def dense(config, tensors):
    import quark.torch.kernel
    from quark.torch.utils.pack import create_pack_method
    of_experts = next((rules for pattern, rules in config["layer_quant_config"].items() if "expert" in pattern), None)
    spec = (of_experts or config["global_quant_config"])["weight"]
    reorder = config["export"]["pack_method"] == "reorder"
    weight, scale, zero = tensors["weight"], tensors.get("weight_scale"), tensors.get("weight_zero_point")
    if weight.dtype == torch.bfloat16:
        return weight.float()
    if isinstance(spec, list) and len(spec) == 2:
        if spec[0]["dtype"] != "fp4":
            raise ValueError(f"two stages: {spec[0]['dtype']}, {spec[1]['dtype']}")
        values = create_pack_method("per_group", "fp4").unpack(weight, reorder).float()
        return values * (scale.float() * tensors["weight_scale_2"]).repeat_interleave(values.shape[1] // scale.shape[1], 1)
    spec = spec[0] if isinstance(spec, list) else spec
    kind, scheme = spec["dtype"], spec["qscheme"]
    pack, size = create_pack_method(scheme, kind), {"origin_packed_axis_size": scale.shape[-1]} if scale.dim() else {}
    codes = pack.unpack(weight, reorder, **size)
    zero = None if zero is None else pack.unpack(zero, reorder, **size)
    if spec.get("scale_format") == "e8m0":
        scale = torch.ldexp(torch.ones(()), scale.view(torch.uint8).int() - 127)
    elif scheme == "per_group":  # of integers: stored as [groups, outputs]
        scale = scale.T.contiguous()
    return quark.torch.kernel.dequantize(kind, codes, scale.float(), zero, spec["ch_axis"], spec["group_size"], scheme).float()


def awq(config, tensors):
    """The words of AWQ's kernels; Quark's own packing reads them, too."""
    from quark.torch.utils.pack import create_pack_method
    pack = create_pack_method("per_group", "uint4")
    size = {"origin_packed_axis_size": tensors["scales"].shape[-1]}
    codes, zeros = (pack.unpack(tensors[name], True, **size).float() for name in ("qweight", "qzeros"))
    scales = tensors["scales"].T.float()
    columns = codes.shape[1] // scales.shape[1]
    return (codes - zeros.repeat_interleave(columns, 1)) * scales.repeat_interleave(columns, 1)


def fp8(_, tensors):
    return tensors["weight"].float() * tensors["weight_scale"].float().reshape(-1, 1)
