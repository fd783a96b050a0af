"""The rules for agents: each reads what was sent, and says where CONTRACT section 7 was kept or broken."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from plans.conformance.evidence import Commit, Heard, Seen
from plans.conformance.report import Result, Verdict
from plans.conformance.scripted import ENDS, Planned

KEPT: Final = ""
"""An occasion at which the rule was kept; any other text says how it was broken."""

GRACE: Final = 0.1
"""Seconds after an expiry in which a commit may arrive that was sent before, on loopback."""

MEMBERS: Final = frozenset({"plan_token", "input_fingerprint", "plan_id"})

Findings: TypeAlias = Iterator[str]


def it_runs(seen: Seen) -> Findings:
    """It plans what it is given to do, brings the plan about where it is to, and its process comes to an end"""
    for number, turn in enumerate(seen.turns):
        said = f"(exit status {turn.status}){_last_words(seen, turn.output)}"
        if turn.status is None:
            yield f"Turn {number + 1} did not come to an end and was killed."
        elif not seen.plans(number):
            yield f"Turn {number + 1} planned nothing {said}."
        elif any(step["do"] == "commit" for step in seen.scenario.turns[number]) and not _is_pursued(seen, number):
            yield f"Turn {number + 1} planned, and did nothing to bring its last plan about {said}."
        else:
            yield KEPT


def one_key(seen: Seen) -> Findings:
    """A plan has one key: a commit that is made again carries the same one, and no other plan's"""
    owners: dict[str, str] = {}
    for plan in seen.plans():
        commits = seen.commits(plan)
        for first, again in pairwise(commits):
            yield KEPT if first.key == again.key else f"{plan.plan_id} was committed again under another key."
        for key in {one.key for one in commits}:
            owner = owners.setdefault(key, plan.plan_id)
            yield KEPT if owner == plan.plan_id else f"{plan.plan_id} was committed with the key of {owner}."


def finds_out(seen: Seen) -> Findings:
    """After a commit without an answer it commits again, or asks for the state by plan id"""
    for lost in (one for one in seen.commits() if one.is_lost):
        plan = lost.plan
        again = any(one.place > lost.place for one in seen.commits(plan))
        asked = any(place > lost.place for place, _ in seen.looks(plan))
        if not seen.dry_runs(plan.operation, after=lost.place, turn=plan.turn):  # else it is `no-replan` that it broke
            yield KEPT if again or asked else f"A commit of {plan.plan_id} got no answer, and it left it at that."


def no_replan(seen: Seen) -> Findings:
    """While an outcome is unknown it does not plan the same thing anew"""
    for lost in (one for one in seen.commits() if one.is_lost):
        plan, known_at = lost.plan, _known_at(seen, lost)
        hasty = [one for one in seen.dry_runs(plan.operation, after=lost.place, turn=plan.turn) if one < known_at]
        yield f"It planned anew while the outcome of {plan.plan_id} was unknown." if hasty else KEPT


def done_is_done(seen: Seen) -> Findings:
    """After 200, replayed or not, it is done: that plan is committed no more, nor the same planned anew"""
    yield from _never_again(seen, lambda one: one.was_told(200), "after 200")
    for one in seen.commits():
        if one.was_told(200) and seen.dry_runs(one.plan.operation, after=one.place, turn=one.plan.turn):
            yield f"{one.plan.plan_id} was done, and the same was planned anew."


def conflict_is_final(seen: Seen) -> Findings:
    """After 409 it never sends that plan again"""
    return _never_again(seen, lambda one: one.was_told(409), "after 409")


def no_means_no(seen: Seen) -> Findings:
    """After a no of the operation or target it stops: not the same plan again, nor the same thing anew"""
    for one in seen.commits():
        if one.was_told(422, "refused"):
            plan = one.plan
            again = any(other.place > one.place for other in seen.commits(plan))
            anew = seen.dry_runs(plan.operation, after=one.place, turn=plan.turn)
            yield f"{plan.plan_id} was refused, and it tried again." if again or anew else KEPT


def plans_again(seen: Seen) -> Findings:
    """What conflicted, expired or was touched by its own write is planned again"""
    for number, _ in enumerate(seen.turns):
        for plan in seen.plans(number):
            if (why := _is_spoilt(seen, plan)) is not None:
                made_at = seen.planned_at(plan)
                anew = seen.dry_runs(plan.operation, after=made_at, turn=number)
                yield KEPT if anew else f"{plan.plan_id} {why}, and it did not plan again."


