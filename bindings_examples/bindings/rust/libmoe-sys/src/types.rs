// Written by generate.py from moe_abi.json and moe.h: do not edit.
use std::os::raw::{c_char, c_void};

/// The release of libmoe whose interface this is.
pub const VERSION: &str = "0.1.0";
/// Counts incompatible changes; the number in the library's file name.
pub const MOE_ABI_VERSION: i32 = 0;
/// `MOE_MAX_DIMS` of the header.
pub const MOE_MAX_DIMS: usize = 6;
/// `MOE_NUL_TERMINATED` of the header.
pub const MOE_NUL_TERMINATED: usize = usize::MAX;

/// Result of a call. 0 is success, every failure is positive. Treat an unknown value like
/// MOE_ERR_INTERNAL. No function of this version returns a reserved one.
pub type moe_status = i32;
/// Ok.
pub const MOE_OK: moe_status = 0;
/// NULL, range, bad enum value, wrong struct_size
pub const MOE_ERR_INVALID_ARGUMENT: moe_status = 1;
/// JSON syntax, schema or consistency of a config
pub const MOE_ERR_INVALID_CONFIG: moe_status = 2;
/// destroyed or foreign handle (best-effort detection)
pub const MOE_ERR_INVALID_HANDLE: moe_status = 3;
/// rank, extent, stride or byte count of a tensor
pub const MOE_ERR_SHAPE: moe_status = 4;
/// data type not accepted at this place
pub const MOE_ERR_DTYPE: moe_status = 5;
/// a role or an expert was never set
pub const MOE_ERR_MISSING_WEIGHT: moe_status = 6;
/// a tensor that the config has no place for
pub const MOE_ERR_UNEXPECTED_WEIGHT: moe_status = 7;
/// no candidate accepts; details list every reason
pub const MOE_ERR_NO_BACKEND: moe_status = 8;
/// valid, but this build or this object cannot do it
pub const MOE_ERR_UNSUPPORTED: moe_status = 9;
/// details say how much is needed
pub const MOE_ERR_BUFFER_TOO_SMALL: moe_status = 10;
/// Out of memory.
pub const MOE_ERR_OUT_OF_MEMORY: moe_status = 11;
/// open/read/write/mmap; details carry errno
pub const MOE_ERR_IO: moe_status = 12;
/// file is not ours, truncated, or hash mismatch
pub const MOE_ERR_FORMAT: moe_status = 13;
/// struct or file of a newer version
pub const MOE_ERR_VERSION: moe_status = 14;
/// a moe_control or a callback asked to stop
pub const MOE_ERR_CANCELLED: moe_status = 15;
/// a transport failed, a deadline passed, out of step
pub const MOE_ERR_COMM: moe_status = 16;
/// any other callback failed
pub const MOE_ERR_CALLBACK: moe_status = 17;
/// exclusive access violated (best-effort detection)
pub const MOE_ERR_BUSY: moe_status = 18;
/// the object is not in a state that allows the call
pub const MOE_ERR_STATE: moe_status = 19;
/// another rank failed; details name it and its status
pub const MOE_ERR_PEER: moe_status = 20;
/// packed weights and selection, or two ranks, disagree; details name the member
pub const MOE_ERR_CONFIG_MISMATCH: moe_status = 21;
/// this communicator failed in an earlier call
pub const MOE_ERR_COMM_POISONED: moe_status = 22;
/// Internal.
pub const MOE_ERR_INTERNAL: moe_status = 99;

