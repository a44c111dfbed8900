"""The tools of seven trades, for `IndirectPromptInjection`: each reads and changes the session's own world."""

from __future__ import annotations

from typing import Any

import attrs

from ..errors import RequestRefused
from ..servers import tool

__all__ = ["Clinic", "College", "Desk", "Everywhere", "Freight", "HelpDesk", "Hiring", "Insurance", "Shop"]


@attrs.define
class Desk:
    """The state of one session: the row's environment, which its tools change."""

    world: dict[str, Any] = attrs.field(factory=dict)

    def table(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.world.setdefault(name, {})
        return found

    def record(self, table: str, number: str) -> dict[str, Any]:
        """**Errors**: `RequestRefused` (404) for a number that is not there; the model is told."""
        found = self.table(table).get(number)
        if not isinstance(found, dict):
            raise RequestRefused(404, f"there is no {number!r:.100} among the {table}")
        return found

    def found(self, table: str, query: str) -> dict[str, Any]:
        """The records of ``table`` that have ``query`` in some field, whatever the case, by number."""
        wanted = query.lower()
        return {
            number: record
            for number, record in self.table(table).items()
            if any(wanted in str(text).lower() for text in (number, *record.values()))
        }

    def note(self, table: str, number: str, field: str, text: str) -> None:
        """Add ``text`` as a line of its own."""
        record = self.record(table, number)
        record[field] = f"{record.get(field, '')}\n{text}".strip()


class Everywhere:
    """The tools that every trade has."""

    @tool
    async def get_messages(self, session: Desk) -> list[dict[str, Any]]:
        """The messages in the inbox."""
        return [each for each in session.world.get("messages") or () if not each.get("sent")]

    @tool
    async def send_message(self, session: Desk, recipient: str, subject: str, body: str) -> str:
        """Send a message to anyone."""
        message = {"recipient": recipient, "subject": subject, "body": body, "sent": True}
        session.world.setdefault("messages", []).append(message)
        return "sent"


class Clinic:
    """Patients, their charts and appointments."""

    @tool
    async def search_patients(self, session: Desk, query: str) -> list[dict[str, Any]]:
        """Find patients by a part of their name or of a condition."""
        wanted = query.lower()
        return [
            {"patient_id": number, "name": record.get("name")}
            for number, record in session.table("patients").items()
            if any(wanted in str(text).lower() for text in (record.get("name"), *record.get("conditions", ())))
        ]

    @tool
    async def get_patient_record(self, session: Desk, patient_id: str) -> dict[str, Any]:
        """A patient's whole record."""
        return session.record("patients", patient_id)

    @tool
    async def update_patient_chart(self, session: Desk, patient_id: str, notes: str) -> str:
        """Add a note to a patient's chart."""
        session.note("patients", patient_id, "chart_notes", notes)
        return "noted"

    @tool
    async def get_schedule(self, session: Desk, date: str) -> list[dict[str, Any]]:
        """The appointments of a day."""
        return [each for each in session.table("appointments").values() if each.get("date") == date]

    @tool
    async def cancel_appointment(self, session: Desk, appointment_id: str) -> str:
        """Cancel an appointment."""
        session.record("appointments", appointment_id)["status"] = "cancelled"
        return "cancelled"


class Hiring:
    """Candidates for open positions."""

    @tool
    async def search_candidates(self, session: Desk, query: str) -> dict[str, Any]:
        """Find candidates by a part of any of their fields."""
        return session.found("candidates", query)

    @tool
    async def get_candidate(self, session: Desk, candidate_id: str) -> dict[str, Any]:
        """A candidate's whole file, with what referees have written."""
        return session.record("candidates", candidate_id)

    @tool
    async def update_candidate_status(self, session: Desk, candidate_id: str, status: str) -> str:
        """Set where a candidate is in the process."""
        session.record("candidates", candidate_id)["status"] = status
        return "updated"

    @tool
    async def submit_feedback(self, session: Desk, candidate_id: str, feedback: str) -> str:
        """Add feedback to a candidate's file."""
        session.note("candidates", candidate_id, "feedback", feedback)
        return "submitted"

    @tool
    async def send_offer(self, session: Desk, candidate_id: str, salary: int) -> str:
        """Send an offer to a candidate."""
        session.record("candidates", candidate_id).update(status="offered", salary=salary)
        return "sent"


class Shop:
    """Orders, products and refunds."""

    @tool
    async def get_order(self, session: Desk, order_id: str) -> dict[str, Any]:
        """An order, with the customer's remarks."""
        return session.record("orders", order_id)

    @tool
    async def get_product(self, session: Desk, product_id: str) -> dict[str, Any]:
        """A product, with its reviews."""
        return session.record("products", product_id)

    @tool
    async def add_order_note(self, session: Desk, order_id: str, note: str) -> str:
        """Add a note to an order."""
        session.note("orders", order_id, "notes", note)
        return "noted"

    @tool
    async def update_stock(self, session: Desk, product_id: str, stock: int) -> str:
        """Set how many of a product there are."""
        session.record("products", product_id)["stock"] = stock
        return "updated"

    @tool
    async def process_refund(self, session: Desk, refund_id: str) -> str:
        """Pay a refund out that a customer has asked for."""
        session.record("refunds", refund_id)["status"] = "paid"
        return "paid"


class Insurance:
    """Claims and policies."""

    @tool
    async def get_claim(self, session: Desk, claim_id: str) -> dict[str, Any]:
        """A claim, with what the claimant has written."""
        return session.record("claims", claim_id)

    @tool
    async def get_policy(self, session: Desk, policy_id: str) -> dict[str, Any]:
        """A policy."""
        return session.record("policies", policy_id)

    @tool
    async def add_adjuster_note(self, session: Desk, claim_id: str, note: str) -> str:
        """Add an adjuster's note to a claim."""
        session.note("claims", claim_id, "adjuster_notes", note)
        return "noted"

    @tool
    async def process_payout(self, session: Desk, claim_id: str, amount: int) -> str:
        """Pay a claim."""
        session.record("claims", claim_id).update(status="paid", amount=amount)
        return "paid"


class Freight:
    """Shipments."""

    @tool
    async def track_shipment(self, session: Desk, shipment_id: str) -> dict[str, Any]:
        """A shipment, with the carrier's remarks."""
        return session.record("shipments", shipment_id)

    @tool
    async def list_shipments(self, session: Desk, query: str) -> dict[str, Any]:
        """Find shipments by a part of any of their fields."""
        return session.found("shipments", query)

    @tool
    async def update_shipment(self, session: Desk, shipment_id: str, destination: str) -> str:
        """Send a shipment somewhere else."""
        session.record("shipments", shipment_id)["destination"] = destination
        return "updated"

    @tool
    async def submit_customs(self, session: Desk, shipment_id: str, declaration: str) -> str:
        """Declare a shipment to customs."""
        session.record("shipments", shipment_id)["declaration"] = declaration
        return "submitted"


class HelpDesk:
    """Tickets, assets and articles."""

    @tool
    async def get_ticket(self, session: Desk, ticket_id: str) -> dict[str, Any]:
        """A ticket, with all that was written to it."""
        return session.record("tickets", ticket_id)

    @tool
    async def update_ticket_status(self, session: Desk, ticket_id: str, status: str) -> str:
        """Set a ticket's status."""
        session.record("tickets", ticket_id)["status"] = status
        return "updated"

    @tool
    async def read_article(self, session: Desk, article_id: str) -> dict[str, Any]:
        """An article of the knowledge base."""
        return session.record("articles", article_id)

    @tool
    async def update_article(self, session: Desk, article_id: str, text: str) -> str:
        """Replace an article's text."""
        session.record("articles", article_id)["text"] = text
        return "updated"

    @tool
    async def add_asset_note(self, session: Desk, asset_id: str, note: str) -> str:
        """Add a note to a device."""
        session.note("assets", asset_id, "notes", note)
        return "noted"


class College:
    """Students, courses and aid."""

    @tool
    async def get_student(self, session: Desk, student_id: str) -> dict[str, Any]:
        """A student's file, with letters and essays."""
        return session.record("students", student_id)

    @tool
    async def submit_grade(self, session: Desk, student_id: str, course_id: str, grade: str) -> str:
        """Set a student's grade in a course."""
        session.record("students", student_id).setdefault("grades", {})[course_id] = grade
        return "submitted"

    @tool
    async def add_advisor_note(self, session: Desk, student_id: str, note: str) -> str:
        """Add an advisor's note to a student's file."""
        session.note("students", student_id, "advisor_notes", note)
        return "noted"

    @tool
    async def adjust_aid(self, session: Desk, aid_id: str, amount: int) -> str:
        """Set how much aid is paid."""
        session.record("aid", aid_id)["amount"] = amount
        return "adjusted"
