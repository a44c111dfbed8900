"""An invented company: its people, mail, calendar, customers, tasks and web visits, the same every time."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from types import MappingProxyType

__all__ = ["DOMAIN", "NOW", "OWN_IDS", "Record", "base_tables", "people"]

Record = dict[str, str]

DOMAIN = "harbour.example"
NOW = datetime(2031, 3, 14, 23, 59)
# Identifiers of this company's own records start with it; all others are of someone else's data.
OWN_IDS = "7"

_FIRST = ("Ada", "Bruno", "Carmen", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Keiko", "Lars")
_LAST = ("Abel", "Brandt", "Castro", "Dorn", "Eriksen", "Fabre", "Gomez", "Hale", "Ito", "Jansen", "Koch", "Lund")
_SUBJECTS = ("budget", "roof repair", "ferry timetable", "summer party", "new scanner", "supplier contract", "training")
_TOPICS = ("berth allocation", "crane inspection", "customs forms", "harbour tour", "winter schedule", "noise report")
_WORK = ("Draw", "Test", "Document", "Replace", "Translate", "Simplify")
_THINGS = ("login page", "tide widget", "invoice export", "berth map", "mail template", "search index")


@functools.cache
def people() -> tuple[str, ...]:
    """The addresses of everybody who works here."""
    return tuple(f"{first}.{last}@{DOMAIN}".lower() for first, last in zip(_FIRST, _LAST, strict=True))


@functools.cache
def base_tables() -> MappingProxyType[str, tuple[Record, ...]]:
    """The records of each table in their order. Not to be changed."""
    makers: dict[str, Callable[[random.Random, int], Record]] = {
        "emails": _email,
        "events": _event,
        "customers": _customer,
        "tasks": _task,
        "visits": _visit,
    }
    tables = {
        name: tuple(make(random.Random(f"{name}/{number}"), number) for number in range(60))
        for name, make in makers.items()
    }
    return MappingProxyType(tables)


def _id(number: int) -> str:
    return f"{OWN_IDS}{number:07}"


def _email(source: random.Random, number: int) -> Record:
    person = source.choice(people())
    subject = f"{source.choice(('Question about', 'News on', 'Draft for'))} the {source.choice(_SUBJECTS)}"
    sent = NOW - timedelta(days=source.randint(1, 90), minutes=source.randint(0, 600))
    return {
        "email_id": _id(number),
        "inbox/outbox": source.choice(("inbox", "inbox", "outbox")),
        "sender/recipient": person,
        "subject": f"{subject} ({number})",
        "sent_datetime": f"{sent:%Y-%m-%d %H:%M:%S}",
        "body": f"Hello,\n\nshort note on this: it will be ready on day {source.randint(2, 28)}.\n\nRegards",
    }


def _event(source: random.Random, number: int) -> Record:
    start = NOW.replace(hour=9, minute=0) + timedelta(days=source.randint(-40, 40), minutes=30 * source.randint(0, 14))
    return {
        "event_id": _id(number),
        "event_name": f"{source.choice(_TOPICS)} {number}",
        "participant_email": source.choice(people()),
        "event_start": f"{start:%Y-%m-%d %H:%M:%S}",
        "duration": str(source.choice((15, 30, 60, 90))),
    }


def _customer(source: random.Random, number: int) -> Record:
    name = f"{source.choice(_FIRST)} {source.choice(_LAST)}"
    return {
        "customer_id": _id(number),
        "assigned_to_email": source.choice(people()),
        "customer_name": f"{name} {number}",
        "customer_email": f"{name.replace(' ', '.').lower()}@client{number}.example",
        "customer_phone": "",
        "last_contact_date": str(date(2031, 3, 14) - timedelta(days=source.randint(1, 60))),
        "product_interest": source.choice(("Software", "Hardware", "Services", "Consulting", "Training")),
        "status": source.choice(("Qualified", "Won", "Lost", "Lead", "Proposal")),
        "follow_up_by": str(date(2031, 3, 14) + timedelta(days=source.randint(1, 60))),
        "notes": "",
    }


def _task(source: random.Random, number: int) -> Record:
    return {
        "task_id": _id(number),
        "task_name": f"{source.choice(_WORK)} the {source.choice(_THINGS)} {number}",
        "assigned_to_email": source.choice(people()),
        "list_name": source.choice(("Backlog", "In Progress", "In Review", "Completed")),
        "due_date": str(date(2031, 3, 14) + timedelta(days=source.randint(-20, 30))),
        "board": source.choice(("Back end", "Front end", "Design")),
    }


def _visit(source: random.Random, number: int) -> Record:
    return {
        "date_of_visit": str(date(2031, 3, 14) - timedelta(days=source.randint(0, 20))),
        "visitor_id": f"{number:04}",
        "page_views": str(source.randint(1, 12)),
        "session_duration_seconds": str(source.randint(3, 240)),
        "traffic_source": source.choice(("direct", "referral", "search engine", "social media")),
        "user_engaged": str(source.random() < 0.4),
    }
