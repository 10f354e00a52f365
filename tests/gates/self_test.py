#!/usr/bin/env python3
"""Proves that the gates bite: every rule is given something that breaks it, and must say so.

    tests/gates/self_test.py CC CXX      (x86-64 host)
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from library_gate import DEBIAN_12, numbers

HERE = pathlib.Path(__file__).resolve().parent
GOOD_FLAGS = ["-shared", "-fPIC", "-Wl,-soname,libmoe.so.0", "-Wl,-z,relro,-z,now", "-Wl,--build-id=sha1"]
GOOD_SOURCE = '#include <string.h>\n__attribute__((visibility("default"))) int moe_x(const char* s) { return (int)strlen(s); }\n'
MAP = "LIBMOE_0 { global: moe_x; local: *; };\n"


class Bench:
    def __init__(self, cc, cxx, folder):
        self.cc, self.cxx, self.folder = cc, cxx, pathlib.Path(folder)
        self.wrong, self.count = [], 0
        self.write("libmoe.map", MAP)
        self.write("symbols.txt", "moe_x@@LIBMOE_0\n")

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def expect(self, what, words, gate, *args):
        """The gate must pass (words is None) or fail and say `words`."""
        self.count += 1
        run = subprocess.run([sys.executable, str(HERE / gate), *args], capture_output=True, text=True, check=False)
        said = run.stdout + run.stderr
        if (run.returncode == 0) != (words is None) or (words and words not in said):
            self.wrong.append(f"{what}: status {run.returncode}, wanted {words or 'success'}, said: {said.strip()[:400]}")

    def library(self, what, words, source=GOOD_SOURCE, flags=(), script="libmoe.map"):
        so = str(self.folder / "probe.so")
        script = ["-Wl,--version-script=" + str(self.folder / script)] if script else []
        subprocess.run([self.cc, *GOOD_FLAGS, "-O1", *script, self.write("probe.c", source), *flags, "-o", so], check=True)
        self.expect("library: " + what, words, "library_gate.py", so, str(self.folder / "symbols.txt"), "--soname", "libmoe.so.0",
                    "--source", str(self.folder), "--ldd")

    def program(self, what, words, flags=(), glibc=".".join(map(str, DEBIAN_12)), needs="libm.so.6"):
        program = str(self.folder / "program")
        main = "#include <math.h>\nint main(int argc, char** argv) { return (int)lgamma(argc + (argv[0][0] == 'x')); }\n"
        good = ["-fPIE", "-pie", "-fstack-protector-all", "-Wl,-z,relro,-z,now,--build-id=sha1,--enable-new-dtags,-rpath,$ORIGIN/../lib"]
        subprocess.run([self.cc, "-O1", *good, self.write("program.c", main), *flags, "-lm", "-o", program], check=True)
        self.expect("program: " + what, words, "library_gate.py", program, "--program", "--needs", needs, "--glibc", glibc,
                    "--source", str(self.folder), "--ldd")

    def object(self, what, words, where, source, flags=("-O2",), batch=None, too=None):
        path = self.write("impl/" + where, source)
        built = self.folder / "o" / "impl" / (where + ".o")
        if batch:  # as CMake names what includes it
            others = [self.write("impl/" + too, "int other() { return 1; }\n")] if too else []
            path = self.write(f"o/{batch}.dir/Unity/unity_0_cxx.cxx", "".join(f'#include "{p}"\n' for p in [*others, path]))
            built = pathlib.Path(path + ".o")
        built.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([self.cxx, "-std=c++20", *flags, "-c", path, "-o", str(built)], check=True)
        self.expect("objects: " + what, words, "objects_gate.py", self.write("list", str(built) + "\n"), "--objdump", "objdump",
                    "--impl", str(self.folder / "impl"))

    def sources(self, what, words, change):
        root = self.folder / "tree"
        shutil.rmtree(root, ignore_errors=True)
        for name, text in {"include_c/moe/moe.h": "#define MOE_VERSION_MAJOR 1\n#define MOE_VERSION_MINOR 2\n#define MOE_VERSION_PATCH 3\n"
                                                  "#define MOE_ABI_VERSION 4\n",
                           "CMakeLists.txt": "project(libmoe VERSION 1.2.3 LANGUAGES C)\nset(MOE_ABI_VERSION 4)\n",
                           "CHANGELOG.md": "## 1.2.3\n", "impl/base/a.cpp": "// what it is\n", **change}.items():
            self.write("tree/" + name, text)
        self.expect("sources: " + what, words, "source_gate.py", str(root))


def types(b):
    """A name that a header gives a type is no other type's."""
    row = "// rows\nnamespace moe {\nnamespace {\nstruct Row {};\n}\n}\n"
    b.sources("helpers of one name", None, dict.fromkeys(("impl/base/a.cpp", "impl/io/b.cpp", "impl/io/c.inl"), row))
    header = {"impl/base/a.h": row}
    b.sources("no second type", None, {
        **header,
        "impl/io/b.cpp": "// struct Row {};\nstruct Row;\nclass Other {\n  struct Row {};\n};\n"
                         "const char* const kText = \"struct Row {\";\nvoid f() {\n  using Row = int;\n}\n",
        "impl/io/b.h": "// one of two\n#if A\nstruct B {};\n#else\nstruct B {};\n#endif\n"})
    second = ["struct Row {};", "class alignas(64) Row final : public B<int> {};", "union Row {};", "enum Row { a };",
              "enum class Row : int { a };", "using Row = std::pair<int, int>;", "template <class T> struct Row {};",
              "template <class T>\nusing Row = T;"]
    files = ["impl/io/b.cpp", "impl/io/b.h", "impl/io/b.inl", "impl/io/b.inc"]
    for name, line in [(files[0], line) for line in second] + [(name, second[0]) for name in files[1:]]:
        b.sources(f"a second type in {name}: {line}", f"{name}:5: the type Row is declared in impl/base/a.h", {
            **header, name: f"// rows\n#define A \\\n  {{\nnamespace moe::io {{ namespace {{\n{line}\n}} }}\n"})


