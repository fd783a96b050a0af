"""The tables of a plan's life. One fact, one table, one named constraint for each thing that must hold.

One file, though a long one: every table of the module refers to others, and the lock order below spans them all.

Lock order, in every transaction that takes more than one of these:
    Callback (a delivery's), or Target (a change of it), or Agent (intake, wishes and abandonments; FOR NO KEY UPDATE)
    -> Task -> Plan, by ascending pk -> IdempotencyKey -> Fence, by target text
    -> a hosted operation's own rows, in its own fixed order.
A decision locks one plan and never an agent; what a decision means for other plans (an input it dirtied) is a row of
`ObservedWrite`, applied afterwards in a transaction that starts with the agent.
`tests/plans/test_lock_order.py` reads the order from the statements that each use case executes.
"""

from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Length

from plans.policies import is_held_back
from plans.states import BUSY, ENDS, HOLDS_INTENT, IN_FLIGHT, AbandonReason, Outcome, State

IDENTIFIER = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$"


def _in(field: str, members: Any) -> Q:
    return Q(**{f"{field}__in": sorted(str(member.value) for member in members)})


def _length(field: str, most: int) -> models.CheckConstraint:
    return models.CheckConstraint(condition=Q(**{f"{field}__length__lte": most}), name=f"plans_{field}_at_most_{most}")


class TextLength(Length):
    """`field__length` in a constraint, in characters."""


models.TextField.register_lookup(TextLength)
models.CharField.register_lookup(TextLength)


class LookupKey(models.Model):
    """The installation's one key for keyed hashes, itself sealed; so that sealing keys may rotate under it."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    sealed = models.BinaryField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="plans_lookup_key_is_one")]


class Target(models.Model):
    """A system that accepts two-phase writes: hosted here, or somebody's HTTP server."""

    HOSTED, REMOTE = "hosted", "remote"

    name = models.CharField(max_length=128)
    kind = models.CharField(max_length=8)
    base_url = models.TextField(blank=True, default="")
    operations = ArrayField(models.CharField(max_length=128), default=list)
    created_at = models.DateTimeField()
    disabled_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name"], name="plans_target_name_is_unique"),
            models.CheckConstraint(condition=Q(name__regex=IDENTIFIER), name="plans_target_name_is_an_identifier"),
            models.CheckConstraint(
                condition=Q(kind="hosted", base_url="") | (Q(kind="remote") & ~Q(base_url="")),
                name="plans_target_address_fits_its_kind",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_hosted(self) -> bool:
        return self.kind == Target.HOSTED


class TargetAddress(models.Model):
    """Where a remote target is, or was: a plan commits, and is found out, only under the address of its receipt.

    The newest row of a target is its present address. Credentials belong to an address: those of a new one are never
    sent to an old one.
    """

    target = models.ForeignKey(Target, on_delete=models.PROTECT, related_name="addresses")
    base_url = models.TextField()
    commit_path = models.TextField(default="/{operation}/commit")
    status_path = models.TextField(default="/plans/{plan_id}")
    credentials_sealed = models.BinaryField(null=True)
    created_at = models.DateTimeField()


class Policy(models.Model):
    """One version of what a target's plans need. Never changed: a change is the next version."""

    target = models.ForeignKey(Target, on_delete=models.PROTECT, related_name="policies")
    version = models.PositiveIntegerField()
    approvals = models.PositiveSmallIntegerField(null=True)  # null: the operation says how many
    is_guarded = models.BooleanField(default=False)  # a typed fact for every plan, not only for what can't be undone
    refuses_unconfirmed = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["target", "version"], name="plans_policy_version_is_unique"),
            models.CheckConstraint(
                condition=Q(approvals__isnull=True) | Q(approvals__lte=10), name="plans_policy_approvals_at_most_10"
            ),
        ]


class Agent(models.Model):
    """An API client with an owner. Disabled, never deleted: its plans and their log refer to it for good."""

    name = models.CharField(max_length=128)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="agents")
    api_key_hash = models.BinaryField()
    api_key_hint = models.CharField(max_length=12, blank=True, default="")  # its first characters, to tell keys apart
    callback_url = models.TextField(blank=True, default="")
    is_paused = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    disabled_at = models.DateTimeField(null=True)
    targets = models.ManyToManyField(Target, related_name="agents")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name"], name="plans_agent_name_is_unique"),
            models.UniqueConstraint(fields=["api_key_hash"], name="plans_agent_api_key_is_unique"),
            models.CheckConstraint(condition=Q(name__regex=IDENTIFIER), name="plans_agent_name_is_an_identifier"),
        ]

    def __str__(self) -> str:
        return self.name


