"""The rules for targets: each tries one promise of CONTRACT section 6 (and 5.2), and raises Failed or NotRun."""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from plans.conformance.caller import Answer, Caller, Dry, Failed, NotRun

DUPLICATES: Final = 8
FENCE_ROUNDS: Final = 3
BESIDE: Final = 8  # dry runs beside one commit, at most
BESIDE_PAUSE: Final = 0.01  # seconds between their beginnings
SETTLES_WITHIN: Final = 10.0
PAST: Final = 0.3  # seconds after an expiry, for clocks of one machine


def dry_run_writes_nothing(caller: Caller) -> None:
    """A dry run answers a whole plan, and writes nothing"""
    with _writes(caller, 0):
        dry = caller.dry_run()
    if dry.expires_at <= datetime.now(UTC):
        raise Failed("The new plan has expired already.")
    if caller.dry_run().token == dry.token:
        raise Failed("Two dry runs gave the same token.")


def commit_applies_once(caller: Caller) -> None:
    """A commit writes what was planned, once, and says so"""
    dry = caller.dry_run()
    with _writes(caller, 1):
        _applied(caller.commit(dry, _key()))


def replay_is_the_stored_answer(caller: Caller) -> None:
    """The same key again gets the same status and bytes, and writes nothing"""
    dry, key = caller.dry_run(), _key()
    with _writes(caller, 1):
        first = _applied(caller.commit(dry, key))
        again = caller.commit(dry, key)
    if (again.status, again.body) != (first.status, first.body):
        raise Failed(f"First {first.status}, then {again.status}, or another body.")


def another_key_writes_nothing(caller: Caller) -> None:
    """A committed plan is not written again under another key"""
    dry = caller.dry_run()
    with _writes(caller, 1):
        _applied(caller.commit(dry, _key()))
        again = caller.commit(dry, _key())
    if not again.is_applied:
        _refused(again)
    elif not caller.world.can_count:
        raise NotRun("It answered with success, and without world.count nobody knows whether it wrote.")


def key_reuse_is_refused(caller: Caller) -> None:
    """A key that was used for one plan does not commit another"""
    key = _key()
    _applied(caller.commit(caller.dry_run(), key))
    other = caller.dry_run()
    with _writes(caller, 0):
        _refused(caller.commit(other, key))


def duplicates_apply_once(caller: Caller) -> None:
    """Eight copies of one commit at the same time write once"""
    dry, key = caller.dry_run(), _key()
    with _writes(caller, 1), ThreadPoolExecutor(DUPLICATES) as pool:
        answers = list(pool.map(lambda _: caller.commit(dry, key), range(DUPLICATES)))
        odd = sorted({one.status for one in answers if not (one.is_applied or one.is_in_progress)})
        if odd:
            raise Failed(f"Copies of a commit that was applied were answered {odd}.")
        _settle(caller, dry, key)


def stale_inputs_conflict(caller: Caller) -> None:
    """When an input moved, a commit writes nothing, answers 409 and names what changed"""
    dry, key = caller.dry_run(), _key()
    _move(caller)
    with _writes(caller, 0):
        answer = caller.commit(dry, key)
    if answer.status != 409 or answer.is_in_progress:
        raise Failed(f"Answered {answer.status} {answer.slug}, not 409.")
    if not answer.members.get("changed"):
        raise Failed("The 409 does not say what changed.")


def rivals_write_once(caller: Caller) -> None:
    """Of two plans made against the same state, only one is written"""
    first, second = caller.dry_run(), caller.dry_run()
    if not _overlap(first, second):
        raise NotRun("Two dry runs of this operation touch nothing in common with a `from`.")
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda dry: caller.commit(dry, _key()), (first, second)))
    if sum(one.is_applied for one in answers) != 1:
        raise Failed(f"Answered {[one.status for one in answers]}: exactly one had to be applied.")


def a_commit_is_a_fence(caller: Caller) -> None:
    """A plan made while another of the same thing is being committed writes only what it showed, or is not made"""
    for _ in range(FENCE_ROUNDS):
        first, key = caller.dry_run(), _key()
        made: list[Future[Dry | Answer]] = []
        if not _overlap(first, first):
            raise NotRun("A dry run of this operation tells no `from`, so nobody can see what it was made against.")
        with ThreadPoolExecutor(BESIDE + 1) as pool:
            commit = pool.submit(caller.commit, first, key)
            while len(made) < BESIDE and not (made and commit.done()):
                made.append(pool.submit(caller.dry_run_or_later))
                time.sleep(BESIDE_PAUSE)
        if not commit.result().is_applied:
            _settle(caller, first, key)
        for plan in [one.result() for one in made]:
            if isinstance(plan, Dry):
                _is_written_as_shown(caller, plan)


