"""Makes cc/device/batched_copy.ptx.inc from cc/device/batched_copy.cu; needs no GPU.

    pip install nvidia-cuda-nvrtc-cu12
    python -m build_tools.make_ptx           # writes it
    python -m build_tools.make_ptx --check   # says whether it is what the source gives

The PTX is for sm_70 and later. NVRTC writes its own version into it, which old drivers refuse; the
kernel uses nothing newer than 7.7 (drivers from 515 on), so that is what it says.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path("cc/device/batched_copy.cu")
HEADERS = (Path("cc/device/batched_copy_args.h"),)
RESULT = Path("cc/device/batched_copy.ptx.inc")
OPTIONS = ("--gpu-architecture=compute_70", "--std=c++17", "-default-device")
PTX_VERSION = "7.7"


def find_nvrtc() -> ctypes.CDLL:
    """Opens the wheel's library.

    Raises:
        SystemExit: it is not installed.
    """
    found = importlib.util.find_spec("nvidia.cuda_nvrtc") if _has("nvidia") else None
    folders = list(found.submodule_search_locations or ()) if found else []
    for folder in folders:
        for path in sorted(Path(folder).glob("lib/libnvrtc.so.*")):
            return ctypes.CDLL(str(path))
    sys.exit("There is no NVRTC. Type: pip install nvidia-cuda-nvrtc-cu12")


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


class Nvrtc:
    """The three calls that make PTX out of a source."""

    def __init__(self) -> None:
        self._library = find_nvrtc()
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def compile(self, name: str, source: str, headers: dict[str, str]) -> str:
        """Compiles a source to PTX; ends the program with the compiler's words if it does not."""
        program = ctypes.c_void_p()
        texts = (ctypes.c_char_p * len(headers))(*(text.encode() for text in headers.values()))
        names = (ctypes.c_char_p * len(headers))(*(key.encode() for key in headers))
        self._call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            source.encode(),
            name.encode(),
            len(headers),
            texts,
            names,
        )
        options = (ctypes.c_char_p * len(OPTIONS))(*(option.encode() for option in OPTIONS))
        failed = self._library.nvrtcCompileProgram(program, len(OPTIONS), options)
        if failed:
            sys.exit(self._text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program))
        return self._text("nvrtcGetPTXSize", "nvrtcGetPTX", program)

    def _text(self, size_call: str, text_call: str, program: ctypes.c_void_p) -> str:
        size = ctypes.c_size_t()
        self._call(size_call, program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(text_call, program, buffer)
        return buffer.value.decode()

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self._library, name)(*arguments)
        if result:
            sys.exit(f"{name}: {self._library.nvrtcGetErrorString(result).decode()}")


def make() -> str:
    """Returns the text of the result: a raw string of C++ that holds the PTX."""
    headers = {path.as_posix(): (ROOT / path).read_text(encoding="utf-8") for path in HEADERS}
    source = (ROOT / SOURCE).read_text(encoding="utf-8")
    ptx = Nvrtc().compile(SOURCE.name, source, headers)
    ptx = re.sub(r"(?m)^\.version .*$", f".version {PTX_VERSION}", ptx)
    ptx = re.sub(r"(?m)^//.*\n", "", ptx)  # which compiler it was
    lines = [line.rstrip() for line in ptx.strip().splitlines() if line.strip()]
    head = f"// Made by build_tools/make_ptx.py from {SOURCE.as_posix()}: do not edit.\n"
    return head + 'R"ptx(\n' + "\n".join(lines) + '\n)ptx"\n'


def main() -> None:
    """Writes the result, or compares it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    text = make()
    if not parser.parse_args().check:
        (ROOT / RESULT).write_text(text, encoding="utf-8")
    elif (ROOT / RESULT).read_text(encoding="utf-8") != text:
        sys.exit(f"{RESULT} is not what {SOURCE} gives. Type: python -m build_tools.make_ptx")


if __name__ == "__main__":
    main()
