//! What the wrapper promises: errors with a place, owned weights, any order of drops, threads.

use libmoe::{Bf16, Config, Context, Layer, Packed, Routing, Selection, Tensor, TensorMut, Weights};

const E: i64 = 4;
const K: i64 = 2;
const H: i64 = 64;
const I: i64 = 32;

fn config() -> Config {
    Config::new(&format!(
        r#"{{"num_experts":{E},"top_k":{K},"hidden_dim":{H},"intermediate_size":{I},"in_dtype":"float32",
            "quantization":{{"scheme":"W4A8","group_size":32}}}}"#
    ))
    .unwrap()
}

/// Codes -8..7 and scales of 2^-6, by a counter.
fn weights(config: &Config) -> Weights {
    let codes = |rows: i64, columns: i64| (0..E * rows * columns).map(|i| (i * 7 % 16 - 8) as i8).collect::<Vec<_>>();
    let scales = |rows: i64, columns: i64| vec![Bf16(0x3c80); (E * rows * columns / 32) as usize];
    let mut weights = Weights::new(config).unwrap();
    weights.set("w13_weight", codes(2 * I, H), &[E, 2 * I, H]).unwrap();
    weights.set("w13_scale", scales(2 * I, H), &[E, 2 * I, H / 32]).unwrap();
    weights.set("w2_weight", codes(H, I), &[E, H, I]).unwrap();
    weights.set("w2_scale", scales(H, I), &[E, H, I / 32]).unwrap();
    weights
}

fn layer() -> Layer {
    let context = Context::new(r#"{"threads":2}"#).unwrap();
    let config = config();
    let selection = Selection::new(Some(&context), &config).unwrap();
    let packed = Packed::convert(Some(&context), &selection, &mut weights(&config)).unwrap();
    Layer::new(Some(&context), &selection, &packed).unwrap() // all but the layer are dropped here
}

fn apply(layer: &Layer, tokens: i64) -> Vec<f32> {
    let hidden: Vec<f32> = (0..tokens * H).map(|i| (i % 17) as f32 * 0.125 - 1.0).collect();
    let ids: Vec<i32> = (0..tokens * K).map(|i| (i % E) as i32).collect();
    let scale = vec![0.5f32; (tokens * K) as usize];
    let mut out = vec![f32::NAN; (tokens * H) as usize];
    let ids = Tensor::new(&ids, &[tokens, K]).unwrap();
    let weights = Tensor::new(&scale, &[tokens, K]).unwrap();
    let routing = Routing::TopK { ids: &ids, weights: &weights };
    let hidden = Tensor::new(&hidden, &[tokens, H]).unwrap();
    layer.apply(&hidden, routing, &mut TensorMut::new(&mut out, &[tokens, H]).unwrap()).unwrap();
    out
}

#[test]
fn a_layer_outlives_what_it_was_made_of_and_runs_on_many_threads() {
    let layer = layer();
    let expected = apply(&layer, 9);
    assert!(expected.iter().all(|x| x.is_finite()) && expected.iter().any(|x| *x != 0.0));
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(|| apply(&layer, 9))).collect();
        for call in calls {
            assert_eq!(call.join().unwrap(), expected);
        }
    });
    assert_eq!(apply(&layer, 1), expected[..H as usize], "the bits of a token depend on its batch");
}

#[test]
fn errors_say_where() {
    let error = Config::new(r#"{"num_experts":0,"top_k":1,"hidden_dim":64,"intermediate_size":32}"#).err().unwrap();
    assert_eq!(error.status().name(), "MOE_ERR_INVALID_CONFIG");
    assert_eq!(error.subject(), "/num_experts");
    assert!(!error.message().is_empty() && error.details().contains("\"subject\""));
    assert_eq!(error.to_string(), format!("MOE_ERR_INVALID_CONFIG at '/num_experts': {}", error.message()));
}

#[test]
fn shapes_are_checked_before_the_library_sees_them() {
    assert_eq!(Tensor::new(&[0f32; 8], &[3, 3]).err().unwrap().status().name(), "MOE_ERR_SHAPE");
    assert!(Tensor::new(&[0f32; 0], &[0, 64]).is_ok());
    let mut weights = Weights::new(&config()).unwrap();
    let error = weights.set("w13_weight", vec![0i8; 8], &[8]).err().unwrap();
    assert_eq!(error.status().name(), "MOE_ERR_SHAPE");
}

#[test]
fn every_candidate_has_a_reason() {
    let candidates = Selection::new(None, &config()).unwrap().candidates().unwrap();
    assert_eq!(candidates.iter().filter(|c| c.chosen).count(), 1);
    assert!(candidates.iter().all(|c| (c.reason == "MOE_REJECT_NONE") == c.detail.is_empty()));
}

#[test]
fn incomplete_weights_are_named() {
    let config = config();
    let selection = Selection::new(None, &config).unwrap();
    let error = Packed::convert(None, &selection, &mut Weights::new(&config).unwrap()).err().unwrap();
    assert_eq!(error.status().name(), "MOE_ERR_MISSING_WEIGHT");
}

#[test]
#[cfg(unix)]
fn a_path_is_taken_as_it_is_or_not_at_all() {
    use std::os::unix::ffi::OsStrExt;
    let config = config();
    let selection = Selection::new(None, &config).unwrap();
    let packed = Packed::convert(None, &selection, &mut weights(&config)).unwrap();
    let folder = std::env::temp_dir().join(format!("libmoe_path_{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let error = packed.save(folder.join(std::ffi::OsStr::from_bytes(b"packed\xff"))).err();
    let written = std::fs::read_dir(&folder).unwrap().count();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(error.map(|e| e.status().name()), Some("MOE_ERR_INVALID_ARGUMENT"));
    assert_eq!(written, 0);
}
