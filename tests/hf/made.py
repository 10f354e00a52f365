"""make_checkpoint as a module: what it writes is what tests of formats read."""
import importlib.machinery
import importlib.util
import pathlib
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "bindings_examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "checks")]
sys.dont_write_bytecode = True


def module_of(path):
    """A Python program as a module; its name has no suffix."""
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    loader.exec_module(module)
    return module


MAKE = module_of(EXAMPLES / "make_checkpoint")
