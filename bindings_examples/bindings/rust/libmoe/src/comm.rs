//! Communicators: what moves rows between the ranks of a spread layer.

use crate::error::{create, guarded, status, Error, Status};
use crate::handle::{into_user, release};
use libmoe_sys as sys;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::ptr;
use std::time::Duration;

handle! {
    /// One rank's end of a transport between ranks, for [`crate::Dist`]. A rank is a process, or a thread in tests.
    ///
    /// After a wait that was too long or a transport that failed ([`Status::COMM`]) it is poisoned: every later call that
    /// needs it is [`Status::COMM_POISONED`].
    ///
    /// Of MPI the library `libmoe_mpi` makes one (`moe/moe_mpi.h`), which [`Comm::from_raw`] takes over. Safe for such a one
    /// means, too: its calls, those of each [`crate::Dist`] of it, and their drops stay on a thread that MPI allows, and
    /// come before `MPI_Finalize`. The last drop is collective.
    ///
    /// ```no_run
    /// use libmoe::{sys, Comm, Error};
    /// use std::ptr::{self, NonNull};
    ///
    /// extern "C" {
    ///     fn moe_mpi_comm_create_f(
    ///         fortran_handle: i32,
    ///         options_json: *const std::os::raw::c_char,
    ///         options_len: usize,
    ///         out: *mut *mut sys::moe_comm,
    ///         err: *mut *mut sys::moe_error,
    ///     ) -> sys::moe_status;
    /// }
    ///
    /// /// `world`: `MPI_Comm_c2f(MPI_COMM_WORLD)`, in a program that links `libmoe_mpi` (`pkg-config --libs
    /// /// libmoe-mpi-openmpi` in its build.rs).
    /// unsafe fn comm_of_mpi(world: i32) -> Result<Comm, Error> {
    ///     let (mut comm, mut err) = (ptr::null_mut(), ptr::null_mut());
    ///     let status = moe_mpi_comm_create_f(world, ptr::null(), 0, &mut comm, &mut err);
    ///     let made = NonNull::new(comm).ok_or_else(|| Error::from_raw(status, err))?;
    ///     Ok(Comm::from_raw(made))
    /// }
    /// # fn main() {}
    /// ```
    Comm(moe_comm, moe_comm_destroy)
}

/// A transport between ranks `0..size` that the program writes. Exchanges are started in the same order on all ranks, and
/// several may be under way: number n of one rank meets number n of the others.
///
/// An error, or a panic, ends the call of the library with [`Status::COMM`] and poisons the communicator. The value is
/// dropped when the communicator and every [`crate::Dist`] of it are gone.
pub trait Transport: Send + 'static {
    /// What the transport keeps of an exchange under way.
    type Operation: Send;

    /// This rank. Asked once.
    fn rank(&self) -> usize;

    /// How many ranks there are. Asked once.
    fn size(&self) -> usize;

    /// Begins an exchange, without a wait for another rank. What the exchange gives here is there again in each
    /// [`Transport::test`] of it, so nothing needs to be copied.
    fn start(&mut self, exchange: &mut Exchange) -> Result<Self::Operation, Error>;

    /// Goes on as far as it can without a wait. True: what this rank sends is no longer needed, and what it gets is there.
    /// The operation is dropped then.
    fn test(&mut self, operation: &mut Self::Operation, exchange: &mut Exchange) -> Result<bool, Error>;

    /// Called between two tests while there is nothing else to do: rests for about `duration`.
    fn pause(&mut self, duration: Duration) {
        let _ = duration;
        std::thread::yield_now();
    }

    /// Ends the job of all ranks. Called after a wait that was too long if `on_timeout` is `abort`.
    fn abort(&mut self, code: i32) {
        let _ = code;
    }
}

/// What one exchange sends to each rank and gets from it, this one too.
pub struct Exchange<'a> {
    rows: Rows,
    memory: PhantomData<&'a mut [u8]>,
}

