"""ModelOpt: mtq.quantize and export_hf_checkpoint; its tensor classes read it again."""
import copy
import json

import torch

import models
import written

PACKAGE = "nvidia-modelopt"
GPTOSS = ("gate_up_proj", "down_proj")


def config_of(name):
    import modelopt.torch.quantization as mtq
    if name != "MIXED":
        return copy.deepcopy(getattr(mtq, name))
    whole, experts = copy.deepcopy(mtq.FP8_DEFAULT_CFG["quant_cfg"]), copy.deepcopy(mtq.NVFP4_EXPERTS_ONLY_CFG["quant_cfg"])
    if isinstance(whole, list):
        both = whole + [rule for rule in experts if "expert" in json.dumps(rule, default=str)]
    else:
        both = {**whole, **{pattern: rule for pattern, rule in experts.items() if "expert" in pattern}}
    return {"quant_cfg": both, "algorithm": "max"}


def write(case, plain, folder):
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    model = mtq.quantize(models.load(plain), config_of(case.arguments["config"]), models.run)
    export_hf_checkpoint(model, export_dir=folder)
    if "down_proj" in written.tensors(folder):
        return stacked(written.tensors(folder))
    return written.of_experts(folder, dense)


def dense(_, tensors):
    """A matrix by the tool's own classes; the tensors say of which kind it is."""
    from modelopt.torch.export.quant_utils import from_quantized_weight
    from modelopt.torch.quantization.qtensor import FP8QTensor, MXFP4QTensor, MXFP8QTensor, NVFP4QTensor
    weight, scale, single = tensors["weight"], tensors.get("weight_scale"), torch.float32
    rows, columns = weight.shape
    if weight.dtype == torch.bfloat16:
        return weight.float()
    if weight.dtype == torch.int8:
        return with_inputs(from_quantized_weight(weight, scale.float(), "int8_wo", single), tensors)
    if weight.dtype == torch.uint8 and scale.dtype == torch.float32:
        return with_inputs(int4(weight, scale), tensors)
    if weight.dtype == torch.uint8:
        shape, block = torch.Size((rows, 2 * columns)), {-1: 2 * columns // scale.shape[1]}
        if scale.dtype == torch.uint8:
            return MXFP4QTensor(shape, single, weight).dequantize(single, scale=scale, block_sizes=block)
        return NVFP4QTensor(shape, single, weight).dequantize(single, scale=scale, double_scale=tensors["weight_scale_2"],
                                                              block_sizes=block)
    if scale.dtype == torch.uint8:
        return MXFP8QTensor(weight.shape, single, weight).dequantize(single, scale=scale)
    if scale.numel() == 1:
        return from_quantized_weight(weight, scale.float(), "fp8", single)
    if scale.dim() == 1:
        return weight.float() * scale.float()[:, None]
    blocks = scale.float()[:, 0, :, 0] if scale.dim() == 4 else scale.float()
    return FP8QTensor(weight.shape, single, weight).dequantize(single, scale=blocks, block_sizes={-1: 128, -2: 128})


def with_inputs(matrix, tensors):
    """The layer computes W (p x)."""
    factors = tensors.get("pre_quant_scale")
    return matrix if factors is None else matrix * factors.float()[None]


def int4(weight, scale):
    """The tool packs (pack_int4_in_uint8) and has nothing that unpacks: two rows a byte, the even one low."""
    codes = torch.stack([weight & 15, weight >> 4], 1).reshape(-1, weight.shape[1]).to(torch.int8)
    codes = torch.where(codes > 7, codes - 16, codes).float()
    return codes * scale.repeat_interleave(codes.shape[1] // scale.shape[1], 1)


def stacked(tensors):
    """gpt-oss: all experts in one tensor, inputs before outputs; each expert turned round is a matrix as above."""
    made = {}
    for name in GPTOSS:
        parts = {"weight": tensors[name], **{key.removeprefix(name + "_"): tensor for key, tensor in tensors.items()
                                            if key.startswith(name + "_") and not key.endswith("_bias")}}
        made[name] = torch.stack([dense(None, {suffix: part[e].T.contiguous() if part.dim() == 3 else part
                                               for suffix, part in parts.items()}) for e in range(len(tensors[name]))])
    w13, b13 = made["gate_up_proj"], tensors["gate_up_proj_bias"]
    return {"w13": torch.cat([w13[:, 0::2], w13[:, 1::2]], 1), "w2": made["down_proj"],
            "b13": torch.cat([b13[:, 0::2], b13[:, 1::2]], 1), "b2": tensors["down_proj_bias"]}
