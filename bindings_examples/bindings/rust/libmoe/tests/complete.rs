//! Every function of the C interface is in the safe one, and every handle is what the header says of threads.

use libmoe::*;
use std::collections::HashSet;

const SOURCES: &[&str] = &[
    include_str!("../src/buffer.rs"),
    include_str!("../src/checkpoint.rs"),
    include_str!("../src/comm.rs"),
    include_str!("../src/config.rs"),
    include_str!("../src/context.rs"),
    include_str!("../src/control.rs"),
    include_str!("../src/dist.rs"),
    include_str!("../src/dlpack.rs"),
    include_str!("../src/error.rs"),
    include_str!("../src/layer.rs"),
    include_str!("../src/library.rs"),
    include_str!("../src/packed.rs"),
    include_str!("../src/selection.rs"),
    include_str!("../src/tensor.rs"),
    include_str!("../src/weights.rs"),
];

/// The words of the code, without comments.
fn words() -> HashSet<&'static str> {
    let lines = SOURCES.iter().flat_map(|source| source.lines()).filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
}

/// The members `"key": "value"` of JSON, in order.
fn values<'a>(json: &'a str, key: &str) -> Vec<&'a str> {
    let key = format!("\"{key}\":");
    json.split(&key[..]).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next()).collect()
}

#[test]
fn every_function_of_the_library_is_declared_and_wrapped() {
    let described: Vec<_> =
        values(abi_json(), "name").into_iter().filter(|name| sys::FUNCTIONS.contains(name)).collect();
    assert_eq!(described, sys::FUNCTIONS, "libmoe-sys and the library differ");
    let words = words();
    let missing: Vec<_> = sys::FUNCTIONS.iter().filter(|name| !words.contains(*name)).collect();
    assert!(missing.is_empty(), "in no safe wrapper: {missing:?}");
    assert!(sys::FUNCTIONS.iter().all(|name| sys::loading::has(name)));
}

#[test]
fn every_flag_and_mode_can_be_set() {
    let words = words();
    let kinds = ["MOE_SELECT_", "MOE_CONVERT_", "MOE_LOAD_", "MOE_LAYER_", "MOE_APPLY_"];
    let flags: Vec<_> = abi_json().split('"').filter(|name| kinds.iter().any(|kind| name.starts_with(kind))).collect();
    assert!(flags.len() >= 10, "{flags:?}");
    let missing: Vec<_> = flags.iter().filter(|name| !words.contains(*name)).collect();
    assert!(missing.is_empty(), "cannot be set: {missing:?}");
}

/// [any] in the header: every handle goes to, and is used by, any thread. What is [excl] takes `&mut self` or the value:
/// `compile_fail` examples of the crate's page hold that.
#[test]
fn handles_are_send_and_sync() {
    fn both<T: Send + Sync>() {}
    both::<Buffer>();
    both::<Checkpoint>();
    both::<Comm>();
    both::<Config>();
    both::<Context>();
    both::<Control>();
    both::<Dist>();
    both::<DistCall<'static>>();
    both::<Error>();
    both::<Layer>();
    both::<Packed>();
    both::<Platform>();
    both::<Selection>();
    both::<Weights>();
    both::<OwnedTensor>();
    both::<Tensor<'static>>();
    both::<TensorMut<'static>>();
    both::<Tasks<'static>>();
    let excl = values(abi_json(), "threads").into_iter().filter(|threads| *threads == "excl").count();
    let destroys = sys::FUNCTIONS.iter().filter(|name| name.ends_with("_destroy")).count();
    // of weights: set, set_expert, set_named, load_safetensors; of ranks: set_options, attach, apply, begin, poll, finish
    assert_eq!(excl, destroys + 4 + 6, "another function changes a handle: its wrapper takes `&mut self` or the value");
}

#[test]
fn raw_handles_go_out_and_come_back() {
    let config = Config::new(r#"{"num_experts":2,"top_k":1,"hidden_dim":64,"intermediate_size":32}"#).unwrap();
    let start = config.as_raw();
    let raw = config.into_raw();
    assert_eq!(raw.as_ptr(), start);
    let (pointer, mut value) = (b"/num_experts\0", 0);
    let status =
        unsafe { sys::moe_config_get_int(raw.as_ptr(), pointer.as_ptr().cast(), &mut value, std::ptr::null_mut()) };
    assert_eq!((status, value), (sys::MOE_OK, 2));
    let config = unsafe { Config::from_raw(raw) };
    assert_eq!(config.int("/top_k").unwrap(), 1);
}

#[test]
fn the_readme_shows_the_examples() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [here.join("README.md"), here.join("../README.md")]; // of a package, of the checkout
    let readme = std::fs::read_to_string(places.iter().find(|path| path.exists()).unwrap()).unwrap();
    let examples = [
        include_str!("../examples/model.rs"),
        include_str!("../examples/readme.rs"),
        include_str!("../examples/convert.rs"),
    ];
    for example in examples {
        assert!(readme.contains(&format!("```rust\n{example}```\n")), "README.md and the examples differ: {example}");
    }
}

#[test]
fn the_library_says_which_it_is() {
    let library = library().unwrap();
    assert_eq!(library.abi_version, sys::MOE_ABI_VERSION);
    assert!(library.path.as_ref().unwrap().is_file(), "{library:?}");
    let digits: Vec<i32> = library.version.split(['.', '-']).take(3).map(|part| part.parse().unwrap()).collect();
    assert_eq!(library.version_number, digits[0] * 1_000_000 + digits[1] * 1000 + digits[2]);
    assert!(build_info_json().contains(&library.version));
    assert!(has_feature("io.mmap") && !has_feature("io.teleport") && !has_feature("a\0b"));
    assert_eq!(load("/no/such/file").unwrap().path, library.path, "what is loaded stays");
}
