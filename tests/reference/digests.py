"""Digests of tensors that tests only compare with (tests/vectors/README.md).

    digests.py make FILE ...     puts digests in place of the tensors that DIGESTS names, in safetensors files of tests/vectors
    digests.py check VECTORS     fails where a file of tests/vectors still has such a tensor, or a digest that is none
"""
import hashlib
import json
import math
import pathlib
import re
import struct
import sys

# Folder of tests/vectors: file/tensor, for tensors that are outputs of another tool's conversion and inputs of no test.
DIGESTS = {
    "wna16": r".*/((out|alt)\..*|dense\.w(13|2)_int)",
    "float": r".*/((trtllm|trtllm_split|ficutlass_mxfp8|ficutlass_bf16|marlin|cpu|aiter|deepgemm|deint|[A-Z0-9_]+)\.[ws]\d+"
             r"|(trtllm|marlin|cpu|xpu|aiter|ue8m0|requant|fi)_w\d+|w31|w13_int4)",
    "w4a8_int8": r"moe_.*/w(13|2)_packed_(kai|fallback)|pack_.*/(packed_fallback|dense|lhs_.*)",
}
SMALLEST = 2048  # bytes; a digest itself has some 500
PROBES, PROBE = 16, 8
PREFIX = "digest "
SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}  # others: a byte


def offsets(size):
    """Where the probes lie: evenly over the tensor, the first and the last byte among them."""
    return [(size - PROBE) * i // (PROBES - 1) for i in range(PROBES)]


def digest(dtype, shape, data):
    probes = " ".join(f"{at}={data[at:at + PROBE].hex()}" for at in offsets(len(data)))
    return f"{dtype} {'x'.join(map(str, shape))} {hashlib.sha256(data).hexdigest()} {probes}"


def shape_of(text):
    return tuple(map(int, text.split()[1].split("x")))


def difference(text, data):
    """What is wrong with bytes, "" where they are the tensor's."""
    dtype, shape, sha256, *probes = text.split()
    size = SIZES.get(dtype, 1) * math.prod(map(int, shape.split("x")))
    if len(data) != size:
        return f"{len(data)} bytes instead of {size}"
    wrong = []
    for number, probe in enumerate(probes, 1):
        at, want = probe.split("=")
        got = data[int(at):int(at) + PROBE].hex()
        if got != want:
            wrong.append(f"probe {number}: at byte {at} there is {got} instead of {want}")
    hashed = hashlib.sha256(data).hexdigest()
    if hashed == sha256:
        return "; ".join(wrong + ["but not the SHA-256: the file's probes are wrong"]) if wrong else ""
    if wrong:
        return "; ".join(wrong[:3] + [f"{len(wrong)} of {len(probes)} probes differ"])
    return f"all {len(probes)} probes agree, but the SHA-256 is {hashed} instead of {sha256}"


def read(path):
    raw = path.read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8:8 + n]), raw[8 + n:]


def wanted(path, head):
    """Names of the tensors that are to have digests."""
    rule = re.compile(DIGESTS.get(path.parent.name, "(?!)"))
    return [name for name, t in head.items()
            if name != "__metadata__" and rule.fullmatch(f"{path.stem}/{name}") and t["data_offsets"][1] - t["data_offsets"][0] >= SMALLEST]


def make(path):
    head, data = read(path)
    names = wanted(path, head)
    if not names:
        return
    meta = head.pop("__metadata__", {})
    out, kept = {"__metadata__": meta}, []
    for name, t in head.items():
        begin, end = t["data_offsets"]
        if name in names:
            meta[PREFIX + name] = digest(t["dtype"], t["shape"], data[begin:end])
            continue
        at = sum(map(len, kept))
        out[name] = {**t, "data_offsets": [at, at + end - begin]}
        kept.append(data[begin:end])
    text = json.dumps(out, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(kept))
    print(f"{path.name}: {len(names)} digests")


def check(root):
    faults = files = count = 0
    for path in sorted(p for folder in DIGESTS for p in (root / folder).glob("*.safetensors")):
        files += 1
        head, _ = read(path)
        if names := wanted(path, head):
            print(f"{path}: whole: {' '.join(names)}; digests.py make {path}")
            faults += 1
        for name, text in head.get("__metadata__", {}).items():
            if not name.startswith(PREFIX):
                continue
            count += 1
            dtype, shape, sha256, *probes = text.split()
            size = SIZES.get(dtype, 1) * math.prod(map(int, shape.split("x")))
            good = re.fullmatch("[0-9a-f]{64}", sha256) and [int(p.split("=")[0]) for p in probes] == offsets(size)
            if not good or name[len(PREFIX):] in head or any(not re.fullmatch(r"\d+=[0-9a-f]{16}", p) for p in probes):
                print(f"{path}: {name} is no digest as this script makes it")
                faults += 1
    print(f"{count} digests in {files} files")
    return faults or not count


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("make", "check"):
        sys.exit(__doc__)
    for argument in map(pathlib.Path, sys.argv[2:]):
        if sys.argv[1] == "check":
            sys.exit(1 if check(argument) else 0)
        make(argument.resolve())
