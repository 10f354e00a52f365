//go:build cgo

package moe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMain also is the program of TestAnotherVersion.
func TestMain(m *testing.M) {
	if os.Getenv("MOE_TEST_LOAD") != "" {
		err := Load("")
		fmt.Println(err, errors.Is(err, ErrVersion))
		_, err = NewContext("{}")
		fmt.Println(errors.Is(err, ErrVersion))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestALinkedLibraryHasOnePath(t *testing.T) {
	if err := Load(""); err != nil {
		t.Fatal(err)
	}
	l, err := Loaded()
	if err != nil || !filepath.IsAbs(l.Path) {
		t.Errorf("%+v, error %v", l, err)
	}
	if err := Load("/other/libmoe.so.0"); err == nil || !strings.Contains(err.Error(), "/other/libmoe.so.0") || !strings.Contains(err.Error(), l.Path) {
		t.Errorf("another path: %v", err)
	}
}

// The loader finds a library of another ABI under the same name: an error with its path and both numbers, no crash.
func TestAnotherVersion(t *testing.T) {
	text, err := os.ReadFile("calls.go")
	if err != nil {
		t.Fatal(err)
	}
	source := "const char* moe_version_string(void) { return \"7.8.9\"; }\nint moe_abi_version(void) { return 7; }\n"
	for _, name := range regexp.MustCompile(`\bgo_(moe_\w+)\(\w+ `).FindAllStringSubmatch(string(text), -1) {
		source += "long " + name[1] + "(void) { return 0; }\n"
	}
	for _, name := range regexp.MustCompile(`\bgo_(moe_\w+)\(void`).FindAllStringSubmatch(string(text), -1) {
		if name[1] != "moe_version_string" && name[1] != "moe_abi_version" {
			source += "long " + name[1] + "(void) { return 0; }\n"
		}
	}
	folder := t.TempDir()
	library := filepath.Join(folder, "libmoe.so.0")
	if err := os.WriteFile(filepath.Join(folder, "other.c"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	versions := filepath.Join(folder, "versions")
	if err := os.WriteFile(versions, []byte("LIBMOE_0 { global: moe_*; };\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cc := exec.Command("cc", "-shared", "-fPIC", "-Wl,-soname,libmoe.so.0", "-Wl,--version-script="+versions, "-o", library, filepath.Join(folder, "other.c"))
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command(self)
	run.Env = append(os.Environ(), "MOE_TEST_LOAD=1", "LD_LIBRARY_PATH="+folder)
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, part := range []string{library, "7.8.9", "ABI 7", "ABI 0", "MOE_ERR_VERSION", "true\ntrue\n"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("'%s' does not say %s", out, part)
		}
	}
}
