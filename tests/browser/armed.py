"""When a plan's page takes a press of Approve: 700 ms after what is on it has appeared, or was read again."""

from typing import Any

_ARMED = "#plan:not(.htmx-settling):not(:has(.reading, .htmx-request, .htmx-swapping, .htmx-settling, [data-arming]))"


def until_armed(page: Any) -> None:
    """Returns once nothing on the page is being read or has just come."""
    page.wait_for_selector(_ARMED)
