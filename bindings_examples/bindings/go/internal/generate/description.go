package main

import (
	"encoding/json"
	"fmt"
	"go/format"
	"os"
	"strings"
)

// document is moe_abi.json as far as it is used here.
type document struct {
	ABIVersion int `json:"abi_version"`
	Version    string
	Functions  []struct {
		Name    string
		Returns string
		Params  []parameter
	}
	Structs []struct {
		Name    string
		Size    int
		Members []struct {
			Name, Type    string
			Offset, Count int
		}
	}
	Enums []struct {
		Name   string
		Base   string
		Values map[string]int64
	}
}

type parameter struct{ Name, Type string }

func read(path string) (*document, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := new(document)
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(d.Functions) == 0 || len(d.Structs) == 0 || len(d.Enums) == 0 {
		return nil, fmt.Errorf("%s describes no functions, structs or enumerations", path)
	}
	return d, nil
}

func formatted(name, text string) ([]byte, error) {
	out, err := format.Source([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

// camel makes "ConfigGetInt" of "moe_config_get_int" and of "MOE_CONFIG_GET_INT".
func camel(name string) string {
	words := strings.Split(strings.ToLower(name), "_")
	if words[0] == "moe" {
		words = words[1:]
	}
	for i, word := range words {
		switch word {
		case "json", "hf", "abi", "io", "ok", "topk", "isa", "lora":
			words[i] = strings.ToUpper(word)
		case "dlpack":
			words[i] = "DLPack"
		case "dtype":
			words[i] = "DType"
		default:
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

// lower makes "numTokens" of "num_tokens"; names that Go has for itself get an underscore.
func lower(name string) string {
	first, rest, found := strings.Cut(name, "_")
	if found {
		first += camel(rest)
	}
	if first == "type" || first == "func" || first == "range" {
		first += "_"
	}
	return first
}

// goType is a parameter's or result's type in Table. Addresses of memory of the caller, of functions and
// of `user` are integers: none is a pointer for Go, whose rules for pointers in C memory they would break.
func goType(word string) string {
	base, of, _ := strings.Cut(word, ":")
	switch base {
	case "void":
		return ""
	case "i32":
		return "int32"
	case "u32":
		return "uint32"
	case "i64":
		return "int64"
	case "u64":
		return "uint64"
	case "f64":
		return "float64"
	case "size", "fn":
		return "uintptr"
	case "cstr":
		return "*byte"
	case "handle":
		return "unsafe.Pointer"
	case "ptr":
		if of != "" {
			return "*" + camel(of)
		}
		return "uintptr"
	case "out":
		if of == "ptr" {
			return "*unsafe.Pointer"
		}
		return "*" + goType(of)
	}
	panic("moe_abi.json has a type word that is not known here: " + word)
}

// result is goType of what comes back: an address there is memory of the library.
func result(word string) string {
	if word == "ptr" {
		return "unsafe.Pointer"
	}
	return goType(word)
}

// member is the type of a struct's member: every address as an integer.
func member(word string) string {
	if t := goType(word); t[0] != '*' && t != "unsafe.Pointer" {
		return t
	}
	return "uintptr"
}
