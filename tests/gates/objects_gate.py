#!/usr/bin/env python3
"""What the object files of a release build must not contain.

    tests/gates/objects_gate.py LIST [--nm NM] [--objdump OBJDUMP] [--impl DIR]     LIST: a file with one object's path a line

- a weak function in an object of kernels/x86 or kernels/arm: the linker could keep its copy of an inline library
  function, compiled for that ISA, for everyone
- an instruction beyond baseline x86-64 in any other object (AVX registers or encodings, BMI, POPCNT, SSSE3 and later)
- a call that ends the process, prints, touches process state or reaches out; calls of the system outside base/os
- what brings much of libstdc++ into the library (std::locale, std::to_chars of floating-point numbers), or needs a late
  glibc

And what it must: a prefetch where its source in DIR, or a piece (.inl) of it, asks for one. GCC takes a function that only
prefetches for one without effects and drops its calls unless it is inlined.
"""
import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys

ISA_OBJECT = re.compile(r"kernels/(x86|arm)/")
# symbols -> the objects that may need them; json and log inline their packages
WRAPPED = r"base/(json|log)\.cpp"
FORBIDDEN = [
    (r"abort|_?exit|_Exit|quick_exit|__assert_fail|_ZSt9terminatev__unused|_ZSt21__glibcxx_assert_failPKciS0_S0_", WRAPPED),
    (r"signal|sigaction|raise|kill|setlocale|uselocale|setenv|putenv|unsetenv|chdir|srand|rand", r"(?!)"),
    (r"pthread_(sigmask|kill|sigqueue)|sigprocmask|sigpending|sig(timed)?wait(info)?|sigqueue|sigsuspend",
     r"base/os/(new_file|thread)\.cpp"),  # blocked around a write and taken back; blocked in worker threads
    (r"socket|connect|system|popen|execv[pe]*|posix_spawnp?|dlopen", r"(?!)"),
    (r"printf|__printf_chk|puts|putchar|perror|stdout|stderr|_ZSt4(cout|cerr|clog)", WRAPPED),
    (r"getenv|secure_getenv", r"(base/platform[a-z0-9_]*|run/context/context)\.cpp"),
    (r"_ZNK?St6locale\w*|_ZSt9use_facet\w*|_ZNK?St8ios_base\w*", r"(?!)"),  # 400 KB of a bundled libstdc++
    (r"strerrorname_np|strerrordesc_np|sigabbrev_np", r"(?!)"),  # glibc 2.32
    (r"_ZSt8to_charsPcS_[fdeg]\w*", r"(?!)"),  # 135 KB: base/decimal.h writes floating-point numbers
    (r"(rename|unlink|link|symlink|mk(dir|fifo|nod))(at|at2)?|remove|rmdir|f?(chmod|chown|truncate64|truncate)(at)?|flock|"
     r"f?setxattr|f?removexattr", r"base/os/(new_file|folder)\.cpp"),
    (r"(open|openat|fopen|mmap|creat|opendir|fdopendir|p?read|p?write)(64)?|munmap|madvise|sysconf|getauxval|uname|fork", r"base/os/.*"),
    (r"syscall|getpid|sched_\w+|pthread_(self|create|join|attr_\w+|setaffinity_np)", r"base/(os/.*|log\.cpp)|dist/transport\.cpp"),
]
BEYOND_BASELINE = re.compile(
    r"^\s+[0-9a-f]+:\s+(?:\{[a-z0-9]+\} )?(v\w+\s.*%[xyz]mm.*|.*%(?:[yz]mm|tmm)\d.*|"
    r"(?:popcnt|lzcnt|mulx|pdep|pext|shlx|sarx|shrx|rorx|bzhi|bextr|andn|blsi|blsr|movbe|crc32[bwlq]?|pshufb|palignr|"
    r"pmulhrsw|pmaddubsw|phadd[wd]|pabs[bwd]|pblend\w+|blend\w+|round[sp][sd]|dpp[sd]|pcmp[ei]str\w|pm[ai][nx]s[bd]|"
    r"pm[ai][nx]u[wd]|pmov[sz]x\w+|pmulld|ptest|insertps|extractps|pinsr[bdq]|pextr[bdq])\s.*)$")
PIECE = re.compile(r'^#include "([^"]+\.inl)"', re.MULTILINE)
# A call; the lane types (vector_*.inl) only offer one.
ASKS = re.compile(r"^(?!.*\binline void ).*\b(?!prefetch_policy)\w*prefetch\w*\(", re.MULTILINE)
OFFERS = re.compile(r"(^|/)vector_[^/]*\.inl$")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def sources_of(path):
    """kernels/x86/w4a8_avx2.cpp of .../moe_kernels.dir/impl/kernels/x86/w4a8_avx2.cpp.o; all that a batch (a unity build)
    includes. An object of a batch may need what any of its sources may; builds without batches ask each alone."""
    batch = re.search(r"^(.*/Unity/unity_[^/]*)\.o(bj)?$", path)
    if batch:
        return re.findall(r'^#include ".*/impl/(.*)"$', pathlib.Path(batch[1]).read_text(encoding="utf-8"), re.MULTILINE)
    match = re.search(r"/impl/(.*?)\.o(bj)?$", path)
    return [match[1] if match else path]


def asks_for_prefetch(impl, source):
    try:
        text = re.sub(r"//.*", "", (impl / source).read_text(encoding="utf-8"))
    except FileNotFoundError:  # generated
        return False
    asks = not OFFERS.search(source) and ASKS.search(text)
    return bool(asks) or any(asks_for_prefetch(impl, piece) for piece in PIECE.findall(text))


def object_faults(path, nm, objdump, impl):
    faults, sources = [], sources_of(path)
    source = ", ".join(sources)
    isa = ISA_OBJECT.search(source)
    for line in run(nm, "--format=posix", path).splitlines():
        name, kind = line.split()[:2]
        if isa and kind == "W":  # weak constants (V, u) hold no instructions
            faults.append(f"{source}: weak definition {name} in an ISA object")
        if kind not in "Uw":
            continue
        for pattern, allowed in FORBIDDEN:
            if re.fullmatch(pattern, name) and not any(re.fullmatch(allowed, s) for s in sources):
                faults.append(f"{source}: needs {name}")
    prefetches = impl is not None and any(asks_for_prefetch(impl, s) for s in sources)
    if objdump and (prefetches or not isa):
        code = run(objdump, "-d", "--no-show-raw-insn", path)
        if prefetches and not re.search(r"^\s+[0-9a-f]+:\s+prefetch", code, re.MULTILINE):
            faults.append(f"{source}: asks for prefetches and has none (always_inline?)")
        for line in [] if isa else code.splitlines():
            if BEYOND_BASELINE.match(line):
                faults.append(f"{source}: beyond baseline x86-64: {' '.join(line.split()[1:])}")
                break
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("list")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--objdump", help="x86-64 only: look at the instructions too")
    parser.add_argument("--impl", type=pathlib.Path, help="the folder of the sources")
    args = parser.parse_args()
    with open(args.list, encoding="utf-8") as file:
        objects = [p for p in re.split(r"[;\n]", file.read()) if p.strip()]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        faults = [f for found in pool.map(lambda p: object_faults(p, args.nm, args.objdump, args.impl), objects) for f in found]
    print(f"objects gate: {len(objects)} objects, {len(faults)} faults")
    print("\n".join(faults))
    return 1 if faults or not objects else 0


if __name__ == "__main__":
    sys.exit(main())
