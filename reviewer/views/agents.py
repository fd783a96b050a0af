"""Agents, for admins: who may plan where, their keys and secrets, and their end."""

from typing import Any, cast

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from audit.recording import Actor
from plans import pace, registry, roster
from plans.intake import MAX_PENDING
from plans.models import Agent, AgentSecret
from plans.registry import AgentCredentials
from plans.registry_rules import RegistryError
from reviewer import speed
from reviewer.access import actor_of
from reviewer.admin_forms import AdminForm, AgentForm, NewAgentForm, TypedNameForm
from reviewer.models import Person
from reviewer.moments import Clock
from reviewer.views import PersonRequest, clock_for
from reviewer.views.admin import Outcome, Secret, admin_page, sent, show_admin
from reviewer.words import Badge


@admin_page
def agents(request: HttpRequest) -> HttpResponse:
    """The list; a POST makes an agent, and answers with its page and its secrets, this once."""
    request = cast(PersonRequest, request)
    form = NewAgentForm(sent(request, "create"), prefix_of_ids="new-", initial={"owner": str(request.user.pk)})
    if form.is_bound and form.is_valid():
        given = form.cleaned_data
        try:
            made = registry.create_agent(
                name=given["name"],
                owner=Person.objects.get(pk=given["owner"]),
                targets=given["targets"],
                callback_url=given["callback_url"],
                by=actor_of(request.user),
            )
        except RegistryError as error:
            form.refuse(error, "name")
        else:
            done = Outcome(_("The agent is made"), _SECRETS_ONCE(), secrets=_secrets(made))
            return _agent_page(request, made.agent.name, done, status=201)
    clock = clock_for(request.user)
    rows = roster.find_agents(after=request.GET.get("after", ""), limit=roster.PAGE + 1)
    paces = pace.find_agent_paces([row.pk for row in rows])
    context = {
        "form": form,
        "agents": [_row(agent, clock, paces) for agent in rows[: roster.PAGE]],
        "in_all": _in_all(),
        "reviews": [speed.review_of(row) for row in pace.find_paces()],
        "more": f"{reverse('agents')}?after={rows[roster.PAGE - 1].name}" if len(rows) > roster.PAGE else "",
    }
    return show_admin(request, "reviewer/agents.html", context, section="agents", status=422 if form.errors else 200)


@admin_page
def agent(request: HttpRequest, name: str) -> HttpResponse:
    """One agent; a POST does what its `do` names, and answers with the page as it is then."""
    request = cast(PersonRequest, request)
    found = roster.find_agent(name)
    if found is None:
        raise Http404
    by = actor_of(request.user)
    done: Outcome | None = None
    disabling = TypedNameForm(sent(request, "disable"), name=name, prefix_of_ids="end-")
    setting = AgentForm(sent(request, "set"), agent=found, prefix_of_ids="set-")
    if found.disabled_at is not None and request.method == "POST":
        done = Outcome(_("Nothing was changed"), _("This agent is disabled for good."), "warn", "warn")
        return _agent_page(request, name, done, status=409)
    match request.POST.get("do", ""):
        case "rotate":
            made = registry.rotate_agent(name=name, by=by)
            done = Outcome(_("New key and secrets are made"), _SECRETS_ONCE(), secrets=_secrets(made))
        case "pause":
            registry.pause_agent(name=name, by=by)
            done = Outcome(_("The agent is paused"), _("New plans are refused. Waiting plans can still be decided."))
        case "resume":
            registry.pause_agent(name=name, is_paused=False, by=by)
            done = Outcome(_("The agent may plan again"))
        case "set" if setting.is_valid():
            done = _set(name, setting, by)
        case "disable" if disabling.is_valid():
            done = Outcome(_("The agent is disabled"), withdrawn(len(registry.disable_agent(name=name, by=by))))
    failed = next((form for form in (setting, disabling) if form.errors), None)
    return _agent_page(request, name, done, failed=failed, status=422 if failed else 200)


