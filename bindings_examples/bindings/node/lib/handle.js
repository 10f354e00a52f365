// Owned objects of the library, its errors, and the calls that use them.
import { getSystemErrorMap } from "node:util";
import { abi, constants, copied, copy, free, members, raw, struct } from "./library.js";

/** What the library, or this package in its words, has against a call. */
export class MoeError extends Error {
  constructor(status, subject, message, details = {}) {
    super(subject ? `${subject}: ${message}` : message);
    this.name = "MoeError";
    this.status = status;
    /** "MOE_ERR_IO" */
    this.statusName = raw.moe_status_name(status);
    /** The same, but "ENOENT" and the like where the system refused a file, with errno and path, as Node's own errors have them. */
    this.code = this.statusName;
    /** Where: a JSON pointer, a role, a path, a parameter. */
    this.subject = subject;
    /** expected, actual, needed, errno, cause, candidates, as they apply */
    this.details = details;
    if (status === constants.MOE_ERR_IO && details.errno) {
      this.errno = -details.errno;
      this.code = getSystemErrorMap().get(this.errno)?.[0] ?? this.code;
      this.path = subject;
    }
  }
}

function failure(status, error) {
  try {
    return new MoeError(status, raw.moe_error_subject(error), raw.moe_error_message(error),
                        JSON.parse(raw.moe_error_details_json(error)));
  } finally {
    raw.moe_error_destroy(error);
  }
}

// What a handle is, apart from the object that a program holds: the registry must not keep that one alive.
class Owned {
  running = 0;
  closed = false;

  constructor(kind, pointer) {
    this.kind = kind;
    this.pointer = pointer;
  }
  enter() {
    if (this.closed) throw new MoeError(constants.MOE_ERR_INVALID_HANDLE, this.kind, `this ${this.kind} is closed`);
    ++this.running;
    return this.pointer;
  }
  leave() {
    if (--this.running === 0 && this.closed) this.end();
  }
  close() {
    if (this.closed) return;
    this.closed = true;
    if (this.running === 0) this.end();
  }
  end() {
    raw[`moe_${this.kind}_destroy`](this.pointer);
  }
}

const registry = new FinalizationRegistry((owned) => owned.close());
const owners = new WeakMap();

/**
 * close() ends the object: at once, or when the calls that use it on other threads have ended. Later calls with it are
 * MOE_ERR_INVALID_HANDLE, a second close() does nothing. An object that is forgotten closes itself when it is collected.
 */
export class Handle {
  /** Of the subclasses: pointer is an address that the library gave. */
  constructor(kind, pointer) {
    if (typeof pointer !== "bigint" || !raw[`moe_${kind}_destroy`]) throw new TypeError("a Handle is made by the library");
    const owned = new Owned(kind, pointer);
    owners.set(this, owned);
    registry.register(this, owned, owned);
  }
  close() {
    const owned = owners.get(this);
    registry.unregister(owned);
    owned.close();
  }
  get closed() {
    return owners.get(this).closed;
  }
  /** The address for calls of `raw`, valid until close(). */
  get pointer() {
    const owned = owners.get(this);
    owned.enter();
    owned.leave();
    return owned.pointer;
  }
  [Symbol.dispose]() {
    this.close();
  }
}

const logs = new WeakMap(); // of contexts

