"""What admins send: shape and plain mistakes. What only the database knows is refused by the use cases."""

from collections.abc import Sequence
from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _

from plans.errors import Sentence
from plans.identifiers import is_identifier
from plans.models import Agent, Target
from plans.policies import MAX_APPROVALS
from plans.registry_rules import RegistryError, check_url
from plans.roster import DELIVERED, GIVEN_UP, WAITING
from reviewer.models import Person
from reviewer.said import in_words

ROLE_CHOICES: Final = [
    ("reviewer", _("Reviewer: decides plans, but never those of agents they own")),
    ("auditor", _("Auditor: reads and exports everything, changes nothing")),
    ("admin", _("Admin: manages agents, targets, policies and people")),
]


class AdminForm(forms.Form):
    """Fields with the classes and the ids that the templates count on; several forms may stand on one page."""

    def __init__(self, data: Any = None, *, prefix_of_ids: str = "", **kwargs: Any) -> None:
        super().__init__(data, auto_id=f"{prefix_of_ids}%s", label_suffix="", **kwargs)
        for field in self.fields.values():
            if isinstance(field.widget, forms.TextInput | forms.Textarea | forms.Select) and not isinstance(
                field.widget, forms.CheckboxSelectMultiple
            ):
                field.widget.attrs.setdefault("class", "input")

    def refuse(self, error: Exception, field: str | None = None) -> None:
        """Say the use case's own sentence, at the field where it can be mended."""
        self.add_error(field, in_words(error.args[0]))

    @property
    def problems(self) -> list[tuple[str, str]]:
        """Where each mistake can be mended (an id), and its sentence."""
        found = []
        for name, errors in self.errors.items():
            where = self[name].id_for_label if name in self.fields else self._first_id()
            if name in self.fields and isinstance(self.fields[name], forms.MultipleChoiceField):
                where = f"{self[name].auto_id}_0"
            found += [(where, str(error)) for error in errors]
        return found

    def _first_id(self) -> str:
        return next((field.auto_id for field in self if not field.is_hidden), "main")


def _names(**kwargs: Any) -> forms.CharField:
    kwargs.setdefault("widget", forms.TextInput(attrs={"class": "input mono", "autocomplete": "off", **_LITERAL}))
    return forms.CharField(max_length=128, **kwargs)


_LITERAL: Final = {"autocapitalize": "off", "spellcheck": "false"}


def _address(**kwargs: Any) -> forms.CharField:
    attrs = {"class": "input mono", "inputmode": "url", "autocomplete": "off", **_LITERAL}
    return forms.CharField(max_length=2000, widget=forms.TextInput(attrs=attrs), **kwargs)


def _checked(name: str) -> str:
    if not is_identifier(name):
        raise forms.ValidationError(_("Use 1 to 128 letters, digits and _ . : - after a letter or digit."))
    return name


def _checked_url(url: str, what: str) -> str:
    try:
        if url:
            check_url(url, what=what)
    except RegistryError as error:
        raise forms.ValidationError(in_words(error.args[0])) from None
    return url


