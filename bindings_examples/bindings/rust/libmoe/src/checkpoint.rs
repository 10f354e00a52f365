//! A model's directory: what its layers are, each of them ready to run, and folders of converted layers.

use crate::buffer::Buffer;
use crate::config::{Config, Platform};
use crate::context::{self, Context};
use crate::control::{self, Control};
use crate::error::{c_path, c_string, create, owned_text, status, text, Error};
use crate::layer::{Layer, LayerOptions};
use crate::packed::{LoadOptions, Packed};
use crate::selection::Selection;
use crate::tensor::OwnedTensor;
use libmoe_sys as sys;
use std::os::raw::c_void;
use std::path::Path;
use std::ptr;

handle! {
    /// All layers of a model: a directory as it was downloaded, or one of [`Checkpoint::convert`].
    ///
    /// ```no_run
    /// use libmoe::*;
    /// # fn main() -> Result<(), Error> {
    /// let context = Context::new("{}")?; // one thread per core
    /// let model = Checkpoint::open(Some(&context), "model")?;
    /// for info in model.layers()? {
    ///     println!("{} {:?} {} {}", info.layer, info.kind, info.name, info.problem);
    /// }
    /// model.convert(Some(&context), "converted")?; // once; a later call goes on where it ended
    /// let model = Checkpoint::open(Some(&context), "converted")?;
    /// let layer = model.layer(Some(&context), 0)?; // ready for Layer::apply
    /// # Ok(()) }
    /// ```
    ///
    /// A missing file is an error of the system:
    ///
    /// ```
    /// let error = libmoe::Checkpoint::open(None, "no/such/model").unwrap_err();
    /// assert_eq!(error.status(), libmoe::Status::IO);
    /// assert_eq!(error.io_kind(), Some(std::io::ErrorKind::NotFound));
    /// # Ok::<(), libmoe::Error>(())
    /// ```
    Checkpoint(moe_checkpoint, moe_checkpoint_destroy)
}

/// What stands at a layer's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LayerKind {
    /// Not understood, see [`LayerInfo::problem`]; also what a newer library knows and this crate does not.
    Other,
    /// It has experts.
    Experts,
    /// It has none.
    Dense,
}

/// One layer of a checkpoint, whole, before any cut.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LayerInfo<'a> {
    /// The model's number.
    pub layer: i64,
    /// What stands there.
    pub kind: LayerKind,
    /// For multi-token prediction, not in the model's pass.
    pub is_mtp: bool,
    /// Its packed file is here.
    pub is_converted: bool,
    /// Experts per token.
    pub top_k: i32,
    /// Experts.
    pub num_experts: i64,
    /// H.
    pub hidden_dim: i64,
    /// I, of one expert.
    pub intermediate_size: i64,
    /// Bytes of its experts in the files.
    pub bytes: u64,
    /// "model.layers.3.mlp.experts"; empty without experts.
    pub name: &'a str,
    /// Empty, or why no config can be made of it, or why its packed file is not used.
    pub problem: &'a str,
}

/// How to open.
#[derive(Clone, Copy, Default)]
pub struct CheckpointOpenOptions<'a> {
    /// Those of [`Config::from_hf`] as JSON, for all layers: without `layer_index` and `module`. Empty: none.
    pub json: &'a str,
    /// Progress and cancellation.
    pub control: Option<&'a Control>,
}

/// How to make a layer of a checkpoint.
#[derive(Clone, Copy, Default)]
pub struct CheckpointLayerOptions<'a> {
    /// The machine; by default the config's, else this one.
    pub platform: Option<&'a Platform>,
    /// Members of the config's document that win, as JSON: `{"parallel":{..}}` of one rank. Empty: none.
    pub patch: &'a str,
    /// The backend that the config names is a wish: else try others.
    pub allow_fallback: bool,
    /// How a converted checkpoint's file is loaded; progress and cancellation.
    pub load: LoadOptions<'a>,
    /// What the layer takes instead of what its config or checkpoint says.
    pub layer: LayerOptions<'a>,
}

/// How to convert into a folder.
#[derive(Clone, Copy, Default)]
pub struct CheckpointConvertOptions<'a> {
    /// The model's numbers. None: all that have experts. An empty list is an error.
    pub layers: Option<&'a [i64]>,
    /// The machine that the folder is for; by default the config's, else this one.
    pub platform: Option<&'a Platform>,
    /// Members of every config's document that win, as JSON: `{"parallel":{..}}` of one rank. Empty: none.
    pub patch: &'a str,
    /// The backend that a config names is a wish: else try others.
    pub allow_fallback: bool,
    /// Compare the content hashes of files that are there already.
    pub verify: bool,
    /// Progress and cancellation.
    pub control: Option<&'a Control>,
}

