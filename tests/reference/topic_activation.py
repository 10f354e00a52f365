"""Activations against activation.py: a float32 layer of one expert whose matrices are identities."""
import numpy as np

import activation as A

NAMES = A.GATED + A.UNGATED + list(A.ALIASES)


def check(library, rng, twist):
    width, tokens = int(rng.choice([16, 32])), int(rng.integers(1, 6))
    for name in NAMES:
        rows = width * (2 if A.is_gated(name) else 1)
        x = rng.normal(0, rng.choice([0.3, 3, 12]), (tokens, rows)).astype(np.float32)
        document = {"num_experts": 1, "top_k": 1, "hidden_dim": rows, "intermediate_size": width, "activation": name,
                    "in_dtype": "float32"}
        params = {}
        if name.startswith("swiglu") or (name == "silu" and rng.random() < 0.5):
            params = {"limit": float(rng.choice([1.5, 4, 7]))}
        if name.startswith("swigluoai"):
            params.update(alpha=float(rng.choice([1.0, 1.702])), beta=float(rng.choice([0.0, 1.0])))
        document["activation_params"] = params
        selection, packed = library.convert(document, {
            "w13_weight": np.eye(rows, dtype=np.float32)[None], "w2_weight": np.eye(rows, width, dtype=np.float32)[None]})
        got = library.moe.Layer(selection, packed).apply(
            x, topk_ids=np.zeros((tokens, 1), np.int32), topk_weights=np.ones((tokens, 1), np.float32))
        want = np.zeros_like(x)
        want[:, :width] = A.apply(name, x, **params)
        got = got + np.float32(1e-4) if twist else got
        bound = 1e-6 + 4e-6 * np.abs(want)  # config.md 10
        worst = np.abs(got - want) - bound
        assert (worst <= 0).all(), f"{document}: x {x.flat[0]}.. gives {got.flat[worst.argmax()]} for {want.flat[worst.argmax()]}"
