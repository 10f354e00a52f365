"""What is done to a whole model: prepare, patch, status, refresh, save."""
from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from . import _experts, _parts
from ._experts import LibmoeExperts
from ._formulas import Unsupported

TOP_K = ("top_k", "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts")


class LayerStatus(NamedTuple):
    """Who runs a module of experts."""
    name: str  # of the module in the model
    kind: str  # its class in transformers
    way: str  # "files": read by libmoe; "tensors": made of the model's own; "transformers": not libmoe's
    kernel: str  # "" until it is converted
    bytes: int  # that libmoe holds
    reason: str  # of way "transformers", and of way "tensors" in a model of from_pretrained: why


def experts_of(model: Any) -> list[tuple[str, Any]]:
    """Modules of experts that libmoe could take over, with their names."""
    return [(name, module) for name, module in model.named_modules()
            if _parts.kind_of(module) and not any(isinstance(child, LibmoeExperts) for child in module.children())]


def unknown_of(model: Any) -> list[tuple[str, Any]]:
    """Modules that look like experts, by the name of their class, and that libmoe does not know."""
    known = {name for name, _ in experts_of(model)} | {name for name, _ in _taken(model)}
    found: list[tuple[str, Any]] = []
    for name, module in model.named_modules():
        near = any(one == name or one.startswith(f"{name}.") or name.startswith(f"{one}.")
                   for one in (*known, *(other for other, _ in found)))
        if not near and re.search(r"((?<!Shared)(?<!Parallel)Experts|M[oO][eE])$", type(module).__name__):
            found.append((name, module))
    return found


def top_k_of(model: Any, name: str, module: Any) -> int:
    """How many experts a token has: the block's number, its router's, or the config's."""
    parent = model.get_submodule(name.rpartition(".")[0])
    configs = [getattr(module, "config", None), getattr(parent, "config", None), model.config.get_text_config()]
    for holder in [module, parent, *parent.children(), *configs]:
        for member in TOP_K:
            value = getattr(holder, member, None)
            if type(value) is int and value > 0:
                return value
    raise Unsupported(f"{type(module).__name__}: it is not known how many experts a token has")


def _uses_libmoe(module: Any) -> bool:
    return _parts.is_decorated(module) and getattr(module.config, "_experts_implementation", None) == "libmoe"


def prepare(model: Any, free: bool = False) -> Any:
    """Converts the experts of a model that has experts_implementation="libmoe" now, not at the first call.

    free: the dense tensors are given back; afterwards there is no save_pretrained and no other implementation.
    Experts that the implementation does not reach are named in a LibmoeWarning: patch() takes those. Returns the
    model. Unsupported, a ValueError, says why a layer cannot be converted; what was converted before stays so.
    """
    mine = [(name, module) for name, module in experts_of(model) if _uses_libmoe(module)]
    if not mine and not _taken(model):
        raise RuntimeError("this model does not use libmoe: load it with experts_implementation=\"libmoe\", or call "
                           "libmoe.transformers.patch(model)")
    for name, module in mine:
        _convert(model, name, module, free)
    _warn(model)
    return model


def patch(model: Any, checkpoint: str | os.PathLike[str] | None = None, *, free: bool = False,
          overrides: dict[str, Any] | None = None) -> Any:
    """Lets libmoe run the experts of a model that is loaded, and converts them now.

    Classes of transformers' registry get experts_implementation "libmoe" and keep their tensors, unless `free`; the
    others that libmoe knows (Llama-4, Step-3.7, LongCat-Flash, DBRX, JetMoe) are replaced, their tensors given back.
    checkpoint: the directory that the model was loaded from; then all are replaced, by experts that libmoe reads there,
    with `overrides` as in from_pretrained. What cannot be taken over is named in a LibmoeWarning. Returns the model.
    """
    if checkpoint is not None:
        _patch_from(model, checkpoint, overrides or {})
        return model
    for name, module in experts_of(model):
        try:
            _convert(model, name, module, free)
        except Unsupported as error:
            module.__dict__["_libmoe_reason"] = str(error)
    _switch_on(model)
    _warn(model)
    return model


def _convert(model: Any, name: str, module: Any, free: bool) -> None:
    """Here and now; a module that no implementation reaches is replaced."""
    if free and getattr(model, "_tp_size", None) is not None:
        raise Unsupported("the model is spread over processes, which needs its modules: without free=True it works")
    top_k = top_k_of(model, name, module)
    if not _parts.is_decorated(module):
        layer = _experts.layer_of(module, top_k)
        _experts.replace(model, name, module).take(layer)
        return
    state = _experts.convert_module(module, top_k)
    if free:
        _experts.replace(model, name, module).take(state.registration.layer)


def _switch_on(model: Any) -> None:
    """Of modules that have a layer; the implementation is a word of their config, which others may share."""
    modules = [module for _, module in experts_of(model) if _parts.is_decorated(module)]
    switched = {id(module.config) for module in modules if _experts.state_of(module) is not None}
    for module in modules:
        if id(module.config) in switched:
            module.config._experts_implementation_internal = "libmoe"
            module.__dict__["_libmoe_kept"] = _experts.state_of(module) is None


