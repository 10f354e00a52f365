"""The C interface as ctypes sees it: where the library is, structs, prototypes, errors.

Statuses, dtypes and flags are plain int32/uint64 numbers; every pointer parameter has a prototype,
since ctypes would cut an undeclared one to 32 bits. ctypes releases the interpreter lock during a
call, so several threads can apply a layer at once.
"""
import ctypes
import json
import os

ABI_VERSION = 0

I32, I64, U64, SIZE = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_size_t
TEXT, PTR, OUT = ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)


class TensorStruct(ctypes.Structure):
    """moe_tensor: a view of memory that somebody else owns."""
    _fields_ = [("struct_size", ctypes.c_uint32), ("dtype", I32), ("ndim", I32), ("flags", ctypes.c_uint32),
                ("data", PTR), ("nbytes", U64), ("shape", I64 * 6), ("strides", I64 * 6)]


class CandidateStruct(ctypes.Structure):
    """moe_candidate"""
    _fields_ = [("struct_size", ctypes.c_uint32), ("reason", I32), ("chosen", I32), ("priority", I32),
                ("backend", TEXT), ("kernel", TEXT), ("detail", TEXT), ("subject", TEXT)]


TENSOR = ctypes.POINTER(TensorStruct)


class ApplyStruct(ctypes.Structure):
    """moe_apply_args"""
    _fields_ = [("struct_size", ctypes.c_uint32), ("mode", I32), ("flags", U64),
                ("hidden", TENSOR), ("router_logits", TENSOR), ("topk_ids", TENSOR), ("topk_weights", TENSOR),
                ("expert_tokens", TENSOR), ("out", TENSOR), ("workspace", PTR), ("workspace_size", U64),
                ("control", PTR), ("out_topk_ids", TENSOR), ("out_topk_weights", TENSOR)]


# What a fallible call returns and its last parameter are added below.
_FALLIBLE = {
    "moe_context_create": (TEXT, SIZE, PTR, OUT),
    "moe_context_to_json": (PTR, OUT),
    "moe_context_take_log": (PTR, OUT),
    "moe_config_create": (TEXT, SIZE, OUT),
    "moe_config_create_from_hf": (TEXT, SIZE, TEXT, SIZE, OUT),
    "moe_config_merge": (PTR, TEXT, SIZE, OUT),
    "moe_config_to_json": (PTR, OUT),
    "moe_platform_create": (TEXT, SIZE, OUT),
    "moe_platform_to_json": (PTR, OUT),
    "moe_select_backend": (PTR, PTR, PTR, U64, OUT),
    "moe_describe": (TEXT, TEXT, SIZE, OUT),
    "moe_selection_candidate": (PTR, SIZE, ctypes.POINTER(CandidateStruct)),
    "moe_selection_packed_size": (PTR, ctypes.POINTER(U64), ctypes.POINTER(U64)),
    "moe_selection_to_json": (PTR, OUT),
    "moe_weights_create": (PTR, OUT),
    "moe_weights_set": (PTR, TEXT, TENSOR, PTR, PTR),
    "moe_weights_set_expert": (PTR, TEXT, I64, TEXT, TENSOR, PTR, PTR),
    "moe_weights_load_safetensors": (PTR, TEXT, TEXT),
    "moe_weights_to_json": (PTR, OUT),
    "moe_convert_weights": (PTR, PTR, PTR, PTR, OUT),
    "moe_packed_to_json": (PTR, OUT),
    "moe_packed_dequantize": (PTR, TEXT, I64, TENSOR),
    "moe_packed_save": (PTR, TEXT, U64, PTR),
    "moe_packed_load": (PTR, TEXT, U64, PTR, OUT),
    "moe_layer_create": (PTR, PTR, PTR, PTR, OUT),
    "moe_layer_to_json": (PTR, OUT),
    "moe_apply": (PTR, ctypes.POINTER(ApplyStruct)),
}
_PLAIN = {
    "moe_version_string": (TEXT,),
    "moe_abi_version": (I32,),
    "moe_build_info_json": (TEXT,),
    "moe_status_name": (TEXT, I32),
    "moe_reject_name": (TEXT, I32),
    "moe_dtype_name": (TEXT, I32),
    "moe_dtype_from_name": (I32, TEXT),
    "moe_error_status": (I32, PTR),
    "moe_error_message": (TEXT, PTR),
    "moe_error_subject": (TEXT, PTR),
    "moe_error_details_json": (TEXT, PTR),
    "moe_buffer_data": (PTR, PTR),
    "moe_buffer_size": (SIZE, PTR),
    "moe_selection_backend": (TEXT, PTR),
    "moe_selection_kernel": (TEXT, PTR),
    "moe_selection_layout": (TEXT, PTR),
    "moe_selection_candidate_count": (SIZE, PTR),
    **{f"moe_{kind}_destroy": (None, PTR) for kind in
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


class InvalidArgument(Error): "A value, a range, a name."
class InvalidConfig(Error): "JSON syntax, schema or consistency; `subject` is a JSON pointer."
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


_CLASSES = {1: InvalidArgument, 2: InvalidConfig, 4: ShapeError, 5: DTypeError, 6: MissingWeight,
            7: UnexpectedWeight, 8: NoBackend, 9: Unsupported, 11: OutOfMemory, 12: InputOutputError,
            13: FormatError, 15: Cancelled}


def call(name, *arguments):
    """Calls a fallible function and raises what it reports."""
    err = ctypes.c_void_p()
    status = getattr(lib, name)(*arguments, ctypes.byref(err))
    if status:
        try:
            raise _CLASSES.get(status, Error)(
                status, lib.moe_error_subject(err).decode(), lib.moe_error_message(err).decode(),
                json.loads(lib.moe_error_details_json(err)))
        finally:
            lib.moe_error_destroy(err)


def create(name, *arguments):
    """The same for functions with one owned result: its handle."""
    handle = ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(handle))
    return handle


def text_of(name, *arguments):
    """The same for functions that return text in a buffer."""
    buffer = create(name, *arguments)
    try:
        return ctypes.string_at(lib.moe_buffer_data(buffer), lib.moe_buffer_size(buffer)).decode()
    finally:
        lib.moe_buffer_destroy(buffer)
