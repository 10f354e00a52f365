// All layers of a model: MOE_TEST_MODEL (made by make_checkpoint --shape tiny --layers 4); and the programs of the README.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { after, before, describe as group, test } from "node:test";
import * as moe from "libmoe";

const directory = process.env.MOE_TEST_MODEL;
const folder = mkdtempSync(join(tmpdir(), "libmoe-"));
after(() => rmSync(folder, { recursive: true }));
const code = (name) => (error) => error instanceof moe.MoeError && error.code === name && error.message.length > 0;
const numbers = (type, name) => new type(Uint8Array.from(readFileSync(join(directory, name))).buffer);
const [hidden, routerLogits] = [numbers(Uint16Array, "hidden.bin"), numbers(Float32Array, "logits.bin")];
const results = async (layer) => await layer.apply({ hidden, routerLogits });

const half = { parallel: { tp_size: 2, tp_rank: 1, enable_expert_parallel: true } }; // of the experts

/** A copy of the model with some members of config.json changed. */
function changed(name, members) {
  const copy = join(folder, name);
  cpSync(directory, copy, { recursive: true });
  const config = JSON.parse(readFileSync(join(copy, "config.json"), "utf8"));
  writeFileSync(join(copy, "config.json"), JSON.stringify({ ...config, ...members }));
  return copy;
}

let context, model, expected;
before(async () => {
  context = new moe.Context({ threads: 2 });
  model = await moe.Checkpoint.open(directory, { context });
  expected = [];
  for (let i = 0; i < 4; ++i) { // by the calls for a single layer
    const config = moe.Config.fromHf(readFileSync(join(directory, "config.json"), "utf8"), { layer_index: i });
    const [selection, weights] = [new moe.Selection(config), new moe.Weights(config)];
    weights.loadSafetensors(directory);
    expected.push(await results(new moe.Layer(selection, moe.convertSync(selection, weights))));
  }
  assert.notDeepEqual(expected[0], expected[1]);
});

