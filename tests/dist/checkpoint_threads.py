#!/usr/bin/python3
"""The first layer of a checkpoint over threads as ranks: the SHA-256 of its outputs is that of one process, or the exit code is 1.

    LIBMOE_PATH=libmoe.so.0 tests/dist/checkpoint_threads.py DIR [RANKS]     4 ranks without a number, 16 tokens each
"""
import hashlib
import pathlib
import sys
import threading

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings_examples/bindings/python"))
import libmoe  # noqa: E402

TOKENS = 16  # of a rank


def main(directory, ranks):
    outs = [None] * ranks
    with libmoe.open(directory) as model, model.config(0) as config:
        rng = np.random.default_rng(1)
        hidden = (rng.integers(0, 512, (ranks * TOKENS, model[0].hidden_dim)) | 0x3E00).astype(np.uint16)  # bfloat16
        logits = rng.random((ranks * TOKENS, model[0].num_experts)).astype(np.float32) * 4
        want = hashlib.sha256(model.layer(0).apply(hidden, logits).tobytes()).hexdigest()

        def run(comm):
            mine = slice(comm.rank * TOKENS, (comm.rank + 1) * TOKENS)
            with comm, libmoe.Dist(comm, config) as dist:
                dist.attach(model.layer(0, patch=dist.patch) if dist.report()["experts"] else None)
                outs[mine.start // TOKENS] = dist.apply(hidden[mine], logits[mine])
        threads = [threading.Thread(target=run, args=(comm,)) for comm in libmoe.Comm.threads(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if any(out is None for out in outs):
        sys.exit("a rank failed")
    got = hashlib.sha256(np.concatenate(outs).tobytes()).hexdigest()
    print(f"one process {want}\n{ranks} threads   {got}")
    return got != want


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4))
