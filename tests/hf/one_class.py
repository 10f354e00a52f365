"""A class of transformers and libmoe: every case of it, right, refused, WRONG or unbuilt.

Part of against_transformers; runs inside its virtual environment, with LIBMOE_PATH.
"""
import copy
import json
import re
import shutil
import traceback

import libmoe
import numpy as np
import torch

import tiny_models

BOUNDS = {"bf16": 1e-2, "f16": 2e-3, "f32": 2e-6}  # max|d| / max|out|


def array(t, dtype):
    """A numpy array for the binding."""
    t = {"bf16": lambda: t.bfloat16().view(torch.uint16), "f16": t.half, "f32": t.float, "i32": t.int}[dtype]()
    return np.ascontiguousarray(t.numpy())


def floats(a):
    return (a.astype(np.uint32) << 16).view(np.float32) if a.dtype == np.uint16 else a.astype(np.float32)


class Answer:
    """A layer made from a directory, as somebody makes it who knows the directory alone, in one mode of moe_apply."""

    def __init__(self, directory, options, given_logits):
        self.given_logits = given_logits
        held = {} if given_logits else {"overrides": {"routing": {"topk_weights_hold_factor": True}}}
        with libmoe.Config.from_hf((directory / "config.json").read_bytes(), **options, **held) as config:
            self.document = config.document
            self.routing = self.document.get("routing", {})
            self.hashed = given_logits and self.routing.get("hash_routing", False)
            with libmoe.Selection(config) as selection, libmoe.Weights(config) as weights:
                weights.load_safetensors(directory)
                with libmoe.convert(selection, weights) as packed:
                    self.layer = libmoe.Layer(selection, packed)

    def apply(self, x, logits, ids, weights):
        """Output, and the ids that routing chose."""
        if not self.given_logits:
            return self.layer.apply(x, topk_ids=ids, topk_weights=weights), ids
        if self.hashed:
            return self.layer.apply(x, logits, topk_ids=ids), ids
        chosen = np.zeros(ids.shape, np.int32)
        return self.layer.apply(x, logits, out_topk_ids=chosen), chosen


def compare(directory, dtype, got, options):
    """What is wrong, '' if nothing, and a note; libmoe.Error where libmoe refuses."""
    x, logits, ids, weights = (array(got[name], kind) for name, kind in
                               (("hidden", dtype), ("logits", "f32"), ("ids", "i32"), ("weights", "f32")))
    note = ""
    for given_logits, mode in ((True, "logits"), (False, "topk")):
        answer = Answer(directory, options, given_logits)
        if f".{got['layer']}." not in answer.document["name"]:
            return f"it takes {answer.document['name']}, the layer of experts is {got['layer']}", ""
        if answer.document["top_k"] != ids.shape[1]:
            return f"top_k {answer.document['top_k']}, theirs is {ids.shape[1]}", ""
        columns = answer.document["num_experts"] + answer.routing.get("num_zero_experts", 0)
        try:
            out, chosen = answer.apply(x, logits, ids, weights)
        except libmoe.Error as error:
            if isinstance(error, libmoe.ShapeError) and (logits.shape[1] == columns or not given_logits):
                return f"{mode}: {refusal(error)}", ""  # a layer of another model
            if not given_logits:
                raise
            note = f"in mode topk; with logits {error.message}"
            continue
        for t in range(len(x)):
            one, _ = answer.apply(*(a[t:t + 1] for a in (x, logits, ids, weights)))
            if one.tobytes() != out[t].tobytes():
                return f"{mode}: other bits for one token than for all", ""
        if (np.sort(chosen) != np.sort(ids)).any():
            t = int((np.sort(chosen) != np.sort(ids)).any(1).argmax())
            return f"{mode}: experts {chosen[t].tolist()}, theirs are {ids[t].tolist()}", ""
        want = got["out"].numpy() * (got["factor"] if given_logits else 1)
        far = float(np.abs(floats(out) - want).max() / np.abs(want).max())
        if not far <= BOUNDS[dtype]:
            share = float((floats(out) * want).sum() / (want * want).sum())
            return f"{mode}: max|d|/max|out| is {far:.2g}, the sum {share:.3f} of theirs", ""
    return "", note


