"""Questions to servers that somebody else runs: can they be reached, and are they new enough."""

from collections.abc import Mapping
from typing import Any

from reviewer.installation import CannotStart

OLDEST_POSTGRES = 150000
OLDEST_REDIS = (6, 2)
# Which database of which running server this is, what text it keeps, and whether this role may make tables in it.
PLACE = """
    SELECT pg_postmaster_start_time(), d.oid, pg_encoding_to_char(d.encoding),
           has_schema_privilege(current_user, 'public', 'CREATE')
    FROM pg_database d WHERE d.datname = current_database()
"""


def check_database(environ: Mapping[str, str]) -> None:
    """Connects as both roles; refuses with one sentence that holds no password. Both must mean the same database."""
    import psycopg

    places: set[tuple[Any, ...]] = set()
    for name in ("DATABASE_URL", "DATABASE_OWNER_URL"):
        url = environ.get(name, "")
        if not url:
            continue
        if not url.startswith(("postgresql://", "postgres://")):
            raise CannotStart(f"{name} must look like postgresql://role:password@host:5432/database.")
        try:
            with psycopg.connect(url, connect_timeout=5) as connection:
                version = connection.info.server_version
                found = connection.execute(PLACE).fetchone()
                assert found is not None
                *place, encoding, may_create = found
        except psycopg.ProgrammingError:
            raise CannotStart(f"{name} must look like postgresql://role:password@host:5432/database.") from None
        except psycopg.OperationalError as error:
            reason = str(error).strip().splitlines()[0]
            raise CannotStart(f"{name}: PostgreSQL cannot be reached: {reason}") from None
        if version < OLDEST_POSTGRES:
            raise CannotStart(f"{name}: PostgreSQL 15 or later is needed; this is {version // 10000}.")
        if encoding != "UTF8":
            raise CannotStart(f"{name}: the database's encoding must be UTF8; this one's is {encoding}.")
        if name == "DATABASE_OWNER_URL" and not may_create:
            raise CannotStart(
                f"{name}: this role may not create tables in schema public; make it the database's owner."
            )
        places.add(tuple(place))
    if len(places) > 1:
        raise CannotStart("DATABASE_URL and DATABASE_OWNER_URL name two databases; they must be two roles of one.")


def check_redis(url: str) -> None:
    """Connects and asks for the version; refuses with one sentence that holds no password."""
    import redis

    try:
        with redis.Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5) as client:
            version = str(client.info("server")["redis_version"])
    except (redis.RedisError, ValueError, TypeError) as error:  # TypeError: a parameter that it does not know
        raise CannotStart(f"REDIS_URL: Redis cannot be reached: {type(error).__name__}.") from None
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        raise CannotStart(f"REDIS_URL: Redis 6.2 or later is needed; this is {version}.")
