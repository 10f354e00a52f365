"""What a tool wrote, and its own numbers of it: the matrices of the last layer's experts; runs inside a tool's environment."""
import json
import re

import torch
from safetensors.torch import load_file

import models

LAYER = models.LAYERS - 1
NAMES = [("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")]


def quantization(folder):
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))["quantization_config"]


def tensors(folder):
    """All tensors of the layer's experts by the rest of their names, such as `3.gate_proj.weight`."""
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            match = re.fullmatch(rf"(?:model\.)?layers\.{LAYER}\.\w+\.experts\.(.+)", name)
            if match:
                found[match[1]] = tensor
    return found


def projections(folder):
    """[{projection: {suffix: tensor}}] by expert."""
    experts = {}
    for name, tensor in tensors(folder).items():
        parts = name.split(".", 2)
        if parts[0].isdigit():
            experts.setdefault(int(parts[0]), {}).setdefault(parts[1], {})[parts[2]] = tensor
    return [experts[e] for e in sorted(experts)]


def of_experts(folder, dense):
    """A reference out of dense(quantization, tensors of one projection) -> [outputs, inputs]."""
    config, w13, w2, b13, b2 = quantization(folder), [], [], [], []
    for expert in projections(folder):
        joined = expert.get("gate_up_proj")
        gate, up, down = next((n for n in NAMES if n[2] in expert))
        if joined:  # rows of gate and up in turn, as gpt-oss has them
            both = dense(config, joined)
            w13.append(torch.cat([both[0::2], both[1::2]]))
            b13.append(torch.cat([joined["bias"][0::2], joined["bias"][1::2]]))
        else:
            w13.append(torch.cat([dense(config, expert[gate]), dense(config, expert[up])]))
            if "bias" in expert[gate]:
                b13.append(torch.cat([expert[gate]["bias"], expert[up]["bias"]]))
        w2.append(dense(config, expert[down]))
        if "bias" in expert[down]:
            b2.append(expert[down]["bias"])
    biases = {"b13": torch.stack(b13), "b2": torch.stack(b2)} if b2 else {}
    return {"w13": torch.stack(w13), "w2": torch.stack(w2), **biases}
