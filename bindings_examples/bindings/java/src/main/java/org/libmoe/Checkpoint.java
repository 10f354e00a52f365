package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * A model's directory, as it was downloaded or as convert() made it, with all its layers; immutable. Several threads may use
 * one at once.
 */
public final class Checkpoint extends Handle {
  /** What stands at a layer's place. OTHER: not understood, the layer's problem says why. */
  public enum Kind { OTHER, EXPERTS, DENSE }

  /**
   * One layer, whole, before any cut. isMtp: for multi-token prediction, not in the model's pass; isConverted: its packed file
   * is here; bytes: of its experts in the files; name: "model.layers.3.mlp.experts", "" without experts; problem: "", or why no
   * config can be made of it, or why its packed file is not used.
   */
  public record LayerInfo(long layer, Kind kind, boolean isMtp, boolean isConverted, int topK, long numExperts, long hiddenDim,
                          long intermediateSize, long bytes, String name, String problem) {}

  /** Of layer, packed and convert; nothing of it has to be set. Of one thread. */
  public static final class Options {
    private Context context;
    private Control control;
    private Platform platform;
    private String patch;
    private int loadFlags = Packed.MMAP, selectFlags, layerFlags;
    private long[] layers;
    private Tensor correctionBias, expertMap;

    /** Without one: one thread. */
    public Options context(Context context) {
      this.context = context;
      return this;
    }

    public Options control(Control control) {
      this.control = control;
      return this;
    }

    /** Of layer and convert; by default the config's. */
    public Options platform(Platform platform) {
      this.platform = platform;
      return this;
    }

    /** Of layer and convert: members of the config's document that win, such as {"parallel":{...}} of one rank. */
    public Options patch(String json) {
      patch = json;
      return this;
    }

    /** Packed.MMAP, which is the default, PREFAULT and VERIFY. convert: VERIFY compares the hashes of files that are there. */
    public Options loadFlags(int flags) {
      loadFlags = flags;
      return this;
    }

    /** Of layer and convert: Selection.ALLOW_FALLBACK. */
    public Options selectFlags(int flags) {
      selectFlags = flags;
      return this;
    }

    /** Of convert; by default all that have experts. */
    public Options layers(long... numbers) {
      if (given("layers", numbers).length == 0) throw new IllegalArgumentException("layers: expected at least one number, found none");
      layers = numbers.clone();
      return this;
    }

    /** Of layer, [G] instead of the config's and the checkpoint's. */
    public Options correctionBias(Tensor bias) {
      correctionBias = bias;
      return this;
    }

    /** Of layer, [G] (i32). */
    public Options expertMap(Tensor map) {
      expertMap = map;
      return this;
    }

    /** Of layer: Layer.ANY_NAME. */
    public Options layerFlags(int flags) {
      layerFlags = flags;
      return this;
    }

    private MemorySegment struct(Arena arena) {
      MemorySegment options = Library.struct(arena, "moe_checkpoint_options"), text = document(arena, patch);
      set(options, "load_flags", loadFlags);
      set(options, "select_flags", selectFlags);
      set(options, "platform", platform == null ? null : platform.pointer());
      set(options, "patch_json", text);
      set(options, "patch_len", text.byteSize());
      if (correctionBias != null || expertMap != null || layerFlags != 0)
        set(options, "layer", Layer.options(arena, correctionBias, expertMap, layerFlags));
      set(options, "layers", layers == null ? null : arena.allocateFrom(ValueLayout.JAVA_LONG, layers));
      set(options, "num_layers", layers == null ? 0 : layers.length);
      set(options, "control", control == null ? null : control.pointer());
      return options;
    }

    private static void set(MemorySegment options, String member, Object value) {
      Library.set(options, "moe_checkpoint_options", member, value);
    }

    /** Runs a call with the struct, whose handles stay open meanwhile. */
    private <T> T during(Function<MemorySegment, T> call) {
      Supplier<T> plain = () -> {
        try (Arena arena = Arena.ofConfined()) {
          return call.apply(struct(arena));
        }
      };
      Supplier<T> watched = control == null ? plain : () -> control.held(() -> control.watched(plain));
      return platform == null ? watched.get() : platform.held(watched);
    }
  }

  private Checkpoint(MemorySegment pointer) {
    super("checkpoint", pointer);
  }

