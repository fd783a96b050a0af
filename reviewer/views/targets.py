"""Targets, for admins: where they are, what they offer, what their plans need, and whether they answer."""

from typing import Any, cast

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from plans import policy_change, probe, registry, roster, tools
from plans.models import Policy, Target
from plans.policy_change import Application, PolicyError
from plans.registry_rules import RegistryError
from plans.targets import operations as hosted
from reviewer import words
from reviewer.access import actor_of, requires_role
from reviewer.admin_forms import (
    AddressForm,
    AdminForm,
    NewTargetForm,
    OperationsForm,
    PolicyForm,
    TypedNameForm,
    chosen_plans,
)
from reviewer.moments import Clock
from reviewer.policy_panel import panel_of
from reviewer.rows import url_of
from reviewer.said import in_words
from reviewer.views import PersonRequest, clock_for
from reviewer.views.admin import Outcome, admin_page, sent, show_admin
from reviewer.views.agents import withdrawn
from reviewer.words import Badge


@admin_page
def targets(request: HttpRequest) -> HttpResponse:
    """The list; a POST registers a remote target, and answers with its page."""
    request = cast(PersonRequest, request)
    form = NewTargetForm(sent(request, "create"), prefix_of_ids="new-")
    if form.is_bound and form.is_valid():
        given = form.cleaned_data
        try:
            made = registry.create_target(by=actor_of(request.user), **given)
        except RegistryError as error:
            form.refuse(error, _field_of(error))
        else:
            done = Outcome(_("The target is registered"), _("Let an agent plan at it, and test the connection."))
            return _target_page(request, made.name, done, status=201)
    registry.ensure_hosted_targets()
    clock = clock_for(request.user)
    rows = roster.find_targets(after=request.GET.get("after", ""), limit=roster.PAGE + 1)
    policies = roster.newest_policies(rows)
    context = {
        "form": form,
        "targets": [_row(target, policies[target.pk], clock) for target in rows[: roster.PAGE]],
        "more": f"{reverse('targets')}?after={rows[roster.PAGE - 1].name}" if len(rows) > roster.PAGE else "",
    }
    return show_admin(request, "reviewer/targets.html", context, section="targets", status=422 if form.errors else 200)


@admin_page
def target(request: HttpRequest, name: str) -> HttpResponse:
    """One target; a POST does what its `do` names, and answers with the page as it is then.

    `count` only shows what the policy in the form would ask for: a browser without scripts has a button for it.
    """
    request = cast(PersonRequest, request)
    found = roster.find_target(name)
    if found is None:
        raise Http404
    acts = {"test": _test, "apply": _apply}
    forms = _forms(request, found)
    do = request.POST.get("do", "")
    done: Outcome | None = None
    if found.disabled_at is not None and request.method == "POST":
        done = Outcome(_("Nothing was changed"), _("This target is disabled for good."), "warn", "warn")
        return _target_page(request, name, done, status=409)
    if do in acts:
        done = acts[do](request, found)
    elif do in forms and forms[do].is_valid():
        done = _change(request, found, do, forms[do])
    failed = next((form for form in forms.values() if form.is_bound and form.errors), None)
    keeps = failed or do == "count"
    return _target_page(request, name, done, forms=forms if keeps else None, status=422 if failed else 200)


@requires_role("admin")
@require_safe
def policy_panel(request: HttpRequest, name: str) -> HttpResponse:
    """What the policy in the form would ask for, as its fields change.

    A part, never a page: somebody who opens its address is sent to the target.
    """
    request = cast(PersonRequest, request)
    found = roster.find_target(name)
    if found is None or found.disabled_at is not None:
        raise Http404
    if not request.htmx or request.htmx.history_restore_request:
        return HttpResponseRedirect(reverse("target", args=[name]))
    form = PolicyForm(request.GET, is_hosted=found.is_hosted)
    panel = panel_of(found, form, policy_change.newest_policy(found))
    return render(request, "reviewer/_policy_panel.html", {"panel": panel, "is_part": True})