def _is_written_as_shown(caller: Caller, plan: Dry) -> None:
    """Fails where the plan is written although what it was shown to be made against is no longer there."""
    shown, now = _shown(plan), _shown(caller.dry_run())
    moved = sorted(f"{target} {field}".strip() for target, field in shown.keys() & now.keys()
                   if shown[target, field] != now[target, field])  # fmt: skip
    if caller.commit(plan, _key()).is_applied and moved:
        raise Failed(f"A plan made beside a commit was written, and what it showed of {', '.join(moved)} had moved.")


def expired_is_refused(caller: Caller) -> None:
    """At or past expires_at nothing is written, and the answer is 410"""
    dry = _short(caller)
    _wait_past(caller, dry)
    with _writes(caller, 0):
        answer = caller.commit(dry, _key())
    if answer.status != 410:
        raise Failed(f"Answered {answer.status} {answer.slug}, not 410.")


def replay_outlives_expiry(caller: Caller) -> None:
    """The stored answer is given again after the plan's expiry"""
    dry, key = _short(caller), _key()
    first = _applied(caller.commit(dry, key))
    _wait_past(caller, dry)
    with _writes(caller, 0):
        again = caller.commit(dry, key)
    if (again.status, again.body) != (first.status, first.body):
        raise Failed(f"First {first.status}, after the expiry {again.status}, or another body.")


def lost_answer_is_found(caller: Caller) -> None:
    """An answer that was lost after the request arrived: the same key finds it, and it is written once"""
    dry, key = caller.dry_run(), _key()
    with _writes(caller, 1):
        caller.commit_and_leave(dry, key, whole=True)
        _settle(caller, dry, key)


def half_a_request_writes_nothing(caller: Caller) -> None:
    """A request cut in its middle writes nothing, and leaves the key and the plan usable"""
    dry, key = caller.dry_run(), _key()
    with _writes(caller, 0):
        caller.commit_and_leave(dry, key, whole=False)
        time.sleep(PAST)
    _settle(caller, dry, key)


def odd_bodies_are_refused(caller: Caller) -> None:
    """What is not exactly a commit's JSON is a 4xx, and writes nothing"""
    dry = caller.dry_run()
    pair = f'"plan_token": "{dry.token}", "input_fingerprint": "{dry.fingerprint}"'
    bodies: dict[str, str | bytes] = {
        "an empty body": b"", "half an object": "{" + pair, "a list": "[{" + pair + "}]", "null": "null",
        "not UTF-8": b'{"plan_token": "\xff\xfe", "input_fingerprint": "x"}',
        "a duplicate member": "{" + pair + ', "plan_token": "other"}',
        "a token that is a number": '{"plan_token": 1, "input_fingerprint": "x"}',
        "deep nesting": '{"plan_token": ' + "[" * 5_000 + "]" * 5_000 + "}",
    }  # fmt: skip
    with _writes(caller, 0):
        for name, body in bodies.items():
            answer = caller.commit_raw(body, _key())
            if not 400 <= answer.status < 500 or answer.status == 409:
                raise Failed(f"{name} was answered {answer.status}.")


def inputs_with_a_commit_are_refused(caller: Caller) -> None:
    """A commit takes no inputs: a body with other members is a 4xx, and writes nothing"""
    dry = caller.dry_run()
    with _writes(caller, 0):
        _refused(caller.commit(dry, _key(), inputs={"amount": 1}))


def the_key_is_required(caller: Caller) -> None:
    """A commit without an Idempotency-Key is a 4xx, and writes nothing"""
    dry = caller.dry_run()
    with _writes(caller, 0):
        _refused(caller.commit(dry, None))


def the_fingerprint_is_required(caller: Caller) -> None:
    """A commit without a fingerprint is a 4xx, and writes nothing"""
    dry = caller.dry_run()
    with _writes(caller, 0):
        _refused(caller.commit(dry, _key(), input_fingerprint=None))


def another_fingerprint_is_refused(caller: Caller) -> None:
    """Another fingerprint is a 4xx that writes nothing, and the plan stays"""
    dry = caller.dry_run()
    with _writes(caller, 0):
        _refused(caller.commit(dry, _key(), input_fingerprint="sha256:" + "0" * 64))
    _applied(caller.commit(dry, _key()))


def an_unknown_token_is_refused(caller: Caller) -> None:
    """A token that names no plan is a 4xx, and writes nothing"""
    dry = caller.dry_run()
    with _writes(caller, 0):
        _refused(caller.commit(dry, _key(), plan_token="pt_" + uuid.uuid4().hex))


def the_state_is_told(caller: Caller) -> None:
    """The look-up by plan id tells pending, then committed; 404 for what it does not know"""
    dry = caller.dry_run()
    for wanted in ("pending", "committed"):
        told = caller.state(dry.plan_id)
        found = (told.status, told.members.get("plan_id"), told.members.get("state"))
        if found != (200, dry.plan_id, wanted):
            raise Failed(f"It told {found}, and the plan is {wanted}.")
        if wanted == "pending":
            _applied(caller.commit(dry, _key()))
    if (status := caller.state(f"plan_{uuid.uuid4().hex}").status) != 404:
        raise Failed(f"An unknown plan was answered {status}.")