group("a model", () => {
  test("is described", async () => {
    assert.equal(model.layerCount, 4);
    assert.deepEqual(model.layers[3], {
      layer: 3, kind: "experts", isMtp: false, isConverted: false, topK: 2, numExperts: 4, hiddenDim: 64, intermediateSize: 32,
      bytes: 26112, name: "model.layers.3.mlp.experts", problem: "",
    });
    const { report } = model;
    assert.equal(report.class, "Qwen3MoeForCausalLM");
    assert.equal(report.layers[3].name, model.layerInfo(3).name);
    assert.match(await model.fingerprint(), /^fast:xxh3:[0-9a-f]{16}$/);
    assert.match(await model.fingerprint({ context, full: true }), /^full:xxh3:[0-9a-f]{16}$/);
    const router = await model.tensor(report.layers[3].router[0]);
    assert.ok(router instanceof moe.Tensor && router.data instanceof Uint16Array);
    assert.deepEqual([router.dtype, router.shape], ["bf16", [4, 64]]);
    const own = moe.Config.fromHf(readFileSync(join(directory, "config.json"), "utf8"), { layer_index: 3 });
    assert.deepEqual(model.config(3).document, own.document);
    assert.equal(model.config(3, half).getInt("/num_local_experts"), 2);
    assert.equal((await moe.Checkpoint.open(directory, { options: { overrides: { top_k: 1 } } })).config(0).getInt("/top_k"), 1);
  });
  test("its layers give the bytes of the calls for a single layer", async () => {
    for (let i = 0; i < 4; ++i) {
      assert.deepEqual(await results(await model.layer(i, { context })), expected[i]);
      const config = model.config(i);
      const [selection, weights] = [new moe.Selection(config, { context }), new moe.Weights(config)];
      weights.loadCheckpoint(model);
      for (const packed of [await moe.convert(selection, weights), await model.packed(selection, { context })])
        assert.deepEqual(await results(new moe.Layer(selection, packed)), expected[i]);
    }
    const all = await Promise.all([0, 1, 2, 3].map((i) => model.layer(i))); // at once
    for (let i = 0; i < 4; ++i) assert.deepEqual(await results(all[i]), expected[i]);
  });
  test("options of a layer", async () => {
    const platform = new moe.Platform();
    const expertMap = new moe.Tensor(Int32Array.of(0, 1, 2, 3), [4]);
    const patch = { parallel: { tp_size: 1 } };
    assert.deepEqual(await results(await model.layer(1, { platform, expertMap, patch, allowFallback: true })), expected[1]);
    await assert.rejects(model.layer(1, { expertMap: new moe.Tensor(new Int32Array(3), [3]) }), code("MOE_ERR_SHAPE"));
    await assert.rejects(model.layer(1, { patch: { top_k: "two" } }), code("MOE_ERR_INVALID_CONFIG"));
    await assert.rejects(model.layer(1, { patch: 5 }), /document: expected JSON text or an object, found Number/);
    await assert.rejects(model.layer(1, { platform: context }), /platform: expected a libmoe platform, found Context/);
    await assert.rejects(model.layer(1.5), /layer: expected an integer/);
    const selection = new moe.Selection(model.config(1));
    await assert.rejects(model.packed(selection, { context: platform }), /ctx: expected a libmoe context, found Platform/);
  });
  test("is converted, and opened again", async () => {
    const target = join(folder, "converted");
    await model.convert(target, { context, layers: [2] });
    const part = await moe.Checkpoint.open(target);
    assert.deepEqual(part.layers.map((l) => l.isConverted), [false, false, true, false]);
    await assert.rejects(part.layer(0), code("MOE_ERR_MISSING_WEIGHT"));
    await model.convert(target);
    await model.convert(target, { verify: true, platform: new moe.Platform() });
    const converted = await moe.Checkpoint.open(target, { context });
    assert.ok(converted.layers.every((l) => l.isConverted && l.kind === "experts" && l.bytes > 0));
    assert.equal(converted.report.converted.source, await model.fingerprint());
    assert.equal(await converted.fingerprint(), await model.fingerprint());
    for (let i = 0; i < 4; ++i)
      for (const how of [{}, { mmap: false, verify: true }, { prefault: true }])
        assert.deepEqual(await results(await converted.layer(i, { context, ...how })), expected[i]);
    const selection = new moe.Selection(converted.config(1));
    assert.deepEqual(await results(new moe.Layer(selection, await converted.packed(selection))), expected[1]);
    await assert.rejects(converted.tensor("model.layers.1.mlp.gate.weight"), code("MOE_ERR_UNSUPPORTED"));
    assert.throws(() => new moe.Weights(converted.config(1)).loadCheckpoint(converted), code("MOE_ERR_UNSUPPORTED"));
    await assert.rejects(converted.convert(join(folder, "again")), code("MOE_ERR_UNSUPPORTED"));
    const other = await moe.Checkpoint.open(changed("other", { rope_theta: 5 }));
    await assert.rejects(other.convert(target), code("MOE_ERR_CONFIG_MISMATCH"));
    await assert.rejects(model.convert(target, { patch: half }), code("MOE_ERR_CONFIG_MISMATCH"));
    assert.deepEqual(readdirSync(target).filter((name) => name.startsWith("layer-")).length, 4);
  });
  test("progress tells the phase, the layer and the bytes", async () => {
    const seen = [];
    const onProgress = (done, total, state) => seen.push({ given: [done, total], ...state });
    const last = () => seen.splice(0).at(-1);
    await moe.Checkpoint.open(directory, { onProgress });
    const opened = last();
    assert.deepEqual([opened.phase, opened.unit, opened.given, opened.layer], ["open", "files", [8, 8], null]);
    await model.convert(join(folder, "watched"), { onProgress });
    for (let i = 1; i < seen.length; ++i) assert.ok(seen[i].bytesDone >= seen[i - 1].bytesDone);
    assert.ok(seen.every((s) => s.layersTotal === 4 && s.given[0] === s.done && s.given[1] === s.total));
    const { phase, unit, layer, layersDone, bytesDone, bytesTotal } = last();
    assert.deepEqual([phase, unit, layer, layersDone, bytesDone], ["save", "bytes", 3, 4, bytesTotal]);
    await model.layer(2, { onProgress });
    const converted = last();
    assert.deepEqual([converted.phase, converted.unit, converted.layer], ["convert", "experts", 2]);
    const loaded = await moe.Checkpoint.open(join(folder, "watched"));
    await loaded.layer(1, { mmap: false, onProgress });
    assert.deepEqual(last().phase, "load");
    await model.fingerprint({ full: true, onProgress });
    assert.deepEqual(last().phase, "hash");
    for (const run of [(watch) => moe.Checkpoint.open(directory, watch), (watch) => model.layer(0, watch), (watch) => model.fingerprint(watch),
                       (watch) => model.packed(new moe.Selection(model.config(0)), watch), (watch) => model.convert(join(folder, "stopped"), watch)]) {
      await assert.rejects(run({ signal: AbortSignal.abort() }), { name: "AbortError" });
      await assert.rejects(run({ onProgress() { throw new Error("mine"); } }), /^Error: mine$/);
    }
  });
});

