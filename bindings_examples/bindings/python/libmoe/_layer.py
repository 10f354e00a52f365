"""Converted weights, the layer that runs them, and routing alone."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Sequence

import numpy as np
import numpy.typing as npt

from . import _abi as abi
from ._abi import ApplyFlags, ApplyMode, ConvertFlags, DType, LayerFlags, LoadFlags, moe_tensor
from ._context import Context, Control, controlled, release
from ._handle import (Handle, c_text, call, check_kind, counted, integer, json_of, kept, layer_text, memory, numbers_of,
                      size_text)
from ._model import Config, Selection
from ._tensor import NUMPY, Tensor, View, dtype_of, empty, tensor_at, view_of
from ._weights import Weights


def _bytes(buffer: Any, name: str, write: bool = False) -> tuple[int, int, Any]:
    """Address and size of a buffer without gaps, and what keeps it."""
    try:
        array: npt.NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise TypeError(f"{name}: expected a buffer of bytes without gaps: {error}") from error
    if write and not array.flags.writeable:
        raise ValueError(f"{name}: this buffer is read-only")
    return array.ctypes.data, array.nbytes, array


def pointer_of(handle: Handle | None, kind: str) -> ctypes.c_void_p | None:
    """For a struct; `using` keeps it open during the call."""
    if handle is None:
        return None
    check_kind(handle, kind, kind)
    owner = handle._owner
    return owner.pointer if owner else None


class Packed(Handle):
    """Converted weights: immutable, shared by any number of layers, saved and mapped again."""
    _kind = "packed"

    @classmethod
    def load(cls, path: str | bytes | os.PathLike[Any], context: Context | None = None, *,
             flags: LoadFlags | int = LoadFlags.MMAP, control: Control | None = None) -> Packed:
        """A file of save(). Mapped (the default), it must not change while it is used."""
        self = cls.__new__(cls)
        with controlled(control) as control:
            self._create("moe_packed_load", context, c_text(path, "path"), flags, control, stop=control)
        return self

    @classmethod
    def load_memory(cls, buffer: Any, context: Context | None = None, *, flags: LoadFlags | int = 0) -> Packed:
        """From the bytes of `data`, in any buffer: bytes, an array, a mapping. It is kept, copied only when it is not
        aligned to 64 bytes, and must not change meanwhile."""
        address, size, keep = _bytes(buffer, "buffer")
        number = kept.add(keep)
        self = cls.__new__(cls)
        self._create("moe_packed_load_memory", context, address, size, flags, release, number, given=number)
        return self

    def save(self, path: str | bytes | os.PathLike[Any], *, control: Control | None = None) -> None:
        """Writes a file that appears under its name only when it is complete and on the disk."""
        with controlled(control) as control:
            call("moe_packed_save", self, c_text(path, "path"), 0, control, stop=control)

    @property
    def data(self) -> memoryview:
        """The whole as one block, for your own container; read-only, without a copy."""
        with self.raw() as packed:
            address, size = ctypes.c_void_p(), ctypes.c_uint64()
            call("moe_packed_data", packed, ctypes.byref(address), ctypes.byref(size))
            return memory(address.value, size.value, self._owner).toreadonly()

    def get(self, role: str, expert: int = -1) -> Tensor:
        """One output of the conversion by its name in report()["outputs"]; one expert's slice, or all ([E, ...]).
        It is read-only: DLPack gives it to others with numpy 2.1 and newer, or as a copy."""
        struct = moe_tensor(struct_size=ctypes.sizeof(moe_tensor))
        with self.raw() as packed:
            call("moe_packed_get", packed, c_text(role, "role"), expert, ctypes.byref(struct))
            return tensor_at(struct, self._owner)

    def dequantize(self, role: str, expert: int, out: Any) -> None:
        """Dense numbers of one expert, "w13_weight" [N1, H] or "w2_weight" [H, I], into a float array. For checks."""
        view = view_of(out, "out", write=True)
        call("moe_packed_dequantize", self, c_text(role, "role"), expert, ctypes.byref(view.struct))

    def _says(self) -> str:
        it = self.report()
        return f"{it['layout']}, {layer_text(it['config'])}, {size_text(it['bytes'])}"

    def report(self) -> dict[str, Any]:
        """Layout, config, experts, named outputs, sizes, content hash."""
        answer: dict[str, Any] = json_of("moe_packed_to_json", self)
        return answer


def convert(selection: Selection, weights: Weights, context: Context | None = None, *, into: Any = None,
            flags: ConvertFlags | int = 0, max_temp_bytes: int = 0, control: Control | None = None) -> Packed:
    """Repacks the weights into the layout of the selection; `into`: a writable buffer of Selection.packed_size."""
    with controlled(control) as control:
        options = abi.moe_convert_options(struct_size=ctypes.sizeof(abi.moe_convert_options),
                                          flags=integer(flags, "flags"), control=pointer_of(control, "control"),
                                          max_temp_bytes=integer(max_temp_bytes, "max_temp_bytes"))
        if into is not None:
            options.dst, options.dst_size, keep = _bytes(into, "into", write=True)
            options.dst_release, options.dst_user = release, kept.add(keep)
        packed = Packed.__new__(Packed)
        packed._create("moe_convert_weights", context, selection, weights, ctypes.byref(options), using=(control,),
                       given=options.dst_user, stop=control)
    return packed


class Layer(Handle):
    """Converted weights bound to a kernel. Several threads may call `apply` at once."""
    _kind = "layer"
    _resolved: dict[str, Any] | None = None  # its config, which never changes
    _work: int | None = None  # a third of the products of a token

    def __init__(self, selection: Selection, packed: Packed, context: Context | None = None, *,
                 correction_bias: Any = None, expert_map: Any = None, flags: LayerFlags | int = 0) -> None:
        options, views = layer_options(correction_bias, expert_map, flags)
        self._create("moe_layer_create", context, selection, packed, ctypes.byref(options))
        del views
        if context is not None:
            self._raised = context._raised

    def apply(self, hidden: Any, logits: Any = None, *, topk_ids: Any = None, topk_weights: Any = None,
              out: Any = None, flags: ApplyFlags | int = 0, control: Control | None = None, workspace: Any = None,
              out_topk_ids: Any = None, out_topk_weights: Any = None) -> Any:
        """hidden [T, H] and either router logits [T, E] or ids and weights [T, K] -> out [T, H].

        Arrays are numpy's, or anything with `__dlpack__` in CPU memory; none is copied. Without `out` a new array of
        numpy is given for numpy's, else a Tensor. out_topk_ids and out_topk_weights get what routing chose.
        `workspace`: a buffer of workspace_size() bytes; without it the library's.
        """
        if logits is None and topk_ids is None:
            raise TypeError("apply: expected logits, or topk_ids and topk_weights")
        args = abi.moe_apply_args(struct_size=ctypes.sizeof(abi.moe_apply_args), flags=integer(flags, "flags"),
                                  mode=ApplyMode.TOPK if logits is None else ApplyMode.ROUTER_LOGITS)
        views = _point(args, hidden=hidden, router_logits=logits, topk_ids=topk_ids, topk_weights=topk_weights)
        if out is None and views:
            out = self._new_out(hidden, views[0])
        written = _point(args, True, out=out, out_topk_ids=out_topk_ids, out_topk_weights=out_topk_weights)
        if workspace is not None:
            args.workspace, args.workspace_size, workspace = _bytes(workspace, "workspace", write=True)
        args._views = views, written, workspace  # kept as long as the struct
        if control is None and not (views and self._is_long(views[0].struct.shape[0])):
            call("moe_apply", self, ctypes.byref(args))
            return out
        with controlled(control) as control:
            args.control = pointer_of(control, "control")
            call("moe_apply", self, ctypes.byref(args), using=(control,), stop=control)
        return out

    def _is_long(self, tokens: int) -> bool:
        """Whether Ctrl-C shall stop a call. The thread for that takes up to a millisecond; a call of so many products
        lasts 0.1 s on one thread without vector instructions, else less."""
        if self._work is None:
            it = self._config()
            self._work = it["top_k"] * it["hidden_dim"] * it["intermediate_size_per_partition"]
        return bool(self._raised) or tokens * self._work > 1 << 28

    def _new_out(self, hidden: Any, view: View) -> Any:
        """Of the shape of `hidden`, zeroed for ApplyFlags.ACCUMULATE, in the type that the config gives out."""
        shape, dtype = view.struct.shape[:view.struct.ndim], self._out_dtype()
        if isinstance(hidden, np.ndarray):  # bfloat16 as the caller has it: in a numpy type of others, or as bits
            same = view.struct.dtype == dtype
            return np.zeros(shape, hidden.dtype if same else NUMPY[dtype])
        out = empty(shape, dtype)
        out.numpy()[...] = 0
        return out

    def _out_dtype(self) -> DType:
        return dtype_of(self._config()["out_dtype"])

    def workspace_size(self, num_tokens: int, mode: ApplyMode = ApplyMode.ROUTER_LOGITS) -> tuple[int, int]:
        """Bytes and alignment of a workspace for calls with so many tokens."""
        size, alignment = numbers_of("moe_layer_workspace_size", self, mode, num_tokens, count=2)
        return int(size), int(alignment)

    def expert_counts(self, reset: bool = False) -> npt.NDArray[np.uint64]:
        """Tokens routed to each held expert since the last reset."""
        config = self._config()
        counts = np.zeros(config["num_local_experts"] + config["routing"]["num_fused_shared_experts"], np.uint64)
        call("moe_layer_expert_counts", self, counts.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64)), counts.size,
             reset)
        return counts

    @property
    def name(self) -> str:
        """Of its config, such as "model.layers.3.mlp.experts", or ""."""
        return str(self._config()["name"])

    @property
    def num_experts(self) -> int:
        return int(self._config()["num_experts"])

    @property
    def top_k(self) -> int:
        return int(self._config()["top_k"])

    @property
    def hidden_dim(self) -> int:
        return int(self._config()["hidden_dim"])

    def _config(self) -> dict[str, Any]:
        if self._resolved is None:
            self._resolved = self.report()["config"]
        return self._resolved

    def _says(self) -> str:
        it = self.report()
        return f"{it['kernel']}, {layer_text(it['config'])}, {counted(it['threads'], 'thread')}"

    def report(self) -> dict[str, Any]:
        """Config, kernel, threads, memory use."""
        answer: dict[str, Any] = json_of("moe_layer_to_json", self)
        return answer


def layer_options(correction_bias: Any, expert_map: Any, flags: LayerFlags | int) -> tuple[Any, list[View]]:
    """The struct, and what its tensors need while it is used."""
    options = abi.moe_layer_options(struct_size=ctypes.sizeof(abi.moe_layer_options), flags=integer(flags, "flags"))
    return options, _point(options, correction_bias=correction_bias, expert_map=expert_map)


def _point(struct: Any, write: bool = False, /, **arrays: Any) -> list[View]:
    """Sets the tensors of a struct; the views must live as long as it is used."""
    views = []
    for name, array in arrays.items():
        if array is not None:
            views.append(view_of(array, "logits" if name == "router_logits" else name, write=write))
            setattr(struct, name, ctypes.pointer(views[-1].struct))
    return views


def route(config: Config, logits: Any, context: Context | None = None, *, correction_bias: Any = None,
          topk_ids: Any = None, topk_weights: Any = None) -> tuple[Any, Any]:
    """Routing alone, without weights: logits [T, E] -> ids [T, K] int32 and weights [T, K] float32, in new arrays or
    those given (of hash routing, `topk_ids` is read)."""
    args = abi.moe_route_args(struct_size=ctypes.sizeof(abi.moe_route_args))
    views = _point(args, router_logits=logits, correction_bias=correction_bias)
    if topk_ids is None or topk_weights is None:
        tokens = views[0].struct.shape[0] if views else 0
        slots = config.integer("/top_k") + config.integer("/routing/num_fused_shared_experts")
        shape: Sequence[int] = (tokens, slots)
        topk_ids = np.zeros(shape, np.int32) if topk_ids is None else topk_ids
        topk_weights = np.zeros(shape, np.float32) if topk_weights is None else topk_weights
    views += _point(args, True, out_topk_ids=topk_ids, out_topk_weights=topk_weights)
    call("moe_route", context, config, ctypes.byref(args))
    return topk_ids, topk_weights
