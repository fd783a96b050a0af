"""Measures the desk against what could be reached, as ratios of one interleaved run.

    python -m tests.benchmarks [feed approve pages bridge] [size] [log]

BENCH_ROUNDS (4) and BENCH_PLANS (10000) make it longer; TMPDIR says on which disk.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from tests.benchmarks.measuring import ROUNDS, note
from tests.benchmarks.world import production

NAMES = ("feed", "approve", "pages", "bridge")
BY_NAME = (*NAMES, "size", "log")
"""What is run where it is named, beside what is run always."""


def main() -> None:
    """Run the named benchmarks, or all, each on an empty database."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BY_NAME, []], metavar="name", help=", ".join(BY_NAME))
    names = parser.parse_args().names or NAMES
    began = time.monotonic()
    note(
        f"{os.cpu_count()} cores, {_disk()}, load before {os.getloadavg()[0]:.1f}; {ROUNDS} interleaved rounds: "
        "the middle ratio (lowest to highest)"
    )
    with production() as ground:
        from tests.benchmarks import approve, bridge, feed, log, pages, size

        runs = {
            "feed": feed.run,
            "approve": approve.run,
            "pages": pages.run,
            "bridge": bridge.run,
            "size": size.run,
            "log": log.run,
        }
        for name in names:
            runs[name](ground)
            ground.empty()
    note(f"load after {os.getloadavg()[0]:.1f}; {time.monotonic() - began:.0f} s in all")


def _disk() -> str:
    """What the database's folder lies on."""
    folder = Path(tempfile.gettempdir()).resolve()
    kinds = {}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        kinds[place] = kind
    place = next(str(parent) for parent in (folder, *folder.parents) if str(parent) in kinds)
    return "a RAM disk" if kinds[place] in ("tmpfs", "ramfs") else f"a disk ({kinds[place]})"


if __name__ == "__main__":
    main()
