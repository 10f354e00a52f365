// The package on a tiny checkpoint: LIBMOE_PATH, MOE_TEST_CHECKPOINT (made by make_checkpoint --shape tiny).
// How handles are closed: bindings_examples/bindings/PROTOCOL.md, which names the tests of its rules.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe as group, test } from "node:test";
import koffi from "koffi";
import * as moe from "libmoe";

const checkpoint = process.env.MOE_TEST_CHECKPOINT;
const folder = mkdtempSync(join(tmpdir(), "libmoe-"));
after(() => rmSync(folder, { recursive: true }));
const numbers = (type, name) => new type(Uint8Array.from(readFileSync(join(checkpoint, name))).buffer);
const code = (name) => (error) => error instanceof moe.MoeError && error.code === name && error.message.length > 0;

let config, selection, weights, packed, layer, hidden, routerLogits, expected;
before(async () => {
  config = moe.Config.fromHf(readFileSync(join(checkpoint, "config.json"), "utf8"));
  selection = new moe.Selection(config);
  weights = new moe.Weights(config);
  weights.loadSafetensors(checkpoint);
  packed = await moe.convert(selection, weights);
  layer = new moe.Layer(selection, packed);
  [hidden, routerLogits] = [numbers(Uint16Array, "hidden.bin"), numbers(Float32Array, "logits.bin")];
  expected = layer.applySync({ hidden, routerLogits });
});

group("raw", () => {
  test("has every function of moe_abi.json, with as many parameters", () => {
    const file = process.env.MOE_ABI_JSON && JSON.parse(readFileSync(process.env.MOE_ABI_JSON, "utf8"));
    if (file) assert.deepEqual(moe.abi, file);
    assert.ok(moe.abi.functions.length >= 80);
    for (const { name, params } of moe.abi.functions) {
      assert.equal(typeof moe.raw[name], "function", name);
      assert.throws(() => moe.raw[name](...Array(params.length + 1).fill(null)), TypeError, name);
    }
  });
  test("constants are those of the header", () => {
    for (const { values } of moe.abi.enums)
      for (const [name, value] of Object.entries(values)) assert.equal(moe.constants[name], value);
  });
  test("refuses what is no memory, handle, text or number of the width", () => {
    const out = new BigUint64Array(1);
    assert.throws(() => moe.raw.moe_config_create(5, 1, out, null), /json: expected a typed array.*found number 5/);
    assert.throws(() => moe.raw.moe_config_to_json(5, out, null), /config: expected a handle/);
    assert.throws(() => moe.raw.moe_status_name(2 ** 31), /status: expected an integer/);
    assert.throws(() => moe.raw.moe_status_name(1.5), /status: expected an integer/);
    assert.throws(() => moe.raw.moe_has_feature("a\0b"), /name: expected a string without NUL/);
    assert.throws(() => moe.raw.moe_config_create(new Uint8Array(2), -1, out, null), /json_len: expected an integer/);
  });
  test("sizes and offsets of structs are those that a C compiler's rules give", () => {
    const types = { i32: "int32_t", u32: "uint32_t", i64: "int64_t", u64: "uint64_t", size: "size_t" };
    for (const { name, size, members } of moe.abi.structs) {
      const type = koffi.struct(Object.fromEntries(members.map((m) => {
        const plain = types[m.type.split(":")[0]] ?? "void *";
        return [m.name, m.count ? koffi.array(plain, m.count) : plain];
      })));
      assert.equal(koffi.sizeof(type), size, name);
      for (const m of members) assert.equal(koffi.offsetof(type, m.name), m.offset, `${name}.${m.name}`);
    }
  });
});

