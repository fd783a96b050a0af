"""The log's search page: every filter in its address, what stands around the list, one recorded reading a search."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from itertools import pairwise
from urllib.parse import parse_qs, urlsplit

import pytest
from django.http import QueryDict

from audit.facets import count_facets
from audit.filters import FilterError, Filters, parse_search
from audit.histogram import BARS, draw_histogram, lay_out
from audit.kinds import Kind
from audit.models import Event
from audit.recording import Actor
from plans.instants import format_instant_exact
from reviewer.audit_rows import lines_of_json
from reviewer.audit_search import address_of, read_asked
from tests.audit.auditing import told
from tests.audit.making import make_event, make_events_at
from tests.makers import make_person, make_plan
from tests.reviewer.pages import client_of, text_of

pytestmark = pytest.mark.usefixtures("database")
NOW = datetime(2026, 3, 14, 9, 31, 12, tzinfo=UTC)


@pytest.fixture
def auditor():
    return client_of(make_person("auditor"))


def asked(query):
    return read_asked(QueryDict(query))


def reads():
    return [data for data in told("audit.read") if "filters" in data]


# --- the address ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "pairs"),
    [
        ("agent:bot plan:plan_1 late", [("agent", "bot"), ("plan_id", "plan_1"), ("q", "late")]),
        ("actor:person:7", [("actor", "person:7")]),
        ("outcome:Unknown", [("outcome", "unknown")]),
        ("outcome:comitted", [("outcome", "comitted")]),
        ("record:48213 late", [("q", "48213 late")]),
        ("field:amount agent:bot Record:customer/77", [("agent", "bot"), ("q", "amount customer/77")]),
        ("record:agent:bot", [("q", '"agent:bot"')]),
        ('"record:48213"', [("q", '"record:48213"')]),
        ("record:", [("q", "record:")]),
        ("kind:plan.rejected kind:plan.expired", [("kind", "plan.rejected"), ("kind", "plan.expired")]),
        ("sha256:6b1f", [("q", "sha256:6b1f")]),
        ('"agent:bot" late', [("q", '"agent:bot" late')]),
        ('"late delivery"', [("q", "late delivery")]),
        ("from:2026-03-14", [("from", "2026-03-14T00:00:00Z")]),
        ("agent:", [("q", "agent:")]),
    ],
)
def test_key_and_value_in_the_box_are_filters_and_the_rest_are_words(typed, pairs):
    assert list(asked("q=" + typed.replace(" ", "+").replace(":", "%3A")).pairs) == pairs


def test_what_is_typed_becomes_an_address_that_stays(auditor):
    response = auditor.get("/audit/", {"q": "agent:bot late", "kind": "", "target": "", "last": "24h"})
    assert response.status_code == 302
    assert parse_qs(urlsplit(response["Location"]).query) == {"agent": ["bot"], "q": ["late"], "last": ["24h"]}
    assert auditor.get(response["Location"]).status_code == 200
    assert told("audit.read")[0]["filters"].keys() == {"agent", "from", "q"}


def test_a_word_in_quotation_marks_is_searched_for_without_them():
    lists = dict(asked("q=%22agent%3Abot%22").lists(NOW))
    assert lists == {"q": ["agent:bot"]}


def test_a_time_counted_back_is_an_instant_in_the_log_and_cannot_be_given_twice():
    assert dict(asked("last=24h").lists(NOW)) == {"from": ["2026-03-13T09:31:12.000000Z"]}
    with pytest.raises(FilterError, match="last is one of"):
        asked("last=1y").lists(NOW)
    with pytest.raises(FilterError, match="either last or from"):
        asked("last=24h&from=2026-01-01").lists(NOW)


@pytest.mark.parametrize(
    "query",
    [
        "q=outcome:comitted", "outcome=comitted", "outcome=written&kind=plan.viewed", "q=kind:plan.eaten",
        "q=last:1y", "q=preset:x", "q=from:yesterday",
        "colour=red", "kind=plan.eaten", "from=yesterday", "from=2026-02-01&to=2026-01-01", "last=1y", "preset=x",
    ],
)  # fmt: skip
def test_l130_what_cannot_be_asked_is_said_and_is_no_empty_list(auditor, query):
    response = auditor.get(f"/audit/?{query}", follow=True)
    assert response.status_code == 422
    assert "There is a problem" in text_of(response)
    assert "No event matches" not in text_of(response)
    assert reads() == []


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (
            "q=outcome:comitted",
            "There is no outcome 'comitted'. There are: written, conflict, unknown, rejected, expired, abandoned, refu",
        ),
        ("q=kind:task.eaten", "There is no kind of event 'task.eaten'. There are: task.ended."),
        ("q=event:odd", "There is no kind of event 'odd'. There are: feed.refused, plan.received,"),
        ("outcome=written&kind=plan.viewed", "commit.succeeded would"),
    ],
)
def test_a_value_that_a_filter_cannot_have_is_refused_with_those_it_can(auditor, query, sentence):
    assert sentence in unescape(text_of(auditor.get(f"/audit/?{query}", follow=True)))


@pytest.mark.parametrize("query", ["limit=10", "order=asc", "size=1", "format=csv"])
def test_what_is_no_filter_of_the_page_is_refused_with_those_that_are(auditor, query):
    page = auditor.get(f"/audit/?{query}")
    assert page.status_code == 422
    assert f"There is no filter '{query.partition('=')[0]}' on this page. There are: preset, last" in text_of(page)
    assert "outcome" in text_of(page)


def test_what_looks_like_a_filter_and_is_none_is_said_to_be_a_word(auditor):
    make_event(data={"note": "agnt:refund-bot"})
    for q, said in (
        ("agnt:refund-bot", "agnt:refund-bot is no filter, so it was searched for as a word."),
        ("agent: refund-bot", "agent: is no filter, so it was searched for as a word."),
        ("agnt:x trget:<b>", "agnt:x, trget:<b> are no filters, so they were searched for as words."),
    ):
        page = auditor.get("/audit/", {"q": q})
        assert said in text_of(page)
        assert "Filters are agent:, target:," in text_of(page)
    assert auditor.get("/audit/", {"q": "agnt:refund-bot"}).context["count"].value >= 1
    for q in ("https://example.org", "12:30", "C:\\new", '"agnt:x"', "agent:refund-bot", "record:x", "late"):
        assert "is no filter" not in text_of(auditor.get("/audit/", {"q": q}, follow=True))


def test_list_facets_and_bars_count_the_same_events_and_none_the_reading_itself(auditor):
    for query in ("", "?kind=audit.read", "?q=needle"):
        auditor.get(f"/audit/{query}")
        found = auditor.get(f"/audit/{query}").context
        kinds = next(values for name, _, values, _ in found["facets"]["groups"] if name == "kind")
        drawn = sum(
            int(n) for column in found["histogram"]["columns"] for n in re.findall(r"(\d+) [a-z]", column.label)
        )
        assert found["count"].value == len(found["events"])
        assert found["count"].value == sum(int(count) for _, count, _, _ in kinds) == drawn


def test_that_searches_are_found_by_their_words_is_said_where_some_are(auditor):
    make_event(data={"note": "needle"})
    sentence = "Searches are events too"
    assert sentence not in text_of(auditor.get("/audit/?q=needle"))
    assert sentence in text_of(auditor.get("/audit/?q=needle"))
    assert sentence not in text_of(auditor.get("/audit/?q=needle&kind=plan.viewed"))
    assert sentence not in text_of(auditor.get("/audit/?kind=audit.read"))


def test_outcomes_are_chosen_beside_the_kind_and_narrow_it(auditor):
    for kind in (Kind.COMMIT_SUCCEEDED, Kind.COMMIT_UNKNOWN, Kind.PLAN_VIEWED):
        make_event(kind, agent="bot")
    page = auditor.get("/audit/?agent=bot&outcome=written").content.decode()
    assert page.count('<a class="mono" href="/audit/events/') == 1
    assert '<option value="written" selected>' in page
    assert re.findall(r'<span class="tag">(\w+) <b>([^<]*)</b>', page) == [("Agent", "bot"), ("Outcome", "Written")]
    both = auditor.get("/audit/?agent=bot&outcome=written&outcome=unknown").content.decode()
    assert both.count('<a class="mono" href="/audit/events/') == 2
    assert both.count('<input type="hidden" name="outcome"') == 2
    narrowed = auditor.get("/audit/?agent=bot&outcome=written&outcome=unknown&kind=commit.unknown").content.decode()
    assert narrowed.count('<a class="mono" href="/audit/events/') == 1
    assert {tuple(data["filters"]["kind"]) for data in reads()} == {
        ("commit.succeeded",), ("commit.succeeded", "commit.unknown"), ("commit.unknown",),
    }  # fmt: skip


def test_what_stands_behind_record_is_found_as_a_word(auditor):
    make_event(agent="bot", data={"targets": ["order/48213"], "note": "48213"})
    make_event(agent="bot", data={"note": "48214"})
    page = auditor.get("/audit/?q=record:48213", follow=True).content.decode()
    assert page.count('<a class="mono" href="/audit/events/') == 1


def test_each_active_filter_is_a_tag_with_a_link_without_it(auditor):
    make_event(agent="bot", target="billing")
    page = auditor.get("/audit/?agent=bot&target=billing&kind=plan.viewed").content.decode()
    tags = re.findall(r'<span class="tag">(\w+) <b>([^<]*)</b><a href="([^"]*)"', page)
    assert [(name, value) for name, value, _url in tags] == [
        ("Agent", "bot"), ("Target", "billing"), ("Event", "plan.viewed"),
    ]  # fmt: skip
    assert unescape(tags[0][2]) == "/audit/?target=billing&kind=plan.viewed"


# --- the list -------------------------------------------------------------------------------------------------------


def test_l115_pages_by_key_hold_every_event_once_although_times_are_equal(auditor, owner_connection):
    make_events_at(owner_connection, NOW, 120, step=timedelta(0), agent="bot")
    url, seen = "/audit/?agent=bot", []
    while url:
        page = auditor.get(url).content.decode()
        seen += re.findall(r'<a class="mono" href="/audit/events/([0-9a-f-]+)/">', page)
        found = re.search(r'href="([^"]*)" hx-boost', page)
        url = unescape(found[1]) if found else ""
    assert (len(seen), len(set(seen))) == (120, 120)
    assert len(reads()) == 1


def test_a_search_counted_back_from_now_goes_on_by_key(auditor):
    for _ in range(60):
        make_event(agent="bot")
    page = auditor.get("/audit/?agent=bot&last=1h").content.decode()
    older = unescape(re.search(r'href="([^"]*)" hx-boost', page)[1])
    assert "last" not in parse_qs(urlsplit(older).query)
    rest = auditor.get(older)
    assert rest.status_code == 200
    assert rest.content.decode().count('<a class="mono" href="/audit/events/') == 10


def test_a_swap_for_older_events_holds_the_rows_and_no_second_histogram(auditor):
    for _ in range(60):
        make_event(agent="bot")
    page = auditor.get("/audit/?agent=bot").content.decode()
    older = unescape(re.search(r'href="([^"]*)" hx-boost', page)[1])
    swap = auditor.get(older, headers={"HX-Request": "true"}).content.decode()
    assert 'id="audit-rows"' in swap
    assert 'id="audit-pager"' in swap
    assert "data-brush" not in swap


def test_l118_an_instant_on_the_page_is_the_one_of_the_record_with_utc_and_the_readers_city():
    auditor = client_of(make_person("auditor", time_zone="Europe/Berlin"))
    event = make_event(agent="bot")
    page = auditor.get("/audit/?agent=bot")
    spelled = format_instant_exact(event.at)
    assert f'datetime="{spelled}"' in page.content.decode()
    assert spelled in text_of(page)  # in the record
    assert "Berlin" in text_of(page)


def test_l119_a_renamed_and_disabled_person_stands_under_the_name_of_then(auditor):
    person = make_person("reviewer", name="Old Name")
    make_event(Kind.PLAN_REJECTED, actor=Actor("person", str(person.pk), "Old Name"), data={"reason": "No"})
    type(person).objects.filter(pk=person.pk).update(name="New Name", is_active=False)
    text = text_of(auditor.get(f"/audit/?actor=person:{person.pk}"))
    assert "Old Name" in text
    assert "New Name" not in text


def test_foreign_text_is_shown_escaped_and_as_it_is_spelled(auditor):
    make_event(Kind.PLAN_REJECTED, data={"reason": "<script>x</script>\u202egnp"}, agent="bot")
    page = auditor.get("/audit/?agent=bot").content.decode()
    assert "<script>x" not in page
    assert "&lt;script&gt;" in page
    assert "U+202E" in page


def test_only_auditors_see_any_of_the_pages():
    event = make_event(agent="bot")
    paths = [
        "/audit/", f"/audit/events/{event.id}/", f"/audit/events/{event.id}/proof/", f"/audit/events/{event.id}/leaf/",
        "/audit/key/", "/audit/plans/a/t/p/", "/audit/saved/", "/audit/exports/", "/audit/verify/", "/audit/charts/",
    ]  # fmt: skip
    others = client_of(make_person("reviewer", "admin"))
    assert {others.get(path).status_code for path in paths} == {403}
    assert {others.post(path).status_code for path in ("/audit/export/", "/audit/verify/", "/audit/saved/")} == {403}
    assert not Event.objects.filter(kind="audit.read").exists()


# --- around the list ------------------------------------------------------------------------------------------------


def test_facets_count_what_matches_by_value():
    for agent, count in (("a", 3), ("b", 2)):
        for _ in range(count):
            make_event(agent=agent, operation="refund")
    make_event(Kind.PLAN_REJECTED, agent="a", data={"reason": "late"})
    facets = count_facets(Filters())
    assert [(facet.value, facet.count) for facet in facets.values["agent"]] == [("a", 4), ("b", 2)]
    assert [(facet.value, facet.count) for facet in facets.values["kind"]] == [("plan.viewed", 5), ("plan.rejected", 1)]
    assert (facets.seen, facets.is_exact) == (6, True)
    narrowed = count_facets(Filters(agent="a", words=("late",)))
    assert [(facet.value, facet.count) for facet in narrowed.values["kind"]] == [("plan.rejected", 1)]


def test_counts_beyond_the_cap_say_that_they_are_no_more_than_that(auditor, owner_connection):
    make_events_at(owner_connection, NOW, 10_050, step=timedelta(seconds=1), agent="bot")
    facets = count_facets(Filters(agent="bot"))
    assert (facets.seen, facets.is_exact) == (10_000, False)
    text = text_of(auditor.get("/audit/?agent=bot"))
    assert "10,000+ events" in text
    assert "Counted in the newest 10,000 events" in text


def test_each_bar_links_to_its_time_and_the_bars_hold_every_event_once(auditor, owner_connection):
    make_events_at(owner_connection, NOW, 100, step=timedelta(minutes=13), agent="bot")
    histogram = draw_histogram(Filters(agent="bot", to_at=NOW + timedelta(days=1)), now=NOW)
    assert histogram is not None
    assert 24 <= len(histogram.bars) <= BARS
    assert sum(bar.total for bar in histogram.bars) == 100
    page = auditor.get("/audit/?agent=bot&to=2026-03-15").content.decode()
    page = auditor.get("/audit/?agent=bot&to=2026-03-15T00:00:00Z").content.decode()
    bars = re.findall(r'<a href="([^"]*)" aria-label="([^"]*)" data-from="([^"]*)" data-to="([^"]*)"', page)
    assert len(bars) >= 24
    href, label, since, until = next(bar for bar in bars if "nothing" not in bar[1])
    assert parse_qs(urlsplit(unescape(href)).query) == {"agent": ["bot"], "from": [since], "to": [until]}
    narrowed = auditor.get(unescape(href))
    shown = narrowed.content.decode().count('<a class="mono" href="/audit/events/')
    assert f"{shown} other events" in label


def test_the_scale_of_the_bars_has_whole_events(auditor):
    make_event(Kind.PLAN_VIEWED)
    assert auditor.get("/audit/?kind=plan.viewed").context["histogram"]["scale"] == ["2", "1", "0"]


def test_bars_tell_ends_apart(auditor):
    make_plan("conflicted")
    make_plan("unknown")
    make_plan("rejected")
    histogram = draw_histogram(Filters(), now=datetime.now(UTC))
    assert histogram is not None
    counts = {name: sum(bar.counts[name] for bar in histogram.bars) for name in histogram.bars[0].counts}
    assert (counts["conflict"], counts["unknown"], counts["ended"], counts["written"]) == (1, 1, 1, 0)


@pytest.mark.parametrize("length", [1, 59, 61, 3600, 86_399, 86_400 * 7, 86_400 * 400, 86_400 * 365 * 20])
def test_bars_lie_side_by_side_over_the_whole_time(length):
    until = NOW + timedelta(seconds=length)
    bars, width = lay_out(NOW, until)
    assert (bars[0].start, bars[-1].end) == (NOW, until)
    assert 1 <= len(bars) <= BARS
    assert all(before.end == after.start for before, after in pairwise(bars))
    assert width >= timedelta(seconds=1)


def test_a_search_that_matches_nothing_says_so(auditor):
    page = auditor.get("/audit/?agent=nobody")
    assert "No event matches" in text_of(page)
    assert "data-brush" not in page.content.decode()


def test_a_record_is_set_in_lines_and_its_values_stay_as_spelled():
    text = '{"a":1.10,"b":{"c":[],"d":[1,{"x":"y, {z\\"}"}],"e":{}},"f":9007199254740993}'
    lines = lines_of_json(text)
    assert lines == [
        (0, "{"), (1, '"a": 1.10,'), (1, '"b": {'), (2, '"c": [],'), (2, '"d": ['), (3, "1,"), (3, "{"),
        (4, '"x": "y, {z\\"}"'), (3, "}"), (2, "],"), (2, '"e": {}'), (1, "},"), (1, '"f": 9007199254740993'), (0, "}"),
    ]  # fmt: skip


def test_an_address_holds_the_search_and_nothing_else():
    search = parse_search(asked("agent=a&kind=plan.viewed&q=late").lists(NOW))
    assert search.filters.as_data() == {"kind": ["plan.viewed"], "agent": "a", "q": "late"}
    assert address_of([("q", "ä&b")]) == "/audit/?q=%C3%A4%26b"
