// Sets of weights that ask a function of the program for tensors.
import { MoeError, create } from "./handle.js";
import { callback, constants, copied, free, members, raw, store, struct, view } from "./library.js";
import { Tensor } from "./tensor.js";

const sources = new Map(); // by the `user` of the library's callbacks
const asked = new WeakMap(); // by the set
let last = 0n;
let depth = 0; // of sources that the library asks; each takes some of koffi's stack, whose end would end the process
const DEEPEST = 8;
let callbacks; // of all sources; not made in programs that have none

function textOf(problem) {
  try {
    return String(problem);
  } catch { // even that may throw
    return "an exception without a text";
  }
}

// Nothing is thrown into C: what was thrown is kept for the call, its text becomes part of the library's error.
function get(user, role, expert, shard, out, error) {
  const source = sources.get(user);
  ++depth;
  try {
    if (depth > DEEPEST) throw new RangeError(`sources have asked for tensors of sources ${DEEPEST} times deep`);
    const found = source.get(role, Number(expert), shard);
    if (found === null || found === undefined) return constants.MOE_ERR_MISSING_WEIGHT;
    if (!(found instanceof Tensor))
      throw new TypeError(`${role}[${expert}]: expected a Tensor or null, found ${found.constructor?.name ?? typeof found}`);
    store(found.over(found.data.byteLength ? copied(found.data) : null), out);
    return constants.MOE_OK;
  } catch (problem) {
    source.thrown ??= { problem };
    const status = problem instanceof MoeError ? problem.status : constants.MOE_ERR_CALLBACK;
    const text = Buffer.from(textOf(problem));
    const made = raw.moe_error_create(status, text, text.length);
    if (made) store(BigUint64Array.of(made), error);
    return status;
  } finally {
    --depth;
  }
}

function put(user, role, expert, shard, tensor) {
  const { data } = members("moe_tensor", Buffer.from(view(tensor, struct("moe_tensor").length)));
  if (data) free(data);
}

/** The pointer of a set, and what asking() needs. */
export function createAsking(config, body) {
  if (typeof body !== "function") throw new TypeError(`get: expected a function, found ${typeof body}`);
  const place = "const char *role, int64_t expert, const char *shard";
  callbacks ??= {
    get: callback(`int32_t moe_source_get(void *user, ${place}, void *out, void *error)`, get),
    put: callback(`void moe_source_put(void *user, ${place}, void *tensor)`, put),
    destroy: callback("void moe_source_destroy(void *user)", (user) => void sources.delete(user)),
  };
  const source = { get: body, thrown: undefined };
  const user = ++last;
  sources.set(user, source);
  try {
    return [create("moe_weights_create_from_source", config, struct("moe_weight_source_ops", { user, ...callbacks })), source];
  } catch (problem) {
    sources.delete(user); // a config that is closed: the library was not asked
    throw problem;
  }
}

export const markAsking = (weights, source) => void asked.set(weights, source);
export const isAsking = (weights) => asked.has(weights);

/** A call that may ask: what the function threw stops it, and is what it throws. */
export function asking(weights, body) {
  const source = asked.get(weights);
  if (!source) return body();
  source.thrown = undefined;
  try {
    return body();
  } catch (error) {
    throw source.thrown ? source.thrown.problem : error;
  } finally {
    source.thrown = undefined;
  }
}
