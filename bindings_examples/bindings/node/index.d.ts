// Types of the package libmoe. What a function does, and which numbers it takes: moe.h of the same version.

export type TypedArray =
  | Float32Array | Float64Array | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array
  | BigInt64Array | BigUint64Array;
export type Json = { [member: string]: any };
/** JSON text, or the object that it stands for. */
export type Document = string | Json;

/** What the library has against a call. */
export class MoeError extends Error {
  /** One of MOE_ERR_... */
  readonly status: number;
  /** Its name: "MOE_ERR_IO" */
  readonly statusName: string;
  /** The same, but "ENOENT" and the like where the system refused a file: errno and path are set then, as in Node's own errors. */
  readonly code: string;
  readonly errno?: number;
  readonly path?: string;
  /** Where: a JSON pointer, a role, a path, a parameter, or "". */
  readonly subject: string;
  /** expected, actual, needed, errno, cause, candidates, as they apply. */
  readonly details: Json;
}

/** An owned object. close() waits for calls on other threads without blocking; forgotten objects close when collected. */
export class Handle {
  close(): void;
  readonly closed: boolean;
  /** For calls of `raw`; valid until close(). */
  readonly pointer: bigint;
  [Symbol.dispose](): void;
}

export interface Watch {
  /** Aborting it cancels the call: MOE_ERR_CANCELLED. */
  signal?: AbortSignal;
  /** Called every 20 ms, and at the end; an exception stops the call, which fails with it. */
  onProgress?: (done: number, total: number, state: Progress) => void;
}
/** What a long call is doing. */
export interface Progress {
  phase: "none" | "open" | "convert" | "save" | "load" | "hash" | "apply";
  /** Of done and total, which count in the phase alone. */
  unit: "none" | "files" | "experts" | "bytes";
  done: number;
  total: number;
  /** The model's number; null: no layer. */
  layer: number | null;
  layersDone: number;
  layersTotal: number;
  /** Of the whole call; never goes back. */
  bytesDone: number;
  bytesTotal: number;
}

/** A typed array with shape and type; "bf16" and the like for arrays of bits. */
export class Tensor {
  constructor(data: TypedArray, shape: number[], dtype?: string);
  readonly data: TypedArray;
  readonly shape: number[];
  readonly dtype: string;
}
export interface TensorCopy {
  dtype: string;
  shape: number[];
  data: TypedArray;
}
export interface MemorySize {
  bytes: number;
  alignment: number;
}

export interface LogEntry {
  t_ns: number;
  level: "trace" | "debug" | "info" | "warn" | "error";
  component: string;
  message: string;
}
/**
 * onLog: called on this thread when a call with the context has ended; what it throws is an uncaught exception.
 * parallel_for and allocators of C are not offered: other threads would call them.
 */
export class Context extends Handle {
  constructor(options?: Document, functions?: { onLog?: (entry: LogEntry) => void });
  readonly report: Json;
  takeLog(): LogEntry[];
}
export class Config extends Handle {
  constructor(description: Document);
  static fromHf(text: Document, options?: Document): Config;
  merge(patch: Document): Config;
  readonly document: Json;
  getInt(pointer: string): number;
  getFloat(pointer: string): number;
}
export class Platform extends Handle {
  constructor(description?: Document);
  has(feature: string): boolean;
  readonly document: Json;
}
export interface Candidate {
  backend: string;
  kernel: string;
  priority: number;
  chosen: boolean;
  /** "MOE_REJECT_NONE" when it could run this config. */
  reason: string;
  subject: string;
  detail: string;
}
export class Selection extends Handle {
  constructor(config: Config, options?: { context?: Context; platform?: Platform; explainOnly?: boolean; allowFallback?: boolean });
  readonly backend: string;
  readonly kernel: string;
  readonly layout: string;
  readonly candidates: Candidate[];
  readonly packedSize: MemorySize;
  readonly report: Json;
}
/** Arrays that are set are copied. */
export class Weights extends Handle {
  constructor(config: Config);
  /**
   * For convertSync without a context or with one of one thread. Tensors are copied; null: there is none. What get throws
   * stops the call, and is thrown by it.
   */
  static fromSource(config: Config, get: (role: string, expert: number, shard: "w1" | "w3" | null) => Tensor | null | undefined): Weights;
  set(role: string, tensor: Tensor): void;
  setExpert(role: string, expert: number, shard: "w1" | "w3" | null, tensor: Tensor): void;
  setNamed(name: string, tensor: Tensor): boolean;
  loadSafetensors(file: string, module?: string | null): void;
  /** From the files of a checkpoint, of whose config(layer) the set was made. */
  loadCheckpoint(checkpoint: Checkpoint): void;
  get(role: string, expert?: number): TensorCopy;
  readonly report: Json;
}

export function convert(
  selection: Selection, weights: Weights, options?: Watch & { context?: Context; maxTempBytes?: number; anyName?: boolean }): Promise<Packed>;
export function convertSync(selection: Selection, weights: Weights, options?: { context?: Context; anyName?: boolean }): Packed;

