"""Reads C++ as far as the layering test needs: includes, functions, state of namespace scope.

No compiler: comments and literals are blanked, then braces are followed. It knows the style of this
tree (one declaration a statement), not all of C++.
"""

from __future__ import annotations

import dataclasses
import re

_LITERALS = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r'|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])'",
    re.S,
)
_INCLUDE = re.compile(r'(?m)^\s*#\s*include\s*([<"])([^>"]+)[>"]')
_NOT_A_VARIABLE = re.compile(
    r"^(using|typedef|class|struct|union|enum|template|static_assert|friend|extern|namespace|return)\b"
)
_LOCAL_STATIC = re.compile(r"\b(?:static|thread_local)\s+(?!const\b|constexpr\b)([^;(){}=]*)[;={]")


@dataclasses.dataclass(frozen=True)
class Include:
    """One #include: the header's name, and whether it stands in angle brackets."""

    header: str
    system: bool


@dataclasses.dataclass(frozen=True)
class Function:
    """A function with a body.

    Attributes:
        name: Its name, with its class where it is defined outside of it.
        line: Where its body begins, from 1.
        lines: From there to its closing brace.
    """

    name: str
    line: int
    lines: int


def blank(text: str) -> str:
    """Returns the text without comments and the insides of literals; lines stay where they are."""

    def replace(match: re.Match[str]) -> str:
        quote = match[0][-1] if match[0][0] in "\"'R" else ""
        return quote + "\n" * match[0].count("\n") + quote

    return _LITERALS.sub(replace, text)


def includes(text: str) -> list[Include]:
    """Returns what a file includes, in order."""
    without_comments = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    return [Include(name, mark == "<") for mark, name in _INCLUDE.findall(without_comments)]


@dataclasses.dataclass
class _Block:
    kind: str  # "namespace", "type", "function" or "other"
    head: str
    line: int


def _scan(text: str) -> tuple[list[Function], list[str]]:
    """Returns the functions, and the statements of namespace scope with their blocks emptied."""
    code = re.sub(r"(?m)^\s*#(?:[^\n]*\\\n)*[^\n]*", "", blank(text).replace("\\\n", " \\\n"))
    blocks: list[_Block] = []
    functions: list[Function] = []
    statements: list[str] = []
    head = ""
    line = 1
    for letter in code:
        line += letter == "\n"
        scope = blocks[-1].kind if blocks else "namespace"
        if letter == "{":
            blocks.append(_Block(_kind(head, scope), head, line))
            head = ""
        elif letter == "}" and blocks:
            block = blocks.pop()
            if block.kind == "function":
                functions.append(Function(_name(block.head), block.line, line - block.line + 1))
            head = "" if block.kind in ("function", "namespace") else f"{block.head}{{}}"
        elif letter == ";":
            if scope == "namespace":
                statements.append(" ".join(head.split()))
            head = ""
        else:
            head += letter
    return functions, statements


def _kind(head: str, scope: str) -> str:
    if scope not in ("namespace", "type"):
        return "other"
    if re.search(r"\bnamespace\b|\bextern\s*\"\"\s*$", head):
        return "namespace"
    outside = re.sub(r"\([^()]*\)", "()", re.sub(r"\([^()]*\)", "()", head))
    ends_like_function = re.search(
        r"\)\s*(?:const|noexcept|override|final|\w+\(\)|\s|->.*)*$", outside
    )
    if re.search(r"(?<![\w<])(class|struct|union|enum)\b", outside) and not ends_like_function:
        return "type"
    if "=" in re.sub(r"operator\s*\S+|\(\)|[<>=!]=", "", outside).split(":")[0]:
        return "other"
    # A brace in a constructor's list of members, before its body.
    in_member_list = re.search(r"\)\s*(?:noexcept\s*)?:[^:].*[\w>]\s*$", outside, re.S)
    return "function" if ")" in outside and not in_member_list else "other"


def _name(head: str) -> str:
    match = re.search(r"([\w:~]+|operator\s*\S+?)\s*\(", head)
    return match[1] if match else "?"


def functions(text: str) -> list[Function]:
    """Returns the functions and methods that have a body in this file."""
    return _scan(text)[0]


def classes_defined(text: str) -> set[str]:
    """Returns the classes, nested ones by both names, of whose methods this file has a body."""
    names = {function.name.rpartition("::")[0] for function in functions(text)}
    return names - {""}


def mutable_state(text: str) -> list[str]:
    """Returns the variables of namespace scope, and the statics in functions, that may change."""
    found = []
    for statement in _scan(text)[1]:
        declared = statement.partition("=")[0]
        is_function = "(" in re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", declared))
        fixed = re.match(r"(?:static |inline )*(?:constexpr|const)\b", declared)
        fixed_value = fixed and (
            "*" not in declared or "constexpr" in declared or "* const" in declared
        )
        looks_declared = re.match(r"[\w:<>,&*\s\[\]{}]+$", declared) and len(declared.split()) > 1
        if _NOT_A_VARIABLE.match(statement) or is_function or fixed_value or not looks_declared:
            continue
        found.append(statement)
    local = (" ".join(match[1].split()) for match in _LOCAL_STATIC.finditer(blank(text)))
    return found + [name for name in local if not any(name in seen for seen in found)]
