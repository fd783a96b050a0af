"""The bulkhead: what one target may hold of a process's threads, and what sweeps do where it is full."""

import threading
import time
from datetime import timedelta

import pytest

from plans import bulkhead, clock
from plans.bulkhead import AT_ONCE, PATIENCE, Bulkhead, place_at
from plans.errors import TargetBusy
from plans.models import Plan
from plans.recheck import recheck_plan
from plans.reconcile import confirm_received, find_out_unknown
from tests.makers import events_of, make_plan, make_target, reread
from tests.stub_target import StubTarget


@pytest.fixture
def two_places():
    """Two places at a target, until the test is over."""
    bulkhead.limit_to(4)
    yield
    bulkhead.limit_to(16)


def test_a_target_gets_half_of_the_threads_and_all_targets_together_leave_some():
    places = Bulkhead(16)
    for _ in range(8):
        places.take(1, AT_ONCE)
    with pytest.raises(TargetBusy):
        places.take(1, AT_ONCE)
    for _ in range(4):
        places.take(2, AT_ONCE)
    with pytest.raises(TargetBusy):
        places.take(2, AT_ONCE)
    with pytest.raises(TargetBusy):
        places.take(3, AT_ONCE)
    places.give_back(1)
    places.take(3, AT_ONCE)


def test_every_process_has_at_least_one_place():
    places = Bulkhead(1)
    places.take(1, AT_ONCE)
    with pytest.raises(TargetBusy):
        places.take(2, AT_ONCE)


def test_a_request_waits_a_moment_for_a_place_that_comes_free():
    places = Bulkhead(4)
    places.take(1, AT_ONCE)
    places.take(1, AT_ONCE)
    threading.Timer(0.1, places.give_back, [1]).start()
    started = time.monotonic()
    places.take(1, PATIENCE)
    assert time.monotonic() - started < PATIENCE.total_seconds()


def test_only_a_few_wait_for_a_place_and_not_for_long():
    places = Bulkhead(8)  # four places, two who wait
    for _ in range(4):
        places.take(1, AT_ONCE)
    refused: list[float] = []

    def take() -> None:
        started = time.monotonic()
        with pytest.raises(TargetBusy):
            places.take(1, timedelta(seconds=0.5))
        refused.append(time.monotonic() - started)

    threads = [threading.Thread(target=take) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(took >= 0.5 for took in refused) == 2
    places.give_back(1)
    places.take(1, AT_ONCE)


@pytest.mark.usefixtures("two_places")
def test_a_thread_that_has_a_place_goes_on_with_it_and_gives_it_back_once():
    with place_at(7), place_at(7), place_at(7), place_at(8, patience=AT_ONCE):
        pass
    with pytest.raises(ZeroDivisionError), place_at(7):
        raise ZeroDivisionError
    kept = [place_at(7) for _ in range(2)]
    for thread in [threading.Thread(target=place.__enter__) for place in kept]:
        thread.start()
        thread.join()
    with pytest.raises(TargetBusy), place_at(7, patience=AT_ONCE):
        pass


@pytest.fixture
def full(two_places):
    """`full(target)`: somebody holds every place there is at a target."""
    let_go, held = threading.Event(), []

    def hold(pk: int, has_begun: threading.Event) -> None:
        with place_at(pk):
            has_begun.set()
            let_go.wait(60)

    def fill(target) -> None:
        for _ in range(2):
            has_begun = threading.Event()
            held.append(threading.Thread(target=hold, args=[target.pk, has_begun]))
            held[-1].start()
            assert has_begun.wait(10)

    yield fill
    let_go.set()
    for thread in held:
        thread.join()


def test_sweeps_pass_over_a_busy_target_and_come_back_soon(database, stub_target, full):
    with StubTarget() as other:
        busy, free = make_target(base_url=stub_target.base_url), make_target(base_url=other.base_url)
        stuck, lucky = make_plan("unknown", target=busy), make_plan("unknown", target=free)
        Plan.objects.filter(pk__in=[stuck.pk, lucky.pk]).update(next_check_at=clock.now())
        full(busy)
        before = events_of(stuck)
        assert find_out_unknown() == 1
        assert reread(lucky).state == "committed"
        stuck = reread(stuck)
        assert (stuck.state, stuck.check_count, events_of(stuck)) == ("unknown", 0, before)
        assert stuck.next_check_at < clock.now() + timedelta(seconds=6)
        assert stub_target.received == []


def test_confirming_passes_over_a_busy_target(database, stub_target, full):
    with StubTarget() as other:
        busy, free = make_target(base_url=stub_target.base_url), make_target(base_url=other.base_url)
        make_plan(target=busy), make_plan(target=free)
        full(busy)
        assert confirm_received() == 1
        assert stub_target.received == []


def test_looking_again_at_a_busy_target_says_so(database, stub_target, full):
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    full(plan.target)
    found = recheck_plan(plan)
    assert not found.was_read
    assert found.sentence.startswith("The target was not asked.")
    assert stub_target.received == []
