"""libmoe for torch: layers as the operator `torch.ops.libmoe.experts`.

    import libmoe.torch

    experts = libmoe.torch.register(layer)                       # a libmoe.Layer; it lives as long as `experts`
    out = torch.ops.libmoe.experts(hidden, topk_ids, topk_weights, experts.number)

hidden [T, H] in the layer's type, topk_ids [T, K] of integers, topk_weights [T, K] of floats -> out [T, H], a new
tensor of hidden's type on hidden's device. T may be 0, tensors may have gaps. An id of -1 skips its place. What is on
another device is copied to the CPU, and the result back: experts always run on CPUs. Several threads may call at once.
`torch.compile(fullgraph=True)` takes the operator as it is: the graph holds the number. There is no gradient: hidden
states that need one are RuntimeError unless torch.no_grad() is on. Other errors are those of libmoe, such as
ShapeError and DTypeError; a number whose layer is gone is InvalidHandle.

Without the operator `Layer.apply(hidden, ..., out=tensor)` takes and fills torch's tensors by DLPack, without copies.
Needs torch 2.4 or newer.
"""
from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.multiprocessing.reductions import StorageWeakRef  # type: ignore[import-not-found,unused-ignore]

from . import _abi as abi
from ._abi import ApplyMode, DType, Status
from ._context import Context
from ._errors import failure
from ._handle import taken
from ._layer import Layer
from ._library import lib
from ._tensor import dtype_of

__all__ = ["Registration", "context", "register", "set_context"]

_FLOATS = {torch.float32: DType.F32, torch.bfloat16: DType.BF16, torch.float16: DType.F16}
_IDS = {torch.int32: DType.I32, torch.int64: DType.I64}
_TORCH = {number: dtype for dtype, number in _FLOATS.items()}
NO_BACKWARD = ("libmoe's experts are for inference and have no backward: call the model under torch.no_grad(), or "
               "train it with transformers' own experts")
_OTHER_DEVICES = ("CUDA", "XPU", "MPS", "PrivateUse1")

# The operator is the process's, so what it uses lives beside it: this module may be loaded again.
_shared = vars(torch.ops.libmoe)
_layers: dict[int, _Entry] = _shared.setdefault("_layers", {})
_numbers = _shared.setdefault("_numbers", itertools.count(1))


# --- which layers there are -------------------------------------------------------------------------------------------
class _Entry:
    """What a call needs of a layer; it keeps the layer's memory, also when the layer is closed."""
    __slots__ = ("layer", "owner", "pointer", "dtype", "stamp", "frames")

    def __init__(self, layer: Layer, dtype: Any, stamp: Any) -> None:
        self.layer, self.dtype, self.stamp = layer, dtype, stamp
        self.owner = layer._owner
        self.pointer = self.owner.pointer if self.owner else None
        self.frames: list[_Frame] = []  # that no call uses now


class Registration:
    """A layer's place in `torch.ops.libmoe.experts`: `number`, as long as this object lives.

    Copies, deep ones too, are this object: layers never change. It cannot be pickled.
    """

    def __init__(self, layer: Layer, stamp: Any = None) -> None:
        """stamp: stamp_of the tensors that the layer was made of, for `torch.ops.libmoe.experts_of`."""
        config = layer.report()["config"]
        dtype, out = dtype_of(config["in_dtype"]), dtype_of(config["out_dtype"])
        if dtype is not out:
            raise ValueError(f"layer: expected one that gives {config['in_dtype']} as it takes it, "
                             f"got {config['out_dtype']}")
        self.layer, self.dtype, self.number = layer, _TORCH[dtype], next(_numbers)
        _layers[self.number] = _Entry(layer, self.dtype, stamp)
        self.release = weakref.finalize(self, _layers.pop, self.number, None)
        self.release.atexit = False

    def __copy__(self) -> Registration:
        return self

    def __deepcopy__(self, _: Any) -> Registration:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("experts of libmoe cannot be pickled, they are memory of this process: keep the model's directory "
                        "(libmoe.transformers.save) and load it with libmoe.transformers.from_pretrained")

    def __repr__(self) -> str:
        return f"<libmoe.torch.Registration {self.number} of {self.layer!r}>"


