//! Tensors: element types, and views of memory with a shape and a lifetime.

use crate::error::{c_string, text, Error, Status};
use crate::handle::{into_user, release};
use libmoe_sys as sys;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{align_of, size_of_val};
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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct DType(pub i32);

impl DType {
    /// "bf16", "bfloat16", "torch.bfloat16", "BF16"; `None` for unknown words.
    pub fn from_name(name: &str) -> Option<DType> {
        let dtype = unsafe { sys::moe_dtype_from_name(c_string("name", name).ok()?.as_ptr()) };
        (dtype != sys::MOE_DTYPE_INVALID).then_some(DType(dtype))
    }

    /// "bf16", "f8_e4m3fn", ...
    pub fn name(self) -> &'static str {
        unsafe { text(sys::moe_dtype_name(self.0)) }
    }

    /// Bytes of a row-major tensor of this type; `None` for shapes that cannot be.
    pub fn bytes(self, shape: &[i64]) -> Option<usize> {
        let ndim = shape.len().min(sys::MOE_MAX_DIMS + 1) as i32; // more are refused anyway
        let bytes = unsafe { sys::moe_tensor_nbytes(self.0, ndim, shape.as_ptr().cast()) };
        usize::try_from(bytes).ok()
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Rust types with a libmoe dtype.
///
/// # Safety
/// `DTYPE` must describe exactly the memory of `Self`, of which any bits are a value.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The type's number.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($name:ty = $dtype:ident)*) => { $(unsafe impl Element for $name { const DTYPE: DType = DType(sys::$dtype); })* };
}
elements! {
    f32 = MOE_DTYPE_F32  f64 = MOE_DTYPE_F64  F16 = MOE_DTYPE_F16  Bf16 = MOE_DTYPE_BF16
    i8 = MOE_DTYPE_I8  i16 = MOE_DTYPE_I16  i32 = MOE_DTYPE_I32  i64 = MOE_DTYPE_I64
    u8 = MOE_DTYPE_U8  u16 = MOE_DTYPE_U16  u32 = MOE_DTYPE_U32  u64 = MOE_DTYPE_U64
}

/// A tensor to read from, in borrowed memory.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    pub(crate) raw: sys::moe_tensor,
    memory: PhantomData<&'a [u8]>,
}

/// A tensor to write to, in borrowed memory.
pub struct TensorMut<'a> {
    pub(crate) raw: sys::moe_tensor,
    memory: PhantomData<&'a mut [u8]>,
}

/// A tensor with the memory that it views: for weights, which the library keeps.
pub struct OwnedTensor {
    pub(crate) raw: sys::moe_tensor,
    pub(crate) memory: Box<dyn Any + Send + Sync>,
}

// They are like the slices that they view.
unsafe impl Send for Tensor<'_> {}
unsafe impl Sync for Tensor<'_> {}
unsafe impl Send for TensorMut<'_> {}
unsafe impl Sync for TensorMut<'_> {}
unsafe impl Send for OwnedTensor {}
unsafe impl Sync for OwnedTensor {}

fn wrong_shape(message: String) -> Error {
    Error::at(Status::SHAPE, "shape", message)
}

/// The checked struct: `data` has `bytes` bytes. Without strides the tensor fills them, with strides it must fit.
fn view(
    dtype: DType,
    shape: &[i64],
    strides: Option<&[i64]>,
    data: *mut c_void,
    bytes: usize,
) -> Result<sys::moe_tensor, Error> {
    crate::library()?;
    let needed = match strides {
        _ if shape.len() > sys::MOE_MAX_DIMS => None,
        None => dtype.bytes(shape),
        Some(strides) => strided_bytes(dtype, shape, strides),
    };
    match needed {
        None => {
            let strides = strides.map_or(String::new(), |s| format!(" with strides {s:?}"));
            return Err(wrong_shape(format!("found {shape:?}{strides}, which no tensor of {dtype:?} has")));
        }
        Some(needed) if needed > bytes || (strides.is_none() && needed != bytes) => {
            let message =
                format!("found {bytes} bytes of memory, expected the {needed} that {shape:?} of {dtype:?} takes");
            return Err(wrong_shape(message));
        }
        _ => {}
    }
    let mut raw: sys::moe_tensor = unsafe { sys::sized() };
    raw.dtype = dtype.0;
    raw.ndim = shape.len() as i32;
    raw.shape[..shape.len()].copy_from_slice(shape);
    if let Some(strides) = strides {
        raw.strides[..strides.len()].copy_from_slice(strides);
    }
    raw.data = data;
    raw.nbytes = bytes as u64;
    Ok(raw)
}

