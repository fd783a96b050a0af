"""aics-tlog's verdict on each case on stdin, as JSON. Run by the interpreter that has it, which is not the tests'."""

import json
import sys
from typing import Any

from aics_tlog import verify_checkpoint, verify_consistency, verify_inclusion
from aics_tlog.checkpoint import Checkpoint, checkpoint_from_note
from aics_tlog.note import parse_note, parse_vkey


def accepts(case: dict[str, Any]) -> bool:
    proof = [bytes.fromhex(part) for part in case.get("proof", ())]
    match case["type"]:
        case "inclusion":
            leaf, root = bytes.fromhex(case["leaf_hash"]), bytes.fromhex(case["root"])
            return verify_inclusion(leaf, case["index"], case["size"], proof, root)
        case "inclusion_against_checkpoint":
            found = open_note(case)
            leaf = bytes.fromhex(case["leaf_hash"])
            return found is not None and verify_inclusion(leaf, case["index"], found.size, proof, found.root)
        case "consistency":
            old_root, new_root = bytes.fromhex(case["old_root"]), bytes.fromhex(case["new_root"])
            return verify_consistency(case["old"], case["new"], old_root, new_root, proof)
        case "checkpoint":
            return open_note(case) is not None
    raise ValueError(case["type"])


def open_note(case: dict[str, Any]) -> Checkpoint | None:
    key = parse_vkey(case["key"])
    note = parse_note(case["note"].encode())
    verdict = verify_checkpoint(note, key, expected_origin=key.name)
    return checkpoint_from_note(note)[0] if verdict.ok else None


def judge(case: dict[str, Any]) -> bool:
    try:
        return accepts(case)
    except ValueError:
        return False


if __name__ == "__main__":
    json.dump([judge(case) for case in json.load(sys.stdin)], sys.stdout)
