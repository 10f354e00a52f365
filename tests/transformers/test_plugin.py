"""libmoe.transformers: both ways in, and everything that cannot work says so.

Part of the tests with label transformers: python -m unittest discover -s tests/transformers, with LIBMOE_PATH.
"""
import copy
import gc
import importlib
import io
import json
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

import common
import libmoe
import libmoe.torch
import libmoe.transformers as lt
import torch
from common import far, logits, tokens
from transformers import AutoModelForCausalLM

CLOSE = common.OfModel.CLOSE


class Plugin(common.OfModel):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logits, cls.tokens = logits(cls.plain), tokens(cls.plain)
        cls.ids = common.PROMPTS

    def both(self):
        yield "files", self.files()
        yield "tensors", self.tensors()
        yield "freed", lt.prepare(self.tensors(), free=True)

    def right(self, model, bound=CLOSE):
        self.assertLess(far(logits(model), self.logits), bound)

    # --- what works
    # ------------------------------------------------------------------------------------------------------
    def test_ways(self):
        for way, model in self.both():
            with self.subTest(way):
                self.right(model)
                self.assertTrue(torch.equal(tokens(model), self.tokens))
                rows = lt.status(model)
                self.assertEqual([row.name for row in rows], [f"model.layers.{i}.mlp.experts" for i in (0, 1)])
                for row in rows:
                    self.assertEqual(row[1:3], ("Qwen3MoeExperts", "files" if way == "files" else "tensors"))
                    self.assertIn("f32", row.kernel)
                    self.assertGreaterEqual(row.bytes, 8 * 3 * 64 * 32 * 4)
                    self.assertEqual(row.reason, "")
                left = [name for name, _ in model.named_parameters() if ".experts." in name]
                self.assertEqual(len(left), 4 if way == "tensors" else 0)

    def test_nothing_missing(self):
        model, said = self.files(output_loading_info=True)
        self.assertFalse({name: value for name, value in said.items() if value})
        self.assertFalse(getattr(model, "is_quantized", False))
        self.assertIsNone(getattr(model.config, "quantization_config", None))
        self.assertIsNone(getattr(model, "hf_quantizer", None))

    def test_patch(self):
        model = lt.patch(AutoModelForCausalLM.from_pretrained(self.directory, dtype="float32"))
        self.right(model)
        self.assertEqual({row.way for row in lt.status(model)}, {"tensors"})
        model = lt.patch(AutoModelForCausalLM.from_pretrained(self.directory, dtype="float32"), free=True)
        self.right(model)
        self.assertFalse([name for name, _ in model.named_parameters() if ".experts." in name])
        model = lt.patch(AutoModelForCausalLM.from_pretrained(self.directory, dtype="float32"), self.directory)
        self.right(model)
        self.assertEqual({row.way for row in lt.status(model)}, {"files"})

    def test_types(self):
        for dtype in (torch.bfloat16, torch.float16):
            want = logits(AutoModelForCausalLM.from_pretrained(self.directory, dtype=dtype))
            for model in (self.files(dtype=dtype), self.tensors(dtype=dtype)):
                self.assertLess(far(logits(model), want), 3e-2)
                self.assertEqual(model.dtype, dtype)

    def test_autocast(self):
        for way, model in self.both():
            with self.subTest(way), torch.autocast("cpu", torch.bfloat16):
                self.assertLess(far(logits(model), logits(self.plain)), 5e-2)

    def test_no_gradient_wanted_and_no_tokens(self):
        model = self.files()
        self.assertLess(far(model(self.ids).logits.detach(), self.logits), CLOSE)  # without no_grad
        with torch.inference_mode():
            self.assertLess(far(model(self.ids).logits, self.logits), CLOSE)
        with torch.no_grad():
            block = model.model.layers[0].mlp
            self.assertEqual(block(torch.empty(1, 0, 64)).shape, (1, 0, 64))

    def test_inference_tensors(self):
        with torch.inference_mode():
            model = self.tensors()
            self.right(model)
            self.right(model)

    def test_copies_share_or_convert(self):
        for way, model in self.both():
            with self.subTest(way):
                self.right(model)
                other = copy.deepcopy(model)
                del model
                gc.collect()
                self.right(other)

    def test_layers_go_with_their_model(self):
        gc.collect()
        before = len(libmoe.torch._layers)
        for way, model in self.both():
            self.right(model)
            self.assertGreater(len(libmoe.torch._layers), before)
            del model
            gc.collect()
            self.assertEqual(len(libmoe.torch._layers), before, way)

    def test_threads(self):
        for way, model in self.both():
            wrong = []

            def call():
                for _ in range(3):
                    if far(logits(model), self.logits) > CLOSE:
                        wrong.append(way)
            threads = [threading.Thread(target=call) for _ in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            self.assertFalse(wrong)

    def test_registered_twice(self):
        importlib.reload(lt)
        names = [name for name in sys.modules if name.startswith("libmoe.transformers") or name == "libmoe.torch"]
        kept = {name: sys.modules.pop(name) for name in names}
        try:
            again = importlib.import_module("libmoe.transformers")
            self.right(again.from_pretrained(AutoModelForCausalLM, self.directory, dtype="float32"))
            self.right(self.tensors())
        finally:
            sys.modules.update(kept)
            importlib.reload(lt)
        self.right(self.files())

    def test_context(self):
        own = libmoe.Context(threads=1)
        before = libmoe.torch.context()
        libmoe.torch.set_context(own)
        try:
            self.right(self.files())
        finally:
            libmoe.torch.set_context(before)

    # --- traps: weights that change, other types and devices
    # -------------------------------------------------------------
    def test_changed_weights_are_noticed(self):
        model, plain = self.tensors(), copy.deepcopy(self.plain)
        self.right(model)
        for one in (model, plain):
            with torch.no_grad():
                one.model.layers[0].mlp.experts.down_proj.mul_(2)
        self.assertGreater(far(logits(model), self.logits), 1e-3)
        self.assertLess(far(logits(model), logits(plain)), CLOSE)
        for one in (model, plain):
            one.model.layers[1].mlp.experts.down_proj.data.mul_(2)  # past torch's counter
        self.assertEqual(lt.refresh(model), 2)
        self.assertLess(far(logits(model), logits(plain)), CLOSE)
        self.assertEqual(lt.refresh(self.files()), 0)

    def test_other_types(self):
        for way in ("files", "freed"):
            for change in (lambda m: m.to(torch.bfloat16), lambda m: m.half(), lambda m: m.double()):
                model = dict(self.both())[way]
                with self.assertRaisesRegex(RuntimeError, "were converted for torch.float32 and cannot become"):
                    change(model)
        model = self.tensors()
        self.right(model)
        model.to(torch.bfloat16)  # has its tensors: converted again
        self.assertLess(far(logits(model), self.logits), 5e-2)
        self.files().to(torch.float32).to("cpu")

    def test_meta(self):
        with self.assertRaisesRegex(RuntimeError, "cannot go to the device meta"):
            self.files().to("meta")
        model = self.tensors().to("meta")
        with self.assertRaisesRegex(lt.Unsupported, "on meta"):
            lt.prepare(model)

    def test_float64_is_refused(self):
        model = self.tensors(dtype=torch.float64)
        with self.assertRaisesRegex(lt.Unsupported, "float64"):
            logits(model)

    def test_training(self):
        for way, model in self.both():
            with self.subTest(way):
                with self.assertRaisesRegex(RuntimeError, "for inference: call model.eval"):
                    model.train()(self.ids)
                loss = model.eval()(self.ids).logits.sum()
                with self.assertRaisesRegex(RuntimeError, "no backward"):
                    loss.backward()

    def test_gradient_of_experts_alone(self):
        model = self.tensors()
        model.requires_grad_(False)
        model.model.layers[1].mlp.experts.requires_grad_(True)
        with self.assertRaisesRegex(RuntimeError, "no backward"):
            model(self.ids).logits.sum().backward()

    # --- traps: saving, other implementations
    # ----------------------------------------------------------------------------
    def test_save(self):
        for way, model in (("files", self.files()), ("tensors", self.tensors())):
            target = self.folder / f"saved-{way}"
            lt.save(model, target)
            again = AutoModelForCausalLM.from_pretrained(target, dtype="float32")
            self.assertTrue(torch.equal(logits(again), self.logits))
            self.assertNotIn("libmoe", (target / "config.json").read_text())  # a reload is plain
        with self.assertRaisesRegex(ValueError, "where the model was loaded from"):
            lt.save(self.files(), self.directory)
        with self.assertRaisesRegex(RuntimeError, "save it before"):
            lt.save(lt.prepare(self.tensors(), free=True), self.folder / "nowhere")

    def test_what_lacks_experts_is_not_written(self):
        for way, hint in (("files", "libmoe.transformers.save"), ("freed", "prepare")):
            model = dict(self.both())[way]
            for write in (model.state_dict, lambda: model.save_pretrained(self.folder / "broken")):
                with self.assertRaisesRegex(RuntimeError, hint):
                    write()
            with self.assertRaisesRegex(TypeError, "cannot be pickled"):
                torch.save(model, io.BytesIO())
            with self.assertRaisesRegex(TypeError, "cannot be pickled"):
                pickle.dumps(model.model.layers[0].mlp.experts)

    def test_other_implementations(self):
        for way, model in self.both():
            model.set_experts_implementation("eager")
            if way == "tensors":
                self.assertTrue(torch.equal(logits(model), logits(self.plain)) or far(logits(model), self.logits) < CLOSE)
                self.assertEqual({row.way for row in lt.status(model)}, {"transformers"})
                continue
            with self.assertRaisesRegex(RuntimeError, "no torch tensors; experts_implementation='eager'"):
                logits(model)
            model.set_experts_implementation("libmoe")
            self.right(model)

    def test_prepare_wants_libmoe(self):
        with self.assertRaisesRegex(RuntimeError, "does not use libmoe"):
            lt.prepare(AutoModelForCausalLM.from_pretrained(self.directory))

    # --- traps: classes
    # --------------------------------------------------------------------------------------------------
    def test_outside_the_registry(self):
        for name in ("LongcatFlashForCausalLM", "Llama4ForCausalLM", "JetMoeForCausalLM"):
            with self.subTest(name):
                directory = self.folder / name
                kind = common.write(name, directory)
                want = logits(kind.from_pretrained(directory, dtype="float32"))
                model = kind.from_pretrained(directory, dtype="float32", experts_implementation="libmoe")
                rows = lt.status(model)
                self.assertEqual({row.way for row in rows}, {"transformers"})
                self.assertTrue(all("outside transformers' registry" in row.reason for row in rows))
                with self.assertRaisesRegex(RuntimeError, "patch"):
                    lt.prepare(model)
                self.assertLess(far(logits(lt.patch(model)), want), CLOSE)
                self.assertEqual({row.way for row in lt.status(model)}, {"tensors"})
                model = copy.deepcopy(lt.from_pretrained(kind, directory, dtype="float32"))
                self.assertLess(far(logits(model), want), CLOSE)
                self.assertEqual({row.way for row in lt.status(model)}, {"files"})

    def test_refused_classes_are_named(self):
        for name, kind in (("DogeForCausalLM", "DogeCDMoE"), ("NllbMoeForConditionalGeneration", "NllbMoeExperts")):
            directory = self.folder / name
            cls = common.write(name, directory)
            with self.assertWarnsRegex(lt.LibmoeWarning, f"{kind}.* are run by transformers"):
                model = lt.patch(cls.from_pretrained(directory))
            with self.assertWarnsRegex(lt.LibmoeWarning, f"{kind}.* are run by transformers"):
                lt.from_pretrained(cls, directory)
            self.assertIn((kind, "transformers"), {(row.kind, row.way) for row in lt.status(model)})

    def test_dense_models_are_named(self):
        directory = self.folder / "dense"
        from transformers import LlamaConfig, LlamaForCausalLM
        LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
                                     vocab_size=256)).save_pretrained(directory)
        with self.assertWarnsRegex(lt.LibmoeWarning, "no experts that libmoe knows"):
            lt.from_pretrained(LlamaForCausalLM, directory)

    def test_falls_back_to_tensors(self):
        directory = self.folder / "stranger"
        shutil.copytree(self.directory, directory)
        config = json.loads((directory / "config.json").read_text())
        config["architectures"] = ["StrangerForCausalLM"]
        (directory / "config.json").write_text(json.dumps(config))
        with self.assertWarnsRegex(lt.LibmoeWarning, "made of torch tensors, not of the files: .*StrangerForCausalLM"):
            model = lt.from_pretrained(self.kind, directory, dtype="float32")
        self.right(model)
        self.assertEqual({row.way for row in lt.status(model)}, {"tensors"})
        self.assertIn("StrangerForCausalLM", lt.status(model)[0].reason)

    def test_a_config_of_the_caller(self):
        """What the model computes is not what the files say: never by the files."""
        config = self.kind.config_class.from_pretrained(self.directory)
        config.hidden_act = "gelu"
        want = logits(self.kind.from_pretrained(self.directory, config=config, dtype="float32"))
        self.assertGreater(far(want, self.logits), 1e-3)
        with self.assertWarnsRegex(lt.LibmoeWarning, "silu"):
            model = lt.from_pretrained(self.kind, self.directory, config=config, dtype="float32")
        self.assertLess(far(logits(model), want), CLOSE)
        config.hidden_act = "tanh"  # that libmoe has not at all
        with self.assertWarnsRegex(lt.LibmoeWarning, "are run by transformers: .*no such activation"):
            model = lt.from_pretrained(self.kind, self.directory, config=config, dtype="float32")
        want = logits(self.kind.from_pretrained(self.directory, config=config, dtype="float32"))
        self.assertLess(far(logits(model), want), CLOSE)
        model.set_experts_implementation("libmoe")
        with self.assertRaisesRegex(lt.Unsupported, "no such activation"):
            logits(model)
        self.assertIsNone(getattr(config, "quantization_config", None))  # the caller's stays as it was

    def test_old_transformers(self):
        program = ("import sys, transformers; transformers.__version__ = '5.16.2'\n"
                   "try: import libmoe.transformers\nexcept ImportError as error: sys.exit(0 if 'needs transformers 5.17' in str(error) "
                   "else 2)\nsys.exit(3)")
        package = str(common.ROOT / "bindings_examples/bindings/python")
        program = f"import sys; sys.path.insert(0, {package!r})\n" + program
        self.assertEqual(subprocess.run([sys.executable, "-c", program]).returncode, 0)

    # --- compiled, offloaded
    # ---------------------------------------------------------------------------------------------
    def test_compiled(self):
        for backend in ("eager", "aot_eager", "inductor"):
            for way, model in self.both():
                with self.subTest(backend=backend, way=way):
                    torch._dynamo.reset()
                    lt.prepare(model)
                    self.right(torch.compile(model, backend=backend, fullgraph=True))
        torch._dynamo.reset()

    def test_changed_weights_under_a_compiled_model(self):
        torch._dynamo.reset()
        model = lt.prepare(self.tensors())
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        self.right(compiled)
        with torch.no_grad():
            model.model.layers[0].mlp.experts.down_proj.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "refresh"):
            logits(compiled)
        lt.refresh(model)
        self.assertLess(far(logits(compiled), logits(model)), CLOSE)
        self.assertGreater(far(logits(compiled), self.logits), 1e-3)

    def test_compiled_before_it_is_converted(self):
        torch._dynamo.reset()
        self.right(torch.compile(self.tensors(), backend="eager"))  # the graph breaks once
        torch._dynamo.reset()
        compiled = torch.compile(self.files(), backend="aot_eager", fullgraph=True)
        with self.assertRaisesRegex(Exception, "no backward"):
            compiled(self.ids)  # a gradient may be wanted: no_grad() is missing
        torch._dynamo.reset()

    def offloaded(self):
        places = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu",
                  "model.layers.0": "cpu", "model.layers.1": "disk"}
        return {"device_map": places, "offload_folder": str(self.folder / "offload")}

    def test_offloaded(self):
        model = self.tensors(**self.offloaded())
        with self.assertRaisesRegex(lt.Unsupported, "on meta"):
            lt.prepare(model)
        self.right(model)  # brought here by accelerate, converted, and kept
        kept = model.model.layers[1].mlp.experts._libmoe.registration
        self.right(model)
        self.assertIs(model.model.layers[1].mlp.experts._libmoe.registration, kept)
        model = self.files(**self.offloaded())
        self.assertEqual({row.way for row in lt.status(model)}, {"files"})
        self.right(model)
        self.right(self.files(device_map="auto"))


if __name__ == "__main__":
    warnings.simplefilter("always")
    unittest.main()
