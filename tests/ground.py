"""The servers of one test run, and the databases in them: one per xdist worker, copied from one migrated template."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psycopg
from psycopg import sql

from reviewer.bundled import BundledPostgres, BundledRedis
from reviewer.installation import DATABASE, OWNER_ROLE, PROJECT, Account, Installation

FOLDER_VARIABLE = "PLANDESK_TEST_FOLDER"
# Durability is for installations; a test run's data is thrown away.
FAST_AND_LOOSE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}
# The lookup key is cached by every process: it belongs to the installation, not to a test.
KEPT_TABLES = ("django_migrations", "django_content_type", "auth_permission", "plans_lookupkey")

# Lifts triggers and foreign keys for itself alone, empties what is not empty, puts back what migrations made.
CLEANER = """
CREATE SCHEMA seed;
CREATE FUNCTION seed.remember() RETURNS void LANGUAGE plpgsql AS $$
DECLARE t record; filled boolean;
BEGIN
    FOR t IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
             AND c.relname <> ALL (%(kept)s) LOOP
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM public.%%I)', t.relname) INTO filled;
        IF filled THEN
            EXECUTE format('CREATE TABLE seed.%%I AS TABLE public.%%I', t.relname, t.relname);
        END IF;
    END LOOP;
END $$;
CREATE FUNCTION seed.clean() RETURNS void LANGUAGE plpgsql SET session_replication_role = replica AS $$
DECLARE t record; filled boolean; columns text;
BEGIN
    FOR t IN SELECT c.oid, c.relname, EXISTS (SELECT 1 FROM pg_class s WHERE s.relnamespace = 'seed'::regnamespace
                                              AND s.relname = c.relname) AS seeded
             FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
             AND c.relname <> ALL (%(kept)s) LOOP
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM public.%%I)', t.relname) INTO filled;
        IF filled THEN
            EXECUTE format('DELETE FROM public.%%I', t.relname);
        END IF;
        IF t.seeded THEN
            SELECT string_agg(quote_ident(attname), ', ') INTO columns FROM pg_attribute
            WHERE attrelid = t.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '';
            EXECUTE format('INSERT INTO public.%%I (%%s) OVERRIDING SYSTEM VALUE SELECT %%s FROM seed.%%I',
                           t.relname, columns, columns, t.relname);
        END IF;
    END LOOP;
END $$;
SELECT seed.remember();
"""


class Ground:
    """A throw-away installation. Who made its folder starts and stops the servers; xdist workers only use them."""

    postgres_settings: Mapping[str, str] = FAST_AND_LOOSE

    def __init__(self, folder: Path, *, is_ours: bool) -> None:
        self.folder = folder
        self.is_ours = is_ours
        self.installation = Installation(folder / "data", Account.needed())
        self.worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        self.database = f"{DATABASE}_{self.worker}" if self.worker else DATABASE
        self.port = free_port()
        self._servers: list[BundledPostgres | BundledRedis] = []
        self._is_started = False

    @classmethod
    def of_this_run(cls) -> "Ground":
        given = os.environ.get(FOLDER_VARIABLE)
        if given:
            return cls(Path(given), is_ours=False)
        folder = Path(tempfile.mkdtemp(prefix="plandesk-tests-"))
        folder.chmod(0o711)
        os.environ[FOLDER_VARIABLE] = str(folder)
        return cls(folder, is_ours=True)

    def prepare_environment(self) -> None:
        """Sets what settings read. No server needs to run for that."""
        if self.is_ours:
            self.installation.create()
            self.installation.create_server_folders()
            (self.folder / "static").mkdir(exist_ok=True)  # WhiteNoise warns in every test where it is missing
        os.environ.update(self.environment())

    def environment(self) -> dict[str, str]:
        kept = self.installation.read()
        urls = {
            name: url.replace(f"@/{DATABASE}?", f"@/{self.database}?")
            for name, url in self.installation.database_urls().items()
        }
        number = int(self.worker.removeprefix("gw") or 0) if self.worker else 0
        return {
            **urls,
            "REDIS_URL": f"{self.installation.redis_url()}?virtual_host={number}&db={number}",
            "SECRET_KEY": kept["SECRET_KEY"],
            "SEAL_KEYS": kept["SEAL_KEYS"],
            "AUDIT_ORIGIN": kept["AUDIT_ORIGIN"],
            "AUDIT_SIGNING_KEY": str(self.installation.signing_key),
            # Of each database its own: what was signed last belongs to one tree.
            "AUDIT_STATE_FILE": str(self.folder / f"audit-{self.worker or 'main'}.signed"),
            "BASE_URL": self.url,
            "STATIC_FROM_SOURCE": "1",
            "STATIC_ROOT": str(self.folder / "static"),
            "CALLBACK_ALLOW_PRIVATE": "1",
            "DEMO": "1",
            "DJANGO_SETTINGS_MODULE": "reviewer.settings",
            "LOG_LEVEL": "WARNING",
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Servers and template where this process owns them, and this worker's database. May be repeated."""
        if self._is_started:
            return
        self._is_started = True
        if self.is_ours:
            self._start_servers()
        if self.worker:
            with self.connect_as_owner("postgres") as connection:
                statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
                connection.execute(statement.format(sql.Identifier(self.database), sql.Identifier(DATABASE)))

    def stop(self) -> None:
        """Ends what start() began and removes the folder. May be repeated."""
        if not self.is_ours:
            return
        for server in reversed(self._servers):
            if server.process is not None:
                server.process.send_signal(server.crash_signal)
            server.stop()
        self._servers.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect_as_owner(self, database: str | None = None) -> psycopg.Connection[tuple[object, ...]]:
        url = self.installation.database_urls()["DATABASE_OWNER_URL"]
        url = url.replace(f"@/{DATABASE}?", f"@/{database or self.database}?")
        return psycopg.connect(url, autocommit=True)

    def manage(
        self, *arguments: str, stdin: str | None = None, environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs `manage.py` in a process of its own, on this run's installation."""
        return subprocess.run(
            [sys.executable, str(PROJECT / "manage.py"), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **(environ or {})},
            cwd=PROJECT,
            check=False,
        )

    def _start_servers(self) -> None:
        postgres = BundledPostgres(self.installation, self.postgres_settings)
        postgres.extra_statements = [
            f"GRANT SET ON PARAMETER session_replication_role TO {OWNER_ROLE}",
            f"GRANT pg_checkpoint TO {OWNER_ROLE}",
        ]
        redis = BundledRedis(self.installation)
        self._servers = [postgres, redis]
        initdb = postgres.begin_initialising()
        redis.start()
        postgres.finish_initialising(initdb)
        postgres.start()
        postgres.wait_ready()
        redis.wait_ready()
        self._migrate()

    def _migrate(self) -> None:
        done = self.manage("migrate", "--skip-checks", "--verbosity", "0", environ=self.installation.database_urls())
        if done.returncode != 0:
            raise RuntimeError(f"migrations failed:\n{done.stdout}{done.stderr}")
        with self.connect_as_owner(DATABASE) as connection:
            kept = "ARRAY[" + ", ".join(f"'{name}'" for name in KEPT_TABLES) + "]"
            connection.execute(CLEANER.replace("%(kept)s", kept).replace("%%", "%"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
