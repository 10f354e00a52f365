#!/usr/bin/env python3
"""What the text of the repository must keep to.

    tests/gates/source_gate.py [ROOT] [--clang-format PROGRAM]

- the top level has its fixed entries and no others
- a file of impl/ has at most 500 lines and opens with a comment that says what it is
- no path of somebody's machine and no package registry is named anywhere
- a Markdown file that a line names is there, beside it, at the root or in impl/spec; so is the heading, given as an anchor
  (#heading) or as the number that it begins with (config.md 12)
- a name that a header of impl/ gives a type is no other type's in impl/, whatever the namespaces. Sources never meet (.inl
  files are parts of them): their helpers may share a name that no header has. Types inside of others don't count
- a word has one meaning in the sources of impl/ (WORDS, other_rooms); texts of messages, which callers know, are free
- names of tests are in PascalCase: GoogleTest makes identifiers of them with an underscore between
- numbers of the version in moe.h, CMakeLists.txt and CHANGELOG.md agree
- C++ files are formatted as .clang-format says (Clang-format 14: other versions break lines elsewhere)
"""
import argparse
import pathlib
import re
import subprocess
import sys

TOP = {"CMakeLists.txt", "include_c", "impl", "bindings_examples", "tests", "abi_check", "pkgconfig", "README.md",
       "CMakePresets.json", "LICENSE", "CHANGELOG.md"}
MAX_LINES = 500
SELF_TEST = "tests/gates/self_test.py"  # names what is not there
MACHINE = re.compile(r"(?<![\w.\-\]$}])/(?:work|root|home|Users)/\w|registry\+http|replace-with\s*=|GOPROXY=[h]ttp|[i]ndex-url")
TEXT = {".cpp", ".h", ".hpp", ".c", ".inl", ".py", ".sh", ".txt", ".cmake", ".in", ".md", ".json", ".rs", ".go", ".toml", ".lock",
        ".mod", ".sum", ".map", ".suppr", ".abi", ".yml", ".js", ".ts", ".java", ".xml", ""}
DOCUMENT = re.compile(r"(?<![\w$*{}<>./-])([\w./-]*[\w-]\.md)\b`?(?:#([\w-]+)|((?:(?:,|,? and|-|–| to)? ?\d+(?:\.\d+)*[a-z]?\b)+))?")
NUMBER = re.compile(r"\d+(?:\.\d+)*[a-z]?")
GTEST = re.compile(r"^[ \t]*(?:TYPED_)?(?:TEST(?:_F|_P)?|INSTANTIATE_TEST_SUITE_P)\(\s*(\w+),\s*(\w+)", re.M)
GTEST_NAME = re.compile(r"(?:DISABLED_)?[A-Z][A-Za-z0-9]*")
CXX = {".h", ".cpp", ".inl", ".inc"}
NOT_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'""", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.M | re.S)
NAMESPACE = re.compile(r"(?:inline )?namespace(?: [\w:]+)?|extern")
TYPE = re.compile(r"(?:template ?<.*> ?)?(?:struct|class|union|enum(?: class| struct)?) (?:alignas ?\([^)]*\) ?)?(\w+)(?: final)?(?: ?:(?!:).*)?")
ALIAS = re.compile(r"(?:template ?<.*> ?)?using (\w+) ?=.*")
# What is not to be written in impl/, whether comments count, and what the right word is.
WORDS = [
    (re.compile(r"quantis", re.I), True, "quantize, with a z"),
    (re.compile(r"upstream", re.I), True, "vLLM, whose name says who is meant"),
    (re.compile(r"\bReading\b"), False, "PrefetchPolicy for how a machine likes to be asked for memory"),
    (re.compile(r"\bQuantArgsRow\b"), False, "QuantizeArgs"),
    (re.compile(r"\bQuantArguments\b"), False, "BuilderArgs"),
]
# A room is a folder of impl: its name or one of these comes before the word, and none of those behind it.
ROOM = re.compile(r"\brooms?\b(?!\.h)|\w*(?:[a-z]Room|Room[A-Z]|_rooms?(?![a-z])|(?<![a-z])rooms?_)\w*", re.I)
BEFORE_ROOM = {"a", "the", "this", "that", "these", "each", "every", "another", "other", "whose"}
BEHIND_ROOM = {"for", "so", "to", "left", "enough"}
FORMATTED = re.compile(r"(impl|tests|bindings_examples)/.*\.(cpp|h|inl)|include_c/.*\.hpp")