group("errors", () => {
  test("places that are none", async () => {
    for (const layer of [4, -1]) {
      const past = (error) => code("MOE_ERR_INVALID_ARGUMENT")(error) && error.details.reason === "past_the_end";
      assert.throws(() => model.config(layer), past);
      assert.throws(() => model.layerInfo(layer), past);
      await assert.rejects(model.layer(layer), past);
      await assert.rejects(model.convert(join(folder, "none"), { layers: [0, layer] }), past);
    }
    const mixed = await moe.Checkpoint.open(changed("mixed", { mlp_only_layers: [1] }));
    assert.deepEqual(mixed.layers.map((l) => l.kind), ["experts", "dense", "experts", "experts"]);
    const dense = (error) => code("MOE_ERR_INVALID_CONFIG")(error) && error.details.reason === "dense_layer";
    assert.throws(() => mixed.config(1), dense);
    await assert.rejects(mixed.layer(1), dense);
    await assert.rejects(model.tensor("none"), code("MOE_ERR_MISSING_WEIGHT"));
    await assert.rejects(model.tensor("a\0b"), /name: expected a string without NUL/);
    for (const [layers, text] of [[[], /found \[\]/], [[0.5], /found \[0.5\]/], [3, /found 3/]])
      await assert.rejects(model.convert(join(folder, "none"), { layers }), text);
    assert.ok(!readdirSync(folder).includes("none"));
  });
  test("a layer that is not understood says why", async () => {
    const strange = await moe.Checkpoint.open(changed("strange", { hidden_act: "none" }));
    assert.ok(strange.layerCount === 4 && strange.layerInfo(0).problem.length > 0);
    await assert.rejects(strange.layer(0), moe.MoeError);
  });
  test("files that are not there are Node's own errors, too", async () => {
    const none = join(folder, "no", "such");
    const refused = (errno, name, path) => (error) => {
      assert.ok(error instanceof moe.MoeError);
      assert.deepEqual([error.code, error.errno, error.path, error.status, error.statusName],
                       [name, errno, path, moe.constants.MOE_ERR_IO, "MOE_ERR_IO"]);
      return true;
    };
    await assert.rejects(moe.Checkpoint.open(none), refused(-2, "ENOENT", join(none, "config.json")));
    await assert.rejects(model.convert(none), refused(-2, "ENOENT", none));
    await assert.rejects(moe.Packed.load(none), refused(-2, "ENOENT", none));
    assert.throws(() => new moe.Weights(model.config(0)).loadSafetensors(none), refused(-2, "ENOENT", none));
    const file = join(folder, "file");
    writeFileSync(file, "");
    await assert.rejects(model.convert(join(file, "inside")), refused(-20, "ENOTDIR", join(file, "inside")));
    await assert.rejects(moe.Checkpoint.open(file), refused(-20, "ENOTDIR", file));
  });
  test("closed handles, and handles of another kind", async () => {
    const closed = await moe.Checkpoint.open(directory);
    const kept = await closed.layer(1);
    const gone = (error) => code("MOE_ERR_INVALID_HANDLE")(error) && error.subject === "checkpoint" && /this checkpoint is closed/.test(error.message);
    const selection = new moe.Selection(closed.config(0));
    const weights = new moe.Weights(closed.config(0));
    closed.close();
    closed.close();
    assert.ok(closed.closed);
    for (const use of [() => closed.layerCount, () => closed.layers, () => closed.layerInfo(0), () => closed.report, () => closed.config(0),
                       () => weights.loadCheckpoint(closed)]) assert.throws(use, gone);
    for (const use of [closed.layer(0), closed.packed(selection), closed.convert(join(folder, "none")), closed.tensor("x"), closed.fingerprint()])
      await assert.rejects(use, gone);
    assert.deepEqual(await results(kept), expected[1]); // keeps what it needs
    const platform = new moe.Platform();
    platform.close();
    await assert.rejects(model.layer(0, { platform }), code("MOE_ERR_INVALID_HANDLE"));
    assert.throws(() => weights.loadCheckpoint(model.config(0)), /checkpoint: expected a libmoe checkpoint, found Config/);
    assert.throws(() => new moe.Checkpoint(5n), TypeError);
  });
  test("close during calls waits for them, with all that they use", async () => {
    const [busy, platform] = [await moe.Checkpoint.open(directory), new moe.Platform()];
    const target = join(folder, "during");
    const running = [busy.layer(0, { platform }), busy.layer(1, { platform }), busy.convert(target, { platform }), busy.fingerprint({ full: true })];
    busy.close();
    platform.close();
    await assert.rejects(busy.layer(0), code("MOE_ERR_INVALID_HANDLE"));
    const done = await Promise.all(running);
    for (const i of [0, 1]) assert.deepEqual(await results(done[i]), expected[i]);
    assert.equal((await moe.Checkpoint.open(target)).layers.filter((l) => l.isConverted).length, 4);
  });
});

