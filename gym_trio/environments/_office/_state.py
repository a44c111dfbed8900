"""`Office`: the state of one session, and the checks and steps that its operations share.

A record that is not in this company's data, by its identifier, is taken to exist with unknown fields: rows that were
made for other data are judged by what their calls would do there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import attrs

from ._data import DOMAIN, OWN_IDS, Record, base_tables, people

# Fields whose case matters when two end states are compared.
_EXACT_FIELDS = frozenset({"status", "list_name", "board"})


class Refused(Exception):
    """What the model is told instead of a change."""


@attrs.define
class Table:
    """Records by identifier, in order; ``key`` is the field of the identifier, ``what`` the word for a record."""

    name: str
    key: str
    what: str
    records: dict[str, Record] = attrs.field(init=False)
    # Records of other data that were deleted; all others of it are taken to exist.
    gone: set[str] = attrs.field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        self.records = {record[self.key]: dict(record) for record in base_tables()[self.name]}

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a record, its identifier first."""
        first = base_tables()[self.name][0]
        return (self.key, *(field for field in first if field != self.key))

    def get(self, identifier: Any) -> Record:
        """The record, to be read or changed. **Errors**: `Refused` when there is none."""
        if not identifier:
            raise Refused(f"{self.what} ID not provided.")
        record = self.records.get(identifier) if isinstance(identifier, str) else None
        if record is not None:
            return record
        if not isinstance(identifier, str) or identifier.startswith(OWN_IDS) or identifier in self.gone:
            raise Refused(f"{self.what} not found.")
        self.records[identifier] = {self.key: identifier}
        return self.records[identifier]

    def delete(self, identifier: Any) -> None:
        """Take the record out. **Errors**: `Refused` when there is none."""
        self.get(identifier)
        del self.records[identifier]
        if not identifier.startswith(OWN_IDS):
            self.gone.add(identifier)

    def add(self, record: Mapping[str, Any]) -> str:
        """Add a record under the next identifier, which is returned."""
        own = [int(known) for known in self.records if known.startswith(OWN_IDS)]
        identifier = str(max(own, default=int(OWN_IDS) * 10**7) + 1)
        self.records[identifier] = {self.key: identifier, **record}
        return identifier

    def known(self) -> list[Record]:
        """The records whose fields are known."""
        return [record for record in self.records.values() if len(record) == len(self.fields)]

    def compared(self) -> Any:
        """What two end states must agree in: this company's records in order, and every change to other data."""
        own, others = [], {}
        for identifier, record in self.records.items():
            even = {name: value if name in _EXACT_FIELDS else _lower(value) for name, value in record.items()}
            if identifier.startswith(OWN_IDS):
                own.append(even)
            elif len(record) > 1:
                # One that has nothing but its identifier was looked at and not changed.
                others[identifier] = even
        return own, others, self.gone


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


@attrs.define
class Office:
    """All that a session's tools can change."""

    emails: Table = attrs.field(factory=lambda: Table("emails", "email_id", "Email"))
    events: Table = attrs.field(factory=lambda: Table("events", "event_id", "Event"))
    customers: Table = attrs.field(factory=lambda: Table("customers", "customer_id", "Customer"))
    tasks: Table = attrs.field(factory=lambda: Table("tasks", "task_id", "Task"))
    plots: list[str] = attrs.field(factory=list)

    def compared(self) -> Any:
        """What two end states must agree in."""
        tables = (self.emails, self.events, self.customers, self.tasks)
        return [table.compared() for table in tables], [plot.lower() for plot in self.plots]


def need(*values: Any, message: str) -> None:
    if not all(values):
        raise Refused(message)


def one_of(value: Any, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise Refused(f"{what} not valid. Please choose from: {', '.join(allowed)}.")


def recipient_address(value: str) -> str:
    if "@" not in value or "." not in value:
        raise Refused("Invalid recipient email address.")
    return value.lower()


def member_address(value: str) -> str:
    address = value.lower()
    if address.endswith(f"@{DOMAIN}") and address not in people():
        raise Refused("Assignee email not valid. Please choose from the list of team members.")
    return address


def moment(value: str, what: str) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise Refused(f"Invalid {what} format. Expected YYYY-MM-DD HH:MM:SS.") from None


def check_minutes(value: Any) -> None:
    try:
        positive = int(value) > 0
    except ValueError:
        raise Refused("Invalid duration format. Expected a number of minutes.") from None
    if not positive:
        raise Refused("Duration must be a positive number of minutes.")


def page_of(name: str, records: list[Record], page: int, page_size: int) -> Any:
    if not records:
        return f"No {name} found."
    pages = -(-len(records) // page_size)
    page = max(1, min(page, pages))
    return {
        name: records[(page - 1) * page_size : page * page_size],
        "pagination": {f"total_{name}": len(records), "page": page, "page_size": page_size, "total_pages": pages},
    }


def field_of(table: Table, identifier: Any, field: Any) -> Any:
    record = table.get(identifier)
    need(field, message="Field not provided.")
    if field not in table.fields:
        raise Refused(f"Field '{field}' not found. Available fields: {', '.join(table.fields)}")
    return {field: record.get(field)}


def update_field(table: Table, identifier: Any, field: Any, value: Any) -> str:
    need(identifier, field, value, message=f"{table.what} ID, field, or new value not provided.")
    record = table.get(identifier)
    if field not in table.fields:
        raise Refused(f"Field not valid. Please choose from: {', '.join(table.fields[1:])}")
    record[field] = value
    return f"{table.what} updated successfully."
