"""What people send from the page of notifications: shape and plain mistakes."""

from collections.abc import Mapping, Sequence
from datetime import time
from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _

from plans.models import Target
from reviewer.admin_forms import AdminForm, called
from reviewer.models import Person
from reviewer.notifications import timing
from reviewer.notifications.models import Preference
from reviewer.notifications.occasions import FOR_ADMINS, LABELS, Occasion
from reviewer.notifications.routing import may_stand_in

MAX_TARGETS: Final = 100
"""Targets that can be switched on the page; what is beyond is always told of."""

PACES: Final = [
    (timing.AT_ONCE, _("At once")),
    (timing.EVERY, _("Together, every so many minutes")),
    (timing.DAILY, _("Together, once a day")),
]
PACES_OF_A_TARGET: Final = [("", _("Like everything else")), *PACES, (timing.NEVER, _("Not at all"))]

_LOCAL: Final = "%Y-%m-%dT%H:%M"


def _time(label: Any, **kwargs: Any) -> forms.TimeField:
    widget = forms.TimeInput(attrs={"type": "time", "class": "input"}, format="%H:%M")
    return forms.TimeField(label=label, required=False, widget=widget, **kwargs)


def _moment(label: Any) -> forms.DateTimeField:
    widget = forms.DateTimeInput(attrs={"type": "datetime-local", "class": "input"}, format=_LOCAL)
    return forms.DateTimeField(
        label=label, required=False, widget=widget, input_formats=[_LOCAL, f"{_LOCAL}:%S", "%Y-%m-%d %H:%M"]
    )