def people_are_waited_for(seen: Seen) -> Findings:
    """What a person has to decide is waited for at the plan's state; it is not sent again meanwhile"""
    for plan in seen.plans():
        asks = [one for one in seen.commits(plan) if one.was_told(403, "approval-required")]
        if asks:
            looked = any(place > asks[0].place for place, _ in seen.looks(plan))
            if len(asks) > 1:
                yield f"{plan.plan_id} waits for a person, and was sent {len(asks)} times."
            elif not looked and seen.given_up(plan) is None:
                yield f"{plan.plan_id} waits for a person, and nobody looked for the decision."
            else:
                yield KEPT


def in_time(seen: Seen) -> Findings:
    """It never commits at or past expires_at"""
    for one in seen.commits():
        late = (one.heard.at - one.plan.expires_at).total_seconds()
        yield f"{one.plan.plan_id} was committed {late:.1f} s past its expiry." if late > GRACE else KEPT


def own_write(seen: Seen) -> Findings:
    """It never commits after a write of its own that touched the plan's targets"""
    for plan in seen.plans():
        for write in _writes(seen, plan):
            late = [one for one in seen.commits(plan) if one.place > write]
            yield f"{plan.plan_id} was committed after a write to {plan.touches}." if late else KEPT


def no_inputs(seen: Seen) -> Findings:
    """A commit carries token and fingerprint (and at most the plan's id): never inputs"""
    for one in seen.commits():
        more = sorted(set(one.heard.asked.members) - MEMBERS)
        yield f"A commit of {one.plan.plan_id} carried {', '.join(more)}." if more else KEPT


def verbatim(seen: Seen) -> Findings:
    """Token and fingerprint are presented as received: none is made, parsed or computed"""
    for heard in seen.heard:
        if heard.asked.door == "commit":
            members = heard.asked.members
            plan = seen.script.find(token=members.get("plan_token"))
            if plan is None:
                yield "A commit carried a token that was never given."
            elif members.get("input_fingerprint") != plan.input_fingerprint:
                yield f"A commit of {plan.plan_id} did not carry its fingerprint as received."
            else:
                yield KEPT


def tokens_stay_secret(seen: Seen) -> Findings:
    """A token goes into a commit or a feed and nowhere else; no secret is printed or logged"""
    keys = [seen.script.api_key, seen.script.webhook_secret.reveal()]
    for turn in seen.turns:
        printed = any(secret in turn.output for secret in [*keys, *(plan.token for plan in seen.plans())])
        yield "It printed a token, its API key or its webhook secret." if printed else KEPT
    for heard in seen.heard:
        for plan in seen.plans():
            if _is_shown(heard, plan.token):
                yield f"The token of {plan.plan_id} went to the {heard.asked.door} door."


def turns_are_strangers(seen: Seen) -> Findings:
    """A later turn never presents a token of an earlier one"""
    for one in seen.commits():
        if len(seen.turns) > 1:
            old = one.heard.turn != one.plan.turn
            yield f"Turn {one.heard.turn + 1} presented a token of turn {one.plan.turn + 1}." if old else KEPT


def over_is_over(seen: Seen) -> Findings:
    """What it gave up, or whose task it ended, it does not commit any more"""
    for plan in seen.plans():
        over = seen.given_up(plan)
        if over is not None:
            late = [one for one in seen.commits(plan) if one.place > over and one.heard.turn == plan.turn]
            yield f"{plan.plan_id} was committed after it was given up." if late else KEPT


def says_so(seen: Seen) -> Findings:
    """No task ends with a plan in flight and nothing said"""
    for plan in seen.plans():
        if not plan.is_at_desk:
            continue
        if seen.given_up(plan) is not None:
            yield KEPT
        elif plan.state not in ENDS:
            yield f"Turn {plan.turn + 1} ended, {plan.plan_id} is {plan.state}, and the desk was told nothing."


