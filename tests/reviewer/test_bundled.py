"""What the bundled servers are given of the machine."""

import os

import pytest
from django.db import DatabaseError

from plans.demo.models import Customer
from reviewer import bundled
from tests.ground import Ground
from tests.plans.demo.makers import make_customer

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


def test_postgresql_s_log_names_an_error_and_not_the_row(ground: Ground, database):
    make_customer("sentinel-77c1")
    log = ground.installation.log / "postgres.log"
    size = log.stat().st_size
    with pytest.raises(DatabaseError, match="sentinel-77c1"):
        Customer.objects.create(customer_id="sentinel-77c1", name="Ada", email="a@example.com", address="1 Old Lane")
    said = log.read_text()[size:]
    assert 'duplicate key value violates unique constraint "demo_customer_pkey"' in said
    assert "sentinel-77c1" not in said
