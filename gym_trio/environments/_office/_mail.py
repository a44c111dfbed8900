"""Operations on people, mail and calendar. Each answers with what the model is told; `Refused` changes nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ._data import NOW, people
from ._state import Office, check_minutes, field_of, moment, need, page_of, recipient_address, update_field


def find_address(office: Office, name: str = "") -> Any:
    need(name, message="Name not provided.")
    return [address for address in people() if name.lower() in address]


def email_info(office: Office, email_id: Any = None, field: Any = None) -> Any:
    return field_of(office.emails, email_id, field)


def search_emails(
    office: Office, query: str = "", date_min: Any = None, date_max: Any = None, page: int = 1, page_size: int = 5
) -> Any:
    found = []
    for record in office.emails.known():
        text = f"{record['subject']} {record['body']} {record['sender/recipient']}".lower()
        day = record["sent_datetime"][:10]
        if all(word in text for word in query.lower().split()) and (date_min or day) <= day <= (date_max or day):
            found.append(record)
    found.sort(key=lambda record: record["sent_datetime"], reverse=True)
    return page_of("emails", found, page, page_size)


def send_email(office: Office, recipient: Any = None, subject: Any = None, body: Any = None) -> str:
    need(recipient, subject, body, message="Recipient, subject, or body not provided.")
    office.emails.add(
        {
            "inbox/outbox": "outbox",
            "sender/recipient": recipient_address(recipient),
            "subject": subject,
            "sent_datetime": f"{NOW:%Y-%m-%d %H:%M:%S}",
            "body": body,
        }
    )
    return "Email sent successfully."


def delete_email(office: Office, email_id: Any = None) -> str:
    office.emails.delete(email_id)
    return "Email deleted successfully."


def forward_email(office: Office, email_id: Any = None, recipient: Any = None) -> str:
    need(email_id, recipient, message="Email ID or recipient not provided.")
    address = recipient_address(recipient)
    record = office.emails.get(email_id)
    # Of an email of other data only its identifier is known; it stands for its subject and body.
    send_email(office, address, f"FW: {record.get('subject', email_id)}", record.get("body", email_id))
    return "Email forwarded successfully."


def reply_email(office: Office, email_id: Any = None, body: Any = None) -> str:
    need(email_id, body, message="Email ID or body not provided.")
    record = office.emails.get(email_id)
    to = record.get("sender/recipient", f"sender@{email_id}.example")
    send_email(office, to, f"RE: {record.get('subject', email_id)}", body)
    return "Email replied successfully."


def event_info(office: Office, event_id: Any = None, field: Any = None) -> Any:
    return field_of(office.events, event_id, field)


def search_events(
    office: Office, query: str = "", time_min: Any = None, time_max: Any = None, page: int = 1, page_size: int = 5
) -> Any:
    first = moment(time_min, "time_min") if time_min else datetime.min
    last = moment(time_max, "time_max") if time_max else datetime.max
    found = [
        record
        for record in office.events.known()
        if query.lower() in record["event_name"].lower() or query.lower() in record["participant_email"].lower()
    ]
    found = [record for record in found if first <= datetime.fromisoformat(record["event_start"]) <= last]
    found.sort(key=lambda record: record["event_start"], reverse=True)
    return page_of("events", found, page, page_size)


def create_event(
    office: Office, event_name: Any = None, participant_email: Any = None, event_start: Any = None, duration: Any = None
) -> str:
    details = {"name": event_name, "participant": participant_email, "start": event_start, "duration": duration}
    for what, value in details.items():
        need(value, message=f"Event {what} not provided.")
    moment(event_start, "event_start")
    check_minutes(duration)
    fields = ("event_name", "participant_email", "event_start", "duration")
    values = (event_name, participant_email.lower(), event_start, duration)
    return office.events.add(dict(zip(fields, values, strict=True)))


def delete_event(office: Office, event_id: Any = None) -> str:
    office.events.delete(event_id)
    return "Event deleted successfully."


def update_event(office: Office, event_id: Any = None, field: Any = None, new_value: Any = None) -> str:
    if field == "event_start" and new_value:
        moment(new_value, "event_start")
    elif field == "duration" and new_value:
        check_minutes(new_value)
    return update_field(
        office.events, event_id, field, new_value.lower() if field == "participant_email" else new_value
    )
