package org.libmoe;

import static org.libmoe.LibmoeTest.equal;
import static org.libmoe.LibmoeTest.expect;
import static org.libmoe.LibmoeTest.fails;
import static org.libmoe.LibmoeTest.failsWith;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Stream;

/** All layers of a model (MOE_TEST_MODEL: four tiny ones), and the programs of the README (MOE_README). */
final class CheckpointTest implements AutoCloseable {
  /** Of the experts. */
  static final String HALF = "{\"parallel\":{\"tp_size\":2,\"tp_rank\":1,\"enable_expert_parallel\":true}}";

  final Path directory = Path.of(System.getenv("MOE_TEST_MODEL"));
  final Path folder = Files.createTempDirectory("libmoe");
  final String configJson = Files.readString(directory.resolve("config.json"));
  final short[] hidden = MemorySegment.ofArray(Files.readAllBytes(directory.resolve("hidden.bin"))).toArray(ValueLayout.JAVA_SHORT_UNALIGNED);
  final float[] logits = MemorySegment.ofArray(Files.readAllBytes(directory.resolve("logits.bin"))).toArray(ValueLayout.JAVA_FLOAT_UNALIGNED);
  final Context context = new Context("{\"threads\":2}");
  final Checkpoint model = Checkpoint.open(directory.toString(), context);
  final List<short[]> expected = new ArrayList<>(); // by the calls for a single layer

  CheckpointTest() throws IOException {
    for (int i = 0; i < 4; ++i)
      try (Config config = Config.fromHf(configJson, "{\"layer_index\":" + i + "}"); Selection selection = new Selection(config);
           Weights weights = new Weights(config)) {
        weights.loadSafetensors(directory.toString());
        try (Packed packed = Packed.convert(selection, weights); Layer layer = new Layer(selection, packed)) {
          expected.add(layer.apply(hidden, logits));
        }
      }
    expect(!Arrays.equals(expected.get(0), expected.get(1)), "layers that are the same");
  }

  @Override
  public void close() throws IOException {
    try (Stream<Path> files = Files.walk(folder)) {
      for (Path file : files.sorted(Comparator.reverseOrder()).toList()) Files.delete(file);
    }
  }

  void expectLayer(int i, Layer layer) {
    try (layer) {
      expect(Arrays.equals(layer.apply(hidden, logits), expected.get(i)), "layer " + i + ": another result");
    }
  }

  /** A copy of the model with another member in config.json. */
  Path changed(String name, String member) throws IOException {
    Path copy = Files.createDirectory(folder.resolve(name));
    try (Stream<Path> files = Files.list(directory)) {
      for (Path file : files.toList()) Files.copy(file, copy.resolve(file.getFileName()));
    }
    String key = member.substring(0, member.indexOf(':') + 1);
    String others = configJson.replaceFirst(java.util.regex.Pattern.quote(key) + "\\s*(\"[^\"]*\"|\\[[^]]*\\]|[^,}]*),", "");
    Files.writeString(copy.resolve("config.json"), others.replaceFirst("\\{", "{" + member + ","));
    return copy;
  }

  static Checkpoint.Options options() {
    return new Checkpoint.Options();
  }

  void testAModelIsDescribed() {
    equal(model.layerCount(), 4);
    equal(model.layers().get(3), new Checkpoint.LayerInfo(3, Checkpoint.Kind.EXPERTS, false, false, 2, 4, 64, 32, 26112,
        "model.layers.3.mlp.experts", ""));
    Map<String, Object> report = Json.object(model.report());
    equal(report.get("class"), "Qwen3MoeForCausalLM");
    Map<?, ?> last = (Map<?, ?>) ((List<?>) report.get("layers")).get(3);
    equal(last.get("name"), model.info(3).name());
    expect(model.fingerprint().matches("fast:xxh3:[0-9a-f]{16}"), model.fingerprint());
    expect(model.fingerprint(true, context, null).matches("full:xxh3:[0-9a-f]{16}"), "full");
    Tensor router = model.tensor((String) ((List<?>) last.get("router")).get(0));
    equal(router.dtype() + Arrays.toString(router.shape()), "bf16[4, 64]");
    expect(router.data().byteSize() == 512 && router.data().address() % 64 == 0 && router.data().mismatch(MemorySegment.ofArray(new byte[512])) >= 0,
        router.toString());
    try (Config own = Config.fromHf(configJson, "{\"layer_index\":3}"); Config same = model.config(3); Config half = model.config(3, HALF);
         Checkpoint other = Checkpoint.open(directory.toString(), "{\"overrides\":{\"top_k\":1}}", null, null); Config one = other.config(0)) {
      equal(same.document(), own.document());
      equal(half.getInt("/num_local_experts"), 2L);
      equal(one.getInt("/top_k"), 1L);
    }
  }

