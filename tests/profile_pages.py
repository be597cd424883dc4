"""Reads the page of a report."""

from __future__ import annotations

import json
import re
from typing import Any


def data_of(text: str) -> dict[str, Any]:
    """What the page of a report has for its script."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found)
