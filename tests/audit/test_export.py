"""Exports: everything that matches and nothing cut in silence, in three forms and as evidence; each leaves a trace."""

import csv
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.test import Client
from jsonschema import Draft202012Validator

from audit import export as module
from audit.canonical import RawJson
from audit.export import begin_export, parse_export
from audit.filters import FilterError
from audit.kinds import Kind
from audit.models import Event
from audit.proofs import ask_django
from audit.recording import SYSTEM, Actor
from audit.verify import main, verify_file
from tests.audit.auditing import assert_problem, told
from tests.audit.independent import independent
from tests.audit.making import make_event
from tests.audit.sequencing import sequence, sequencing
from tests.audit.test_sequencer import make_many

EXPORT = "/api/v1/audit/export"
FORMULAS = ["=1+1", "+1", "-1+1", "@x", "\t=1", "\r=1", "\n=1", "＝1", " =1", '"=1+1"', 'a",\n=1', "\ufeff=1"]


@pytest.fixture(autouse=True)
def _addresses(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.audit.urls"


def read(client: Client, **query: Any) -> bytes:
    response = client.get(EXPORT, query)
    assert response.status_code == 200, response.content
    return b"".join(response.streaming_content)  # type: ignore[attr-defined]


def read_jsonl(client: Client, **query: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    *records, closing = [json.loads(line) for line in read(client, format="jsonl", **query).splitlines()]
    return records, closing["export"]


def read_csv(client: Client, **query: Any) -> list[dict[str, str]]:
    text = read(client, format="csv", **query).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_jsonl_is_what_was_recorded_number_for_number(client: Client, tmp_path: Path) -> None:
    recorded = make_event(
        Kind.PLAN_RECEIVED,
        actor=Actor("agent", "bot", 'Bot ",\\ é'),
        agent="bot",
        target="billing",
        plan_id="plan_1",
        plan_seq=3,
        task_id="t",
        request_id="req",
        data={"inputs": RawJson('{"amount": 1.10,\n\t"big":9007199254740993, "x":1e2}'), "s": 'a\n"b\\'},
    )
    sequence(tmp_path)
    raw = read(client, format="jsonl", plan_id="plan_1").decode()
    assert '"data":{"inputs":{"amount": 1.10, \t"big":9007199254740993, "x":1e2},"s":"a\\n\\"b\\\\"}' in raw
    (event,), closing = read_jsonl(client, plan_id="plan_1")
    assert event == {
        "index": 0,
        "leaf_hash": Event.objects.get(pk=recorded.id).leaf_hash.hex(),
        "id": recorded.id,
        "kind": "plan.received",
        "at": recorded.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "actor": {"type": "agent", "id": "bot", "name": 'Bot ",\\ é'},
        "on_behalf_of": None,
        "agent": "bot",
        "target": "billing",
        "plan_id": "plan_1",
        "operation": None,
        "task_id": "t",
        "request_id": "req",
        "plan_seq": 3,
        "data": {"inputs": {"amount": 1.1, "big": 9007199254740993, "x": 100.0}, "s": 'a\n"b\\'},
    }
    assert (closing["rows"], closing["filters"], closing["not_sequenced"]) == (1, {"plan_id": "plan_1"}, 0)
    assert closing["checkpoint"].startswith("plandesk.invalid/log/")


def test_l117_an_export_holds_all_events_in_the_order_of_their_places(
    client: Client, owner_connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 70)
    make_many(owner_connection, 1000)
    for query in ({}, {"actor": "a"}, {"kind": ["plan.viewed", "plan.approved"]}, {"q": "viewed"}):
        records, closing = read_jsonl(client, **query)
        assert [record["index"] for record in records if record["actor"]["id"] == "a"] == list(range(1000)), query
        assert closing["rows"] == len(records)
    assert len(read_csv(client, actor="a")) == 1001


def test_an_export_can_go_on_where_another_ended(client: Client) -> None:
    for _ in range(5):
        make_event(agent="a")
    first, closing = read_jsonl(client, agent="a")
    make_event(agent="a")
    second, further = read_jsonl(client, agent="a", from_index=closing["next_index"])
    assert [event["index"] for event in first] == [0, 1, 2, 3, 4]
    assert len(second) == 1
    third, last = read_jsonl(client, agent="a", from_index=further["next_index"])
    assert (third, last["rows"]) == ([], 0)
    assert last["next_index"] > further["next_index"]


def test_l114_no_cell_starts_a_formula_and_json_is_unaltered(client: Client) -> None:
    for text in FORMULAS:
        make_event(agent="x", actor=Actor("agent", text, text), target=text, data={"reason": text})
    make_event(agent="x", actor=Actor("agent", "-5", "-5.25"), target="a=b")
    *rows, number, closing = read_csv(client, agent="x")
    for text, row in zip(FORMULAS, rows, strict=True):
        is_formula = text.lstrip("\ufeff \t\r\n")[:1] in "=+-@＝"
        assert row["target"] == row["actor_id"] == row["actor_name"] == (f"'{text}" if is_formula else text)
        assert json.loads(row["data"]) == {"reason": text}
        assert not any((row[name] or "x")[0] in "=+-@\t\r\n＝" for name in row)
    assert (number["actor_id"], number["actor_name"], number["target"]) == ("-5", "-5.25", "a=b")
    assert closing["kind"] == "export"
    records, _ = read_jsonl(client, agent="x")
    assert [record["target"] for record in records[:-1]] == FORMULAS


def test_csv_is_rfc_4180(client: Client) -> None:
    make_event(agent='a"b,c', data={"reason": "line\nbreak"})
    raw = read(client, format="csv", agent='a"b,c').decode()
    lines = raw.split("\r\n")
    assert lines[0].startswith("index,leaf_hash,id,kind,at,")
    assert len(lines) == 4
    assert lines[-1] == ""
    assert '"a""b,c"' in lines[1]
    (row, _) = read_csv(client, agent='a"b,c')
    assert row["agent"] == 'a"b,c'
    assert None not in row.values()


def test_l118_one_instant_has_one_spelling_everywhere(client: Client) -> None:
    recorded = make_event(agent="a")
    spelled = recorded.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    (event,), _ = read_jsonl(client, agent="a")
    (row, _) = read_csv(client, agent="a")
    listed = json.loads(client.get(f"/api/v1/audit/events/{recorded.id}").content)
    ocsf = json.loads(read(client, format="ocsf", agent="a").splitlines()[0])
    assert event["at"] == row["at"] == listed["at"] == ocsf["metadata"]["original_time"] == spelled
    assert ocsf["time"] == int(recorded.at.timestamp() * 1000)


def test_l119_an_export_keeps_the_name_the_actor_had(client: Client, auditor: Any) -> None:
    client.get("/api/v1/audit/events")
    auditor.name = "Somebody Else"
    auditor.save()
    (event,), _ = read_jsonl(client, kind="audit.read")
    assert event["actor"] == {"type": "person", "id": str(auditor.pk), "name": "Zoë"}


def test_an_erased_payload_is_said_and_the_event_stays(
    client: Client, owner_connection: psycopg.Connection[Any]
) -> None:
    make_event(agent="a", data={"n": 1})
    owner_connection.execute("DELETE FROM audit_payload")
    (event,), _ = read_jsonl(client, agent="a")
    assert (event["data"], event["erased"], event["actor"]["name"]) == (None, True, None)
    (row, _) = read_csv(client, agent="a")
    assert (row["data"], row["erased"], row["actor_name"]) == ("", "true", "")


@pytest.mark.parametrize("name", ["Zoë\\", 'a","data":1', "null", "\x01", "a\ud800b", "\x00"])
def test_odd_names_come_through(client: Client, name: str) -> None:
    make_event(agent="a", actor=Actor("agent", "bot", name), data={"n": 1})
    (event,), _ = read_jsonl(client, agent="a")
    assert (event["actor"]["name"], event["data"]) == (name, {"n": 1})
    (row, _) = read_csv(client, agent="a")
    assert row["data"] == '{"n":1}'
    assert row["actor_name"] == (json.dumps(name)[1:-1] if min(name) < " " or "\ud800" in name else name)


def test_l128_an_export_is_an_event_before_its_first_byte(client: Client, auditor: Any) -> None:
    make_event(agent="a")
    response = client.get(EXPORT, {"format": "csv", "agent": "a"})
    (data,) = told("audit.exported")
    assert data == {
        "format": "csv", "filters": {"agent": "a"}, "from_index": 0, "via": "api", "rows": 1, "size": 1,
    }  # fmt: skip
    assert Event.objects.get(kind="audit.exported").actor_id == str(auditor.pk)
    assert b"".join(response.streaming_content)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "query",
    [
        "", "format=xml", "format=csv&format=csv", "format=csv&colour=red", "format=csv&kind=plan.invented",
        "format=csv&limit=5", "format=csv&order=asc", "format=csv&cursor=x", "format=csv&from_index=-1",
        "format=csv&from_index=x", "format=csv&from=2026-03-14T09:31:12Z&to=2026-03-14T09:31:11Z", "format=csv&agent=",
        "format=evidence&colour=red",
    ],
)  # fmt: skip
def test_l130_what_cannot_be_asked_for_is_400_and_never_an_empty_file(query: str, client: Client) -> None:
    assert_problem(client.get(f"{EXPORT}?{query}"), 400, "malformed")
    assert told("audit.exported") == []


def test_l130_nobody_exports_without_the_role(client: Client, auditor: Any) -> None:
    assert_problem(Client().get(f"{EXPORT}?format=csv"), 401, "unauthenticated")
    assert client.head(f"{EXPORT}?format=csv").status_code == 405
    auditor.is_auditor, auditor.is_reviewer = False, True
    auditor.save()
    assert_problem(client.get(f"{EXPORT}?format=csv"), 403, "forbidden")
    assert told("audit.exported") == []


def test_an_export_without_a_match_still_says_so(client: Client) -> None:
    records, closing = read_jsonl(client, agent="nobody")
    assert (records, closing["rows"]) == ([], 0)
    assert len(read_csv(client, agent="nobody")) == 1


def test_an_export_is_of_one_moment_and_waits_for_its_signature(client: Client, tmp_path: Path, settings: Any) -> None:
    for _ in range(3):
        make_event()
    with sequencing(tmp_path) as sequencer:
        sequencer.turn(heartbeat=0)
        form, request = parse_export([("format", ["jsonl"])])
        export = begin_export(request, actor=SYSTEM, via="test", form=form)
        make_event()
        lines = b"".join(export.stream()).splitlines()
    assert len(lines) == 4
    closing = json.loads(lines[-1])["export"]
    assert closing["checkpoint"].split("\n")[1] == "3"


def test_a_log_that_lost_an_event_is_not_exported_as_if_it_were_whole(
    client: Client, owner_connection: psycopg.Connection[Any]
) -> None:
    made = [make_event().id for _ in range(3)]
    owner_connection.execute("SET session_replication_role = replica")
    owner_connection.execute("DELETE FROM audit_event WHERE id = %s", [made[1]])
    ask_django("SELECT * FROM audit_advance(1)", [])
    response = client.get(EXPORT, {"format": "jsonl"})
    (*_, last) = b"".join(response.streaming_content).splitlines()  # type: ignore[attr-defined]
    assert json.loads(last)["export"]["not_sequenced"] == 2


def test_the_memory_of_an_export_does_not_grow_with_the_log(
    client: Client, owner_connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No piece of it is larger than a chunk, whatever the number of events."""
    monkeypatch.setattr(module, "CHUNK", 100)
    make_many(owner_connection, 2000)
    for query in ({}, {"actor": "a"}):
        pieces = list(client.get(EXPORT, {"format": "jsonl", **query}).streaming_content)  # type: ignore[attr-defined]
        assert len(pieces) >= 20
        assert max(map(len, pieces)) < 100 * 1000


@pytest.mark.parametrize("query", [{}, {"agent": ["a"]}])
def test_an_export_of_many_chunks_is_of_one_moment_whoever_reads_them(
    query: dict[str, list[str]], owner_connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 50)
    for number in range(400):
        make_event(agent="a", data={"n": number})
    form, request = parse_export([("format", ["jsonl"]), *query.items()])
    pieces = begin_export(request, actor=SYSTEM, via="test", form=form).stream()
    content = next(pieces) + next(pieces)
    owner_connection.execute("SET session_replication_role = replica")
    owner_connection.execute("DELETE FROM audit_payload")
    lines = (content + b"".join(pieces)).splitlines()
    told = [json.loads(line) for line in lines[:-1]]
    assert [event["data"] for event in told] == [{"n": number} for number in range(400)]


def test_an_export_of_everything_verifies_offline_and_shows_a_deletion(client: Client, tmp_path: Path) -> None:
    for number in range(7):
        make_event(data={"n": number})
    sequence(tmp_path)
    form, request = parse_export([("format", ["jsonl"])])
    content = b"".join(begin_export(request, actor=SYSTEM, via="test", form=form).stream())
    file = tmp_path / "export.jsonl"
    file.write_bytes(content)
    report = verify_file(file)
    assert report.is_whole
    assert "The leaf hashes of all 7 events are those that the checkpoint signs." in report.proven
    lines = content.splitlines(keepends=True)
    for damaged in (lines[:3] + lines[4:], lines[:-1], [*lines[:3], lines[4], lines[3], *lines[5:]]):
        file.write_bytes(b"".join(damaged))
        assert not verify_file(file).is_whole


def export_everything() -> bytes:
    form, request = parse_export([("format", ["jsonl"])])
    return b"".join(begin_export(request, actor=SYSTEM, via="test", form=form).stream())


def close_anew(lines: list[bytes], **changed: Any) -> bytes:
    """These records behind a closing line that says what it must for them to be all."""
    *records, last = lines
    closing = json.loads(last)["export"] | {"rows": len(records)} | changed
    return b"".join([*records, json.dumps({"export": closing}).encode() + b"\n"])


def test_an_export_cut_at_its_end_is_damaged_whatever_its_closing_line_says(client: Client, tmp_path: Path) -> None:
    for number in range(7):
        make_event(data={"n": number})
    sequence(tmp_path)
    lines = export_everything().splitlines(keepends=True)
    file = tmp_path / "export.jsonl"
    file.write_bytes(close_anew(lines))
    assert verify_file(file).is_whole
    for kept in range(7):
        file.write_bytes(close_anew([*lines[:kept], lines[-1]]))
        report = verify_file(file)
        assert (report.is_whole, report.first_bad_index) == (False, kept)
        assert main([str(file)]) == 1
    file.write_bytes(b"".join(lines) + lines[3])
    assert not verify_file(file).is_whole


def test_an_export_says_that_it_does_not_prove_what_its_records_say(client: Client, tmp_path: Path) -> None:
    """A leaf's commitment is not in it: an edited text is not seen, and that is said."""
    for number in range(3):
        make_event(agent="a", data={"n": number})
    sequence(tmp_path)
    file = tmp_path / "export.jsonl"
    for content in (export_everything(), read(client, format="jsonl", agent="a")):
        file.write_bytes(content.replace(b'"n":1', b'"n":5'))
        report = verify_file(file)
        assert report.is_whole
        assert any(line.startswith("What the records say:") for line in report.not_proven)
        assert not any("an export of everything shows that" in line for line in report.not_proven)
    for old, new in ((b'"leaf_hash":"', b'"leaf_hash":"00'), (b'"leaf_hash":"', b'"leaf_hash":"x')):
        file.write_bytes(export_everything().replace(old, new))
        assert not verify_file(file).is_whole


def test_an_export_longer_than_its_checkpoint_is_held_against_it_as_far_as_that_goes(
    client: Client, tmp_path: Path
) -> None:
    for number in range(5):
        make_event(data={"n": number})
    sequence(tmp_path)
    for number in range(3):
        make_event(data={"n": number})
    content = export_everything()
    file = tmp_path / "export.jsonl"
    file.write_bytes(content)
    report = verify_file(file)
    assert report.is_whole
    assert report.against is not None
    assert report.against.size == 5
    assert "The leaf hashes of the first 5 events are those that the checkpoint signs." in report.proven
    assert any(line.startswith("The 3 events behind those:") for line in report.not_proven)
    lines = content.splitlines(keepends=True)
    record = json.loads(lines[2])
    record["leaf_hash"] = json.loads(lines[6])["leaf_hash"]
    file.write_bytes(b"".join([*lines[:2], json.dumps(record).encode() + b"\n", *lines[3:]]))
    assert not verify_file(file).is_whole


def test_a_number_that_python_cannot_hold_is_no_damage(client: Client, tmp_path: Path) -> None:
    make_event(data={"inputs": RawJson('{"a":1e400,"b":' + "9" * 5000 + "}")})
    sequence(tmp_path)
    file = tmp_path / "export.jsonl"
    file.write_bytes(export_everything())
    assert verify_file(file).is_whole
    assert main([str(file)]) == 0
    file.write_bytes(b"{}\nno\n")
    assert main([str(file)]) == 2


def test_ocsf_records_are_valid_api_activity(client: Client) -> None:
    embedded = independent("ocsf_json_schema.embedded")
    schema = embedded.OcsfJsonSchemaEmbedded(independent("ocsf_json_schema.loader").get_ocsf_schema("1.6.0"))
    validator = Draft202012Validator(schema.get_class_schema("api_activity"))
    make_event(Kind.PLAN_RECEIVED, agent="a", target="t", plan_id="p", task_id="k", request_id="r", plan_seq=1)
    make_event(Kind.COMMIT_CONFLICTED, actor=SYSTEM)
    make_event(Kind.PLAN_APPROVED, actor=Actor("person", "7", "Zoë"))
    make_event(Kind.COMMIT_RESOLVED, actor=Actor("target", "billing", "billing"))
    records = [json.loads(line) for line in read(client, format="ocsf").splitlines()]
    assert len(records) == 5
    for record in records:
        assert list(validator.iter_errors(record)) == []
    assert [record["type_uid"] for record in records] == [600301, 600399, 600303, 600399, 600302]
    assert records[0]["metadata"]["sequence"] == 0
    assert json.loads(records[-1]["unmapped"]["export"])["rows"] == 4


@pytest.fixture
def pack(client: Client, tmp_path: Path) -> Path:
    """An evidence pack of three of seven events."""
    for number in range(7):
        make_event(agent="a" if number % 2 else "b", data={"n": RawJson(f"{number}.10")})
    sequence(tmp_path)
    file = tmp_path / "pack.zip"
    file.write_bytes(read(client, format="evidence", agent="a"))
    return file


def test_an_evidence_pack_proves_each_event_offline(pack: Path) -> None:
    report = verify_file(pack)
    assert report.is_whole, list(report.lines())
    assert report.against is not None
    assert report.against.size == 7
    assert any("3 events with their payloads" in line for line in report.proven)
    assert any("came in the file" in line for line in report.not_proven)
    with zipfile.ZipFile(pack) as opened:
        names = set(opened.namelist())
        key = opened.read("key.txt").decode().strip()
    assert {"README.md", "key.txt", "checkpoint.txt", "events.jsonl", "manifest.json", "leaves/1"} <= names
    assert {f"proofs/{index}.tlog-proof" for index in (1, 3, 5)} <= names
    assert not any("came in the file" in line for line in verify_file(pack, key=key).not_proven)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("events.jsonl", b'3.10', b'4.10'),
        ("events.jsonl", b'plan.viewed', b'plan.voided'),
        ("events.jsonl", b'"index":3', b'"index":5'),
        ("checkpoint.txt", b"\n7\n", b"\n6\n"),
        ("proofs/3.tlog-proof", b"index 3", b"index 5"),
        ("manifest.json", b'"rows": 3', b'"rows": 4'),
        ("key.txt", b"plandesk", b"plandusk"),
    ],
)  # fmt: skip
def test_a_pack_that_was_changed_is_not_whole(pack: Path, name: str, old: bytes, new: bytes) -> None:
    change(pack, name, old, new)
    assert not verify_file(pack).is_whole