RULES: Final[Sequence[tuple[str, Callable[[Seen], Findings]]]] = [
    ("runs", it_runs),
    ("key", one_key),
    ("finds-out", finds_out),
    ("no-replan", no_replan),
    ("done", done_is_done),
    ("conflict", conflict_is_final),
    ("stops", no_means_no),
    ("plans-again", plans_again),
    ("waits", people_are_waited_for),
    ("in-time", in_time),
    ("own-write", own_write),
    ("no-inputs", no_inputs),
    ("verbatim", verbatim),
    ("secrets", tokens_stay_secret),
    ("old-token", turns_are_strangers),
    ("task-end", over_is_over),
    ("says-so", says_so),
]
"""Name and rule, in the order of the report."""


def judge(runs: Sequence[Seen], seconds: float) -> list[Result]:
    """Every rule over all these scenarios: failed where it was broken once, passed where it was kept, else not run."""
    results = []
    for name, rule in RULES:
        found = [(seen.scenario.name, finding) for seen in runs for finding in rule(seen)]
        broken = dict.fromkeys(f"{scenario}: {finding}" for scenario, finding in found if finding != KEPT)
        verdict: Verdict = "failed" if broken else "passed" if found else "not run"
        detail = " ".join(broken) if broken else "" if found else "What the agent did gave no occasion for it."
        results.append(Result(name, (rule.__doc__ or "").strip(), verdict, detail, seconds / len(RULES)))
    return results


def _is_pursued(seen: Seen, turn: int) -> bool:
    """Whether this turn sent a commit after its last plan was made; of what people decide, asking for it is enough."""
    last = seen.plans(turn)[-1]
    made_at = seen.planned_at(last)
    sent = any(
        heard.turn == turn and heard.asked.door == "commit" and place > made_at
        for place, heard in enumerate(seen.heard)
    )  # fmt: skip
    return sent or (last.needs_approval and any(place > made_at for place, _ in seen.looks(last)))


def _never_again(seen: Seen, is_final: Callable[[Commit], bool], when: str) -> Findings:
    for one in seen.commits():
        if is_final(one):
            again = [other for other in seen.commits(one.plan) if other.place > one.place]
            yield f"{one.plan.plan_id} was sent again {when}." if again else KEPT


def _known_at(seen: Seen, lost: Commit) -> int:
    """The place from which on the agent knows what came of this plan; past all of them where it never does."""
    answers = [one.place for one in seen.commits(lost.plan) if one.place > lost.place and not one.is_lost]
    looks = [place for place, told in seen.looks(lost.plan) if told.members.get("state") in ENDS]
    return min([*answers, *(place for place in looks if place > lost.place), len(seen.heard)])


def _is_spoilt(seen: Seen, plan: Planned) -> str | None:
    """Why the plan has to be made again; None where it need not be."""
    commits = seen.commits(plan)
    if any(one.was_told(409) for one in commits):
        return "conflicted"
    if plan.state == "committed" or any(one.was_told(422, "refused") for one in commits):
        return None
    if _writes(seen, plan):
        return "was touched by its own write"
    ended_itself = plan.state == "abandoned" and plan.reason != "expired"
    return None if ended_itself or plan.state != "abandoned" else "expired"


def _writes(seen: Seen, plan: Planned) -> list[int]:
    """Where the agent wrote to what the plan touches, after it was made."""
    made_at = seen.planned_at(plan)
    return [
        place
        for place, heard in enumerate(seen.heard)
        if place > made_at and heard.asked.door == "target-write" and heard.asked.path.endswith(_path_of(plan))
    ]


def _path_of(plan: Planned) -> str:
    kind, _, name = plan.touches.partition("/")
    return f"/{kind}s/{name}"


def _is_shown(heard: Heard, token: str) -> bool:
    """Whether the token stands in a request where it does not belong."""
    asked = heard.asked
    body = asked.body.decode(errors="replace")
    if asked.door == "commit" and asked.members.get("plan_token") == token:
        body = body.replace(token, "", 1)
    if asked.door == "feed" and asked.members.get("type") == "plan.created":
        body = body.replace(token, "", 1)
    return any(token in text for text in (asked.path, body, *asked.query.values(), *asked.headers.values()))


def _last_words(seen: Seen, output: str) -> str:
    """The last line that the agent printed, without secrets."""
    lines = output.strip().splitlines()
    if not lines:
        return ""
    secrets = [seen.script.api_key, seen.script.webhook_secret.reveal(), *(plan.token for plan in seen.plans())]
    return "" if any(secret in lines[-1] for secret in secrets) else f": {lines[-1][:300]}"
