//! Layers: converted weights bound to a kernel, and the call that runs them.

use crate::context::{self, Context};
use crate::control::{self, Control};
use crate::error::{create, owned_text, status, Error, Status};
use crate::packed::Packed;
use crate::selection::Selection;
use crate::tensor::{Element, Tensor, TensorMut};
use libmoe_sys as sys;
use std::ptr;

handle! {
    /// Converted weights bound to a kernel, ready to run. Several threads may call it at once.
    Layer(moe_layer, moe_layer_destroy)
}

/// Where the experts of a token come from.
#[derive(Clone, Copy, Debug)]
pub enum Routing<'a> {
    /// Router logits `[T, G]`: the layer routes by its config's method.
    Logits(&'a Tensor<'a>),
    /// Expert ids `[T, K]` (i32 or i64, -1 skips) and weights `[T, K]` (f32).
    TopK {
        /// The experts of each token.
        ids: &'a Tensor<'a>,
        /// What their outputs are multiplied by.
        weights: &'a Tensor<'a>,
    },
    /// Hash routing: ids `[T, top_k]` of the caller, whose weights come from the logits `[T, G]`.
    Hash {
        /// The router's scores.
        logits: &'a Tensor<'a>,
        /// The experts of each token.
        ids: &'a Tensor<'a>,
    },
}

/// What a layer takes instead of what its config or checkpoint says.
#[derive(Clone, Copy, Default)]
pub struct LayerOptions<'a> {
    /// `[G]` or `[1, G]`, f32, f16 or bf16.
    pub correction_bias: Option<&'a Tensor<'a>>,
    /// `[G]` i32: place in `[E, ...]` or -1.
    pub expert_map: Option<&'a Tensor<'a>>,
    /// Takes weights whose config has another layer's name.
    pub any_name: bool,
}

/// Options of one call, and what it gives besides its output.
#[derive(Default)]
pub struct ApplyOptions<'a> {
    /// Adds to the output instead of replacing it.
    pub accumulate: bool,
    /// Memory of [`Layer::workspace_size`], such as a [`crate::Buffer`]; by default the library's.
    pub workspace: Option<&'a mut [u8]>,
    /// Progress and cancellation.
    pub control: Option<&'a Control>,
    /// Receives the ids that routing chose, `[T, K]` i32.
    pub chosen_ids: Option<TensorMut<'a>>,
    /// Receives their weights, `[T, K]` f32.
    pub chosen_weights: Option<TensorMut<'a>>,
}

fn tensor(tensor: Option<&Tensor>) -> *const sys::moe_tensor {
    tensor.map_or(ptr::null(), |tensor| &tensor.raw)
}

/// What `moe_apply` and its like take: pointers to what the arguments borrow.
pub(crate) fn apply_args(
    hidden: &sys::moe_tensor,
    routing: Routing,
    out: &sys::moe_tensor,
    options: &mut ApplyOptions,
    flags: u64,
) -> sys::moe_apply_args {
    let mut args: sys::moe_apply_args = unsafe { sys::sized() };
    args.flags = flags | if options.accumulate { sys::MOE_APPLY_ACCUMULATE } else { 0 };
    args.hidden = hidden;
    args.out = out;
    let (logits, ids, weights) = match routing {
        Routing::Logits(logits) => (Some(logits), None, None),
        Routing::TopK { ids, weights } => (None, Some(ids), Some(weights)),
        Routing::Hash { logits, ids } => (Some(logits), Some(ids), None),
    };
    args.mode = if logits.is_some() { sys::MOE_APPLY_ROUTER_LOGITS } else { sys::MOE_APPLY_TOPK };
    (args.router_logits, args.topk_ids, args.topk_weights) = (tensor(logits), tensor(ids), tensor(weights));
    if let Some(workspace) = options.workspace.as_deref_mut() {
        args.workspace = workspace.as_mut_ptr().cast();
        args.workspace_size = workspace.len() as u64;
    }
    args.control = control::raw(options.control);
    args.out_topk_ids = options.chosen_ids.as_ref().map_or(ptr::null(), |ids| &ids.raw);
    args.out_topk_weights = options.chosen_weights.as_ref().map_or(ptr::null(), |weights| &weights.raw);
    args
}

impl LayerOptions<'_> {
    pub(crate) fn raw(&self) -> sys::moe_layer_options {
        let mut raw: sys::moe_layer_options = unsafe { sys::sized() };
        raw.correction_bias = tensor(self.correction_bias);
        raw.expert_map = tensor(self.expert_map);
        raw.flags = if self.any_name { sys::MOE_LAYER_ANY_NAME } else { 0 };
        raw
    }
}

impl Layer {
    /// Layout and config of `packed` must be the selection's. The context lends threads and memory to every call.
    pub fn new(context: Option<&Context>, selection: &Selection, packed: &Packed) -> Result<Self, Error> {
        Self::with(context, selection, packed, LayerOptions::default())
    }