group("library", () => {
  const load = (path) =>
    spawnSync(process.execPath, ["--input-type=module", "-e", 'await import("libmoe")'],
              { env: { ...process.env, LIBMOE_PATH: path }, cwd: new URL("..", import.meta.url), encoding: "utf8" });
  test("another file is named", () => {
    assert.match(load("/no/such/libmoe.so.0").stderr, /cannot load libmoe from \/no\/such\/libmoe.so.0/);
    assert.match(load("libm.so.6").stderr, /libm.so.6 is not libmoe/);
  });
  test("another ABI: path and both numbers", { skip: !process.env.MOE_OTHER_ABI }, () => {
    const text = load(process.env.MOE_OTHER_ABI).stderr;
    assert.ok(text.includes(`${process.env.MOE_OTHER_ABI} is libmoe 9.9.9 of ABI 7; this package is for ABI 0`), text);
  });
  test("version and features", () => {
    assert.equal(moe.version(), moe.abi.version);
    assert.ok(moe.hasFeature("io.mmap") && !moe.hasFeature("none"));
    assert.equal(moe.buildInfo().version, moe.version());
    assert.ok(moe.configSchema().$schema);
    assert.equal(moe.describe("activation", { activation: "silu" }).gated, true);
  });
});

group("layer", () => {
  test("apply on another thread, many at once, gives the same bits", async () => {
    const all = await Promise.all(Array.from({ length: 400 }, () => layer.apply({ hidden, routerLogits })));
    for (const out of all) assert.deepEqual(out, expected);
  });
  test("routing outside gives the same bits", async () => {
    const { ids, weights: topkWeights } = moe.route(config, routerLogits);
    assert.deepEqual(await layer.apply({ hidden, topkIds: ids, topkWeights }), expected);
    const [outTopkIds, outTopkWeights] = [new Int32Array(ids.length), new Float32Array(ids.length)];
    layer.applySync({ hidden, routerLogits, outTopkIds, outTopkWeights });
    assert.deepEqual([outTopkIds, outTopkWeights], [ids, topkWeights]);
    layer.expertCounts({ reset: true });
    layer.applySync({ hidden, routerLogits });
    assert.equal(layer.expertCounts().reduce((a, b) => a + b), ids.length);
    assert.ok(layer.workspaceSize(4).bytes > 0);
  });
  test("an expert map of its own", () => {
    const expertMap = new moe.Tensor(Int32Array.of(0, 1, 2, 3), [4]);
    assert.deepEqual(new moe.Layer(selection, packed, { expertMap }).applySync({ hidden, routerLogits }), expected);
    const short = new moe.Tensor(new Int32Array(3), [3]);
    assert.throws(() => new moe.Layer(selection, packed, { expertMap: short }), code("MOE_ERR_SHAPE"));
  });
  test("saved, loaded, and as bytes", async () => {
    const file = join(folder, "layer.moe");
    const seen = [];
    await packed.save(file, { onProgress: (done, total) => seen.push([done, total]) });
    assert.ok(seen.length > 0 && seen.at(-1)[0] === seen.at(-1)[1]);
    for (const again of [await moe.Packed.load(file), await moe.Packed.load(file, { mmap: false, verify: true }),
                         moe.Packed.fromBytes(packed.toBytes())]) {
      const other = new moe.Layer(selection, again);
      again.close(); // the layer keeps what it needs
      assert.deepEqual(await other.apply({ hidden, routerLogits }), expected);
      other.close();
    }
    await assert.rejects(moe.Packed.load(join(folder, "none")), code("ENOENT"));
    await assert.rejects(moe.Packed.load(`${file}\0x`), /path: expected a string without NUL/);
    assert.throws(() => moe.Packed.fromBytes(new Uint8Array(100)), code("MOE_ERR_FORMAT"));
  });
  test("packed tensors by name", () => {
    const names = packed.report.outputs.map((output) => output.name);
    assert.ok(names.length > 0);
    const tensor = packed.get(names[0]);
    assert.equal(tensor.data.length, tensor.shape.reduce((a, b) => a * b)); // without the gaps between experts
    assert.deepEqual(packed.get(names[0], 1).data, tensor.data.slice(tensor.data.length / 4, tensor.data.length / 2));
    assert.throws(() => packed.get("none"), code("MOE_ERR_INVALID_ARGUMENT"));
    assert.ok(packed.dequantize("w2_weight", 0).data.some((v) => v !== 0));
  });
  test("selection with every candidate", () => {
    const { candidates } = selection;
    assert.equal(candidates.filter((c) => c.chosen).length, 1);
    assert.equal(candidates.find((c) => c.chosen).kernel, selection.kernel);
    assert.ok(candidates.some((c) => c.reason !== "MOE_REJECT_NONE" && c.detail));
    const platform = new moe.Platform({ type: "cpu", arch: "riscv64" });
    assert.equal(new moe.Selection(config, { platform, explainOnly: true }).candidates.length, candidates.length);
    assert.ok(selection.packedSize.bytes > 0 && selection.report.candidates.length === candidates.length);
    assert.ok(!platform.has("avx2") && platform.document.arch === "riscv64");
  });
  test("weights from arrays", async () => {
    const text = { num_experts: 2, top_k: 1, hidden_dim: 32, intermediate_size: 16, in_dtype: "float32", name: "m.experts" };
    const small = new moe.Config(text);
    const set = new moe.Weights(small);
    const w2 = () => new Float32Array(32 * 16).fill(0.5);
    set.set("w13_weight", new moe.Tensor(new Float32Array(2 * 32 * 32).fill(0.25), [2, 32, 32]));
    set.setExpert("w2_weight", 0, null, new moe.Tensor(w2(), [32, 16]));
    assert.deepEqual(set.report.missing.length > 0, true);
    assert.throws(() => moe.convertSync(new moe.Selection(small), set), code("MOE_ERR_MISSING_WEIGHT"));
    assert.equal(set.setNamed("m.experts.1.down_proj.weight", new moe.Tensor(w2(), [32, 16])), true);
    assert.equal(set.setNamed("other", new moe.Tensor(w2(), [32, 16])), false);
    globalThis.gc?.();
    assert.deepEqual(set.get("w2_weight", 1).data, w2());
    const choice = new moe.Selection(small);
    const out = new moe.Layer(choice, await moe.convert(choice, set)).applySync(
      { hidden: new Float32Array(32).fill(1), routerLogits: new Float32Array([1, 0]) });
    assert.ok(out.every((v) => v === out[0] && v > 0));
    assert.equal(small.merge({ top_k: 2 }).getInt("/top_k"), 2);
    assert.equal(small.getFloat("/routing/routed_scaling_factor"), 1);
  });
  test("weights of another layer are taken when asked for", async () => {
    const [first, second] = [0, 1].map((layer) => {
      const own = new moe.Config({ num_experts: 2, top_k: 1, hidden_dim: 32, intermediate_size: 16, in_dtype: "float32",
                                   name: `model.layers.${layer}.mlp.experts` });
      const set = new moe.Weights(own);
      set.set("w13_weight", new moe.Tensor(new Float32Array(2 * 32 * 32).fill(0.25), [2, 32, 32]));
      set.set("w2_weight_packed", new moe.Tensor(new Float32Array(2 * 32 * 16).fill(0.5), [2, 32, 16]));
      return { set, choice: new moe.Selection(own) };
    });
    const packed = moe.convertSync(first.choice, first.set);
    assert.throws(() => new moe.Layer(second.choice, packed), code("MOE_ERR_CONFIG_MISMATCH"));
    new moe.Layer(second.choice, packed, { anyName: true }).close();
    assert.throws(() => moe.convertSync(second.choice, first.set), code("MOE_ERR_CONFIG_MISMATCH"));
    moe.convertSync(second.choice, first.set, { anyName: true }).close();
    (await moe.convert(second.choice, first.set, { anyName: true })).close();
  });
  test("as many columns as the routing has", () => {
    const made = (routing) => {
      const settings = new moe.Config({ num_experts: 4, top_k: 2, hidden_dim: 32, intermediate_size: 16, in_dtype: "float32", routing });
      const set = new moe.Weights(settings);
      const held = 4 + (routing.num_fused_shared_experts ?? 0);
      set.set("w13_weight", new moe.Tensor(new Float32Array(held * 32 * 32).map((_, i) => (i % 7) / 8), [held, 32, 32]));
      set.set("w2_weight", new moe.Tensor(new Float32Array(held * 32 * 16).map((_, i) => (i % 5) / 8), [held, 32, 16]));
      const choice = new moe.Selection(settings);
      return [settings, new moe.Layer(choice, moe.convertSync(choice, set))];
    };
    const tokens = 3, rows = new Float32Array(tokens * 32).fill(1);
    const bias = Array(7).fill(0);
    for (const [routing, logits, slots, held] of [
      [{ num_fused_shared_experts: 1 }, 4, 3, 5],
      [{ num_zero_experts: 3, e_score_correction_bias: bias }, 7, 2, 4],
      [{ num_shared_logits: 1, scoring_func: "sigmoid" }, 5, 2, 4],
    ]) {
      const [settings, own] = made(routing);
      const given = new Float32Array(tokens * logits).map((_, i) => (i * 5) % 11);
      const { ids, weights: topkWeights } = moe.route(settings, given);
      assert.equal(ids.length, tokens * slots);
      const [outTopkIds, outTopkWeights] = [new Int32Array(ids.length), new Float32Array(ids.length)];
      const out = own.applySync({ hidden: rows, routerLogits: given, outTopkIds, outTopkWeights });
      assert.deepEqual([outTopkIds, outTopkWeights], [ids, topkWeights]);
      assert.deepEqual(own.applySync({ hidden: rows, topkIds: ids, topkWeights }), out);
      assert.equal(own.expertCounts().length, held);
      assert.throws(() => own.applySync({ hidden: rows, topkIds: ids.subarray(1), topkWeights }), /topkIds: expected 3 x/);
    }
    // hash routing: the ids of the chosen experts alone, with logits
    const [, hash] = made({ hash_routing: true, num_fused_shared_experts: 1 });
    const topkIds = Int32Array.of(0, 1, 2, 3, 1, 2), [outTopkIds, outTopkWeights] = [new Int32Array(9), new Float32Array(9)];
    hash.applySync({ hidden: rows, routerLogits: new Float32Array(12), topkIds, outTopkIds, outTopkWeights });
    assert.deepEqual(outTopkIds, Int32Array.of(0, 1, 4, 2, 3, 4, 1, 2, 4));
  });
  test("a source is asked for tensors, on this thread", async () => {
    const asked = [];
    const get = (role, expert, shard) => {
      asked.push([role, expert, shard]);
      const found = shard === null ? weights.get(role, expert) : null;
      return found && new moe.Tensor(found.data, found.shape, found.dtype);
    };
    const from = moe.Weights.fromSource(config, get);
    const one = new moe.Context({ threads: 1 }), two = new moe.Context({ threads: 2 });
    for (const context of [undefined, one])
      assert.deepEqual(moe.convertSync(selection, from, { context }).toBytes(), packed.toBytes());
    assert.ok(asked.some(([role, expert, shard]) => role === "w13_weight" && expert === 3 && shard === null));
    assert.deepEqual(from.get("w2_weight", 1), weights.get("w2_weight", 1));
    await assert.rejects(moe.convert(selection, from), /weights: a set with a source is for convertSync/);
    assert.throws(() => moe.convertSync(selection, from, { context: two }), /context: a set with a source needs one of a single thread/);
    from.close();
    assert.throws(() => moe.convertSync(selection, from), code("MOE_ERR_INVALID_HANDLE"));

    const halves = [];
    const none = moe.Weights.fromSource(config, (role, expert, shard) => void halves.push(shard));
    assert.throws(() => moe.convertSync(selection, none), code("MOE_ERR_MISSING_WEIGHT"));
    assert.ok(halves.includes(null) && halves.includes("w1"));
    const mine = new Error("mine");
    for (const thrown of [mine, "text", undefined, Symbol("s"), { toString() { throw mine; } }, new moe.MoeError(12, "file", "gone")]) {
      const bad = moe.Weights.fromSource(config, () => { throw thrown; });
      for (const run of [() => moe.convertSync(selection, bad), () => bad.get("w2_weight", 0)]) {
        let seen = "nothing";
        try { run(); } catch (problem) { seen = problem; }
        assert.equal(seen, thrown);
      }
    }
    for (const [found, text] of [[5, /w13_weight\[0\]: expected a Tensor or null, found Number/], [Promise.resolve(null), /found Promise/]])
      assert.throws(() => moe.convertSync(selection, moe.Weights.fromSource(config, () => found)), text);
    for (const shape of [[7], [0, 3]]) {
      const wrong = new moe.Tensor(new Float32Array(shape.reduce((a, b) => a * b)), shape);
      assert.throws(() => moe.convertSync(selection, moe.Weights.fromSource(config, () => wrong)), moe.MoeError);
    }
    assert.throws(() => moe.convertSync(selection, from, { context: {} }), /ctx: expected a libmoe context, found Object/);
    const circle = moe.Weights.fromSource(config, () => moe.convertSync(selection, circle));
    assert.throws(() => moe.convertSync(selection, circle), /8 times deep/);
    const self = moe.Weights.fromSource(config, (role, expert, shard) => (self.close(), get(role, expert, shard)));
    moe.convertSync(selection, self); // the close waits for the call
    assert.throws(() => self.report, code("MOE_ERR_INVALID_HANDLE"));
    const closed = new moe.Config({ num_experts: 2, top_k: 1, hidden_dim: 32, intermediate_size: 16 });
    closed.close();
    assert.throws(() => moe.Weights.fromSource(closed, get), code("MOE_ERR_INVALID_HANDLE"));
    assert.throws(() => moe.Weights.fromSource(config, 5), /get: expected a function, found number/);
  });
  test("copies for a source end with their use", () => {
    const text = { num_experts: 12, top_k: 1, hidden_dim: 1024, intermediate_size: 2560, in_dtype: "float32", name: "m.experts" };
    const large = new moe.Config(text);
    const tensors = { w13_weight: new moe.Tensor(new Float32Array(5120 * 1024), [5120, 1024]), // 20 MiB
                      w2_weight: new moe.Tensor(new Float32Array(2560 * 1024), [1024, 2560]) };
    const choice = new moe.Selection(large);
    const from = moe.Weights.fromSource(large, (role) => tensors[role]);
    moe.convertSync(choice, from).close();
    const before = process.memoryUsage.rss();
    moe.convertSync(choice, from).close();
    const grown = process.memoryUsage.rss() - before;
    assert.ok(grown < 100 << 20, `${grown >> 20} MiB more`); // of 360 that were copied
  });
  test("arrays that were set may be transferred and changed", () => {
    const text = { num_experts: 2, top_k: 1, hidden_dim: 32, intermediate_size: 16, in_dtype: "float32", name: "m.experts" };
    const set = new moe.Weights(new moe.Config(text));
    const w2 = () => new Float32Array(32 * 16).fill(0.5);
    const given = [w2(), w2(), new Float32Array(2 * 32 * 32).fill(0.25)];
    set.setExpert("w2_weight", 0, null, new moe.Tensor(given[0], [32, 16]));
    set.setNamed("m.experts.1.down_proj.weight", new moe.Tensor(given[1], [32, 16]));
    set.set("w13_weight", new moe.Tensor(given[2], [2, 32, 32]));
    for (const { buffer } of given) new Uint8Array(structuredClone(buffer, { transfer: [buffer] })).fill(0x55);
    for (const expert of [0, 1]) assert.deepEqual(set.get("w2_weight", expert).data, w2());
    assert.deepEqual(set.get("w13_weight").data, new Float32Array(2 * 32 * 32).fill(0.25));
    const gone = new moe.Tensor(w2(), [32, 16]);
    structuredClone(gone.data.buffer, { transfer: [gone.data.buffer] });
    assert.throws(() => set.setExpert("w2_weight", 0, null, gone), moe.MoeError);
    assert.deepEqual(set.get("w2_weight", 0).data, w2());
  });
  test("copies end with the set, and when the library is not reached or refuses", () => {
    const text = { num_experts: 2, top_k: 1, hidden_dim: 1024, intermediate_size: 10240, in_dtype: "float32", name: "m.experts" };
    const set = new moe.Weights(new moe.Config(text));
    const closed = new moe.Weights(config);
    closed.close();
    const tensor = new moe.Tensor(new Float32Array(10 << 20).fill(1), [1024, 10240]); // 40 MiB: free() gives it back
    const bytes = new Uint8Array(40 << 20).fill(1);
    const before = process.memoryUsage.rss();
    for (let i = 0; i < 4; ++i) {
      set.setExpert("w2_weight", 0, null, tensor);
      assert.equal(set.setNamed("other", tensor), false);
      assert.throws(() => set.setExpert("w2_weight", "0", null, tensor), /expert: expected an integer/);
      assert.throws(() => set.set("w2_weight\0", tensor), /role: expected a string/);
      assert.throws(() => set.setExpert("none", 0, null, tensor), moe.MoeError);
      assert.throws(() => closed.set("w2_weight", tensor), code("MOE_ERR_INVALID_HANDLE"));
      assert.throws(() => moe.Packed.fromBytes(bytes), code("MOE_ERR_FORMAT"));
      assert.throws(() => moe.Packed.fromBytes(bytes, { context: config }), /expected a libmoe context/);
    }
    const grown = process.memoryUsage.rss() - before;
    assert.ok(grown < 100 << 20, `${grown >> 20} MiB more`);
  });
});

