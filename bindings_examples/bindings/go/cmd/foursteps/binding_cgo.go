//go:build cgo

package main

import _ "libmoe.example/go/moe"
