"""What a target answers may hold what Python does not: it is kept as text, and nothing raises after a commit."""

from typing import Final

import pytest

from plans.agent import Committed, Desk
from tests.plans.agent.scripted_desk import ScriptedDesk, Step

ODD: Final = {
    "beyond any double": "1e400",
    "5,000 digits": "9" * 5_000,
    **{f"{depth} levels": "[" * depth + "]" * depth for depth in (60, 100, 450, 900, 3_000)},
    "brackets in text": '["' + '[{\\"' * 200 + '"]',
    "deep text": '{"a":' * 300 + '"]}\\\\"' + "}" * 300,
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_commit_with_an_odd_result_is_told_and_told_again(desk: Desk, server: ScriptedDesk, odd: str) -> None:
    with desk.task("t1") as task:
        plan = task.dry_run("address.update", {"customer_id": "77"})
        body = f'{{"plan_id": "plan_1", "state": "committed", "result": {{"kept": 7, "odd": {odd}}}}}'
        server.next("commit", Step(status=200, raw=body.encode(), is_applied=True))
        first, again = task.commit(plan), task.commit(plan)
        assert isinstance(first, Committed)
        assert isinstance(again, Committed)
        assert isinstance(first.result, dict)
        assert (first.result["kept"], again.result, again.replayed) == (7, first.result, True)
    assert len(server.at("commit")) == 1


@pytest.mark.filterwarnings("ignore::plans.agent.UntoldWarning")  # the script knows the second plan by its dry run only
@pytest.mark.parametrize("odd", ["1e400", "9" * 5_000], ids=["beyond any double", "5,000 digits"])
def test_a_plan_of_odd_numbers_is_committed_and_holds_the_others_to_it(
    desk: Desk, server: ScriptedDesk, odd: str
) -> None:
    with desk.task("t1") as task:
        made = []
        for name in ("plan_a", "plan_b"):
            members = (
                f'"plan_id": "{name}", "plan_token": "pt_{name}_1", "target": "billing", "approval": "not_required",'
                ' "expires_at": "2099-01-01T00:00:00Z", "input_fingerprint": "f", "created_at": "2020-01-01T00:00:00Z"'
            )
            actions = f'[{{"op": "update", "target": "invoice/1", "field": "cents", "from": 0, "to": {odd}}}]'
            server.next("dry-run", Step(status=201, raw=f'{{{members}, "actions": {actions}}}'.encode()))
            made.append(task.dry_run("post", {"name": name}, intent=name))
        first, second = made
        assert first.touches == {"invoice/1"}
        assert first.actions[0]["to"] == odd
        answer = Step(status=200, members={"plan_id": "plan_a", "state": "committed", "result": None})
        server.next("commit", answer)
        assert task.commit(first) == Committed("plan_a", None)
        assert task.commit(first) == Committed("plan_a", None, replayed=True)
        assert type(task.commit(second)).__name__ == "Stale"
