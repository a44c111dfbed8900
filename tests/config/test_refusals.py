"""Each mistake is one line that names the file, the key's path and the nearest right name."""

from __future__ import annotations

import copy

import pytest

from gym_trio.config import load_config
from gym_trio.errors import ConfigError

AGENT = {"responses_api_agents": {"simple_agent": {}}}


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("shop: {resource_servers: {shop: {}}}", "shop.resource_servers", "did you mean 'resources_servers'?"),
        ("shop: {servers: {shop: {entrypoint: app.py}}}", "shop.servers", "unknown server type 'servers'"),
        ("shop: {resources_servers: {a: {}, b: {}}}", "shop.resources_servers", "one implementation"),
        ("shop: {resources_servers: {}}", "shop.resources_servers", "one implementation"),
        ("shop: {resources_servers: 3}", "shop.resources_servers", "one implementation"),
        ("shop: {resources_servers: {a: 3}}", "shop.resources_servers.a", "must be a mapping"),
        ("shop: {resources_servers: {a: {}}, port: 3}", "shop.port", "unknown key beside 'resources_servers'"),
        ("s: {resources_servers: {a: {}}, responses_api_models: {b: {}}}", "s.responses_api_models", "second server"),
        ("s: {resources_servers: {a: {port: http}}}", "s.resources_servers.a.port", "must be a whole number"),
        ("s: {resources_servers: {a: {port: 70000}}}", "s.resources_servers.a.port", "from 0 to 65535"),
        ("s: {resources_servers: {a: {host: 3}}}", "s.resources_servers.a.host", "put it in quotes"),
        ("s: {resources_servers: {a: {datasets: x}}}", "s.resources_servers.a.datasets", "must be a list"),
        ("s: {resources_servers: {a: {datasets: [x]}}}", "s.resources_servers.a.datasets[0]", "must be a mapping"),
        ("num_repeat: 3", "num_repeat", "did you mean 'num_repeats'?"),
        ("zzz: 3", "zzz", "unknown key (it is no server block"),
        ("num_repeats: three", "num_repeats", "must be a whole number"),
        ("num_repeats: {a: 0}", "num_repeats", "at least 1"),
        ("num_repeats: [1]", "num_repeats", "must be a whole number or a mapping"),
        ("limit: 0", "limit", "at least 1"),
        ("limit: true", "limit", "must be a whole number"),
        ("fsync: 1", "fsync", "must be true or false"),
        ("split: trian", "split", "did you mean 'train'?"),
        ("dispatch_budget_s: -1", "dispatch_budget_s", "finite and not negative"),
        ("dispatch_budget_s: .inf", "dispatch_budget_s", "finite and not negative"),
        ("dispatch_budget_s: .nan", "dispatch_budget_s", "finite and not negative"),
        ("rollout_timeout_seconds: 0", "rollout_timeout_seconds", "above 0"),
        ("head_server: {prt: 3}", "head_server.prt", "did you mean 'port'?"),
        ("head_server: {port: x}", "head_server.port", "must be a whole number"),
        ("skills: {}", "skills.path", "must be given"),
        ("skills: {path: ''}", "skills.path", "must not be empty"),
        ("token_id_capture: {max_mask_fraction: 2}", "token_id_capture.max_mask_fraction", "from 0 to 1"),
        ("fan_out: {a: [b, b]}", "fan_out", "lists an agent twice"),
        ("fan_out: {a: []}", "fan_out", "lists no agent"),
        ("fan_out: {a: b}", "fan_out.a", "must be a list"),
        ("agent_map: {a: 3}", "agent_map.a", "must be a text"),
        ("agent_map: {1: a}", "agent_map", "the key 1 must be a text"),
        ("port_range_low: 9\nport_range_high: 8", "port_range_low", "above port_range_high"),
        ("limit: ???", "limit", "must be given: in env.yaml, or as ++limit=VALUE"),
        ("limit: ${lim}", "limit", "refers to 'lim', which is not set; did you mean 'limit'?"),
        ("limit: ${a.b}", "limit", "refers to 'a.b', which is not set"),
        ("limit: ${oc.env:LIMIT}", "limit", "the environment variable 'LIMIT' is not set"),
        ("limit: ${oc.env:${x}}", "limit", "is not the name of an environment variable"),
        ("limit: '${oc.env:X'", "limit", "missing BRACE_CLOSE"),
        ("limit: ${nonsense:3}", "limit", "nonsense"),
        ("limit: '${'", "limit", ""),
        ("config_paths: 3", "config_paths", "must be a list of paths"),
        ("config_paths: [nowhere.yaml]", "config_paths", "there is no file 'nowhere.yaml'; looked in"),
    ],
)
def test_a_wrong_file_is_named_with_the_key_and_what_would_be_right(put, refuse, text, key, says):
    """The error has the file and the key, and says what is wrong with it."""
    path = put("wrong.yaml", text)
    error = refuse(path)
    assert (error.key, error.file) == (key, str(path)), str(error)
    assert says in str(error)
    assert str(error).startswith(f"{path}: {key}: ")