group("bad input", () => {
  test("arrays: what, where, found, expected", async () => {
    const cases = [
      [{ hidden: [1, 2], routerLogits }, /hidden: expected a Uint16Array \(bf16\), found Array/],
      [{ hidden: new Float32Array(64), routerLogits }, /hidden: expected a Uint16Array/],
      [{ hidden: hidden.subarray(1), routerLogits }, /hidden: expected rows x 64 elements, found/],
      [{ hidden, routerLogits: routerLogits.subarray(4) }, /routerLogits: expected 16 x 4 elements, found 60/],
      [{ hidden, routerLogits, out: new Uint16Array(3) }, /out: expected 16 x 64 elements, found 3/],
      [{ hidden, routerLogits: null }, /expected routerLogits, or topkIds/],
      [{ hidden: null, routerLogits }, /hidden: expected/],
      [undefined, /apply: expected an object with hidden, found undefined/],
      [null, /apply: expected an object with hidden, found null/],
    ];
    for (const [call, expectation] of cases) {
      assert.throws(() => layer.applySync(call), expectation);
      await assert.rejects(layer.apply(call), expectation);
    }
    assert.throws(() => layer.applySync({ hidden, routerLogits, out: hidden }), code("MOE_ERR_INVALID_ARGUMENT"));
    const ids = new Int32Array(32).fill(99);
    assert.throws(() => layer.applySync({ hidden, topkIds: ids, topkWeights: new Float32Array(32) }), moe.MoeError);
    assert.throws(() => new moe.Tensor(new Float32Array(5), [2, 3]), /takes 24 bytes, this Float32Array has 20/);
    assert.throws(() => new moe.Tensor(new Float32Array(1), [1, 1, 1, 1, 1, 1, 1]), /at most 6 dimensions, found 7/);
    assert.throws(() => new moe.Tensor(new Float32Array(1), [-1]), /shape: expected/);
    assert.throws(() => new moe.Tensor(new Float32Array(1), [1n, NaN]), /shape: expected .* found \[1,NaN\]/);
    assert.throws(() => new moe.Tensor(new Float32Array(1), "1"), /shape: expected .* found 1/);
    assert.throws(() => new moe.Tensor(new Float32Array(1), [1], "f99"), /"f99" is none/);
    assert.throws(() => new moe.Tensor("text", [1]), /expected a typed array, found String/);
  });
  test("resizable and detached memory is refused", () => {
    const resizable = new ArrayBuffer(hidden.byteLength, { maxByteLength: 2 * hidden.byteLength });
    assert.throws(() => layer.applySync({ hidden: new Uint16Array(resizable), routerLogits }), /resizable/);
    const gone = hidden.slice();
    structuredClone(gone, { transfer: [gone.buffer] });
    assert.throws(() => layer.applySync({ hidden: gone, routerLogits }), /expected|takes/);
  });
  test("documents", () => {
    assert.throws(() => new moe.Config({ num_experts: "four" }), (e) => e.subject === "/num_experts" && e.message.includes("found \"four\", expected"));
    assert.throws(() => new moe.Config("{}\0"), code("MOE_ERR_INVALID_CONFIG"));
    assert.throws(() => moe.Config.fromHf("{"), code("MOE_ERR_INVALID_CONFIG"));
    assert.throws(() => new moe.Context({ threads: -1 }), code("MOE_ERR_INVALID_CONFIG"));
    assert.throws(() => new moe.Context({ threads: NaN }), /document: threads: expected what JSON has, found number NaN/);
    assert.throws(() => new moe.Config({ num_experts: 4n }), /document: num_experts: expected .* found bigint 4/);
    assert.throws(() => moe.Config.fromHf(Buffer.from("{}")), /document: expected JSON text or an object, found Buffer/);
    assert.throws(() => moe.Config.fromHf(""), code("MOE_ERR_INVALID_CONFIG"));
    assert.throws(() => moe.describe("none", {}), code("MOE_ERR_INVALID_ARGUMENT"));
    assert.throws(() => new moe.Packed(5), TypeError);
  });
  test("closed handles, and handles of another kind", async () => {
    const closed = new moe.Config({ num_experts: 2, top_k: 1, hidden_dim: 32, intermediate_size: 16 });
    closed.close();
    closed.close();
    assert.ok(closed.closed);
    assert.throws(() => closed.document, code("MOE_ERR_INVALID_HANDLE"));
    assert.throws(() => closed.pointer, code("MOE_ERR_INVALID_HANDLE"));
    assert.throws(() => new moe.Selection(closed), code("MOE_ERR_INVALID_HANDLE"));
    assert.throws(() => new moe.Selection(packed), /config: expected a libmoe config, found Packed/);
    assert.throws(() => new moe.Selection(null), code("MOE_ERR_INVALID_ARGUMENT"));
    assert.throws(() => new moe.Selection({}), /config: expected a libmoe config, found Object/);
    for (const address of [5n, 5, config.pointer]) {
      assert.throws(() => new moe.Selection(address), /config: expected a libmoe config, found/);
      assert.throws(() => new moe.Config(address), /document: expected JSON text/);
      assert.throws(() => new moe.Packed(address), TypeError);
      await assert.rejects(moe.convert(selection, address), /weights: expected a libmoe weights/);
    }
    assert.throws(() => new moe.Layer(selection, packed, { correctionBias: [1] }), /correctionBias: expected a Tensor, found Array/);
    assert.throws(() => new moe.Layer(selection, packed, { context: config }), /ctx: expected a libmoe context, found Config/);
  });
});

