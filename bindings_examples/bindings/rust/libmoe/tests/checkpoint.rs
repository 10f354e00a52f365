//! A model's directory: its layers run as those of single calls do, converted folders come back, errors have a place.

mod common;
use common::Folder;
use libmoe::*;
use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const E: i64 = 4;
const H: i64 = 64;
const I: i64 = 32;
const LAYERS: i64 = 4;
const DENSE: i64 = 1;

/// A Qwen3-MoE of four layers in bfloat16, the second dense. Another seed: other weights of the same sizes.
fn write_model(directory: &Path, seed: u32) {
    fs::create_dir_all(directory).unwrap();
    let config = format!(
        r#"{{"architectures":["Qwen3MoeForCausalLM"],"hidden_act":"silu","torch_dtype":"bfloat16","hidden_size":{H},
            "moe_intermediate_size":{I},"intermediate_size":{I},"num_experts":{E},"num_experts_per_tok":2,
            "num_hidden_layers":{LAYERS},"norm_topk_prob":true,"decoder_sparse_step":1,"mlp_only_layers":[{DENSE}]}}"#
    );
    fs::write(directory.join("config.json"), config).unwrap();
    let (mut header, mut data, mut state) = (String::new(), Vec::new(), seed);
    let mut add = |name: String, rows: i64, columns: i64| {
        let begin = data.len();
        for _ in 0..rows * columns {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bits = (0x3d00 + (state >> 25)) as u16 | (state as u16 & 1 << 15); // of size 2^-5 to 2^-4, both signs
            data.extend(bits.to_le_bytes());
        }
        let separator = if header.is_empty() { "{" } else { "," };
        header += &format!(
            r#"{separator}"{name}":{{"dtype":"BF16","shape":[{rows},{columns}],"data_offsets":[{begin},{}]}}"#,
            data.len()
        );
    };
    for layer in (0..LAYERS).filter(|layer| *layer != DENSE) {
        let mlp = format!("model.layers.{layer}.mlp");
        add(format!("{mlp}.gate.weight"), E, H);
        for expert in 0..E {
            for (projection, rows, columns) in [("gate", I, H), ("up", I, H), ("down", H, I)] {
                add(format!("{mlp}.experts.{expert}.{projection}_proj.weight"), rows, columns);
            }
        }
    }
    add(format!("model.layers.{DENSE}.mlp.gate_proj.weight"), I, H);
    header += "}";
    let size = (header.len() as u64).to_le_bytes();
    fs::write(directory.join("model.safetensors"), [&size[..], header.as_bytes(), &data].concat()).unwrap();
}

fn model(folder: &Folder) -> (PathBuf, Checkpoint) {
    let directory = folder.0.join("model");
    write_model(&directory, 1);
    let checkpoint = Checkpoint::open(None, &directory).unwrap();
    (directory, checkpoint)
}

fn apply(layer: &Layer) -> Vec<Bf16> {
    let hidden: Vec<_> = (0..3 * H).map(|i| Bf16(0x3f80 + i as u16 % 61)).collect();
    let logits: Vec<_> = (0..3 * E).map(|i| (i * 5 % 7) as f32).collect();
    let (hidden, logits) = (Tensor::new(&hidden, &[3, H]).unwrap(), Tensor::new(&logits, &[3, E]).unwrap());
    let mut out = vec![Bf16(0); (3 * H) as usize];
    let mut result = TensorMut::new(&mut out, &[3, H]).unwrap();
    layer.apply(&hidden, Routing::Logits(&logits), &mut result).unwrap();
    assert!(out.iter().any(|x| x.0 != 0));
    out
}

