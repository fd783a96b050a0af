"""What the bundled servers are given of the machine."""

import os

import pytest

from reviewer import bundled

GIB = 1024**3


@pytest.mark.parametrize(
    ("memory", "limit", "megabytes"),
    [
        (1 * GIB, None, 128),
        (8 * GIB, None, 512),
        (64 * GIB, None, 1024),
        (64 * GIB, "max", 1024),
        (64 * GIB, str(4 * GIB), 256),
        (4 * GIB, str(64 * GIB), 256),
    ],
)
def test_postgresql_s_cache_is_a_sixteenth_of_what_there_is(tmp_path, monkeypatch, memory, limit, megabytes):
    monkeypatch.setattr(bundled, "CONTAINER_LIMIT", tmp_path / "memory.max")
    if limit is not None:
        bundled.CONTAINER_LIMIT.write_text(f"{limit}\n")
    sizes = {"SC_PHYS_PAGES": memory // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert bundled._shared_buffers() == megabytes
