"""What people send besides decisions: filters, settings, what became of an unknown write. Shape only."""

from typing import TYPE_CHECKING, Any
from zoneinfo import available_timezones

from django import forms
from django.utils.translation import gettext_lazy as _

from reviewer.models import Person
from reviewer.words import REASON_CHOICES, STATE_CHOICES


class SettleForm(forms.Form):
    """What became of an unknown write, said by hand."""

    was_made = forms.TypedChoiceField(choices=[("yes", ""), ("no", "")], coerce=lambda sent: sent == "yes")


class HistoryForm(forms.Form):
    """Filters of the list of all plans, as they stand in the address."""

    state = forms.ChoiceField(required=False, choices=[("", _("All states")), *STATE_CHOICES])
    reason = forms.ChoiceField(required=False, choices=[("", _("Any end")), *REASON_CHOICES])
    agent = forms.CharField(required=False, max_length=128)
    target = forms.CharField(required=False, max_length=128)
    operation = forms.CharField(required=False, max_length=128)
    q = forms.CharField(required=False, max_length=512)


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
    has_single_key_shortcuts = forms.BooleanField(label=_("Single-key shortcuts"), required=False)

    class Meta:
        model = Person
        fields = ("time_zone", "theme", "has_single_key_shortcuts")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs.setdefault("class", "input" if not isinstance(field, forms.BooleanField) else "")
