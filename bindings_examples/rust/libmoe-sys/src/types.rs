//! Scalars, constants, handles, callbacks and structs of `moe/moe.h`, by their C names.
//!
//! Statuses, dtypes and reasons are `i32` aliases with constants, never Rust enums: a newer library
//! may return values that this file does not know. In structs all-zero means "default"; set
//! `struct_size` to the size of the struct (see [`crate::sized`]).

use std::os::raw::{c_char, c_void};

pub type moe_status = i32;
pub const MOE_OK: moe_status = 0;
pub const MOE_ERR_INVALID_ARGUMENT: moe_status = 1;
pub const MOE_ERR_INVALID_CONFIG: moe_status = 2;
pub const MOE_ERR_INVALID_HANDLE: moe_status = 3;
pub const MOE_ERR_SHAPE: moe_status = 4;
pub const MOE_ERR_DTYPE: moe_status = 5;
pub const MOE_ERR_MISSING_WEIGHT: moe_status = 6;
pub const MOE_ERR_UNEXPECTED_WEIGHT: moe_status = 7;
pub const MOE_ERR_NO_BACKEND: moe_status = 8;
pub const MOE_ERR_UNSUPPORTED: moe_status = 9;
pub const MOE_ERR_BUFFER_TOO_SMALL: moe_status = 10;
pub const MOE_ERR_OUT_OF_MEMORY: moe_status = 11;
pub const MOE_ERR_IO: moe_status = 12;
pub const MOE_ERR_FORMAT: moe_status = 13;
pub const MOE_ERR_VERSION: moe_status = 14;
pub const MOE_ERR_CANCELLED: moe_status = 15;
pub const MOE_ERR_COMM: moe_status = 16;
pub const MOE_ERR_CALLBACK: moe_status = 17;
pub const MOE_ERR_BUSY: moe_status = 18;
pub const MOE_ERR_STATE: moe_status = 19;
pub const MOE_ERR_PEER: moe_status = 20;
pub const MOE_ERR_CONFIG_MISMATCH: moe_status = 21;
pub const MOE_ERR_COMM_POISONED: moe_status = 22;
pub const MOE_ERR_INTERNAL: moe_status = 99;

pub type moe_dtype = i32;
pub const MOE_DTYPE_INVALID: moe_dtype = 0;
pub const MOE_DTYPE_F32: moe_dtype = 1;
pub const MOE_DTYPE_F16: moe_dtype = 2;
pub const MOE_DTYPE_BF16: moe_dtype = 3;
pub const MOE_DTYPE_F64: moe_dtype = 4;
pub const MOE_DTYPE_I8: moe_dtype = 8;
pub const MOE_DTYPE_U8: moe_dtype = 9;
pub const MOE_DTYPE_I16: moe_dtype = 10;
pub const MOE_DTYPE_U16: moe_dtype = 11;
pub const MOE_DTYPE_I32: moe_dtype = 12;
pub const MOE_DTYPE_U32: moe_dtype = 13;
pub const MOE_DTYPE_I64: moe_dtype = 14;
pub const MOE_DTYPE_U64: moe_dtype = 15;
pub const MOE_DTYPE_BOOL: moe_dtype = 16;
pub const MOE_DTYPE_F8_E4M3FN: moe_dtype = 20;
pub const MOE_DTYPE_F8_E5M2: moe_dtype = 21;
pub const MOE_DTYPE_F8_E4M3FNUZ: moe_dtype = 22;
pub const MOE_DTYPE_F8_E5M2FNUZ: moe_dtype = 23;
pub const MOE_DTYPE_F8_E8M0FNU: moe_dtype = 24;
pub const MOE_DTYPE_F6_E2M3FN: moe_dtype = 28;
pub const MOE_DTYPE_F6_E3M2FN: moe_dtype = 29;
pub const MOE_DTYPE_F4_E2M1FN: moe_dtype = 32;
pub const MOE_DTYPE_I4: moe_dtype = 36;
pub const MOE_DTYPE_U4: moe_dtype = 37;
pub const MOE_DTYPE_I2: moe_dtype = 38;
pub const MOE_DTYPE_U2: moe_dtype = 39;