@pytest.mark.parametrize(
    ("text", "line"), [("a: 1\nb: [1,\nc: 2\n", 4), ("a: 1\n  b: 2\n", 2), ("a: 1\na: 2\n", 2), ("a: @\n", 1)]
)
def test_broken_yaml_is_named_with_its_line(put, refuse, text, line):
    """The first line that cannot be read is in the error, a key that stands twice included."""
    path = put("broken.yaml", text)
    error = refuse(path)
    assert error.file == f"{path}:{line}"
    assert "broken YAML" in str(error)


def test_files_that_are_no_configurations_are_named(put, refuse, tmp_path):
    """A list, a text, bytes, a folder and nothing at all."""
    assert "must hold a mapping" in str(refuse(put("list.yaml", "- 1\n")))
    assert "is not UTF-8" in str(_bytes(tmp_path, refuse, b"\xff\xfe\x00a"))
    assert "broken YAML" in str(_bytes(tmp_path, refuse, b"a: \x00"))
    assert "there is no file" in str(refuse(tmp_path))
    assert "must be a text" in str(refuse(put("int.yaml", "1: 2\n")))
    assert "must be a text" in str(refuse({1: 2}))
    assert "there is no file" in str(refuse("nowhere.yaml"))
    assert "there is no file" in str(refuse(tmp_path / "nowhere.yaml"))


def _bytes(tmp_path, refuse, content):
    path = tmp_path / "bytes.yaml"
    path.write_bytes(content)
    return refuse(path)


def test_a_file_that_cannot_be_read_is_named(refuse):
    """The reason of the operating system is in the error. (That file opens, and no byte of it can be read.)"""
    assert "/proc/self/mem: cannot be read: " in str(refuse("/proc/self/mem"))


@pytest.mark.parametrize(
    ("reference", "key", "says"),
    [
        ({"type": "resources_servers", "name": "shp"}, "resources_server.name", "did you mean 'shop'?"),
        ({"type": "resource_servers", "name": "shop"}, "resources_server.type", "did you mean 'resources_servers'?"),
        ({"type": "responses_api_models", "name": "shop"}, "resources_server", "'shop' is one of resources_servers"),
    ],
)
def test_a_reference_to_a_server_that_is_not_there_is_refused(refuse, reference, key, says):
    """A wrong name, a wrong type and a name of another type."""
    agent = {"responses_api_agents": {"simple_agent": {"resources_server": reference}}}
    error = refuse({"shop": {"resources_servers": {"shop": {}}}, "a": agent})
    assert error.key == f"a.responses_api_agents.simple_agent.{key}"
    assert says in str(error)


SHOP = {
    "shop": {"resources_servers": {"shop": {}}},
    "buyer": {
        "responses_api_agents": {"simple_agent": {"resources_server": {"type": "resources_servers", "name": "shop"}}}
    },
}
FRONT = {"legacy_agent": {"agent_server": {"type": "responses_api_agents", "name": "buyer"}}}


