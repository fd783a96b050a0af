"""The Django application that sends the log on."""

from django.apps import AppConfig


class StreamsConfig(AppConfig):
    name = "reviewer.streams"
    label = "streams"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from reviewer.streams import changing

        changing.register()
