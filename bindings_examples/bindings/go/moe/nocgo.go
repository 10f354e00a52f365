//go:build !cgo

package moe

import (
	"errors"

	"libmoe.example/go/internal/raw"
)

func init() {
	raw.Bind("libmoe.example/go/moe", func(string) (*raw.Library, error) {
		return nil, errors.New("package moe needs cgo, which is off (CGO_ENABLED=0, or no C compiler): import libmoe.example/go/moedl")
	})
}
