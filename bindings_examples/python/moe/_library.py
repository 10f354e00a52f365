"""The C interface as ctypes sees it: where the library is, structs, prototypes, errors.

Statuses, dtypes and flags are plain int32/uint64 numbers; every pointer parameter has a prototype,
since ctypes would cut an undeclared one to 32 bits. ctypes releases the interpreter lock during a
call, so several threads can apply a layer at once.
"""
import copyreg
import ctypes
import json
import os

ABI_VERSION = 0

I32, I64, U64, SIZE = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_size_t
TEXT, PTR, OUT = ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)


class HANDLE:
    """A pointer from the library or None; a number or a text is none, as c_void_p would have it."""
    @staticmethod
    def from_param(value):
        if value is None or isinstance(value, ctypes.c_void_p):
            return value
        raise TypeError(f"expected an object of libmoe, got {type(value).__name__}")


class TensorStruct(ctypes.Structure):
    """moe_tensor: a view of memory that somebody else owns."""
    _fields_ = [("struct_size", ctypes.c_uint32), ("dtype", I32), ("ndim", I32), ("flags", ctypes.c_uint32),
                ("data", PTR), ("nbytes", U64), ("shape", I64 * 6), ("strides", I64 * 6)]


class CandidateStruct(ctypes.Structure):
    """moe_candidate"""
    _fields_ = [("struct_size", ctypes.c_uint32), ("reason", I32), ("chosen", I32), ("priority", I32),
                ("backend", TEXT), ("kernel", TEXT), ("detail", TEXT), ("subject", TEXT)]


TENSOR = ctypes.POINTER(TensorStruct)
RELEASE = ctypes.CFUNCTYPE(None, PTR)


class ApplyStruct(ctypes.Structure):
    """moe_apply_args"""
    _fields_ = [("struct_size", ctypes.c_uint32), ("mode", I32), ("flags", U64),
                ("hidden", TENSOR), ("router_logits", TENSOR), ("topk_ids", TENSOR), ("topk_weights", TENSOR),
                ("expert_tokens", TENSOR), ("out", TENSOR), ("workspace", PTR), ("workspace_size", U64),
                ("control", PTR), ("out_topk_ids", TENSOR), ("out_topk_weights", TENSOR)]


# What a fallible call returns and its last parameter are added below.
_FALLIBLE = {
    "moe_context_create": (TEXT, SIZE, HANDLE, OUT),
    "moe_context_to_json": (HANDLE, OUT),
    "moe_context_take_log": (HANDLE, OUT),
    "moe_config_create": (TEXT, SIZE, OUT),
    "moe_config_create_from_hf": (TEXT, SIZE, TEXT, SIZE, OUT),
    "moe_config_merge": (HANDLE, TEXT, SIZE, OUT),
    "moe_config_to_json": (HANDLE, OUT),
    "moe_platform_create": (TEXT, SIZE, OUT),
    "moe_platform_to_json": (HANDLE, OUT),
    "moe_select_backend": (HANDLE, HANDLE, HANDLE, U64, OUT),
    "moe_describe": (TEXT, TEXT, SIZE, OUT),
    "moe_selection_candidate": (HANDLE, SIZE, ctypes.POINTER(CandidateStruct)),
    "moe_selection_packed_size": (HANDLE, ctypes.POINTER(U64), ctypes.POINTER(U64)),
    "moe_selection_to_json": (HANDLE, OUT),
    "moe_weights_create": (HANDLE, OUT),
    "moe_weights_set": (HANDLE, TEXT, TENSOR, RELEASE, PTR),
    "moe_weights_set_expert": (HANDLE, TEXT, I64, TEXT, TENSOR, RELEASE, PTR),
    "moe_weights_load_safetensors": (HANDLE, TEXT, TEXT),
    "moe_weights_to_json": (HANDLE, OUT),
    "moe_convert_weights": (HANDLE, HANDLE, HANDLE, HANDLE, OUT),
    "moe_packed_to_json": (HANDLE, OUT),
    "moe_packed_dequantize": (HANDLE, TEXT, I64, TENSOR),
    "moe_packed_save": (HANDLE, TEXT, U64, HANDLE),
    "moe_packed_load": (HANDLE, TEXT, U64, HANDLE, OUT),
    "moe_layer_create": (HANDLE, HANDLE, HANDLE, HANDLE, OUT),
    "moe_layer_to_json": (HANDLE, OUT),
    "moe_apply": (HANDLE, ctypes.POINTER(ApplyStruct)),
}
_PLAIN = {
    "moe_version_string": (TEXT,),
    "moe_abi_version": (I32,),
    "moe_build_info_json": (TEXT,),
    "moe_status_name": (TEXT, I32),
    "moe_reject_name": (TEXT, I32),
    "moe_dtype_name": (TEXT, I32),
    "moe_dtype_from_name": (I32, TEXT),
    "moe_error_status": (I32, HANDLE),
    "moe_error_message": (TEXT, HANDLE),
    "moe_error_subject": (TEXT, HANDLE),
    "moe_error_details_json": (TEXT, HANDLE),
    "moe_buffer_data": (PTR, HANDLE),
    "moe_buffer_size": (SIZE, HANDLE),
    "moe_selection_backend": (TEXT, HANDLE),
    "moe_selection_kernel": (TEXT, HANDLE),
    "moe_selection_layout": (TEXT, HANDLE),
    "moe_selection_candidate_count": (SIZE, HANDLE),
    **{f"moe_{kind}_destroy": (None, HANDLE) for kind in
       ("error", "buffer", "context", "config", "platform", "selection", "weights", "packed", "layer")},
}


