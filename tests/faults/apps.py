"""Shortens what is a constant of the engine, in every process of a run."""

from django.apps import AppConfig

from tests.faults import timers


class FaultsConfig(AppConfig):
    name = "tests.faults"
    label = "faults"

    def ready(self) -> None:
        from plans import commit, reconcile

        commit.FIRST_CHECK_AFTER = timers.FIRST_CHECK_AFTER
        for name, value in timers.RECONCILE.items():
            assert hasattr(reconcile, name)
            setattr(reconcile, name, value)
