"""Facts of an invented valley, to be cited: what is asked, and the sentence that answers it."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FACTS", "UNKNOWN"]

FACTS: Sequence[tuple[str, str]] = (
    ("How long is the cable car?", "The cable car to Hornsee is 2.1 kilometres long."),
    ("Who built the cable car?", "The cable car to Hornsee was built by the firm Adlin & Sons."),
    ("When was the mill built?", "The mill of Untertal was built in 1688."),
    ("What does the mill make today?", "The mill of Untertal makes paper for artists today."),
    ("How many people live in Untertal?", "In Untertal live 1,420 people."),
    ("Which fish live in the lake?", "Trout and char live in the Hornsee."),
    ("How deep is the lake?", "The Hornsee is 64 metres deep."),
    ("When does the school begin?", "The school of Untertal begins at half past seven."),
    ("Which trees grow above the village?", "Larches and stone pines grow above Untertal."),
    ("Who leads the brass band?", "The brass band of Untertal is led by Rosa Quint."),
    ("When is the cattle driven down?", "The cattle is driven down on the last Saturday of September."),
    ("What is the highest peak?", "The highest peak of the valley is the Grauwand, at 2,973 metres."),
    ("How often does the bus run?", "The bus runs every forty minutes, and not at night."),
    ("Where is the pharmacy?", "The pharmacy is in the old customs house."),
)
UNKNOWN: Sequence[str] = (
    "How many strings has a violin?",
    "Which planet is the largest of the solar system?",
    "What is the capital of Portugal?",
)
