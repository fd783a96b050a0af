"""What a search for words costs: pages of 8 kB and time, for words that many events have, few, and none."""

from dataclasses import replace
from datetime import timedelta

from tests.benchmarks.log_pages import LIMIT, measure_page
from tests.benchmarks.measuring import note


def run_words() -> None:
    """Print the first page and one in the middle of the log."""
    from django.db import connection

    from audit.cursors import ByIndex, seal
    from audit.filters import Filters, Search
    from audit.proofs import read_size
    from audit.queries import count_events

    with connection.cursor() as cursor:
        cursor.execute("SELECT max(at), min(agent) FROM audit_event WHERE agent IS NOT NULL")
        newest, agent = cursor.fetchone()
        cursor.execute("SELECT substring(body from 'ACC-[0-9]+') FROM audit_payload WHERE body LIKE '%ACC-%' LIMIT 1")
        ((account,),) = cursor.fetchall()
    start = measure_page(Search(limit=LIMIT))
    month = Filters(from_at=newest - timedelta(days=70), to_at=newest - timedelta(days=40))
    for name, words, others in (
        ("a frequent word", ("agreed",), Filters()),
        ("a seldom one", ("inputs_changed",), Filters()),
        ("one that a plan or two have", (account,), Filters()),
        ("one that nobody has", ("nowhere",), Filters()),
        ("two", ("agreed", "Zoë"), Filters()),
        ("two that never meet", ("agreed", "sha256"), Filters()),
        ("a frequent word, a frequent agent", ("agreed",), Filters(agent=agent)),
        ("a seldom word, a frequent agent", ("inputs_changed",), Filters(agent=agent)),
        ("a frequent word, a month", ("agreed",), month),
        ("a seldom word, a month", ("inputs_changed",), month),
    ):
        search = Search(replace(others, words=words), limit=LIMIT)
        count = count_events(search.filters)
        first = measure_page(search)
        middle = ByIndex(read_size() // 2)
        deep = measure_page(replace(search, cursor=seal(middle, search, "bench")))
        note(
            f"{name:<38} {count.value:>7,}{' ' if count.is_exact else '+'} events: found with"
            f" {first.found:>7,} and {deep.found:>7,} pages, counted with {first.count:>6,};"
            f" {first.seconds * 1000:7.1f} and {deep.seconds * 1000:7.1f} ms ({first.seconds / start.seconds:.0f} and"
            f" {deep.seconds / start.seconds:.0f} times the page without filters)"
        )
