// Package moe is libmoe for Go: Mixture-of-Experts layers on the CPU. It calls C through cgo, or through package purego where
// cgo is off (CGO_ENABLED=0, or no C compiler) or the build tag moe_purego is set.
//
//	config, err := moe.ConfigFromHF(text, "{}")
//	selection, err := moe.Select(nil, config)
//	weights, err := moe.NewWeights(config)
//	err = weights.LoadSafetensors(directory)
//	packed, err := moe.Convert(nil, selection, weights)
//	layer, err := moe.NewLayer(nil, selection, packed)
//	err = layer.Apply(tokens, hidden, logits, out)
//
// These are the steps of one layer. OpenCheckpoint opens all layers of a model; Checkpoint.Layer makes each in one call.
//
// Objects. Close ends an object; in any order, for the library keeps what it needs. Close waits for the calls
// that use the object in other goroutines; a callback, and the function of WithHandle, View and WriteTo, must not
// wait for the call that waits for it: there Close of an object in use is ErrBusy, and the object stays open.
// A later call with a closed object is ErrInvalidHandle, as is one with nil or with a zero value; a second Close
// does nothing. A finalizer closes objects that were forgotten. A nil *Context means one thread; other nil
// options are as their text says. Any number of goroutines may use an object at once, Weights apart: a call
// that changes a set and finds it in use is ErrBusy.
//
// Errors are *Error values; errors.Is(err, moe.ErrShape) asks for the status, errors.Unwrap gives what a
// callback returned, or the system's error: errors.Is(err, fs.ErrNotExist) tells a missing file. Functions, as well as the library, check what they get before they work.
//
// Callbacks run on goroutines of their own. One that panics, or ends its goroutine, makes the call that it
// serves an error with ErrCallback; where several calls with one context run at once, it may be another of them.
//
// Memory. Tensors view slices of the caller, which the library uses where they are. What it keeps after a
// call (Weights.Set, LoadPackedMemory, ConvertOptions.Destination) stays alive by itself and must not be
// changed while it is in use.
package moe

//go:generate go run libmoe.example/go/internal/generate
