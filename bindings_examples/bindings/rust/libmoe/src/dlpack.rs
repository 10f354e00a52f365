//! Tensors of other frameworks, in and out, through DLPack: its versioned structs (major version 1, Python's capsules
//! "dltensor_versioned") and the older ones without a version ("dltensor").

use crate::error::{guarded, status, Error, Status};
use crate::tensor::{DType, OwnedTensor, TensorMut};
use libmoe_sys as sys;
use std::os::raw::c_void;
use std::ptr::{self, NonNull};

/// DLPack's `DLTensor`. Shape and strides count elements; strides NULL means row-major.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DlTensor {
    /// The first byte, less `byte_offset`.
    pub data: *mut c_void,
    /// 1: CPU.
    pub device_type: i32,
    /// Which of that type.
    pub device_id: i32,
    /// Number of dimensions.
    pub ndim: i32,
    /// Kind of number: 0 signed, 1 unsigned, 2 float, 4 bfloat16, 6 bool, above: 8, 6 and 4-bit floats.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// Elements of a vector; 1.
    pub lanes: u16,
    /// `ndim` extents.
    pub shape: *mut i64,
    /// `ndim` strides, or NULL.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// DLPack's `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
pub struct DlManagedTensorVersioned {
    /// Another major version: another layout.
    pub major: u32,
    /// Grows with what is added.
    pub minor: u32,
    /// The owner's.
    pub manager: *mut c_void,
    /// Ends the struct and what it stands for; may be NULL.
    pub deleter: Option<unsafe extern "C" fn(*mut DlManagedTensorVersioned)>,
    /// [`READ_ONLY`] and others.
    pub flags: u64,
    /// The tensor.
    pub tensor: DlTensor,
}

/// DLPack's `DLManagedTensor`, without a version.
#[repr(C)]
#[derive(Debug)]
pub struct DlManagedTensor {
    /// The tensor.
    pub tensor: DlTensor,
    /// The owner's.
    pub manager: *mut c_void,
    /// Ends the struct and what it stands for; may be NULL.
    pub deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

/// The flag of tensors that must not be written to.
pub const READ_ONLY: u64 = 1;
const CPU: i32 = 1;

/// DLPack's code and bits of the types that both have.
const TYPES: &[(i32, u8, u8)] = &[
    (sys::MOE_DTYPE_I8, 0, 8),
    (sys::MOE_DTYPE_I16, 0, 16),
    (sys::MOE_DTYPE_I32, 0, 32),
    (sys::MOE_DTYPE_I64, 0, 64),
    (sys::MOE_DTYPE_I4, 0, 4),
    (sys::MOE_DTYPE_I2, 0, 2),
    (sys::MOE_DTYPE_U8, 1, 8),
    (sys::MOE_DTYPE_U16, 1, 16),
    (sys::MOE_DTYPE_U32, 1, 32),
    (sys::MOE_DTYPE_U64, 1, 64),
    (sys::MOE_DTYPE_U4, 1, 4),
    (sys::MOE_DTYPE_U2, 1, 2),
    (sys::MOE_DTYPE_F16, 2, 16),
    (sys::MOE_DTYPE_F32, 2, 32),
    (sys::MOE_DTYPE_F64, 2, 64),
    (sys::MOE_DTYPE_BF16, 4, 16),
    (sys::MOE_DTYPE_BOOL, 6, 8),
    (sys::MOE_DTYPE_F8_E4M3FN, 10, 8),
    (sys::MOE_DTYPE_F8_E4M3FNUZ, 11, 8),
    (sys::MOE_DTYPE_F8_E5M2, 12, 8),
    (sys::MOE_DTYPE_F8_E5M2FNUZ, 13, 8),
    (sys::MOE_DTYPE_F8_E8M0FNU, 14, 8),
    (sys::MOE_DTYPE_F6_E2M3FN, 15, 6),
    (sys::MOE_DTYPE_F6_E3M2FN, 16, 6),
    (sys::MOE_DTYPE_F4_E2M1FN, 17, 4),
];

/// A struct of another framework that is ended by its own deleter.
struct Foreign<M: Managed>(NonNull<M>);
unsafe impl<M: Managed> Send for Foreign<M> {}
unsafe impl<M: Managed> Sync for Foreign<M> {}

trait Managed {
    unsafe fn end(this: *mut Self);
}
impl Managed for DlManagedTensorVersioned {
    unsafe fn end(this: *mut Self) {
        if let Some(deleter) = (*this).deleter {
            deleter(this);
        }
    }
}
impl Managed for DlManagedTensor {
    unsafe fn end(this: *mut Self) {
        if let Some(deleter) = (*this).deleter {
            deleter(this);
        }
    }
}
impl<M: Managed> Drop for Foreign<M> {
    fn drop(&mut self) {
        unsafe { M::end(self.0.as_ptr()) }
    }
}

unsafe fn import(managed: *const DlManagedTensorVersioned) -> Result<sys::moe_tensor, Error> {
    let mut raw: sys::moe_tensor = sys::sized();
    status(|err| sys::moe_tensor_from_dlpack(managed.cast(), &mut raw, err))?;
    Ok(raw)
}

/// The older struct as one of version 1.
unsafe fn with_version(managed: *const DlManagedTensor) -> DlManagedTensorVersioned {
    let tensor = (*managed).tensor;
    DlManagedTensorVersioned { major: 1, minor: 0, manager: ptr::null_mut(), deleter: None, flags: 0, tensor }
}

impl OwnedTensor {
    /// Takes over a tensor on the CPU; its deleter is called when it is no longer used, from any thread. After an error it
    /// still is the caller's.
    ///
    /// # Safety
    /// `managed` must be what DLPack says, and no one else's; no one writes to its memory from now on.
    pub unsafe fn from_dlpack(managed: NonNull<DlManagedTensorVersioned>) -> Result<Self, Error> {
        let raw = import(managed.as_ptr())?;
        Ok(OwnedTensor { raw, memory: Box::new(Foreign(managed)) })
    }

