/* SPDX-License-Identifier: Apache-2.0
 *
 * moe.h - the whole public C interface of libmoe.
 *
 * Introduction
 *   A Mixture-of-Experts layer sends each token to the few experts that its router scores highest.
 *   An expert is a small MLP: gate and up projections (w13), an activation, a down projection (w2).
 *   The layer returns the weighted sum of their outputs. libmoe runs such layers on CPUs, from the
 *   quantized weights of a checkpoint. Six calls do it, in this order:
 *     moe_config_create    config     says what the layer is: sizes, routing, quantization (JSON);
 *                                     moe_config_create_from_hf reads a model's config.json instead
 *     moe_select_backend   selection  chooses the kernel for this machine, and says why not the others
 *     moe_weights_create   weights    holds the checkpoint's tensors; moe_weights_load_safetensors
 *                                     finds them in files, moe_weights_set takes them from memory
 *     moe_convert_weights  packed     the weights as the kernel reads them; can be saved and mapped
 *     moe_layer_create     layer      joins kernel and packed weights; ready to run
 *     moe_apply            out        hidden states and router logits in, hidden states out
 *   The caller owns each handle and ends it with its *_destroy function. A failed call returns a
 *   status and, through its last parameter, an error object that says what is wrong and where.
 *   The guide is include_c/README.md in the source: config members, tensors, threads, memory.
 *
 * Letters in shapes
 *   T   tokens of a call
 *   H   hidden size
 *   I   intermediate size of one expert (this rank's part)
 *   N1  rows of w13: 2*I for gated activations, I for others
 *   G   columns of router logits: the model's experts, then its zero experts
 *   X   experts with weights, redundant copies counted
 *   E   experts that this rank holds (= X without expert parallelism)
 *   K   experts per token (top_k)
 *
 * Words in comments
 *   [any]     may be called from any thread, also concurrently on the same handle.
 *   [excl]    the caller makes sure that no other call uses this handle meanwhile.
 *   owned     the caller ends the object with the matching *_destroy.
 *   borrowed  valid as long as the object it was read from; the caller never frees it.
 *   Statuses: all that the function may return, without MOE_ERR_ (moe_abi_json has the same lists).
 *             "common" is MOE_OK, OUT_OF_MEMORY and INTERNAL; with a parameter `err` also
 *             INVALID_ARGUMENT; with a handle among the parameters also INVALID_HANDLE.
 *
 * Rules that hold for every function
 *   1. Nothing throws, calls exit or abort, prints, or installs a signal handler.
 *   2. A function that can fail returns moe_status. After a failure, outputs that are handles or
 *      numbers are NULL or 0; structs and memory of the caller are as before the call.
 *   3. The last parameter `moe_error** err` may be NULL. Otherwise a failure stores an owned error
 *      object in *err, and MOE_OK stores NULL. The previous value of *err is neither read nor
 *      freed. There is no thread-local "last error".
 *   4. Every *_destroy accepts NULL and is [excl]. Objects keep alive what they need, so handles
 *      may be destroyed in any order.
 *   5. Strings are UTF-8 (section 4 says how messages quote other bytes). A (ptr, len) pair need
 *      not be NUL-terminated; len may be MOE_NUL_TERMINATED. A lone `const char*` is
 *      NUL-terminated.
 *   6. Structs start with `struct_size`: set it to the sizeof of the struct that you compiled, also
 *      when the library fills the struct. Zero the rest first: 0 always means "default".
 *   7. Input pointers are read during the call only, unless the text says "kept".
 *   8. The library never reads or writes outside [data, data + nbytes).
 *   9. Accessors that return a plain value accept NULL and return "", 0, -1 or NULL.
 *  10. A moe_context* parameter may be NULL unless the text forbids it. NULL means one thread,
 *      plain memory, no log.
 *  11. A `destroy` or `release` function that is handed over is called exactly once, from any
 *      thread, whether the call that took it succeeds or fails. It may be NULL.
 *  12. Callbacks must not throw, unwind or longjmp. A C++ exception, pthread_exit or a cancellation
 *      (pthread_cancel) that leaves a callback, or that acts inside the library, ends the process
 *      (SIGABRT); asynchronous cancellation may also hang. Calls that touch files or start threads
 *      have cancellation points: disable cancellation (pthread_setcancelstate) in threads that may
 *      be cancelled. In a program that links libmoe.a, an exception that leaves a callback of a
 *      function with a status gives MOE_ERR_INTERNAL; one that leaves the log function may be
 *      dropped.
 *      The `err` of a callback is never NULL. An error that the callback stores there
 *      (moe_error_create) belongs to the library. MOE_ERR_CANCELLED passes through; any other
 *      failure is reported as MOE_ERR_CALLBACK, with the callback's status and text in the details.
 *  13. An expert number is always the model's (0..X-1). Only the first dimension of a stacked
 *      [E, ...] tensor is local; moe_weights_to_json and moe_packed_to_json list its experts.
 *      With redundant experts (EPLB), topk_ids, router logits and weight sources use the
 *      checkpoint's expert numbers. The library fills every copy that this rank holds and picks one
 *      copy per row.
 *  14. A stack of 64 KiB, as set by pthread_attr_setstacksize, is enough for every function and
 *      for every task of a parallel_for.
 *  15. Floating-point state (MXCSR, FPCR, x87 control word): the library computes round-to-nearest,
 *      without traps and without flushing subnormals (unless the option flush_denormals is set),
 *      whatever the caller's state is. Tasks on the caller's threads do the same, and callbacks are
 *      called in that state. After a call or a task the previous state is back, including its
 *      exception flags.
 */
#ifndef MOE_MOE_H_
#define MOE_MOE_H_

/* one declaration per line: */
/* clang-format off */

#include <stddef.h>
#include <stdint.h>

#define MOE_VERSION_MAJOR 0
#define MOE_VERSION_MINOR 1
#define MOE_VERSION_PATCH 0
/* Counts incompatible changes; equal to the SONAME number. */
#define MOE_ABI_VERSION 0

#if !defined(MOE_API)
#  if defined(_WIN32)
#    if defined(MOE_BUILDING)
#      define MOE_API __declspec(dllexport)
#    elif defined(MOE_STATIC)
#      define MOE_API
#    else
#      define MOE_API __declspec(dllimport)
#    endif
#  elif defined(__GNUC__)
#    define MOE_API __attribute__((visibility("default")))
#  else
#    define MOE_API
#  endif
#endif

#if defined(_WIN32) && !defined(_WIN64)
#  define MOE_CALL __cdecl
#else
#  define MOE_CALL
#endif

#if defined(__GNUC__) && !defined(MOE_NO_WARN_UNUSED)
#  define MOE_MUST_CHECK __attribute__((warn_unused_result))
#else
#  define MOE_MUST_CHECK
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ */
/* 1. Scalars and enumerations: all int32_t, values never change       */
/* ------------------------------------------------------------------ */

#define MOE_NUL_TERMINATED ((size_t)-1)
#define MOE_MAX_DIMS 6

/** Result of a call. 0 is success, every failure is positive. Treat an unknown value like
 *  MOE_ERR_INTERNAL. No function of this version returns a reserved one. */
typedef int32_t moe_status;
enum {
  MOE_OK = 0,
  MOE_ERR_INVALID_ARGUMENT = 1,  /* NULL, range, bad enum value, wrong struct_size      */
  MOE_ERR_INVALID_CONFIG = 2,    /* JSON syntax, schema or consistency of a config      */
  MOE_ERR_INVALID_HANDLE = 3,    /* destroyed or foreign handle (best-effort detection)  */
  MOE_ERR_SHAPE = 4,             /* rank, extent, stride or byte count of a tensor       */
  MOE_ERR_DTYPE = 5,             /* data type not accepted at this place                 */
  MOE_ERR_MISSING_WEIGHT = 6,    /* a role or an expert was never set                    */
  MOE_ERR_UNEXPECTED_WEIGHT = 7, /* a tensor that the config has no place for            */
  MOE_ERR_NO_BACKEND = 8,        /* no candidate accepts; details list every reason      */
  MOE_ERR_UNSUPPORTED = 9,       /* valid, but this build or this object cannot do it    */
  MOE_ERR_BUFFER_TOO_SMALL = 10, /* details say how much is needed                      */
  MOE_ERR_OUT_OF_MEMORY = 11,
  MOE_ERR_IO = 12,               /* open/read/write/mmap; details carry errno            */
  MOE_ERR_FORMAT = 13,           /* file is not ours, truncated, or hash mismatch        */
  MOE_ERR_VERSION = 14,          /* struct or file of a newer version                    */
  MOE_ERR_CANCELLED = 15,        /* a moe_control or a callback asked to stop            */
  MOE_ERR_COMM = 16,             /* a transport failed, a deadline passed, out of step   */
  MOE_ERR_CALLBACK = 17,         /* any other callback failed                            */
  MOE_ERR_BUSY = 18,             /* exclusive access violated (best-effort detection)    */
  MOE_ERR_STATE = 19,            /* the object is not in a state that allows the call    */
  MOE_ERR_PEER = 20,             /* another rank failed; details name it and its status  */
  MOE_ERR_CONFIG_MISMATCH = 21,  /* packed weights and selection, or two ranks, disagree; */
                                 /* details name the member                              */
  MOE_ERR_COMM_POISONED = 22,    /* this communicator failed in an earlier call          */
  MOE_ERR_INTERNAL = 99
};

/** Element type. Sub-byte types are packed along the last dimension, lowest bits first; each
 *  row fills whole bytes, and `shape` and `strides` count elements, not bytes. */