def strangers_are_refused(caller: Caller) -> None:
    """A commit without credentials is 401 or 403, and writes nothing"""
    if caller.config.commit.bearer_env is None:
        raise NotRun("commit.bearer_env is not given: anybody with a token may commit here.")
    dry = caller.dry_run()
    body = f'{{"plan_token": "{dry.token}", "input_fingerprint": "{dry.fingerprint}"}}'
    with _writes(caller, 0):
        answer = caller.commit_raw(body, _key(), is_known=False)
    if answer.status not in (401, 403):
        raise Failed(f"Answered {answer.status}.")


def tokens_stay_secret(caller: Caller) -> None:
    """No answer but a dry run's shows a plan's token"""
    caller.state(caller.dry_run().plan_id)
    for door, answer in caller.answers:
        shown = answer.body.decode(errors="replace") + "\n".join(answer.headers.values())
        if any(token in shown for token in caller.tokens):
            raise Failed(f"An answer of the {door} door ({answer.status}) shows a token.")


RULES: Final[Sequence[tuple[str, Callable[[Caller], None]]]] = [
    ("dry-run", dry_run_writes_nothing),
    ("commit", commit_applies_once),
    ("replay", replay_is_the_stored_answer),
    ("replay-other-key", another_key_writes_nothing),
    ("key-reuse", key_reuse_is_refused),
    ("key-required", the_key_is_required),
    ("duplicates", duplicates_apply_once),
    ("stale-inputs", stale_inputs_conflict),
    ("rivals", rivals_write_once),
    ("fence", a_commit_is_a_fence),
    ("fingerprint-required", the_fingerprint_is_required),
    ("fingerprint-mismatch", another_fingerprint_is_refused),
    ("unknown-token", an_unknown_token_is_refused),
    ("odd-bodies", odd_bodies_are_refused),
    ("no-inputs", inputs_with_a_commit_are_refused),
    ("lost-answer", lost_answer_is_found),
    ("lost-request", half_a_request_writes_nothing),
    ("expiry", expired_is_refused),
    ("replay-after-expiry", replay_outlives_expiry),
    ("state", the_state_is_told),
    ("credentials", strangers_are_refused),
    ("secrets", tokens_stay_secret),
]
"""Name and rule, in the order they are run: the last one looks through the answers of all others."""


@contextmanager
def _writes(caller: Caller, expected: int) -> Iterator[None]:
    """Fails where another number of writes happened inside. Without `world.count`, the answers alone are judged."""
    before = caller.world.count() if caller.world.can_count else 0
    yield
    if caller.world.can_count and (made := caller.world.count() - before) != expected:
        raise Failed(f"It wrote {made} times, not {expected}.")


def _applied(answer: Answer) -> Answer:
    if not answer.is_applied:
        raise Failed(f"A commit was answered {answer.status} {answer.slug}, not with success and JSON.")
    return answer


def _refused(answer: Answer) -> None:
    if not 400 <= answer.status < 500 or answer.status in (408, 409, 425, 429):
        raise Failed(f"Answered {answer.status} {answer.slug}, which is no refusal.")


def _settle(caller: Caller, dry: Dry, key: str) -> None:
    until = time.monotonic() + SETTLES_WITHIN
    while (answer := caller.commit(dry, key)).is_in_progress and time.monotonic() < until:
        time.sleep(0.1)
    _applied(answer)


def _move(caller: Caller) -> None:
    if not caller.world.can_move:
        raise NotRun("world.move is not given: nothing can change an input past the server.")
    caller.world.move()


def _short(caller: Caller) -> Dry:
    dry = caller.dry_run(short=True)
    if (dry.expires_at - datetime.now(UTC)).total_seconds() > caller.config.wait:
        raise NotRun(
            f"A plan lives longer than the {caller.config.wait:g} s that may be waited: give dry_run.short_path."
        )
    return dry


def _wait_past(caller: Caller, dry: Dry) -> None:
    time.sleep(max(0.0, (dry.expires_at - datetime.now(UTC)).total_seconds()) + PAST)


def _overlap(first: Dry, second: Dry) -> bool:
    return bool(_shown(first).keys() & _shown(second).keys())


def _shown(dry: Dry) -> dict[tuple[str, str], str]:
    """What the plan was made against, by target and field; as JSON text, in which 1 and true differ."""
    return {
        (str(one.get("target")), str(one.get("field", ""))): json.dumps(one["from"], sort_keys=True)
        for one in dry.actions
        if isinstance(one, dict) and "from" in one and one["from"] != one.get("to")
    }


def _key() -> str:
    return f"conformance-{uuid.uuid4().hex}"
