"""What the tests of libmoe.transformers share: the package's path, tiny models, tokens of two prompts."""
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bindings_examples/bindings/python"), str(ROOT / "tests/hf")]
sys.dont_write_bytecode = True
os.environ.setdefault("LIBMOE_PATH", str(ROOT / "build/release/libmoe.so"))

import tiny_models  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

torch.set_num_threads(2)
transformers.utils.logging.set_verbosity(transformers.utils.logging.CRITICAL)
transformers.utils.logging.disable_progress_bar()
PROMPTS = torch.randint(3, 200, (2, 7), generator=torch.Generator().manual_seed(1))


def write(name, folder, **changes):
    """A random model of a class of transformers in a folder, float32; gives the class."""
    cls = getattr(transformers, name)
    torch.manual_seed(0)
    config = tiny_models.base_config(cls)
    for member, value in changes.items():
        setattr(config, member, value)
    model = cls._from_config(config, dtype=torch.float32).eval()
    for place in tiny_models.places(model):
        tiny_models.fill(place.block, place.name)
    model.save_pretrained(folder)
    return cls


def tokens(model, new=24):
    with torch.no_grad():
        return model.generate(PROMPTS, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0, eos_token_id=None)


def logits(model):
    with torch.no_grad():
        return model(PROMPTS).logits.float()


def far(a, b):
    return float((a - b).abs().max() / b.abs().max())


class OfModel(unittest.TestCase):
    """A tiny Qwen3-MoE in `directory`, `plain` as transformers loads it, and the ways of loading it with libmoe."""
    CLOSE = 1e-5

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="libmoe_plugin."))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.directory = cls.folder / "qwen"
        cls.kind = write("Qwen3MoeForCausalLM", cls.directory)
        cls.plain = transformers.AutoModelForCausalLM.from_pretrained(cls.directory, dtype="float32")

    def files(self, directory=None, **more):
        import libmoe.transformers as lt
        return lt.from_pretrained(transformers.AutoModelForCausalLM, directory or self.directory, **{"dtype": "float32", **more})

    def tensors(self, **more):
        return transformers.AutoModelForCausalLM.from_pretrained(
            self.directory, **{"dtype": "float32", "experts_implementation": "libmoe", **more})
