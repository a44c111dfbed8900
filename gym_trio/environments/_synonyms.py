"""Terms with two synonyms each, and a text that is about the term and does not name it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["SYNONYMS", "TEXTS"]

SYNONYMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "angry": ("Furious", "Irate"),
        "brave": ("Bold", "Fearless"),
        "bright": ("Radiant", "Luminous"),
        "clean": ("Spotless", "Pure"),
        "dry": ("Arid", "Parched"),
        "empty": ("Vacant", "Hollow"),
        "hungry": ("Starving", "Famished"),
        "old": ("Ancient", "Aged"),
        "poor": ("Needy", "Penniless"),
        "proud": ("Haughty", "Vain"),
        "rare": ("Scarce", "Unusual"),
        "sad": ("Gloomy", "Sorrowful"),
        "sharp": ("Keen", "Pointed"),
        "slow": ("Sluggish", "Unhurried"),
        "small": ("Tiny", "Little"),
        "strong": ("Sturdy", "Mighty"),
        "tired": ("Weary", "Drowsy"),
        "warm": ("Mild", "Balmy"),
        "wealthy": ("Rich", "Affluent"),
        "wet": ("Damp", "Soaked"),
    }
)
TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "angry": "He slammed the door and shouted until the windows shook.",
        "brave": "She climbed back into the burning house to fetch the child.",
        "bright": "Nobody could look at the lamp without shading their eyes.",
        "clean": "One could have eaten from the floor of that kitchen.",
        "dry": "It had not rained for three years and the river bed had cracked.",
        "empty": "There was not a single thing left in the warehouse.",
        "hungry": "They had eaten nothing for two days and dreamt of bread.",
        "old": "The oak had stood there for nine hundred years.",
        "poor": "At the end of each month they could not pay for coal.",
        "proud": "He told everyone, twice, that no one could do it as well as he.",
        "rare": "Only four of these stamps are known in the whole world.",
        "sad": "She wept over the letter and would not speak all evening.",
        "sharp": "The blade cut a falling hair in two.",
        "slow": "The snail needed the whole morning to cross the path.",
        "small": "The whole house would have fitted into a matchbox.",
        "strong": "Alone she lifted the cart out of the ditch.",
        "tired": "After the night shift his eyes fell shut on the tram.",
        "warm": "In that April people sat in the garden in their shirts until evening.",
        "wealthy": "The family owned three banks, a shipyard and an island.",
        "wet": "After the storm water ran out of their boots.",
    }
)
