package moe

import (
	"unsafe"

	"libmoe.example/go/internal/raw"
)

// Checkpoint is a model's directory: what its layers are, and each of them ready to run.
type Checkpoint struct {
	*object
	layers int64
}

// LayerInfo is one layer, whole, before any cut.
type LayerInfo struct {
	Layer       int64     // the model's number
	Kind        LayerKind // LayerOther also for what a newer library knows
	IsMTP       bool      // for multi-token prediction, not in the model's pass
	IsConverted bool      // its packed file is here
	TopK        int
	Experts     int64
	Hidden      int64
	// Intermediate is the size of one expert; Bytes are those of all in the files.
	Intermediate int64
	Bytes        uint64
	Name         string // "model.layers.3.mlp.experts", "" without experts
	Problem      string // "", or why no config can be made of it, or why its packed file is not used
}

// String is "experts", "dense", or "other" for what is not known.
func (k LayerKind) String() string { return word(int32(k), "other", "experts", "dense") }

// CheckpointOpenOptions of OpenCheckpointWith.
type CheckpointOpenOptions struct {
	JSON    string // options of ConfigFromHF for all layers: without layer_index and module; "": none
	Control *Control
}

// CheckpointLayerOptions of Checkpoint.LayerWith.
type CheckpointLayerOptions struct {
	Platform      *Platform // nil: the config's, by default this machine
	Patch         string    // members of the config's document that win, such as {"parallel":{..}} of one rank; "": none
	AllowFallback bool      // the backend that the config names is a wish
	Load          LoadOptions
	Layer         LayerOptions
}

// CheckpointConvertOptions of Checkpoint.ConvertWith.
type CheckpointConvertOptions struct {
	Layers        []int64   // the model's numbers; nil: all that have experts; an empty list is an error
	Platform      *Platform // nil: the config's, by default this machine
	Patch         string    // as in CheckpointLayerOptions, for every layer
	AllowFallback bool      // the backend that a config names is a wish
	Verify        bool      // compare content hashes of files that are there already
	Control       *Control
}

// OpenCheckpoint opens a model's directory as it was downloaded, or one of Checkpoint.Convert: every header is read and
// checked once, and no weight. Layers that cannot be used are no error: LayerInfo.Problem says why. The files must not
// change while the checkpoint is used.
func OpenCheckpoint(context *Context, directory string) (*Checkpoint, error) {
	return OpenCheckpointWith(context, directory, CheckpointOpenOptions{})
}

// OpenCheckpointWith is OpenCheckpoint with options.
func OpenCheckpointWith(context *Context, directory string, options CheckpointOpenOptions) (*Checkpoint, error) {
	path, err := name("directory", directory)
	if err != nil {
		return nil, err
	}
	var pins raw.Pins
	defer pins.Release()
	json, size := optionalSized(options.JSON, &pins)
	k := new(Checkpoint)
	k.object, err = create("checkpoint", func(c *raw.Library, h unsafe.Pointer) { c.CheckpointDestroy(h) },
		[]use{maybe("context", of(context)), maybe("control", of(options.Control))},
		func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
			status := c.CheckpointOpen(h[0], path, json, size, h[1], out, err)
			k.layers = c.CheckpointLayerCount(*out)
			return status
		})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// LayerCount is the number of layers of all kinds, also after Close; those of multi-token prediction come last. 0 for nil.
func (k *Checkpoint) LayerCount() int64 {
	if k == nil {
		return 0
	}
	return k.layers
}