def test_a_pack_of_everything_without_one_of_its_events_is_not_whole(client: Client, tmp_path: Path) -> None:
    for number in range(4):
        make_event(data={"n": number})
    sequence(tmp_path)
    content = read(client, format="evidence")
    pack = tmp_path / "pack.zip"
    incomplete = "That these are all the events that match: a pack proves what is in it."

    def lose(**manifest: Any) -> list[str]:
        pack.write_bytes(content)
        with zipfile.ZipFile(pack) as opened:
            members = {name: opened.read(name) for name in opened.namelist()}
        lines = members["events.jsonl"].splitlines(keepends=True)
        told = json.loads(members["manifest.json"])
        lines = manifest.pop("lines", lambda given: given)(lines)
        told |= {"rows": len(lines), **manifest}
        for index in set(range(4)) - {json.loads(line)["index"] for line in lines}:
            del members[f"leaves/{index}"], members[f"proofs/{index}.tlog-proof"]
        members |= {"events.jsonl": b"".join(lines), "manifest.json": json.dumps(told).encode()}
        with zipfile.ZipFile(pack, "w") as opened:
            for name, value in members.items():
                opened.writestr(name, value)
        report = verify_file(pack)
        return report.not_proven if report.is_whole else []

    untouched = lose()
    assert untouched
    assert incomplete not in untouched
    assert lose(lines=lambda given: given[:-1]) == []
    assert lose(lines=lambda given: [given[0], *given[2:]]) == []
    assert lose(lines=lambda given: [given[0], given[0], *given[2:]]) == []
    # What says of itself that it is a part is told to be one.
    assert incomplete in lose(lines=lambda given: given[1:], from_index=1)
    assert incomplete in lose(lines=lambda given: given[1:], filters={"actor": "refund-bot"})