typedef int32_t moe_dtype;
enum {
  MOE_DTYPE_INVALID = 0,
  MOE_DTYPE_F32 = 1,  MOE_DTYPE_F16 = 2,  MOE_DTYPE_BF16 = 3,  MOE_DTYPE_F64 = 4,
  MOE_DTYPE_I8 = 8,   MOE_DTYPE_U8 = 9,   MOE_DTYPE_I16 = 10,  MOE_DTYPE_U16 = 11,
  MOE_DTYPE_I32 = 12, MOE_DTYPE_U32 = 13, MOE_DTYPE_I64 = 14,  MOE_DTYPE_U64 = 15,
  MOE_DTYPE_BOOL = 16, /* one byte, 0 or 1 */
  MOE_DTYPE_F8_E4M3FN = 20, MOE_DTYPE_F8_E5M2 = 21,
  MOE_DTYPE_F8_E4M3FNUZ = 22, MOE_DTYPE_F8_E5M2FNUZ = 23,
  MOE_DTYPE_F8_E8M0FNU = 24, /* exponent-only scale */
  MOE_DTYPE_F6_E2M3FN = 28, MOE_DTYPE_F6_E3M2FN = 29,
  MOE_DTYPE_F4_E2M1FN = 32,
  MOE_DTYPE_I4 = 36, MOE_DTYPE_U4 = 37, MOE_DTYPE_I2 = 38, MOE_DTYPE_U2 = 39
};

/** Why a candidate was refused. The list is closed: programs compare these numbers, people read
 *  the candidate's `detail`. */
typedef int32_t moe_reject;
enum {
  MOE_REJECT_NONE = 0,            /* accepted                                            */
  MOE_REJECT_NOT_BUILT = 1,       /* compiled out                                        */
  MOE_REJECT_PLATFORM = 2,        /* other architecture, endianness, OS                  */
  MOE_REJECT_ISA = 3,             /* CPU lacks an instruction set                        */
  MOE_REJECT_NOT_GATED = 4,       /* only gated (act-and-mul) activations                */
  MOE_REJECT_ACTIVATION = 5,      /* activation function or its alpha/beta/limit         */
  MOE_REJECT_QUANT_SCHEME = 6,    /* weight x activation scheme pair                     */
  MOE_REJECT_GROUP_SIZE = 7,
  MOE_REJECT_ZERO_POINT = 8,      /* asymmetric weights                                  */
  MOE_REJECT_ACT_ORDER = 9,       /* g_idx                                               */
  MOE_REJECT_BIAS = 10,
  MOE_REJECT_PARALLEL = 11,       /* tensor/expert/data parallel layout                  */
  MOE_REJECT_EXPERT_MAP = 12,
  MOE_REJECT_ROUTING = 13,        /* routing method                                      */
  MOE_REJECT_ROUTER_DTYPE = 14,
  MOE_REJECT_INPUT_DTYPE = 15,
  MOE_REJECT_SHAPE = 16,          /* a dimension is out of range                         */
  MOE_REJECT_ALIGNMENT = 17,      /* a dimension is not a multiple of what is needed     */
  MOE_REJECT_SHARD_SPLITS_GROUP = 18, /* a parallel shard would cut a scale group        */
  MOE_REJECT_ACTIVATION_FORMAT = 19,  /* standard vs batched                             */
  MOE_REJECT_BATCH_INVARIANCE = 20,
  MOE_REJECT_LORA = 21,
  MOE_REJECT_WEIGHT_LAYOUT = 22,  /* packing or gate/up order of the checkpoint          */
  MOE_REJECT_MEMORY = 23,         /* would exceed the memory limit of the config         */
  MOE_REJECT_USER = 24,           /* excluded by the config                              */
  MOE_REJECT_CUSTOM = 25          /* a custom backend said no; see its text              */
};

/** Log levels. */
typedef int32_t moe_log_level;
enum {
  MOE_LOG_TRACE = 0, MOE_LOG_DEBUG = 1, MOE_LOG_INFO = 2,
  MOE_LOG_WARN = 3, MOE_LOG_ERROR = 4, MOE_LOG_OFF = 5
};

/** What the caller passes to moe_apply. A config with routing "custom" takes TOPK only. */
typedef int32_t moe_apply_mode;
enum {
  MOE_APPLY_ROUTER_LOGITS = 0, /* monolithic: routing inside                            */
  MOE_APPLY_TOPK = 1           /* modular: caller gives ids and weights                 */
};

/* ------------------------------------------------------------------ */
/* 2. Handles                                                          */
/* ------------------------------------------------------------------ */

typedef struct moe_error moe_error;         /* immutable                                */
typedef struct moe_buffer moe_buffer;       /* owned bytes or text                      */
typedef struct moe_context moe_context;     /* threads, memory, log                     */
typedef struct moe_config moe_config;       /* immutable                                */
typedef struct moe_platform moe_platform;   /* immutable                                */
typedef struct moe_selection moe_selection; /* immutable                                */
typedef struct moe_weights moe_weights;     /* source tensors, by role                   */
typedef struct moe_packed moe_packed;       /* converted weights, immutable              */
typedef struct moe_layer moe_layer;         /* ready to run                              */
typedef struct moe_control moe_control;     /* cancellation and progress                 */
typedef struct moe_checkpoint moe_checkpoint; /* a model's directory, immutable          */
typedef struct moe_comm moe_comm;           /* one rank's end of a transport             */
typedef struct moe_comm_op moe_comm_op;     /* its operation under way; the transport's  */
typedef struct moe_dist moe_dist;           /* a layer spread over the ranks of a comm   */
typedef struct moe_dist_call moe_dist_call; /* a call of such a layer                    */

/* ------------------------------------------------------------------ */
/* 3. Version and introspection                                        */
/* ------------------------------------------------------------------ */

/** major*1000000 + minor*1000 + patch of the loaded library. [any] */
MOE_API int32_t MOE_CALL moe_version_number(void);
/** "major.minor.patch[-suffix]", static. [any] */
MOE_API const char* MOE_CALL moe_version_string(void);
/** MOE_ABI_VERSION of the loaded library. A caller should refuse to run only if it differs from
 *  the MOE_ABI_VERSION that the caller was built with. New functions never change it. [any] */
MOE_API int32_t MOE_CALL moe_abi_version(void);
/** 1 if this build has the named feature, else 0, also for unknown names. moe_build_info_json lists
 *  the names, for example "isa.avx512_vnni", "backend.CPU_INT4", "io.mmap". moe_platform_has tells
 *  what the machine has. [any] */
MOE_API int32_t MOE_CALL moe_has_feature(const char* name);
/** Version, commit of the sources ("" outside a git checkout), compiler and flags, features,
 *  compiled backends, kernels and instruction sets, and the environment variables that are read, as
 *  JSON, static. [any] */
MOE_API const char* MOE_CALL moe_build_info_json(void);
/** A machine-readable description of this interface as JSON, static: functions, parameters,
 *  statuses, structs with sizes and offsets, enum values. [any] */
MOE_API const char* MOE_CALL moe_abi_json(void);
/** Constant name of a status, "MOE_ERR_UNKNOWN" for others; static, never NULL. [any] */
MOE_API const char* MOE_CALL moe_status_name(moe_status status);
/** Constant name of a reject reason; static, never NULL. [any] */
MOE_API const char* MOE_CALL moe_reject_name(moe_reject reason);
/** Short name ("bf16", "f8_e4m3fn", ...); static, never NULL. [any] */
MOE_API const char* MOE_CALL moe_dtype_name(moe_dtype dtype);
/** Inverse of moe_dtype_name; also takes torch and safetensors spellings
 *  ("torch.bfloat16", "BF16"). MOE_DTYPE_INVALID when unknown. [any] */
MOE_API moe_dtype MOE_CALL moe_dtype_from_name(const char* name);

/* ------------------------------------------------------------------ */
/* 4. Errors and owned bytes                                           */
/* ------------------------------------------------------------------ */

/* Texts of errors and log messages are one line of valid UTF-8. Where they quote a file, a path, a
 * document or a callback, a byte that is not UTF-8 is written as \xNN, and a control character (also
 * NUL), a line separator or a change of direction as \uNNNN. Names and values within a message are in
 * quotation marks, with \" and \\; long ones are cut between characters. The details always parse, and
 * their message and subject are those of the accessors. */

/** Makes an error object for the `err` of a callback. Copies `message`. Never returns NULL: without
 *  memory it returns a static object with MOE_ERR_OUT_OF_MEMORY. [any] */
MOE_API moe_error* MOE_CALL moe_error_create(moe_status status, const char* message, size_t message_len);
/** Never MOE_OK, except for NULL. [any] */
MOE_API moe_status MOE_CALL moe_error_status(const moe_error* err);
/** What is wrong, one line for people. It does not begin with the subject: show both, as
 *  "<subject>: <message>". Borrowed, "" for NULL. [any] */
MOE_API const char* MOE_CALL moe_error_message(const moe_error* err);
/** Where: a JSON pointer into the config ("/quantization/group_size"), a role
 *  ("w13_weight[17]"), a path, a parameter ("control", "options_json"), or "". Borrowed. [any] */
MOE_API const char* MOE_CALL moe_error_subject(const moe_error* err);
/** The facts of the error for programs: {"status","message","subject","expected","actual",
 *  "needed","errno","cause":{..},"candidates":[..]}; members are present if they apply; some
 *  errors have more ("error", "kind", "reason", "warning"). "{}" for NULL. The "reason" of
 *  moe_config_create_from_hf is "dense_layer", "no_such_layer" (past the end) or "dense_model"; that
 *  of moe_checkpoint_config is "dense_layer", "past_the_end" or "not_understood". Borrowed. [any] */
