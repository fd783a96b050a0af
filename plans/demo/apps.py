"""The demonstration: a billing system and agents that work in it."""

from django.apps import AppConfig


class DemoConfig(AppConfig):
    name = "plans.demo"
    label = "demo"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from plans.demo import operations
        from plans.targets.operations import register

        register(operations.RefundInvoice)
        register(operations.UpdateAddress)
