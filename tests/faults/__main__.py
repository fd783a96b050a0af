"""One run: `python -m tests.faults --seconds 600 --seed N`. Ends with 1 where anything was lost, doubled or stuck."""

import argparse
import ctypes
import json
import os
import secrets
import sys
from pathlib import Path

from tests.faults.product import Product

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", default="", help="of an earlier run, to live it again")
    parser.add_argument("--threads", type=int, default=14)
    parser.add_argument("--only", default="", help="faults whose name holds this; `none` for none")
    parser.add_argument("--kind", default="", help="plans of this kind: approved, open, address, refund")
    parser.add_argument("--small", action="store_true", help="one of every process, which starts sooner")
    parser.add_argument("--life", type=float, default=0, help="seconds that every plan lives (default: drawn by seed)")
    parser.add_argument("--json", metavar="FILE", help="write the verdict there")
    parser.add_argument("--keep", action="store_true", help="leave logs and ledger lying")
    options = parser.parse_args(argv)
    _adopt()
    seed = options.seed or str(secrets.randbelow(10**9))
    print(f"seed {seed}", flush=True)
    product = Product(is_small=options.small, life=options.life)
    try:
        product.start()
        os.environ.update(product.environment(direct=True))
        import django

        django.setup()
        from tests.faults.run import run, show

        verdict = run(product, seed, options)
        show(verdict, seed)
        if options.json:
            Path(options.json).write_text(json.dumps({"failures": verdict.failures, "faulted": verdict.faulted}))
        return 0 if verdict.is_good else 1
    finally:
        product.stop()
        if options.keep:
            print(f"kept in {product.folder}")
        else:
            product.remove()


def _adopt() -> None:
    """What our children leave behind when they are killed becomes ours, so that we reap it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads of the workload may still wait for an answer
