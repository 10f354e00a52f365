//! Failed calls as values, and the three call shapes of the C interface.

use libmoe_sys as sys;
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::c_char;
use std::path::Path;
use std::ptr::{self, NonNull};

/// A status number. Not a Rust enum: a newer library may return values this crate does not know.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(pub i32);

impl Status {
    /// The constant's name, such as `MOE_ERR_SHAPE`.
    pub fn name(self) -> &'static str {
        unsafe { text(sys::moe_status_name(self.0)) }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a call failed. Nothing was changed by it.
#[derive(Clone, Debug)]
pub struct Error {
    status: Status,
    subject: String,
    message: String,
    details: String,
}

impl Error {
    pub fn status(&self) -> Status {
        self.status
    }

    /// Where: a JSON pointer, a role such as `w13_weight[17]`, a path, or nothing.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// Everything a program may want, as JSON.
    pub fn details(&self) -> &str {
        &self.details
    }

    pub(crate) fn new(status: i32, subject: &str, message: String) -> Self {
        Error { status: Status(status), subject: subject.into(), message, details: "{}".into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} at '{}': {}", self.status.name(), self.subject, self.message)
    }
}

impl std::error::Error for Error {}

/// Text that the library owns. The caller picks the lifetime of what it was read from.
///
/// # Safety
/// `pointer` must be NUL-terminated and live as long as `'a`. The library's texts are UTF-8.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> &'a str {
    std::str::from_utf8(CStr::from_ptr(pointer).to_bytes()).unwrap_or("")
}

pub(crate) fn c_string(text: &str) -> Result<CString, Error> {
    CString::new(text)
        .map_err(|_| Error::new(sys::MOE_ERR_INVALID_ARGUMENT, "", format!("{text:?} has a NUL character inside")))
}

/// Never another path than the one given, as a lossy conversion would make of it.
pub(crate) fn c_path(path: &Path) -> Result<CString, Error> {
    c_string(
        path.to_str()
            .ok_or_else(|| Error::new(sys::MOE_ERR_INVALID_ARGUMENT, "path", format!("{path:?} is not UTF-8")))?,
    )
}

/// A call with nothing but a status.
pub(crate) fn status(call: impl FnOnce(*mut *mut sys::moe_error) -> i32) -> Result<(), Error> {
    let mut err = ptr::null_mut();
    let status = call(&mut err);
    if status == sys::MOE_OK {
        return Ok(());
    }
    unsafe {
        let error = Error {
            status: Status(status),
            subject: text(sys::moe_error_subject(err)).into(),
            message: text(sys::moe_error_message(err)).into(),
            details: text(sys::moe_error_details_json(err)).into(),
        };
        sys::moe_error_destroy(err);
        Err(error)
    }
}

/// A call with one owned handle as its result.
pub(crate) fn create<T>(call: impl FnOnce(*mut *mut T, *mut *mut sys::moe_error) -> i32) -> Result<NonNull<T>, Error> {
    let mut handle = ptr::null_mut();
    status(|err| call(&mut handle, err))?;
    NonNull::new(handle).ok_or_else(|| Error::new(sys::MOE_ERR_INTERNAL, "", "success without a result".into()))
}

/// A call whose result is text in a buffer.
pub(crate) fn owned_text(
    call: impl FnOnce(*mut *mut sys::moe_buffer, *mut *mut sys::moe_error) -> i32,
) -> Result<String, Error> {
    let buffer = create(call)?.as_ptr();
    unsafe {
        let owned = text(sys::moe_buffer_data(buffer).cast()).to_string();
        sys::moe_buffer_destroy(buffer);
        Ok(owned)
    }
}