// Layers tells what all layers are.
func (k *Checkpoint) Layers() ([]LayerInfo, error) {
	if err := need("checkpoint", of(k)).usable(); err != nil {
		return nil, err
	}
	all := make([]LayerInfo, k.layers)
	for i := range all {
		var err error
		if all[i], err = k.LayerInfo(int64(i)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// LayerInfo tells what one layer is.
func (k *Checkpoint) LayerInfo(layer int64) (info LayerInfo, err error) {
	found := &raw.LayerInfo{StructSize: uint32(unsafe.Sizeof(raw.LayerInfo{}))}
	err = call([]use{need("checkpoint", of(k))}, func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		status := c.CheckpointLayerInfo(h[0], layer, found, err)
		if status == int32(OK) {
			info = LayerInfo{Layer: layer, Kind: LayerKind(found.Kind), IsMTP: found.Flags&raw.LayerIsMtp != 0,
				IsConverted: found.Flags&raw.LayerIsConverted != 0, TopK: int(found.TopK), Experts: found.NumExperts,
				Hidden: found.HiddenDim, Intermediate: found.IntermediateSize, Bytes: found.Bytes,
				Name: raw.TextAt(found.Name), Problem: raw.TextAt(found.Problem)}
		}
		return status
	})
	if info.Kind != LayerExperts && info.Kind != LayerDense {
		info.Kind = LayerOther
	}
	return info, err
}

// JSON is everything about the model: each layer with its quantization, and names near its experts that look like those of
// its router and shared experts.
func (k *Checkpoint) JSON() (string, error) {
	return document([]use{need("checkpoint", of(k))}, func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return c.CheckpointToJSON(h[0], out, err)
	})
}

// Config is that of a layer. Members of patch win, such as {"parallel":{..}} of one rank; "" is none. The "reason" in an
// error's details is "past_the_end", "dense_layer" or "not_understood".
func (k *Checkpoint) Config(layer int64, patch string) (*Config, error) {
	var pins raw.Pins
	defer pins.Release()
	text, size := optionalSized(patch, &pins)
	return newConfig([]use{need("checkpoint", of(k))}, func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
		return c.CheckpointConfig(h[0], layer, text, size, out, err)
	})
}

// Layer makes a layer that is ready to run: config, selection, packed weights and layer in one call.
func (k *Checkpoint) Layer(context *Context, layer int64) (*Layer, error) {
	return k.LayerWith(context, layer, CheckpointLayerOptions{})
}

// LayerWith is Layer with options.
func (k *Checkpoint) LayerWith(context *Context, layer int64, options CheckpointLayerOptions) (*Layer, error) {
	config, err := k.Config(layer, options.Patch) // its numbers: by these calls measure
	if err != nil {
		return nil, err
	}
	defer config.Close()
	if err := options.Layer.check(); err != nil {
		return nil, err
	}
	var pins raw.Pins
	defer pins.Release()
	o := checkpointOptions(options.Patch, options.AllowFallback, &pins)
	o.LoadFlags, o.Layer = options.Load.flags(), pins.Add(unsafe.Pointer(options.Layer.raw(&pins)))
	made, err := create("layer", func(c *raw.Library, h unsafe.Pointer) { c.LayerDestroy(h) },
		[]use{maybe("context", of(context)), need("checkpoint", of(k)), maybe("platform", of(options.Platform)),
			maybe("control", of(options.Load.Control))},
		func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
			o.Platform, o.Control = uintptr(h[2]), uintptr(h[3])
			return c.CheckpointLayer(h[0], h[1], layer, o, out, err)
		})
	if err != nil {
		return nil, err
	}
	return &Layer{made, config.read}, nil
}

// ExpertLayer is a layer of a model with what it is.
type ExpertLayer struct {
	*Layer
	Info LayerInfo
}

// ExpertLayers makes all layers of the model's pass that have experts, in its order: neither dense ones nor those of
// multi-token prediction. One that cannot be made is an error, and no layer stays open.
func (k *Checkpoint) ExpertLayers(context *Context) ([]ExpertLayer, error) {
	return k.ExpertLayersWith(context, CheckpointLayerOptions{})
}

// ExpertLayersWith is ExpertLayers with options for each of them.
func (k *Checkpoint) ExpertLayersWith(context *Context, options CheckpointLayerOptions) ([]ExpertLayer, error) {
	infos, err := k.Layers()
	if err != nil {
		return nil, err
	}
	var made []ExpertLayer
	for _, info := range infos {
		if info.Kind == LayerDense || info.IsMTP {
			continue
		}
		layer, err := k.LayerWith(context, info.Layer, options)
		if err != nil {
			for _, other := range made {
				_ = other.Close()
			}
			return nil, err
		}
		made = append(made, ExpertLayer{layer, info})
	}
	if made == nil {
		return nil, refused(ErrUnsupported, "checkpoint", "no layer of it has experts")
	}
	return made, nil
}

// Packed gives packed weights for a selection of one of its configs: converted in memory, or of a converted checkpoint
// loaded.
func (k *Checkpoint) Packed(context *Context, selection *Selection) (*Packed, error) {
	return k.PackedWith(context, selection, LoadOptions{})
}

