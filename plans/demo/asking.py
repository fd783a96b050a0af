"""What agents of the demonstration ask the billing system's own server, as any client of it would."""

import json
from typing import Any

import urllib3

from plans.demo.agents import get_credentials


class BillingDown(Exception):
    """The billing system's own server did not answer as it should; nothing was planned."""


def ask(method: str, path: str, body: Any = None) -> bytes:
    """What the billing system's server answered an agent. Raises BillingDown for anything but a good answer."""
    credentials = get_credentials()
    headers = {"Authorization": f"Bearer {credentials.agent_bearer}", "Content-Type": "application/json"}
    try:
        answer = urllib3.request(
            method,
            credentials.billing_url + path,
            headers=headers,
            body=None if body is None else json.dumps(body),
            timeout=10,
            retries=False,
        )
    except urllib3.exceptions.HTTPError as error:
        raise BillingDown(f"The billing system did not answer: {type(error).__name__}.") from None
    if answer.status >= 300:
        raise BillingDown(f"The billing system answered {answer.status} to {method} {path}.")
    return answer.data


def find_shipments(invoice_id: str) -> list[dict[str, str]]:
    """The read `shipping.lookup`."""
    shipments: list[dict[str, str]] = json.loads(ask("GET", f"/shipments/{invoice_id}"))["shipments"]
    return shipments
