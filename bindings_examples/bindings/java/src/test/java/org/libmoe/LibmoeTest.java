package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/**
 * The binding on a tiny checkpoint (LIBMOE_PATH, MOE_TEST_CHECKPOINT); each method that begins with `test` is one test.
 * A program of its own, so that it runs where no registry of packages is. How handles are closed:
 * bindings_examples/bindings/PROTOCOL.md, which names the tests of its rules.
 */
public final class LibmoeTest {
  interface Body {
    Object run() throws Exception;
  }

  static void expect(boolean condition, String text) {
    if (!condition) throw new AssertionError(text);
  }

  static void equal(Object found, Object expected) {
    expect(found.equals(expected), "expected " + expected + ", found " + found);
  }

  /** The body throws `type` with all of the texts in its message. */
  static <E extends Throwable> E fails(Class<E> type, Body body, String... texts) {
    try {
      Object result = body.run();
      throw new AssertionError("expected " + type.getSimpleName() + ", found " + result);
    } catch (Throwable e) {
      if (!type.isInstance(e)) throw new AssertionError("expected " + type.getSimpleName() + ", found " + e, e);
      for (String text : texts) expect(String.valueOf(e.getMessage()).contains(text), "no '" + text + "' in: " + e.getMessage());
      return type.cast(e);
    }
  }

  static void failsWith(String code, Body body, String... texts) {
    equal(fails(MoeException.class, body, texts).code(), code);
  }

  final Path checkpoint = Path.of(System.getenv("MOE_TEST_CHECKPOINT"));
  final Config config;
  final Selection selection;
  final Weights weights;
  final Packed packed;
  final Layer layer;
  final short[] hidden, expected;
  final float[] logits;

  LibmoeTest() throws Exception {
    config = Config.fromHf(Files.readString(checkpoint.resolve("config.json")));
    selection = new Selection(config);
    weights = new Weights(config);
    weights.loadSafetensors(checkpoint.toString());
    packed = Packed.convert(selection, weights);
    layer = new Layer(selection, packed);
    ValueLayout.OfShort bits = ValueLayout.JAVA_SHORT_UNALIGNED;
    hidden = MemorySegment.ofArray(Files.readAllBytes(checkpoint.resolve("hidden.bin"))).toArray(bits);
    logits = MemorySegment.ofArray(Files.readAllBytes(checkpoint.resolve("logits.bin"))).toArray(ValueLayout.JAVA_FLOAT_UNALIGNED);
    expected = layer.apply(hidden, logits);
  }

  void testEveryFunctionIsCallable() throws Exception {
    String file = System.getenv("MOE_ABI_JSON");
    if (file != null) equal(Library.abi(), Json.object(Files.readString(Path.of(file))));
    List<?> functions = (List<?>) Library.abi().get("functions");
    expect(functions.size() >= 80, "too few functions");
    for (Object f : functions) {
      Map<?, ?> function = (Map<?, ?>) f;
      int count = ((List<?>) function.get("params")).size();
      fails(IllegalArgumentException.class, () -> Library.call((String) function.get("name"), new Object[count + 1]),
          "expected " + count + " arguments");
    }
    equal(Library.constant("MOE_ERR_INTERNAL"), 99);
    fails(IllegalArgumentException.class, () -> Library.constant("MOE_NONE"));
    fails(IllegalArgumentException.class, () -> Library.call("moe_none"), "no function moe_none");
  }

  void testArgumentsAreCheckedByTheirWords() {
    fails(IllegalArgumentException.class, () -> Library.call("moe_status_name", 1L), "status: expected an Integer, found Long");
    fails(IllegalArgumentException.class, () -> Library.call("moe_has_feature", "io.mmap"), "name: expected native memory", "String");
    fails(IllegalArgumentException.class, () -> Library.call("moe_has_feature", MemorySegment.ofArray(new byte[4])), "of the heap");
    equal(Library.call("moe_has_feature", (Object) null), 0);
  }

  void testOffsetsAreThoseOfC() {
    for (Object s : (List<?>) Library.abi().get("structs")) {
      Map<?, ?> struct = (Map<?, ?>) s;
      long end = 0;
      for (Object m : (List<?>) struct.get("members")) {
        Map<?, ?> member = (Map<?, ?>) m;
        String word = ((String) member.get("type")).split(":")[0];
        MemoryLayout layout = word.equals("i32") || word.equals("u32") ? ValueLayout.JAVA_INT : ValueLayout.JAVA_LONG;
        end = (end + layout.byteAlignment() - 1) / layout.byteAlignment() * layout.byteAlignment();
        equal(member.get("offset"), end);
        end += layout.byteSize() * (member.get("count") == null ? 1 : (Long) member.get("count"));
      }
      equal(struct.get("size"), (end + 7) / 8 * 8);
    }
  }

