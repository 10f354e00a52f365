//! Tells rustc where libmoe is: `LIBMOE_LIB_DIR`, else what `pkg-config libmoe` says.
//!
//! The library is linked by its file name, `libmoe.so.0`, where rustc can do that (1.67): another
//! package's static `libmoe.a` in an earlier directory would otherwise be taken for `-lmoe`.

use std::env;
use std::process::Command;

fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let line = format!("{} {}", program, arguments.join(" "));
    let result = Command::new(program).args(arguments).output().map_err(|e| format!("{line}: {e}"))?;
    if !result.status.success() {
        return Err(format!("{line}: {}", String::from_utf8_lossy(&result.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&result.stdout).trim().to_string())
}

fn directory() -> Result<String, String> {
    match env::var("LIBMOE_LIB_DIR") {
        Ok(dir) => Ok(dir),
        Err(_) => output("pkg-config", &["--variable=libdir", "libmoe"]),
    }
}

/// The minor version of `rustc 1.N.x`.
fn rustc_minor() -> Option<u32> {
    let version = output(&env::var("RUSTC").ok()?, &["--version"]).ok()?;
    version.split('.').nth(1)?.parse().ok()
}

fn main() {
    println!("cargo:rerun-if-env-changed=LIBMOE_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    match directory() {
        Ok(dir) => {
            println!("cargo:rustc-link-search=native={dir}");
            println!("cargo:libdir={dir}");
        }
        Err(why) => {
            eprintln!("libmoe not found: set LIBMOE_LIB_DIR, or PKG_CONFIG_PATH to its pkgconfig directory ({why})");
            std::process::exit(1);
        }
    }
    match rustc_minor() {
        Some(minor) if minor >= 67 => println!("cargo:rustc-link-lib=dylib:+verbatim=libmoe.so.0"),
        _ => println!("cargo:rustc-link-lib=dylib=moe"),
    }
}