def register(layer: Layer) -> Registration:
    """Gives a layer a number for `torch.ops.libmoe.experts`, until `release()` of what is returned, or its end."""
    return Registration(layer)


def stamp_of(sources: Any) -> Any:
    """Changes when a tensor is written to or gets other memory, as far as torch tells.

    It does not tell of `tensor.data.mul_()`, nor of writes to tensors of inference mode. Marks of memory are
    unique while the result of pins_of is kept.
    """
    return tuple((tensor.untyped_storage()._cdata, tensor.storage_offset(), 0 if tensor.is_inference() else tensor._version)
                 for tensor in sources)


def pins_of(sources: Any) -> Any:
    """Weak references to the memory of tensors: while they live, no other memory gets the same mark in stamp_of."""
    return [StorageWeakRef(tensor.untyped_storage()) for tensor in sources]


_context: Context | None = None
_lock = threading.Lock()


def context() -> Context:
    """The threads of all layers that libmoe.transformers makes: as many as torch has, when it is first asked."""
    global _context
    with _lock:
        if _context is None:
            _context = Context(threads=torch.get_num_threads())
        return _context


def set_context(other: Context) -> None:
    """Takes another context for the layers that are made from now on."""
    global _context
    with _lock:
        _context = other


# --- one call ---------------------------------------------------------------------------------------------------------
class _Frame:
    """The structs of one call, made before; `said` is what they say of the tensors beside their addresses.

    Threads, and handlers of signals within a call, each take one of their own.
    """
    __slots__ = ("views", "args", "args_ref", "error", "error_ref", "said")

    def __init__(self) -> None:
        self.views = [abi.moe_tensor(struct_size=ctypes.sizeof(abi.moe_tensor), ndim=2) for _ in range(4)]
        self.args = abi.moe_apply_args(struct_size=ctypes.sizeof(abi.moe_apply_args), mode=ApplyMode.TOPK)
        self.args.hidden, self.args.topk_ids, self.args.topk_weights, self.args.out = map(ctypes.pointer, self.views)
        self.args_ref = ctypes.byref(self.args)
        self.error = ctypes.c_void_p()
        self.error_ref = ctypes.byref(self.error)
        self.said: Any = None

    def say(self, said: Any, tensors: Any) -> None:
        for view, tensor in zip(self.views, tensors):
            view.dtype = (_IDS if tensor.dtype in _IDS else _FLOATS)[tensor.dtype]
            view.shape[:2] = tensor.shape
        self.said = said


def _apply(hidden: Any, topk_ids: Any, topk_weights: Any, layer: int) -> Any:
    """The operator on the CPU."""
    entry = _layers.get(layer)
    if entry is None or hidden.dtype is not entry.dtype or hidden.requires_grad or topk_weights.requires_grad:
        entry = _checked(entry, hidden, topk_weights, layer)
    if topk_ids.dtype not in _IDS:
        topk_ids = _integers(topk_ids)
    if topk_weights.dtype is not torch.float32:
        topk_weights = topk_weights.float()
    if not (hidden.is_contiguous() and topk_ids.is_contiguous() and topk_weights.is_contiguous()):
        hidden, topk_ids, topk_weights = hidden.contiguous(), topk_ids.contiguous(), topk_weights.contiguous()
    out = torch.empty_like(hidden)
    try:
        frame = entry.frames.pop()
    except IndexError:
        frame = _Frame()
    said = hidden.shape, topk_ids.shape, topk_weights.shape, topk_ids.dtype
    if frame.said != said:
        _check_shapes(hidden, topk_ids, topk_weights)
        if not hidden.shape[0]:
            return out
        if entry.layer._raised:  # the threads are Python's: what they raise must come out
            return entry.layer.apply(hidden, topk_ids=topk_ids, topk_weights=topk_weights.detach(), out=out)
        frame.say(said, (hidden, topk_ids, topk_weights, out))
    first, second, third, fourth = frame.views
    first.data, second.data, third.data, fourth.data = (hidden.data_ptr(), topk_ids.data_ptr(), topk_weights.data_ptr(),
                                                        out.data_ptr())
    if lib.moe_apply(entry.pointer, frame.args_ref, frame.error_ref):
        raise taken(frame.error)  # the frame is not used again
    entry.frames.append(frame)
    return out


