"""All layers of a model: a directory as it was downloaded, or one that was converted."""
from __future__ import annotations

import ctypes
import operator
import os
from typing import Any, Iterable, Iterator, NamedTuple, overload

from . import _abi as abi
from ._abi import LayerFlags, LayerInfoFlags, LayerKind, LoadFlags, SelectFlags, moe_tensor
from ._context import Context, Control, ProgressLike, controlled
from ._handle import Buffer, Handle, c_text, call, counted, encode, integer, invoke, json_of, size_text
from ._layer import Layer, Packed, layer_options, pointer_of
from ._model import Config, Platform, Selection
from ._tensor import Tensor, owned_tensor


class LayerInfo(NamedTuple):
    """What stands at a layer's place, before any cut."""
    layer: int  # its number
    kind: LayerKind  # OTHER, too, where this package does not know it
    is_mtp: bool  # for multi-token prediction, not in the model's pass
    is_converted: bool  # its packed file is here
    num_experts: int
    top_k: int
    hidden_dim: int
    intermediate_size: int
    bytes: int  # of its experts in the files
    name: str  # "model.layers.3.mlp.experts", "" without experts
    problem: str  # "", or why it cannot be used, or why its packed file is not


class Checkpoint(Handle):
    """The layers of a model's directory: Hugging Face's, or one of convert(). `open` of this package makes it.

    It is a sequence of LayerInfo: len(), [index], iteration. `layer` makes a layer that is ready to run. Every header
    was read and checked when it was opened, and no weight; the files stay open until the last object that uses them
    ends, and must not change meanwhile. Calls without a context take the one that it was opened with.
    """
    _kind = "checkpoint"
    _context: Context | None = None

    def __init__(self, directory: str | bytes | os.PathLike[Any], context: Context | None = None, *,
                 control: Control | None = None, progress: ProgressLike = None, **options: Any) -> None:
        self._check_new()
        path, document = c_text(directory, "directory"), encode(options, "options")
        with controlled(control, progress) as control:
            self._create("moe_checkpoint_open", context, path, *document, control, stop=control)
        self._context = context

    def __len__(self) -> int:
        """Layers of all kinds; those of multi-token prediction come last."""
        with self.raw() as checkpoint:
            return int(invoke("moe_checkpoint_layer_count", checkpoint))

    def __bool__(self) -> bool:
        return True

    @property
    def layers(self) -> list[LayerInfo]:
        """What each layer is."""
        with self.raw() as checkpoint:  # the texts are the checkpoint's
            return [_info(checkpoint, layer) for layer in range(invoke("moe_checkpoint_layer_count", checkpoint))]

    @overload
    def __getitem__(self, index: int) -> LayerInfo: ...
    @overload
    def __getitem__(self, index: slice) -> list[LayerInfo]: ...

    def __getitem__(self, index: int | slice) -> LayerInfo | list[LayerInfo]:
        if isinstance(index, slice):
            return self.layers[index]
        count, number = len(self), operator.index(index)
        if not -count <= number < count:
            raise IndexError(f"layer {number} of {counted(count, 'layer')}")
        with self.raw() as checkpoint:
            return _info(checkpoint, number % count)

    def __iter__(self) -> Iterator[LayerInfo]:
        return iter(self.layers)

    def config(self, layer: int, patch: dict[str, Any] | str | bytes | None = None) -> Config:
        """The config of a layer; members of `patch` win, such as {"parallel": {..}} of one rank. Of a failure
        details["reason"] is "past_the_end", "dense_layer" or "not_understood"."""
        config = Config.__new__(Config)
        config._create("moe_checkpoint_config", self, layer, *encode(patch, "patch"))
        return config

    def layer(self, layer: int, context: Context | None = None, *,
              patch: dict[str, Any] | str | bytes | None = None, platform: Platform | None = None,
              load_flags: LoadFlags | int = LoadFlags.MMAP, allow_fallback: bool = False, correction_bias: Any = None,
              expert_map: Any = None, flags: LayerFlags | int = 0, control: Control | None = None,
              progress: ProgressLike = None) -> Layer:
        """A layer that is ready to run: converted now, or of a converted checkpoint mapped (load_flags 0: read)."""
        context = self._context if context is None else context
        of_layer, views = layer_options(correction_bias, expert_map, flags)
        made = Layer.__new__(Layer)
        with controlled(control, progress) as control:
            options = _options(load_flags=load_flags, allow_fallback=allow_fallback, platform=platform, patch=patch,
                               control=control)
            options.layer = ctypes.pointer(of_layer)
            options._views = views  # kept as long as the struct
            made._create("moe_checkpoint_layer", context, self, layer, ctypes.byref(options), using=(control, platform),
                         stop=control)
        if context is not None:
            made._raised = context._raised
        return made

    def packed(self, selection: Selection, context: Context | None = None, *,
               load_flags: LoadFlags | int = LoadFlags.MMAP, control: Control | None = None,
               progress: ProgressLike = None) -> Packed:
        """Converted weights for a selection of one of its configs."""
        packed = Packed.__new__(Packed)
        with controlled(control, progress) as control:
            options = _options(load_flags=load_flags, control=control)
            packed._create("moe_checkpoint_packed", self._context if context is None else context, self, selection,
                           ctypes.byref(options), using=(control,), stop=control)
        return packed

    def convert(self, directory: str | bytes | os.PathLike[Any], context: Context | None = None, *,
                layers: Iterable[int] | None = None, platform: Platform | None = None,
                patch: dict[str, Any] | str | bytes | None = None, verify: bool = False, allow_fallback: bool = False,
                control: Control | None = None, progress: ProgressLike = None) -> None:
        """Converts `layers` (None: all that have experts) into a directory that `open` takes.

        It holds whole layers at any time: after a failure or a cancellation the next call goes on. Layers that are
        there are not made again; `verify` compares their hashes first. Another source, cut, platform or layout is
        ConfigMismatch, a second call for the same directory Busy.
        """
        path = c_text(directory, "directory")
        with controlled(control, progress) as control:
            options = _options(load_flags=LoadFlags.VERIFY if integer(verify, "verify") else 0, platform=platform,
                               patch=patch, allow_fallback=allow_fallback, control=control)
            if layers is not None:
                numbers = [integer(number, "layers", ctypes.c_int64) for number in _iterable(layers)]
                if not numbers:
                    raise ValueError("layers: expected at least one number, or None for all")
                array = (ctypes.c_int64 * len(numbers))(*numbers)
                options.layers, options.num_layers = ctypes.cast(array, ctypes.c_void_p), len(numbers)
            call("moe_checkpoint_convert", self._context if context is None else context, self, path,
                 ctypes.byref(options), using=(control, platform), stop=control)

    def tensor(self, name: str) -> Tensor:
        """Any tensor of the files by its name, such as one of report()["layers"][0]["router"], in memory of its own."""
        struct, hold = moe_tensor(struct_size=ctypes.sizeof(moe_tensor)), ctypes.c_void_p()
        call("moe_checkpoint_tensor", self, c_text(name, "name"), ctypes.byref(struct), ctypes.byref(hold))
        with Buffer.adopt(hold.value or 0) as buffer:
            return owned_tensor(struct, buffer.memory)

    def fingerprint(self, full: bool = False, context: Context | None = None, *, control: Control | None = None,
                    progress: ProgressLike = None) -> str:
        """Which weights these are: "fast:" and a hash of headers and samples; with `full` "full:" and a hash of all.
        Of a converted checkpoint: its source's, "" if it was made with the other kind."""
        with controlled(control, progress) as control:
            with Buffer("moe_checkpoint_fingerprint", self._context if context is None else context, self, full,
                        control, stop=control) as text:
                return str(text.memory, "utf-8")

    def report(self) -> dict[str, Any]:
        """Class, dtype, quantization, and all of each layer, with names that look like its router's."""
        answer: dict[str, Any] = json_of("moe_checkpoint_to_json", self)
        return answer

    def _says(self) -> str:
        it = self.report()
        parts = [it["class"], counted(len(it["layers"]), "layer"), size_text(sum(o.bytes for o in self.layers))]
        return ", ".join([*parts, *(["converted"] if "converted" in it else []), it["directory"]])


