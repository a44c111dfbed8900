"""The toy-text environments of ``gymnasium`` in words: their rules, their actions, and what the player sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["ACTIONS", "RULES", "describe"]

_SAY = "Say each move as <action>name</action>."

RULES: Mapping[str, str] = MappingProxyType(
    {
        "FrozenLake-v1": (
            "You cross a frozen lake. In the map S is the start, F is ice, H is a hole and G is the goal; [ ] marks "
            "where you stand. A hole ends the game. The ice may be slippery: you may slide to a side instead. Moves: "
            f"left, down, right, up. {_SAY}"
        ),
        "Taxi-v4": (
            "You drive a taxi on a map of 5 rows and 5 columns, counted from 0 at the top left; | is a wall. Pick up "
            "the passenger and set them down at the destination. Moves: south, north, east, west, pickup, dropoff. "
            f"{_SAY}"
        ),
        "CliffWalking-v1": (
            "You walk along a cliff: x is you, C is the cliff, T is the target. Stepping off the cliff costs much and "
            f"takes you back to the start. Moves: up, right, down, left. {_SAY}"
        ),
        "Blackjack-v1": (
            "You play blackjack: come closer to 21 than the dealer and not above. An ace counts 1 or 11. Moves: stand, "
            f"hit. {_SAY}"
        ),
    }
)

ACTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "FrozenLake-v1": ("left", "down", "right", "up"),
        "Taxi-v4": ("south", "north", "east", "west", "pickup", "dropoff"),
        "CliffWalking-v1": ("up", "right", "down", "left"),
        "Blackjack-v1": ("stand", "hit"),
    }
)

_HIGHLIGHTED = re.compile(r"\x1b\[[0-9;]*m(.*?)\x1b\[0m")
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

_STOPS = ("R at row 0, column 0", "G at row 0, column 4", "Y at row 4, column 0", "B at row 4, column 3")


def describe(env: Any, observation: Any) -> str:
    """The state of ``env`` in words: its own picture in text where it has one, else the observation."""
    own = _OWN.get(env.spec.id if env.spec else "")
    return own(env, observation) if own is not None else _picture(env) or f"Observation: {observation}"


def _picture(env: Any) -> str:
    drawn = env.render() if env.render_mode == "ansi" else ""
    return _CONTROL.sub("", _HIGHLIGHTED.sub(r"[\1]", drawn or "")).strip()


def _taxi(env: Any, observation: Any) -> str:
    row, column, passenger, destination = (int(part) for part in env.unwrapped.decode(int(observation)))
    where = "sits in the taxi" if passenger == len(_STOPS) else f"waits at {_STOPS[passenger]}"
    plan = "\n".join("".join(part.decode() for part in line) for line in env.unwrapped.desc.tolist())
    return (
        f"{plan}\nThe taxi is at row {row}, column {column}. The passenger {where} and wants to go to "
        f"{_STOPS[destination]}."
    )


def _blackjack(env: Any, observation: Any) -> str:
    total, dealer, usable = (int(part) for part in observation)
    ace = ", with an ace that counts 11" if usable else ""
    return f"You hold {total}{ace}. The dealer shows {'an ace' if dealer == 1 else dealer}."


_OWN: Mapping[str, Callable[[Any, Any], str]] = MappingProxyType({"Taxi-v4": _taxi, "Blackjack-v1": _blackjack})
