"""Do all ranks have the same versions?"""

from __future__ import annotations

import collections
from collections.abc import Mapping

from tfhvd.runtime.builds import minor_of
from tfhvd.tools.doctor.finding import Finding, failed, passed, warned
from tfhvd.tools.doctor.survey import Survey, where
from tfhvd.tools.facts import Facts

# With two of these no job works; the other packages may differ, though results may, too.
_MUST_BE_ONE = ("tfhvd", "TensorFlow", "MPI")
_OF_THE_SYSTEM = ("glibc", "kernel")  # which differ between the hosts of many clusters, harmlessly
_PACKAGES = {"TensorFlow": "tensorflow", "Keras": "keras", "tf_keras": "tf_keras"}


def check(survey: Survey) -> list[Finding]:
    """Compares each version, and the builds."""
    findings = _problems(survey.facts)
    notes = []
    names = list(dict.fromkeys(name for each in survey.facts.values() for name in each.versions))
    for name in names:
        versions = {rank: each.versions.get(name, "") for rank, each in survey.facts.items()}
        if len(set(versions.values())) == 1:
            continue
        if name in _OF_THE_SYSTEM:
            notes.append(f"{name} differs, which is harmless: {_compared(survey.facts, versions)}")
        else:
            findings.append(_difference(survey.facts, name, versions))
    builds = {rank: each.build for rank, each in survey.facts.items()}
    if len(set(builds.values())) > 1 and not findings:
        notes.append(f"tfhvd was built differently: {_compared(survey.facts, builds)}")
    if findings:
        return findings
    first = survey.facts[min(survey.facts)]
    alike = [f"{name} {version}" for name, version in first.versions.items() if version]
    return [passed("versions", ", ".join(_without_doubling(alike)), notes)]


def _problems(facts: Mapping[int, Facts]) -> list[Finding]:
    by_text: dict[str, list[int]] = {}
    for rank, each in facts.items():
        for text in each.problems:
            by_text.setdefault(text, []).append(rank)
    findings = []
    for text, ranks in by_text.items():
        said, _, command = text.partition(" Type: ")
        fix = command or "install on that host what the message names"
        findings.append(failed("versions", f"{where(facts, ranks)}: {said}", fix))
    return findings


def _difference(facts: Mapping[int, Facts], name: str, versions: Mapping[int, str]) -> Finding:
    text = f"{name} differs: {_compared(facts, versions)}"
    wanted = _wanted(versions)
    others = where(facts, [rank for rank, version in versions.items() if version != wanted])
    if name == "MPI":
        fix = f"load the same MPI on all hosts, here {wanted}; other is that of {others}"
    elif name == "Python":
        fix = f"use Python {wanted} at the same path on all hosts; other is that of {others}"
    else:
        package = _PACKAGES.get(name, name)
        fix = f"pip install '{package}=={wanted}' for {others}"
        if name == "tfhvd":  # no index need have it
            fix = f"pip install tfhvd-{wanted}-*.whl, from the source of the others, for {others}"
        if not wanted:
            fix = f"pip uninstall {package} for {others}, or install it on all hosts"
    return (failed if _is_serious(name, versions) else warned)("versions", text, fix)


def _is_serious(name: str, versions: Mapping[int, str]) -> bool:
    values = set(versions.values())
    if name == "TensorFlow":
        return len({minor_of(value) for value in values}) > 1
    if name == "Keras":  # Keras 2 and 3 have other variables
        return len({value.partition(".")[0] for value in values}) > 1
    return name in _MUST_BE_ONE


def _wanted(versions: Mapping[int, str]) -> str:
    """The version of most ranks; if that is undecided, of the lowest among them."""
    ordered = [versions[rank] for rank in sorted(versions)]
    return collections.Counter(ordered).most_common(1)[0][0]


def _compared(facts: Mapping[int, Facts], versions: Mapping[int, str]) -> str:
    groups: dict[str, list[int]] = {}
    for rank in sorted(versions):
        groups.setdefault(versions[rank], []).append(rank)
    return "; ".join(
        f"{version or 'none'} on {where(facts, ranks)}" for version, ranks in groups.items()
    )


def _without_doubling(texts: list[str]) -> list[str]:
    """Leaves out the name if the version begins with it: "MPI Open MPI 5", "glibc glibc 2"."""
    found = []
    for text in texts:
        name, _, version = text.partition(" ")
        found.append(version if name in version.split() else text)
    return found
