package org.libmoe;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.AddressLayout;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Finds and loads the library, and makes every function of moe_abi.json callable: the way down for what the classes do not
 * offer. The file is that of the property libmoe.path or the variable LIBMOE_PATH, else the jar's own, else what the loader
 * finds. The description comes from the loaded library itself.
 */
public final class Library {
  public static final int ABI_VERSION = 0;

  private record Parameter(String name, String word) {}

  private record Function(MethodHandle handle, List<Parameter> parameters) {}

  private record Member(String word, long offset) {}

  private record Layout(long size, Map<String, Member> members) {}

  /** As C writes a text: bytes up to a NUL, of any length. */
  private static final AddressLayout POINTER =
      ValueLayout.ADDRESS.withTargetLayout(MemoryLayout.sequenceLayout(Long.MAX_VALUE, ValueLayout.JAVA_BYTE));

  private static final Linker LINKER = Linker.nativeLinker();
  private static Path unpacked; // the jar's own, until it is loaded
  private static final String path = find();
  private static final SymbolLookup symbols = load();
  private static final Map<String, Object> description = describe();
  private static final Map<String, Function> functions = new LinkedHashMap<>();
  private static final Map<String, Layout> structs = new LinkedHashMap<>();
  private static final Map<String, Integer> constants = new LinkedHashMap<>();

  static {
    for (Map<String, Object> f : list(description, "functions")) {
      List<Parameter> parameters = new ArrayList<>();
      for (Map<String, Object> p : list(f, "params")) parameters.add(new Parameter((String) p.get("name"), kind(p.get("type"))));
      String name = (String) f.get("name");
      MemoryLayout[] layouts = parameters.stream().map(p -> layout(p.word())).toArray(MemoryLayout[]::new);
      String returns = kind(f.get("returns"));
      FunctionDescriptor type =
          returns.equals("void") ? FunctionDescriptor.ofVoid(layouts) : FunctionDescriptor.of(layout(returns), layouts);
      functions.put(name, new Function(LINKER.downcallHandle(symbol(name), type), parameters));
    }
    for (Map<String, Object> s : list(description, "structs")) {
      Map<String, Member> members = new LinkedHashMap<>();
      for (Map<String, Object> m : list(s, "members"))
        members.put((String) m.get("name"), new Member(kind(m.get("type")), (Long) m.get("offset")));
      structs.put((String) s.get("name"), new Layout((Long) s.get("size"), members));
    }
    for (Map<String, Object> e : list(description, "enums"))
      ((Map<?, ?>) e.get("values")).forEach((name, value) -> constants.put((String) name, ((Long) value).intValue()));
  }

  private Library() {}

  /** The file that was loaded. */
  public static String path() {
    return path;
  }

  /** moe_abi.json of the loaded library. */
  public static Map<String, Object> abi() {
    return description;
  }

  /** MOE_DTYPE_F32, MOE_LOAD_MMAP, ... */
  public static int constant(String name) {
    Integer value = constants.get(name);
    if (value == null) throw new IllegalArgumentException("libmoe has no constant " + name);
    return value;
  }

  /** free(): how the library ends memory of {@link #allocate} that it was given, on whatever thread. */
  static final MemorySegment FREE = LINKER.defaultLookup().find("free").orElseThrow();

  private static final MethodHandle MALLOC = LINKER.downcallHandle(LINKER.defaultLookup().find("malloc").orElseThrow(),
      FunctionDescriptor.of(ValueLayout.ADDRESS, ValueLayout.JAVA_LONG));
  private static final MethodHandle ALIGNED = LINKER.downcallHandle(LINKER.defaultLookup().find("aligned_alloc").orElseThrow(),
      FunctionDescriptor.of(ValueLayout.ADDRESS, ValueLayout.JAVA_LONG, ValueLayout.JAVA_LONG));

  private static final MethodHandle RELEASE_MEMORY = LINKER.downcallHandle(FREE, FunctionDescriptor.ofVoid(ValueLayout.ADDRESS));

