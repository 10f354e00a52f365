#!/usr/bin/env python3
"""Usage errors, hostile directories and names, versions, pages, the picture."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import unittest

from moe_tool import ROOT, SCHEMA, Case, make_checkpoint, run

PAGES = {"moe.1": ["--man"], "moe.bash": ["--completion", "bash"], "moe.zsh": ["--completion", "zsh"], "moe.fish": ["--completion", "fish"]}
HOSTILE = ("$(touch hacked)", "`touch hacked`", "a\nb", "system(\"touch hacked\")", "'; system 'touch hacked", "\x1b[31mred", "\u202eevil",
           "END_OF_ROWS", "@macro", "{/=80 big}", "a" * 3000)


class Usage(Case):
    def test_words_that_do_not_exist(self):
        self.refused(2, "inspct", says="did you mean 'inspect'?")
        self.refused(2, "doctor", "--secnods", "1", says="did you mean '--seconds'?")
        self.refused(2, "inspect", "x", "--jsn", says="did you mean '--json'?")
        self.refused(2, says="a command is needed: doctor, inspect")
        self.refused(2, "inspect", says="DIR is required")
        self.refused(2, "inspect", "a", "b", says="'b'")
        self.refused(2, "bench", says="--shape NAME")
        self.refused(2, "bench", "x", "--shape", "qwen3-30b-a3b")
        self.refused(2, "bench", "--shape", "qwen3-30b", says="did you mean 'qwen3-30b-a3b'?")
        self.refused(2, "bench", "--shape", "qwen3-30b-a3b", "--format", "mxpf4", says="did you mean 'mxfp4'?")
        self.refused(2, "bench", "x", "-t", "two")
        self.refused(2, "why", "x", "--for", "avx3", says="did you mean 'avx2'?")
        self.refused(2, "--completion", "tcsh", says="bash, zsh, fish")

    def test_errors_are_documents_too(self):
        done = run("inspect", self.folder / "none", "--json")
        self.assertEqual(done.returncode, 1)
        found = json.loads(done.stdout)
        self.assertEqual(found["error"]["status"], "MOE_ERR_IO")
        self.assertEqual(found["error"]["subject"], str(self.folder / "none/config.json"))
        self.assertEqual(json.loads(run("inspct", "--json").stdout)["error"]["status"], "USAGE")

    def test_help_and_version(self):
        for args in ([], *([name] for name in ("doctor", "inspect", "why", "convert", "bench", "check"))):
            done = run(*args, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("Exit codes: 0 yes", done.stdout)
        done = run("--version")
        self.assertEqual(done.returncode, 0)
        version = next(line.split()[2] for line in (ROOT / "CMakeLists.txt").read_text().splitlines() if line.startswith("project(libmoe VERSION"))
        self.assertIn(f"moe {version}", done.stdout)
        path = done.stdout.split()[-1]
        self.assertTrue(pathlib.Path(path).is_file(), path)


class Hostile(Case):
    def commands(self, directory):
        yield "inspect", directory
        yield "why", directory
        yield "convert", directory, self.folder / "out"
        yield "bench", directory, "-p", "1", "-r", "1", "--seconds", "0", "-t", "1"
        yield "check", directory

    def test_directories(self):
        base = self.folder / "dirs"
        base.mkdir()
        def place(name, config=None):
            folder = base / name
            folder.mkdir()
            if config is not None:
                (folder / "config.json").write_bytes(config)
            return folder
        model = make_checkpoint(self.folder / "model", "--shape", "tiny")
        text = (model / "config.json").read_bytes()
        place("empty")
        place("broken", b"{")
        place("deep", b"[" * 100000)
        place("array", b"[]")
        place("zeros", bytes(1000))
        place("no-shards", text)
        place("no-experts", text.replace(b'"num_experts"', b'"num_nothing"'))
        place("unknown", text.replace(b"Qwen3Moe", b"Nobody1"))
        (place("index", text) / "model.safetensors.index.json").write_text('{"weight_map":{"a":"../../etc/passwd"}}')
        (place("shard", text) / "model.safetensors").write_bytes(b"\xff" * 64)
        (place("manifest", text) / "manifest.json").write_text('{"format":"libmoe-converted","version":1}')
        (place("newer", text) / "manifest.json").write_text('{"format":"libmoe-converted","version":99}')
        os.mkfifo(place("fifo") / "config.json")
        (place("loop") / "config.json").symlink_to("config.json")
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(place("socket") / "config.json"))
        (base / "file").write_bytes(text)
        for directory in [*sorted(base.iterdir()), base / "none", pathlib.Path("/dev/null"), self.folder / ("x" * 300)]:
            for command in self.commands(directory):
                with self.subTest(command=command[:2]):
                    done = run(*command)
                    self.assertIn(done.returncode, (1, 2), done.stdout + done.stderr)
                    self.assertTrue("moe: " in done.stderr or "no" in done.stdout, done.stdout + done.stderr)
        self.assertEqual([p for p in (self.folder / "out").glob("layer*")], [])

    def test_names_do_not_reach_the_terminal_raw(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny")
        for name in HOSTILE[:-1]:
            folder = self.folder / "dirs" / name.replace("/", "_")
            shutil.copytree(model, folder)
            done = run("inspect", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("\x1b", done.stdout)
            self.assertNotIn("\u202e", done.stdout)
            self.assertEqual(done.stdout.count("next: moe convert"), 1)

    def test_pictures(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny")
        if shutil.which("gnuplot") is None:
            self.refused(1, "bench", model, "-r", "1", "--seconds", "0", "--plot", self.folder / "a.svg", says="gnuplot-nox")
            return
        text = json.loads((model / "config.json").read_text())
        work = self.folder / "work"
        work.mkdir()
        quick = ("-p", "2", "-r", "1", "--seconds", "0", "-t", "1", "--plot")
        for number, name in enumerate(HOSTILE):
            picture = work / f"{number}'`touch hacked`$(touch hacked).svg"
            done = run("bench", model, *quick, picture, cwd=work)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("<svg", picture.read_text())
            self.assertEqual([p.name for p in work.iterdir()], [picture.name])
            picture.unlink()
            # A class of such a name is not known.
            (model / "config.json").write_text(json.dumps({**text, "architectures": [name]}))
            done = run("bench", model, *quick, "a.svg", cwd=work)
            self.assertEqual((done.returncode, list(work.iterdir())), (1, []), done.stderr)
            self.assertNotIn("\x1b", done.stderr)
            (model / "config.json").write_text(json.dumps(text))
        self.refused(1, "bench", model, "-r", "1", "--seconds", "0", "--plot", "/nowhere/a.svg", says="/nowhere/a.svg")
        empty = self.folder / "bin"
        empty.mkdir()
        done = run("bench", model, "-r", "1", "--seconds", "0", "--plot", self.folder / "b.svg", env={"PATH": str(empty)})
        self.assertEqual(done.returncode, 1)
        self.assertIn("gnuplot-nox", done.stderr)
        self.assertFalse((self.folder / "b.svg").exists())


class Pages(Case):
    def test_committed_ones_are_those_of_the_program(self):
        for name, args in PAGES.items():
            done = run(*args)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, (ROOT / "impl/tool/pages" / name).read_text(),
                             f"impl/tool/pages/{name}: write it again with moe {' '.join(args)}")

    def test_shells_read_them(self):
        for shell, check in (("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])):
            if shutil.which(shell):
                subprocess.run([*check, str(ROOT / "impl/tool/pages" / f"moe.{shell}")], check=True)
        complete = 'source "$1"; COMP_WORDS=(moe "$2" "$3"); COMP_CWORD=$4; _moe; echo "${COMPREPLY[@]}"'
        words = lambda *args: subprocess.run(["bash", "-c", complete, "-", str(ROOT / "impl/tool/pages/moe.bash"), *args],
                                             capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(words("in", "", "1"), ["inspect"])
        self.assertIn("--prefill", words("bench", "--p", "2"))

    def test_schema_is_one(self):
        import jsonschema
        jsonschema.Draft202012Validator.check_schema(SCHEMA)


if __name__ == "__main__":
    unittest.main()
