#!/usr/bin/env python3
"""Derives the machine-readable description of the C interface from moe.h.

The header is read by Clang (its AST as JSON), so nothing about a type is written twice; what C cannot
say (which pointers may be NULL) is in the tables below, or in comments: [any] and [excl], and the statuses a function
may give ("Statuses: common, IO."; the top of moe.h says what the common ones are). Sizes and offsets are those of LP64. `since`
and `v1_size` are kept from an earlier description, new items get the header's version.

  abi_from_header.py HEADER [OLD.json] > NEW.json
"""
import json
import os
import re
import shutil
import subprocess
import sys

# Parameters that may be NULL beside the general rules in nullable(): "function.parameter".
NULLABLE = {
    "moe_error_create.message",
    "moe_has_feature.name",
    "moe_dtype_from_name.name",
    "moe_tensor_nbytes.shape",
    "moe_control_create.progress",
    "moe_control_progress.done",
    "moe_control_progress.total",
    "moe_context_create.callbacks",
    "moe_platform_create.json",
    "moe_platform_has.feature",
    "moe_select_backend.platform",
    "moe_weights_set_expert.shard",
    "moe_weights_load_safetensors.module",
    "moe_convert_weights.options",
    "moe_layer_create.options",
    "moe_checkpoint_config.patch_json",
    "moe_checkpoint_packed.options",
    "moe_checkpoint_layer.options",
    "moe_checkpoint_convert.options",
    "moe_dist_attach.layer",
    "moe_apply_flat.router_logits",
    "moe_apply_flat.topk_ids",
    "moe_apply_flat.topk_weights",
}
# Handles that must not be NULL, against the general rules.
REQUIRED = {"moe_control_state.control"}
# Flags in a member of 32 bits; all others have 64.
SHORT_FLAGS = {"moe_layer_info_flags"}
# Members that must not be NULL in a struct that is handed over.
REQUIRED_MEMBERS = {
    "moe_parallel_ops.parallel_for",
    "moe_allocator_ops.allocate",
    "moe_allocator_ops.deallocate",
    "moe_weight_source_ops.get",
    "moe_comm_ops.alltoallv_start",
    "moe_comm_ops.test",
    "moe_apply_args.hidden",
    "moe_apply_args.out",
    "moe_route_args.router_logits",
    "moe_route_args.out_topk_ids",
    "moe_route_args.out_topk_weights",
}
# Structs of the caller: their members are not described.
OPAQUE = {"moe_comm_op"}
# Returns a moe_status that is not the result of the call.
NOT_FALLIBLE = {"moe_error_status"}
SCALARS = {"void": "void", "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64",
           "size_t": "size", "float": "f32", "double": "f64"}
SIZES = {"i32": 4, "u32": 4, "i64": 8, "u64": 8, "size": 8, "f32": 4, "f64": 8}  # others are pointers: 8
POINTER = 8


def ast(header):
    clang = next((c for c in ("clang-14", "clang", "clang-15", "clang-16", "clang-18") if shutil.which(c)), None)
    if clang is None:
        sys.exit("abi_from_header.py: no clang found")
    command = [clang, "-x", "c", "-std=c11", "-Xclang", "-ast-dump=json", "-fsyntax-only", header]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def comment_of(node):
    """The text of the /** comment that belongs to a declaration."""
    def walk(n):
        if n.get("kind") == "TextComment":
            yield n["text"]
        for child in n.get("inner", []):
            yield from walk(child)
    for child in node.get("inner", []):
        if child.get("kind") == "FullComment":
            return " ".join("".join(walk(child)).split())
    return ""


