//! Progress and cancellation of long calls.

use crate::error::{create, guarded, status, Error, Status};
use crate::handle::{into_user, release};
use libmoe_sys as sys;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::ptr;

handle! {
    /// Cancels calls and tells how far they are: convert, save, load, apply. Several calls may share one.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let control = libmoe::Control::with_progress(|done, total| {
    ///     println!("{done} of {total}"); // total is 0 while unknown
    ///     ControlFlow::Continue(()) // Break cancels
    /// })?;
    /// control.cancel(); // from any thread
    /// assert_eq!(control.report(1, 2).unwrap_err().status(), libmoe::Status::CANCELLED);
    /// # Ok::<(), libmoe::Error>(())
    /// ```
    Control(moe_control, moe_control_destroy)
}

impl Control {
    /// One that nobody is told by: ask with [`Control::progress`].
    pub fn new() -> Result<Self, Error> {
        create(|out, err| unsafe { sys::moe_control_create(None, ptr::null_mut(), None, out, err) }).map(Control)
    }

    /// Calls `progress(done, total)` now and then, on the thread that makes the long call; `Break` cancels it. A panic
    /// there ends the call with [`Status::CALLBACK`].
    pub fn with_progress<F>(progress: F) -> Result<Self, Error>
    where
        F: Fn(u64, u64) -> ControlFlow<()> + Send + Sync + 'static,
    {
        unsafe extern "C" fn call<F: Fn(u64, u64) -> ControlFlow<()>>(user: *mut c_void, done: u64, total: u64) -> i32 {
            match guarded("the progress function", || (*user.cast::<F>())(done, total)) {
                Ok(ControlFlow::Continue(())) => sys::MOE_OK,
                Ok(ControlFlow::Break(())) => sys::MOE_ERR_CANCELLED,
                Err(panic) => panic.status().0,
            }
        }
        crate::library()?;
        let user = into_user(progress);
        create(|out, err| unsafe { sys::moe_control_create(Some(call::<F>), user, Some(release::<F>), out, err) })
            .map(Control)
    }

    /// Asks the calls that use this to stop; they give [`Status::CANCELLED`] soon, later ones at once.
    pub fn cancel(&self) {
        unsafe { sys::moe_control_cancel(self.as_raw()) }
    }

    /// Work units done, and in total, of the running or last call.
    pub fn progress(&self) -> (u64, u64) {
        let (mut done, mut total) = (0, 0);
        unsafe { sys::moe_control_progress(self.as_raw(), &mut done, &mut total) };
        (done, total)
    }

    /// For the caller's own part of a long call, such as a weight source: tells the progress, and fails when it is to stop.
    /// A total of 0 only asks.
    pub fn report(&self, done: u64, total: u64) -> Result<(), Error> {
        // This function of the library has no error object.
        status(|_| unsafe { sys::moe_control_report(self.as_raw(), done, total) }).map_err(|error| {
            if error.status() == Status::CANCELLED {
                return Error::at(Status::CANCELLED, "control", "was asked to stop");
            }
            error
        })
    }
}

pub(crate) fn raw(control: Option<&Control>) -> *mut sys::moe_control {
    control.map_or(ptr::null_mut(), Control::as_raw)
}
