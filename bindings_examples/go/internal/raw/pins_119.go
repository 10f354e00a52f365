//go:build !go1.21

package raw

import (
	"runtime"
	"unsafe"
)

// Pins keep Go memory alive while C has its address as an integer. Before runtime.Pinner came (Go 1.21),
// what stands on the heap is never moved; being kept here puts memory there.
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
