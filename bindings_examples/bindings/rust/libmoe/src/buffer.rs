//! Aligned memory of the library.

use crate::error::{create, Error};
use libmoe_sys as sys;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

handle! {
    /// Bytes at an alignment that Rust's vectors do not have: for workspaces and destinations of conversions.
    ///
    /// ```
    /// let mut workspace = libmoe::Buffer::new(100, 64)?;
    /// workspace[99] = 1;
    /// assert_eq!(workspace.as_ptr() as usize % 64, 0);
    /// # Ok::<(), libmoe::Error>(())
    /// ```
    Buffer(moe_buffer, moe_buffer_destroy)
}

impl Buffer {
    /// `size` bytes, all 0, at `alignment` (a power of two; 0 means 64).
    pub fn new(size: usize, alignment: usize) -> Result<Self, Error> {
        let buffer = Buffer(create(|out, err| unsafe { sys::moe_buffer_create(size, alignment, out, err) })?);
        unsafe { ptr::write_bytes(buffer.start(), 0, size) };
        Ok(buffer)
    }

    pub(crate) fn of(raw: NonNull<sys::moe_buffer>) -> Self {
        Buffer(raw)
    }

    fn start(&self) -> *mut u8 {
        let start: *mut u8 = unsafe { sys::moe_buffer_data(self.as_raw()) }.cast();
        if start.is_null() {
            NonNull::dangling().as_ptr()
        } else {
            start
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        unsafe { std::slice::from_raw_parts(self.start(), sys::moe_buffer_size(self.as_raw())) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        unsafe { std::slice::from_raw_parts_mut(self.start(), sys::moe_buffer_size(self.as_raw())) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
