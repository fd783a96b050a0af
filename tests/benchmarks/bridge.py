"""What the event loop costs a plain page: CPU of the server with it, against the server without."""

from tests.benchmarks.measuring import ROUNDS, Series, cpu_of, knock, request, tell
from tests.benchmarks.world import Production
from tests.fixtures import Site, start_site, stop_process
from tests.ground import free_port

PAGES = {"/api/none": 404, "/healthz": 200, "/login/": 200}
GOAL = 1.6
"""SPEED: 520 us against 330 for a page that does nothing; the more a page does, the nearer to 1."""

REQUESTS, CLIENTS = 240, 4


def run(ground: Production) -> None:
    """Print a line for each page. The two servers take turns, so that a noisy machine is noisy to both."""
    sites: dict[str, Site] = {}
    try:
        sites["loop"] = start_site(free_port(), arguments=["--workers", "1"])
        sites["plain"] = start_site(free_port(), arguments=["--workers", "1", "--wsgi"])
        for path, status in PAGES.items():
            spent = {name: Series() for name in sites}
            for number in range(ROUNDS + 1):
                for name, site in sites.items():
                    port = int(site.url.rpartition(":")[2])
                    lines = [[request("GET", path, port, {})] * (REQUESTS // CLIENTS)] * CLIENTS
                    before = cpu_of(site.process.pid)
                    knock(port, lines, status)
                    if number > 0:
                        spent[name].add((cpu_of(site.process.pid) - before) / REQUESTS)
            tell(
                f"event loop: CPU of {path} against plain WSGI", spent["loop"].against(spent["plain"]),
                *(f"{spent[name].middle * 1e6:.0f} us" for name in ("loop", "plain")), f"at most {GOAL}",
            )  # fmt: skip
    finally:
        for site in sites.values():
            stop_process(site.process)