def _open():
    path = os.environ.get("LIBMOE_PATH", f"libmoe.so.{ABI_VERSION}")
    library = ctypes.CDLL(path)
    for name, parameters in _FALLIBLE.items():
        function = getattr(library, name)
        function.restype, function.argtypes = I32, (*parameters, OUT)
    for name, (result, *parameters) in _PLAIN.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, tuple(parameters)
    if library.moe_abi_version() != ABI_VERSION:
        raise ImportError(f"{path} is libmoe {library.moe_version_string().decode()} with ABI "
                          f"{library.moe_abi_version()}; this package needs ABI {ABI_VERSION}")
    return library


lib = _open()


class Error(Exception):
    """A failed call. `name` is the status' name, `subject` says where, `details` is everything the
    library knows (expected and found values, all candidates of a selection, ...)."""

    def __init__(self, status, subject, message, details):
        self.status, self.name = status, lib.moe_status_name(status).decode()
        self.subject, self.message, self.details = subject, message, details
        super().__init__(f"{self.name} at '{subject}': {message}")

    def __reduce__(self):
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__


class InvalidArgument(Error): "A value, a range, a name."
class InvalidConfig(Error): "JSON syntax, schema or consistency; `subject` is a JSON pointer."
class InvalidHandle(Error): "A closed object, or one of another kind."
class ShapeError(Error): "Rank, extent, stride or byte count of a tensor."
class DTypeError(Error): "A data type that is not accepted at this place."
class MissingWeight(Error): "A role or an expert was never set."
class UnexpectedWeight(Error): "A tensor that the config has no place for."
class NoBackend(Error): "Nobody accepts; `details['candidates']` has every reason."
class Unsupported(Error): "Valid, but this build or this object cannot do it."
class OutOfMemory(Error): "The library could not get memory."
class InputOutputError(Error): "Open, read, write or mmap failed."
class FormatError(Error): "Not such a file, truncated, or damaged."
class Cancelled(Error): "Stopped on request."
class Busy(Error): "Another call uses this object."


_CLASSES = {1: InvalidArgument, 2: InvalidConfig, 3: InvalidHandle, 4: ShapeError, 5: DTypeError, 6: MissingWeight,
            7: UnexpectedWeight, 8: NoBackend, 9: Unsupported, 11: OutOfMemory, 12: InputOutputError,
            13: FormatError, 15: Cancelled, 18: Busy}


def failure(status, *description):
    """The exception of a status: subject, message, details."""
    return _CLASSES.get(status, Error)(status, *description)
