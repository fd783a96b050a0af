"""Telling people what waits for them."""

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    name = "reviewer.notifications"
    label = "notifications"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from reviewer.notifications import checks, sealed

        checks.register_all()
        sealed.register()
