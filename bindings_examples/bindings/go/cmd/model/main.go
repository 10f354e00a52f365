package main

import (
	"bytes"
	"fmt"
	"log"
	"os"

	"libmoe.example/go/moe"
)

func main() { // program MODEL_DIR
	context, err := moe.NewContext("{}") // one thread per core
	if err != nil {
		log.Fatal(err)
	}
	model, err := moe.OpenCheckpoint(context, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	mapped := moe.CheckpointLayerOptions{Load: moe.LoadOptions{MMap: true}} // a folder of Convert: in milliseconds
	layers, err := model.ExpertLayersWith(context, mapped)
	if err != nil {
		log.Fatal(err)
	}
	for token := byte(0); token < 3; token++ {
		hidden := bytes.Repeat([]byte{0x80 + token, 0x3f}, int(layers[0].Info.Hidden)) // yours: an embedding
		for _, layer := range layers {
			logits, out := make([]float32, layer.Info.Experts), make([]byte, len(hidden)) // yours: the router's logits
			if err := layer.Apply(1, hidden, logits, out); err != nil {
				log.Fatal(err)
			}
			hidden = out // yours: attention, norms, residuals
		}
		fmt.Printf("token %d: %d layers computed % x...\n", token, len(layers), hidden[:8])
	}
}
