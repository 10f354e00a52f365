//! A small layer: 4 experts of 64 x 32, two of them per token, int4 weights in groups of 32.
#![allow(dead_code)] // each test program uses a part

use libmoe::{
    Bf16, Config, Context, Error, Layer, OwnedTensor, Packed, Routing, Selection, Tensor, TensorMut, Weights,
};

pub const E: i64 = 4;
pub const K: i64 = 2;
pub const H: i64 = 64;
pub const I: i64 = 32;
pub const ROLES: [&str; 4] = ["w13_weight", "w13_scale", "w2_weight", "w2_scale"];

pub fn config_with(more: &str) -> Config {
    Config::new(&format!(
        r#"{{"num_experts":{E},"top_k":{K},"hidden_dim":{H},"intermediate_size":{I},"in_dtype":"float32",
            "router_logits_dtype":"float32","quantization":{{"scheme":"W4A8","group_size":32}}{more}}}"#
    ))
    .unwrap()
}

pub fn config() -> Config {
    config_with("")
}

/// Codes -8..7 and scales of 2^-6, of the experts from..to.
pub fn tensor(role: &str, from: i64, to: i64) -> OwnedTensor {
    let (rows, columns) = if role.starts_with("w13") { (2 * I, H) } else { (H, I) };
    let shape = |columns| if to - from == 1 { vec![rows, columns] } else { vec![to - from, rows, columns] };
    if role.ends_with("scale") {
        let scales = vec![Bf16(0x3c80); ((to - from) * rows * columns / 32) as usize];
        return OwnedTensor::new(scales, &shape(columns / 32)).unwrap();
    }
    let codes: Vec<i8> = (from * rows * columns..to * rows * columns).map(|i| (i * 7 % 16 - 8) as i8).collect();
    OwnedTensor::new(codes, &shape(columns)).unwrap()
}

pub fn weights(config: &Config) -> Weights {
    let mut weights = Weights::new(config).unwrap();
    for role in ROLES {
        weights.set(role, tensor(role, 0, E)).unwrap();
    }
    weights
}

pub fn packed() -> (Selection, Packed) {
    let config = config();
    let selection = Selection::new(None, &config).unwrap();
    let packed = Packed::convert(None, &selection, &weights(&config)).unwrap();
    (selection, packed)
}

pub fn layer_of(context: Option<&Context>, config: &Config) -> Layer {
    let selection = Selection::new(context, config).unwrap();
    let packed = Packed::convert(context, &selection, &weights(config)).unwrap();
    Layer::new(context, &selection, &packed).unwrap() // all but the layer are dropped here
}

pub fn hidden(tokens: i64) -> Vec<f32> {
    (0..tokens * H).map(|i| (i % 17) as f32 * 0.125 - 1.0).collect()
}

pub fn logits(tokens: i64) -> Vec<f32> {
    (0..tokens * E).map(|i| (i * 5 % 7) as f32).collect()
}

pub fn try_apply(layer: &Layer, tokens: i64) -> Result<Vec<f32>, Error> {
    let (hidden, logits) = (hidden(tokens), logits(tokens));
    let mut out = vec![f32::NAN; hidden.len()];
    let routing = Tensor::new(&logits, &[tokens, E])?;
    let hidden = Tensor::new(&hidden, &[tokens, H])?;
    layer.apply(&hidden, Routing::Logits(&routing), &mut TensorMut::new(&mut out, &[tokens, H])?)?;
    Ok(out)
}

pub fn apply(layer: &Layer, tokens: i64) -> Vec<f32> {
    try_apply(layer, tokens).unwrap()
}

/// A folder of this test, removed with the value.
pub struct Folder(pub std::path::PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("libmoe_{name}_{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
