"""What a run found: a table for people, JUnit XML for CI, JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias
from xml.etree import ElementTree

Verdict: TypeAlias = Literal["passed", "failed", "not run"]


@dataclass(frozen=True, slots=True)
class Result:
    """One rule, and how the server or agent kept to it. `detail` says what was seen, or why it was not run."""

    rule: str
    promise: str
    verdict: Verdict
    detail: str
    seconds: float


def is_conformant(results: Sequence[Result]) -> bool:
    """Whether something was run, and nothing of it failed. A rule that was not run proves nothing either way."""
    return any(one.verdict == "passed" for one in results) and all(one.verdict != "failed" for one in results)


def to_table(results: Sequence[Result]) -> str:
    """A line per rule, what was seen below those that failed or were not run, and a sum."""
    width = max(len(one.rule) for one in results)
    lines = []
    for one in results:
        lines.append(f"{one.verdict:<7}  {one.rule:<{width}}  {one.promise}")
        if one.verdict != "passed":
            lines.append(f"{'':<7}  {'':<{width}}  -> {one.detail}")
    counts = [f"{sum(one.verdict == verdict for one in results)} {verdict}" for verdict in _VERDICTS]
    return "\n".join([*lines, "", ", ".join(counts)])


def to_json(results: Sequence[Result], tried: str, kind: str = "target") -> str:
    """One document: the target's address or the agent's command, the verdict, every rule."""
    found = {
        "url" if kind == "target" else "command": tried,
        "conformant": is_conformant(results),
        "results": [asdict(one) for one in results],
    }
    return json.dumps(found, indent=2) + "\n"


def to_junit(results: Sequence[Result], tried: str, kind: str = "target") -> str:
    """A test suite with a case per rule; what was not run is skipped."""
    suite = ElementTree.Element(
        "testsuite", name=f"plans.conformance {_printable(tried)}", tests=str(len(results)), errors="0",
        failures=str(sum(one.verdict == "failed" for one in results)),
        skipped=str(sum(one.verdict == "not run" for one in results)),
    )  # fmt: skip
    for one in results:
        case = ElementTree.SubElement(
            suite, "testcase", classname=kind, name=f"{one.rule}: {one.promise}", time=f"{one.seconds:.3f}"
        )
        if one.verdict != "passed":
            outcome = "failure" if one.verdict == "failed" else "skipped"
            ElementTree.SubElement(case, outcome, message=_printable(one.detail))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


_VERDICTS: tuple[Verdict, ...] = ("passed", "failed", "not run")


def _printable(text: str) -> str:
    """XML 1.0 has no place for control characters, and a server may answer any."""
    return "".join(char if char.isprintable() else " " for char in text)
