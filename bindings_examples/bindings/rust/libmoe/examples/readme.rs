use libmoe::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let checkpoint = std::env::args().nth(1).ok_or("give the directory of a checkpoint")?;
    let context = Context::new("{}")?; // one thread per core
    let config = Config::from_hf(&std::fs::read_to_string(checkpoint.clone() + "/config.json")?, "{}")?;
    let (hidden, experts) = (config.int("/hidden_dim")?, config.int("/num_experts")?);
    let selection = Selection::new(Some(&context), &config)?;
    let mut weights = Weights::new(&config)?;
    weights.load_safetensors(&checkpoint)?;
    let packed = Packed::convert(Some(&context), &selection, &weights)?;
    let layer = Layer::new(Some(&context), &selection, &packed)?;
    let (ones, logits) = (vec![Bf16(0x3f80); hidden as usize], vec![0f32; experts as usize]); // one token
    let mut out = vec![Bf16(0); hidden as usize];
    let routing = Tensor::new(&logits, &[1, experts])?;
    let mut result = TensorMut::new(&mut out, &[1, hidden])?;
    layer.apply(&Tensor::new(&ones, &[1, hidden])?, Routing::Logits(&routing), &mut result)?;
    println!("{} computed a first value of bits {:04x}", selection.kernel(), out[0].0);
    Ok(())
}
