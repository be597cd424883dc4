"""What is written in C++ and in Python alike is the same: read from both sources, and compared."""

from __future__ import annotations

import ast
import re
import struct
from pathlib import Path

import pytest

from tfhvd.hang import flight_record

ROOT = Path(__file__).resolve().parent.parent
TYPES = ROOT / "cc" / "base" / "types.h"
FLIGHT = ROOT / "cc" / "observe" / "flight_format.h"

# The members of a struct of C++, as module `struct` writes them: size and letter.
FIELDS = {
    "char": (1, "s"),
    "uint8_t": (1, "B"),
    "FlightState": (1, "B"),
    "uint16_t": (2, "H"),
    "int32_t": (4, "i"),
    "uint32_t": (4, "I"),
    "int64_t": (8, "q"),
    "uint64_t": (8, "Q"),
}


def without_comments(path: Path) -> str:
    return re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))


def enumerators(path: Path, name: str) -> dict[str, int]:
    """Returns the names and numbers of an enum of C++; each number is written."""
    body = re.search(rf"enum class {name}\b[^{{]*{{([^}}]*)}}", without_comments(path))
    assert body, f"{path} has no enum class {name}"
    pairs = [part.split("=") for part in body[1].split(",") if part.strip()]
    return {name.strip().removeprefix("k"): int(number) for name, number in pairs}


def texts_of(path: Path, function: str) -> list[str]:
    """Returns the literals in a function of C++, in their order."""
    body = re.search(rf"\b{function}\([^)]*\) {{(.*?)\n}}", path.read_text(encoding="utf-8"), re.S)
    assert body, f"{path} has no function {function}"
    return re.findall(r'"([^"]*)"', body[1])


def tensorflow_types(path: Path, name: str) -> list[str]:
    """Returns the types `tf.x` of a constant of a module of Python, which is not imported."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return [each.attr for each in ast.walk(node.value) if isinstance(each, ast.Attribute)]
    raise AssertionError(f"{path} has no {name}")


def numbers_of(path: Path, name: str) -> dict[str, int]:
    """Returns the names and numbers of an enum of a module of Python, which is not imported."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            members = [each for each in node.body if isinstance(each, ast.Assign)]
            assigned = [(each.targets[0], each.value) for each in members]
            return {
                target.id: value.value
                for target, value in assigned
                if isinstance(target, ast.Name) and isinstance(value, ast.Constant)
            }
    raise AssertionError(f"{path} has no {name}")


def layout(path: Path, name: str) -> str:
    """Returns a struct of C++ as a format of module `struct`, with its padding."""
    body = re.search(rf"struct {name} {{(.*?)\n}};", without_comments(path), re.S)
    assert body, f"{path} has no struct {name}"
    members = re.findall(
        r"(?:alignas\((\d+)\) )?(?:std::atomic<(\w+)>|(\w+)) \w+(?:\[(\d+)\])?;", body[1]
    )
    assert len(members) == body[1].count(";"), "a member that this test cannot read"
    parts, at = ["="], 0
    for aligned, atomic, plain, count in members:
        size, letter = FIELDS[atomic or plain]
        gap = -at % max(int(aligned or 0), size)
        parts.append(f"{gap}x{count}{letter}" if gap else f"{count}{letter}")
        at += gap + size * int(count or 1)
    return "".join(parts)


def spelled_out(form: str) -> list[tuple[str, int]]:
    """Returns the fields of a format and where each begins: ``"=2Ixq"`` and ``"=IIxq"`` are one."""
    fields, at = [], 0
    for count, letter in re.findall(r"(\d*)(\w)", form.removeprefix("=")):
        times = 1 if letter in "sx" else int(count or 1)
        piece = f"{count}{letter}" if letter in "sx" else letter
        for _ in range(times):
            if letter != "x":
                fields.append((piece, at))
            at += struct.calcsize(f"={piece}")
    return fields


def test_kinds_of_collectives():
    numbers = enumerators(TYPES, "Collective")
    texts = texts_of(TYPES.with_suffix(".cc"), "CollectiveName")
    assert list(numbers.values()) == list(range(len(numbers)))
    assert tuple(texts) == flight_record._KINDS
    assert len(texts) == len(numbers)
    own = {"AddProcessSet": "add_process_set", "RemoveProcessSet": "remove_process_set"}
    said = [own.get(name, name.lower()) for name in numbers]
    assert [text.split()[0].lower() for text in texts] == said


def test_types_of_elements():
    names = [name.lower() for name in enumerators(TYPES, "DType")]
    ops = ROOT / "tfhvd" / "ops"
    assert sorted(tensorflow_types(ops / "_checks.py", "DTYPES")) == sorted(names)
    assert sorted(tensorflow_types(ops / "compiled.py", "_TRAVEL")) == sorted(names)
    assert texts_of(TYPES.with_suffix(".cc"), "DTypeName") == names


def test_reductions():
    numbers = enumerators(TYPES, "ReduceOp")
    python = numbers_of(ROOT / "tfhvd" / "ops" / "reduce_op.py", "ReduceOp")
    adasum = python.pop("Adasum")  # a kind of collective in C++
    assert python == numbers
    assert adasum not in numbers.values()


def test_the_flight_record_says_which_format_it_has():
    text = without_comments(FLIGHT)
    version = re.search(r"kFlightVersion = (\d+);", text)
    magic = re.search(r"kFlightMagic\[8\] = {(.*?)}", text)
    assert version and int(version[1]) == flight_record._VERSION
    assert magic and "".join(re.findall("'(.)'", magic[1])).encode() == flight_record._MAGIC
    assert enumerators(FLIGHT, "FlightState")["Failed"] == flight_record._FAILED


@pytest.mark.parametrize(
    ("name", "python"),
    [("FlightHeader", flight_record._HEADER), ("FlightSlot", flight_record._SLOT)],
)
def test_the_flight_record_has_its_fields_where_they_are_read(name: str, python: struct.Struct):
    assert spelled_out(layout(FLIGHT, name)) == spelled_out(python.format)


def test_scan_finds_what_differs(tmp_path):
    path = tmp_path / "some.h"
    path.write_text(
        "enum class A : uint8_t {\n  kOne = 0,  // = 7\n  kTwo = 1,\n};\n"
        "struct B {\n  uint32_t a;  // ;\n  alignas(8) std::atomic<int64_t> b;\n  char c[3];\n};\n",
        encoding="utf-8",
    )
    assert enumerators(path, "A") == {"One": 0, "Two": 1}
    assert layout(path, "B") == "=I4xq3s"
    assert spelled_out("=I4xq3s") == [("I", 0), ("q", 8), ("3s", 16)]
    assert spelled_out("=Iq3s") != spelled_out("=I4xq3s")
