"""Reading ahead keeps the order, raises where it failed, and leaves nothing running."""

import threading

import pytest

from audit.ahead import read_ahead


def test_results_come_in_the_order_of_their_items_from_each_reader_in_turn() -> None:
    def read(reader: str, item: int) -> tuple[str, int, str]:
        return reader, item, threading.current_thread().name

    got = list(read_ahead(["one", "two"], range(7), read))
    assert [item for item, _ in got] == list(range(7))
    assert [(reader, item) for _, (reader, item, _) in got] == [(("one", "two")[n % 2], n) for n in range(7)]
    assert len({(reader, thread) for _, (reader, _, thread) in got}) == 2
    assert threading.current_thread().name not in {thread for _, (_, _, thread) in got}


def test_a_failure_is_raised_in_its_place() -> None:
    def read(_: None, item: int) -> int:
        if item == 2:
            raise ValueError("the third")
        return item

    results = read_ahead([None, None], range(9), read)
    assert [next(results), next(results)] == [(0, 0), (1, 1)]
    with pytest.raises(ValueError, match="the third"):
        next(results)


def test_what_waits_is_no_more_than_there_are_readers_and_nothing_is_read_once_it_is_left() -> None:
    before, begun = set(threading.enumerate()), []

    def read(_: None, item: int) -> int:
        begun.append(item)
        return item

    results = read_ahead([None, None], range(1000), read)
    assert next(results) == (0, 0)
    results.close()
    assert max(begun) == 2
    assert not set(threading.enumerate()) - before