class Header:
    def __init__(self, path, old):
        self.text = open(path, encoding="utf-8").read()
        self.old = {kind: {x["name"]: x for x in old.get(kind, [])} for kind in ("functions", "structs")}
        self.handles, self.structs, self.enums, self.callbacks = set(), {}, {}, {}
        self.functions, self.typed_enums = [], []
        self.macros = dict(re.findall(r"^#define (MOE_[A-Z_]+) +(\S+)$", self.text, re.M))
        self.version = ".".join(self.macros["MOE_VERSION_" + p] for p in ("MAJOR", "MINOR", "PATCH"))
        nodes = [n for n in ast(path)["inner"] if n.get("name", "").startswith("moe_") or n["kind"] == "EnumDecl"]
        for n in nodes:
            getattr(self, "take_" + n["kind"], lambda _: None)(n)
        self.handles -= set(self.structs)

    # --- types --------------------------------------------------------------------------------
    def word(self, c_type):
        """C type -> (type word, const)."""
        t = c_type.replace(" *", "*").strip()
        if t in self.callbacks:
            return "fn:" + t, False
        if not t.endswith("*"):
            return ("i32:" + t, False) if t in self.typed_enums else (SCALARS[t], False)
        const = t.startswith("const ")
        base = t[6:] if const else t
        base = base[:-1].strip()
        if base.endswith("*"):  # pointer to a pointer is always an output
            return "out:" + self.word(("const " if const else "") + base)[0], False
        if base == "char":
            return "cstr", const
        if base in self.structs:
            return "ptr:" + base, const
        if base in self.handles:
            return "handle:" + base, const
        if const or base == "void" or base in OPAQUE:
            return "ptr", const
        return "out:" + self.word(base)[0], False

    def split(self, qual_type):
        """'moe_status (void *, size_t)' -> its parameter types."""
        inside = qual_type[qual_type.index("(") + 1:-1] if "(*)" not in qual_type else qual_type.split("(*)(")[1][:-1]
        return [] if inside in ("void", "") else [p.strip() for p in inside.split(",")]

    # --- declarations -------------------------------------------------------------------------
    def take_TypedefDecl(self, n):
        t = n["type"]["qualType"]
        if t == "int32_t":
            self.typed_enums.append(n["name"])
        elif "(*)" in t:
            self.callback(n["name"], t)

    def callback(self, name, t):
        self.callbacks[name] = {"name": name, "returns": self.word(t.split("(*)")[0].strip())[0], "params": []}
        kinds = [self.word(p)[0] for p in self.split(t)]
        for i, kind in enumerate(kinds):  # text with a length is not NUL-terminated
            text = kind == "cstr" and i + 1 < len(kinds) and kinds[i + 1] == "size"
            self.callbacks[name]["params"].append("ptr" if text else kind)

    def take_EnumDecl(self, n):
        values = {}
        for c in n.get("inner", []):
            if c.get("kind") == "EnumConstantDecl":
                value = next((x["value"] for x in walk_values(c)), None)
                values[c["name"]] = int(value) if value is not None else max(values.values(), default=-1) + 1
        if not any(v.startswith("MOE_") for v in values):
            return
        typed = self.typed_enums[-1] if self.typed_enums and self.typed_enums[-1] not in self.enums else None
        name = typed or next(iter(values)).rsplit("_", 1)[0].lower()
        if typed is None:  # flags of a function or struct: moe_select_flags, moe_load_flags, ...
            name = "_".join(next(iter(values)).lower().split("_")[:2]) + "_flags"
            if name in self.enums:  # of another struct, which its comment names: moe_layer_info_flags
                name = comment_of(n).replace("::", "_")
        self.enums[name] = {"name": name, "base": "i32" if typed else "u32" if name in SHORT_FLAGS else "u64", "values": values}

    def take_RecordDecl(self, n):
        fields = [c for c in n.get("inner", []) if c["kind"] == "FieldDecl"]
        if not fields:
            if n["name"] + "_destroy(" in self.text:  # else a transport's own: a plain pointer
                self.handles.add(n["name"])
            return
        self.structs[n["name"]] = None  # known while its members are read
        members, offset = [], 0
        lengths = {f["name"] for f in fields if f["name"].endswith("_len")}
        for f in fields:
            t, count = f["type"]["qualType"], 1
            array = re.fullmatch(r"(\w+) ?\[(\d+)\]", t)
            if array:
                t, count = array.group(1), int(array.group(2))
            if "(*)" in t:
                self.callback(n["name"] + "." + f["name"], t)
                kind, const = "fn:" + n["name"] + "." + f["name"], False
            else:
                kind, const = self.word(t)
            if kind == "cstr" and f["name"].replace("_json", "_len") in lengths:
                kind = "ptr"  # with a length: need not end with NUL
            size = SIZES.get(kind.split(":")[0], POINTER)
            offset = (offset + size - 1) // size * size
            m = {"name": f["name"], "type": kind, "offset": offset}
            if array:
                m["count"] = count
            if size == POINTER and kind.split(":")[0] not in SIZES:
                m["const"] = const
                m["nullable"] = n["name"] + "." + f["name"] not in REQUIRED_MEMBERS
            members.append(m)
            offset += size * count
        size = (offset + 7) // 8 * 8
        v1 = self.old["structs"].get(n["name"], {}).get("v1_size", size)
        self.structs[n["name"]] = {"name": n["name"], "size": size, "v1_size": v1, "align": 8, "members": members}

    def nullable(self, function, parameter, kind, returns):
        if function + "." + parameter in REQUIRED:
            return False
        if function + "." + parameter in NULLABLE or parameter in ("err", "options_json", "user"):
            return True
        if kind == "handle:moe_context":
            return not function.startswith("moe_context_") or function == "moe_context_destroy"
        if kind == "handle:moe_control" or kind == "fn:moe_release_fn":
            return True
        return kind.startswith("handle:") and returns != "i32:moe_status"  # accessors and destroys

    def statuses(self, function, params, comment):
        """All statuses of a fallible function, in the order of the enum."""
        listed = re.findall(r"\bStatuses: ([\w, ]+)\.", comment)
        if len(listed) != 1:
            sys.exit(f"{function}: its comment has {len(listed)} lists \"Statuses: common, ...\", expected one")
        words = listed[0].split(", ")
        if words[0] != "common" or len(set(words)) != len(words):
            sys.exit(f"{function}: its statuses do not begin with \"common\", or name one twice: {listed[0]}")
        names = {"MOE_OK", "MOE_ERR_OUT_OF_MEMORY", "MOE_ERR_INTERNAL"}
        if any(p["name"] == "err" for p in params):
            names.add("MOE_ERR_INVALID_ARGUMENT")
        if any(p["type"].startswith("handle:") for p in params):
            names.add("MOE_ERR_INVALID_HANDLE")
        known = self.enums["moe_status"]["values"]
        for name in ("MOE_ERR_" + w for w in words[1:]):
            if name not in known or name in names:
                sys.exit(f"{function}: {name} is no status, or one of the common ones")
            names.add(name)
        return sorted(names, key=known.get)

    def take_FunctionDecl(self, n):
        if n["name"] in (f["name"] for f in self.functions):
            return
        returns = self.word(n["type"]["qualType"].split("(")[0].strip())[0]
        declared = [c for c in n.get("inner", []) if c["kind"] == "ParmVarDecl"]
        params = []
        for i, p in enumerate(declared):
            kind, const = self.word(p["type"]["qualType"])
            item = {"name": p["name"], "type": kind}
            following = declared[i + 1] if i + 1 < len(declared) else None
            if following and following["type"]["qualType"] == "size_t" and kind in ("cstr", "ptr") and const:
                item["type"], item["length"] = "ptr", following["name"]
            if kind.split(":")[0] not in SIZES:
                item["const"] = const
                item["nullable"] = self.nullable(n["name"], p["name"], kind, returns)
            params.append(item)
        label = re.search(r"\[(any|excl)\b", comment_of(n))
        since = self.old["functions"].get(n["name"], {}).get("since", self.version)
        threads = label.group(1) if label else "excl" if n["name"].endswith("_destroy") else None  # rule 10
        if threads is None:
            sys.exit(f"{n['name']}: its comment says neither [any] nor [excl]")
        function = {"name": n["name"], "returns": returns, "params": params, "threads": threads, "since": since}
        if returns == "i32:moe_status" and n["name"] not in NOT_FALLIBLE:
            function["statuses"] = self.statuses(n["name"], params, comment_of(n))
        self.functions.append(function)

    def description(self):
        return {"abi_version": int(self.macros["MOE_ABI_VERSION"]), "version": self.version, "pointer_size": POINTER,
                "constants": {"MOE_MAX_DIMS": int(self.macros["MOE_MAX_DIMS"]), "MOE_NUL_TERMINATED": -1},
                "handles": sorted(self.handles), "functions": self.functions, "structs": list(self.structs.values()),
                "enums": list(self.enums.values()), "callbacks": list(self.callbacks.values())}


def walk_values(n):
    if "value" in n and n.get("kind") in ("ConstantExpr", "IntegerLiteral"):
        yield n
    for c in n.get("inner", []):
        yield from walk_values(c)


def write(description):
    """One item per line: short, and a change is one line in a review."""
    out = []
    for key, value in description.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n".join("  " + json.dumps(v) for v in value)
            out.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        else:
            out.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(out) + "\n}\n"


def main():
    old = {}
    if len(sys.argv) > 2 and os.path.exists(sys.argv[2]):
        old = json.load(open(sys.argv[2], encoding="utf-8"))
    sys.stdout.write(write(Header(sys.argv[1], old).description()))


if __name__ == "__main__":
    main()