/// Memory of the library, for as long as the exchange is under way. The lists have an entry for each rank, in rows.
#[derive(Clone, Copy)]
struct Rows {
    ranks: usize,
    row_bytes: usize,
    send: *const u8,
    send_counts: *const i64,
    send_displs: *const i64,
    recv: *mut u8,
    recv_counts: *const i64,
    recv_displs: *const i64,
}

/// A transport as the library's table has it.
struct Host<T: Transport> {
    transport: T,
    ranks: usize,
    running: Vec<Option<(Rows, T::Operation)>>, // number n is the operation n + 1 of the library
    paused: Result<(), Error>,                  // a panic in a pause, which the next test tells
}

impl Rows {
    /// Where the part of a rank begins, and how many bytes it has.
    unsafe fn part(&self, counts: *const i64, displs: *const i64, rank: usize) -> (usize, usize) {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        (*displs.add(rank) as usize * self.row_bytes, *counts.add(rank) as usize * self.row_bytes)
    }
}

impl<'a> Exchange<'a> {
    /// # Safety
    /// The exchange of `rows` is under way during `'a`.
    unsafe fn of(rows: Rows) -> Self {
        Exchange { rows, memory: PhantomData }
    }

    /// The bytes that go to a rank.
    pub fn outgoing(&self, rank: usize) -> &'a [u8] {
        // SAFETY: the library leaves them unchanged until the exchange is done. They are no part of what is received.
        unsafe {
            match self.rows.part(self.rows.send_counts, self.rows.send_displs, rank) {
                (_, 0) => &[],
                (start, len) => std::slice::from_raw_parts(self.rows.send.add(start), len),
            }
        }
    }

    /// Where the bytes that a rank sends are to be written. It sends as many as there is room for.
    pub fn incoming(&mut self, rank: usize) -> &mut [u8] {
        // SAFETY: the library does not touch them until the exchange is done. Parts of different ranks do not meet, and
        // `self` lends one at a time.
        unsafe {
            match self.rows.part(self.rows.recv_counts, self.rows.recv_displs, rank) {
                (_, 0) => &mut [],
                (start, len) => std::slice::from_raw_parts_mut(self.rows.recv.add(start), len),
            }
        }
    }
}

/// The answer of a function of the table.
unsafe fn reply(answer: Result<(), Error>, err: *mut *mut sys::moe_error) -> i32 {
    let error = match answer {
        Ok(()) => return sys::MOE_OK,
        Err(error) => error,
    };
    let status = if error.status().0 == sys::MOE_OK { sys::MOE_ERR_CALLBACK } else { error.status().0 };
    *err = error.into_raw();
    status
}

unsafe extern "C" fn start<T: Transport>(
    user: *mut c_void,
    row_bytes: u64,
    send: *const c_void,
    send_counts: *const c_void,
    send_displs: *const c_void,
    recv: *mut c_void,
    recv_counts: *const c_void,
    recv_displs: *const c_void,
    op: *mut *mut c_void,
    err: *mut *mut sys::moe_error,
) -> i32 {
    let host = &mut *user.cast::<Host<T>>(); // one thread at a time uses the table
    let rows = Rows {
        ranks: host.ranks,
        row_bytes: row_bytes as usize,
        send: send.cast(),
        send_counts: send_counts.cast(),
        send_displs: send_displs.cast(),
        recv: recv.cast(),
        recv_counts: recv_counts.cast(),
        recv_displs: recv_displs.cast(),
    };
    let started = guarded("the transport's start", || host.transport.start(&mut Exchange::of(rows)));
    let begun = started.and_then(|started| started).map(|operation| {
        let free = host.running.iter().position(Option::is_none).unwrap_or(host.running.len());
        if free == host.running.len() {
            host.running.push(None);
        }
        host.running[free] = Some((rows, operation));
        *op = (free + 1) as *mut c_void;
    });
    reply(begun, err)
}