def _forms(request: HttpRequest, found: Target | None, *, is_sent: bool = True) -> dict[str, Any]:
    """The forms of a target's page by their `do`, each filled with what is true now or with what was sent."""
    assert found is not None

    def data(do: str) -> Any:
        return sent(request, do) if is_sent else None

    newest = policy_change.newest_policy(found)
    policy = {name: getattr(newest, name) for name in ("approvals", "is_guarded", "refuses_unconfirmed")}
    forms: dict[str, Any] = {
        "policy": PolicyForm(
            data("policy") or data("count"), is_hosted=found.is_hosted, initial=policy, prefix_of_ids="policy-"
        ),
    }
    if not found.is_hosted:
        where = registry.present_address(found)
        initial = {name: getattr(where, name) for name in ("base_url", "commit_path", "status_path")}
        offered = {"operations": " ".join(found.operations)}
        forms["address"] = AddressForm(data("address"), initial=initial, prefix_of_ids="where-")
        forms["operations"] = OperationsForm(data("operations"), initial=offered, prefix_of_ids="offer-")
    forms["disable"] = TypedNameForm(data("disable"), name=found.name, prefix_of_ids="end-")
    return forms


def _change(request: PersonRequest, found: Target, do: str, form: AdminForm) -> Outcome | None:
    """Carry out what a form asks for; None where the use case refused it, and the form says why."""
    given, by, name = form.cleaned_data, actor_of(request.user), found.name
    try:
        if do == "disable":
            return Outcome(_("The target is disabled"), withdrawn(len(registry.disable_target(name=name, by=by))))
        if do == "policy":
            return _new_policy(found, given, request)
        before = found.pending_count or 0  # type: ignore[attr-defined]  # annotated by roster
        registry.set_target(name=name, by=by, **given)
    except RegistryError as error:
        form.refuse(error, _field_of(error) if do == "address" else None)
        return None
    except PolicyError as error:
        form.refuse(error, "approvals")
        return None
    after = roster.find_target(name)
    gone = before - (getattr(after, "pending_count", None) or 0)
    return Outcome(_("The target is changed"), withdrawn(gone) if gone > 0 else "")


def _new_policy(found: Target, given: dict[str, Any], request: PersonRequest) -> Outcome:
    before = policy_change.newest_policy(found)
    policy = policy_change.change_policy(
        target_name=found.name,
        approvals=given["approvals"],
        is_guarded=given["is_guarded"],
        refuses_unconfirmed=given.get("refuses_unconfirmed", before.refuses_unconfirmed),
        by=actor_of(request.user),
    )
    if policy.version == before.version:
        return Outcome(_("Nothing was changed"), _("The newest policy says the same already."), "mute", "hold")
    text = _("It holds for plans received from now on. Waiting plans keep theirs until you put them under it, below.")
    return Outcome(_("Policy %(version)d is made") % {"version": policy.version}, text)


def _apply(request: PersonRequest, found: Target) -> Outcome:
    """Put the ticked plans under the newest policy."""
    results = policy_change.apply_newest_policy(
        target_name=found.name, plan_pks=chosen_plans(request.POST.getlist("plan")), by=actor_of(request.user)
    )
    if not results:
        return Outcome(_("No plan was chosen"), _("Tick the plans first."), "warn", "warn")
    done = [result for result in results if not result.why_not]
    title = ngettext("%(count)d plan stands under the newest policy", "%(count)d plans stand under the newest policy",
                     len(done)) % {"count": len(done)}  # fmt: skip
    left = [f"{result.plan.plan_id}: {in_words(result.why_not)}" for result in results if result.why_not]
    is_whole = len(done) == len(results)
    text = " ".join([*_voided(done), *left])
    return Outcome(title, text, "ok" if is_whole else "warn", "check" if is_whole else "warn")


def _voided(done: list[Application]) -> list[str]:
    count = sum(result.approvals_voided for result in done)
    if not count:
        return []
    text = ngettext("%(count)d earlier approval is void.", "%(count)d earlier approvals are void.", count)
    return [text % {"count": count}]


