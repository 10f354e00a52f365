#!/usr/bin/env python3
"""Fails on an #include in impl/ that goes against the levels of the rooms, or that brings a wrapped package, an ISA
header, a header of the system or a banned one of C++ into a file that must not have it; on a source that does not reach
float_rules.h; and on code outside the namespace of its room, or a room that uses the names of others (base/rooms.h)
than it may include. The command line (impl/tool) is no room but a program that uses the library: it sees moe/moe.h, the
packages that it is made with, C++ and POSIX, and no room. So is libmoe_mpi (impl/mpi), which sees moe/moe_mpi.h and mpi.h.

    tests/include_levels.py [ROOT]        check ROOT/impl
    tests/include_levels.py --self-test   prove that every rule fails on a tree that breaks it
"""
import pathlib
import re
import sys
import tempfile

# room -> the rooms it may include besides itself. Level 0 first; rooms of level 3 never include each other.
ALLOWED = {
    "base": set(),
    "scheme": {"base"},
    "config": {"base", "scheme"},
    "vllm": {"base", "scheme", "config"},
    "hf": {"base", "scheme", "config"},
    "oracle": {"base", "scheme", "config", "vllm", "layouts", "kernels"},
    "layouts": {"base", "scheme"},
    "convert": {"base", "scheme", "layouts"},
    "kernels": {"base", "scheme", "layouts"},
    "io": {"base", "scheme", "layouts"},
    "weights": {"base", "scheme", "config", "io"},
    "run": {"base", "scheme", "config", "layouts", "io", "kernels"},
    "dist": {"base", "scheme", "config", "layouts", "io", "kernels", "run"},
    "bind": {"base", "scheme", "config", "oracle", "layouts", "convert", "kernels", "io", "weights", "run"},
    "model": {"base", "scheme", "config", "hf", "oracle", "layouts", "convert", "kernels", "io", "weights", "run", "bind"},
    "api": {"base", "scheme", "config", "vllm", "hf", "oracle", "layouts", "convert", "kernels", "io", "weights", "run", "bind",
            "dist", "model"},
}

# headers -> the files that may name them, as patterns under impl/
RESERVED = [
    (r"nlohmann/.*", r"base/json\.cpp"),
    (r"(spdlog|fmt)/.*", r"base/log\.cpp"),
    (r"xxhash\.h", r"io/[a-z0-9_]+\.(cpp|h)"),
    (r"xmmintrin\.h", r"kernels/.*|base/float_state\.h"),  # MXCSR is baseline; code is not
    (r"(?!xmm).*intrin\.h|arm_(neon|sve|acle|sme)\.h", r"kernels/.*"),
    (r"cpuid\.h", r"(base/platform|kernels/)[a-z0-9_/]*\.(cpp|h)"),
    (r"moe/.*|moe_(abi_json|build_flags|commit)\.inc", r"api/.*"),
    # iostream has a static initialiser and the terminal; regex backtracks; locale is process state
    (r"iostream|regex|c?locale|locale\.h", r"(?!)"),
]
# Any other header in angle brackets that has a suffix or a folder is none of C++ but of POSIX, of Linux or of the C
# library: what these have is called in this one folder (impl/README.md).
SYSTEM, SYSTEM_CPP = "base/os/", {"csignal"}
# Folders that are no rooms but users of the library; what of others than the system each sees.
TOOL = "tool"
USERS = {TOOL: r"moe/moe\.h|(CLI|fmt|nlohmann)/.*", "mpi": r"moe/moe_mpi\.h|mpi\.h"}
NOT_OF_USERS = r"(moe|CLI/|fmt/|nlohmann/|spdlog/).*|mpi\.h|xxhash\.h|.*intrin\.h|arm_(neon|sve|acle|sme)\.h|cpuid\.h|iostream|regex"
ONE_FILE = [r"xxhash\.h"]  # in one file, wherever that is
EVERY_SOURCE = "base/float_rules.h"

ROOMS = "base/rooms.h"
SHARED = {"base", "scheme", "layouts"}  # what they say is everybody's, and stands in moe itself

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.M)


def reached(impl, path):
    """The headers of impl/ that a source includes, itself or by others."""
    found, left = set(), [path]
    while left:
        for header, _ in INCLUDE.findall(left.pop().read_text(encoding="utf-8")):
            if header not in found and (impl / header).is_file():
                found.add(header)
                left.append(impl / header)
    return found


def user_faults(impl, user, name, text):
    """One line per include of a file of a user of the library that it must not have."""
    for match in INCLUDE.finditer(text):
        place = f"impl/{name}:{text.count(chr(10), 0, match.start()) + 1}"
        header = match[1] or match[2]
        if match[1] and not (header.startswith(user + "/") and (impl / header).is_file()):
            yield f'{place}: {user} sees the public header and no room ("{header}")'
        elif match[2] and re.fullmatch(NOT_OF_USERS, header) and not re.fullmatch(USERS[user], header):
            yield f"{place}: <{header}> does not belong here"


