//go:build go1.22

package raw

import (
	"runtime"
	"unsafe"
)

// Pins keep Go memory alive and in place while C has its address as an integer.
type Pins struct{ pinner runtime.Pinner }

// Add gives the address of memory of Go or C.
func (p *Pins) Add(memory unsafe.Pointer) uintptr {
	if memory != nil {
		p.pinner.Pin(memory)
	}
	return uintptr(memory)
}

// Release ends all of them.
func (p *Pins) Release() { p.pinner.Unpin() }
