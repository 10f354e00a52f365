#!/usr/bin/env python3
"""The tables of impl/spec/architectures.md, made from the rows of the library (impl/hf/architectures.cpp).

    architectures_page.py <libmoe.so> <architectures.md>            fails when the page is not what the rows say
    architectures_page.py <libmoe.so> <architectures.md> --write    writes it
"""
import ctypes
import difflib
import json
import sys

BEGIN, END = "<!-- rows: written by tests/hf/architectures_page.py -->", "<!-- rows: end -->"
QUERY = b'{"architectures": true}'


def rows(path):
    lib = ctypes.CDLL(path)
    lib.moe_buffer_data.restype = ctypes.c_void_p
    lib.moe_buffer_size.restype = ctypes.c_size_t
    lib.moe_describe.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    lib.moe_buffer_data.argtypes = lib.moe_buffer_size.argtypes = lib.moe_buffer_destroy.argtypes = [ctypes.c_void_p]
    buffer = ctypes.c_void_p()
    if lib.moe_describe(b"checkpoint", QUERY, len(QUERY), ctypes.byref(buffer), None) != 0:
        raise SystemExit("moe_describe refused the question")
    text = ctypes.string_at(lib.moe_buffer_data(buffer), lib.moe_buffer_size(buffer))
    lib.moe_buffer_destroy(buffer)
    return json.loads(text)


def code(text):
    return f"`{text}`"


def number(value):
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting(value):
    """What a member comes to: the file's key and the class's own value, or that value alone."""
    otherwise = value["otherwise"]
    otherwise = number(otherwise) if isinstance(otherwise, (int, float)) and not isinstance(otherwise, bool) else otherwise
    return f"{code(value['key'])} ({otherwise})" if "key" in value else str(otherwise)


def on_disk(a):
    """The module, the form that the class writes, the other one."""
    module, names = a["module"], a["projections"]
    stacked = {"rows_first": "[E, out, in]", "columns_first": "[E, in, out]", "flat": "[E * I, H]", "none": ""}[a["stacked"]]
    stack = f"{', '.join(map(code, a['stacked_names']))} {stacked}".replace("`gate_up_proj`, `down_proj` [E, out, in]", "S")
    each = "X" if names == ["gate_proj", "up_proj", "down_proj"] else "W" if names == ["w1", "w3", "w2"] else ", ".join(map(code, names))
    if not a["gated"]:
        each += " without gate"
    parts = [f"{stack}; or {each}" if a["writes_stacks"] else f"{each}; or {stack}" if stacked else each]
    parts += ["gate and up alternate"] if a["interleaved"] else []
    parts += ["biases"] if a["has_bias"] else []
    parts += ["norm of an expert's output " + code(a["expert_norm"])] if "expert_norm" in a else []
    return f"{code(module)}: " + "; ".join(parts)


def routing(a):
    r, words = a["routing"], []
    words.append(r["method"] if "method" in r else setting(r["scoring_func"]))
    renormalize = r["renormalize"]
    if "key" in renormalize:
        words.append("sum " + setting(renormalize).replace("(True)", "(on)").replace("(False)", "(off)"))
    elif renormalize["otherwise"]:
        words.append("sum")
    if "renormalize_eps" in r:
        words[-1] += f" + {number(r['renormalize_eps'])}"
    if "num_zero_experts" in r:
        words.append(f"zero experts ({r['zero_experts']}) " + setting(r["num_zero_experts"]))
    if "num_shared_logits" in r:
        words.append("shared experts' logits " + setting(r["num_shared_logits"]))
    if "expert_scale" in r:
        words.append("scale " + code(r["expert_scale"]))
    words += ["weight on the input"] if r.get("apply_router_weight_on_input") else []
    words += [f"first {r['hash_layers']} layers by a table unless the file says which"] if "hash_layers" in r else []
    return ", ".join(words)


def factor(r):
    if "routed_scaling_factor" not in r:
        return ""
    return setting(r["routed_scaling_factor"]) + (", output" if r["apply_routed_scale_to_output"] else ", weights")


def bias(r):
    if "e_score_correction_bias" not in r:
        return ""
    b = r["e_score_correction_bias"]
    text = "yes" if "key" not in b else f"{code(b['key'])} ({'yes' if b['otherwise'] else 'no'})"
    text += f", {code(r['correction_bias_name'])}" if "correction_bias_name" in r else ""
    return text + (", on the logits" if r.get("bias_on_logits") else "")


def groups(r):
    if "num_expert_group" not in r:
        return ""
    extra = [r["group_score"].replace("_", " ")] if "group_score" in r else []
    extra += ["masked to zero"] if r.get("masked_groups") == "zero" else []
    extra += ["none with " + r["groups_unless"]] if "groups_unless" in r else []
    return ", ".join([setting(r["num_expert_group"]), setting(r["topk_group"]), *extra])


def sizes(a):
    s = a["sizes"]
    return ", ".join(str(s.get(key, "-")) for key in ("num_experts", "top_k", "hidden_dim", "intermediate_size", "num_layers"))


def table(head, lines):
    text = "| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|\n"
    for cells in lines:
        text += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return text


def page(known):
    main = table(("class", "experts on disk", "activation", "routing", "factor", "correction bias", "groups, kept", "sizes"),
                 [(a["name"], on_disk(a), a["activation"], routing(a), factor(a["routing"]), bias(a["routing"]), groups(a["routing"]), sizes(a))
                  for a in known["architectures"]])
    unread = table(("class", "why it is refused"), [(u["name"], u["why"]) for u in known["unread"]])
    return f"\n## 1 Read: {len(known['architectures'])}\n\n{main}\n## 2 Known and not read: {len(known['unread'])}\n\n{unread}\n"


def main():
    known, path = rows(sys.argv[1]), sys.argv[2]
    with open(path, encoding="utf-8") as f:
        text = f.read()
    before, rest = text.split(BEGIN)
    wanted = before + BEGIN + "\n" + page(known) + END + rest.split(END)[1]
    if "--write" in sys.argv:
        with open(path, "w", encoding="utf-8") as f:
            f.write(wanted)
    elif wanted != text:
        sys.stdout.writelines(difflib.unified_diff(text.splitlines(True), wanted.splitlines(True), "page", "rows", n=0))
        print("the page is not what the rows say: run architectures_page.py with --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
