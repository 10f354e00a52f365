#!/usr/bin/env python3
"""What a built libmoe.so must be: a good guest in any process.

    tests/gates/library_gate.py LIBRARY SYMBOLS --soname libmoe.so.0 [--glibc 2.28] [--objects LIST] [--readelf R] [--nm N] [--strip S]
                                [--source DIR] [--ldd]

- exports exactly the functions of SYMBOLS (abi_check/symbols.txt: name@@node a line), all of type T, besides the nodes
- needs libc (with what was its libpthread), libm and the loader only; no RPATH; the right SONAME
- RELRO and BIND_NOW, no executable stack, no text relocation, a build id
- at most 6 MB stripped, with the bytes of each room in the output; no path of the source or build folder inside
- of glibc nothing that is later than --glibc, built on Debian 12 (the headers of later ones bring later functions)
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

NEEDED = re.compile(r"lib(c|m)\.so\.6|libpthread\.so\.0|ld-linux-[a-z0-9_\-]+\.so\.\d")
LOADED = re.compile(r"linux-vdso\.so\.1|" + NEEDED.pattern)
MAX_BYTES = 6_000_000
DEBIAN_12 = (2, 36)


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def export_faults(args):
    with open(args.symbols, encoding="utf-8") as file:
        wanted = sorted(line.strip() for line in file if line.strip() and not line.startswith("#"))
    if wanted != sorted(set(wanted)) or not wanted:
        yield f"{args.symbols}: empty, or a name twice"
    found = []
    for line in run(args.nm, "-D", "--defined-only", "--format=posix", args.library).splitlines():
        name, kind = line.split()[:2]
        if kind == "A" and name.startswith("LIBMOE_"):
            continue  # the version node itself
        if kind != "T":
            yield f"{name}: exported with type {kind}, only functions (T) may be"
        found.append(name)
    for name in sorted(set(found) - set(wanted)):
        yield f"{name}: exported, not in {os.path.basename(args.symbols)}"
    for name in sorted(set(wanted) - set(found)):
        yield f"{name}: in {os.path.basename(args.symbols)}, not exported"
    for name in found:
        if not re.fullmatch(r"moe_[a-z0-9_]+@@LIBMOE_[0-9.]+", name):
            yield f"{name}: not of the form moe_name@@LIBMOE_n"


def elf_faults(args):
    dynamic = run(args.readelf, "-dW", args.library)
    for name in re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic):
        if not NEEDED.fullmatch(name):
            yield f"needs {name}"
    if f"[{args.soname}]" not in "".join(re.findall(r"\(SONAME\).*", dynamic)):
        yield f"SONAME is not {args.soname}"
    for tag in ("TEXTREL", "RPATH", "RUNPATH"):
        if f"({tag})" in dynamic:
            yield f"has {tag}"
    if not re.search(r"BIND_NOW|\bNOW\b", dynamic):
        yield "no BIND_NOW"
    segments = run(args.readelf, "-lW", args.library)
    if "GNU_RELRO" not in segments:
        yield "no RELRO segment"
    stack = re.search(r"GNU_STACK.*", segments)
    if not stack or "E" in stack[0].split()[6]:
        yield "executable stack"
    if "Build ID" not in run(args.readelf, "-nW", args.library):
        yield "no build id"


def numbers(version):
    return tuple(map(int, version.split(".")))


def glibc_faults(args):
    if numbers(os.confstr("CS_GNU_LIBC_VERSION").split()[1]) > DEBIAN_12:
        return
    for name, version in re.findall(r" (\w+)@GLIBC_([0-9.]+)", run(args.readelf, "--dyn-syms", "-W", args.library)):
        if numbers(version) > numbers(args.glibc):
            yield f"needs {name} of glibc {version}"
    for name in re.findall(r"Name: (GLIBC_\S*[A-Z]\w*)", run(args.readelf, "-VW", args.library)):
        yield f"needs {name}"  # GLIBC_ABI_...: how the file is laid out; GLIBC_PRIVATE


def size_and_path_faults(args):
    with tempfile.TemporaryDirectory() as folder:
        stripped = os.path.join(folder, "stripped.so")
        run(args.strip, "-o", stripped, args.library)
        size = os.path.getsize(stripped)
        print(f"stripped: {size} bytes")
        if size > MAX_BYTES:
            yield f"{size} bytes stripped, the limit is {MAX_BYTES}"
    with open(args.library, "rb") as file:
        content = file.read()
    for folder in args.source:
        if folder.encode() + b"/" in content:
            yield f"the text {folder}/ is inside"


def room_figures(args):
    """Code and data of the objects of each room, before the linker drops what nothing uses."""
    rooms = {}
    with open(args.objects, encoding="utf-8") as file:
        objects = [line.strip() for line in file if line.strip()]
    for line in run(args.size, "-B", *objects).splitlines()[1:]:
        text, data, bss, _, _, name = line.split(maxsplit=5)
        room = rooms.setdefault(re.search(r"libmoe_(\w+)\.dir/", name)[1], [0, 0])
        room[0] += int(text)
        room[1] += int(data) + int(bss)
    for room, (text, data) in sorted(rooms.items(), key=lambda row: -row[1][0]):
        print(f"{room:10} {text:9} bytes of code and constants {data:7} of data")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("symbols")
    parser.add_argument("--soname", required=True)
    parser.add_argument("--glibc", default="2.28", help="the oldest that the library is to run with")
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--strip", default="strip")
    parser.add_argument("--size", default="size")
    parser.add_argument("--objects", help="a file with the library's objects, one a line")
    parser.add_argument("--source", action="append", default=[])
    parser.add_argument("--ldd", action="store_true", help="the library is for this machine: ask the loader too")
    args = parser.parse_args()
    faults = [*export_faults(args), *elf_faults(args), *glibc_faults(args), *size_and_path_faults(args)]
    if args.objects:
        room_figures(args)
    if args.ldd:
        for line in run("ldd", args.library).splitlines():
            name = os.path.basename(line.split()[0])
            if not LOADED.fullmatch(name):
                faults.append(f"ldd: {line.strip()}")
    print(f"library gate: {len(faults)} faults")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
