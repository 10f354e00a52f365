#!/usr/bin/env python3
"""The libmoe.spdx.json of a build is valid SPDX and lists what NOTICE lists.

    tests/gates/sbom_gate.py BUILD_DIR WORK_DIR      PyPI's spdx-tools is installed into WORK_DIR; exit 77: it cannot be
"""
import json
import pathlib
import re
import subprocess
import sys


def valid(tool, path):
    """Whether spdx-tools take the document, and what they say."""
    run = subprocess.run([tool, "-i", path], capture_output=True, text=True, check=False)
    return run.returncode == 0, (run.stdout + run.stderr)[-2000:]


def main(build, work):
    build, work = pathlib.Path(build), pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    tool = work / "venv/bin/pyspdxtools"
    if not tool.exists():
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", work / "venv"], capture_output=True, text=True, check=False)
        made = made if made.returncode else subprocess.run([work / "venv/bin/pip", "install", "--quiet", "spdx-tools==0.8.5"],
                                                           capture_output=True, text=True, check=False)
        if made.returncode:
            print(f"sbom gate: not run, spdx-tools cannot be installed: {(made.stdout + made.stderr)[-300:]}")
            return 77

    path = build / "pkgconfig/libmoe.spdx.json"
    good, said = valid(tool, path)
    faults = [] if good else [said]
    document = json.loads(path.read_text(encoding="utf-8"))
    notice = re.findall(r"^- (\S+) (\S+) \(", (build / "pkgconfig/NOTICE").read_text(encoding="utf-8"), re.M)
    listed = [(p["name"], p["versionInfo"]) for p in document["packages"]]
    relationships = [(r["spdxElementId"].removeprefix("SPDXRef-"), r["relationshipType"], r["relatedSpdxElement"].removeprefix("SPDXRef-"))
                     for r in document["relationships"]]
    ours = [to for _, kind, to in relationships if kind == "DESCRIBES"]  # the library, and the program where it is built
    if len(notice) < 4 or listed[len(ours):] != notice or [name for name, _ in listed[:len(ours)]] != ours or ours[0] != "libmoe":
        faults.append(f"packages {listed}, NOTICE has {notice}")
    faults += [f"{name}: version '{version}'" for name, version in listed if not re.fullmatch(r"\d+(\.\d+)+", version)]
    for name in ours:
        linked = [to for source, kind, to in relationships if (source, kind) == (name, "STATIC_LINK")]
        wanted = [package for package, _ in notice if (package != "cli11" if name == "libmoe" else package not in ("spdlog", "xxhash"))]
        if sorted(linked) != sorted(wanted):
            faults.append(f"linked into {name}: {linked}")
    if "moe" in ours and ("moe", "DYNAMIC_LINK", "libmoe") not in relationships:
        faults.append("the program does not need the library")

    # that the tool would have said so
    document["packages"][-1]["licenseConcluded"] = "no licence of SPDX"
    wrong = work / "wrong.spdx.json"
    wrong.write_text(json.dumps(document), encoding="utf-8")
    if valid(tool, wrong)[0]:
        faults.append("spdx-tools take an unknown licence")
    print(f"sbom gate: {len(listed)} packages, {len(faults)} faults")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