/** Gives the messages of a context to a function of the program, when calls with it have ended. */
class Log {
  #soon = false;
  #lines = []; // taken, not given yet
  constructor(owned, onLog) {
    this.owned = owned;
    this.onLog = onLog;
  }
  flush() {
    const out = new BigUint64Array(1);
    if (!this.owned.closed && raw.moe_context_take_log(this.owned.pointer, out, null) === constants.MOE_OK) // else no memory: next time
      this.#lines.push(...Buffer.from(bytesOf(out[0])).toString().split("\n").filter(Boolean));
    try {
      while (this.#lines.length) this.onLog(JSON.parse(this.#lines.shift()));
    } finally {
      if (this.#lines.length) this.soon(); // after one at which the function threw
    }
  }
  soon() {
    if (this.#soon) return;
    this.#soon = true;
    queueMicrotask(() => {
      this.#soon = false;
      this.flush();
    });
  }
}

export function logTo(context, onLog) {
  if (typeof onLog !== "function") throw new TypeError(`onLog: expected a function, found ${typeof onLog}`);
  const log = new Log(owners.get(context), onLog);
  logs.set(context, log);
  log.soon(); // it may have messages by now
}
export const flushLog = (context) => logs.get(context)?.flush();

/** Refuses what needs the handle to itself while calls on other threads use it. */
export function exclusive(handle) {
  const { kind, running } = owners.get(handle);
  if (running) throw new MoeError(constants.MOE_ERR_BUSY, kind, `${running} calls on other threads use this ${kind}`);
}

// Numbers that JSON lacks: JSON.stringify would make null of some, which is the word for "by default", and name no place.
function jsonValue(key, value) {
  if (typeof value === "bigint" || (typeof value === "number" && !Number.isFinite(value)))
    throw new TypeError(`document: ${key}: expected what JSON has, found ${typeof value} ${value}`);
  return value;
}

/** Text for a (pointer, length) pair of parameters; documents may be given as objects. */
export function document(value) {
  if (value === undefined || value === null) return [null, 0];
  if (typeof value !== "string" && (typeof value !== "object" || ArrayBuffer.isView(value)))
    throw new TypeError(`document: expected JSON text or an object, found ${value.constructor?.name ?? typeof value}`);
  const bytes = Buffer.from(typeof value === "string" ? value : JSON.stringify(value, jsonValue));
  return [bytes.length ? bytes : Buffer.alloc(1), bytes.length]; // koffi gives the address of an empty array as NULL
}

const parameters = new Map(abi.functions.map(({ name, params }) => [name, params]));

// A handle, which is checked, since an address would be taken for one, stays open until leave().
function held(value, kind, parameter) {
  const owned = owners.get(value);
  if (owned?.kind !== kind) {
    const found = value?.constructor?.name ?? typeof value;
    throw new TypeError(`${parameter}: expected a libmoe ${kind}, found ${found}`);
  }
  owned.enter();
  return owned;
}

// The plain arguments of a call. Its handles stay open meanwhile.
function entered(name, values) {
  const used = [];
  try {
    const plain = values.map((value, i) => {
      const { name: parameter, type } = parameters.get(name)[i];
      if (value === null || value === undefined) return null;
      if (!type.startsWith("handle:")) return value;
      const owned = held(value, type.slice("handle:moe_".length), parameter);
      used.push(owned);
      return owned.pointer;
    });
    return [plain, used];
  } catch (error) {
    for (const owned of used) owned.leave();
    throw error;
  }
}

export function invoke(name, ...values) {
  const [plain, used] = entered(name, values);
  try {
    return raw[name](...plain);
  } finally {
    for (const owned of used) owned.leave();
    for (const value of values) logs.get(value)?.soon();
  }
}

/** A fallible function: throws what it reports. */
export function call(name, ...values) {
  const error = new BigUint64Array(1);
  const status = invoke(name, ...values, error);
  if (status !== constants.MOE_OK) throw failure(status, error[0]);
}

/** The same with a copy of `array`; what `values` gives has it and its release, so the library ends it. */
export function handOver(name, array, values, aligned = false) {
  const memory = copied(array, aligned);
  const error = new BigUint64Array(1);
  let status;
  try {
    status = invoke(name, ...values(memory), error);
  } catch (problem) { // of the arguments: the library was not called
    free(memory);
    throw problem;
  }
  if (status !== constants.MOE_OK) throw failure(status, error[0]);
}

const PHASES = ["none", "open", "convert", "save", "load", "hash", "apply"];
const UNITS = ["none", "files", "experts", "bytes"];
function stateOf(control) {
  const bytes = struct("moe_progress");
  call("moe_control_state", control, bytes);
  const now = members("moe_progress", bytes);
  return {
    phase: PHASES[now.phase] ?? "none", unit: UNITS[now.unit] ?? "none", done: Number(now.done), total: Number(now.total),
    layer: now.layer < 0n ? null : Number(now.layer), layersDone: Number(now.layers_done), layersTotal: Number(now.layers_total),
    bytesDone: Number(now.bytes_done), bytesTotal: Number(now.bytes_total),
  };
}

const inFlight = new Set(); // arguments of calls on other threads: not to be collected

/**
 * The same on another thread. start gets a control, or null, and gives the arguments. within: handles, by their kinds, that a
 * struct among the arguments has.
 */
export async function callAsync(name, watch, start, within = {}) {
  const { signal, onProgress } = watch;
  signal?.throwIfAborted();
  const control = signal || onProgress ? new Handle("control", create("moe_control_create", null, null, null)) : null;
  const error = new BigUint64Array(1);
  const used = [];
  let timer;
  const stop = () => invoke("moe_control_cancel", control);
  const report = () => {
    const state = stateOf(control);
    if (state.phase !== "none") onProgress(state.done, state.total, state); // the other thread may not have begun
  };
  let thrown, values;
  try {
    for (const [kind, value] of Object.entries(within))
      if (value !== undefined && value !== null) used.push(held(value, kind, kind));
    values = start(control);
    const [plain, entries] = entered(name, values);
    used.push(...entries);
    inFlight.add(values);
    signal?.addEventListener("abort", stop, { once: true });
    if (onProgress)
      timer = setInterval(() => {
        try {
          report();
        } catch (problem) { // of the program's: stops the call, and is what it fails with
          thrown ??= problem;
          stop();
        }
      }, 20);
    const status = await raw[name].async(...plain, error);
    if (thrown) {
      if (status !== constants.MOE_OK) raw.moe_error_destroy(error[0]);
      throw thrown;
    }
    if (status !== constants.MOE_OK) throw failure(status, error[0]);
    if (onProgress) report();
  } finally {
    clearInterval(timer);
    inFlight.delete(values);
    signal?.removeEventListener("abort", stop);
    for (const owned of used) owned.leave();
    for (const value of values ?? []) logs.get(value)?.soon();
    control?.close();
  }
}

/** A function with one owned result before the error: its pointer. */
export function create(name, ...values) {
  const out = new BigUint64Array(1);
  call(name, ...values, out);
  return out[0];
}

/** The same on another thread. What was made although the program stopped the call is ended. */
export async function createAsync(name, watch, start, within) {
  const out = new BigUint64Array(1);
  try {
    await callAsync(name, watch, (control) => [...start(control), out], within);
    return out[0];
  } catch (problem) {
    if (out[0]) raw[`${parameters.get(name).at(-2).type.slice("out:handle:".length)}_destroy`](out[0]);
    throw problem;
  }
}

/** A buffer of the library, copied and ended. */
export function bytesOf(buffer) {
  try {
    return copy(raw.moe_buffer_data(buffer), raw.moe_buffer_size(buffer));
  } finally {
    raw.moe_buffer_destroy(buffer);
  }
}
export const textOf = (name, ...values) => Buffer.from(bytesOf(create(name, ...values))).toString();
export const jsonOf = (name, ...values) => JSON.parse(textOf(name, ...values));