/// What the single calls give.
fn alone(directory: &Path, layer: i64) -> Vec<Bf16> {
    let text = fs::read_to_string(directory.join("config.json")).unwrap();
    let config = Config::from_hf(&text, &format!(r#"{{"layer_index":{layer}}}"#)).unwrap();
    let selection = Selection::new(None, &config).unwrap();
    let mut weights = Weights::new(&config).unwrap();
    weights.load_safetensors(directory).unwrap();
    apply(&Layer::new(None, &selection, &Packed::convert(None, &selection, &weights).unwrap()).unwrap())
}

#[test]
fn layers_are_described() {
    let folder = Folder::new("described");
    let (_, model) = model(&folder);
    assert_eq!(model.layer_count(), LAYERS);
    for info in model.layers().unwrap() {
        let has_experts = info.layer != DENSE;
        assert_eq!(info.kind, if has_experts { LayerKind::Experts } else { LayerKind::Dense });
        assert!(!info.is_mtp && !info.is_converted && info.problem.is_empty(), "{info:?}");
        let name = if has_experts { format!("model.layers.{}.mlp.experts", info.layer) } else { String::new() };
        assert_eq!(info.name, name);
        if has_experts {
            let sizes = (info.num_experts, info.top_k, info.hidden_dim, info.intermediate_size);
            assert_eq!((sizes, info.bytes), ((E, 2, H, I), (2 * E * 3 * H * I) as u64));
        }
    }
    assert!(model.to_json().unwrap().contains("model.layers.0.mlp.gate.weight"));
    let matrix = model.tensor("model.layers.2.mlp.gate.weight").unwrap();
    drop(model);
    assert_eq!((matrix.dtype(), matrix.shape()), (<Bf16 as Element>::DTYPE, &[E, H][..]));
    assert_eq!(matrix.view().as_slice::<Bf16>().unwrap().len(), (E * H) as usize);
}

#[test]
fn layers_run_as_those_of_single_calls() {
    let folder = Folder::new("single_calls");
    let (directory, model) = model(&folder);
    let context = Context::new(r#"{"threads":2}"#).unwrap();
    for number in [0, 2, 3] {
        let expected = alone(&directory, number);
        assert_eq!(apply(&model.layer(Some(&context), number).unwrap()), expected);
        // the same in steps
        let config = model.config(number, "").unwrap();
        let selection = Selection::new(None, &config).unwrap();
        let mut weights = Weights::new(&config).unwrap();
        weights.load_checkpoint(&model).unwrap();
        let converted = Packed::convert(None, &selection, &weights).unwrap();
        let packed = model.packed(Some(&context), &selection).unwrap();
        assert_eq!(packed.data().unwrap(), converted.data().unwrap());
        assert_eq!(apply(&Layer::new(None, &selection, &packed).unwrap()), expected);
    }
    assert_ne!(alone(&directory, 0), alone(&directory, 2));
    std::thread::scope(|scope| {
        let model = &model;
        let threads = [0, 2, 3].map(|number| (number, scope.spawn(move || model.layer(None, number))));
        for (number, thread) in threads {
            assert_eq!(apply(&thread.join().unwrap().unwrap()), alone(&directory, number));
        }
    });
    let layer = model.layer(None, 3).unwrap();
    drop((context, model));
    assert_eq!(apply(&layer), alone(&directory, 3), "a layer outlives its checkpoint");
}

#[test]
fn options_reach_the_layer() {
    let folder = Folder::new("options");
    let (directory, model) = model(&folder);
    let rank = r#"{"parallel":{"tp_size":2,"tp_rank":1,"enable_expert_parallel":true}}"#;
    assert_eq!(model.config(0, rank).unwrap().int("/num_local_experts").unwrap(), E / 2);
    let options = CheckpointLayerOptions { patch: rank, ..Default::default() };
    assert_eq!(model.layer_with(None, 0, options).unwrap().expert_counts(false).unwrap().len() as i64, E / 2);
    let bare = Platform::new(r#"{"type":"cpu","arch":"x86_64","features":[]}"#).unwrap();
    let options = CheckpointLayerOptions { platform: Some(&bare), ..Default::default() };
    assert!(model.layer_with(None, 0, options).unwrap().to_json().unwrap().contains("scalar"));
    let identity = [0i32, 1, 2, 3];
    let map = Tensor::new(&identity, &[E]).unwrap();
    let layer = LayerOptions { expert_map: Some(&map), ..Default::default() };
    let options = CheckpointLayerOptions { layer, ..Default::default() };
    assert_eq!(apply(&model.layer_with(None, 0, options).unwrap()), alone(&directory, 0));
    let wish = CheckpointLayerOptions { patch: r#"{"moe_backend":"triton"}"#, ..Default::default() };
    assert_eq!(model.layer_with(None, 0, wish).unwrap_err().status(), Status::NO_BACKEND);
    model.layer_with(None, 0, CheckpointLayerOptions { allow_fallback: true, ..wish }).unwrap();
    let (json, control) = (r#"{"overrides":{"top_k":1}}"#, None);
    let other = Checkpoint::open_with(None, &directory, CheckpointOpenOptions { json, control }).unwrap();
    assert_eq!(other.config(0, "").unwrap().int("/top_k").unwrap(), 1);
}

#[test]
fn a_converted_folder_comes_back() {
    let folder = Folder::new("converted");
    let (directory, model) = model(&folder);
    let (context, target) = (Context::new("{}").unwrap(), folder.0.join("target"));
    let some = CheckpointConvertOptions { layers: Some(&[3, 0]), ..Default::default() };
    model.convert_with(Some(&context), &target, some).unwrap();
    let infos =
        |model: &Checkpoint| -> Vec<_> { model.layers().unwrap().iter().map(|info| info.is_converted).collect() };
    let part = Checkpoint::open(None, &target).unwrap();
    assert_eq!(infos(&part), [true, false, false, true]);
    assert_eq!(part.layer(None, 2).unwrap_err().status(), Status::MISSING_WEIGHT);
    model.convert(Some(&context), &target).unwrap();
    model.convert_with(None, &target, CheckpointConvertOptions { verify: true, ..Default::default() }).unwrap();

    let converted = Checkpoint::open(None, &target).unwrap();
    assert_eq!(infos(&converted), [true, false, true, true]);
    let load = LoadOptions { verify: true, prefault: true, control: None };
    let options = CheckpointLayerOptions { load, ..Default::default() };
    for number in [0, 2, 3] {
        let expected = alone(&directory, number);
        assert_eq!(apply(&converted.layer(Some(&context), number).unwrap()), expected);
        assert_eq!(apply(&converted.layer_with(None, number, options).unwrap()), expected);
        assert_eq!(apply(&unsafe { converted.map_layer(None, number, options) }.unwrap()), expected);
        let selection = Selection::new(None, &converted.config(number, "").unwrap()).unwrap();
        let packed = model.packed(None, &selection).unwrap();
        assert_eq!(converted.packed_with(None, &selection, load).unwrap().data().unwrap(), packed.data().unwrap());
        let mapped = unsafe { converted.map_packed(None, &selection, LoadOptions::default()) }.unwrap();
        assert_eq!(mapped.data().unwrap(), packed.data().unwrap());
    }
    let fast = model.fingerprint(Some(&context), false, None).unwrap();
    assert!(fast.starts_with("fast:"), "{fast}");
    assert_eq!(converted.fingerprint(None, false, None).unwrap(), fast);
    assert_eq!(converted.fingerprint(None, true, None).unwrap(), "");
    assert!(model.fingerprint(None, true, None).unwrap().starts_with("full:"));
    // It has no source tensors.
    assert_eq!(converted.tensor("model.layers.0.mlp.gate.weight").unwrap_err().status(), Status::UNSUPPORTED);
    let mut weights = Weights::new(&converted.config(0, "").unwrap()).unwrap();
    assert_eq!(weights.load_checkpoint(&converted).unwrap_err().status(), Status::UNSUPPORTED);
    assert_eq!(converted.convert(None, folder.0.join("again")).unwrap_err().status(), Status::UNSUPPORTED);

    // One folder holds one source.
    let other = folder.0.join("other");
    write_model(&other, 2);
    let error = Checkpoint::open(None, &other).unwrap().convert(None, &target).unwrap_err();
    assert_eq!(error.status(), Status::CONFIG_MISMATCH);
    assert!(error.details().contains(r#""member":"source""#), "{}", error.details());
    let patch = r#"{"parallel":{"tp_size":2,"tp_rank":1,"enable_expert_parallel":true}}"#;
    let cut = CheckpointConvertOptions { patch, ..Default::default() };
    assert_eq!(model.convert_with(None, &target, cut).unwrap_err().status(), Status::CONFIG_MISMATCH);
    let rank = folder.0.join("rank");
    model.convert_with(None, &rank, cut).unwrap();
    let rank = Checkpoint::open(None, rank).unwrap();
    assert_eq!(rank.config(0, "").unwrap().int("/num_local_experts").unwrap(), E / 2);
}

#[test]
fn errors_say_why() {
    let folder = Folder::new("why");
    let (directory, model) = model(&folder);
    for (layer, status, reason) in [
        (LAYERS, Status::INVALID_ARGUMENT, "past_the_end"),
        (-1, Status::INVALID_ARGUMENT, "past_the_end"),
        (DENSE, Status::INVALID_CONFIG, "dense_layer"),
    ] {
        for error in [model.config(layer, "").unwrap_err(), model.layer(None, layer).unwrap_err()] {
            assert_eq!((error.status(), error.subject()), (status, "layer"));
            assert!(error.details().contains(&format!(r#""reason":"{reason}""#)), "{}", error.details());
            assert_eq!((error.raw_os_error(), error.io_kind()), (None, None));
        }
    }
    assert_eq!(model.layer_info(LAYERS).unwrap_err().status(), Status::INVALID_ARGUMENT);
    assert_eq!(model.tensor("no.such").unwrap_err().status(), Status::MISSING_WEIGHT);
    assert_eq!(model.tensor("a\0b").unwrap_err().subject(), "name");
    assert_eq!(model.config(0, "{").unwrap_err().status(), Status::INVALID_CONFIG);
    let none = CheckpointConvertOptions { layers: Some(&[]), ..Default::default() };
    assert_eq!(model.convert_with(None, folder.0.join("x"), none).unwrap_err().subject(), "num_layers");
    let twice = CheckpointConvertOptions { layers: Some(&[0, 0]), ..Default::default() };
    assert_eq!(model.convert_with(None, folder.0.join("x"), twice).unwrap_err().subject(), "layers");
    let renamed = model.config(0, r#"{"name":"model.layers.9.mlp.experts"}"#).unwrap_err();
    assert_eq!((renamed.status(), renamed.subject()), (Status::INVALID_CONFIG, "/name"));

    // A layer that is not understood is not silent.
    let text = fs::read_to_string(directory.join("config.json")).unwrap();
    fs::write(directory.join("config.json"), text.replace(r#""hidden_act":"silu""#, r#""hidden_act":"none such""#))
        .unwrap();
    let strange = Checkpoint::open(None, &directory).unwrap();
    let info = strange.layer_info(0).unwrap();
    assert_eq!(info.kind, LayerKind::Other);
    assert!(!info.problem.is_empty());
    assert!(strange.layer(None, 0).unwrap_err().details().contains(r#""reason":"not_understood""#));
}

#[test]
fn missing_files_are_errors_of_the_system() {
    let folder = Folder::new("missing");
    let (_, model) = model(&folder);
    let missing = Checkpoint::open(None, folder.0.join("none")).unwrap_err();
    assert_eq!((missing.status(), missing.raw_os_error()), (Status::IO, Some(2)));
    assert_eq!(missing.io_kind(), Some(ErrorKind::NotFound));
    assert!(missing.subject().contains("none"), "{missing}");
    let standard = std::io::Error::from(missing);
    assert_eq!(standard.kind(), ErrorKind::NotFound);
    assert!(standard.get_ref().and_then(|error| error.downcast_ref::<Error>()).is_some());
    assert_eq!(std::io::Error::from(model.layer(None, 99).unwrap_err()).kind(), ErrorKind::Other);
    for error in [
        Packed::load(None, folder.0.join("none.moe"), LoadOptions::default()).unwrap_err(),
        model.convert(None, folder.0.join("none/below")).unwrap_err(),
        Weights::new(&model.config(0, "").unwrap()).unwrap().load_safetensors(folder.0.join("none")).unwrap_err(),
    ] {
        assert_eq!((error.status(), error.io_kind()), (Status::IO, Some(ErrorKind::NotFound)), "{error}");
    }
    let target = folder.0.join("target");
    model.convert(None, &target).unwrap();
    let converted = Checkpoint::open(None, &target).unwrap();
    fs::remove_file(target.join("layer-00002.moe")).unwrap();
    assert_eq!(converted.layer(None, 2).unwrap_err().status(), Status::MISSING_WEIGHT);
    assert!(!Checkpoint::open(None, &target).unwrap().layer_info(2).unwrap().is_converted);
    // The words of a path are no members.
    let error = Checkpoint::open(None, "no\"errno\":13,").unwrap_err();
    assert_eq!(error.io_kind(), Some(ErrorKind::NotFound));
}

#[test]
fn the_whole_state_is_told() {
    let folder = Folder::new("state");
    let (_, model) = model(&folder);
    let states = Arc::new(Mutex::new(Vec::new()));
    let seen = states.clone();
    let control = Control::with_state(move |now| {
        seen.lock().unwrap().push(*now);
        ControlFlow::Continue(())
    })
    .unwrap();
    let options = CheckpointConvertOptions { control: Some(&control), ..Default::default() };
    model.convert_with(None, folder.0.join("target"), options).unwrap();
    let states = std::mem::take(&mut *states.lock().unwrap());
    for phase in [Phase::Hash, Phase::Convert, Phase::Save] {
        let now = states.iter().find(|now| now.phase == phase).unwrap_or_else(|| panic!("no {phase:?}"));
        assert_eq!(now.unit, if phase == Phase::Convert { Unit::Experts } else { Unit::Bytes });
        assert!(now.done <= now.total && now.layers_total == LAYERS - 1, "{now:?}");
        assert_eq!(now.layer, if phase == Phase::Hash { None } else { Some(0) });
    }
    assert!(states.windows(2).all(|two| two[0].bytes_done <= two[1].bytes_done));
    let last = control.state().unwrap();
    assert_eq!((last.layers_done, last.bytes_done), (LAYERS - 1, last.bytes_total));
    assert!(last.bytes_total > 0 && states.last().unwrap().bytes_total == last.bytes_total);

    // The other calls, and controls without a function.
    let control = Control::new().unwrap();
    assert_eq!((control.state().unwrap().phase, control.state().unwrap().layer), (Phase::None, None));
    let with = CheckpointOpenOptions { control: Some(&control), ..Default::default() };
    let converted = Checkpoint::open_with(None, folder.0.join("model"), with).unwrap();
    assert_eq!(control.state().unwrap().phase, Phase::Open);
    let load = LoadOptions { control: Some(&control), ..Default::default() };
    converted.layer_with(None, 2, CheckpointLayerOptions { load, ..Default::default() }).unwrap();
    let now = control.state().unwrap();
    assert_eq!((now.phase, now.layer, now.layers_total), (Phase::Convert, Some(2), 1));
    converted.fingerprint(None, true, Some(&control)).unwrap();
    assert_eq!(control.state().unwrap().phase, Phase::Hash);
}

#[test]
fn a_cancel_or_a_panic_leaves_whole_layers() {
    let folder = Folder::new("cancel");
    let (directory, model) = model(&folder);
    let target = folder.0.join("target");
    let stop = Control::with_state(|now| match (now.layer, now.phase) {
        (Some(2), Phase::Save) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .unwrap();
    let panics = Control::with_state(|now| {
        assert!(now.layer != Some(3), "oh dear");
        ControlFlow::Continue(())
    })
    .unwrap();
    let convert = |control| {
        let options = CheckpointConvertOptions { control: Some(control), ..Default::default() };
        model.convert_with(None, &target, options).unwrap_err()
    };
    assert_eq!(convert(&stop).status(), Status::CANCELLED);
    let part = Checkpoint::open(None, &target).unwrap();
    assert_eq!(apply(&part.layer(None, 0).unwrap()), alone(&directory, 0));
    assert!(!part.layer_info(2).unwrap().is_converted);
    let error = convert(&panics);
    assert_eq!(error.status(), Status::CALLBACK);
    assert!(error.message().contains("oh dear"), "{error}");
    assert!(Checkpoint::open(None, &target).unwrap().layer_info(2).unwrap().is_converted);
    let cancelled = Control::new().unwrap();
    cancelled.cancel();
    let with = CheckpointOpenOptions { control: Some(&cancelled), ..Default::default() };
    assert_eq!(Checkpoint::open_with(None, &directory, with).unwrap_err().status(), Status::CANCELLED);
    assert_eq!(model.fingerprint(None, true, Some(&cancelled)).unwrap_err().status(), Status::CANCELLED);
}

/// `cargo test` builds the examples; alone: `cargo build --examples`.
#[test]
fn the_program_of_the_readme_runs() {
    let folder = Folder::new("program");
    let (directory, model) = model(&folder);
    let converted = folder.0.join("converted");
    model.convert(None, &converted).unwrap();
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().and_then(Path::parent).unwrap().join("examples/model");
    let run = |model: &Path| std::process::Command::new(&program).arg(model).output().unwrap();
    let output = String::from_utf8(run(&directory).stdout).unwrap();
    assert_eq!(output.lines().filter(|line| line.contains("3 layers computed")).count(), 3, "{output}");
    assert_eq!(String::from_utf8(run(&converted).stdout).unwrap(), output);
    let rank = folder.0.join("rank");
    let convert =
        std::process::Command::new(program.with_file_name("convert")).args([&directory, &rank]).output().unwrap();
    assert!(
        convert.status.success() && String::from_utf8_lossy(&convert.stderr).contains("layer Some(0): "),
        "{convert:?}"
    );
    assert_eq!(Checkpoint::open(None, &rank).unwrap().config(0, "").unwrap().int("/num_local_experts").unwrap(), 2);
    let missing = run(&folder.0.join("none"));
    let words = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(!missing.status.success() && words.contains("MOE_ERR_IO") && words.contains("ENOENT"), "{words}");
}
