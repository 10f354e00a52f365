//go:build cgo && !moe_purego

package moe_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"libmoe.example/go/moe"
)

func TestALinkedLibraryHasOnePath(t *testing.T) {
	check(t, moe.Load(""))
	l, err := moe.Loaded()
	if err != nil || !filepath.IsAbs(l.Path) {
		t.Errorf("%+v, error %v", l, err)
	}
	if err := moe.Load("/other/libmoe.so.0"); err == nil || !strings.Contains(err.Error(), "/other/libmoe.so.0") || !strings.Contains(err.Error(), l.Path) {
		t.Errorf("another path: %v", err)
	}
}

// The loader finds a library of another ABI under the same name: an error with its path and both numbers, no crash.
func TestAnotherVersion(t *testing.T) {
	if os.Getenv(alone) != "" {
		err := moe.Load("")
		fmt.Println(err, errors.Is(err, moe.ErrVersion))
		_, err = moe.NewContext("{}")
		fmt.Println(errors.Is(err, moe.ErrVersion))
		return
	}
	text, err := os.ReadFile("../internal/raw/calls_cgo.go")
	check(t, err)
	var others []string
	for _, name := range regexp.MustCompile(`\bgo_(moe_\w+)\((?:void\)|\w+ )`).FindAllStringSubmatch(string(text), -1) {
		if name[1] != "moe_version_string" && name[1] != "moe_abi_version" {
			others = append(others, "long "+name[1]+"(void) { return 0; }")
		}
	}
	library := otherVersion(t, others...)
	out := runAlone(t, "TestAnotherVersion", "LD_LIBRARY_PATH="+filepath.Dir(library))
	for _, part := range []string{library, "7.8.9", "ABI 7", "ABI 0", "MOE_ERR_VERSION", "true\ntrue\n"} {
		if !strings.Contains(out, part) {
			t.Errorf("'%s' does not say %s", out, part)
		}
	}
}