def open(directory: str | bytes | os.PathLike[Any], context: Context | None = None, *,
         control: Control | None = None, progress: ProgressLike = None, **options: Any) -> Checkpoint:
    """Opens a model's directory, as it was downloaded or as Checkpoint.convert wrote it.

    options: those of Config.from_hf without layer_index and module, for all layers, such as architecture=. A file that
    is missing is FileNotFoundError. Layers that cannot be used do not make the call fail: LayerInfo.problem says why.
    """
    return Checkpoint(directory, context, control=control, progress=progress, **options)


def _iterable(layers: Iterable[int]) -> Iterable[int]:
    if not isinstance(layers, Iterable) or isinstance(layers, (str, bytes)):
        raise TypeError(f"layers: expected integers, got {type(layers).__name__}")
    return layers


def _info(checkpoint: ctypes.c_void_p, layer: int) -> LayerInfo:
    it = abi.moe_layer_info(struct_size=ctypes.sizeof(abi.moe_layer_info))
    call("moe_checkpoint_layer_info", checkpoint, layer, ctypes.byref(it))
    kind = LayerKind(it.kind) if it.kind in LayerKind._value2member_map_ else LayerKind.OTHER
    return LayerInfo(layer, kind, bool(it.flags & LayerInfoFlags.IS_MTP), bool(it.flags & LayerInfoFlags.IS_CONVERTED),
                     it.num_experts, it.top_k, it.hidden_dim, it.intermediate_size, it.bytes, it.name.decode(),
                     it.problem.decode())


def _options(*, load_flags: LoadFlags | int, allow_fallback: bool = False, platform: Platform | None = None,
             patch: dict[str, Any] | str | bytes | None = None, control: Control | None = None) -> Any:
    text, size = encode(patch, "patch")
    options = abi.moe_checkpoint_options(
        struct_size=ctypes.sizeof(abi.moe_checkpoint_options), load_flags=integer(load_flags, "load_flags"),
        select_flags=SelectFlags.ALLOW_FALLBACK if integer(allow_fallback, "allow_fallback") else 0, patch_len=size,
        platform=pointer_of(platform, "platform"), control=pointer_of(control, "control"))
    if text:
        options.text = ctypes.c_char_p(text)  # kept as long as the struct
        options.patch_json = ctypes.cast(options.text, ctypes.c_void_p)
    return options