def change(pack: Path, name: str, old: bytes, new: bytes) -> None:
    with zipfile.ZipFile(pack) as opened:
        content = {member: opened.read(member) for member in opened.namelist()}
    assert old in content[name]
    content[name] = content[name].replace(old, new)
    with zipfile.ZipFile(pack, "w") as opened:
        for member, value in content.items():
            opened.writestr(member, value)


def test_a_pack_without_a_checkpoint_over_it_is_refused(client: Client) -> None:
    make_event()
    assert_problem(client.get(f"{EXPORT}?format=evidence"), 400, "malformed")


def test_a_pack_has_a_limit_that_is_said(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from audit import evidence

    monkeypatch.setattr(evidence, "MAX_EVENTS", 2)
    for _ in range(3):
        make_event(agent="a")
    sequence(tmp_path)
    response = client.get(f"{EXPORT}?format=evidence&agent=a")
    assert_problem(response, 400, "malformed")
    assert b"at most 2 events; 3 match" in response.content


@pytest.mark.slow
def test_the_command_writes_whole_files_or_none(manage: Callable[..., Any], database: None, tmp_path: Path) -> None:
    for _ in range(3):
        make_event(agent="a")
    out = tmp_path / "events.jsonl"
    done = manage("audit", "export", "--format", "jsonl", "--out", str(out), "--agent", "a", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"rows": 3, "file": str(out), "format": "jsonl"}
    assert len(out.read_text().splitlines()) == 4
    (data,) = told("audit.exported")
    assert (data["via"], data["rows"]) == ("command", 3)
    done = manage("audit", "export", "--format", "csv", "--out", "-", "--agent", "a")
    assert done.stdout.startswith("index,leaf_hash,")
    for wrong in (("--from", "yesterday"), ("--kind", "plan.invented"), ("--agent", "")):
        done = manage("audit", "export", "--format", "csv", "--out", str(tmp_path / "no"), *wrong)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl"]


def test_forms_are_named_in_the_refusal() -> None:
    with pytest.raises(FilterError, match="jsonl, csv, ocsf"):
        parse_export([("format", ["xml"])])
