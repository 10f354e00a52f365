// The four steps from Node: select, convert, create, apply.
//
//   LIBMOE_PATH=/path/to/libmoe.so.0 node example.js CHECKPOINT_DIR OUTPUT_FILE
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Config, Context, Layer, Selection, Weights, convert } from "libmoe";

const [directory, output] = process.argv.slice(2);
if (!output) {
  console.error("usage: node example.js CHECKPOINT_DIR OUTPUT_FILE");
  process.exit(2);
}
const read = (name) => readFileSync(join(directory, name));
// Memory of its own: a small file's bytes lie anywhere in a pool of Node's, a typed array begins at a multiple of its elements.
const numbers = (type, name) => new type(Uint8Array.from(read(name)).buffer);

const context = new Context();
const config = Config.fromHf(read("config.json").toString());
const selection = new Selection(config, { context });
console.log(selection.backend, selection.kernel, selection.layout);
const weights = new Weights(config);
weights.loadSafetensors(directory);
const packed = await convert(selection, weights, { context });
const layer = new Layer(selection, packed, { context });

const hidden = numbers(config.document.in_dtype === "float32" ? Float32Array : Uint16Array, "hidden.bin");
const out = await layer.apply({ hidden, routerLogits: numbers(Float32Array, "logits.bin") });
writeFileSync(output, new Uint8Array(out.buffer));
for (const handle of [layer, packed, weights, selection, config, context]) handle.close();
