"""The source tensors of one layer."""
from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, Any, Callable

from . import _abi as abi
from ._abi import Status, moe_tensor
from ._context import release
from ._errors import Error, failure
from ._handle import Buffer, Handle, c_text, call, callback, check_function, counted, integer, json_of, kept, optional
from ._library import lib
from ._model import Config
from ._tensor import Tensor, View, tensor_at, view_of

if TYPE_CHECKING:
    from ._checkpoint import Checkpoint

SourceFunction = Callable[[str, int, "str | None"], Any]


class Weights(Handle):
    """Tensors by role, by expert, or by their names in a checkpoint; one thread at a time, else Busy.

    Arrays are not copied: each is kept until the library says that it no longer uses it, and must not change until
    then. `dtype` tells what elements are where numpy has no such type: "f8_e4m3fn" of bytes, "bf16" of uint16.
    """
    _kind = "weights"
    _views: dict[int, View]

    def __init__(self, config: Config) -> None:
        self._check_new()
        self._views = {}
        self._create("moe_weights_create", config)

    @classmethod
    def from_source(cls, config: Config, get: SourceFunction, *, serial: bool = True) -> Weights:
        """A set that asks while conversion runs, so that only a few experts are in memory at a time.

        get(role, expert, shard) gives an array, a pair of array and dtype, or None for what it does not have. A w13
        role is asked for as a whole (shard None) first, then as "w1" and "w3". It is kept until the library has
        used it. serial False: several threads may ask at once.
        """
        check_function(get, "get")
        self = cls.__new__(cls)
        self._views = {}
        source = _Source(get)
        self._raised = [source.raised]
        ops = abi.moe_weight_source_ops(struct_size=ctypes.sizeof(abi.moe_weight_source_ops), get=_get, put=_put,
                                        serial=integer(serial, "serial", ctypes.c_int32), user=kept.add(source),
                                        destroy=release)
        self._create("moe_weights_create_from_source", config, ctypes.byref(ops), given=ops.user)
        return self

    def load_safetensors(self, path: str | bytes | os.PathLike[Any], module: str | None = None) -> None:
        """A .safetensors file, an index or a directory; tensors are read during conversion."""
        call("moe_weights_load_safetensors", self, c_text(path, "path"), optional(module, "module"))

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """From files that are open already: of a config that is one of Checkpoint.config."""
        call("moe_weights_load_checkpoint", self, checkpoint)

    def set(self, role: str, array: Any, dtype: Any = None) -> None:
        """A stacked tensor [E, ...]."""
        self._set("moe_weights_set", (c_text(role, "role"),), view_of(array, role, dtype))

    def set_expert(self, role: str, expert: int, array: Any, shard: str | None = None, dtype: Any = None) -> None:
        """One expert's; shard "w1" (gate) or "w3" (up) for half of a w13 role."""
        place = (c_text(role, "role"), expert, optional(shard, "shard"))
        self._set("moe_weights_set_expert", place, view_of(array, f"{role}[{expert}]", dtype))

    def set_named(self, name: str, array: Any, dtype: Any = None) -> bool:
        """By its name in a checkpoint; False if the name does not belong to this layer."""
        consumed = ctypes.c_int32()
        self._set("moe_weights_set_named", (c_text(name, "name"),), view_of(array, name, dtype), ctypes.byref(consumed))
        return bool(consumed.value)

    def _set(self, name: str, place: tuple[Any, ...], view: View, *out: Any) -> None:
        number = kept.add((view, self._views))
        self._views[number] = view
        try:
            call(name, self, *place, ctypes.byref(view.struct), _release_view, number, *out)
        except BaseException:
            _end_use(number)  # of a closed set the library was not asked, so it releases nothing
            raise

    def get(self, role: str, expert: int = -1) -> Tensor:
        """One expert's tensor of a role (w13 joined), or all of them; without a copy where it was set so."""
        struct, hold = moe_tensor(struct_size=ctypes.sizeof(moe_tensor)), ctypes.c_void_p()
        views = list(self._views.values())  # whichever it is, it stays
        call("moe_weights_get", self, c_text(role, "role"), expert, ctypes.byref(struct), ctypes.byref(hold))
        if hold:
            with Buffer.adopt(hold.value or 0) as buffer:
                return tensor_at(struct, buffer._owner)
        for view in views:
            first, size = view.extent()
            if first <= (struct.data or 0) < first + max(size, 1):
                return tensor_at(struct, view.keep)
        raise failure(Status.BUSY, role, "this set was changed meanwhile")

    def _says(self) -> str:
        it = self.report()
        return f"{counted(len(it['tensors']), 'tensor')}, " + ("complete" if it["complete"] else
                                                              f"{len(it['missing'])} missing")

    def report(self) -> dict[str, Any]:
        """What is there, what is missing, what was not expected."""
        answer: dict[str, Any] = json_of("moe_weights_to_json", self)
        return answer


def _end_use(number: int) -> None:
    view_and_set = kept.pop(number)
    if view_and_set is not None:
        view_and_set[1].pop(number, None)


_release_view = callback(abi.moe_release_fn)(_end_use)


class _Source:
    """A weight source of the caller, and the arrays that the library uses of it."""

    def __init__(self, get: SourceFunction) -> None:
        self.get, self.raised = get, list[BaseException]()
        self.used: dict[tuple[Any, ...], list[View]] = {}
        self.lock = threading.Lock()


def _text_of(error: BaseException) -> bytes:
    """For an error of the library; what is raised here would end in a status that no one chose."""
    try:
        text = error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}"
        return text.encode(errors="backslashreplace")
    except BaseException:
        return type(error).__name__.encode(errors="backslashreplace")


@callback(abi.moe_weight_source_ops_get)
def _get(number: int, role: bytes, expert: int, shard: bytes | None, out: int, err: Any) -> int:
    source: _Source = kept[number]
    try:
        name, part = role.decode(), None if shard is None else shard.decode()
        array = source.get(name, expert, part)
        if array is None:
            return Status.MISSING_WEIGHT
        array, dtype = array if isinstance(array, tuple) else (array, None)
        view = view_of(array, f"{name}[{expert}]", dtype)
        with source.lock:
            source.used.setdefault((role, expert, shard), []).append(view)
        ctypes.memmove(out, ctypes.byref(view.struct), ctypes.sizeof(moe_tensor))
        return Status.OK
    except BaseException as error:
        source.raised.append(error)
        status = error.status if isinstance(error, Error) and error.status else Status.CALLBACK
        text = _text_of(error)
        err[0] = lib.moe_error_create(status, text, len(text))
        return status


@callback(abi.moe_weight_source_ops_put)
def _put(number: int, role: bytes, expert: int, shard: bytes | None, tensor: int) -> None:
    source: _Source = kept[number]
    data = moe_tensor.from_address(tensor).data
    with source.lock:
        views = source.used[role, expert, shard]
        views.remove(next(view for view in views if view.struct.data == data))