def refusal(error):
    return f"{error.name[8:]} {error.message}"


def refused_config(document, **options):
    """Why libmoe does not take a config.json, '' where it does."""
    try:
        libmoe.Config.from_hf(json.dumps(document), **options).close()
        return ""
    except libmoe.Error as error:
        return refusal(error)


def judge(directory, dtype, captured, dense_layers):
    """(status, text) of a directory: the first layer by default options, the last by its index, dense ones refused."""
    try:
        for got, options in [(captured[0], {}), (captured[-1], {"layer_index": captured[-1]["layer"]})]:
            wrong, note = compare(directory, dtype, got, options)
            if wrong:
                return "WRONG", f"layer {got['layer']}: {wrong}"
    except libmoe.Error as error:
        return "refused", refusal(error)
    document = json.loads((directory / "config.json").read_bytes())
    taken = [layer for layer in dense_layers if not refused_config(document, layer_index=layer)]
    return ("WRONG", f"it takes the dense layers {taken}") if taken else ("right", note)


def brief(error):
    return " ".join(f"{type(error).__name__}: {error}".split())[:240]


def unbuilt(report, variant, dtype, error, args, why=""):
    """transformers failed; where libmoe refuses anyway, that is the answer."""
    if args.verbose:
        traceback.print_exc()
    text = brief(error)
    report(variant, dtype, *(("refused", f"{why} [transformers: {text}]") if why else ("unbuilt", text)))


def written(directory, change):
    """config.json changed behind transformers' back."""
    file = directory / "config.json"
    file.write_text(json.dumps(change(json.loads(file.read_text(encoding="utf-8"))), indent=2), encoding="utf-8")


def variants(cls, args, report):
    """The cases of a class; none where its model has no experts."""
    try:
        config = tiny_models.base_config(cls)
        document = tiny_models.document_of(config, cls, "bf16")
        with torch.device("meta"):
            model = cls._from_config(copy.deepcopy(config), dtype=torch.float32)
        found = tiny_models.places(model)
    except Exception as error:  # whatever transformers says
        unbuilt(report, "base", "", error, args)
        return
    if found:
        yield from tiny_models.cases(document, *tiny_models.holder_of(model, found[0]), args.strays)
    else:
        report("base", "", "dense", "")


def examine(cls, args, folder, report):
    """Reports (variant, dtype, status, text) of every case."""
    for variant, document, change in variants(cls, args, report):
        where, checkpoint = folder / re.sub(r"\W+", "_", variant), None
        for dtype in args.dtypes if re.search(args.variants, variant) else ():
            why = ""
            try:
                ours = change(tiny_models.document_of(tiny_models.config_from(cls, document), cls, dtype))
                why = refused_config(ours)
                if why and variant != "base":  # no model is needed to be refused; that of base shows that we could look
                    report(variant, dtype, "refused", why)
                    continue
                checkpoint = checkpoint or tiny_models.Checkpoint(cls, document, where)
                directory, captured, dense_layers = checkpoint.captured(dtype)
            except Exception as error:  # whatever transformers says
                unbuilt(report, variant, dtype, error, args, why)
                continue
            written(directory, change)
            if cls.__name__ in args.mangled:
                written(directory, lambda file: json.loads(json.dumps(file).replace(*args.mangled[cls.__name__])))
            if args.verbose:
                for got in captured:
                    shapes = {name: tuple(getattr(value, "shape", [value])) for name, value in got.items()}
                    print(cls.__name__, variant, dtype, shapes, flush=True)
            report(variant, dtype, *judge(directory, dtype, captured, dense_layers))
        if not args.keep:
            shutil.rmtree(where, ignore_errors=True)
