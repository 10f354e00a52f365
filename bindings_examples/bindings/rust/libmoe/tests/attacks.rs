//! What must not crash: shared memory, races with the end of handles, constructors that fail, texts cut in characters.
//!
//! Much of it does not compile: the `compile_fail` examples of the crate's page. How handles end:
//! bindings_examples/bindings/PROTOCOL.md, which names the tests of its rules.

mod common;
use common::*;
use libmoe::dlpack::{DlManagedTensorVersioned, DlTensor};
use libmoe::*;
use std::ptr::NonNull;
use std::sync::Arc;

/// `f32 [rows, columns]` at `data`, owned by no one.
fn foreign(data: *mut f32, shape: &mut [i64; 2], strides: &mut [i64; 2]) -> DlManagedTensorVersioned {
    let tensor = DlTensor {
        data: data.cast(),
        device_type: 1,
        device_id: 0,
        ndim: 2,
        code: 2,
        bits: 32,
        lanes: 1,
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    DlManagedTensorVersioned { major: 1, minor: 0, manager: std::ptr::null_mut(), deleter: None, flags: 0, tensor }
}

#[test]
fn outputs_that_share_memory_are_refused() {
    let layer = layer_of(None, &config());
    let scores = logits(2);
    let scores = Tensor::new(&scores, &[2, E]).unwrap();
    let mut memory = vec![0.5f32; (4 * H) as usize];
    // safe code cannot make these: other frameworks' tensors can
    for shift in [0, 1, H as usize] {
        let (mut shape, mut strides, mut strides2) = ([2, H], [H, 1], [H, 1]);
        let mut shape2 = shape;
        let mut x = foreign(memory.as_mut_ptr(), &mut shape, &mut strides);
        let mut y = foreign(memory.as_mut_ptr().wrapping_add(shift), &mut shape2, &mut strides2);
        let x = unsafe { OwnedTensor::from_dlpack(NonNull::from(&mut x)) }.unwrap();
        let mut y = unsafe { TensorMut::from_dlpack(NonNull::from(&mut y)) }.unwrap();
        let error = layer.apply(&x.view(), Routing::Logits(&scores), &mut y).unwrap_err();
        assert_eq!((error.status(), error.subject()), (Status::INVALID_ARGUMENT, "out"), "{shift}");
        assert!(error.message().contains("shares memory with hidden"), "{error}");
    }
    assert!(memory.iter().all(|x| *x == 0.5), "a refused call wrote");

    // rows that are one row, and rows that overlap
    let x = hidden(2);
    let x = Tensor::new(&x, &[2, H]).unwrap();
    for stride in [0, 1, H - 1] {
        let mut out = TensorMut::with_strides(&mut memory, &[2, H], &[stride, 1]).unwrap();
        let error = layer.apply(&x, Routing::Logits(&scores), &mut out).unwrap_err();
        assert_eq!(error.subject(), "out", "{error}");
    }
    let mut spread = TensorMut::with_strides(&mut memory, &[2, H], &[H + 3, 1]).unwrap();
    layer.apply(&x, Routing::Logits(&scores), &mut spread).unwrap();
    assert_eq!(memory[..H as usize], apply(&layer, 2)[..H as usize]);
    assert_eq!(memory[H as usize], 0.5, "wrote into a gap");
}

#[test]
fn shapes_and_strides_stay_inside_their_memory() {
    let message = |got: Result<Tensor, Error>| got.unwrap_err().message().to_string();
    assert_eq!(message(Tensor::new(&[0f32; 4], &[-1, 4])), "found [-1, 4], which no tensor of f32 has");
    let apart = message(Tensor::with_strides(&[0f32; 4], &[1, 4], &[-4, 1]));
    assert_eq!(apart, "found [1, 4] with strides [-4, 1], which no tensor of f32 has");
    let data = [0f32; 8];
    for shape in [&[3, 3][..], &[9], &[-1, -8], &[i64::MAX, 2], &[1 << 62, 4], &[2; 7], &[0]] {
        let error = Tensor::new(&data, shape).unwrap_err();
        assert_eq!((error.status(), error.subject()), (Status::SHAPE, "shape"), "{shape:?}");
        assert!(error.message().contains("found"), "{error}");
    }
    for (shape, strides) in [
        (&[2, 4][..], &[5, 1][..]),
        (&[2, 4], &[-4, 1]),
        (&[2, 4], &[0, 0]),
        (&[2, 4], &[4]),
        (&[2, 2], &[i64::MAX, 1]),
        (&[3, 2], &[1 << 62, 1]),
    ] {
        assert_eq!(Tensor::with_strides(&data, shape, strides).unwrap_err().status(), Status::SHAPE, "{strides:?}");
    }
    assert_eq!(Tensor::with_strides(&data, &[2, 4], &[4, 1]).unwrap().as_slice::<f32>().unwrap().len(), 8);
    assert!(Tensor::with_strides(&data, &[2, 3], &[4, 1]).unwrap().as_slice::<f32>().is_none());
    assert!(Tensor::new(&data[..0], &[0, 64]).is_ok());
    assert!(Tensor::from_bytes(DType(12345), &[0; 8], &[8]).is_err());
    let bytes = [0u8; 17];
    let odd = 1 - bytes.as_ptr() as usize % 2; // an address that no f32 has
    let tensor = Tensor::from_bytes(<f32 as Element>::DTYPE, &bytes[odd..odd + 16], &[1, 4]).unwrap();
    assert!(tensor.as_slice::<f32>().is_none());
    let error = config().route(
        None,
        &tensor,
        None,
        &mut TensorMut::new(&mut [0i32; 2], &[1, K]).unwrap(),
        &mut TensorMut::new(&mut [0f32; 2], &[1, K]).unwrap(),
    );
    assert_eq!(error.unwrap_err().subject(), "router_logits");
    assert!(Buffer::new(64, 48).is_err() && Buffer::new(usize::MAX, 64).is_err());
    assert_eq!(Buffer::new(0, 0).unwrap().len(), 0);
}

#[test]
fn the_end_of_a_layer_waits_for_its_calls() {
    let (selection, packed) = packed();
    for _ in 0..300 {
        let layer = Arc::new(Layer::new(None, &selection, &packed).unwrap());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let layer = layer.clone();
                std::thread::spawn(move || apply(&layer, 2)) // the last one to end drops the layer
            })
            .collect();
        drop(layer);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn handles_end_in_any_order() {
    for order in 0..24 {
        let context = Context::new(r#"{"threads":2}"#).unwrap();
        let config = config();
        let selection = Selection::new(Some(&context), &config).unwrap();
        let weights = weights(&config);
        let packed = Packed::convert(Some(&context), &selection, &weights).unwrap();
        let layer = Layer::new(Some(&context), &selection, &packed).unwrap();
        let mut all: Vec<Box<dyn std::any::Any>> =
            vec![Box::new(context), Box::new(config), Box::new(selection), Box::new(weights), Box::new(packed)];
        let mut seed = order;
        while !all.is_empty() {
            drop(all.swap_remove(seed % all.len()));
            seed = seed * 7 / 3 + 1;
            apply(&layer, 1);
        }
    }
}

#[test]
fn constructors_that_fail_leave_nothing() {
    let config = config();
    let (selection, packed) = packed();
    for text in ["{oops", "", "[]", "{\"threads\":-1}", "\0", "{\"a\":\"\u{7}\"}"] {
        assert!(Context::new(text).is_err() || text.is_empty(), "{text:?}");
        assert!(Config::new(text).is_err());
        assert!(Config::from_hf(text, "{}").is_err());
        assert!(config.merge(text).is_err());
        assert!(Platform::new(text).is_err());
        assert!(describe(text, text).is_err());
    }
    let other = config.merge(r#"{"intermediate_size":64}"#).unwrap();
    let elsewhere = Selection::new(None, &other).unwrap();
    assert_eq!(Layer::new(None, &elsewhere, &packed).unwrap_err().status(), Status::CONFIG_MISMATCH);
    assert!(Packed::convert(None, &elsewhere, &weights(&config)).is_err());
    assert!(Packed::load(None, "/dev/null", LoadOptions::default()).is_err());
    assert!(unsafe { Packed::map(None, "/dev/null", LoadOptions::default()) }.is_err());
    assert!(Weights::new(&config).unwrap().load_safetensors("/dev/null").is_err());
    apply(&Layer::new(None, &selection, &packed).unwrap(), 1);
}

#[test]
fn bad_ids_are_errors_before_anything_is_written() {
    let layer = layer_of(None, &config());
    let (x, weights, mut out) = (hidden(1), [0.5f32; 2], vec![7f32; H as usize]);
    let (x, weights) = (Tensor::new(&x, &[1, H]).unwrap(), Tensor::new(&weights, &[1, K]).unwrap());
    for id in [E, -2, i64::MAX, i64::MIN, 1 << 32] {
        let ids = [0, id];
        let ids = Tensor::new(&ids, &[1, K]).unwrap();
        let routing = Routing::TopK { ids: &ids, weights: &weights };
        let error = layer.apply(&x, routing, &mut TensorMut::new(&mut out, &[1, H]).unwrap()).unwrap_err();
        assert!(error.to_string().contains(&id.to_string()), "{error}");
    }
    assert!(out.iter().all(|x| *x == 7.0));
}

/// A safetensors file of this header.
fn file(folder: &Folder, name: &str, header: &str) -> std::path::PathBuf {
    let path = folder.0.join(name);
    std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()).unwrap();
    path
}

#[test]
fn texts_are_cut_between_characters() {
    let folder = Folder::new("texts");
    let (wide, accents) = ("z".repeat(1021), "é".repeat(5));
    let member = |dtype: &str| format!(r#"{{"a":{{"dtype":"{dtype}","shape":[1],"data_offsets":[0,1]}}}}"#);
    let mut errors = Vec::new();
    for header in [
        member(&format!("{}{accents}", "x".repeat(39))),
        member("\\u001b[2J\\u001b]0;pwned\\u0007"),
        member("Q\\u0000rest of it"),
        format!(r#"{{"a":{{"{}é":1}}}}"#, "y".repeat(39)),
        format!(r#"{{"m.{wide}é":{{"dtype":"I8","shape":[9],"data_offsets":[0,1]}}}}"#),
        r#"{"m.a\nINFO fake log line":{"dtype":"I8","shape":[9],"data_offsets":[0,1]}}"#.to_string(),
    ] {
        let path = file(&folder, "x.safetensors", &header);
        errors.push(Weights::new(&config()).unwrap().load_safetensors(path).unwrap_err());
    }
    for n in 20..90 {
        let value = format!("{}{}", "a".repeat(n), "é€😀".repeat(40));
        let text =
            format!(r#"{{"num_experts":2,"top_k":1,"hidden_size":64,"intermediate_size":32,"in_dtype":"{value}"}}"#);
        errors.push(Config::new(&text).unwrap_err());
        errors.push(Config::new(&format!(r#"{{"{value}":1}}"#)).unwrap_err());
        errors.push(describe(&value, "{}").unwrap_err());
        errors.push(Weights::new(&config()).unwrap().set(&value, tensor("w2_scale", 0, E)).unwrap_err());
    }
    for error in errors {
        let shown = format!("{error} {}", error.details());
        assert!(!error.message().is_empty() && !shown.contains('\u{fffd}'), "{shown}");
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert!(!error.message().ends_with('\\') && error.details().ends_with('}'), "{shown}");
    }
}

#[test]
#[cfg(unix)]
fn a_path_is_taken_as_it_is_or_not_at_all() {
    use std::os::unix::ffi::OsStrExt;
    let packed = packed().1;
    let folder = Folder::new("path");
    let error = packed.save(folder.0.join(std::ffi::OsStr::from_bytes(b"packed\xff")), None).unwrap_err();
    assert_eq!((error.status(), error.subject()), (Status::INVALID_ARGUMENT, "path"));
    assert_eq!(packed.save(folder.0.join("a\0b"), None).unwrap_err().subject(), "path");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    let wide = folder.0.join("é€😀 layer.moe");
    packed.save(&wide, None).unwrap();
    Packed::load(None, &wide, LoadOptions::default()).unwrap();
}
