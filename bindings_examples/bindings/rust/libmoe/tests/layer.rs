//! Selection, weights, conversion and layers: results, options, errors with a place.

mod common;
use common::*;
use libmoe::*;

#[test]
fn a_layer_outlives_what_it_was_made_of_and_runs_on_many_threads() {
    let layer = layer_of(Some(&Context::new(r#"{"threads":2}"#).unwrap()), &config());
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
fn weights_of_another_layer_are_taken_when_asked_for() {
    let configs = [0, 1].map(|layer| config_with(&format!(r#","name":"model.layers.{layer}.mlp.experts""#)));
    let selections = configs.each_ref().map(|config| Selection::new(None, config).unwrap());
    let packed = Packed::convert(None, &selections[0], &weights(&configs[0])).unwrap();
    let refused = Layer::new(None, &selections[1], &packed).err().unwrap();
    assert_eq!((refused.status(), refused.subject()), (Status::CONFIG_MISMATCH, "/name"));
    Layer::with(None, &selections[1], &packed, LayerOptions { any_name: true, ..Default::default() }).unwrap();
    let mut vllm = Weights::new(&configs[1]).unwrap();
    for role in ROLES {
        vllm.set(&role.replace("_scale", "_weight_scale"), tensor(role, 0, E)).unwrap();
    }
    assert!(Packed::convert(None, &selections[0], &vllm).is_err());
    let options = ConvertOptions { any_name: true, ..Default::default() };
    let other = Packed::convert_with(None, &selections[0], &vllm, options).unwrap();
    assert_eq!(other.data().unwrap(), packed.data().unwrap());
}

#[test]
fn weights_by_stack_expert_half_name_and_releasing_give_the_same_bytes() {
    let config = config_with(r#","name":"m.experts""#);
    let selection = Selection::new(None, &config).unwrap();
    let expected = Packed::convert(None, &selection, &weights(&config)).unwrap();

    let mut single = Weights::new(&config).unwrap();
    for expert in 0..E {
        for role in ROLES {
            single.set_expert(role, expert, None, tensor(role, expert, expert + 1)).unwrap();
        }
    }
    let mut halves = Weights::new(&config).unwrap();
    let mut named = Weights::new(&config).unwrap();
    for expert in 0..E {
        for role in ROLES {
            let whole = tensor(role, expert, expert + 1);
            let bytes = whole.view().as_bytes().unwrap().to_vec();
            let (rows, columns) = (whole.shape()[0], whole.shape()[1]);
            let part = |bytes: &[u8], rows| OwnedTensor::from_bytes(whole.dtype(), bytes.to_vec(), &[rows, columns]);
            let end = if role.ends_with("scale") { "weight_scale" } else { "weight" };
            let name = |projection| format!("m.experts.{expert}.{projection}_proj.{end}");
            if role.starts_with("w2") {
                halves.set_expert(role, expert, None, part(&bytes, rows).unwrap()).unwrap();
                assert!(named.set_named(&name("down"), part(&bytes, rows).unwrap()).unwrap());
                continue;
            }
            for (half, shard, projection) in [(0, "w1", "gate"), (1, "w3", "up")] {
                let bytes = &bytes[half * bytes.len() / 2..(half + 1) * bytes.len() / 2];
                halves.set_expert(role, expert, Some(shard), part(bytes, rows / 2).unwrap()).unwrap();
                assert!(named.set_named(&name(projection), part(bytes, rows / 2).unwrap()).unwrap());
            }
        }
    }
    assert!(!named.set_named("m.other.weight", tensor("w2_scale", 0, 1)).unwrap(), "another layer's name");
    for weights in [&single, &halves, &named] {
        let packed = Packed::convert(None, &selection, weights).unwrap();
        assert_eq!(packed.data().unwrap(), expected.data().unwrap());
    }
    let released = Packed::convert_releasing(
        None,
        &selection,
        &mut single,
        ConvertOptions { max_temp_bytes: 1 << 20, ..Default::default() },
    )
    .unwrap();
    assert_eq!(released.data().unwrap(), expected.data().unwrap());
    assert!(single.to_json().unwrap().contains(r#""complete":false"#), "the set was emptied");
}

#[test]
fn sources_are_seen_again() {
    let config = config();
    let weights = weights(&config);
    let stack = weights.get("w13_weight", None).unwrap();
    assert_eq!((stack.view().dtype(), stack.view().shape()), (<i8 as Element>::DTYPE, &[E, 2 * I, H][..]));
    let second = weights.get("w13_weight", Some(1)).unwrap();
    let size = (2 * I * H) as usize;
    assert_eq!(second.view().as_slice::<i8>().unwrap(), &stack.view().as_slice::<i8>().unwrap()[size..2 * size]);
    assert!(second.view().as_slice::<u8>().is_none(), "another type");
    assert!(weights.to_json().unwrap().contains(r#""complete":true"#));
    assert_eq!(weights.get("w9", None).err().unwrap().subject(), "role");
}

#[test]
fn packed_weights_are_named_saved_mapped_and_dequantized() {
    let (selection, packed) = packed();
    let layer = Layer::new(None, &selection, &packed).unwrap();
    let (bytes, alignment) = selection.packed_size().unwrap();
    assert!(bytes > 0 && alignment.is_power_of_two() && packed.to_json().unwrap().contains("w13_packed"));
    let all = packed.get("w13_packed", None).unwrap();
    assert_eq!(all.shape()[0], E);
    let one = packed.get("w13_packed", Some(E - 1)).unwrap();
    assert!(packed.data().unwrap().as_ptr_range().contains(&one.as_bytes().unwrap().as_ptr()));
    assert!(packed.get("w14", None).unwrap_err().message().contains("w13_packed"), "names what is there");

    let mut dense = vec![f32::NAN; (H * I) as usize];
    packed.dequantize("w2_weight", 0, &mut TensorMut::new(&mut dense, &[H, I]).unwrap()).unwrap();
    assert_eq!(dense[..3], [-8.0 / 64.0, -1.0 / 64.0, 6.0 / 64.0]);

    let folder = Folder::new("packed");
    let file = folder.0.join("layer.moe");
    packed.save(&file, None).unwrap();
    let read = LoadOptions { verify: true, prefault: true, control: None };
    let block = packed.data().unwrap().to_vec();
    for again in [
        Packed::load(None, &file, read).unwrap(),
        unsafe { Packed::map(None, &file, LoadOptions::default()) }.unwrap(),
        Packed::load_memory(None, block.clone(), read).unwrap(),
        Packed::load_memory(None, std::sync::Arc::<[u8]>::from(block), LoadOptions::default()).unwrap(),
    ] {
        assert_eq!(again.data().unwrap(), packed.data().unwrap());
        assert_eq!(apply(&Layer::new(None, &selection, &again).unwrap(), 3), apply(&layer, 3));
    }
    let error = Packed::load_memory(None, vec![1u8; 100], read).unwrap_err();
    assert_eq!(error.status(), Status::FORMAT);

    let config = config();
    let destination = Buffer::new(bytes as usize, alignment as usize).unwrap();
    let start = destination.as_ptr();
    let options = ConvertOptions { destination: Some(destination), ..Default::default() };
    let there = Packed::convert_with(None, &selection, &weights(&config), options).unwrap();
    assert_eq!(there.data().unwrap(), packed.data().unwrap());
    assert_eq!(there.data().unwrap().as_ptr(), start);
    let options = ConvertOptions { destination: Some(Buffer::new(64, 64).unwrap()), ..Default::default() };
    let error = Packed::convert_with(None, &selection, &weights(&config), options).unwrap_err();
    assert_eq!(error.status(), Status::BUFFER_TOO_SMALL);
    assert!(error.details().contains("needed"));
}

#[test]
fn routing_alone_equals_routing_inside() {
    let config = config_with(r#","disable_inplace":false"#);
    let layer = layer_of(None, &config);
    let (tokens, x, scores) = (5, hidden(5), logits(5));
    let expected = apply(&layer, tokens);
    let scores_tensor = Tensor::new(&scores, &[tokens, E]).unwrap();
    let x_tensor = Tensor::new(&x, &[tokens, H]).unwrap();

    let (mut ids, mut weights) = (vec![-7i32; (tokens * K) as usize], vec![f32::NAN; (tokens * K) as usize]);
    let (mut ids_out, mut weights_out) =
        (TensorMut::new(&mut ids, &[tokens, K]).unwrap(), TensorMut::new(&mut weights, &[tokens, K]).unwrap());
    config.route(None, &scores_tensor, None, &mut ids_out, &mut weights_out).unwrap();

    let (mut chosen, mut chosen_weights, mut out) = (ids.clone(), vec![0f32; weights.len()], vec![0f32; x.len()]);
    chosen.fill(-7);
    let (bytes, alignment) = layer.workspace_size(tokens as usize, false).unwrap();
    let mut workspace = Buffer::new(bytes as usize, alignment as usize).unwrap();
    layer
        .apply_with(
            &x_tensor,
            Routing::Logits(&scores_tensor),
            &mut TensorMut::new(&mut out, &[tokens, H]).unwrap(),
            &mut ApplyOptions {
                chosen_ids: Some(TensorMut::new(&mut chosen, &[tokens, K]).unwrap()),
                chosen_weights: Some(TensorMut::new(&mut chosen_weights, &[tokens, K]).unwrap()),
                workspace: Some(&mut workspace),
                ..Default::default()
            },
        )
        .unwrap();
    assert_eq!((&chosen, &chosen_weights, &out), (&ids, &weights, &expected));

    // ids and weights given; twice, added up
    let ids_tensor = Tensor::new(&ids, &[tokens, K]).unwrap();
    let weights_tensor = Tensor::new(&weights, &[tokens, K]).unwrap();
    let top_k = Routing::TopK { ids: &ids_tensor, weights: &weights_tensor };
    let mut twice = expected.clone();
    let mut add = ApplyOptions { accumulate: true, ..Default::default() };
    layer.apply_with(&x_tensor, top_k, &mut TensorMut::new(&mut twice, &[tokens, H]).unwrap(), &mut add).unwrap();
    assert_eq!(twice, expected.iter().map(|x| x + x).collect::<Vec<_>>());

    let mut both = x.clone();
    let mut in_place = TensorMut::new(&mut both, &[tokens, H]).unwrap();
    layer.apply_in_place(&mut in_place, top_k, &mut ApplyOptions::default()).unwrap();
    assert_eq!(both, expected);

    let mut flat = vec![0f32; x.len()];
    unsafe { layer.apply_flat(5, &x, Some(&scores), None, &mut flat) }.unwrap();
    assert_eq!(flat, expected);
    flat.fill(0.0);
    unsafe { layer.apply_flat(5, &x, None::<&[f32]>, Some((&ids, &weights)), &mut flat) }.unwrap();
    assert_eq!(flat, expected);

    let counts = layer.expert_counts(true).unwrap();
    assert_eq!((counts.len() as i64, counts.iter().sum::<u64>()), (E, (6 * tokens * K) as u64));
    assert_eq!(layer.expert_counts(false).unwrap(), vec![0; E as usize]);
    assert!(layer.to_json().unwrap().contains("kernel"));
}

#[test]
fn a_layer_takes_a_bias_and_a_map_of_experts() {
    let config = config_with(r#","routing":{"e_score_correction_bias":true,"scoring_func":"sigmoid"}"#);
    let selection = Selection::new(None, &config).unwrap();
    let packed = Packed::convert(None, &selection, &weights(&config)).unwrap();
    let bias = [0f32, 0.0, 0.0, 100.0];
    let bias = Tensor::new(&bias, &[E]).unwrap();
    let layer =
        Layer::with(None, &selection, &packed, LayerOptions { correction_bias: Some(&bias), ..Default::default() })
            .unwrap();
    apply(&layer, 3);
    assert_eq!(layer.expert_counts(false).unwrap()[3], 3, "the bias makes every token take the last expert");

    let identity = [0i32, 1, 2, 3];
    let identity = Tensor::new(&identity, &[E]).unwrap();
    let options = LayerOptions { expert_map: Some(&identity), ..Default::default() };
    let options = LayerOptions { correction_bias: Some(&bias), ..options };
    assert_eq!(apply(&Layer::with(None, &selection, &packed, options).unwrap(), 3), apply(&layer, 3));
    let wrong = [0i32, 0, 2, 3];
    let wrong = Tensor::new(&wrong, &[E]).unwrap();
    let options = LayerOptions { expert_map: Some(&wrong), ..Default::default() };
    assert_eq!(Layer::with(None, &selection, &packed, options).unwrap_err().subject(), "expert_map[1]");
}

#[test]
fn hash_routing_takes_ids_beside_logits() {
    let config = config_with(r#","routing":{"hash_routing":true}"#);
    let layer = layer_of(None, &config);
    let (x, scores, ids) = (hidden(1), logits(1), [3i32, 1]);
    let (x, scores) = (Tensor::new(&x, &[1, H]).unwrap(), Tensor::new(&scores, &[1, E]).unwrap());
    let ids = Tensor::new(&ids, &[1, K]).unwrap();
    let mut out = vec![0f32; H as usize];
    let mut out = TensorMut::new(&mut out, &[1, H]).unwrap();
    layer.apply(&x, Routing::Hash { logits: &scores, ids: &ids }, &mut out).unwrap();
    assert_eq!(layer.expert_counts(false).unwrap(), [0, 1, 0, 1]);
    let error = layer.apply(&x, Routing::Logits(&scores), &mut out).unwrap_err();
    assert_eq!(error.subject(), "topk_ids");
}

#[test]
fn every_candidate_has_a_reason() {
    let config = config();
    let selection = Selection::new(None, &config).unwrap();
    let candidates = selection.candidates().unwrap();
    assert_eq!(candidates.iter().filter(|c| c.chosen).count(), 1);
    assert!(candidates.iter().all(|c| (c.reason == Reject::NONE) == c.detail.is_empty()));
    let chosen = candidates.iter().find(|c| c.chosen).unwrap();
    assert_eq!((chosen.backend, chosen.kernel), (selection.backend(), selection.kernel()));
    assert!(selection.to_json().unwrap().contains(selection.layout()));

    let bare = Platform::new(r#"{"type":"cpu","arch":"x86_64","features":[]}"#).unwrap();
    assert!(!bare.has("avx2") && bare.to_json().unwrap().contains("x86_64"));
    let options = SelectOptions { platform: Some(&bare), ..Default::default() };
    assert!(Selection::with(None, &config, options).unwrap().kernel().ends_with("_scalar"));
    let here = Platform::detect().unwrap();
    let again = Platform::new(&here.to_json().unwrap()).unwrap();
    assert!(["avx2", "avx512_vnni", "i8mm"].iter().all(|name| again.has(name) == here.has(name)));

    let elsewhere = Platform::new(r#"{"type":"tpu"}"#).unwrap();
    let options = SelectOptions { platform: Some(&elsewhere), ..Default::default() };
    let error = Selection::with(None, &config, options).unwrap_err();
    assert_eq!(error.status(), Status::NO_BACKEND);
    assert!(error.details().contains("candidates"));
    let options = SelectOptions { explain_only: true, ..options };
    let explained = Selection::with(None, &config, options).unwrap();
    assert_eq!(explained.backend(), "");
    assert!(explained.candidates().unwrap().iter().all(|c| c.reason != Reject::NONE && !c.detail.is_empty()));
    assert_eq!(explained.packed_size().unwrap_err().status(), Status::NO_BACKEND);

    let plain = r#"{"num_experts":4,"top_k":2,"hidden_dim":64,"intermediate_size":64,"moe_backend":"triton"}"#;
    let wish = Config::new(plain).unwrap();
    assert_eq!(Selection::new(None, &wish).unwrap_err().status(), Status::NO_BACKEND);
    let options = SelectOptions { allow_fallback: true, ..Default::default() };
    assert_eq!(Selection::with(None, &wish, options).unwrap().backend(), "CPU");
}

#[test]
fn configs_are_read_by_pointer_and_merged() {
    let config = config();
    assert_eq!(config.int("/num_experts").unwrap(), E);
    assert_eq!(config.string("/in_dtype").unwrap(), "float32");
    assert_eq!(config.float("/routing/routed_scaling_factor").unwrap(), 1.0);
    assert_eq!(config.merge(r#"{"top_k":1}"#).unwrap().int("/top_k").unwrap(), 1);
    assert!(config.to_json().unwrap().contains("num_local_experts"));
    assert_eq!(config.int("/in_dtype").unwrap_err().status(), Status::INVALID_ARGUMENT);
    let text = r#"{"architectures":["Qwen3MoeForCausalLM"],"num_experts":8,"num_experts_per_tok":2,"hidden_size":64,
                   "moe_intermediate_size":32,"num_hidden_layers":2,"torch_dtype":"bfloat16"}"#;
    let hf = Config::from_hf(text, r#"{"layer_index":1}"#).unwrap();
    assert_eq!(hf.int("/num_experts").unwrap(), 8);
    assert!(describe("expert_map", "[]").is_err() && config_schema_json().contains("num_experts"));
}

#[test]
fn errors_say_what_where_found_and_expected() {
    let error = Config::new(r#"{"num_experts":0,"top_k":1,"hidden_dim":64,"intermediate_size":32}"#).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_CONFIG);
    assert_eq!((error.status().name(), error.subject()), ("MOE_ERR_INVALID_CONFIG", "/num_experts"));
    assert!(error.message().contains("found 0") && error.details().contains("\"subject\""));
    assert_eq!(error.to_string(), format!("MOE_ERR_INVALID_CONFIG at '/num_experts': {}", error.message()));

    let layer = layer_of(None, &config());
    let (x, scores, mut out) = (hidden(2), logits(2), vec![7f32; (2 * H) as usize]);
    let x = Tensor::new(&x, &[2, H]).unwrap();
    let scores = Tensor::new(&scores, &[1, 2 * E]).unwrap();
    let error = layer.apply(&x, Routing::Logits(&scores), &mut TensorMut::new(&mut out, &[2, H]).unwrap()).unwrap_err();
    assert_eq!((error.status(), error.subject()), (Status::SHAPE, "router_logits"));
    assert!(out.iter().all(|x| *x == 7.0), "a failed call changed its output");

    let selection = Selection::new(None, &config()).unwrap();
    let error = Packed::convert(None, &selection, &Weights::new(&config()).unwrap()).unwrap_err();
    assert_eq!(error.status(), Status::MISSING_WEIGHT);
    let error = Weights::new(&config()).unwrap().load_safetensors("/no/such/folder").unwrap_err();
    assert_eq!(error.status(), Status::IO);
    let error = Weights::new(&config()).unwrap().load_safetensors_module("/no", "a\0b").unwrap_err();
    assert_eq!((error.status(), error.subject()), (Status::INVALID_ARGUMENT, "module"));
}
