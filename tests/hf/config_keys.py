#!/usr/bin/env python3
"""The keys of the configurations of all classes that libmoe reads, with what each class takes for granted.

    config_keys.py <libmoe.so> <folder> [--engine NAME=DIR ...]

Runs where transformers is installed (tests/hf/against_transformers makes such an environment) and writes
<folder>/transformers.json: for each class, and each model type that transformers makes that class of, the keys of the
configuration that has the experts, with their values; other names of keys; keys that only older files have.
--engine adds <folder>/engines.json: keys of experts that the models of an engine read, found in its sources by the
form of the expression, with the files. tests/hf/keys_test.cpp reads both.
"""
import ctypes
import importlib
import inspect
import json
import math
import pathlib
import re
import sys

import transformers
from transformers.models.auto import configuration_auto, modeling_auto

WHOSE, WHAT = re.compile("swiglu|expert|moe|router|scor|topk"), re.compile("limit|clamp|alpha|beta|scal|norm|cap|func|size")
READS = re.compile(r'\bconfig\.(?:text_config\.)?([a-z]\w+)|getattr\(\s*(?:self\.)?(?:hf_|text_|model_)*config,\s*"(\w+)"|\bconfig\.get\(\s*"(\w+)"')
MODELS = ("model_executor/models", "vllm/models", "transformers_utils/configs", "srt/models", "srt/configs")


def library_rows(path):
    lib = ctypes.CDLL(path)
    lib.moe_buffer_data.restype = ctypes.c_void_p
    lib.moe_buffer_size.restype = ctypes.c_size_t
    lib.moe_describe.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    lib.moe_buffer_data.argtypes = lib.moe_buffer_size.argtypes = [ctypes.c_void_p]
    buffer, query = ctypes.c_void_p(), b'{"architectures": true}'
    if lib.moe_describe(b"checkpoint", query, len(query), ctypes.byref(buffer), None) != 0:
        raise SystemExit("moe_describe refused the question")
    return json.loads(ctypes.string_at(lib.moe_buffer_data(buffer), lib.moe_buffer_size(buffer)))["architectures"]


def classes_by_name():
    """Every class of a modeling file that has a configuration."""
    found = {}
    for file in sorted(pathlib.Path(transformers.__file__).parent.glob("models/*/modeling_*.py")):
        names = re.findall(r"^class (\w+For[A-Z]\w+)\(", file.read_text(encoding="utf-8"), re.M)
        if names:
            found.update({name: f"transformers.models.{file.parent.name}.{file.stem}" for name in names})
    return found


def model_types(name):
    """Those that the auto classes make this class of."""
    types = set()
    for mapping in dir(modeling_auto):
        if mapping.endswith("_MAPPING_NAMES"):
            for model_type, classes in getattr(modeling_auto, mapping).items():
                if name in (classes if isinstance(classes, (tuple, list)) else (classes,)):
                    types.add(model_type)
    return types


def value_of(value):
    """As config.json has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): value_of(v) for k, v in value.items()}
    return [value_of(v) for v in value] if isinstance(value, (list, tuple)) else value


def part_of(config):
    """Path and configuration of the language model."""
    text = config.get_text_config(decoder=True)
    for name in config.to_dict():
        part = config.__dict__.get(name)
        if hasattr(part, "to_dict") and text is not config:
            if part is text:
                return name, part
            path, inner = part_of(part)
            if inner is text:
                return f"{name}/{path}", inner
    return "", config


def entry(name, config_class):
    part, config = part_of(config_class())
    keys = {}
    for key, value in config.to_dict().items():
        keys[key] = value_of(value)
    old = sorted(set(re.findall(r'kwargs\.(?:pop|get|setdefault)\(\s*"(\w+)"', inspect.getsource(type(config)))) - set(keys))
    return {"class": name, "model_type": config_class.model_type, "part": part, "keys": keys,
            "other_names": dict(config.attribute_map), "old": old}


def engines(arguments):
    found = {}
    for argument in arguments:
        engine, root = argument.split("=", 1)
        for file in sorted(pathlib.Path(root).rglob("*.py")):
            path = file.relative_to(root).as_posix()
            if any(models in path for models in MODELS):
                for match in READS.finditer(file.read_text(encoding="utf-8", errors="ignore")):
                    key = match[1] or match[2] or match[3]
                    if WHOSE.search(key) and WHAT.search(key):
                        found.setdefault(key, set()).add(f"{engine} {path}")
    return {key: sorted(files) for key, files in sorted(found.items())}


def write(path, value):
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main():
    folder, by_name, entries = pathlib.Path(sys.argv[2]), classes_by_name(), []
    for row in library_rows(sys.argv[1]):
        name = row["name"]
        if name not in by_name:
            continue
        cls = getattr(importlib.import_module(by_name[name]), name)
        entries.append(entry(name, cls.config_class))
        for model_type in sorted(model_types(name)):
            config_class = getattr(transformers, configuration_auto.CONFIG_MAPPING_NAMES[model_type])
            if config_class is not cls.config_class:
                entries.append(entry(name, config_class))
    write(folder / "transformers.json", {"transformers": transformers.__version__, "classes": entries})
    if "--engine" in sys.argv:
        write(folder / "engines.json", engines(sys.argv[sys.argv.index("--engine") + 1:]))


if __name__ == "__main__":
    main()