pub type moe_reject = i32;
pub const MOE_REJECT_NONE: moe_reject = 0;
pub const MOE_REJECT_NOT_BUILT: moe_reject = 1;
pub const MOE_REJECT_PLATFORM: moe_reject = 2;
pub const MOE_REJECT_ISA: moe_reject = 3;
pub const MOE_REJECT_NOT_GATED: moe_reject = 4;
pub const MOE_REJECT_ACTIVATION: moe_reject = 5;
pub const MOE_REJECT_QUANT_SCHEME: moe_reject = 6;
pub const MOE_REJECT_GROUP_SIZE: moe_reject = 7;
pub const MOE_REJECT_ZERO_POINT: moe_reject = 8;
pub const MOE_REJECT_ACT_ORDER: moe_reject = 9;
pub const MOE_REJECT_BIAS: moe_reject = 10;
pub const MOE_REJECT_PARALLEL: moe_reject = 11;
pub const MOE_REJECT_EXPERT_MAP: moe_reject = 12;
pub const MOE_REJECT_ROUTING: moe_reject = 13;
pub const MOE_REJECT_ROUTER_DTYPE: moe_reject = 14;
pub const MOE_REJECT_INPUT_DTYPE: moe_reject = 15;
pub const MOE_REJECT_SHAPE: moe_reject = 16;
pub const MOE_REJECT_ALIGNMENT: moe_reject = 17;
pub const MOE_REJECT_SHARD_SPLITS_GROUP: moe_reject = 18;
pub const MOE_REJECT_ACTIVATION_FORMAT: moe_reject = 19;
pub const MOE_REJECT_BATCH_INVARIANCE: moe_reject = 20;
pub const MOE_REJECT_LORA: moe_reject = 21;
pub const MOE_REJECT_WEIGHT_LAYOUT: moe_reject = 22;
pub const MOE_REJECT_MEMORY: moe_reject = 23;
pub const MOE_REJECT_USER: moe_reject = 24;
pub const MOE_REJECT_CUSTOM: moe_reject = 25;

pub type moe_log_level = i32;
pub const MOE_LOG_TRACE: moe_log_level = 0;
pub const MOE_LOG_DEBUG: moe_log_level = 1;
pub const MOE_LOG_INFO: moe_log_level = 2;
pub const MOE_LOG_WARN: moe_log_level = 3;
pub const MOE_LOG_ERROR: moe_log_level = 4;
pub const MOE_LOG_OFF: moe_log_level = 5;

pub type moe_apply_mode = i32;
pub const MOE_APPLY_ROUTER_LOGITS: moe_apply_mode = 0;
pub const MOE_APPLY_TOPK: moe_apply_mode = 1;

pub const MOE_SELECT_EXPLAIN_ONLY: u64 = 1;
pub const MOE_SELECT_ALLOW_FALLBACK: u64 = 2;

pub const MOE_CONVERT_RELEASE_SOURCES: u64 = 1;

pub const MOE_LOAD_MMAP: u64 = 1;
pub const MOE_LOAD_PREFAULT: u64 = 2;
pub const MOE_LOAD_VERIFY: u64 = 4;

pub const MOE_APPLY_ACCUMULATE: u64 = 1;
pub const MOE_APPLY_IN_PLACE: u64 = 2;

pub const MOE_NUL_TERMINATED: usize = usize::MAX;
pub const MOE_MAX_DIMS: usize = 6;
pub const MOE_ABI_VERSION: i32 = 0;