/// NULL and 0 for no text.
fn optional(json: &str) -> (*const c_void, usize) {
    (if json.is_empty() { ptr::null() } else { json.as_ptr().cast() }, json.len())
}

/// What the calls have in common.
fn raw_options(
    platform: Option<&Platform>,
    patch: &str,
    allow_fallback: bool,
    control: Option<&Control>,
) -> sys::moe_checkpoint_options {
    let mut raw: sys::moe_checkpoint_options = unsafe { sys::sized() };
    raw.select_flags = if allow_fallback { sys::MOE_SELECT_ALLOW_FALLBACK } else { 0 };
    raw.platform = platform.map_or(ptr::null(), |platform| platform.as_raw());
    let (json, len) = optional(patch);
    (raw.patch_json, raw.patch_len) = (json.cast(), len);
    raw.control = control::raw(control);
    raw
}

impl Checkpoint {
    /// Reads and checks every header once, on the context's threads, and no weight. Layers that cannot be used are no
    /// error: [`LayerInfo::problem`] says why. The files must not change while the checkpoint is used.
    pub fn open(context: Option<&Context>, directory: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(context, directory, CheckpointOpenOptions::default())
    }

    /// The same, with options.
    pub fn open_with(
        context: Option<&Context>,
        directory: impl AsRef<Path>,
        options: CheckpointOpenOptions,
    ) -> Result<Self, Error> {
        let (context, directory) = (context::raw(context), c_path(directory.as_ref())?);
        let ((json, len), control) = (optional(options.json), control::raw(options.control));
        create(|out, err| unsafe {
            sys::moe_checkpoint_open(context, directory.as_ptr(), json, len, control, out, err)
        })
        .map(Self)
    }

    /// Layers of all kinds; those of multi-token prediction come last.
    pub fn layer_count(&self) -> i64 {
        unsafe { sys::moe_checkpoint_layer_count(self.as_raw()) }
    }

