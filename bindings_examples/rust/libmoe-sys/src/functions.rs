//! All functions of `moe/moe.h`. What they do, who owns what, which threads may call: see there.

use crate::types::*;
use std::os::raw::{c_char, c_void};

extern "C" {
    pub fn moe_version_number() -> i32;
    pub fn moe_version_string() -> *const c_char;
    pub fn moe_abi_version() -> i32;
    pub fn moe_has_feature(name: *const c_char) -> i32;
    pub fn moe_build_info_json() -> *const c_char;
    pub fn moe_abi_json() -> *const c_char;
    pub fn moe_status_name(status: moe_status) -> *const c_char;
    pub fn moe_reject_name(reason: moe_reject) -> *const c_char;
    pub fn moe_dtype_name(dtype: moe_dtype) -> *const c_char;
    pub fn moe_dtype_from_name(name: *const c_char) -> moe_dtype;
    pub fn moe_error_create(status: moe_status, message: *const c_char, message_len: usize) -> *mut moe_error;
    pub fn moe_error_status(err: *const moe_error) -> moe_status;
    pub fn moe_error_message(err: *const moe_error) -> *const c_char;
    pub fn moe_error_subject(err: *const moe_error) -> *const c_char;
    pub fn moe_error_details_json(err: *const moe_error) -> *const c_char;
    pub fn moe_error_destroy(err: *mut moe_error);
    pub fn moe_buffer_create(
        size: usize,
        alignment: usize,
        out: *mut *mut moe_buffer,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_buffer_data(buffer: *const moe_buffer) -> *mut c_void;
    pub fn moe_buffer_size(buffer: *const moe_buffer) -> usize;
    pub fn moe_buffer_destroy(buffer: *mut moe_buffer);
    pub fn moe_tensor_nbytes(dtype: moe_dtype, ndim: i32, shape: *const i64) -> i64;
    pub fn moe_tensor_from_dlpack(
        dl_managed_tensor_versioned: *const c_void,
        out: *mut moe_tensor,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_control_create(
        progress: moe_progress_fn,
        user: *mut c_void,
        destroy: moe_release_fn,
        out: *mut *mut moe_control,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_control_cancel(control: *mut moe_control);
    pub fn moe_control_progress(control: *const moe_control, done: *mut u64, total: *mut u64);
    pub fn moe_control_report(control: *mut moe_control, done: u64, total: u64) -> moe_status;
    pub fn moe_control_destroy(control: *mut moe_control);
    pub fn moe_context_create(
        options_json: *const c_char,
        options_len: usize,
        callbacks: *const moe_context_callbacks,
        out: *mut *mut moe_context,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_context_to_json(
        ctx: *const moe_context,
        out: *mut *mut moe_buffer,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_context_take_log(
        ctx: *mut moe_context,
        out: *mut *mut moe_buffer,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_context_destroy(ctx: *mut moe_context);
    pub fn moe_config_create(
        json: *const c_char,
        json_len: usize,
        out: *mut *mut moe_config,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_config_create_from_hf(
        hf_json: *const c_char,
        hf_len: usize,
        options_json: *const c_char,
        options_len: usize,
        out: *mut *mut moe_config,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_config_merge(
        config: *const moe_config,
        patch_json: *const c_char,
        patch_len: usize,
        out: *mut *mut moe_config,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_config_to_json(
        config: *const moe_config,
        out: *mut *mut moe_buffer,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_config_get_int(
        config: *const moe_config,
        pointer: *const c_char,
        out: *mut i64,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_config_get_float(
        config: *const moe_config,
        pointer: *const c_char,
        out: *mut f64,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_config_get_string(
        config: *const moe_config,
        pointer: *const c_char,
        out: *mut *const c_char,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_config_schema_json() -> *const c_char;
    pub fn moe_config_destroy(config: *mut moe_config);
    pub fn moe_platform_create(
        json: *const c_char,
        json_len: usize,
        out: *mut *mut moe_platform,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_platform_to_json(
        platform: *const moe_platform,
        out: *mut *mut moe_buffer,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_platform_has(platform: *const moe_platform, feature: *const c_char) -> i32;
    pub fn moe_platform_destroy(platform: *mut moe_platform);
    pub fn moe_select_backend(
        ctx: *mut moe_context,
        config: *const moe_config,
        platform: *const moe_platform,
        flags: u64,
        out: *mut *mut moe_selection,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_describe(
        topic: *const c_char,
        query_json: *const c_char,
        query_len: usize,
        out: *mut *mut moe_buffer,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_selection_backend(selection: *const moe_selection) -> *const c_char;
    pub fn moe_selection_kernel(selection: *const moe_selection) -> *const c_char;
    pub fn moe_selection_layout(selection: *const moe_selection) -> *const c_char;
    pub fn moe_selection_candidate_count(selection: *const moe_selection) -> usize;
    pub fn moe_selection_candidate(
        selection: *const moe_selection,
        index: usize,
        out: *mut moe_candidate,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_selection_packed_size(
        selection: *const moe_selection,
        bytes: *mut u64,
        alignment: *mut u64,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_selection_to_json(
        selection: *const moe_selection,
        out: *mut *mut moe_buffer,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_selection_destroy(selection: *mut moe_selection);
    pub fn moe_weights_create(
        config: *const moe_config,
        out: *mut *mut moe_weights,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_weights_set(
        weights: *mut moe_weights,
        role: *const c_char,
        tensor: *const moe_tensor,
        release: moe_release_fn,
        user: *mut c_void,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_weights_set_expert(
        weights: *mut moe_weights,
        role: *const c_char,
        expert: i64,
        shard: *const c_char,
        tensor: *const moe_tensor,
        release: moe_release_fn,
        user: *mut c_void,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_weights_set_named(
        weights: *mut moe_weights,
        name: *const c_char,
        tensor: *const moe_tensor,
        release: moe_release_fn,
        user: *mut c_void,
        consumed: *mut i32,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_weights_load_safetensors(
        weights: *mut moe_weights,
        path: *const c_char,
        module: *const c_char,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_weights_to_json(
        weights: *const moe_weights,
        out: *mut *mut moe_buffer,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_weights_get(
        weights: *const moe_weights,
        role: *const c_char,
        expert: i64,
        out: *mut moe_tensor,
        hold: *mut *mut moe_buffer,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_weights_destroy(weights: *mut moe_weights);
    pub fn moe_weights_create_from_source(
        config: *const moe_config,
        ops: *const moe_weight_source_ops,
        out: *mut *mut moe_weights,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_convert_weights(
        ctx: *mut moe_context,
        selection: *const moe_selection,
        weights: *mut moe_weights,
        options: *const moe_convert_options,
        out: *mut *mut moe_packed,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_packed_data(
        packed: *const moe_packed,
        data: *mut *const c_void,
        size: *mut u64,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_packed_get(
        packed: *const moe_packed,
        role: *const c_char,
        expert: i64,
        out: *mut moe_tensor,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_packed_to_json(
        packed: *const moe_packed,
        out: *mut *mut moe_buffer,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_packed_dequantize(
        packed: *const moe_packed,
        role: *const c_char,
        expert: i64,
        out: *const moe_tensor,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_packed_save(
        packed: *const moe_packed,
        path: *const c_char,
        flags: u64,
        control: *mut moe_control,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_packed_load(
        ctx: *mut moe_context,
        path: *const c_char,
        flags: u64,
        control: *mut moe_control,
        out: *mut *mut moe_packed,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_packed_load_memory(
        ctx: *mut moe_context,
        data: *const c_void,
        size: usize,
        flags: u64,
        release: moe_release_fn,
        user: *mut c_void,
        out: *mut *mut moe_packed,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_packed_destroy(packed: *mut moe_packed);
    pub fn moe_layer_create(
        ctx: *mut moe_context,
        selection: *const moe_selection,
        packed: *const moe_packed,
        options: *const moe_layer_options,
        out: *mut *mut moe_layer,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_layer_workspace_size(
        layer: *const moe_layer,
        mode: moe_apply_mode,
        num_tokens: i64,
        bytes: *mut u64,
        alignment: *mut u64,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_layer_to_json(
        layer: *const moe_layer,
        out: *mut *mut moe_buffer,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_layer_expert_counts(
        layer: *const moe_layer,
        counts: *mut u64,
        capacity: usize,
        reset: i32,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_layer_destroy(layer: *mut moe_layer);
    pub fn moe_apply(layer: *const moe_layer, args: *const moe_apply_args, err: *mut *mut moe_error) -> moe_status;
    pub fn moe_apply_flat(
        layer: *const moe_layer,
        num_tokens: i64,
        hidden_dtype: moe_dtype,
        hidden: *const c_void,
        logits_dtype: moe_dtype,
        router_logits: *const c_void,
        topk_ids: *const i32,
        topk_weights: *const f32,
        out_dtype: moe_dtype,
        out: *mut c_void,
        err: *mut *mut moe_error,
    ) -> moe_status;
    pub fn moe_route(
        ctx: *mut moe_context,
        config: *const moe_config,
        args: *const moe_route_args,
        err: *mut *mut moe_error,
    ) -> moe_status;
}
