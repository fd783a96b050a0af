"""Who hears what is meant for whom: everybody for themselves, and a stand-in for whoever is away."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from reviewer.models import Person
from reviewer.moments import zone_of
from reviewer.notifications.models import Channel, Preference, TargetPace
from reviewer.notifications.occasions import FOR_ADMINS, Occasion
from reviewer.notifications.timing import Rhythm

MAIL_LABEL = "E-mail"


@dataclass(frozen=True, slots=True)
class Reader:
    """A person as the sweep sees them: their preference, their channels that are on, whether they are away."""

    person: Person
    preference: Preference
    channels: tuple[int, ...]
    is_away: bool
    paces: Mapping[int, str]
    """By target, where it is not the preference's."""

    def rhythm(self, target_pk: int) -> Rhythm:
        """When this person wants to be told of plans under the policy of this target."""
        usual = rhythm_of(self.person, self.preference)
        return replace(usual, pace=self.paces.get(target_pk, usual.pace))


@dataclass(frozen=True, slots=True)
class Route:
    """What is meant for `principal` reaches `recipient`."""

    principal: int
    recipient: int


def rhythm_of(person: Person, preference: Preference) -> Rhythm:
    """When this person wants to be told, by their own clock."""
    quiet = (preference.quiet_from, preference.quiet_to)
    return Rhythm(
        zone=zone_of(person.time_zone),
        pace=preference.pace,
        every=timedelta(minutes=preference.every_minutes),
        daily_at=preference.daily_at,
        quiet=(quiet[0], quiet[1]) if quiet[0] is not None and quiet[1] is not None else None,
        urgent_breaks_through=preference.urgent_breaks_through,
    )


def is_away(preference: Preference, now: datetime) -> bool:
    """Within the time this person said to be away; its end is not part of it."""
    if preference.away_from is None or preference.away_until is None:
        return False
    return preference.away_from <= now < preference.away_until


def may_stand_in(stand_in: Person, person: Person) -> bool:
    """Whether somebody holds the role by which the other is told: a reviewer's stand-in reviews."""
    needed = {"reviewer"} if person.is_reviewer else {"admin"}
    return stand_in.pk != person.pk and needed <= set(stand_in.roles)


@transaction.atomic
def preference_of(person: Person) -> Preference:
    """The person's preference, with an e-mail channel beside it; both are made the first time anybody asks."""
    known = Preference.objects.select_related("stand_in").filter(person=person).first()
    if known is not None:
        return known
    # Two may make it at once: whoever comes second finds it made, without an error in the database's log.
    Preference.objects.bulk_create([Preference(person=person)], ignore_conflicts=True)
    Channel.objects.bulk_create([Channel(person=person, kind=Channel.EMAIL, label=MAIL_LABEL)], ignore_conflicts=True)
    return Preference.objects.select_related("stand_in").get(person=person)


def find_readers(now: datetime) -> dict[int, Reader]:
    """Everybody who may be told of plans (reviewers and admins), by their key."""
    people = Person.objects.filter(is_active=True).exclude(is_reviewer=False, is_admin=False)
    for person in people.filter(preference=None):
        preference_of(person)
    channels: dict[int, list[int]] = {}
    rows = Channel.objects.filter(is_on=True)
    if not settings.EMAIL_HOST:
        rows = rows.exclude(kind=Channel.EMAIL)
    for person_id, pk in rows.order_by("pk").values_list("person_id", "pk"):
        channels.setdefault(person_id, []).append(pk)
    paces: dict[int, dict[int, str]] = {}
    for person_id, target_id, pace in TargetPace.objects.values_list("person_id", "target_id", "pace"):
        paces.setdefault(person_id, {})[target_id] = pace
    return {
        person.pk: Reader(
            person,
            person.preference,
            tuple(channels.get(person.pk, ())),
            is_away(person.preference, now),
            paces.get(person.pk, {}),
        )
        for person in people.select_related("preference")
    }


def routes(readers: dict[int, Reader], occasion: Occasion) -> Iterable[Route]:
    """Who hears of an occasion, for whom.

    Somebody who is away is stood in for by their stand-in, or is told nothing where they named none. A stand-in who
    cannot (disabled, without the role, away too, or with no channel) leaves the news with whom it is for.
    """
    for reader in readers.values():
        if occasion.value not in reader.preference.occasions:
            continue
        if not reader.is_away:
            recipient = reader
        elif reader.preference.stand_in_id is None:
            if occasion is not Occasion.ENDED:
                continue  # what still waits when they are back is told then
            recipient = reader
        else:
            recipient = _stand_in(readers, reader) or reader
        if recipient.channels:
            yield Route(reader.person.pk, recipient.person.pk)


def _stand_in(readers: dict[int, Reader], reader: Reader) -> Reader | None:
    found = readers.get(reader.preference.stand_in_id or 0)
    if found is None or found.is_away or not found.channels or not may_stand_in(found.person, reader.person):
        return None
    return found


def principals(readers: dict[int, Reader], occasion: Occasion, named: int | None) -> set[int]:
    """For whom an occasion is meant, where that does not depend on the plan: admins, or the one person they named."""
    if occasion not in FOR_ADMINS:
        return set(readers)
    if named in readers and occasion is Occasion.ESCALATED:
        return {named} if named is not None else set()
    return {pk for pk, reader in readers.items() if reader.person.is_admin}
