#!/usr/bin/env python3
"""moe.h alone, included twice, in every language it promises, with every compiler given, without a warning; two C files
that include it linked into one program; moe.hpp in the same way, with and without exceptions, and no function of moe.h
that it lacks.

    tests/gates/header_matrix.py INCLUDE_DIR CC:CXX [CC:CXX ...]
"""
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

C = ("c99", "c11", "c17")
CXX = ("c++11", "c++14", "c++17", "c++20")
WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror", "-Wshadow", "-Wundef")
HPP = ("c++17", "c++20", "c++2b")
HPP_WARNINGS = ("-Wconversion", "-Wnon-virtual-dtor", "-Wold-style-cast")
STRICT_C = ("-Wstrict-prototypes", "-Wmissing-prototypes")
SOURCE = "#include <moe/moe.h>\n#include <moe/moe.h>\n"
FIRST = SOURCE + "moe_status other(void);\nint main(void) { return other() == MOE_OK ? 0 : 1; }\n"
SECOND = SOURCE + "moe_status other(void);\nmoe_status other(void) { return MOE_OK; }\n"
HPP_SOURCE = "#include <moe/moe.hpp>\n#include <moe/moe.hpp>\n"


def not_wrapped(include):
    """Functions of moe.h that no header of moe.hpp calls."""
    def code(path):
        return re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(encoding="utf-8"), flags=re.S)
    folder = pathlib.Path(include, "moe")
    declared = re.findall(r"MOE_CALL (moe_\w+)\(", code(folder / "moe.h"))
    wrappers = "".join(code(path) for path in sorted(folder.glob("cpp/*.hpp")))
    return [name for name in declared if not re.search(rf"\b{name}\b", wrappers)], len(declared)


def main(include, pairs):
    faults, count = [], 0

    def check(what, command):
        nonlocal count
        count += 1
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode or run.stderr:
            faults.append(f"{what}: {run.stderr.strip()[:600]}")

    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name, text in (("alone.c", SOURCE), ("alone.cpp", SOURCE), ("first.c", FIRST), ("second.c", SECOND),
                           ("alone.hpp.cpp", HPP_SOURCE)):
            paths[name] = os.path.join(folder, name)
            with open(paths[name], "w", encoding="utf-8") as file:
                file.write(text)
        for cc, cxx in (pair.split(":") for pair in pairs):
            for standard in C:
                check(f"{cc} {standard}", [cc, f"-std={standard}", *WARNINGS, *STRICT_C, "-I", include, "-fsyntax-only", paths["alone.c"]])
            for standard in CXX:
                check(f"{cxx} {standard}", [cxx, f"-std={standard}", *WARNINGS, "-I", include, "-fsyntax-only", paths["alone.cpp"]])
            for standard, more in itertools.product(HPP, ((), ("-fno-exceptions", "-fno-rtti"))):
                check(f"{cxx} {standard} moe.hpp {' '.join(more)}", [cxx, f"-std={standard}", *WARNINGS, *HPP_WARNINGS, *more,
                                                                    "-I", include, "-fsyntax-only", paths["alone.hpp.cpp"]])
            program = os.path.join(folder, "program")
            check(f"{cc} two files", [cc, "-std=c99", *WARNINGS, "-I", include, paths["first.c"], paths["second.c"], "-o", program])
            if os.path.exists(program):
                check(f"{cc} run", [program])
    missing, functions = not_wrapped(include)
    faults.extend(f"moe.hpp: nothing calls {name}" for name in missing)
    print(f"header matrix: moe.hpp has {functions - len(missing)} of {functions} functions")
    print(f"header matrix: {count} runs ({' '.join(itertools.chain(C, CXX))}; {' '.join(pairs)}), {len(faults)} faults")
    print("\n".join(faults))
    return 1 if faults or not pairs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
