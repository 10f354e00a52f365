//! Which library the process gets: one of another version, none, one without a function. Each case is a process of its own:
//! this program again, with another library in its environment.
#![cfg(not(feature = "static"))]

mod common;
use common::Folder;
use libmoe::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs one ignored test below with another library.
fn child(test: &str, library: &Path) {
    let folder = library.parent().unwrap();
    let result = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("LIBMOE_PATH", library)
        .env("LD_LIBRARY_PATH", folder)
        .env("EXPECTED_PATH", library)
        .env("REAL_PATH", libmoe::library().unwrap().path.as_ref().unwrap())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&result.stdout) + String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success() && output.contains("1 passed"), "{output}");
}

/// A library with the functions of ours, which do nothing, and another ABI version.
fn other_version(folder: &Folder) -> PathBuf {
    let mut text = String::from(
        "const char* moe_version_string(void) { return \"9.8.7\"; }\nint moe_abi_version(void) { return 7; }\n",
    );
    for name in sys::FUNCTIONS.iter().filter(|name| !["moe_version_string", "moe_abi_version"].contains(name)) {
        text += &format!("long {name}(void) {{ return 0; }}\n");
    }
    compile(folder, &text)
}

fn compile(folder: &Folder, text: &str) -> PathBuf {
    let (source, versions) = (folder.0.join("library.c"), folder.0.join("versions"));
    std::fs::write(&source, text).unwrap();
    std::fs::write(&versions, "LIBMOE_0 { moe_*; };").unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let library = folder.0.join("libmoe.so.0");
    let script = format!("-Wl,--version-script={}", versions.display());
    // A sanitizer's runtime that was preloaded into this program is not for the compiler.
    let compiled = Command::new(compiler)
        .env_remove("LD_PRELOAD")
        .args(["-shared", "-fPIC", &script, "-o"])
        .arg(&library)
        .arg(&source)
        .output();
    let compiled = compiled.unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library
}

#[test]
fn another_abi_version_is_refused_with_path_and_both_numbers() {
    let folder = Folder::new("version");
    child("refuses_another_version", &other_version(&folder));
}

#[test]
#[ignore = "run by another_abi_version_is_refused_with_path_and_both_numbers"]
fn refuses_another_version() {
    let path = std::env::var("EXPECTED_PATH").unwrap();
    for error in [library().unwrap_err(), Config::new("{}").unwrap_err(), Context::new("{}").unwrap_err()] {
        assert_eq!((error.status().0, error.subject()), (sys::MOE_ERR_VERSION, &path[..]));
        assert!(error.to_string().starts_with(&format!("MOE_ERR_VERSION at '{path}'")), "{error}");
        for part in ["9.8.7", "ABI version 7", &format!("ABI version {}", sys::MOE_ABI_VERSION), sys::VERSION] {
            assert!(error.message().contains(part), "{error}");
        }
    }
    assert!(Control::with_progress(|_, _| std::ops::ControlFlow::Continue(())).is_err());
    assert!(Tensor::new(&[0f32], &[1]).is_err() && Buffer::new(1, 1).is_err() && describe("x", "{}").is_err());
}

#[cfg(feature = "dlopen")]
mod at_run_time {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        child("at_run_time::finds_none", Path::new("/no/such/libmoe.so.0"));
    }

    #[test]
    #[ignore = "run by a_library_that_is_not_there_is_named"]
    fn finds_none() {
        for error in [library().unwrap_err(), Config::new("{}").unwrap_err(), load("/nor/this.so").unwrap_err()] {
            assert!(error.to_string().starts_with("MOE_ERR_IO at"), "{error}");
            assert!(error.message().contains(".so") && error.message().contains("LIBMOE_PATH"), "{error}");
        }
        assert!(!has_feature("io.mmap") && abi_json().is_empty() && DType::from_name("f32").is_none());
        std::env::remove_var("LIBMOE_PATH");
        load(std::env::var("REAL_PATH").unwrap()).expect("a later attempt may succeed");
        assert!(has_feature("io.mmap") && DType::from_name("f32").is_some());
    }

    #[test]
    fn a_library_of_another_kind_is_refused() {
        let folder = Folder::new("kind");
        let library = compile(&folder, "int moe_nothing;");
        child("at_run_time::finds_another_kind", &library);
    }

    #[test]
    #[ignore = "run by a_library_of_another_kind_is_refused"]
    fn finds_another_kind() {
        let error = Config::new("{}").unwrap_err();
        assert_eq!(error.subject(), std::env::var("EXPECTED_PATH").unwrap());
        assert!(error.message().contains("moe_abi_version"), "{error}");
    }

    /// The library in use, with the names of two functions overwritten: the loader does not find them.
    #[test]
    fn functions_that_are_missing_fail_alone() {
        let folder = Folder::new("less");
        let mut bytes = std::fs::read(library().unwrap().path.as_ref().unwrap()).unwrap();
        for name in ["moe_describe", "moe_selection_kernel"] {
            let (old, new) = (format!("\0{name}\0"), format!("\0{}_\0", &name[..name.len() - 1]));
            let places: Vec<_> =
                (0..bytes.len() - old.len()).filter(|i| bytes[*i..].starts_with(old.as_bytes())).collect();
            assert!(!places.is_empty());
            places.iter().for_each(|i| bytes[*i..i + new.len()].copy_from_slice(new.as_bytes()));
        }
        let less = folder.0.join("libmoe.so.0");
        std::fs::write(&less, bytes).unwrap();
        child("at_run_time::does_without", &less);
    }

    #[test]
    #[ignore = "run by functions_that_are_missing_fail_alone"]
    fn does_without() {
        library().unwrap();
        let error = describe("activation", "{}").unwrap_err();
        assert_eq!(error.status(), Status::UNSUPPORTED);
        for part in [&std::env::var("EXPECTED_PATH").unwrap()[..], "has no function moe_describe", sys::VERSION] {
            assert!(error.message().contains(part), "{error}");
        }
        assert!(!sys::loading::has("moe_describe") && sys::loading::has("moe_apply"));
        let (selection, packed) = common::packed();
        assert_eq!(selection.kernel(), "");
        assert!(!selection.backend().is_empty());
        common::apply(&Layer::new(None, &selection, &packed).unwrap(), 2);
    }
}
