package raw

import (
	"errors"
	"strings"
	"testing"
)

func bytesOf(text string) *byte { return &append([]byte(text), 0)[0] }

func library(abi int32) *Library {
	l := &Library{Path: "/some/where/libmoe.so.9"}
	l.ABIVersion = func() int32 { return abi }
	l.VersionString = func() *byte { return bytesOf("7.8.9") }
	return l
}

// The order matters: a program has one binding.
func TestLoading(t *testing.T) {
	if _, err := Load(""); err == nil || !strings.Contains(err.Error(), "import") {
		t.Errorf("no binding: %v", err)
	}
	found := library(ABI + 9)
	Bind("first", func(path string) (*Library, error) {
		if path == "bad" {
			return nil, errors.New("no such file")
		}
		return found, nil
	})
	_, err := Load("")
	if !errors.Is(err, ErrVersion) {
		t.Errorf("another ABI: %v", err)
	}
	for _, part := range []string{"/some/where/libmoe.so.9", "7.8.9", "ABI 9", "needs ABI 0", "first"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("'%v' does not say %s", err, part)
		}
	}
	if _, err := Load("bad"); err == nil {
		t.Error("no error for a bad path")
	}
	found = library(ABI) // a failure does not stay
	l, err := Load("")
	if err != nil || l != found {
		t.Errorf("%v, error %v", l, err)
	}
	if again, err := Load(l.Path); err != nil || again != l {
		t.Errorf("%v, error %v", again, err)
	}
	if _, err := Load("/other"); err == nil || !strings.Contains(err.Error(), l.Path) {
		t.Errorf("another path: %v", err)
	}
	Bind("second", func(string) (*Library, error) { return found, nil })
	if _, err := Load(""); err == nil || !strings.Contains(err.Error(), "first") || !strings.Contains(err.Error(), "second") {
		t.Errorf("two bindings: %v", err)
	}
}

func TestNumbers(t *testing.T) {
	a, b := Register("a"), Register("b")
	if a == b || Value(a) != "a" || Registered() != 2 || Forget(a) != "a" || Value(a) != nil || Forget(a) != nil || Registered() != 1 {
		t.Error("numbers and values")
	}
	Forget(b)
}
