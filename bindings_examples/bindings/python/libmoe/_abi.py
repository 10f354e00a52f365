"""The C interface as ctypes sees it. Written by generate_abi from moe_abi.json: change nothing here."""
from __future__ import annotations

import ctypes
import enum
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

VERSION = "0.1.0"
ABI_VERSION = 0
MAX_DIMS = 6


class Status(enum.IntEnum):
    """moe_status"""
    OK = 0
    INVALID_ARGUMENT = 1
    INVALID_CONFIG = 2
    INVALID_HANDLE = 3
    SHAPE = 4
    DTYPE = 5
    MISSING_WEIGHT = 6
    UNEXPECTED_WEIGHT = 7
    NO_BACKEND = 8
    UNSUPPORTED = 9
    BUFFER_TOO_SMALL = 10
    OUT_OF_MEMORY = 11
    IO = 12
    FORMAT = 13
    VERSION = 14
    CANCELLED = 15
    COMM = 16
    CALLBACK = 17
    BUSY = 18
    STATE = 19
    PEER = 20
    CONFIG_MISMATCH = 21
    COMM_POISONED = 22
    INTERNAL = 99


class DType(enum.IntEnum):
    """moe_dtype"""
    INVALID = 0
    F32 = 1
    F16 = 2
    BF16 = 3
    F64 = 4
    I8 = 8
    U8 = 9
    I16 = 10
    U16 = 11
    I32 = 12
    U32 = 13
    I64 = 14
    U64 = 15
    BOOL = 16
    F8_E4M3FN = 20
    F8_E5M2 = 21
    F8_E4M3FNUZ = 22
    F8_E5M2FNUZ = 23
    F8_E8M0FNU = 24
    F6_E2M3FN = 28
    F6_E3M2FN = 29
    F4_E2M1FN = 32
    I4 = 36
    U4 = 37
    I2 = 38
    U2 = 39


class Reject(enum.IntEnum):
    """moe_reject"""
    NONE = 0
    NOT_BUILT = 1
    PLATFORM = 2
    ISA = 3
    NOT_GATED = 4
    ACTIVATION = 5
    QUANT_SCHEME = 6
    GROUP_SIZE = 7
    ZERO_POINT = 8
    ACT_ORDER = 9
    BIAS = 10
    PARALLEL = 11
    EXPERT_MAP = 12
    ROUTING = 13
    ROUTER_DTYPE = 14
    INPUT_DTYPE = 15
    SHAPE = 16
    ALIGNMENT = 17
    SHARD_SPLITS_GROUP = 18
    ACTIVATION_FORMAT = 19
    BATCH_INVARIANCE = 20
    LORA = 21
    WEIGHT_LAYOUT = 22
    MEMORY = 23
    USER = 24
    CUSTOM = 25


class LogLevel(enum.IntEnum):
    """moe_log_level"""
    TRACE = 0
    DEBUG = 1
    INFO = 2
    WARN = 3
    ERROR = 4
    OFF = 5


class ApplyMode(enum.IntEnum):
    """moe_apply_mode"""
    ROUTER_LOGITS = 0
    TOPK = 1


class Phase(enum.IntEnum):
    """moe_phase"""
    NONE = 0
    OPEN = 1
    CONVERT = 2
    SAVE = 3
    LOAD = 4
    HASH = 5
    APPLY = 6


class Unit(enum.IntEnum):
    """moe_unit"""
    NONE = 0
    FILES = 1
    EXPERTS = 2
    BYTES = 3


class SelectFlags(enum.IntFlag):
    """moe_select_flags"""
    EXPLAIN_ONLY = 1
    ALLOW_FALLBACK = 2


class ConvertFlags(enum.IntFlag):
    """moe_convert_flags"""
    RELEASE_SOURCES = 1
    ANY_NAME = 2


class LoadFlags(enum.IntFlag):
    """moe_load_flags"""
    MMAP = 1
    PREFAULT = 2
    VERIFY = 4


class LayerFlags(enum.IntFlag):
    """moe_layer_flags"""
    ANY_NAME = 1


