#!/usr/bin/env python3
"""The dialogue of impl/tool/README.md, run on an 8-layer checkpoint in int4 of Qwen3's shapes, with figures masked.

    test_dialogue.py             compare with the page
    test_dialogue.py --write     write it into the page
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

from moe_tool import ROOT, TOOL, make_checkpoint

PAGE = ROOT / "impl/tool/README.md"
BEGIN, END = "<!-- dialogue: written by tests/tool/test_dialogue.py -->\n", "<!-- dialogue: end -->\n"
LINES = ("moe doctor", "moe inspect q3", "moe why q3 --kernel amxint8 --for amx", "moe convert q3 q3.moe", "moe convert q3 q3.moe",
         "moe bench q3.moe -t 1 -p 16 -r 2 --seconds 0.02", "moe check q3.moe q3")
# Everything that differs from machine to machine: numbers with a unit, rates, times, hashes, what doctor finds.
MASKS = ((r"(?m)^(libmoe|cpu|isa|threads|memory|reads|load|env)( +).*$", r"\1\2.."), (r"fast:xxh3:[0-9a-f]{16}", "fast:xxh3:.."),
         (r"(?m)^! .*\n", ""), (r"(?m)^yes all well\n", ""), (r"\d[\d.]*(?= (KB|MB|GB) )", "#"), (r" \d+:\d\d\b", " #:##"),
         (r"w4a8_tok8_p16_\w+(, w4a8_tok8_p16_\w+)*", "w4a8_tok8_p16_.."), (r"kernel +also accepted", "kernel              also accepted"),
         (r"relative error [\d.]+ \(median\), [\d.]+ \(worst\)", "relative error # (median), # (worst)"),
         (r"[!\d. ]+ \+- +[\d.]+ \| +[\d.]+ \| +[\d.]+ \|", " # +- # | # | # |"))


def dialogue():
    text = ""
    with tempfile.TemporaryDirectory() as folder:
        make_checkpoint(f"{folder}/q3", "--shape", "qwen3", "--experts", "16", "--layers", "8", "--format", "pack", "--group", "128")
        for line in LINES:
            done = subprocess.run([TOOL, *shlex.split(line)[1:]], capture_output=True, text=True, cwd=folder, env={**os.environ, "NO_COLOR": "1"}, check=False)
            expected = 1 if "--kernel" in line and "no " in done.stdout else 0
            if done.returncode not in (0, expected):
                raise AssertionError(f"{line}: status {done.returncode}\n{done.stdout}{done.stderr}")
            text += f"$ {line}\n{done.stdout}"
    for pattern, by in MASKS:
        text = re.sub(pattern, by, text)
    return re.sub(r"(?m)^\| .*$", lambda m: re.sub(r" +", " ", re.sub(r"-+(:?) \|", r"-\1 |", m[0])), text)


def page(text):
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}\n```text\n{text}```\n\n{END}{rest.split(END)[1]}"


class Dialogue(unittest.TestCase):
    def test_page_is_what_is_printed(self):
        self.maxDiff = None
        self.assertEqual(PAGE.read_text(encoding="utf-8"), page(dialogue()), "write it again: tests/tool/test_dialogue.py --write")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(dialogue()), encoding="utf-8")
    else:
        unittest.main()
