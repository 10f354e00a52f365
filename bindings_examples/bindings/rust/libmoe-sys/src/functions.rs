// Written by generate.py from moe_abi.json and moe.h: do not edit.
use crate::types::*;
use std::os::raw::{c_char, c_void};

functions! {
    /// major\*1000000 + minor\*1000 + patch of the loaded library. \[any\]
    fn moe_version_number() -> i32;
    /// "major.minor.patch\[-suffix\]", static. \[any\]
    fn moe_version_string() -> *const c_char;
    /// MOE_ABI_VERSION of the loaded library. A caller should refuse to run only if it differs from
    /// the MOE_ABI_VERSION that the caller was built with. New functions never change it. \[any\]
    fn moe_abi_version() -> i32;
    /// 1 if this build has the named feature, else 0, also for unknown names. moe_build_info_json lists
    /// the names, for example "isa.avx512_vnni", "backend.CPU_INT4", "io.mmap". moe_platform_has tells
    /// what the machine has. \[any\]
    fn moe_has_feature(name: *const c_char) -> i32;
    /// Version, commit of the sources ("" outside a git checkout), compiler and flags, features,
    /// compiled backends, kernels and instruction sets, and the environment variables that are read, as
    /// JSON, static. \[any\]
    fn moe_build_info_json() -> *const c_char;
    /// A machine-readable description of this interface as JSON, static: functions, parameters,
    /// statuses, structs with sizes and offsets, enum values. \[any\]
    fn moe_abi_json() -> *const c_char;
    /// Constant name of a status, "MOE_ERR_UNKNOWN" for others; static, never NULL. \[any\]
    fn moe_status_name(status: moe_status) -> *const c_char;
    /// Constant name of a reject reason; static, never NULL. \[any\]
    fn moe_reject_name(reason: moe_reject) -> *const c_char;
    /// Short name ("bf16", "f8_e4m3fn", ...); static, never NULL. \[any\]
    fn moe_dtype_name(dtype: moe_dtype) -> *const c_char;
    /// Inverse of moe_dtype_name; also takes torch and safetensors spellings
    /// ("torch.bfloat16", "BF16"). MOE_DTYPE_INVALID when unknown. \[any\]
    fn moe_dtype_from_name(name: *const c_char) -> moe_dtype;
    /// Makes an error object for the `err` of a callback. Copies `message`. Never returns NULL: without
    /// memory it returns a static object with MOE_ERR_OUT_OF_MEMORY. \[any\]
    fn moe_error_create(status: moe_status, message: *const c_void, message_len: usize) -> *mut moe_error;
    /// Never MOE_OK, except for NULL. \[any\]
    fn moe_error_status(err: *const moe_error) -> moe_status;
    /// What is wrong, one line for people. It does not begin with the subject: show both, as
    /// "\<subject\>: \<message\>". Borrowed, "" for NULL. \[any\]
    fn moe_error_message(err: *const moe_error) -> *const c_char;
    /// Where: a JSON pointer into the config ("/quantization/group_size"), a role
    /// ("w13_weight\[17\]"), a path, a parameter ("control", "options_json"), or "". Borrowed. \[any\]
    fn moe_error_subject(err: *const moe_error) -> *const c_char;
    /// The facts of the error for programs: {"status","message","subject","expected","actual",
    /// "needed","errno","cause":{..},"candidates":\[..\]}; members are present if they apply; some
    /// errors have more ("error", "kind", "reason", "warning"). "{}" for NULL. The "reason" of
    /// moe_config_create_from_hf is "dense_layer", "no_such_layer" (past the end) or "dense_model"; that
    /// of moe_checkpoint_config is "dense_layer", "past_the_end" or "not_understood". Borrowed. \[any\]
    fn moe_error_details_json(err: *const moe_error) -> *const c_char;
    /// Ends the handle; NULL is accepted. \[excl\]
    fn moe_error_destroy(err: *mut moe_error) -> ();
    /// Owned memory of `size` bytes at `alignment` (a power of two, 0 = 64). For callers whose
    /// language cannot give aligned memory that does not move. Statuses: common. \[any\]
    fn moe_buffer_create(size: usize, alignment: usize, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// First byte; NULL only for a NULL buffer. Text has a NUL after its last byte, also when it is
    /// empty. Borrowed. \[any\]
    fn moe_buffer_data(buffer: *const moe_buffer) -> *mut c_void;
    /// Bytes without the NUL. \[any\]
    fn moe_buffer_size(buffer: *const moe_buffer) -> usize;
    /// Ends the handle; NULL is accepted. \[excl\]
    fn moe_buffer_destroy(buffer: *mut moe_buffer) -> ();
    /// Bytes that a row-major tensor of this type and shape takes, -1 on bad arguments; with one
    /// dimension of 8 elements: the bits of an element. \[any\]
    fn moe_tensor_nbytes(dtype: moe_dtype, ndim: i32, shape: *const c_void) -> i64;
    /// Fills `out` with a view of a DLPack DLManagedTensorVersioned (major version 1) on the CPU.
    /// The DLPack object is not consumed: call its deleter yourself when the view is no longer
    /// used, for instance from the `release` given to moe_weights_set. Statuses: common, SHAPE, DTYPE,
    /// UNSUPPORTED, VERSION. \[any\]
    fn moe_tensor_from_dlpack(dl_managed_tensor_versioned: *const c_void, out: *mut moe_tensor, err: *mut *mut moe_error) -> moe_status;
    /// Makes a control for long calls: open, convert, save, load, hash, apply. progress is kept (destroy
    /// ends it) and may be NULL: moe_control_progress answers from any thread instead. Several calls may
    /// share one control: cancelling stops all of them, and progress is that of the latest report.
    /// Statuses: common. \[any\]
    fn moe_control_create(progress: moe_progress_fn, user: *mut c_void, destroy: moe_release_fn, out: *mut *mut moe_control, err: *mut *mut moe_error) -> moe_status;
    /// Asks the calls that use this control to stop: they return MOE_ERR_CANCELLED soon. Later calls
    /// return it at once, so a new start needs a new control. Safe in a signal handler and in callbacks.
    /// \[any\]
    fn moe_control_cancel(control: *mut moe_control) -> ();
    /// Work units done and in total of the running or last call. \[any\]
    fn moe_control_progress(control: *const moe_control, done: *mut u64, total: *mut u64) -> ();
    /// Reports progress from the caller's own part of a long call, such as a weight source. With total
    /// 0 it only asks. Returns MOE_OK to go on; the callback returns any other status as it is.
    /// A NULL control gives MOE_OK. Statuses: common, CANCELLED, CALLBACK. \[any\]
    fn moe_control_report(control: *mut moe_control, done: u64, total: u64) -> moe_status;
    /// What the running or last call with this control does. May be asked in its progress function. Set
    /// out-\>struct_size first. Statuses: common. \[any\]
    fn moe_control_state(control: *const moe_control, out: *mut moe_progress, err: *mut *mut moe_error) -> moe_status;
    /// Ends the handle; NULL is accepted. \[excl\]
    fn moe_control_destroy(control: *mut moe_control) -> ();
    /// Makes a context. `options_json` may be NULL/0: {"threads":0,"cpus":"0-7,16","spin_us":50,
    /// "numa":"auto|off|interleave|shard|mirror","huge_pages":"off|try","log_level":"info",
    /// "log_ring":256,"flush_denormals":false}. threads 0 means one per
    /// core that this process may use (affinity mask, cgroup quota); 1 never starts a thread. Threads
    /// start at first use, so a context may be made before fork(); the child of a fork starts its own.
    /// They serve all calls with this context and all its layers. callbacks may be NULL. Statuses:
    /// common, INVALID_CONFIG, UNSUPPORTED, VERSION. \[any\]
    fn moe_context_create(options_json: *const c_void, options_len: usize, callbacks: *const moe_context_callbacks, out: *mut *mut moe_context, err: *mut *mut moe_error) -> moe_status;
    /// Options after resolution (thread count, CPU list, NUMA nodes) and all backends with layouts,
    /// formats and needed ISAs. Statuses: common. \[any\]
    fn moe_context_to_json(ctx: *const moe_context, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// Removes the messages that were kept since the last call and returns them, one JSON object per
    /// line; without messages the buffer is empty. For callers that cannot take callbacks on foreign
    /// threads. Statuses: common. \[any\]
    fn moe_context_take_log(ctx: *mut moe_context, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// Ends the handle; NULL is accepted. \[excl\]
    fn moe_context_destroy(ctx: *mut moe_context) -> ();
    /// Parses and checks the description of one MoE layer: one UTF-8 object of at most 1 MiB (16 MiB
    /// with hf_quantization_config), nested at most 32 deep. Unknown and repeated members are errors.
    /// Statuses: common, INVALID_CONFIG, UNSUPPORTED. \[any\]
    fn moe_config_create(json: *const c_void, json_len: usize, out: *mut *mut moe_config, err: *mut *mut moe_error) -> moe_status;
    /// Builds a config from the text of a Hugging Face config.json, with its text_config and
    /// quantization_config. `options_json` may be NULL/0: {"layer_index":3,
    /// "module":"model.layers.3.mlp.experts","quantization_config":{..},"overrides":{"parallel":{..},
    /// ..}}. overrides are members of moe_config_create's document and win. quantization_config may be
    /// a whole hf_quant_config.json; each of the two texts has at most 16 MiB. If the file's class is
    /// not known, the option "architecture":"Qwen3MoeForCausalLM" reads the file like that class, and
    /// an object there describes the class (the guide). moe_describe("checkpoint") lists the known
    /// classes and makes such an object from tensor names and shapes. Statuses: common,
    /// INVALID_CONFIG, UNSUPPORTED. \[any\]
    fn moe_config_create_from_hf(hf_json: *const c_void, hf_len: usize, options_json: *const c_void, options_len: usize, out: *mut *mut moe_config, err: *mut *mut moe_error) -> moe_status;
    /// Makes a new config: applies a JSON merge patch (RFC 7396), such as {"moe_backend":"cpu"}, to the
    /// document of `config`. Statuses: common, INVALID_CONFIG, UNSUPPORTED. \[any\]
    fn moe_config_merge(config: *const moe_config, patch_json: *const c_void, patch_len: usize, out: *mut *mut moe_config, err: *mut *mut moe_error) -> moe_status;
    /// The resolved config: defaults are written out (members that few models set appear only if they
    /// differ from theirs), and derived members such as "num_local_experts" are added.
    /// moe_config_create does not take it: use moe_config_merge for variants. Statuses: common. \[any\]
    fn moe_config_to_json(config: *const moe_config, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// One integer or boolean of the resolved config by JSON pointer ("/num_experts");
    /// MOE_ERR_INVALID_ARGUMENT if it is absent, null or of another type. Statuses: common. \[any\]
    fn moe_config_get_int(config: *const moe_config, pointer: *const c_char, out: *mut i64, err: *mut *mut moe_error) -> moe_status;
    /// The same for a number. Statuses: common. \[any\]
    fn moe_config_get_float(config: *const moe_config, pointer: *const c_char, out: *mut f64, err: *mut *mut moe_error) -> moe_status;
    /// The same for a string; borrowed. Statuses: common. \[any\]
    fn moe_config_get_string(config: *const moe_config, pointer: *const c_char, out: *mut *const c_char, err: *mut *mut moe_error) -> moe_status;
    /// JSON Schema (draft 2020-12) of moe_config_create's input, static. \[any\]
    fn moe_config_schema_json() -> *const c_char;
    /// Ends the handle; NULL is accepted. \[excl\]
    fn moe_config_destroy(config: *mut moe_config) -> ();
    /// json NULL: this machine. Else a machine described by the caller: {"type":"auto|cpu|cuda|rocm|
    /// xpu|tpu|oot","arch":"x86_64","features":\["avx2"\],"capability":\[9,0\],"libs":{"flashinfer":true}}
    /// (more members: the guide, include_c/README.md in the source). Selection and conversion work for
    /// any platform; a layer can be made only if the host can run it. Statuses: common, INVALID_CONFIG.
    /// \[any\]
    fn moe_platform_create(json: *const c_void, json_len: usize, out: *mut *mut moe_platform, err: *mut *mut moe_error) -> moe_status;
    /// What was given or detected; moe_platform_create takes this text back. Statuses: common. \[any\]
    fn moe_platform_to_json(platform: *const moe_platform, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// 1 / 0, for example "avx512_vnni", "i8mm", "sve2". \[any\]
    fn moe_platform_has(platform: *const moe_platform, feature: *const c_char) -> i32;
    /// Ends the handle; NULL is accepted. \[excl\]
    fn moe_platform_destroy(platform: *mut moe_platform) -> ();
    /// Chooses the backend and kernel for this config on this platform. platform NULL means the
    /// config's "platform" member, by default this machine. The selection lists every candidate with
    /// the reason for its refusal, also those after the winner. If none accepts, the call fails with
    /// MOE_ERR_NO_BACKEND, and the error's details hold the same list. Equal inputs and an equal library
    /// version give equal answers. Every later call refuses a selection without a winner.
    /// Statuses: common, INVALID_CONFIG, NO_BACKEND. \[any\]
    fn moe_select_backend(ctx: *mut moe_context, config: *const moe_config, platform: *const moe_platform, flags: u64, out: *mut *mut moe_selection, err: *mut *mut moe_error) -> moe_status;
    /// Answers one question as JSON, without weights. `topic` and the members of `query_json`:
    /// "oracle"          vLLM's backend oracle at the level of its own arguments, policy "vllm":
    /// {"oracle","moe","weight_key","activation_key","platform","env"} -\> backend,
    /// experts, warning, candidates with reasons
    /// "checkpoint"      a Hugging Face config.json -\> layer config, tensor names, shapes, dtypes; with
    /// tensors -\> a description of its class; the classes that are known
    /// "quant_config"    a builder of vLLM's quantization configs with its arguments -\> descriptors,
    /// predicates, scale shapes; "ocp_mx_scheme", "quant_key": names of these
    /// "parallel_config" sizes and ranks -\> flattened ones, predicates
    /// "routing_method"  scoring function, top_k, ... -\> vLLM's and libmoe's name
    /// "activation"      a name -\> gated or not, order of rows, default parameters
    /// "expert_map", "eplb_map"            which experts a rank holds, copies of redundant experts
    /// "align_block_size", "permute"       a batch's slots ordered by expert
    /// Fails like the calls that use the same rules (MOE_ERR_NO_BACKEND, MOE_ERR_INVALID_CONFIG...).
    /// Statuses: common, INVALID_CONFIG, NO_BACKEND, UNSUPPORTED. \[any\]
    fn moe_describe(topic: *const c_char, query_json: *const c_void, query_len: usize, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// Backend of the winner, "" if none; borrowed. \[any\]
    fn moe_selection_backend(selection: *const moe_selection) -> *const c_char;
    /// Kernel of the winner, "" if none. For devices that libmoe does not run, the name of vLLM's
    /// experts class. Borrowed. \[any\]
    fn moe_selection_kernel(selection: *const moe_selection) -> *const c_char;
    /// Identity of the packed layout ("p16/int4-g32/1"). Converted weights run with any kernel of the
    /// same layout. With activation order, conversion takes a larger one if the groups of an expert
    /// turn out to be of several sizes ("p16/w4-u4,u2-f32-ao/1"; moe_packed_to_json tells); layers of
    /// this selection take it, too. Borrowed. \[any\]
    fn moe_selection_layout(selection: *const moe_selection) -> *const c_char;
    /// Number of candidates, ordered by priority. \[any\]
    fn moe_selection_candidate_count(selection: *const moe_selection) -> usize;
    /// Fills `out` (set out-\>struct_size first). Statuses: common. \[any\]
    fn moe_selection_candidate(selection: *const moe_selection, index: usize, out: *mut moe_candidate, err: *mut *mut moe_error) -> moe_status;
    /// Bytes and alignment that the converted weights will take in the layout of moe_selection_layout;
    /// more in the larger one named there. Statuses: common, NO_BACKEND, UNSUPPORTED. \[any\]
    fn moe_selection_packed_size(selection: *const moe_selection, bytes: *mut u64, alignment: *mut u64, err: *mut *mut moe_error) -> moe_status;
    /// What was asked for and what runs: {"backend":..,"kernel":..,"layout":..,"runs_as":{..},
    /// "quant_config":{..},"routing_method":..,"activation_format":..,"shard":{..},
    /// "expert_placement":{..},"platform":{..},"config":{..},"candidates":\[..\],..}. Statuses: common.
    /// \[any\]
    fn moe_selection_to_json(selection: *const moe_selection, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// Ends the handle; NULL is accepted. \[excl\]
    fn moe_selection_destroy(selection: *mut moe_selection) -> ();
    /// An empty set for this config. Roles (the config decides which are required):
    /// w13_weight w2_weight w13_scale w2_scale w13_scale_2 w2_scale_2 w13_zero_point
    /// w2_zero_point w13_g_idx w2_g_idx w13_bias w2_bias w13_input_scale w2_input_scale;
    /// w13_global_scale w2_global_scale w13_input_global_scale w2_input_global_scale say what
    /// w13_scale_2 ... w2_input_scale say as divisors (1 / x), and one form excludes the other
    /// (MOE_ERR_UNEXPECTED_WEIGHT).
    /// The names that layers of vLLM and SGLang give these tensors mean the same: w13, w13_qweight,
    /// w13_weight_packed; w13_scales, w13_weight_scale, w13_weight_scale_inv; w13_weight_scale_2;
    /// w13_qzeros, w13_weight_zero_point; w13_weight_g_idx; w13_weight_bias; w13_input_scale_2;
    /// w13_weight_global_scale; w2 alike. w13_weight_shape and w13_g_idx_sort_indices are checked (the
    /// latter by conversion, which sorts columns itself) and left out.
    /// Shapes and types per format: the guide, include_c/README.md in the source. A tensor
    /// that is set again replaces the first. The stacked and the per-expert form of one role do not mix
    /// (MOE_ERR_STATE). Statuses: common. \[any\]
    fn moe_weights_create(config: *const moe_config, out: *mut *mut moe_weights, err: *mut *mut moe_error) -> moe_status;
    /// Sets a stacked tensor (\[E, ...\], this rank's part of each expert). The struct is copied. Its
    /// memory is kept, not copied, until the set is destroyed, the tensor is replaced, or a conversion
    /// with MOE_CONVERT_RELEASE_SOURCES has used it; then release(user) is called. Statuses: common,
    /// SHAPE, DTYPE, UNEXPECTED_WEIGHT, UNSUPPORTED, VERSION, BUSY, STATE. \[excl\]
    fn moe_weights_set(weights: *mut moe_weights, role: *const c_char, tensor: *const moe_tensor, release: moe_release_fn, user: *mut c_void, err: *mut *mut moe_error) -> moe_status;
    /// The same for one expert (\[...\], this rank's part). shard: "w1" (gate) or "w3" (up) for half of
    /// a w13 role, NULL for the whole role. An expert that this rank does not hold is released at
    /// once. Statuses: common, SHAPE, DTYPE, UNEXPECTED_WEIGHT, UNSUPPORTED, VERSION, BUSY, STATE.
    /// \[excl\]
    fn moe_weights_set_expert(weights: *mut moe_weights, role: *const c_char, expert: i64, shard: *const c_char, tensor: *const moe_tensor, release: moe_release_fn, user: *mut c_void, err: *mut *mut moe_error) -> moe_status;
    /// The same with the name a checkpoint uses, such as
    /// "model.layers.3.mlp.experts.17.gate_proj.weight_packed", and the whole tensor (the library
    /// cuts this rank's part). \*consumed is 1 if the name belongs to this layer, 0 if not (MOE_OK
    /// too; then the tensor is released at once). Statuses: common, SHAPE, DTYPE, UNEXPECTED_WEIGHT,
    /// UNSUPPORTED, VERSION, BUSY, STATE. \[excl\]
    fn moe_weights_set_named(weights: *mut moe_weights, name: *const c_char, tensor: *const moe_tensor, release: moe_release_fn, user: *mut c_void, consumed: *mut i32, err: *mut *mut moe_error) -> moe_status;
    /// Finds the tensors of this layer in a .safetensors file, a model.safetensors.index.json or a
    /// directory. Headers are read and checked now, tensors during conversion, expert by expert; the
    /// files stay open. `module` is the name prefix of the layer, NULL = the config's. Tensors that
    /// overlap or reach past the end of their file are MOE_ERR_FORMAT; bytes that belong to no tensor,
    /// between two or behind the last, are accepted and never read. Statuses: common, SHAPE, DTYPE,
    /// UNEXPECTED_WEIGHT, UNSUPPORTED, IO, FORMAT, BUSY, STATE. \[excl\]
    fn moe_weights_load_safetensors(weights: *mut moe_weights, path: *const c_char, module: *const c_char, err: *mut *mut moe_error) -> moe_status;
    /// {"complete":bool,"missing":\[..\],"unexpected":\[..\],"experts":\[..\],"tensors":\[{"role","dtype",
    /// "shape","part":{"row0","rows","col0","cols"}}\]}; part: what this rank holds. Statuses: common,
    /// BUSY. \[any\]
    fn moe_weights_to_json(weights: *const moe_weights, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// One expert's tensor of a role (w13 joined), or all (\[E, ...\]) with expert -1. \*hold receives
    /// NULL when \*out views memory of the set, else an owned buffer with the bytes (they had to be
    /// read, joined or cut): destroy it when \*out is no longer used. Statuses: common, SHAPE, DTYPE,
    /// MISSING_WEIGHT, UNEXPECTED_WEIGHT, UNSUPPORTED, IO, CANCELLED, CALLBACK, BUSY. \[any\]
    fn moe_weights_get(weights: *const moe_weights, role: *const c_char, expert: i64, out: *mut moe_tensor, hold: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// Ends the handle; NULL is accepted. \[excl\]
    fn moe_weights_destroy(weights: *mut moe_weights) -> ();
    /// A set whose tensors come from `ops` (copied). Statuses: common, VERSION. \[any\]
    fn moe_weights_create_from_source(config: *const moe_config, ops: *const moe_weight_source_ops, out: *mut *mut moe_weights, err: *mut *mut moe_error) -> moe_status;
    /// Repacks `weights` into the layout of `selection`, or into the larger one that uneven groups of
    /// activation order need (moe_selection_layout). An incomplete set gives MOE_ERR_MISSING_WEIGHT,
    /// which names the gaps. The same input gives the same bytes, for any number of threads and on any
    /// host. The names of both configs are compared as in moe_layer_create. options may be NULL.
    /// Statuses: common, SHAPE, DTYPE, MISSING_WEIGHT, NO_BACKEND, UNSUPPORTED, BUFFER_TOO_SMALL, IO,
    /// VERSION, CANCELLED, CALLBACK, BUSY, CONFIG_MISMATCH. \[any; weights excl when
    /// MOE_CONVERT_RELEASE_SOURCES is set\]
    fn moe_convert_weights(ctx: *mut moe_context, selection: *const moe_selection, weights: *mut moe_weights, options: *const moe_convert_options, out: *mut *mut moe_packed, err: *mut *mut moe_error) -> moe_status;
    /// The whole result as one self-describing, position-independent block, for callers with a
    /// container of their own. moe_packed_load_memory reads it back. Borrowed. Statuses: common. \[any\]
    fn moe_packed_data(packed: *const moe_packed, data: *mut *mut c_void, size: *mut u64, err: *mut *mut moe_error) -> moe_status;
    /// View of one named output of the conversion, such as "w13_packed", "w2_packed";
    /// moe_packed_to_json lists them. expert -1 = all (\[E, ...\]), else that expert's slice.
    /// Borrowed. Statuses: common, MISSING_WEIGHT. \[any\]
    fn moe_packed_get(packed: *const moe_packed, role: *const c_char, expert: i64, out: *mut moe_tensor, err: *mut *mut moe_error) -> moe_status;
    /// Layout, config, experts, named outputs, sizes, content hash. Statuses: common. \[any\]
    fn moe_packed_to_json(packed: *const moe_packed, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// Writes one expert's packed weights to `out` as dense numbers: role "w13_weight" or "w2_weight",
    /// `out` f32/f16/bf16 of \[N1, H\] or \[H, I\]; of a layer with biases also "w13_bias" \[N1\] or "w2_bias"
    /// \[H\]. Gate rows come first, then up rows. For checks. Statuses: common, SHAPE, DTYPE,
    /// UNSUPPORTED, FORMAT, VERSION. \[any\]
    fn moe_packed_dequantize(packed: *const moe_packed, role: *const c_char, expert: i64, out: *const moe_tensor, err: *mut *mut moe_error) -> moe_status;
    /// Writes a file with this one layer. flags: 0. Statuses: common, IO, CANCELLED, CALLBACK.
    /// \[any\]
    ///
    /// The file appears under `path` only when it is complete and on the disk (fsync, also of the
    /// folder if possible). Until then, and after any failure, a previous file is unharmed. Of
    /// concurrent saves to one path the last one wins; a reader sees one of them whole. Only the folder
    /// must be writable.
    /// - Links (symlinks) are followed: what they lead to is replaced or made, the links stay. Of
    /// several hard links only this name gets the new content.
    /// - Only a regular file is ever replaced: a folder, FIFO, socket or device is MOE_ERR_IO "not a
    /// regular file", and is not opened.
    /// - A replaced file's permission bits and POSIX access list stay, without setuid, setgid and
    /// sticky bits; owner and group stay if the process may set them; otherwise no user gains rights.
    /// Other extended attributes are lost. A new file has 0666 less the umask.
    /// - Until it is complete the file is called .moe-save-NUMBER.tmp, in the same folder. It is
    /// removed when the call fails; after a killed process, or a power cut, by the next save into
    /// that folder (by lock: flock; where files cannot be locked it stays). Such names are
    /// refused as `path`.
    /// - A write beyond RLIMIT_FSIZE is MOE_ERR_IO with errno EFBIG: its SIGXFSZ is blocked in the
    /// writing thread and taken back. `control` is called with the thread's own signal mask.
    fn moe_packed_save(packed: *const moe_packed, path: *const c_char, flags: u64, control: *mut moe_control, err: *mut *mut moe_error) -> moe_status;
    /// Reads such a file. MOE_ERR_VERSION / MOE_ERR_FORMAT for files that this version must not
    /// read. Statuses: common, IO, FORMAT, VERSION, CANCELLED, CALLBACK. \[any\]
    fn moe_packed_load(ctx: *mut moe_context, path: *const c_char, flags: u64, control: *mut moe_control, out: *mut *mut moe_packed, err: *mut *mut moe_error) -> moe_status;
    /// The same from a block of moe_packed_data; kept until release(user), copied only when it is
    /// not aligned to 64 bytes. Statuses: common, FORMAT, VERSION, CALLBACK. \[any\]
    fn moe_packed_load_memory(ctx: *mut moe_context, data: *const c_void, size: usize, flags: u64, release: moe_release_fn, user: *mut c_void, out: *mut *mut moe_packed, err: *mut *mut moe_error) -> moe_status;
    /// Ends the handle; NULL is accepted. \[excl\]
    fn moe_packed_destroy(packed: *mut moe_packed) -> ();
    /// Binds converted weights to a kernel. `packed` must have the layout and the config of the
    /// selection, and if both configs have a `name` it must be the same layer's
    /// (MOE_ERR_CONFIG_MISMATCH): equal names, or two prefixes that tools use for the same layer. If the
    /// selection's name is only suggested by the class (moe_config_create_from_hf without `module`) the
    /// layer's number decides. MOE_LAYER_ANY_NAME is for a selection that serves several layers. ctx
    /// lends threads and memory to every moe_apply. options may be NULL. Statuses: common,
    /// INVALID_CONFIG, SHAPE, DTYPE, UNEXPECTED_WEIGHT, NO_BACKEND, UNSUPPORTED, FORMAT, VERSION,
    /// CALLBACK, CONFIG_MISMATCH. \[any\]
    fn moe_layer_create(ctx: *mut moe_context, selection: *const moe_selection, packed: *const moe_packed, options: *const moe_layer_options, out: *mut *mut moe_layer, err: *mut *mut moe_error) -> moe_status;
    /// Bytes and alignment of a workspace for one call with `num_tokens` tokens. Statuses: common,
    /// UNSUPPORTED. \[any\]
    fn moe_layer_workspace_size(layer: *const moe_layer, mode: moe_apply_mode, num_tokens: i64, bytes: *mut u64, alignment: *mut u64, err: *mut *mut moe_error) -> moe_status;
    /// Config, kernel, threads, memory use. Statuses: common. \[any\]
    fn moe_layer_to_json(layer: *const moe_layer, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// Copies the number of tokens that each held expert got since the last reset to counts\[0..E-1\];
    /// reset 1 sets the counts to zero. Statuses: common, BUFFER_TOO_SMALL. \[any\]
    fn moe_layer_expert_counts(layer: *const moe_layer, counts: *mut u64, capacity: usize, reset: i32, err: *mut *mut moe_error) -> moe_status;
    /// Ends the handle; NULL is accepted. \[excl\]
    fn moe_layer_destroy(layer: *mut moe_layer) -> ();
    /// Runs the layer: out\[t\] = sum over j of weight\[t,j\] \* expert topk_ids\[t,j\] of hidden\[t\].
    /// routing.routed_scaling_factor is applied exactly once. ROUTER_LOGITS: to the weights, or to `out`
    /// if apply_routed_scale_to_output is set. TOPK: topk_weights are used as given; if
    /// apply_routed_scale_to_output is set `out` is multiplied, and the weights of moe_route do not
    /// contain the factor. topk_weights_hold_factor says that the weights contain it (as Hugging Face's
    /// classes of DeepSeek, GLM and dots1 return them): then moe_route returns such weights, and `out`
    /// is not multiplied.
    /// Columns of router_logits (G) are the experts, then the zero experts. K is top_k, plus the number
    /// of fused shared experts (ids from num_experts on, weight 1). T = 0 is valid and writes nothing.
    /// Several calls may use one layer at the same time if each has its own `out` and workspace. Errors
    /// in the arguments, including bad expert ids, leave `out` untouched; after CANCELLED or CALLBACK
    /// its content is unspecified. Statuses: common, SHAPE, DTYPE,
    /// MISSING_WEIGHT, UNSUPPORTED, BUFFER_TOO_SMALL, VERSION, CANCELLED, CALLBACK. \[any\]
    fn moe_apply(layer: *const moe_layer, args: *const moe_apply_args, err: *mut *mut moe_error) -> moe_status;
    /// moe_apply without structs; all arrays are row-major without gaps. With router_logits \[T,G\] the
    /// library routes; if it is NULL, topk_ids i32 \[T,K\] and topk_weights f32 \[T,K\] say where to.
    /// Statuses: common, SHAPE, DTYPE, MISSING_WEIGHT, UNSUPPORTED, CALLBACK. \[any\]
    fn moe_apply_flat(layer: *const moe_layer, num_tokens: i64, hidden_dtype: moe_dtype, hidden: *const c_void, logits_dtype: moe_dtype, router_logits: *const c_void, topk_ids: *const c_void, topk_weights: *const c_void, out_dtype: moe_dtype, out: *mut c_void, err: *mut *mut moe_error) -> moe_status;
    /// Routes only, with the config's method. Needs no weights. Statuses: common, SHAPE, DTYPE,
    /// MISSING_WEIGHT, UNEXPECTED_WEIGHT, UNSUPPORTED, VERSION, CALLBACK. \[any\]
    fn moe_route(ctx: *mut moe_context, config: *const moe_config, args: *const moe_route_args, err: *mut *mut moe_error) -> moe_status;
    /// Opens a model's directory: Hugging Face's (config.json, \*.safetensors with or without an index;
    /// links are followed) or one of moe_checkpoint_convert. Every header is read and checked once, on
    /// ctx's threads, and no weight. `options_json` may be NULL/0: the options of
    /// moe_config_create_from_hf without layer_index, module and overrides.name, for all layers. The
    /// quantization is that of the options, else of config.json, else of hf_quant_config.json, else of
    /// quantize_config.json; files that disagree are INVALID_CONFIG. Experts that the files hold in plain
    /// bf16, f16 or f32 get a config without quantization. Layers that cannot be used do not make the
    /// call fail: moe_layer_info::problem says why. A file that is a link to nothing is MOE_ERR_IO. The
    /// safetensors files stay open, one descriptor each, until the last object that uses them ends, and
    /// must not change meanwhile: a shorter one is MOE_ERR_IO, never a signal. Of a converted checkpoint
    /// the headers of packed files are checked now, and the files opened again when they are loaded, also
    /// after the directory was renamed. Its own options count beneath the caller's: overrides member by
    /// member (a null stays a value), other options as a whole. Statuses: common, INVALID_CONFIG,
    /// UNSUPPORTED, IO, FORMAT, VERSION, CANCELLED, CALLBACK. \[any\]
    fn moe_checkpoint_open(ctx: *mut moe_context, directory: *const c_char, options_json: *const c_void, options_len: usize, control: *mut moe_control, out: *mut *mut moe_checkpoint, err: *mut *mut moe_error) -> moe_status;
    /// {"class","dtype","quantization_from","tensors","bytes","layers":\[..\],..}: each layer with what
    /// moe_layer_info has, the format of its weights (not of a layer that is not converted yet), the status
    /// of its problem, and names near its experts that look like those of its router and shared experts (a
    /// list, no promise). A converted checkpoint also has "converted": {"source","platform","parallel",
    /// "layouts"}. Statuses: common. \[any\]
    fn moe_checkpoint_to_json(checkpoint: *const moe_checkpoint, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// Layers of all kinds; those of multi-token prediction come last. 0 for NULL. \[any\]
    fn moe_checkpoint_layer_count(checkpoint: *const moe_checkpoint) -> i64;
    /// Fills `out` (set out-\>struct_size first). Statuses: common. \[any\]
    fn moe_checkpoint_layer_info(checkpoint: *const moe_checkpoint, layer: i64, out: *mut moe_layer_info, err: *mut *mut moe_error) -> moe_status;
    /// The config of a layer. `patch_json` may be NULL/0: members of moe_config_create's document that
    /// win, such as {"parallel":{..}} of one rank; the layer keeps its name. The "reason" in the details is
    /// "past_the_end", "dense_layer" or "not_understood". A converted checkpoint has the cut that it was
    /// converted with.
    /// Statuses: common, INVALID_CONFIG, UNSUPPORTED, IO, FORMAT. \[any\]
    fn moe_checkpoint_config(checkpoint: *const moe_checkpoint, layer: i64, patch_json: *const c_void, patch_len: usize, out: *mut *mut moe_config, err: *mut *mut moe_error) -> moe_status;
    /// moe_weights_load_safetensors from files that are open already: of the weights' config, which is
    /// one of moe_checkpoint_config. A converted checkpoint has no source tensors: UNSUPPORTED. Statuses:
    /// common, SHAPE, DTYPE, UNEXPECTED_WEIGHT, UNSUPPORTED, IO, FORMAT, BUSY, STATE. \[any; weights excl\]
    fn moe_weights_load_checkpoint(weights: *mut moe_weights, checkpoint: *const moe_checkpoint, err: *mut *mut moe_error) -> moe_status;
    /// Packed weights for a selection of one of its configs: converted in memory, or of a converted
    /// checkpoint loaded (CONFIG_MISMATCH: for another cut or layout; MISSING_WEIGHT: that layer or its
    /// file is not there; IO: it is cut short; FORMAT: not the file that was converted). Of `options`:
    /// load_flags, control. Statuses: common, SHAPE, DTYPE, MISSING_WEIGHT, UNEXPECTED_WEIGHT, NO_BACKEND,
    /// UNSUPPORTED, IO, FORMAT, VERSION, CANCELLED, CALLBACK, STATE, CONFIG_MISMATCH. \[any\]
    fn moe_checkpoint_packed(ctx: *mut moe_context, checkpoint: *const moe_checkpoint, selection: *const moe_selection, options: *const moe_checkpoint_options, out: *mut *mut moe_packed, err: *mut *mut moe_error) -> moe_status;
    /// A layer that is ready to run: moe_checkpoint_config, moe_select_backend, moe_checkpoint_packed and
    /// moe_layer_create. Of a converted checkpoint the first kernel is taken that accepts the config and
    /// reads the layout of its packed file; if there is none: NO_BACKEND, with "stored_layout" and the
    /// "layout" that this platform would take in the details. Statuses: common, INVALID_CONFIG, SHAPE,
    /// DTYPE, MISSING_WEIGHT, UNEXPECTED_WEIGHT, NO_BACKEND, UNSUPPORTED, IO, FORMAT, VERSION, CANCELLED,
    /// CALLBACK, STATE, CONFIG_MISMATCH. \[any\]
    fn moe_checkpoint_layer(ctx: *mut moe_context, checkpoint: *const moe_checkpoint, layer: i64, options: *const moe_checkpoint_options, out: *mut *mut moe_layer, err: *mut *mut moe_error) -> moe_status;
    /// Converts layers into a directory (made if its parent is there) that moe_checkpoint_open takes:
    /// config.json, a packed file for each layer (as moe_packed_save: whole or not there), and after each
    /// layer a new manifest.json. A layer that the manifest names, and whose file has that size and header,
    /// is not made again; one that the model has and that is not understood is passed over unless it is
    /// asked for. At most one packed layer is in memory. After a failure, a cancel or a kill whole layers
    /// stay, and the next call goes on, also on another machine: layers that are there keep their layouts
    /// (NO_BACKEND: no kernel reads one). A directory holds one source, cut, platform and options, and one
    /// layout for each layer: another one is CONFIG_MISMATCH, as is one with another program's config.json
    /// or manifest.json. What can be refused is refused before anything is written. A second call for the
    /// same directory is BUSY; one whose directory is removed meanwhile is IO. Statuses: common,
    /// INVALID_CONFIG, SHAPE, DTYPE, MISSING_WEIGHT, UNEXPECTED_WEIGHT, NO_BACKEND, UNSUPPORTED, IO,
    /// FORMAT, VERSION, CANCELLED, CALLBACK, BUSY, STATE, CONFIG_MISMATCH. \[any\]
    fn moe_checkpoint_convert(ctx: *mut moe_context, checkpoint: *const moe_checkpoint, directory: *const c_char, options: *const moe_checkpoint_options, err: *mut *mut moe_error) -> moe_status;
    /// Any tensor of the files by its name, for what a layer does not hold, such as the router's matrix.
    /// Its bytes are read into \*hold, aligned to 64: destroy that when \*out is no longer used. A converted
    /// checkpoint has no source tensors: UNSUPPORTED. Statuses: common, SHAPE, DTYPE, MISSING_WEIGHT,
    /// UNSUPPORTED, IO. \[any\]
    fn moe_checkpoint_tensor(checkpoint: *const moe_checkpoint, name: *const c_char, out: *mut moe_tensor, hold: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// Which weights these are, as text: "fast:" and a hash of config.json, of hf_quant_config.json and
    /// quantize_config.json, and of the safetensors files' names, sizes, headers and 16 pieces of 4 KiB of
    /// each file's data; with full 1 "full:" and a hash of every byte of these. Of a converted checkpoint:
    /// its source's, "" if it was made with the other kind. For accidents, not against forgery. Statuses:
    /// common, IO, CANCELLED, CALLBACK. \[any\]
    fn moe_checkpoint_fingerprint(ctx: *mut moe_context, checkpoint: *const moe_checkpoint, full: i32, control: *mut moe_control, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// Ends the handle; NULL is accepted. \[excl\]
    fn moe_checkpoint_destroy(checkpoint: *mut moe_checkpoint) -> ();
    /// Makes a communicator of the caller's transport. ops is copied. `options_json` may be NULL/0:
    /// {"timeout_ms":60000,"poll_us":50,"on_timeout":"error|abort"}.
    /// Statuses: common, INVALID_CONFIG, VERSION. \[any\]
    fn moe_comm_create(ops: *const moe_comm_ops, options_json: *const c_void, options_len: usize, out: *mut *mut moe_comm, err: *mut *mut moe_error) -> moe_status;
    /// Fills out\[0..size-1\] with connected communicators for threads of this process, 1 \<= size \<= 1024. For
    /// tests, and for one rank. After the destroy of one of them the others' waits for it fail. Statuses:
    /// common. \[any\]
    fn moe_comm_create_threads(size: i32, out: *mut *mut moe_comm, err: *mut *mut moe_error) -> moe_status;
    /// Options as in moe_comm_create, for a communicator that was made without: all of them, from its next
    /// call on. Statuses: common, INVALID_CONFIG, BUSY, COMM_POISONED. \[excl\]
    fn moe_comm_set_options(comm: *mut moe_comm, options_json: *const c_void, options_len: usize, err: *mut *mut moe_error) -> moe_status;
    /// -1 for NULL. \[any\]
    fn moe_comm_rank(comm: *const moe_comm) -> i32;
    /// 0 for NULL. \[any\]
    fn moe_comm_size(comm: *const moe_comm) -> i32;
    /// Ends the use by this handle. The table's destroy is called when the last moe_dist of the communicator
    /// is gone, too; for transports whose end is collective (MPI), end both by hand and not in a finalizer.
    fn moe_comm_destroy(comm: *mut moe_comm) -> ();
    /// A layer over all ranks of comm. `config` describes the whole layer: no parallel member cuts it.
    /// `options_json` may be NULL/0: {"mode":"ep|tp","placement":"linear|round_robin","combine":
    /// "exact|compact","max_tokens_per_rank":2048,"workspace_mb":1024,"chunk_tokens":0,"layer_id":0}.
    /// Mode ep gives each rank some experts whole; placement may also be a list of each rank's experts.
    /// Combine exact returns a float32 row for each slot, which the token's rank adds in the order of
    /// moe_apply: the bits of one process. compact returns one sum for each token and rank, added by
    /// ascending rank; the bits depend on the placement. Mode tp gives each rank a piece of every expert's
    /// width; its sums are compact. Of more tokens than chunk_tokens (0: as workspace_mb allows) a call
    /// makes chunks. Buffers for max_tokens_per_rank are reserved in moe_dist_create and _attach; a call
    /// allocates nothing. The layers of a communicator that have one ctx share them; workspace_mb bounds them.
    /// layer_id is for messages: give each layer its own. Config and options of all ranks must agree:
    /// CONFIG_MISMATCH on all of them, with "pointer", "ranks", "expected" and "actual" in the details. ctx
    /// lends threads and memory.
    /// Collective. Statuses: common, INVALID_CONFIG, UNSUPPORTED, BUSY, COMM, PEER, CONFIG_MISMATCH,
    /// COMM_POISONED, CALLBACK. \[any; comm excl\]
    fn moe_dist_create(ctx: *mut moe_context, comm: *mut moe_comm, config: *const moe_config, options_json: *const c_void, options_len: usize, out: *mut *mut moe_dist, err: *mut *mut moe_error) -> moe_status;
    /// The config of this rank's part, for moe_select_backend, moe_weights_create, moe_checkpoint_packed and so on.
    /// What reads weights for it reads this rank's alone. The member "patch" of moe_dist_to_json makes it of the
    /// whole one, as patch_json of moe_checkpoint_layer does. A rank without experts (there are fewer experts
    /// than ranks) has none: STATE. Statuses: common, STATE. \[any\]
    fn moe_dist_local_config(dist: *const moe_dist, out: *mut *mut moe_config, err: *mut *mut moe_error) -> moe_status;
    /// Gives the layer of the local config (kept); NULL exactly where this rank holds no expert. Ends when all
    /// ranks are there, within ten times timeout_ms. UNSUPPORTED: the layer has an expert_map, or the input
    /// scales that vLLM shares among a rank's experts differ between ranks (bit_compat vllm, mode ep).
    /// CONFIG_MISMATCH: another config than the local one, or kernels of two ranks do not round alike.
    /// Collective. Statuses: common, UNSUPPORTED, BUSY, STATE, COMM, PEER, CONFIG_MISMATCH, COMM_POISONED,
    /// CALLBACK. \[excl\]
    fn moe_dist_attach(dist: *mut moe_dist, layer: *mut moe_layer, err: *mut *mut moe_error) -> moe_status;
    /// moe_apply over all ranks, with this rank's tokens: as many as it has, also 0, at most
    /// max_tokens_per_rank (else BUFFER_TOO_SMALL). With T = 0 the data of a tensor may be NULL.
    /// args-\>workspace must be NULL. An error in the arguments leaves `out` untouched and gives the other ranks
    /// PEER, with "rank" and "peer_status" in the details; the next call may be good.
    /// After another failure the content of `out` is unspecified. A cancel is looked at before a call begins to
    /// exchange; later it waits for the end. Collective. Statuses: common, SHAPE, DTYPE, MISSING_WEIGHT,
    /// UNSUPPORTED, BUFFER_TOO_SMALL, VERSION, CANCELLED, CALLBACK, BUSY, STATE, COMM, PEER, COMM_POISONED.
    /// \[excl\]
    fn moe_dist_apply(dist: *mut moe_dist, args: *const moe_apply_args, err: *mut *mut moe_error) -> moe_status;
    /// moe_dist_apply in steps, for other work in between. One call at a time for a communicator: BUSY. args and
    /// its tensors are kept until moe_dist_finish. An error in the arguments is told to the others and returned
    /// here, without a call object. Collective. Statuses: common, SHAPE, DTYPE, MISSING_WEIGHT, UNSUPPORTED,
    /// BUFFER_TOO_SMALL, VERSION, CANCELLED, CALLBACK, BUSY, STATE, COMM, PEER, COMM_POISONED. \[excl\]
    fn moe_dist_begin(dist: *mut moe_dist, args: *const moe_apply_args, out: *mut *mut moe_dist_call, err: *mut *mut moe_error) -> moe_status;
    /// Goes on as far as it can without a wait for another rank (it may compute). \*done becomes 1 when
    /// moe_dist_finish would not wait, which then says how the call went. Statuses: common. \[excl\]
    fn moe_dist_poll(call: *mut moe_dist_call, done: *mut i32, err: *mut *mut moe_error) -> moe_status;
    /// Waits, gives the status of the call, and ends the call object in every outcome. Statuses: common,
    /// CALLBACK, COMM, PEER. \[excl\]
    fn moe_dist_finish(call: *mut moe_dist_call, err: *mut *mut moe_error) -> moe_status;
    /// {"rank","size","options","experts","patch","attached","poisoned","chunk_tokens","layer_rows",
    /// "workspace_bytes","calls","rows_sent","bytes_sent","pack_us","wait_us"}: options as resolved, the experts
    /// of this rank, rows of one run of the layer; so far: what it has sent, how long its rows and results were
    /// packed and unpacked, and, of the communicator, how long it has waited. Statuses: common. \[any\]
    fn moe_dist_to_json(dist: *const moe_dist, out: *mut *mut moe_buffer, err: *mut *mut moe_error) -> moe_status;
    /// Ends the handle; NULL is accepted. \[excl\]
    fn moe_dist_destroy(dist: *mut moe_dist) -> ();
    /// Drops a call that moe_dist_finish has not ended: without a wait. If others may still wait for this rank's
    /// data, the communicator is poisoned.
    fn moe_dist_call_destroy(call: *mut moe_dist_call) -> ();
}

/// The names of all functions, in the order of the header.
pub const FUNCTIONS: &[&str] = &[
    "moe_version_number",
    "moe_version_string",
    "moe_abi_version",
    "moe_has_feature",
    "moe_build_info_json",
    "moe_abi_json",
    "moe_status_name",
    "moe_reject_name",
    "moe_dtype_name",
    "moe_dtype_from_name",
    "moe_error_create",
    "moe_error_status",
    "moe_error_message",
    "moe_error_subject",
    "moe_error_details_json",
    "moe_error_destroy",
    "moe_buffer_create",
    "moe_buffer_data",
    "moe_buffer_size",
    "moe_buffer_destroy",
    "moe_tensor_nbytes",
    "moe_tensor_from_dlpack",
    "moe_control_create",
    "moe_control_cancel",
    "moe_control_progress",
    "moe_control_report",
    "moe_control_state",
    "moe_control_destroy",
    "moe_context_create",
    "moe_context_to_json",
    "moe_context_take_log",
    "moe_context_destroy",
    "moe_config_create",
    "moe_config_create_from_hf",
    "moe_config_merge",
    "moe_config_to_json",
    "moe_config_get_int",
    "moe_config_get_float",
    "moe_config_get_string",
    "moe_config_schema_json",
    "moe_config_destroy",
    "moe_platform_create",
    "moe_platform_to_json",
    "moe_platform_has",
    "moe_platform_destroy",
    "moe_select_backend",
    "moe_describe",
    "moe_selection_backend",
    "moe_selection_kernel",
    "moe_selection_layout",
    "moe_selection_candidate_count",
    "moe_selection_candidate",
    "moe_selection_packed_size",
    "moe_selection_to_json",
    "moe_selection_destroy",
    "moe_weights_create",
    "moe_weights_set",
    "moe_weights_set_expert",
    "moe_weights_set_named",
    "moe_weights_load_safetensors",
    "moe_weights_to_json",
    "moe_weights_get",
    "moe_weights_destroy",
    "moe_weights_create_from_source",
    "moe_convert_weights",
    "moe_packed_data",
    "moe_packed_get",
    "moe_packed_to_json",
    "moe_packed_dequantize",
    "moe_packed_save",
    "moe_packed_load",
    "moe_packed_load_memory",
    "moe_packed_destroy",
    "moe_layer_create",
    "moe_layer_workspace_size",
    "moe_layer_to_json",
    "moe_layer_expert_counts",
    "moe_layer_destroy",
    "moe_apply",
    "moe_apply_flat",
    "moe_route",
    "moe_checkpoint_open",
    "moe_checkpoint_to_json",
    "moe_checkpoint_layer_count",
    "moe_checkpoint_layer_info",
    "moe_checkpoint_config",
    "moe_weights_load_checkpoint",
    "moe_checkpoint_packed",
    "moe_checkpoint_layer",
    "moe_checkpoint_convert",
    "moe_checkpoint_tensor",
    "moe_checkpoint_fingerprint",
    "moe_checkpoint_destroy",
    "moe_comm_create",
    "moe_comm_create_threads",
    "moe_comm_set_options",
    "moe_comm_rank",
    "moe_comm_size",
    "moe_comm_destroy",
    "moe_dist_create",
    "moe_dist_local_config",
    "moe_dist_attach",
    "moe_dist_apply",
    "moe_dist_begin",
    "moe_dist_poll",
    "moe_dist_finish",
    "moe_dist_to_json",
    "moe_dist_destroy",
    "moe_dist_call_destroy",
];
