// Generate writes what follows from the description of the C interface and from the API package:
//
//	internal/raw/table.go   every function as a member of Table, structs and constants as Go has them
//	moeapi/constants.go     statuses, element types, reject reasons, log levels
//	moe/calls.go            the table filled through cgo
//	moedl/calls.go          the names, for package purego
//	moe/api.go, moedl/api.go   package moeapi under the binding's own name
//
// Run it in the module's folder after a change of moe_abi.json or of moeapi: go generate ./...
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// description is where the interface stands, seen from the module's folder.
const description = "../../../abi_check/moe_abi.json"

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(module string) error {
	files, err := generate(module, filepath.Join(module, description))
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(module, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate gives the text of each file by its name in the module.
func generate(module, abi string) (map[string][]byte, error) {
	d, err := read(abi)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, text := range map[string]string{
		"internal/raw/table.go": d.table(),
		"moeapi/constants.go":   d.constants(),
		"moe/calls.go":          d.cgo(),
		"moedl/calls.go":        d.purego(),
	} {
		if files[name], err = formatted(name, text); err != nil {
			return nil, err
		}
	}
	// The constants are part of the API, so they are read from what was just made.
	sources := map[string][]byte{"constants.go": files["moeapi/constants.go"]}
	names, err := filepath.Glob(filepath.Join(module, "moeapi", "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if base := filepath.Base(name); sources[base] == nil {
			if sources[base], err = os.ReadFile(name); err != nil {
				return nil, err
			}
		}
	}
	for _, binding := range []string{"moe", "moedl"} {
		text, err := aliases(binding, sources)
		if err != nil {
			return nil, err
		}
		name := binding + "/api.go"
		if files[name], err = formatted(name, text); err != nil {
			return nil, err
		}
	}
	return files, nil
}
