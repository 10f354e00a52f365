"""Ctrl-C stops a long call of the main thread, whatever it does; a real SIGINT each time."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = pathlib.Path(__file__).parent
E, H, I, LAYERS = 64, 2048, 768, 8

BEGIN = """
    import os, signal, sys, threading, time, types
    import libmoe, numpy as np
    sent = []
    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    def timed(call, begun=None):
        threading.Thread(target=lambda: (begun.wait() if begun else time.sleep(0.3), interrupt())).start()
        try:
            call()
            print("the call ended", time.monotonic() - sent[-1] if sent else "before the signal")
        except KeyboardInterrupt:
            waited = time.monotonic() - sent[-1]
            print("ok" if waited < 1 else f"after {waited} s")
    class Bar:
        n, desc = 0, ""
        def __init__(self, total, **options): self.total = total
        def set_description(self, text, refresh): self.desc = text + ": "
        def update(self, more): self.n += more
        def close(self): pass
    tqdm = types.ModuleType("tqdm.auto")
    tqdm.tqdm = Bar
    sys.modules["tqdm"] = sys.modules["tqdm.auto"] = tqdm
    folder = sys.argv[1]
    model = libmoe.open(folder + "/model", libmoe.Context(threads=1))
    """


def write_model(folder):
    """A model of zeros, 300 MB a layer, in a file that takes no room."""
    header, end = {}, 0
    for number in range(LAYERS):
        for expert in range(E):
            for name, shape in (("gate_proj", (I, H)), ("up_proj", (I, H)), ("down_proj", (H, I))):
                weight = f"model.layers.{number}.mlp.experts.{expert}.{name}.weight"
                for end_of_name, dtype, size in (("", "I8", shape[1]), ("_scale", "BF16", shape[1] // 32)):
                    first, end = end, end + shape[0] * size * (2 if dtype == "BF16" else 1)
                    header[weight + end_of_name] = {"dtype": dtype, "shape": (shape[0], size), "data_offsets": [first, end]}
    text = json.dumps(header).encode()
    folder.mkdir()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
    inputs = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu", "hidden_size": H,
        "intermediate_size": H, "moe_intermediate_size": I, "num_experts": E, "num_experts_per_tok": 2,
        "num_hidden_layers": LAYERS, "mlp_only_layers": [], "decoder_sparse_step": 1, "norm_topk_prob": True,
        "torch_dtype": "bfloat16", "quantization_config": {
            "quant_method": "compressed-tensors", "format": "int-quantized",
            "config_groups": {"g": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}}}}))


class Signals(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        write_model(self.folder / "model")

    def outputs(self, text):
        path = filter(None, (str(HERE), os.environ.get("PYTHONPATH")))
        run = subprocess.run([sys.executable, "-X", "dev", "-c", textwrap.dedent(BEGIN) + textwrap.dedent(text), self.folder],
                             env={**os.environ, "PYTHONPATH": os.pathsep.join(path)}, text=True, timeout=120,
                             capture_output=True, check=False)
        self.assertEqual(run.stderr, "", run.stdout)
        return run.stdout.split("\n")[:-1]

    def test_each_way_to_convert_and_to_hash(self):
        self.assertEqual(self.outputs("""
            seen, begun = [], threading.Event()
            def watch(*numbers):
                seen.append(threading.current_thread())
                begun.set()
            timed(lambda: model.convert(folder + "/converted", progress=watch), begun)
            for how in ({"progress": "tqdm"}, {}):
                timed(lambda: model.convert(folder + "/converted", **how))
            print("progress", set(seen) == {threading.main_thread()})
            timed(lambda: [model.fingerprint(full=True) for _ in range(30)])
            """), ["ok"] * 3 + ["progress True", "ok"])

    def test_a_layer_a_file_and_a_batch(self):
        self.assertEqual(self.outputs("""
            layer = model.layer(0)
            packed = model.packed(libmoe.Selection(model.config(0)))
            hidden = np.zeros((30000, layer.hidden_dim), np.uint16)
            logits = np.zeros((len(hidden), layer.num_experts), np.float32)
            for how in ({}, {"control": libmoe.Control(lambda *numbers: None)}):
                timed(lambda: layer.apply(hidden, logits, **how))
            timed(lambda: [packed.save(folder + "/packed.moe") for _ in range(30)])
            timed(lambda: [model.layer(1, progress=lambda *numbers: None) for _ in range(30)])
            weights = libmoe.Weights(model.config(0))
            weights.load_checkpoint(model)
            timed(lambda: [libmoe.convert(libmoe.Selection(model.config(0)), weights) for _ in range(30)])
            """), ["ok"] * 5)

    def test_what_other_handlers_raise_and_what_is_used_again(self):
        self.assertEqual(self.outputs("""
            def term(*_):
                raise SystemExit("enough")
            signal.signal(signal.SIGINT, term)
            threading.Timer(0.3, interrupt).start()
            try:
                model.convert(folder + "/converted", progress=lambda *numbers: None)
            except SystemExit as error:
                print(error)
            came = []
            signal.signal(signal.SIGINT, lambda *_: came.append(print("goes on")))
            threading.Timer(0.1, interrupt).start()
            while not came:
                model.layer(0).close()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            control = libmoe.Control()
            timed(lambda: model.convert(folder + "/converted", control=control))
            try:
                model.layer(0, control=control)
            except libmoe.Cancelled:
                print("cancelled")
            def close(*_):
                try:
                    model.close()
                except libmoe.Busy:
                    print("busy")
                raise KeyboardInterrupt
            signal.signal(signal.SIGINT, close)
            timed(lambda: model.convert(folder + "/converted"))
            """), ["enough", "goes on", "ok", "cancelled", "busy", "ok"])

    def test_signals_like_hail(self):
        self.assertEqual(self.outputs("""
            def hail():
                for _ in range(100):
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.002)
            def within(signal, frame):
                if frame.f_code.co_filename.endswith("_errand.py"):
                    raise KeyboardInterrupt
            signal.signal(signal.SIGINT, within)
            stopped, thread = 0, threading.Thread(target=hail)
            thread.start()
            while thread.is_alive():
                try:
                    model.fingerprint(full=True, progress=lambda *numbers: None)
                except KeyboardInterrupt:
                    stopped += 1
            print(stopped > 3)
            """), ["True"])


if __name__ == "__main__":
    unittest.main()
