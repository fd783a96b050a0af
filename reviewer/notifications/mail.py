"""Sending by e-mail, through the mail server of the environment."""

import smtplib
from email.utils import formatdate
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.core.mail.message import BadHeaderError

from plans.errors import Sentence
from reviewer.notifications.texts import Text
from reviewer.notifications.transports import NotDelivered


def send(address: str, text: Text, key: UUID) -> None:
    """One mail, as plain text and HTML. The same key is the same Message-ID. Raises `NotDelivered`."""
    if not settings.EMAIL_HOST:
        raise NotDelivered(Sentence("No mail server is set up (EMAIL_HOST)."))
    domain = urlsplit(settings.BASE_URL).hostname or "localhost"
    headers = {
        "Message-ID": f"<{key.hex}@{domain}>",
        "Date": formatdate(usegmt=True),
        "Auto-Submitted": "auto-generated",
        "X-Auto-Response-Suppress": "All",
    }
    try:
        mail = EmailMultiAlternatives(text.subject, text.plain, to=[address], headers=headers)
        mail.attach_alternative(text.html, "text/html")
        mail.send()
    except BadHeaderError:
        raise NotDelivered(Sentence("The message has a line break where there may be none.")) from None
    except smtplib.SMTPAuthenticationError:
        raise NotDelivered(Sentence("The mail server refused the desk's sign-in.")) from None
    except smtplib.SMTPRecipientsRefused as error:
        codes = sorted({code for code, _ in error.recipients.values()})
        answered = ", ".join(map(str, codes))
        raise NotDelivered(Sentence("The mail server refused the address (%(codes)s).", codes=answered)) from None
    except smtplib.SMTPResponseException as error:
        raise NotDelivered(Sentence("The mail server answered %(code)s.", code=error.smtp_code)) from None
    except (smtplib.SMTPException, OSError) as error:
        why = type(error).__name__
        raise NotDelivered(Sentence("The mail server could not be reached (%(why)s).", why=why)) from None
