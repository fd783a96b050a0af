#!/usr/bin/env python3
"""Plandesk's command line."""

import os
import sys

# These touch no installation, so they work before there is one.
OFFLINE = {"makemigrations", "check", "help", "--help", "-h", "version", "--version"}


def main() -> None:
    try:
        from reviewer import installation
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is not installed: run `make setup`, then .venv/bin/python manage.py.")

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "reviewer.settings")
    try:
        argv = installation.take_data_option(sys.argv, os.environ)
        command = argv[1] if len(argv) > 1 else "help"
        asks_help = bool({"--help", "-h"} & set(argv[2:]))
        if command == "up" and not asks_help:
            from reviewer import supervisor

            sys.exit(supervisor.main(argv[2:]))
        if command in OFFLINE or asks_help:
            _allow_no_installation()
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db import OperationalError

        try:
            execute_from_command_line(argv)
        except ImproperlyConfigured as error:
            sys.exit(str(error))
        except OperationalError as error:
            reason = str(error).partition("\n")[0]
            sys.exit(f"The desk's database cannot be used; does `manage.py up` run? PostgreSQL said: {reason}")
    except installation.CannotStart as error:
        sys.exit(str(error))


def _allow_no_installation() -> None:
    from pathlib import Path

    from reviewer import installation

    named = os.environ.get("PLANDESK_DATA")
    data = Path(named) if named else installation.default_data()
    if "DATABASE_URL" not in os.environ and not (data / "postgres").exists():
        os.environ["PLANDESK_OFFLINE"] = "1"


if __name__ == "__main__":
    main()
