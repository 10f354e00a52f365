package moedl

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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

// otherVersion makes a library of another ABI.
func otherVersion(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	library, source := filepath.Join(folder, "libmoe.so.0"), filepath.Join(folder, "other.c")
	text := "const char* moe_version_string(void) { return \"7.8.9\"; }\nint moe_abi_version(void) { return 7; }\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return library
}

// The order matters: the first success stays.
func TestLoading(t *testing.T) {
	good := os.Getenv("LIBMOE_PATH")
	if good == "" {
		t.Fatal("set LIBMOE_PATH to a libmoe.so.0")
	}
	broken := filepath.Join(t.TempDir(), "libmoe.so.0")
	if err := os.WriteFile(broken, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	expectWords(t, Load(broken), broken, "MOE_ERR_IO")
	expectWords(t, Load("/nowhere/libmoe.so.0"), "/nowhere/libmoe.so.0", "MOE_ERR_IO")
	expectWords(t, Load("libm.so.6"), "libm.so.6", "no libmoe")

	t.Setenv("LIBMOE_PATH", "/nowhere/libmoe.so.0")
	_, err := NewContext("{}")
	expectWords(t, err, "/nowhere/libmoe.so.0")
	if !errors.Is(err, ErrIO) {
		t.Errorf("no ErrIO: %v", err)
	}
	if DTypeFromName("bf16") != InvalidDType || BF16.Bytes(3) != -1 || ErrShape.String() != "MOE_ERR_SHAPE" {
		t.Error("words without a library")
	}
	other := otherVersion(t)
	expectWords(t, Load(other), other, "7.8.9", "ABI 7", "ABI 0", "MOE_ERR_VERSION")

	t.Setenv("LIBMOE_PATH", good)
	context, err := NewContext("{}")
	if err != nil {
		t.Fatal(err)
	}
	if err := context.Close(); err != nil {
		t.Error(err)
	}
	expectWords(t, Load(broken), broken, good)
}
