"""Which of its cases a long test runs: the options that all such tests have."""

from __future__ import annotations

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds --only, --sample and --from, whose number is `first`."""
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has this text")
    parser.add_argument("--sample", type=int, metavar="N", help="so many of all these, drawn")
    parser.add_argument(
        "--from",
        type=int,
        default=1,
        metavar="NUMBER",
        dest="first",
        help="the one to begin with, where a run was interrupted",
    )
