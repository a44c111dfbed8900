"""Nothing that is shaped like a key is shown."""

from __future__ import annotations

import pytest

from gym_trio.config import is_secret_name, load_config, redact, redact_text, secrets_in


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sk-abc123", "sk-****"),
        ("the key sk-proj-ABC_def-123 was refused", "the key sk-**** was refused"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ****"),
        ("bearer xyz987", "bearer ****"),
        ("hf_abcdefghij", "hf_****"),
        ("nvapi-abcdefgh12", "nvapi-****"),
        ("http://user:pass@host/v1", "http://user:****@host/v1"),
        ("AKIAABCDEFGHIJKLMNOP", "AKIA****"),
        ("task-1 of risk-free disk-usage", "task-1 of risk-free disk-usage"),
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("the bearer of it", "the bearer of it"),
    ],
)
def test_a_key_is_hidden_in_any_text(text, shown):
    """What is shaped like a key goes, the words around it stay."""
    assert redact_text(text) == shown


def test_a_key_is_hidden_by_its_name_at_any_depth():
    """Texts under a secret's name go, numbers and other names stay."""
    value = {
        "openai_api_key": "plain",
        "nested": [{"password": "p", "Authorization": "x", "hf_token": "t", "api_keys": ["a", {"n": 1}]}],
        "max_output_tokens": 5,
        "max_tokens": "5",
        "tokenizer": "Qwen",
        "token_id_capture": {"dir": "x"},
        "secret": "",
        "token": 7,
        1: "sk-abcdef",
    }
    assert redact(value) == {
        "openai_api_key": "****",
        "nested": [{"password": "****", "Authorization": "****", "hf_token": "****", "api_keys": ["****", {"n": 1}]}],
        "max_output_tokens": 5,
        "max_tokens": "5",
        "tokenizer": "Qwen",
        "token_id_capture": {"dir": "x"},
        "secret": "",
        "token": 7,
        1: "sk-****",
    }


def test_a_secret_that_is_known_is_hidden_in_other_texts_too():
    """A provider that quotes the key that it refused does not bring it into a file."""
    secrets = secrets_in({"a": {"api_key": "my-own-key", "other": "word"}, "token": ["abcdefg"], "password": "short"})
    assert secrets == {"my-own-key", "abcdefg"}
    assert redact("Incorrect API key: my-own-key", secrets=secrets) == "Incorrect API key: ****"


def test_a_configuration_shows_no_key():
    """Its YAML, its mapping for others, and the representations of all its records."""
    config = load_config(
        {
            "m": {"responses_api_models": {"x": {"api_key": "hush-hush", "base_url": "http://u:hidden@h/"}}},
            "policy_api_key": "hush-hush",
        },
        env_yaml=False,
    )
    for shown in (config.to_yaml(), str(config.redacted()), repr(config), repr(config.server("m")), repr(config.run)):
        assert "hush-hush" not in shown
        assert "hidden" not in shown
    assert "hush-hush" in config.to_yaml(redacted=False)
    assert config.secrets() == {"hush-hush"}


@pytest.mark.parametrize("name", ["api_key", "OPENAI_API_KEY", "apikey", "client_secret", "passwd", "auth_token"])
def test_names_of_secrets(name):
    """The names that say it."""
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["max_tokens", "tokenizer", "prompt_token_ids", "token_count", "name", 3, None])
def test_names_of_no_secrets(name):
    """The names that only sound like it."""
    assert not is_secret_name(name)