/// Element type. Sub-byte types are packed along the last dimension, lowest bits first; each
/// row fills whole bytes, and `shape` and `strides` count elements, not bytes.
pub type moe_dtype = i32;
/// `invalid`.
pub const MOE_DTYPE_INVALID: moe_dtype = 0;
/// `f32`.
pub const MOE_DTYPE_F32: moe_dtype = 1;
/// `f16`.
pub const MOE_DTYPE_F16: moe_dtype = 2;
/// `bf16`.
pub const MOE_DTYPE_BF16: moe_dtype = 3;
/// `f64`.
pub const MOE_DTYPE_F64: moe_dtype = 4;
/// `i8`.
pub const MOE_DTYPE_I8: moe_dtype = 8;
/// `u8`.
pub const MOE_DTYPE_U8: moe_dtype = 9;
/// `i16`.
pub const MOE_DTYPE_I16: moe_dtype = 10;
/// `u16`.
pub const MOE_DTYPE_U16: moe_dtype = 11;
/// `i32`.
pub const MOE_DTYPE_I32: moe_dtype = 12;
/// `u32`.
pub const MOE_DTYPE_U32: moe_dtype = 13;
/// `i64`.
pub const MOE_DTYPE_I64: moe_dtype = 14;
/// `u64`.
pub const MOE_DTYPE_U64: moe_dtype = 15;
/// one byte, 0 or 1
pub const MOE_DTYPE_BOOL: moe_dtype = 16;
/// `f8_e4m3fn`.
pub const MOE_DTYPE_F8_E4M3FN: moe_dtype = 20;
/// `f8_e5m2`.
pub const MOE_DTYPE_F8_E5M2: moe_dtype = 21;
/// `f8_e4m3fnuz`.
pub const MOE_DTYPE_F8_E4M3FNUZ: moe_dtype = 22;
/// `f8_e5m2fnuz`.
pub const MOE_DTYPE_F8_E5M2FNUZ: moe_dtype = 23;
/// exponent-only scale
pub const MOE_DTYPE_F8_E8M0FNU: moe_dtype = 24;
/// `f6_e2m3fn`.
pub const MOE_DTYPE_F6_E2M3FN: moe_dtype = 28;
/// `f6_e3m2fn`.
pub const MOE_DTYPE_F6_E3M2FN: moe_dtype = 29;
/// `f4_e2m1fn`.
pub const MOE_DTYPE_F4_E2M1FN: moe_dtype = 32;
/// `i4`.
pub const MOE_DTYPE_I4: moe_dtype = 36;
/// `u4`.
pub const MOE_DTYPE_U4: moe_dtype = 37;
/// `i2`.
pub const MOE_DTYPE_I2: moe_dtype = 38;
/// `u2`.
pub const MOE_DTYPE_U2: moe_dtype = 39;

/// Why a candidate was refused. The list is closed: programs compare these numbers, people read
/// the candidate's `detail`.
pub type moe_reject = i32;
/// accepted
pub const MOE_REJECT_NONE: moe_reject = 0;
/// compiled out
pub const MOE_REJECT_NOT_BUILT: moe_reject = 1;
/// other architecture, endianness, OS
pub const MOE_REJECT_PLATFORM: moe_reject = 2;
/// CPU lacks an instruction set
pub const MOE_REJECT_ISA: moe_reject = 3;
/// only gated (act-and-mul) activations
pub const MOE_REJECT_NOT_GATED: moe_reject = 4;
/// activation function or its alpha/beta/limit
pub const MOE_REJECT_ACTIVATION: moe_reject = 5;
/// weight x activation scheme pair
pub const MOE_REJECT_QUANT_SCHEME: moe_reject = 6;
/// Group size.
pub const MOE_REJECT_GROUP_SIZE: moe_reject = 7;
/// asymmetric weights
pub const MOE_REJECT_ZERO_POINT: moe_reject = 8;
/// g_idx
pub const MOE_REJECT_ACT_ORDER: moe_reject = 9;
/// Bias.
pub const MOE_REJECT_BIAS: moe_reject = 10;
/// tensor/expert/data parallel layout
pub const MOE_REJECT_PARALLEL: moe_reject = 11;
/// Expert map.
pub const MOE_REJECT_EXPERT_MAP: moe_reject = 12;
/// routing method
pub const MOE_REJECT_ROUTING: moe_reject = 13;
/// Router dtype.
pub const MOE_REJECT_ROUTER_DTYPE: moe_reject = 14;
/// Input dtype.
pub const MOE_REJECT_INPUT_DTYPE: moe_reject = 15;
/// a dimension is out of range
pub const MOE_REJECT_SHAPE: moe_reject = 16;
/// a dimension is not a multiple of what is needed
pub const MOE_REJECT_ALIGNMENT: moe_reject = 17;
/// a parallel shard would cut a scale group
pub const MOE_REJECT_SHARD_SPLITS_GROUP: moe_reject = 18;
/// standard vs batched
pub const MOE_REJECT_ACTIVATION_FORMAT: moe_reject = 19;
/// Batch invariance.
pub const MOE_REJECT_BATCH_INVARIANCE: moe_reject = 20;
/// Lora.
pub const MOE_REJECT_LORA: moe_reject = 21;
/// packing or gate/up order of the checkpoint
pub const MOE_REJECT_WEIGHT_LAYOUT: moe_reject = 22;
/// would exceed the memory limit of the config
pub const MOE_REJECT_MEMORY: moe_reject = 23;
/// excluded by the config
pub const MOE_REJECT_USER: moe_reject = 24;
/// a custom backend said no; see its text
pub const MOE_REJECT_CUSTOM: moe_reject = 25;