group("the README", () => {
  const programs = readFileSync(new URL("../README.md", import.meta.url), "utf8").split("```js\n").slice(1).map((text) => text.split("```")[0]);
  const run = (program, name) => {
    const place = join(folder, name);
    mkdirSync(join(place, "node_modules"), { recursive: true });
    symlinkSync(fileURLToPath(new URL("..", import.meta.url)), join(place, "node_modules", "libmoe"));
    if (name !== "empty") symlinkSync(name === "other" ? changed("bitsandbytes", { quantization_config: { quant_method: "bitsandbytes" } }) : directory, join(place, "checkpoint"));
    writeFileSync(join(place, "program.mjs"), program);
    return spawnSync(process.execPath, ["program.mjs"], { cwd: place, encoding: "utf8" });
  };
  test("its programs run", () => {
    assert.equal(programs.length, 2);
    for (const [i, expectation] of [/^\w+ Uint16Array\(64\)/, /^4 layers Uint16Array\(64\)/].entries()) {
      const { status, stdout, stderr } = run(programs[i], `program${i}`);
      assert.deepEqual([status, stderr], [0, ""]);
      assert.match(stdout, expectation);
    }
  });
  test("its program of a model says what is not there", () => {
    const { status, stderr } = run(programs[1], "empty");
    assert.deepEqual([status, stderr], [0, "not there: checkpoint/config.json\n"]);
  });
  test("its program of a model says what is not understood", () => {
    const { status, stderr } = run(programs[1], "other");
    assert.equal(status, 1);
    assert.match(stderr, /MoeError.*bitsandbytes/);
  });
});