class FormerOwner(models.Model):
    """Who owned an agent until when: written by the database whenever an agent gets another owner.

    Nobody decides a plan of an agent that they owned at any time since the plan was received: the database refuses
    their approval and their rejection (`plans_owner_never_decides`).
    """

    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, db_index=False, related_name="former_owners")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, db_index=False, related_name="+")
    until = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["agent", "person", "until"], name="plans_former_owners")]


class AgentSeen(models.Model):
    """When an agent last made itself known, by a signed delivery or its key; to the minute, see `plans/seen.py`."""

    agent = models.OneToOneField(Agent, on_delete=models.PROTECT, primary_key=True, related_name="seen")
    seen_at = models.DateTimeField()


class AgentSecret(models.Model):
    """A webhook or callback secret, sealed. At most two of a purpose live at once, during a rotation."""

    WEBHOOK, CALLBACK = "webhook", "callback"

    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="secrets")
    purpose = models.CharField(max_length=8)
    sealed = models.BinaryField()
    created_at = models.DateTimeField()
    retired_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(purpose__in=["webhook", "callback"]), name="plans_secret_has_a_purpose")
        ]
        indexes = [models.Index(fields=["agent", "purpose"], name="plans_secret_of_agent")]


class Task(models.Model):
    """The agent's unit of work that owns plans."""

    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="tasks")
    task_id = models.CharField(max_length=128)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "task_id"], name="plans_task_id_is_unique_per_agent"),
            models.CheckConstraint(condition=Q(task_id__regex=IDENTIFIER), name="plans_task_id_is_an_identifier"),
        ]
        indexes = [models.Index(fields=["task_id"], name="plans_tasks_by_task_id")]

    def __str__(self) -> str:
        return self.task_id


class PlanQuerySet(models.QuerySet["Plan"]):
    """Adjectives for plans."""

    def pending(self) -> "PlanQuerySet":
        return self.filter(state=State.PENDING.value)

    def in_flight(self) -> "PlanQuerySet":
        return self.filter(_in("state", IN_FLIGHT))

    def busy(self) -> "PlanQuerySet":
        return self.filter(_in("state", BUSY))

    def of_agent(self, agent: Agent) -> "PlanQuerySet":
        return self.filter(agent=agent)


