#!/usr/bin/env python3
"""What people see: a terminal of 80 and of 40 columns (tmux), without colours, and a pipe."""
import os
import pathlib
import re
import shutil
import subprocess
import time
import unittest
import uuid

from moe_tool import TOOL, Case, make_checkpoint, run

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A tmux of its own: nothing of the user's, and gone when it is closed."""

    def __init__(self, columns, environment):
        self.name = f"moe-test-{uuid.uuid4().hex}"
        self.tmux = ["tmux", "-L", self.name, "-f", "/dev/null"]
        plain = {k: v for k, v in os.environ.items() if k not in ("TMUX", "NO_COLOR")}
        self.environment = {**plain, "LC_ALL": "C.UTF-8", "PS1": "", **environment}
        self.call("new-session", "-d", "-x", str(columns), "-y", "24", "env", "sh", "-i")
        self.call("set-option", "-g", "status", "off")
        self.call("resize-window", "-x", str(columns), "-y", "24")

    def call(self, *args):
        return subprocess.run([*self.tmux, *args], capture_output=True, text=True, env=self.environment, check=True).stdout

    def screen(self, escapes=False):
        return self.call("capture-pane", "-p", *(["-e"] if escapes else []))

    def type(self, line):
        self.call("send-keys", "-l", line)
        self.call("send-keys", "Enter")

    def run(self, *args, escapes=False):
        """Runs the command line and waits for its end; the screen."""
        mark = f"end-{uuid.uuid4().hex[:8]}"
        self.type(f"clear; {TOOL} {' '.join(map(str, args))}; echo {mark[:4]}'{mark[4:]}'")
        self.until(lambda text: mark in text)
        return self.screen(escapes).split(mark)[0]

    def until(self, condition, seconds=60):
        end = time.time() + seconds
        while time.time() < end:
            text = self.screen()
            if condition(text):
                return text
            time.sleep(0.02)
        raise AssertionError(f"not seen in {seconds} s:\n{text}")

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], capture_output=True, check=False)


@unittest.skipUnless(shutil.which("tmux"), "needs tmux")
class Screens(Case):
    def terminal(self, columns=80, **environment):
        terminal = Terminal(columns, environment)
        self.addCleanup(terminal.close)
        return terminal

    def model(self):
        return make_checkpoint(self.folder / "m", "--shape", "tiny", "--layers", "3")

    def commands(self, model):
        yield "doctor", "--seconds", "0.05"
        yield "inspect", model
        yield "why", model
        yield "bench", model, "-p", "2", "-r", "2", "--seconds", "0", "-t", "1"
        yield "inspect", self.folder / "none"
        yield ("inspct",)

    def test_terminal(self):
        terminal, model = self.terminal(), self.model()
        for command in self.commands(model):
            with self.subTest(command=command[0]):
                text = terminal.run(*command, escapes=True)
                self.assertIn("\x1b[", text)
                self.assertLessEqual(max(len(ESCAPE.sub("", line)) for line in text.splitlines()), 80)
        self.assertIn("✓ fits", terminal.run("inspect", model))
        self.assertIn(" · ", terminal.run("inspect", model))

    def test_no_color(self):
        terminal, model = self.terminal(NO_COLOR="1"), self.model()
        for command in self.commands(model):
            with self.subTest(command=command[0]):
                self.assertNotRegex(terminal.run(*command, escapes=True), ESCAPE)
        self.assertIn("✓", terminal.run("inspect", model))

    def test_no_utf8(self):
        terminal, model = self.terminal(LC_ALL="C"), self.model()
        self.assertTrue(terminal.run("inspect", model).isascii())

    def test_forty_columns(self):
        """Tables become lines of one cell each; nothing is cut off."""
        terminal, model = self.terminal(columns=40), self.model()
        for command, cells in (("inspect", ("layers: 0-2", "experts: 4", "weights: int4-g32", "kernel: w4a8_tok8_p16", "next: moe convert")),
                               ("why", ("kernel: w4a8_tok8_p16_scalar", "why: ", "next: moe bench"))):
            text = terminal.run(command, model)
            for cell in cells:
                self.assertIn(cell, text)
        self.assertIn("did you mean 'inspect'?", terminal.run("inspct").replace("\n", ""))

    def test_pipe(self):
        model = self.model()
        for command in self.commands(model):
            with self.subTest(command=command[0]):
                done = run(*command, env={"LC_ALL": "C.UTF-8", "CLICOLOR_FORCE": "1"})
                self.assertTrue((done.stdout + done.stderr).isascii(), done.stdout)
                self.assertNotIn("\x1b", done.stdout + done.stderr)
                self.assertNotIn("\r", done.stdout + done.stderr)
        done = run("bench", model, "-p", "2", "-r", "1", "--seconds", "0", "-t", "1")
        self.assertEqual([line for line in done.stderr.splitlines() if line[0] != "!"], [f"convert layer {n}/3" for n in (1, 2, 3)])
        done = run("convert", model, self.folder / "out")
        self.assertEqual([line.split(" (")[0] for line in done.stderr.splitlines()], [f"convert: layer {n}/3" for n in (1, 2, 3)])

    def test_progress(self):
        """A bar in one line, which is gone when the command ends."""
        model = make_checkpoint(self.folder / "m", "--shape", "qwen3", "--experts", "24", "--layers", "8", "--format", "pack")
        terminal = self.terminal()
        terminal.type(f"clear; {TOOL} convert {model} {self.folder}/out -t 1; echo 'en''d'")
        bar = re.compile(r"layer \d/8 ━.* (\d+)%")
        seen = []

        def half(text):
            seen.extend(int(m[1]) for m in bar.finditer(text))
            return "end" in text.split("\n") or any(p >= 50 for p in seen)
        terminal.until(half)
        self.assertTrue(seen, "no bar was seen")
        text = terminal.until(lambda t: "end" in t.split("\n"))
        self.assertNotRegex(text, bar)
        self.assertRegex(text, r"8 layers, [\d.]+ MB in \d:\d\d")
        self.assertIn("next: moe bench", text)
        self.assertEqual(seen, sorted(seen))


if __name__ == "__main__":
    unittest.main()
