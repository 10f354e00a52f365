//! What a layer is, and what it is for: configs and platforms.

use crate::context::{self, Context};
use crate::error::{c_string, create, owned_text, status, text, Error};
use crate::tensor::{Tensor, TensorMut};
use libmoe_sys as sys;
use std::ptr;

handle! {
    /// The checked description of one layer.
    Config(moe_config, moe_config_destroy)
}
handle! {
    /// A machine: this one, or another that weights are prepared for.
    Platform(moe_platform, moe_platform_destroy)
}

impl Config {
    /// From the library's own description of a layer; [`crate::config_schema_json`] is its schema.
    ///
    /// ```
    /// let config = libmoe::Config::new(r#"{"num_experts":8,"top_k":2,"hidden_dim":64,"intermediate_size":32}"#)?;
    /// assert_eq!(config.int("/num_experts")?, 8);
    /// # Ok::<(), libmoe::Error>(())
    /// ```
    pub fn new(document: &str) -> Result<Self, Error> {
        let (json, len) = (document.as_ptr().cast(), document.len());
        create(|out, err| unsafe { sys::moe_config_create(json, len, out, err) }).map(Self)
    }

    /// From the text of a model's `config.json`; options such as `{"layer_index":3}`.
    pub fn from_hf(hf: &str, options: &str) -> Result<Self, Error> {
        let (hf, hf_len, options, options_len) = (hf.as_ptr(), hf.len(), options.as_ptr(), options.len());
        create(|out, err| unsafe {
            sys::moe_config_create_from_hf(hf.cast(), hf_len, options.cast(), options_len, out, err)
        })
        .map(Self)
    }

    /// A new config: the document of this one with a JSON merge patch applied, such as `{"moe_backend":"cpu"}`.
    pub fn merge(&self, patch: &str) -> Result<Self, Error> {
        let (json, len) = (patch.as_ptr().cast(), patch.len());
        create(|out, err| unsafe { sys::moe_config_merge(self.as_raw(), json, len, out, err) }).map(Self)
    }

    /// An integer or boolean of the resolved config by JSON pointer, such as `/num_experts`.
    pub fn int(&self, pointer: &str) -> Result<i64, Error> {
        let (pointer, mut value) = (c_string("pointer", pointer)?, 0);
        status(|err| unsafe { sys::moe_config_get_int(self.as_raw(), pointer.as_ptr(), &mut value, err) })?;
        Ok(value)
    }

    /// The same for a number.
    pub fn float(&self, pointer: &str) -> Result<f64, Error> {
        let (pointer, mut value) = (c_string("pointer", pointer)?, 0.0);
        status(|err| unsafe { sys::moe_config_get_float(self.as_raw(), pointer.as_ptr(), &mut value, err) })?;
        Ok(value)
    }

    /// The same for a string.
    pub fn string(&self, pointer: &str) -> Result<&str, Error> {
        let (pointer, mut value) = (c_string("pointer", pointer)?, ptr::null());
        status(|err| unsafe { sys::moe_config_get_string(self.as_raw(), pointer.as_ptr(), &mut value, err) })?;
        Ok(unsafe { text(value) })
    }

    /// The resolved config as JSON: defaults written out. No input of [`Config::new`]: for variants use `merge`.
    pub fn to_json(&self) -> Result<String, Error> {
        owned_text(|out, err| unsafe { sys::moe_config_to_json(self.as_raw(), out, err) })
    }

    /// Routing alone, with this config's method: ids `[T, K]` (i32 or i64) and weights `[T, K]` (f32) of logits `[T, G]`.
    /// With hash routing the ids are read. `correction_bias` `[G]`: instead of the config's.
    pub fn route(
        &self,
        context: Option<&Context>,
        logits: &Tensor,
        correction_bias: Option<&Tensor>,
        ids: &mut TensorMut,
        weights: &mut TensorMut,
    ) -> Result<(), Error> {
        let mut args: sys::moe_route_args = unsafe { sys::sized() };
        args.router_logits = &logits.raw;
        args.correction_bias = correction_bias.map_or(ptr::null(), |bias| &bias.raw);
        args.out_topk_ids = &ids.raw;
        args.out_topk_weights = &weights.raw;
        status(|err| unsafe { sys::moe_route(context::raw(context), self.as_raw(), &args, err) })
    }
}

impl Platform {
    /// This machine.
    pub fn detect() -> Result<Self, Error> {
        create(|out, err| unsafe { sys::moe_platform_create(ptr::null(), 0, out, err) }).map(Self)
    }

    /// A machine described by the caller, such as `{"type":"cuda","capability":[9,0]}`.
    pub fn new(description: &str) -> Result<Self, Error> {
        let (json, len) = (description.as_ptr().cast(), description.len());
        create(|out, err| unsafe { sys::moe_platform_create(json, len, out, err) }).map(Self)
    }

    /// What was given or detected; [`Platform::new`] takes it back.
    pub fn to_json(&self) -> Result<String, Error> {
        owned_text(|out, err| unsafe { sys::moe_platform_to_json(self.as_raw(), out, err) })
    }

    /// Does it have a feature, such as "avx512_vnni", "i8mm", "sve2"?
    pub fn has(&self, feature: &str) -> bool {
        c_string("feature", feature)
            .map_or(false, |feature| unsafe { sys::moe_platform_has(self.as_raw(), feature.as_ptr()) == 1 })
    }
}
