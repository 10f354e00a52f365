#!/usr/bin/python3
"""Ranks of mpi4py: the bytes of one process, an error on one rank, steps.

    PYTHONPATH=bindings_examples/bindings/python LIBMOE_PATH=libmoe.so.0 mpirun -n 2 tests/dist/mpi_python.py
"""
import sys

import libmoe
import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
EXPERTS, TOP_K, HIDDEN, INTER = 6, 2, 64, 32
DOCUMENT = {"num_experts": EXPERTS, "top_k": TOP_K, "hidden_dim": HIDDEN, "intermediate_size": INTER, "in_dtype": "float32",
            "quantization": {"scheme": "W4A8", "group_size": 32}}
TOKENS = (7, 0, 5, 3)  # of ranks 0, 1, 2, ...


def tensors():
    rng = np.random.default_rng(7)
    scale = np.uint16(0x3C80)  # 2^-6 in bfloat16
    return {"w13_weight": rng.integers(-8, 8, (EXPERTS, 2 * INTER, HIDDEN), np.int8),
            "w13_scale": np.full((EXPERTS, 2 * INTER, HIDDEN // 32), scale),
            "w2_weight": rng.integers(-8, 8, (EXPERTS, HIDDEN, INTER), np.int8),
            "w2_scale": np.full((EXPERTS, HIDDEN, INTER // 32), scale)}


def layer_of(config, experts):
    weights = libmoe.Weights(config)
    for role, array in tensors().items():
        weights.set(role, array[experts])
    selection = libmoe.Selection(config)
    return libmoe.Layer(selection, libmoe.convert(selection, weights))


def outputs(dist, hidden, logits):
    """Of a call, of one in steps, and of one after an error on the last rank."""
    yield dist.apply(hidden, logits)
    with dist.begin(hidden, logits) as begun:
        while not begun.poll():
            pass
        yield begun.finish()
    last = WORLD.rank == WORLD.size - 1
    try:
        dist.apply(hidden[:, 1:] if last else hidden, logits)
        sys.exit(f"rank {WORLD.rank}: an error on the last rank is not seen")
    except libmoe.ShapeError if last else libmoe.PeerError:
        pass
    yield dist.apply(hidden, logits)


def main():
    counts = [TOKENS[rank % len(TOKENS)] for rank in range(WORLD.size)]
    first, rng = sum(counts[:WORLD.rank]), np.random.default_rng(3)
    hidden, logits = rng.standard_normal((sum(counts), HIDDEN), np.float32), rng.standard_normal((sum(counts), EXPERTS), np.float32)
    mine = slice(first, first + counts[WORLD.rank])
    config = libmoe.Config(DOCUMENT)
    with libmoe.Comm.from_mpi(WORLD, options={"timeout_ms": 20000}) as comm, libmoe.Dist(comm, config) as dist:
        if (comm.rank, comm.size) != (WORLD.rank, WORLD.size):
            sys.exit(f"{comm} is not rank {WORLD.rank} of {WORLD.size}")
        experts = dist.report()["experts"]
        dist.attach(layer_of(dist.local_config(), experts) if experts else None)
        all_outputs = [WORLD.gather(out) for out in outputs(dist, hidden[mine], logits[mine])]
    if WORLD.rank == 0:
        want = layer_of(config, list(range(EXPERTS))).apply(hidden, logits)
        for outs in all_outputs:
            if np.concatenate(outs).tobytes() != want.tobytes():
                sys.exit("the ranks' outputs are not those of one process")
        print(f"{WORLD.size} ranks, {counts} tokens: the bytes of one process", flush=True)


def run():
    try:
        main()
    except BaseException as error:  # the others may wait
        print(f"rank {WORLD.rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        WORLD.Abort(1)


if __name__ == "__main__":
    run()
