//! Contexts: threads, memory, log.

use crate::error::{create, guarded, owned_text, Error};
use crate::handle::{into_user, release};
use libmoe_sys as sys;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::os::raw::{c_char, c_void};
use std::ptr;

handle! {
    /// Threads, memory and log of one embedding program. `None` in its place: one thread, silent.
    Context(moe_context, moe_context_destroy)
}

type Log = Box<dyn Fn(LogLevel, &str, &str) + Send + Sync>;
type ParallelFor = Box<dyn Fn(&Tasks<'_>) + Send + Sync>;

/// How serious a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct LogLevel(pub i32);

impl LogLevel {
    /// Every step.
    pub const TRACE: LogLevel = LogLevel(sys::MOE_LOG_TRACE);
    /// For those who look for a fault.
    pub const DEBUG: LogLevel = LogLevel(sys::MOE_LOG_DEBUG);
    /// What is done.
    pub const INFO: LogLevel = LogLevel(sys::MOE_LOG_INFO);
    /// What is not as asked for.
    pub const WARN: LogLevel = LogLevel(sys::MOE_LOG_WARN);
    /// What failed.
    pub const ERROR: LogLevel = LogLevel(sys::MOE_LOG_ERROR);
}

/// The tasks of one parallel loop of the library.
pub struct Tasks<'a> {
    count: usize,
    task: unsafe extern "C" fn(*mut c_void, usize),
    argument: *mut c_void,
    call: PhantomData<&'a ()>,
}

unsafe impl Send for Tasks<'_> {}
unsafe impl Sync for Tasks<'_> {} // tasks run from any threads

impl Tasks<'_> {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Runs one of `0..count()`, on the calling thread. An index that is run again does nothing, one that is out of range
    /// or left out makes the call of the library fail.
    pub fn run(&self, index: usize) {
        unsafe { (self.task)(self.argument, index) }
    }
}

/// Memory for weights and workspaces.
///
/// # Safety
/// `allocate` gives memory of at least `size` bytes at `alignment`, which is no one else's until `deallocate`, or NULL.
pub unsafe trait Allocator: Send + Sync + 'static {
    /// Memory, or NULL when there is none. `alignment` is a power of two, 64 or more; `numa_node` -1: no preference.
    fn allocate(&self, size: usize, alignment: usize, numa_node: i32) -> *mut u8;

    /// Takes memory back.
    ///
    /// # Safety
    /// `pointer` was given by `allocate` for the same size and alignment.
    unsafe fn deallocate(&self, pointer: *mut u8, size: usize, alignment: usize);
}

/// Options and callbacks of a context.
pub struct ContextBuilder {
    options: String,
    log: Option<Log>,
    parallel: Option<(usize, ParallelFor)>,
    allocator: Option<Box<dyn Allocator>>,
}

unsafe extern "C" fn log(user: *mut c_void, level: i32, component: *const c_char, message: *const c_void, len: usize) {
    // A panic ends here: the line is lost, there is no call to fail.
    let _ = guarded("the log function", || {
        let component = if component.is_null() { "".into() } else { CStr::from_ptr(component).to_string_lossy() };
        let bytes = if len == 0 { &[] } else { std::slice::from_raw_parts(message.cast::<u8>(), len) };
        (*user.cast::<Log>())(LogLevel(level), &component, &String::from_utf8_lossy(bytes))
    });
}

unsafe extern "C" fn parallel_for(user: *mut c_void, count: usize, task: sys::moe_task_fn, argument: *mut c_void) {
    if let Some(task) = task {
        // After a panic tasks are missing, which the library notices.
        let tasks = Tasks { count, task, argument, call: PhantomData };
        let _ = guarded("parallel_for", || (*user.cast::<ParallelFor>())(&tasks));
    }
}

unsafe extern "C" fn allocate(user: *mut c_void, size: usize, alignment: usize, node: i32) -> *mut c_void {
    let allocator = &*user.cast::<Box<dyn Allocator>>();
    guarded("the allocator", || allocator.allocate(size, alignment, node)).map_or(ptr::null_mut(), <*mut u8>::cast)
}

