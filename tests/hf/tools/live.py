"""What quantizers of transformers have in memory: the experts of the last layer as the tool's own functions decode them."""
import models
import torch

from written import NAMES


def quantized(plain, settings, folder):
    """The model, quantized when it is loaded and saved; files that are not safetensors are none for libmoe."""
    model = models.load(plain, quantization_config=settings, device_map="cpu")
    model.save_pretrained(folder)
    return model


def reference(model, dense):
    """dense(parameter or module) -> a matrix, for experts that are modules, or one parameter of all experts."""
    experts = next(module for name, module in model.named_modules() if name.endswith(f"layers.{models.LAYERS - 1}.mlp.experts")
                   or name.endswith(f"layers.{models.LAYERS - 1}.block_sparse_moe.experts"))
    if hasattr(experts, "gate_up_proj"):
        return {"w13": dense(experts.gate_up_proj), "w2": dense(experts.down_proj)}
    gate, up, down = next(names for names in NAMES if hasattr(experts[0], names[2]))
    return {"w13": torch.stack([torch.cat([dense(getattr(e, gate)), dense(getattr(e, up))]) for e in experts]),
            "w2": torch.stack([dense(getattr(e, down)) for e in experts])}
