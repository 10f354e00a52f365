//! Views of Rust memory: a slice, a shape, and a lifetime that ties them together.

use crate::error::{c_string, Error};
use libmoe_sys as sys;
use std::marker::PhantomData;
use std::mem::size_of_val;
use std::os::raw::c_void;

/// The bits of a bfloat16 number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// The bits of an IEEE half-precision number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// An element type by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct DType(pub i32);

impl DType {
    /// "bf16", "bfloat16", "torch.bfloat16", "BF16"; `None` for unknown words.
    pub fn from_name(name: &str) -> Option<DType> {
        let dtype = unsafe { sys::moe_dtype_from_name(c_string(name).ok()?.as_ptr()) };
        (dtype != sys::MOE_DTYPE_INVALID).then_some(DType(dtype))
    }

    /// Bytes of a row-major tensor of this type; negative for shapes that cannot be.
    pub fn bytes(self, shape: &[i64]) -> i64 {
        unsafe { sys::moe_tensor_nbytes(self.0, shape.len() as i32, shape.as_ptr()) }
    }
}

/// Rust types with a libmoe dtype.
///
/// # Safety
/// `DTYPE` must describe exactly the memory of `Self`.
pub unsafe trait Element: Copy {
    const DTYPE: DType;
}

macro_rules! elements {
    ($($name:ty = $dtype:ident)*) => { $(unsafe impl Element for $name { const DTYPE: DType = DType(sys::$dtype); })* };
}
elements! {
    f32 = MOE_DTYPE_F32  F16 = MOE_DTYPE_F16  Bf16 = MOE_DTYPE_BF16
    i8 = MOE_DTYPE_I8  u8 = MOE_DTYPE_U8  i32 = MOE_DTYPE_I32  i64 = MOE_DTYPE_I64
}

/// A row-major tensor to read from.
pub struct Tensor<'a> {
    pub(crate) raw: sys::moe_tensor,
    memory: PhantomData<&'a [u8]>,
}

/// A row-major tensor to write to.
pub struct TensorMut<'a> {
    pub(crate) raw: sys::moe_tensor,
    memory: PhantomData<&'a mut [u8]>,
}

fn view(dtype: DType, shape: &[i64], data: *mut c_void, bytes: usize) -> Result<sys::moe_tensor, Error> {
    let needed = if shape.len() > sys::MOE_MAX_DIMS { -1 } else { dtype.bytes(shape) };
    if needed != bytes as i64 {
        let message = format!("the shape {shape:?} takes {needed} bytes, the slice has {bytes}");
        return Err(Error::new(sys::MOE_ERR_SHAPE, "", message));
    }
    let mut raw: sys::moe_tensor = unsafe { sys::sized() };
    raw.dtype = dtype.0;
    raw.ndim = shape.len() as i32;
    raw.shape[..shape.len()].copy_from_slice(shape);
    raw.data = data;
    raw.nbytes = bytes as u64;
    Ok(raw)
}

impl<'a> Tensor<'a> {
    pub fn new<E: Element>(data: &'a [E], shape: &[i64]) -> Result<Self, Error> {
        let raw = view(E::DTYPE, shape, data.as_ptr() as *mut c_void, size_of_val(data))?;
        Ok(Tensor { raw, memory: PhantomData })
    }

    /// Bytes whose type is known at run time only.
    pub fn from_bytes(dtype: DType, data: &'a [u8], shape: &[i64]) -> Result<Self, Error> {
        Ok(Tensor { raw: view(dtype, shape, data.as_ptr() as *mut c_void, data.len())?, memory: PhantomData })
    }
}

impl<'a> TensorMut<'a> {
    pub fn new<E: Element>(data: &'a mut [E], shape: &[i64]) -> Result<Self, Error> {
        let raw = view(E::DTYPE, shape, data.as_mut_ptr().cast(), size_of_val(data))?;
        Ok(TensorMut { raw, memory: PhantomData })
    }

    pub fn from_bytes(dtype: DType, data: &'a mut [u8], shape: &[i64]) -> Result<Self, Error> {
        Ok(TensorMut { raw: view(dtype, shape, data.as_mut_ptr().cast(), data.len())?, memory: PhantomData })
    }
}