MOE_API const char* MOE_CALL moe_error_details_json(const moe_error* err);
MOE_API void MOE_CALL moe_error_destroy(moe_error* err);

/** Owned memory of `size` bytes at `alignment` (a power of two, 0 = 64). For callers whose
 *  language cannot give aligned memory that does not move. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_buffer_create(size_t size, size_t alignment, moe_buffer** out, moe_error** err);
/** First byte; NULL only for a NULL buffer. Text has a NUL after its last byte, also when it is
 *  empty. Borrowed. [any] */
MOE_API void* MOE_CALL moe_buffer_data(const moe_buffer* buffer);
/** Bytes without the NUL. [any] */
MOE_API size_t MOE_CALL moe_buffer_size(const moe_buffer* buffer);
MOE_API void MOE_CALL moe_buffer_destroy(moe_buffer* buffer);

/* ------------------------------------------------------------------ */
/* 5. Tensors                                                          */
/* ------------------------------------------------------------------ */

/** A view of memory that the caller owns. No nested pointers but `data`. Fill it by hand:
 *  moe_tensor x = {0}; x.struct_size = sizeof x; dtype, ndim, data, shape; the rest stays 0. */
typedef struct moe_tensor {
  uint32_t struct_size;
  moe_dtype dtype;
  int32_t ndim;                  /* 0..MOE_MAX_DIMS; 0 is a scalar                       */
  uint32_t flags;                /* 0                                                    */
  void* data;                    /* aligned to the element size                          */
  uint64_t nbytes;               /* bytes at data; 0 = what dtype, shape and strides need */
  int64_t shape[MOE_MAX_DIMS];   /* elements; unused entries 0                           */
  int64_t strides[MOE_MAX_DIMS]; /* elements; all 0 = row-major without gaps             */
} moe_tensor;

/** Bytes that a row-major tensor of this type and shape takes, -1 on bad arguments; with one
 *  dimension of 8 elements: the bits of an element. [any] */
MOE_API int64_t MOE_CALL moe_tensor_nbytes(moe_dtype dtype, int32_t ndim, const int64_t* shape);
/** Fills `out` with a view of a DLPack DLManagedTensorVersioned (major version 1) on the CPU.
 *  The DLPack object is not consumed: call its deleter yourself when the view is no longer
 *  used, for instance from the `release` given to moe_weights_set. Statuses: common, SHAPE, DTYPE,
 *  UNSUPPORTED, VERSION. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_tensor_from_dlpack(const void* dl_managed_tensor_versioned, moe_tensor* out, moe_error** err);

/* ------------------------------------------------------------------ */
/* 6. Cancellation and progress                                        */
/* ------------------------------------------------------------------ */

/** Called once, from any thread, when the library no longer needs what `user` stands for. */
typedef void (MOE_CALL *moe_release_fn)(void* user);

/** Called from time to time on the thread that made the call. Return MOE_OK to go on, anything else
 *  to stop. total is 0 while it is unknown. */
typedef moe_status (MOE_CALL *moe_progress_fn)(void* user, uint64_t done, uint64_t total);

/** Makes a control for long calls: open, convert, save, load, hash, apply. progress is kept (destroy
 *  ends it) and may be NULL: moe_control_progress answers from any thread instead. Several calls may
 *  share one control: cancelling stops all of them, and progress is that of the latest report.
 *  Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_control_create(moe_progress_fn progress, void* user, moe_release_fn destroy, moe_control** out, moe_error** err);
/** Asks the calls that use this control to stop: they return MOE_ERR_CANCELLED soon. Later calls
 *  return it at once, so a new start needs a new control. Safe in a signal handler and in callbacks.
 *  [any] */
MOE_API void MOE_CALL moe_control_cancel(moe_control* control);
/** Work units done and in total of the running or last call. [any] */
MOE_API void MOE_CALL moe_control_progress(const moe_control* control, uint64_t* done, uint64_t* total);
/** Reports progress from the caller's own part of a long call, such as a weight source. With total
 *  0 it only asks. Returns MOE_OK to go on; the callback returns any other status as it is.
 *  A NULL control gives MOE_OK. Statuses: common, CANCELLED, CALLBACK. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_control_report(moe_control* control, uint64_t done, uint64_t total);
/** What a long call is doing. Treat values that you do not know like NONE. */
typedef int32_t moe_phase;
enum {
  MOE_PHASE_NONE = 0, MOE_PHASE_OPEN = 1, MOE_PHASE_CONVERT = 2, MOE_PHASE_SAVE = 3,
  MOE_PHASE_LOAD = 4, MOE_PHASE_HASH = 5, MOE_PHASE_APPLY = 6
};
/** What `done` and `total` count. */
typedef int32_t moe_unit;
enum { MOE_UNIT_NONE = 0, MOE_UNIT_FILES = 1, MOE_UNIT_EXPERTS = 2, MOE_UNIT_BYTES = 3 };

typedef struct moe_progress {
  uint32_t struct_size;
  moe_phase phase;
  moe_unit unit;                 /* of done and total                                    */
  int32_t reserved0;
  uint64_t done, total;          /* of the phase: what the progress function gets         */
  int64_t layer;                 /* the model's number; -1: no layer                      */
  int64_t layers_done, layers_total; /* of a call for several layers; else 0, 1           */
  uint64_t bytes_done, bytes_total;  /* of the whole call: bytes_done never goes back     */
} moe_progress;
/** What the running or last call with this control does. May be asked in its progress function. Set
 *  out->struct_size first. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_control_state(const moe_control* control, moe_progress* out, moe_error** err);
MOE_API void MOE_CALL moe_control_destroy(moe_control* control);

/* ------------------------------------------------------------------ */
/* 7. Context: threads, memory, log                                    */
/* ------------------------------------------------------------------ */

/** Called from any thread of the library, also concurrently. Must not call the library. `message`
 *  need not be NUL-terminated: use message_len. */
typedef void (MOE_CALL *moe_log_fn)(void* user, moe_log_level level, const char* component, const char* message, size_t message_len);

/** Runs one task; `index` is in [0, count). A task never waits for another one. */
typedef void (MOE_CALL *moe_task_fn)(void* task_arg, size_t index);

/** A thread pool of the caller. parallel_for must run task(task_arg, i) exactly once for each
 *  i in [0, count), from any threads, and return when all are done; it may run them one after
 *  another on the calling thread. Several threads call it at once if several threads call the
 *  library. A faulty parallel_for does not endanger memory:
 *  - An index that is run again, also at the same time: the second run returns at once. No error.
 *  - An index that is left out, not done when parallel_for returns, or not in [0, count): the call
 *    returns MOE_ERR_CALLBACK with subject or message "parallel_for", and the memory that it writes
 *    (`out`, a caller's dst) is unspecified. The call waits for tasks that are still running (for
 *    ever, if their thread never goes on); no other task starts.
 *  - task(task_arg, i) after that returns at once, until `destroy` of this struct has returned. */
typedef struct moe_parallel_ops {
  uint32_t struct_size;
  int32_t num_threads;           /* how many tasks can run at once; >= 1                  */
  void* user;
  void (MOE_CALL *parallel_for)(void* user, size_t count, moe_task_fn task, void* task_arg);
  moe_release_fn destroy;
} moe_parallel_ops;

/** Memory for weights and workspaces. alignment is a power of two >= 64; numa_node is -1 for
 *  "no preference". allocate returns NULL when out of memory. */
typedef struct moe_allocator_ops {
  uint32_t struct_size;
  uint32_t reserved0;
  void* user;
  void* (MOE_CALL *allocate)(void* user, size_t size, size_t alignment, int32_t numa_node);
  void (MOE_CALL *deallocate)(void* user, void* ptr, size_t size, size_t alignment);
  moe_release_fn destroy;
} moe_allocator_ops;

typedef struct moe_context_callbacks {
  uint32_t struct_size;
  uint32_t reserved0;
  moe_log_fn log;                /* NULL: messages go to the ring only                   */
  void* log_user;
  moe_release_fn log_destroy;
  const moe_parallel_ops* parallel;   /* copied; NULL: own pool                          */
  const moe_allocator_ops* allocator; /* copied; NULL: aligned malloc / mmap             */
} moe_context_callbacks;

/** Makes a context. `options_json` may be NULL/0: {"threads":0,"cpus":"0-7,16","spin_us":50,
 *  "numa":"auto|off|interleave|shard|mirror","huge_pages":"off|try","log_level":"info",
 *  "log_ring":256,"flush_denormals":false}. threads 0 means one per
 *  core that this process may use (affinity mask, cgroup quota); 1 never starts a thread. Threads
 *  start at first use, so a context may be made before fork(); the child of a fork starts its own.
 *  They serve all calls with this context and all its layers. callbacks may be NULL. Statuses:
 *  common, INVALID_CONFIG, UNSUPPORTED, VERSION. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_context_create(const char* options_json, size_t options_len, const moe_context_callbacks* callbacks, moe_context** out, moe_error** err);
/** Options after resolution (thread count, CPU list, NUMA nodes) and all backends with layouts,
 *  formats and needed ISAs. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_context_to_json(const moe_context* ctx, moe_buffer** out, moe_error** err);
/** Removes the messages that were kept since the last call and returns them, one JSON object per
 *  line; without messages the buffer is empty. For callers that cannot take callbacks on foreign
 *  threads. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_context_take_log(moe_context* ctx, moe_buffer** out, moe_error** err);
MOE_API void MOE_CALL moe_context_destroy(moe_context* ctx);

/* ------------------------------------------------------------------ */
/* 8. Config                                                           */
/* ------------------------------------------------------------------ */

