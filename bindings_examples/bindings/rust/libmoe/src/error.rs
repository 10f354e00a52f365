//! Failed calls as values, and the call shapes of the C interface.

use crate::library::library;
use libmoe_sys as sys;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::ptr::{self, NonNull};

/// A status number. Not a Rust enum: a newer library may return values this crate does not know.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Status(pub i32);

macro_rules! statuses {
    ($($name:ident = $value:ident: $doc:literal)*) => {
        impl Status {
            $(#[doc = $doc] pub const $name: Status = Status(sys::$value);)*

            /// The name where there is no library to ask, or one of another version.
            fn own_name(self) -> &'static str {
                match self.0 {
                    $(sys::$value => stringify!($value),)*
                    _ => "MOE_ERR_UNKNOWN",
                }
            }
        }
    };
}
statuses! {
    INVALID_ARGUMENT = MOE_ERR_INVALID_ARGUMENT: "A parameter is out of range, or of no known value."
    INVALID_CONFIG = MOE_ERR_INVALID_CONFIG: "Syntax, schema or consistency of a document."
    INVALID_HANDLE = MOE_ERR_INVALID_HANDLE: "A raw handle that is none."
    SHAPE = MOE_ERR_SHAPE: "Rank, extent, stride or byte count of a tensor."
    DTYPE = MOE_ERR_DTYPE: "An element type that is not accepted there."
    MISSING_WEIGHT = MOE_ERR_MISSING_WEIGHT: "A role or an expert was never set."
    UNEXPECTED_WEIGHT = MOE_ERR_UNEXPECTED_WEIGHT: "A tensor that the config has no place for."
    NO_BACKEND = MOE_ERR_NO_BACKEND: "No candidate accepts; the details list every reason."
    UNSUPPORTED = MOE_ERR_UNSUPPORTED: "Valid, but this build or this object cannot do it."
    BUFFER_TOO_SMALL = MOE_ERR_BUFFER_TOO_SMALL: "The details say how much is needed."
    OUT_OF_MEMORY = MOE_ERR_OUT_OF_MEMORY: "No memory."
    IO = MOE_ERR_IO: "A file cannot be opened, read, written or mapped."
    FORMAT = MOE_ERR_FORMAT: "A file that is truncated, not ours, or whose content hash differs."
    VERSION = MOE_ERR_VERSION: "A library, struct or file of another version."
    CANCELLED = MOE_ERR_CANCELLED: "A control or a callback asked to stop."
    COMM = MOE_ERR_COMM: "A transport failed, a wait was too long, or ranks are out of step."
    CALLBACK = MOE_ERR_CALLBACK: "A callback failed, or panicked."
    BUSY = MOE_ERR_BUSY: "Exclusive access was violated through raw handles."
    STATE = MOE_ERR_STATE: "Not possible in this state."
    PEER = MOE_ERR_PEER: "Another rank failed; the details name it and its status."
    CONFIG_MISMATCH = MOE_ERR_CONFIG_MISMATCH: "Packed weights and selection, or two ranks, disagree."
    COMM_POISONED = MOE_ERR_COMM_POISONED: "The communicator failed in an earlier call."
    INTERNAL = MOE_ERR_INTERNAL: "A bug."
}

impl Status {
    /// The constant's name, such as `MOE_ERR_SHAPE`.
    pub fn name(self) -> &'static str {
        match unsafe { text(sys::moe_status_name(self.0)) } {
            "" => self.own_name(),
            name => name,
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a call failed: what, where, what was found and what was expected. A failed call changes nothing.
#[derive(Clone, Debug)]
pub struct Error {
    status: Status,
    subject: String,
    message: String,
    details: String,
}

impl Error {
    /// An error of the caller's own, such as a weight source gives it.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Error::at(status, "", message)
    }

    pub(crate) fn at(status: Status, subject: &str, message: impl Into<String>) -> Self {
        Error { status, subject: subject.into(), message: message.into(), details: "{}".into() }
    }

    /// What kind of failure.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Where: a JSON pointer, a role such as `w13_weight[17]`, a path, or nothing.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// What is wrong, one line for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Everything a program may want, as JSON: expected, actual, needed, errno, candidates...
    pub fn details(&self) -> &str {
        &self.details
    }

    /// The system's number where a file cannot be opened, read, written or mapped ([`Status::IO`]).
    pub fn raw_os_error(&self) -> Option<i32> {
        // In the text of a member every quotation mark has a backslash before it: this is a member's name.
        let number = self.details.split("\"errno\":").nth(1).filter(|_| self.status == Status::IO)?.trim_start();
        number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// The same as the standard library says it: `NotFound` for a missing file.
    ///
    /// ```
    /// let error = libmoe::Packed::load(None, "no/such.moe", Default::default()).unwrap_err();
    /// assert_eq!(error.io_kind(), Some(std::io::ErrorKind::NotFound));
    /// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
    /// ```
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        self.raw_os_error().map(|number| io::Error::from_raw_os_error(number).kind())
    }

    /// Takes over an error object of a C function that this crate does not wrap, such as those of `libmoe_mpi`. `status` is
    /// what that function returned, for where there is no object.
    ///
    /// # Safety
    ///
    /// `err` is null or an error object of this library that nothing else ends.
    pub unsafe fn from_raw(status: i32, err: *mut sys::moe_error) -> Self {
        if err.is_null() {
            return Error::new(Status(status), "the library gave no error object");
        }
        let owned = |pointer| CStr::from_ptr(pointer).to_string_lossy().into_owned();
        let error = Error {
            status: Status(sys::moe_error_status(err)),
            subject: owned(sys::moe_error_subject(err)),
            message: owned(sys::moe_error_message(err)),
            details: owned(sys::moe_error_details_json(err)),
        };
        sys::moe_error_destroy(err);
        error
    }

    /// The same for the library: what a callback puts into its `err`.
    pub(crate) fn into_raw(self) -> *mut sys::moe_error {
        let text = if self.subject.is_empty() { self.message } else { format!("{}: {}", self.subject, self.message) };
        unsafe { sys::moe_error_create(self.status.0, text.as_ptr().cast(), text.len()) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} at '{}': {}", self.status.name(), self.subject, self.message)
    }
}

impl std::error::Error for Error {}

/// For functions that give the standard library's errors: of [`Error::io_kind`], else `Other`, with this error inside.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(error.io_kind().unwrap_or(io::ErrorKind::Other), error)
    }
}