def _patch_from(model: Any, directory: str | os.PathLike[str], overrides: dict[str, Any]) -> None:
    from . import _loading
    checkpoint = _loading.open_directory(directory)
    _check_model(model, directory)
    found = _loading.places(model, checkpoint)
    for name, module in experts_of(model):
        layer = found[name]
        try:
            if isinstance(layer, Unsupported):
                raise layer
            patch = _loading.patch_for(module, _parts.parts_of(module), checkpoint, layer, overrides)
            made = _loading.load_layer(checkpoint, layer, patch)
            if not _experts.agree(module, made, top_k_of(model, name, module)):
                raise Unsupported(f"{os.fspath(directory)} holds other experts than this model")
            _experts.replace(model, name, module).take(made, checkpoint.report()["directory"])
        except Unsupported as error:
            module.__dict__["_libmoe_reason"] = str(error)
    _warn(model)


def _check_model(model: Any, directory: str | os.PathLike[str]) -> None:
    """A directory of another model would say that member by member."""
    with open(Path(directory) / "config.json", encoding="utf-8") as file:
        theirs = json.load(file).get("model_type")
    if theirs != model.config.model_type:
        raise ValueError(f"checkpoint: {os.fspath(directory)} is of model_type {theirs}, this model is of "
                         f"{model.config.model_type}")
    if not experts_of(model) and _taken(model):
        raise RuntimeError("this model's experts are libmoe's already: load it again to have them read from other files")


def fall_back(model: Any) -> None:
    """Experts that were not read from the files: of torch tensors if that goes, else transformers'."""
    for name, module in experts_of(model):
        reason = module.__dict__.get("_libmoe_reason", "")
        try:
            _convert(model, name, module, False)
        except Unsupported as error:
            module.__dict__["_libmoe_reason"] = f"{reason}; from torch tensors: {error}" if reason else str(error)
    _switch_on(model)
    _warn(model)


def _warn(model: Any) -> None:
    """Says what is not as it was asked for; nothing is silently plain."""
    from ._loading import LibmoeWarning
    groups: dict[tuple[str, str, str], list[str]] = {}
    rows = status(model)
    if not rows:
        warnings.warn(f"{type(model).__name__} has no experts that libmoe knows: transformers runs all of it",
                      LibmoeWarning, stacklevel=3)
    for it in rows:
        if it.reason:
            groups.setdefault((it.way, it.kind, it.reason), []).append(it.name)
    for (way, kind, reason), names in groups.items():
        runs = "run by transformers" if way == "transformers" else "made of torch tensors, not of the files"
        warnings.warn(f"{len(names)} {kind} ({names[0]}{', ...' if len(names) > 1 else ''}) are {runs}: {reason}",
                      LibmoeWarning, stacklevel=3)


def _taken(model: Any) -> list[tuple[str, LibmoeExperts]]:
    return [(name, module) for name, module in model.named_modules() if isinstance(module, LibmoeExperts)]


def status(model: Any) -> list[LayerStatus]:
    """Of each module of experts: its kernel and bytes, or why transformers' own code runs there."""
    rows = {}
    for name, module in _taken(model):
        rows[name] = _row(name, module.kind, "files" if module.directory else "tensors", module.registration)
    for name, module in experts_of(model):
        kind, reason = type(module).__name__, module.__dict__.get("_libmoe_reason", "")
        state = _experts.state_of(module)
        if _uses_libmoe(module) and not module.__dict__.get("_libmoe_kept"):
            rows[name] = _row(name, kind, "tensors", state.registration if state else None, reason)
        else:
            out = ("experts_implementation is not \"libmoe\"" if _parts.is_decorated(module) else
                   "it is outside transformers' registry: libmoe.transformers.patch(model) replaces it")
            rows[name] = LayerStatus(name, kind, "transformers", "", 0, reason or out)
    for name, module in unknown_of(model):
        kind = type(module).__name__
        reason = _parts.REFUSED.get(kind, "libmoe does not know this class")
        rows[name] = LayerStatus(name, kind, "transformers", "", 0, reason)
    return [rows[name] for name, _ in model.named_modules() if name in rows]


def _row(name: str, kind: str, way: str, registration: Any, reason: str = "") -> LayerStatus:
    if registration is None:
        return LayerStatus(name, kind, way, "", 0, reason)
    report = registration.layer.report()
    return LayerStatus(name, kind, way, report["kernel"], report["memory"]["packed_bytes"], reason)


def refresh(model: Any) -> int:
    """Converts layers that were made of the model's own tensors again, at once; how many.

    For what torch does not tell: `parameter.data.mul_()` and other writes past `parameter`. Changes of a parameter
    itself are noticed without it, but not by a compiled model.
    """
    mine = [(name, module) for name, module in experts_of(model) if _experts.state_of(module) is not None]
    for name, module in mine:
        del module.__dict__["_libmoe"]
        _convert(model, name, module, False)
    return len(mine)


def save(model: Any, directory: str | os.PathLike[str]) -> None:
    """Writes the model as from_pretrained reads it.

    Where libmoe read the experts from files, these and all beside them are copied: weights are those that were loaded,
    whatever was done to the model since. A model that has its tensors goes through save_pretrained. One whose tensors
    were given back by free=True is RuntimeError: save it before.
    """
    taken, target = _taken(model), Path(directory)
    sources = {module.directory for _, module in taken}
    if not taken:
        model.save_pretrained(target)
        return
    if None in sources or len(sources) != 1:
        raise RuntimeError("this model's experts were made of torch tensors, which were given back: save it before "
                           "libmoe.transformers.prepare(model, free=True) or patch()")
    source = Path(str(sources.pop()))
    if target.resolve() == source.resolve():
        raise ValueError(f"directory: {source} is where the model was loaded from")
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.is_file():  # a link of a cache, too: its content
            shutil.copyfile(file, target / file.name)