def namespace_faults(root):
    """One line per file that opens the namespace of another room, and per room that uses more or fewer names."""
    impl = pathlib.Path(root) / "impl"
    for path in sorted(p for p in impl.rglob("*") if p.suffix in (".cpp", ".h", ".inl")):
        name = path.relative_to(impl).as_posix()
        room = name.split("/")[0]
        for match in re.finditer(r"^namespace moe\b(?:::(\w+))?", path.read_text(encoding="utf-8"), re.M):
            right = match[1] not in ALLOWED if room in SHARED else match[1] == room and room != TOOL
            if not right:
                yield f"impl/{name}: opens '{match[0]}', expected that of its room"
    text = (impl / ROOMS).read_text(encoding="utf-8") if (impl / ROOMS).is_file() else ""
    uses = {m[1]: set(re.findall(r"using namespace (\w+);", m[2]))
            for m in re.finditer(r"^namespace (\w+) \{([^{}]*)\}", text, re.M) if m[1] != "moe"}
    for room in sorted(set(ALLOWED) - SHARED):
        if uses.get(room) != ALLOWED[room] - SHARED:
            yield f"impl/{ROOMS}: {room} uses the names of {sorted(uses.get(room, []))}, may include {sorted(ALLOWED[room])}"


def faults(root):
    """One line per bad include of root/impl; a second value counts the files seen."""
    found, users, count = [], {}, 0
    impl = pathlib.Path(root) / "impl"
    for path in sorted(p for p in impl.rglob("*") if p.suffix in (".cpp", ".h", ".inl", ".inc", ".c")):
        count += 1
        name = path.relative_to(impl).as_posix()
        room = name.split("/")[0]
        if room in USERS:
            found += user_faults(impl, room, name, path.read_text(encoding="utf-8"))
            continue
        if room not in ALLOWED:
            found.append(f"impl/{name}: '{room}' is not a room")
            continue
        text = path.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            place = f"impl/{name}:{text.count(chr(10), 0, match.start()) + 1}"
            header = match[1] or match[2]
            reserved = [allowed for pattern, allowed in RESERVED if re.fullmatch(pattern, header)]
            if match[2] in SYSTEM_CPP or (match[2] and not reserved and re.search(r"[./]", header)):
                reserved = [SYSTEM + ".*"]
            for allowed in reserved:
                if not re.fullmatch(allowed, name):
                    found.append(f"{place}: <{header}> does not belong here")
            for pattern in ONE_FILE:
                if re.fullmatch(pattern, header):
                    users.setdefault(header, set()).add(name)
            if match[1] is None or reserved:
                continue
            target = header.split("/")[0]
            if target not in ALLOWED or not (impl / header).is_file():
                found.append(f'{place}: "{header}" is not a path from impl/')
            elif target != room and target not in ALLOWED[room]:
                found.append(f"{place}: {room} must not include {target} (\"{header}\")")
        if path.suffix == ".cpp" and EVERY_SOURCE not in reached(impl, path):
            found.append(f"impl/{name}: does not reach {EVERY_SOURCE}")
    for header, names in users.items():
        if len(names) > 1:
            found.append(f"<{header}> belongs into one file, found in {', '.join(sorted(names))}")
    return found, count


