"""An agent in a process of its own: plans, or submits, then waits until it is killed or decided. Prints what it has."""

import json
import sys
from pathlib import Path

from plans.agent import Desk, FileStore

ANSWER = {
    "plan_id": f"plan_{sys.argv[5]}",
    "plan_token": f"pt_remote_{sys.argv[5]}_0123456789",
    "expires_at": sys.argv[6],
    "input_fingerprint": "sha256:remote",
    "actions": [{"op": "update", "target": "invoice/4412", "field": "refunded_cents", "from": 0, "to": 48000}],
}


def main(base_url: str, api_key: str, secret: str, folder: str, how: str) -> None:
    desk = Desk(base_url, api_key, agent="refund-bot", webhook_secret=secret, store=FileStore(Path(folder)))
    inputs = {"invoice_id": "4412", "amount_cents": 48000}
    with desk.task("ticket-9913") as task:
        if how == "hosted":
            plan = task.dry_run("refund", inputs, intent="refund:ticket-9913")
        else:
            plan = task.submit("billing-remote", "refund", inputs, ANSWER, intent="refund:ticket-9913")
        sys.stdout.write(json.dumps([plan.plan_id, plan.idempotency_key]) + "\n")
        sys.stdout.flush()
        outcome = task.wait(plan, timeout=60)
        sys.stdout.write(json.dumps([type(outcome).__name__, plan.plan_id]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5])
