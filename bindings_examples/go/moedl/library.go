// The C functions as Go variables, resolved by name at run time.

package moedl

import (
	"fmt"
	"sync"

	"github.com/ebitengine/purego"
)

// ABI is the number this package is written for; a library with another one is refused.
const ABI = 0

// Handles are addresses of C memory; `*uintptr` parameters receive them. A Go string arrives as a
// NUL-terminated copy that lives for the call.
var (
	abiVersion         func() int32
	versionString      func() string
	statusName         func(status int32) string
	errorSubject       func(err uintptr) string
	errorMessage       func(err uintptr) string
	errorDetails       func(err uintptr) string
	errorDestroy       func(err uintptr)
	dtypeFromName      func(name string) int32
	tensorBytes        func(dtype int32, ndim int32, shape *int64) int64
	contextCreate      func(json string, size uintptr, callbacks uintptr, out, err *uintptr) int32
	contextDestroy     func(handle uintptr)
	configFromHF       func(hf string, hfSize uintptr, options string, optionsSize uintptr, out, err *uintptr) int32
	configInt          func(config uintptr, pointer string, out *int64, err *uintptr) int32
	configString       func(config uintptr, pointer string, out **byte, err *uintptr) int32
	configDestroy      func(handle uintptr)
	selectBackend      func(context, config, platform uintptr, flags uint64, out, err *uintptr) int32
	selectionBackend   func(selection uintptr) string
	selectionKernel    func(selection uintptr) string
	selectionLayout    func(selection uintptr) string
	selectionDestroy   func(handle uintptr)
	weightsCreate      func(config uintptr, out, err *uintptr) int32
	weightsSafetensors func(weights uintptr, path string, module uintptr, err *uintptr) int32
	weightsDestroy     func(handle uintptr)
	convertWeights     func(context, selection, weights, options uintptr, out, err *uintptr) int32
	packedDestroy      func(handle uintptr)
	layerCreate        func(context, selection, packed, options uintptr, out, err *uintptr) int32
	layerDestroy       func(handle uintptr)
	applyFlat          func(layer uintptr, tokens int64, hiddenDType int32, hidden *byte, logitsDType int32, logits *float32,
		ids *int32, weights *float32, outDType int32, out *byte, err *uintptr) int32
)

var functions = map[string]interface{}{
	"moe_abi_version":              &abiVersion,
	"moe_version_string":           &versionString,
	"moe_status_name":              &statusName,
	"moe_error_subject":            &errorSubject,
	"moe_error_message":            &errorMessage,
	"moe_error_details_json":       &errorDetails,
	"moe_error_destroy":            &errorDestroy,
	"moe_dtype_from_name":          &dtypeFromName,
	"moe_tensor_nbytes":            &tensorBytes,
	"moe_context_create":           &contextCreate,
	"moe_context_destroy":          &contextDestroy,
	"moe_config_create_from_hf":    &configFromHF,
	"moe_config_get_int":           &configInt,
	"moe_config_get_string":        &configString,
	"moe_config_destroy":           &configDestroy,
	"moe_select_backend":           &selectBackend,
	"moe_selection_backend":        &selectionBackend,
	"moe_selection_kernel":         &selectionKernel,
	"moe_selection_layout":         &selectionLayout,
	"moe_selection_destroy":        &selectionDestroy,
	"moe_weights_create":           &weightsCreate,
	"moe_weights_load_safetensors": &weightsSafetensors,
	"moe_weights_destroy":          &weightsDestroy,
	"moe_convert_weights":          &convertWeights,
	"moe_packed_destroy":           &packedDestroy,
	"moe_layer_create":             &layerCreate,
	"moe_layer_destroy":            &layerDestroy,
	"moe_apply_flat":               &applyFlat,
}

var (
	loading sync.Mutex
	loaded  bool
)

// Load opens the shared library, "libmoe.so.0" when path is empty. The first success stays.
func Load(path string) error {
	loading.Lock()
	defer loading.Unlock()
	if loaded {
		return nil
	}
	if path == "" {
		path = fmt.Sprintf("libmoe.so.%d", ABI)
	}
	library, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return err
	}
	for name, function := range functions {
		symbol, err := purego.Dlsym(library, name)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		purego.RegisterFunc(function, symbol)
	}
	if found := abiVersion(); found != ABI {
		return fmt.Errorf("%s is libmoe %s with ABI %d; this package needs ABI %d", path, versionString(), found, ABI)
	}
	loaded = true
	return nil
}
