// libmoe for Node: Checkpoint, Config, Selection, Weights, convert, Packed, Layer; see the README beside package.json.
import {
  Handle, MoeError, bytesOf, call, callAsync, create, createAsync, document, exclusive, flushLog, handOver, invoke, jsonOf, logTo, textOf,
} from "./handle.js";
import { abi, constants, members, path, raw, release, struct, view } from "./library.js";
import { asking, createAsking, isAsking, markAsking } from "./source.js";
import { Tensor, arrayOf, matrix, taken } from "./tensor.js";

export { Handle, MoeError, Tensor, abi, constants, raw };
/** The file that was loaded. */
export const libraryPath = path;
export const version = () => raw.moe_version_string();
export const hasFeature = (name) => raw.moe_has_feature(name) === 1;
export const buildInfo = () => JSON.parse(raw.moe_build_info_json());
export const configSchema = () => JSON.parse(raw.moe_config_schema_json());
/** One question without weights: see moe_describe. */
export const describe = (topic, query) => jsonOf("moe_describe", topic, ...document(query));

// An address that the library gave: what a program passes to a constructor is never taken for one.
class Made {
  constructor(pointer) {
    this.pointer = pointer;
  }
}
const flag = (condition, value) => (condition ? BigInt(value) : 0n);
const loadFlags = ({ mmap = true, prefault = false, verify = false }) =>
  flag(mmap, constants.MOE_LOAD_MMAP) | flag(prefault, constants.MOE_LOAD_PREFAULT) | flag(verify, constants.MOE_LOAD_VERIFY);
const NAMES = { float32: "f32", float16: "f16", bfloat16: "bf16" };

/** Threads, memory and log for the calls that get it; without one: one thread. */
export class Context extends Handle {
  /** onLog gets the messages, one {t_ns, level, component, message} at a time, when a call with this context has ended. */
  constructor(options = {}, { onLog } = {}) {
    super("context", create("moe_context_create", ...document(options), null));
    if (onLog !== undefined) logTo(this, onLog);
  }
  close() {
    try {
      flushLog(this);
    } finally {
      super.close();
    }
  }
  get report() {
    return jsonOf("moe_context_to_json", this);
  }
  /** The messages since the last call; none where onLog gets them. */
  takeLog() {
    return textOf("moe_context_take_log", this).split("\n").filter(Boolean).map((line) => JSON.parse(line));
  }
}

/** The checked description of one layer. */
export class Config extends Handle {
  constructor(description) {
    super("config", description instanceof Made ? description.pointer : create("moe_config_create", ...document(description)));
  }
  /** From the text of a model's config.json. */
  static fromHf(text, options = {}) {
    return new Config(new Made(create("moe_config_create_from_hf", ...document(text), ...document(options))));
  }
  /** A new one: this document with a JSON merge patch. */
  merge(patch) {
    return new Config(new Made(create("moe_config_merge", this, ...document(patch))));
  }
  /** With defaults written out. */
  get document() {
    return jsonOf("moe_config_to_json", this);
  }
  /** By JSON pointer. */
  getInt(pointer) {
    const out = new BigInt64Array(1);
    call("moe_config_get_int", this, pointer, out);
    return Number(out[0]);
  }
  getFloat(pointer) {
    const out = new Float64Array(1);
    call("moe_config_get_float", this, pointer, out);
    return out[0];
  }
}

/** This machine, or one that is described. */
export class Platform extends Handle {
  constructor(description) {
    super("platform", create("moe_platform_create", ...document(description)));
  }
  has(feature) {
    return invoke("moe_platform_has", this, feature) === 1;
  }
  get document() {
    return jsonOf("moe_platform_to_json", this);
  }
}

/** The backend and kernel for a config, and why each other candidate is not it. */
export class Selection extends Handle {
  constructor(config, { context, platform, explainOnly = false, allowFallback = false } = {}) {
    const flags = flag(explainOnly, constants.MOE_SELECT_EXPLAIN_ONLY) |
                  flag(allowFallback, constants.MOE_SELECT_ALLOW_FALLBACK);
    super("selection", create("moe_select_backend", context, config, platform, flags));
  }
  get backend() {
    return invoke("moe_selection_backend", this);
  }
  get kernel() {
    return invoke("moe_selection_kernel", this);
  }
  get layout() {
    return invoke("moe_selection_layout", this);
  }
  get candidates() {
    return Array.from({ length: Number(invoke("moe_selection_candidate_count", this)) }, (_, i) => {
      const bytes = struct("moe_candidate");
      call("moe_selection_candidate", this, i, bytes);
      const { backend, kernel, priority, chosen, reason, subject, detail } = members("moe_candidate", bytes);
      return { backend, kernel, priority, chosen: chosen === 1, reason: raw.moe_reject_name(reason), subject, detail };
    });
  }
  /** Bytes and alignment of the converted weights. */
  get packedSize() {
    const [bytes, alignment] = [new BigUint64Array(1), new BigUint64Array(1)];
    call("moe_selection_packed_size", this, bytes, alignment);
    return { bytes: Number(bytes[0]), alignment: Number(alignment[0]) };
  }
  get report() {
    return jsonOf("moe_selection_to_json", this);
  }
}