unsafe extern "C" fn test<T: Transport>(
    user: *mut c_void,
    op: *mut c_void,
    done: *mut i32,
    err: *mut *mut sys::moe_error,
) -> i32 {
    let host = &mut *user.cast::<Host<T>>();
    let tested = guarded("the transport's test", || {
        std::mem::replace(&mut host.paused, Ok(()))?;
        let running = host.running.get_mut((op as usize).wrapping_sub(1));
        let running = running.ok_or_else(|| Error::new(Status::INTERNAL, "no such operation"))?;
        let (rows, operation) =
            running.as_mut().ok_or_else(|| Error::new(Status::INTERNAL, "the operation has ended"))?;
        let done = host.transport.test(operation, &mut Exchange::of(*rows))?;
        if done {
            drop(running.take());
        }
        Ok(done)
    });
    reply(tested.and_then(|tested| tested).map(|ended| *done = ended.into()), err)
}

unsafe extern "C" fn pause<T: Transport>(user: *mut c_void, microseconds: i32) {
    let host = &mut *user.cast::<Host<T>>();
    let duration = Duration::from_micros(microseconds.max(0) as u64);
    let paused = guarded("the transport's pause", || host.transport.pause(duration));
    if paused.is_err() {
        host.paused = paused;
    }
}

unsafe extern "C" fn abort<T: Transport>(user: *mut c_void, code: i32) {
    let host = &mut *user.cast::<Host<T>>();
    // After a panic the job goes on; the call that waited fails anyway.
    let _ = guarded("the transport's abort", || host.transport.abort(code));
}

impl Comm {
    /// Connected communicators for threads of this process, by rank. For tests, and for one rank.
    pub fn threads(size: usize) -> Result<Vec<Self>, Error> {
        let count = i32::try_from(size).ok().filter(|count| *count <= 1 << 16).ok_or_else(|| {
            Error::at(Status::INVALID_ARGUMENT, "size", format!("found {size}, expected a number of threads"))
        })?;
        let mut made = vec![ptr::null_mut(); size];
        let out = made.as_mut_ptr();
        status(|err| unsafe { sys::moe_comm_create_threads(count, out, err) })?;
        Ok(made.into_iter().filter_map(ptr::NonNull::new).map(Comm).collect())
    }

    /// A communicator of a transport of the program. `options` is JSON, `{}` for the defaults: `timeout_ms`, `poll_us`,
    /// `on_timeout`.
    pub fn from_ops<T: Transport>(transport: T, options: &str) -> Result<Self, Error> {
        crate::library()?;
        let (rank, ranks) = (transport.rank(), transport.size());
        let mut ops: sys::moe_comm_ops = unsafe { sys::sized() };
        ops.rank = i32::try_from(rank).unwrap_or(i32::MAX); // as a size or a rank it is refused
        ops.size = i32::try_from(ranks).unwrap_or(i32::MAX);
        ops.alltoallv_start = Some(start::<T>);
        ops.test = Some(test::<T>);
        ops.wait_hint = Some(pause::<T>);
        ops.abort = Some(abort::<T>);
        ops.user = into_user(Host { transport, ranks, running: Vec::new(), paused: Ok(()) });
        ops.destroy = Some(release::<Host<T>>);
        let (json, len) = (options.as_ptr().cast(), options.len());
        create(|out, err| unsafe { sys::moe_comm_create(&ops, json, len, out, err) }).map(Comm)
    }

    /// The options of [`Comm::from_ops`], all of them, for the calls that come.
    pub fn set_options(&mut self, options: &str) -> Result<(), Error> {
        let (json, len) = (options.as_ptr().cast(), options.len());
        status(|err| unsafe { sys::moe_comm_set_options(self.as_raw(), json, len, err) })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        unsafe { sys::moe_comm_rank(self.as_raw()) as usize }
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        unsafe { sys::moe_comm_size(self.as_raw()) as usize }
    }
}
