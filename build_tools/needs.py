"""Holds what the libraries of a binary wheel may need of the machine that it is installed on.

    python -m build_tools.needs dist/tfhvd-....whl

That they need no newer C and C++ library than the wheel's tag says, auditwheel checks.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so\.\d+|ld-linux.*\.so\.\d+")
_TENSORFLOW = re.compile(r"libtensorflow_(framework|cc)\.so\.2")
CORE = "libtfhvd_core.so"


def wrong_needs(library: str, needs: list[str]) -> list[str]:
    """Returns what a library needs and may not.

    Args:
        library: Its path in the wheel.
        needs: The libraries that it names.
    """
    name = Path(library).name
    allowed = [_SYSTEM]
    if name == "libtfhvd_tf.so":
        allowed.append(_TENSORFLOW)
    with_core = name == "libtfhvd_tf.so" or name.startswith("_native.")
    return [
        need
        for need in needs
        if not any(pattern.fullmatch(need) for pattern in allowed)
        and not (with_core and need == CORE)
    ]


def needs_of(library: Path) -> list[str]:
    """Returns the libraries that a library names (DT_NEEDED)."""
    said = subprocess.run(
        ["readelf", "--dynamic", "--wide", str(library)], capture_output=True, text=True, check=True
    )
    return re.findall(r"\(NEEDED\).*\[(.*)\]", said.stdout)


def main() -> None:
    """Reads all libraries of the wheel, and ends with an error where one needs too much."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(sys.argv[1]) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".so")]
        for name in names:
            found = wrong_needs(name, needs_of(Path(wheel.extract(name, folder))))
            wrong += [f"{name} needs {need}" for need in found]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(names)} libraries need the system, TensorFlow and each other alone")


if __name__ == "__main__":
    main()
