#!/usr/bin/env python3
"""Every command on checkpoints of every format: texts, documents and exit codes."""
import hashlib
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import time
import unittest

from moe_tool import SANITIZED, TOOL, VECTORS, Case, document, make_checkpoint, run

FORMATS = ("int", "pack", "fp8-channel", "fp8-block", "mxfp8", "mxfp4", "nvfp4", "bf16", "auto-round-gptq", "quark-int4",
           "modelopt-int4-awq", "modelopt-mixed", "torchao-int8-stacked", "bitsandbytes-int8")
SHAPES = ("tiny", "tiny_mixtral", "tiny_deepseek", "tiny_gptoss")
QUICK = ("-p", "4", "-n", "1", "-r", "2", "--seconds", "0", "-t", "1")


def some(items):
    """All of them; under a sanitizer every tenth."""
    return items[::10] if SANITIZED else items


def bytes_of(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir()) if not p.name.startswith(".")}


class Commands(Case):
    def whole_way(self, model):
        """inspect, why, convert twice, inspect, check with the source, bench."""
        out = self.folder / "out"
        found, code = document("inspect", model)
        self.assertEqual(code, 0, found)
        self.assertTrue(found["fits"])
        kernel = found["rows"][0]["kernel"]
        reasons, code = document("why", model)
        self.assertEqual((code, reasons["kernel"]), (0, kernel))
        self.assertEqual([c["kernel"] for c in reasons["candidates"] if c["chosen"]], [kernel])
        made, code = document("convert", model, out)
        self.assertEqual((code, made["layers_made"]), (0, len(made["layers"])))
        before = bytes_of(out)
        again, code = document("convert", model, out)
        self.assertEqual((code, again["layers_made"]), (0, 0))
        self.assertEqual(bytes_of(out), before)
        there, code = document("inspect", out)
        self.assertEqual((code, there["converted"]["source"]), (0, made["converted"]["source"]))
        checked, code = document("check", out, model)
        self.assertEqual(code, 0, checked)
        for layer in checked["layers"]:
            self.assertTrue(layer["hashes"])
            self.assertLessEqual(layer["relative_error"], layer["allowed_error"])
            self.assertGreater(layer["relative_error"], 0)
            self.assertGreater(layer["experts_compared"], 0)
        measured, code = document("bench", out, *QUICK)
        self.assertEqual((code, len(measured["rows"])), (0, 2))
        self.assertEqual(measured["model"]["layers_measured"], len(made["layers"]))
        return made

    def test_generated(self):
        for number, (shape, kind) in enumerate(some([(s, None) for s in SHAPES] + [("tiny", f) for f in FORMATS])):
            with self.subTest(shape=shape, format=kind):
                self.folder = self.folder.parent / f"{self.folder.name}-{number}" if number else self.folder
                self.folder.mkdir(exist_ok=True)
                self.addCleanup(subprocess.run, ["rm", "-rf", str(self.folder)], check=False)
                more = ["--format", kind] if kind else []
                self.whole_way(make_checkpoint(self.folder / "model", "--shape", shape, "--layers", "2", *more))

    def test_what_tools_wrote(self):
        """All of tests/vectors/hf_quantized: each is read or refused in words, converted and compared where it is read."""
        seen = 0
        for model in some(sorted(p.parent for p in VECTORS.rglob("config.json"))):
            with self.subTest(model=model.name):
                done = run("inspect", model)
                self.assertIn(done.returncode, (0, 1), done.stderr)
                self.assertTrue(done.stdout or done.stderr.startswith("moe: "))
                seen += 1
                if done.returncode:
                    continue
                out = self.folder / model.name
                self.assertEqual(run("convert", model, out).returncode, 0)
                checked, code = document("check", out, model)
                self.assertEqual(code, 0, checked)
        self.assertGreater(seen, 0 if SANITIZED else 20)

    def test_shapes_without_files(self):
        for form in some(("w4a8-channel", "w8a8-channel", "w4a16-g32", "w8a16-channel", "fp8-channel", "mxfp8", "mxfp4", "nvfp4",
                          "bf16")):
            with self.subTest(format=form):
                found, code = document("bench", "--shape", "qwen3-30b-a3b", "--format", form, "--layers", "1", *QUICK)
                self.assertEqual(code, 0)
                self.assertEqual((found["model"]["layers"], found["model"]["layers_measured"]), (48, 1))
                self.assertGreater(found["rows"][0]["tokens_per_second"], 0)

    def test_experts_that_stayed_plain(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny", "--format", "bf16")
        config = json.loads((model / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
        (model / "config.json").write_text(json.dumps(config))
        self.assertIn("quantized as config.json says, but for its experts", " ".join(run("inspect", model).stdout.split()))

    def test_doctor(self):
        found, code = document("doctor", "--seconds", "0.05")
        self.assertEqual(code, 0)
        self.assertGreater(found["bandwidth"]["bytes_per_second"], 1e8)
        self.assertTrue(os.path.samefile(found["library"]["path"], os.path.join(os.path.dirname(TOOL), "libmoe.so.0")))
        self.assertEqual(found["library"]["version"], run("--version").stdout.split()[1])
        processor = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
        self.assertEqual(found["isa"].get("avx2", False), " avx2 " in processor)
        self.assertEqual(found["memory"]["total_bytes"], os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))

    @unittest.skipUnless(shutil.which("lscpu"), "needs lscpu")
    def test_caches_of_all_sockets_count(self):
        done = subprocess.run(["lscpu", "-B", "-C=LEVEL,ALL-SIZE"], capture_output=True, text=True, check=False)
        sizes = [tuple(map(int, line.split())) for line in done.stdout.splitlines()[1:]]
        if not sizes:
            self.skipTest("the system does not say")
        self.assertEqual(document("doctor", "--seconds", "0")[0]["cpu"]["l3_bytes"], max(sizes)[1])

    def test_control_groups(self):
        """Files that a group has in memory can be dropped: what they take is free."""
        for name, text in (("memory.max", "400000000"), ("memory.current", "390000000"), ("cpu.max", "150000 100000"),
                           ("memory.stat", "anon 40000000\nactive_file 50000000\ninactive_file 300000000\n")):
            (self.folder / name).write_text(text + "\n")
        inside = f"mount --bind '{self.folder}' /sys/fs/cgroup && exec '{TOOL}' doctor --json --seconds 0"
        done = subprocess.run(["unshare", "-rm", "sh", "-c", inside], capture_output=True, text=True, check=False)
        if not done.stdout or "0::" not in pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8"):
            self.skipTest(f"no such groups can be made here: {done.stderr}")
        found = json.loads(done.stdout)
        self.assertEqual((found["memory"]["limit_bytes"], found["memory"]["available_bytes"]), (400000000, 360000000))
        self.assertEqual(found["cpu"]["quota_cpus"], 1.5)

    def test_why_for_other_machines(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny", "--format", "pack")
        chosen = {}
        for machine in ("scalar", "avx2", "avx512", "arm"):
            found, code = document("why", model, "--for", machine)
            self.assertEqual(code, 0)
            chosen[machine] = found["kernel"]
        self.assertEqual(len(set(chosen.values())), 4, chosen)
        found, code = document("why", model, "--kernel", "scalar")
        self.assertEqual((code, len(found["candidates"])), (0, 1))
        found, code = document("why", model, "--for", "scalar", "--kernel", "avx2")
        self.assertEqual(code, 1)
        self.assertIn("avx2", found["candidates"][0]["detail"])
        self.refused(2, "why", model, "--kernel", "avx3", says="no candidate for layer 0 has such a name")
        platform = self.folder / "machine.json"
        platform.write_text('{"type":"cpu","arch":"x86_64","features":["avx2","fma","f16c"]}')
        self.assertEqual(document("why", model, "--for", platform)[0]["kernel"], chosen["avx2"])

    def test_damage_is_found(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny", "--layers", "3")
        other = make_checkpoint(self.folder / "other", "--shape", "tiny", "--layers", "3", "--seed", "5")
        out = self.folder / "out"
        self.assertEqual(run("convert", model, out).returncode, 0)
        found, code = document("check", out, other)
        self.assertEqual((code, found["fingerprint"]["equal"]), (1, False))
        text = run("check", out, other).stdout
        self.assertIn("yes 3 of 3 layers: all hashes are right", text)
        self.assertIn("differs from what the source converts to", text)
        self.assertNotIn("byte for byte the same", text)
        self.assertNotIn("--verify", text)  # makes nothing of another source
        self.refused(2, "check", out, out, says="is a converted model too")
        victim = out / "layer-00001.moe"
        data = bytearray(victim.read_bytes())
        data[-100] ^= 1
        victim.write_bytes(data)
        found, code = document("check", out)
        self.assertEqual((code, [layer["ok"] for layer in found["layers"]]), (1, [True, False, True]))
        self.assertIn("no 2 of 3 layers: all hashes are right", run("check", out).stdout)
        self.assertEqual(run("convert", model, out, "--verify").returncode, 0)
        self.assertEqual(document("check", out, model)[1], 0)

    def test_layers(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny", "--layers", "5")
        out = self.folder / "out"
        self.assertEqual(document("convert", model, out, "--layers", "0,2-3")[0]["layers"], [0, 2, 3])
        self.assertEqual(document("check", out)[0]["not_converted"], [1, 4])
        found, code = document("inspect", out)
        self.assertEqual((code, found["layers_that_run"], found["layers_not_converted"]), (0, 3, 2))
        self.assertEqual(found["packed_bytes"], sum(p.stat().st_size for p in out.glob("layer-*.moe")))
        self.assertIn("not converted", run("inspect", out).stdout)
        none = self.folder / "later"
        self.assertEqual(run("convert", model, none, "--layers", "3").returncode, 0)
        self.assertEqual(document("why", none)[0]["layer"], 3)
        found = document("bench", out, *QUICK)[0]
        self.assertEqual((found["model"]["layers"], found["model"]["layers_measured"]), (5, 3))
        found = document("check", out, "--layers", "2")[0]
        self.assertEqual(([layer["layer"] for layer in found["layers"]], found["not_proven"][-2]), ([2], "layers other than those of --layers"))
        self.assertEqual(document("convert", model, out)[0]["layers_made"], 2)
        for wrong in (",", "1,", "3-1", "-1", "x", "0-99999999999999999999", "9"):
            self.refused(2, "convert", model, out, f"--layers={wrong}", says=f"--layers '{wrong}'")

    def test_figures_of_bench_agree(self):
        """A token reads top_k of the experts; tokens/s of all layers follow from those that were measured."""
        model = make_checkpoint(self.folder / "model", "--shape", "tiny", "--layers", "4")
        facts = document("inspect", model)[0]["layers"][0]
        for more, measured in (((), 4), (("--layers", "1-2"), 2)):
            found, code = document("bench", model, "-p", "1", "-n", "1", "-r", "1", "--seconds", "0", "-t", "1", *more)
            self.assertEqual((code, found["model"]["layers_measured"]), (0, measured))
            self.assertEqual(found["model"]["packed_bytes"], measured * facts["packed_bytes"])
            for row in found["rows"]:
                read = facts["top_k"] / facts["num_experts"] * 4 * facts["packed_bytes"]
                self.assertAlmostEqual(row["bytes_per_second"] / row["tokens_per_second"], read, places=3)
                best = max(row["probe_before"], row["probe_after"])
                self.assertAlmostEqual(row["share_of_probe"], row["bytes_per_second"] / best, places=9)
                self.assertEqual((row["deviation"], row["spread"]), (0, 0))

    def test_folders_of_other_machines(self):
        """A folder that no kernel here reads is told by every command; for its machine it is fine."""
        model = make_checkpoint(self.folder / "model", "--shape", "tiny", "--layers", "2", "--format", "pack")
        other, out = "avx2" if platform.machine() == "aarch64" else "arm", self.folder / "out"
        text = run("convert", model, out, "--for", other).stdout
        self.assertIn("then moe bench there", text)
        found, code = document("inspect", out)
        self.assertEqual((code, found["layers_that_run"], found["layers"][0]["kernel"]), (1, 0, ""))
        self.assertIn("packed as", found["layers"][0]["problem"])
        found, code = document("why", out)
        self.assertEqual((code, [c["accepted"] for c in found["candidates"] if c["accepted"]]), (1, []))
        self.assertNotIn("moe bench", run("why", out).stdout)
        self.refused(1, "bench", out, *QUICK, says="packed as")
        for command in ("inspect", "why"):
            self.assertEqual(document(command, out, "--for", other)[1], 0)
            self.assertNotIn("moe bench", run(command, out, "--for", other).stdout)
        found, code = document("check", out, model)
        self.assertEqual((code, found["layers"][0]["experts_compared"]), (0, 1))
        self.assertIn("packed as", found["layers"][0]["not_run"])

    def test_proposed_commands_are_for_the_same_machine(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny", "--format", "pack")
        last = lambda *args: run(*args).stdout.splitlines()[-1]
        self.assertEqual(last("inspect", model, "--for", "avx2"), f"next: moe convert {model} OUT --for avx2")
        self.assertEqual(last("why", model, "--for", "avx2"), f"next: moe convert {model} OUT --for avx2")
        self.assertIn("100.0 KB may be taken\n", run("inspect", model, "--memory", "100KB").stdout)
        self.assertIn(" is free on this machine\n", run("inspect", model, "--for", "avx2").stdout)
        self.assertEqual(last("inspect", model, "--for", "cuda:9.0"), f"next: moe why {model} --layer 0 --for cuda:9.0")

    def test_interrupted(self):
        """Ctrl-C leaves whole layers, says so, and ends with 130; the same command goes on."""
        layers = 5 if SANITIZED else 8
        model = make_checkpoint(self.folder / "model", "--shape", "qwen3", "--experts", "16", "--layers", str(layers), "--format", "pack")
        out = self.folder / "out"
        process = subprocess.Popen([TOOL, "convert", str(model), str(out), "-t", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not (out / "manifest.json").exists():
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        text = process.communicate()[1]
        self.assertEqual(process.returncode, 130, text)
        self.assertIn("the same command goes on", text)
        left = len(json.loads((out / "manifest.json").read_text())["layers"])
        self.assertLess(left, layers)
        made = document("convert", model, out)[0]
        self.assertEqual((made["layers_made"], len(made["layers"])), (layers - left, layers))
        self.assertEqual(document("check", out, model)[1], 0)

    def test_closed_and_full_outputs(self):
        model = make_checkpoint(self.folder / "model", "--shape", "tiny")
        reader, writer = os.pipe()
        os.close(reader)  # else a short text is in the pipe before its reader ends
        done = subprocess.run([TOOL, "why", str(model)], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGPIPE, ""))
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([TOOL, "inspect", str(model)], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)


if __name__ == "__main__":
    unittest.main()