// PackedWith is Packed with options.
func (k *Checkpoint) PackedWith(context *Context, selection *Selection, options LoadOptions) (*Packed, error) {
	o := &raw.CheckpointOptions{StructSize: uint32(unsafe.Sizeof(raw.CheckpointOptions{})), LoadFlags: options.flags()}
	return newPacked([]use{maybe("context", of(context)), need("checkpoint", of(k)), need("selection", of(selection)),
		maybe("control", of(options.Control))},
		func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
			o.Control = uintptr(h[3])
			return c.CheckpointPacked(h[0], h[1], h[2], o, out, err)
		})
}

// Convert writes all layers that have experts, converted, into a directory that OpenCheckpoint takes. Layers that are there
// are not made again. At most one packed layer is in memory. After a failure or a cancel whole layers stay.
func (k *Checkpoint) Convert(context *Context, directory string) error {
	return k.ConvertWith(context, directory, CheckpointConvertOptions{})
}

// ConvertWith is Convert with options.
func (k *Checkpoint) ConvertWith(context *Context, directory string, options CheckpointConvertOptions) error {
	path, err := name("directory", directory)
	if err != nil {
		return err
	}
	var pins raw.Pins
	defer pins.Release()
	o := checkpointOptions(options.Patch, options.AllowFallback, &pins)
	o.LoadFlags = flag(options.Verify, raw.LoadVerify)
	if options.Layers != nil {
		numbers := append(append([]int64{}, options.Layers...), 0) // so that there is one to point at
		o.Layers, o.NumLayers = pins.Add(unsafe.Pointer(&numbers[0])), uintptr(len(options.Layers))
	}
	return call([]use{maybe("context", of(context)), need("checkpoint", of(k)), maybe("platform", of(options.Platform)),
		maybe("control", of(options.Control))},
		func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
			o.Platform, o.Control = uintptr(h[2]), uintptr(h[3])
			return c.CheckpointConvert(h[0], h[1], path, o, err)
		})
}

// checkpointOptions is what LayerWith and ConvertWith have in common.
func checkpointOptions(patch string, allowFallback bool, pins *raw.Pins) *raw.CheckpointOptions {
	o := &raw.CheckpointOptions{StructSize: uint32(unsafe.Sizeof(raw.CheckpointOptions{})),
		SelectFlags: flag(allowFallback, raw.SelectAllowFallback)}
	o.PatchJSON, o.PatchLen = optionalSized(patch, pins)
	return o
}

// Tensor reads any tensor of the files by its name: what a layer does not hold, such as the router's matrix.
func (k *Checkpoint) Tensor(tensorName string) (t Tensor, err error) {
	text, err := name("name", tensorName)
	if err != nil {
		return t, err
	}
	view := &raw.Tensor{StructSize: uint32(unsafe.Sizeof(raw.Tensor{}))}
	hold := new(unsafe.Pointer)
	err = call([]use{need("checkpoint", of(k))}, func(c *raw.Library, h []unsafe.Pointer, err *unsafe.Pointer) int32 {
		status := c.CheckpointTensor(h[0], text, view, hold, err)
		if status == int32(OK) {
			t = viewed(view).clone()
		}
		c.BufferDestroy(*hold)
		return status
	})
	return t, err
}

// Fingerprint says which weights these are: "fast:" and a hash of names, sizes, headers and some data; with full "full:"
// and a hash of everything. Of a converted checkpoint: its source's, "" if it was made with the other kind. control may be
// nil.
func (k *Checkpoint) Fingerprint(context *Context, full bool, control *Control) (string, error) {
	return document([]use{maybe("context", of(context)), need("checkpoint", of(k)), maybe("control", of(control))},
		func(c *raw.Library, h []unsafe.Pointer, out, err *unsafe.Pointer) int32 {
			return c.CheckpointFingerprint(h[0], h[1], int32(flag(full, 1)), h[2], out, err)
		})
}

// WithHandle lends the moe_checkpoint* for the time of f.
func (k *Checkpoint) WithHandle(f func(handle unsafe.Pointer) error) error {
	return withHandle(need("checkpoint", of(k)), f)
}

// Close ends the checkpoint; what was made of it goes on working.
func (k *Checkpoint) Close() error { return of(k).close() }
