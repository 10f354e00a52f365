package moe

import (
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// Numbers of a config, as buffers need them.
type Numbers struct {
	Hidden, Experts, K int64
	InDType, OutDType  DType
	columns            int64 // of router logits: Experts, zero experts, logits of shared ones
	held               int64 // experts of this rank, fused shared ones included
}

// Config is the checked description of one layer.
type Config struct {
	*object
	Numbers
	read Numbers // the same from the library: calls measure by these, whatever is done to the others
}

// NewConfig reads the document of the guide for callers ("The config document").
func NewConfig(json string) (*Config, error) {
	var pins raw.Pins
	defer pins.Release()
	text, size := sized(json, &pins)
	return newConfig(nil, func(c *raw.Library, _ []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return c.ConfigCreate(text, size, out, err)
	})
}

// ConfigFromHF reads the text of a model's config.json; options such as {"layer_index":3}.
func ConfigFromHF(hf, options string) (*Config, error) {
	var pins raw.Pins
	defer pins.Release()
	text, size := sized(hf, &pins)
	extra, extraSize := sized(options, &pins)
	return newConfig(nil, func(c *raw.Library, _ []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return c.ConfigCreateFromHF(text, size, extra, extraSize, out, err)
	})
}

// Merge makes a new config: this one's document with a JSON merge patch applied.
func (c *Config) Merge(patch string) (*Config, error) {
	var pins raw.Pins
	defer pins.Release()
	text, size := sized(patch, &pins)
	return newConfig([]use{need("config", of(c))}, func(l *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return l.ConfigMerge(h[0], text, size, out, err)
	})
}

func newConfig(uses []use, f func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32) (*Config, error) {
	o, err := create("config", func(c *raw.Library, h unsafe.Pointer) { c.ConfigDestroy(h) }, uses, f)
	if err != nil {
		return nil, err
	}
	c := &Config{object: o}
	n := &c.read
	var zero, fused int64
	for pointer, value := range map[string]*int64{"/hidden_dim": &n.Hidden, "/num_experts": &n.Experts, "/top_k": &n.K,
		"/routing/num_zero_experts": &zero, "/routing/num_fused_shared_experts": &fused, "/num_local_experts": &n.held} {
		if *value, err = c.Int(pointer); err != nil {
			return nil, err
		}
	}
	n.columns, n.held = n.Experts+zero, n.held+fused
	if shared, err := c.Int("/routing/num_shared_logits"); err == nil { // there when set
		n.columns += shared
	}
	for pointer, value := range map[string]*DType{"/in_dtype": &n.InDType, "/out_dtype": &n.OutDType} {
		word, err := c.Text(pointer)
		if err != nil {
			return nil, err
		}
		*value = DTypeFromName(word)
	}
	c.Numbers = *n
	return c, nil
}

// JSON is the resolved config: defaults written out, with derived members.
func (c *Config) JSON() (string, error) {
	return document([]use{need("config", of(c))}, func(l *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return l.ConfigToJSON(h[0], out, err)
	})
}

// member asks for one value of the resolved config by JSON pointer.
func (c *Config) member(pointer string, f func(l *raw.Library, h unsafe.Pointer, pointer *byte, err *unsafe.Pointer) int32) error {
	text, err := name("pointer", pointer)
	if err != nil {
		return err
	}
	return call([]use{need("config", of(c))}, func(l *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		return f(l, h[0], text, err)
	})
}

// Int is an integer or boolean (1, 0) of the resolved config by JSON pointer ("/num_experts").
func (c *Config) Int(pointer string) (value int64, err error) {
	err = c.member(pointer, func(l *raw.Library, h unsafe.Pointer, pointer *byte, err *unsafe.Pointer) int32 {
		return l.ConfigGetInt(h, pointer, &value, err)
	})
	return value, err
}

// Float is a number of the resolved config.
func (c *Config) Float(pointer string) (value float64, err error) {
	err = c.member(pointer, func(l *raw.Library, h unsafe.Pointer, pointer *byte, err *unsafe.Pointer) int32 {
		return l.ConfigGetFloat(h, pointer, &value, err)
	})
	return value, err
}

// Text is a string of the resolved config.
func (c *Config) Text(pointer string) (value string, err error) {
	err = c.member(pointer, func(l *raw.Library, h unsafe.Pointer, pointer *byte, err *unsafe.Pointer) int32 {
		var text *byte
		status := l.ConfigGetString(h, pointer, &text, err)
		value = raw.Text(text)
		return status
	})
	return value, err
}

// WithHandle lends the moe_config* for the time of f.
func (c *Config) WithHandle(f func(handle unsafe.Pointer) error) error {
	return withHandle(need("config", of(c)), f)
}

// Close ends the config.
func (c *Config) Close() error { return of(c).close() }

// Platform is a machine.
type Platform struct{ *object }

// NewPlatform describes a machine (moe_platform_create in moe.h); "" is this one.
func NewPlatform(json string) (*Platform, error) {
	var pins raw.Pins
	defer pins.Release()
	var text, size uintptr
	if json != "" {
		text, size = sized(json, &pins)
	}
	o, err := create("platform", func(c *raw.Library, h unsafe.Pointer) { c.PlatformDestroy(h) }, nil,
		func(c *raw.Library, _ []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
			return c.PlatformCreate(text, size, out, err)
		})
	if err != nil {
		return nil, err
	}
	return &Platform{o}, nil
}

// JSON is what was given or detected; NewPlatform takes it back.
func (p *Platform) JSON() (string, error) {
	return document([]use{need("platform", of(p))}, func(l *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return l.PlatformToJSON(h[0], out, err)
	})
}

// Has asks for a feature, for example "avx512_vnni", "i8mm", "sve2".
func (p *Platform) Has(feature string) (bool, error) {
	text, err := name("feature", feature)
	if err != nil {
		return false, err
	}
	has := false
	err = withHandle(need("platform", of(p)), func(h unsafe.Pointer) error {
		l, err := library()
		if err == nil {
			has = l.PlatformHas(h, text) == 1
		}
		return err
	})
	return has, err
}

// WithHandle lends the moe_platform* for the time of f.
func (p *Platform) WithHandle(f func(handle unsafe.Pointer) error) error {
	return withHandle(need("platform", of(p)), f)
}

// Close ends the description.
func (p *Platform) Close() error { return of(p).close() }