unsafe extern "C" fn deallocate(user: *mut c_void, pointer: *mut c_void, size: usize, alignment: usize) {
    let allocator = &*user.cast::<Box<dyn Allocator>>();
    let _ = guarded("the allocator", || allocator.deallocate(pointer.cast(), size, alignment));
}

impl ContextBuilder {
    /// Called with level, component and message, from any thread of the library, also at once. It must not call the
    /// library. A line whose function panics is lost.
    pub fn log(mut self, log: impl Fn(LogLevel, &str, &str) + Send + Sync + 'static) -> Self {
        self.log = Some(Box::new(log));
        self
    }

    /// The caller's thread pool, which can run `threads` tasks at once: `run` runs every task exactly once and returns when
    /// all are done. A panic there, or a task left out, makes the call of the library fail.
    pub fn parallel_for(mut self, threads: usize, run: impl Fn(&Tasks<'_>) + Send + Sync + 'static) -> Self {
        self.parallel = Some((threads, Box::new(run)));
        self
    }

    /// The caller's memory.
    pub fn allocator(mut self, allocator: impl Allocator) -> Self {
        self.allocator = Some(Box::new(allocator));
        self
    }

    /// Makes the context.
    pub fn create(self) -> Result<Context, Error> {
        crate::library()?;
        let mut callbacks: sys::moe_context_callbacks = unsafe { sys::sized() };
        let mut parallel: sys::moe_parallel_ops = unsafe { sys::sized() };
        let mut allocator: sys::moe_allocator_ops = unsafe { sys::sized() };
        if let Some(function) = self.log {
            callbacks.log = Some(log);
            callbacks.log_user = into_user(function);
            callbacks.log_destroy = Some(release::<Log>);
        }
        if let Some((threads, function)) = self.parallel {
            parallel.num_threads = i32::try_from(threads).unwrap_or(i32::MAX);
            parallel.parallel_for = Some(parallel_for);
            parallel.user = into_user(function);
            parallel.destroy = Some(release::<ParallelFor>);
            callbacks.parallel = &parallel;
        }
        if let Some(memory) = self.allocator {
            allocator.allocate = Some(allocate);
            allocator.deallocate = Some(deallocate);
            allocator.user = into_user(memory);
            allocator.destroy = Some(release::<Box<dyn Allocator>>);
            callbacks.allocator = &allocator;
        }
        let (json, len) = (self.options.as_ptr().cast(), self.options.len());
        create(|out, err| unsafe { sys::moe_context_create(json, len, &callbacks, out, err) }).map(Context)
    }
}

impl Context {
    /// `options` is JSON, `{}` for the defaults: all CPUs of this process. Others: `threads`, `cpus`, `spin_us`, `numa`,
    /// `huge_pages`, `log_level`, `log_ring`, `flush_denormals`.
    pub fn new(options: &str) -> Result<Self, Error> {
        Self::builder(options).create()
    }

    /// The same, with callbacks.
    ///
    /// ```
    /// let context = libmoe::Context::builder(r#"{"log_level":"debug"}"#)
    ///     .log(|level, component, message| eprintln!("{level:?} {component}: {message}"))
    ///     .parallel_for(2, |tasks| {
    ///         std::thread::scope(|scope| {
    ///             for i in 0..tasks.count() {
    ///                 scope.spawn(move || tasks.run(i));
    ///             }
    ///         })
    ///     })
    ///     .create()?;
    /// # Ok::<(), libmoe::Error>(())
    /// ```
    pub fn builder(options: &str) -> ContextBuilder {
        ContextBuilder { options: options.into(), log: None, parallel: None, allocator: None }
    }

    /// Options after resolution (threads, CPUs, NUMA nodes), and all backends, as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        owned_text(|out, err| unsafe { sys::moe_context_to_json(self.as_raw(), out, err) })
    }

    /// Takes the messages kept since the last call: a JSON object per line, empty when there are none.
    pub fn take_log(&self) -> Result<String, Error> {
        owned_text(|out, err| unsafe { sys::moe_context_take_log(self.as_raw(), out, err) })
    }
}

pub(crate) fn raw(context: Option<&Context>) -> *mut sys::moe_context {
    context.map_or(ptr::null_mut(), Context::as_raw)
}