/** Parses and checks the description of one MoE layer: one UTF-8 object of at most 1 MiB (16 MiB
 *  with hf_quantization_config), nested at most 32 deep. Unknown and repeated members are errors.
 *  Statuses: common, INVALID_CONFIG, UNSUPPORTED. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_config_create(const char* json, size_t json_len, moe_config** out, moe_error** err);
/** Builds a config from the text of a Hugging Face config.json, with its text_config and
 *  quantization_config. `options_json` may be NULL/0: {"layer_index":3,
 *  "module":"model.layers.3.mlp.experts","quantization_config":{..},"overrides":{"parallel":{..},
 *  ..}}. overrides are members of moe_config_create's document and win. quantization_config may be
 *  a whole hf_quant_config.json; each of the two texts has at most 16 MiB. If the file's class is
 *  not known, the option "architecture":"Qwen3MoeForCausalLM" reads the file like that class, and
 *  an object there describes the class (the guide). moe_describe("checkpoint") lists the known
 *  classes and makes such an object from tensor names and shapes. Statuses: common,
 *  INVALID_CONFIG, UNSUPPORTED. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_config_create_from_hf(const char* hf_json, size_t hf_len, const char* options_json, size_t options_len, moe_config** out, moe_error** err);
/** Makes a new config: applies a JSON merge patch (RFC 7396), such as {"moe_backend":"cpu"}, to the
 *  document of `config`. Statuses: common, INVALID_CONFIG, UNSUPPORTED. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_config_merge(const moe_config* config, const char* patch_json, size_t patch_len, moe_config** out, moe_error** err);
/** The resolved config: defaults are written out (members that few models set appear only if they
 *  differ from theirs), and derived members such as "num_local_experts" are added.
 *  moe_config_create does not take it: use moe_config_merge for variants. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_config_to_json(const moe_config* config, moe_buffer** out, moe_error** err);
/** One integer or boolean of the resolved config by JSON pointer ("/num_experts");
 *  MOE_ERR_INVALID_ARGUMENT if it is absent, null or of another type. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_config_get_int(const moe_config* config, const char* pointer, int64_t* out, moe_error** err);
/** The same for a number. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_config_get_float(const moe_config* config, const char* pointer, double* out, moe_error** err);
/** The same for a string; borrowed. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_config_get_string(const moe_config* config, const char* pointer, const char** out, moe_error** err);
/** JSON Schema (draft 2020-12) of moe_config_create's input, static. [any] */
MOE_API const char* MOE_CALL moe_config_schema_json(void);
MOE_API void MOE_CALL moe_config_destroy(moe_config* config);

/* ------------------------------------------------------------------ */
/* 9. Platform                                                         */
/* ------------------------------------------------------------------ */

/** json NULL: this machine. Else a machine described by the caller: {"type":"auto|cpu|cuda|rocm|
 *  xpu|tpu|oot","arch":"x86_64","features":["avx2"],"capability":[9,0],"libs":{"flashinfer":true}}
 *  (more members: the guide, include_c/README.md in the source). Selection and conversion work for
 *  any platform; a layer can be made only if the host can run it. Statuses: common, INVALID_CONFIG.
 *  [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_platform_create(const char* json, size_t json_len, moe_platform** out, moe_error** err);
/** What was given or detected; moe_platform_create takes this text back. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_platform_to_json(const moe_platform* platform, moe_buffer** out, moe_error** err);
/** 1 / 0, for example "avx512_vnni", "i8mm", "sve2". [any] */
MOE_API int32_t MOE_CALL moe_platform_has(const moe_platform* platform, const char* feature);
MOE_API void MOE_CALL moe_platform_destroy(moe_platform* platform);

/* ------------------------------------------------------------------ */
/* 10. Backend selection                                               */
/* ------------------------------------------------------------------ */

/** Flags of moe_select_backend. */
enum {
  MOE_SELECT_EXPLAIN_ONLY = 1,  /* MOE_OK also without a winner: moe_selection_backend is "" */
  MOE_SELECT_ALLOW_FALLBACK = 2 /* the backend named in the config is a wish; else try others */
};

/** One considered kernel. Strings are borrowed from the selection. */
typedef struct moe_candidate {
  uint32_t struct_size;
  moe_reject reason;             /* MOE_REJECT_NONE: could run this config               */
  int32_t chosen;                /* 1 for the one that was taken                         */
  int32_t priority;              /* smaller is tried earlier                             */
  const char* backend;           /* e.g. "CPU_INT4", "MARLIN"                             */
  const char* kernel;            /* "w4a8_tok8_p16_avx512vnni"; else the experts class  */
  const char* detail;            /* "needs avx512_vnni; the platform has .."; "" if accepted */
  const char* subject;           /* pointer into the resolved config, or a feature, or "" */
} moe_candidate;

/** Chooses the backend and kernel for this config on this platform. platform NULL means the
 *  config's "platform" member, by default this machine. The selection lists every candidate with
 *  the reason for its refusal, also those after the winner. If none accepts, the call fails with
 *  MOE_ERR_NO_BACKEND, and the error's details hold the same list. Equal inputs and an equal library
 *  version give equal answers. Every later call refuses a selection without a winner.
 *  Statuses: common, INVALID_CONFIG, NO_BACKEND. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_select_backend(moe_context* ctx, const moe_config* config, const moe_platform* platform, uint64_t flags, moe_selection** out, moe_error** err);
/** Answers one question as JSON, without weights. `topic` and the members of `query_json`:
 *  "oracle"          vLLM's backend oracle at the level of its own arguments, policy "vllm":
 *                    {"oracle","moe","weight_key","activation_key","platform","env"} -> backend,
 *                    experts, warning, candidates with reasons
 *  "checkpoint"      a Hugging Face config.json -> layer config, tensor names, shapes, dtypes; with
 *                    tensors -> a description of its class; the classes that are known
 *  "quant_config"    a builder of vLLM's quantization configs with its arguments -> descriptors,
 *                    predicates, scale shapes; "ocp_mx_scheme", "quant_key": names of these
 *  "parallel_config" sizes and ranks -> flattened ones, predicates
 *  "routing_method"  scoring function, top_k, ... -> vLLM's and libmoe's name
 *  "activation"      a name -> gated or not, order of rows, default parameters
 *  "expert_map", "eplb_map"            which experts a rank holds, copies of redundant experts
 *  "align_block_size", "permute"       a batch's slots ordered by expert
 *  Fails like the calls that use the same rules (MOE_ERR_NO_BACKEND, MOE_ERR_INVALID_CONFIG...).
 *  Statuses: common, INVALID_CONFIG, NO_BACKEND, UNSUPPORTED. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_describe(const char* topic, const char* query_json, size_t query_len, moe_buffer** out, moe_error** err);
/** Backend of the winner, "" if none; borrowed. [any] */
MOE_API const char* MOE_CALL moe_selection_backend(const moe_selection* selection);
/** Kernel of the winner, "" if none. For devices that libmoe does not run, the name of vLLM's
 *  experts class. Borrowed. [any] */
MOE_API const char* MOE_CALL moe_selection_kernel(const moe_selection* selection);
/** Identity of the packed layout ("p16/int4-g32/1"). Converted weights run with any kernel of the
 *  same layout. With activation order, conversion takes a larger one if the groups of an expert
 *  turn out to be of several sizes ("p16/w4-u4,u2-f32-ao/1"; moe_packed_to_json tells); layers of
 *  this selection take it, too. Borrowed. [any] */
MOE_API const char* MOE_CALL moe_selection_layout(const moe_selection* selection);
/** Number of candidates, ordered by priority. [any] */
MOE_API size_t MOE_CALL moe_selection_candidate_count(const moe_selection* selection);
/** Fills `out` (set out->struct_size first). Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_selection_candidate(const moe_selection* selection, size_t index, moe_candidate* out, moe_error** err);
/** Bytes and alignment that the converted weights will take in the layout of moe_selection_layout;
 *  more in the larger one named there. Statuses: common, NO_BACKEND, UNSUPPORTED. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_selection_packed_size(const moe_selection* selection, uint64_t* bytes, uint64_t* alignment, moe_error** err);
/** What was asked for and what runs: {"backend":..,"kernel":..,"layout":..,"runs_as":{..},
 *  "quant_config":{..},"routing_method":..,"activation_format":..,"shard":{..},
 *  "expert_placement":{..},"platform":{..},"config":{..},"candidates":[..],..}. Statuses: common.
 *  [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_selection_to_json(const moe_selection* selection, moe_buffer** out, moe_error** err);
MOE_API void MOE_CALL moe_selection_destroy(moe_selection* selection);

/* ------------------------------------------------------------------ */
/* 11. Source weights                                                  */
/* ------------------------------------------------------------------ */