  public static Checkpoint open(String directory) {
    return open(directory, null);
  }

  public static Checkpoint open(String directory, Context context) {
    return open(directory, null, context, null);
  }

  /**
   * Reads every header and no weight. options: those of Config.fromHf without layer_index and module, for all layers; they,
   * context and control may be null.
   */
  public static Checkpoint open(String directory, String optionsJson, Context context, Control control) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment options = document(arena, optionsJson), path = text(arena, "directory", directory);
      return new Checkpoint(create("moe_checkpoint_open", context, path, options, options.byteSize(), control));
    }
  }

  /** Layers of all kinds; those of multi-token prediction come last. */
  public int layerCount() {
    return Math.toIntExact((long) invoke("moe_checkpoint_layer_count", this));
  }

  /** What stands at a layer's place. */
  public LayerInfo info(long layer) {
    return held(() -> {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment found = Library.struct(arena, "moe_layer_info");
        check("moe_checkpoint_layer_info", this, layer, found);
        int flags = Library.getInt(found, "moe_layer_info", "flags");
        return new LayerInfo(layer, Control.known(Kind.values(), Library.getInt(found, "moe_layer_info", "kind")),
            (flags & Library.constant("MOE_LAYER_IS_MTP")) != 0, (flags & Library.constant("MOE_LAYER_IS_CONVERTED")) != 0,
            Library.getInt(found, "moe_layer_info", "top_k"), number(found, "num_experts"), number(found, "hidden_dim"),
            number(found, "intermediate_size"), number(found, "bytes"), Library.getText(found, "moe_layer_info", "name"),
            Library.getText(found, "moe_layer_info", "problem"));
      }
    });
  }

  private static long number(MemorySegment info, String member) {
    return Library.getLong(info, "moe_layer_info", member);
  }

  /** The info of each layer. */
  public List<LayerInfo> layers() {
    List<LayerInfo> all = new ArrayList<>();
    for (int i = 0, count = layerCount(); i < count; ++i) all.add(info(i));
    return all;
  }

  /** Class, dtype, layers with their quantization and the names of their routers' tensors, as JSON. */
  public String report() {
    return textOf("moe_checkpoint_to_json", this);
  }

  public Config config(long layer) {
    return config(layer, null);
  }

  /** patch: members of the config's document that win, such as {"parallel":{...}} of one rank; may be null. */
  public Config config(long layer, String patchJson) {
    return Config.ofLayer(this, layer, patchJson);
  }

  /** A layer that is ready to run. */
  public Layer layer(long layer) {
    return layer(layer, new Options());
  }

  public Layer layer(long layer, Context context) {
    return layer(layer, new Options().context(context));
  }

  public Layer layer(long layer, Options options) {
    Context context = given("options", options).context;
    return new Layer(options.<MemorySegment>during(o -> create("moe_checkpoint_layer", context, this, layer, o)), context);
  }

  /** The weights for a selection of one of its configs: converted in memory, or loaded. */
  public Packed packed(Selection selection) {
    return packed(selection, new Options());
  }

  public Packed packed(Selection selection, Options options) {
    Context context = given("options", options).context;
    return new Packed(options.<MemorySegment>during(o -> create("moe_checkpoint_packed", context, this, selection, o)));
  }

  /**
   * Converts layers into a directory that open() takes. What is there already stays, so that a call goes on where an earlier
   * one ended.
   */
  public void convert(String directory) {
    convert(directory, new Options());
  }

  public void convert(String directory, Options options) {
    given("options", options).during(o -> {
      try (Arena arena = Arena.ofConfined()) {
        check("moe_checkpoint_convert", options.context, this, text(arena, "directory", directory), o);
        return null;
      }
    });
  }

  /** Any tensor of the files, such as the router's matrix, in memory of its own. */
  public Tensor tensor(String name) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment tensor = Library.struct(arena, "moe_tensor");
      return Tensor.owning(tensor, create("moe_checkpoint_tensor", this, text(arena, "name", name), tensor));
    }
  }

  /** Which weights these are, as text; of a converted checkpoint: its source's. */
  public String fingerprint() {
    return fingerprint(false, null, null);
  }

  /** full: of every byte. context and control may be null. */
  public String fingerprint(boolean full, Context context, Control control) {
    return textOf("moe_checkpoint_fingerprint", context, this, full ? 1 : 0, control);
  }
}
