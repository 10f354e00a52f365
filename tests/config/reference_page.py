#!/usr/bin/env python3
"""The tables of config members in include_c/README.md, made from the schema of the library.

    reference_page.py <libmoe.so> <README.md>            fails when the page is not what the schema says
    reference_page.py <libmoe.so> <README.md> --write    writes it
"""
import difflib
import json
import sys

from schema_agreement import Library

BEGIN, END = "<!-- members: written by tests/config/reference_page.py -->", "<!-- members: end -->"


def code(value):
    return "`" + (value if isinstance(value, str) else json.dumps(value)) + "`"


def number(value):
    """Powers of two and large bounds as people write them."""
    if value == (1 << 63) - 1:
        return "2^63 - 1"
    if isinstance(value, int) and value >= 1 << 17 and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else f"{value:g}"


def value_of(schema):
    """What may stand there, in a few words."""
    if "$ref" in schema:
        return "object, see below"
    if "anyOf" in schema:
        return " or ".join(value_of(part) for part in schema["anyOf"])
    if "const" in schema:
        return code(schema["const"])
    if "enum" in schema:
        return ", ".join(code(word) for word in schema["enum"])
    kind = schema.get("type")
    if kind in ("integer", "number") and "maximum" in schema:
        low = "above " + number(schema["exclusiveMinimum"]) if "exclusiveMinimum" in schema else number(schema["minimum"])
        return f"{'number, ' if kind == 'number' else ''}{low} to {number(schema['maximum'])}"
    if kind == "string":
        return f"text, at most {schema['maxLength']} characters" if "maxLength" in schema else "text"
    if kind == "array":
        items = value_of(schema["items"])
        if "minItems" in schema and schema["minItems"] == schema.get("maxItems"):
            return f"array of {schema['minItems']}: {items}"
        return f"array of {items}"
    if kind == "object":
        names = schema.get("propertyNames", {}).get("enum")
        if names:
            return "object of " + value_of(schema["additionalProperties"]) + ": " + ", ".join(map(code, names))
        return "object, see below" if schema.get("additionalProperties") is False else "object"
    return {"boolean": "true or false", "null": "null", "integer": "integer", "number": "number"}[kind]


def row(names, schema, required):
    default = required if required else code(schema["default"]) if schema.get("default", "") != "" else ""
    cells = (" or ".join(map(code, names)), value_of(schema), default, schema["description"].rstrip("."))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def table(properties, settings=()):
    """settings: lists of names of which a document needs one."""
    text = "| member | value | default | meaning |\n|---|---|---|---|\n"
    for name, schema in properties.items():
        if schema["description"].startswith("Alias of "):
            continue
        names = [name] + [n for n, s in properties.items() if s["description"] == f"Alias of {name}."]
        setting = next((one for one in settings if name in one), [])
        others = [n for n in setting if n not in names and not properties[n]["description"].startswith("Alias of ")]
        text += row(names, schema, " or ".join(["required", *map(code, others)]) if setting else "")
    return text


def arguments(weights, activations):
    """One table for both operands: where they differ, the value says so."""
    text = table(weights)
    for name, schema in weights.items():
        there = value_of(activations[name]) if name in activations else "absent"
        if there != value_of(schema):
            text = text.replace(f"| `{name}` | {value_of(schema)} |", f"| `{name}` | {value_of(schema)}; of `input_activations` {there} |")
    return text


def page(schema):
    layer, sections = schema["properties"], {n: s["properties"] for n, s in schema["$defs"].items()}
    needed = [rule["required"] if "required" in rule else [n for one in rule["oneOf"] for n in one["required"]]
              for rule in schema["allOf"] if "required" in rule or "oneOf" in rule]
    parts = [table(layer, needed),
             "`activation_params`:\n\n" + table(layer["activation_params"]["properties"]),
             "`quantization` has `scheme`, or `weights` and perhaps `input_activations`:\n\n" + table(sections["quantization"]),
             "`weights` and `input_activations` have the members of compressed-tensors:\n\n"
             + arguments(sections["weight_args"], sections["activation_args"]),
             "`routing`:\n\n" + table(sections["routing"]),
             "`parallel`:\n\n" + table(sections["parallel"]),
             "`platform`:\n\n" + table(sections["platform"])]
    return "\n" + "\n".join(parts) + "\n"


def main():
    schema, path = Library(sys.argv[1]).schema(), sys.argv[2]
    with open(path, encoding="utf-8") as f:
        text = f.read()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    wanted = before + BEGIN + "\n" + page(schema) + END + after
    if "--write" in sys.argv:
        with open(path, "w", encoding="utf-8") as f:
            f.write(wanted)
    elif wanted != text:
        sys.stdout.writelines(difflib.unified_diff(text.splitlines(True), wanted.splitlines(True), "page", "schema", n=0))
        print("the page is not what the schema says: run reference_page.py with --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
