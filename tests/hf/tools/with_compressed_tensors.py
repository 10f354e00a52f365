"""compressed-tensors: its compressors on the experts of a plain model, and its decompression."""
import copy
import json

import torch
from compressed_tensors.compressors import compress_module, decompress_module
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import (QuantizationConfig, QuantizationScheme, QuantizationStatus,
                                             preset_name_to_scheme)
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file, save_file

import written

PACKAGE = "compressed-tensors"
HALVES = (torch.bfloat16, torch.float16)


def linear(outputs, inputs, parameters, scheme, status):
    """A module as the tool's functions want it."""
    module = torch.nn.Linear(inputs, outputs, bias=False, dtype=torch.bfloat16)
    if "weight" not in parameters:
        del module.weight
    for name, tensor in parameters.items():
        module.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
    module.quantization_scheme, module.quantization_status = scheme, status
    return module


def compressed(weight, preset):
    """The tensors of a matrix, and the format that the tool chose."""
    scheme = preset_name_to_scheme(preset, ["Linear"])
    arguments = scheme.weights
    columns = arguments.group_size if arguments.strategy == "group" else weight.shape[1]
    groups = weight.float().reshape(len(weight), -1, columns)
    scale, zero = calculate_qparams(groups.amin(2), groups.amax(2), arguments)
    if scale.dtype != torch.uint8 and not preset.startswith("MX"):
        scale = scale.to(torch.bfloat16)
    parameters = {"weight": weight.clone(), "weight_scale": scale}
    if not arguments.symmetric:
        parameters["weight_zero_point"] = zero
    module = linear(*weight.shape, parameters, scheme, QuantizationStatus.FROZEN)
    compress_module(module)
    made = dict([*module.named_parameters(), *module.named_buffers()])
    return {name: tensor.data.contiguous() for name, tensor in made.items()}, scheme.format


def dense(config, tensors):
    """The tool's numbers; scales as float32, so that nothing is rounded."""
    scheme = QuantizationScheme.model_validate(copy.deepcopy(next(iter(config["config_groups"].values()))))
    if scheme.format is None:
        scheme.format = config["format"]
    if "weight_global_scale" in tensors:
        return nvfp4(scheme, tensors)
    if "weight_shape" in tensors:
        outputs, inputs = tensors["weight_shape"].tolist()
    elif "weight" in tensors:
        outputs, inputs = tensors["weight"].shape
    else:
        outputs, inputs = len(tensors["weight_packed"]), 2 * tensors["weight_packed"].shape[1]
    parameters = {name: tensor.float() if tensor.dtype in HALVES else tensor for name, tensor in tensors.items()
                  if name != "bias"}
    module = linear(outputs, inputs, parameters, scheme, QuantizationStatus.COMPRESSED)
    decompress_module(module)
    return module.weight.data.float()


def nvfp4(scheme, tensors):
    """What decompress_module does, which rounds to bf16 there."""
    packed = tensors["weight_packed"]
    codes = unpack_fp4_from_uint8(packed, len(packed), 2 * packed.shape[1], dtype=torch.float32)
    return dequantize(x_q=codes, scale=tensors["weight_scale"].float(), args=scheme.weights,
                      global_scale=tensors["weight_global_scale"], dtype=torch.float32)


def write(case, plain, folder):
    preset, made, form = case.arguments["preset"], {}, None
    for name, tensor in load_file(plain / "model.safetensors").items():
        if ".mlp.experts." in name:
            parts, form = compressed(tensor, preset)
            made.update({name.removesuffix("weight") + suffix: part for suffix, part in parts.items()})
        else:
            made[name] = tensor
    folder.mkdir()
    save_file(made, folder / "model.safetensors", metadata={"format": "pt"})
    scheme = preset_name_to_scheme(preset, ["Linear"])
    scheme.format = form
    config = QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head", "re:.*self_attn.*", "re:.*mlp.gate$"],
                                format=getattr(form, "value", form), quantization_status="compressed").model_dump(mode="json")
    document = json.loads((plain / "config.json").read_text(encoding="utf-8"))
    document["quantization_config"] = {**config, "quant_method": "compressed-tensors"}
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    return written.of_experts(folder, dense)