def words(b):
    """A word has one meaning, and the gate says what the right one is."""
    b.sources("words", None, {
        "impl/README.md": "upstream has no room\n",
        "impl/base/a.cpp": "// Of this room, the rooms below, the base room for all; by the room `io`, another\n"
                           "// room. See base/rooms.h.\n// Reading of quantized codes\n"
                           "const char* f() { return \"quantised upstream, no room\"; }\n"})
    wrong = {
        "write quantize": ["// quantised rows", "void quantise_row();", "// Quantisation"],
        "write vLLM": ["// upstream's bytes", "bool upstreams = true;"],
        "write PrefetchPolicy": ["struct Reading {};"],
        "write QuantizeArgs": ["QuantArgsRow row;"],
        "write BuilderArgs": ["using A = vllm::QuantArguments;"],
        "write space": ["// Room for a row", "// has no room left", "// the room for a row", "// padding, and\n// room so that",
                        "int room = 0;", "int panel_room();", "int kPanelRoom;", "int room_left;", "a.rooms = 2;", "f(room);"]}
    for right, line in ((right, line) for right, lines in wrong.items() for line in lines):
        b.sources(f"a word: {line}", f"is not said here: {right}", {"impl/base/a.cpp": f"// what it is\n{line}\n"})
    b.sources("the place of a word", "impl/base/a.cpp:3: 'room' is", {"impl/base/a.cpp": "// what it is\n// padding, and\n// room so\n"})


