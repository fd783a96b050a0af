"""What every benchmark measures with: CPU of processes, requests on connections that stay open, ratios of rounds."""

import itertools
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "4"))
"""Everything that is compared takes turns so many times; one round before them warms up."""


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process and its children have used, in user and kernel mode, ended ones too (proc(5))."""
    while True:
        try:
            return _cpu_of(pid)
        except (FileNotFoundError, ProcessLookupError):  # a child ended meanwhile, and its time is its parent's now
            if not Path(f"/proc/{pid}").exists():
                raise


def _cpu_of(pid: int) -> float:
    numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(map(int, numbers[11:15])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(_cpu_of(int(child)) for child in children)


@dataclass
class Series:
    """One number a round."""

    values: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        self.values.append(value)

    @property
    def middle(self) -> float:
        return statistics.median(self.values)

    def against(self, other: "Series") -> list[float]:
        """The ratios of the rounds: what was measured in one round saw the same neighbours."""
        return [mine / theirs for mine, theirs in zip(self.values, other.values, strict=True)]


def tell(what: str, ratios: Sequence[float], measured: str, baseline: str, goal: str) -> None:
    """One line: the ratio (its lowest and highest round), beside what it is a ratio of and what SPEED asks for."""
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    sys.stdout.write(
        f"{what:<54} {middle:6.2f}  ({low:.2f} to {high:.2f})  {measured} against {baseline}; goal {goal}\n"
    )
    sys.stdout.flush()


def note(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def request(method: str, path: str, port: int, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """The bytes of one HTTP/1.1 request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def knock(port: int, lines: Sequence[Sequence[bytes]], status: int) -> list[float]:
    """Send each line of requests on a connection of its own, all lines at once. Returns the seconds of each request.

    Raises for an answer with another status.
    """
    took: list[float] = []
    failures: list[BaseException] = []

    def send_line(line: Sequence[bytes]) -> None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for message in line:
                    began = time.perf_counter()
                    connection.sendall(message)
                    answer = _read_answer(connection)
                    took.append(time.perf_counter() - began)
                    if int(answer[9:12]) != status:
                        raise RuntimeError(f"{message[:80]!r} was answered {answer[:1500]!r}")
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=send_line, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return took


def _read_answer(connection: socket.socket) -> bytes:
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += _receive(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(lengths[0].partition(b":")[2])
    while len(body) < length:
        piece = _receive(connection)
        body += piece
        answer += piece
    return answer


def _receive(connection: socket.socket) -> bytes:
    piece = connection.recv(65536)
    if not piece:
        raise ConnectionError("the server hung up")
    return piece


def share(count: int, among: int) -> list[range]:
    """`count` places in `among` lines, as even as can be."""
    edges = [count * place // among for place in range(among + 1)]
    return [range(low, high) for low, high in itertools.pairwise(edges)]


def percentile(seconds: Sequence[float], part: float) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