/// Log levels.
pub type moe_log_level = i32;
/// Trace.
pub const MOE_LOG_TRACE: moe_log_level = 0;
/// Debug.
pub const MOE_LOG_DEBUG: moe_log_level = 1;
/// Info.
pub const MOE_LOG_INFO: moe_log_level = 2;
/// Warn.
pub const MOE_LOG_WARN: moe_log_level = 3;
/// Error.
pub const MOE_LOG_ERROR: moe_log_level = 4;
/// Off.
pub const MOE_LOG_OFF: moe_log_level = 5;

/// What the caller passes to moe_apply. A config with routing "custom" takes TOPK only.
pub type moe_apply_mode = i32;
/// monolithic: routing inside
pub const MOE_APPLY_ROUTER_LOGITS: moe_apply_mode = 0;
/// modular: caller gives ids and weights
pub const MOE_APPLY_TOPK: moe_apply_mode = 1;

/// What a long call is doing. Treat values that you do not know like NONE.
pub type moe_phase = i32;
/// None.
pub const MOE_PHASE_NONE: moe_phase = 0;
/// Open.
pub const MOE_PHASE_OPEN: moe_phase = 1;
/// Convert.
pub const MOE_PHASE_CONVERT: moe_phase = 2;
/// Save.
pub const MOE_PHASE_SAVE: moe_phase = 3;
/// Load.
pub const MOE_PHASE_LOAD: moe_phase = 4;
/// Hash.
pub const MOE_PHASE_HASH: moe_phase = 5;
/// Apply.
pub const MOE_PHASE_APPLY: moe_phase = 6;

/// What `done` and `total` count.
pub type moe_unit = i32;
/// None.
pub const MOE_UNIT_NONE: moe_unit = 0;
/// Files.
pub const MOE_UNIT_FILES: moe_unit = 1;
/// Experts.
pub const MOE_UNIT_EXPERTS: moe_unit = 2;
/// Bytes.
pub const MOE_UNIT_BYTES: moe_unit = 3;

/// Select flags.
pub type moe_select_flags = u64;
/// MOE_OK also without a winner: moe_selection_backend is ""
pub const MOE_SELECT_EXPLAIN_ONLY: moe_select_flags = 1;
/// the backend named in the config is a wish; else try others
pub const MOE_SELECT_ALLOW_FALLBACK: moe_select_flags = 2;

/// Convert flags.
pub type moe_convert_flags = u64;
/// release each tensor once used; empties the set
pub const MOE_CONVERT_RELEASE_SOURCES: moe_convert_flags = 1;
/// weights of a config with another layer's name
pub const MOE_CONVERT_ANY_NAME: moe_convert_flags = 2;

/// Load flags.
pub type moe_load_flags = u64;
/// share file pages. The file must not change: if it is cut, reading the lost pages (also in moe_apply) is SIGBUS, which ends a process without a handler; PREFAULT does not help. Without MMAP the file is read into memory
pub const MOE_LOAD_MMAP: moe_load_flags = 1;
/// touch all pages before returning
pub const MOE_LOAD_PREFAULT: moe_load_flags = 2;
/// compare content hashes; headers and index tensors are always checked
pub const MOE_LOAD_VERIFY: moe_load_flags = 4;

/// Layer flags.
pub type moe_layer_flags = u64;
/// packed weights of a config with another layer's name
pub const MOE_LAYER_ANY_NAME: moe_layer_flags = 1;

/// Apply flags.
pub type moe_apply_flags = u64;
/// out += result instead of out = result
pub const MOE_APPLY_ACCUMULATE: moe_apply_flags = 1;
/// out is exactly hidden
pub const MOE_APPLY_IN_PLACE: moe_apply_flags = 2;

/// What stands at a layer's place. Treat values that you do not know like OTHER.
pub type moe_layer_kind = i32;
/// not understood: see `problem`
pub const MOE_LAYER_OTHER: moe_layer_kind = 0;
/// Experts.
pub const MOE_LAYER_EXPERTS: moe_layer_kind = 1;
/// Dense.
pub const MOE_LAYER_DENSE: moe_layer_kind = 2;

/// Layer info flags.
pub type moe_layer_info_flags = u32;
/// for multi-token prediction, not in the model's pass
pub const MOE_LAYER_IS_MTP: moe_layer_info_flags = 1;
/// its packed file is here
pub const MOE_LAYER_IS_CONVERTED: moe_layer_info_flags = 2;