class Plan(models.Model):
    """The stored answer of a dry run, and where it stands. What was received never changes; only its standing does.

    Foreign JSON (`inputs`, `actions`, `evidence`, `planned_state`) is the text as received.
    """

    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="plans")
    target = models.ForeignKey(Target, on_delete=models.PROTECT, related_name="plans")
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="plans")
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="plans")
    plan_id = models.CharField(max_length=128)
    operation = models.CharField(max_length=128)
    intent = models.CharField(max_length=128, null=True)  # absent and empty are different facts
    replaces = models.CharField(max_length=128, null=True)
    replaced_by = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="replaced")
    target_address = models.TextField(blank=True, default="")
    address = models.ForeignKey(TargetAddress, on_delete=models.PROTECT, null=True, related_name="plans")

    inputs = models.TextField()
    actions = models.TextField()
    action_targets = ArrayField(models.TextField())
    evidence = models.TextField(blank=True, default="")
    summary = models.TextField(blank=True, default="")
    planned_state = models.TextField(null=True)  # hosted plans only
    input_fingerprint = models.TextField()
    inputs_hash = models.BinaryField()  # keyed: equal inputs of one task and operation supersede
    data_hash = models.BinaryField()  # keyed: tells an equal redelivery from another plan under the same id
    has_confirmed_actions = models.BooleanField(default=False)
    has_been_known_to_target = models.BooleanField(default=False)
    approvals_required = models.PositiveSmallIntegerField()

    token_hash = models.BinaryField()
    token_sealed = models.BinaryField(null=True)
    idempotency_key = models.CharField(max_length=64)

    created_at = models.DateTimeField()  # the dry run's
    received_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    state = models.CharField(max_length=10, default=State.PENDING.value)
    state_changed_at = models.DateTimeField()
    claimed_at = models.DateTimeField(null=True)
    unknown_since = models.DateTimeField(null=True)
    next_check_at = models.DateTimeField(null=True)  # when to ask its target next: pending, or unknown
    check_count = models.PositiveIntegerField(default=0)
    mark_count = models.PositiveIntegerField(default=0)  # writes by other agents to this plan's targets
    event_count = models.PositiveIntegerField(default=0)

    objects = PlanQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "target", "plan_id"], name="plans_plan_id_is_unique"),
            models.UniqueConstraint(fields=["target", "token_hash"], name="plans_token_is_unique_per_target"),
            models.UniqueConstraint(fields=["idempotency_key"], name="plans_idempotency_key_is_unique"),
            models.UniqueConstraint(
                fields=["agent", "intent"], condition=_in("state", HOLDS_INTENT), name="plans_intent_is_held_once"
            ),
            models.CheckConstraint(condition=_in("state", State), name="plans_state_is_known"),
            models.CheckConstraint(
                condition=(_in("state", ENDS) & Q(token_sealed__isnull=True))
                | (_in("state", IN_FLIGHT) & Q(token_sealed__isnull=False)),
                name="plans_token_lives_as_long_as_the_plan",
            ),
            models.CheckConstraint(
                condition=~_in("state", BUSY) | Q(claimed_at__isnull=False), name="plans_busy_plan_was_claimed"
            ),
            models.CheckConstraint(
                condition=~Q(state="unknown") | Q(unknown_since__isnull=False), name="plans_unknown_since_when"
            ),
            models.CheckConstraint(condition=Q(plan_id__regex=IDENTIFIER), name="plans_plan_id_is_an_identifier"),
            models.CheckConstraint(condition=Q(operation__regex=IDENTIFIER), name="plans_operation_is_an_identifier"),
            models.CheckConstraint(
                condition=Q(intent__isnull=True) | Q(intent__regex=IDENTIFIER), name="plans_intent_is_an_identifier"
            ),
            models.CheckConstraint(condition=Q(created_at__lte=F("received_at")), name="plans_created_before_received"),
            models.CheckConstraint(condition=Q(expires_at__gt=F("created_at")), name="plans_expires_after_created"),
            _length("summary", 2000),
            _length("input_fingerprint", 512),
            models.CheckConstraint(condition=Q(action_targets__len__gte=1), name="plans_plan_has_an_action"),
        ]
        indexes = [
            models.Index(fields=["expires_at", "id"], condition=Q(state="pending"), name="plans_pending_by_expiry"),
            models.Index(fields=["next_check_at", "id"], condition=Q(state="unknown"), name="plans_unknown_by_check"),
            models.Index(
                fields=["claimed_at", "id"], condition=Q(state="committing"), name="plans_committing_by_claim"
            ),
            models.Index(fields=["agent", "state", "id"], name="plans_of_agent_by_state"),
            models.Index(fields=["task", "operation", "id"], name="plans_of_task"),
            models.Index(fields=["received_at", "id"], name="plans_by_receipt"),
            models.Index(fields=["plan_id"], name="plans_by_plan_id"),
            # Each filter of the list of all plans finds its newest page without reading the others' plans.
            models.Index(fields=["state", "received_at", "id"], name="plans_by_state_and_receipt"),
            models.Index(fields=["agent", "received_at", "id"], name="plans_by_agent_and_receipt"),
            models.Index(fields=["target", "received_at", "id"], name="plans_by_target_and_receipt"),
            models.Index(fields=["operation", "received_at", "id"], name="plans_by_op_and_receipt"),
            models.Index(fields=["intent"], condition=Q(intent__isnull=False), name="plans_by_intent"),
            # Each plan that arrives asks whether one that replaces it came before.
            models.Index(fields=["agent", "replaces"], condition=Q(replaces__isnull=False), name="plans_by_replaces"),
            GinIndex(fields=["action_targets"], name="plans_by_action_target"),
            GinIndex(fields=["action_targets"], condition=Q(state="pending"), name="plans_pending_by_action_target"),
        ]

    def __str__(self) -> str:
        return self.plan_id

    def __repr__(self) -> str:
        return f"<Plan {self.pk} {self.plan_id} {self.state}>"

    @property
    def is_hosted(self) -> bool:
        return self.target.is_hosted

    @property
    def is_held_back(self) -> bool:
        """Whether nothing can be written of it until its target has confirmed it: its policy asks for that."""
        return is_held_back(
            refuses_unconfirmed=self.policy.refuses_unconfirmed,
            is_hosted=self.is_hosted,
            is_confirmed=self.has_confirmed_actions,
        )


