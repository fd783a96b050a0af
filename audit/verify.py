"""`python -m audit.verify FILE`: what an evidence pack or a JSONL export proves, offline, without Django.

An auditor who trusts nothing of ours reads this, `verify_pack`, `verify_export`, `closing`, `checking`, `decided`,
`notes` and `merkle`: there is no more to it.
"""

import argparse
import json
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from audit.checking import Report
from audit.closing import Trust
from audit.verify_export import verify_export
from audit.verify_pack import verify_pack

WHOLE, DAMAGED, UNREADABLE, UNPROVEN = range(4)
RETURN_CODES: Final = """returns:
  0  nothing is damaged; the report says what is proven and what is not
  1  damaged
  2  no such file, a key that cannot be read, or neither an evidence pack nor a JSONL export
  3  no damage can be seen, and no event is proven: a filtered export has no proofs
"""
_INSTEAD: Final = (
    "only evidence packs and JSONL exports are checked here. Export the same search as an evidence pack, which proves"
    " its events."
)
_JSONL: Final = re.compile(rb'\s*\{\s*"(?:index|export)"\s*:')


def verify_file(path: Path, *, key: str | None = None, witnesses: Sequence[str] = ()) -> Report:
    """Verifies an evidence pack (.zip) or a JSONL export. Raises ValueError for any other file, and for a bad key."""
    trust = Trust.parse(key, witnesses)
    with path.open("rb") as file:
        start = file.readline(4096)
    if start.startswith(b"PK") or zipfile.is_zipfile(path):
        return verify_pack(path, trust)
    is_json = start.lstrip().startswith(b"{")
    if not _JSONL.match(start):
        if start.removeprefix(b"\xef\xbb\xbf").startswith(b"index,leaf_hash,"):
            raise ValueError(f"This is a CSV export; {_INSTEAD}")
        if is_json and b'"class_uid"' in start:
            raise ValueError(f"This is an OCSF export; {_INSTEAD}")
        if not (is_json and b'"leaf_hash"' in start):
            raise ValueError(f"This is no file that can be proven; {_INSTEAD}")
    return verify_export(path, trust)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: whole. 1: damaged. 2: not a file that can be checked. 3: no damage seen, and nothing proven."""
    parser = argparse.ArgumentParser(
        prog="python -m audit.verify",
        description="Verify an evidence pack or a JSONL export.",
        epilog=RETURN_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--key", help="the log's verifier key, as you know it")
    parser.add_argument("--witness", action="append", default=[], metavar="KEY", help="a witness's verifier key")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    try:
        report = verify_file(options.file, key=options.key, witnesses=options.witness)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{options.file}: {error}\n")
        return UNREADABLE
    sys.stdout.write((json.dumps(report.as_data()) if options.json else "\n".join(report.lines())) + "\n")
    if not report.is_whole:
        return DAMAGED
    return UNPROVEN if report.covers == "nothing" else WHOLE


if __name__ == "__main__":
    sys.exit(main())
