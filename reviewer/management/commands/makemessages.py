"""`makemessages`, which also finds the sentences of the domain (`plans.errors.Sentence`)."""

from django.core.management.commands import makemessages


class Command(makemessages.Command):
    """Django's own, with one more name to look for."""

    xgettext_options = [*makemessages.Command.xgettext_options, "--keyword=Sentence"]
