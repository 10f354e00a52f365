//! Links libmoe.
//!
//! - default: `libmoe.so.0` in `LIBMOE_LIB_DIR`, else where `pkg-config libmoe` says
//! - feature `static`: `libmoe.a` in the same place
//! - feature `vendored`: `libmoe.a`, built by cmake from the C++ sources
//! - feature `dlopen`: nothing; the library is loaded at run time
//!
//! Other projects have a `libmoe.a`, too, and their directory may come first in the search path. So the shared library is
//! linked by its file name, where rustc can do that (1.67), and the archive by a copy whose name is ours alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SHARED: &str = "libmoe.so.0";

fn main() {
    for name in ["LIBMOE_LIB_DIR", "PKG_CONFIG_PATH", "CMAKE", "DOCS_RS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    if env::var_os("DOCS_RS").is_some() {
        return; // documentation is written without linking
    }
    let has = |feature: &str| env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    let linked = if has("VENDORED") {
        build().and_then(|archive| link_archive(&archive))
    } else if has("STATIC") {
        directory().and_then(|dir| link_archive(&dir.join("libmoe.a")))
    } else if has("DLOPEN") {
        Ok(())
    } else {
        directory().and_then(|dir| link_shared(&dir))
    };
    if let Err(why) = linked {
        eprintln!("libmoe-sys: {why}");
        std::process::exit(1);
    }
}

fn run(command: &mut Command) -> Result<String, String> {
    let line = format!("{command:?}");
    let result = command.output().map_err(|e| format!("{line}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if !result.status.success() {
        return Err(format!("{line}: {}\n{}\n{}", result.status, text(&result.stdout), text(&result.stderr)));
    }
    Ok(text(&result.stdout))
}

/// Where the installed library is.
fn directory() -> Result<PathBuf, String> {
    if let Some(dir) = env::var_os("LIBMOE_LIB_DIR") {
        return Ok(dir.into());
    }
    run(Command::new("pkg-config").args(["--variable=libdir", "libmoe"])).map(PathBuf::from).map_err(|why| {
        format!(
            "libmoe not found: set LIBMOE_LIB_DIR to the folder of {SHARED}, or PKG_CONFIG_PATH to the folder of libmoe.pc, \
             or take the feature \"vendored\" (builds it) or \"dlopen\" (loads it at run time)\n{why}"
        )
    })
}

fn rustc_minor() -> Option<u32> {
    let version = run(Command::new(env::var_os("RUSTC")?).arg("--version")).ok()?;
    version.split('.').nth(1)?.parse().ok()
}

fn link_shared(dir: &Path) -> Result<(), String> {
    if !dir.join(SHARED).exists() {
        return Err(format!("no {SHARED} in {}", dir.display()));
    }
    println!("cargo:rustc-link-search=native={}", dir.display());
    println!("cargo:libdir={}", dir.display());
    match rustc_minor() {
        Some(minor) if minor >= 67 => println!("cargo:rustc-link-lib=dylib:+verbatim={SHARED}"),
        _ => println!("cargo:rustc-link-lib=dylib=moe"),
    }
    Ok(())
}

fn link_archive(archive: &Path) -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    fs::copy(archive, out.join("libmoe_c_archive.a")).map_err(|e| format!("{}: {e}", archive.display()))?;
    println!("cargo:rerun-if-changed={}", archive.display());
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=moe_c_archive");
    for name in ["stdc++", "m", "pthread"] {
        println!("cargo:rustc-link-lib=dylib={name}");
    }
    Ok(())
}

/// The C++ sources: of a package in `libmoe` beside this file, of a checkout four folders above.
fn sources() -> Result<PathBuf, String> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("CARGO_MANIFEST_DIR is not set")?);
    let places = [here.join("libmoe"), here.join("../../../..")];
    let found = places.iter().find(|place| place.join("include_c/moe/moe.h").exists());
    found.cloned().ok_or_else(|| format!("no C++ sources of libmoe in {}", here.display()))
}

fn build() -> Result<PathBuf, String> {
    let source = sources()?;
    for name in ["CMakeLists.txt", "include_c", "impl", "pkgconfig", "abi_check/moe_abi.json"] {
        println!("cargo:rerun-if-changed={}", source.join(name).display());
    }
    let build = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?).join("build");
    let cmake = || Command::new(env::var_os("CMAKE").unwrap_or_else(|| "cmake".into()));
    let options = ["CMAKE_BUILD_TYPE=Release", "MOE_BUILD_STATIC=ON", "MOE_BUILD_TESTS=OFF", "MOE_BUILD_EXAMPLES=OFF", "MOE_TOOL=OFF"];
    run(cmake().arg("-S").arg(source).arg("-B").arg(&build).args(options.map(|option| format!("-D{option}"))))?;
    let jobs = env::var("NUM_JOBS").unwrap_or_else(|_| "1".into());
    run(cmake().arg("--build").arg(&build).args(["--target", "libmoe_static", "--parallel", &jobs]))?;
    Ok(build.join("libmoe.a"))
}
