"""Operations on web visits, tasks and customers: each gives what the model is told; `Refused` changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._data import Record, base_tables
from ._state import Office, field_of, member_address, need, one_of, page_of, update_field

_BOARDS = ("Back end", "Front end", "Design")
_LISTS = ("Backlog", "In Progress", "In Review", "Completed")
_STATUSES = ("Qualified", "Won", "Lost", "Lead", "Proposal")
_PRODUCTS = ("Software", "Hardware", "Services", "Consulting", "Training")
_PLOTS = ("bar", "line", "scatter", "histogram")
_MEASURES = (
    *("total_visits", "session_duration_seconds", "user_engaged"),
    *("visits_direct", "visits_referral", "visits_search_engine", "visits_social_media"),
)


def visitor_info(office: Office, visitor_id: Any = None) -> Any:
    need(visitor_id, message="Visitor ID not provided.")
    found = [dict(visit) for visit in base_tables()["visits"] if visit["visitor_id"] == visitor_id]
    return found or "Visitor not found."


def create_plot(
    office: Office, time_min: Any = None, time_max: Any = None, value_to_plot: Any = None, plot_type: Any = None
) -> str:
    need(time_min, message="Start date not provided.")
    need(time_max, message="End date not provided.")
    one_of(value_to_plot, _MEASURES, "Value to plot")
    one_of(plot_type, _PLOTS, "Plot type")
    path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
    office.plots.append(path)
    return path


def _by_day(time_min: Any, time_max: Any, value: Callable[[Record], float]) -> dict[str, list[float]]:
    days: dict[str, list[float]] = {}
    for visit in sorted(base_tables()["visits"], key=lambda visit: visit["date_of_visit"]):
        day = visit["date_of_visit"]
        if (time_min or day) <= day <= (time_max or day):
            days.setdefault(day, []).append(value(visit))
    return days


def total_visits(office: Office, time_min: Any = None, time_max: Any = None) -> Any:
    return {day: len(values) for day, values in _by_day(time_min, time_max, lambda visit: 1).items()}


def engaged_users(office: Office, time_min: Any = None, time_max: Any = None) -> Any:
    days = _by_day(time_min, time_max, lambda visit: visit["user_engaged"] == "True")
    return {day: int(sum(values)) for day, values in days.items()}


def traffic_sources(office: Office, time_min: Any = None, time_max: Any = None, traffic_source: Any = None) -> Any:
    days = _by_day(time_min, time_max, lambda visit: traffic_source in (None, visit["traffic_source"]))
    return {day: int(sum(values)) for day, values in days.items()}


def session_duration(office: Office, time_min: Any = None, time_max: Any = None) -> Any:
    days = _by_day(time_min, time_max, lambda visit: float(visit["session_duration_seconds"]))
    return {day: sum(values) / len(values) for day, values in days.items()}


def task_info(office: Office, task_id: Any = None, field: Any = None) -> Any:
    return field_of(office.tasks, task_id, field)


def search_tasks(office: Office, **wanted: Any) -> Any:
    wanted = {field: str(value).lower() for field, value in wanted.items() if value}
    need(wanted, message="No search parameters provided.")
    return [
        record
        for record in office.tasks.known()
        if all(
            value == record[field].lower() if field == "assigned_to_email" else value in record[field].lower()
            for field, value in wanted.items()
        )
    ]


def create_task(office: Office, **details: Any) -> str:
    fields = office.tasks.fields[1:]
    need(*(details.get(field) for field in fields), message="Missing task details.")
    address = member_address(details["assigned_to_email"])
    one_of(details["list_name"], _LISTS, "List")
    one_of(details["board"], _BOARDS, "Board")
    return office.tasks.add({**{field: details[field] for field in fields}, "assigned_to_email": address})


def delete_task(office: Office, task_id: Any = None) -> str:
    office.tasks.delete(task_id)
    return "Task deleted successfully."


def update_task(office: Office, task_id: Any = None, field: Any = None, new_value: Any = None) -> str:
    if field == "board":
        one_of(new_value, _BOARDS, "Board")
    elif field == "list_name":
        one_of(new_value, _LISTS, "List")
    return update_field(
        office.tasks, task_id, field, member_address(new_value) if field == "assigned_to_email" else new_value
    )


def search_customers(office: Office, page: int = 1, page_size: int = 5, **wanted: Any) -> Any:
    wanted = {field: str(value).lower() for field, value in wanted.items() if value}
    need(wanted, message="No search parameters provided. Please provide at least one parameter.")
    found = [r for r in office.customers.known() if all(_suits(r, *condition) for condition in wanted.items())]
    return page_of("customers", found, page, page_size)


def _suits(record: Record, condition: str, value: str) -> bool:
    field, _, bound = condition.rpartition("_")
    found = record[field] if bound in ("min", "max") else record[condition]
    # What was left out when a customer was entered suits no condition.
    if found is None:
        return False
    return found >= value if bound == "min" else found <= value if bound == "max" else value in found.lower()


def update_customer(office: Office, customer_id: Any = None, field: Any = None, new_value: Any = None) -> str:
    if field == "status":
        one_of(new_value, _STATUSES, "Status")
    elif field == "product_interest":
        one_of(new_value, _PRODUCTS, "Product interest")
    elif field in ("customer_email", "assigned_to_email"):
        new_value = new_value.lower()
    return update_field(office.customers, customer_id, field, new_value)


def add_customer(office: Office, **details: Any) -> str:
    needed = ("customer_name", "assigned_to_email", "status")
    need(*(details.get(field) for field in needed), message=f"Please provide all required fields: {', '.join(needed)}.")
    unknown = details.keys() - set(office.customers.fields)
    if unknown:
        raise TypeError(f"no such field: {', '.join(sorted(unknown))}")
    record = {field: details.get(field, "" if field == "notes" else None) for field in office.customers.fields[1:]}
    addresses = {name: record[name] for name in ("assigned_to_email", "customer_email")}
    lowered = {name: address.lower() for name, address in addresses.items() if address}
    return office.customers.add({**record, **lowered})


def delete_customer(office: Office, customer_id: Any = None) -> str:
    office.customers.delete(customer_id)
    return "Customer deleted successfully."
