package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;

/** Memory with a shape and a type: "f32", "bf16", "f8_e4m3fn", ... Row-major, without gaps. */
public record Tensor(MemorySegment data, String dtype, long... shape) {
  public Tensor {
    if (data == null) throw new IllegalArgumentException("tensor: expected memory, found null");
    if (shape == null) throw new IllegalArgumentException("tensor: shape: expected an array, found null");
    long needed = nbytes(code(dtype), shape);
    if (needed < 0)
      throw new IllegalArgumentException("tensor: shape: expected at most 6 dimensions from 0, found " + Arrays.toString(shape));
    if (needed != data.byteSize())
      throw new IllegalArgumentException("tensor: a " + dtype + " tensor of " + Arrays.toString(shape) + " takes " + needed
          + " bytes, this memory has " + data.byteSize());
  }

  public static Tensor of(float[] values, long... shape) {
    return new Tensor(MemorySegment.ofArray(Handle.given("tensor", values)), "f32", shape);
  }

  /** The bits of "bf16" or "f16". */
  public static Tensor of(short[] bits, String dtype, long... shape) {
    return new Tensor(MemorySegment.ofArray(Handle.given("tensor", bits)), dtype, shape);
  }

  public static Tensor of(int[] values, long... shape) {
    return new Tensor(MemorySegment.ofArray(Handle.given("tensor", values)), "i32", shape);
  }

  /** int8, 8-bit floats and packed codes. */
  public static Tensor of(byte[] bytes, String dtype, long... shape) {
    return new Tensor(MemorySegment.ofArray(Handle.given("tensor", bytes)), dtype, shape);
  }

  /** The elements as float32. */
  public float[] toFloats() {
    if (!dtype.equals("f32")) throw new IllegalStateException("tensor: expected f32, found " + dtype);
    return data.toArray(ValueLayout.JAVA_FLOAT.withOrder(java.nio.ByteOrder.nativeOrder()).withByteAlignment(1));
  }

  static int code(String dtype) {
    if (dtype == null) throw new IllegalArgumentException("tensor: expected a dtype, found null");
    try (Arena arena = Arena.ofConfined()) {
      int code = (int) Library.call("moe_dtype_from_name", Handle.text(arena, "dtype", dtype));
      if (code == 0) throw new IllegalArgumentException("tensor: dtype: \"" + dtype + "\" is none");
      return code;
    }
  }

  static String name(int code) {
    return Library.text(Library.call("moe_dtype_name", code));
  }

  static long nbytes(int code, long... shape) {
    try (Arena arena = Arena.ofConfined()) {
      if (shape.length == 0) return (long) Library.call("moe_tensor_nbytes", code, 0, null);
      return (long) Library.call("moe_tensor_nbytes", code, shape.length, arena.allocateFrom(ValueLayout.JAVA_LONG, shape));
    }
  }

  /** The struct over a copy of the data in `arena`. */
  MemorySegment copied(Arena arena) {
    MemorySegment copy = arena.allocate(Math.max(1, data.byteSize()), 64);
    MemorySegment.copy(data, 0, copy, 0, data.byteSize());
    return struct(arena, copy.asSlice(0, data.byteSize()));
  }

  /** The struct over native memory of this type and shape. */
  MemorySegment struct(Arena arena, MemorySegment memory) {
    MemorySegment tensor = Library.struct(arena, "moe_tensor");
    Library.set(tensor, "moe_tensor", "dtype", code(dtype));
    Library.set(tensor, "moe_tensor", "ndim", shape.length);
    Library.set(tensor, "moe_tensor", "data", memory.byteSize() == 0 ? null : memory);
    Library.set(tensor, "moe_tensor", "nbytes", memory.byteSize());
    MemorySegment.copy(shape, 0, tensor, ValueLayout.JAVA_LONG, Library.offset("moe_tensor", "shape"), shape.length);
    return tensor;
  }

  /** What the library filled a struct with, in the memory of a buffer, which ends when nothing leads to the tensor any more. */
  static Tensor owning(MemorySegment tensor, MemorySegment buffer) {
    long bytes = Library.getLong(tensor, "moe_tensor", "nbytes");
    MemorySegment data = tensor.get(ValueLayout.ADDRESS, Library.offset("moe_tensor", "data"));
    data = data.reinterpret(bytes, Arena.ofAuto(), memory -> Library.call("moe_buffer_destroy", buffer));
    long[] shape = new long[Library.getInt(tensor, "moe_tensor", "ndim")];
    for (int i = 0; i < shape.length; ++i) shape[i] = tensor.getAtIndex(ValueLayout.JAVA_LONG, Library.offset("moe_tensor", "shape") / 8 + i);
    return new Tensor(data, name(Library.getInt(tensor, "moe_tensor", "dtype")), shape);
  }

  /** What the library filled a struct with, copied; rows that lie apart are put together. */
  static Tensor taken(MemorySegment tensor) {
    int code = tensor.get(ValueLayout.JAVA_INT, Library.offset("moe_tensor", "dtype"));
    int ndim = tensor.get(ValueLayout.JAVA_INT, Library.offset("moe_tensor", "ndim"));
    long bytes = tensor.get(ValueLayout.JAVA_LONG, Library.offset("moe_tensor", "nbytes"));
    MemorySegment data = tensor.get(ValueLayout.ADDRESS, Library.offset("moe_tensor", "data")).reinterpret(bytes);
    long[] shape = new long[ndim], strides = new long[ndim];
    for (int i = 0; i < ndim; ++i) {
      shape[i] = tensor.getAtIndex(ValueLayout.JAVA_LONG, Library.offset("moe_tensor", "shape") / 8 + i);
      strides[i] = tensor.getAtIndex(ValueLayout.JAVA_LONG, Library.offset("moe_tensor", "strides") / 8 + i);
    }
    if (Arrays.stream(strides).allMatch(s -> s == 0))
      return new Tensor(MemorySegment.ofArray(data.toArray(ValueLayout.JAVA_BYTE)), name(code), shape);
    if (strides[ndim - 1] != 1) throw new IllegalStateException("tensor: columns lie apart: " + Arrays.toString(strides));
    long bits = nbytes(code, 8), row = nbytes(code, shape[ndim - 1]), rows = 1;
    for (int d = 0; d + 1 < ndim; ++d) rows *= shape[d];
    byte[] out = new byte[Math.toIntExact(rows * row)];
    for (long i = 0; i < rows; ++i) {
      long rest = i, at = 0;
      for (int d = ndim - 2; d >= 0; --d) {
        at += rest % shape[d] * strides[d];
        rest /= shape[d];
      }
      MemorySegment.copy(data, ValueLayout.JAVA_BYTE, at * bits / 8, out, (int) (i * row), (int) row);
    }
    return new Tensor(MemorySegment.ofArray(out), name(code), shape);
  }
}
