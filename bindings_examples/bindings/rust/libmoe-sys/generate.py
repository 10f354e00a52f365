#!/usr/bin/env python3
"""Writes src/types.rs and src/functions.rs: types from moe_abi.json, documentation from the comments of moe.h.

    generate.py            writes them
    generate.py --check    writes nothing; exit code 1 and a name when a file is out of date

Needs the checkout. The two files are committed, so that building needs neither Python nor libclang nor the header.
"""
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
HEAD = "// Written by generate.py from moe_abi.json and moe.h: do not edit.\n"
SCALARS = {"i32": "i32", "u32": "u32", "i64": "i64", "u64": "u64", "f32": "f32", "f64": "f64", "size": "usize", "cstr": "*const c_char"}
MEMBERS = {  # what the header says once, above the struct
    "struct_size": "Bytes of this struct: what it was compiled with.", "reserved0": "0.",
    "user": "The first argument of the functions here.", "destroy": "Ends `user`; called once, from any thread.",
    "parallel_for": "Runs all tasks; see the struct.", "log_user": "The first argument of `log`.", "log_destroy": "Ends `log_user`.",
    "allocate": "Gives memory, or NULL.", "deallocate": "Takes memory back.", "get": "Fills a tensor; see the struct.",
    "dst_user": "The argument of `dst_release`.", "workspace_size": "Bytes at `workspace`."}
CALLBACKS = {
    "moe_parallel_ops.parallel_for": "user, count, task, task_arg.", "moe_allocator_ops.allocate": "user, size, alignment, numa_node.",
    "moe_allocator_ops.deallocate": "user, ptr, size, alignment.", "moe_weight_source_ops.get": "user, role, expert, shard, out, err.",
    "moe_weight_source_ops.put": "user, role, expert, shard, tensor.",
    "moe_comm_ops.alltoallv_start": "user, row_bytes, send, send_counts, send_displs, recv, recv_counts, recv_displs, op, err.",
    "moe_comm_ops.test": "user, op, done, err.",
    "moe_comm_ops.allgatherv_start": "user, row_bytes, send, send_count, recv, recv_counts, recv_displs, op, err.",
    "moe_comm_ops.alltoall_start": "user, row_bytes, send, recv, op, err.",
    "moe_comm_ops.agree_i64": "user, op, values, count, err.", "moe_comm_ops.barrier": "user, err.",
    "moe_comm_ops.wait_hint": "user, microseconds.", "moe_comm_ops.abort": "user, code."}

READ_ONLY = {("moe_log_fn", 3), ("moe_weight_source_ops.put", 4)} | {
    ("moe_comm_ops." + name, i) for name, all in (("alltoallv_start", (2, 3, 4, 6, 7)), ("allgatherv_start", (2, 5, 6)), ("alltoall_start", (2,)))
    for i in all}  # the pointers of callbacks that moe.h declares const


def plain(comment):
    """The words of a C comment, as Markdown that means nothing else."""
    text = re.sub(r"\n\s*\*(?!/)", "\n", comment.strip("/*")).strip()
    text = "\n".join(line.strip() for line in text.splitlines())
    return re.sub(r"([\\\[\]<>*])", r"\\\1", text)


def header_docs(header):
    """The comment above each function and type, and the one behind each member and enumerator."""
    docs = {}
    for comment, name in re.findall(r"/\*\*((?:[^*]|\*(?!/))*)\*/\s*MOE_API[^;(]*?(moe_\w+)\(", header):
        docs[name] = plain(comment)
    for comment, name in re.findall(r"/\*\*((?:[^*]|\*(?!/))*)\*/\s*typedef (?:struct )?(?:\w+ )?(?:\(MOE_CALL \*)?(moe_\w+)", header):
        docs[name] = plain(comment)
    for name, comment in re.findall(r"typedef struct (moe_\w+) \1;\s*/\*(.*?)\*/", header):
        docs[name] = plain(comment).capitalize() + "."
    for struct, body in re.findall(r"(?:struct (moe_\w+) |enum )\{(.*?)\n?\}", header, re.S):
        item = r"\(MOE_CALL \*(\w+)\)|(\w+)(?:\[\w+\])?;" if struct else r"(MOE_\w+)( )= \d+"
        last = None
        for comment, *names in re.findall(r"/\*(.*?)\*/|" + item, body, re.S):
            if not comment:
                last = (struct + "." if struct else "") + (names[0].strip() or names[1])
            elif last:
                docs[last] = (docs.get(last, "") + " " + plain(comment)).strip()
    return docs


def rust_type(word, const):
    if word.startswith("out:"):
        return "*mut " + rust_type(word[4:], False)
    if word.startswith("handle:"):
        return ("*const " if const else "*mut ") + word[7:]
    if word.startswith("ptr:"):
        return ("*const " if const else "*mut ") + word[4:]
    if word.startswith("fn:"):
        return word[3:].replace(".", "_")
    if ":" in word:
        return word.split(":")[1]
    if word == "ptr":
        return ("*const " if const else "*mut ") + "c_void"
    return SCALARS[word]


class Writer:
    def __init__(self, docs):
        self.docs, self.lines = docs, []

    def doc(self, key, otherwise=None, indent=""):
        text = self.docs.get(key) or otherwise
        if not text:
            sys.exit(f"generate.py: moe.h has no comment for {key}")
        self.lines += [f"{indent}/// {line}".rstrip() for line in text.splitlines()]

    def add(self, line):
        self.lines.append(line)


