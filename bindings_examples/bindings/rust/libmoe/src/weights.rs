//! Source tensors of a layer: set one by one, found in files, or given by a source when conversion asks.

use crate::buffer::Buffer;
use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::error::{c_path, c_string, create, guarded, owned_text, status, text, Error, Status};
use crate::handle::{into_user, release};
use crate::tensor::{OwnedTensor, Tensor};
use libmoe_sys as sys;
use std::any::Any;
use std::collections::HashMap;
use std::ffi::CString;
use std::marker::PhantomData;
use std::os::raw::{c_char, c_void};
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

handle! {
    /// Source tensors of one layer, changed through `&mut`.
    Weights(moe_weights, moe_weights_destroy)
}

/// Where conversion gets tensors from, expert by expert, so that only a few are in memory at a time.
pub trait WeightSource: Send + Sync + 'static {
    /// The tensor `[...]` of one expert, or `None` for what this source does not have. A w13 role is asked for as a whole
    /// (`shard` `None`) first, then as "w1" and "w3". Comes from several threads at once unless [`WeightSource::SERIAL`].
    /// The tensor is dropped when it is no longer used. An error, or a panic, ends the conversion.
    fn get(&self, role: &str, expert: i64, shard: Option<&str>) -> Result<Option<OwnedTensor>, Error>;

    /// One call at a time.
    const SERIAL: bool = false;
}

type Memory = Box<dyn Any + Send + Sync>;
/// A place and an address: what the library gives back when it is done with a tensor.
type Lease = (String, i64, Option<String>, usize);

struct Source<S> {
    source: S,
    given: Mutex<HashMap<Lease, Vec<Memory>>>,
}

impl<S> Source<S> {
    fn given(&self) -> MutexGuard<'_, HashMap<Lease, Vec<Memory>>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

unsafe fn lease(role: *const c_char, expert: i64, shard: *const c_char, data: *mut c_void) -> Lease {
    (text(role).into(), expert, (!shard.is_null()).then(|| text(shard).into()), data as usize)
}

unsafe extern "C" fn get<S: WeightSource>(
    user: *mut c_void,
    role: *const c_char,
    expert: i64,
    shard: *const c_char,
    out: *mut sys::moe_tensor,
    err: *mut *mut sys::moe_error,
) -> i32 {
    let source = &*user.cast::<Source<S>>();
    let asked =
        guarded("the weight source", || source.source.get(text(role), expert, (!shard.is_null()).then(|| text(shard))));
    let error = match asked {
        Ok(Ok(Some(tensor))) => {
            let place = lease(role, expert, shard, tensor.raw.data);
            source.given().entry(place).or_default().push(tensor.memory);
            *out = tensor.raw;
            return sys::MOE_OK;
        }
        Ok(Ok(None)) => Error::new(Status::MISSING_WEIGHT, "the source does not have it"),
        Ok(Err(error)) | Err(error) => error,
    };
    let status = if error.status().0 == sys::MOE_OK { sys::MOE_ERR_CALLBACK } else { error.status().0 };
    *err = error.into_raw();
    status
}

unsafe extern "C" fn put<S: WeightSource>(
    user: *mut c_void,
    role: *const c_char,
    expert: i64,
    shard: *const c_char,
    tensor: *const sys::moe_tensor,
) {
    let source = &*user.cast::<Source<S>>();
    let place = lease(role, expert, shard, (*tensor).data);
    let mut given = source.given();
    let memory = given.get_mut(&place).and_then(Vec::pop);
    if given.get(&place).map_or(false, Vec::is_empty) {
        given.remove(&place);
    }
    drop(given);
    let _ = guarded("the drop of a tensor", || drop(memory));
}

fn optional(name: &str, text: Option<&str>) -> Result<Option<CString>, Error> {
    text.map(|text| c_string(name, text)).transpose()
}

fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

impl Weights {
    /// An empty set.
    pub fn new(config: &Config) -> Result<Self, Error> {
        create(|out, err| unsafe { sys::moe_weights_create(config.as_raw(), out, err) }).map(Self)
    }