class Approval(models.Model):
    """One person's yes to exactly what `seen_digest` names. Void when its attempt sent nothing or the right is lost."""

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="approvals")
    reviewer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="approvals")
    seen_digest = models.CharField(max_length=64)
    reason = models.TextField(blank=True, default="")
    approved_at = models.DateTimeField()
    opened_at = models.DateTimeField(null=True)  # when this person last opened the page before deciding
    voided_at = models.DateTimeField(null=True)
    void_reason = models.CharField(max_length=32, blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["plan", "reviewer"], condition=Q(voided_at__isnull=True), name="plans_one_approval_per_person"
            ),
            models.CheckConstraint(
                condition=Q(voided_at__isnull=True, void_reason="") | (Q(voided_at__isnull=False) & ~Q(void_reason="")),
                name="plans_void_approval_says_why",
            ),
        ]
        indexes = [models.Index(fields=["approved_at"], name="plans_approvals_by_time")]


class Rejection(models.Model):
    """A reviewer's no, with the reason the agent gets. Ends the plan."""

    plan = models.OneToOneField(Plan, on_delete=models.PROTECT, related_name="rejection")
    reviewer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="rejections")
    seen_digest = models.CharField(max_length=64)
    reason = models.TextField()
    rejected_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(reason__regex=r"^\s*$"), name="plans_rejection_has_a_reason")
        ]
        indexes = [models.Index(fields=["rejected_at"], name="plans_rejections_by_time")]


class Commit(models.Model):
    """One attempt to commit. On disk before the first byte is sent; all attempts of a plan carry the plan's one key."""

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="commits")
    number = models.PositiveIntegerField()
    started_by = models.CharField(max_length=8)  # person, agent, system
    started_by_id = models.CharField(max_length=128)
    started_by_name = models.TextField(blank=True, default="")
    started_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, null=True)
    may_have_arrived = models.BooleanField(default=True)
    http_status = models.PositiveSmallIntegerField(null=True)
    detail = models.TextField(blank=True, default="")
    result = models.TextField(null=True)  # JSON text, as the target wrote it; null: none was given

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["plan", "number"], name="plans_attempt_number_is_unique"),
            models.UniqueConstraint(
                fields=["plan"], condition=Q(outcome="committed"), name="plans_plan_is_applied_once"
            ),
            models.CheckConstraint(
                condition=Q(outcome__isnull=True) | _in("outcome", Outcome), name="plans_outcome_is_known"
            ),
            models.CheckConstraint(
                condition=Q(settled_at__isnull=True, outcome__isnull=True)
                | Q(settled_at__isnull=False, outcome__isnull=False),
                name="plans_settled_attempt_has_an_outcome",
            ),
            models.CheckConstraint(
                condition=~Q(outcome="unsent") | Q(may_have_arrived=False), name="plans_unsent_never_arrived"
            ),
        ]


class Conflict(models.Model):
    """The world moved: nothing was written. Its `changes` say which field, what was planned, what is there now."""

    plan = models.OneToOneField(Plan, on_delete=models.PROTECT, related_name="conflict")
    at = models.DateTimeField()
    detail = models.TextField(blank=True, default="")


class ConflictChange(models.Model):
    """One field of a conflict. Values are JSON text; null where the target did not say."""

    conflict = models.ForeignKey(Conflict, on_delete=models.PROTECT, related_name="changes")
    position = models.PositiveIntegerField()
    target = models.TextField(blank=True, default="")
    field = models.TextField(blank=True, default="")
    planned = models.TextField(null=True)
    current = models.TextField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["conflict", "position"], name="plans_conflict_change_has_its_place")
        ]
        indexes = [models.Index(fields=["field"], name="plans_conflicts_by_field")]


class Abandonment(models.Model):
    """Planned and not done, for one reason."""

    plan = models.OneToOneField(Plan, on_delete=models.PROTECT, related_name="abandonment")
    reason = models.CharField(max_length=16)
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=_in("reason", AbandonReason), name="plans_abandonment_reason_is_known")
        ]


class Refusal(models.Model):
    """The target said no, or tells of the plan otherwise than the agent; nothing was written."""

    plan = models.OneToOneField(Plan, on_delete=models.PROTECT, related_name="refusal")
    reason = models.TextField()
    at = models.DateTimeField()


class Fence(models.Model):
    """What a plan that may be writing keeps others from: one action target of one target system.

    `scope` is the agent's pk, and for a plan whose actions its target confirmed a second row with `*`: so that an
    unconfirmed plan fences only its own agent, and a confirmed one everybody. The unique constraint is the fence.
    """

    EVERYBODY = "*"

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="fences")
    target = models.ForeignKey(Target, on_delete=models.PROTECT)
    action_target = models.TextField()
    scope = models.CharField(max_length=24)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["target", "action_target", "scope"], name="plans_fence_one_plan_per_action_target"
            )
        ]


