"""from_pretrained with the experts read by libmoe.

transformers asks the quantizer of a file before it loads weights and after. Ours is the file's own, made a class of
its own with two steps more: before, each module of experts is replaced by one without parameters, so that
transformers reads none of their tensors; after, libmoe reads them. Everything else is quantized, moved and spread as
the file's quantizer does it.
"""
from __future__ import annotations

import copy
import json
import os
import re
import warnings
from typing import Any

from transformers import AutoConfig, PreTrainedConfig  # type: ignore[import-not-found,unused-ignore]
from transformers.quantizers import auto  # type: ignore[import-not-found,unused-ignore]
from transformers.quantizers.base import HfQuantizer  # type: ignore[import-not-found,unused-ignore]
from transformers.utils.quantization_config import (  # type: ignore[import-not-found,unused-ignore]
    QuantizationConfigMixin)

from .. import torch as operator
from .._checkpoint import Checkpoint
from .._errors import Error
from .._layer import Layer
from . import _models, _parts
from ._experts import LibmoeExperts, replace
from ._formulas import Unsupported


class LibmoeWarning(UserWarning):
    """Some experts of a model are not libmoe's, or not read from the files."""


def from_pretrained(auto_class: Any, directory: str | os.PathLike[str], *, overrides: dict[str, Any] | None = None,
                    **kwargs: Any) -> Any:
    """auto_class.from_pretrained(directory, **kwargs) with the experts read from the files by libmoe, never as torch
    tensors.

    auto_class: AutoModelForCausalLM or any class of transformers. The file's own quantizer keeps the other layers;
    `dtype`, `device_map` and all other arguments are those of transformers. Experts run on the CPU, wherever the rest
    is. `overrides`: members of libmoe's config document that win. Layers that libmoe cannot read from the files run
    from torch tensors by experts_implementation "libmoe", else by transformers: a LibmoeWarning says so, and status()
    why. The files must not change as long as the model lives. Errors are those of transformers.
    """
    spread = [name for name in _SPREAD if kwargs.get(name) is not None]
    if spread:
        raise ValueError(f"{', '.join(spread)}: experts that libmoe reads from files are not spread over processes; load "
                         "the model by transformers, with experts_implementation=\"libmoe\"")
    if kwargs.get("experts_implementation", "libmoe") not in ("libmoe", None):
        raise ValueError(f"experts_implementation: {kwargs['experts_implementation']!r} needs torch tensors; load the "
                         "model by transformers")
    config = kwargs.pop("config", None)
    if isinstance(config, PreTrainedConfig):
        config = copy.deepcopy(config)
    else:
        config, kwargs = _read_config(directory if config is None else config, kwargs)
    files_own = getattr(config, "quantization_config", None)
    given, pre_quantized = kwargs.pop("quantization_config", None), files_own is not None
    inner = auto.AutoHfQuantizer.merge_quantization_configs(files_own, given) if pre_quantized else given
    config.quantization_config = _Config(inner, pre_quantized, overrides)
    return auto_class.from_pretrained(directory, config=config, **kwargs)


_SPREAD = ("tp_plan", "tp_size", "device_mesh", "distributed_config")
_HUB = ("trust_remote_code", "revision", "token", "cache_dir", "subfolder", "local_files_only", "force_download",
        "code_revision", "proxies")
_OF_MODELS = ("dtype", "torch_dtype", "quantization_config", "attn_implementation", "experts_implementation", "device_map")