/** Source tensors of one layer. Arrays are copied; large checkpoints are better read from files. */
export class Weights extends Handle {
  constructor(config) {
    super("weights", config instanceof Made ? config.pointer : create("moe_weights_create", config));
  }
  /**
   * A set that asks get(role, expert, shard) for tensors while it is converted, so that only a few experts are in memory at a
   * time: a Tensor as for setExpert, which is copied, or null where there is none. A w13 role is asked for as a whole (shard
   * null) first, then as "w1" and "w3". On this thread alone: for convertSync, not for convert. The set keeps the function: one
   * that uses the set itself is never collected, only closed.
   */
  static fromSource(config, get) {
    const [pointer, source] = createAsking(config, get);
    const weights = new Weights(new Made(pointer));
    markAsking(weights, source);
    return weights;
  }
  #set(name, tensor, place, values, ...results) {
    if (!(tensor instanceof Tensor))
      throw new TypeError(`${place}: expected a Tensor, found ${tensor?.constructor?.name ?? typeof tensor}`);
    exclusive(this);
    handOver(name, tensor.data, (memory) => [this, ...values, tensor.over(memory), release, memory, ...results]);
  }
  /** A stacked tensor [E, ...]. */
  set(role, tensor) {
    this.#set("moe_weights_set", tensor, role, [role]);
  }
  /** One expert's; shard: "w1" (gate) or "w3" (up) for half of a w13 role, null for all of it. */
  setExpert(role, expert, shard, tensor) {
    this.#set("moe_weights_set_expert", tensor, `${role}[${expert}]`, [role, expert, shard]);
  }
  /** By the name in a checkpoint; false: the name is not of this layer. */
  setNamed(name, tensor) {
    const consumed = new Int32Array(1);
    this.#set("moe_weights_set_named", tensor, name, [name], consumed);
    return consumed[0] === 1;
  }
  /** A file, an index or a directory; tensors are read during conversion. */
  loadSafetensors(file, module = null) {
    exclusive(this);
    call("moe_weights_load_safetensors", this, file, module);
  }
  /** From the files of a checkpoint, of whose config(layer) the set was made. */
  loadCheckpoint(checkpoint) {
    exclusive(this);
    call("moe_weights_load_checkpoint", this, checkpoint);
  }
  /** complete, missing, unexpected, experts, tensors */
  get report() {
    return jsonOf("moe_weights_to_json", this);
  }
  /** One expert's tensor, all with -1: {dtype, shape, data}, copied. */
  get(role, expert = -1) {
    const tensor = struct("moe_tensor");
    const hold = new BigUint64Array(1);
    asking(this, () => call("moe_weights_get", this, role, expert, tensor, hold));
    try {
      return taken(tensor);
    } finally {
      raw.moe_buffer_destroy(hold[0]);
    }
  }
}

const convertFlags = (anyName) => ({ flags: flag(anyName, constants.MOE_CONVERT_ANY_NAME) });
/** Repacks the weights into the layout of the selection, on another thread. anyName: also of another layer's name. */
export async function convert(selection, weights, { context, signal, onProgress, maxTempBytes = 0, anyName } = {}) {
  if (isAsking(weights)) throw new TypeError("weights: a set with a source is for convertSync: its function runs on this thread");
  return new Packed(new Made(await createAsync("moe_convert_weights", { signal, onProgress }, (control) => [
    context, selection, weights, struct("moe_convert_options", { ...convertFlags(anyName), max_temp_bytes: maxTempBytes, control: control?.pointer })])));
}
export function convertSync(selection, weights, { context, anyName } = {}) {
  if (isAsking(weights) && context instanceof Context && context.report.threads > 1)
    throw new TypeError("context: a set with a source needs one of a single thread, or none: its function runs on this thread");
  return asking(weights, () => new Packed(new Made(create("moe_convert_weights", context, selection, weights, struct("moe_convert_options", convertFlags(anyName))))));
}