_VERDICTS = {
    probe.AS_EXPECTED: ("ok", "check"),
    probe.UNAUTHENTICATED: ("warn", "lock"),
    probe.ODD: ("warn", "question"),
    probe.UNREACHED: ("bad", "x"),
}


def _test(request: PersonRequest, found: Target) -> Outcome | None:
    """Ask the target about a plan that does not exist, and say what came back."""
    tried = probe.probe_target(name=found.name)
    if tried is None:
        return None
    took = _("GET %(url)s, in %(seconds).1f s.") % {"url": tried.url, "seconds": tried.took.total_seconds()}
    css, icon = _VERDICTS[tried.verdict]
    if tried.status is None:
        return Outcome(_("The target gave no answer"), f"{in_words(tried.detail)} {took}", css, icon)
    titles = {
        probe.AS_EXPECTED: _("The target answers: 404, as it should for a plan that does not exist"),
        probe.UNAUTHENTICATED: _("The target answers %(status)d: it does not take the credentials"),
        probe.ODD: _("The target answers %(status)d, where 404 was expected"),
    }
    size = ngettext("%(count)d byte", "%(count)d bytes", tried.size) % {"count": tried.size}
    what = _("%(size)s of JSON came back.") if tried.is_json else _("%(size)s came back, and they are no JSON.")
    return Outcome(titles[tried.verdict] % {"status": tried.status}, f"{took} {what % {'size': size}}", css, icon)


def _field_of(error: Exception) -> str | None:
    """Where the use case's sentence can be mended: it names what it is about."""
    text = str(error)
    for word, field in (("credentials", "bearer"), ("path", "commit_path"), ("target", "name"), ("URL", "base_url")):
        if word in text and (field != "name" or text.startswith("There is already")):
            return field
    return None


def _target_page(
    request: PersonRequest,
    name: str,
    done: Outcome | None,
    *,
    forms: dict[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    found = roster.find_target(name)
    assert found is not None
    clock = clock_for(request.user)
    newest = policy_change.newest_policy(found)
    forms = forms or _forms(request, found, is_sent=False)
    older = roster.find_older_pending(found, newest)
    panel = None if found.disabled_at else panel_of(found, forms["policy"], newest)
    context = {
        **_row(found, newest, clock),
        "created": clock.at(found.created_at),
        "disabled": clock.at(found.disabled_at),
        "where": None if found.is_hosted else registry.present_address(found),
        "offered": [
            {"operation": operation, "why_no_tools": tools.why_no_tools(operation)}
            for operation in hosted.operations()
            if operation.target == found.name
        ],
        "policies": [_policy(policy, clock) for policy in roster.find_policies(found)],
        "older": [
            {"plan": plan, "url": url_of(plan.agent.name, name, plan.plan_id), "expires": clock.at(plan.expires_at)}
            for plan in older
        ],
        "forms": forms,
        "panel": panel,
        "form": next((form for form in forms.values() if form.is_bound and form.errors), None),
        "done": done,
    }
    return show_admin(request, "reviewer/target.html", context, section="targets", status=status)


def _row(target: Target, policy: Policy, clock: Clock) -> dict[str, Any]:
    names = [operation.name for operation in hosted.operations() if operation.target == target.name]
    return {
        "target": target,
        "url": reverse("target", args=[target.name]),
        "badge": Badge("mute", "x", _("Disabled")) if target.disabled_at else Badge("ok", "check", _("Active")),
        "kind": _("Hosted here") if target.is_hosted else _("Remote"),
        "operations": names if target.is_hosted else target.operations,
        "asks": words.asks_of(policy),
        "policy": policy,
        "agent_count": getattr(target, "agent_count", 0),
        "last_plan": clock.at(getattr(target, "last_plan_at", None)),
        "pending": getattr(target, "pending_count", None) or 0,
    }


def _policy(policy: Policy, clock: Clock) -> dict[str, Any]:
    return {
        "policy": policy,
        "asks": words.asks_of(policy),
        "made": clock.at(policy.created_at),
        "pending": getattr(policy, "pending_count", 0),
    }
