//go:build !cgo || moe_purego

package moe_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"libmoe.example/go/moe"
)

func expectWords(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("'%v' does not say %s", err, word)
		}
	}
}

// The order matters: the first success stays.
func TestLoading(t *testing.T) {
	if os.Getenv(alone) == "" {
		runAlone(t, "TestLoading")
		return
	}
	good := os.Getenv("LIBMOE_PATH")
	if good == "" {
		t.Fatal("set LIBMOE_PATH to a libmoe.so.0")
	}
	broken := filepath.Join(t.TempDir(), "libmoe.so.0")
	check(t, os.WriteFile(broken, []byte("no library"), 0o600))
	expectWords(t, moe.Load(broken), broken, "MOE_ERR_IO")
	expectWords(t, moe.Load("/nowhere/libmoe.so.0"), "/nowhere/libmoe.so.0", "MOE_ERR_IO")
	expectWords(t, moe.Load("libm.so.6"), "libm.so.6", "no libmoe")

	t.Setenv("LIBMOE_PATH", "/nowhere/libmoe.so.0")
	_, err := moe.NewContext("{}")
	expectWords(t, err, "/nowhere/libmoe.so.0")
	if !errors.Is(err, moe.ErrIO) {
		t.Errorf("no ErrIO: %v", err)
	}
	if moe.DTypeFromName("bf16") != moe.InvalidDType || moe.BF16.Bytes(3) != -1 || moe.ErrShape.String() != "MOE_ERR_SHAPE" {
		t.Error("words without a library")
	}
	other := otherVersion(t)
	expectWords(t, moe.Load(other), other, "7.8.9", "ABI 7", "ABI 0", "MOE_ERR_VERSION")

	t.Setenv("LIBMOE_PATH", good)
	context, err := moe.NewContext("{}")
	check(t, err)
	check(t, context.Close())
	expectWords(t, moe.Load(broken), broken, good)
}
