// Finds and loads the library, and makes every function of moe_abi.json callable: the table `raw`.
//
// A function's parameters are as in moe.h. Numbers are checked against their width; text is a string; memory, structs and
// results are typed arrays (or null, or an address as a BigInt); a handle is an address. Nothing else is checked: this is
// the way down for what the classes do not offer.
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import koffi from "koffi";

export const ABI_VERSION = 0;

const packaged = fileURLToPath(new URL(`../native/${process.platform}-${process.arch}/libmoe.so.0`, import.meta.url));
/** What was loaded: LIBMOE_PATH, else the package's own, else what the loader finds. */
export const path = process.env.LIBMOE_PATH || (existsSync(packaged) ? packaged : "libmoe.so.0");

function load() {
  let loaded;
  try {
    loaded = koffi.load(path);
  } catch (cause) {
    throw new Error(`cannot load libmoe from ${path} (set LIBMOE_PATH): ${cause.message}`, { cause });
  }
  let found;
  try {
    found = loaded.func("int32_t moe_abi_version()")();
  } catch (cause) {
    throw new Error(`${path} is not libmoe: it has no moe_abi_version`, { cause });
  }
  const version = loaded.func("const char *moe_version_string()")();
  if (found !== ABI_VERSION)
    throw new Error(`${path} is libmoe ${version} of ABI ${found}; this package is for ABI ${ABI_VERSION}`);
  return loaded;
}

const library = load();
const libc = koffi.load(null);
// When Node ends, koffi unloads what it has loaded: not beneath the threads of contexts that are still open.
const RTLD_NOW = 0x2, RTLD_NODELETE = 0x1000;
libc.func("void *dlopen(const char *, int)")(path, RTLD_NOW | RTLD_NODELETE);
/** The description of the loaded library itself. */
export const abi = JSON.parse(library.func("const char *moe_abi_json()")());

const found = (value) =>
  value === null ? "null" : ArrayBuffer.isView(value) ? value.constructor.name : `${typeof value} ${String(value)}`;

function integer(low, high) {
  return (value) => {
    const whole = typeof value === "bigint" || Number.isSafeInteger(value);
    if (!whole || value < low || value > high) return `an integer from ${low} to ${high}`;
  };
}
function memory(value) {
  if (value === null || typeof value === "bigint" || (ArrayBuffer.isView(value) && !value.buffer.resizable)) return;
  return "a typed array of fixed size, an address (BigInt) or null";
}
function text(value) {
  if (value !== null && (typeof value !== "string" || value.includes("\0"))) return "a string without NUL, or null";
}
function handle(value) {
  if (value !== null && typeof value !== "bigint") return "a handle (BigInt) or null";
}

// Type word of moe_abi.json: the type of koffi, and what an argument must be. Any other word is memory.
const WORDS = {
  void: ["void"],
  i32: ["int32_t", integer(-(2n ** 31n), 2n ** 31n - 1n)],
  u32: ["uint32_t", integer(0n, 2n ** 32n - 1n)],
  i64: ["int64_t", integer(-(2n ** 63n), 2n ** 63n - 1n)],
  u64: ["uint64_t", integer(0n, 2n ** 64n - 1n)],
  size: ["size_t", integer(0n, 2n ** 64n - 1n)],
  f32: ["float"],
  f64: ["double"],
  cstr: ["const char *", text],
  handle: ["void *", handle],
};
const word = (type) => WORDS[type.split(":")[0]] ?? ["void *", memory];

// koffi refuses more than 256 calls on other threads; Node runs four at a time, the others may as well wait here.
const AT_ONCE = 64;
let running = 0;
const waiting = [];
function turn() {
  if (running < AT_ONCE) return void ++running;
  return new Promise((resolve) => waiting.push(resolve));
}
function ended() {
  const next = waiting.shift();
  if (next) next(); // takes over the place
  else --running;
}

function declare({ name, returns, params }) {
  const callable = library.func(name, word(returns)[0], params.map((p) => word(p.type)[0]));
  const check = (values) => {
    if (values.length !== params.length)
      throw new TypeError(`${name}: expected ${params.length} arguments, found ${values.length}`);
    params.forEach((p, i) => {
      const expected = word(p.type)[1](values[i]);
      if (expected) throw new TypeError(`${name}: ${p.name}: expected ${expected}, found ${found(values[i])}`);
    });
  };
  const checked = (...values) => (check(values), callable(...values));
  /** The same on another thread; a promise. The caller keeps arrays and handles alive until it is settled. */
  checked.async = async (...values) => {
    check(values);
    await turn();
    try {
      return await new Promise((resolve, reject) =>
        callable.async(...values, (error, result) => (error ? reject(error) : resolve(result))));
    } finally {
      ended();
    }
  };
  return checked;
}

