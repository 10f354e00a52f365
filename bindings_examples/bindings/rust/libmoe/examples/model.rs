use libmoe::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::new("{}")?; // one thread per core
    let model = Checkpoint::open(Some(&context), std::env::args().nth(1).ok_or("give a model's directory")?)?;
    let infos = model.layers()?.into_iter().filter(|info| info.kind != LayerKind::Dense && !info.is_mtp);
    let layers = infos.map(|info| Ok((info, model.layer(Some(&context), info.layer)?)));
    let layers = layers.collect::<Result<Vec<_>, Error>>()?;
    for token in 0..3 {
        let mut hidden = vec![Bf16(0x3f80 + token); layers[0].0.hidden_dim as usize]; // yours: an embedding
        for (LayerInfo { hidden_dim, num_experts, .. }, layer) in &layers {
            let (logits, mut out) = (vec![0f32; *num_experts as usize], hidden.clone()); // yours: the router's logits
            let (x, logits) = (Tensor::new(&hidden, &[1, *hidden_dim])?, Tensor::new(&logits, &[1, *num_experts])?);
            layer.apply(&x, Routing::Logits(&logits), &mut TensorMut::new(&mut out, &[1, *hidden_dim])?)?;
            hidden = out; // yours: attention, norms, residuals
        }
        println!("token {token}: {} layers computed a first value of bits {:04x}", layers.len(), hidden[0].0);
    }
    Ok(())
}
