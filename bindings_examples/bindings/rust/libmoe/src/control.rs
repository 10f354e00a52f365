//! Progress and cancellation of long calls.

use crate::error::{create, guarded, status, Error, Status};
use crate::handle::{into_user, release};
use libmoe_sys as sys;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

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

/// What a long call is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Nothing, or what a newer library knows and this crate does not.
    None,
    /// Opens files.
    Open,
    /// Converts weights.
    Convert,
    /// Writes a file.
    Save,
    /// Reads a file.
    Load,
    /// Computes or compares hashes.
    Hash,
    /// Runs a layer.
    Apply,
}

/// What [`Progress::done`] and [`Progress::total`] count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// Nothing, or what a newer library knows and this crate does not.
    None,
    /// Files.
    Files,
    /// Experts.
    Experts,
    /// Bytes.
    Bytes,
}

/// What the running or last call with a control does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// What `done` and `total` count.
    pub unit: Unit,
    /// Work units of the phase that are done.
    pub done: u64,
    /// All work units of the phase; 0 while unknown.
    pub total: u64,
    /// The model's number of the layer.
    pub layer: Option<i64>,
    /// Layers done by a call for several; else 0.
    pub layers_done: i64,
    /// All layers of a call for several; else 1.
    pub layers_total: i64,
    /// Bytes of the whole call that are done: never goes back.
    pub bytes_done: u64,
    /// Bytes of the whole call.
    pub bytes_total: u64,
}

/// What a progress function that gets the whole state needs.
struct Watched<F> {
    progress: F,
    control: AtomicPtr<sys::moe_control>,
}

unsafe fn state(control: *const sys::moe_control) -> Result<Progress, Error> {
    let mut now: sys::moe_progress = sys::sized();
    status(|err| sys::moe_control_state(control, &mut now, err))?;
    Ok(Progress {
        phase: match now.phase {
            sys::MOE_PHASE_OPEN => Phase::Open,
            sys::MOE_PHASE_CONVERT => Phase::Convert,
            sys::MOE_PHASE_SAVE => Phase::Save,
            sys::MOE_PHASE_LOAD => Phase::Load,
            sys::MOE_PHASE_HASH => Phase::Hash,
            sys::MOE_PHASE_APPLY => Phase::Apply,
            _ => Phase::None, // MOE_PHASE_NONE, and what is not known here
        },
        unit: match now.unit {
            sys::MOE_UNIT_FILES => Unit::Files,
            sys::MOE_UNIT_EXPERTS => Unit::Experts,
            sys::MOE_UNIT_BYTES => Unit::Bytes,
            _ => Unit::None, // MOE_UNIT_NONE, and what is not known here
        },
        done: now.done,
        total: now.total,
        layer: (now.layer >= 0).then_some(now.layer),
        layers_done: now.layers_done,
        layers_total: now.layers_total,
        bytes_done: now.bytes_done,
        bytes_total: now.bytes_total,
    })
}

impl Control {
    /// One without a progress function: ask with [`Control::progress`].
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
            answer(guarded("the progress function", || (*user.cast::<F>())(done, total)))
        }
        crate::library()?;
        let user = into_user(progress);
        create(|out, err| unsafe { sys::moe_control_create(Some(call::<F>), user, Some(release::<F>), out, err) })
            .map(Control)
    }

    /// The same with the whole state, as [`Control::state`] gives it.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let control = libmoe::Control::with_state(|now| {
    ///     println!("{:?} {:?}: {} of {} bytes", now.phase, now.layer, now.bytes_done, now.bytes_total);
    ///     ControlFlow::Continue(())
    /// })?;
    /// control.report(1, 2)?;
    /// # Ok::<(), libmoe::Error>(())
    /// ```
    pub fn with_state<F>(progress: F) -> Result<Self, Error>
    where
        F: Fn(&Progress) -> ControlFlow<()> + Send + Sync + 'static,
    {
        unsafe extern "C" fn call<F: Fn(&Progress) -> ControlFlow<()>>(user: *mut c_void, _: u64, _: u64) -> i32 {
            let watched = &*user.cast::<Watched<F>>();
            match state(watched.control.load(Ordering::Acquire)) {
                Ok(now) => answer(guarded("the progress function", || (watched.progress)(&now))),
                Err(error) => error.status().0,
            }
        }
        crate::library()?;
        let user = into_user(Watched { progress, control: AtomicPtr::default() });
        let control = create(|out, err| unsafe {
            sys::moe_control_create(Some(call::<F>), user, Some(release::<Watched<F>>), out, err)
        })?;
        // The control keeps `user`, and no call uses the control yet.
        unsafe { (*user.cast::<Watched<F>>()).control.store(control.as_ptr(), Ordering::Release) };
        Ok(Control(control))
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

    /// What the running or last call does: its phase, layer, and bytes.
    pub fn state(&self) -> Result<Progress, Error> {
        unsafe { state(self.as_raw()) }
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

/// What a progress function's answer, or its panic, is for the library.
fn answer(answer: Result<ControlFlow<()>, Error>) -> i32 {
    match answer {
        Ok(ControlFlow::Continue(())) => sys::MOE_OK,
        Ok(ControlFlow::Break(())) => sys::MOE_ERR_CANCELLED,
        Err(panic) => panic.status().0,
    }
}

pub(crate) fn raw(control: Option<&Control>) -> *mut sys::moe_control {
    control.map_or(ptr::null_mut(), Control::as_raw)
}