    /// What all layers are.
    pub fn layers(&self) -> Result<Vec<LayerInfo<'_>>, Error> {
        (0..self.layer_count()).map(|layer| self.layer_info(layer)).collect()
    }

    /// What one layer is.
    pub fn layer_info(&self, layer: i64) -> Result<LayerInfo<'_>, Error> {
        let mut info: sys::moe_layer_info = unsafe { sys::sized() };
        status(|err| unsafe { sys::moe_checkpoint_layer_info(self.as_raw(), layer, &mut info, err) })?;
        let has = |flag: u32| info.flags & flag != 0;
        Ok(LayerInfo {
            layer,
            kind: match info.kind {
                sys::MOE_LAYER_EXPERTS => LayerKind::Experts,
                sys::MOE_LAYER_DENSE => LayerKind::Dense,
                _ => LayerKind::Other, // MOE_LAYER_OTHER, and what is not known here
            },
            is_mtp: has(sys::MOE_LAYER_IS_MTP),
            is_converted: has(sys::MOE_LAYER_IS_CONVERTED),
            top_k: info.top_k,
            num_experts: info.num_experts,
            hidden_dim: info.hidden_dim,
            intermediate_size: info.intermediate_size,
            bytes: info.bytes,
            name: unsafe { text(info.name) },
            problem: unsafe { text(info.problem) },
        })
    }

    /// Everything about the model as JSON: each layer with its quantization, and names near its experts that look like those
    /// of its router and shared experts.
    pub fn to_json(&self) -> Result<String, Error> {
        owned_text(|out, err| unsafe { sys::moe_checkpoint_to_json(self.as_raw(), out, err) })
    }

    /// The config of a layer. `patch` is JSON whose members win, such as `{"parallel":{..}}` of one rank; empty: none. The
    /// "reason" in an error's details is "past_the_end", "dense_layer" or "not_understood".
    pub fn config(&self, layer: i64, patch: &str) -> Result<Config, Error> {
        let (json, len) = optional(patch);
        create(|out, err| unsafe { sys::moe_checkpoint_config(self.as_raw(), layer, json, len, out, err) }).map(Config)
    }

    /// A layer that is ready to run: config, selection, packed weights and layer in one call.
    pub fn layer(&self, context: Option<&Context>, layer: i64) -> Result<Layer, Error> {
        self.layer_with(context, layer, CheckpointLayerOptions::default())
    }

    /// The same, with options.
    pub fn layer_with(
        &self,
        context: Option<&Context>,
        layer: i64,
        options: CheckpointLayerOptions,
    ) -> Result<Layer, Error> {
        self.layer_flags(context, layer, options, options.load.flags())
    }

    /// The same; the file of a converted checkpoint is mapped: its pages are shared, and read when they are used.
    ///
    /// # Safety
    /// The file must not change while the result is in use; once it is shorter, reading the lost pages ends the process.
    pub unsafe fn map_layer(
        &self,
        context: Option<&Context>,
        layer: i64,
        options: CheckpointLayerOptions,
    ) -> Result<Layer, Error> {
        self.layer_flags(context, layer, options, options.load.flags() | sys::MOE_LOAD_MMAP)
    }

    fn layer_flags(
        &self,
        context: Option<&Context>,
        layer: i64,
        options: CheckpointLayerOptions,
        load_flags: u64,
    ) -> Result<Layer, Error> {
        let mut raw = raw_options(options.platform, options.patch, options.allow_fallback, options.load.control);
        raw.load_flags = load_flags;
        let of_layer = options.layer.raw();
        raw.layer = &of_layer;
        let context = context::raw(context);
        create(|out, err| unsafe { sys::moe_checkpoint_layer(context, self.as_raw(), layer, &raw, out, err) })
            .map(Layer)
    }

    /// Packed weights for a selection of one of its configs: converted in memory, or of a converted checkpoint loaded.
    pub fn packed(&self, context: Option<&Context>, selection: &Selection) -> Result<Packed, Error> {
        self.packed_with(context, selection, LoadOptions::default())
    }

    /// The same, with options.
    pub fn packed_with(
        &self,
        context: Option<&Context>,
        selection: &Selection,
        options: LoadOptions,
    ) -> Result<Packed, Error> {
        self.packed_flags(context, selection, options, options.flags())
    }

    /// The same; the file of a converted checkpoint is mapped.
    ///
    /// # Safety
    /// As for [`Checkpoint::map_layer`].
    pub unsafe fn map_packed(
        &self,
        context: Option<&Context>,
        selection: &Selection,
        options: LoadOptions,
    ) -> Result<Packed, Error> {
        self.packed_flags(context, selection, options, options.flags() | sys::MOE_LOAD_MMAP)
    }

    fn packed_flags(
        &self,
        context: Option<&Context>,
        selection: &Selection,
        options: LoadOptions,
        load_flags: u64,
    ) -> Result<Packed, Error> {
        let mut raw = raw_options(None, "", false, options.control);
        raw.load_flags = load_flags;
        let (context, selection) = (context::raw(context), selection.as_raw());
        create(|out, err| unsafe { sys::moe_checkpoint_packed(context, self.as_raw(), selection, &raw, out, err) })
            .map(Packed)
    }

    /// Converts all layers that have experts into a directory, which [`Checkpoint::open`] takes. Layers that are there are
    /// not made again. At most one packed layer is in memory. After a failure or a cancel whole layers stay.
    pub fn convert(&self, context: Option<&Context>, directory: impl AsRef<Path>) -> Result<(), Error> {
        self.convert_with(context, directory, CheckpointConvertOptions::default())
    }

    /// The same, with options.
    pub fn convert_with(
        &self,
        context: Option<&Context>,
        directory: impl AsRef<Path>,
        options: CheckpointConvertOptions,
    ) -> Result<(), Error> {
        let mut raw = raw_options(options.platform, options.patch, options.allow_fallback, options.control);
        raw.load_flags = if options.verify { sys::MOE_LOAD_VERIFY } else { 0 };
        if let Some(layers) = options.layers {
            (raw.layers, raw.num_layers) = (layers.as_ptr().cast(), layers.len());
        }
        let (context, directory) = (context::raw(context), c_path(directory.as_ref())?);
        status(|err| unsafe { sys::moe_checkpoint_convert(context, self.as_raw(), directory.as_ptr(), &raw, err) })
    }

    /// Any tensor of the files by its name, read into memory of its own: what a layer does not hold, such as the router's
    /// matrix.
    pub fn tensor(&self, name: &str) -> Result<OwnedTensor, Error> {
        let (name, mut raw) = (c_string("name", name)?, unsafe { sys::sized() });
        let hold =
            create(|out, err| unsafe { sys::moe_checkpoint_tensor(self.as_raw(), name.as_ptr(), &mut raw, out, err) })?;
        Ok(OwnedTensor { raw, memory: Box::new(Buffer::of(hold)) })
    }

    /// Which weights these are, as text: "fast:" and a hash of names, sizes, headers and some data; with `full` "full:" and
    /// a hash of everything. Of a converted checkpoint: its source's, empty if it was made with the other kind.
    pub fn fingerprint(
        &self,
        context: Option<&Context>,
        full: bool,
        control: Option<&Control>,
    ) -> Result<String, Error> {
        let (context, control) = (context::raw(context), control::raw(control));
        owned_text(|out, err| unsafe {
            sys::moe_checkpoint_fingerprint(context, self.as_raw(), full.into(), control, out, err)
        })
    }
}