export const raw = Object.freeze(Object.fromEntries(abi.functions.map((f) => [f.name, declare(f)])));

/** Constants and enumerations: MOE_DTYPE_F32, MOE_LOAD_MMAP, ... */
export const constants = Object.freeze(Object.assign({}, abi.constants, ...abi.enums.map((e) => e.values)));

const malloc = libc.func("void *malloc(size_t)");
const alignedAlloc = libc.func("void *aligned_alloc(size_t, size_t)");
const memcpy = libc.func("void *memcpy(void *, void *, size_t)");
/** How the library ends memory of copied(): no callback into JavaScript, on whatever thread. */
export const release = libc.symbol("free");
export const free = libc.func("void free(void *)");
/**
 * A copy of an array in memory of its own: arrays can be transferred to another thread, or be changed. Aligned: to 64 bytes,
 * for a layer of which the library would make a second copy; glibc before 2.38 uses such memory for no other that is aligned.
 */
export function copied(array, aligned = false) {
  const size = array.byteLength;
  const memory = aligned ? alignedAlloc(64, (Math.floor(size / 64) + 1) * 64) : malloc(size || 1);
  if (!memory) throw new RangeError(`no memory: ${size} bytes`);
  if (size) memcpy(memory, array, size);
  return memory;
}
/** A copy of an array at an address. */
export const store = (array, pointer) => void memcpy(pointer, array, array.byteLength);
/**
 * A function for the library to call, for good. Only on the thread of JavaScript, in a call that it waits for: from other
 * threads koffi would queue the function to this one, which may be waiting for them, or end the process with one queued.
 */
export const callback = (prototype, body) => koffi.register(body, koffi.pointer(koffi.proto(prototype)));
export const address = (array) => koffi.address(array);
/** Memory of the library, as long as it is there. */
export const view = (pointer, size) => new Uint8Array(koffi.view(pointer, Number(size)));
export const copy = (pointer, size) => (Number(size) === 0 ? new Uint8Array() : Uint8Array.from(view(pointer, size)));
export const string = (pointer) => koffi.decode.string(pointer);

const structs = Object.fromEntries(abi.structs.map((s) => [s.name, s]));
const SETTERS = { i32: "setInt32", u32: "setUint32", i64: "setBigInt64" };

const pointees = new WeakMap(); // what the addresses in a struct lead to lives as long as the struct

/** A struct of moe_abi.json as bytes, with struct_size set; members that are typed arrays become their addresses. */
export function struct(name, members = {}) {
  const bytes = Buffer.alloc(structs[name].size);
  pointees.set(bytes, Object.values(members));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const of = Object.fromEntries(structs[name].members.map((m) => [m.name, m]));
  for (const [key, value] of Object.entries({ struct_size: bytes.length, ...members })) {
    if (value === null || value === undefined) continue;
    const kind = of[key].type.split(":")[0];
    const setter = SETTERS[kind] ?? "setBigUint64"; // u64, size and every pointer
    const wide = setter.startsWith("setBig");
    (Array.isArray(value) ? value : [value]).forEach((item, i) => {
      const number = ArrayBuffer.isView(item) ? address(item) : item;
      view[setter](of[key].offset + i * (wide ? 8 : 4), wide ? BigInt(number) : Number(number), true);
    });
  }
  return bytes;
}

/** The members of a struct that the library has filled. */
export function members(name, bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const read = { i32: "getInt32", u32: "getUint32", i64: "getBigInt64" };
  return Object.fromEntries(structs[name].members.map((m) => {
    const kind = m.type.split(":")[0];
    const get = read[kind] ?? "getBigUint64";
    const at = (i) => view[get](m.offset + i * (get.includes("Big") ? 8 : 4), true);
    if (m.count) return [m.name, Array.from({ length: m.count }, (_, i) => at(i))];
    if (kind === "cstr") return [m.name, at(0) === 0n ? null : string(at(0))];
    return [m.name, at(0)];
  }));
}
