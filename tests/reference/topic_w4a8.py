"""W4A8: bytes, dense numbers and outputs of random layers against w4a8_int8.py, and p16.py for our own layout."""
import numpy as np

import p16
import w4a8_int8 as Q

F32 = np.float32
SPOILS = ("byte", "dense", "output")
ARM = {"type": "cpu", "arch": "aarch64", "libs": {"torch_dyn_quant_4bit": True}}
TARGETS = {"p16": {}, "kai": {"platform": {**ARM, "features": ["neon", "dotprod"]}},
           "torch": {"platform": {**ARM, "features": ["neon"]}, "selection_policy": "vllm", "router_logits_dtype": "float32"}}
# activation of the config -> kind of w4a8_int8.md 8.3
KINDS = {"silu": 2, "swigluoai_uninterleave": 1, "swiglustep": 0}


def sizes(rng, target):
    """H, I and a group size that both take."""
    group = int(rng.choice([-1, 32, 64, 96, 128, 160] if target == "p16" else [-1, 32, 64, 128]))
    if group == -1:
        return 2 * int(rng.integers(1, 101)), 2 * int(rng.integers(1, 81)), group
    return group * int(rng.integers(1, 256 // group + 1)), group * int(rng.integers(1, 256 // group + 1)), group


def stored_scales(rng, n, k, group):
    """[n, groups] as given: bf16 numbers, or float32 that the library has to round itself."""
    s = rng.uniform(0.001, 0.03, (n, 1 if group == -1 else k // group)).astype(F32)
    s *= rng.choice([-1, 1], s.shape).astype(F32)
    if rng.random() < 0.1:
        s[rng.integers(n)] = rng.choice([0.0, -0.0])
    return s


def forward(x, ids, gates, experts, document):
    """The layer as numerics.md 2 has it: (out, whether another exp may move an int8 step or a rounding)."""
    h, i, group = document["hidden_dim"], document["intermediate_size"], document["quantization"]["group_size"]
    dtype, on_input = document["in_dtype"], document["apply_router_weight_on_input"]
    outs, steps = [], []
    for ulp in (0, -3, 3):
        stages = {}
        if document["bit_compat"] == "vllm":
            outs.append(Q.moe(x, ids, gates, experts, h, i, group, on_input, KINDS[document["activation"]], dtype,
                              ulp=ulp, stages=stages))
        else:
            outs.append(Q.moe_libmoe(x, ids, gates, experts, h, i, group, on_input, KINDS[document["activation"]], dtype,
                                     ulp=ulp, stages=stages))
        act = stages["act"]
        steps.append(act if dtype != "float32" else Q.quant_rows(act)[0])
    exact = np.isfinite(outs[0]).all() and all(np.array_equal(s, steps[0]) for s in steps)
    return outs[0], exact


def check(library, rng, twist):
    target = str(rng.choice(list(TARGETS), p=[0.6, 0.25, 0.15]))
    h, i, group = sizes(rng, target)
    experts, tokens = int(rng.integers(1, 6)), int(rng.integers(1, 20))
    top_k = int(rng.integers(1, min(experts, 4) + 1))
    dtype = str(rng.choice(["float32", "bfloat16", "float16"]))
    bias, compat = bool(rng.random() < 0.5), str(rng.choice(["libmoe", "vllm"]))
    kind = str(rng.choice(list(KINDS)[:3 if compat == "vllm" else 2]))
    if target == "torch":
        kind = "silu"
    on_input = bool(top_k == 1 and target == "p16" and rng.random() < 0.5)
    document = {"num_experts": experts, "top_k": top_k, "hidden_dim": h, "intermediate_size": i, "activation": kind,
                "has_bias": bias, "in_dtype": dtype, "out_dtype": dtype, "router_logits_dtype": "float32", "bit_compat": compat,
                "apply_router_weight_on_input": on_input, "quantization": {"scheme": "W4A8", "group_size": group},
                **TARGETS[target]}
    if kind == "swigluoai_uninterleave":
        document["activation_params"] = {"alpha": 1.702, "beta": 1.0, "limit": 7.0}
    if kind == "swiglustep":
        document["activation_params"] = {"limit": 7.0}
    try:
        compare(library, rng, document, target, tokens, twist)
    except Exception as fault:
        raise type(fault)(f"{target} {document}: {fault}") if isinstance(fault, AssertionError) else \
            RuntimeError(f"{target} {document}: {type(fault).__name__}: {fault}") from None


def compare(library, rng, document, target, tokens, twist):
    h, i, group = document["hidden_dim"], document["intermediate_size"], document["quantization"]["group_size"]
    count, dtype = document["num_experts"], document["in_dtype"]
    given, bf16, experts = {}, [], [{} for _ in range(count)]
    half_scales = group != -1 and rng.random() < 0.6
    for name, n, k in (("w13", 2 * i, h), ("w2", h, i)):
        w = rng.integers(-8, 8, (count, n, k)).astype(np.int8)
        s = np.stack([stored_scales(rng, n, k, group) for _ in range(count)])
        given[name + "_weight"], given[name + "_scale"] = w, s
        if half_scales:
            given[name + "_scale"] = Q.bf16_bits(s)
            bf16.append(name + "_scale")
        if group != -1:
            s = Q.bf16_value(Q.bf16_bits(s))
        b = rng.normal(0, 0.2, (count, n)).astype(F32) if document["has_bias"] else None
        if b is not None:
            given[name + "_bias"] = b
        for e in range(count):
            experts[e].update({name: w[e], "s" + name[1:]: s[e], "b" + name[1:]: None if b is None else b[e]})
    selection, packed = library.convert(document, given, bf16)
    for name, n, k, halves in (("w13", 2 * i, h, 2), ("w2", h, i, 1)):
        g = k if group == -1 else group
        for e, p in enumerate(experts):
            w, s, b = p[name], p["s" + name[1:]], p["b" + name[1:]]
            got = library.output(packed, name + "_packed", e)
            if target == "p16":
                want = p16.pack_w4a8(w, s, b, g, halves)
            elif target == "kai":
                want = Q.pack_kai(w, s, b, g).tobytes()
            else:
                want = Q.pack_fallback(w, s, b).astype("<f4").tobytes()
            if twist == "byte":
                want = want[:-1] + bytes([want[-1] ^ 1])
            assert got[:len(want)] == want and not any(got[len(want):]), \
                f"{name}_packed of expert {e}: {first_difference(got, want)}"
            dense = library.dequantize(packed, name + "_weight", e, (n, k))
            want = Q.dense(w, s, g)
            if twist == "dense":
                want = np.nextafter(want, np.inf)
            assert dense.tobytes() == want.tobytes(), f"{name}_weight of expert {e} dequantized"
    if target != "p16":
        return  # this machine makes no layer of it
    x = Q.to_dtype(rng.normal(0, float(rng.choice([0.1, 1, 5])), (tokens, h)), dtype)
    if rng.random() < 0.2:
        x[rng.integers(tokens)] = 0
    ids = np.stack([rng.permutation(count)[:document["top_k"]] for _ in range(tokens)]).astype(np.int32)
    gates = rng.uniform(0.05, 1, ids.shape).astype(F32)
    hidden = x if dtype == "float32" else x.astype(np.float16) if dtype == "float16" else Q.bf16_bits(x)
    got = library.moe.Layer(selection, packed).apply(hidden, topk_ids=ids, topk_weights=gates)
    got = got.astype(F32) if dtype != "bfloat16" else Q.bf16_value(got)
    want, exact = forward(x, ids, gates, experts, document)
    if twist == "output":
        want = want * F32(1.0001)
    compare_outputs(got, want, exact, dtype)


def compare_outputs(got, want, exact, dtype):
    """Where no exp of 2 ulp moves what is quantized: 16-bit layers equal, float32 as w4a8_int8.md 12 says."""
    most = np.abs(want).max()
    if exact:
        bound = 1e-5 * most if dtype == "float32" else 0
    else:
        bound = 1e-2 * most
    worst = np.abs(got.astype(np.float64) - want).max()
    assert worst <= bound, f"output: {worst} from the reference, whose largest is {most}; {bound} is allowed"


def first_difference(got, want):
    if got is None:
        return "there is none"
    if len(got) < len(want):
        return f"{len(got)} bytes for {len(want)}"
    differ = [k for k, (a, b) in enumerate(zip(got, want)) if a != b]
    return f"byte {differ[0]} of {len(want)} and {len(differ) - 1} more" if differ else "bytes behind the matrix are not 0"
