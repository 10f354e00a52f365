package moe_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// alone is set in a process that runs one test: a library that was loaded stays.
const alone = "MOE_TEST_ALONE"

// runAlone runs a test of this program in a process of its own, and gives what it printed.
func runAlone(t *testing.T, test string, environment ...string) string {
	t.Helper()
	self, err := os.Executable()
	check(t, err)
	run := exec.Command(self, "-test.v", "-test.run=^"+test+"$")
	run.Env = append(append(os.Environ(), alone+"=1"), environment...)
	out, err := run.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+test) {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// otherVersion makes a library of another ABI, with more functions where they are given.
func otherVersion(t *testing.T, functions ...string) string {
	t.Helper()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		check(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	text := "const char* moe_version_string(void) { return \"7.8.9\"; }\nint moe_abi_version(void) { return 7; }\n"
	source := write("other.c", text+strings.Join(functions, "\n"))
	versions := write("versions", "LIBMOE_0 { global: moe_*; };\n")
	library := filepath.Join(folder, "libmoe.so.0")
	cc := exec.Command("cc", "-shared", "-fPIC", "-Wl,-soname,libmoe.so.0", "-Wl,--version-script="+versions, "-o", library, source)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return library
}
