"""``tfhvd timeline``: what the ranks' timelines say together."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from tfhvd.launch.errors import UsageError
from tfhvd.profiling import page, report
from tfhvd.profiling.timeline_files import RankTimeline, TimelineError, merge, read, traces


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the words behind ``tfhvd timeline``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    merges = actions.add_parser("merge", help="makes one file of all ranks', on one clock")
    merges.add_argument("out", type=Path, metavar="OUT", help="the file to make")
    reports = actions.add_parser(
        "report", help="where the time of the steps went, and for which rank the others waited"
    )
    reports.add_argument(
        "--each-step", action="store_true", help="the parts of every step, not only their average"
    )
    pages = actions.add_parser(
        "page", help="the report as one HTML page of pictures, to be opened in a browser"
    )
    pages.add_argument("out", type=Path, metavar="OUT", help="the file to make")
    for action in (merges, reports, pages):
        action.add_argument(
            "files",
            nargs="+",
            metavar="FILE",
            help="of each rank, as hvd.start_timeline writes with {rank} in the name; or a pattern",
        )


def run(options: argparse.Namespace) -> int:
    """Does it; returns the exit code."""
    try:
        files = [read(path) for path in _paths(options.files)]
        if options.action == "merge":
            return _merge(options.out, files)
        found = report.make(traces(files))
        if options.action == "page":
            return _page(options.out, found)
        print("\n".join(found.lines(each_step=options.each_step)))
    except TimelineError as error:
        raise UsageError(str(error)) from error
    return 0


def _paths(given: list[str]) -> list[Path]:
    """Patterns in a name (not in a folder's) are for shells that leave them."""
    found: list[Path] = []
    for text in given:
        path = Path(text)
        matches = [path] if path.exists() else sorted(path.parent.glob(path.name))
        if not matches:
            raise UsageError(f"there is no file {text}")
        found += matches
    return found


def _merge(out: Path, files: list[RankTimeline]) -> int:
    events, offsets = merge(files)
    lines = ",\n".join(map(json.dumps, events))
    out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    hosts = {file.host: offsets[file.rank] for file in reversed(files)}
    for host, offset in sorted(hosts.items()):
        if math.isinf(offset.error):
            print(f"{host}: its clock could not be compared; its own is used")
        elif offset.error > 0:
            print(
                f"{host}: {1e3 * offset.seconds:+.3f} ms, to {1e3 * offset.error:.3f} ms either way"
            )
    print(f"{out}: {len(files)} ranks. Open it in Perfetto, at https://ui.perfetto.dev.")
    return 0


def _page(out: Path, found: report.Report) -> int:
    try:
        page.write(found, out)
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror}") from error
    print(f"{out}: open it in a browser.")
    return 0
