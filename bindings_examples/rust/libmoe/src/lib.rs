//! Mixture-of-Experts layers on the CPU: the safe face of libmoe.
//!
//! ```no_run
//! # fn main() -> Result<(), libmoe::Error> {
//! # let (text, hidden, logits, mut out) = (String::new(), vec![0f32; 8], vec![0f32; 4], vec![0f32; 8]);
//! let context = libmoe::Context::new("{\"threads\":2}")?;
//! let config = libmoe::Config::from_hf(&text, "{}")?;
//! let selection = libmoe::Selection::new(Some(&context), &config)?;
//! let mut weights = libmoe::Weights::new(&config)?;
//! weights.load_safetensors("checkpoint")?;
//! let packed = libmoe::Packed::convert(Some(&context), &selection, &mut weights)?;
//! let layer = libmoe::Layer::new(Some(&context), &selection, &packed)?;
//! let logits = libmoe::Tensor::new(&logits, &[1, 4])?;
//! layer.apply(&libmoe::Tensor::new(&hidden, &[1, 8])?, libmoe::Routing::Logits(&logits),
//!             &mut libmoe::TensorMut::new(&mut out, &[1, 8])?)?;
//! # Ok(()) }
//! ```
//!
//! Every value destroys its handle when dropped, in any order: the library keeps what it needs.
//! Handles whose calls take `&self` may be used from several threads at once, as the header says.

mod error;
mod tensor;

pub use error::{Error, Status};
pub use libmoe_sys as sys;
pub use tensor::{Bf16, DType, Element, Tensor, TensorMut, F16};

use error::{c_path, c_string, create, owned_text, status, text};
use std::os::raw::{c_char, c_void};
use std::path::Path;
use std::ptr::{self, NonNull};

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident($raw:ident, $destroy:ident): $($marker:ident)*) => {
        $(#[$doc])*
        pub struct $name(NonNull<sys::$raw>);
        impl Drop for $name {
            fn drop(&mut self) {
                unsafe { sys::$destroy(self.0.as_ptr()) }
            }
        }
        $(unsafe impl $marker for $name {})*
    };
}

handle! {
    /// Threads, memory and log of one embedding program. `None` in its place: one thread, silent.
    Context(moe_context, moe_context_destroy): Send Sync
}
handle! {
    /// The checked description of one layer.
    Config(moe_config, moe_config_destroy): Send Sync
}
handle! {
    /// The backend and kernel for a config on this machine, with the reason of every other candidate.
    Selection(moe_selection, moe_selection_destroy): Send Sync
}
handle! {
    /// Source tensors of one layer; changed through `&mut`, so by one thread at a time.
    Weights(moe_weights, moe_weights_destroy): Send
}
handle! {
    /// Converted weights: immutable, shared by any number of layers.
    Packed(moe_packed, moe_packed_destroy): Send Sync
}
handle! {
    /// Converted weights bound to a kernel, ready to run.
    Layer(moe_layer, moe_layer_destroy): Send Sync
}

fn raw(context: Option<&Context>) -> *mut sys::moe_context {
    context.map_or(ptr::null_mut(), |c| c.0.as_ptr())
}

/// Bytes and length, as the functions that take text want them.
fn parts(text: &str) -> (*const c_char, usize) {
    (text.as_ptr().cast(), text.len())
}

impl Context {
    /// `options` is JSON, `{}` for the defaults: all CPUs of this process.
    pub fn new(options: &str) -> Result<Self, Error> {
        let (json, len) = parts(options);
        create(|out, err| unsafe { sys::moe_context_create(json, len, ptr::null(), out, err) }).map(Self)
    }
}

impl Config {
    /// From the library's own description of a layer.
    pub fn new(document: &str) -> Result<Self, Error> {
        let (json, len) = parts(document);
        create(|out, err| unsafe { sys::moe_config_create(json, len, out, err) }).map(Self)
    }

    /// From the text of a model's `config.json`; options such as `{"layer_index":3}`.
    pub fn from_hf(hf: &str, options: &str) -> Result<Self, Error> {
        let ((hf, hf_len), (options, options_len)) = (parts(hf), parts(options));
        create(|out, err| unsafe { sys::moe_config_create_from_hf(hf, hf_len, options, options_len, out, err) })
            .map(Self)
    }

    /// An integer or boolean of the resolved config by JSON pointer, such as `/num_experts`.
    pub fn int(&self, pointer: &str) -> Result<i64, Error> {
        let (pointer, mut value) = (c_string(pointer)?, 0);
        status(|err| unsafe { sys::moe_config_get_int(self.0.as_ptr(), pointer.as_ptr(), &mut value, err) })?;
        Ok(value)
    }

    /// The same for a string.
    pub fn string(&self, pointer: &str) -> Result<&str, Error> {
        let (pointer, mut value) = (c_string(pointer)?, ptr::null());
        status(|err| unsafe { sys::moe_config_get_string(self.0.as_ptr(), pointer.as_ptr(), &mut value, err) })?;
        Ok(unsafe { text(value) })
    }

    /// The resolved config as JSON: every default written out.
    pub fn to_json(&self) -> Result<String, Error> {
        owned_text(|out, err| unsafe { sys::moe_config_to_json(self.0.as_ptr(), out, err) })
    }
}

/// One considered kernel.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub backend: String,
    pub kernel: String,
    /// `MOE_REJECT_NONE`: could run this config.
    pub reason: &'static str,
    pub detail: String,
    pub subject: String,
    pub priority: i32,
    pub chosen: bool,
}