    /// A set whose tensors come from a source while conversion runs.
    pub fn from_source<S: WeightSource>(config: &Config, source: S) -> Result<Self, Error> {
        let mut ops: sys::moe_weight_source_ops = unsafe { sys::sized() };
        ops.serial = S::SERIAL.into();
        ops.user = into_user(Source { source, given: Mutex::default() });
        ops.get = Some(get::<S>);
        ops.put = Some(put::<S>);
        ops.destroy = Some(release::<Source<S>>);
        create(|out, err| unsafe { sys::moe_weights_create_from_source(config.as_raw(), &ops, out, err) }).map(Self)
    }

    /// A stacked tensor `[E, ...]` of a role such as "w13_weight". The library keeps its memory.
    pub fn set(&mut self, role: &str, tensor: OwnedTensor) -> Result<(), Error> {
        let role = c_string("role", role)?;
        let (view, release, user) = tensor.into_kept();
        status(|err| unsafe { sys::moe_weights_set(self.as_raw(), role.as_ptr(), &view, release, user, err) })
    }

    /// The same for one expert `[...]`. Shard "w1" (gate) or "w3" (up): half of a w13 role.
    pub fn set_expert(
        &mut self,
        role: &str,
        expert: i64,
        shard: Option<&str>,
        tensor: OwnedTensor,
    ) -> Result<(), Error> {
        let (role, shard) = (c_string("role", role)?, optional("shard", shard)?);
        let (view, release, user) = tensor.into_kept();
        status(|err| unsafe {
            let (weights, role, shard) = (self.as_raw(), role.as_ptr(), pointer(&shard));
            sys::moe_weights_set_expert(weights, role, expert, shard, &view, release, user, err)
        })
    }

    /// The same by the name that a checkpoint uses, with the whole tensor; `false` when it belongs to another layer.
    pub fn set_named(&mut self, name: &str, tensor: OwnedTensor) -> Result<bool, Error> {
        let (name, mut consumed) = (c_string("name", name)?, 0);
        let (view, release, user) = tensor.into_kept();
        status(|err| unsafe {
            sys::moe_weights_set_named(self.as_raw(), name.as_ptr(), &view, release, user, &mut consumed, err)
        })?;
        Ok(consumed != 0)
    }

    /// Finds the layer in a `.safetensors` file, a `model.safetensors.index.json` or a directory. Headers are read now,
    /// tensors during conversion.
    pub fn load_safetensors(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.load_module(path.as_ref(), None)
    }

    /// The same with another name prefix of the layer than the config's.
    pub fn load_safetensors_module(&mut self, path: impl AsRef<Path>, module: &str) -> Result<(), Error> {
        self.load_module(path.as_ref(), Some(module))
    }

    fn load_module(&mut self, path: &Path, module: Option<&str>) -> Result<(), Error> {
        let (path, module) = (c_path(path)?, optional("module", module)?);
        status(|err| unsafe { sys::moe_weights_load_safetensors(self.as_raw(), path.as_ptr(), pointer(&module), err) })
    }

    /// The same from files that a checkpoint has open, for a config of [`Checkpoint::config`].
    pub fn load_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        status(|err| unsafe { sys::moe_weights_load_checkpoint(self.as_raw(), checkpoint.as_raw(), err) })
    }

    /// What is set, missing and unexpected, as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        owned_text(|out, err| unsafe { sys::moe_weights_to_json(self.as_raw(), out, err) })
    }

    /// One expert's tensor of a role (w13 joined), or all of them, `[E, ...]`.
    pub fn get(&self, role: &str, expert: Option<i64>) -> Result<SourceTensor<'_>, Error> {
        let (role, mut raw, mut hold) = (c_string("role", role)?, unsafe { sys::sized() }, ptr::null_mut());
        status(|err| unsafe {
            sys::moe_weights_get(self.as_raw(), role.as_ptr(), expert.unwrap_or(-1), &mut raw, &mut hold, err)
        })?;
        Ok(SourceTensor { raw, _hold: ptr::NonNull::new(hold).map(Buffer::of), weights: PhantomData })
    }
}

/// A tensor of a set: in its memory, or read or joined into memory of its own.
pub struct SourceTensor<'a> {
    raw: sys::moe_tensor,
    _hold: Option<Buffer>,
    weights: PhantomData<&'a Weights>,
}

impl SourceTensor<'_> {
    /// The tensor, to read from.
    pub fn view(&self) -> Tensor<'_> {
        unsafe { Tensor::of_raw(self.raw) }
    }
}
