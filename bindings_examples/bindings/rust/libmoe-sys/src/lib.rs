//! Declarations of libmoe's C interface, and nothing else: the crate `libmoe` has the safe one.
//!
//! Types and functions have their C names and the comments of `moe/moe.h`, whose rules hold. They were written down by a
//! script, so that building needs neither libclang nor the header. Statuses, dtypes and reasons are `i32` with constants,
//! never Rust enums: a newer library may return values that are not known here. In structs all-zero means "default"; set
//! `struct_size` (see [`sized`]).
//!
//! How the library is found: by default it is linked by its file name `libmoe.so.0`, in `LIBMOE_LIB_DIR` or where
//! `pkg-config` says. Features: `vendored` builds it, `static` links `libmoe.a`, `dlopen` loads it at run time
//! ([`loading`]). A function that the loaded library does not have fails alone, with `MOE_ERR_UNSUPPORTED` and an error
//! that names it.

#![allow(non_camel_case_types)]
#![deny(missing_docs)]

/// The functions as the linker finds them.
#[cfg(any(not(feature = "dlopen"), feature = "static"))]
macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        extern "C" { $($(#[$doc])* pub fn $name($($arg: $type),*) -> $ret;)* }
    };
}

/// The functions as `dlsym` finds them, each at its first call.
#[cfg(all(feature = "dlopen", not(feature = "static")))]
macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => { $(
        $(#[$doc])*
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments, clippy::missing_transmute_annotations)]
        pub unsafe fn $name($($arg: $type),*) -> $ret {
            static SYMBOL: crate::loading::Symbol = crate::loading::Symbol::new(concat!(stringify!($name), "\0"));
            if let Some(address) = SYMBOL.address() {
                let function: unsafe extern "C" fn($($type),*) -> $ret = std::mem::transmute(address);
                return function($($arg),*);
            }
            $(crate::loading::report(&$arg, stringify!($name));)*
            crate::loading::Absent::absent(stringify!($ret))
        }
    )* };
}

#[rustfmt::skip]
#[allow(clippy::doc_lazy_continuation)]
mod functions;
pub mod loading;
#[rustfmt::skip]
#[allow(clippy::doc_lazy_continuation)]
mod types;

pub use functions::*;
pub use types::*;

/// A struct of this crate with every byte zero but `struct_size`.
///
/// # Safety
/// `T` must be one of this crate's `#[repr(C)]` structs that begin with `struct_size: u32`.
pub unsafe fn sized<T: Copy>() -> T {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    value.as_mut_ptr().cast::<u32>().write(std::mem::size_of::<T>() as u32);
    value.assume_init()
}
