#!/usr/bin/python3
"""Prints the results of moe_bench (Google Benchmark's JSON) as Markdown; with --readme writes them into the README.

    tests/bench/table.py results.json...            the layers, then the kernels, then the targets
    tests/bench/table.py --readme README.md results.json

A cell is tokens/s and, in brackets, the ratio that bounds it: of the read bandwidth (bw) where a tile has few tokens,
of the dot-product peak (pk) where it has many. Both probes ran in the same process, between the repetitions.
"""
import argparse
import json
import re
import sys

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
# The targets that a run can be held against: (what, ratio, smallest value, which cells).
TARGETS = [
    ("decode, T = 1, one thread", "bw", 0.85, lambda c: c["T"] == 1 and c["threads"] == 1),
    ("prefill, >= 64 tokens per expert, one thread, group 128", "peak", 0.60,
     lambda c: c["tokens_per_expert"] >= 60 and c["threads"] == 1 and c["format"] == "w4a8-g128"),
]


def cells(paths):
    layers, kernels, context = [], [], {}
    for path in paths:
        with open(path, encoding="utf-8") as f:
            document = json.load(f)
        context = document["context"]
        for b in document["benchmarks"]:
            part = b["name"].split("/")
            if part[0] == "layer":
                fields = dict(x.split(":") for x in part[3:5])
                # Google Benchmark's own "threads" counts something else, so ours come last.
                layers.append({**b, "workload": part[1], "format": part[2], "T": int(fields["T"]),
                               "threads": int(fields["threads"]), "kernel": b.get("label", "")})
            elif part[0] == "kernel":
                fields = dict(x.split(":") for x in part[2:4])
                kernels.append({**b, "kernel": part[1], "g": int(fields["g"]), "n": int(fields["n"])})
    return layers, kernels, context


def layer_cell(c):
    few = c["tokens_per_expert"] < 4
    ratio = f"bw {c['bw']:.2f}" if few else f"pk {c['peak']:.2f}"
    return f"{c['tok_s']:,.0f} ({ratio}){'*' if c['disturbed'] else ''}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return lines + ["| " + " | ".join(r) + " |" for r in rows]


def layer_table(layers):
    tokens = sorted({c["T"] for c in layers})
    out = table(["layer", "format", "threads"] + [f"T = {t}" for t in tokens], [
        [w, f, str(n)] + [next((layer_cell(c) for c in layers
                                if (c["workload"], c["format"], c["threads"], c["T"]) == (w, f, n, t)), "") for t in tokens]
        for w, f, n in dict.fromkeys((c["workload"], c["format"], c["threads"]) for c in layers)])
    by_threads = sorted({c["threads"] for c in layers})
    probes = "; ".join(
        f"{n} thread{'s' if n > 1 else ''}: {min(c['probe_GB_s'] for c in layers if c['threads'] == n):.0f}-"
        f"{max(c['probe_GB_s'] for c in layers if c['threads'] == n):.0f} GB/s, "
        f"{min(c['probe_TOPS'] for c in layers if c['threads'] == n):.2f}-"
        f"{max(c['probe_TOPS'] for c in layers if c['threads'] == n):.2f} TOPS" for n in by_threads)
    return out + ["", f"Tokens/s; probes of the same run: {probes}. Kernel {', '.join(sorted({c['kernel'] for c in layers}))}. "
                      "`*`: every repetition was preempted."]


def kernel_table(kernels):
    sizes = sorted({c["n"] for c in kernels})
    rows = [[k, "channel" if g < 0 else str(g)] + [next((f"{c.get('peak', 0):.2f}" for c in kernels
                                                        if (c["kernel"], c["g"], c["n"]) == (k, g, n)), "") for n in sizes]
            for k, g in dict.fromkeys((c["kernel"], c["g"]) for c in kernels)]
    return table(["kernel, in cache, share of the dot peak", "group"] + [f"n = {n}" for n in sizes], rows)


def target_table(layers):
    rows = []
    for what, ratio, least, chosen in TARGETS:
        for c in filter(chosen, layers):
            rows.append([what, f"{c['workload']} {c['format']} T {c['T']}", f">= {least:.2f}", f"{c[ratio]:.2f}",
                         "yes" if c[ratio] >= least else "**no**"])
    return table(["target", "cell", "must", "measured", "met"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readme", help="file whose part between the bench marks is replaced")
    parser.add_argument("results", nargs="+")
    args = parser.parse_args()
    layers, kernels, context = cells(args.results)
    if not layers and not kernels:
        sys.exit("no layer/ or kernel/ benchmarks in " + ", ".join(args.results))
    lines = []
    if layers:
        lines += layer_table(layers) + [""] + target_table(layers)
    if kernels:
        lines += ([""] if lines else []) + kernel_table(kernels)
    lines += ["", f"Measured {context['date'][:10]} on {context['num_cpus']} cores of a virtual machine on a shared host."]
    text = "\n".join(lines)
    print(text)
    if args.readme:
        with open(args.readme, encoding="utf-8") as f:
            readme = f.read()
        if BEGIN not in readme or END not in readme:
            sys.exit(f"{args.readme} has no {BEGIN} ... {END}")
        readme = re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: f"{BEGIN}\n{text}\n{END}", readme, flags=re.S)
        with open(args.readme, "w", encoding="utf-8") as f:
            f.write(readme)


if __name__ == "__main__":
    main()
