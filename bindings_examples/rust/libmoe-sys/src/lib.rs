//! Declarations of libmoe's C interface, and nothing else.
//!
//! Written down rather than generated at build time, so that building needs neither libclang nor
//! the header. `build.rs` says which library is linked.

#![allow(non_camel_case_types)]

mod functions;
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

// The sizes of the LP64 interface; a wrong declaration above does not compile.
macro_rules! sizes {
    ($($name:ident = $size:literal)*) => {
        #[cfg(target_pointer_width = "64")]
        const _: () = { $(assert!(std::mem::size_of::<$name>() == $size);)* };
    };
}
sizes! {
    moe_tensor = 128
    moe_parallel_ops = 32
    moe_allocator_ops = 40
    moe_context_callbacks = 48
    moe_candidate = 48
    moe_weight_source_ops = 40
    moe_convert_options = 64
    moe_layer_options = 24
    moe_apply_args = 104
    moe_route_args = 40
}
