//! Layers that are spread over several ranks.

use crate::comm::Comm;
use crate::config::Config;
use crate::context::{self, Context};
use crate::error::{create, owned_text, status, Error};
use crate::layer::{apply_args, ApplyOptions, Layer, Routing};
use crate::tensor::{Tensor, TensorMut};
use libmoe_sys as sys;
use std::marker::PhantomData;
use std::ptr;

handle! {
    /// A layer over all ranks of a communicator. Every rank makes one with the whole layer's config, attaches the layer of
    /// its part, and gives its own tokens to each call.
    ///
    /// `new`, `attach`, `apply` and `begin` are collective: every rank calls them, in the same order, also with no token and
    /// with no expert. What fails on one rank is [`crate::Status::PEER`] on the others. Communicator, context and layer are
    /// kept as long as they are needed.
    ///
    /// ```
    /// use libmoe::*;
    /// # fn part(config: &Config) -> Result<Layer, Error> {
    /// #     let (selection, mut weights) = (Selection::new(None, config)?, Weights::new(config)?);
    /// #     weights.set("w13_weight", OwnedTensor::new(vec![0f32; 2 * 64 * 64], &[2, 64, 64])?)?;
    /// #     weights.set("w2_weight", OwnedTensor::new(vec![0f32; 2 * 64 * 32], &[2, 64, 32])?)?;
    /// #     Layer::new(None, &selection, &Packed::convert(None, &selection, &weights)?)
    /// # }
    /// let whole = Config::new(
    ///     r#"{"num_experts":2,"top_k":1,"hidden_dim":64,"intermediate_size":32,"in_dtype":"float32",
    ///         "router_logits_dtype":"float32"}"#,
    /// )?;
    /// let mut comm = Comm::threads(1)?.remove(0); // one rank: the thread that runs this
    /// let mut dist = Dist::new(None, &mut comm, &whole, "{}")?;
    /// let layer = part(&dist.local_config()?)?; // with the weights of this rank's experts
    /// dist.attach(Some(&layer))?;
    /// let (hidden, logits, mut out) = ([1f32; 64], [0f32; 2], [f32::NAN; 64]);
    /// let (hidden, logits) = (Tensor::new(&hidden, &[1, 64])?, Tensor::new(&logits, &[1, 2])?);
    /// dist.apply(&hidden, Routing::Logits(&logits), &mut TensorMut::new(&mut out, &[1, 64])?)?;
    /// assert_eq!(out, [0f32; 64]);
    /// # Ok::<(), Error>(())
    /// ```
    Dist(moe_dist, moe_dist_destroy)
}

/// A call that [`Dist::begin`] has begun. Dropped before its end it is left without a wait, which poisons the communicator
/// if other ranks may still wait for this one.
///
/// Until then the layer and the tensors are in use:
///
/// ```compile_fail,E0499
/// # use libmoe::*;
/// # fn f(dist: &mut Dist, x: &Tensor, logits: &Tensor, out: &mut TensorMut) -> Result<(), Error> {
/// let mut options = ApplyOptions::default();
/// let call = dist.begin(x, Routing::Logits(logits), out, &mut options)?;
/// dist.attach(None)?;
/// call.finish()
/// # }
/// ```
///
/// ```compile_fail,E0502
/// # use libmoe::*;
/// # fn f(dist: &mut Dist, x: &Tensor, logits: &Tensor) -> Result<(), Error> {
/// let (mut data, mut options) = (vec![0f32; 64], ApplyOptions::default());
/// let mut out = TensorMut::new(&mut data, &[1, 64])?;
/// let call = dist.begin(x, Routing::Logits(logits), &mut out, &mut options)?;
/// println!("{}", data[0]);
/// call.finish()
/// # }
/// ```
pub struct DistCall<'a> {
    raw: *mut sys::moe_dist_call, // NULL: ended
    _args: Box<sys::moe_apply_args>,
    lent: PhantomData<&'a mut Dist>,
}

// SAFETY: what it lends is a `Dist`, tensors, a control and slices, which all go to any thread; `Sync` gives nothing, since
// every function takes `&mut self` or the value.
unsafe impl Send for DistCall<'_> {}
unsafe impl Sync for DistCall<'_> {}

