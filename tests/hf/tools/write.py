#!/usr/bin/env python3
"""Writes checkpoints with a tool; against_tools runs it with the interpreter of that tool's environment.

    write.py FOLDER CASE...       into FOLDER/CASE: checkpoint/, reference.npz (the tool's own numbers), written.json
"""
import importlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import sys
import traceback
import warnings

os.environ.update(HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="", TOKENIZERS_PARALLELISM="false")
warnings.filterwarnings("ignore")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import cases  # noqa: E402
import models  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402


def plain_model(folder, case):
    """The model before it is quantized, as the environment's transformers writes it."""
    plain = folder / "plain" / f"{case.environment}-{case.model}"
    if not (plain / "tokenizer.json").exists():
        models.save_plain(case.model, plain)
    return plain


def write(case, folder):
    module = importlib.import_module("with_" + case.tool.replace("-", "_"))
    home = folder / case.name
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    report = {"versions": {name: importlib.metadata.version(name) for name in (module.PACKAGE, "transformers", "torch")}}
    try:
        reference = module.write(case, plain_model(folder, case), home / "checkpoint")
        np.savez(home / "reference.npz", **{name: tensor.detach().float().numpy() for name, tensor in reference.items()})
    except Exception as error:  # whatever the tool says
        traceback.print_exc()
        if case.expected != cases.REFUSED or not (home / "checkpoint/config.json").exists():  # a refusal needs no reference
            said = " ".join(f"{type(error).__name__}: {error}".split())
            report["error"] = re.sub(r"(?<![^\s'\"])/\S+/", "", said)  # paths of this machine
    (home / "written.json").write_text(json.dumps(report), encoding="utf-8")
    print(case.name, report.get("error", "written"), flush=True)


def main():
    torch.set_num_threads(2)
    folder = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:]:
        write(cases.BY_NAME[name], folder)


if __name__ == "__main__":
    main()