/** An empty set for this config. Roles (the config decides which are required):
 *  w13_weight w2_weight w13_scale w2_scale w13_scale_2 w2_scale_2 w13_zero_point
 *  w2_zero_point w13_g_idx w2_g_idx w13_bias w2_bias w13_input_scale w2_input_scale;
 *  w13_global_scale w2_global_scale w13_input_global_scale w2_input_global_scale say what
 *  w13_scale_2 ... w2_input_scale say as divisors (1 / x), and one form excludes the other
 *  (MOE_ERR_UNEXPECTED_WEIGHT).
 *  The names that layers of vLLM and SGLang give these tensors mean the same: w13, w13_qweight,
 *  w13_weight_packed; w13_scales, w13_weight_scale, w13_weight_scale_inv; w13_weight_scale_2;
 *  w13_qzeros, w13_weight_zero_point; w13_weight_g_idx; w13_weight_bias; w13_input_scale_2;
 *  w13_weight_global_scale; w2 alike. w13_weight_shape and w13_g_idx_sort_indices are checked (the
 *  latter by conversion, which sorts columns itself) and left out.
 *  Shapes and types per format: the guide, include_c/README.md in the source. A tensor
 *  that is set again replaces the first. The stacked and the per-expert form of one role do not mix
 *  (MOE_ERR_STATE). Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_weights_create(const moe_config* config, moe_weights** out, moe_error** err);
/** Sets a stacked tensor ([E, ...], this rank's part of each expert). The struct is copied. Its
 *  memory is kept, not copied, until the set is destroyed, the tensor is replaced, or a conversion
 *  with MOE_CONVERT_RELEASE_SOURCES has used it; then release(user) is called. Statuses: common,
 *  SHAPE, DTYPE, UNEXPECTED_WEIGHT, UNSUPPORTED, VERSION, BUSY, STATE. [excl] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_weights_set(moe_weights* weights, const char* role, const moe_tensor* tensor, moe_release_fn release, void* user, moe_error** err);
/** The same for one expert ([...], this rank's part). shard: "w1" (gate) or "w3" (up) for half of
 *  a w13 role, NULL for the whole role. An expert that this rank does not hold is released at
 *  once. Statuses: common, SHAPE, DTYPE, UNEXPECTED_WEIGHT, UNSUPPORTED, VERSION, BUSY, STATE.
 *  [excl] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_weights_set_expert(moe_weights* weights, const char* role, int64_t expert, const char* shard, const moe_tensor* tensor, moe_release_fn release, void* user, moe_error** err);
/** The same with the name a checkpoint uses, such as
 *  "model.layers.3.mlp.experts.17.gate_proj.weight_packed", and the whole tensor (the library
 *  cuts this rank's part). *consumed is 1 if the name belongs to this layer, 0 if not (MOE_OK
 *  too; then the tensor is released at once). Statuses: common, SHAPE, DTYPE, UNEXPECTED_WEIGHT,
 *  UNSUPPORTED, VERSION, BUSY, STATE. [excl] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_weights_set_named(moe_weights* weights, const char* name, const moe_tensor* tensor, moe_release_fn release, void* user, int32_t* consumed, moe_error** err);
/** Finds the tensors of this layer in a .safetensors file, a model.safetensors.index.json or a
 *  directory. Headers are read and checked now, tensors during conversion, expert by expert; the
 *  files stay open. `module` is the name prefix of the layer, NULL = the config's. Tensors that
 *  overlap or reach past the end of their file are MOE_ERR_FORMAT; bytes that belong to no tensor,
 *  between two or behind the last, are accepted and never read. Statuses: common, SHAPE, DTYPE,
 *  UNEXPECTED_WEIGHT, UNSUPPORTED, IO, FORMAT, BUSY, STATE. [excl] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_weights_load_safetensors(moe_weights* weights, const char* path, const char* module, moe_error** err);
/** {"complete":bool,"missing":[..],"unexpected":[..],"experts":[..],"tensors":[{"role","dtype",
 *  "shape","part":{"row0","rows","col0","cols"}}]}; part: what this rank holds. Statuses: common,
 *  BUSY. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_weights_to_json(const moe_weights* weights, moe_buffer** out, moe_error** err);
/** One expert's tensor of a role (w13 joined), or all ([E, ...]) with expert -1. *hold receives
 *  NULL when *out views memory of the set, else an owned buffer with the bytes (they had to be
 *  read, joined or cut): destroy it when *out is no longer used. Statuses: common, SHAPE, DTYPE,
 *  MISSING_WEIGHT, UNEXPECTED_WEIGHT, UNSUPPORTED, IO, CANCELLED, CALLBACK, BUSY. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_weights_get(const moe_weights* weights, const char* role, int64_t expert, moe_tensor* out, moe_buffer** hold, moe_error** err);
MOE_API void MOE_CALL moe_weights_destroy(moe_weights* weights);

/** A source of tensors that conversion calls while it runs, so that only a few experts are in memory
 *  at a time. get fills *out (zeroed, struct_size set) for one expert as for
 *  moe_weights_set_expert; put ends its use. get returns MOE_ERR_MISSING_WEIGHT for a tensor that
 *  the source does not have. A w13 role is requested whole first (shard NULL), then as "w1" and "w3".
 *  Calls may come from several threads unless `serial` is 1. */
typedef struct moe_weight_source_ops {
  uint32_t struct_size;
  int32_t serial;
  void* user;
  moe_status (MOE_CALL *get)(void* user, const char* role, int64_t expert, const char* shard, moe_tensor* out, moe_error** err);
  void (MOE_CALL *put)(void* user, const char* role, int64_t expert, const char* shard, const moe_tensor* tensor); /* may be NULL */
  moe_release_fn destroy;
} moe_weight_source_ops;

/** A set whose tensors come from `ops` (copied). Statuses: common, VERSION. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_weights_create_from_source(const moe_config* config, const moe_weight_source_ops* ops, moe_weights** out, moe_error** err);

/* ------------------------------------------------------------------ */
/* 12. Conversion, storage                                             */
/* ------------------------------------------------------------------ */

/** moe_convert_options::flags */
enum {
  MOE_CONVERT_RELEASE_SOURCES = 1, /* release each tensor once used; empties the set     */
  MOE_CONVERT_ANY_NAME = 2       /* weights of a config with another layer's name        */
};

typedef struct moe_convert_options {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t flags;
  void* dst;                     /* NULL: the library allocates; else kept by the result;   */
                                 /* content unspecified after a failure                    */
  uint64_t dst_size;             /* >= moe_selection_packed_size; dst aligned as told there */
                                 /* too small: BUFFER_TOO_SMALL, "needed" in the details    */
  moe_release_fn dst_release;    /* called when the result is destroyed                   */
  void* dst_user;
  uint64_t max_temp_bytes;       /* 0: one expert's worth per thread                      */
  moe_control* control;          /* may be NULL                                          */
} moe_convert_options;

/** Repacks `weights` into the layout of `selection`, or into the larger one that uneven groups of
 *  activation order need (moe_selection_layout). An incomplete set gives MOE_ERR_MISSING_WEIGHT,
 *  which names the gaps. The same input gives the same bytes, for any number of threads and on any
 *  host. The names of both configs are compared as in moe_layer_create. options may be NULL.
 *  Statuses: common, SHAPE, DTYPE, MISSING_WEIGHT, NO_BACKEND, UNSUPPORTED, BUFFER_TOO_SMALL, IO,
 *  VERSION, CANCELLED, CALLBACK, BUSY, CONFIG_MISMATCH. [any; weights excl when
 *  MOE_CONVERT_RELEASE_SOURCES is set] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_convert_weights(moe_context* ctx, const moe_selection* selection, moe_weights* weights, const moe_convert_options* options, moe_packed** out, moe_error** err);
/** The whole result as one self-describing, position-independent block, for callers with a
 *  container of their own. moe_packed_load_memory reads it back. Borrowed. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_packed_data(const moe_packed* packed, const void** data, uint64_t* size, moe_error** err);
/** View of one named output of the conversion, such as "w13_packed", "w2_packed";
 *  moe_packed_to_json lists them. expert -1 = all ([E, ...]), else that expert's slice.
 *  Borrowed. Statuses: common, MISSING_WEIGHT. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_packed_get(const moe_packed* packed, const char* role, int64_t expert, moe_tensor* out, moe_error** err);
/** Layout, config, experts, named outputs, sizes, content hash. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_packed_to_json(const moe_packed* packed, moe_buffer** out, moe_error** err);
/** Writes one expert's packed weights to `out` as dense numbers: role "w13_weight" or "w2_weight",
 *  `out` f32/f16/bf16 of [N1, H] or [H, I]; of a layer with biases also "w13_bias" [N1] or "w2_bias"
 *  [H]. Gate rows come first, then up rows. For checks. Statuses: common, SHAPE, DTYPE,
 *  UNSUPPORTED, FORMAT, VERSION. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_packed_dequantize(const moe_packed* packed, const char* role, int64_t expert, const moe_tensor* out, moe_error** err);

/** Flags of moe_packed_load and moe_packed_load_memory. */
enum {
  MOE_LOAD_MMAP = 1,             /* share file pages. The file must not change: if it is  */
                                 /* cut, reading the lost pages (also in moe_apply) is    */
                                 /* SIGBUS, which ends a process without a handler;       */
                                 /* PREFAULT does not help. Without MMAP the file is read */
                                 /* into memory                                           */
  MOE_LOAD_PREFAULT = 2,         /* touch all pages before returning                     */
  MOE_LOAD_VERIFY = 4            /* compare content hashes; headers and index tensors are */
                                 /* always checked                                       */
};