class ApplyFlags(enum.IntFlag):
    """moe_apply_flags"""
    ACCUMULATE = 1
    IN_PLACE = 2


class LayerKind(enum.IntEnum):
    """moe_layer_kind"""
    OTHER = 0
    EXPERTS = 1
    DENSE = 2


class LayerInfoFlags(enum.IntFlag):
    """moe_layer_info_flags"""
    IS_MTP = 1
    IS_CONVERTED = 2


class AgreeOp(enum.IntEnum):
    """moe_agree_op"""
    MIN = 0
    MAX = 1
    SUM = 2
    OR = 3


# Functions of the caller
moe_release_fn = CFUNCTYPE(None, c_void_p)
moe_progress_fn = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64)
moe_log_fn = CFUNCTYPE(None, c_void_p, c_int32, c_char_p, c_void_p, c_size_t)
moe_task_fn = CFUNCTYPE(None, c_void_p, c_size_t)
moe_parallel_ops_parallel_for = CFUNCTYPE(None, c_void_p, c_size_t, moe_task_fn, c_void_p)
moe_allocator_ops_allocate = CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t, c_int32)
moe_allocator_ops_deallocate = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_size_t)
moe_weight_source_ops_get = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, c_char_p, c_void_p, POINTER(c_void_p))
moe_weight_source_ops_put = CFUNCTYPE(None, c_void_p, c_char_p, c_int64, c_char_p, c_void_p)
moe_comm_ops_alltoallv_start = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_void_p))
moe_comm_ops_test = CFUNCTYPE(c_int32, c_void_p, c_void_p, POINTER(c_int32), POINTER(c_void_p))
moe_comm_ops_allgatherv_start = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_int64, c_void_p, c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_void_p))
moe_comm_ops_alltoall_start = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_void_p))
moe_comm_ops_agree_i64 = CFUNCTYPE(c_int32, c_void_p, c_int32, POINTER(c_int64), c_int32, POINTER(c_void_p))
moe_comm_ops_barrier = CFUNCTYPE(c_int32, c_void_p, POINTER(c_void_p))
moe_comm_ops_wait_hint = CFUNCTYPE(None, c_void_p, c_int32)
moe_comm_ops_abort = CFUNCTYPE(None, c_void_p, c_int32)


class moe_tensor(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_int32),
        ("ndim", c_int32),
        ("flags", c_uint32),
        ("data", c_void_p),
        ("nbytes", c_uint64),
        ("shape", c_int64 * 6),
        ("strides", c_int64 * 6)]


class moe_progress(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("phase", c_int32),
        ("unit", c_int32),
        ("reserved0", c_int32),
        ("done", c_uint64),
        ("total", c_uint64),
        ("layer", c_int64),
        ("layers_done", c_int64),
        ("layers_total", c_int64),
        ("bytes_done", c_uint64),
        ("bytes_total", c_uint64)]


class moe_parallel_ops(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("num_threads", c_int32),
        ("user", c_void_p),
        ("parallel_for", moe_parallel_ops_parallel_for),
        ("destroy", moe_release_fn)]


class moe_allocator_ops(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("user", c_void_p),
        ("allocate", moe_allocator_ops_allocate),
        ("deallocate", moe_allocator_ops_deallocate),
        ("destroy", moe_release_fn)]


class moe_context_callbacks(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("log", moe_log_fn),
        ("log_user", c_void_p),
        ("log_destroy", moe_release_fn),
        ("parallel", POINTER(moe_parallel_ops)),
        ("allocator", POINTER(moe_allocator_ops))]


class moe_candidate(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reason", c_int32),
        ("chosen", c_int32),
        ("priority", c_int32),
        ("backend", c_char_p),
        ("kernel", c_char_p),
        ("detail", c_char_p),
        ("subject", c_char_p)]


class moe_weight_source_ops(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("serial", c_int32),
        ("user", c_void_p),
        ("get", moe_weight_source_ops_get),
        ("put", moe_weight_source_ops_put),
        ("destroy", moe_release_fn)]