/// Text that the library owns. The caller picks the lifetime of what it was read from.
///
/// # Safety
/// `pointer` must be NULL or NUL-terminated and live as long as `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> &'a str {
    if pointer.is_null() {
        return "";
    }
    let bytes = CStr::from_ptr(pointer).to_bytes();
    std::str::from_utf8(bytes).unwrap_or_else(|cut| std::str::from_utf8(&bytes[..cut.valid_up_to()]).unwrap_or(""))
}

pub(crate) fn c_string(name: &str, text: &str) -> Result<CString, Error> {
    CString::new(text)
        .map_err(|_| Error::at(Status::INVALID_ARGUMENT, name, format!("{text:?} has a NUL character inside")))
}

/// Never another path than the one given, as a lossy conversion would make of it.
pub(crate) fn c_path(path: &Path) -> Result<CString, Error> {
    let text =
        path.to_str().ok_or_else(|| Error::at(Status::INVALID_ARGUMENT, "path", format!("{path:?} is not UTF-8")))?;
    c_string("path", text)
}

thread_local! {
    /// What the callbacks of the call that this thread makes said when they panicked.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn words(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a value that is no text")
}

/// Runs a callback of the caller: a panic ends here and becomes an error, it never crosses the C interface.
pub(crate) fn guarded<T>(what: &str, callback: impl FnOnce() -> T) -> Result<T, Error> {
    let payload = match catch_unwind(AssertUnwindSafe(callback)) {
        Ok(value) => return Ok(value),
        Err(payload) => payload,
    };
    let message = format!("{what} panicked: {}", words(payload.as_ref()));
    // The payload's own drop may panic as well.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    // A callback may be released while its thread ends, when the thread's own variables are gone.
    let _ = PANIC.try_with(|panic| *panic.borrow_mut() = Some(message.clone()));
    Err(Error::new(Status::CALLBACK, message))
}

/// A call with nothing but a status.
pub(crate) fn status(call: impl FnOnce(*mut *mut sys::moe_error) -> i32) -> Result<(), Error> {
    library()?;
    let mut err = ptr::null_mut();
    let outer = PANIC.with(|panic| panic.borrow_mut().take()); // of a call whose callback makes this one
    let status = call(&mut err);
    let panic = PANIC.with(|panic| std::mem::replace(&mut *panic.borrow_mut(), outer));
    if status == sys::MOE_OK {
        return Ok(());
    }
    let mut error = unsafe { Error::from_raw(status, err) };
    match panic {
        Some(panic) if !error.message.contains(&panic) => error.message = format!("{}: {panic}", error.message),
        _ => {}
    }
    Err(error)
}

/// A call with one owned handle as its result.
pub(crate) fn create<T>(call: impl FnOnce(*mut *mut T, *mut *mut sys::moe_error) -> i32) -> Result<NonNull<T>, Error> {
    let mut handle = ptr::null_mut();
    status(|err| call(&mut handle, err))?;
    NonNull::new(handle).ok_or_else(|| Error::new(Status::INTERNAL, "success without a result"))
}

/// A call whose result is text in a buffer.
pub(crate) fn owned_text(
    call: impl FnOnce(*mut *mut sys::moe_buffer, *mut *mut sys::moe_error) -> i32,
) -> Result<String, Error> {
    let buffer = crate::Buffer::of(create(call)?);
    Ok(String::from_utf8_lossy(&buffer).into_owned())
}
