"""The id of the request under way, so that its events carry it without every caller passing it on."""

from contextvars import ContextVar

_REQUEST_ID: ContextVar[str | None] = ContextVar("audit_request_id", default=None)


def set_request_id(request_id: str | None) -> None:
    """Names the request (or the task) that runs in this context; None where none does. May be repeated."""
    _REQUEST_ID.set(request_id)


def current_request_id() -> str | None:
    """The id of the request that runs in this context, or None."""
    return _REQUEST_ID.get()
