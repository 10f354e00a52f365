//! The library itself: which one this process has, what it can do, and its pure questions.

use crate::error::{c_string, owned_text, text, Error, Status};
use libmoe_sys as sys;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The library that this process has.
#[derive(Clone, Debug)]
pub struct Library {
    /// The file; the program itself where libmoe was linked statically.
    pub path: Option<PathBuf>,
    /// "major.minor.patch[-suffix]".
    pub version: String,
    /// major * 1000000 + minor * 1000 + patch.
    pub version_number: i32,
    /// Counts incompatible changes.
    pub abi_version: i32,
}

static CHECKED: AtomicPtr<Result<Library, Error>> = AtomicPtr::new(ptr::null_mut());

/// The library, checked at the first call of the process: its ABI must be the one that this crate was written for. Every
/// other call does this first; a library of another ABI gives an error with its path and both numbers.
pub fn library() -> Result<&'static Library, Error> {
    let mut checked = CHECKED.load(Ordering::Acquire);
    if checked.is_null() {
        sys::loading::load(None).map_err(|why| Error::new(Status::IO, why))?;
        let first = Box::into_raw(Box::new(check())); // kept for ever; of two threads that come first, one counts
        checked = match CHECKED.compare_exchange(checked, first, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => first,
            Err(other) => {
                drop(unsafe { Box::from_raw(first) });
                other
            }
        };
    }
    unsafe { &*checked }.as_ref().map_err(Error::clone)
}

/// Loads the library from this file: with the feature `dlopen` alone, before anything else was called. Otherwise it is the
/// one that was linked or loaded already.
pub fn load(path: impl AsRef<Path>) -> Result<&'static Library, Error> {
    sys::loading::load(Some(path.as_ref())).map_err(|why| Error::at(Status::IO, "path", why))?;
    library()
}

fn check() -> Result<Library, Error> {
    let library = unsafe {
        Library {
            path: sys::loading::path(),
            version: text(sys::moe_version_string()).into(),
            version_number: sys::moe_version_number(),
            abi_version: sys::moe_abi_version(),
        }
    };
    if library.abi_version == sys::MOE_ABI_VERSION {
        return Ok(library);
    }
    let path = library.path.as_ref().map_or_else(|| "the library".into(), |path| path.display().to_string());
    if !sys::loading::has("moe_abi_version") {
        return Err(Error::at(Status::VERSION, &path, "found no function moe_abi_version, expected libmoe.so.0"));
    }
    let message = format!(
        "found libmoe {} of ABI version {}, expected ABI version {} (this crate was written for libmoe {})",
        library.version,
        library.abi_version,
        sys::MOE_ABI_VERSION,
        sys::VERSION
    );
    Err(Error::at(Status::VERSION, &path, message))
}

/// Does this build have the named ability? [`build_info_json`] lists the names, such as "isa.avx512_vnni". What the
/// machine has tells [`crate::Platform::has`].
pub fn has_feature(name: &str) -> bool {
    c_string("name", name).map_or(false, |name| unsafe { sys::moe_has_feature(name.as_ptr()) == 1 })
}

/// Version, commit, compiler and flags, features, backends, kernels, and the environment variables that are read.
pub fn build_info_json() -> &'static str {
    unsafe { text(sys::moe_build_info_json()) }
}

/// The machine-readable description of the C interface.
pub fn abi_json() -> &'static str {
    unsafe { text(sys::moe_abi_json()) }
}

/// JSON Schema of the document that [`crate::Config::new`] takes.
pub fn config_schema_json() -> &'static str {
    unsafe { text(sys::moe_config_schema_json()) }
}

/// Answers one pure question as JSON, without weights: topic "oracle", "checkpoint", "quant_config", "parallel_config",
/// "routing_method", "activation", "expert_map", "eplb_map", "align_block_size" or "permute".
///
/// ```
/// let answer = libmoe::describe("activation", r#"{"activation":"silu"}"#)?;
/// assert!(answer.contains("gated"));
/// # Ok::<(), libmoe::Error>(())
/// ```
pub fn describe(topic: &str, query_json: &str) -> Result<String, Error> {
    let topic = c_string("topic", topic)?;
    let (query, len) = (query_json.as_ptr().cast(), query_json.len());
    owned_text(|out, err| unsafe { sys::moe_describe(topic.as_ptr(), query, len, out, err) })
}
