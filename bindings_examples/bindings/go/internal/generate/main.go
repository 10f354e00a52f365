// Generate writes what follows from the description of the C interface:
//
//	internal/raw/table.go          every function as a member of Table, structs and constants as Go has them
//	internal/raw/calls_cgo.go      the table filled through cgo
//	internal/raw/calls_purego.go   the names, for package purego
//	moe/constants.go               statuses, element types, reject reasons and other enumerations
//
// Run it after a change of moe_abi.json: go generate ./...
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// description is where the interface stands, seen from the module's folder.
const description = "../../../abi_check/moe_abi.json"

func main() {
	if err := run(".."); err != nil { // go generate starts it in moe
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
		"internal/raw/table.go":        d.table(),
		"internal/raw/calls_cgo.go":    d.cgo(),
		"internal/raw/calls_purego.go": d.purego(),
		"moe/constants.go":             d.constants(),
	} {
		if files[name], err = formatted(name, text); err != nil {
			return nil, err
		}
	}
	return files, nil
}
