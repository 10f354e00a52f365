#!/usr/bin/env python3
"""Every type word of moe_abi.json stands in the table of types.md, and no other.

    abi_check/types_page.py moe_abi.json types.md
"""
import json
import re
import sys


def words(description):
    """The parts of all types but names: "out:handle:moe_config" is out and handle."""
    typed = [p["type"] for f in description["functions"] for p in f["params"]] + [f["returns"] for f in description["functions"]]
    typed += [m["type"] for s in description["structs"] for m in s["members"]]
    typed += [t for c in description["callbacks"] for t in (*c["params"], c["returns"])]
    return {part for t in typed for part in t.split(":") if not part.startswith("moe_")}


def main(description, page):
    with open(description, encoding="utf-8") as file:
        used = words(json.load(file))
    with open(page, encoding="utf-8") as file:
        table = file.read().split("What stands beside a type:")[0]
    told = set(re.findall(r"^\| `(\w+)` \|", table, re.M))
    faults = [f"no row for {w}" for w in sorted(used - told)] + [f"a row for {w}, which no type has" for w in sorted(told - used)]
    print(f"types page: {len(used)} words, {len(faults)} faults")
    print("\n".join(faults))
    return 1 if faults or not used else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
