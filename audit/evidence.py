"""Evidence packs: a zip that somebody else's programs can check, offline, without this product and its operators."""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

import json
import zipfile
from typing import IO, Any, Final

from audit.export import Export, Progress
from audit.export_sql import COPY_LINES, WHERE, WITHIN_PAYLOADS
from audit.filters import FilterError
from audit.notes import write_proof
from audit.proofs import read_tree

MAX_EVENTS: Final = 100_000
EVENT: Final = f"""
    SELECT '{{"index":' || s.index || ',"leaf_hash":"' || encode(e.leaf_hash, 'hex')
        || '","leaf":' || to_json(convert_from(e.leaf, 'UTF8'))
        || ',"salt":' || coalesce(to_json(encode(p.salt, 'hex'))::text, 'null')
        || ',"payload":' || coalesce(to_json(p.body)::text, 'null') || '}}'
    FROM audit_sequence s
    JOIN audit_event e ON e.at = s.at AND e.id = s.event_id
    LEFT JOIN audit_payload p ON p.event_id = s.event_id {WITHIN_PAYLOADS}
    {WHERE}
"""

README: Final = """# Evidence from an audit log

Each event in here comes with the proof that it is in the log, at its place, under one signed checkpoint.

| file | is |
| --- | --- |
| `checkpoint.txt` | how many events the log held and the root of its tree, signed (C2SP signed-note, tlog-checkpoint) |
| `key.txt` | the verifier key. From here it proves little: ask the log's owner for it, and compare |
| `events.jsonl` | a line an event: place, leaf (the bytes that are hashed, as text), payload and its salt |
| `leaves/INDEX` | the same leaf as a file of its own |
| `proofs/INDEX.tlog-proof` | the way from that leaf to the checkpoint's root (C2SP tlog-proof) |
| `manifest.json` | what was asked for, and how many events there are; no signature covers it |

How it hangs together (RFC 6962): leaf hash = SHA-256(0x00 || leaf), node = SHA-256(0x01 || left || right). A leaf holds
`commitment` = HMAC-SHA256(key = the 32 bytes of `salt`, message = `payload`): a payload can be erased, and its place
stays.

## With this product's verifier

It needs Python 3.11 or later, and neither Django nor a server. With Plandesk's folder, or its wheel, in a virtual
environment:

    pip install "PLANDESK[verify]"
    python -m audit.verify FILE.zip --key "THE KEY AS YOU KNOW IT"

`PLANDESK` is where the folder or the wheel is. Where nothing is to be installed from it, a copy of its folder `audit`
does: `pip install cryptography msgspec`, and the same command beside that folder. 0: whole, 1: damaged, 2: not a file
that can be checked, 3: no damage can be seen, and no event is proven.

## With other people's programs

Go, `golang.org/x/mod/sumdb/note` and `sumdb/tlog`: `note.Open` with `key.txt` opens `checkpoint.txt`, and
`tlog.CheckRecord(proof, size, root, index, tlog.RecordHash(leaf))` checks a proof.

Python, `pip install tlog-scales`:

    from pathlib import Path
    from tlog_scales.signing import Vkey
    from tlog_scales.tlog import Checkpoint, InclusionProof
    from tlog_scales.tiles import leaf_hash
    import base64
    head, _, note = Path("proofs/INDEX.tlog-proof").read_text().partition("\\n\\n")
    checkpoint = Checkpoint.from_text(note)
    checkpoint.verify(Vkey.from_string(Path("key.txt").read_text().strip()))
    _, index, *path = head.split("\\n")
    hashes = [base64.b64decode(line) for line in path]
    InclusionProof(int(index.split()[1]), checkpoint.size, hashes).check(
        leaf_hash(Path("leaves/INDEX").read_bytes()), checkpoint.root_hash)

Python, `pip install metamorphic-log`: `checkpoint_verify_inclusion(note, [key], index, leaf_hash, path)`.

With OpenSSL alone, one payload: `printf %s "$PAYLOAD" | openssl dgst -sha256 -mac HMAC -macopt hexkey:$SALT`
"""


def write_pack(export: Export, file: IO[bytes], progress: Progress = lambda *_: None) -> int:
    """Writes the pack of everything the export found that the checkpoint covers; returns how many events.

    Refuses (FilterError) more than MAX_EVENTS, and a log without a checkpoint over it. Closes the export.
    """
    try:
        checkpoint, key = export.checkpoint, export.closing()["key"]
        if export.rows > MAX_EVENTS:
            raise FilterError(
                f"An evidence pack holds at most {MAX_EVENTS} events; {export.rows} match. Narrow the search."
            )
        if checkpoint is None or checkpoint.size < export.size or key is None:
            raise FilterError("No signed checkpoint covers these events yet. Ask again in a few seconds.")
        tree = read_tree(checkpoint.size, export.ask)
        done = 0
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as pack:
            pack.writestr("README.md", README)
            pack.writestr("checkpoint.txt", checkpoint.note)
            pack.writestr("key.txt", f"{key}\n")
            lines: list[bytes] = []
            for rows in export.copy(COPY_LINES, EVENT):
                lines += rows
                for row in rows:
                    event: dict[str, Any] = json.loads(row)
                    index = event["index"]
                    proof = write_proof(
                        index=index, hashes=tree.prove_inclusion(index), checkpoint_note=checkpoint.note
                    )
                    pack.writestr(f"leaves/{index}", event["leaf"].encode())
                    pack.writestr(f"proofs/{index}.tlog-proof", proof)
                    done += 1
                progress(done, export.rows)
            pack.writestr("events.jsonl", b"".join(lines))
            pack.writestr("manifest.json", json.dumps({**export.closing(), "format": "evidence", "rows": done}))
        if done != export.rows:
            raise RuntimeError(f"{done} events were packed of {export.rows}: the log is damaged; verify it.")
        return done
    finally:
        export.close()
