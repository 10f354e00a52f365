#!/usr/bin/env python3
"""Compares two descriptions of the C interface (moe_abi.json) by rule: things may be added, nothing may change.

    abi_check/rules.py OLD.json NEW.json    status 1 and one line per broken rule
    abi_check/rules.py --self-test OLD.json prove that every rule fails on a description that breaks it

- a function keeps its return type, its parameters and their order, names and types; a parameter may become nullable
  and a function may become callable from any thread
- a function that lists its statuses keeps a list; before version 1 the list may change, and each change is told
  (callers treat a status that they do not know like MOE_ERR_INTERNAL); from version 1 on it may only become shorter
- a struct with `struct_size` may grow by members behind its old end (not in its padding: the size would not tell);
  a struct without it keeps its size; members keep name, type, count and offset; sizes of version 1 stay
- an enum keeps its names and values; a new name has a new value (other names for an old value: in flags neither)
- handles, callbacks and constants stay; new ones may come

Another `abi_version` is another ABI: the new one must be larger, and no rule applies.
This sees what abidiff cannot: enums (parameters are int32_t), names, nullability, `since`.
"""
import copy
import json
import sys


def named(items):
    return {item["name"]: item for item in items}


def parameter_faults(place, old, new):
    if len(old) != len(new):
        yield f"{place}: {len(new)} parameters, had {len(old)}"
    for i, (a, b) in enumerate(zip(old, new)):
        for key in sorted(set(a) | set(b)):
            if a.get(key) != b.get(key) and not (key == "nullable" and b.get(key) is True):
                yield f"{place}: parameter {i} ({a['name']}): {key} is {b.get(key)}, was {a.get(key)}"


def status_changes(old, new):
    """(function, statuses added, statuses gone) where a list of statuses is another one; a first list is none."""
    for name, a in old.items():
        if "statuses" in a and "statuses" in new.get(name, {}):
            before, now = set(a["statuses"]), set(new[name]["statuses"])
            if before != now:
                yield name, sorted(now - before), sorted(before - now)


def status_faults(old, new, version):
    for name, a in old.items():
        if "statuses" in a and name in new and "statuses" not in new[name]:
            yield f"{name}: its list of statuses is gone"
    if version.split(".")[0] != "0":
        for name, added, _ in status_changes(old, new):
            if added:
                yield f"{name}: gives new statuses: {', '.join(added)}"


def function_faults(old, new, version):
    for name, a in old.items():
        b = new.get(name)
        if b is None:
            yield f"{name}: function is gone"
            continue
        for key in ("returns", "since"):
            if a[key] != b[key]:
                yield f"{name}: {key} is {b[key]}, was {a[key]}"
        if a.get("threads") == "any" and b.get("threads") != "any":
            yield f"{name}: was callable from any thread"
        yield from parameter_faults(name, a["params"], b["params"])
    for name in new.keys() - old.keys():
        if new[name]["since"] != version:
            yield f"{name}: new, but since {new[name]['since']} and not {version}"


def struct_faults(old, new):
    for name, a in old.items():
        b = new.get(name)
        if b is None:
            yield f"{name}: struct is gone"
            continue
        for key in ("v1_size", "align"):
            if a[key] != b[key]:
                yield f"{name}: {key} is {b[key]}, was {a[key]}"
        sized = a["members"][0]["name"] == "struct_size"
        if b["size"] < a["size"] or (b["size"] != a["size"] and not sized):
            yield f"{name}: size is {b['size']}, was {a['size']}"
        for i, m in enumerate(a["members"]):
            n = b["members"][i] if i < len(b["members"]) else None
            if n is None or {k: v for k, v in n.items() if k != "nullable"} != {k: v for k, v in m.items() if k != "nullable"}:
                yield f"{name}.{m['name']}: was {m}, is {n}"
            elif m.get("nullable") and not n.get("nullable"):
                yield f"{name}.{m['name']}: was nullable"
        for m in b["members"][len(a["members"]):]:
            if m["offset"] < a["size"]:
                yield f"{name}.{m['name']}: new member at {m['offset']}, before the old end {a['size']}"


def enum_faults(old, new):
    for name, a in old.items():
        b = new.get(name)
        if b is None or b["base"] != a["base"]:
            yield f"{name}: enum is gone or has another base"
            continue
        for key, value in a["values"].items():
            if b["values"].get(key) != value:
                yield f"{name}: {key} is {b['values'].get(key)}, was {value}"
        values = list(b["values"].values())
        for key in b["values"].keys() - a["values"].keys():
            if values.count(b["values"][key]) > 1:
                yield f"{name}: {key} takes the value {b['values'][key]} of another name"


def faults(old, new):
    if new["abi_version"] != old["abi_version"]:
        if new["abi_version"] < old["abi_version"]:
            yield f"abi_version went back from {old['abi_version']} to {new['abi_version']}"
        return
    if new["pointer_size"] != old["pointer_size"]:
        yield "pointer_size changed"
    for name, value in old.get("constants", {}).items():
        if new.get("constants", {}).get(name) != value:
            yield f"{name}: constant is {new.get('constants', {}).get(name)}, was {value}"
    for name in set(old["handles"]) - set(new["handles"]):
        yield f"{name}: handle is gone"
    callbacks = named(new["callbacks"])
    for callback in old["callbacks"]:
        if callbacks.get(callback["name"]) != callback:
            yield f"{callback['name']}: callback changed or is gone"
    yield from function_faults(named(old["functions"]), named(new["functions"]), new["version"])
    yield from status_faults(named(old["functions"]), named(new["functions"]), new["version"])
    yield from struct_faults(named(old["structs"]), named(new["structs"]))
    yield from enum_faults(named(old["enums"]), named(new["enums"]))