  void testLayersGiveTheBytesOfTheCallsForASingleLayer() throws Exception {
    for (int i = 0; i < 4; ++i) {
      expectLayer(i, model.layer(i));
      expectLayer(i, model.layer(i, context));
      try (Config config = model.config(i); Selection selection = new Selection(config, context); Weights weights = new Weights(config)) {
        weights.loadCheckpoint(model);
        for (Packed packed : List.of(Packed.convert(selection, weights, context), model.packed(selection), model.packed(selection, options().context(context))))
          try (packed) {
            expectLayer(i, new Layer(selection, packed, context));
          }
      }
    }
    List<Throwable> wrong = new ArrayList<>();
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < 4; ++t) {
      int i = t;
      threads.add(Thread.ofPlatform().start(() -> {
        try {
          expectLayer(i, model.layer(i, context));
        } catch (Throwable e) {
          synchronized (wrong) { wrong.add(e); }
        }
      }));
    }
    for (Thread thread : threads) thread.join();
    expect(wrong.isEmpty(), wrong.toString());
  }

  void testOptionsOfALayer() {
    try (Platform platform = new Platform()) {
      expectLayer(1, model.layer(1, options().platform(platform).patch("{\"parallel\":{\"tp_size\":1}}").selectFlags(Selection.ALLOW_FALLBACK)
          .expertMap(Tensor.of(new int[] {0, 1, 2, 3}, 4)).layerFlags(Layer.ANY_NAME)));
    }
    failsWith("MOE_ERR_SHAPE", () -> model.layer(1, options().expertMap(Tensor.of(new int[3], 3))), "expert_map");
    failsWith("MOE_ERR_UNEXPECTED_WEIGHT", () -> model.layer(1, options().correctionBias(Tensor.of(new float[4], 4))));
    failsWith("MOE_ERR_INVALID_CONFIG", () -> model.layer(1, options().patch("{\"top_k\":\"two\"}")), "/top_k");
    fails(IllegalArgumentException.class, () -> model.layer(1, (Checkpoint.Options) null), "options: expected one, found null");
    fails(IllegalArgumentException.class, () -> options().layers(), "layers: expected at least one number, found none");
    fails(IllegalArgumentException.class, () -> Checkpoint.open("a\0b"), "directory: expected a text without NUL");
    failsWith("MOE_ERR_INVALID_ARGUMENT", () -> Checkpoint.open(null), "directory");
  }

  void testConvertedAndOpenedAgain() throws Exception {
    String target = folder.resolve("converted").toString();
    model.convert(target, options().context(context).layers(2));
    try (Checkpoint part = Checkpoint.open(target)) {
      equal(part.layers().stream().map(Checkpoint.LayerInfo::isConverted).toList(), List.of(false, false, true, false));
      failsWith("MOE_ERR_MISSING_WEIGHT", () -> part.layer(0));
    }
    model.convert(target);
    try (Platform platform = new Platform()) {
      model.convert(target, options().platform(platform).loadFlags(Packed.VERIFY));
    }
    try (Checkpoint converted = Checkpoint.open(target, context)) {
      expect(converted.layers().stream().allMatch(l -> l.isConverted() && l.kind() == Checkpoint.Kind.EXPERTS && l.bytes() > 0), "layers");
      equal(converted.fingerprint(), model.fingerprint());
      equal(((Map<?, ?>) Json.object(converted.report()).get("converted")).get("source"), model.fingerprint());
      for (int i = 0; i < 4; ++i)
        for (int flags : new int[] {0, Packed.MMAP, Packed.MMAP | Packed.PREFAULT, Packed.VERIFY})
          expectLayer(i, converted.layer(i, options().context(context).loadFlags(flags)));
      try (Config config = converted.config(1); Selection selection = new Selection(config); Packed packed = converted.packed(selection);
           Weights weights = new Weights(config)) {
        expectLayer(1, new Layer(selection, packed));
        failsWith("MOE_ERR_UNSUPPORTED", () -> {
          weights.loadCheckpoint(converted);
          return null;
        });
      }
      failsWith("MOE_ERR_UNSUPPORTED", () -> converted.tensor("model.layers.1.mlp.gate.weight"), "converted");
      failsWith("MOE_ERR_UNSUPPORTED", () -> convert(converted, folder.resolve("again").toString(), options()));
    }
    try (Checkpoint other = Checkpoint.open(changed("other", "\"rope_theta\":5").toString())) {
      failsWith("MOE_ERR_CONFIG_MISMATCH", () -> convert(other, target, options()), "source");
    }
    failsWith("MOE_ERR_CONFIG_MISMATCH", () -> convert(model, target, options().patch(HALF)), "parallel");
  }

  static Object convert(Checkpoint from, String target, Checkpoint.Options options) {
    from.convert(target, options);
    return "done";
  }

  void testProgressTellsPhaseLayerAndBytes() throws Exception {
    List<Control.State> seen = new ArrayList<>();
    String target = folder.resolve("watched").toString();
    try (Control control = Control.watching(seen::add)) {
      Checkpoint.open(directory.toString(), null, context, control).close();
      equal(control.state(), new Control.State(Control.Phase.OPEN, Control.Unit.FILES, 8, 8, -1, 0, 1, 0, 0));
      seen.clear();
      model.convert(target, options().control(control));
      for (int i = 1; i < seen.size(); ++i) expect(seen.get(i).bytesDone() >= seen.get(i - 1).bytesDone(), seen.toString());
      expect(seen.stream().allMatch(s -> s.layersTotal() == 4 && s.bytesDone() <= s.bytesTotal()), seen.toString());
      for (Control.Phase phase : List.of(Control.Phase.HASH, Control.Phase.CONVERT, Control.Phase.SAVE))
        expect(seen.stream().anyMatch(s -> s.phase() == phase), phase + " of " + seen);
      for (long layer = 0; layer < 4; ++layer) {
        long i = layer;
        expect(seen.stream().anyMatch(s -> s.layer() == i && s.layersDone() == i), "layer " + i + " of " + seen);
      }
      Control.State end = control.state();
      expect(end.layersDone() == 4 && end.bytesDone() == end.bytesTotal() && end.unit() == Control.Unit.BYTES, end.toString());
      expectLayer(2, model.layer(2, options().control(control)));
      expect(control.state().phase() == Control.Phase.CONVERT && control.state().layer() == 2, control.state().toString());
      try (Checkpoint converted = Checkpoint.open(target)) {
        expectLayer(1, converted.layer(1, options().control(control).loadFlags(0)));
      }
      equal(control.state().phase(), Control.Phase.LOAD);
      model.fingerprint(true, null, control);
      equal(control.state().phase(), Control.Phase.HASH);
    }
    fails(IllegalArgumentException.class, () -> Control.watching(null), "watcher");
    Control[] asked = new Control[1]; // by a function that gets less
    try (Control control = new Control((done, total) -> asked[0].state().done() == done && asked[0].state().total() == total)) {
      asked[0] = control;
      model.convert(folder.resolve("asked").toString(), options().control(control));
    }
  }

  void testStopped() {
    String target = folder.resolve("stopped").toString();
    RuntimeException mine = new UnsupportedOperationException("mine");
    try (Config config = model.config(0); Selection selection = new Selection(config)) {
      List<java.util.function.Function<Control, Object>> calls = List.of(c -> Checkpoint.open(directory.toString(), null, null, c),
          c -> model.layer(0, options().control(c)), c -> model.packed(selection, options().control(c)),
          c -> convert(model, target, options().control(c)), c -> model.fingerprint(true, null, c));
      for (var call : calls)
        try (Control stopping = Control.watching(state -> false); Control cancelled = new Control();
             Control throwing = new Control((done, total) -> { throw mine; })) {
          cancelled.cancel();
          failsWith("MOE_ERR_CANCELLED", () -> call.apply(stopping));
          failsWith("MOE_ERR_CANCELLED", () -> call.apply(cancelled));
          equal(fails(RuntimeException.class, () -> call.apply(throwing)), mine);
        }
    }
    model.convert(target); // goes on
    try (Checkpoint converted = Checkpoint.open(target)) {
      expectLayer(3, converted.layer(3));
    }
  }

  static String reason(MoeException e) {
    return String.valueOf(Json.object(e.details()).get("reason"));
  }

  void testPlacesThatAreNone() throws Exception {
    for (long layer : new long[] {4, -1})
      for (LibmoeTest.Body call : List.<LibmoeTest.Body>of(() -> model.config(layer), () -> model.info(layer), () -> model.layer(layer),
               () -> convert(model, folder.resolve("none").toString(), options().layers(0, layer)))) {
        MoeException e = fails(MoeException.class, call, "layer");
        equal(e.code() + " " + reason(e), "MOE_ERR_INVALID_ARGUMENT past_the_end");
      }
    expect(!Files.exists(folder.resolve("none")), "made a folder");
    try (Checkpoint mixed = Checkpoint.open(changed("mixed", "\"mlp_only_layers\":[1]").toString());
         Checkpoint strange = Checkpoint.open(changed("strange", "\"hidden_act\":\"none\"").toString())) {
      equal(mixed.layers().stream().map(l -> l.kind().name()).toList(), List.of("EXPERTS", "DENSE", "EXPERTS", "EXPERTS"));
      for (LibmoeTest.Body call : List.<LibmoeTest.Body>of(() -> mixed.config(1), () -> mixed.layer(1))) {
        MoeException e = fails(MoeException.class, call);
        equal(e.code() + " " + reason(e), "MOE_ERR_INVALID_CONFIG dense_layer");
      }
      equal(strange.layerCount(), 4);
      expect(!strange.info(0).problem().isEmpty(), "no problem");
      fails(MoeException.class, () -> strange.layer(0));
    }
    failsWith("MOE_ERR_MISSING_WEIGHT", () -> model.tensor("none"), "none");
  }

  void testFilesThatAreNotThere() throws Exception {
    Path none = folder.resolve("no/such"), file = Files.writeString(folder.resolve("file"), "");
    try (Config config = model.config(0); Weights weights = new Weights(config)) {
      missing(none.resolve("config.json"), () -> Checkpoint.open(none.toString()));
      missing(none, () -> convert(model, none.toString(), options()));
      missing(none, () -> Packed.load(none.toString()));
      missing(none, () -> {
        weights.loadSafetensors(none.toString());
        return null;
      });
    }
    MoeException inside = fails(MoeException.class, () -> convert(model, file.resolve("inside").toString(), options()));
    equal(((FileSystemException) inside.getCause()).getFile(), file.resolve("inside").toString()); // ENOTDIR
    MoeException plain = fails(MoeException.class, () -> Checkpoint.open(file.toString()));
    equal(((FileSystemException) plain.getCause()).getFile(), file.toString()); // ENOTDIR
    for (int errno : new int[] {2, 13, 17, 28}) {
      MoeException e = new MoeException(MoeException.IO, "MOE_ERR_IO", "file", "cannot open", "{\"errno\":" + errno + "}");
      equal(e.getCause().getMessage(), "file: cannot open");
      equal(e.getCause() instanceof AccessDeniedException, errno == 13);
      equal(e.getCause() instanceof NoSuchFileException, errno == 2);
    }
  }

  static void missing(Path file, LibmoeTest.Body call) {
    MoeException e = fails(MoeException.class, call, file + ": ", "ENOENT");
    equal(e.code(), "MOE_ERR_IO");
    equal(((NoSuchFileException) e.getCause()).getFile(), file.toString());
  }

  void testClosed() {
    Checkpoint closed = Checkpoint.open(directory.toString());
    Layer kept = closed.layer(1);
    Tensor router = closed.tensor("model.layers.1.mlp.gate.weight");
    String name = folder.resolve("none").toString();
    try (Config config = closed.config(0); Selection selection = new Selection(config); Weights weights = new Weights(config)) {
      closed.close();
      closed.close();
      for (LibmoeTest.Body call : List.<LibmoeTest.Body>of(closed::layerCount, closed::layers, () -> closed.info(0), closed::report,
               () -> closed.config(0), () -> closed.layer(0), () -> closed.packed(selection), () -> convert(closed, name, options()),
               () -> closed.tensor("x"), closed::fingerprint, () -> {
                 weights.loadCheckpoint(closed);
                 return null;
               }))
        failsWith("MOE_ERR_INVALID_HANDLE", call, "checkpoint: this checkpoint is closed");
      failsWith("MOE_ERR_INVALID_ARGUMENT", () -> {
        weights.loadCheckpoint(null);
        return null;
      });
    }
    expectLayer(1, kept); // keeps what it needs
    equal(router.data().mismatch(model.tensor("model.layers.1.mlp.gate.weight").data()), -1L);
    Platform platform = new Platform();
    platform.close();
    failsWith("MOE_ERR_INVALID_HANDLE", () -> model.layer(0, options().platform(platform)), "this platform is closed");
  }

  void testCloseWaitsAndIsBusyWithinACall() throws Exception {
    Checkpoint own = Checkpoint.open(directory.toString());
    Platform platform = new Platform();
    CountDownLatch inside = new CountDownLatch(1);
    List<Throwable> seen = new ArrayList<>();
    String target = folder.resolve("during").toString();
    Control control = new Control((done, total) -> {
      for (Handle used : List.of(own, platform)) {
        try {
          used.close();
        } catch (MoeException e) {
          seen.add(e);
        }
      }
      inside.countDown();
      return true;
    });
    Thread thread = Thread.ofPlatform().start(() -> {
      try {
        own.convert(target, options().platform(platform).control(control));
      } catch (Throwable e) {
        seen.add(e);
      }
    });
    inside.await();
    own.close(); // waits for the call
    platform.close();
    thread.join();
    expect(!seen.isEmpty() && seen.stream().allMatch(e -> e instanceof MoeException m && m.status() == MoeException.BUSY), seen.toString());
    try (Checkpoint converted = Checkpoint.open(target)) {
      expect(converted.layers().stream().allMatch(Checkpoint.LayerInfo::isConverted), "layers");
    }
    control.close();
  }

  void testForgottenCheckpointsEnd() throws Exception {
    for (int i = 0; i < 100; ++i) {
      Checkpoint.open(directory.toString());
      model.tensor("model.layers.0.mlp.gate.weight");
    }
    long most = open();
    for (int i = 0; i < 100 && open() > most - 400; ++i) { // of 800 files
      System.gc();
      Thread.sleep(20);
    }
    expect(open() <= most - 400, open() + " files are open, of " + most);
  }

  static long open() throws IOException {
    try (Stream<Path> files = Files.list(Path.of("/proc/self/fd"))) {
      return files.count();
    }
  }

  void testProgramsOfTheReadme() throws Exception {
    List<String> programs = new ArrayList<>();
    for (String block : Files.readString(Path.of(System.getenv("MOE_README"))).split("```java\n")) programs.add(block.split("```")[0]);
    equal(programs.size(), 3); // with what is before them
    String none = run("none", programs.get(2), false), one = run("one", programs.get(1), true), all = run("all", programs.get(2), true);
    equal(none, "not there: checkpoint/config.json\n");
    expect(one.endsWith(", libmoe " + Moe.version() + "\n"), one);
    expect(all.matches("4 layers, -?[0-9]+\n"), all);
    Path other = Files.createDirectory(folder.resolve("bitsandbytes"));
    try (Stream<Path> files = Files.list(directory)) {
      for (Path file : files.toList()) Files.copy(file, other.resolve(file.getFileName()));
    }
    Files.writeString(other.resolve("config.json"), """
        {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 1, "num_experts": 4,
         "quantization_config": {"quant_method": "bitsandbytes"}}""");
    String said = run("not_understood", programs.get(2), other, 1);
    expect(said.contains("MoeException") && said.contains("bitsandbytes"), said);
  }

  private String run(String name, String program, boolean there) throws Exception {
    return run(name, program, there ? directory : null, 0);
  }

  private String run(String name, String program, Path checkpoint, int status) throws Exception {
    Path place = Files.createDirectory(folder.resolve(name));
    if (checkpoint != null) Files.createSymbolicLink(place.resolve("checkpoint"), checkpoint);
    Files.writeString(place.resolve("Run.java"), program);
    Process process = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "--enable-native-access=ALL-UNNAMED", "-cp",
        System.getProperty("java.class.path"), "Run.java").directory(place.toFile()).redirectErrorStream(true).start();
    String text = new String(process.getInputStream().readAllBytes());
    equal(process.waitFor() + " " + text, status + " " + text);
    return text;
  }
}