/** Writes a file with this one layer. flags: 0. Statuses: common, IO, CANCELLED, CALLBACK.
 *  [any]
 *
 *  The file appears under `path` only when it is complete and on the disk (fsync, also of the
 *  folder if possible). Until then, and after any failure, a previous file is unharmed. Of
 *  concurrent saves to one path the last one wins; a reader sees one of them whole. Only the folder
 *  must be writable.
 *  - Links (symlinks) are followed: what they lead to is replaced or made, the links stay. Of
 *    several hard links only this name gets the new content.
 *  - Only a regular file is ever replaced: a folder, FIFO, socket or device is MOE_ERR_IO "not a
 *    regular file", and is not opened.
 *  - A replaced file's permission bits and POSIX access list stay, without setuid, setgid and
 *    sticky bits; owner and group stay if the process may set them; otherwise no user gains rights.
 *    Other extended attributes are lost. A new file has 0666 less the umask.
 *  - Until it is complete the file is called .moe-save-NUMBER.tmp, in the same folder. It is
 *    removed when the call fails; after a killed process, or a power cut, by the next save into
 *    that folder (by lock: flock; where files cannot be locked it stays). Such names are
 *    refused as `path`.
 *  - A write beyond RLIMIT_FSIZE is MOE_ERR_IO with errno EFBIG: its SIGXFSZ is blocked in the
 *    writing thread and taken back. `control` is called with the thread's own signal mask. */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_packed_save(const moe_packed* packed, const char* path, uint64_t flags, moe_control* control, moe_error** err);
/** Reads such a file. MOE_ERR_VERSION / MOE_ERR_FORMAT for files that this version must not
 *  read. Statuses: common, IO, FORMAT, VERSION, CANCELLED, CALLBACK. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_packed_load(moe_context* ctx, const char* path, uint64_t flags, moe_control* control, moe_packed** out, moe_error** err);
/** The same from a block of moe_packed_data; kept until release(user), copied only when it is
 *  not aligned to 64 bytes. Statuses: common, FORMAT, VERSION, CALLBACK. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_packed_load_memory(moe_context* ctx, const void* data, size_t size, uint64_t flags, moe_release_fn release, void* user, moe_packed** out, moe_error** err);
MOE_API void MOE_CALL moe_packed_destroy(moe_packed* packed);

/* ------------------------------------------------------------------ */
/* 13. Layer                                                           */
/* ------------------------------------------------------------------ */

/** moe_layer_options::flags */
enum {
  MOE_LAYER_ANY_NAME = 1         /* packed weights of a config with another layer's name */
};

typedef struct moe_layer_options {
  uint32_t struct_size;
  uint32_t reserved0;
  const moe_tensor* correction_bias; /* [G] or [1,G] f32/f16/bf16, copied; NULL: the config's */
                                     /* or the checkpoint's                               */
  const moe_tensor* expert_map;  /* [X] i32, place in [E, ...] or -1, copied; NULL: config's */
  uint64_t flags;
} moe_layer_options;

/** Binds converted weights to a kernel. `packed` must have the layout and the config of the
 *  selection, and if both configs have a `name` it must be the same layer's
 *  (MOE_ERR_CONFIG_MISMATCH): equal names, or two prefixes that tools use for the same layer. If the
 *  selection's name is only suggested by the class (moe_config_create_from_hf without `module`) the
 *  layer's number decides. MOE_LAYER_ANY_NAME is for a selection that serves several layers. ctx
 *  lends threads and memory to every moe_apply. options may be NULL. Statuses: common,
 *  INVALID_CONFIG, SHAPE, DTYPE, UNEXPECTED_WEIGHT, NO_BACKEND, UNSUPPORTED, FORMAT, VERSION,
 *  CALLBACK, CONFIG_MISMATCH. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_layer_create(moe_context* ctx, const moe_selection* selection, const moe_packed* packed, const moe_layer_options* options, moe_layer** out, moe_error** err);
/** Bytes and alignment of a workspace for one call with `num_tokens` tokens. Statuses: common,
 *  UNSUPPORTED. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_layer_workspace_size(const moe_layer* layer, moe_apply_mode mode, int64_t num_tokens, uint64_t* bytes, uint64_t* alignment, moe_error** err);
/** Config, kernel, threads, memory use. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_layer_to_json(const moe_layer* layer, moe_buffer** out, moe_error** err);
/** Copies the number of tokens that each held expert got since the last reset to counts[0..E-1];
 *  reset 1 sets the counts to zero. Statuses: common, BUFFER_TOO_SMALL. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_layer_expert_counts(const moe_layer* layer, uint64_t* counts, size_t capacity, int32_t reset, moe_error** err);
MOE_API void MOE_CALL moe_layer_destroy(moe_layer* layer);

/** moe_apply_args::flags */
enum {
  MOE_APPLY_ACCUMULATE = 1,      /* out += result instead of out = result                */
  MOE_APPLY_IN_PLACE = 2         /* out is exactly hidden                                */
};

typedef struct moe_apply_args {
  uint32_t struct_size;
  moe_apply_mode mode;
  uint64_t flags;
  const moe_tensor* hidden;        /* [T,H], the config's in_dtype                          */
  const moe_tensor* router_logits; /* ROUTER_LOGITS: [T,G] f32/f16/bf16                     */
  const moe_tensor* topk_ids;      /* TOPK: [T,K] i32 or i64; -1, the config's               */
                                   /* routing.skip_id, or not held here: skipped;           */
                                   /* hash routing with logits: [T,top_k]                   */
  const moe_tensor* topk_weights;  /* TOPK: [T,K] f32                                       */
  const moe_tensor* expert_tokens; /* not used by any mode built so far: NULL                */
  const moe_tensor* out;           /* shape of hidden, the config's out_dtype; overlaps no   */
                                   /* input, except as IN_PLACE says                        */
  void* workspace;                 /* NULL: the library's                                   */
  uint64_t workspace_size;
  moe_control* control;            /* may be NULL                                          */
  const moe_tensor* out_topk_ids;  /* optional [T,K] i32: what routing chose                */
  const moe_tensor* out_topk_weights; /* optional [T,K] f32                                */
} moe_apply_args;

/** Runs the layer: out[t] = sum over j of weight[t,j] * expert topk_ids[t,j] of hidden[t].
 *  routing.routed_scaling_factor is applied exactly once. ROUTER_LOGITS: to the weights, or to `out`
 *  if apply_routed_scale_to_output is set. TOPK: topk_weights are used as given; if
 *  apply_routed_scale_to_output is set `out` is multiplied, and the weights of moe_route do not
 *  contain the factor. topk_weights_hold_factor says that the weights contain it (as Hugging Face's
 *  classes of DeepSeek, GLM and dots1 return them): then moe_route returns such weights, and `out`
 *  is not multiplied.
 *  Columns of router_logits (G) are the experts, then the zero experts. K is top_k, plus the number
 *  of fused shared experts (ids from num_experts on, weight 1). T = 0 is valid and writes nothing.
 *  Several calls may use one layer at the same time if each has its own `out` and workspace. Errors
 *  in the arguments, including bad expert ids, leave `out` untouched; after CANCELLED or CALLBACK
 *  its content is unspecified. Statuses: common, SHAPE, DTYPE,
 *  MISSING_WEIGHT, UNSUPPORTED, BUFFER_TOO_SMALL, VERSION, CANCELLED, CALLBACK. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_apply(const moe_layer* layer, const moe_apply_args* args, moe_error** err);
/** moe_apply without structs; all arrays are row-major without gaps. With router_logits [T,G] the
 *  library routes; if it is NULL, topk_ids i32 [T,K] and topk_weights f32 [T,K] say where to.
 *  Statuses: common, SHAPE, DTYPE, MISSING_WEIGHT, UNSUPPORTED, CALLBACK. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_apply_flat(const moe_layer* layer, int64_t num_tokens, moe_dtype hidden_dtype, const void* hidden, moe_dtype logits_dtype, const void* router_logits, const int32_t* topk_ids, const float* topk_weights, moe_dtype out_dtype, void* out, moe_error** err);

typedef struct moe_route_args {
  uint32_t struct_size;
  uint32_t reserved0;
  const moe_tensor* router_logits;   /* [T,G]                                            */
  const moe_tensor* correction_bias; /* as in moe_layer_options; NULL: the config's       */
  const moe_tensor* out_topk_ids;    /* [T,K] i32 or i64; hash routing: read              */
  const moe_tensor* out_topk_weights; /* [T,K] f32                                        */
} moe_route_args;

/** Routes only, with the config's method. Needs no weights. Statuses: common, SHAPE, DTYPE,
 *  MISSING_WEIGHT, UNEXPECTED_WEIGHT, UNSUPPORTED, VERSION, CALLBACK. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_route(moe_context* ctx, const moe_config* config, const moe_route_args* args, moe_error** err);

/* ------------------------------------------------------------------ */
/* 14. Checkpoints: all layers of a model                              */
/* ------------------------------------------------------------------ */

/** What stands at a layer's place. Treat values that you do not know like OTHER. */
typedef int32_t moe_layer_kind;
enum {
  MOE_LAYER_OTHER = 0,           /* not understood: see `problem`                         */
  MOE_LAYER_EXPERTS = 1,
  MOE_LAYER_DENSE = 2
};
/** moe_layer_info::flags */
enum {
  MOE_LAYER_IS_MTP = 1,          /* for multi-token prediction, not in the model's pass   */
  MOE_LAYER_IS_CONVERTED = 2     /* its packed file is here                               */
};

/** One layer, whole, before any cut. Strings are borrowed from the checkpoint. */
typedef struct moe_layer_info {
  uint32_t struct_size;
  moe_layer_kind kind;
  uint32_t flags;
  int32_t top_k;
  int64_t num_experts, hidden_dim, intermediate_size;
  uint64_t bytes;                /* of its experts in the files                           */
  const char* name;              /* "model.layers.3.mlp.experts", "" without experts      */
  const char* problem;           /* "", or why no config can be made of it, or why its     */
                                 /* tensors or its packed file cannot be used; UTF-8      */
} moe_layer_info;

