"""People, and the tokens by which they read the audit API."""

from typing import Any, ClassVar
from uuid import uuid4

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
    is_local_time_first = models.BooleanField(default=False)
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


class SavedSearch(models.Model):
    """A search of the log under a name. Its link opens it for every auditor; only its owner renames or deletes it."""

    MAX_QUERY: ClassVar[int] = 4_000

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    person = models.ForeignKey(Person, on_delete=models.PROTECT, related_name="saved_searches")
    name = models.CharField(max_length=80)
    query = models.CharField(max_length=MAX_QUERY, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["person", "name"], name="reviewer_saved_search_name_is_unique"),
            models.CheckConstraint(condition=~Q(name=""), name="reviewer_saved_search_has_a_name"),
        ]

    def __str__(self) -> str:
        return self.name


class AuditJob(models.Model):
    """A long reading of the log, an export or a verification, done behind the request, for the person who asked."""

    KINDS: ClassVar[tuple[str, ...]] = ("export", "verification")
    STATES: ClassVar[tuple[str, ...]] = ("waiting", "running", "done", "failed", "expired")

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    person = models.ForeignKey(Person, on_delete=models.PROTECT, related_name="audit_jobs")
    kind = models.CharField(max_length=16)
    state = models.CharField(max_length=16, default="waiting")
    form = models.CharField(max_length=16, blank=True, default="")
    query = models.CharField(max_length=SavedSearch.MAX_QUERY, blank=True, default="")
    size = models.BigIntegerField(default=0)
    """Places of the tree that it reads: everything that had one when it was asked for."""
    next_index = models.BigIntegerField(default=0)
    """The place from which on it goes on, whoever takes it up."""
    done = models.BigIntegerField(default=0)
    total = models.BigIntegerField(default=0)
    byte_count = models.BigIntegerField(default=0)
    attempts = models.IntegerField(default=0)
    """How often it was taken up without having come further since."""
    closing = models.TextField(blank=True, default="")
    """JSON: an export's last record, a verification's report."""
    problem = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(db_default=Now())
    beat_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=["export", "verification"]), name="reviewer_audit_job_kind_is_known"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["waiting", "running", "done", "failed", "expired"]),
                name="reviewer_audit_job_state_is_known",
            ),
            models.CheckConstraint(
                condition=Q(done__lte=models.F("total")), name="reviewer_audit_job_done_is_of_total"
            ),
        ]
        indexes = [models.Index(fields=["state", "created_at"], name="reviewer_audit_job_due")]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"


class AuditJobPart(models.Model):
    """A piece of an export's file, compressed (zlib); the pieces in their order are the file."""

    job = models.ForeignKey(AuditJob, on_delete=models.CASCADE, related_name="parts")
    number = models.IntegerField()
    content = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "number"], name="reviewer_audit_job_part_is_once")]

    def __str__(self) -> str:
        return f"part {self.number} of {self.job_id}"


class Looking(models.Model):
    """Who has a plan's page open, and when their browser last said so. Old rows mean nothing and are swept away."""

    plan = models.ForeignKey("plans.Plan", on_delete=models.PROTECT, related_name="+")
    person = models.ForeignKey(Person, on_delete=models.CASCADE, related_name="+")
    seen_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["plan", "person"], name="reviewer_looking_is_once")]

    def __str__(self) -> str:
        return f"{self.person} at plan {self.plan_id}"
