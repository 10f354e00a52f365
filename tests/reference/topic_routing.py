"""moe_route against routing.py: every scoring function, groups, bias, factor, ties, numbers that are none."""
import numpy as np

import routing as R


def same(got, want, keys):
    """Ids are equal, but for keys that hold a score: there another exp may turn keys that differ in the last bits."""
    (w, ids), (w_want, ids_want) = got, want
    turned = ids != ids_want
    assert not (turned.any() and keys is None), f"ids {ids[turned]} for {ids_want[turned]}"
    if turned.any():
        a, b = np.take_along_axis(keys, ids, 1), np.take_along_axis(keys, ids_want, 1)
        assert np.allclose(a[turned], b[turned], rtol=0, atol=1e-6), f"ids {ids[turned]} for {ids_want[turned]}"
        return
    assert np.allclose(w, w_want, rtol=4e-6, atol=1e-7, equal_nan=True), f"weights {w} for {w_want}"


def random_logits(rng, tokens, columns):
    x = rng.normal(0, rng.choice([0.1, 2, 20]), (tokens, columns)).astype(np.float32)
    if rng.random() < 0.5:
        x = np.round(x * 4) / np.float32(4)  # ties
    if rng.random() < 0.3:
        x.flat[rng.integers(x.size, size=3)] = [np.nan, np.inf, -np.inf]
    return x


def check(library, rng, twist):
    experts = int(rng.choice([4, 8, 16, 24, 64, 160]))
    top_k, tokens = int(rng.integers(1, min(experts, 9))), int(rng.integers(1, 6))
    x = random_logits(rng, tokens, experts)
    given = x
    if rng.random() < 0.3:
        given = x.astype(np.float16)
        x = given.astype(np.float32)
    elif rng.random() < 0.3:
        given = R.f32_to_bf16(x)
        x = R.bf16_to_f32(given)
    document = {"num_experts": experts, "top_k": top_k, "hidden_dim": 64, "intermediate_size": 64}
    method = rng.choice(["general", "general", "general", "topk", "renormalize", "llama4", "sparsemixer", "hash", "zero"])
    bias = ids = keys = None
    factor = float(rng.choice([1.0, 2.5]))
    scoring, renormalize = str(rng.choice(list(R.SCORING))), bool(rng.random() < 0.5)
    if method == "general":
        options = {"scoring_func": scoring, "renormalize": renormalize, "routed_scaling_factor": factor}
        if rng.random() < 0.5:
            groups = int(rng.choice([g for g in (2, 4, 8) if experts // g >= 2]))
            kept = int(rng.integers(1, groups + 1))
            if top_k <= kept * (experts // groups):
                options.update(num_expert_group=groups, topk_group=kept)
        document["routing"] = {**options, **({"use_grouped_topk": True} if "topk_group" in options else {})}
        if rng.random() < 0.5:
            bias = (rng.normal(0, 0.3, experts)).astype(np.float32)
            document["routing"]["e_score_correction_bias"] = True
            keys = R.SCORING[scoring](R.sanitize(x)) + bias
        want = R.select_experts(x, top_k, e_score_correction_bias=bias, **options)
    elif method == "topk":
        document["routing"] = {"method": "topk"}
        want = R.topk_raw(x, top_k)
    elif method == "renormalize":
        document["routing"] = {"renormalize": True}
        want = R.topk_then_softmax(x, top_k)
    elif method == "llama4":
        document["routing"] = {"scoring_func": "sigmoid", "renormalize": False}
        want = R.llama4(x, top_k)
    elif method == "sparsemixer":
        document.update(top_k=2, routing={"method": "sparsemixer", "jitter_eps": 0.01})
        given = x = np.nan_to_num(x, nan=0, posinf=9, neginf=-9).astype(np.float32)
        want = R.sparsemixer(x, 0.01)
    elif method == "hash":
        document["routing"] = {"hash_routing": True, "scoring_func": scoring, "renormalize": renormalize,
                               "routed_scaling_factor": factor}
        table = np.stack([rng.permutation(experts)[:top_k] for _ in range(50)])
        words = rng.integers(0, 50, tokens)
        ids = table[words]
        want = R.hash_route(x, words, table, scoring_func=scoring, renormalize=renormalize, routed_scaling_factor=factor)
    else:  # zero experts take columns of their own; moe_route tells them as chosen
        zeros = int(rng.integers(1, 4))
        if experts - zeros < top_k:
            return
        document["num_experts"] = experts - zeros
        bias = rng.normal(0, 0.3, experts).astype(np.float32)
        document["routing"] = {"scoring_func": scoring, "renormalize": renormalize, "num_zero_experts": zeros,
                               "e_score_correction_bias": True}
        keys = R.SCORING[scoring](R.sanitize(x)) + bias
        want = R.select_experts(x, top_k, scoring_func=scoring, renormalize=renormalize, e_score_correction_bias=bias)
    got = library.route(document, np.ascontiguousarray(given), bias, ids)
    if twist:
        got = got[0] * np.float32(1.0001), got[1]
    try:
        same(got, want, keys)
    except AssertionError as fault:
        raise AssertionError(f"{document}: {fault}") from None
