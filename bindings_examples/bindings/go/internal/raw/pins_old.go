//go:build !go1.22

package raw

import (
	"runtime"
	"unsafe"
)

// Pins keep Go memory alive while C has its address as an integer. Go 1.21's runtime.Pinner panics for memory that is
// not Go's, such as a mapped file, and older ones have none; what stands on their heap is never moved, and being kept
// here puts memory there.
type Pins struct{ kept []unsafe.Pointer }

// Add gives the address of memory of Go or C.
func (p *Pins) Add(memory unsafe.Pointer) uintptr {
	p.kept = append(p.kept, memory)
	return uintptr(memory)
}

// Release ends all of them.
func (p *Pins) Release() {
	runtime.KeepAlive(p.kept)
	p.kept = nil
}