/** Converted weights: immutable, shared by any number of layers. */
export class Packed extends Handle {
  /** Made by convert, load, fromBytes and Checkpoint.packed. */
  constructor(made) {
    if (!(made instanceof Made)) throw new TypeError("Packed: made by convert, Packed.load, Packed.fromBytes and Checkpoint.packed");
    super("packed", made.pointer);
  }
  static async load(file, { context, signal, onProgress, ...how } = {}) {
    const flags = loadFlags(how);
    return new Packed(new Made(await createAsync("moe_packed_load", { signal, onProgress }, (control) => [context, file, flags, control])));
  }
  /** From the bytes of toBytes(), copied. */
  static fromBytes(bytes, { context, verify = false } = {}) {
    if (!(bytes instanceof Uint8Array)) throw new TypeError("Packed.fromBytes: expected a Uint8Array");
    const out = new BigUint64Array(1);
    handOver("moe_packed_load_memory", bytes, (memory) => [
      context, memory, bytes.length, flag(verify, constants.MOE_LOAD_VERIFY), release, memory, out], true);
    return new Packed(new Made(out[0]));
  }
  async save(file, { signal, onProgress } = {}) {
    await callAsync("moe_packed_save", { signal, onProgress }, (control) => [this, file, 0, control]);
  }
  toBytes() {
    const [data, size] = [new BigUint64Array(1), new BigUint64Array(1)];
    call("moe_packed_data", this, data, size);
    return Uint8Array.from(view(data[0], size[0]));
  }
  /** One named output, of one expert or (-1) all: {dtype, shape, data}, copied. `report` lists the names. */
  get(name, expert = -1) {
    const tensor = struct("moe_tensor");
    call("moe_packed_get", this, name, expert, tensor);
    return taken(tensor);
  }
  /** One expert's "w13_weight" or "w2_weight" as float32, for checks. */
  dequantize(role, expert) {
    const { hidden_dim: hidden, intermediate_size_per_partition: inner, is_gated: gated } = this.report.config;
    const shape = role.startsWith("w2") ? [hidden, inner] : [gated ? 2 * inner : inner, hidden];
    const out = new Tensor(new Float32Array(shape[0] * shape[1]), shape);
    call("moe_packed_dequantize", this, role, expert, out.bytes);
    return out;
  }
  get report() {
    return jsonOf("moe_packed_to_json", this);
  }
}

function optional(tensor, name) {
  if (tensor === undefined || tensor === null) return null;
  if (!(tensor instanceof Tensor)) throw new TypeError(`${name}: expected a Tensor, found ${tensor?.constructor?.name ?? typeof tensor}`);
  return tensor.bytes;
}

const layerOptions = ({ correctionBias, expertMap, anyName }) => struct("moe_layer_options", {
  correction_bias: optional(correctionBias, "correctionBias"), expert_map: optional(expertMap, "expertMap"),
  flags: flag(anyName, constants.MOE_LAYER_ANY_NAME) });

/**
 * What arrays have for each token: logits; slots, which are ids and weights: the chosen experts, then the fused shared ones.
 * And the experts of this rank, those included.
 */
function columns({ num_experts: experts, num_local_experts: local, top_k: topK, routing }) {
  const { num_fused_shared_experts: fused, num_zero_experts: zero, num_shared_logits: shared = 0 } = routing;
  return { logits: experts + zero + shared, topK, slots: topK + fused, held: local + fused };
}

