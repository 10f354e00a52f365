// Typed arrays as tensors.
import { constants, members, raw, struct, view } from "./library.js";
import { MoeError } from "./handle.js";

const TYPES = [
  [Float32Array, "f32"], [Float64Array, "f64"], [Int8Array, "i8"], [Uint8Array, "u8"], [Int16Array, "i16"],
  [Uint16Array, "u16"], [Int32Array, "i32"], [Uint32Array, "u32"], [BigInt64Array, "i64"], [BigUint64Array, "u64"],
];
/** The array type for a dtype name; types that JavaScript lacks are their bits. */
export function arrayOf(dtype) {
  const exact = TYPES.find(([, name]) => name === dtype);
  return exact ? exact[0] : dtype === "bf16" || dtype === "f16" ? Uint16Array : Uint8Array;
}

/** A view of an array with the shape and type that the library is told. */
export class Tensor {
  /** dtype: "bf16" for a Uint16Array of bits, "f8_e4m3fn" for a Uint8Array; by default the array's own. */
  constructor(data, shape, dtype) {
    const own = TYPES.find(([type]) => data instanceof type);
    if (!own) throw new TypeError(`tensor: expected a typed array, found ${data?.constructor?.name ?? typeof data}`);
    if (data.buffer.resizable) throw new TypeError("tensor: expected memory of fixed size, found a resizable ArrayBuffer");
    if (!Array.isArray(shape) || !shape.every((n) => Number.isSafeInteger(n) && n >= 0))
      throw new TypeError(`tensor: shape: expected an array of integers from 0, found ${Array.isArray(shape) ? `[${shape.map(String)}]` : String(shape)}`);
    if (shape.length > constants.MOE_MAX_DIMS)
      throw new RangeError(`tensor: shape: expected at most ${constants.MOE_MAX_DIMS} dimensions, found ${shape.length}`);
    this.data = data;
    this.shape = Object.freeze([...shape]);
    this.dtype = dtype ?? own[1];
    this.code = raw.moe_dtype_from_name(this.dtype);
    if (this.code === constants.MOE_DTYPE_INVALID) throw new TypeError(`tensor: dtype: "${this.dtype}" is none`);
    const needed = raw.moe_tensor_nbytes(this.code, shape.length, BigInt64Array.from(shape, BigInt));
    if (Number(needed) !== data.byteLength)
      throw new RangeError(`tensor: a ${this.dtype} tensor of [${shape}] takes ${needed} bytes, ` +
                           `this ${data.constructor.name} has ${data.byteLength}`);
    Object.freeze(this);
  }
  /** The struct for the library. Its user keeps this object. */
  get bytes() {
    return this.over(this.data);
  }
  /** The same over memory that holds a copy of the data. */
  over(memory) {
    return struct("moe_tensor", {
      dtype: this.code, ndim: this.shape.length, data: this.data.byteLength ? memory : null,
      nbytes: this.data.byteLength, shape: this.shape,
    });
  }
}

/** `value` as it is, or an array as a tensor of `columns` columns and the type that is expected there. */
export function matrix(value, name, columns, dtypes, rows) {
  if (!(value instanceof Tensor)) {
    const dtype = dtypes.find((d) => value instanceof arrayOf(d));
    if (!dtype) {
      const expected = dtypes.map((d) => `${arrayOf(d).name} (${d})`).join(" or ");
      throw new TypeError(`${name}: expected a ${expected}, found ${value?.constructor?.name ?? typeof value}`);
    }
    if (value.length % columns !== 0 || (rows !== undefined && value.length !== rows * columns))
      throw new RangeError(`${name}: expected ${rows ?? "rows"} x ${columns} elements, found ${value.length}`);
    return new Tensor(value, [value.length / columns, columns], dtype);
  }
  return value;
}

// Rows of `bytes` that lie apart, one after another.
function withoutGaps(bytes, code, shape, strides) {
  const size = (n) => Number(raw.moe_tensor_nbytes(code, 1, BigInt64Array.of(n)));
  const bits = size(8n); // bytes of 8 elements
  if (strides.at(-1) !== 1n) throw new MoeError(constants.MOE_ERR_SHAPE, "strides", `columns lie apart: [${strides}]`);
  const row = size(shape.at(-1));
  const rows = Number(shape.slice(0, -1).reduce((a, b) => a * b, 1n));
  const out = new Uint8Array(rows * row);
  for (let i = 0; i < rows; ++i) {
    let [rest, at] = [BigInt(i), 0n];
    for (let d = shape.length - 2; d >= 0; --d) [at, rest] = [at + (rest % shape[d]) * strides[d], rest / shape[d]];
    const from = (Number(at) * bits) / 8;
    out.set(bytes.subarray(from, from + row), i * row);
  }
  return out;
}

/** A tensor of the library as {dtype, shape, data}, copied. */
export function taken(struct) {
  const filled = members("moe_tensor", struct);
  const [shape, strides] = [filled.shape.slice(0, filled.ndim), filled.strides.slice(0, filled.ndim)];
  const all = filled.data === 0n ? new Uint8Array() : view(filled.data, filled.nbytes);
  const bytes = strides.some((s) => s !== 0n) ? withoutGaps(all, filled.dtype, shape, strides) : Uint8Array.from(all);
  const dtype = raw.moe_dtype_name(filled.dtype);
  return { dtype, shape: shape.map(Number), data: new (arrayOf(dtype))(bytes.buffer) };
}