/// Bytes from the first to the last element. All strides 0 would mean "row-major" to the library.
fn strided_bytes(dtype: DType, shape: &[i64], strides: &[i64]) -> Option<usize> {
    let elements = dtype.bytes(shape)?; // the shape is one, and its product no overflow
    if shape.len() != strides.len() || strides.iter().any(|s| *s < 0) {
        return None;
    }
    if elements == 0 {
        return Some(0);
    }
    if strides.iter().all(|s| *s == 0) && shape.iter().any(|n| *n > 1) {
        return None;
    }
    let mut last = 0i64;
    for (n, stride) in shape.iter().zip(strides) {
        last = last.checked_add((n - 1).checked_mul(*stride)?)?;
    }
    dtype.bytes(&[last.checked_add(1)?])
}

macro_rules! accessors {
    ($name:ty) => {
        impl $name {
            /// The element type.
            pub fn dtype(&self) -> DType {
                DType(self.raw.dtype)
            }

            /// The extents, in elements.
            pub fn shape(&self) -> &[i64] {
                &self.raw.shape[..self.raw.ndim as usize]
            }

            /// The struct that the C interface takes, valid as long as `self`.
            pub fn as_raw(&self) -> &sys::moe_tensor {
                &self.raw
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "{:?}{:?}", self.dtype(), self.shape())
            }
        }
    };
}
accessors!(Tensor<'_>);
accessors!(TensorMut<'_>);
accessors!(OwnedTensor);

impl<'a> Tensor<'a> {
    /// A row-major tensor without gaps, which fills the slice.
    pub fn new<E: Element>(data: &'a [E], shape: &[i64]) -> Result<Self, Error> {
        let raw = view(E::DTYPE, shape, None, data.as_ptr() as *mut c_void, size_of_val(data))?;
        Ok(Tensor { raw, memory: PhantomData })
    }

    /// The same with strides, in elements: rows of a wider matrix, for instance.
    pub fn with_strides<E: Element>(data: &'a [E], shape: &[i64], strides: &[i64]) -> Result<Self, Error> {
        let raw = view(E::DTYPE, shape, Some(strides), data.as_ptr() as *mut c_void, size_of_val(data))?;
        Ok(Tensor { raw, memory: PhantomData })
    }

    /// Bytes whose type is known at run time only.
    pub fn from_bytes(dtype: DType, data: &'a [u8], shape: &[i64]) -> Result<Self, Error> {
        Ok(Tensor { raw: view(dtype, shape, None, data.as_ptr() as *mut c_void, data.len())?, memory: PhantomData })
    }

    /// The bytes; `None` when there are gaps between elements.
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        let bytes = self.dtype().bytes(self.shape())?;
        let shape = self.shape();
        let mut stride = 1;
        let dense = self.raw.strides[..shape.len()].iter().all(|s| *s == 0)
            || shape.iter().zip(&self.raw.strides).rev().all(|(n, s)| {
                let here = *n == 1 || *s == stride;
                stride *= n;
                here
            });
        if bytes == 0 || self.raw.data.is_null() {
            return (bytes == 0).then_some(&[]);
        }
        dense.then(|| unsafe { std::slice::from_raw_parts(self.raw.data as *const u8, bytes) })
    }

    /// The elements; `None` when they are of another type, or when there are gaps between them.
    pub fn as_slice<E: Element>(&self) -> Option<&'a [E]> {
        let bytes = self.as_bytes()?;
        if E::DTYPE != self.dtype() || bytes.as_ptr() as usize % align_of::<E>() != 0 {
            return if bytes.is_empty() && E::DTYPE == self.dtype() { Some(&[]) } else { None };
        }
        Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / std::mem::size_of::<E>()) })
    }

    /// # Safety
    /// The struct's memory must be readable for `'a`.
    pub(crate) unsafe fn of_raw(raw: sys::moe_tensor) -> Self {
        Tensor { raw, memory: PhantomData }
    }
}