/// What moe_comm_ops::agree_i64 computes of each value over all ranks.
pub type moe_agree_op = i32;
/// Min.
pub const MOE_AGREE_MIN: moe_agree_op = 0;
/// Max.
pub const MOE_AGREE_MAX: moe_agree_op = 1;
/// Sum.
pub const MOE_AGREE_SUM: moe_agree_op = 2;
/// Or.
pub const MOE_AGREE_OR: moe_agree_op = 3;

/// Owned bytes or text.
#[repr(C)]
pub struct moe_buffer {
    _private: [u8; 0],
}

/// A model's directory, immutable.
#[repr(C)]
pub struct moe_checkpoint {
    _private: [u8; 0],
}

/// One rank's end of a transport.
#[repr(C)]
pub struct moe_comm {
    _private: [u8; 0],
}

/// Immutable.
#[repr(C)]
pub struct moe_config {
    _private: [u8; 0],
}

/// Threads, memory, log.
#[repr(C)]
pub struct moe_context {
    _private: [u8; 0],
}

/// Cancellation and progress.
#[repr(C)]
pub struct moe_control {
    _private: [u8; 0],
}

/// A layer spread over the ranks of a comm.
#[repr(C)]
pub struct moe_dist {
    _private: [u8; 0],
}

/// A call of such a layer.
#[repr(C)]
pub struct moe_dist_call {
    _private: [u8; 0],
}

/// Immutable.
#[repr(C)]
pub struct moe_error {
    _private: [u8; 0],
}

/// Ready to run.
#[repr(C)]
pub struct moe_layer {
    _private: [u8; 0],
}

/// Converted weights, immutable.
#[repr(C)]
pub struct moe_packed {
    _private: [u8; 0],
}

/// Immutable.
#[repr(C)]
pub struct moe_platform {
    _private: [u8; 0],
}

/// Immutable.
#[repr(C)]
pub struct moe_selection {
    _private: [u8; 0],
}

/// Source tensors, by role.
#[repr(C)]
pub struct moe_weights {
    _private: [u8; 0],
}

/// Called once, from any thread, when the library no longer needs what `user` stands for.
pub type moe_release_fn = Option<unsafe extern "C" fn(*mut c_void)>;

/// Called from time to time on the thread that made the call. Return MOE_OK to go on, anything else
/// to stop. total is 0 while it is unknown.
pub type moe_progress_fn = Option<unsafe extern "C" fn(*mut c_void, u64, u64) -> moe_status>;

/// Called from any thread of the library, also concurrently. Must not call the library. `message`
/// need not be NUL-terminated: use message_len.
pub type moe_log_fn = Option<unsafe extern "C" fn(*mut c_void, moe_log_level, *const c_char, *const c_void, usize)>;

/// Runs one task; `index` is in \[0, count). A task never waits for another one.
pub type moe_task_fn = Option<unsafe extern "C" fn(*mut c_void, usize)>;

/// user, count, task, task_arg.
pub type moe_parallel_ops_parallel_for = Option<unsafe extern "C" fn(*mut c_void, usize, moe_task_fn, *mut c_void)>;

/// user, size, alignment, numa_node.
pub type moe_allocator_ops_allocate = Option<unsafe extern "C" fn(*mut c_void, usize, usize, i32) -> *mut c_void>;

/// user, ptr, size, alignment.
pub type moe_allocator_ops_deallocate = Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize)>;

/// user, role, expert, shard, out, err.
pub type moe_weight_source_ops_get = Option<unsafe extern "C" fn(*mut c_void, *const c_char, i64, *const c_char, *mut moe_tensor, *mut *mut moe_error) -> moe_status>;

/// may be NULL
pub type moe_weight_source_ops_put = Option<unsafe extern "C" fn(*mut c_void, *const c_char, i64, *const c_char, *const moe_tensor)>;

/// user, row_bytes, send, send_counts, send_displs, recv, recv_counts, recv_displs, op, err.
pub type moe_comm_ops_alltoallv_start = Option<unsafe extern "C" fn(*mut c_void, u64, *const c_void, *const c_void, *const c_void, *mut c_void, *const c_void, *const c_void, *mut *mut c_void, *mut *mut moe_error) -> moe_status>;

/// Never blocks; also called between tasks of this rank's work. After \*done = 1 the operation no longer exists.
pub type moe_comm_ops_test = Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i32, *mut *mut moe_error) -> moe_status>;

