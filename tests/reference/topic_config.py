"""moe_config_create against config.py: changed golden documents are refused at the same place or resolved equally."""
import copy
import json
import pathlib

import config as C

VALID = pathlib.Path(__file__).resolve().parents[1] / "vectors/config/valid"
DOCUMENTS = [json.loads(p.read_bytes()) for p in sorted(VALID.glob("*.json")) if not p.name.endswith(".expected.json")]
NUMBERS = [-1, 0, 1, 2, 3, 4, 6, 8, 16, 32, 64, 96, 128, 256, 768, 4096, 65537, 1 << 20, 0.5, 8.0, 1e30]
OTHERS = [None, True, False, "", "x", "auto", "none", [], [1, 2], {}, "float32", "Triton-Unfused"]
WORDS = {"activation": C.ACTIVATIONS, "moe_backend": C.BACKENDS, "in_dtype": C.DTYPES, "out_dtype": C.DTYPES,
         "scheme": C.SCHEMES, "format": C.FORMATS, "method": ["auto", "topk", "custom", "simulated", "sparsemixer"],
         "scoring_func": ["softmax", "sigmoid", "sqrtsoftplus"], "all2all_backend": C.ALL2ALL,
         "w13_layout": ["gate_up", "up_gate", "interleaved"], "compute": ["auto", "a16", "a8", "a4", "mxfp8"],
         "activation_quant": ["auto", "per_token", "block32"], "marlin_input_dtype": ["none", "int8", "fp8"],
         "strategy": ["tensor", "channel", "group", "block", "token", "tensor_group"], "type": ["int", "float", "cuda", "cpu"],
         "actorder": ["group", "weight", "dynamic", "static", True], "dynamic": [True, False, "local"],
         "zero_point_convention": ["auto", "as_stored", "plus_one"], "expert_placement_strategy": ["linear", "round_robin"],
         "simulation_strategy": ["uniform_random", "normal_routing"], "symmetric": [True, False]}
SECTIONS = {"": ["num_experts", "top_k", "hidden_dim", "intermediate_size", "activation", "w13_layout", "has_bias", "in_dtype",
                 "compute", "activation_quant", "marlin_input_dtype", "moe_backend", "apply_router_weight_on_input", "unknown"],
            "routing": ["method", "scoring_func", "renormalize", "num_expert_group", "topk_group", "use_grouped_topk",
                        "routed_scaling_factor", "jitter_eps", "e_score_correction_bias", "num_zero_experts", "seed",
                        "num_fused_shared_experts", "hash_routing", "simulation_strategy"],
            "parallel": ["tp_size", "tp_rank", "dp_size", "dp_rank", "pcp_size", "sp_size", "enable_expert_parallel",
                         "enable_eplb", "num_redundant_experts", "all2all_backend", "expert_placement_strategy"],
            "quantization": ["scheme", "group_size", "format", "zero_point_convention", "is_transposed"],
            "activation_params": ["alpha", "beta", "limit"]}


def pick(rng, values):
    return copy.deepcopy(values[int(rng.integers(len(values)))])


def change(rng, document):
    """One member removed, replaced or added."""
    places = [(document, k) for k in document]
    for holder, key in places:
        if isinstance(holder[key], dict):
            places.extend((holder[key], k) for k in holder[key])
    holder, key = places[int(rng.integers(len(places)))]
    kind = rng.random()
    if kind < 0.2:
        del holder[key]
        return
    if kind < 0.6:
        section = pick(rng, list(SECTIONS))
        holder = document.setdefault(section, {}) if section else document
        if not isinstance(holder, dict):
            return
        key = pick(rng, SECTIONS[section])
    words = WORDS.get(key)
    holder[key] = pick(rng, words) if words and rng.random() < 0.8 else pick(rng, NUMBERS if rng.random() < 0.7 else OTHERS)


def known_difference(document, subject, pointer):
    """Why the two may disagree about this document, or None."""
    hf = document.get("hf_quantization_config")
    if isinstance(hf, dict) and any(isinstance(v, float) and v.is_integer() for v in hf.values()):
        return "the library takes 8.0 for an integer in a checkpoint's object as well, the reference only in a config's own"
    if isinstance(hf, dict) and any(isinstance(v, int) and v > 65536 for k, v in hf.items() if "group_size" in k):
        return "the library has the same upper limit for group sizes everywhere, the reference none in a checkpoint's object"
    if subject == "/routing/num_expert_group" and document["routing"].get("num_zero_experts"):
        return "zero experts are of no group: the library refuses to drop groups beside them, the reference does not look"
    if subject == "/routing/e_score_correction_bias" and pointer is None and document["routing"].get("method") == "sparsemixer":
        return "SparseMixer has no place for a correction bias: the library refuses it, the reference does not look"
    inside = "/hf_quantization_config/"
    if subject and pointer and subject.startswith(inside) and pointer.startswith(inside):
        return "of several faults in a checkpoint's object the library names missing members first, the reference the first read"
    return None


def check(library, rng, twist):
    document = pick(rng, DOCUMENTS)
    for _ in range(int(rng.integers(0, 4))):
        change(rng, document)
    text = json.dumps(document)
    try:
        want, pointer = C.load(text.encode()), None
    except C.JsonConfigError as fault:
        want, pointer = None, fault.pointer
    try:
        with library.config(text) as config:
            got, subject = config.document, None
    except library.moe.Error as fault:
        got, subject = None, fault.subject
    if twist and got:
        got["top_k"] += 1
    if subject != pointer and known_difference(document, subject, pointer):
        return
    assert (got is None) == (want is None), f"{text}: library {subject or 'accepts'}, reference {pointer or 'accepts'}"
    if want is None:
        assert subject == pointer, f"{text}: refused at {subject} for {pointer}"
    elif got != json.loads(json.dumps(want)):
        wrong = {k: (got.get(k), want.get(k)) for k in {**got, **want} if got.get(k) != want.get(k)}
        raise AssertionError(f"{text}: resolved otherwise (library, reference): {wrong}")
