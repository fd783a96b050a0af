"""People, and the tokens by which they read the audit API."""

from typing import Any, ClassVar

from django.contrib.auth import get_backends
from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower, Now


class PersonManager(BaseUserManager["Person"]):
    """Look-ups by e-mail address, in any case."""

    def get_by_natural_key(self, username: str | None) -> "Person":
        return self.get(email=(username or "").strip().lower())

    def can_decide(self) -> models.QuerySet["Person"]:
        return self.filter(is_reviewer=True, is_active=True)

    def first_admin(self) -> "Person | None":
        """The owner of an agent that names none."""
        return self.filter(is_admin=True, is_active=True).order_by("pk").first()


class Person(AbstractBaseUser):
    """Somebody who signs in. Disabled, never deleted: what they decided keeps their name."""

    ROLES: ClassVar[tuple[str, ...]] = ("reviewer", "auditor", "admin")
    THEMES: ClassVar[tuple[str, ...]] = ("system", "light", "dark")

    email = models.EmailField(max_length=254)
    name = models.CharField(max_length=200, blank=True, default="")
    is_reviewer = models.BooleanField(default=False)
    is_auditor = models.BooleanField(default=False)
    is_admin = models.BooleanField(default=False)
    is_active = models.BooleanField(default=True)
    time_zone = models.CharField(max_length=64, default="UTC")
    theme = models.CharField(max_length=8, default="system")
    has_single_key_shortcuts = models.BooleanField(default=True)
    created_at = models.DateTimeField(db_default=Now())

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects: ClassVar[PersonManager] = PersonManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["email"], name="reviewer_person_email_is_unique"),
            models.CheckConstraint(condition=Q(email=Lower("email")), name="reviewer_person_email_is_lower_case"),
            models.CheckConstraint(
                condition=Q(theme__in=["system", "light", "dark"]), name="reviewer_person_theme_is_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name or self.email

    def clean(self) -> None:
        self.email = self.email.strip().lower()

    @property
    def roles(self) -> tuple[str, ...]:
        """The names of the roles held, in the order of ROLES; none for somebody who is disabled."""
        return tuple(role for role in self.ROLES if self.is_active and getattr(self, f"is_{role}"))

    def has_perm(self, perm: str, obj: Any = None) -> bool:
        return self.is_active and any(
            backend.has_perm(self, perm, obj) for backend in get_backends() if hasattr(backend, "has_perm")
        )


class PersonToken(models.Model):
    """A bearer token for the audit API. The token is shown once; its hash is kept."""

    person = models.ForeignKey(Person, on_delete=models.PROTECT, related_name="tokens")
    token_hash = models.BinaryField(max_length=32)
    created_at = models.DateTimeField(db_default=Now())
    used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["token_hash"], name="reviewer_person_token_hash_is_unique")]

    def __str__(self) -> str:
        return f"token {self.pk} of {self.person}"


class CacheEntry(models.Model):
    """The table of Django's DatabaseCache, which keeps the limits of signing in; never read through this model."""

    cache_key = models.CharField(max_length=255, primary_key=True)
    value = models.TextField()
    expires = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "reviewer_cache"

    def __str__(self) -> str:
        return self.cache_key