def self_test():
    """Every forbidden edge and every reserved header must be found, every allowed one accepted."""
    bad = [(a, f'#include "{b}/x.h"') for a in ALLOWED for b in ALLOWED if b != a and b not in ALLOWED[a]]
    good = [(a, f'  #  include "{b}/x.h"  // why') for a in ALLOWED for b in ALLOWED[a] | {a}]
    bad += [("run", "#include <nlohmann/json.hpp>"), ("base", "#include <spdlog/logger.h>"), ("base", "#include <xxhash.h>"),
            ("run", "#include <immintrin.h>"), ("scheme", "#include <arm_neon.h>"), ("run", "#include <cpuid.h>"),
            ("run", "#include <moe/moe.h>"), ("api", "#include <iostream>"), ("io", '#include "x.h"'),
            ("io", '#include "io/absent.h"'), ("io", "#include <xxhash.h>"), ("helpers", "#include <vector>")]
    good += [("kernels", "#include <immintrin.h>"), ("api", "#include <moe/moe.h>"), ("run", "#include <vector>")]
    system = [f"#include <{header}>" for header in (
        "unistd.h", "pthread.h", "sched.h", "fcntl.h", "dirent.h", "signal.h", "dlfcn.h", "link.h", "poll.h", "malloc.h",
        "sys/mman.h", "sys/stat.h", "sys/auxv.h", "sys/syscall.h", "linux/futex.h", "asm/hwcap.h", *SYSTEM_CPP)]
    bad += [("base", line) for line in system] + [(folder, system[0]) for folder in (*ALLOWED, "kernels/x86", "io/os")]
    good += [("base/os", line) for line in system]
    good += [(room, f"#include <{header}>") for room in ALLOWED for header in ("cerrno", "thread", "atomic")]
    bad += [("base/os", line) for line in ("#include <iostream>", "#include <immintrin.h>", '#include "io/x.h"')]
    bad += [(user, f'#include "{room}/x.h"') for user in USERS for room in ALLOWED]
    bad += [("mpi", f"#include <{header}>") for header in ("moe/moe.hpp", "nlohmann/json.hpp", "fmt/format.h", "iostream")]
    good += [("mpi", f"#include <{header}>") for header in ("mpi.h", "moe/moe_mpi.h", "stdint.h", "time.h")]
    bad += [(TOOL, f"#include <{header}>") for header in ("moe/moe.hpp", "moe/cpp/layer.hpp", "moe_commit.inc", "spdlog/spdlog.h",
                                                         "xxhash.h", "immintrin.h", "arm_neon.h", "cpuid.h", "iostream")]
    bad += [(TOOL, '#include "tool/absent.h"'), ("api", "#include <CLI/App.hpp>"), ("api", '#include "tool/x.h"')]
    good += [(TOOL, f"#include <{header}>") for header in ("moe/moe.h", "CLI/App.hpp", "nlohmann/json.hpp", "fmt/format.h",
                                                          "unistd.h", "sys/wait.h", "vector", "clocale")]
    good += [(TOOL, '#include "tool/x.h"')]
    through = '#include "base/through.h"'
    # Files of the command line do not reach the rules of floats, and need not.
    cases = [(True, through, *case) for case in bad] + [(False, "" if case[0] in USERS else through, *case) for case in good]
    cases += [(True, "", "run", "#include <vector>"), (False, "", "run", f'#include "{EVERY_SOURCE}"')]
    wrong = []
    for expected, rules, room, line in cases:
        with tempfile.TemporaryDirectory() as root:
            for name in (*ALLOWED, *USERS):
                folder = pathlib.Path(root) / "impl" / name
                folder.mkdir(parents=True)
                (folder / "x.h").write_text("#pragma once\n")
            (pathlib.Path(root) / "impl" / EVERY_SOURCE).write_text("#pragma once\n")
            (pathlib.Path(root) / "impl" / "base" / "through.h").write_text(f'#include "{EVERY_SOURCE}"\n')
            folder = pathlib.Path(root) / "impl" / room
            folder.mkdir(exist_ok=True)  # of a room, or below one
            (folder / "probe.cpp").write_text(f"// probe\n{rules}\n{line}\n")
            if line == "#include <xxhash.h>" and room == "io":
                (folder / "second.cpp").write_text(f"{rules}\n{line}\n")
            if bool(faults(root)[0]) != expected:
                wrong.append(f"{room}: {line} was {'accepted' if expected else 'refused'}")
    print(f"include_levels self-test: {len(cases)} sources, {len(bad)} with a bad include, {len(wrong)} wrong verdicts")
    return wrong + namespace_self_test()


def namespace_self_test():
    """Every file in the namespace of another room and every wrong line of base/rooms.h must be found."""
    uses = {room: sorted(allowed - SHARED) for room, allowed in ALLOWED.items() if room not in SHARED}
    cases = [(False, room, f"moe::{room}" if room in uses else "moe", uses) for room in ALLOWED]
    cases += [(True, room, f"moe::{other}", uses) for room in ALLOWED for other in uses if other != room]
    cases += [(True, room, "moe", uses) for room in uses]
    cases += [(True, "run", "moe::run", {**uses, room: names[1:]}) for room, names in uses.items() if names]
    cases += [(True, "run", "moe::run", {**uses, room: [*names, "api"]}) for room, names in uses.items()]
    wrong = []
    for expected, room, opened, table in cases:
        with tempfile.TemporaryDirectory() as root:
            for name in ALLOWED:
                (pathlib.Path(root) / "impl" / name).mkdir(parents=True)
            blocks = "".join(f"namespace {r} {{{''.join(f'using namespace {n};' for n in names)}}}\n" for r, names in table.items())
            (pathlib.Path(root) / "impl" / ROOMS).write_text(f"namespace moe {{\n{blocks}}}\n")
            (pathlib.Path(root) / "impl" / room / "probe.cpp").write_text(f"namespace {opened} {{\n}}\n")
            if bool(list(namespace_faults(root))) != expected:
                wrong.append(f"{opened} in {room} was {'accepted' if expected else 'refused'}")
    print(f"namespaces self-test: {len(cases)} trees, {len(wrong)} wrong verdicts")
    return wrong


def main(args):
    if args[:1] == ["--self-test"]:
        found = self_test()
    else:
        root = args[0] if args else pathlib.Path(__file__).resolve().parent.parent
        found, count = faults(root)
        found += namespace_faults(root)
        print(f"include_levels: {count} files, {len(found)} faults")
        if count == 0:
            found.append("no source file found")
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