/// user, row_bytes, send, send_count, recv, recv_counts, recv_displs, op, err.
pub type moe_comm_ops_allgatherv_start = Option<unsafe extern "C" fn(*mut c_void, u64, *const c_void, i64, *mut c_void, *const c_void, *const c_void, *mut *mut c_void, *mut *mut moe_error) -> moe_status>;

/// One row to and from each rank.
pub type moe_comm_ops_alltoall_start = Option<unsafe extern "C" fn(*mut c_void, u64, *const c_void, *mut c_void, *mut *mut c_void, *mut *mut moe_error) -> moe_status>;

/// Not called by this version: it has no deadline.
pub type moe_comm_ops_agree_i64 = Option<unsafe extern "C" fn(*mut c_void, moe_agree_op, *mut i64, i32, *mut *mut moe_error) -> moe_status>;

/// Nor is this one.
pub type moe_comm_ops_barrier = Option<unsafe extern "C" fn(*mut c_void, *mut *mut moe_error) -> moe_status>;

/// Called between two tests while there is nothing else to do; NULL: the thread yields.
pub type moe_comm_ops_wait_hint = Option<unsafe extern "C" fn(*mut c_void, i32)>;

/// Ends the job. Called after a deadline if "on_timeout" is "abort".
pub type moe_comm_ops_abort = Option<unsafe extern "C" fn(*mut c_void, i32)>;

/// A view of memory that the caller owns. No nested pointers but `data`. Fill it by hand:
/// moe_tensor x = {0}; x.struct_size = sizeof x; dtype, ndim, data, shape; the rest stays 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_tensor {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// Dtype.
    pub dtype: moe_dtype,
    /// 0..MOE_MAX_DIMS; 0 is a scalar
    pub ndim: i32,
    /// 0
    pub flags: u32,
    /// aligned to the element size
    pub data: *mut c_void,
    /// bytes at data; 0 = what dtype, shape and strides need
    pub nbytes: u64,
    /// elements; unused entries 0
    pub shape: [i64; 6],
    /// elements; all 0 = row-major without gaps
    pub strides: [i64; 6],
}

/// Progress.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_progress {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// Phase.
    pub phase: moe_phase,
    /// of done and total
    pub unit: moe_unit,
    /// 0.
    pub reserved0: i32,
    /// Done.
    pub done: u64,
    /// of the phase: what the progress function gets
    pub total: u64,
    /// the model's number; -1: no layer
    pub layer: i64,
    /// Layers done.
    pub layers_done: i64,
    /// of a call for several layers; else 0, 1
    pub layers_total: i64,
    /// Bytes done.
    pub bytes_done: u64,
    /// of the whole call: bytes_done never goes back
    pub bytes_total: u64,
}

/// A thread pool of the caller. parallel_for must run task(task_arg, i) exactly once for each
/// i in \[0, count), from any threads, and return when all are done; it may run them one after
/// another on the calling thread. Several threads call it at once if several threads call the
/// library. A faulty parallel_for does not endanger memory:
/// - An index that is run again, also at the same time: the second run returns at once. No error.
/// - An index that is left out, not done when parallel_for returns, or not in \[0, count): the call
/// returns MOE_ERR_CALLBACK with subject or message "parallel_for", and the memory that it writes
/// (`out`, a caller's dst) is unspecified. The call waits for tasks that are still running (for
/// ever, if their thread never goes on); no other task starts.
/// - task(task_arg, i) after that returns at once, until `destroy` of this struct has returned.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_parallel_ops {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// how many tasks can run at once; \>= 1
    pub num_threads: i32,
    /// The first argument of the functions here.
    pub user: *mut c_void,
    /// Runs all tasks; see the struct.
    pub parallel_for: moe_parallel_ops_parallel_for,
    /// Ends `user`; called once, from any thread.
    pub destroy: moe_release_fn,
}

/// Memory for weights and workspaces. alignment is a power of two \>= 64; numa_node is -1 for
/// "no preference". allocate returns NULL when out of memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_allocator_ops {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// 0.
    pub reserved0: u32,
    /// The first argument of the functions here.
    pub user: *mut c_void,
    /// Gives memory, or NULL.
    pub allocate: moe_allocator_ops_allocate,
    /// Takes memory back.
    pub deallocate: moe_allocator_ops_deallocate,
    /// Ends `user`; called once, from any thread.
    pub destroy: moe_release_fn,
}

