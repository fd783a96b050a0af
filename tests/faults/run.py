"""A run from its start to its verdict: work, faults, everything whole again, time to recover, judgement."""

import argparse
import threading
import time
import urllib.request
from pathlib import Path

from django.db import Error as DatabaseError
from django.db import connections

from plans.models import Plan
from tests.faults.breaker import Breaker
from tests.faults.bystander import Bystander, near
from tests.faults.control import Control
from tests.faults.judge import Judge, Verdict
from tests.faults.product import Product
from tests.faults.timers import RECOVERED_WITHIN
from tests.faults.workload import Workload
from tests.faults.world import make_world

IN_FLIGHT = ("pending", "committing", "unknown")


def run(product: Product, seed: str, options: argparse.Namespace) -> Verdict:
    """Break and work for so many seconds."""
    world = make_world(product)
    connections.close_all()
    control = Control(product.control_path)
    product.start_programs()
    for port in product.ports:
        _wait_served(port)
    workload = Workload(product, world, seed, threads=options.threads, only=options.kind)
    breaker = Breaker(product, control, seed, "" if options.only == "none" else options.only)
    hand = threading.Thread(target=breaker.run, args=(workload.wrong,), daemon=True)
    began = time.monotonic()
    bystander = Bystander(product, world)
    workload.start()
    bystander.start()
    if options.only != "none":
        hand.start()
    while time.monotonic() - began < options.seconds and not workload.stopping.is_set():
        time.sleep(0.2)
    breaker.stopping.set()
    if options.only != "none":
        hand.join(30)
    workload.finish()
    bystander.finish()
    _let_recover(product, workload)
    if options.keep:
        _print_answers(workload)
        _print_costs(product)
    verdict = Judge(product, workload.traces, control.strikes, control.paused).judge(workload.wrongs)
    _tell_of(product, bystander, control, verdict)
    verdict.notes += [f"not run: {sentence}" for sentence in breaker.not_run]
    unreached = sorted(set(breaker.steps) - set(control.reached))
    if unreached:
        verdict.notes.append(f"points that no process reached: {', '.join(unreached)}")
    control.close()
    return verdict


def _tell_of(product: Product, bystander: Bystander, control: Control, verdict: Verdict) -> None:
    served = sorted(look.took for look in bystander.looks if look.was_served)
    if not served:
        verdict.failures.append("the bystander was never served")
        return
    middle, most = served[len(served) // 2], served[int(len(served) * 0.99)]
    verdict.notes.append(
        f"a bystander looked {len(bystander.looks)} times: served {len(served)} times, "
        f"half of them within {middle:.2f} s, 99 of 100 within {most:.2f} s"
    )
    for look in [] if product.is_small else bystander.not_served(control.strikes):  # with one server it takes one fault
        verdict.failures.append(
            f"nobody served a bystander for {look.took:.1f} s, though the database and a server were there: "
            + near(look, control.strikes)
        )


def _print_answers(workload: Workload) -> None:
    """For who works on the harness: what was answered how often, and how slowly."""
    times: dict[tuple[str, int, str], list[float]] = {}
    for trace in workload.traces:
        for said in trace.said:
            times.setdefault((said.verb, said.status, said.slug), []).append(said.at - said.sent_at)
    for name, taken in sorted(times.items()):
        print(f"{name}: {len(taken)}, mean {sum(taken) / len(taken):.2f} s, longest {max(taken):.2f} s")


def _print_costs(product: Product) -> None:
    """Seconds of processor time by program, of what runs now."""
    for program in product.programs.values():
        pids = [program.process.pid, *program.children()] if program.process else []
        ticks = 0
        for pid in pids:
            try:
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks += int(words[11]) + int(words[12])
        print(f"{program.name}: {ticks / 100:.1f} s of processor, started {program.starts}x")


def _wait_served(port: int) -> None:
    deadline = time.monotonic() + 90
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise RuntimeError("the site did not come up")
        time.sleep(0.1)


def _let_recover(product: Product, workload: Workload) -> None:
    """Until no plan is in flight, or the longest that may take."""
    last = max((trace.expires for trace in workload.traces), default=time.time())
    deadline = max(time.time(), last) + RECOVERED_WITHIN + 15
    while time.time() < deadline:
        try:
            if product.is_database_up() and not Plan.objects.filter(state__in=IN_FLIGHT).exists():
                return
        except DatabaseError:
            connections.close_all()
        time.sleep(0.5)


def show(verdict: Verdict, seed: str) -> None:
    """The table, and whatever is wrong."""
    print(f"| {'fault':<44} | strikes | runs | survived | lost | doubled | stuck | longest recovery |")
    print(f"| {'---':<44} | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for kind, row in verdict.rows.items():
        numbers = (row.strikes, row.runs, row.survived, row.lost, row.doubled, row.stuck)
        print(f"| {kind:<44} | {' | '.join(str(number) for number in numbers)} | {row.recovery:.1f} s |")
    states = ", ".join(f"{count} {state}" for state, count in sorted(verdict.states.items()))
    print(
        f"{verdict.plans} plans ({states}); {verdict.faulted} faulted commits "
        f"({verdict.otherwise} by more than a clock); seed {seed}"
    )
    for note in verdict.notes:
        print(f"note: {note}")
    for failure in verdict.failures[:60]:
        print(f"FAILED {failure}")
    if len(verdict.failures) > 60:
        print(f"FAILED {len(verdict.failures) - 60} more")
