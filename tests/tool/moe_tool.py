"""What the tests of the command line share: running it, checkpoints, and the schema of its documents."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ["MOE_TOOL_PROGRAM"]
SANITIZED = os.environ.get("MOE_TOOL_SANITIZED") == "1"  # the program and the library
VECTORS = ROOT / "tests/vectors/hf_quantized"
SCHEMA = json.loads((ROOT / "impl/tool/documents.schema.json").read_text(encoding="utf-8"))
SEVERAL_MINUTES = 300


def run(*args, env=None, **more):
    """The command line's end: returncode, stdout, stderr; without a terminal, in plain ASCII."""
    return subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True, timeout=SEVERAL_MINUTES,
                          env={**os.environ, **(env or {})}, check=False, **more)


def document(*args):
    """The JSON document of a command, which must be what the schema says; and its exit code."""
    done = run(*args, "--json")
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    return found, done.returncode


def make_checkpoint(folder, *args):
    done = subprocess.run([str(ROOT / "bindings_examples/make_checkpoint"), str(folder), *args], capture_output=True, text=True,
                          env={**os.environ, "PYTHON": sys.executable}, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return folder


def masked(text):
    """The text without what differs from run to run and from machine to machine."""
    for pattern, by in ((r"\d[\d.]*(?= (KB|MB|GB|B|KB/s|MB/s|GB/s)\b)", "#"), (r"fast:xxh3:[0-9a-f]{16}", "fast:xxh3:#"),
                        (r"\d:\d\d\b", "#:##")):
        text = re.sub(pattern, by, text)
    return text


class Case(unittest.TestCase):
    """A folder of its own, and the one message that a refused command leaves."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def refused(self, code, *args, says=""):
        """Ends with `code` and one line on standard error that has `says` in it; nothing on standard output."""
        done = run(*args)
        self.assertEqual(done.returncode, code, done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("moe: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn(says, lines[0])
        self.assertEqual(done.stdout, "")
        return lines[0]
