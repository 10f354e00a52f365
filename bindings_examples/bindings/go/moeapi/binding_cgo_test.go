//go:build cgo && !moedl

package moeapi_test

import _ "libmoe.example/go/moe"
