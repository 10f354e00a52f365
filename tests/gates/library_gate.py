#!/usr/bin/env python3
"""What a built libmoe.so must be, a good guest in any process; and the program beside it.

    tests/gates/library_gate.py LIBRARY SYMBOLS --soname libmoe.so.0 [--glibc 2.28] [--objects LIST] [--readelf R] [--nm N] [--strip S]
                                [--source DIR] [--ldd]
    tests/gates/library_gate.py PROGRAM --program --needs libmoe.so.0 [the same]

- exports exactly the functions of SYMBOLS (abi_check/symbols.txt: name@@node a line), all of type T, besides the nodes
- needs libc (with what was its libpthread), libm and the loader only; no RPATH; the right SONAME
- RELRO and BIND_NOW, no executable stack, no text relocation, a build id
- at most 6.3 MB stripped, with the bytes of each room in the output; no path of the source or build folder inside
- of glibc nothing that is later than --glibc, built on Debian 12 (the headers of later ones bring later functions)

The program is held to the same, but: it exports nothing, needs the library and what was libdl as well, is of 2.5 MB at most,
can be loaded anywhere (PIE), finds the library by a RUNPATH, and binds its functions when they are called (it is to name the
one that an older library lacks).
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

NEEDED = re.compile(r"lib(c|m)\.so\.6|libpthread\.so\.0|ld-linux-[a-z0-9_\-]+\.so\.\d")
NEEDED_BY_PROGRAM = re.compile(NEEDED.pattern + r"|libdl\.so\.2")
LOADED = re.compile(r"linux-vdso\.so\.1|" + NEEDED_BY_PROGRAM.pattern)
MAX_BYTES = 6_300_000
MAX_PROGRAM_BYTES = 2_500_000
# Variables of the C library that a program has a copy of; the loader has them exported.
COPIES = {"environ", "__environ", "_environ", "stdin", "stdout", "stderr", "_IO_stdin_used"}
DEBIAN_12 = (2, 36)


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def export_faults(args):
    if args.program:
        for line in run(args.nm, "-D", "--defined-only", "--format=posix", args.library).splitlines():
            if line.split()[0].split("@")[0] not in COPIES:
                yield f"{line.split()[0]}: exported by the program"
        return
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
        if not (NEEDED_BY_PROGRAM if args.program else NEEDED).fullmatch(name) and name not in args.needs:
            yield f"needs {name}"
    for name in args.needs:
        if f"[{name}]" not in dynamic:
            yield f"does not need {name}"
    for tag in ("TEXTREL", "RPATH") if args.program else ("TEXTREL", "RPATH", "RUNPATH"):
        if f"({tag})" in dynamic:
            yield f"has {tag}"
    now = re.search(r"BIND_NOW|\bNOW\b", dynamic)
    if not now:
        yield "no BIND_NOW"
    if args.program:
        folders = "".join(re.findall(r"\(RUNPATH\).*\[(.*)\]", dynamic))
        if not re.fullmatch(r"\$ORIGIN(/[^:]*)?:*", folders):  # CMake makes room for the path of an installation with colons
            yield f"RUNPATH is '{folders}'"
        if not re.search(r"Type: +DYN", run(args.readelf, "-hW", args.library)):
            yield "no PIE"
        if "__stack_chk_fail" not in run(args.readelf, "--dyn-syms", "-W", args.library):
            yield "no stack protector"
    else:
        if f"[{args.soname}]" not in "".join(re.findall(r"\(SONAME\).*", dynamic)):
            yield f"SONAME is not {args.soname}"
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
        limit = MAX_PROGRAM_BYTES if args.program else MAX_BYTES
        if size > limit:
            yield f"{size} bytes stripped, the limit is {limit}"
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
    parser.add_argument("symbols", nargs="?")
    parser.add_argument("--program", action="store_true")
    parser.add_argument("--needs", action="append", default=[], help="a library that the program needs")
    parser.add_argument("--soname")
    parser.add_argument("--glibc", default="2.28", help="the oldest that the library is to run with")
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--strip", default="strip")
    parser.add_argument("--size", default="size")
    parser.add_argument("--objects", help="a file with the library's objects, one a line")
    parser.add_argument("--source", action="append", default=[])
    parser.add_argument("--ldd", action="store_true", help="the library is for this machine: ask the loader too")
    args = parser.parse_args()
    if not args.program and not (args.symbols and args.soname):
        parser.error("of a library, SYMBOLS and --soname are needed")
    faults = [*export_faults(args), *elf_faults(args), *glibc_faults(args), *size_and_path_faults(args)]
    if args.objects:
        room_figures(args)
    if args.ldd:
        for line in run("ldd", args.library).splitlines():
            name = os.path.basename(line.split()[0])
            if not LOADED.fullmatch(name) and name not in args.needs:
                faults.append(f"ldd: {line.strip()}")
    print(f"{'program' if args.program else 'library'} gate: {len(faults)} faults")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