    /// The same, with options.
    pub fn with(
        context: Option<&Context>,
        selection: &Selection,
        packed: &Packed,
        options: LayerOptions,
    ) -> Result<Self, Error> {
        let raw = options.raw();
        let (context, selection, packed) = (context::raw(context), selection.as_raw(), packed.as_raw());
        create(|out, err| unsafe { sys::moe_layer_create(context, selection, packed, &raw, out, err) }).map(Self)
    }

    /// `out [T, H]` = the layer's answer to `hidden [T, H]`.
    pub fn apply(&self, hidden: &Tensor, routing: Routing, out: &mut TensorMut) -> Result<(), Error> {
        self.apply_with(hidden, routing, out, &mut ApplyOptions::default())
    }

    /// The same, with options.
    pub fn apply_with(
        &self,
        hidden: &Tensor,
        routing: Routing,
        out: &mut TensorMut,
        options: &mut ApplyOptions,
    ) -> Result<(), Error> {
        self.run(&hidden.raw, routing, &out.raw, options, 0)
    }

    /// The output replaces the input; only where the config's `disable_inplace` is false.
    pub fn apply_in_place(
        &self,
        hidden: &mut TensorMut,
        routing: Routing,
        options: &mut ApplyOptions,
    ) -> Result<(), Error> {
        self.run(&hidden.raw, routing, &hidden.raw, options, sys::MOE_APPLY_IN_PLACE)
    }

    fn run(
        &self,
        hidden: &sys::moe_tensor,
        routing: Routing,
        out: &sys::moe_tensor,
        options: &mut ApplyOptions,
        flags: u64,
    ) -> Result<(), Error> {
        let args = apply_args(hidden, routing, out, options, flags);
        status(|err| unsafe { sys::moe_apply(self.as_raw(), &args, err) })
    }

    /// [`Layer::apply`] without tensors; all slices without gaps. `logits` `None`: ids and weights are given.
    ///
    /// # Safety
    /// The library cannot see how long the slices are: `hidden` and `out` have `tokens` * H elements, `logits` has
    /// `tokens` * G, `ids` and `weights` have `tokens` * K where they are given.
    pub unsafe fn apply_flat<X: Element, L: Element, O: Element>(
        &self,
        tokens: usize,
        hidden: &[X],
        logits: Option<&[L]>,
        topk: Option<(&[i32], &[f32])>,
        out: &mut [O],
    ) -> Result<(), Error> {
        let tokens = i64::try_from(tokens).map_err(|_| {
            Error::at(Status::INVALID_ARGUMENT, "tokens", format!("found {tokens}, expected a number below 2^63"))
        })?;
        status(|err| {
            sys::moe_apply_flat(
                self.as_raw(),
                tokens,
                X::DTYPE.0,
                hidden.as_ptr().cast(),
                L::DTYPE.0,
                logits.map_or(ptr::null(), |logits| logits.as_ptr().cast()),
                topk.map_or(ptr::null(), |(ids, _)| ids.as_ptr().cast()),
                topk.map_or(ptr::null(), |(_, weights)| weights.as_ptr().cast()),
                O::DTYPE.0,
                out.as_mut_ptr().cast(),
                err,
            )
        })
    }

    /// Bytes and alignment of the workspace of a call with router logits, or with ids and weights (`top_k` true).
    pub fn workspace_size(&self, tokens: usize, top_k: bool) -> Result<(u64, u64), Error> {
        let mode = if top_k { sys::MOE_APPLY_TOPK } else { sys::MOE_APPLY_ROUTER_LOGITS };
        let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
        let (mut bytes, mut alignment) = (0, 0);
        status(|err| unsafe {
            sys::moe_layer_workspace_size(self.as_raw(), mode, tokens, &mut bytes, &mut alignment, err)
        })?;
        Ok((bytes, alignment))
    }

    /// Config, kernel, threads, memory use, as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        owned_text(|out, err| unsafe { sys::moe_layer_to_json(self.as_raw(), out, err) })
    }

    /// Tokens routed to each expert that this layer holds, since the last `reset`.
    pub fn expert_counts(&self, reset: bool) -> Result<Vec<u64>, Error> {
        const UNUSED: u64 = u64::MAX; // no count ever comes there
        let mut counts = vec![UNUSED; 512];
        loop {
            let (start, capacity) = (counts.as_mut_ptr(), counts.len());
            match status(|err| unsafe {
                sys::moe_layer_expert_counts(self.as_raw(), start, capacity, reset.into(), err)
            }) {
                Err(error) if error.status() == Status::BUFFER_TOO_SMALL && capacity < 1 << 20 => {
                    counts = vec![UNUSED; capacity * 8];
                }
                Err(error) => return Err(error),
                Ok(()) => {
                    counts.truncate(counts.iter().position(|count| *count == UNUSED).unwrap_or(capacity));
                    return Ok(counts);
                }
            }
        }
    }
}