/** How files of converted weights are read: mapped, by default. verify: every byte is compared with its hash. */
export interface Load {
  mmap?: boolean;
  prefault?: boolean;
  verify?: boolean;
}
export class Packed extends Handle {
  private constructor(pointer: bigint);
  static load(file: string, options?: Watch & Load & { context?: Context }): Promise<Packed>;
  static fromBytes(bytes: Uint8Array, options?: { context?: Context; verify?: boolean }): Packed;
  save(file: string, watch?: Watch): Promise<void>;
  toBytes(): Uint8Array;
  get(name: string, expert?: number): TensorCopy;
  dequantize(role: "w13_weight" | "w2_weight", expert: number): Tensor;
  readonly report: Json;
}

export interface Apply<Out extends TypedArray | Tensor = TypedArray> {
  /** [T, H] in the config's in_dtype */
  hidden: TypedArray | Tensor;
  /** [T, G]; or topkIds and topkWeights */
  routerLogits?: Float32Array | Tensor | null;
  topkIds?: Int32Array | BigInt64Array | Tensor;
  topkWeights?: Float32Array | Tensor;
  /** [T, H] in the config's out_dtype; a new array when left out */
  out?: Out;
  accumulate?: boolean;
  outTopkIds?: Int32Array | Tensor;
  outTopkWeights?: Float32Array | Tensor;
}
export interface LayerOptions {
  correctionBias?: Tensor;
  expertMap?: Tensor;
  /** Takes weights whose config has another layer's name. */
  anyName?: boolean;
}
export class Layer extends Handle {
  constructor(selection: Selection, packed: Packed, options?: LayerOptions & { context?: Context });
  apply<Out extends TypedArray | Tensor = TypedArray>(call: Apply<Out>, watch?: Watch): Promise<Out>;
  applySync<Out extends TypedArray | Tensor = TypedArray>(call: Apply<Out>): Out;
  workspaceSize(tokens: number, mode?: number): MemorySize;
  expertCounts(options?: { reset?: boolean }): number[];
  readonly report: Json;
}

/** One layer, whole, before any cut. */
export interface LayerInfo {
  layer: number;
  /** "other": not understood, see problem. */
  kind: "experts" | "dense" | "other";
  /** For multi-token prediction, not in the model's pass. */
  isMtp: boolean;
  /** Its packed file is here. */
  isConverted: boolean;
  topK: number;
  numExperts: number;
  hiddenDim: number;
  intermediateSize: number;
  /** Of its experts in the files. */
  bytes: number;
  /** "model.layers.3.mlp.experts", "" without experts. */
  name: string;
  /** "", or why no config can be made of it, or why its packed file is not used. */
  problem: string;
}
/** A model's directory, as it was downloaded or as convert() made it, with all its layers. Several calls may run at once. */
export class Checkpoint extends Handle {
  private constructor(pointer: bigint);
  /** Reads every header and no weight. options: those of Config.fromHf without layer_index and module, for all layers. */
  static open(directory: string, options?: Watch & { context?: Context; options?: Document }): Promise<Checkpoint>;
  /** Layers of all kinds; those of multi-token prediction come last. */
  readonly layerCount: number;
  layerInfo(layer: number): LayerInfo;
  /** The layerInfo of each layer. */
  readonly layers: LayerInfo[];
  readonly report: Json;
  /** patch: members of the config's document that win, such as {parallel: {...}} of one rank. */
  config(layer: number, patch?: Document): Config;
  /** A layer that is ready to run. */
  layer(
    layer: number,
    options?: Watch & Load & LayerOptions & { context?: Context; platform?: Platform; patch?: Document; allowFallback?: boolean }): Promise<Layer>;
  /** The weights for a selection of one of its configs: converted in memory, or loaded. */
  packed(selection: Selection, options?: Watch & Load & { context?: Context }): Promise<Packed>;
  /**
   * Converts layers into a directory that open() takes: those listed, by default all that have experts. What is there already
   * stays, so that a call goes on where an earlier one ended. verify: the hashes of files that are there are compared.
   */
  convert(
    directory: string,
    options?: Watch & {
      context?: Context; layers?: number[]; platform?: Platform; patch?: Document; allowFallback?: boolean; verify?: boolean }): Promise<void>;
  /** Any tensor of the files, such as the router's matrix, copied. */
  tensor(name: string): Promise<Tensor>;
  /** Which weights these are; full: of every byte. A converted checkpoint tells its source's. */
  fingerprint(options?: Watch & { context?: Context; full?: boolean }): Promise<string>;
}

export function route(
  config: Config, routerLogits: Float32Array | Tensor,
  options?: { context?: Context; correctionBias?: Tensor }): { ids: Int32Array; weights: Float32Array };
export function describe(topic: string, query: Document): Json;
export function version(): string;
export function hasFeature(name: string): boolean;
export function buildInfo(): Json;
export function configSchema(): Json;

/** Every function of moe.h by name, with its parameters; `async` runs it on another thread. */
export const raw: Readonly<Record<string, ((...values: any[]) => any) & { async(...values: any[]): Promise<any> }>>;
/** Every constant of moe.h. */
export const constants: Readonly<Record<string, number>>;
/** moe_abi_json() of the loaded library. */
export const abi: Json;
/** The file that was loaded. */
export const libraryPath: string;
