"""A report as one page for a browser: it is one file, and needs nothing from the network."""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path

from tfhvd.profiling import page_data
from tfhvd.profiling.report import Report

_FIELD = re.compile(r"\{\{(\w+)\}\}")


def write(report: Report, path: str | os.PathLike[str]) -> None:
    """Writes the page; a file that is there is replaced.

    Args:
        report: with the traces that it was made of.
        path: of the file.

    Raises:
        OSError: if it cannot be written.
    """
    Path(path).write_text(text(report), encoding="utf-8")


def text(report: Report) -> str:
    """Makes the page."""
    headline = page_data.headline(report)
    advice = [line for line in report.advice() if line != headline]
    data = json.dumps(page_data.fields_of(report), allow_nan=False, separators=(",", ":"))
    fields = {
        "style": _part("page.css"),
        "script": _part("page.js"),
        "headline": html.escape(headline),
        "advice": "\n".join(f"<p>{html.escape(line)}</p>" for line in advice),
        # Whatever a tensor or a host is called, it neither ends the element nor begins another.
        "data": data.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026"),
    }
    return _FIELD.sub(lambda field: fields[field[1]], _part("page.html"))


def _part(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
