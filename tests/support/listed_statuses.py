#!/usr/bin/env python3
"""Writes one line for each fallible function of moe.h: its name, parameters, arguments and the statuses that
moe_abi.json lists. listed_statuses.cpp makes functions of them.

    listed_statuses.py moe.h moe_abi.json OUT.inc
"""
import json
import re
import sys


def main(header, description, out):
    with open(description, encoding="utf-8") as file:
        listed = {f["name"]: f["statuses"] for f in json.load(file)["functions"] if "statuses" in f}
    with open(header, encoding="utf-8") as file:
        found = re.findall(r"^MOE_API MOE_MUST_CHECK moe_status MOE_CALL (\w+)\((.*)\);$", file.read(), re.M)
    if {name for name, _ in found} != set(listed):
        sys.exit("listed_statuses.py: moe.h and moe_abi.json have different fallible functions")
    with open(out, "w", encoding="utf-8") as file:
        for name, parameters in found:
            arguments = ", ".join(p.split()[-1].lstrip("*") for p in parameters.split(","))
            file.write(f"MOE_LISTED({name}, ({parameters}), ({arguments}), {', '.join(listed[name])})\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