def main(cc, cxx):
    with tempfile.TemporaryDirectory() as folder:
        b = Bench(cc, cxx, folder)
        b.library("good", None)
        b.library("extra export", "not in symbols.txt", GOOD_SOURCE + '__attribute__((visibility("default"))) void moe_y(void) {}\n',
                  script=b.write("more.map", MAP.replace("moe_x;", "moe_*;")).rsplit("/", 1)[1])
        b.library("missing export", "not exported", GOOD_SOURCE.replace("moe_x", "moe_z"))
        b.library("no version node", "not of the form", script=None)
        b.library("data export", "only functions", 'int moe_x = 1;\n')
        b.library("weak export", "only functions", '__attribute__((weak)) void moe_x(void) {}\n')
        b.library("other SONAME", "SONAME", flags=["-Wl,-soname,libother.so.1"])
        b.library("needs libstdc++", "needs lib", flags=["-lstdc++"], source=GOOD_SOURCE +
                  "void _ZSt9terminatev(void);\n__attribute__((used)) static void (*const keep)(void) = _ZSt9terminatev;\n")
        b.library("RPATH", "RUNPATH", flags=["-Wl,-rpath,/nowhere"])
        b.library("lazy binding", "BIND_NOW", flags=["-Wl,-z,lazy"])
        b.library("no RELRO", "RELRO", flags=["-Wl,-z,norelro"])
        b.library("executable stack", "executable stack", flags=["-Wl,-z,execstack"])
        late = numbers(os.confstr("CS_GNU_LIBC_VERSION")[6:]) > DEBIAN_12  # the gate does not look there
        b.library("later glibc", None if late else "needs pthread_sigmask of glibc 2.32", GOOD_SOURCE +
                  "#include <signal.h>\n__attribute__((used)) static int (*const keep)(int, const sigset_t*, sigset_t*) = pthread_sigmask;\n")
        b.library("later layout", None if late else "needs GLIBC_ABI_DT_RELR", GOOD_SOURCE +
                  "__attribute__((used)) static const void* const keep[2] = {&keep, &keep};\n", flags=["-Wl,-z,pack-relative-relocs"])
        b.library("libpthread", None, flags=["-Wl,--no-as-needed,-l:libpthread.so.0"])
        b.library("source path", "is inside", GOOD_SOURCE.replace("(int)strlen(s)", '(int)strlen(s) + (s == (const char*)__FILE__ + 1)')
                  + "const char* moe_path(void);\n__attribute__((used)) const char* moe_path(void) { return __FILE__; }\n")
        b.library("too large", "the limit is", GOOD_SOURCE + "__attribute__((used)) static const char big[7000000] = {1};\n")

        b.program("good", None)
        b.program("later glibc", None if late else "needs __libc_start_main of glibc 2.34", glibc="2.28")
        b.program("without the library", "does not need libmoe.so.0", needs="libmoe.so.0")
        b.program("lazy binding", "BIND_NOW", ["-Wl,-z,lazy"])
        b.program("a path of this machine", "RUNPATH is", ["-Wl,-rpath,/nowhere"])
        b.program("no PIE", "no PIE", ["-fno-PIE", "-no-pie"])
        b.program("no stack protector", "no stack protector", ["-fno-stack-protector"])
        b.program("exports", "exported by the program", ["-rdynamic"])

        b.object("good", None, "run/a.cpp", "float f(float a) { return a * 2; }\n")
        b.object("abort", "needs abort", "run/a.cpp", "#include <cstdlib>\nvoid f() { std::abort(); }\n")
        b.object("assert", "__assert_fail", "run/a.cpp", "#include <cassert>\nvoid f(int a) { assert(a); }\n")
        b.object("locale", "needs _ZNSt6locale", "base/log.cpp", "#include <locale>\nstd::locale f() { return std::locale(); }\n")
        b.object("glibc 2.32", "needs strerrorname_np", "io/a.cpp", "#include <cstring>\nconst char* f() { return strerrorname_np(2); }\n")
        b.object("to_chars", "needs _ZSt8to_charsPcS_d", "base/json.cpp",
                 "#include <charconv>\nchar* f(char* p, double d) { return std::to_chars(p, p + 30, d).ptr; }\n")
        b.object("abort in the log file", None, "base/log.cpp", "#include <cstdlib>\nvoid f() { std::abort(); }\n")
        b.object("printing", "needs puts", "run/a.cpp", "#include <cstdio>\nvoid f() { std::puts(\"x\"); }\n")
        b.object("stderr", "needs stderr", "run/a.cpp", "#include <cstdio>\nvoid f() { std::fputs(\"x\", stderr); }\n")
        b.object("opening a file", "needs fopen", "run/a.cpp", "#include <cstdio>\nvoid* f() { return std::fopen(\"x\", \"r\"); }\n")
        b.object("opening a file in base/os", None, "base/os/a.cpp", "#include <cstdio>\nvoid* f() { return std::fopen(\"x\", \"r\"); }\n")
        mask = "#include <csignal>\nint f() { return pthread_sigmask(SIG_BLOCK, nullptr, nullptr); }\n"
        b.object("signal mask", "needs pthread_sigmask", "io/a.cpp", mask)
        b.object("a batch", "run/a.cpp: needs fopen", "run/a.cpp",
                 "#include <cstdio>\nvoid* f() { return std::fopen(\"x\", \"r\"); }\n", batch="run")
        b.object("a batch of two", "needs fopen", "run/a.cpp",
                 "#include <cstdio>\nvoid* f() { return std::fopen(\"x\", \"r\"); }\n", batch="two", too="io/b.cpp")
        b.object("a batch of base/os", None, "base/os/a.cpp",
                 "#include <cstdio>\nvoid* f() { return std::fopen(\"x\", \"r\"); }\n", batch="os")
        b.object("signal mask around a write", None, "base/os/new_file.cpp", mask)
        b.object("a call of the system", "needs madvise", "base/a.cpp",
                 "#include <sys/mman.h>\nint f(void* p) { return madvise(p, 4096, MADV_NORMAL); }\n")
        b.object("removing a file", "needs unlink", "io/a.cpp", "#include <unistd.h>\nint f() { return unlink(\"x\"); }\n")
        b.object("locale", "needs setlocale", "run/a.cpp", "#include <clocale>\nvoid f() { std::setlocale(LC_ALL, \"C\"); }\n")
        b.object("dlopen", "needs dlopen", "run/a.cpp", "#include <dlfcn.h>\nvoid* f() { return dlopen(\"x\", 1); }\n")
        b.object("AVX outside kernels", "beyond baseline", "run/a.cpp", "float f(float a) { return a * 2; }\n", ("-O2", "-mavx2"))
        b.object("BMI outside kernels", "beyond baseline", "run/a.cpp", "unsigned f(unsigned a, unsigned n) { return a << n; }\n",
                 ("-O2", "-mbmi2"))
        b.object("AVX in kernels/x86", None, "kernels/x86/a.cpp", "float f(float a) { return a * 2; }\n", ("-O2", "-mavx2"))
        b.object("AVX in the scalar row", "beyond baseline", "kernels/ref/a.cpp", "float f(float a) { return a * 2; }\n", ("-O2", "-mavx2"))
        b.object("weak in kernels/x86", "weak definition", "kernels/x86/a.cpp",
                 "inline int g(int a) { return a * 3; }\nint (*f())(int) { return &g; }\n")
        only = "{} void only(const char* p) {{ __builtin_prefetch(p); }}\nvoid f(const char* p) {{ only(p); }}\n"
        b.write("impl/kernels/x86/ahead.inl", only.format("static __attribute__((noinline))"))
        b.object("prefetch dropped", "has none", "kernels/x86/a.cpp", '#include "kernels/x86/ahead.inl"\n',
                 ("-O2", "-I" + str(b.folder / "impl")))
        b.object("prefetch kept", None, "run/a.cpp", only.format("[[gnu::always_inline]] inline"))
        b.object("prefetch in a comment", None, "run/a.cpp", "// prefetch(p)\nint f() { return 1; }\n")
        b.object("weak elsewhere", None, "run/a.cpp", "inline int g(int a) { return a * 3; }\nint (*f())(int) { return &g; }\n")

        b.sources("good", None, {})
        b.sources("too long", "the wall", {"impl/base/a.cpp": "// long\n" * 501})
        b.sources("no opening comment", "opens without", {"impl/base/a.cpp": "#include <vector>\n"})
        b.sources("a machine's path", "machine's path", {"tests/x.py": "DIR = '/ho" "me/someone/x'\n"})
        b.sources("names of tests", None, {"tests/a.cpp": "TEST(W4a8, DISABLED_OnePart) {}\nTEST_P(A, B1) {}\nTEST_SUITE(a)\n"})
        b.sources("a suite's name", "test name a_suite is", {"tests/a.cpp": "TEST_F(a_suite, B) {}\n"})
        b.sources("a test's name", "tests/a.cpp:2: the test name b is", {"tests/a.cpp": "//\nTYPED_TEST(A, b) {}\n"})
        b.sources("an instance's name", "test name all is", {"tests/a.cpp": "INSTANTIATE_TEST_SUITE_P(all, A, Values(1));\n"})
        types(b)
        words(b)
        page = {"impl/spec/a.md": "# A\n\n## 7.1 The end\n"}
        b.sources("documents", None, {**page, "impl/base/a.cpp": "// see a.md 7.1 and impl/spec/a.md#71-the-end\n"})
        b.sources("no document", "names b.md", {**page, "impl/base/a.cpp": "// see b.md 7.1\n"})
        b.sources("no section", "no heading 7.2", {**page, "impl/base/a.cpp": "// see a.md 7.1, 7.2\n"})
        b.sources("no anchor", "no heading the-start", {**page, "tests/a.sh": "# impl/spec/a.md#the-start\n"})
        b.sources("top level", "no entry of the top level", {"docs/x.md": "x\n"})
        b.sources("ABI number", "MOE_ABI_VERSION is not 4", {"CMakeLists.txt": "project(libmoe VERSION 1.2.3 L)\nset(MOE_ABI_VERSION 5)\n"})
        b.sources("version", "project version", {"CMakeLists.txt": "project(libmoe VERSION 1.2.4 L)\nset(MOE_ABI_VERSION 4)\n"})
        b.sources("version of a package", "version 1.2.4 is not 1.2.3", {"bindings_examples/bindings/java/pom.xml": "  <version>1.2.4</version>\n"})
        b.sources("changelog", "no section", {"CHANGELOG.md": "## 1.2.2\n"})

        bad_header = b.write("inc/moe/moe.h", "// a comment that C99 pedantic takes and a guard that is missing\nint f() { return 1; }\n")
        b.expect("header without guard", "redefinition", "header_matrix.py", str(pathlib.Path(bad_header).parents[1]), f"{cc}:{cxx}")
        b.write("part/moe/cpp/a.hpp", "// moe_second is named in a comment\nint a() { return moe_first(); }\n")
        partial = b.write("part/moe/moe.h", "MOE_API int MOE_CALL moe_first(void);\nMOE_API int MOE_CALL moe_second(void);\n")
        b.expect("a function that moe.hpp lacks", "nothing calls moe_second", "header_matrix.py", str(pathlib.Path(partial).parents[1]), f"{cc}:{cxx}")
    print(f"gates self-test: {b.count} probes, {len(b.wrong)} wrong verdicts")
    print("\n".join(b.wrong))
    return 1 if b.wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
