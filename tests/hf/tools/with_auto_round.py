"""AutoRound: rounding to nearest without tuning, exported; its own modules read it again."""
import shutil
import tempfile
import types

import torch
import transformers

import models
import written

PACKAGE = "auto-round"


def write(case, plain, folder):
    from auto_round import AutoRound
    arguments = case.arguments
    rows = [{"input_ids": ids[:1], "attention_mask": torch.ones_like(ids[:1])} for ids in models.calibration(8, 1, 64)]
    work = tempfile.mkdtemp(dir=folder.parent)
    tool = AutoRound(models.load(plain), transformers.AutoTokenizer.from_pretrained(plain), scheme=arguments["scheme"], seqlen=64,
                     nsamples=len(rows), batch_size=len(rows), dataset=rows, device_map="cpu", **arguments["settings"])
    tool.quantize_and_save(work, format=arguments["export"])
    found = next(path.parent for path in folder.parent.glob("tmp*/**/config.json"))
    shutil.move(found, folder)
    shutil.rmtree(work, ignore_errors=True)
    if written.quantization(folder)["quant_method"] == "compressed-tensors":
        from with_compressed_tensors import dense as decompressed
        return written.of_experts(folder, decompressed)
    return written.of_experts(folder, dense)


def dense(config, tensors):
    """A matrix by the tool's own module, in float32."""
    if "qweight" in tensors:
        return integers(config, tensors)
    if config["data_type"] == "fp":
        return floats(config, tensors)
    return by_module(config, tensors)


def integers(config, tensors):
    bits, group, packing = config["bits"], config["group_size"], config.get("packing_format", "")
    qweight, qzeros, scales = (tensors[name] for name in ("qweight", "qzeros", "scales"))
    if config["quant_method"] == "awq" or "awq" in packing:
        from auto_round.export.export_to_awq.utils import dequantize_gemm
        return dequantize_gemm(qweight, qzeros, scales.float(), bits, group if group > 0 else len(qweight)).T.contiguous()
    if config["quant_method"] == "gptq" or "gptq" in packing:
        from auto_round_extension.torch.qlinear_torch_zp import QuantLinear
    else:
        from auto_round_extension.torch.qlinear_torch import QuantLinear
    inputs, outputs = len(qweight) * 32 // bits, qweight.shape[1]
    module = QuantLinear(bits, group, inputs, outputs, False)
    for name, tensor in (("qweight", qweight), ("qzeros", qzeros), ("scales", scales)):
        if getattr(module, name).shape != tensor.shape:
            raise ValueError(f"{name}: the module has {tuple(getattr(module, name).shape)}, the file {tuple(tensor.shape)}")
    module.qweight, module.qzeros, module.scales = qweight, qzeros, scales.float()
    return module(torch.eye(inputs)).T.contiguous()  # its matrix is what it makes of unit vectors


def floats(config, tensors):
    """FP8: the tool has no class for it; weight times scale, as its exporter divides."""
    weight, scale = tensors["weight"].float(), tensors.get("weight_scale_inv", tensors.get("weight_scale")).float()
    block = config.get("weight_block_size") or (config["group_size"] if isinstance(config["group_size"], list) else None)
    if block:
        rows, columns = block
        return weight * scale.repeat_interleave(rows, 0)[:len(weight)].repeat_interleave(columns, 1)[:, :weight.shape[1]]
    return weight * scale.reshape(-1, 1)


def by_module(config, tensors):
    from auto_round.experimental.qmodules import mx, nvfp4, nvfp4_e5m3
    kinds = {"mx_fp": mx.MXFP4QuantLinear if config["bits"] == 4 else mx.MXFP8QuantLinear, "mx_int": mx.MXINT4QuantLinear,
             "nv_fp": nvfp4.NVFP4QuantLinear, "nvfp4_v2": nvfp4_e5m3.NVFP4E5M3QuantLinear}
    kind = next(made for name, made in kinds.items() if config["data_type"].startswith(name))
    codes = tensors.get("weight_packed", tensors.get("weight"))
    settings = types.SimpleNamespace(**{name: config.get(name) for name in (
        "bits", "group_size", "data_type", "act_bits", "act_group_size", "act_data_type", "rotation_config")})
    module = kind(codes.shape[1] * (2 if config["bits"] == 4 else 1), len(codes), settings, dtype=torch.float32)
    names = dict([*module.named_buffers(), *module.named_parameters()])
    module.load_state_dict({name: tensor for name, tensor in tensors.items() if name in names}, strict=False, assign=True)
    return module.dequant_weight_online().float().contiguous()
