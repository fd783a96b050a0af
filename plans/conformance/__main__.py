"""The command line: `python -m plans.conformance target URL --config FILE`, or `... agent -- COMMAND...`."""

import argparse
import shlex
import sys
from pathlib import Path

from plans.conformance.config import ConfigError, read_config
from plans.conformance.driving import TURN_SECONDS, try_agent
from plans.conformance.report import Result, is_conformant, to_json, to_junit, to_table
from plans.conformance.rules import RULES
from plans.conformance.run import try_target
from plans.conformance.scenarios import SCENARIOS


def main(argv: list[str] | None = None) -> int:
    """Exit status 0 where no rule is broken, 1 where one is, 2 where the run could not be made."""
    options = _parse(argv)
    try:
        tried, results = _try(options)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for path, text in ((options.junit, to_junit), (options.json, to_json)):
        if path is not None:
            path.write_text(text(results, tried, options.kind))
    sys.stdout.write(to_table(results) + "\n")
    return 0 if is_conformant(results) else 1


def _try(options: argparse.Namespace) -> tuple[str, list[Result]]:
    if options.kind == "target":
        return options.url, try_target(options.url, read_config(options.config), only=options.only)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise ConfigError("Say which command runs the agent, after --.")
    return shlex.join(command), try_agent(command, options.only, options.seconds)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="plans.conformance", description=__doc__)
    doors = parser.add_subparsers(dest="kind", required=True)
    target = doors.add_parser("target", help="try a two-phase server")
    target.add_argument("url", help="its base URL, of a system that may be written to")
    target.add_argument("--config", type=Path, required=True, help="a TOML file, see docs/targets.md")
    target.add_argument("--only", action="append", default=[], choices=[name for name, _ in RULES], metavar="RULE")
    agent = doors.add_parser("agent", help="try an agent, see docs/conformance.md")
    agent.add_argument(
        "--only", action="append", default=[], choices=[one.name for one in SCENARIOS], metavar="SCENARIO"
    )
    agent.add_argument("--seconds", type=float, default=TURN_SECONDS, help="that one turn may take")
    for door in (target, agent):
        door.add_argument("--junit", type=Path, help="write JUnit XML here")
        door.add_argument("--json", type=Path, help="write JSON here")
    agent.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what runs the agent")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
