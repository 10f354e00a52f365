"""Tiny random models of transformers' MoE classes, the settings to change in their configs, what their blocks compute.

Part of against_transformers; runs inside its virtual environment.
"""
import collections
import copy
import inspect
import itertools
import json
import re
import zlib

import torch

NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
TOKENS, EXPERTS = 6, 8
GAP = 4e-3  # of a token's logits
# Around the last chosen score, relative up to 1:
GAPS = {torch.float32: 5e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}

# --- what makes any config tiny ---------------------------------------------------------------------------------------
TINY = {
    **dict.fromkeys(["hidden_size", "d_model", "emb_dim", "n_embd", "embed_dim", "adapter_in_dim", "adapter_out_dim",
                     "adapter_input_size", "text_hidden_size", "out_hidden_size", "output_dim"], 64),
    **dict.fromkeys(["moe_intermediate_size", "expert_ffn_hidden_size", "moe_hidden_size", "expert_dim"], 32),
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"], EXPERTS),
    **dict.fromkeys(["num_experts_per_tok", "moe_topk", "moe_k", "moe_top_k", "top_k_experts"], 3),
    **dict.fromkeys(["num_hidden_layers", "n_layers", "num_layers", "encoder_layers", "decoder_layers"], 2),
    **dict.fromkeys(["num_attention_heads", "n_heads", "num_heads", "encoder_attention_heads",
                     "decoder_attention_heads"], 4),
    **dict.fromkeys(["head_dim", "v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "kv_channels", "d_kv"], 16),
    "n_group": 2, "topk_group": 1, "zero_expert_num": 2,
    **dict.fromkeys(["q_lora_rank", "kv_lora_rank", "o_lora_rank"], 32),
    **dict.fromkeys(["intermediate_size", "dense_intermediate_size", "d_ff", "ffn_dim", "shared_intermediate_size",
                     "shared_expert_intermediate_size", "shared_experts_intermediate_size", "ffn_hidden_size",
                     "encoder_ffn_dim", "decoder_ffn_dim", "mlp_dim", "intermediate_size_mlp"], 96),
    **dict.fromkeys(["bos_token_id", "decoder_start_token_id"], 1), "eos_token_id": 2, "pad_token_id": 0,
    "vocab_size": 256, "unpadded_vocab_size": 250, "num_key_value_heads": 4, "first_k_dense_replace": 1,
    "num_dense_layers": 1, "depth": 1,
    **dict.fromkeys(["routed_scaling_factor", "router_scaling_factor", "route_scale", "moe_routed_scaling_factor",
                     "moe_router_scaling_factor"], 2.5),
    "swiglu_limit": 1.0, "num_mtp_layers": 0, "num_nextn_predict_layers": 0,
    "max_position_embeddings": 256, "decoder_sparse_step": 1, "expert_layer_period": 1, "expert_layer_offset": 0,
    "n_shared_experts": 1, "num_shared_experts": 1, "moe_num_shared_experts": 1,
}
# Also where the class's own value is None:
NEEDED = {"n_group", "topk_group", "num_key_value_heads", "num_experts_per_tok", "top_k_experts", "num_experts",
          "n_routed_experts", "moe_intermediate_size", "n_shared_experts", "num_shared_experts"}
# Without these the experts' width is intermediate_size:
WIDTHS = {"moe_intermediate_size", "expert_ffn_hidden_size", "moe_hidden_size"}
# Where that is not enough: class (a regex) -> members of config.json, "text_config.x" for a member's member.
OVERRIDES = {
    "Beam.*": {"mlp_layer_types": ["dense", "sparse"]},
    "Dbrx.*": {"attn_config.rope_theta": 10000.0},
    "DeepseekOcr2(For.*|Model)": {"text_config.mlp_layer_types": ["dense", "sparse"]},
    "DeepseekOcr2TextModel": {"mlp_layer_types": ["dense", "sparse"]},
    "Dots3Note(ForCond.*|Model)": {"vision_config.mlp_layer_types": ["dense", "dense"]},
    "Doge.*": {"is_moe": True, "num_experts": 16},
    "Ernie4_5_VL.*": {"text_config.moe_intermediate_size": [32, 48],
                       "text_config.rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                                                       "mrope_section": [3, 3, 2]}},
    "Flint.*": {"mlp_only_layers": [0]},
    "Gemma4(ForCausalLM|TextModel)": {"enable_moe_block": True},
    "Gemma4(ForCond.*|Model)": {"text_config.enable_moe_block": True},
    "Glm5Next(For.*|Model)": {"text_config.qk_rope_head_dim": 0, "text_config.mlp_layer_types": ["dense", "sparse"]},
    "Glm5NextTextModel": {"qk_rope_head_dim": 0, "mlp_layer_types": ["dense", "sparse"]},
    "HunYuanMoEV1.*": {"head_dim": 16},
    "HYV4VL(For.*|Model)": {"text_config.rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                                                           "mrope_section": [3, 3, 2]}},
    "HYV4VLTextModel": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]}},
    "Lfm2Moe.*": {"layer_types": ["conv", "full_attention"]},
    "Llama4(ForCausalLM|TextModel)": {"num_experts_per_tok": 1},
    "Llama4ForCond.*": {"text_config.num_experts_per_tok": 1},
    "MuseSpark.*": {"audio_config.patch_sizes": [16, 6], "audio_config.hidden_sizes": [64, 64],
                    "audio_config.depths": [1, 1]},
    "Phimoe.*": {"num_experts_per_tok": 2},
    "Qwen3OmniMoeTalkerModel": {"shared_expert_intermediate_size": 96},
    "Qwen3OmniMoeTalkerFor.*": {"spatial_merge_size": 2, "text_config.shared_expert_intermediate_size": 96},
    "Qwen3OmniMoeForCond.*": {"talker_config.spatial_merge_size": 2,
                              "talker_config.text_config.shared_expert_intermediate_size": 96},
    "Step3p7TextModel": {"mlp_layer_types": ["dense", "sparse"]},
    "Step3p7(For.*|Model)": {"text_config.mlp_layer_types": ["dense", "sparse"]},
    "Zaya.*": {"num_experts_per_tok": 1},
}
# Settings of experts: values to try, where the class has the member.
ACTIVATIONS = ["silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2"]
SWITCHES = {
    "norm_topk_prob": [True, False, None],
    **dict.fromkeys(["use_expert_bias", "use_routing_bias", "router_bias", "mlp_bias", "use_bias",
                     "moe_apply_router_weight_on_input", "shared_expert_sink", "enable_moe_fp32_combine",
                     "enable_moe_block", "add_router_probs", "normalize_router_prob_before_dropping"], [True, False]),
    **dict.fromkeys(["hidden_act", "hidden_activation", "mlp_hidden_act", "activation_function"], ACTIVATIONS),
    **dict.fromkeys(["routed_scaling_factor", "router_scaling_factor", "route_scale", "moe_routed_scaling_factor",
                     "moe_router_scaling_factor", "output_multiplier"], [1.0, 2.5, 0.5]),
    "scoring_func": ["softmax", "sigmoid", "sqrtsoftplus"], "expert_selection_fn": ["softmax", "sigmoid"],
    "topk_method": ["greedy", "group_limited_greedy", "noaux_tc"], "swiglu_limit": [1.0, 7.0, None],
    "swiglu_alpha": [1.0, 1.702], "router_jitter_noise": [0.0, 0.1], "moe_norm_min": [1e-12, 0.9],
    "moe_router_logit_softcapping": [0.0, 1.0], "mlp_gate_softcap": [1.0], "mlp_up_softcap": [1.0],
    "moe_normalize_expert_weights": [1.0, 2.0, None], "zero_expert_num": [0, 2], "moe_latent_size": [None, 32],
    "swiglu_limits": [[1.0, 1.0], [None, 1.0]], "num_experts_per_tok": [1, 2], "moe_topk": [1, 2],
    "top_k_experts": [1, 2], "decoder_sparse_step": [2], "mlp_only_layers": [[0], [1]],
    "first_k_dense_replace": [0, 1], "moe_layer_freq": [1, 2, [0, 1]],
    "mlp_layer_types": [["sparse", "sparse"], ["dense", "sparse"], ["sparse", "dense"], ["hash_moe", "moe"]],
    "num_dense_layers": [0, 1], "expert_layer_period": [2], "interleave_moe_layer_step": [1, 2],
    "moe_layers": [[0], [1], [0, 1]], "moe_layer_interval": [2], "moe_layer_start_index": [0, 1],
}
TOGETHER = [{"expert_layer_period": 2, "expert_layer_offset": 1}, {"n_group": 1, "topk_group": 1},
            {"n_group": 4, "topk_group": 2}, {"n_group": None, "topk_group": None},
            {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}]
# What the class's own value of a setting that is left out needs beside it.
GROUPS = {"n_group": 8, **dict.fromkeys(["num_experts", "n_routed_experts", "num_local_experts"], 32)}
BESIDES = {"n_group": GROUPS, "topk_group": GROUPS, "expert_layer_offset": {"expert_layer_period": 2}}
LAYER_KEYS = {"mlp_layer_types", "first_k_dense_replace", "num_dense_layers", "moe_layer_freq", "mlp_only_layers",
              "moe_layers"}
LEFT_OUT = [*SWITCHES, "n_group", "topk_group", "num_experts", "num_local_experts", "n_routed_experts", "dtype"]


class Unbuilt(Exception):
    """transformers cannot do it."""


# --- tiny models ------------------------------------------------------------------------------------------------------
def tiny(config_class):
    """Members that make a config tiny, those of its parts too."""
    plain = config_class()
    said = plain.to_dict()
    small = {}
    for key, value in said.items():
        part = plain.__dict__.get(key)
        if hasattr(part, "to_dict"):
            small[key] = {"model_type": part.model_type, **tiny(type(part))}
            continue
        for name in [key, *(k for k, of in plain.attribute_map.items() if of == key)]:
            if name in TINY and (value is not None or name in NEEDED):
                small[key] = TINY[name]
    if "intermediate_size" in small and not WIDTHS & said.keys():
        small["intermediate_size"] = 32
    return small


def put(document, path, value):
    *parts, last = path.split(".")
    for part in parts:
        document = document.setdefault(part, {})
    document[last] = value


def base_config(cls):
    members = tiny(cls.config_class)
    for pattern, changes in OVERRIDES.items():
        if re.fullmatch(pattern, cls.__name__):
            for path, value in changes.items():
                put(members, path, value)
    return cls.config_class(**members)


def document_of(config, cls, dtype):
    config.architectures = [cls.__name__]
    document = json.loads(config.to_json_string())
    document["dtype"] = NAMES[dtype]
    return document


def config_from(cls, document):
    def number(members):
        return float(members["__float__"]) if set(members) == {"__float__"} else members
    return cls.config_class.from_dict(json.loads(json.dumps(document), object_hook=number))


def noise(name, shape):
    """Uniform in -1 to 1, by the tensor's name."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return torch.rand(shape, generator=generator) * 2 - 1


def fill(block, prefix):
    """Random numbers wherever leaving a tensor out must show."""
    for name, t in itertools.chain(block.named_parameters(), block.named_buffers()):
        u = noise(f"{prefix}.{name}", t.shape)
        if not t.is_floating_point():  # a table of experts, each at most once in a row
            t.data.copy_(noise(f"{prefix}.{name}.order", (len(u), EXPERTS)).argsort(1)[:, :u.shape[1]])
        elif re.search(r"correction|expert_bias|balancing|moe_statics", name):
            t.data.copy_(u * 0.25)
        elif re.search(r"bias$", name):
            t.data.copy_(u * 0.5)
        elif t.ndim < 2 or re.search(r"norm|scale$", name):
            t.data.copy_(1 + u * 0.25)
        else:
            t.data.copy_(u * 2.25 / t.shape[-1] ** 0.5)


Place = collections.namedtuple("Place", "block experts name layer config")


def places(model):
    """The MoE blocks of the language model, one of each layer; `experts` is None where they are no module."""
    def is_experts(name, module):
        kind = type(module).__name__
        return kind.endswith("Experts") and "Parallel" not in kind and not name.endswith("shared_experts")

    found = {}
    for name, module in model.named_modules():
        if is_experts(name, module):
            parent = name.rpartition(".")[0]
            found.setdefault(parent, (model.get_submodule(parent), module))
        elif re.search(r"Mo[Ee]$", type(module).__name__):
            if not any(is_experts(n, m) for n, m in module.named_modules()):
                found.setdefault(name, (module, None))
    text = model.config.get_text_config()
    every = []
    for name, (block, experts) in found.items():
        layer = re.search(r"\.(\d+)(\.|$)", name)
        if layer:
            every.append(Place(block, experts, name, int(layer[1]), getattr(experts, "config", text)))
    ours = [p for p in every if not re.search(r"vis|audio|talker|mtp|encoder|code", p.name)] or every
    first = {p.layer: p for p in reversed(ours)}
    return [first[layer] for layer in sorted(first)]


# --- the variants of a config -----------------------------------------------------------------------------------------
def holder_of(model, place):
    """Path and config of what has the experts' settings."""
    def parts(config, path):
        yield path, config
        for name in config.to_dict():
            part = config.__dict__.get(name)
            if hasattr(part, "to_dict"):
                yield from parts(part, [*path, name])
    return next(((path, c) for path, c in parts(model.config, []) if c is place.config), ([], model.config))


def inside(document, path):
    for part in path:
        document = document[part]
    return document


def cases(document, path, config, strays):
    """(name, config.json for transformers, what becomes of the one that it writes)."""
    has, renamed, here = config.to_dict(), config.attribute_map, inside(document, path)
    old = re.findall(r'kwargs\.(?:pop|get)\("(\w+)"', inspect.getsource(type(config)))  # keys of older files
    words = {"moe", "hash_moe"} if {"moe", "hash_moe"} & {*(has.get("mlp_layer_types") or [])} else {"dense", "sparse"}

    def changed(changes, without=()):
        result = copy.deepcopy(document)
        members = inside(result, path)
        if LAYER_KEYS & {*without}:  # the default may need more layers; lists of layers follow from the rest
            for key in [k for k, v in members.items() if isinstance(v, list) and re.search("layer|types", k)]:
                del members[key]
            members["num_hidden_layers"] = 5
        members.update(changes)
        for key in without:
            members.pop(key, None)
        return result

    yield "base", document, lambda written: written
    for changes in [*({key: value} for key, values in SWITCHES.items() for value in values), *TOGETHER]:
        changes = {renamed.get(key, key): value for key, value in changes.items()}
        name = " ".join(f"{k}={json.dumps(v)}" for k, v in changes.items())
        if changes.keys() <= has.keys():
            other = any(here.get(k, has[k]) != v for k, v in changes.items())
            if other and {*changes.get("mlp_layer_types", ())} <= words:
                yield name, changed(changes), lambda written: written
        elif len(changes) == 1 and changes.keys() <= {*old}:  # transformers writes what follows from it
            given = changed(changes, ["mlp_layer_types", "moe_layers"])
            yield f"old {name}", given, lambda written, given=given: {**given, "dtype": written["dtype"]}
        elif strays and len(changes) == 1:  # a key that the class does not know
            yield f"stray {name}", changed(changes), lambda written: written
    for other, key in renamed.items():  # the spelling that transformers does not write
        if key in here and other not in here and {key, other} & {*SWITCHES, *LEFT_OUT}:

            def respelt(written, other=other, key=key):
                members = inside(written, path)
                if key in members:
                    members[other] = members.pop(key)
                return written
            yield f"as {other}", document, respelt
    for keys in [*([k] for k in LEFT_OUT), ["first_k_dense_replace", "mlp_layer_types"]]:
        more = {renamed.get(k, k): v for k, v in BESIDES.get(keys[0], {}).items()}
        keys = [renamed.get(key, key) for key in keys]
        if {*keys} <= here.keys():

            def without(written, keys=keys):
                for key in keys:
                    inside(written, path).pop(key, None)
                return written
            yield "no " + " ".join(keys), changed({k: v for k, v in more.items() if k in here}, keys), without


# --- what a block computes --------------------------------------------------------------------------------------------
Event = collections.namedtuple("Event", "function scores result k")
SCORING = {"softmax", "log_softmax", "sigmoid", "logsigmoid", "softplus", "topk", "max", "argmax", "sort"}


class Watch(torch.overrides.TorchFunctionMode):
    """Notes what scoring functions get and give."""

    def __init__(self):
        super().__init__()
        self.events = []  # Event

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        if name in SCORING and args and torch.is_tensor(args[0]) and args[0].is_floating_point():
            k = (kwargs or {}).get("k", args[1] if len(args) > 1 else None)
            self.events.append(Event(name, args[0].detach().clone(), result, k))
        return result


def call_block(place, x, after=None):
    """Runs the block on [T, H]: the experts' arguments, what the scoring functions got, the block's result. `after`
    stands in for the experts' result."""
    seen = {}

    def before(_, args, kwargs):
        seen.setdefault("args", [*args, *kwargs.values()])
        seen.setdefault("names", [None] * len(args) + list(kwargs))
        seen.setdefault("events", list(mode.events))

    def behind(_, __, result):
        if after is None or after.numel() != result.numel():  # experts may work in a space of their own
            return result
        return after.to(result.dtype).reshape(result.shape)

    block, hooks = place.block, []
    if place.experts is not None:
        hooks = [place.experts.register_forward_pre_hook(before, with_kwargs=True),
                 place.experts.register_forward_hook(behind)]
    more = {}
    names = block.forward.__code__.co_varnames[:block.forward.__code__.co_argcount]
    if "input_ids" in names:
        more["input_ids"] = (torch.arange(len(x)) * 37 % 256)[None]
    try:
        with torch.no_grad(), Watch() as mode:
            if hasattr(block, "self_attn"):  # the experts stand in the layer itself, beside a router
                _, weights, ids = block.router(x)
                result = place.experts(x, ids, weights)
            else:
                result = block(x[None], **more)
    finally:
        for hook in hooks:
            hook.remove()
    seen.setdefault("events", list(mode.events))
    seen["result"] = result[0] if isinstance(result, tuple) else result
    return seen


def far_from_ties(events, logits, raw):
    """Of each token, whether nothing that is compared is close: logits, and scores around the last chosen one."""
    tokens = len(logits)
    ordered = logits.sort(-1).values
    far = (ordered[:, 1:] - ordered[:, :-1]).min(-1).values >= GAP
    for e in events:
        columns = e.scores.shape[-1]
        if e.function == "topk" and e.k < columns <= 4096 and e.scores.numel() % (tokens * columns) == 0:
            coarsest = min((e.scores.dtype, raw), key=lambda t: t.itemsize if t != torch.bfloat16 else 1)
            best = e.scores.reshape(tokens, -1, columns).float().sort(-1, descending=True).values
            gap = best[..., e.k - 1] - best[..., e.k]
            least = GAPS[coarsest] * best[..., 0].abs().clamp(max=1)
            far &= ((gap >= least) | gap.isnan()).all(-1)  # nan: two that groups exclude
    return far


def examine(place, x):
    """What the block makes of [T, H]: hidden, ids and weights as the experts get them, the logits, the experts' sum in
    float32, and whether each token is far from ties."""
    tokens = len(x)
    seen = call_block(place, x)
    stacks = [p.shape[0] for p in place.block.parameters() if p.ndim == 3]
    experts = getattr(place.experts, "num_experts", 0) or min(stacks, default=EXPERTS)
    wide = [e for e in seen["events"] if experts <= e.scores.shape[-1] < experts + 8  # zero experts, shared ones
            and e.scores.numel() % (tokens * e.scores.shape[-1]) == 0]
    if not wide:
        raise Unbuilt("no router logits seen")
    raw = wide[0].scores
    if type(place.block).__name__ == "Kolibri1SparseMoeBlock":  # its first function gets logits and bias together
        with torch.no_grad():
            raw = place.block.gate(x)[0]
    logits = raw.reshape(tokens, -1).float()
    got = dict(logits=logits, far=far_from_ties(seen["events"], logits, raw.dtype))
    if place.experts is None or len(seen["args"]) == 1:
        return {**got, **by_itself(place, x, seen["events"], wide)}
    hidden, *both = (t.reshape(tokens, -1) for t in seen["args"][:3])
    weights, ids = sorted(both, key=lambda t: not t.is_floating_point())
    if ids.is_floating_point() or ids.shape != weights.shape or any(len({*row}) < len(row) for row in ids.tolist()):
        raise Unbuilt("the experts get no ids and weights")
    alone = copy.deepcopy(place.experts).float()
    if hasattr(alone, "config"):
        alone.config._experts_implementation = "eager"
    given = [t.float() if t.is_floating_point() else t for t in (hidden, *both)]
    named = {name: t for name, t in zip(seen["names"], given) if name}
    with torch.no_grad():
        out = alone(*(t for name, t in zip(seen["names"], given) if not name), **named).reshape(tokens, -1)
    return dict(got, hidden=hidden, ids=ids, weights=weights, out=out)


def by_itself(place, x, events, wide):
    """Blocks whose experts are not handed ids and weights."""
    tokens, kind = len(x), type(place.block).__name__
    block = copy.deepcopy(place.block).float()
    top = next((e.result for e in reversed(wide) if e.function == "topk"), None)
    if kind not in ("Llama4TextMoe", "JetMoeMoE") or top is None:
        raise Unbuilt(f"{kind} has no experts that take ids and weights")
    ids = top[1].reshape(tokens, -1)
    if kind == "Llama4TextMoe":  # weights multiply the experts' input
        weights = torch.sigmoid(top[0].float()).to(x.dtype).reshape(tokens, -1)
        scaled = torch.zeros(EXPERTS, tokens, x.shape[1])
        scaled[ids.T, torch.arange(tokens)] = x.float() * weights.float().T[..., None]
        with torch.no_grad():
            out = block.experts(scaled.reshape(-1, x.shape[1])).reshape(EXPERTS, tokens, -1).sum(0)
    else:
        with torch.no_grad():
            out = block(x.float()[None]).reshape(tokens, -1) - block.bias
        weights = next(e.result for e in reversed(events) if e.function == "softmax").reshape(tokens, -1)
    return dict(hidden=x, ids=ids, weights=weights, out=out)


def factor_behind(place, x):
    """What the block multiplies the experts' sum with, one of its config's numbers; 1 where it does anything else."""
    if place.experts is None or hasattr(place.block, "self_attn"):
        return 1.0
    name = next(n for n, m in place.block.named_modules() if m is place.experts)
    block = copy.deepcopy(place.block).float()
    there = place._replace(block=block, experts=block.get_submodule(name))
    z = noise("z", x.shape) + 2
    one, none = (call_block(there, x.float(), sum)["result"] for sum in (z, z * 0))
    if one.numel() != z.numel():
        return 1.0
    ratio = (one - none).reshape(z.shape) / z
    factors = [v for k, v in place.config.to_dict().items()
               if "scal" in k and isinstance(v, float) or k == "num_experts_per_tok"]
    return next((v for v in factors if (ratio - v).abs().max() < 1e-3), 1.0)


def draw(place, dtype):
    """Tokens far from ties, and what the block makes of them."""
    good = []
    for turn in range(40):
        x = (noise(f"{place.name}.hidden.{turn}", (64, place.config.hidden_size)) * 1.7).to(dtype)
        good += list(x[examine(place, x)["far"]])
        if len(good) >= TOKENS:
            x = torch.stack(good[:TOKENS])
            got = examine(place, x)
            if bool(got["far"].all()):
                got["factor"] = factor_behind(place, x)
                return got
            good = [row for row, is_far in zip(x, got["far"]) if is_far]
    raise Unbuilt("all tokens are near ties")


class Checkpoint:
    """A random model of a config, on disk in each dtype."""

    def __init__(self, cls, document, folder):
        self.cls, self.folder = cls, folder
        config = config_from(cls, document)
        torch.manual_seed(0)
        model = cls._from_config(config, dtype=torch.float32).eval()
        found = places(model)
        if not found:
            raise LookupError("no layer has experts")
        for place in found:
            fill(place.block, place.name)
        model.save_pretrained(folder / "f32")

    def captured(self, dtype):
        """The directory in dtype, what its first and its last MoE layer compute, and the layers without experts."""
        kind = getattr(torch, NAMES[dtype])
        model, loading = self.cls.from_pretrained(self.folder / "f32", dtype=kind, output_loading_info=True)
        lost = [k for kind in ("missing_keys", "unexpected_keys") for k in loading[kind] if ".experts" in k]
        if lost:
            raise Unbuilt(f"transformers does not read its own file: {lost[0]}")
        found = places(model.eval())
        directory = self.folder / f"read-{dtype}"
        model.save_pretrained(directory)
        layers = model.get_submodule(found[0].name.partition(f".{found[0].layer}")[0])
        ends = found if len(found) == 1 else [found[0], found[-1]]
        return (directory, [dict(draw(p, kind), layer=p.layer) for p in ends],
                sorted(set(range(len(layers))) - {p.layer for p in found}))
