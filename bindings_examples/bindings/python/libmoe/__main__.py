"""`moe` and `python -m libmoe`: the program of this package takes over this process, with its arguments."""
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "moe")
    if not os.path.exists(program):
        sys.exit(f"moe: this package was made without the command line: {program} is not there. The wheels of a release have "
                 "it; where one is built, CLI11 (libcli11-dev) must be installed before.")
    try:
        os.execv(program, ["moe", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"moe: {program} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main()
