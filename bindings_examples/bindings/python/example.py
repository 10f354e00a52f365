#!/usr/bin/python3
"""The four steps from Python: select, convert, create, apply.

    LIBMOE_PATH=/path/to/libmoe.so.0 example.py CHECKPOINT_DIR OUTPUT_FILE
"""
import hashlib
import pathlib
import sys

import numpy as np

import libmoe


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} CHECKPOINT_DIR OUTPUT_FILE")
    directory = pathlib.Path(sys.argv[1])
    with libmoe.Context() as context, libmoe.Config.from_hf((directory / "config.json").read_bytes()) as config:
        numbers = config.document
        kind = {"bfloat16": np.uint16, "float16": np.float16, "float32": np.float32}[numbers["in_dtype"]]
        hidden = np.fromfile(directory / "hidden.bin", kind).reshape(-1, numbers["hidden_dim"])
        logits = np.fromfile(directory / "logits.bin", np.float32).reshape(-1, numbers["num_experts"])

        with libmoe.Selection(config, context) as selection:
            print(selection.backend, selection.kernel, selection.layout)
            with libmoe.Weights(config) as weights:
                weights.load_safetensors(directory)
                packed = libmoe.convert(selection, weights, context)
            with packed, libmoe.Layer(selection, packed, context) as layer:
                out = layer.apply(hidden, logits)
    out.tofile(sys.argv[2])
    print("sha256", hashlib.sha256(out).hexdigest())


if __name__ == "__main__":
    try:
        main()
    except (libmoe.Error, OSError, ValueError) as error:
        sys.exit(str(error))