@pytest.mark.parametrize(
    ("blocks", "keys", "key", "says"),
    [
        (
            SHOP,
            {"environment_server_routes": {"books:train": "shop"}},
            "environment_server_routes.books:train",
            "'shop' is one of resources_servers, and rows go through one of environment_servers only, of which the "
            "configuration has none: add shop_env: {environment_servers: {legacy_agent: {agent_server: {type: "
            "responses_api_agents, name: buyer}}}} and name that",
        ),
        (
            {**SHOP, "front": {"environment_servers": FRONT}, "other": {"environment_servers": {"legacy_agent": {}}}},
            {"environment_server_name": "shop"},
            "environment_server_name",
            "environment_servers only: write 'front'",
        ),
        (
            {**SHOP, "other": {"environment_servers": {"legacy_agent": {}}}},
            {"environment_server_name": "buyer"},
            "environment_server_name",
            "'buyer' is one of responses_api_agents, and rows go through one of environment_servers only: write 'oth",
        ),
    ],
)
def test_rows_sent_through_a_server_that_is_none_for_episodes_are_refused(refuse, blocks, keys, key, says):
    """The error has the key, the server, what the server is, and what to write instead."""
    error = refuse({**blocks, **keys})
    assert error.key == key
    assert says in str(error)


def test_rows_may_go_through_an_environment_server_or_one_that_is_elsewhere(load):
    """A right name is taken, and so is one that no block has: it may be known to a head server."""
    blocks = {**SHOP, "front": {"environment_servers": FRONT}}
    assert load({**blocks, "environment_server_routes": {"t": "front"}}).run.environment_server_routes == {"t": "front"}
    assert load({**blocks, "environment_server_name": "elsewhere"}).run.environment_server_name == "elsewhere"


def test_references_are_found_at_any_depth_and_other_mappings_are_not_taken_for_them(load, refuse):
    """A list of references is checked; a dataset or a tool, which have a type and a name too, is not."""
    tools = [{"type": "function", "name": "f"}, {"type": "example", "name": "shop"}]
    agent = {"responses_api_agents": {"x": {"tools": tools, "others": [{"type": "resources_servers", "name": "no"}]}}}
    assert refuse({"a": agent}).key == "a.responses_api_agents.x.others[0].name"
    agent["responses_api_agents"]["x"].pop("others")
    assert load({"a": agent}).server("a").settings["tools"] == tools


@pytest.mark.parametrize(
    ("override", "key", "says"),
    [
        ("a.responses_api_agents.simple_agent.max_step=4", "a.responses_api_agents.simple_agent.max_step", "max_steps"),
        ("num_repeat=4", "num_repeat", "did you mean 'num_repeats'?"),
        ("zzz=4", "zzz", "no such key to change (++zzz=... adds it)"),
        ("b.c.d=4", "b.c.d", "there is no 'b'"),
        ("~a.nothing", "a.nothing", "there is no key 'nothing' to delete"),
        ("++a.responses_api_agents.simple_agent.max_steps.x=1", "a.responses_api_agents.simple_agent.max_steps.x", ""),
        ("++limit=x", "limit", "must be a whole number"),
        ("++list=1", "list", "unknown key"),
        ("++limit=[1", "limit", "']' or ',' is missing"),
        ("++limit={1", "limit", "has no ':'"),
        ("++limit='x", "limit", "is not closed"),
        ("++limit=[1] 2", "limit", "nothing may follow"),
        (
            "++a.responses_api_agents.simple_agent.steps.7=1",
            "a.responses_api_agents.simple_agent.steps.7",
            "has 2 items",
        ),
        ("~a.responses_api_agents.simple_agent.steps.2", "a.responses_api_agents.simple_agent.steps.2", "has 2 items"),
        ("a.responses_api_agents.simple_agent.steps.x=1", "a.responses_api_agents.simple_agent.steps.x", "2 items"),
    ],
)
def test_a_wrong_override_is_named_as_the_command_lines(refuse, override, key, says):
    """The error says that it is the command line, and which key."""
    agent = {"responses_api_agents": {"simple_agent": {"max_steps": 1, "steps": [1, 2]}}}
    error = refuse({"a": agent}, override)
    assert (error.file, error.key) == ("command line", key)
    assert says in str(error)


@pytest.mark.parametrize("override", ["", "=3", "++=3", "a..b=1", "++a", "a", "a b=1"])
def test_what_is_no_override_is_shown_with_the_right_form(refuse, override):
    """A word that has no key or no value."""
    assert "is not an override; write ++key.path=value" in str(refuse({}, override))


