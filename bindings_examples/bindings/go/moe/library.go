package moe

import (
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// Library is what Load found.
type Library struct {
	Path    string
	Version string // "0.1.0"
	Number  int    // major*1000000 + minor*1000 + patch
	ABI     int
}

// Load loads the library, or says why that failed, with path and versions. Calling it is optional: the first
// call of another function does the same with path "", which is what a program is linked to (cgo), or
// LIBMOE_PATH, else what the system's loader finds (purego). The first success stays.
func Load(path string) error {
	if _, err := raw.Load(path); err != nil {
		return notLoaded(err)
	}
	return nil
}

// Loaded describes the loaded library.
func Loaded() (Library, error) {
	c, err := library()
	if err != nil {
		return Library{}, err
	}
	return Library{Path: c.Path, Version: raw.Text(c.VersionString()), Number: int(c.VersionNumber()), ABI: int(c.ABIVersion())}, nil
}

// HasFeature tells whether the library was built with an ability, for example "isa.avx512_vnni", "io.mmap".
func HasFeature(feature string) (bool, error) {
	c, err := library()
	if err != nil {
		return false, err
	}
	text, err := name("feature", feature)
	if err != nil {
		return false, err
	}
	return c.HasFeature(text) == 1, nil
}

// BuildInfo is how the library was built, as JSON.
func BuildInfo() (string, error) {
	return static(func(c *raw.Library) *byte { return c.BuildInfoJSON() })
}

// ABIDescription is the C interface of the loaded library, as JSON.
func ABIDescription() (string, error) {
	return static(func(c *raw.Library) *byte { return c.ABIJSON() })
}

// ConfigSchema is the JSON Schema of NewConfig's document.
func ConfigSchema() (string, error) {
	return static(func(c *raw.Library) *byte { return c.ConfigSchemaJSON() })
}

func static(f func(c *raw.Library) *byte) (string, error) {
	c, err := library()
	if err != nil {
		return "", err
	}
	return raw.Text(f(c)), nil
}

// Describe answers one question as JSON, without weights: topics such as "checkpoint", "oracle",
// "expert_map", "align_block_size" stand at moe_describe in moe.h.
func Describe(topic, query string) (string, error) {
	text, err := name("topic", topic)
	if err != nil {
		return "", err
	}
	var pins raw.Pins
	defer pins.Release()
	json, size := sized(query, &pins)
	return document(nil, func(c *raw.Library, _ []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return c.Describe(text, json, size, out, err)
	})
}

// String is the name of a reason, such as "MOE_REJECT_ISA".
func (r Reject) String() string {
	c, err := raw.Load("")
	if err != nil {
		return "MOE_REJECT_UNKNOWN"
	}
	return raw.Text(c.RejectName(int32(r)))
}
