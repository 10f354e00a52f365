//! Mixture-of-Experts layers on the CPU: the safe face of libmoe.
//!
//! ```no_run
//! use libmoe::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::new("{}")?; // all CPUs of this process
//! let config = Config::from_hf(&std::fs::read_to_string("checkpoint/config.json")?, "{}")?;
//! let selection = Selection::new(Some(&context), &config)?;
//! let mut weights = Weights::new(&config)?;
//! weights.load_safetensors("checkpoint")?;
//! let packed = Packed::convert(Some(&context), &selection, &weights)?;
//! let layer = Layer::new(Some(&context), &selection, &packed)?;
//!
//! let (hidden, logits) = (vec![Bf16(0x3f80); 2048], vec![0f32; 128]); // one token
//! let mut out = vec![Bf16(0); 2048];
//! layer.apply(
//!     &Tensor::new(&hidden, &[1, 2048])?,
//!     Routing::Logits(&Tensor::new(&logits, &[1, 128])?),
//!     &mut TensorMut::new(&mut out, &[1, 2048])?,
//! )?;
//! # Ok(()) }
//! ```
//!
//! These are the steps of one layer. [`Checkpoint`] opens all layers of a model, and makes each of them in one call. [`Dist`]
//! spreads a layer over several ranks.
//!
//! Every value ends its handle when it is dropped, in any order: the library keeps what it needs. Calls that take `&self`
//! may come from several threads at once. Panics in callbacks become errors. What the documents (JSON) contain is in the
//! guide for callers of libmoe's sources, and in [`config_schema_json`].
//!
//! What borrowed memory cannot be used for does not compile. A tensor does not outlive its memory:
//!
//! ```compile_fail,E0597
//! let tensor = {
//!     let data = vec![0f32; 4];
//!     libmoe::Tensor::new(&data, &[4]).unwrap()
//! };
//! println!("{tensor:?}");
//! ```
//!
//! An output is no call's input, and no read-only memory:
//!
//! ```compile_fail,E0502
//! # fn f(layer: &libmoe::Layer, logits: &libmoe::Tensor) -> Result<(), libmoe::Error> {
//! let mut data = vec![0f32; 64];
//! let hidden = libmoe::Tensor::new(&data, &[1, 64])?;
//! let mut out = libmoe::TensorMut::new(&mut data, &[1, 64])?;
//! layer.apply(&hidden, libmoe::Routing::Logits(logits), &mut out)
//! # }
//! ```
//!
//! ```compile_fail,E0308
//! # fn f(layer: &libmoe::Layer, logits: &libmoe::Tensor, hidden: &libmoe::Tensor) -> Result<(), libmoe::Error> {
//! let data: &'static [f32] = &[0f32; 64];
//! let mut out = libmoe::TensorMut::new(data, &[1, 64])?;
//! layer.apply(hidden, libmoe::Routing::Logits(logits), &mut out)
//! # }
//! ```
//!
//! What a getter gives does not outlive the handle, and a handle is not dropped during a call:
//!
//! ```compile_fail,E0505
//! # fn f(selection: libmoe::Selection) {
//! let kernel = selection.kernel();
//! drop(selection);
//! println!("{kernel}");
//! # }
//! ```
//!
//! ```compile_fail,E0505
//! # fn f(model: libmoe::Checkpoint) -> Result<(), libmoe::Error> {
//! let info = model.layer_info(0)?;
//! drop(model);
//! println!("{}", info.name);
//! # Ok(()) }
//! ```
//!
//! ```compile_fail,E0505
//! # fn f(layer: libmoe::Layer, run: fn(&libmoe::Layer)) {
//! std::thread::scope(|scope| {
//!     scope.spawn(|| run(&layer));
//!     drop(layer);
//! });
//! # }
//! ```
//!
//! A set of weights is not changed while a view of it, or a conversion, is there:
//!
//! ```compile_fail,E0502
//! # fn f(weights: &mut libmoe::Weights, other: libmoe::OwnedTensor) -> Result<(), libmoe::Error> {
//! let tensor = weights.get("w2_weight", None)?;
//! weights.set("w2_weight", other)?;
//! println!("{:?}", tensor.view());
//! # Ok(()) }
//! ```
//!
//! A callback, or memory that the library keeps, is for any thread:
//!
//! ```compile_fail,E0277
//! let counter = std::rc::Rc::new(0);
//! libmoe::Control::with_progress(move |_, _| {
//!     println!("{counter}");
//!     std::ops::ControlFlow::Continue(())
//! });
//! ```

#![deny(missing_docs)]

#[macro_use]
mod handle;
mod buffer;
mod checkpoint;
mod comm;
mod config;
mod context;
mod control;
mod dist;
pub mod dlpack;
mod error;
mod layer;
mod library;
mod packed;
mod selection;
mod tensor;
mod weights;

pub use buffer::Buffer;
pub use checkpoint::{
    Checkpoint, CheckpointConvertOptions, CheckpointLayerOptions, CheckpointOpenOptions, LayerInfo, LayerKind,
};
pub use comm::{Comm, Exchange, Transport};
pub use config::{Config, Platform};
pub use context::{Allocator, Context, ContextBuilder, LogLevel, Tasks};
pub use control::{Control, Phase, Progress, Unit};
pub use dist::{Dist, DistCall};
pub use error::{Error, Status};
pub use layer::{ApplyOptions, Layer, LayerOptions, Routing};
pub use libmoe_sys as sys;
pub use library::{abi_json, build_info_json, config_schema_json, describe, has_feature, library, load, Library};
pub use packed::{ConvertOptions, LoadOptions, Packed};
pub use selection::{Candidate, Reject, SelectOptions, Selection};
pub use tensor::{Bf16, DType, Element, OwnedTensor, Tensor, TensorMut, F16};
pub use weights::{SourceTensor, WeightSource, Weights};
