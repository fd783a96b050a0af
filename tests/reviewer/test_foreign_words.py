"""What a target or an agent says is shown as it is spelled: it is never read as the desk's own, and breaks no page."""

import json

import pytest

from plans import changes
from plans.errors import Sentence, keep, kept
from reviewer.said import in_words, kept_in_words
from tests.makers import feed_data, make_agent, make_plan, make_target, receive, reread
from tests.reviewer.pages import approval, client_of, state_in, text_of, url_of
from tests.stub_behaviour import Answer, problem

pytestmark = pytest.mark.usefixtures("database")

WORDS = [
    '{"sentence": x',
    '{"sentence": "Kept %(name)s."}',
    '{"sentence": "Kept %(name)s.", "values": {}}',
    '{"sentence": "Kept %(name)s.", "values": {"template": 1, "cls": 2}}',
    '{"sentence": "Kept %(name)d.", "values": {"name": "x"}}',
    '{"sentence": "%(a)0999999999d", "values": {"a": 1}}',
    '{"sentence": 7, "values": [1]}',
    '{"sentence": "Kept.", "values": {"a": ' + "9" * 5000 + "}}",
    '{"sentence": ' + "[" * 90_000,
    "100 % of %(nobody)s",
]
"""What looks like a sentence that the desk keeps, and is none."""


def plan_at(stub):
    return make_plan(target=make_target(base_url=stub.base_url))


@pytest.mark.parametrize("words", [words for words in WORDS if len(words) < 2000])
def test_the_words_of_a_conflict_are_the_targets_own(stub_target, words):
    stub_target.script(problem(409, detail=words))
    plan, client = plan_at(stub_target), client_of()
    answer = client.post(url_of(plan, "approve"), approval(plan))
    assert (answer.status_code, state_in(answer)) == (409, "conflicted")
    page = client.get(url_of(plan))
    assert page.status_code == 200
    assert " ".join(words.split()) in text_of(page)


@pytest.mark.parametrize("words", [words for words in WORDS if len(words) < 2000])
def test_the_words_of_a_no_that_decides_nothing_are_the_targets_own(stub_target, words):
    plan, client = make_plan("unknown"), client_of()
    plan.commits.update(detail=words)
    page = client.get(url_of(plan))
    assert (page.status_code, state_in(page)) == (200, "unknown")
    assert " ".join(words.split()) in text_of(page)


@pytest.mark.parametrize("words", WORDS)
def test_what_only_looks_like_a_kept_sentence_is_said_without_a_failure_or_a_width(words):
    assert len(kept_in_words(words)) <= len(words)
    assert in_words(words) == words
    assert isinstance(kept(words), str)


def test_a_kept_sentence_is_said_and_one_without_values_that_looks_like_one_stays_itself():
    sentence = Sentence("The %(what)s answered %(code)d: %(name)r, 5 %% late.", what="server", code=451, name="x")
    assert kept(keep(sentence)) == sentence == kept_in_words(keep(sentence))
    odd = Sentence('{"sentence": "Kept %(a)s.", "values": {"a": 1}}')
    assert kept(keep(odd)) == odd


NUMBERS = ["1e400", "-1e99999", "9" * 5000]
"""JSON numbers that no number of Python holds, or none that it reads without being told to."""


@pytest.mark.parametrize("number", NUMBERS)
def test_a_result_with_a_number_that_nothing_here_holds_is_shown_as_written(stub_target, number):
    stub_target.script(Answer(200, f'{{"id": "re_1", "x": {number}}}'.encode()))
    plan, client = plan_at(stub_target), client_of()
    answer = client.post(url_of(plan, "approve"), approval(plan))
    assert (answer.status_code, state_in(answer)) == (200, "committed")
    page = client.get(url_of(plan))
    assert page.status_code == 200
    assert number in text_of(page)


@pytest.mark.parametrize("number", NUMBERS[2:])
def test_a_fed_number_that_nothing_here_holds_is_shown_as_written(number):
    target = make_target()
    made = make_agent(target)
    data = json.dumps(feed_data(target.name, inputs={"account": "ACC-104", "limit": 0})).replace(
        '"limit": 0', f'"limit": {number}'
    )
    plan = reread(receive(made.agent, data))
    page = client_of().get(url_of(plan))
    assert page.status_code == 200
    assert number in text_of(page)


@pytest.mark.parametrize(
    "raw", ['"\\ud800"', '{"\\ud800": 1}', '{"a": "\\ud800"}', '{"a": ' + "[" * 5000 + "]" * 5000 + "}"]
)
def test_a_value_that_cannot_be_taken_apart_is_still_a_value(raw):
    assert changes.read_value(raw).raw == raw
    assert isinstance(changes.read_members(raw), list)