def _apply_of(hidden: Any, topk_ids: Any, topk_weights: Any, layer: int, sources: Any) -> Any:
    """The operator of a compiled model that has the tensors of its layers: they must be as they were."""
    entry = _layers.get(layer)
    if entry is not None and entry.stamp != stamp_of(sources):
        raise RuntimeError("the weights of this compiled model have changed since libmoe converted them: call "
                           "libmoe.transformers.refresh(model)")
    return _apply(hidden, topk_ids, topk_weights, layer)


def _checked(entry: _Entry | None, hidden: Any, topk_weights: Any, layer: int) -> _Entry:
    """Says what is wrong with a call, where anything is."""
    if entry is None:
        raise failure(Status.INVALID_HANDLE, "layer", f"libmoe.torch has no layer {layer}: it was released with its "
                      "model, or its number is of another process")
    if hidden.dtype is not entry.dtype:
        raise failure(Status.DTYPE, "hidden", f"these experts were converted for {entry.dtype}, the hidden states are "
                      f"{hidden.dtype}")
    if torch.is_grad_enabled() and (hidden.requires_grad or topk_weights.requires_grad):
        raise RuntimeError(NO_BACKWARD)
    return entry


def _integers(topk_ids: Any) -> Any:
    if topk_ids.is_floating_point() or topk_ids.is_complex():
        raise failure(Status.DTYPE, "topk_ids", f"expected integers, got {topk_ids.dtype}")
    return topk_ids.long()


def _check_shapes(hidden: Any, topk_ids: Any, topk_weights: Any) -> None:
    if hidden.dim() != 2 or topk_ids.dim() != 2 or topk_ids.shape != topk_weights.shape or len(topk_ids) != len(hidden):
        shapes = ", ".join(str(list(tensor.shape)) for tensor in (hidden, topk_ids, topk_weights))
        raise failure(Status.SHAPE, "hidden", f"expected hidden [T, H], ids and weights [T, K], got {shapes}")


def _apply_from_device(hidden: Any, topk_ids: Any, topk_weights: Any, layer: int) -> Any:
    """The operator on any other device: there and back through pinned memory where torch has it."""
    pinned = torch.cuda.is_available() and any(t.is_cuda for t in (hidden, topk_ids, topk_weights))
    here, ids, weights = (_to_cpu(tensor, pinned) for tensor in (hidden, topk_ids, topk_weights))
    if pinned:
        torch.cuda.current_stream(hidden.device if hidden.is_cuda else None).synchronize()
    out = _apply(here, ids, weights, layer)
    return out.pin_memory().to(hidden.device, non_blocking=True) if pinned else out.to(hidden.device)


def _to_cpu(tensor: Any, pinned: bool) -> Any:
    if not pinned or not tensor.is_cuda:
        return tensor.cpu()
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


# --- the operator -----------------------------------------------------------------------------------------------------
def _fake(hidden: Any, topk_ids: Any, topk_weights: Any, layer: int) -> Any:
    _checked(_layers.get(layer), hidden, topk_weights, layer)
    return hidden.new_empty(hidden.shape)


def _fake_of(hidden: Any, topk_ids: Any, topk_weights: Any, layer: int, sources: Any) -> Any:
    return _fake(hidden, topk_ids, topk_weights, layer)


def _define() -> None:
    """torch.library.custom_op would do all this in one step, and cost more than the call of a small layer.

    So would register_autograd: instead what needs a gradient is refused by the functions themselves.
    """
    library = _shared["_library"] = torch.library.Library("libmoe", "FRAGMENT")
    tags = torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order
    call = "(Tensor hidden, Tensor topk_ids, Tensor topk_weights, int layer"
    library.define(f"experts{call}) -> Tensor", tags=tags)
    library.define(f"experts_of{call}, Tensor[] sources) -> Tensor", tags=tags)
    library.impl("experts", _apply, "CPU")
    library.impl("experts_of", _apply_of, "CPU")
    for device in _OTHER_DEVICES:
        library.impl("experts", _apply_from_device, device)
    torch.library.register_fake("libmoe::experts", _fake, lib=library)
    torch.library.register_fake("libmoe::experts_of", _fake_of, lib=library)


if "_library" not in _shared:
    _define()