def test_every_missing_value_is_told_at_once(put, refuse):
    """The first with its file, the others by name."""
    path = put("m.yaml", "m: {responses_api_models: {x: {url: '???', list: [a, '???']}}}\n")
    error = refuse(path)
    assert error.key == "m.responses_api_models.x.url"
    assert "(and m.responses_api_models.x.list[1])" in str(error)


def test_the_blame_is_the_source_of_the_very_key(put, load):
    """A block from a file with a key from the command line: the error says which of the two is wrong."""
    path = put("m.yaml", "m: {responses_api_models: {x: {port: 1, steps: 2}}}\n")
    with pytest.raises(ConfigError) as caught:
        load(path, "++m.responses_api_models.x.port=x")
    assert caught.value.file == "command line"
    block = load(path, "++m.responses_api_models.x.other=x").server("m")
    assert (block.file, dict(block.origins)) == (str(path), {"other": "command line"})


def test_an_unknown_server_is_refused_with_the_nearest(load):
    """Asking a configuration for a server that it does not have."""
    with pytest.raises(ConfigError, match=r"no server 'b'; known: a"):
        load({"a": AGENT}).server("b")


def test_a_secret_is_not_in_the_error_about_it():
    """The value of a key that is shaped like one, or named like one, is not shown."""
    with pytest.raises(ConfigError) as caught:
        load_config({"policy_api_key": {"k": "my-own-key"}}, env_yaml=False)
    assert "my-own-key" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        load_config({"limit": "sk-abcdefgh"}, env_yaml=False)
    assert "abcdefgh" not in str(caught.value)


def test_a_server_that_is_wanted_alone_needs_its_own_references_only() -> None:
    """The others' are told by server, each with the file's and the key's name; by default the first is refused."""
    missing = {"type": "responses_api_models", "name": "policy"}
    content = {
        "sky": {"resources_servers": {"mcqa": {}}},
        "agent": {"responses_api_agents": {"simple_agent": {"model_server": missing}}},
        "other": {"responses_api_agents": {"simple_agent": {"model_server": {**missing, "name": "sky"}}}},
    }
    loaded = load_config(content, env_yaml=False, whole=False)
    assert {name: error.key for name, error in loaded.dangling.items()} == {
        "agent": "agent.responses_api_agents.simple_agent.model_server.name",
        "other": "other.responses_api_agents.simple_agent.model_server",
    }
    with pytest.raises(ConfigError) as caught:
        load_config(content, env_yaml=False)
    assert str(caught.value) == str(loaded.dangling["agent"])


@pytest.mark.parametrize(
    ("lacks", "key", "says"),
    [
        ({"api_key": "${oc.env:NO_SUCH_KEY}"}, "api_key", "'NO_SUCH_KEY' is not set"),
        ({"api_key": "${policy_key}", "limits": [1, {"per": "${other_key}"}]}, "api_key", "refers to 'policy_key'"),
        ({"limits": [1, {"per": "${other_key}"}]}, "limits[1].per", "refers to 'other_key'"),
        ({"limits": ["???"], "api_key": "???"}, "limits[0]", "must be given (and policy."),
        ({"nested": {"api_key": "x/${policy_key}/${other_key}"}}, "nested.api_key", "refers to 'policy_key'"),
    ],
)
def test_a_server_that_is_wanted_alone_needs_its_own_values_only(lacks: dict, key: str, says: str) -> None:
    """What the model lacks is no fault of the agent that asks it; the model itself is refused as ever."""
    model = {"type": "responses_api_models", "name": "policy"}
    content = {
        "agent": {"responses_api_agents": {"simple_agent": {"model_server": model}}},
        "policy": {"responses_api_models": {"scripted_model": {"host": "10.0.0.1", "port": 8001, **lacks}}},
        "rival": {"responses_api_models": {"scripted_model": {"replies": "???"}}},
    }
    given = copy.deepcopy(content)
    loaded = load_config(content, env_yaml=False, whole=False)
    assert content == given
    assert set(loaded.dangling) == {"policy", "rival"}
    error = loaded.dangling["policy"]
    assert error.key == f"policy.responses_api_models.scripted_model.{key}"
    assert says in str(error)
    assert "rival.responses" not in str(error)
    policy = loaded.server("policy")
    assert (policy.host, policy.port) == ("10.0.0.1", 8001)
    with pytest.raises(ConfigError):
        load_config(content, env_yaml=False)


