"""The audit log at size: writing, pages of searches, words, exports, a verification, histogram, facets and charts.

Run by name only (`make bench BENCH=log`): it fills a database first, some 3 GB and four minutes for a million events.
BENCH_EVENTS says how many (1,000,000), BENCH_EXPORTED how many of them are exported in a round (200,000).
"""

from pathlib import Path

from tests.benchmarks.log_bulk import run_bulk
from tests.benchmarks.log_fill import fill_log, settle_log
from tests.benchmarks.log_pages import run_pages
from tests.benchmarks.log_views import run_views
from tests.benchmarks.log_words import run_words
from tests.benchmarks.log_write import run_write
from tests.benchmarks.world import Production


def run(ground: Production) -> None:
    """Fill the log and print everything about it."""
    run_write(ground, "an empty log")
    ground.empty()
    # What was signed of the log that is gone.
    Path(ground.environment()["AUDIT_STATE_FILE"]).unlink()
    fill_log(ground)
    run_write(ground, "a full one")
    settle_log(ground)
    run_pages()
    run_words()
    run_views()
    run_bulk()
