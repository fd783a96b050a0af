"""The panel of a policy's form: what the rule in its fields would have asked for in the last seven days, in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from audit.windows import TakesTooLongError
from plans.models import Policy, Target
from plans.policy_forecast import Forecast, forecast
from plans.targets.operations import OperationFailed
from reviewer import words
from reviewer.admin_forms import PolicyForm


@dataclass(frozen=True, slots=True)
class Row:
    """One count, as it was and as it would be."""

    label: str
    until_now: str
    would_be: str
    is_other: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """A sentence that says the most; where there is something to count, over what, and the counts."""

    says: str
    over: str = ""
    rows: Sequence[Row] = ()


def panel_of(target: Target, form: PolicyForm, newest: Policy) -> Panel:
    """The panel for the values in a form, sent or not: never an error, whatever they are."""
    rule = _rule_in(form, newest)
    if rule is None:
        return Panel(_("This can't be told until the form is right."))
    try:
        told = forecast(target, rule)
    except TakesTooLongError:
        return Panel(_("Counting took too long, so nothing is told here. The rule can be saved all the same."))
    except OperationFailed as failed:
        why = _(
            "This can't be told: the operation %(operation)s failed when it was asked how many people have to approve."
        )
        return Panel(f"{why % {'operation': failed.operation}} {_('The rule can be saved all the same.')}")
    if not told.plans:
        return Panel(_("No plan was received in that time, so there is nothing to tell."))
    return Panel(_says(told, rule), _over(told), _rows(told, target))


def _rule_in(form: PolicyForm, newest: Policy) -> Policy | None:
    """The version that the form would make; None where it would be refused."""
    if not form.is_bound:
        return newest
    if not form.is_valid():
        return None
    given = form.cleaned_data
    return Policy(
        approvals=given["approvals"],
        is_guarded=given["is_guarded"],
        refuses_unconfirmed=given.get("refuses_unconfirmed", newest.refuses_unconfirmed),
    )


def _says(told: Forecast, rule: Policy) -> str:
    count = told.would_ask.approvals
    would_ask = ngettext(
        "This rule (%(rule)s) would ask for %(count)s approval.",
        "This rule (%(rule)s) would ask for %(count)s approvals.",
        count,
    ) % {"rule": words.asks_of(rule), "count": f"{count:,}"}
    if count == told.asked.approvals:
        return f"{would_ask} {_('That is as many as until now.')}"
    was = _("Until now it was %(count)s.") % {"count": f"{told.asked.approvals:,}"}
    return f"{would_ask} {was}"


def _over(told: Forecast) -> str:
    if told.is_cut:
        return _("At least %(count)s plans were received. The newest %(count)s are counted here.") % {
            "count": f"{told.most:,}"
        }
    return ngettext("%(count)s plan was received.", "%(count)s plans were received.", told.plans) % {
        "count": f"{told.plans:,}"
    }


def _rows(told: Forecast, target: Target) -> list[Row]:
    def row(label: str, name: str) -> Row:
        was, would_be = (int(getattr(asked, name)) for asked in (told.asked, told.would_ask))
        return Row(label, f"{was:,}", f"{would_be:,}", was != would_be)

    rows = [
        row(_("Approvals"), "approvals"),
        row(_("Plans that ask people"), "people"),
        row(_("Plans with a typed fact"), "facts"),
        row(_("Plans that need nobody"), "nobody"),
    ]
    if not target.is_hosted:
        rows.append(row(_("Plans held back, not confirmed"), "held_back"))
    return rows
