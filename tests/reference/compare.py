#!/usr/bin/env python3
"""Compares the library with the references on seeded random input.

    compare.py LIBRARY [TOPIC ...] [--seed N] [--first N] [--rounds N] [--self-test]

Round r of a topic depends on the seed and on r alone, so the command that a failure prints runs just that round.
MOE_REFERENCE_ROUNDS multiplies the rounds of every topic. --self-test spoils the library's answers a little in each
topic and passes when every topic notices.
"""
import argparse
import importlib
import os
import sys
import time
import zlib

import numpy as np

from library import Library

ROUNDS = {"routing": 3000, "activation": 300, "config": 8000, "float": 20, "float_acts": 60, "float_layouts": 400, "w4a8": 150, "wna16": 500, "selection": 4000}


def run_topic(library, topic, seed, rounds, twist=False):
    """The first round that fails and why, or None."""
    check = importlib.import_module("topic_" + topic).check
    for r in rounds:
        try:
            check(library, np.random.default_rng([seed, zlib.crc32(topic.encode()), r]), twist)
        except Exception as fault:  # pylint: disable=broad-except  # a refusal by the library is a difference, too
            return r, f"{type(fault).__name__}: {str(fault)[:1500]}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    library, failed = Library(args.library), 0
    for topic in args.topics or ROUNDS:
        count = args.rounds or ROUNDS[topic] * int(os.environ.get("MOE_REFERENCE_ROUNDS", 1))
        rounds = range(args.first, args.first + count)
        if args.self_test:
            for spoil in getattr(importlib.import_module("topic_" + topic), "SPOILS", (True,)):
                fault = run_topic(library, topic, args.seed, rounds, spoil)
                noticed = fault is not None and fault[1].startswith("AssertionError")
                what = "answer" if spoil is True else spoil
                print(f"{topic}: a spoiled {what} is {'noticed' if noticed else 'NOT noticed: ' + str(fault)}")
                failed += not noticed
            continue
        start = time.process_time()
        fault = run_topic(library, topic, args.seed, rounds)
        took = f"{time.process_time() - start:.1f} s CPU"
        if fault:
            failed += 1
            print(f"{topic}: round {fault[0]} of seed {args.seed}: {fault[1]}\n"
                  f"  again: {sys.executable} {sys.argv[0]} {args.library} {topic} --seed {args.seed} --first {fault[0]} --rounds 1")
        else:
            print(f"{topic}: {count} rounds of seed {args.seed} are equal, {took}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