def _read_config(path: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The config of a directory with the members that a caller replaces, and the other arguments."""
    hub = {name: kwargs[name] for name in _HUB if name in kwargs}
    models = {name: value for name, value in kwargs.items() if name in _OF_MODELS}
    rest = {name: value for name, value in kwargs.items() if name not in hub and name not in models}
    config, unused = AutoConfig.from_pretrained(path, return_unused_kwargs=True, **hub, **rest)
    return config, {**hub, **models, **{name: value for name, value in unused.items() if name in rest}}


class _Config(QuantizationConfigMixin):  # type: ignore[misc,unused-ignore]
    """What takes the place of the file's quantization_config while a model is loaded."""

    def __init__(self, inner: Any = None, pre_quantized: bool = True, overrides: dict[str, Any] | None = None,
                 **_: Any) -> None:
        self.quant_method, self.inner, self.pre_quantized = "libmoe", inner, pre_quantized
        self.overrides = overrides or {}

    def get(self, name: str, default: Any = None) -> Any:
        """transformers takes it for a dict, as it is in a file."""
        return getattr(self, name, default)

    def to_dict(self) -> dict[str, Any]:
        inner: dict[str, Any] = self.inner.to_dict() if hasattr(self.inner, "to_dict") else dict(self.inner or {})
        return inner


class _Steps:
    """The two steps, in front of a quantizer's own."""
    _overrides: dict[str, Any]

    def _process_model_before_weight_loading(self, model: Any, checkpoint_files: Any = None, **kwargs: Any) -> Any:
        # on the model, since transformers copies quantizers
        vars(model)["_libmoe_loading"] = _replace_experts(model, checkpoint_files, self._overrides)
        return super()._process_model_before_weight_loading(  # type: ignore[misc]
            model, checkpoint_files=checkpoint_files, **kwargs)

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        done = super()._process_model_after_weight_loading(model, **kwargs)  # type: ignore[misc]
        _load_experts(model, vars(model).pop("_libmoe_loading"))
        return model if done is None else done


class _OfNothing(HfQuantizer):  # type: ignore[misc,unused-ignore]
    """Of files that are not quantized; after loading nothing of it is left on the model."""
    requires_calibration = False
    is_trainable = is_compileable = True

    def is_serializable(self) -> bool:
        return True

    def postprocess_model(self, model: Any, **kwargs: Any) -> Any:
        self.remove_quantization_config(model)
        return self._process_model_after_weight_loading(model, **kwargs)


class _Quantizer(HfQuantizer):  # type: ignore[misc,unused-ignore]
    """What transformers makes for "libmoe": in truth the file's own quantizer, with our steps."""

    def __new__(cls, config: _Config, **kwargs: Any) -> Any:
        if config.inner is None:
            own = _OfNothing(config, pre_quantized=True)
        else:
            own = auto.AutoHfQuantizer.from_config(config.inner, **{**kwargs, "pre_quantized": config.pre_quantized})
        kind = type(own)
        made: Any = object.__new__(type(kind.__name__, (_Steps, kind), {"__module__": kind.__module__}))
        vars(made).update(vars(own), _overrides=config.overrides)
        return made

    is_trainable = False

    def is_serializable(self) -> bool:
        return False


def register() -> None:
    """Makes "libmoe" known to transformers as a quantizer."""
    auto.AUTO_QUANTIZATION_CONFIG_MAPPING["libmoe"] = _Config
    auto.AUTO_QUANTIZER_MAPPING["libmoe"] = _Quantizer


# --- the steps --------------------------------------------------------------------------------------------------------
def open_checkpoint(files: Any) -> Checkpoint:
    """Of the files that transformers loads; Unsupported says why libmoe cannot read them."""
    first = files[0] if isinstance(files, (list, tuple)) and files else files
    if first is None or not str(first).endswith(".safetensors"):
        raise Unsupported(f"libmoe reads safetensors files, this model has {first or 'none'}")
    directory = os.path.dirname(first)
    chosen = {os.path.basename(file) for file in (files if isinstance(files, (list, tuple)) else [files])}
    if chosen != _files_of(directory):
        raise Unsupported(f"transformers loads {_some(chosen)} of {directory}, libmoe reads {_some(_files_of(directory))}: "
                          "keep one set of files in the directory")
    return open_directory(directory)


def _files_of(directory: str) -> set[str]:
    """The files that libmoe takes for a model's: those of the index, else the single one, else all."""
    here = {name for name in os.listdir(directory) if name.endswith(".safetensors")}
    index = os.path.join(directory, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            return set(json.load(file)["weight_map"].values())
    return here & {"model.safetensors"} or here


def _some(names: set[str]) -> str:
    return ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def open_directory(directory: Any) -> Checkpoint:
    try:
        return Checkpoint(os.path.abspath(directory), operator.context())
    except Error as error:
        raise Unsupported(f"libmoe does not read {os.fspath(directory)}: {error}") from error


def places(model: Any, checkpoint: Checkpoint) -> dict[str, int | Unsupported]:
    """Name of each module of experts -> its layer in the files, or why it has none there.

    Layers are known by their numbers. Where several modules have one (those of an image encoder, perhaps), it is the
    one whose name has more of the name that the files' class has.
    """
    infos = {info.layer: info for info in checkpoint if info.name or info.problem}
    found: dict[str, int | Unsupported] = {}
    claims: dict[int, list[tuple[int, str]]] = {}
    for name, module in _models.experts_of(model):
        numbers = re.findall(r"\.(\d+)(?=\.|$)", name)
        info = infos.get(int(numbers[-1])) if numbers else None
        if info is None:
            found[name] = Unsupported("the files have no experts of this layer, as libmoe reads them")
        elif info.problem:
            found[name] = Unsupported(info.problem)
        else:
            claims.setdefault(info.layer, []).append((_alike(name, info.name), name))
    for layer, those in claims.items():
        those.sort(reverse=True)
        if len(those) > 1 and those[0][0] == those[1][0]:
            found.update({name: Unsupported(f"it is not known which module has layer {layer} of the files")
                          for _, name in those})
            continue
        found.update({name: Unsupported(f"{infos[layer].name} of the files is another module")
                      for _, name in those[1:]})
        found[those[0][1]] = layer
    return found


def _alike(module: str, file: str) -> int:
    return len({*module.split(".")} & {*file.split(".")})


def patch_for(module: Any, parts: _parts.Parts, checkpoint: Checkpoint, layer: int,
              overrides: dict[str, Any]) -> dict[str, Any]:
    """The JSON patch of a layer's config; Unsupported unless it then describes the module."""
    patch = {"in_dtype": _parts.NAMES[parts.dtype], **overrides}
    patch["routing"] = {"topk_weights_hold_factor": True, **overrides.get("routing", {})}
    try:
        with checkpoint.config(layer, patch) as config:
            _parts.check(config.document, module, parts)
    except (Error, Unsupported) as error:
        if overrides:
            patch_for(module, parts, checkpoint, layer, {})  # Unsupported: the overrides are not to blame
            raise ValueError(f"overrides: {error}") from error
        if isinstance(error, Unsupported):
            raise
        raise Unsupported(f"libmoe does not take layer {layer} of the files: {error}") from error
    return patch


def load_layer(checkpoint: Checkpoint, layer: int, patch: dict[str, Any]) -> Layer:
    try:
        return checkpoint.layer(layer, operator.context(), patch=patch)
    except Error as error:
        raise RuntimeError(f"{checkpoint.report()['directory']}, layer {layer}: {error}") from error


def _replace_experts(model: Any, files: Any, overrides: dict[str, Any]) -> Any:
    """Before the weights are loaded: the model is on meta."""
    loading: list[tuple[LibmoeExperts, Checkpoint, int, dict[str, Any]]] = []
    experts = dict(_models.experts_of(model))
    tied: dict[str, str] = getattr(model, "all_tied_weights_keys", None) or {}  # name -> the name that has the tensor
    if not experts:
        return loading
    try:
        checkpoint = open_checkpoint(files)
        found = places(model, checkpoint)
        overrides = {**_changed_top_k(model, checkpoint.report()["directory"]), **overrides}
    except Unsupported as error:
        found = {name: error for name in experts}
    for name, module in experts.items():
        layer = found[name]
        try:
            if any(key.startswith(f"{name}.") for pair in tied.items() for key in pair):
                raise Unsupported("its tensors are also those of another module")
            if isinstance(layer, Unsupported):
                raise layer
            parts = _parts.parts_of(module)
            patch = patch_for(module, parts, checkpoint, layer, overrides)
            loading.append((replace(model, name, module), checkpoint, layer, patch))
        except Unsupported as error:
            module.__dict__["_libmoe_reason"] = str(error)
    if loading:
        ignored = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
        model._keys_to_ignore_on_load_unexpected = {*ignored, *_names_of_experts(loading)}
    return loading


def _changed_top_k(model: Any, directory: str) -> dict[str, Any]:
    """The caller's number of experts of a token, where it is not the file's."""
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        document = json.load(file)
    text, config = document.get("text_config", document), model.config.get_text_config()
    for name in _models.TOP_K:
        ours = getattr(config, name, None)
        if name in text and type(ours) is int and ours != text[name]:
            return {"top_k": ours}
    return {}


def _names_of_experts(loading: Any) -> set[str]:
    """Patterns of the experts' tensors, under the file's names and transformers': they are not reported as unexpected."""
    names = {name for experts, checkpoint, layer, _ in loading for name in (experts.where, checkpoint[layer].name)}
    return {re.escape(name) for name in names} | {r"(?<!shared_)experts\b"}


def _load_experts(model: Any, loading: Any) -> None:
    """After the weights are loaded."""
    for experts, checkpoint, layer, patch in loading:
        experts.take(load_layer(checkpoint, layer, patch), checkpoint.report()["directory"])
    _models.fall_back(model)