class moe_convert_options(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("flags", c_uint64),
        ("dst", c_void_p),
        ("dst_size", c_uint64),
        ("dst_release", moe_release_fn),
        ("dst_user", c_void_p),
        ("max_temp_bytes", c_uint64),
        ("control", c_void_p)]


class moe_layer_options(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("correction_bias", POINTER(moe_tensor)),
        ("expert_map", POINTER(moe_tensor)),
        ("flags", c_uint64)]


class moe_apply_args(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("mode", c_int32),
        ("flags", c_uint64),
        ("hidden", POINTER(moe_tensor)),
        ("router_logits", POINTER(moe_tensor)),
        ("topk_ids", POINTER(moe_tensor)),
        ("topk_weights", POINTER(moe_tensor)),
        ("expert_tokens", POINTER(moe_tensor)),
        ("out", POINTER(moe_tensor)),
        ("workspace", c_void_p),
        ("workspace_size", c_uint64),
        ("control", c_void_p),
        ("out_topk_ids", POINTER(moe_tensor)),
        ("out_topk_weights", POINTER(moe_tensor))]


class moe_route_args(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("router_logits", POINTER(moe_tensor)),
        ("correction_bias", POINTER(moe_tensor)),
        ("out_topk_ids", POINTER(moe_tensor)),
        ("out_topk_weights", POINTER(moe_tensor))]


class moe_layer_info(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("flags", c_uint32),
        ("top_k", c_int32),
        ("num_experts", c_int64),
        ("hidden_dim", c_int64),
        ("intermediate_size", c_int64),
        ("bytes", c_uint64),
        ("name", c_char_p),
        ("problem", c_char_p)]


class moe_checkpoint_options(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("load_flags", c_uint64),
        ("select_flags", c_uint64),
        ("platform", c_void_p),
        ("patch_json", c_void_p),
        ("patch_len", c_size_t),
        ("layer", POINTER(moe_layer_options)),
        ("layers", c_void_p),
        ("num_layers", c_size_t),
        ("control", c_void_p)]


class moe_comm_ops(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("rank", c_int32),
        ("size", c_int32),
        ("reserved0", c_int32),
        ("user", c_void_p),
        ("alltoallv_start", moe_comm_ops_alltoallv_start),
        ("test", moe_comm_ops_test),
        ("allgatherv_start", moe_comm_ops_allgatherv_start),
        ("alltoall_start", moe_comm_ops_alltoall_start),
        ("agree_i64", moe_comm_ops_agree_i64),
        ("barrier", moe_comm_ops_barrier),
        ("wait_hint", moe_comm_ops_wait_hint),
        ("abort", moe_comm_ops_abort),
        ("destroy", moe_release_fn)]


