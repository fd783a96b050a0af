"""The command line: `python -m plans.conformance target URL --config FILE [--junit FILE] [--json FILE]`."""

import argparse
import sys
from pathlib import Path

from plans.conformance.config import ConfigError, read_config
from plans.conformance.report import is_conformant, to_json, to_junit, to_table
from plans.conformance.rules import RULES
from plans.conformance.run import try_target


def main(argv: list[str] | None = None) -> int:
    """Exit status 0 where no rule is broken, 1 where one is, 2 where the run could not be made."""
    parser = argparse.ArgumentParser(prog="plans.conformance", description=__doc__)
    doors = parser.add_subparsers(dest="kind", required=True)
    target = doors.add_parser("target", help="try a two-phase server")
    target.add_argument("url", help="its base URL, of a system that may be written to")
    target.add_argument("--config", type=Path, required=True, help="a TOML file, see docs/targets.md")
    target.add_argument("--only", action="append", default=[], choices=[name for name, _ in RULES], metavar="RULE")
    target.add_argument("--junit", type=Path, help="write JUnit XML here")
    target.add_argument("--json", type=Path, help="write JSON here")
    options = parser.parse_args(argv)
    try:
        results = try_target(options.url, read_config(options.config), only=options.only)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for path, text in ((options.junit, to_junit), (options.json, to_json)):
        if path is not None:
            path.write_text(text(results, options.url))
    sys.stdout.write(to_table(results) + "\n")
    return 0 if is_conformant(results) else 1


if __name__ == "__main__":
    sys.exit(main())