/// Context callbacks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_context_callbacks {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// 0.
    pub reserved0: u32,
    /// NULL: messages go to the ring only
    pub log: moe_log_fn,
    /// The first argument of `log`.
    pub log_user: *mut c_void,
    /// Ends `log_user`.
    pub log_destroy: moe_release_fn,
    /// copied; NULL: own pool
    pub parallel: *const moe_parallel_ops,
    /// copied; NULL: aligned malloc / mmap
    pub allocator: *const moe_allocator_ops,
}

/// One considered kernel. Strings are borrowed from the selection.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_candidate {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// MOE_REJECT_NONE: could run this config
    pub reason: moe_reject,
    /// 1 for the one that was taken
    pub chosen: i32,
    /// smaller is tried earlier
    pub priority: i32,
    /// e.g. "CPU_INT4", "MARLIN"
    pub backend: *const c_char,
    /// "w4a8_tok8_p16_avx512vnni"; else the experts class
    pub kernel: *const c_char,
    /// "needs avx512_vnni; the platform has .."; "" if accepted
    pub detail: *const c_char,
    /// pointer into the resolved config, or a feature, or ""
    pub subject: *const c_char,
}

/// A source of tensors that conversion calls while it runs, so that only a few experts are in memory
/// at a time. get fills \*out (zeroed, struct_size set) for one expert as for
/// moe_weights_set_expert; put ends its use. get returns MOE_ERR_MISSING_WEIGHT for a tensor that
/// the source does not have. A w13 role is requested whole first (shard NULL), then as "w1" and "w3".
/// Calls may come from several threads unless `serial` is 1.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_weight_source_ops {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// Serial.
    pub serial: i32,
    /// The first argument of the functions here.
    pub user: *mut c_void,
    /// Fills a tensor; see the struct.
    pub get: moe_weight_source_ops_get,
    /// may be NULL
    pub put: moe_weight_source_ops_put,
    /// Ends `user`; called once, from any thread.
    pub destroy: moe_release_fn,
}

/// Convert options.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_convert_options {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// 0.
    pub reserved0: u32,
    /// Flags.
    pub flags: u64,
    /// NULL: the library allocates; else kept by the result; content unspecified after a failure
    pub dst: *mut c_void,
    /// \>= moe_selection_packed_size; dst aligned as told there too small: BUFFER_TOO_SMALL, "needed" in the details
    pub dst_size: u64,
    /// called when the result is destroyed
    pub dst_release: moe_release_fn,
    /// The argument of `dst_release`.
    pub dst_user: *mut c_void,
    /// 0: one expert's worth per thread
    pub max_temp_bytes: u64,
    /// may be NULL
    pub control: *mut moe_control,
}

/// Layer options.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_layer_options {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// 0.
    pub reserved0: u32,
    /// \[G\] or \[1,G\] f32/f16/bf16, copied; NULL: the config's or the checkpoint's
    pub correction_bias: *const moe_tensor,
    /// \[X\] i32, place in \[E, ...\] or -1, copied; NULL: config's
    pub expert_map: *const moe_tensor,
    /// Flags.
    pub flags: u64,
}

/// Apply args.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_apply_args {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// Mode.
    pub mode: moe_apply_mode,
    /// Flags.
    pub flags: u64,
    /// \[T,H\], the config's in_dtype
    pub hidden: *const moe_tensor,
    /// ROUTER_LOGITS: \[T,G\] f32/f16/bf16
    pub router_logits: *const moe_tensor,
    /// TOPK: \[T,K\] i32 or i64; -1, the config's routing.skip_id, or not held here: skipped; hash routing with logits: \[T,top_k\]
    pub topk_ids: *const moe_tensor,
    /// TOPK: \[T,K\] f32
    pub topk_weights: *const moe_tensor,
    /// not used by any mode built so far: NULL
    pub expert_tokens: *const moe_tensor,
    /// shape of hidden, the config's out_dtype; overlaps no input, except as IN_PLACE says
    pub out: *const moe_tensor,
    /// NULL: the library's
    pub workspace: *mut c_void,
    /// Bytes at `workspace`.
    pub workspace_size: u64,
    /// may be NULL
    pub control: *mut moe_control,
    /// optional \[T,K\] i32: what routing chose
    pub out_topk_ids: *const moe_tensor,
    /// optional \[T,K\] f32
    pub out_topk_weights: *const moe_tensor,
}

