"""Run every rule against one server, each with plans of its own."""

import time
from collections.abc import Collection

from plans.conformance.caller import Caller, Commands, Failed, NotRun, World
from plans.conformance.config import Config
from plans.conformance.report import Result, Verdict
from plans.conformance.rules import RULES


def try_target(url: str, config: Config, world: World | None = None, only: Collection[str] = ()) -> list[Result]:
    """What became of each rule (`only`: of these). It writes to the system behind the server: never to real money.

    Raises ConfigError where the configuration's commands or variables do not work.
    """
    caller = Caller(url, config, world or Commands(config))
    results = []
    for name, rule in RULES:
        if only and name not in only:
            continue
        started = time.monotonic()
        verdict: Verdict = "passed"
        detail = ""
        try:
            rule(caller)
        except Failed as failure:
            verdict, detail = "failed", str(failure)
        except NotRun as reason:
            verdict, detail = "not run", str(reason)
        results.append(Result(name, (rule.__doc__ or "").strip(), verdict, detail, time.monotonic() - started))
    return results
