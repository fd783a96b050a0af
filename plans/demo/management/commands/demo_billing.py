"""Serves the demonstration's billing system as a remote target, over its own HTTP server."""

import os
import signal
import threading
from argparse import ArgumentParser
from pathlib import Path
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from plans.demo.credentials import default_path, read_credentials
from plans.demo.remote_http import Bearers, BillingServer


class Command(BaseCommand):
    help = "Serve the demonstration's billing system, a remote target, until SIGTERM or Ctrl-C."

    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        port = os.environ.get("DEMO_BILLING_PORT")
        parser.add_argument("--port", type=int, default=port, required=port is None, help="0 takes a free one")
        parser.add_argument("--credentials", type=Path, default=default_path(), help="default: %(default)s")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            credentials = read_credentials(options["credentials"])
        except ValueError as error:
            raise CommandError(str(error)) from error
        if credentials is None:
            raise CommandError(f"There is no file {options['credentials']}; demo_seed writes it.")
        bearers = Bearers(desk=credentials.desk_bearer, agents=credentials.agent_bearer)
        try:
            server = BillingServer(options["host"], options["port"], bearers)
        except OSError as error:
            address = f"{options['host']}:{options['port']}"
            raise CommandError(f"The address {address} can't be used: {error.strerror}.") from error

        def stop(_number: int, _frame: FrameType | None) -> None:
            # shutdown() waits for the loop that this handler interrupts, so it needs a thread of its own.
            threading.Thread(target=server.shutdown).start()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        self.stdout.write(f"The billing system listens at {server.base_url}")
        self.stdout.flush()
        with server:
            server.serve_forever(poll_interval=0.1)
