#!/usr/bin/env python3
"""moe.h alone, included twice, in every language it promises, with every compiler given, without a warning; and
two C files that include it linked into one program.

    tests/gates/header_matrix.py INCLUDE_DIR CC:CXX [CC:CXX ...]
"""
import itertools
import os
import subprocess
import sys
import tempfile

C = ("c99", "c11", "c17")
CXX = ("c++11", "c++14", "c++17", "c++20")
WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror", "-Wshadow", "-Wundef")
STRICT_C = ("-Wstrict-prototypes", "-Wmissing-prototypes")
SOURCE = "#include <moe/moe.h>\n#include <moe/moe.h>\n"
FIRST = SOURCE + "moe_status other(void);\nint main(void) { return other() == MOE_OK ? 0 : 1; }\n"
SECOND = SOURCE + "moe_status other(void);\nmoe_status other(void) { return MOE_OK; }\n"


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
        for name, text in (("alone.c", SOURCE), ("alone.cpp", SOURCE), ("first.c", FIRST), ("second.c", SECOND)):
            paths[name] = os.path.join(folder, name)
            with open(paths[name], "w", encoding="utf-8") as file:
                file.write(text)
        for cc, cxx in (pair.split(":") for pair in pairs):
            for standard in C:
                check(f"{cc} {standard}", [cc, f"-std={standard}", *WARNINGS, *STRICT_C, "-I", include, "-fsyntax-only", paths["alone.c"]])
            for standard in CXX:
                check(f"{cxx} {standard}", [cxx, f"-std={standard}", *WARNINGS, "-I", include, "-fsyntax-only", paths["alone.cpp"]])
            program = os.path.join(folder, "program")
            check(f"{cc} two files", [cc, "-std=c99", *WARNINGS, "-I", include, paths["first.c"], paths["second.c"], "-o", program])
            if os.path.exists(program):
                check(f"{cc} run", [program])
    print(f"header matrix: {count} runs ({' '.join(itertools.chain(C, CXX))}; {' '.join(pairs)}), {len(faults)} faults")
    print("\n".join(faults))
    return 1 if faults or not pairs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