impl Selection {
    /// Asks all candidates; an error of status `MOE_ERR_NO_BACKEND` lists them in its details.
    pub fn new(context: Option<&Context>, config: &Config) -> Result<Self, Error> {
        create(|out, err| unsafe { sys::moe_select_backend(raw(context), config.0.as_ptr(), ptr::null(), 0, out, err) })
            .map(Self)
    }

    pub fn backend(&self) -> &str {
        unsafe { text(sys::moe_selection_backend(self.0.as_ptr())) }
    }

    pub fn kernel(&self) -> &str {
        unsafe { text(sys::moe_selection_kernel(self.0.as_ptr())) }
    }

    pub fn layout(&self) -> &str {
        unsafe { text(sys::moe_selection_layout(self.0.as_ptr())) }
    }

    pub fn candidates(&self) -> Result<Vec<Candidate>, Error> {
        let count = unsafe { sys::moe_selection_candidate_count(self.0.as_ptr()) };
        (0..count)
            .map(|i| unsafe {
                let mut c: sys::moe_candidate = sys::sized();
                status(|err| sys::moe_selection_candidate(self.0.as_ptr(), i, &mut c, err))?;
                Ok(Candidate {
                    backend: text(c.backend).into(),
                    kernel: text(c.kernel).into(),
                    reason: text(sys::moe_reject_name(c.reason)),
                    detail: text(c.detail).into(),
                    subject: text(c.subject).into(),
                    priority: c.priority,
                    chosen: c.chosen != 0,
                })
            })
            .collect()
    }
}

impl Weights {
    pub fn new(config: &Config) -> Result<Self, Error> {
        create(|out, err| unsafe { sys::moe_weights_create(config.0.as_ptr(), out, err) }).map(Self)
    }

    /// A `.safetensors` file, a `model.safetensors.index.json` or a directory.
    pub fn load_safetensors(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = c_path(path.as_ref())?;
        status(|err| unsafe { sys::moe_weights_load_safetensors(self.0.as_ptr(), path.as_ptr(), ptr::null(), err) })
    }

    /// A stacked tensor `[E, ...]`; the library owns the vector from now on.
    pub fn set<E: Element + Send + 'static>(&mut self, role: &str, data: Vec<E>, shape: &[i64]) -> Result<(), Error> {
        unsafe extern "C" fn release<E>(user: *mut c_void) {
            drop(Box::from_raw(user.cast::<Vec<E>>()));
        }
        let role = c_string(role)?;
        let view = Tensor::new(&data, shape)?.raw; // the vector's memory does not move with the vector
        let user = Box::into_raw(Box::new(data)).cast();
        status(|err| unsafe {
            sys::moe_weights_set(self.0.as_ptr(), role.as_ptr(), &view, Some(release::<E>), user, err)
        })
    }

    /// What is set, missing and unexpected, as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        owned_text(|out, err| unsafe { sys::moe_weights_to_json(self.0.as_ptr(), out, err) })
    }
}

impl Packed {
    /// Repacks the weights into the layout of the selection.
    pub fn convert(context: Option<&Context>, selection: &Selection, weights: &mut Weights) -> Result<Self, Error> {
        create(|out, err| unsafe {
            sys::moe_convert_weights(raw(context), selection.0.as_ptr(), weights.0.as_ptr(), ptr::null(), out, err)
        })
        .map(Self)
    }

    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = c_path(path.as_ref())?;
        status(|err| unsafe { sys::moe_packed_save(self.0.as_ptr(), path.as_ptr(), 0, ptr::null_mut(), err) })
    }

    /// Reads a saved file into memory; `flags` such as `sys::MOE_LOAD_VERIFY`.
    ///
    /// # Safety
    /// With `sys::MOE_LOAD_MMAP` the file must not change while the result is in use.
    pub unsafe fn load(context: Option<&Context>, path: impl AsRef<Path>, flags: u64) -> Result<Self, Error> {
        let path = c_path(path.as_ref())?;
        create(|out, err| sys::moe_packed_load(raw(context), path.as_ptr(), flags, ptr::null_mut(), out, err)).map(Self)
    }
}

/// Where the experts of a token come from.
pub enum Routing<'a> {
    /// Router logits `[T, E]`: the layer routes by its config's method.
    Logits(&'a Tensor<'a>),
    /// Expert ids `[T, K]` (i32 or i64, -1 skips) and weights `[T, K]` (f32).
    TopK { ids: &'a Tensor<'a>, weights: &'a Tensor<'a> },
}

impl Layer {
    pub fn new(context: Option<&Context>, selection: &Selection, packed: &Packed) -> Result<Self, Error> {
        create(|out, err| unsafe {
            sys::moe_layer_create(raw(context), selection.0.as_ptr(), packed.0.as_ptr(), ptr::null(), out, err)
        })
        .map(Self)
    }

    /// `out [T, H]` = the layer's answer to `hidden [T, H]`. Several threads may call it at once.
    pub fn apply(&self, hidden: &Tensor, routing: Routing, out: &mut TensorMut) -> Result<(), Error> {
        let mut args: sys::moe_apply_args = unsafe { sys::sized() };
        args.hidden = &hidden.raw;
        args.out = &out.raw;
        match routing {
            Routing::Logits(logits) => {
                args.mode = sys::MOE_APPLY_ROUTER_LOGITS;
                args.router_logits = &logits.raw;
            }
            Routing::TopK { ids, weights } => {
                args.mode = sys::MOE_APPLY_TOPK;
                args.topk_ids = &ids.raw;
                args.topk_weights = &weights.raw;
            }
        }
        status(|err| unsafe { sys::moe_apply(self.0.as_ptr(), &args, err) })
    }
}
