"""libmoe for Python: ctypes and numpy.

    import libmoe

    with libmoe.Context() as context, libmoe.open(directory, context) as checkpoint:
        layer = checkpoint.layer(0)
        out = layer.apply(hidden, logits)

Or step by step:

    with libmoe.Config.from_hf(text) as config, libmoe.Selection(config) as selection:
        with libmoe.Weights(config) as weights:
            weights.load_safetensors(directory)
            packed = libmoe.convert(selection, weights)
        with packed, libmoe.Layer(selection, packed) as layer:
            out = layer.apply(hidden, logits)

Every object closes itself at the end of its `with` block, or when it is collected; the order does not matter.
close() waits for the calls that use the object in other threads. Arrays are passed without a copy: numpy's, and what
has `__dlpack__` (torch, jax, ...). numpy has no bfloat16: uint16 arrays are its bits; so are the arrays of ml_dtypes.

    _abi       the C interface, generated           _context   threads, log, progress, cancellation
    _library   finding and loading the library      _model     config, platform, selection
    _errors    an exception per status              _weights   source tensors
    _handle    objects, calls                       _layer     converted weights, layer, routing
    _tensor    arrays and DLPack                    _checkpoint  all layers of a model
    _progress  what a long call does, a bar        _dist       a layer over several ranks

Not imported with it: libmoe.torch, layers as an operator of torch; libmoe.transformers, the experts of a whole model.
"""
from . import _abi as abi
from ._abi import (ApplyFlags, ApplyMode, ConvertFlags, DType, LayerFlags, LayerKind, LoadFlags, LogLevel, Phase,
                   Reject, SelectFlags, Status, Unit, moe_allocator_ops)
from ._checkpoint import Checkpoint, LayerInfo, open
from ._context import Context, Control, Task
from ._dist import Comm, Dist, DistCall, Transport
from ._errors import (Busy, BufferTooSmall, CallbackError, Cancelled, CommError, CommPoisoned, ConfigMismatch,
                      DTypeError, Error, FileNotFound, FormatError, InputOutputError, InternalError, InvalidArgument,
                      InvalidConfig, InvalidHandle, IsADirectory, MissingWeight, NoBackend, NotADirectory, OutOfMemory,
                      PeerError, PermissionDenied, ShapeError, StateError, UnexpectedWeight, Unsupported, VersionError)
from ._layer import Layer, Packed, convert, route
from ._library import lib
from ._model import (Candidate, Config, Platform, Selection, abi_description, build_info, describe, has_feature,
                     version)
from ._progress import Progress, TqdmProgress, tqdm_progress
from ._tensor import Tensor, empty
from ._weights import Weights

__version__ = abi.VERSION
__all__ = [
    "ApplyFlags", "ApplyMode", "BufferTooSmall", "Busy", "CallbackError", "Cancelled", "Candidate", "Checkpoint",
    "Comm", "CommError", "CommPoisoned", "Config", "ConfigMismatch", "Context", "Control", "ConvertFlags", "Dist",
    "DistCall", "DType", "DTypeError", "Error", "FileNotFound", "FormatError", "InputOutputError", "InternalError",
    "InvalidArgument", "InvalidConfig", "InvalidHandle", "IsADirectory", "Layer", "LayerFlags", "LayerInfo",
    "LayerKind", "LoadFlags", "LogLevel", "MissingWeight", "NoBackend", "NotADirectory", "OutOfMemory", "Packed",
    "PeerError", "PermissionDenied", "Phase", "Platform", "Progress", "Reject", "SelectFlags", "Selection",
    "ShapeError", "StateError", "Status", "Task", "Tensor", "TqdmProgress", "Transport", "UnexpectedWeight", "Unit",
    "Unsupported", "VersionError", "Weights", "abi", "abi_description", "build_info", "convert", "describe",
    "empty", "has_feature", "lib", "moe_allocator_ops", "open", "route", "tqdm_progress", "version"]
