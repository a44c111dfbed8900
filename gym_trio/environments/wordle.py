"""Wordle: guess a word of five letters in six turns."""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from ..errors import RequestRefused
from ..servers import GymnasiumServer, RequestBody, ResetAnswer, StepAnswer

__all__ = ["Wordle", "WordleGame", "WordleSettings", "feedback"]

LENGTH, TURNS = 5, 6
FULL, TURN_COST, LEAST = 2.0, 0.2, 0.1
REPEATED, GREEN_IGNORED, YELLOW_IGNORED, GRAY_USED, NO_WORD = 0.2, 0.05, 0.03, 0.02, 0.02


@attrs.frozen(kw_only=True)
class WordleSettings:
    """The key of a ``wordle`` block besides the common ones: a file of more words that may be guessed, one a line."""

    words_path: str | None = None


@attrs.define
class WordleGame:
    """The state of one session."""

    target: str = ""
    length: int = LENGTH
    max_turns: int = TURNS
    turn: int = 0
    guesses: list[str] = attrs.field(factory=list)
    answers: list[str] = attrs.field(factory=list)
    greens: dict[int, str] = attrs.field(factory=dict)
    yellows: set[str] = attrs.field(factory=set)
    grays: set[str] = attrs.field(factory=set)
    over: bool = False
    won: bool = False
    reward: float = 0.0

    @property
    def left(self) -> int:
        return max(0, self.max_turns - self.turn)


class Wordle(GymnasiumServer):
    """Wordle with tools. The reward of a win is 2 less 0.2 for each turn after the first, less what was wasted.

    A row has ``custom_target`` (the word, which must be one that may be guessed), ``word_length`` (5) and ``max_turns``
    (6). The tools are ``submit_guess``, ``check_word_validity`` and ``get_game_state``. Each guess takes a turn and is
    answered with G, Y and _ for each letter: at its place, elsewhere, not in the word, each letter of the word counted
    once. A win in the first turn counts as one in the third. A guess costs 0.2 when it was made before, 0.05 for each
    place whose letter is known and not used, 0.03 when it has none of the letters known to be elsewhere, 0.02 for each
    letter known to be absent, and 0.02 when it is no word or of another length. A win earns at least 0.1, a loss 0. The
    episode ends with the game, or with a reply that calls no tool; its reward is never below 0.

    The package's list of words is a small one; ``words_path`` adds to it.

    Source of the rule: NeMo Gym's ``wordle``.
    """

    description = "Wordle, with tools"
    domain = "games"
    session_type = WordleGame
    settings_type = WordleSettings

    @functools.cached_property
    def words(self) -> frozenset[str]:
        """The words that may be guessed."""
        if self.settings.words_path is None:
            return frozenset(_packaged_words())
        with open(self.settings.words_path, encoding="utf-8") as lines:
            return frozenset(_packaged_words()) | {line.strip().lower() for line in lines if line.strip()}

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        return (_row(word) for word in _packaged_words()[::12])

    async def reset(self, session: WordleGame, row: RequestBody) -> ResetAnswer:
        target = str(row.get("custom_target") or "").lower()
        length = row.get("word_length", LENGTH)
        if len(target) != length or target not in self.words:
            raise RequestRefused(422, f"custom_target must be a word of {length} letters, not {target!r:.100}")
        fresh = WordleGame(target=target, length=length, max_turns=row.get("max_turns", TURNS))
        for field in attrs.fields(WordleGame):
            setattr(session, field.name, getattr(fresh, field.name))
        return None

    async def step(self, session: WordleGame, response: Mapping[str, Any], row: RequestBody) -> StepAnswer:
        calls = [item for item in response.get("output") or () if item.get("type") == "function_call"]
        outputs = [{"call_id": call.get("call_id"), "output": json.dumps(self._call(session, call))} for call in calls]
        info: dict[str, Any] = {
            "game_outcome": "win" if session.won else "loss" if session.over else "incomplete",
            "turns_used": session.turn,
            "won": float(session.won),
            "turns_if_won": float(session.turn) if session.won else 0.0,
        }
        if outputs and not session.over:
            return None, 0.0, False, False, {**info, "tool_outputs": outputs}
        return None, max(session.reward, 0.0), True, False, info

    def _call(self, game: WordleGame, call: Mapping[str, Any]) -> dict[str, Any]:
        name = call.get("name")
        try:
            arguments = json.loads(call.get("arguments") or "{}")
            if name == "submit_guess":
                return self._guess(game, _text(arguments, "guess").lower().strip())
            if name == "check_word_validity":
                return self._check(game, _text(arguments, "word").lower().strip())
        except (ValueError, TypeError, KeyError) as error:
            return {"error": f"the arguments of {name} do not fit: {error}"}
        return _shown(game) if name == "get_game_state" else {"error": f"there is no tool {name!r:.100}"}

    def _guess(self, game: WordleGame, guess: str) -> dict[str, Any]:
        if game.over:
            return {"valid": False, "game_over": True, "won": game.won, "error": "the game is over"}
        game.turn += 1
        problem = self._check(game, guess)
        if problem["valid"]:
            answer = feedback(guess, game.target)
            game.won = guess == game.target
            game.reward += _win(game.turn) if game.won else -_waste(game, guess)
            _learn(game, guess, answer)
        else:
            game.reward -= NO_WORD
        game.over = game.won or game.turn >= game.max_turns
        if game.over:
            game.reward = max(game.reward, LEAST) if game.won else 0.0
        found = {"valid": problem["valid"], "turn": game.turn, "turns_remaining": 0 if game.won else game.left}
        found |= {"won": game.won, "game_over": game.over}
        if not problem["valid"]:
            return {**found, "error": problem["reason"]}
        return {**found, "feedback": answer, **({"target_word": game.target.upper()} if game.over else {})}

    def _check(self, game: WordleGame, word: str) -> dict[str, Any]:
        if len(word) != game.length:
            return {"valid": False, "reason": f"a guess has {game.length} letters, not {len(word)}"}
        known = word in self.words
        return {"valid": known, "reason": "a word" if known else f"{word!r} is no word of the list"}


