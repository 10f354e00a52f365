//! The four steps from Rust: select, convert, create, apply.
//!
//!     cargo run --example four_steps -- CHECKPOINT_DIR OUTPUT_FILE

use libmoe::{Config, Context, DType, Layer, Packed, Routing, Selection, Tensor, TensorMut, Weights};
use std::{env, error::Error, fs, path::Path, process::ExitCode};

fn run(directory: &Path, output: &Path) -> Result<(), Box<dyn Error>> {
    let context = Context::new("{}")?;
    let config = Config::from_hf(&fs::read_to_string(directory.join("config.json"))?, "{}")?;
    let (width, experts) = (config.int("/hidden_dim")?, config.int("/num_experts")?);
    let dtype = DType::from_name(config.string("/in_dtype")?).ok_or("unknown in_dtype")?;

    let selection = Selection::new(Some(&context), &config)?;
    println!("{} {} {}", selection.backend(), selection.kernel(), selection.layout());
    let mut weights = Weights::new(&config)?;
    weights.load_safetensors(directory)?;
    let packed = Packed::convert(Some(&context), &selection, &weights)?;
    drop(weights);
    let layer = Layer::new(Some(&context), &selection, &packed)?;

    let hidden = fs::read(directory.join("hidden.bin"))?;
    let logits = fs::read(directory.join("logits.bin"))?;
    let tokens = (hidden.len() / dtype.bytes(&[width]).ok_or("no rows of hidden_dim")?) as i64;
    let f32_dtype = DType::from_name("f32").ok_or("unknown dtype")?;
    let mut out = vec![0u8; hidden.len()];
    layer.apply(
        &Tensor::from_bytes(dtype, &hidden, &[tokens, width])?,
        Routing::Logits(&Tensor::from_bytes(f32_dtype, &logits, &[tokens, experts])?),
        &mut TensorMut::from_bytes(dtype, &mut out, &[tokens, width])?,
    )?;
    fs::write(output, out)?;
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().collect();
    if arguments.len() != 3 {
        eprintln!("usage: four_steps CHECKPOINT_DIR OUTPUT_FILE");
        return ExitCode::from(2);
    }
    match run(Path::new(&arguments[1]), Path::new(&arguments[2])) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