class Pointer:
    """The type of a parameter that takes an object of the library: its pointer or None, never a number or a text."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @staticmethod
    def from_param(value: c_void_p | None) -> c_void_p | None:
        if value is None or isinstance(value, c_void_p):
            return value
        raise TypeError(f"expected an object of libmoe, got {type(value).__name__}")


BUFFER = Pointer("buffer")
CHECKPOINT = Pointer("checkpoint")
COMM = Pointer("comm")
CONFIG = Pointer("config")
CONTEXT = Pointer("context")
CONTROL = Pointer("control")
DIST = Pointer("dist")
DIST_CALL = Pointer("dist_call")
ERROR = Pointer("error")
LAYER = Pointer("layer")
PACKED = Pointer("packed")
PLATFORM = Pointer("platform")
SELECTION = Pointer("selection")
WEIGHTS = Pointer("weights")

# name: what it returns, its parameters' types, their names
PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...], tuple[str, ...]]] = {
    "moe_version_number": (c_int32, (), ()),
    "moe_version_string": (c_char_p, (), ()),
    "moe_abi_version": (c_int32, (), ()),
    "moe_has_feature": (c_int32, (c_char_p,), ("name",)),
    "moe_build_info_json": (c_char_p, (), ()),
    "moe_abi_json": (c_char_p, (), ()),
    "moe_status_name": (c_char_p, (c_int32,), ("status",)),
    "moe_reject_name": (c_char_p, (c_int32,), ("reason",)),
    "moe_dtype_name": (c_char_p, (c_int32,), ("dtype",)),
    "moe_dtype_from_name": (c_int32, (c_char_p,), ("name",)),
    "moe_error_create": (c_void_p, (c_int32, c_void_p, c_size_t), ("status", "message", "message_len")),
    "moe_error_status": (c_int32, (ERROR,), ("err",)),
    "moe_error_message": (c_char_p, (ERROR,), ("err",)),
    "moe_error_subject": (c_char_p, (ERROR,), ("err",)),
    "moe_error_details_json": (c_char_p, (ERROR,), ("err",)),
    "moe_error_destroy": (None, (ERROR,), ("err",)),
    "moe_buffer_create": (
        c_int32,
        (c_size_t, c_size_t, POINTER(c_void_p), POINTER(c_void_p)),
        ("size", "alignment", "out", "err")),
    "moe_buffer_data": (c_void_p, (BUFFER,), ("buffer",)),
    "moe_buffer_size": (c_size_t, (BUFFER,), ("buffer",)),
    "moe_buffer_destroy": (None, (BUFFER,), ("buffer",)),
    "moe_tensor_nbytes": (c_int64, (c_int32, c_int32, c_void_p), ("dtype", "ndim", "shape")),
    "moe_tensor_from_dlpack": (
        c_int32,
        (c_void_p, POINTER(moe_tensor), POINTER(c_void_p)),
        ("dl_managed_tensor_versioned", "out", "err")),
    "moe_control_create": (
        c_int32,
        (moe_progress_fn, c_void_p, moe_release_fn, POINTER(c_void_p), POINTER(c_void_p)),
        ("progress", "user", "destroy", "out", "err")),
    "moe_control_cancel": (None, (CONTROL,), ("control",)),
    "moe_control_progress": (None, (CONTROL, POINTER(c_uint64), POINTER(c_uint64)), ("control", "done", "total")),
    "moe_control_report": (c_int32, (CONTROL, c_uint64, c_uint64), ("control", "done", "total")),
    "moe_control_state": (c_int32, (CONTROL, POINTER(moe_progress), POINTER(c_void_p)), ("control", "out", "err")),
    "moe_control_destroy": (None, (CONTROL,), ("control",)),
    "moe_context_create": (
        c_int32,
        (c_void_p, c_size_t, POINTER(moe_context_callbacks), POINTER(c_void_p), POINTER(c_void_p)),
        ("options_json", "options_len", "callbacks", "out", "err")),
    "moe_context_to_json": (c_int32, (CONTEXT, POINTER(c_void_p), POINTER(c_void_p)), ("ctx", "out", "err")),
    "moe_context_take_log": (c_int32, (CONTEXT, POINTER(c_void_p), POINTER(c_void_p)), ("ctx", "out", "err")),
    "moe_context_destroy": (None, (CONTEXT,), ("ctx",)),
    "moe_config_create": (
        c_int32,
        (c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p)),
        ("json", "json_len", "out", "err")),
    "moe_config_create_from_hf": (
        c_int32,
        (c_void_p, c_size_t, c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p)),
        ("hf_json", "hf_len", "options_json", "options_len", "out", "err")),
    "moe_config_merge": (
        c_int32,
        (CONFIG, c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p)),
        ("config", "patch_json", "patch_len", "out", "err")),
    "moe_config_to_json": (c_int32, (CONFIG, POINTER(c_void_p), POINTER(c_void_p)), ("config", "out", "err")),
    "moe_config_get_int": (
        c_int32,
        (CONFIG, c_char_p, POINTER(c_int64), POINTER(c_void_p)),
        ("config", "pointer", "out", "err")),
    "moe_config_get_float": (
        c_int32,
        (CONFIG, c_char_p, POINTER(c_double), POINTER(c_void_p)),
        ("config", "pointer", "out", "err")),
    "moe_config_get_string": (
        c_int32,
        (CONFIG, c_char_p, POINTER(c_char_p), POINTER(c_void_p)),
        ("config", "pointer", "out", "err")),
    "moe_config_schema_json": (c_char_p, (), ()),
    "moe_config_destroy": (None, (CONFIG,), ("config",)),
    "moe_platform_create": (
        c_int32,
        (c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p)),
        ("json", "json_len", "out", "err")),
    "moe_platform_to_json": (c_int32, (PLATFORM, POINTER(c_void_p), POINTER(c_void_p)), ("platform", "out", "err")),
    "moe_platform_has": (c_int32, (PLATFORM, c_char_p), ("platform", "feature")),
    "moe_platform_destroy": (None, (PLATFORM,), ("platform",)),
    "moe_select_backend": (
        c_int32,
        (CONTEXT, CONFIG, PLATFORM, c_uint64, POINTER(c_void_p), POINTER(c_void_p)),
        ("ctx", "config", "platform", "flags", "out", "err")),
    "moe_describe": (
        c_int32,
        (c_char_p, c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p)),
        ("topic", "query_json", "query_len", "out", "err")),
    "moe_selection_backend": (c_char_p, (SELECTION,), ("selection",)),
    "moe_selection_kernel": (c_char_p, (SELECTION,), ("selection",)),
    "moe_selection_layout": (c_char_p, (SELECTION,), ("selection",)),
    "moe_selection_candidate_count": (c_size_t, (SELECTION,), ("selection",)),
    "moe_selection_candidate": (
        c_int32,
        (SELECTION, c_size_t, POINTER(moe_candidate), POINTER(c_void_p)),
        ("selection", "index", "out", "err")),
    "moe_selection_packed_size": (
        c_int32,
        (SELECTION, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_void_p)),
        ("selection", "bytes", "alignment", "err")),
    "moe_selection_to_json": (
        c_int32,
        (SELECTION, POINTER(c_void_p), POINTER(c_void_p)),
        ("selection", "out", "err")),
    "moe_selection_destroy": (None, (SELECTION,), ("selection",)),
    "moe_weights_create": (c_int32, (CONFIG, POINTER(c_void_p), POINTER(c_void_p)), ("config", "out", "err")),
    "moe_weights_set": (
        c_int32,
        (WEIGHTS, c_char_p, POINTER(moe_tensor), moe_release_fn, c_void_p, POINTER(c_void_p)),
        ("weights", "role", "tensor", "release", "user", "err")),
    "moe_weights_set_expert": (
        c_int32,
        (WEIGHTS, c_char_p, c_int64, c_char_p, POINTER(moe_tensor), moe_release_fn, c_void_p, POINTER(c_void_p)),
        ("weights", "role", "expert", "shard", "tensor", "release", "user", "err")),
    "moe_weights_set_named": (
        c_int32,
        (WEIGHTS, c_char_p, POINTER(moe_tensor), moe_release_fn, c_void_p, POINTER(c_int32), POINTER(c_void_p)),
        ("weights", "name", "tensor", "release", "user", "consumed", "err")),
    "moe_weights_load_safetensors": (
        c_int32,
        (WEIGHTS, c_char_p, c_char_p, POINTER(c_void_p)),
        ("weights", "path", "module", "err")),
    "moe_weights_to_json": (c_int32, (WEIGHTS, POINTER(c_void_p), POINTER(c_void_p)), ("weights", "out", "err")),
    "moe_weights_get": (
        c_int32,
        (WEIGHTS, c_char_p, c_int64, POINTER(moe_tensor), POINTER(c_void_p), POINTER(c_void_p)),
        ("weights", "role", "expert", "out", "hold", "err")),
    "moe_weights_destroy": (None, (WEIGHTS,), ("weights",)),
    "moe_weights_create_from_source": (
        c_int32,
        (CONFIG, POINTER(moe_weight_source_ops), POINTER(c_void_p), POINTER(c_void_p)),
        ("config", "ops", "out", "err")),
    "moe_convert_weights": (
        c_int32,
        (CONTEXT, SELECTION, WEIGHTS, POINTER(moe_convert_options), POINTER(c_void_p), POINTER(c_void_p)),
        ("ctx", "selection", "weights", "options", "out", "err")),
    "moe_packed_data": (
        c_int32,
        (PACKED, POINTER(c_void_p), POINTER(c_uint64), POINTER(c_void_p)),
        ("packed", "data", "size", "err")),
    "moe_packed_get": (
        c_int32,
        (PACKED, c_char_p, c_int64, POINTER(moe_tensor), POINTER(c_void_p)),
        ("packed", "role", "expert", "out", "err")),
    "moe_packed_to_json": (c_int32, (PACKED, POINTER(c_void_p), POINTER(c_void_p)), ("packed", "out", "err")),
    "moe_packed_dequantize": (
        c_int32,
        (PACKED, c_char_p, c_int64, POINTER(moe_tensor), POINTER(c_void_p)),
        ("packed", "role", "expert", "out", "err")),
    "moe_packed_save": (
        c_int32,
        (PACKED, c_char_p, c_uint64, CONTROL, POINTER(c_void_p)),
        ("packed", "path", "flags", "control", "err")),
    "moe_packed_load": (
        c_int32,
        (CONTEXT, c_char_p, c_uint64, CONTROL, POINTER(c_void_p), POINTER(c_void_p)),
        ("ctx", "path", "flags", "control", "out", "err")),
    "moe_packed_load_memory": (
        c_int32,
        (CONTEXT, c_void_p, c_size_t, c_uint64, moe_release_fn, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
        ("ctx", "data", "size", "flags", "release", "user", "out", "err")),
    "moe_packed_destroy": (None, (PACKED,), ("packed",)),
    "moe_layer_create": (
        c_int32,
        (CONTEXT, SELECTION, PACKED, POINTER(moe_layer_options), POINTER(c_void_p), POINTER(c_void_p)),
        ("ctx", "selection", "packed", "options", "out", "err")),
    "moe_layer_workspace_size": (
        c_int32,
        (LAYER, c_int32, c_int64, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_void_p)),
        ("layer", "mode", "num_tokens", "bytes", "alignment", "err")),
    "moe_layer_to_json": (c_int32, (LAYER, POINTER(c_void_p), POINTER(c_void_p)), ("layer", "out", "err")),
    "moe_layer_expert_counts": (
        c_int32,
        (LAYER, POINTER(c_uint64), c_size_t, c_int32, POINTER(c_void_p)),
        ("layer", "counts", "capacity", "reset", "err")),
    "moe_layer_destroy": (None, (LAYER,), ("layer",)),
    "moe_apply": (c_int32, (LAYER, POINTER(moe_apply_args), POINTER(c_void_p)), ("layer", "args", "err")),
    "moe_apply_flat": (
        c_int32,
        (LAYER, c_int64, c_int32, c_void_p, c_int32, c_void_p, c_void_p, c_void_p, c_int32, c_void_p,
         POINTER(c_void_p)),
        ("layer", "num_tokens", "hidden_dtype", "hidden", "logits_dtype", "router_logits", "topk_ids",
         "topk_weights", "out_dtype", "out", "err")),
    "moe_route": (
        c_int32,
        (CONTEXT, CONFIG, POINTER(moe_route_args), POINTER(c_void_p)),
        ("ctx", "config", "args", "err")),
    "moe_checkpoint_open": (
        c_int32,
        (CONTEXT, c_char_p, c_void_p, c_size_t, CONTROL, POINTER(c_void_p), POINTER(c_void_p)),
        ("ctx", "directory", "options_json", "options_len", "control", "out", "err")),
    "moe_checkpoint_to_json": (
        c_int32,
        (CHECKPOINT, POINTER(c_void_p), POINTER(c_void_p)),
        ("checkpoint", "out", "err")),
    "moe_checkpoint_layer_count": (c_int64, (CHECKPOINT,), ("checkpoint",)),
    "moe_checkpoint_layer_info": (
        c_int32,
        (CHECKPOINT, c_int64, POINTER(moe_layer_info), POINTER(c_void_p)),
        ("checkpoint", "layer", "out", "err")),
    "moe_checkpoint_config": (
        c_int32,
        (CHECKPOINT, c_int64, c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p)),
        ("checkpoint", "layer", "patch_json", "patch_len", "out", "err")),
    "moe_weights_load_checkpoint": (
        c_int32,
        (WEIGHTS, CHECKPOINT, POINTER(c_void_p)),
        ("weights", "checkpoint", "err")),
    "moe_checkpoint_packed": (
        c_int32,
        (CONTEXT, CHECKPOINT, SELECTION, POINTER(moe_checkpoint_options), POINTER(c_void_p), POINTER(c_void_p)),
        ("ctx", "checkpoint", "selection", "options", "out", "err")),
    "moe_checkpoint_layer": (
        c_int32,
        (CONTEXT, CHECKPOINT, c_int64, POINTER(moe_checkpoint_options), POINTER(c_void_p), POINTER(c_void_p)),
        ("ctx", "checkpoint", "layer", "options", "out", "err")),
    "moe_checkpoint_convert": (
        c_int32,
        (CONTEXT, CHECKPOINT, c_char_p, POINTER(moe_checkpoint_options), POINTER(c_void_p)),
        ("ctx", "checkpoint", "directory", "options", "err")),
    "moe_checkpoint_tensor": (
        c_int32,
        (CHECKPOINT, c_char_p, POINTER(moe_tensor), POINTER(c_void_p), POINTER(c_void_p)),
        ("checkpoint", "name", "out", "hold", "err")),
    "moe_checkpoint_fingerprint": (
        c_int32,
        (CONTEXT, CHECKPOINT, c_int32, CONTROL, POINTER(c_void_p), POINTER(c_void_p)),
        ("ctx", "checkpoint", "full", "control", "out", "err")),
    "moe_checkpoint_destroy": (None, (CHECKPOINT,), ("checkpoint",)),
    "moe_comm_create": (
        c_int32,
        (POINTER(moe_comm_ops), c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p)),
        ("ops", "options_json", "options_len", "out", "err")),
    "moe_comm_create_threads": (c_int32, (c_int32, POINTER(c_void_p), POINTER(c_void_p)), ("size", "out", "err")),
    "moe_comm_set_options": (
        c_int32,
        (COMM, c_void_p, c_size_t, POINTER(c_void_p)),
        ("comm", "options_json", "options_len", "err")),
    "moe_comm_rank": (c_int32, (COMM,), ("comm",)),
    "moe_comm_size": (c_int32, (COMM,), ("comm",)),
    "moe_comm_destroy": (None, (COMM,), ("comm",)),
    "moe_dist_create": (
        c_int32,
        (CONTEXT, COMM, CONFIG, c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p)),
        ("ctx", "comm", "config", "options_json", "options_len", "out", "err")),
    "moe_dist_local_config": (c_int32, (DIST, POINTER(c_void_p), POINTER(c_void_p)), ("dist", "out", "err")),
    "moe_dist_attach": (c_int32, (DIST, LAYER, POINTER(c_void_p)), ("dist", "layer", "err")),
    "moe_dist_apply": (c_int32, (DIST, POINTER(moe_apply_args), POINTER(c_void_p)), ("dist", "args", "err")),
    "moe_dist_begin": (
        c_int32,
        (DIST, POINTER(moe_apply_args), POINTER(c_void_p), POINTER(c_void_p)),
        ("dist", "args", "out", "err")),
    "moe_dist_poll": (c_int32, (DIST_CALL, POINTER(c_int32), POINTER(c_void_p)), ("call", "done", "err")),
    "moe_dist_finish": (c_int32, (DIST_CALL, POINTER(c_void_p)), ("call", "err")),
    "moe_dist_to_json": (c_int32, (DIST, POINTER(c_void_p), POINTER(c_void_p)), ("dist", "out", "err")),
    "moe_dist_destroy": (None, (DIST,), ("dist",)),
    "moe_dist_call_destroy": (None, (DIST_CALL,), ("call",)),
}
