"""Rows as a picture, if matplotlib is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfhvd.bench.report import COLLECTIVE, Row


def missing() -> str:
    """Returns what to type if matplotlib is missing; "" if it is installed."""
    if importlib.util.find_spec("matplotlib") is not None:
        return ""
    return "It needs matplotlib, which is not installed. Type: pip install matplotlib"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draws rows into a file.

    Args:
        rows: one row at least.
        path: the file of the picture; its suffix chooses the format.
    """
    figure_of(rows).savefig(path)


def figure_of(rows: Sequence[Row]) -> Any:
    """Draws the time and the bandwidth of each collective by size, and bars for other workloads.

    A subject has one colour in all panels, which the legend names.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    subjects = dict.fromkeys(row.subject for row in rows)
    colours = {subject: f"C{number}" for number, subject in enumerate(subjects)}
    collectives = list(dict.fromkeys(row.workload for row in rows if row.kind == COLLECTIVE))
    others = list(dict.fromkeys(row.workload for row in rows if row.kind != COLLECTIVE))
    count = len(collectives) + len(others)
    figure = Figure(figsize=(11, 3.2 * count), layout="constrained")
    panels = figure.subplots(count, 2, squeeze=False)
    for name, (left, right) in zip(collectives, panels):
        chosen = [row for row in rows if row.kind == COLLECTIVE and row.workload == name]
        _curves(left, right, name, chosen, colours)
    for name, (left, right) in zip(others, panels[len(collectives) :]):
        chosen = [row for row in rows if row.kind != COLLECTIVE and row.workload == name]
        _bars(left, right, chosen, colours)
    figure.legend(
        handles=[Patch(color=colour, label=subject) for subject, colour in colours.items()],
        loc="outside upper center",
        ncols=len(colours),
    )
    return figure


def _curves(
    left: Any, right: Any, name: str, rows: Sequence[Row], colours: Mapping[str, str]
) -> None:
    for subject in dict.fromkeys(row.subject for row in rows):
        look = {"marker": "o", "label": subject, "color": colours[subject]}
        own = [row for row in rows if row.subject == subject]
        sizes = [row.bytes for row in own]
        left.plot(sizes, [1e6 * row.times.median for row in own], **look)
        if all(row.busbw is not None for row in own):
            right.plot(sizes, [row.busbw for row in own], **look)
    for panel, what in ((left, "median, microseconds"), (right, "busbw, GB/s")):
        panel.set_xscale("log", base=2)
        panel.set_xlabel("bytes")
        panel.set_ylabel(what)
        panel.set_title(name)
        panel.grid(alpha=0.3)
    left.set_yscale("log")


def _bars(left: Any, right: Any, rows: Sequence[Row], colours: Mapping[str, str]) -> None:
    for panel, kind in ((left, "gradients"), (right, "training")):
        own = [row for row in rows if row.kind == kind]
        if not own:
            panel.set_axis_off()
            continue
        subjects = [row.subject for row in own]
        panel.barh(
            subjects,
            [1e3 * row.times.median for row in own],
            color=[colours[subject] for subject in subjects],
        )
        panel.invert_yaxis()
        panel.set_xlabel("median, milliseconds")
        panel.set_title(f"{own[0].workload}: {kind}")