group("long calls", () => {
  test("close during apply waits for the call", async () => {
    const other = new moe.Layer(selection, packed);
    const running = Array.from({ length: 4 }, () => other.apply({ hidden, routerLogits }));
    other.close();
    await assert.rejects(other.apply({ hidden, routerLogits }), code("MOE_ERR_INVALID_HANDLE"));
    for (const out of await Promise.all(running)) assert.deepEqual(out, expected);
  });
  test("a signal cancels; a progress function that throws stops the call", async () => {
    await assert.rejects(moe.convert(selection, weights, { signal: AbortSignal.abort() }), { name: "AbortError" });
    const abort = new AbortController();
    const running = layer.apply({ hidden, routerLogits }, { signal: abort.signal });
    abort.abort();
    await assert.rejects(running, code("MOE_ERR_CANCELLED")).catch(() => running); // or was done before
    const seen = [];
    const again = await moe.convert(selection, weights, { onProgress: (done, total) => seen.push([done, total]) });
    assert.ok(seen.at(-1)[0] > 0 && seen.at(-1)[0] === seen.at(-1)[1]);
    again.close();
  });
  test("a set of weights that is being converted is not changed", async () => {
    const running = moe.convert(selection, weights);
    assert.throws(() => weights.loadSafetensors(checkpoint), code("MOE_ERR_BUSY"));
    (await running).close();
  });
  test("a log function gets the messages when a call has ended", async () => {
    const seen = [];
    const context = new moe.Context({ threads: 2, log_level: "trace" }, { onLog: (entry) => seen.push(entry) });
    const chosen = new moe.Selection(config, { context });
    assert.equal(seen.length, 0); // not within the call
    const threaded = new moe.Layer(chosen, await moe.convert(chosen, weights, { context }), { context });
    assert.deepEqual(seen.map(({ component }) => component), ["select", "convert"]);
    for (const { t_ns, level, message } of seen) assert.ok(t_ns > 0 && level === "info" && message);
    assert.deepEqual(context.takeLog(), []);
    moe.convertSync(chosen, weights, { context });
    context.close(); // gives what is left
    assert.equal(seen.length, 3);
    assert.deepEqual(await threaded.apply({ hidden, routerLogits }), expected);
    assert.throws(() => new moe.Context({}, { onLog: 5 }), /onLog: expected a function, found number/);
  });
  test("what a log function throws is the program's", async () => {
    const text = `import * as moe from "libmoe";
      process.on("uncaughtException", (error) => console.log("uncaught", error.message));
      const context = new moe.Context({ log_level: "trace" }, { onLog({ component }) { throw new Error("mine of " + component); } });
      const config = new moe.Config({ num_experts: 2, top_k: 1, hidden_dim: 32, intermediate_size: 16, in_dtype: "float32" });
      console.log(new moe.Selection(config, { context }).kernel.length > 0);
      new moe.Selection(config, { context });`;
    const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", text],
                                 { cwd: new URL("..", import.meta.url), encoding: "utf8" });
    assert.equal(stdout, "true\nuncaught mine of select\nuncaught mine of select\n"); // one after another, none is lost
  });
  test("a context may be open when Node ends", () => {
    const text = `import { readFileSync } from "node:fs";
      import * as moe from "libmoe";
      const context = new moe.Context({ threads: 4, spin_us: 100000 });
      const config = moe.Config.fromHf(readFileSync(process.env.MOE_TEST_CHECKPOINT + "/config.json", "utf8"));
      const weights = new moe.Weights(config);
      weights.loadSafetensors(process.env.MOE_TEST_CHECKPOINT);
      await moe.convert(new moe.Selection(config, { context }), weights, { context });`;
    for (let i = 0; i < 3; ++i) {
      const { status, signal, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", text],
                                                   { cwd: new URL("..", import.meta.url), encoding: "utf8" });
      assert.deepEqual([status, signal, stderr], [0, null, ""]);
    }
  });
  test("dispose", () => {
    const context = new moe.Context({ threads: 1, log_level: "trace" });
    new moe.Selection(config, { context });
    assert.ok(Array.isArray(context.takeLog()) && context.report);
    context[Symbol.dispose]();
    assert.ok(context.closed);
  });
});
