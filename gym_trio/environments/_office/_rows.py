"""Tasks with the calls that fulfil them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from ._data import NOW, Record, base_tables, people

_CALL = tuple[str, dict[str, str]]
_Task = tuple[str, str, list[_CALL]]


def office_rows(size: int, seed: int, tools: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """``size`` rows, the kinds of task in turn. The same ``seed`` gives the same rows."""
    system = f"It is {NOW:%A, %Y-%m-%d, %H:%M}. Do what is asked with your tools, without asking back."
    for number in range(size):
        category, request, calls = _MAKERS[number % len(_MAKERS)](random.Random(f"{seed}/{number}"))
        yield {
            "id": number,
            "responses_create_params": {
                "input": [{"role": "system", "content": system}, {"role": "user", "content": request}],
                "tools": list(tools),
            },
            "ground_truth": [{"name": name, "arguments": orjson.dumps(given).decode()} for name, given in calls],
            "category": category,
            "environment_name": "workplace_assistant",
        }


def _pick(source: random.Random, table: str) -> Record:
    return source.choice(base_tables()[table])


def _reply(source: random.Random) -> _Task:
    email, body = _pick(source, "emails"), source.choice(("Thank you, received.", "Let us talk tomorrow."))
    request = f"Reply to the email with the subject '{email['subject']}'. Write exactly: {body}"
    return "email", request, [("email_reply_email", {"email_id": email["email_id"], "body": body})]


def _send(source: random.Random) -> _Task:
    to, subject = source.choice(people()), source.choice(("Keys", "Visit on Monday", "Minutes"))
    body = "Please come to the front desk."
    name = to.partition("@")[0].replace(".", " ").title()
    request = f"Send {name} an email with the subject '{subject}' that says: {body}"
    return "email", request, [("email_send_email", {"recipient": to, "subject": subject, "body": body})]


def _move(source: random.Random) -> _Task:
    event, minutes = _pick(source, "events"), source.choice(("45", "75", "120"))
    request = f"Make the event '{event['event_name']}' {minutes} minutes long."
    given = {"event_id": event["event_id"], "field": "duration", "new_value": minutes}
    return "calendar", request, [("calendar_update_event", given)]


def _cancel(source: random.Random) -> _Task:
    event = _pick(source, "events")
    calls = [("calendar_delete_event", {"event_id": event["event_id"]})]
    return "calendar", f"Take the event '{event['event_name']}' off the calendar.", calls


def _plot(source: random.Random) -> _Task:
    kind, first, last = source.choice(("bar", "line", "scatter")), "2031-03-01", "2031-03-14"
    given = {"time_min": first, "time_max": last, "value_to_plot": "total_visits", "plot_type": kind}
    return (
        "analytics",
        f"Make a {kind} plot of the total visits from {first} to {last}.",
        [("analytics_create_plot", given)],
    )


def _finish(source: random.Random) -> _Task:
    tasks = source.sample([task for task in base_tables()["tasks"] if task["list_name"] != "Completed"], 2)
    names = " and ".join(f"'{task['task_name']}'" for task in tasks)
    change = {"field": "list_name", "new_value": "Completed"}
    calls = [("project_management_update_task", {"task_id": task["task_id"], **change}) for task in tasks]
    return "project_management", f"The tasks {names} are done. Put them where they belong.", calls


def _hand_over(source: random.Random) -> _Task:
    customer = _pick(source, "customers")
    to = source.choice([address for address in people() if address != customer["assigned_to_email"]])
    name = to.partition("@")[0].replace(".", " ").title()
    given = {"customer_id": customer["customer_id"], "field": "assigned_to_email", "new_value": to}
    request = f"{name} now looks after the customer {customer['customer_name']}. Enter this."
    return "customer_relationship_manager", request, [("customer_relationship_manager_update_customer", given)]


_MAKERS: tuple[Callable[[random.Random], _Task], ...] = (_reply, _send, _move, _cancel, _plot, _finish, _hand_over)
