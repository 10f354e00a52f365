//! Converted weights: made, looked at, saved, loaded.

use crate::buffer::Buffer;
use crate::context::{self, Context};
use crate::control::{self, Control};
use crate::error::{c_path, c_string, create, owned_text, status, Error};
use crate::handle::{into_user, release};
use crate::selection::Selection;
use crate::tensor::{Tensor, TensorMut};
use crate::weights::Weights;
use libmoe_sys as sys;
use std::path::Path;
use std::ptr;

handle! {
    /// Converted weights: immutable, shared by any number of layers.
    Packed(moe_packed, moe_packed_destroy)
}

/// How to convert.
#[derive(Default)]
pub struct ConvertOptions<'a> {
    /// Progress and cancellation.
    pub control: Option<&'a Control>,
    /// Bytes of temporary memory; 0: one expert's worth per thread.
    pub max_temp_bytes: u64,
    /// Where the result goes, of [`Selection::packed_size`]; by default memory of the library.
    pub destination: Option<Buffer>,
    /// Takes weights whose config has another layer's name.
    pub any_name: bool,
}

/// How to load.
#[derive(Clone, Copy, Default)]
pub struct LoadOptions<'a> {
    /// Compare content hashes; headers and index tensors are always checked.
    pub verify: bool,
    /// Touch all pages before returning.
    pub prefault: bool,
    /// Progress and cancellation.
    pub control: Option<&'a Control>,
}

impl LoadOptions<'_> {
    pub(crate) fn flags(&self) -> u64 {
        let verify = if self.verify { sys::MOE_LOAD_VERIFY } else { 0 };
        verify | if self.prefault { sys::MOE_LOAD_PREFAULT } else { 0 }
    }
}

impl Packed {
    /// Repacks the weights into the layout of the selection.
    pub fn convert(context: Option<&Context>, selection: &Selection, weights: &Weights) -> Result<Self, Error> {
        Self::convert_with(context, selection, weights, ConvertOptions::default())
    }

    /// The same, with options.
    pub fn convert_with(
        context: Option<&Context>,
        selection: &Selection,
        weights: &Weights,
        options: ConvertOptions,
    ) -> Result<Self, Error> {
        Self::run(context, selection, weights, options, 0)
    }

    /// The same; each source tensor is released once it is used, which empties the set.
    pub fn convert_releasing(
        context: Option<&Context>,
        selection: &Selection,
        weights: &mut Weights,
        options: ConvertOptions,
    ) -> Result<Self, Error> {
        Self::run(context, selection, weights, options, sys::MOE_CONVERT_RELEASE_SOURCES)
    }

    fn run(
        context: Option<&Context>,
        selection: &Selection,
        weights: &Weights,
        options: ConvertOptions,
        flags: u64,
    ) -> Result<Self, Error> {
        let mut raw: sys::moe_convert_options = unsafe { sys::sized() };
        raw.flags = flags | if options.any_name { sys::MOE_CONVERT_ANY_NAME } else { 0 };
        raw.max_temp_bytes = options.max_temp_bytes;
        raw.control = control::raw(options.control);
        if let Some(mut destination) = options.destination {
            raw.dst = destination.as_mut_ptr().cast();
            raw.dst_size = destination.len() as u64;
            raw.dst_release = Some(release::<Buffer>);
            raw.dst_user = into_user(destination);
        }
        let (context, selection, weights) = (context::raw(context), selection.as_raw(), weights.as_raw());
        create(|out, err| unsafe { sys::moe_convert_weights(context, selection, weights, &raw, out, err) }).map(Self)
    }

    /// The whole result as one position-independent block, which [`Packed::load_memory`] takes.
    pub fn data(&self) -> Result<&[u8], Error> {
        let (mut data, mut size) = (ptr::null_mut(), 0u64);
        status(|err| unsafe { sys::moe_packed_data(self.as_raw(), &mut data, &mut size, err) })?;
        Ok(if data.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(data as *const u8, size as usize) } })
    }

    /// One named output, such as "w13_packed", of one expert or of all, `[E, ...]`; [`Packed::to_json`] lists them.
    pub fn get(&self, role: &str, expert: Option<i64>) -> Result<Tensor<'_>, Error> {
        let (role, mut raw) = (c_string("role", role)?, unsafe { sys::sized() });
        status(|err| unsafe {
            sys::moe_packed_get(self.as_raw(), role.as_ptr(), expert.unwrap_or(-1), &mut raw, err)
        })?;
        Ok(unsafe { Tensor::of_raw(raw) })
    }

    /// Layout, config, experts, named outputs, sizes, content hash, as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        owned_text(|out, err| unsafe { sys::moe_packed_to_json(self.as_raw(), out, err) })
    }

    /// Reverses the packing of one expert: "w13_weight" or "w2_weight" into f32, f16 or bf16. For checks.
    pub fn dequantize(&self, role: &str, expert: i64, out: &mut TensorMut) -> Result<(), Error> {
        let role = c_string("role", role)?;
        status(|err| unsafe { sys::moe_packed_dequantize(self.as_raw(), role.as_ptr(), expert, &out.raw, err) })
    }

    /// Writes a file, which appears only when it is complete and on the disk.
    pub fn save(&self, path: impl AsRef<Path>, control: Option<&Control>) -> Result<(), Error> {
        let path = c_path(path.as_ref())?;
        status(|err| unsafe { sys::moe_packed_save(self.as_raw(), path.as_ptr(), 0, control::raw(control), err) })
    }

    /// Reads a saved file into memory.
    pub fn load(context: Option<&Context>, path: impl AsRef<Path>, options: LoadOptions) -> Result<Self, Error> {
        Self::load_flags(context, path.as_ref(), options.flags(), options)
    }

    /// Maps a saved file instead: its pages are shared, and read when they are used.
    ///
    /// # Safety
    /// The file must not change while the result, or a layer of it, is in use; once it is shorter, reading the lost pages
    /// ends the process.
    pub unsafe fn map(context: Option<&Context>, path: impl AsRef<Path>, options: LoadOptions) -> Result<Self, Error> {
        Self::load_flags(context, path.as_ref(), options.flags() | sys::MOE_LOAD_MMAP, options)
    }

    fn load_flags(context: Option<&Context>, path: &Path, flags: u64, options: LoadOptions) -> Result<Self, Error> {
        let (context, path, control) = (context::raw(context), c_path(path)?, control::raw(options.control));
        create(|out, err| unsafe { sys::moe_packed_load(context, path.as_ptr(), flags, control, out, err) }).map(Self)
    }

    /// From a block of [`Packed::data`], which is kept; copied only when it is not aligned to 64 bytes. `options.control`
    /// is not used.
    pub fn load_memory<M>(context: Option<&Context>, block: M, options: LoadOptions) -> Result<Self, Error>
    where
        M: AsRef<[u8]> + Send + Sync + 'static,
    {
        crate::library()?;
        let block = Box::new(block); // stays where it is from now on, and is not touched
        let (data, size) = ((*block).as_ref().as_ptr(), (*block).as_ref().len());
        let (context, user) = (context::raw(context), Box::into_raw(block).cast());
        create(|out, err| unsafe {
            sys::moe_packed_load_memory(context, data.cast(), size, options.flags(), Some(release::<M>), user, out, err)
        })
        .map(Self)
    }
}