def self_test(old):
    """Changes of every kind to a real description, with the verdict they must get."""
    def change(edit):
        new = copy.deepcopy(old)
        edit(new)
        return list(faults(old, new))

    def function(new, name):
        return named(new["functions"])[name]

    def struct(new):
        return named(new["structs"])["moe_tensor"]

    def appended(new, gap=0):
        s = struct(new)
        s["members"].append({"name": "added", "type": "u64", "offset": s["size"] - gap})
        s["size"] += 8 - gap

    def unsized(new):
        struct(new)["members"][0]["name"] = old_struct["members"][0]["name"] = "first"
        appended(new)

    old_struct = struct(old)
    added = {"name": "moe_added", "returns": "void", "params": [], "threads": "any", "since": old["version"]}
    status = named(old["enums"])["moe_status"]["values"]
    good = {
        "nothing": lambda n: None,
        "function added": lambda n: n["functions"].insert(3, added),
        "member appended": appended,
        "enum value added": lambda n: named(n["enums"])["moe_status"]["values"].update(MOE_ERR_ADDED=77),
        "parameter becomes nullable": lambda n: function(n, "moe_apply")["params"][1].update(nullable=True),
        "status added before version 1": lambda n: function(n, "moe_apply")["statuses"].append("MOE_ERR_PEER"),
        "status removed": lambda n: function(n, "moe_apply")["statuses"].pop(),
        "another ABI number": lambda n: (n.update(abi_version=old["abi_version"] + 1), n["functions"].pop()),
    }
    bad = {
        "function removed": lambda n: n["functions"].pop(5),
        "return type": lambda n: function(n, "moe_apply").update(returns="i32"),
        "parameter removed": lambda n: function(n, "moe_apply")["params"].pop(),
        "parameters swapped": lambda n: function(n, "moe_apply")["params"].reverse(),
        "parameter renamed": lambda n: function(n, "moe_apply")["params"][0].update(name="other"),
        "parameter not nullable any more": lambda n: function(n, "moe_apply")["params"][-1].update(nullable=False),
        "function for one thread only": lambda n: function(n, "moe_apply").update(threads="excl"),
        "since changed": lambda n: function(n, "moe_apply").update(since="9.9.9"),
        "new function of an old release": lambda n: n["functions"].append(dict(added, since="0.0.1")),
        "list of statuses removed": lambda n: function(n, "moe_apply").pop("statuses"),
        "status added after version 1": lambda n: (n.update(version="1.2.0"),
                                                   function(n, "moe_apply")["statuses"].append("MOE_ERR_PEER")),
        "struct removed": lambda n: n["structs"].pop(0),
        "member removed": lambda n: struct(n)["members"].pop(),
        "member inserted": lambda n: struct(n)["members"].insert(1, {"name": "added", "type": "u32", "offset": 4}),
        "member type": lambda n: struct(n)["members"][1].update(type="u64"),
        "member offset": lambda n: struct(n)["members"][2].update(offset=1),
        "member in the padding": lambda n: appended(n, 4),
        "struct shrinks": lambda n: struct(n).update(size=struct(n)["size"] - 8),
        "alignment": lambda n: struct(n).update(align=16),
        "first size": lambda n: struct(n).update(v1_size=struct(n)["v1_size"] + 8),
        "enum value renumbered": lambda n: named(n["enums"])["moe_status"]["values"].update(MOE_ERR_SHAPE=50),
        "enum value removed": lambda n: named(n["enums"])["moe_status"]["values"].popitem(),
        "enum value taken": lambda n: named(n["enums"])["moe_status"]["values"].update(MOE_ERR_ADDED=status["MOE_ERR_SHAPE"]),
        "enum base": lambda n: named(n["enums"])["moe_status"].update(base="u64"),
        "handle removed": lambda n: n["handles"].pop(),
        "callback changed": lambda n: n["callbacks"][0].update(returns="size"),
        "constant changed": lambda n: n["constants"].update(MOE_MAX_DIMS=8),
        "ABI number goes back": lambda n: n.update(abi_version=old["abi_version"] - 1),
        "growth without struct_size": unsized,  # last: it renames the member of `old` too
    }
    wrong = [f"{what}: {found}" for what, edit in good.items() if (found := change(edit))]
    wrong += [f"{what}: accepted" for what, edit in bad.items() if not change(edit)]
    print(f"ABI rules self-test: {len(good)} allowed and {len(bad)} forbidden changes, {len(wrong)} wrong verdicts")
    return wrong


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def main(args):
    if args[0] == "--self-test":
        found = self_test(load(args[1]))
    else:
        old, new = load(args[0]), load(args[1])
        found = list(faults(old, new))
        for name, added, gone in status_changes(named(old["functions"]), named(new["functions"])):
            print(f"{name}: statuses added: {', '.join(added) or 'none'}; gone: {', '.join(gone) or 'none'}")
        print(f"ABI rules: {len(old['functions'])} functions then, {len(new['functions'])} now, {len(found)} broken rules")
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
