#!/usr/bin/env python3
"""Holds the library's own checks of a configuration against its JSON Schema (python3-jsonschema).

    schema_agreement.py <libmoe.so> <tests/vectors/config>

1. All golden documents: valid ones pass both; of the invalid ones the schema refuses exactly those
   whose index entry says "schema", and the library refuses all.
2. Thousands of small changes of the valid documents: what the library accepts, the schema accepts.
   (The schema accepts more: rules between members are the library's alone.)
"""
import copy
import ctypes
import json
import os
import sys

import jsonschema

# Accepted by the library, refused by the schema: "actorder" that says nothing, on activations.
TOLERATED = "/quantization/input_activations/actorder"


class Library:
    def __init__(self, path):
        lib = self.lib = ctypes.CDLL(path)
        lib.moe_config_create.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p),
                                          ctypes.POINTER(ctypes.c_void_p)]
        lib.moe_config_destroy.argtypes = lib.moe_error_destroy.argtypes = [ctypes.c_void_p]
        lib.moe_config_destroy.restype = lib.moe_error_destroy.restype = None
        lib.moe_error_subject.argtypes = lib.moe_error_message.argtypes = [ctypes.c_void_p]
        lib.moe_error_subject.restype = lib.moe_error_message.restype = ctypes.c_char_p
        lib.moe_config_schema_json.restype = ctypes.c_char_p

    def schema(self):
        return json.loads(self.lib.moe_config_schema_json())

    def fault(self, text):
        """(status, pointer, message); status 0 is an accepted document."""
        config, error = ctypes.c_void_p(), ctypes.c_void_p()
        status = self.lib.moe_config_create(text, len(text), ctypes.byref(config), ctypes.byref(error))
        if status == 0:
            self.lib.moe_config_destroy(config)
            return 0, "", ""
        answer = (status, self.lib.moe_error_subject(error).decode(), self.lib.moe_error_message(error).decode())
        self.lib.moe_error_destroy(error)
        return answer


def places(value, path=()):
    """Paths of all members and elements."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield path + (key,)
        yield from places(inner, path + (key,))


def parent(document, path):
    for key in path[:-1]:
        document = document[key]
    return document


def variants(document):
    """The document with one member removed, replaced or added."""
    values = [None, True, False, 0, 1, -1, 2, 4, 8, 128, 65536, 65537, 1 << 20, (1 << 20) + 1, 1 << 31, 1 << 63, 0.5, 8.0, -0.5, 1e30,
              "", "x", "auto", "none", "W4A8", "group", "token", "local", "float32", "vllm", [], [1, 2], ["a", "b", "c"], {}]
    for path in list(places(document)):
        changed = copy.deepcopy(document)
        del parent(changed, path)[path[-1]]
        yield path, changed
        for value in values:
            changed = copy.deepcopy(document)
            parent(changed, path)[path[-1]] = value
            yield path, changed
    objects = [()] + [p for p in places(document) if isinstance(parent(document, p)[p[-1]], dict)]
    for path in objects:
        changed = copy.deepcopy(document)
        target = changed
        for key in path:
            target = target[key]
        target["unknown"] = 1
        yield path + ("unknown",), changed


def main():
    library, folder = Library(sys.argv[1]), sys.argv[2]
    schema = library.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    with open(os.path.join(folder, "index.json"), encoding="utf-8") as f:
        index = json.load(f)
    faults, checked = [], 0

    def expect(condition, *what):
        nonlocal checked
        checked += 1
        if not condition:
            faults.append(" ".join(str(w) for w in what))

    valid = []
    for name in index["valid"]:
        with open(os.path.join(folder, name), "rb") as f:
            text = f.read()
        valid.append(json.loads(text))
        expect(validator.is_valid(valid[-1]), name, "is refused by the schema")
        expect(library.fault(text)[0] == 0, name, "is refused by the library:", library.fault(text))
    for entry in index["invalid"]:
        with open(os.path.join(folder, entry["file"]), "rb") as f:
            text = f.read()
        status, pointer, message = library.fault(text)
        expect(status == 2 and pointer == entry["pointer"], entry["file"], "->", status, pointer, message)
        if entry["layer"] != "parse":
            refused = not validator.is_valid(json.loads(text))
            expect(refused == (entry["layer"] == "schema"), entry["file"], "schema refuses:", refused)
    accepted = 0
    for document in valid:
        for path, changed in variants(document):
            if library.fault(json.dumps(changed).encode())[0] != 0:
                continue
            accepted += 1
            if "/" + "/".join(map(str, path)) != TOLERATED:
                expect(validator.is_valid(changed), "accepted by the library, refused by the schema:", path, json.dumps(changed))
    expect(accepted > 1000, "only", accepted, "changed documents were accepted")
    for fault in faults[:20]:
        print(fault, file=sys.stderr)
    print(f"{checked} checks, {accepted} changed documents accepted, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