impl<'a> TensorMut<'a> {
    /// A row-major tensor without gaps, which fills the slice.
    pub fn new<E: Element>(data: &'a mut [E], shape: &[i64]) -> Result<Self, Error> {
        let raw = view(E::DTYPE, shape, None, data.as_mut_ptr().cast(), size_of_val(data))?;
        Ok(TensorMut { raw, memory: PhantomData })
    }

    /// The same with strides, in elements. Elements that share memory are refused by the calls that write.
    pub fn with_strides<E: Element>(data: &'a mut [E], shape: &[i64], strides: &[i64]) -> Result<Self, Error> {
        let raw = view(E::DTYPE, shape, Some(strides), data.as_mut_ptr().cast(), size_of_val(data))?;
        Ok(TensorMut { raw, memory: PhantomData })
    }

    /// Bytes whose type is known at run time only.
    pub fn from_bytes(dtype: DType, data: &'a mut [u8], shape: &[i64]) -> Result<Self, Error> {
        Ok(TensorMut { raw: view(dtype, shape, None, data.as_mut_ptr().cast(), data.len())?, memory: PhantomData })
    }

    /// The same tensor to read from, for as long as no one writes to it.
    pub fn as_tensor(&self) -> Tensor<'_> {
        Tensor { raw: self.raw, memory: PhantomData }
    }

    /// # Safety
    /// The struct's memory must be writable, and no one else's, for `'a`.
    pub(crate) unsafe fn of_raw(raw: sys::moe_tensor) -> Self {
        TensorMut { raw, memory: PhantomData }
    }
}

impl OwnedTensor {
    /// A row-major tensor in a vector, a boxed or shared slice, a mapped file...: whatever gives a slice.
    pub fn new<E: Element, M>(memory: M, shape: &[i64]) -> Result<Self, Error>
    where
        M: AsRef<[E]> + Send + Sync + 'static,
    {
        Self::of(E::DTYPE, memory, shape, |memory| {
            let data = memory.as_ref();
            (data.as_ptr() as *mut c_void, size_of_val(data))
        })
    }

    /// Bytes whose type is known at run time only.
    pub fn from_bytes<M>(dtype: DType, memory: M, shape: &[i64]) -> Result<Self, Error>
    where
        M: AsRef<[u8]> + Send + Sync + 'static,
    {
        Self::of(dtype, memory, shape, |memory| (memory.as_ref().as_ptr() as *mut c_void, memory.as_ref().len()))
    }

    fn of<M: Send + Sync + 'static>(
        dtype: DType,
        memory: M,
        shape: &[i64],
        slice: impl FnOnce(&M) -> (*mut c_void, usize),
    ) -> Result<Self, Error> {
        let memory = Box::new(memory); // stays where it is from now on, and is not touched
        let (data, bytes) = slice(&memory);
        Ok(OwnedTensor { raw: view(dtype, shape, None, data, bytes)?, memory })
    }

    /// The tensor, to read from.
    pub fn view(&self) -> Tensor<'_> {
        Tensor { raw: self.raw, memory: PhantomData }
    }

    /// For calls that keep the memory: `release` and `user`.
    pub(crate) fn into_kept(self) -> (sys::moe_tensor, sys::moe_release_fn, *mut c_void) {
        (self.raw, Some(release::<Box<dyn Any + Send + Sync>>), into_user(self.memory))
    }
}