CRATE = r'^version = "(.*)"$'
PACKAGE_VERSIONS = [
    ("bindings_examples/bindings/node/package.json", r'^  "version": "(.*)",$'),
    ("bindings_examples/bindings/java/pom.xml", r"^  <version>(.*)</version>$"),
    ("bindings_examples/bindings/rust/libmoe-sys/Cargo.toml", CRATE),
    ("bindings_examples/bindings/rust/libmoe/Cargo.toml", CRATE),
    ("bindings_examples/bindings/rust/libmoe/Cargo.toml", r'^libmoe-sys = .*\bversion = "([^"]*)"'),
]
# Each says what CMakeLists.txt says.
HOMEPAGE = re.compile(r"HOMEPAGE_URL (\S+)")
HOMEPAGES = [
    ("bindings_examples/bindings/node/package.json", r'^  "homepage": "(.*)",$'),
    ("bindings_examples/bindings/java/pom.xml", r"^  <url>(.*)</url>$"),
    ("bindings_examples/bindings/python/pyproject.toml", r'^Homepage = "(.*)"$'),
    ("bindings_examples/bindings/rust/libmoe-sys/Cargo.toml", r'^repository = "(.*)"$'),
    ("bindings_examples/bindings/rust/libmoe/Cargo.toml", r'^repository = "(.*)"$'),
]


def repository_files(root):
    """Tracked and new files, not the ignored ones; without git: all files outside build folders."""
    git = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=False)
    if git.returncode == 0 and git.stdout:
        names = git.stdout.decode().split("\0")
    else:
        names = (p.relative_to(root).as_posix() for p in pathlib.Path(root).rglob("*") if p.is_file())
        names = (n for n in names if not re.match(r"(build[^/]*|\.git)/|.*(__pycache__|/target)/", n))
    return sorted(n for n in names if n and (pathlib.Path(root) / n).is_file())


def text_faults(root, files):
    for name in files:
        top = name.split("/")[0]
        if top not in TOP and not top.startswith("."):
            yield f"{name}: '{top}' is no entry of the top level"
        path = pathlib.Path(root) / name
        if path.suffix not in TEXT or name.startswith("tests/vectors/") or "/corpus/" in name:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a program or data without suffix
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE.search(line):
                yield f"{name}:{number}: names a machine's path or a registry: {line.strip()[:100]}"
        for test in GTEST.finditer(text) if name.startswith("tests/") and path.suffix in (".cpp", ".h", ".inl") else ():
            for part in test.groups():
                if not GTEST_NAME.fullmatch(part):
                    yield f"{name}:{text.count(chr(10), 0, test.start()) + 1}: the test name {part} is not in PascalCase"
        if name.startswith("impl/") and path.suffix not in (".md", ".json"):  # which have no comments
            lines = text.count("\n")
            if lines > MAX_LINES:
                yield f"{name}: {lines} lines, the wall is {MAX_LINES}"
            if not text.startswith("#" if path.suffix == ".cmake" else ("//", "/*")):
                yield f"{name}: opens without a comment that says what it is"


def without(text, comments):
    """C++ with blanks for the insides of strings, and for comments; line breaks stay."""
    def blank(match):
        return match[0] if match[0].startswith("/") and not comments else re.sub(r"[^\n]", " ", match[0])
    return NOT_CODE.sub(blank, text)


def types_of(code):
    """(name, line) of the types that stand in namespaces; `code` has no comments and strings."""
    code = DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), code)
    scopes, start = [], 0  # of each open brace: whether it is a namespace's
    for end in re.finditer(r"[{};]", code):
        raw, at = code[start:end.start()], start
        start = end.end()
        head = re.sub(r"\[\[.*?\]\]|\s+", " ", raw).strip()
        known = TYPE if end[0] == "{" else ALIAS if end[0] == ";" else None
        found = known.fullmatch(head) if known and all(scopes) else None
        if found:
            yield found[1], code.count("\n", 0, at + len(raw) - len(raw.lstrip())) + 1
        if end[0] == "{":
            scopes.append(NAMESPACE.fullmatch(head) is not None)
        elif end[0] == "}" and scopes:
            scopes.pop()


def other_rooms(text, rooms):
    """Where the word means anything but a folder of impl/."""
    for match in ROOM.finditer(text):
        before = re.search(r"(\w+)[\s/`]+$", text[max(match.start() - 40, 0):match.start()])
        after = re.match(r"[\s/`]+(\w+)", text[match.end():match.end() + 40])
        word = before[1].lower() if before else ""
        ours = word in rooms or (word in BEFORE_ROOM and not (after and after[1] in BEHIND_ROOM))
        if not ours or match[0] not in ("room", "rooms"):
            yield match


