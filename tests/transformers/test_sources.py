"""libmoe.transformers takes the right weights and computes the right function, or says that it cannot.

Part of the tests with label transformers: python -m unittest discover -s tests/transformers, with LIBMOE_PATH.
"""
import copy
import io
import os
import pathlib
import shutil
import tempfile
import unittest
import warnings

import common
import libmoe.transformers as lt
import torch
import transformers
from common import far, logits
from libmoe.transformers import _formulas, _models, _parts
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

CLOSE = common.OfModel.CLOSE


class Sources(common.OfModel):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.other = cls.folder / "other"
        changed = copy.deepcopy(cls.plain)
        with torch.no_grad():
            for parameter in changed.parameters():
                parameter.copy_(parameter.flip(0) if parameter.ndim > 1 else parameter)
        changed.save_pretrained(cls.other)
        cls.changed = changed

    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))

    def ways(self, model):
        return {it.way for it in lt.status(model)}

    # --- the function
    def test_limits_beyond_usual_numbers(self):
        """A limit of 10 is no limit to numbers up to 9."""
        for name in ("DeepseekV4ForCausalLM", "HYV4ForCausalLM"):
            for limit in (1.0, 10.0, 300.0):
                with self.subTest(name, limit=limit):
                    cls = getattr(transformers, name)
                    config = common.tiny_models.base_config(cls)
                    config.swiglu_limit = limit
                    module = _models.experts_of(cls._from_config(config, dtype=torch.float32))[0][1]
                    parts = _parts.parts_of(module)
                    found = _formulas.find(module, parts.own, parts.gated, parts.interleaved)
                    self.assertEqual(found, ("silu", {"limit": limit}))
                    for wrong in ({}, {"limit": limit + 2}):
                        with self.assertRaises(lt.Unsupported):
                            _formulas.check({"activation": "silu", "activation_params": wrong}, module, parts.own, parts.gated,
                                            parts.interleaved)

    # --- the weights
    def test_a_variant_is_read_by_whom_transformers_reads_it(self):
        shutil.copytree(self.directory, self.place, dirs_exist_ok=True)
        self.changed.save_pretrained(self.place, variant="other")
        with self.assertWarnsRegex(lt.LibmoeWarning, "model.other.safetensors"):
            model = self.files(self.place, variant="other")
        self.assertLess(far(logits(model), logits(self.changed)), CLOSE)
        self.assertEqual(self.ways(model), {"tensors"})

    def test_two_sets_of_files(self):
        self.changed.save_pretrained(self.place, max_shard_size="100KB")
        shutil.copy(self.directory / "model.safetensors", self.place)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lt.LibmoeWarning)
            model = self.files(self.place)
        theirs = AutoModelForCausalLM.from_pretrained(self.place, dtype="float32")
        self.assertLess(far(logits(model), logits(theirs)), CLOSE)

    def test_patch_by_other_files(self):
        with self.assertWarnsRegex(lt.LibmoeWarning, "holds other experts than this model"):
            model = lt.patch(copy.deepcopy(self.plain), self.other)
        self.assertEqual(self.ways(model), {"transformers"})
        self.assertLess(far(logits(model), logits(self.plain)), CLOSE)
        self.assertEqual(self.ways(lt.patch(copy.deepcopy(self.plain), self.directory)), {"files"})

    def test_patch_by_another_model(self):
        common.write("GptOssForCausalLM", self.place)
        with self.assertRaisesRegex(ValueError, "is of model_type gpt_oss, this model is of qwen3_moe"):
            lt.patch(copy.deepcopy(self.plain), self.place)

    def test_patch_of_what_is_libmoes(self):
        with self.assertRaisesRegex(RuntimeError, "are libmoe's already"):
            lt.patch(self.files(), self.directory)

    def test_memory_that_is_used_again(self):
        """New tensors lie where old ones lay, and have no version."""
        model, plain = self.tensors(), copy.deepcopy(self.plain)
        for i in range(20):
            for ours, theirs in zip(_models.experts_of(model), _models.experts_of(plain)):
                for a, b in zip(ours[1].parameters(), theirs[1].parameters()):
                    scale = 1.25 if i % 2 else 0.8
                    a.data, b.data = a.data * scale, b.data * scale
            self.assertLess(far(logits(model), logits(plain)), CLOSE, i)

    def test_load_state_dict(self):
        model = self.files()
        for strict in (True, False):
            with self.assertRaisesRegex(RuntimeError, r"cannot be given by load_state_dict\(\)"):
                model.load_state_dict(self.changed.state_dict(), strict=strict)
        registry = self.tensors()
        logits(registry)
        registry.load_state_dict(self.changed.state_dict())
        self.assertLess(far(logits(registry), logits(self.changed)), CLOSE)

    def test_a_missing_expert_is_named(self):
        shutil.copytree(self.directory, self.place, dirs_exist_ok=True)
        tensors = load_file(self.place / "model.safetensors")
        gone = next(name for name in tensors if ".experts.3." in name)
        save_file({name: tensor for name, tensor in tensors.items() if name != gone}, self.place / "model.safetensors",
                  metadata={"format": "pt"})
        with self.assertRaisesRegex(RuntimeError, f"{self.place}, layer [0-9]+: .*weights were never set"):
            self.files(self.place)

    # --- the arguments
    def test_spread_over_processes(self):
        for name in ("tp_plan", "tp_size"):
            with self.assertRaisesRegex(ValueError, f"{name}: .*experts_implementation"):
                self.files(**{name: {"tp_plan": "auto", "tp_size": 2}[name]})

    def test_another_implementation(self):
        with self.assertRaisesRegex(ValueError, "'eager' needs torch tensors"):
            self.files(experts_implementation="eager")

    def test_members_of_the_config(self):
        plain = AutoModelForCausalLM.from_pretrained(self.directory, dtype="float32", num_experts_per_tok=1)
        model = self.files(num_experts_per_tok=1)
        self.assertLess(far(logits(model), logits(plain)), CLOSE)
        self.assertEqual(self.ways(model), {"files"})
        self.assertEqual(self.ways(self.files(config=str(self.directory))), {"files"})

    def test_the_config_keeps_what_files_do_not_have(self):
        config = AutoConfig.from_pretrained(self.directory, attn_implementation="eager")
        self.assertEqual(self.files(config=config).config._attn_implementation, "eager")
        self.assertEqual(self.files(attn_implementation="eager").config._attn_implementation, "eager")

    def test_wrong_overrides(self):
        for overrides in ({"nosuch": 1}, {"activation": "gelu"}):
            with self.assertRaisesRegex(ValueError, "overrides: "):
                self.files(overrides=overrides)

    def test_a_relative_directory(self):
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            model = self.files("qwen")
        finally:
            os.chdir(before)
        lt.save(model, self.place / "saved")
        self.assertLess(far(logits(self.files(self.place / "saved")), logits(self.plain)), CLOSE)

    def test_pickles(self):
        model = self.tensors()
        for _ in range(2):  # before the first call, and after
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            self.assertLess(far(logits(torch.load(file, weights_only=False)), logits(self.plain)), CLOSE)
        with self.assertRaisesRegex(TypeError, "load it with libmoe.transformers.from_pretrained"):
            torch.save(self.files(), io.BytesIO())

    def test_modules_that_share_a_config(self):
        """One of them has an activation that libmoe lacks: transformers runs it, as the warning says."""
        model = copy.deepcopy(self.plain)
        odd = _models.experts_of(model)[0][1]
        odd.act_fn = torch.nn.Softsign()
        want = logits(model)
        with self.assertWarnsRegex(lt.LibmoeWarning, "run by transformers: .*no such activation"):
            lt.patch(model)
        self.assertLess(far(logits(model), want), CLOSE)
        self.assertEqual(self.ways(model), {"transformers", "tensors"})


if __name__ == "__main__":
    unittest.main()