// The arguments of apply as tensors: the shapes of plain arrays are known from the layer's config.
function applied(numbers, what) {
  if (typeof what !== "object" || !what) throw new TypeError(`apply: expected an object with hidden, found ${what}`);
  const { hidden, routerLogits, topkIds, topkWeights, out, accumulate, outTopkIds, outTopkWeights } = what;
  const { width, logits, topK, slots, inType, outType } = numbers;
  const given = { hidden: matrix(hidden, "hidden", width, [inType]) };
  const rows = given.hidden.shape[0];
  if (routerLogits) given.router_logits = matrix(routerLogits, "routerLogits", logits, ["f32"], rows);
  const chosen = routerLogits ? topK : slots; // with logits: hash routing, which appends the shared ones itself
  if (topkIds) given.topk_ids = matrix(topkIds, "topkIds", chosen, ["i32", "i64"], rows);
  if (topkWeights) given.topk_weights = matrix(topkWeights, "topkWeights", slots, ["f32"], rows);
  if (!routerLogits && !topkIds) throw new TypeError("apply: expected routerLogits, or topkIds and topkWeights");
  const made = out ?? new (arrayOf(outType))(rows * width);
  given.out = matrix(made, "out", width, [outType], rows);
  if (outTopkIds) given.out_topk_ids = matrix(outTopkIds, "outTopkIds", slots, ["i32"], rows);
  if (outTopkWeights) given.out_topk_weights = matrix(outTopkWeights, "outTopkWeights", slots, ["f32"], rows);
  const views = Object.fromEntries(Object.entries(given).map(([name, tensor]) => [name, tensor.bytes]));
  const args = (control) => struct("moe_apply_args", {
    ...views, control: control?.pointer, flags: flag(accumulate, constants.MOE_APPLY_ACCUMULATE),
    mode: routerLogits ? constants.MOE_APPLY_ROUTER_LOGITS : constants.MOE_APPLY_TOPK });
  return { args, made };
}