/** Opens a model's directory: Hugging Face's (config.json, *.safetensors with or without an index;
 *  links are followed) or one of moe_checkpoint_convert. Every header is read and checked once, on
 *  ctx's threads, and no weight. `options_json` may be NULL/0: the options of
 *  moe_config_create_from_hf without layer_index, module and overrides.name, for all layers. The
 *  quantization is that of the options, else of config.json, else of hf_quant_config.json, else of
 *  quantize_config.json; files that disagree are INVALID_CONFIG. Experts that the files hold in plain
 *  bf16, f16 or f32 get a config without quantization. Layers that cannot be used do not make the
 *  call fail: moe_layer_info::problem says why. A file that is a link to nothing is MOE_ERR_IO. The
 *  safetensors files stay open, one descriptor each, until the last object that uses them ends, and
 *  must not change meanwhile: a shorter one is MOE_ERR_IO, never a signal. Of a converted checkpoint
 *  the headers of packed files are checked now, and the files opened again when they are loaded, also
 *  after the directory was renamed. Its own options count beneath the caller's: overrides member by
 *  member (a null stays a value), other options as a whole. Statuses: common, INVALID_CONFIG,
 *  UNSUPPORTED, IO, FORMAT, VERSION, CANCELLED, CALLBACK. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_checkpoint_open(moe_context* ctx, const char* directory, const char* options_json, size_t options_len, moe_control* control, moe_checkpoint** out, moe_error** err);
/** {"class","dtype","quantization_from","tensors","bytes","layers":[..],..}: each layer with what
 *  moe_layer_info has, the format of its weights (not of a layer that is not converted yet), the status
 *  of its problem, and names near its experts that look like those of its router and shared experts (a
 *  list, no promise). A converted checkpoint also has "converted": {"source","platform","parallel",
 *  "layouts"}. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_checkpoint_to_json(const moe_checkpoint* checkpoint, moe_buffer** out, moe_error** err);
/** Layers of all kinds; those of multi-token prediction come last. 0 for NULL. [any] */
MOE_API int64_t MOE_CALL moe_checkpoint_layer_count(const moe_checkpoint* checkpoint);
/** Fills `out` (set out->struct_size first). Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_checkpoint_layer_info(const moe_checkpoint* checkpoint, int64_t layer, moe_layer_info* out, moe_error** err);
/** The config of a layer. `patch_json` may be NULL/0: members of moe_config_create's document that
 *  win, such as {"parallel":{..}} of one rank; the layer keeps its name. The "reason" in the details is
 *  "past_the_end", "dense_layer" or "not_understood". A converted checkpoint has the cut that it was
 *  converted with.
 *  Statuses: common, INVALID_CONFIG, UNSUPPORTED, IO, FORMAT. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_checkpoint_config(const moe_checkpoint* checkpoint, int64_t layer, const char* patch_json, size_t patch_len, moe_config** out, moe_error** err);
/** moe_weights_load_safetensors from files that are open already: of the weights' config, which is
 *  one of moe_checkpoint_config. A converted checkpoint has no source tensors: UNSUPPORTED. Statuses:
 *  common, SHAPE, DTYPE, UNEXPECTED_WEIGHT, UNSUPPORTED, IO, FORMAT, BUSY, STATE. [any; weights excl] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_weights_load_checkpoint(moe_weights* weights, const moe_checkpoint* checkpoint, moe_error** err);

/** Of the three calls below; zero for all defaults, and NULL for a zeroed struct. A member that a call
 *  does not read must be zero: INVALID_ARGUMENT with its name as subject. */
typedef struct moe_checkpoint_options {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t load_flags;           /* MOE_LOAD_*, of converted checkpoints; _convert: VERIFY  */
                                 /* alone, compares the hashes of files that are there      */
  uint64_t select_flags;         /* MOE_SELECT_ALLOW_FALLBACK; moe_checkpoint_packed: 0     */
  const moe_platform* platform;  /* NULL: the config's                                    */
  const char* patch_json;        /* as in moe_checkpoint_config                           */
  size_t patch_len;              /* or MOE_NUL_TERMINATED; 0 with NULL alone                */
  const moe_layer_options* layer; /* of moe_checkpoint_layer                               */
  const int64_t* layers;         /* of moe_checkpoint_convert; NULL: all that have experts  */
                                 /* (an empty list is an error)                             */
  size_t num_layers;
  moe_control* control;          /* may be NULL                                           */
} moe_checkpoint_options;

/** Packed weights for a selection of one of its configs: converted in memory, or of a converted
 *  checkpoint loaded (CONFIG_MISMATCH: for another cut or layout; MISSING_WEIGHT: that layer or its
 *  file is not there; IO: it is cut short; FORMAT: not the file that was converted). Of `options`:
 *  load_flags, control. Statuses: common, SHAPE, DTYPE, MISSING_WEIGHT, UNEXPECTED_WEIGHT, NO_BACKEND,
 *  UNSUPPORTED, IO, FORMAT, VERSION, CANCELLED, CALLBACK, STATE, CONFIG_MISMATCH. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_checkpoint_packed(moe_context* ctx, const moe_checkpoint* checkpoint, const moe_selection* selection, const moe_checkpoint_options* options, moe_packed** out, moe_error** err);
/** A layer that is ready to run: moe_checkpoint_config, moe_select_backend, moe_checkpoint_packed and
 *  moe_layer_create. Of a converted checkpoint the first kernel is taken that accepts the config and
 *  reads the layout of its packed file; if there is none: NO_BACKEND, with "stored_layout" and the
 *  "layout" that this platform would take in the details. Statuses: common, INVALID_CONFIG, SHAPE,
 *  DTYPE, MISSING_WEIGHT, UNEXPECTED_WEIGHT, NO_BACKEND, UNSUPPORTED, IO, FORMAT, VERSION, CANCELLED,
 *  CALLBACK, STATE, CONFIG_MISMATCH. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_checkpoint_layer(moe_context* ctx, const moe_checkpoint* checkpoint, int64_t layer, const moe_checkpoint_options* options, moe_layer** out, moe_error** err);
/** Converts layers into a directory (made if its parent is there) that moe_checkpoint_open takes:
 *  config.json, a packed file for each layer (as moe_packed_save: whole or not there), and after each
 *  layer a new manifest.json. A layer that the manifest names, and whose file has that size and header,
 *  is not made again; one that the model has and that is not understood is passed over unless it is
 *  asked for. At most one packed layer is in memory. After a failure, a cancel or a kill whole layers
 *  stay, and the next call goes on, also on another machine: layers that are there keep their layouts
 *  (NO_BACKEND: no kernel reads one). A directory holds one source, cut, platform and options, and one
 *  layout for each layer: another one is CONFIG_MISMATCH, as is one with another program's config.json
 *  or manifest.json. What can be refused is refused before anything is written. A second call for the
 *  same directory is BUSY; one whose directory is removed meanwhile is IO. Statuses: common,
 *  INVALID_CONFIG, SHAPE, DTYPE, MISSING_WEIGHT, UNEXPECTED_WEIGHT, NO_BACKEND, UNSUPPORTED, IO,
 *  FORMAT, VERSION, CANCELLED, CALLBACK, BUSY, STATE, CONFIG_MISMATCH. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_checkpoint_convert(moe_context* ctx, const moe_checkpoint* checkpoint, const char* directory, const moe_checkpoint_options* options, moe_error** err);
/** Any tensor of the files by its name, for what a layer does not hold, such as the router's matrix.
 *  Its bytes are read into *hold, aligned to 64: destroy that when *out is no longer used. A converted
 *  checkpoint has no source tensors: UNSUPPORTED. Statuses: common, SHAPE, DTYPE, MISSING_WEIGHT,
 *  UNSUPPORTED, IO. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_checkpoint_tensor(const moe_checkpoint* checkpoint, const char* name, moe_tensor* out, moe_buffer** hold, moe_error** err);
/** Which weights these are, as text: "fast:" and a hash of config.json, of hf_quant_config.json and
 *  quantize_config.json, and of the safetensors files' names, sizes, headers and 16 pieces of 4 KiB of
 *  each file's data; with full 1 "full:" and a hash of every byte of these. Of a converted checkpoint:
 *  its source's, "" if it was made with the other kind. For accidents, not against forgery. Statuses:
 *  common, IO, CANCELLED, CALLBACK. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_checkpoint_fingerprint(moe_context* ctx, const moe_checkpoint* checkpoint, int32_t full, moe_control* control, moe_buffer** out, moe_error** err);
MOE_API void MOE_CALL moe_checkpoint_destroy(moe_checkpoint* checkpoint);

/* ------------------------------------------------------------------ */
/* 15. Several ranks: expert and tensor parallelism                    */
/* ------------------------------------------------------------------ */

/* A rank is a process (or, in tests, a thread) that holds a part of a layer. Each rank makes a moe_comm,
 * a moe_dist with the whole layer's config, the layer of its part, and attaches it; then moe_dist_apply
 * takes this rank's tokens and gives their outputs. The functions marked "collective" exchange data: every
 * rank calls them, in the same order for one communicator, also with no token and with no expert. What
 * fails on one rank is told to the others (MOE_ERR_PEER), so all of them return. A wait for other ranks ends
 * after timeout_ms: MOE_ERR_COMM with "reason" "timeout", "timeout_ms", "step", the "call" and its "layer_id",
 * and, where it is known, "rank" in the details. The other reasons are "out_of_step" (ranks make different
 * calls), "transport" (the table's functions failed) and "protocol" (a peer sent what it may not). After
 * these, except out_of_step, the communicator is poisoned: each later call that needs it returns
 * MOE_ERR_COMM_POISONED at once, and the memory that a transport may still write is never freed. Bytes and
 * order of sums: impl/spec/distributed.md in the source. */

