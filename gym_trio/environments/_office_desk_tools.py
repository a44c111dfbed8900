"""Tools of ``workplace_assistant`` for web figures, tasks and customers: each operation's signature and description."""

from __future__ import annotations

from typing import Any

from ..servers import tool
from ._office import Office, answer

__all__ = ["DeskTools"]


class DeskTools:
    """Web figures, tasks and customers."""

    @tool
    async def analytics_get_visitor_information_by_id(
        self,
        session: Office,
        visitor_id: str,
    ) -> dict[str, Any]:
        """The visits of a visitor to the web site."""
        return answer(session, "analytics_get_visitor_information_by_id", visitor_id=visitor_id)

    @tool
    async def analytics_create_plot(
        self,
        session: Office,
        time_min: str,
        time_max: str,
        value_to_plot: str,
        plot_type: str,
    ) -> dict[str, Any]:
        """Plot a figure of the web site over a range of days (YYYY-MM-DD).

        Values: total_visits, session_duration_seconds, user_engaged, visits_direct, visits_referral,
        visits_search_engine, visits_social_media. Types: bar, line, scatter, histogram.
        """
        return answer(
            session,
            "analytics_create_plot",
            time_min=time_min,
            time_max=time_max,
            value_to_plot=value_to_plot,
            plot_type=plot_type,
        )

    @tool
    async def analytics_total_visits_count(
        self,
        session: Office,
        time_min: str | None = None,
        time_max: str | None = None,
    ) -> dict[str, Any]:
        """The number of visits on each day of a range (YYYY-MM-DD)."""
        return answer(session, "analytics_total_visits_count", time_min=time_min, time_max=time_max)

    @tool
    async def analytics_engaged_users_count(
        self,
        session: Office,
        time_min: str | None = None,
        time_max: str | None = None,
    ) -> dict[str, Any]:
        """The number of engaged users on each day of a range (YYYY-MM-DD)."""
        return answer(session, "analytics_engaged_users_count", time_min=time_min, time_max=time_max)

    @tool
    async def analytics_traffic_source_count(
        self,
        session: Office,
        time_min: str | None = None,
        time_max: str | None = None,
        traffic_source: str | None = None,
    ) -> dict[str, Any]:
        """The visits on each day from a source: direct, referral, search engine or social media."""
        return answer(
            session,
            "analytics_traffic_source_count",
            time_min=time_min,
            time_max=time_max,
            traffic_source=traffic_source,
        )

    @tool
    async def analytics_get_average_session_duration(
        self,
        session: Office,
        time_min: str | None = None,
        time_max: str | None = None,
    ) -> dict[str, Any]:
        """The mean duration of a visit in seconds on each day of a range (YYYY-MM-DD)."""
        return answer(session, "analytics_get_average_session_duration", time_min=time_min, time_max=time_max)

    @tool
    async def project_management_get_task_information_by_id(
        self,
        session: Office,
        task_id: str,
        field: str,
    ) -> dict[str, Any]:
        """One field of a task: task_id, task_name, assigned_to_email, list_name, due_date or board."""
        return answer(session, "project_management_get_task_information_by_id", task_id=task_id, field=field)

    @tool
    async def project_management_search_tasks(
        self,
        session: Office,
        task_name: str | None = None,
        assigned_to_email: str | None = None,
        list_name: str | None = None,
        due_date: str | None = None,
        board: str | None = None,
    ) -> dict[str, Any]:
        """Tasks with these texts in their fields; the assignee's address must be whole."""
        return answer(
            session,
            "project_management_search_tasks",
            task_name=task_name,
            assigned_to_email=assigned_to_email,
            list_name=list_name,
            due_date=due_date,
            board=board,
        )

    @tool
    async def project_management_create_task(
        self,
        session: Office,
        task_name: str,
        assigned_to_email: str,
        list_name: str,
        due_date: str,
        board: str,
    ) -> dict[str, Any]:
        """Enter a task. Lists: Backlog, In Progress, In Review, Completed. Boards: Back end, Front end, Design."""
        return answer(
            session,
            "project_management_create_task",
            task_name=task_name,
            assigned_to_email=assigned_to_email,
            list_name=list_name,
            due_date=due_date,
            board=board,
        )

    @tool
    async def project_management_delete_task(
        self,
        session: Office,
        task_id: str,
    ) -> dict[str, Any]:
        """Delete a task."""
        return answer(session, "project_management_delete_task", task_id=task_id)

    @tool
    async def project_management_update_task(
        self,
        session: Office,
        task_id: str,
        field: str,
        new_value: str,
    ) -> dict[str, Any]:
        """Change one field of a task: task_name, assigned_to_email, list_name, due_date or board."""
        return answer(session, "project_management_update_task", task_id=task_id, field=field, new_value=new_value)

    @tool
    async def customer_relationship_manager_search_customers(
        self,
        session: Office,
        customer_name: str | None = None,
        customer_email: str | None = None,
        product_interest: str | None = None,
        status: str | None = None,
        assigned_to_email: str | None = None,
        last_contact_date_min: str | None = None,
        last_contact_date_max: str | None = None,
        follow_up_by_min: str | None = None,
        follow_up_by_max: str | None = None,
        page: int = 1,
        page_size: int = 5,
    ) -> dict[str, Any]:
        """Customers with these texts in their fields and dates in these ranges (YYYY-MM-DD)."""
        return answer(
            session,
            "customer_relationship_manager_search_customers",
            customer_name=customer_name,
            customer_email=customer_email,
            product_interest=product_interest,
            status=status,
            assigned_to_email=assigned_to_email,
            last_contact_date_min=last_contact_date_min,
            last_contact_date_max=last_contact_date_max,
            follow_up_by_min=follow_up_by_min,
            follow_up_by_max=follow_up_by_max,
            page=page,
            page_size=page_size,
        )

    @tool
    async def customer_relationship_manager_update_customer(
        self,
        session: Office,
        customer_id: str,
        field: str,
        new_value: str,
    ) -> dict[str, Any]:
        """Change one field of a customer. Statuses: Qualified, Won, Lost, Lead, Proposal. Products: Software, Hardware,
        Services, Consulting, Training."""
        return answer(
            session,
            "customer_relationship_manager_update_customer",
            customer_id=customer_id,
            field=field,
            new_value=new_value,
        )

    @tool
    async def customer_relationship_manager_add_customer(
        self,
        session: Office,
        customer_name: str,
        assigned_to_email: str,
        status: str,
        customer_email: str | None = None,
        customer_phone: str | None = None,
        last_contact_date: str | None = None,
        product_interest: str | None = None,
        notes: str = "",
        follow_up_by: str | None = None,
    ) -> dict[str, Any]:
        """Enter a customer. Statuses: Qualified, Won, Lost, Lead, Proposal."""
        return answer(
            session,
            "customer_relationship_manager_add_customer",
            customer_name=customer_name,
            assigned_to_email=assigned_to_email,
            status=status,
            customer_email=customer_email,
            customer_phone=customer_phone,
            last_contact_date=last_contact_date,
            product_interest=product_interest,
            notes=notes,
            follow_up_by=follow_up_by,
        )

    @tool
    async def customer_relationship_manager_delete_customer(
        self,
        session: Office,
        customer_id: str,
    ) -> dict[str, Any]:
        """Delete a customer."""
        return answer(session, "customer_relationship_manager_delete_customer", customer_id=customer_id)
