import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import org.libmoe.Config;
import org.libmoe.Context;
import org.libmoe.Layer;
import org.libmoe.MoeException;
import org.libmoe.Packed;
import org.libmoe.Selection;
import org.libmoe.Weights;

/**
 * The four steps from Java: select, convert, create, apply.
 *
 * <pre>LIBMOE_PATH=/path/to/libmoe.so.0 java --enable-native-access=ALL-UNNAMED -cp ... Example CHECKPOINT_DIR OUTPUT_FILE</pre>
 */
public class Example {
  static MemorySegment map(Path file, Arena arena) throws IOException {
    try (FileChannel channel = FileChannel.open(file)) {
      return channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size(), arena);
    }
  }

  public static void main(String[] arguments) throws IOException {
    if (arguments.length != 2) {
      System.err.println("usage: Example CHECKPOINT_DIR OUTPUT_FILE");
      System.exit(2);
    }
    Path directory = Path.of(arguments[0]);
    try (Arena arena = Arena.ofConfined(); Context context = new Context();
         Config config = Config.fromHf(Files.readString(directory.resolve("config.json")));
         Selection selection = new Selection(config, context, null, 0); Weights weights = new Weights(config)) {
      System.out.println(selection.backend() + " " + selection.kernel() + " " + selection.layout());
      weights.loadSafetensors(directory.toString());
      try (Packed packed = Packed.convert(selection, weights, context, null); Layer layer = new Layer(selection, packed, context)) {
        MemorySegment hidden = map(directory.resolve("hidden.bin"), arena), logits = map(directory.resolve("logits.bin"), arena);
        MemorySegment out = arena.allocate(hidden.byteSize(), 64);
        layer.apply(logits.byteSize() / (4 * config.getInt("/num_experts")), hidden, logits, out);
        Files.write(Path.of(arguments[1]), out.toArray(java.lang.foreign.ValueLayout.JAVA_BYTE));
      }
    } catch (MoeException e) {
      System.err.println(e.getMessage());
      System.exit(1);
    }
  }
}