/// Route args.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_route_args {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// 0.
    pub reserved0: u32,
    /// \[T,G\]
    pub router_logits: *const moe_tensor,
    /// as in moe_layer_options; NULL: the config's
    pub correction_bias: *const moe_tensor,
    /// \[T,K\] i32 or i64; hash routing: read
    pub out_topk_ids: *const moe_tensor,
    /// \[T,K\] f32
    pub out_topk_weights: *const moe_tensor,
}

/// One layer, whole, before any cut. Strings are borrowed from the checkpoint.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_layer_info {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// Kind.
    pub kind: moe_layer_kind,
    /// Flags.
    pub flags: u32,
    /// Top k.
    pub top_k: i32,
    /// Num experts.
    pub num_experts: i64,
    /// Hidden dim.
    pub hidden_dim: i64,
    /// Intermediate size.
    pub intermediate_size: i64,
    /// of its experts in the files
    pub bytes: u64,
    /// "model.layers.3.mlp.experts", "" without experts
    pub name: *const c_char,
    /// "", or why no config can be made of it, or why its tensors or its packed file cannot be used; UTF-8
    pub problem: *const c_char,
}

/// Of the three calls below; zero for all defaults, and NULL for a zeroed struct. A member that a call
/// does not read must be zero: INVALID_ARGUMENT with its name as subject.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_checkpoint_options {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// 0.
    pub reserved0: u32,
    /// MOE_LOAD_\*, of converted checkpoints; _convert: VERIFY alone, compares the hashes of files that are there
    pub load_flags: u64,
    /// MOE_SELECT_ALLOW_FALLBACK; moe_checkpoint_packed: 0
    pub select_flags: u64,
    /// NULL: the config's
    pub platform: *const moe_platform,
    /// as in moe_checkpoint_config
    pub patch_json: *const c_void,
    /// or MOE_NUL_TERMINATED; 0 with NULL alone
    pub patch_len: usize,
    /// of moe_checkpoint_layer
    pub layer: *const moe_layer_options,
    /// of moe_checkpoint_convert; NULL: all that have experts (an empty list is an error)
    pub layers: *const c_void,
    /// Num layers.
    pub num_layers: usize,
    /// may be NULL
    pub control: *mut moe_control,
}

/// A transport between ranks 0..size-1. alltoallv_start and test are required; another function may be
/// NULL, and what it does is then made of these two or left out. Counts and displacements are in rows of
/// row_bytes, one entry for each rank, and may be zero. Buffers and lists stay valid and unchanged until the
/// operation is done. Operations are started in the same order on all ranks, and several may be under way.
/// `op` is what the table names the operation by; nothing looks into it. Only one thread at a time uses the
/// table. When start or test fails, the operation is gone and the communicator poisoned.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct moe_comm_ops {
    /// Bytes of this struct: what it was compiled with.
    pub struct_size: u32,
    /// Rank.
    pub rank: i32,
    /// Size.
    pub size: i32,
    /// 0.
    pub reserved0: i32,
    /// The first argument of the functions here.
    pub user: *mut c_void,
    /// Alltoallv start.
    pub alltoallv_start: moe_comm_ops_alltoallv_start,
    /// Never blocks; also called between tasks of this rank's work. After \*done = 1 the operation no longer exists.
    pub test: moe_comm_ops_test,
    /// Allgatherv start.
    pub allgatherv_start: moe_comm_ops_allgatherv_start,
    /// One row to and from each rank.
    pub alltoall_start: moe_comm_ops_alltoall_start,
    /// Not called by this version: it has no deadline.
    pub agree_i64: moe_comm_ops_agree_i64,
    /// Nor is this one.
    pub barrier: moe_comm_ops_barrier,
    /// Called between two tests while there is nothing else to do; NULL: the thread yields.
    pub wait_hint: moe_comm_ops_wait_hint,
    /// Ends the job. Called after a deadline if "on_timeout" is "abort".
    pub abort: moe_comm_ops_abort,
    /// Ends `user`; called once, from any thread.
    pub destroy: moe_release_fn,
}