/** What moe_comm_ops::agree_i64 computes of each value over all ranks. */
typedef int32_t moe_agree_op;
enum { MOE_AGREE_MIN = 0, MOE_AGREE_MAX = 1, MOE_AGREE_SUM = 2, MOE_AGREE_OR = 3 };

/** A transport between ranks 0..size-1. alltoallv_start and test are required; another function may be
 *  NULL, and what it does is then made of these two or left out. Counts and displacements are in rows of
 *  row_bytes, one entry for each rank, and may be zero. Buffers and lists stay valid and unchanged until the
 *  operation is done. Operations are started in the same order on all ranks, and several may be under way.
 *  `op` is what the table names the operation by; nothing looks into it. Only one thread at a time uses the
 *  table. When start or test fails, the operation is gone and the communicator poisoned. */
typedef struct moe_comm_ops {
  uint32_t struct_size;
  int32_t rank;
  int32_t size;
  int32_t reserved0;
  void* user;
  moe_status (MOE_CALL *alltoallv_start)(void* user, uint64_t row_bytes, const void* send, const int64_t* send_counts, const int64_t* send_displs, void* recv, const int64_t* recv_counts, const int64_t* recv_displs, moe_comm_op** op, moe_error** err);
  moe_status (MOE_CALL *test)(void* user, moe_comm_op* op, int32_t* done, moe_error** err);
                                 /* Never blocks; also called between tasks of this rank's work. After *done = 1 the operation no longer exists. */
  moe_status (MOE_CALL *allgatherv_start)(void* user, uint64_t row_bytes, const void* send, int64_t send_count, void* recv, const int64_t* recv_counts, const int64_t* recv_displs, moe_comm_op** op, moe_error** err);
  moe_status (MOE_CALL *alltoall_start)(void* user, uint64_t row_bytes, const void* send, void* recv, moe_comm_op** op, moe_error** err);
                                 /* One row to and from each rank. */
  moe_status (MOE_CALL *agree_i64)(void* user, moe_agree_op op, int64_t* values, int32_t count, moe_error** err);
                                 /* Not called by this version: it has no deadline. */
  moe_status (MOE_CALL *barrier)(void* user, moe_error** err);
                                 /* Nor is this one. */
  void (MOE_CALL *wait_hint)(void* user, int32_t microseconds);
                                 /* Called between two tests while there is nothing else to do; NULL: the thread yields. */
  void (MOE_CALL *abort)(void* user, int32_t code);
                                 /* Ends the job. Called after a deadline if "on_timeout" is "abort". */
  moe_release_fn destroy;
} moe_comm_ops;

/** Makes a communicator of the caller's transport. ops is copied. `options_json` may be NULL/0:
 *  {"timeout_ms":60000,"poll_us":50,"on_timeout":"error|abort"}.
 *  Statuses: common, INVALID_CONFIG, VERSION. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_comm_create(const moe_comm_ops* ops, const char* options_json, size_t options_len, moe_comm** out, moe_error** err);
/** Fills out[0..size-1] with connected communicators for threads of this process, 1 <= size <= 1024. For
 *  tests, and for one rank. After the destroy of one of them the others' waits for it fail. Statuses:
 *  common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_comm_create_threads(int32_t size, moe_comm** out, moe_error** err);
/** Options as in moe_comm_create, for a communicator that was made without: all of them, from its next
 *  call on. Statuses: common, INVALID_CONFIG, BUSY, COMM_POISONED. [excl] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_comm_set_options(moe_comm* comm, const char* options_json, size_t options_len, moe_error** err);
/** -1 for NULL. [any] */
MOE_API int32_t MOE_CALL moe_comm_rank(const moe_comm* comm);
/** 0 for NULL. [any] */
MOE_API int32_t MOE_CALL moe_comm_size(const moe_comm* comm);
/** Ends the use by this handle. The table's destroy is called when the last moe_dist of the communicator
 *  is gone, too; for transports whose end is collective (MPI), end both by hand and not in a finalizer. */
MOE_API void MOE_CALL moe_comm_destroy(moe_comm* comm);

/** A layer over all ranks of comm. `config` describes the whole layer: no parallel member cuts it.
 *  `options_json` may be NULL/0: {"mode":"ep|tp","placement":"linear|round_robin","combine":
 *  "exact|compact","max_tokens_per_rank":2048,"workspace_mb":1024,"chunk_tokens":0,"layer_id":0}.
 *  Mode ep gives each rank some experts whole; placement may also be a list of each rank's experts.
 *  Combine exact returns a float32 row for each slot, which the token's rank adds in the order of
 *  moe_apply: the bits of one process. compact returns one sum for each token and rank, added by
 *  ascending rank; the bits depend on the placement. Mode tp gives each rank a piece of every expert's
 *  width; its sums are compact. Of more tokens than chunk_tokens (0: as workspace_mb allows) a call
 *  makes chunks. Buffers for max_tokens_per_rank are reserved in moe_dist_create and _attach; a call
 *  allocates nothing. The layers of a communicator that have one ctx share them; workspace_mb bounds them.
 *  layer_id is for messages: give each layer its own. Config and options of all ranks must agree:
 *  CONFIG_MISMATCH on all of them, with "pointer", "ranks", "expected" and "actual" in the details. ctx
 *  lends threads and memory.
 *  Collective. Statuses: common, INVALID_CONFIG, UNSUPPORTED, BUSY, COMM, PEER, CONFIG_MISMATCH,
 *  COMM_POISONED, CALLBACK. [any; comm excl] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_dist_create(moe_context* ctx, moe_comm* comm, const moe_config* config, const char* options_json, size_t options_len, moe_dist** out, moe_error** err);
/** The config of this rank's part, for moe_select_backend, moe_weights_create, moe_checkpoint_packed and so on.
 *  What reads weights for it reads this rank's alone. The member "patch" of moe_dist_to_json makes it of the
 *  whole one, as patch_json of moe_checkpoint_layer does. A rank without experts (there are fewer experts
 *  than ranks) has none: STATE. Statuses: common, STATE. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_dist_local_config(const moe_dist* dist, moe_config** out, moe_error** err);
/** Gives the layer of the local config (kept); NULL exactly where this rank holds no expert. Ends when all
 *  ranks are there, within ten times timeout_ms. UNSUPPORTED: the layer has an expert_map, or the input
 *  scales that vLLM shares among a rank's experts differ between ranks (bit_compat vllm, mode ep).
 *  CONFIG_MISMATCH: another config than the local one, or kernels of two ranks do not round alike.
 *  Collective. Statuses: common, UNSUPPORTED, BUSY, STATE, COMM, PEER, CONFIG_MISMATCH, COMM_POISONED,
 *  CALLBACK. [excl] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_dist_attach(moe_dist* dist, moe_layer* layer, moe_error** err);
/** moe_apply over all ranks, with this rank's tokens: as many as it has, also 0, at most
 *  max_tokens_per_rank (else BUFFER_TOO_SMALL). With T = 0 the data of a tensor may be NULL.
 *  args->workspace must be NULL. An error in the arguments leaves `out` untouched and gives the other ranks
 *  PEER, with "rank" and "peer_status" in the details; the next call may be good.
 *  After another failure the content of `out` is unspecified. A cancel is looked at before a call begins to
 *  exchange; later it waits for the end. Collective. Statuses: common, SHAPE, DTYPE, MISSING_WEIGHT,
 *  UNSUPPORTED, BUFFER_TOO_SMALL, VERSION, CANCELLED, CALLBACK, BUSY, STATE, COMM, PEER, COMM_POISONED.
 *  [excl] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_dist_apply(moe_dist* dist, const moe_apply_args* args, moe_error** err);
/** moe_dist_apply in steps, for other work in between. One call at a time for a communicator: BUSY. args and
 *  its tensors are kept until moe_dist_finish. An error in the arguments is told to the others and returned
 *  here, without a call object. Collective. Statuses: common, SHAPE, DTYPE, MISSING_WEIGHT, UNSUPPORTED,
 *  BUFFER_TOO_SMALL, VERSION, CANCELLED, CALLBACK, BUSY, STATE, COMM, PEER, COMM_POISONED. [excl] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_dist_begin(moe_dist* dist, const moe_apply_args* args, moe_dist_call** out, moe_error** err);
/** Goes on as far as it can without a wait for another rank (it may compute). *done becomes 1 when
 *  moe_dist_finish would not wait, which then says how the call went. Statuses: common. [excl] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_dist_poll(moe_dist_call* call, int32_t* done, moe_error** err);
/** Waits, gives the status of the call, and ends the call object in every outcome. Statuses: common,
 *  CALLBACK, COMM, PEER. [excl] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_dist_finish(moe_dist_call* call, moe_error** err);
/** {"rank","size","options","experts","patch","attached","poisoned","chunk_tokens","layer_rows",
 *  "workspace_bytes","calls","rows_sent","bytes_sent","pack_us","wait_us"}: options as resolved, the experts
 *  of this rank, rows of one run of the layer; so far: what it has sent, how long its rows and results were
 *  packed and unpacked, and, of the communicator, how long it has waited. Statuses: common. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_dist_to_json(const moe_dist* dist, moe_buffer** out, moe_error** err);
MOE_API void MOE_CALL moe_dist_destroy(moe_dist* dist);
/** Drops a call that moe_dist_finish has not ended: without a wait. If others may still wait for this rank's
 *  data, the communicator is poisoned. */
MOE_API void MOE_CALL moe_dist_call_destroy(moe_dist_call* call);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* MOE_MOE_H_ */