  /**
   * A copy of memory, outside of every arena. Aligned: to 64 bytes, for a layer of which the library would make a second
   * copy; glibc before 2.38 uses such memory for no other that is aligned.
   */
  static MemorySegment allocate(MemorySegment content, boolean aligned) {
    long size = content.byteSize();
    try {
      MemorySegment memory = aligned ? (MemorySegment) ALIGNED.invokeExact(64L, (size / 64 + 1) * 64)
                                     : (MemorySegment) MALLOC.invokeExact(Math.max(1, size));
      if (memory.address() == 0) throw new OutOfMemoryError(size + " bytes of native memory");
      return filled(memory, content);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  private static MemorySegment filled(MemorySegment memory, MemorySegment content) {
    try {
      return memory.reinterpret(content.byteSize()).copyFrom(content);
    } catch (RuntimeException | Error e) { // an arena that is closed, or another thread's
      free(memory);
      throw e;
    }
  }

  /** Ends such memory, where no function of the library does. */
  static void free(MemorySegment memory) {
    try {
      RELEASE_MEMORY.invokeExact(memory);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  /** The address of a C function, for a callback parameter. */
  public static MemorySegment symbol(String name) {
    return symbols.find(name).orElseThrow(() -> new UnsatisfiedLinkError(path + " has no " + name));
  }

  /**
   * Calls a function of moe.h. Numbers are Integer or Long by the width of the parameter (a Long for size and u64), doubles
   * Double; text, memory, structs, results and handles are native memory segments, null for NULL.
   */
  public static Object call(String name, Object... arguments) {
    Function function = functions.get(name);
    if (function == null) throw new IllegalArgumentException("libmoe has no function " + name);
    List<Parameter> parameters = function.parameters();
    if (arguments.length != parameters.size())
      throw new IllegalArgumentException(name + ": expected " + parameters.size() + " arguments, found " + arguments.length);
    Object[] checked = new Object[arguments.length];
    for (int i = 0; i < arguments.length; ++i) checked[i] = argument(name, parameters.get(i), arguments[i]);
    try {
      return function.handle().invokeWithArguments(checked);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(name, e); // a downcall throws no other
    }
  }

  private static Object argument(String function, Parameter parameter, Object value) {
    String expected;
    switch (parameter.word()) {
      case "i32", "u32":
        if (value instanceof Integer) return value;
        expected = "an Integer";
        break;
      case "i64", "u64", "size":
        if (value instanceof Integer number) return number.longValue();
        if (value instanceof Long) return value;
        expected = "a Long";
        break;
      default:
        if (value == null) return MemorySegment.NULL;
        if (value instanceof MemorySegment segment && segment.isNative()) return value;
        expected = "native memory (MemorySegment) or null";
    }
    String found = value == null ? "null" : value instanceof MemorySegment ? "memory of the heap" : value.getClass().getSimpleName();
    throw new IllegalArgumentException(function + ": " + parameter.name() + ": expected " + expected + ", found " + found);
  }

  /** A struct of moe_abi.json, zeroed, with struct_size set. */
  static MemorySegment struct(Arena arena, String name) {
    Layout layout = structs.get(name);
    MemorySegment struct = arena.allocate(layout.size(), 8);
    struct.set(ValueLayout.JAVA_INT, 0, (int) layout.size());
    return struct;
  }

  static void set(MemorySegment struct, String name, String member, Object value) {
    Member m = structs.get(name).members().get(member);
    switch (m.word()) {
      case "i32", "u32" -> struct.set(ValueLayout.JAVA_INT, m.offset(), (Integer) value);
      case "i64", "u64", "size" -> struct.set(ValueLayout.JAVA_LONG, m.offset(), ((Number) value).longValue());
      default -> struct.set(ValueLayout.ADDRESS, m.offset(), value == null ? MemorySegment.NULL : (MemorySegment) value);
    }
  }

  static int getInt(MemorySegment struct, String name, String member) {
    return struct.get(ValueLayout.JAVA_INT, offset(name, member));
  }

  static long getLong(MemorySegment struct, String name, String member) {
    return struct.get(ValueLayout.JAVA_LONG, offset(name, member));
  }

  static String getText(MemorySegment struct, String name, String member) {
    return text(struct.get(ValueLayout.ADDRESS, offset(name, member)));
  }

  static long offset(String struct, String member) {
    return structs.get(struct).members().get(member).offset();
  }

  /** A borrowed text of the library, "" for NULL. */
  static String text(Object pointer) {
    MemorySegment segment = (MemorySegment) pointer;
    return segment.address() == 0 ? "" : segment.reinterpret(Long.MAX_VALUE).getString(0);
  }

  /** A C function whose address comes with the call. */
  static MethodHandle function(FunctionDescriptor type) {
    return LINKER.downcallHandle(type);
  }

  static MemorySegment upcall(MethodHandle target, FunctionDescriptor type) {
    return LINKER.upcallStub(target, type, Arena.global());
  }

  private static String kind(Object word) {
    String text = (String) word;
    int colon = text.indexOf(':');
    return colon < 0 ? text : text.substring(0, colon);
  }

  private static MemoryLayout layout(String word) {
    return switch (word) {
      case "i32", "u32" -> ValueLayout.JAVA_INT;
      case "i64", "u64", "size" -> ValueLayout.JAVA_LONG;
      case "f32" -> ValueLayout.JAVA_FLOAT;
      case "f64" -> ValueLayout.JAVA_DOUBLE;
      case "cstr" -> POINTER;
      default -> ValueLayout.ADDRESS; // ptr, handle, out, fn
    };
  }

  @SuppressWarnings("unchecked")
  private static List<Map<String, Object>> list(Map<String, Object> from, String name) {
    return (List<Map<String, Object>>) from.get(name);
  }

  private static String find() {
    String given = System.getProperty("libmoe.path", System.getenv("LIBMOE_PATH"));
    if (given != null && !given.isEmpty()) return given;
    String machine = System.getProperty("os.arch").equals("amd64") ? "x86_64" : System.getProperty("os.arch");
    try (InputStream packed = Library.class.getResourceAsStream("native/linux-" + machine + "/libmoe.so.0")) {
      if (packed == null) return "libmoe.so.0";
      unpacked = Files.createTempDirectory("libmoe").resolve("libmoe.so.0");
      Files.copy(packed, unpacked);
      return unpacked.toString();
    } catch (IOException e) {
      throw new UnsatisfiedLinkError("cannot unpack the library of the jar: " + e);
    }
  }

  private static SymbolLookup load() {
    try {
      return path.contains("/") ? SymbolLookup.libraryLookup(Path.of(path), Arena.global())
                                : SymbolLookup.libraryLookup(path, Arena.global());
    } catch (IllegalArgumentException e) {
      throw new UnsatisfiedLinkError("cannot load libmoe from " + path + " (set LIBMOE_PATH): " + e.getMessage());
    } finally {
      forget();
    }
  }

  private static void forget() { // a loaded file may go
    if (unpacked == null) return;
    try {
      Files.deleteIfExists(unpacked);
      Files.deleteIfExists(unpacked.getParent());
    } catch (IOException e) {
      unpacked.toFile().deleteOnExit();
    }
  }

  private static Map<String, Object> describe() {
    try {
      MemorySegment version = symbols.find("moe_abi_version").orElse(null);
      if (version == null) throw new UnsatisfiedLinkError(path + " is not libmoe: it has no moe_abi_version");
      int abi = (int) LINKER.downcallHandle(version, FunctionDescriptor.of(ValueLayout.JAVA_INT)).invokeExact();
      FunctionDescriptor text = FunctionDescriptor.of(POINTER);
      if (abi != ABI_VERSION)
        throw new UnsatisfiedLinkError(path + " is libmoe " + text(LINKER.downcallHandle(symbol("moe_version_string"), text).invoke())
            + " of ABI " + abi + "; this jar is for ABI " + ABI_VERSION);
      return Json.object(text(LINKER.downcallHandle(symbol("moe_abi_json"), text).invoke()));
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }
}