/// Handles: only their addresses exist on this side.
macro_rules! opaque {
    ($($name:ident)*) => { $(#[repr(C)] pub struct $name { _private: [u8; 0] })* };
}
opaque! { moe_error moe_buffer moe_context moe_config moe_platform moe_selection moe_weights moe_packed moe_layer moe_control }

pub type moe_release_fn = Option<unsafe extern "C" fn(user: *mut c_void)>;
pub type moe_progress_fn = Option<unsafe extern "C" fn(user: *mut c_void, done: u64, total: u64) -> moe_status>;
pub type moe_log_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        level: moe_log_level,
        component: *const c_char,
        message: *const c_char,
        message_len: usize,
    ),
>;
pub type moe_task_fn = Option<unsafe extern "C" fn(task_arg: *mut c_void, index: usize)>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_tensor {
    pub struct_size: u32,
    pub dtype: moe_dtype,
    pub ndim: i32,
    pub flags: u32,
    pub data: *mut c_void,
    pub nbytes: u64,
    pub shape: [i64; MOE_MAX_DIMS],
    pub strides: [i64; MOE_MAX_DIMS],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_parallel_ops {
    pub struct_size: u32,
    pub num_threads: i32,
    pub user: *mut c_void,
    pub parallel_for:
        Option<unsafe extern "C" fn(user: *mut c_void, count: usize, task: moe_task_fn, task_arg: *mut c_void)>,
    pub destroy: moe_release_fn,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_allocator_ops {
    pub struct_size: u32,
    pub reserved0: u32,
    pub user: *mut c_void,
    pub allocate:
        Option<unsafe extern "C" fn(user: *mut c_void, size: usize, alignment: usize, numa_node: i32) -> *mut c_void>,
    pub deallocate: Option<unsafe extern "C" fn(user: *mut c_void, ptr: *mut c_void, size: usize, alignment: usize)>,
    pub destroy: moe_release_fn,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_context_callbacks {
    pub struct_size: u32,
    pub reserved0: u32,
    pub log: moe_log_fn,
    pub log_user: *mut c_void,
    pub log_destroy: moe_release_fn,
    pub parallel: *const moe_parallel_ops,
    pub allocator: *const moe_allocator_ops,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_candidate {
    pub struct_size: u32,
    pub reason: moe_reject,
    pub chosen: i32,
    pub priority: i32,
    pub backend: *const c_char,
    pub kernel: *const c_char,
    pub detail: *const c_char,
    pub subject: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_weight_source_ops {
    pub struct_size: u32,
    pub serial: i32,
    pub user: *mut c_void,
    pub get: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            role: *const c_char,
            expert: i64,
            shard: *const c_char,
            out: *mut moe_tensor,
            err: *mut *mut moe_error,
        ) -> moe_status,
    >,
    pub put: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            role: *const c_char,
            expert: i64,
            shard: *const c_char,
            tensor: *const moe_tensor,
        ),
    >,
    pub destroy: moe_release_fn,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_convert_options {
    pub struct_size: u32,
    pub reserved0: u32,
    pub flags: u64,
    pub dst: *mut c_void,
    pub dst_size: u64,
    pub dst_release: moe_release_fn,
    pub dst_user: *mut c_void,
    pub max_temp_bytes: u64,
    pub control: *mut moe_control,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_layer_options {
    pub struct_size: u32,
    pub reserved0: u32,
    pub correction_bias: *const moe_tensor,
    pub expert_map: *const moe_tensor,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_apply_args {
    pub struct_size: u32,
    pub mode: moe_apply_mode,
    pub flags: u64,
    pub hidden: *const moe_tensor,
    pub router_logits: *const moe_tensor,
    pub topk_ids: *const moe_tensor,
    pub topk_weights: *const moe_tensor,
    pub expert_tokens: *const moe_tensor,
    pub out: *const moe_tensor,
    pub workspace: *mut c_void,
    pub workspace_size: u64,
    pub control: *mut moe_control,
    pub out_topk_ids: *const moe_tensor,
    pub out_topk_weights: *const moe_tensor,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_route_args {
    pub struct_size: u32,
    pub reserved0: u32,
    pub router_logits: *const moe_tensor,
    pub correction_bias: *const moe_tensor,
    pub out_topk_ids: *const moe_tensor,
    pub out_topk_weights: *const moe_tensor,
}
