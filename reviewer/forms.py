"""What people send besides decisions: filters, settings, what became of an unknown write. Shape only."""

from datetime import date
from typing import TYPE_CHECKING, Any, Self
from zoneinfo import available_timezones

from django import forms
from django.db.models import Exists, OuterRef, Q
from django.forms.utils import ErrorDict
from django.utils.translation import gettext_lazy as _

from plans.models import Approval, Rejection
from reviewer.models import Person
from reviewer.words import REASON_CHOICES, STATE_CHOICES


class SettleForm(forms.Form):
    """What became of an unknown write, said by hand."""

    was_made = forms.TypedChoiceField(choices=[("yes", ""), ("no", "")], coerce=lambda sent: sent == "yes")


class InboxForm(forms.Form):
    """Filters of the inbox, as they stand in the address."""

    agent = forms.CharField(label=_("Agent"), required=False, max_length=128)
    target = forms.CharField(label=_("Target"), required=False, max_length=128)
    q = forms.CharField(label=_("Plan id, intent, task or record"), required=False, max_length=512)


class HistoryForm(forms.Form):
    """Filters of the list of all plans, as they stand in the address."""

    state = forms.ChoiceField(label=_("State"), required=False, choices=[("", _("All states")), *STATE_CHOICES])
    reason = forms.ChoiceField(
        label=_("Not done because"), required=False, choices=[("", _("Any end")), *REASON_CHOICES]
    )
    agent = forms.CharField(label=_("Agent"), required=False, max_length=128)
    target = forms.CharField(label=_("Target"), required=False, max_length=128)
    operation = forms.CharField(label=_("Operation"), required=False, max_length=128)
    by = forms.ChoiceField(label=_("Decided by"), required=False)
    since = forms.DateField(label=_("Received from (UTC)"), required=False, input_formats=["%Y-%m-%d"])
    until = forms.DateField(label=_("Up to and with (UTC)"), required=False, input_formats=["%Y-%m-%d"])
    q = forms.CharField(label=_("Plan id, intent, task or record"), required=False, max_length=512)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        decided = [Exists(fact.objects.filter(reviewer=OuterRef("pk"))) for fact in (Approval, Rejection)]
        people = Person.objects.filter(Q(is_reviewer=True) | decided[0] | decided[1]).order_by("name", "email", "pk")
        named = [(str(person.pk), str(person)) for person in people[:500]]
        self.fields["by"].choices = [("", _("Anybody")), *named]  # type: ignore[attr-defined]  # a ChoiceField

    def clean(self) -> dict[str, Any]:
        given = dict(super().clean() or self.cleaned_data)
        since, until = given.get("since"), given.get("until")
        if since and until and until < since:
            self.add_error("until", _("The end is before the start."))
        if until == date.max:
            self.add_error("until", _("There is no day after this one."))
        return given


def _zones() -> list[tuple[str, str]]:
    """Zones that have a city: a bare offset is no place."""
    names = (
        name for name in available_timezones() if "/" in name and not name.startswith(("Etc/", "posix/", "right/"))
    )
    return [("UTC", "UTC"), *((name, name.replace("_", " ")) for name in sorted(names))]


if TYPE_CHECKING:
    _PersonForm = forms.ModelForm[Person]
else:
    _PersonForm = forms.ModelForm  # generic for the type checker alone


class SettingsForm(_PersonForm):
    """How the desk looks to one person."""

    time_zone = forms.ChoiceField(label=_("Your time zone"), choices=_zones)
    theme = forms.ChoiceField(
        label=_("Theme"), choices=[("system", _("As the device")), ("light", _("Light")), ("dark", _("Dark"))]
    )
    is_local_time_first = forms.BooleanField(label=_("My own time stands first"), required=False)
    has_single_key_shortcuts = forms.BooleanField(label=_("Single-key shortcuts"), required=False)

    class Meta:
        model = Person
        fields = ("time_zone", "is_local_time_first", "theme", "has_single_key_shortcuts")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs.setdefault("class", "input" if not isinstance(field, forms.BooleanField) else "")


def _password(kind: str) -> forms.PasswordInput:
    return forms.PasswordInput(attrs={"class": "input", "autocomplete": f"{kind}-password"}, render_value=False)


class PasswordForm(forms.Form):
    """A new password, by somebody who knows the present one."""

    present = forms.CharField(label=_("Present password"), strip=False, max_length=4096, widget=_password("current"))
    new = forms.CharField(label=_("New password"), strip=False, max_length=4096, widget=_password("new"))

    def __init__(self, *args: Any, person: Person, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.person = person

    def clean_present(self) -> str:
        present = str(self.cleaned_data["present"])
        if not self.person.check_password(present):
            raise forms.ValidationError(_("That is not your present password."))
        return present

    def refuse_tries(self) -> Self:
        """Says that there were too many tries, without looking at what was sent."""
        self.cleaned_data, self._errors = {}, ErrorDict()
        self.add_error("present", _("Too many tries. Wait five minutes, or ask an admin for a new password."))
        return self