@pytest.mark.parametrize(
    "content",
    [
        {"max_concurrent": "${no_such}"},
        {"a": {"resources_servers": {"mcqa": {"x": "${oc.env:not a name}"}}}, "max_concurrent": "???"},
        {"a": {"resources_servers": {"mcqa": {"dotted.name": "${no_such}"}}}},
    ],
)
def test_what_no_server_alone_lacks_is_refused_at_once(content: dict) -> None:
    """A run's own setting, and a value whose place cannot be told: an error, not a search without an end."""
    with pytest.raises(ConfigError):
        load_config(content, env_yaml=False, whole=False)


LACKING = "policy.responses_api_models.scripted_model"


@pytest.mark.parametrize(
    ("value", "key", "names"),
    [
        (f"${{{LACKING}.api_key}}", "k", f"{LACKING}.api_key"),
        (f"x${{{LACKING}.api_key}}", "k", f"{LACKING}.api_key"),
        (f"${{{LACKING}.limits[1].per}}", "k", f"{LACKING}.limits[1].per"),
        ([{"deep": f"${{{LACKING}.limits[1].per}}"}], "k[0].deep", f"{LACKING}.limits[1].per"),
        (f"${{{LACKING}}}", "k.api_key", "must be given"),
        ([f"${{{LACKING}.limits}}"], "k[0][1].per", "must be given"),
    ],
)
@pytest.mark.parametrize("missing", ["???", "${oc.env:NO_SUCH}", "${no_such}"])
@pytest.mark.parametrize("turned", [False, True])
def test_what_refers_to_a_value_that_another_server_lacks_lacks_it_too(
    value: object, key: str, names: str, missing: str, turned: bool
) -> None:
    """It is not None, nor a text with "None" in it; in whatever order the two stand."""
    policy = {"responses_api_models": {"scripted_model": {"api_key": missing, "limits": [1, {"per": missing}]}}}
    content = {
        "policy": policy,
        "env": {"resources_servers": {"mcqa": {"k": value, "port": 8001}}},
    }
    if turned:
        content = dict(reversed(content.items()))
    loaded = load_config(content, env_yaml=False, whole=False)
    error = loaded.dangling["env"]
    assert error.key == f"env.resources_servers.mcqa.{key}"
    assert names in str(error) or "'no_such'" in str(error)
    assert "\n" not in str(error)
    assert dict(loaded.server("env").settings) == {"port": 8001}
    assert dict(loaded.server("policy").settings) == {}


@pytest.mark.parametrize(
    "body",
    [
        {"datasets": "???"},
        {"datasets": ["???", "???"]},
        {"verified": "???", "num_workers": "${oc.env:NO_SUCH}", "domain": "${no_such}", "port": "???"},
        {"k": ["${oc.env:NO_SUCH}", "${.[0]}"]},
        "???",
    ],
)
def test_a_value_that_a_server_lacks_has_no_wrong_type(body: object) -> None:
    """Of the keys that every server may have: the others can be served, and it is told what it lacks."""
    content = {"a": {"resources_servers": {"mcqa": body}}, "b": {"resources_servers": {"mcqa": {}}}}
    loaded = load_config(content, env_yaml=False, whole=False)
    assert set(loaded.dangling) == {"a"}
    assert dict(loaded.server("a").settings) == {}


@pytest.mark.parametrize(
    "body",
    [{"a": [1], "a[7]": "???"}, {"a": [1], "a[b]": "???"}, {"a": [1], "a[-1]": "${no_such}"}, {"d": {1: "???"}}],
)
def test_a_key_that_looks_like_a_place_in_a_list_is_refused_like_any_other(body: dict) -> None:
    """Not with an index that is out of range."""
    with pytest.raises(ConfigError):
        load_config({"a": {"resources_servers": {"mcqa": body}}}, env_yaml=False, whole=False)