def _set(name: str, form: AgentForm, by: Actor) -> Outcome | None:
    """Change the agent; None where the use case refused it, and the form says why."""
    given = form.cleaned_data
    try:
        registry.set_agent(
            name=name,
            owner=Person.objects.get(pk=given["owner"]),
            targets=given["targets"],
            callback_url=given["callback_url"],
            by=by,
        )
    except RegistryError as error:
        form.refuse(error, "callback_url")
        return None
    return Outcome(_("The agent is changed"), _("Its waiting plans stay as they are."))


def withdrawn(count: int) -> str:
    """How many pending plans ended with what was disabled or moved."""
    if not count:
        return _("No plan of it was waiting.")
    return ngettext("%(count)d waiting plan was withdrawn.", "%(count)d waiting plans were withdrawn.", count) % {
        "count": count
    }


def _SECRETS_ONCE() -> str:  # noqa: N802 (a constant, in the reader's language)
    return _("Copy them now: they are shown this once, and only hashes or sealed copies are kept.")


def _secrets(made: AgentCredentials) -> tuple[Secret, ...]:
    return (
        Secret("api-key", _("API key"), made.api_key, _("The agent sends it with every request.")),
        Secret("webhook-secret", _("Webhook secret"), made.webhook_secret, _("The agent signs what it feeds with it.")),
        Secret(
            "callback-secret", _("Callback secret"), made.callback_secret,
            _("The desk signs callbacks with it; the agent checks them."),
        ),
    )  # fmt: skip


def _agent_page(
    request: PersonRequest,
    name: str,
    done: Outcome | None,
    *,
    failed: AdminForm | None = None,
    status: int = 200,
) -> HttpResponse:
    found = roster.find_agent(name)
    assert found is not None
    clock = clock_for(request.user)
    live = roster.find_live_secrets(found)
    secrets = [{"purpose": _PURPOSES()[secret.purpose], "at": clock.at(secret.created_at)} for secret in live]
    context = {
        **_row(found, clock, pace.find_agent_paces([found.pk])),
        "most_pending": MAX_PENDING,
        "rotated": clock.at(max((secret.created_at for secret in live), default=None)),  # the key came with them
        "created": clock.at(found.created_at),
        "disabled": clock.at(found.disabled_at),
        "secrets": secrets,
        "done": done,
        "disabling": failed if isinstance(failed, TypedNameForm) else TypedNameForm(name=name, prefix_of_ids="end-"),
        "setting": failed if isinstance(failed, AgentForm) else AgentForm(agent=found, prefix_of_ids="set-"),
        "form": failed,
    }
    return show_admin(request, "reviewer/agent.html", context, section="agents", status=status)


def _PURPOSES() -> dict[str, str]:  # noqa: N802 (a constant, in the reader's language)
    return {AgentSecret.WEBHOOK: _("Webhook secret"), AgentSecret.CALLBACK: _("Callback secret")}


def _in_all() -> str:
    """How many agents there are, in a line."""
    active, paused = roster.count_agents()
    text = ngettext("%(count)d active", "%(count)d active", active) % {"count": active}
    return f"{text}, {ngettext('%(count)d paused', '%(count)d paused', paused) % {'count': paused}}" if paused else text


def _capped(count: int) -> str:
    return f"{roster.DAY_CAP}+" if count > roster.DAY_CAP else str(count)


def _row(agent: Agent, clock: Clock, paces: dict[int, pace.Pace]) -> dict[str, Any]:
    own = paces.get(agent.pk)
    seen = getattr(agent, "seen", None)
    return {
        "agent": agent,
        "url": reverse("agent", args=[agent.name]),
        "badge": badge_of(agent),
        "targets": sorted(target.name for target in agent.targets.all()),
        "last_plan": clock.at(getattr(agent, "last_plan_at", None)),
        "pending": getattr(agent, "pending_count", None) or 0,
        "seen": clock.at(seen.seen_at) if seen else None,
        "hour": _capped(getattr(agent, "hour_count", 0)),
        "day": _capped(getattr(agent, "day_count", 0)),
        "approved": speed.share(own) if own else "",
        "decisions": own.decisions if own else 0,
    }


def badge_of(agent: Agent) -> Badge:
    """Whether an agent may plan."""
    if agent.disabled_at is not None:
        return Badge("mute", "x", _("Disabled"))
    return Badge("warn", "hold", _("Paused")) if agent.is_paused else Badge("ok", "check", _("Active"))