impl Dist {
    /// `config` describes the whole layer. `options` is JSON, `{}` for the defaults: `mode`, `placement`, `combine`,
    /// `max_tokens_per_rank`, `workspace_mb`, `chunk_tokens`, `layer_id`. Config and options of all ranks must agree. The
    /// context lends threads and memory.
    pub fn new(context: Option<&Context>, comm: &mut Comm, config: &Config, options: &str) -> Result<Self, Error> {
        let (context, comm, config) = (context::raw(context), comm.as_raw(), config.as_raw());
        let (json, len) = (options.as_ptr().cast(), options.len());
        create(|out, err| unsafe { sys::moe_dist_create(context, comm, config, json, len, out, err) }).map(Self)
    }

    /// The config of this rank's part, of which its layer is made. A rank without experts has none
    /// ([`crate::Status::STATE`]).
    pub fn local_config(&self) -> Result<Config, Error> {
        create(|out, err| unsafe { sys::moe_dist_local_config(self.as_raw(), out, err) }).map(Config)
    }

    /// The layer of [`Dist::local_config`]; `None` exactly where this rank holds no expert.
    pub fn attach(&mut self, layer: Option<&Layer>) -> Result<(), Error> {
        let layer = layer.map_or(ptr::null_mut(), Layer::as_raw);
        status(|err| unsafe { sys::moe_dist_attach(self.as_raw(), layer, err) })
    }

    /// [`Layer::apply`] over all ranks, with this rank's tokens: as many as it has, also 0.
    pub fn apply(&mut self, hidden: &Tensor, routing: Routing, out: &mut TensorMut) -> Result<(), Error> {
        self.apply_with(hidden, routing, out, &mut ApplyOptions::default())
    }

    /// The same, with options; `workspace` must be `None`. A cancel counts until the ranks begin to exchange.
    pub fn apply_with(
        &mut self,
        hidden: &Tensor,
        routing: Routing,
        out: &mut TensorMut,
        options: &mut ApplyOptions,
    ) -> Result<(), Error> {
        let args = apply_args(&hidden.raw, routing, &out.raw, options, 0);
        status(|err| unsafe { sys::moe_dist_apply(self.as_raw(), &args, err) })
    }

    /// [`Dist::apply_with`] in steps, for other work in between.
    ///
    /// ```
    /// # use libmoe::*;
    /// # fn f(dist: &mut Dist, x: &Tensor, logits: &Tensor, out: &mut TensorMut) -> Result<(), Error> {
    /// let mut options = ApplyOptions::default();
    /// let mut call = dist.begin(x, Routing::Logits(logits), out, &mut options)?;
    /// while !call.poll()? {
    ///     std::thread::yield_now(); // yours: other work
    /// }
    /// call.finish()
    /// # }
    /// ```
    pub fn begin<'a>(
        &'a mut self,
        hidden: &'a Tensor,
        routing: Routing<'a>,
        out: &'a mut TensorMut,
        options: &'a mut ApplyOptions,
    ) -> Result<DistCall<'a>, Error> {
        // SAFETY: `'a` keeps the tensors, the control and this value for as long as the call can be polled, finished or
        // dropped. Only in these functions, and in moe_dist_begin, does the library look at them (impl/dist/call.cpp: step,
        // route_tokens): no thread of its own does, and transports get buffers of the library alone, never a tensor. So
        // memory that outlives its borrow because a DistCall was forgotten is not used again: the forgotten call keeps the
        // communicator claimed, and every other call of it is Status::BUSY before it looks at anything.
        let args = Box::new(apply_args(&hidden.raw, routing, &out.raw, options, 0));
        let raw = create(|out, err| unsafe { sys::moe_dist_begin(self.as_raw(), &*args, out, err) })?;
        Ok(DistCall { raw: raw.as_ptr(), _args: args, lent: PhantomData })
    }

    /// Options as resolved, the experts of this rank, what it has sent and how long it has waited, as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        owned_text(|out, err| unsafe { sys::moe_dist_to_json(self.as_raw(), out, err) })
    }
}

impl DistCall<'_> {
    /// Goes on as far as it can without a wait for another rank; it may compute. True: [`DistCall::finish`] would not wait,
    /// and says how the call went.
    pub fn poll(&mut self) -> Result<bool, Error> {
        let mut done = 0;
        status(|err| unsafe { sys::moe_dist_poll(self.raw, &mut done, err) })?;
        Ok(done != 0)
    }

    /// Waits for the end, and says how the call went.
    pub fn finish(mut self) -> Result<(), Error> {
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut()); // it ends in every outcome
        status(|err| unsafe { sys::moe_dist_finish(raw, err) })
    }
}

impl Drop for DistCall<'_> {
    fn drop(&mut self) {
        unsafe { sys::moe_dist_call_destroy(self.raw) }
    }
}

impl std::fmt::Debug for DistCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "DistCall({:p})", self.raw)
    }
}
