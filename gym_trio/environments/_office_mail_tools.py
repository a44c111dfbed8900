"""Tools of ``workplace_assistant`` for people, mail and calendar: each operation's signature and description."""

from __future__ import annotations

from typing import Any

from ..servers import tool
from ._office import Office, answer

__all__ = ["MailTools"]


class MailTools:
    """People, mail and calendar."""

    @tool
    async def company_directory_find_email_address(
        self,
        session: Office,
        name: str,
    ) -> dict[str, Any]:
        """The email addresses of everybody whose name contains this."""
        return answer(session, "company_directory_find_email_address", name=name)

    @tool
    async def email_get_email_information_by_id(
        self,
        session: Office,
        email_id: str,
        field: str,
    ) -> dict[str, Any]:
        """One field of an email: email_id, inbox/outbox, sender/recipient, subject, sent_datetime or body."""
        return answer(session, "email_get_email_information_by_id", email_id=email_id, field=field)

    @tool
    async def email_search_emails(
        self,
        session: Office,
        query: str = "",
        date_min: str | None = None,
        date_max: str | None = None,
        page: int = 1,
        page_size: int = 5,
    ) -> dict[str, Any]:
        """Emails with all words of the query in subject, body or address, the newest first. Dates are YYYY-MM-DD."""
        return answer(
            session,
            "email_search_emails",
            query=query,
            date_min=date_min,
            date_max=date_max,
            page=page,
            page_size=page_size,
        )

    @tool
    async def email_send_email(
        self,
        session: Office,
        recipient: str,
        subject: str,
        body: str,
    ) -> dict[str, Any]:
        """Send an email."""
        return answer(session, "email_send_email", recipient=recipient, subject=subject, body=body)

    @tool
    async def email_delete_email(
        self,
        session: Office,
        email_id: str,
    ) -> dict[str, Any]:
        """Delete an email."""
        return answer(session, "email_delete_email", email_id=email_id)

    @tool
    async def email_forward_email(
        self,
        session: Office,
        email_id: str,
        recipient: str,
    ) -> dict[str, Any]:
        """Forward an email."""
        return answer(session, "email_forward_email", email_id=email_id, recipient=recipient)

    @tool
    async def email_reply_email(
        self,
        session: Office,
        email_id: str,
        body: str,
    ) -> dict[str, Any]:
        """Reply to an email."""
        return answer(session, "email_reply_email", email_id=email_id, body=body)

    @tool
    async def calendar_get_event_information_by_id(
        self,
        session: Office,
        event_id: str,
        field: str,
    ) -> dict[str, Any]:
        """One field of an event: event_id, event_name, participant_email, event_start or duration."""
        return answer(session, "calendar_get_event_information_by_id", event_id=event_id, field=field)

    @tool
    async def calendar_search_events(
        self,
        session: Office,
        query: str = "",
        time_min: str | None = None,
        time_max: str | None = None,
        page: int = 1,
        page_size: int = 5,
    ) -> dict[str, Any]:
        """Events with the query in name or participant, the latest first. Times are YYYY-MM-DD HH:MM:SS."""
        return answer(
            session,
            "calendar_search_events",
            query=query,
            time_min=time_min,
            time_max=time_max,
            page=page,
            page_size=page_size,
        )

    @tool
    async def calendar_create_event(
        self,
        session: Office,
        event_name: str,
        participant_email: str,
        event_start: str,
        duration: str,
    ) -> dict[str, Any]:
        """Enter an event. The start is YYYY-MM-DD HH:MM:SS, the duration is in minutes."""
        return answer(
            session,
            "calendar_create_event",
            event_name=event_name,
            participant_email=participant_email,
            event_start=event_start,
            duration=duration,
        )

    @tool
    async def calendar_delete_event(
        self,
        session: Office,
        event_id: str,
    ) -> dict[str, Any]:
        """Delete an event."""
        return answer(session, "calendar_delete_event", event_id=event_id)

    @tool
    async def calendar_update_event(
        self,
        session: Office,
        event_id: str,
        field: str,
        new_value: str,
    ) -> dict[str, Any]:
        """Change one field of an event: event_name, participant_email, event_start or duration."""
        return answer(session, "calendar_update_event", event_id=event_id, field=field, new_value=new_value)
