#!/usr/bin/env python3
"""Usage errors, hostile directories and names, versions, pages, the picture."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import time
import unittest

import jsonschema
from moe_tool import ROOT, SANITIZED, SCHEMA, TOOL, Case, make_checkpoint, run

PAGES = {"moe.1": ["--man"], "moe.bash": ["--completion", "bash"], "moe.zsh": ["--completion", "zsh"], "moe.fish": ["--completion", "fish"]}
HOSTILE = ("$(touch hacked)", "`touch hacked`", "a\nb", "system(\"touch hacked\")", "'; system 'touch hacked", "\x1b[31mred", "\u202eevil",
           "END_OF_ROWS", "@macro", "{/=80 big}", "a" * 3000)


class Usage(Case):
    def test_words_that_do_not_exist(self):
        self.refused(2, "inspct", says="did you mean 'inspect'?")
        self.refused(2, "doctor", "--secnods", "1", says="did you mean '--seconds'?")
        self.refused(2, "inspect", "x", "--jsn", says="did you mean '--json'?")
        self.refused(2, "-t", "2", "doctor", says="'-t' goes behind the command: moe doctor -t")
        self.refused(2, "bench", "x", "--format", "mxfp4", says="--format requires --shape")
        for layers in ("1-2", "3,7", "0", "49", "x"):
            self.refused(2, "bench", "--shape", "qwen3-30b-a3b", "--layers", layers, says="1 to 48")
        self.refused(2, says="a command is needed: doctor, inspect")
        self.refused(2, "inspect", says="DIR is required")
        self.refused(2, "inspect", "a", "b", says="'b'")
        self.refused(2, "bench", says="--shape NAME")
        self.refused(2, "bench", "x", "--shape", "qwen3-30b-a3b")
        self.refused(2, "bench", "--shape", "qwen3-30b", says="did you mean 'qwen3-30b-a3b'?")
        self.refused(2, "bench", "--shape", "qwen3-30b-a3b", "--format", "mxpf4", says="did you mean 'mxfp4'?")
        self.refused(2, "bench", "x", "-t", "two")
        self.refused(2, "why", "x", "--for", "avx3", says="did you mean 'avx2'?")
        self.refused(2, "why", "x", "--for", "marlim:9.0", says="--for 'marlim:9.0': /moe_backend")
        self.refused(2, "--completion", "tcsh", says="bash, zsh, fish")

    def test_values_that_mean_nothing(self):
        """NaN passes a comparison with a range, and the value of an empty shell variable would be no option at all."""
        for command in (("doctor",), ("bench", "x")):
            for value in ("nan", "inf", "-1", "61", "x", ""):
                self.refused(2, *command, f"--seconds={value}", says="--seconds")
        for option in ("--plot", "--layers", "--shape", "--format", "--for"):
            self.refused(2, "bench", "x", option, "", says=f"{option}: must not be empty")
        self.refused(2, "inspect", "", says="DIR: must not be empty")
        for value in ("-5", "-1KB", "nan", "99999EB", "x"):
            self.refused(2, "inspect", "x", "--memory", value, says="--memory")
        for value in ("-1", "1.5", "99999999999999999999", "0x"):
            self.refused(2, "why", "x", "--layer", value, says="is not a whole number")

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

    def test_proposed_commands_name_the_same_folder(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny")
        for name in ("-m", "a b", "it's", "\x1b[31m", "a\nb", "\u061cx", b"\xff\xfe", "q'\x07\\"):
            shutil.copytree(os.fsencode(model), os.path.join(os.fsencode(self.folder), os.fsencode(name)))
            done = subprocess.run([TOOL, "inspect", "--", name], cwd=self.folder, capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            line = done.stdout.decode().splitlines()[-1].removeprefix("next: moe ").replace("OUT", "out")
            done = subprocess.run(["bash", "-c", f"'{TOOL}' {line}"], cwd=self.folder, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, (line, done.stderr))

    def test_texts_of_a_folder_do_not_reach_the_terminal_raw(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny")
        out = self.folder / "out"
        run("convert", model, out)
        record = json.loads((out / "manifest.json").read_text())
        for member in ("source", "platform"):
            (out / "manifest.json").write_text(json.dumps({**record, member: "\x1b]0;title\x07\u202e\u061c"}))
            for command in (("inspect", out), ("why", out), ("check", out), ("check", out, model), ("convert", model, out)):
                done = run(*command)
                self.assertIn(done.returncode, (0, 1))
                for mark in ("\x1b", "\x07", "\u202e", "\u061c"):
                    self.assertNotIn(mark, done.stdout + done.stderr)

    def test_files_of_machines(self):
        """--for reads a small regular file and nothing else, and says which file was wrong."""
        model = make_checkpoint(self.folder / "model", "--shape", "tiny")
        os.mkfifo(self.folder / "fifo")
        with open(self.folder / "huge", "wb") as huge:
            huge.truncate(1 << 40)
        for name in (self.folder / "fifo", "/dev/zero", "/"):
            found = self.refused(2, "inspect", model, "--for", name, says=f"--for '{name}'")
            self.assertNotIn("basic_filebuf", found)
        self.refused(1, "inspect", model, "--for", self.folder / "huge", says="at most 1048576")
        for text in ("", "{", "[" * 100000, '{"type":"cpu","arch":"x86_64","features":[1]}', '{"type":"\xff"}'):
            (self.folder / "platform").write_bytes(text.encode("latin-1"))
            self.refused(1, "inspect", model, "--for", self.folder / "platform", says=f"--for '{self.folder}/platform': ")
        self.refused(2, "inspect", model, "--for", b"\xff:9.0".decode("utf-8", "surrogateescape"), says="/moe_backend")

    def test_limits(self):
        """Full files, no threads, little memory: less is done, or words say what is missing."""
        model = make_checkpoint(self.folder / "model", "--shape", "tiny")
        quick = ("-p", "1", "-r", "1", "--seconds", "0", "-t", "1")
        limited = lambda what, amount: lambda: resource.setrlimit(what, (amount, amount))
        if not SANITIZED:  # the address sanitizer reserves terabytes of addresses
            done = run("doctor", "--seconds", "0", preexec_fn=limited(resource.RLIMIT_AS, 200 << 20))
            self.assertEqual(done.returncode, 0, done.stderr)
        if shutil.which("gnuplot"):
            picture = self.folder / "a.svg"
            for before in (None, "kept"):
                if before:
                    picture.write_text(before)
                done = run("bench", model, *quick, "--plot", picture, preexec_fn=limited(resource.RLIMIT_FSIZE, 5000))
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("a.svg cannot be written: File too large", done.stderr)
                self.assertIn("decode 1", done.stdout)  # what was measured is not lost
                self.assertEqual(picture.read_text() if picture.exists() else None, before)
        if os.getuid() == 0 and (pathlib.Path(TOOL).parent.stat().st_mode & stat.S_IXOTH):
            def few_threads():
                os.setgid(65534)
                os.setuid(65534)
                resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
            done = run("doctor", "--seconds", "0", "-t", "16", preexec_fn=few_threads)
            self.assertIn(done.returncode, (0, 126, 127), done.stderr)
        # More tokens than there is memory for: the system would give it, and kill who uses it.
        big = make_checkpoint(self.folder / "big", "--shape", "qwen3", "--experts", "2", "--layers", "8", "--format", "pack")
        if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 60e9:
            self.refused(1, "bench", big, "-n", "1048576", "-t", "1", says="is free")

    def test_closed_standard_files(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny")
        for closed in ((0,), (1,), (2,), (0, 1, 2)):
            out = self.folder / f"out{closed}"
            done = subprocess.run([TOOL, "convert", str(model), str(out)], stdin=subprocess.DEVNULL, capture_output=True, check=False,
                                  preexec_fn=lambda: [os.close(file) for file in closed])
            self.assertEqual(done.returncode, 1 if 1 in closed else 0, done.stderr)
            self.assertEqual(run("check", out, model).returncode, 0)

    def test_a_packed_file_that_becomes_shorter(self):
        """The processor raises SIGBUS: the file is named, and with --json there is a document."""
        model = make_checkpoint(self.folder / "model", "--shape", "qwen3", "--experts", "8", "--layers", "1", "--format", "pack")
        for more in ([], ["--json"]):
            out = self.folder / f"out{len(more)}"
            run("convert", model, out)
            file = out / "layer-00000.moe"
            process = subprocess.Popen([TOOL, "check", str(out), "--tokens", "64", "-t", "1", *more], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            while process.poll() is None and file.name not in pathlib.Path(f"/proc/{process.pid}/maps").read_text():
                time.sleep(0.001)
            os.truncate(file, 4096)
            text, words = process.communicate()
            self.assertEqual(process.returncode, 1, words)
            self.assertIn("layer-00000.moe", text + words)
            if more:
                jsonschema.validate(json.loads(text), SCHEMA)

    def test_signals(self):
        """What is ignored stays ignored, a hangup leaves no temporary files, and nothing makes Ctrl-C wait."""
        model = make_checkpoint(self.folder / "model", "--shape", "qwen3", "--experts", "16", "--layers", "4", "--format", "pack")
        out = self.folder / "out"

        def hears(process, number):
            """Whether the program has a handler for this signal by now, or ignores it."""
            masks = re.findall(r"^Sig(?:Ign|Cgt):\s*([0-9a-f]+)", pathlib.Path(f"/proc/{process.pid}/status").read_text(), re.M)
            return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)

        def send(number, *command, before=0.3, **more):
            process = subprocess.Popen([TOOL, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
            while process.poll() is None and not hears(process, number):
                time.sleep(0.01)  # a slow machine takes long to start it
            time.sleep(before)
            process.send_signal(number)
            start = time.time()
            words = process.communicate()[1]
            return process.returncode, words, time.time() - start

        code, words, _ = send(signal.SIGHUP, "convert", model, out, "-t", "1")
        self.assertIn(code, (130, 0), words)
        self.assertEqual(list(out.glob(".moe-save*")), [])
        for number in (signal.SIGINT, signal.SIGHUP):
            shutil.rmtree(out, ignore_errors=True)
            code, words, _ = send(number, "convert", model, out, "-t", "1", preexec_fn=lambda n=number: signal.signal(n, signal.SIG_IGN))
            self.assertEqual(code, 0, words)
        code, words, waited = send(signal.SIGINT, "check", out, "--tokens", "2048", "-t", "1")
        self.assertEqual(code, 130, words)
        self.assertLess(waited, 20)
        code, words, waited = send(signal.SIGINT, "bench", out, "-p", "4096", "-t", "1", before=2)
        self.assertEqual(code, 130, words)
        self.assertIn("interrupted", words)

    def test_programs_that_are_not_gnuplot(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny")
        bin_folder = self.folder / "bin"
        bin_folder.mkdir()
        fake = bin_folder / "gnuplot"
        picture = self.folder / "a.svg"
        command = ("bench", model, "-p", "1", "-r", "1", "--seconds", "0", "-t", "1", "--plot", picture)
        path = {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
        picture.write_text("kept")
        draws = "case $1 in -d) %s;; esac; echo 5.4"
        for script, says in (("exit 3", "its exit code is 3"), ("kill -9 $$", "signal 9"), ("exec yes", "without an end"),
                             ("printf '\\033[31mred' >&2; exit 1", "\\x1b[31mred"), (draws % "echo '<svg'; exit 0", "no whole SVG"),
                             (draws % "exit 4", "its exit code is 4")):
            fake.write_text(f"#!/bin/sh\n{script}\n")
            fake.chmod(0o755)
            done = run(*command, env=path)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(says, done.stderr)
            self.assertNotIn("\x1b", done.stderr)
            self.assertEqual("decode 1" in done.stdout, script.startswith("case"))
        fake.write_text(f"#!/bin/sh\n{draws % 'touch $0.runs; exec sleep 600'}\n")
        process = subprocess.Popen([TOOL, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **path})
        while process.poll() is None and not (bin_folder / "gnuplot.runs").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        text, words = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, words)
        self.assertIn("decode 1", text)
        self.assertEqual(picture.read_text(), "kept")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["a.svg", "bin", "model"])

    @unittest.skipUnless(shutil.which("gnuplot"), "needs gnuplot")
    def test_where_pictures_go(self):
        """Devices and pipes stay what they are, links too, and no file beside the picture is touched."""
        model = make_checkpoint(self.folder / "model", "--shape", "tiny")
        command = ("bench", model, "-p", "1", "-r", "1", "--seconds", "0", "-t", "1", "--plot")
        (self.folder / "folder").mkdir()
        self.refused(1, *command, self.folder / "folder", says="Is a directory")
        os.mkfifo(self.folder / "fifo")
        self.assertEqual(run(*command, self.folder / "fifo").returncode, 1)
        self.assertTrue((self.folder / "fifo").is_fifo())
        done = run(*command, "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/dev/full cannot be written: No space", done.stderr)
        self.assertTrue(pathlib.Path("/dev/full").is_char_device())
        (self.folder / "a.svg.part").write_text("mine")
        (self.folder / "old.svg").write_text("old")
        (self.folder / "old.svg").chmod(0o640)
        for name in ("old.svg", "new.svg"):
            (self.folder / f"link-{name}").symlink_to(name)
            self.assertEqual(run(*command, self.folder / f"link-{name}").returncode, 0)
            self.assertIn("</svg>", (self.folder / name).read_text())
            self.assertTrue((self.folder / f"link-{name}").is_symlink())
        self.assertEqual((self.folder / "old.svg").stat().st_mode & 0o777, 0o640)
        self.assertEqual(run(*command, self.folder / "a.svg").returncode, 0)
        self.assertEqual((self.folder / "a.svg.part").read_text(), "mine")

    def test_pictures(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny")
        if shutil.which("gnuplot") is None:
            self.refused(1, "bench", model, "-r", "1", "--seconds", "0", "--plot", self.folder / "a.svg", says="gnuplot-nox")
            return
        text = json.loads((model / "config.json").read_text())
        work = self.folder / "work"
        work.mkdir()
        quick = ("-p", "2", "-r", "1", "--seconds", "0", "-t", "1", "--plot")
        for number, name in enumerate(HOSTILE[::3] if SANITIZED else HOSTILE):
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
        jsonschema.Draft202012Validator.check_schema(SCHEMA)


if __name__ == "__main__":
    unittest.main()
