"""Inbox, a plan's page and the list of all plans among a million plans, against the same among a thousand.

Run by name only (`make bench BENCH=size`): it fills some 2 GB of disk and takes minutes. BENCH_SIZE makes it smaller.
"""

import os

from tests.benchmarks.measuring import ROUNDS, Series, request, tell
from tests.benchmarks.pages import REQUESTS, cpu_of_pages, fill
from tests.benchmarks.world import Production, session_of
from tests.fixtures import start_site, stop_process
from tests.ground import free_port

FEW = 1_000
MANY = int(os.environ.get("BENCH_SIZE", "1000000"))
PENDING = 400
"""Plans that wait, in both: what a desk has before it does not grow with what it has done."""

PAGES = ("inbox", "plan", "history")


def run(ground: Production) -> None:
    """Print the CPU of web and PostgreSQL of each page, among many plans as a ratio of that among few."""
    few = _measure(ground, FEW)
    ground.empty()
    many = _measure(ground, MANY)
    for page in PAGES:
        told = (f"{taken[page].middle * 1000:.2f} ms" for taken in (many, few))
        tell(f"{page}, {MANY:,} plans against {FEW:,}: CPU", many[page].against(few[page]), *told, "at most 1.5")


def _measure(ground: Production, plans: int) -> dict[str, Series]:
    from tests.makers import make_person

    person = make_person("reviewer")
    names = fill(ground, plans, PENDING)
    headers, _ = session_of(person)
    site = start_site(free_port())
    port, web = int(site.url.rpartition(":")[2]), site.process.pid
    taken = {page: Series() for page in PAGES}
    try:
        for number in range(ROUNDS + 1):
            opened = [names[(number * REQUESTS + place) % len(names)] for place in range(REQUESTS)]
            asked = {
                "inbox": [request("GET", "/", port, headers)] * REQUESTS,
                "plan": [request("GET", f"/plans/{agent}/{at}/{plan}/", port, headers) for agent, at, plan in opened],
                "history": [request("GET", "/history/?state=committed", port, headers)] * REQUESTS,
            }
            for page, requests in asked.items():
                spent = cpu_of_pages(ground, web, port, requests)
                if number > 0:
                    taken[page].add(spent)
    finally:
        stop_process(site.process)
    return taken
