"""Five formats with the experts alone quantized: tokens of the dense model of the dequantized weights, no expert in
torch.

Part of the tests with label transformers: python -m unittest discover -s tests/transformers, with LIBMOE_PATH. Files
are written by compressed-tensors' own compressors, those of FP8 blocks by hand.
"""
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import common
import libmoe.transformers as lt
import torch
from common import far, logits, tokens
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme, QuantizationStatus
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(common.ROOT / "tests/hf/tools"))
import with_compressed_tensors as tool  # noqa: E402

EXPERT = re.compile(r"\.mlp\.experts\.\d+\.(gate|up|down)_proj\.weight$")
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
CLOSE = 1e-5


def integers(bits, group):
    """w = q * scale, a scale for each `group` columns of a row or for the row."""
    def make(weight):
        groups = weight.reshape(len(weight), -1, group or weight.shape[1])
        scale = (groups.abs().amax(2) / (2 ** (bits - 1) - 1)).bfloat16()
        arguments = {"strategy": "group", "group_size": group} if group else {"strategy": "channel"}
        scheme = QuantizationScheme(targets=["Linear"], format="pack-quantized", weights=QuantizationArgs(
            num_bits=bits, type="int", symmetric=True, **arguments))
        q = (groups / scale.float()[..., None]).round().clamp(-2 ** (bits - 1), 2 ** (bits - 1) - 1)
        dense = (q * scale.float()[..., None]).reshape(weight.shape)
        module = tool.linear(*weight.shape, {"weight": dense, "weight_scale": scale.float()}, scheme, QuantizationStatus.FROZEN)
        tool.compress_module(module)
        made = {name: tensor.data.contiguous() for name, tensor in [*module.named_parameters(), *module.named_buffers()]}
        return {**made, "weight_scale": scale}, dense, scheme
    return make


def fp8_channel(weight):
    scale = weight.abs().amax(1, keepdim=True) / 448
    q = (weight / scale).to(torch.float8_e4m3fn)
    scheme = QuantizationScheme(
        targets=["Linear"], format="float-quantized",
        weights=QuantizationArgs(num_bits=8, type="float", symmetric=True, strategy="channel"),
        input_activations=QuantizationArgs(num_bits=8, type="float", symmetric=True, strategy="token", dynamic=True))
    return {"weight": q, "weight_scale": scale}, q.float() * scale, scheme


def nvfp4(weight):
    """w = q * scale / divisor: a scale in e4m3 for each 16 columns, a divisor for the matrix."""
    divisor = (448 * 6 / weight.abs().max()).reshape(1)
    groups = weight.reshape(len(weight), -1, 16)
    scale = (groups.abs().amax(2) / 6 * divisor).to(torch.float8_e4m3fn)
    step = scale.float()[..., None] / divisor
    codes = ((groups / step).abs()[..., None] - E2M1).abs().argmin(-1) + 8 * (groups < 0)
    dense = E2M1[codes % 8] * torch.where(codes >= 8, -1.0, 1.0) * step
    flat = codes.reshape(len(weight), -1).to(torch.uint8)
    scheme = QuantizationScheme(targets=["Linear"], format="nvfp4-pack-quantized", weights=QuantizationArgs(
        num_bits=4, type="float", symmetric=True, strategy="tensor_group", group_size=16))
    made = {"weight_packed": flat[:, ::2] | flat[:, 1::2] << 4, "weight_scale": scale, "weight_global_scale": divisor}
    return made, dense.reshape(weight.shape), scheme


def fp8_blocks(weight):
    """One scale for each 128 x 128."""
    rows, columns = weight.shape
    scale = torch.nn.functional.max_pool2d(weight.abs()[None], 128, ceil_mode=True)[0] / 448
    wide = scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    q = (weight / wide).to(torch.float8_e4m3fn)
    return {"weight": q, "weight_scale_inv": scale}, q.float() * wide, None


FORMATS = {"int4 g32": integers(4, 32), "int8 channel": integers(8, 0), "FP8 channel": fp8_channel, "NVFP4A16": nvfp4,
           "FP8 128x128": fp8_blocks}


def config_of(scheme):
    if scheme is None:
        return {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
                "modules_to_not_convert": ["lm_head", *(f"model.layers.{i}.{part}" for i in range(2) for part in
                                                         ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                                          "self_attn.o_proj", "mlp.gate"))]}
    form = str(getattr(scheme.format, "value", scheme.format))
    config = QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head", "re:.*self_attn.*", "re:.*mlp.gate$"],
                                format=form, quantization_status="compressed").model_dump(mode="json")
    return {**config, "quant_method": "compressed-tensors"}


def write(plain, make, quantized, dense):
    """Both directories: the quantized one, and that of the same numbers in float32."""
    packed, numbers, scheme = {}, {}, None
    for name, tensor in load_file(plain / "model.safetensors").items():
        packed[name] = numbers[name] = tensor
        if EXPERT.search(name):
            made, numbers[name], scheme = make(tensor)
            del packed[name]
            packed.update({name.removesuffix("weight") + suffix: part.contiguous() for suffix, part in made.items()})
    for folder, tensors, more in ((quantized, packed, {"quantization_config": config_of(scheme)}), (dense, numbers, {})):
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        document = json.loads((plain / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps({**document, **more}), encoding="utf-8")


class Formats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="libmoe_formats."))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        common.write("Qwen3MoeForCausalLM", cls.folder / "plain", hidden_size=128, moe_intermediate_size=256)  # of whole blocks

    def test_formats(self):
        for name, make in FORMATS.items():
            with self.subTest(name):
                quantized, dense = (self.folder / f"{name}-{kind}" for kind in ("quantized", "dense"))
                write(self.folder / "plain", make, quantized, dense)
                plain = AutoModelForCausalLM.from_pretrained(dense, dtype="float32")
                model, said = lt.from_pretrained(AutoModelForCausalLM, quantized, dtype="float32", output_loading_info=True)
                self.assertFalse({kind: keys for kind, keys in said.items() if keys})
                rows = lt.status(model)
                self.assertEqual([row.way for row in rows], ["files", "files"])
                kernels = {row.kernel for row in rows}
                self.assertFalse(any(kernel.startswith("f32_f32") for kernel in kernels), kernels)  # not made dense
                self.assertFalse([key for key, _ in [*model.named_parameters(), *model.named_buffers()] if ".experts." in key])
                away = far(logits(model), logits(plain))
                print(f"\n{name}: {kernels.pop()}, logits within {away:.1e}", file=sys.stderr)
                self.assertLess(away, CLOSE)
                self.assertTrue(torch.equal(tokens(model), tokens(plain)))
                if name == "int4 g32":  # a copy of the files is the same model
                    lt.save(model, self.folder / "copy")
                    again = lt.from_pretrained(AutoModelForCausalLM, self.folder / "copy", dtype="float32")
                    self.assertTrue(torch.equal(logits(again), logits(model)))

    def test_quantized_tensors_of_torch(self):
        """Experts that a quantizer keeps in its own form are never taken for numbers."""
        quantized = self.folder / "fp8-for-torch"
        write(self.folder / "plain", fp8_blocks, quantized, self.folder / "fp8-for-torch-dense")
        want = logits(AutoModelForCausalLM.from_pretrained(self.folder / "fp8-for-torch-dense", dtype="float32"))
        model = AutoModelForCausalLM.from_pretrained(quantized, dtype="float32")
        try:
            lt.patch(model)
        except RuntimeError as error:
            self.assertIn("libmoe", str(error))
            return
        self.assertLess(far(logits(model), want), CLOSE)


if __name__ == "__main__":
    unittest.main()
