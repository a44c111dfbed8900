"""The operations by the names of their tools, and what a series of them leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import _desk as desk
from . import _mail as mail
from ._state import Office, Refused

_CRM = "customer_relationship_manager"
OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "company_directory_find_email_address": mail.find_address,
    "email_get_email_information_by_id": mail.email_info,
    "email_search_emails": mail.search_emails,
    "email_send_email": mail.send_email,
    "email_delete_email": mail.delete_email,
    "email_forward_email": mail.forward_email,
    "email_reply_email": mail.reply_email,
    "calendar_get_event_information_by_id": mail.event_info,
    "calendar_search_events": mail.search_events,
    "calendar_create_event": mail.create_event,
    "calendar_delete_event": mail.delete_event,
    "calendar_update_event": mail.update_event,
    "analytics_engaged_users_count": desk.engaged_users,
    "analytics_get_visitor_information_by_id": desk.visitor_info,
    "analytics_create_plot": desk.create_plot,
    "analytics_traffic_source_count": desk.traffic_sources,
    "analytics_total_visits_count": desk.total_visits,
    "analytics_get_average_session_duration": desk.session_duration,
    "project_management_get_task_information_by_id": desk.task_info,
    "project_management_search_tasks": desk.search_tasks,
    "project_management_create_task": desk.create_task,
    "project_management_delete_task": desk.delete_task,
    "project_management_update_task": desk.update_task,
    f"{_CRM}_search_customers": desk.search_customers,
    f"{_CRM}_update_customer": desk.update_customer,
    f"{_CRM}_add_customer": desk.add_customer,
    f"{_CRM}_delete_customer": desk.delete_customer,
}


def run(office: Office, name: str, arguments: Mapping[str, Any]) -> Any:
    """Do what the tool ``name`` does; arguments that are null count as absent.

    The answer is what the model is told, also of what went wrong. **Errors**: `KeyError` for a name of no tool.
    """
    operation = OPERATIONS[name]
    given = {key: value for key, value in arguments.items() if value is not None}
    try:
        return operation(office, **given)
    except Refused as refusal:
        return str(refusal)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        return f"Error executing tool '{name}': {error}"


def answer(session: Office, operation: str, /, **arguments: Any) -> dict[str, Any]:
    """`run` in the form of a tool's answer."""
    return {"output": run(session, operation, arguments)}


def end_state(calls: Iterable[tuple[str, Mapping[str, Any] | None]]) -> Any:
    """What is left after ``calls``, in a form to compare; calls of no tool, or without arguments, change nothing."""
    office = Office()
    for name, arguments in calls:
        if name in OPERATIONS and arguments is not None:
            run(office, name, arguments)
    return office.compared()
