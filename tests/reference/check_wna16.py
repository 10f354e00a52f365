"""Re-runs the reference on every golden file and compares: python3 check_wna16.py tests/vectors/wna16"""
import glob
import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import digests  # noqa: E402
import wna16 as R  # noqa: E402


def sub(a, prefix):
    return {k[len(prefix):]: v for k, v in a.items() if k.startswith(prefix)}


def equal(name, k, got, want):
    """want: an array, or the text of a digest."""
    got = np.asarray(got)
    if isinstance(want, str):
        assert got.shape == digests.shape_of(want), (name, k)
        why = digests.difference(want, got.tobytes())
        assert not why, (name, k, why)
    else:
        assert got.shape == want.shape and got.tobytes() == want.tobytes(), (name, k)


def same(name, got, want, none):
    for k in R.OUT:
        if k in none:
            assert got[k] is None, (name, k, "must be absent")
        else:
            equal(name, k, got[k], want[k])


n = 0
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.safetensors"))):
    a, _, m = R.st_load(path)
    a.update(sub(m, digests.PREFIX))
    name = os.path.basename(path)
    ck, want, none = sub(a, "in."), sub(a, "out."), m.get("none", "").split(",")
    if not want:
        continue
    bits, gs, tag, I = int(m["bits"]), int(m["group_size"]), m["scale_dtype"], int(m["I"])
    be, fmt = m["backend"], m["format"]
    if be == "MARLIN":
        idt = None if m["input_dtype"] == "none" else m["input_dtype"]
        act = "group" if m["act_order"] == "True" else None
        run = (lambda rule: R.process_awq_marlin(ck, bits, gs, tag, idt, scale_rule=rule)) if fmt == "awq" else \
            (lambda rule: R.process_marlin(ck, bits, gs, tag, idt, act, scale_rule=rule))
        got, fixed = run("upstream"), run("correct")
        for k, v in sub(a, "alt.").items():
            equal(name, "alt " + k, fixed[k], v)
        back = None if idt == "int8" else R.crop_padded(R.read_marlin(fixed, bits, tag, idt), I)
    elif be == "FLASHINFER_TRTLLM":
        got = R.process_trtllm_mxint4(ck)
        back = R.read_trtllm(got, int(m["H"]), I)
    elif be == "XPU":
        got = R.process_xpu(ck)
        back = R.read_xpu(got, tag)
    elif be == "CPU":
        got = R.process_cpu(ck, "awq" if fmt == "awq" else "gptq", tag)
        back = R.read_cpu(got) if "dense.w13_int" in a else None
    elif be == "EMULATION/OTF":
        got = R.process_otf(ck, fmt, bits)
        back = R.read_otf(got, bits, tag)
    else:
        got, back = R.process_emulation(ck, fmt, bits, tag, m["output_dtype"]), None
    same(name, got, want, none)
    if back is not None:
        rows = fmt if fmt in ("awq", "ct_rows") else "gptq"
        stored = R.read_checkpoint(ck, rows, bits, tag, be == "CPU" and fmt == "gptq")
        for w in ("w13", "w2"):
            numbers = a[f"dense.{w}_int"]
            narrow = numbers.split()[0] == "I8" if isinstance(numbers, str) else numbers.dtype == np.int8
            ints = stored[w]["int"].astype(np.int8 if narrow else np.int16)
            equal(name, f"dense.{w}_int", ints, numbers)
            d = ints.astype(np.float32) * np.take_along_axis(
                R.to_f32(a[f"dense.{w}_scale"], tag),
                np.broadcast_to(a[f"dense.{w}_group"][:, None, :], ints.shape), 2)
            assert np.array_equal(R.dense(back[w]), d), (name, w)
            back[w]["dense"] = d
        if "exec.y" in a:
            b = [R.to_f32(ck[k], tag) if k in ck else None for k in ("w13_bias", "w2_bias")]
            y = R.moe_forward(a["exec.x"], back["w13"]["dense"], back["w2"]["dense"], a["exec.topk_ids"], a["exec.topk_weights"], *b)
            assert np.allclose(y, a["exec.y"], rtol=1e-4, atol=1e-4), name
    n += 1
s = 0
selection = os.path.join(sys.argv[1], "..", "selection", "int_wna16.json")
for c in json.load(open(selection))["cases"] if os.path.exists(selection) else []:
    q = c["query"]
    platform = {"kind": q["platform"]["type"], "env": q["env"], "flashinfer_trtllm_moe": q["platform"].get("libs", {}).get("flashinfer_trtllm_moe", False)}
    if "capability" in q["platform"]:
        platform["capability"] = q["platform"]["capability"]
    got = R.select(platform, q["moe"], q["weight_key"])
    want = c["expect"]
    assert got.get("backend") == want.get("backend") and got.get("experts") == want.get("experts") and ("error" in got) == ("error" in want), c["id"]
    s += 1
print(n, "conversion files,", s, "selection cases: all equal")