/** Converted weights bound to a kernel. Several calls may run at once. */
export class Layer extends Handle {
  #numbers;
  constructor(selection, packed, { context, ...how } = {}) {
    super("layer", selection instanceof Made ? selection.pointer : create("moe_layer_create", context, selection, packed, layerOptions(how)));
    const { config } = this.report;
    this.#numbers = { width: config.hidden_dim, ...columns(config),
                      inType: NAMES[config.in_dtype], outType: NAMES[config.out_dtype] };
  }
  /**
   * On another thread: a promise of `out`. hidden [T, H] and routerLogits [T, G], or topkIds and topkWeights [T, K], where K
   * counts the fused shared experts, too; arrays, or Tensors where the config does not tell their shapes. They must not change, nor be transferred, meanwhile.
   */
  async apply(call, { signal, onProgress } = {}) {
    const { args, made } = applied(this.#numbers, call);
    await callAsync("moe_apply", { signal, onProgress }, (control) => [this, args(control)]);
    return made;
  }
  applySync(given) {
    const { args, made } = applied(this.#numbers, given);
    call("moe_apply", this, args(null));
    return made;
  }
  workspaceSize(tokens, mode = constants.MOE_APPLY_ROUTER_LOGITS) {
    const [bytes, alignment] = [new BigUint64Array(1), new BigUint64Array(1)];
    call("moe_layer_workspace_size", this, mode, tokens, bytes, alignment);
    return { bytes: Number(bytes[0]), alignment: Number(alignment[0]) };
  }
  /** Tokens that went to each expert of this rank since the last reset. */
  expertCounts({ reset = false } = {}) {
    const counts = new BigUint64Array(this.#numbers.held);
    call("moe_layer_expert_counts", this, counts, counts.length, reset ? 1 : 0);
    return Array.from(counts, Number);
  }
  get report() {
    return jsonOf("moe_layer_to_json", this);
  }
}

const KINDS = ["other", "experts", "dense"];

// Numbers of layers. The library takes none for all of them, which a list that happens to be empty does not mean.
function numbered(layers) {
  if (layers === undefined || layers === null) return {};
  if (!Array.isArray(layers) || layers.length === 0 || !layers.every(Number.isSafeInteger))
    throw new TypeError(`layers: expected an array of integers, at least one, found ${Array.isArray(layers) ? `[${layers.map(String)}]` : String(layers)}`);
  return { layers: BigInt64Array.from(layers, BigInt), num_layers: layers.length };
}

function checkpointOptions(control, { platform, patch, allowFallback, layer, layers, ...how }) {
  const [patch_json, patch_len] = document(patch);
  return struct("moe_checkpoint_options", {
    load_flags: loadFlags(how), select_flags: flag(allowFallback, constants.MOE_SELECT_ALLOW_FALLBACK), platform: platform?.pointer,
    patch_json, patch_len, layer, ...numbered(layers), control: control?.pointer });
}

/** A model's directory, as it was downloaded or as convert() made it, with all its layers. Several calls may run at once. */
export class Checkpoint extends Handle {
  /** Made by open. */
  constructor(made) {
    if (!(made instanceof Made)) throw new TypeError("Checkpoint: made by Checkpoint.open");
    super("checkpoint", made.pointer);
  }
  /** Reads every header and no weight. options: those of Config.fromHf without layer_index and module, for all layers. */
  static async open(directory, { context, options, signal, onProgress } = {}) {
    return new Checkpoint(new Made(await createAsync("moe_checkpoint_open", { signal, onProgress }, (control) => [
      context, directory, ...document(options), control])));
  }
  /** Layers of all kinds; those of multi-token prediction come last. */
  get layerCount() {
    return Number(invoke("moe_checkpoint_layer_count", this));
  }
  /** What stands at a layer's place, before any cut. */
  layerInfo(layer) {
    const bytes = struct("moe_layer_info");
    call("moe_checkpoint_layer_info", this, layer, bytes);
    const found = members("moe_layer_info", bytes);
    return {
      layer, kind: KINDS[found.kind] ?? "other", isMtp: (found.flags & constants.MOE_LAYER_IS_MTP) !== 0,
      isConverted: (found.flags & constants.MOE_LAYER_IS_CONVERTED) !== 0, topK: found.top_k, numExperts: Number(found.num_experts),
      hiddenDim: Number(found.hidden_dim), intermediateSize: Number(found.intermediate_size), bytes: Number(found.bytes),
      name: found.name, problem: found.problem,
    };
  }
  /** The layerInfo of each layer. */
  get layers() {
    return Array.from({ length: this.layerCount }, (_, layer) => this.layerInfo(layer));
  }
  get report() {
    return jsonOf("moe_checkpoint_to_json", this);
  }
  /** patch: members of the config's document that win, such as {parallel: {...}} of one rank. */
  config(layer, patch) {
    return new Config(new Made(create("moe_checkpoint_config", this, layer, ...document(patch))));
  }
  /** A layer that is ready to run. */
  async layer(layer, { context, platform, patch, allowFallback, mmap, prefault, verify, signal, onProgress, ...how } = {}) {
    return new Layer(new Made(await createAsync("moe_checkpoint_layer", { signal, onProgress }, (control) => [context, this, layer,
      checkpointOptions(control, { platform, patch, allowFallback, mmap, prefault, verify, layer: layerOptions(how) })], { platform })));
  }
  /** The weights for a selection of one of its configs: converted in memory, or loaded. */
  async packed(selection, { context, signal, onProgress, mmap, prefault, verify } = {}) {
    return new Packed(new Made(await createAsync("moe_checkpoint_packed", { signal, onProgress }, (control) => [
      context, this, selection, checkpointOptions(control, { mmap, prefault, verify })])));
  }
  /**
   * Converts layers into a directory that open() takes: those listed, by default all that have experts. What is there already
   * stays, so that a call goes on where an earlier one ended.
   */
  async convert(directory, { context, layers, platform, patch, allowFallback, verify, signal, onProgress } = {}) {
    await callAsync("moe_checkpoint_convert", { signal, onProgress }, (control) => [
      context, this, directory, checkpointOptions(control, { layers, platform, patch, allowFallback, verify })], { platform });
  }
  /** Any tensor of the files, such as the router's matrix, copied. */
  async tensor(name) {
    const tensor = struct("moe_tensor");
    const hold = await createAsync("moe_checkpoint_tensor", {}, () => [this, name, tensor]);
    try {
      const { data, shape, dtype } = taken(tensor);
      return new Tensor(data, shape, dtype);
    } finally {
      raw.moe_buffer_destroy(hold);
    }
  }
  /** Which weights these are; full: of every byte. */
  async fingerprint({ context, full = false, signal, onProgress } = {}) {
    return Buffer.from(bytesOf(await createAsync("moe_checkpoint_fingerprint", { signal, onProgress }, (control) => [
      context, this, full ? 1 : 0, control]))).toString();
  }
}

/** Routing alone: {ids, weights} [T, K] of logits [T, G]; K counts the fused shared experts, too. */
export function route(config, routerLogits, { context, correctionBias } = {}) {
  const width = columns(config.document);
  const logits = matrix(routerLogits, "routerLogits", width.logits, ["f32"]);
  const shape = [logits.shape[0], width.slots];
  const ids = new Tensor(new Int32Array(shape[0] * shape[1]), shape);
  const weights = new Tensor(new Float32Array(shape[0] * shape[1]), shape);
  const views = { router_logits: logits.bytes, correction_bias: optional(correctionBias, "correctionBias"),
                  out_topk_ids: ids.bytes, out_topk_weights: weights.bytes };
  call("moe_route", context, config, struct("moe_route_args", views));
  return { ids: ids.data, weights: weights.data };
}
