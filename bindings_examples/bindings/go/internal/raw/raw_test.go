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

func TestLoading(t *testing.T) {
	found := library(ABI + 9)
	program := loader{open: func(path string) (*Library, error) {
		if path == "bad" {
			return nil, errors.New("no such file")
		}
		return found, nil
	}}
	_, err := program.load("")
	if !errors.Is(err, ErrVersion) {
		t.Errorf("another ABI: %v", err)
	}
	for _, part := range []string{"/some/where/libmoe.so.9", "7.8.9", "ABI 9", "needs ABI 0", way} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("'%v' does not say %s", err, part)
		}
	}
	if _, err := program.load("bad"); err == nil {
		t.Error("no error for a bad path")
	}
	found = library(ABI) // a failure does not stay
	l, err := program.load("")
	if err != nil || l != found {
		t.Errorf("%v, error %v", l, err)
	}
	if again, err := program.load(l.Path); err != nil || again != l {
		t.Errorf("%v, error %v", again, err)
	}
	if _, err := program.load("/other"); err == nil || !strings.Contains(err.Error(), l.Path) {
		t.Errorf("another path: %v", err)
	}
}

func TestNumbers(t *testing.T) {
	a, b := Register("a"), Register("b")
	if a == b || Value(a) != "a" || Registered() != 2 || Forget(a) != "a" || Value(a) != nil || Forget(a) != nil || Registered() != 1 {
		t.Error("numbers and values")
	}
	Forget(b)
}
