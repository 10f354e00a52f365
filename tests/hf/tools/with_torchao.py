"""torchao through transformers."""
import torch
import transformers

import live

PACKAGE = "torchao"


def settings_of(arguments):
    import torchao.quantization as tool
    if "experts" not in arguments:
        return transformers.TorchAoConfig(getattr(tool, arguments["config"])(**arguments.get("settings", {})))
    granularity = {"granularity": tool.PerGroup(arguments["group"])} if "group" in arguments else {}
    config = getattr(tool, arguments["experts"])(**granularity)
    names = [r"re:.*\.experts\.gate_up_proj", r"re:.*\.experts\.down_proj"]
    return transformers.TorchAoConfig(quant_type=tool.FqnToConfig({**dict.fromkeys(names, config), "_default": None}))


def dense(thing):
    weight = getattr(thing, "weight", thing).data
    if not hasattr(weight, "tensor_data_names"):  # plain
        return weight.float()
    return weight.dequantize(output_dtype=torch.float32)  # the default rounds to the model's type


def write(case, plain, folder):
    model = live.quantized(plain, settings_of(case.arguments), folder)
    return live.reference(model, dense)