    /// The same for the struct without a version.
    ///
    /// # Safety
    /// As for [`OwnedTensor::from_dlpack`].
    pub unsafe fn from_dlpack_unversioned(managed: NonNull<DlManagedTensor>) -> Result<Self, Error> {
        let raw = import(&with_version(managed.as_ptr()))?;
        Ok(OwnedTensor { raw, memory: Box::new(Foreign(managed)) })
    }

    /// Hands the tensor out, marked as [`READ_ONLY`]: its memory may be shared. Who takes it calls its deleter.
    pub fn into_dlpack(self) -> Result<NonNull<DlManagedTensorVersioned>, Error> {
        unsafe extern "C" fn delete(this: *mut DlManagedTensorVersioned) {
            end(this, (*this).manager)
        }
        let (tensor, owner) = hand_out(self)?;
        let (deleter, manager) = (Some(delete as _), owner.cast());
        Ok(leak(DlManagedTensorVersioned { major: 1, minor: 0, manager, deleter, flags: READ_ONLY, tensor }))
    }

    /// The same as a struct without a version, which cannot say that no one may write to the memory.
    pub fn into_dlpack_unversioned(self) -> Result<NonNull<DlManagedTensor>, Error> {
        unsafe extern "C" fn delete(this: *mut DlManagedTensor) {
            end(this, (*this).manager)
        }
        let (tensor, owner) = hand_out(self)?;
        Ok(leak(DlManagedTensor { tensor, manager: owner.cast(), deleter: Some(delete as _) }))
    }
}

impl TensorMut<'_> {
    /// Views a tensor of another framework to write to; refused when it is marked as [`READ_ONLY`].
    ///
    /// # Safety
    /// `managed` must be what DLPack says and outlive the view; no one else uses its memory meanwhile.
    pub unsafe fn from_dlpack(managed: NonNull<DlManagedTensorVersioned>) -> Result<Self, Error> {
        let raw = import(managed.as_ptr())?;
        if (*managed.as_ptr()).flags & READ_ONLY != 0 {
            let message = "found a tensor that is marked as read-only, expected one to write to";
            return Err(Error::at(Status::INVALID_ARGUMENT, "dl_managed_tensor_versioned", message));
        }
        Ok(TensorMut::of_raw(raw))
    }
}

/// What a struct that was handed out keeps.
struct HandedOut {
    shape: [i64; sys::MOE_MAX_DIMS],
    strides: [i64; sys::MOE_MAX_DIMS],
    _tensor: OwnedTensor,
}

fn leak<M>(managed: M) -> NonNull<M> {
    NonNull::from(Box::leak(Box::new(managed)))
}

unsafe fn end<M>(this: *mut M, owner: *mut c_void) {
    let _ = guarded("the drop of a tensor", || {
        drop(Box::from_raw(this));
        drop(Box::from_raw(owner.cast::<HandedOut>()));
    });
}

fn hand_out(tensor: OwnedTensor) -> Result<(DlTensor, *mut HandedOut), Error> {
    let raw = tensor.raw;
    let dtype = DType(raw.dtype);
    let (_, code, bits) = TYPES.iter().find(|row| row.0 == raw.dtype).copied().ok_or_else(|| {
        Error::at(Status::DTYPE, "dtype", format!("found {dtype:?}, expected a type that DLPack has"))
    })?;
    let row = tensor.shape().last().copied().unwrap_or(1);
    if raw.ndim > 1 && bits % 8 != 0 && row * i64::from(bits) % 8 != 0 {
        let message = format!("found rows of {row} elements of {bits} bits, expected rows that fill whole bytes");
        return Err(Error::at(Status::SHAPE, "shape", message));
    }
    let mut strides = raw.strides;
    if strides.iter().all(|s| *s == 0) {
        let mut stride = 1;
        for i in (0..raw.ndim as usize).rev() {
            strides[i] = stride;
            stride *= raw.shape[i];
        }
    }
    let owner = Box::into_raw(Box::new(HandedOut { shape: raw.shape, strides, _tensor: tensor }));
    let (shape, strides) = unsafe { (ptr::addr_of_mut!((*owner).shape), ptr::addr_of_mut!((*owner).strides)) };
    let handed = DlTensor {
        data: raw.data,
        device_type: CPU,
        device_id: 0,
        ndim: raw.ndim,
        code,
        bits,
        lanes: 1,
        shape: shape.cast(),
        strides: strides.cast(),
        byte_offset: 0,
    };
    Ok((handed, owner))
}