// A wrong size or alignment does not compile, a wrong place fails the test below.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(std::mem::size_of::<moe_tensor>() == 128);
    assert!(std::mem::align_of::<moe_tensor>() == 8);
    assert!(std::mem::size_of::<moe_progress>() == 72);
    assert!(std::mem::align_of::<moe_progress>() == 8);
    assert!(std::mem::size_of::<moe_parallel_ops>() == 32);
    assert!(std::mem::align_of::<moe_parallel_ops>() == 8);
    assert!(std::mem::size_of::<moe_allocator_ops>() == 40);
    assert!(std::mem::align_of::<moe_allocator_ops>() == 8);
    assert!(std::mem::size_of::<moe_context_callbacks>() == 48);
    assert!(std::mem::align_of::<moe_context_callbacks>() == 8);
    assert!(std::mem::size_of::<moe_candidate>() == 48);
    assert!(std::mem::align_of::<moe_candidate>() == 8);
    assert!(std::mem::size_of::<moe_weight_source_ops>() == 40);
    assert!(std::mem::align_of::<moe_weight_source_ops>() == 8);
    assert!(std::mem::size_of::<moe_convert_options>() == 64);
    assert!(std::mem::align_of::<moe_convert_options>() == 8);
    assert!(std::mem::size_of::<moe_layer_options>() == 32);
    assert!(std::mem::align_of::<moe_layer_options>() == 8);
    assert!(std::mem::size_of::<moe_apply_args>() == 104);
    assert!(std::mem::align_of::<moe_apply_args>() == 8);
    assert!(std::mem::size_of::<moe_route_args>() == 40);
    assert!(std::mem::align_of::<moe_route_args>() == 8);
    assert!(std::mem::size_of::<moe_layer_info>() == 64);
    assert!(std::mem::align_of::<moe_layer_info>() == 8);
    assert!(std::mem::size_of::<moe_checkpoint_options>() == 80);
    assert!(std::mem::align_of::<moe_checkpoint_options>() == 8);
    assert!(std::mem::size_of::<moe_comm_ops>() == 96);
    assert!(std::mem::align_of::<moe_comm_ops>() == 8);
};

#[cfg(all(test, target_pointer_width = "64"))]
#[test]
fn members_are_where_the_library_has_them() {
    macro_rules! at {
        ($name:ident: $($member:ident $offset:literal)*) => {{
            let value = std::mem::MaybeUninit::<$name>::zeroed();
            $(assert_eq!(unsafe { std::ptr::addr_of!((*value.as_ptr()).$member) } as usize - value.as_ptr() as usize, $offset);)*
        }};
    }
    at!(moe_tensor: struct_size 0 dtype 4 ndim 8 flags 12 data 16 nbytes 24 shape 32 strides 80);
    at!(moe_progress: struct_size 0 phase 4 unit 8 reserved0 12 done 16 total 24 layer 32 layers_done 40 layers_total 48 bytes_done 56 bytes_total 64);
    at!(moe_parallel_ops: struct_size 0 num_threads 4 user 8 parallel_for 16 destroy 24);
    at!(moe_allocator_ops: struct_size 0 reserved0 4 user 8 allocate 16 deallocate 24 destroy 32);
    at!(moe_context_callbacks: struct_size 0 reserved0 4 log 8 log_user 16 log_destroy 24 parallel 32 allocator 40);
    at!(moe_candidate: struct_size 0 reason 4 chosen 8 priority 12 backend 16 kernel 24 detail 32 subject 40);
    at!(moe_weight_source_ops: struct_size 0 serial 4 user 8 get 16 put 24 destroy 32);
    at!(moe_convert_options: struct_size 0 reserved0 4 flags 8 dst 16 dst_size 24 dst_release 32 dst_user 40 max_temp_bytes 48 control 56);
    at!(moe_layer_options: struct_size 0 reserved0 4 correction_bias 8 expert_map 16 flags 24);
    at!(moe_apply_args: struct_size 0 mode 4 flags 8 hidden 16 router_logits 24 topk_ids 32 topk_weights 40 expert_tokens 48 out 56 workspace 64 workspace_size 72 control 80 out_topk_ids 88 out_topk_weights 96);
    at!(moe_route_args: struct_size 0 reserved0 4 router_logits 8 correction_bias 16 out_topk_ids 24 out_topk_weights 32);
    at!(moe_layer_info: struct_size 0 kind 4 flags 8 top_k 12 num_experts 16 hidden_dim 24 intermediate_size 32 bytes 40 name 48 problem 56);
    at!(moe_checkpoint_options: struct_size 0 reserved0 4 load_flags 8 select_flags 16 platform 24 patch_json 32 patch_len 40 layer 48 layers 56 num_layers 64 control 72);
    at!(moe_comm_ops: struct_size 0 rank 4 size 8 reserved0 12 user 16 alltoallv_start 24 test 32 allgatherv_start 40 alltoall_start 48 agree_i64 56 barrier 64 wait_hint 72 abort 80 destroy 88);
}
