use libmoe::*;
use std::ops::ControlFlow;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = Checkpoint::open(None, arguments.next().ok_or("give a model's directory")?)?;
    let folder = arguments.next().ok_or("give a folder for the converted layers")?;
    let control = Control::with_state(|now| {
        eprintln!("layer {:?}: {} of {} bytes", now.layer, now.bytes_done, now.bytes_total);
        ControlFlow::Continue(()) // Break(()), or control.cancel() from another thread, stops the call
    })?;
    let patch = r#"{"parallel": {"tp_size": 2, "tp_rank": 1, "enable_expert_parallel": true}}"#;
    let options = CheckpointConvertOptions { patch, control: Some(&control), ..Default::default() };
    Ok(model.convert_with(Some(&Context::new("{}")?), folder, options)?)
}