  void testVersionAndQuestions() {
    equal(Moe.version(), Library.abi().get("version"));
    expect(Moe.hasFeature("io.mmap") && !Moe.hasFeature("none"), "features");
    equal(Json.object(Moe.buildInfo()).get("version"), Moe.version());
    expect(Moe.configSchema().contains("$schema"), "schema");
    equal(Json.object(Moe.describe("activation", "{\"activation\":\"silu\"}")).get("gated"), true);
    failsWith("MOE_ERR_INVALID_ARGUMENT", () -> Moe.describe("none", "{}"), "topic", "known are");
    fails(IllegalArgumentException.class, () -> Moe.describe("a\0b", "{}"), "topic: expected a text without NUL");
  }

  void testOtherLibrariesAreNamed() throws Exception {
    equal(Library.path(), System.getenv("LIBMOE_PATH"));
    expect(load("/no/such/libmoe.so.0").contains("cannot load libmoe from /no/such/libmoe.so.0"), "no path");
    expect(load("libm.so.6").contains("libm.so.6 is not libmoe"), "libm");
    String other = System.getenv("MOE_OTHER_ABI");
    if (other != null)
      expect(load(other).contains(other + " is libmoe 9.9.9 of ABI 7; this jar is for ABI 0"), load(other));
  }

  void testTheFileOfThePropertyStays() throws Exception {
    Path file = Files.createTempDirectory("libmoe").resolve("libmoe.so.0");
    Files.copy(Path.of(Library.path()), file);
    equal(load("", "-Dlibmoe.path=" + file).strip(), Moe.version());
    Files.delete(file);
    Files.delete(file.getParent());
  }

