"""The site."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ReviewerConfig(AppConfig):
    name = "reviewer"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from reviewer import access, audit_jobs, checks, grants

        checks.register_all()
        access.connect()
        audit_jobs.register()
        post_migrate.connect(grants.grant_after_migrate, dispatch_uid="reviewer.grants")