def words(name):
    """MOE_REJECT_GROUP_SIZE: "Group size.", moe_load_flags: "Load flags." """
    rest = name.split("_", 2 if name.isupper() else 1)[-1]
    return f"`{rest.lower()}`." if name.startswith("MOE_DTYPE") else rest.replace("_", " ").capitalize() + "."


def types(abi, docs):
    w = Writer(docs)
    w.add(HEAD + "use std::os::raw::{c_char, c_void};\n")
    w.add("/// The release of libmoe whose interface this is.\n" + f'pub const VERSION: &str = "{abi["version"]}";')
    w.add("/// Counts incompatible changes; the number in the library's file name.\n" + f"pub const MOE_ABI_VERSION: i32 = {abi['abi_version']};")
    for name, value in abi["constants"].items():
        w.add(f"/// `{name}` of the header.\npub const {name}: usize = {'usize::MAX' if value == -1 else value};")
    for enum in abi["enums"]:
        w.add("")
        w.doc(enum["name"], words(enum["name"]))
        w.add(f"pub type {enum['name']} = {enum['base']};")
        for name, value in enum["values"].items():
            w.doc(name, words(name))
            w.add(f"pub const {name}: {enum['name']} = {value};")
    for name in abi["handles"]:
        w.add("")
        w.doc(name)
        w.add(f"#[repr(C)]\npub struct {name} {{\n    _private: [u8; 0],\n}}")
    for callback in abi["callbacks"]:
        w.add("")
        w.doc(callback["name"], CALLBACKS.get(callback["name"]))
        args = ", ".join(rust_type(p, (callback["name"], i) in READ_ONLY) for i, p in enumerate(callback["params"]))
        returns = "" if callback["returns"] == "void" else " -> " + rust_type(callback["returns"], False)
        w.add(f"pub type {callback['name'].replace('.', '_')} = Option<unsafe extern \"C\" fn({args}){returns}>;")
    for struct in abi["structs"]:
        w.add("")
        w.doc(struct["name"], words(struct["name"]))
        w.add(f"#[repr(C)]\n#[derive(Clone, Copy)]\npub struct {struct['name']} {{")
        for m in struct["members"]:
            w.doc(f"{struct['name']}.{m['name']}", MEMBERS.get(m["name"]) or m["name"].replace("_", " ").capitalize() + ".", "    ")
            of = rust_type(m["type"], m.get("const"))
            w.add(f"    pub {m['name']}: {f'[{of}; ' + str(m['count']) + ']' if 'count' in m else of},")
        w.add("}")
    w.add("\n// A wrong size or alignment does not compile, a wrong place fails the test below.")
    w.add('#[cfg(target_pointer_width = "64")]\nconst _: () = {')
    for struct in abi["structs"]:
        w.add(f"    assert!(std::mem::size_of::<{struct['name']}>() == {struct['size']});")
        w.add(f"    assert!(std::mem::align_of::<{struct['name']}>() == {struct['align']});")
    w.add("};\n")
    w.add('#[cfg(all(test, target_pointer_width = "64"))]\n#[test]\nfn members_are_where_the_library_has_them() {')
    w.add("    macro_rules! at {\n        ($name:ident: $($member:ident $offset:literal)*) => {{\n            let value = std::mem::MaybeUninit::<$name>::zeroed();")
    w.add("            $(assert_eq!(unsafe { std::ptr::addr_of!((*value.as_ptr()).$member) } as usize - value.as_ptr() as usize, $offset);)*")
    w.add("        }};\n    }")
    for struct in abi["structs"]:
        w.add(f"    at!({struct['name']}: {' '.join(m['name'] + ' ' + str(m['offset']) for m in struct['members'])});")
    w.add("}")
    return "\n".join(w.lines) + "\n"


def functions(abi, docs):
    w = Writer(docs)
    w.add(HEAD + "use crate::types::*;\nuse std::os::raw::{c_char, c_void};\n\nfunctions! {")
    for f in abi["functions"]:
        end = "Ends the handle; NULL is accepted. \\[excl\\]" if f["name"].endswith("_destroy") else None
        w.doc(f["name"], end, "    ")
        args = ", ".join(f"{p['name']}: {rust_type(p['type'], p.get('const'))}" for p in f["params"])
        returns = {"void": "()", "cstr": "*const c_char", "ptr": "*mut c_void"}.get(f["returns"]) or rust_type(f["returns"], False)
        w.add(f"    fn {f['name']}({args}) -> {returns};")
    w.add("}\n\n/// The names of all functions, in the order of the header.\npub const FUNCTIONS: &[&str] = &[")
    w.lines += [f'    "{f["name"]}",' for f in abi["functions"]]
    w.add("];")
    return "\n".join(w.lines) + "\n"


def main():
    abi = json.loads((ROOT / "abi_check/moe_abi.json").read_text(encoding="utf-8"))
    docs = header_docs((ROOT / "include_c/moe/moe.h").read_text(encoding="utf-8"))
    stale = []
    for path, text in ((HERE / "src/types.rs", types(abi, docs)), (HERE / "src/functions.rs", functions(abi, docs))):
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in sys.argv[1:]:
            stale.append(path.name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.exit("libmoe-sys: out of date, run rust/libmoe-sys/generate.py: " + ", ".join(stale))


if __name__ == "__main__":
    main()