  private static String load(String path, String... options) throws Exception {
    List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java", "--enable-native-access=ALL-UNNAMED"));
    command.addAll(List.of(options));
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), "org.libmoe.LibmoeTest", "version"));
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().put("LIBMOE_PATH", path);
    Process process = builder.redirectErrorStream(true).start();
    String text = new String(process.getInputStream().readAllBytes());
    process.waitFor();
    return text;
  }

  void testConfig() {
    equal(config.getInt("/hidden_dim"), 64L);
    equal(config.getString("/in_dtype"), "bfloat16");
    equal(config.getFloat("/routing/routed_scaling_factor"), 1.0);
    failsWith("MOE_ERR_INVALID_ARGUMENT", () -> config.getInt("/none"));
    try (Config merged = config.merge("{\"moe_backend\":\"cpu\"}")) {
      expect(merged.document().contains("\"moe_backend\":\"cpu\""), "merge");
    }
    MoeException e = fails(MoeException.class, () -> new Config("{\"num_experts\":\"four\"}"), "/num_experts: found \"four\", expected");
    equal(e.subject(), "/num_experts");
    equal(e.status(), Library.constant("MOE_ERR_INVALID_CONFIG"));
    equal(Json.object(e.details()).get("subject"), "/num_experts");
    failsWith("MOE_ERR_INVALID_CONFIG", () -> new Config("{}\0"), "NUL");
    failsWith("MOE_ERR_INVALID_CONFIG", () -> new Config(""));
    failsWith("MOE_ERR_INVALID_ARGUMENT", () -> new Config(null));
    failsWith("MOE_ERR_INVALID_CONFIG", () -> new Context("{\"threads\":-1}"), "/threads: found -1");
  }

  void testSelectionShowsEveryCandidate() {
    List<Selection.Candidate> all = selection.candidates();
    equal(all.stream().filter(Selection.Candidate::chosen).map(Selection.Candidate::kernel).toList(), List.of(selection.kernel()));
    expect(all.stream().anyMatch(c -> !c.reason().equals("MOE_REJECT_NONE") && !c.detail().isEmpty()), "no reasons");
    expect(selection.packedSize().bytes() > 0 && !selection.backend().isEmpty() && !selection.layout().isEmpty(), "empty");
    expect(selection.report().contains("candidates"), "report");
    try (Platform other = new Platform("{\"type\":\"cpu\",\"arch\":\"riscv64\"}");
         Selection none = new Selection(config, null, other, Selection.EXPLAIN_ONLY)) {
      equal(none.candidates().size(), all.size());
      expect(!other.has("avx2") && other.document().contains("riscv64"), "platform");
    }
    failsWith("MOE_ERR_INVALID_ARGUMENT", () -> new Selection(null), "config");
  }

  void testFormsOfApplyAgree() {
    long tokens = logits.length / 4;
    Moe.Routed routed = Moe.route(config, logits);
    layer.expertCounts(true);
    try (Arena arena = Arena.ofShared()) {
      MemorySegment in = arena.allocateFrom(ValueLayout.JAVA_SHORT, hidden), out = arena.allocate(2L * hidden.length, 64);
      layer.apply(tokens, in, arena.allocateFrom(ValueLayout.JAVA_FLOAT, logits), out);
      expect(Arrays.equals(out.toArray(ValueLayout.JAVA_SHORT), expected), "segments");
      out.fill((byte) 0);
      layer.applyTopk(tokens, in, arena.allocateFrom(ValueLayout.JAVA_INT, routed.ids()),
          arena.allocateFrom(ValueLayout.JAVA_FLOAT, routed.weights()), out);
      expect(Arrays.equals(out.toArray(ValueLayout.JAVA_SHORT), expected), "topk");
    }
    equal(Arrays.stream(layer.expertCounts(false)).sum(), 2L * routed.ids().length);
    expect(layer.workspaceSize(4).bytes() > 0 && layer.report().contains("kernel"), "report");
  }

  void testAsManyColumnsAsTheRoutingHas() {
    columns("{\"num_fused_shared_experts\":1}", 4, 3, 5);
    columns("{\"num_zero_experts\":3,\"e_score_correction_bias\":[0,0,0,0,0,0,0]}", 7, 2, 4);
    columns("{\"num_shared_logits\":1,\"scoring_func\":\"sigmoid\"}", 5, 2, 4);
  }

  void testWeightsOfAnotherLayer() {
    String text = "{\"num_experts\":2,\"top_k\":1,\"hidden_dim\":32,\"intermediate_size\":16,\"in_dtype\":\"float32\",\"name\":\"model.layers.";
    try (Config own = new Config(text + "0.mlp.experts\"}"); Config other = new Config(text + "1.mlp.experts\"}");
         Weights set = new Weights(own); Selection choice = new Selection(own);
         Selection another = new Selection(other)) {
      set.set("w13_weight", Tensor.of(new float[2 * 32 * 32], 2, 32, 32));
      set.set("w2_weight_packed", Tensor.of(new float[2 * 32 * 16], 2, 32, 16));
      try (Packed made = Packed.convert(choice, set)) {
        fails(MoeException.class, () -> new Layer(another, made), "MOE_LAYER_ANY_NAME");
        new Layer(another, made, null, null, null, Layer.ANY_NAME).close();
        fails(MoeException.class, () -> Packed.convert(another, set), "MOE_CONVERT_ANY_NAME");
        Packed.convert(another, set, null, null, Packed.ANY_NAME).close();
      }
    }
  }

  private void columns(String routing, int columns, int slots, int held) {
    String text = "{\"num_experts\":4,\"top_k\":2,\"hidden_dim\":32,\"intermediate_size\":16,\"in_dtype\":\"float32\",\"routing\":";
    int tokens = 3;
    float[] w13 = new float[held * 32 * 32], w2 = new float[held * 32 * 16], rows = new float[tokens * 32];
    float[] given = new float[tokens * columns];
    for (int i = 0; i < w13.length; ++i) w13[i] = i % 7 / 8f;
    for (int i = 0; i < w2.length; ++i) w2[i] = i % 5 / 8f;
    for (int i = 0; i < given.length; ++i) given[i] = i * 5 % 11;
    Arrays.fill(rows, 1);
    try (Config own = new Config(text + routing + "}"); Weights set = new Weights(own); Selection choice = new Selection(own);
         Arena arena = Arena.ofConfined()) {
      set.set("w13_weight", Tensor.of(w13, held, 32, 32));
      set.set("w2_weight", Tensor.of(w2, held, 32, 16));
      Moe.Routed routed = Moe.route(own, given);
      equal(routed.ids().length, tokens * slots);
      try (Packed made = Packed.convert(choice, set); Layer all = new Layer(choice, made)) {
        float[] wanted = all.apply(rows, given);
        MemorySegment in = arena.allocateFrom(ValueLayout.JAVA_FLOAT, rows), out = arena.allocate(4L * rows.length, 64);
        all.applyTopk(tokens, in, arena.allocateFrom(ValueLayout.JAVA_INT, routed.ids()),
            arena.allocateFrom(ValueLayout.JAVA_FLOAT, routed.weights()), out);
        expect(Arrays.equals(out.toArray(ValueLayout.JAVA_FLOAT), wanted), "topk");
        out.fill((byte) 0);
        all.apply(tokens, in, arena.allocateFrom(ValueLayout.JAVA_FLOAT, given), out);
        expect(Arrays.equals(out.toArray(ValueLayout.JAVA_FLOAT), wanted), "segments");
        equal(all.expertCounts(false).length, held);
      }
    }
  }

  void testBadInputIsRefused() {
    fails(IllegalArgumentException.class, () -> layer.apply(new float[64], new float[4]), "takes bf16", "expected short[], found float[]");
    fails(IllegalArgumentException.class, () -> layer.apply(new short[63], new float[4]), "hidden: expected rows of 64 values, found 63");
    fails(IllegalArgumentException.class, () -> layer.apply(new short[64], new float[3]), "routerLogits: expected 1 x 4 values, found 3");
    fails(IllegalArgumentException.class, () -> layer.apply((short[]) null, new float[4]), "hidden: expected one, found null");
    fails(IllegalArgumentException.class, () -> layer.apply(new short[64], null), "routerLogits: expected one, found null");
    fails(IllegalArgumentException.class, () -> Packed.fromBytes(null), "bytes: expected one, found null");
    fails(IllegalArgumentException.class, () -> packed.dequantize(null, 0), "role: expected one, found null");
    fails(IllegalArgumentException.class, () -> Tensor.of((byte[]) null, "i8", 1), "tensor: expected one, found null");
    fails(IllegalArgumentException.class, () -> Tensor.of(new float[1], (long[]) null), "shape: expected an array, found null");
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment in = arena.allocate(128, 64), four = arena.allocate(16, 4), out = arena.allocate(128, 64);
      fails(IllegalArgumentException.class, () -> run(in.asSlice(0, 100), four, out), "hidden: expected 1 x 64 bf16", "found 100");
      fails(IllegalArgumentException.class, () -> run(in, four, out.asReadOnly()), "out: expected memory that can be written");
      fails(IllegalArgumentException.class, () -> run(in, MemorySegment.ofArray(logits), out), "routerLogits: expected native memory");
      fails(IllegalArgumentException.class, () -> run(null, four, out), "hidden: expected native memory, found null");
      failsWith("MOE_ERR_INVALID_ARGUMENT", () -> run(in, four, in));
      MemorySegment ids = arena.allocateFrom(ValueLayout.JAVA_INT, 0, 99);
      failsWith("MOE_ERR_INVALID_ARGUMENT", () -> {
        layer.applyTopk(1, in, ids, arena.allocate(8, 4), out);
        return null;
      });
      fails(IllegalArgumentException.class, () -> {
        layer.apply(-1, in, four, out);
        return null;
      }, "tokens");
      fails(IllegalArgumentException.class, () -> {
        layer.apply(Long.MAX_VALUE, in, four, out);
        return null;
      }, "tokens: 9223372036854775807 rows of 4 are more than memory holds");
      Arena gone = Arena.ofConfined();
      MemorySegment dead = gone.allocate(128, 64);
      gone.close();
      fails(IllegalStateException.class, () -> run(dead, four, out));
    }
    fails(IllegalArgumentException.class, () -> Tensor.of(new float[5], 2, 3), "[2, 3] takes 24 bytes, this memory has 20");
    fails(IllegalArgumentException.class, () -> Tensor.of(new float[1], 1, 1, 1, 1, 1, 1, 1), "at most 6 dimensions");
    fails(IllegalArgumentException.class, () -> Tensor.of(new float[1], -1), "shape");
    fails(IllegalArgumentException.class, () -> Tensor.of(new short[1], "f99", 1), "\"f99\" is none");
  }

  private Object run(MemorySegment in, MemorySegment routerLogits, MemorySegment out) {
    layer.apply(1, in, routerLogits, out);
    return "done";
  }

  void testSavedLoadedAndShown() throws Exception {
    Path file = Files.createTempFile("libmoe", ".moe");
    List<Long> seen = new ArrayList<>();
    try (Control control = new Control((done, total) -> seen.add(done))) {
      packed.save(file.toString(), control);
      expect(!seen.isEmpty(), "no progress");
      equal(control.progress().done(), control.progress().total());
    }
    for (Packed again : List.of(Packed.load(file.toString()), Packed.load(file.toString(), Packed.VERIFY, null, null),
             Packed.fromBytes(packed.toBytes())))
      try (Layer other = new Layer(selection, again)) {
        again.close(); // the layer keeps what it needs
        expect(Arrays.equals(other.apply(hidden, logits), expected), "another result");
      }
    Files.delete(file);
    failsWith("MOE_ERR_IO", () -> Packed.load(file.toString()));
    failsWith("MOE_ERR_FORMAT", () -> Packed.fromBytes(new byte[100]));
    Map<?, ?> output = (Map<?, ?>) ((List<?>) Json.object(packed.report()).get("outputs")).get(0);
    Tensor all = packed.get((String) output.get("name"), -1), one = packed.get((String) output.get("name"), 1);
    equal(all.shape()[0], 4L);
    equal(all.data().asSlice(one.data().byteSize(), one.data().byteSize()).mismatch(one.data()), -1L);
    expect(packed.dequantize("w2_weight", 0).toFloats().length == 64 * 32, "dequantize");
    failsWith("MOE_ERR_INVALID_ARGUMENT", () -> packed.get("none", -1));
  }

  void testWeightsFromArrays() {
    String text = "{\"num_experts\":2,\"top_k\":1,\"hidden_dim\":32,\"intermediate_size\":16,\"in_dtype\":\"float32\",\"name\":\"m.experts\"}";
    float[] w2 = new float[32 * 16], w13 = new float[2 * 32 * 32], ones = new float[32];
    Arrays.fill(w2, 0.5f);
    Arrays.fill(w13, 0.25f);
    Arrays.fill(ones, 1);
    try (Config small = new Config(text); Weights set = new Weights(small); Selection choice = new Selection(small)) {
      set.set("w13_weight", Tensor.of(w13, 2, 32, 32));
      set.setExpert("w2_weight", 0, null, Tensor.of(w2, 32, 16));
      failsWith("MOE_ERR_MISSING_WEIGHT", () -> Packed.convert(choice, set), "w2_weight");
      expect(set.setNamed("m.experts.1.down_proj.weight", Tensor.of(w2, 32, 16)), "named");
      expect(!set.setNamed("other", Tensor.of(w2, 32, 16)), "foreign");
      failsWith("MOE_ERR_SHAPE", () -> {
        set.setExpert("w2_weight", 0, null, Tensor.of(w2, 16, 32));
        return null;
      });
      equal(set.get("w2_weight", 1).data().mismatch(MemorySegment.ofArray(w2)), -1L);
      expect(set.report().contains("\"complete\":true"), set.report());
      try (Packed made = Packed.convert(choice, set); Layer small2 = new Layer(choice, made)) {
        float[] out = small2.apply(ones, new float[] {1, 0});
        for (float value : out) expect(value == out[0] && value > 0, Arrays.toString(out));
        fails(IllegalArgumentException.class, () -> small2.apply(new short[32], new float[2]), "expected float[], found short[]");
      }
    }
  }

  void testProgressStopsAndThrows() {
    failsWith("MOE_ERR_CANCELLED", () -> Packed.convert(selection, weights, null, new Control((done, total) -> false)));
    fails(UnsupportedOperationException.class, () -> Packed.convert(selection, weights, null, new Control((done, total) -> {
      throw new UnsupportedOperationException("mine");
    })), "mine");
    fails(IllegalStateException.class, () -> Packed.convert(selection, weights, null, new Control((done, total) -> {
      LibmoeTest.<RuntimeException>sneak(new java.io.IOException("checked"));
      return true;
    })), "java.io.IOException: checked");
    fails(StackOverflowError.class, () -> Packed.convert(selection, weights, null, new Control((done, total) -> {
      throw new StackOverflowError();
    })));
    try (Control control = new Control()) {
      control.cancel();
      failsWith("MOE_ERR_CANCELLED", () -> layer.apply(hidden, logits, control));
    }
    fails(IllegalArgumentException.class, () -> new Control(null), "progress");
    Control self = new Control();
    self.close();
    failsWith("MOE_ERR_INVALID_HANDLE", () -> layer.apply(hidden, logits, self), "this control is closed");
  }

  void testCloseDuringCallsWaits() throws Exception {
    for (int round = 0; round < 20; ++round) {
      Layer other = new Layer(selection, packed);
      List<Throwable> wrong = new ArrayList<>();
      CountDownLatch started = new CountDownLatch(3);
      List<Thread> threads = new ArrayList<>();
      for (int i = 0; i < 3; ++i)
        threads.add(Thread.ofPlatform().start(() -> {
          started.countDown();
          try {
            for (;;) if (!Arrays.equals(other.apply(hidden, logits), expected)) throw new AssertionError("another result");
          } catch (MoeException e) {
            if (e.status() != MoeException.INVALID_HANDLE) synchronized (wrong) { wrong.add(e); }
          } catch (Throwable e) {
            synchronized (wrong) { wrong.add(e); }
          }
        }));
      started.await();
      other.close();
      other.close();
      for (Thread thread : threads) thread.join();
      expect(wrong.isEmpty(), wrong.toString());
    }
  }

  void testAHandleIsNotClosedByTheCallThatUsesIt() {
    Packed[] made = new Packed[1];
    Weights set = new Weights(config);
    set.loadSafetensors(checkpoint.toString());
    MoeException e = fails(MoeException.class, () -> made[0] = Packed.convert(selection, set, null, new Control((done, total) -> {
      set.close();
      return true;
    })));
    equal(e.status(), MoeException.BUSY);
    set.close();
    failsWith("MOE_ERR_INVALID_HANDLE", set::report, "this weights is closed");
    failsWith("MOE_ERR_INVALID_HANDLE", set::pointer);
  }

  void testLayersTakeTheirOwnExpertMap() {
    try (Layer same = new Layer(selection, packed, null, null, Tensor.of(new int[] {0, 1, 2, 3}, 4))) {
      expect(Arrays.equals(same.apply(hidden, logits), expected), "another result");
    }
    failsWith("MOE_ERR_SHAPE", () -> new Layer(selection, packed, null, null, Tensor.of(new int[3], 3)), "expert_map");
    failsWith("MOE_ERR_UNEXPECTED_WEIGHT", () -> new Layer(selection, packed, null, Tensor.of(new float[4], 4), null));
  }

  void testContextLogs() {
    try (Context context = new Context("{\"threads\":2,\"log_level\":\"trace\"}"); Selection other = new Selection(config, context, null, 0);
         Packed again = Packed.convert(other, weights, context, null); Layer threaded = new Layer(other, again, context)) {
      expect(Arrays.equals(threaded.apply(hidden, logits), expected), "threads");
      expect(context.takeLog().contains("message") && context.report().contains("threads"), "log");
    }
  }

  /** What was made since then is released; what was forgotten before may have been collected. */
  static void nothingLeft(java.util.Set<Long> before) {
    expect(before.containsAll(Callbacks.numbers()), before + " and now " + Callbacks.numbers());
  }

  static final RuntimeException MINE = new UnsupportedOperationException("mine");

  void testLogFunctions() throws Exception {
    java.util.Set<Long> before = Callbacks.numbers();
    List<String> lines = java.util.Collections.synchronizedList(new ArrayList<>());
    try (Context context = new Context("{\"threads\":3,\"log_level\":\"trace\"}",
             (level, component, message) -> lines.add(level + " " + component + " " + message), null);
         Selection other = new Selection(config, context, null, 0); Packed again = Packed.convert(other, weights, context, null);
         Layer threaded = new Layer(other, again, context)) {
      expect(Arrays.equals(threaded.apply(hidden, logits), expected), "another result");
      List<Object> kept = context.takeLog().lines().map(line -> Json.object(line).get("message")).toList();
      expect(!lines.isEmpty(), "no message");
      equal(lines.stream().map(line -> line.split(" ", 3)[2]).toList(), kept);
      expect(lines.stream().allMatch(line -> line.matches("(?s)(TRACE|DEBUG|INFO|WARN|ERROR) [a-z]+ .+")), lines.toString());
    }
    nothingLeft(before);
    // what a log function throws, or does with the package, harms no one
    for (Context.Log bad : List.<Context.Log>of((level, component, message) -> { throw MINE; },
             (level, component, message) -> { throw new StackOverflowError(); },
             (level, component, message) -> LibmoeTest.<RuntimeException>sneak(new java.io.IOException("checked"))))
      try (Context context = new Context("{\"threads\":2,\"log_level\":\"trace\"}", bad, null);
           Selection other = new Selection(config, context, null, 0); Packed again = Packed.convert(other, weights, context, null);
           Layer threaded = new Layer(other, again, context)) {
        expect(Arrays.equals(threaded.apply(hidden, logits), expected), "another result");
        expect(!context.takeLog().isEmpty(), "no message");
      }
    failsWith("MOE_ERR_INVALID_CONFIG", () -> new Context("{\"threads\":-1}", (level, component, message) -> {}, Parallel.on(Runnable::run, 2)));
    nothingLeft(before);
  }

  @SuppressWarnings("unchecked")
  static <E extends Throwable> void sneak(Throwable thrown) throws E {
    throw (E) thrown;
  }

  void testThreadsOfTheProgram() throws Exception {
    java.util.Set<Long> before = Callbacks.numbers();
    float[] many = new float[64 * logits.length];
    short[] rows = new short[64 * hidden.length], wanted = new short[64 * hidden.length];
    for (int i = 0; i < 64; ++i) {
      System.arraycopy(logits, 0, many, i * logits.length, logits.length);
      System.arraycopy(hidden, 0, rows, i * hidden.length, hidden.length);
      System.arraycopy(expected, 0, wanted, i * hidden.length, hidden.length);
    }
    java.util.Set<Thread> used = java.util.concurrent.ConcurrentHashMap.newKeySet();
    var pool = java.util.concurrent.Executors.newFixedThreadPool(2);
    Parallel executor = Parallel.on(work -> pool.execute(() -> {
      used.add(Thread.currentThread());
      work.run();
    }), 3);
    List<java.util.function.LongConsumer> kept = java.util.Collections.synchronizedList(new ArrayList<>());
    Parallel twice = parallel((count, task) -> {
      for (long i = 0; i < 2 * count; ++i) task.accept(i % count);
      kept.add(task);
    });
    Parallel none = Parallel.on(work -> {}, 3); // an executor that never comes to it
    for (Parallel parallel : List.of(executor, twice, none))
      try (Context context = new Context(null, null, parallel); Packed again = Packed.convert(selection, weights, context, null);
           Layer threaded = new Layer(selection, again, context)) {
        expect(context.report().contains("\"threads\":" + parallel.threads()), context.report());
        expect(Arrays.equals(threaded.apply(rows, many), wanted), "another result");
      }
    pool.shutdown();
    expect(!used.isEmpty() && !kept.isEmpty(), "not used");
    fails(IllegalStateException.class, () -> {
      kept.get(0).accept(0); // its call and its context are gone
      return null;
    }, "task 0: the function that it was given to has returned");

    List<Parallel> bad = List.of(parallel((count, task) -> {}), parallel((count, task) -> task.accept(count)),
        parallel((count, task) -> task.accept(-1)));
    for (Parallel parallel : bad) {
      Context context = new Context(null, null, parallel);
      failsWith("MOE_ERR_CALLBACK", () -> Packed.convert(selection, weights, context, null), "parallel_for");
      try (Layer threaded = new Layer(selection, packed, context)) {
        failsWith("MOE_ERR_CALLBACK", () -> threaded.apply(rows, many), "parallel_for");
      }
      context.close();
    }
    Context throwing = new Context(null, null, parallel((count, task) -> { throw MINE; }));
    Context late = new Context(null, null, parallel((count, task) -> {
      for (long i = 0; i < count; ++i) task.accept(i);
      throw MINE;
    }));
    equal(fails(RuntimeException.class, () -> Packed.convert(selection, weights, throwing, null)), MINE);
    try (Layer threaded = new Layer(selection, packed, throwing); Layer done = new Layer(selection, packed, late)) {
      throwing.close();
      equal(fails(RuntimeException.class, () -> threaded.apply(rows, many)), MINE);
      expect(Arrays.equals(done.apply(rows, many), wanted), "another result");
    }
    late.close();
    Parallel shut = Parallel.on(pool, 2);
    try (Context context = new Context(null, null, shut)) {
      fails(java.util.concurrent.RejectedExecutionException.class, () -> Packed.convert(selection, weights, context, null));
    }
    failsWith("MOE_ERR_INVALID_ARGUMENT", () -> new Context(null, null, Parallel.on(pool, 0)), "num_threads");
    fails(IllegalArgumentException.class, () -> Parallel.on(null, 2), "executor");
    nothingLeft(before);
  }

  interface Loop {
    void run(long count, java.util.function.LongConsumer task);
  }

  static Parallel parallel(Loop loop) {
    return new Parallel() {
      @Override
      public int threads() {
        return 2;
      }

      @Override
      public void run(long count, java.util.function.LongConsumer task) {
        loop.run(count, task);
      }
    };
  }

  void testWeightsOfASource() {
    java.util.Set<Long> before = Callbacks.numbers();
    Weights.Source same = (role, expert, shard) -> shard == null ? weights.get(role, expert) : null;
    for (Context context : new Context[] {null, new Context("{\"threads\":3}")})
      try (Weights from = Weights.fromSource(config, same); Packed again = Packed.convert(selection, from, context, null);
           Layer other = new Layer(selection, again, context)) {
        expect(Arrays.equals(other.apply(hidden, logits), expected), "another result");
        equal(from.get("w2_weight", 1).data().mismatch(weights.get("w2_weight", 1).data()), -1L);
        if (context != null) context.close();
      }
    nothingLeft(before);

    List<String> asked = java.util.Collections.synchronizedList(new ArrayList<>());
    try (Weights none = Weights.fromSource(config, (role, expert, shard) -> {
           asked.add(role + " " + shard);
           return null;
         })) {
      failsWith("MOE_ERR_MISSING_WEIGHT", () -> Packed.convert(selection, none));
      expect(asked.stream().anyMatch(a -> a.startsWith("w13") && a.endsWith(" null")) && asked.stream().anyMatch(a -> a.endsWith(" w1")),
          asked.toString());
    }
    for (Throwable thrown : List.of(MINE, new StackOverflowError("deep"), new MoeException(12, "MOE_ERR_IO", "file", "gone", "{}")))
      try (Weights bad = Weights.fromSource(config, (role, expert, shard) -> {
             throw LibmoeTest.<RuntimeException>sneaked(thrown);
           }); Context context = new Context("{\"threads\":2}")) {
        equal(fails(thrown.getClass(), () -> Packed.convert(selection, bad)), thrown);
        equal(fails(thrown.getClass(), () -> Packed.convert(selection, bad, context, null)), thrown);
        equal(fails(thrown.getClass(), () -> bad.get("w2_weight", 0)), thrown);
      }
    try (Weights checked = Weights.fromSource(config, (role, expert, shard) -> {
           LibmoeTest.<RuntimeException>sneak(new java.io.IOException("checked"));
           return null;
         })) {
      fails(IllegalStateException.class, () -> Packed.convert(selection, checked), "java.io.IOException: checked");
    }
    try (Weights wrong = Weights.fromSource(config, (role, expert, shard) -> Tensor.of(new float[0], 0, 5))) {
      fails(MoeException.class, () -> Packed.convert(selection, wrong));
    }
    try (Weights wrong = Weights.fromSource(config, (role, expert, shard) -> Tensor.of(new float[7], 7))) {
      fails(MoeException.class, () -> Packed.convert(selection, wrong), "w");
    }
    fails(IllegalArgumentException.class, () -> Weights.fromSource(config, null), "source");
    Config closed = config.merge("{}");
    closed.close();
    failsWith("MOE_ERR_INVALID_HANDLE", () -> Weights.fromSource(closed, same));
    nothingLeft(before);
  }

  void testCopiesForASourceEndWithTheirUse() throws Exception {
    float[] w13 = new float[5120 * 1024], w2 = new float[1024 * 2560]; // 20 and 10 MiB
    String text = "{\"num_experts\":12,\"top_k\":1,\"hidden_dim\":1024,\"intermediate_size\":2560,\"in_dtype\":\"float32\"}";
    try (Config large = new Config(text); Selection choice = new Selection(large);
         Weights from = Weights.fromSource(large, (role, expert, shard) ->
             role.equals("w13_weight") ? Tensor.of(w13, 5120, 1024) : Tensor.of(w2, 1024, 2560))) {
      Packed.convert(choice, from).close();
      long before = resident();
      Packed.convert(choice, from).close();
      expect(resident() - before < 100 << 20, (resident() - before >> 20) + " MiB more"); // of 360 that were copied
    }
  }

  static long resident() throws Exception {
    return 4096 * Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[1]);
  }

  static <E extends Throwable> E sneaked(Throwable thrown) throws E {
    LibmoeTest.<E>sneak(thrown);
    return null;
  }

  void testFunctionsThatGoInCirclesEnd() throws Exception {
    Weights[] set = new Weights[1];
    set[0] = Weights.fromSource(config, (role, expert, shard) -> Packed.convert(selection, set[0]).get("none", 0));
    fails(IllegalStateException.class, () -> Packed.convert(selection, set[0]), "8 times deep");
    set[0].close();
    Context[] own = new Context[1]; // a log function must not do this, but what comes of it is not the end of the process
    own[0] = new Context("{\"log_level\":\"trace\"}", (level, component, message) -> Packed.convert(selection, weights, own[0], null), null);
    Packed.convert(selection, weights, own[0], null).close();
    own[0].close();
  }

  void testEachCallHasWhatItsOwnFunctionsThrew() throws Exception {
    Parallel parallel = parallel((count, task) -> {
      for (long i = 0; i < count; ++i) task.accept(i);
    });
    try (Context context = new Context(null, null, parallel)) {
      Callbacks.Thrown kept = context.thrown;
      kept.put(MINE); // as of a call that has not ended
      List<Throwable> seen = new ArrayList<>();
      Thread other = new Thread(() -> {
        try {
          Packed.load("/none", 0, context, null);
        } catch (Throwable e) {
          seen.add(e);
        }
        Packed.convert(selection, weights, context, null).close();
      });
      other.start();
      other.join();
      equal(((MoeException) seen.get(0)).code(), "MOE_ERR_IO");
      equal(kept.take(), MINE);
    }
  }

  void testCopiesThatFailAreGivenBack() throws Exception {
    Arena arena = Arena.ofShared();
    Tensor tensor = new Tensor(arena.allocate(64 << 20), "u8", 64 << 20);
    arena.close();
    long before = addresses();
    for (int i = 0; i < 20; ++i) fails(IllegalStateException.class, () -> {
      weights.set("w13_weight", tensor);
      return null;
    }, "closed");
    expect(addresses() - before < 640 << 20, (addresses() - before >> 20) + " MiB more"); // of 1280
  }

  static long addresses() throws Exception {
    return 4096 * Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[0]);
  }

  void testAnExecutorThatHasNoThreadFree() throws Exception {
    java.util.concurrent.ThreadPoolExecutor small = new java.util.concurrent.ThreadPoolExecutor(1, 1, 1,
        java.util.concurrent.TimeUnit.SECONDS, new java.util.concurrent.SynchronousQueue<>());
    CountDownLatch busy = new CountDownLatch(1);
    small.execute(() -> {
      try {
        busy.await();
      } catch (InterruptedException e) {
        throw new IllegalStateException(e);
      }
    });
    try (Context context = new Context(null, null, Parallel.on(small, 3)); Packed again = Packed.convert(selection, weights, context, null)) {
      expect(Arrays.equals(again.toBytes(), packed.toBytes()), "another result");
    } finally {
      busy.countDown();
      small.shutdown();
    }
  }

  /** Also from threads of the library, which the call that is to be waited for waits for. */
  void testAFunctionOfACallDoesNotWaitForIt() {
    Thread mine = Thread.currentThread();
    CountDownLatch other = new CountDownLatch(1);
    List<Throwable> seen = java.util.Collections.synchronizedList(new ArrayList<>());
    Weights[] set = new Weights[1];
    set[0] = Weights.fromSource(config, (role, expert, shard) -> {
      try {
        set[0].close();
      } catch (MoeException e) {
        seen.add(e);
      }
      if (Thread.currentThread() != mine) other.countDown();
      try {
        other.await(500, java.util.concurrent.TimeUnit.MILLISECONDS); // the first call is always of this thread
      } catch (InterruptedException e) {
        seen.add(e);
      }
      return shard == null ? weights.get(role, expert) : null;
    });
    try (Context context = new Context("{\"threads\":3}")) {
      Packed.convert(selection, set[0], context, null).close();
      equal(other.getCount(), 0L); // a thread of the library asked
      expect(!seen.isEmpty() && seen.stream().allMatch(e -> ((MoeException) e).status() == MoeException.BUSY), seen.toString());
    }
    set[0].close();
  }

  void testForgottenObjectsEnd() throws Exception {
    for (int i = 0; i < 200; ++i) new Layer(selection, packed);
    System.gc();
    Thread.sleep(50);
    expect(Arrays.equals(layer.apply(hidden, logits), expected), "another result");
  }

  void testJson() {
    equal(Json.parse("[1,-2.5,\"a\\u00e9\\n\\\"\",true,null,{}]").toString(), "[1, -2.5, aé\n\", true, null, {}]");
    for (String bad : new String[] {"", "[1", "{\"a\"}", "[1] 2", "nul", "\"\\x\"", "-"})
      fails(IllegalArgumentException.class, () -> Json.parse(bad), "JSON, character");
  }

  public static void main(String[] arguments) throws Throwable {
    if (arguments.length > 0) {
      System.out.println(Moe.version());
      return;
    }
    int failed = 0, count = 0;
    try (CheckpointTest checkpoints = new CheckpointTest()) {
      for (Object test : List.of(new LibmoeTest(), checkpoints))
        for (Method method : test.getClass().getDeclaredMethods()) {
          if (!method.getName().startsWith("test")) continue;
          ++count;
          try {
            method.invoke(test);
          } catch (InvocationTargetException e) {
            ++failed;
            System.out.println(method.getName() + ": FAILED");
            e.getCause().printStackTrace(System.out);
          }
        }
    }
    System.out.println("java: " + count + " tests, " + failed + " failed");
    System.exit(failed == 0 && count > 10 ? 0 : 1);
  }
}
