"""``_inherit_from``, ``_copy`` and ``_delete_key``."""

from __future__ import annotations

import pytest

BASE = {"generic": {"responses_api_agents": {"x": {"a": 1, "b": {"c": 2, "d": 3}}}}}


def test_copy_holds_what_the_other_holds_with_its_own_keys_on_top(load):
    """The source stays where it is, and neither changes with the other."""
    mine = {"_copy": "generic", "responses_api_agents": {"x": {"b": {"c": 9}}}}
    config = load({**BASE, "mine": mine})
    assert config.server("mine").settings == {"a": 1, "b": {"c": 9, "d": 3}}
    assert config.server("generic").settings == {"a": 1, "b": {"c": 2, "d": 3}}


def test_inherit_from_takes_the_source_away(load):
    """The heir stands in its place; several heirs of one source each get it whole."""
    config = load({**BASE, "one": {"_inherit_from": "generic"}, "two": "${inherit_from:generic}"})
    assert [block.name for block in config.servers] == ["one", "two"]
    assert config.server("one").settings == config.server("two").settings == {"a": 1, "b": {"c": 2, "d": 3}}


def test_a_source_may_itself_copy(load):
    """A chain is followed to its end, whatever the order in which it is written."""
    config = load({"_c": {"_copy": "_b", "z": 3}, "_b": {"_copy": "_a", "y": 2}, "_a": {"x": 1}})
    assert config.settings["_c"] == {"x": 1, "y": 2, "z": 3}


def test_a_path_below_and_a_plain_value_can_be_copied(load):
    """``${copy:a.b}`` stands for any value; a list of mappings is gone through too."""
    config = load(
        {**BASE, "_v": {"n": "${copy:generic.responses_api_agents.x.a}", "l": [{"_copy": "_w"}]}, "_w": {"q": 1}}
    )
    assert config.settings["_v"] == {"n": 1, "l": [{"q": 1}]}


def test_what_is_only_copied_may_have_any_name(load):
    """A top-level key that a directive refers to is not an unknown key."""
    assert load({"shared": {"x": 1}, "_v": {"_copy": "shared"}}).settings["_v"] == {"x": 1}


@pytest.mark.parametrize("named", ["a, b", ["a", "b"]])
def test_delete_key_takes_keys_away_after_inheriting(load, named):
    """Both spellings, of its own keys and of inherited ones; the deleted need not be given."""
    config = load(
        {**BASE, "_v": {"_copy": "generic.responses_api_agents.x", "_delete_key": named, "z": "${limit}"}, "limit": 1}
    )
    assert config.settings["_v"] == {"z": 1}
    assert load({"_v": {"a": "???", "b": 2, "_delete_key": "a"}}).settings["_v"] == {"b": 2}


@pytest.mark.parametrize(
    ("mapping", "key", "says"),
    [
        ({"_v": {"_copy": "nothing"}}, "_v._copy", "there is no 'nothing'"),
        ({"_v": {"_copy": "_w.y"}, "_w": {"x": 1}}, "_v._copy", "there is no '_w.y'"),
        ({"_v": {"_copy": "_w.x.y"}, "_w": {"x": 1}}, "_v._copy", "there is no '_w.x.y'"),
        ({"_v": {"_copy": "_v"}}, "_v._copy", "leads back to itself"),
        ({"_v": {"a": {"_inherit_from": "_v"}}}, "_v.a._inherit_from", "leads back to itself"),
        ({"_v": {"_copy": "_w"}, "_w": {"_copy": "_v"}}, None, "leads back to itself"),
        ({"_v": {"_copy": 3}}, "_v._copy", "must be the path"),
        ({"_v": {"_delete_key": "a"}}, "_v._delete_key", "there is no key 'a' to delete"),
        ({"_v": {"_delete_key": 3, "a": 1}}, "_v._delete_key", "must be the names of keys"),
    ],
)
def test_a_directive_that_leads_nowhere_is_refused(refuse, mapping, key, says):
    """A missing path, a circle, a key that is not there."""
    error = refuse(mapping)
    assert key is None or error.key == key
    assert says in str(error)
