# SPDX-License-Identifier: Apache-2.0
"""`python -m muster.local up` is `muster local up`, without the rest of the program."""

from __future__ import annotations

import argparse
import sys

from muster.local import commands


def main(argv: list[str]) -> int:
    """Run one `local` sub-command; the answer is the exit code."""
    parser = argparse.ArgumentParser(prog="muster.local", description=__doc__)
    commands.add_actions(parser)
    args = parser.parse_args(argv)
    code: int = args.run(args)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
