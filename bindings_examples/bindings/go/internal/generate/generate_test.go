package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What is committed is what the description gives.
func TestFilesAreCurrent(t *testing.T) {
	module := filepath.Join("..", "..")
	files, err := generate(module, filepath.Join(module, description))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(module, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what internal/generate writes: go generate ./... (error %v)", name, err)
		}
	}
	if len(files) != 4 {
		t.Errorf("%d files", len(files))
	}
}

func TestUnknownWordsStop(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a type word that is not known was accepted")
		}
	}()
	goType("f16")
}