class PreferenceForm(AdminForm):
    """How one person wants to be told. Times of day are on this person's clock."""

    occasions = forms.MultipleChoiceField(
        label=_("Tell me when"), required=False, widget=forms.CheckboxSelectMultiple, choices=[]
    )
    pace = forms.ChoiceField(label=_("How often"), choices=PACES)
    every_minutes = forms.IntegerField(
        label=_("Minutes between"),
        required=False,
        min_value=5,
        max_value=1440,
        help_text=_("For “every so many minutes”: from 5 to 1440. A plan may expire in between."),
        widget=forms.NumberInput(attrs={"class": "input"}),
    )
    daily_at = _time(_("Time of day"), help_text=_("For “once a day”. A plan may expire before."))
    quiet_from = _time(_("Quiet from"))
    quiet_to = _time(_("Quiet until"))
    urgent_breaks_through = forms.BooleanField(
        label=_("Tell me urgent news at once, even in quiet hours"),
        required=False,
        help_text=_("What expires soon, and unknown outcomes. They are not kept for a digest either."),
    )
    away_from = _moment(_("Away from"))
    away_until = _moment(_("Away until"))
    stand_in = forms.ChoiceField(
        label=_("Stand-in"),
        required=False,
        help_text=_("Is told instead of you meanwhile, and may decide what they may decide anyway."),
    )

    def __init__(
        self, data: Any = None, *, person: Person, preference: Preference, paces: Mapping[int, str], **kwargs: Any
    ) -> None:
        self.person = person
        self.shown = list(Target.objects.filter(disabled_at=None).order_by("name")[:MAX_TARGETS])
        names = list(self.base_fields)
        initial = {name: getattr(preference, name) for name in names if name != "stand_in"}
        initial["stand_in"] = str(preference.stand_in_id or "")
        initial |= {self.name_of(target): paces.get(target.pk, "") for target in self.shown}
        super().__init__(data, initial=initial, **kwargs)
        for target in self.shown:
            field = forms.ChoiceField(label=target.name, required=False, choices=PACES_OF_A_TARGET)
            field.widget.attrs["class"] = "input"
            self.fields[self.name_of(target)] = field
        is_admin = "admin" in person.roles
        offered = [occasion for occasion in LABELS if is_admin or occasion not in FOR_ADMINS]
        offered = [occasion for occasion in offered if person.is_reviewer or occasion in FOR_ADMINS] or offered
        self.offered = offered
        self._choose("occasions", [(occasion.value, LABELS[occasion]) for occasion in offered])
        others = Person.objects.filter(is_active=True).exclude(pk=person.pk).order_by("email")
        self.stand_ins = [other for other in others if may_stand_in(other, person)]
        self._choose("stand_in", [("", _("Nobody")), *((str(one.pk), called(one)) for one in self.stand_ins)])

    def _choose(self, name: str, choices: Sequence[tuple[str, Any]]) -> None:
        self.fields[name].choices = choices  # type: ignore[attr-defined]  # a ChoiceField

    def clean(self) -> dict[str, Any]:
        sent = super().clean() or {}
        if (sent.get("quiet_from") is None) != (sent.get("quiet_to") is None) and not self.errors:
            self.add_error("quiet_to", _("Quiet hours need both a start and an end."))
        if sent.get("quiet_from") is not None and sent.get("quiet_from") == sent.get("quiet_to"):
            self.add_error("quiet_to", _("Quiet hours end at another time than they start."))
        start, end = sent.get("away_from"), sent.get("away_until")
        for name, at in (("away_from", start), ("away_until", end)):
            if at is not None and not 2000 <= at.year <= 2999:
                self.add_error(name, _("Give a year from 2000 to 2999."))
                return sent
        if (start is None) != (end is None) and not {"away_from", "away_until"} & set(self.errors):
            self.add_error("away_until" if end is None else "away_from", _("Say from when, and until when."))
        elif start is not None and end is not None and start >= end:
            self.add_error("away_until", _("This is not after its start."))
        if (
            sent.get("pace") == timing.EVERY
            and sent.get("every_minutes") is None
            and "every_minutes" not in self.errors
        ):
            self.add_error("every_minutes", _("Say how many minutes."))
        if sent.get("pace") == timing.DAILY and sent.get("daily_at") is None and "daily_at" not in self.errors:
            self.add_error("daily_at", _("Say at what time."))
        return sent

    def values(self, preference: Preference) -> dict[str, Any]:
        """The preference's new values. What the form does not offer this person stays as it is."""
        sent = dict(self.cleaned_data)
        unseen = [name for name in preference.occasions if Occasion(name) not in self.offered]
        chosen = {*sent["occasions"], *unseen}
        stand_in = next((one for one in self.stand_ins if str(one.pk) == sent["stand_in"]), None)
        return {
            "occasions": [occasion.value for occasion in Occasion if occasion.value in chosen],
            "pace": sent["pace"],
            "every_minutes": sent["every_minutes"] or preference.every_minutes,
            "daily_at": sent["daily_at"] or preference.daily_at or time(9),
            "quiet_from": sent["quiet_from"],
            "quiet_to": sent["quiet_to"],
            "urgent_breaks_through": sent["urgent_breaks_through"],
            "away_from": sent["away_from"],
            "away_until": sent["away_until"],
            "stand_in": stand_in,
        }

    @staticmethod
    def name_of(target: Target) -> str:
        """The name of the field that says how often this person hears of plans at a target."""
        return f"of-{target.pk}"

    @property
    def of_targets(self) -> list[forms.BoundField]:
        """Those fields, for the page."""
        return [self[self.name_of(target)] for target in self.shown]

    def paces(self) -> dict[Target, str]:
        """What was said of each target that was on the page; one that came meanwhile stays as it is."""
        said = [target for target in self.shown if self.name_of(target) in self.data]
        return {target: self.cleaned_data[self.name_of(target)] for target in said}


class ChatForm(AdminForm):
    """A chat service."""

    address = forms.CharField(
        label=_("Apprise address"),
        max_length=2000,
        help_text=_("Such as slack://… or jsons://…. It is sealed, and never shown again."),
        widget=forms.TextInput(
            attrs={"class": "input mono", "autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}
        ),
    )


class PushForm(AdminForm):
    """What a browser says of its subscription."""

    endpoint = forms.CharField(max_length=1000)
    p256dh = forms.CharField(max_length=200)
    auth = forms.CharField(max_length=100)


class EscalationForm(AdminForm):
    """Whom admins name for plans that nobody decides."""

    person = forms.ChoiceField(
        label=_("Who hears of plans that nobody decides"),
        required=False,
        help_text=_("Shortly before they expire, and after those who may decide were told."),
    )

    def __init__(self, data: Any = None, *, named: int | None, **kwargs: Any) -> None:
        super().__init__(data, initial={"person": str(named or "")}, **kwargs)
        self.people = [
            one
            for one in Person.objects.filter(is_active=True).order_by("email")
            if {"reviewer", "admin"} & set(one.roles)
        ]
        choices = [("", _("Every admin")), *((str(one.pk), called(one)) for one in self.people)]
        self.fields["person"].choices = choices  # type: ignore[attr-defined]  # a ChoiceField

    def named(self) -> Person | None:
        return next((one for one in self.people if str(one.pk) == self.cleaned_data["person"]), None)