def word_faults(root, files):
    declared = {}  # type: the places that declare it
    rooms = {name.split("/")[1] for name in files if re.match(r"impl/\w+/", name)}
    for name in files:
        path = pathlib.Path(root) / name
        if not name.startswith("impl/") or path.suffix not in CXX:
            continue
        text = path.read_text(encoding="utf-8")
        said, code = without(text, False), without(text, True)
        found = [(m, word) for pattern, comments, word in WORDS for m in pattern.finditer(said if comments else code)]
        found += [(m, "space, buffer or padding: a room is a folder of impl") for m in other_rooms(said, rooms)]
        for match, word in found:
            yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: '{match[0]}' is not said here: write {word}"
        for kind, line in types_of(code):
            declared.setdefault(kind, {}).setdefault(name, line)
    for kind, places in sorted(declared.items()):
        header = next((n for n in places if n.endswith(".h")), None)
        for name in places if header else ():
            if name != header:
                yield f"{name}:{places[name]}: the type {kind} is declared in {header}: give one of the two a name of its own"


def headings(path):
    """What follows the name of a document: anchors as GitHub makes them, and the numbers that headings begin with."""
    found = set()
    for title in re.findall(r"^#+ +(.*)", path.read_text(encoding="utf-8"), re.M):
        found.add(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"))
        number = NUMBER.match(title)
        found.update([number.group()] if number else [])
    return found


def document_faults(root, files):
    root = pathlib.Path(root)
    known = {}  # document: its headings
    for name in files:
        path = root / name
        if path.suffix not in TEXT or name.startswith("tests/vectors/") or "/corpus/" in name or name == SELF_TEST:
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            for document, anchor, sections in DOCUMENT.findall(line):
                places = [path.parent / document, root / document, root / "impl/spec" / document]
                place = next((p for p in places if p.is_file()), None)
                if place is None:
                    yield f"{name}:{number}: names {document}, which is not in the tree"
                    continue
                if place not in known:
                    known[place] = headings(place)
                numbers = NUMBER.findall(sections) if place.parent == root / "impl/spec" else []
                for heading in [anchor] * bool(anchor) + numbers:
                    if heading not in known[place]:
                        yield f"{name}:{number}: {document} has no heading {heading}"


def version_faults(root):
    root = pathlib.Path(root)
    header = (root / "include_c/moe/moe.h").read_text(encoding="utf-8")
    number = dict(re.findall(r"#define MOE_(VERSION_[A-Z]+|ABI_VERSION) (\d+)", header))
    version = ".".join(number["VERSION_" + part] for part in ("MAJOR", "MINOR", "PATCH"))
    cmake = (root / "CMakeLists.txt").read_text(encoding="utf-8")
    if f"project(libmoe VERSION {version} " not in cmake:
        yield f"CMakeLists.txt: project version is not {version} of moe.h"
    if f"set(MOE_ABI_VERSION {number['ABI_VERSION']})" not in cmake:
        yield f"CMakeLists.txt: MOE_ABI_VERSION is not {number['ABI_VERSION']} of moe.h"
    homepage = HOMEPAGE.search((root / "CMakeLists.txt").read_text(encoding="utf-8"))
    for what, wanted, rows in (("version", version, PACKAGE_VERSIONS), ("URL", homepage and homepage[1], HOMEPAGES)):
        for name, pattern in rows:
            path = root / name
            found = path.is_file() and re.search(pattern, path.read_text(encoding="utf-8"), re.M)
            if path.is_file() and (not found or found[1] != wanted):
                yield f"{name}: {what} {found and found[1]} is not {wanted}"
    if not re.search(rf"^## {re.escape(version)}\b", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.M):
        yield f"CHANGELOG.md: no section {version}"


def format_faults(root, files, program):
    names = [n for n in files if FORMATTED.fullmatch(n)]
    run = subprocess.run([program, "--dry-run", "--Werror", *names], cwd=root, capture_output=True, text=True, check=False)
    bad = sorted(set(re.findall(r"^(\S+?):\d+:\d+: (?:error|warning)", run.stderr, re.M)))
    if run.returncode and not bad:
        yield f"{program}: {run.stderr.strip()[:300]}"
    for name in bad:
        yield f"{name}: not formatted ({program} -i {name})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", nargs="?", default=str(pathlib.Path(__file__).resolve().parents[2]))
    parser.add_argument("--clang-format", help="check the format only, with this program")
    args = parser.parse_args()
    files = repository_files(args.root)
    if args.clang_format:
        faults = list(format_faults(args.root, files, args.clang_format))
    else:
        faults = [*text_faults(args.root, files), *word_faults(args.root, files), *document_faults(args.root, files),
                  *version_faults(args.root)]
    print(f"source gate: {len(files)} files, {len(faults)} faults")
    print("\n".join(faults))
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main())