class IdempotencyKey(models.Model):
    """A caller's key at our own commit door, bound to one payload for as long as the plan is kept."""

    agent = models.ForeignKey(Agent, on_delete=models.PROTECT)
    operation = models.CharField(max_length=128)
    key = models.CharField(max_length=255)
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="caller_keys")
    payload_hash = models.BinaryField()
    bound_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "operation", "key"], name="plans_key_is_bound_once")]


class Delivery(models.Model):
    """A webhook-id that got a final answer, and the hash of the body it came with."""

    agent = models.ForeignKey(Agent, on_delete=models.PROTECT)
    webhook_id = models.CharField(max_length=128)
    body_hash = models.BinaryField()
    received_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "webhook_id"], name="plans_webhook_id_is_bound_once")]


class Wish(models.Model):
    """An abandonment that could not be carried out yet: its plan is not known, or is being committed."""

    agent = models.ForeignKey(Agent, on_delete=models.PROTECT)
    target = models.ForeignKey(Target, on_delete=models.PROTECT)
    plan_id = models.CharField(max_length=128)
    reason = models.CharField(max_length=16)
    wished_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "target", "plan_id"], name="plans_one_wish_per_plan"),
            models.CheckConstraint(condition=_in("reason", AbandonReason), name="plans_wish_reason_is_known"),
        ]


class ObservedWrite(models.Model):
    """A write at a target, told by an agent or known from a commit: what it touches is dirty for older plans."""

    agent = models.ForeignKey(Agent, on_delete=models.PROTECT)
    target = models.ForeignKey(Target, on_delete=models.PROTECT)
    task_id = models.CharField(max_length=128)
    action_targets = ArrayField(models.TextField())
    at = models.DateTimeField()
    plan = models.OneToOneField(Plan, on_delete=models.PROTECT, null=True, related_name="own_write")
    is_applied = models.BooleanField(default=False)

    class Meta:
        indexes = [
            models.Index(fields=["id"], condition=Q(is_applied=False), name="plans_writes_to_apply"),
            models.Index(fields=["target", "at"], name="plans_writes_by_target"),
        ]


class Wait(models.Model):
    """An agent's request that waits for a plan's end, counted while it waits. Unlogged: no crash leaves one behind."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="waits")
    ends_at = models.DateTimeField()


class PlanView(models.Model):
    """When a person last opened a plan's page: what approval speed is measured from."""

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="views")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="plan_views")
    opened_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["plan", "person"], name="plans_one_view_row_per_person")]


class Callback(models.Model):
    """News for an agent, queued in the transaction of what it tells and delivered by the clock until it arrives."""

    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="callbacks")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="callbacks")
    kind = models.CharField(max_length=32)
    webhook_id = models.CharField(max_length=64)
    body = models.TextField()
    queued_at = models.DateTimeField()
    next_try_at = models.DateTimeField(null=True)  # null: delivered, or given up
    try_count = models.PositiveIntegerField(default=0)
    delivered_at = models.DateTimeField(null=True)
    gave_up_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["webhook_id"], name="plans_callback_id_is_unique"),
            models.CheckConstraint(
                condition=Q(next_try_at__isnull=False, delivered_at__isnull=True, gave_up_at__isnull=True)
                | Q(next_try_at__isnull=True, delivered_at__isnull=False, gave_up_at__isnull=True)
                | Q(next_try_at__isnull=True, delivered_at__isnull=True, gave_up_at__isnull=False),
                name="plans_callback_waits_or_ended",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_try_at", "id"], condition=Q(next_try_at__isnull=False), name="plans_callbacks_due"
            ),
            models.Index(fields=["agent", "-id"], name="plans_callbacks_of_agent"),
            models.Index(fields=["-id"], condition=Q(gave_up_at__isnull=False), name="plans_callbacks_given_up"),
        ]


class CallbackTry(models.Model):
    """One attempt to deliver a callback, for admins to see."""

    callback = models.ForeignKey(Callback, on_delete=models.PROTECT, related_name="tries")
    tried_at = models.DateTimeField()
    http_status = models.PositiveSmallIntegerField(null=True)
    detail = models.TextField(blank=True, default="")
    is_delivered = models.BooleanField()