class NewAgentForm(AdminForm):
    """A new agent."""

    name = _names(label=_("Name"), help_text=_("How it is called in addresses, plans and the log. It stays for good."))
    owner = forms.ChoiceField(
        label=_("Owner"), help_text=_("The person who answers for it, and who never decides its plans.")
    )
    targets = forms.MultipleChoiceField(
        label=_("May plan at"), required=False, widget=forms.CheckboxSelectMultiple,
        help_text=_("It can plan nothing anywhere else."),
    )  # fmt: skip
    callback_url = _address(
        label=_("Callback URL (optional)"), required=False,
        help_text=_("Where the desk tells it of decisions: https, or http on loopback."),
    )  # fmt: skip

    def __init__(self, data: Any = None, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        people = Person.objects.filter(is_active=True).order_by("email")
        self.fields["owner"].choices = [(str(person.pk), called(person)) for person in people]  # type: ignore[attr-defined]  # a ChoiceField
        targets = Target.objects.filter(disabled_at=None).order_by("name").values_list("name", flat=True)
        self.fields["targets"].choices = [(name, name) for name in targets]  # type: ignore[attr-defined]  # a ChoiceField

    def clean_name(self) -> str:
        return _checked(self.cleaned_data["name"])

    def clean_callback_url(self) -> str:
        return _checked_url(self.cleaned_data["callback_url"], Sentence("callback URL"))


def called(person: Person) -> str:
    """A person as a choice: by name and address, for names repeat."""
    return f"{person.name} ({person.email})" if person.name else person.email


class AgentForm(NewAgentForm):
    """What of an agent may change."""

    def __init__(self, data: Any = None, *, agent: Agent, **kwargs: Any) -> None:
        targets = sorted(target.name for target in agent.targets.all())
        initial = {"owner": str(agent.owner_id), "targets": targets, "callback_url": agent.callback_url}
        super().__init__(data, initial=initial, **kwargs)
        del self.fields["name"]
        _keep_choice(self.fields["owner"], str(agent.owner_id), str(agent.owner))
        for name in targets:
            _keep_choice(self.fields["targets"], name, name)


def _keep_choice(field: Any, value: str, label: str) -> None:
    """What is true now can be kept, also where it could not be chosen anew: a disabled owner or target."""
    if value not in dict(field.choices):
        field.choices = [*field.choices, (value, label)]


class TypedNameForm(AdminForm):
    """The name of what is ended for good, typed."""

    typed = forms.CharField(
        max_length=254, widget=forms.TextInput(attrs={"class": "input mono", "autocomplete": "off", **_LITERAL})
    )

    def __init__(self, data: Any = None, *, name: str, **kwargs: Any) -> None:
        self.name = name
        super().__init__(data, **kwargs)

    def clean_typed(self) -> str:
        if self.cleaned_data["typed"].strip() != self.name:
            raise forms.ValidationError(_("That is not the name. Type it as it stands at the top of this page."))
        return self.name


class OperationsField(forms.CharField):
    """Names of operations, separated by spaces, commas or lines."""

    def __init__(self, **kwargs: Any) -> None:
        attrs = {"class": "input mono", "rows": 2, **_LITERAL}
        super().__init__(required=False, max_length=8000, widget=forms.Textarea(attrs=attrs), **kwargs)

    def clean(self, value: Any) -> list[str]:
        names = list(dict.fromkeys(super().clean(value).replace(",", " ").split()))
        wrong = [name for name in names if not is_identifier(name)]
        if wrong:
            raise forms.ValidationError(_("%(name)s is no name of an operation."), params={"name": wrong[0]})
        return names


def _bearer(**kwargs: Any) -> forms.CharField:
    attrs = {"class": "input mono", "autocomplete": "new-password", **_LITERAL}
    widget = forms.PasswordInput(attrs=attrs, render_value=False)
    return forms.CharField(required=False, max_length=4096, strip=False, widget=widget, **kwargs)


class AddressForm(AdminForm):
    """Where a remote target is and what it is spoken to with."""

    base_url = _address(label=_("Base URL"), help_text=_("https, or http on loopback. Scheme, host, port and path."))
    commit_path = _address(
        label=_("Path of a commit"), initial="/{operation}/commit",
        help_text=_("{operation} and {plan_id} are filled in."),
    )  # fmt: skip
    status_path = _address(label=_("Path of a plan's state"), initial="/plans/{plan_id}")
    bearer = _bearer(
        label=_("Bearer credentials"),
        help_text=_("Kept sealed and never shown again. Left empty, they stay as they are."),
    )
    removes_bearer = forms.BooleanField(
        label=_("Remove the stored credentials"), required=False, help_text=_("The target is called without any then.")
    )

    def clean(self) -> dict[str, Any]:
        """`bearer` as the use case takes it: None leaves the credentials as they are, "" takes them away."""
        given = dict(super().clean() or self.cleaned_data)
        if given.pop("removes_bearer", False):
            if given.get("bearer"):
                self.add_error("bearer", _("Either new credentials, or none: not both."))
            given["bearer"] = ""
        elif "bearer" in given:
            given["bearer"] = given["bearer"] or None
        return given

    def clean_base_url(self) -> str:
        return _checked_url(self.cleaned_data["base_url"], Sentence("base URL"))


class OperationsForm(AdminForm):
    """What a remote target offers."""

    operations = OperationsField(label=_("Operations"), help_text=_("Names with spaces between them. Empty: any."))


def _approvals(**kwargs: Any) -> forms.IntegerField:
    attrs = {"class": "input mono short", "inputmode": "numeric"}
    return forms.IntegerField(
        label=_("How many people approve"), min_value=0, max_value=MAX_APPROVALS, widget=forms.TextInput(attrs=attrs),
        **kwargs,
    )  # fmt: skip


class NewTargetForm(AddressForm):
    """A new remote target."""

    name = _names(label=_("Name"), help_text=_("How agents and the log call it. It stays for good."))
    operations = OperationsField(label=_("Operations"), help_text=_("Names with spaces between them. Empty: any."))
    approvals = _approvals(initial=1, help_text=_("0: agents write without anybody's approval."))

    field_order = ("name", "base_url", "operations", "approvals", "bearer", "commit_path", "status_path")

    def __init__(self, data: Any = None, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        del self.fields["removes_bearer"]
        self.fields["bearer"].help_text = _("Kept sealed and never shown again. Empty: none are sent.")

    def clean_name(self) -> str:
        return _checked(self.cleaned_data["name"])


class PolicyForm(AdminForm):
    """A new version of a target's policy."""

    approvals = _approvals()
    is_guarded = forms.BooleanField(
        label=_("Ask for a typed fact of every plan"), required=False,
        help_text=_("Otherwise only where a plan deletes or can't be undone."),
    )  # fmt: skip
    refuses_unconfirmed = forms.BooleanField(
        label=_("Refuse plans that the target does not confirm"), required=False,
        help_text=_("They can be read and rejected, and never approved."),
    )  # fmt: skip

    def __init__(self, data: Any = None, *, is_hosted: bool, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        if is_hosted:
            self.fields["approvals"].required = False
            self.fields["approvals"].help_text = _("Empty: each operation says how many. 0: nobody has to.")
            del self.fields["refuses_unconfirmed"]
        else:
            self.fields["approvals"].help_text = _("0: agents write without anybody's approval.")


class NewPersonForm(AdminForm):
    """Somebody new."""

    email = forms.EmailField(
        label=_("E-mail address"), max_length=254,
        widget=forms.EmailInput(attrs={"class": "input", "autocomplete": "off"}),
    )  # fmt: skip
    name = forms.CharField(label=_("Name"), max_length=200, required=False)
    roles = forms.MultipleChoiceField(
        label=_("Roles"), choices=ROLE_CHOICES, widget=forms.CheckboxSelectMultiple,
        error_messages={"required": _("Choose at least one role.")},
    )  # fmt: skip


class RolesForm(AdminForm):
    """What somebody may do."""

    roles = forms.MultipleChoiceField(
        label=_("Roles"), choices=ROLE_CHOICES, widget=forms.CheckboxSelectMultiple,
        error_messages={"required": _("Choose at least one role, or disable the person.")},
    )  # fmt: skip


class NewStreamForm(AdminForm):
    """A new destination of the log."""

    name = _names(label=_("Name"), help_text=_("How the desk and the log call it. It stays for good."))
    url = _address(label=_("Address"), help_text=_("https, or http on loopback. It gets signed POSTs."))
    from_index = forms.IntegerField(
        label=_("First place"), min_value=0, max_value=2**53, initial=0,
        widget=forms.TextInput(attrs={"class": "input mono short", "inputmode": "numeric"}),
    )  # fmt: skip

    def __init__(self, data: Any = None, *, size: int, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        later = _("0: the whole log. %(size)d: only what comes from now on.") % {"size": size}
        self.fields["from_index"].help_text = later if size else _("0: the whole log.")

    def clean_name(self) -> str:
        return _checked(self.cleaned_data["name"])


class CallbacksForm(forms.Form):
    """Filters of the list of callbacks, as they stand in the address."""

    OUTCOMES: Final = [
        ("", _("All")), (WAITING, _("Waiting")), (DELIVERED, _("Delivered")), (GIVEN_UP, _("Given up")),
    ]  # fmt: skip

    agent = forms.CharField(label=_("Agent"), required=False, max_length=128)
    outcome = forms.ChoiceField(label=_("Outcome"), required=False, choices=OUTCOMES)


def chosen_plans(sent: Sequence[str]) -> list[int]:
    """The keys of the plans that were ticked; what is no key is left out."""
    return [int(text) for text in sent if text.isascii() and text.isdigit() and len(text) <= 18]
