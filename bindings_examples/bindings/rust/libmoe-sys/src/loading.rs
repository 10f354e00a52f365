//! Which library this process has: its path, and with the feature `dlopen` how it is loaded.

use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_void};
use std::path::PathBuf;

#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

#[cfg_attr(all(target_os = "linux", target_env = "gnu"), link(name = "dl"))] // a part of libc since glibc 2.34
extern "C" {
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// The file that holds the library: the program itself where it was linked statically. `None` when it is not loaded.
pub fn path() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<DlInfo>::zeroed();
    let address = match address_of_version() {
        Some(address) => address,
        None => return name_given(),
    };
    unsafe {
        if dladdr(address, info.as_mut_ptr()) == 0 || (*info.as_ptr()).file.is_null() {
            return name_given();
        }
        Some(path_of(CStr::from_ptr((*info.as_ptr()).file)))
    }
}

fn path_of(text: &CStr) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(text.to_bytes()).into()
}

#[cfg(any(not(feature = "dlopen"), feature = "static"))]
fn address_of_version() -> Option<*const c_void> {
    Some(crate::moe_abi_version as *const c_void)
}

#[cfg(any(not(feature = "dlopen"), feature = "static"))]
fn name_given() -> Option<PathBuf> {
    None
}

#[cfg(any(not(feature = "dlopen"), feature = "static"))]
/// Nothing to do: the library was linked. With the feature `dlopen`, alone, this loads it.
pub fn load(_: Option<&std::path::Path>) -> Result<(), String> {
    Ok(())
}

/// Does the library have this function? Linked ones were there when the program started.
#[cfg(any(not(feature = "dlopen"), feature = "static"))]
pub fn has(function: &str) -> bool {
    crate::FUNCTIONS.contains(&function)
}

#[cfg(all(feature = "dlopen", not(feature = "static")))]
pub use at_run_time::{has, load};
#[cfg(all(feature = "dlopen", not(feature = "static")))]
pub(crate) use at_run_time::{report, Absent, Symbol};

#[cfg(all(feature = "dlopen", not(feature = "static")))]
fn address_of_version() -> Option<*const c_void> {
    at_run_time::find("moe_abi_version\0").map(|address| address as *const c_void)
}

#[cfg(all(feature = "dlopen", not(feature = "static")))]
use at_run_time::name_given;

#[cfg(all(feature = "dlopen", not(feature = "static")))]
mod at_run_time {
    use crate::{moe_error, moe_error_create, MOE_ERR_UNSUPPORTED, VERSION};
    use std::any::Any;
    use std::ffi::{CStr, CString, OsString};
    use std::os::raw::{c_char, c_int, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};

    extern "C" {
        fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
        fn dlerror() -> *const c_char;
    }

    const RTLD_NOW: c_int = 2;
    static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut()); // never closed: callbacks may still run
    static NAME: Mutex<Option<PathBuf>> = Mutex::new(None); // what was loaded; locked during a load

    /// Loads the library: the given file, else that of `LIBMOE_PATH`, else `libmoe.so.0` as the loader finds it. The first
    /// use of any function does so, too, without a path. Once a library is loaded it stays: later calls change nothing.
    pub fn load(path: Option<&Path>) -> Result<(), String> {
        let mut loaded = NAME.lock().unwrap_or_else(PoisonError::into_inner);
        if !LIBRARY.load(Ordering::Acquire).is_null() {
            return Ok(());
        }
        let named = path.map(|p| p.as_os_str().to_owned()).or_else(|| std::env::var_os("LIBMOE_PATH"));
        let name = named.unwrap_or_else(|| OsString::from("libmoe.so.0"));
        let name = PathBuf::from(name);
        let file = CString::new(name.as_os_str().as_bytes())
            .map_err(|_| format!("the path {name:?} has a NUL character inside"))?;
        let library = unsafe { dlopen(file.as_ptr(), RTLD_NOW) };
        if library.is_null() {
            let why = unsafe { dlerror() };
            let why = if why.is_null() { "no reason".into() } else { unsafe { CStr::from_ptr(why) }.to_string_lossy() };
            return Err(format!("libmoe cannot be loaded ({why}): set LIBMOE_PATH to the path of libmoe.so.0"));
        }
        *loaded = Some(name);
        LIBRARY.store(library, Ordering::Release);
        Ok(())
    }

    pub(super) fn name_given() -> Option<PathBuf> {
        NAME.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Does the library have this function? `false` also when there is no library.
    pub fn has(function: &str) -> bool {
        find(&format!("{function}\0")).is_some()
    }

    pub(super) fn find(name: &str) -> Option<*mut c_void> {
        if LIBRARY.load(Ordering::Acquire).is_null() {
            load(None).ok()?;
        }
        let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
        let address = unsafe { dlsym(LIBRARY.load(Ordering::Acquire), name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// One function of the library, looked for once.
    pub(crate) struct Symbol {
        name: &'static str,
        address: AtomicUsize, // 0: not looked for yet or no library, 1: not there
    }

    impl Symbol {
        pub(crate) const fn new(name: &'static str) -> Self {
            Symbol { name, address: AtomicUsize::new(0) }
        }

        pub(crate) fn address(&self) -> Option<*mut c_void> {
            match self.address.load(Ordering::Relaxed) {
                0 => {}
                1 => return None,
                known => return Some(known as *mut c_void),
            }
            let found = find(self.name);
            let seen = found.map_or(1, |address| address as usize);
            if found.is_some() || !LIBRARY.load(Ordering::Acquire).is_null() {
                self.address.store(seen, Ordering::Relaxed);
            }
            found
        }
    }

    /// Fills the parameter `err` of a function that is not there.
    pub(crate) fn report(argument: &dyn Any, function: &str) {
        let err = match argument.downcast_ref::<*mut *mut moe_error>() {
            Some(err) if !err.is_null() => *err,
            _ => return,
        };
        let message = match load(None) {
            Ok(()) => {
                let path = super::path().map_or_else(|| "the loaded library".into(), |p| p.display().to_string());
                format!("{path} has no function {function}; this crate was written for libmoe {VERSION}")
            }
            Err(why) => why,
        };
        unsafe { *err = moe_error_create(MOE_ERR_UNSUPPORTED, message.as_ptr().cast(), message.len()) };
    }

    /// What a function that is not there returns: a failure, or what accessors give for NULL.
    pub(crate) trait Absent {
        fn absent(return_type: &str) -> Self;
    }
    impl Absent for () {
        fn absent(_: &str) -> Self {}
    }
    impl Absent for i32 {
        fn absent(return_type: &str) -> Self {
            match return_type {
                "moe_status" => MOE_ERR_UNSUPPORTED,
                "moe_dtype" => crate::MOE_DTYPE_INVALID,
                _ => -1,
            }
        }
    }
    impl Absent for i64 {
        fn absent(_: &str) -> Self {
            -1
        }
    }
    impl Absent for usize {
        fn absent(_: &str) -> Self {
            0
        }
    }
    impl Absent for *const c_char {
        fn absent(_: &str) -> Self {
            b"\0".as_ptr().cast()
        }
    }
    impl<T> Absent for *mut T {
        fn absent(_: &str) -> Self {
            ptr::null_mut()
        }
    }
}
