// The four steps from Go: select, convert, create, apply. Through cgo, and with CGO_ENABLED=0 without it.
//
//	go run ./cmd/foursteps CHECKPOINT_DIR OUTPUT_FILE
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"libmoe.example/go/moe"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: %s CHECKPOINT_DIR OUTPUT_FILE", os.Args[0]))
	}
	directory, output := os.Args[1], os.Args[2]
	text := must(os.ReadFile(filepath.Join(directory, "config.json")))
	hidden := must(os.ReadFile(filepath.Join(directory, "hidden.bin")))
	raw := must(os.ReadFile(filepath.Join(directory, "logits.bin")))
	logits := make([]float32, len(raw)/4)
	check(binary.Read(bytes.NewReader(raw), binary.LittleEndian, logits))

	context := must(moe.NewContext("{}"))
	defer context.Close()
	config := must(moe.ConfigFromHF(string(text), "{}"))
	defer config.Close()
	selection := must(moe.Select(context, config))
	defer selection.Close()
	fmt.Println(selection.Backend(), selection.Kernel(), selection.Layout())

	weights := must(moe.NewWeights(config))
	defer weights.Close()
	check(weights.LoadSafetensors(directory))
	packed := must(moe.Convert(context, selection, weights))
	defer packed.Close()
	layer := must(moe.NewLayer(context, selection, packed))
	defer layer.Close()

	tokens := int64(len(hidden)) / config.InDType.Bytes(config.Hidden)
	out := make([]byte, config.OutDType.Bytes(tokens, config.Hidden))
	check(layer.Apply(tokens, hidden, logits, out))
	check(os.WriteFile(output, out, 0o644))
	fmt.Printf("sha256 %x\n", sha256.Sum256(out))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