def _text(arguments: Any, name: str) -> str:
    value = arguments[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text")
    return value


def feedback(guess: str, target: str) -> str:
    """G, Y or _ for each letter of ``guess``; a letter of ``target`` counts once, first where it is at its place."""
    left = [wanted for letter, wanted in zip(guess, target, strict=True) if letter != wanted]
    signs = ""
    for letter, wanted in zip(guess, target, strict=True):
        if letter == wanted:
            signs += "G"
        elif letter in left:
            left.remove(letter)
            signs += "Y"
        else:
            signs += "_"
    return signs


def _win(turn: int) -> float:
    return FULL - TURN_COST * ((3 if turn == 1 else turn) - 1)


def _waste(game: WordleGame, guess: str) -> float:
    """What a guess costs in the light of what was known."""
    cost = REPEATED if guess in game.guesses else 0.0
    cost += GREEN_IGNORED * sum(guess[place] != letter for place, letter in game.greens.items())
    if game.yellows and not game.yellows & set(guess):
        cost += YELLOW_IGNORED
    return cost + GRAY_USED * sum(letter in game.grays for letter in guess)


def _learn(game: WordleGame, guess: str, answer: str) -> None:
    game.guesses.append(guess)
    game.answers.append(answer)
    for place, (letter, sign) in enumerate(zip(guess, answer, strict=True)):
        if sign == "G":
            game.greens[place] = letter
        elif sign == "Y":
            game.yellows.add(letter)
    known = {*game.greens.values(), *game.yellows}
    game.grays |= {letter for letter, sign in zip(guess, answer, strict=True) if sign == "_" and letter not in known}


def _shown(game: WordleGame) -> dict[str, Any]:
    return {
        "turn": game.turn,
        "turns_remaining": game.left,
        "guesses": [guess.upper() for guess in game.guesses],
        "feedback_history": game.answers,
        "known_greens": {str(place + 1): letter.upper() for place, letter in sorted(game.greens.items())},
        "known_yellows": sorted(letter.upper() for letter in game.yellows),
        "eliminated_letters": sorted(letter.upper() for letter in game.grays),
        "game_over": game.over,
        "won": game.won,
    }


def _packaged_words() -> Sequence[str]:
    words = importlib.resources.files(__package__).joinpath("data", "wordle_words.txt").read_text(encoding="utf-8")
    return words.split()


def _tool(name: str, description: str, *fields: str) -> dict[str, Any]:
    properties = {field: {"type": "string"} for field in fields}
    parameters = {"type": "object", "properties": properties, "required": list(fields), "additionalProperties": False}
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": True}


def _row(word: str) -> dict[str, Any]:
    prompt = (
        "Find the secret word of five letters; you have six guesses. Each guess is answered letter by letter: G for a "
        "letter at its place, Y for one that is elsewhere in the word, _ for one that is not in it. Call a tool in "
        "every reply until the game is over."
    )
    tools = [
        _tool("submit_guess", "Guess a word.", "guess"),
        _tool("check_word_validity", "Ask whether a word may be guessed; takes no turn.", "word"),
        _tool("get_game_state", "What is known so far."),
    ]
    given = {"input": [{"role": "user", "content": prompt}], "tools": tools}
    return {"responses_create_params": given, "custom_target": word, "word_length": LENGTH, "max_turns": TURNS}
