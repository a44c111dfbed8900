"""Where a configuration's values come from."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gym_trio.config import load_config

SHOP = """
shop:
  resources_servers:
    shop:
      entrypoint: app.py
      domain: games
      verified: false
shop_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: shop}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
        - {name: train, type: train, jsonl_fpath: data/train.jsonl, license: Apache 2.0, num_repeats: 2}
policy_model:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_base_url: ${policy_base_url}
      openai_api_key: ${policy_api_key}
      openai_model: ${policy_model_name}
shop_env:
  environment_servers:
    legacy_agent:
      entrypoint: app.py
      agent_server: {type: responses_api_agents, name: shop_agent}
"""
ENV = (
    "policy_base_url: http://localhost:1/v1\npolicy_api_key: sk-local-key\npolicy_model_name: tiny\nhf_token: unused\n"
)


def test_a_configuration_in_the_form_of_nemo_gym_loads_with_its_env_yaml(put, load):
    """Server blocks, references, interpolation and the local file of keys make one frozen configuration."""
    path = put("shop.yaml", SHOP)
    put("env.yaml", ENV)
    config = load(path, "++shop_agent.responses_api_agents.simple_agent.max_steps=4", "num_repeats=3")
    assert [block.name for block in config.servers] == ["shop", "shop_agent", "policy_model", "shop_env"]
    model = config.server("policy_model")
    assert model.settings["openai_base_url"] == "http://localhost:1/v1"
    assert model.key == "policy_model.responses_api_models.openai_model"
    assert config.server("shop_agent").settings["max_steps"] == 4
    assert config.run.num_repeats == 3
    assert config.warnings == ()
    assert [block.name for block in config.of_type("responses_api_agents")] == ["shop_agent"]
    assert config.files == (str(path), str(path.parent / "env.yaml"))


def test_precedence_is_files_then_env_yaml_then_mapping_then_overrides(put, load):
    """Each source is over the one before, key by key, and the last words are those of the command line."""
    first = put("first.yaml", "responses_create_params: {a: 1, b: 1, c: 1, d: 1, e: 1}\n")
    second = put("second.yaml", "responses_create_params: {b: 2, c: 2, d: 2, e: 2}\n")
    put("env.yaml", "responses_create_params: {c: 3, d: 3, e: 3}\n")
    mapping = {"responses_create_params": {"d": 4, "e": 4}}
    config = load([mapping, first, second], "++responses_create_params.e=5")
    assert config.run.responses_create_params == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}


def test_a_mappings_server_replaces_that_of_another_implementation(put, load):
    """What it replaces need not even be whole; of the same implementation, the keys are laid over one another."""
    model = "m: {responses_api_models: {openai_model: {openai_base_url: '${nowhere}', openai_model: x}}}"
    path = put("c.yaml", model)
    other = {"m": {"responses_api_models": {"scripted_model": {"replies": []}}}}
    assert load([path, other]).server("m").implementation == "scripted_model"
    last = {"m": {"responses_api_models": {"vllm_model": {"model": "v"}}}}
    assert load([path, other, last]).server("m").settings == {"model": "v"}
    same = {"m": {"responses_api_models": {"openai_model": {"openai_base_url": "u"}}}}
    assert load([path, same]).server("m").settings == {"openai_base_url": "u", "openai_model": "x"}
    heir = {"m": {"responses_api_models": {"vllm_model": {"_copy": "m.responses_api_models.openai_model", "a": 1}}}}
    assert load([path, {"nowhere": "n"}, heir]).server("m").settings["openai_base_url"] == "n"


def test_two_implementations_of_one_server_are_an_error_that_names_both(put, load, refuse):
    """Between files, and where the command line adds one to a mapping's."""
    first = put("a.yaml", "m: {responses_api_models: {openai_model: {}}}")
    second = put("b.yaml", "m: {responses_api_models: {vllm_model: {}}}")
    wanted = "must hold one implementation by name, not openai_model, vllm_model"
    assert wanted in str(refuse([first, second]))
    mapping = {"m": {"responses_api_models": {"openai_model": {}}}}
    assert wanted in str(refuse(mapping, "++m.responses_api_models.vllm_model={}"))


def test_a_file_is_over_what_it_includes_and_a_later_sibling_over_an_earlier(put, load):
    """``config_paths`` nests: the includer wins, and siblings keep their order with all that they bring."""
    put("deep.yaml", "_v: {a: deep, b: deep, c: deep, d: deep}\n")
    put("left.yaml", "config_paths: [deep.yaml]\n_v: {b: left, c: left, d: left}\n")
    put("right.yaml", "_v: {c: right, d: right}\n")
    top = put("top.yaml", "config_paths: [left.yaml, right.yaml]\n_v: {d: top}\n")
    assert load(top).settings["_v"] == {"a": "deep", "b": "left", "c": "right", "d": "top"}


def test_files_that_include_each_other_are_read_once(put, load):
    """A circle of includes ends."""
    put("a.yaml", "config_paths: [b.yaml]\nlimit: 1\n")
    b = put("b.yaml", "config_paths: a.yaml\nlimit: 2\n")
    assert load(b).run.limit == 2


def test_config_paths_may_come_from_overrides_env_yaml_and_mappings(put, load):
    """All places that can name files can name them."""
    put("one.yaml", "limit: 1\n")
    put("two.yaml", "shard: 1/2\n")
    put("three.yaml", "fsync: true\n")
    put("env.yaml", "config_paths: [one.yaml]\n")
    run = load({"config_paths": ["two.yaml"]}, "+config_paths=[three.yaml]").run
    assert (run.limit, run.shard, run.fsync) == (1, "1/2", True)


def test_paths_of_files_may_refer_to_other_keys_and_to_the_environment(put, load, refuse, tmp_path):
    """To keys beside them, in env.yaml and on the command line."""
    put("a/one.yaml", "limit: 1\n")
    put("b/two.yaml", "shard: 1/2\n")
    put("c/three.yaml", "fsync: true\n")
    put("env.yaml", "b_folder: b\n")
    text = "_a: a\nconfig_paths: ['${_a}/one.yaml', '${b_folder}/two.yaml', '${oc.env:C}/${_name}.yaml']\n"
    run = load(put("top.yaml", text), "++_name=three", env={"C": "c"}).run
    assert (run.limit, run.shard, run.fsync) == (1, "1/2", True)
    error = refuse(put("top.yaml", "config_paths: ['${nowhere}/x.yaml']\n"))
    assert (error.key, error.file) == ("config_paths[0]", str(tmp_path / "top.yaml"))


def test_a_relative_path_is_looked_for_in_extra_roots_then_cwd_then_beside_the_file(put, load, tmp_path):
    """The first root that has the file gives it."""
    put("extra/x.yaml", "limit: 1\n")
    put("x.yaml", "limit: 2\n")
    put("elsewhere/x.yaml", "limit: 3\n")
    top = put("elsewhere/top.yaml", "config_paths: [x.yaml]\n")
    env = {"NEMO_GYM_EXTRA_ROOTS": f"{tmp_path / 'nothing'}:{tmp_path / 'extra'}"}
    assert load(top, env=env).run.limit == 1
    assert load(top).run.limit == 2
    (tmp_path / "x.yaml").unlink()
    assert load(top).run.limit == 3


def test_env_yaml_can_be_given_and_left_out(put, load, refuse, tmp_path):
    """None reads the one that is there, a path another, False none; a path that is missing is an error."""
    put("env.yaml", "limit: 1\n")
    other = put("other.yaml", "limit: 2\n")
    assert load().run.limit == 1
    assert load(env_yaml=other).run.limit == 2
    assert load(env_yaml=False).run.limit is None
    assert "there is no such file" in str(refuse(env_yaml=tmp_path / "no.yaml"))
    put("roots/env.yaml", "limit: 4\n")
    assert load(env={"NEMO_GYM_EXTRA_ROOTS": str(tmp_path / "roots")}).run.limit == 4


def test_environment_variables_come_from_the_mapping_that_was_passed(load):
    """``${oc.env:...}`` sees the caller's mapping and nothing else; a default may be another variable."""
    text = {
        "a": "${oc.env:NAME}",
        "b": "at ${oc.env:HOST,localhost}:${oc.env:PORT,80}",
        "c": "${oc.env:NO,${oc.env:NAME}}",
        "d": "${oc.env:NO,null}",
        "e": "${oc.env:NO,''}",
        "f": "${oc.env:BRACES}",
        "g": "${oc.env:NO,${_v.a}}",
    }
    env = {"NAME": "n", "PORT": "8", "BRACES": "a ${b}"}
    got = load({"_v": text}, env=env).settings["_v"]
    assert got == {"a": "n", "b": "at localhost:8", "c": "n", "d": None, "e": "", "f": "a ${b}", "g": "n"}


def test_interpolation_reaches_into_other_keys(load):
    """``${a.b}``, relative ``${.x}`` and whole mappings resolve as omegaconf does it."""
    got = load({"_base": {"x": 1, "y": {"z": [1, 2]}}, "_v": {"a": "${_base.y}", "b": "${.c}", "c": "${_base.x}!"}})
    assert got.settings["_v"] == {"a": {"z": [1, 2]}, "b": "1!", "c": "1!"}


def test_a_loaded_configuration_loads_again(put, load):
    """The mapping of a configuration, and the configuration itself, are sources: nothing is lost or changed."""
    put("env.yaml", ENV)
    config = load(put("shop.yaml", SHOP), "++limit=3")
    again = load_config(config.to_mapping(), env_yaml=False)
    assert again.to_mapping() == config.to_mapping()
    assert load_config(config, overrides=["limit=4"], env_yaml=False).run.limit == 4
    assert load_config(json.loads(json.dumps(config.to_mapping())), env_yaml=False).servers == again.servers


def test_yaml_of_a_configuration_reads_back(put, load):
    """What is shown is the configuration in the form in which it is written, keys hidden."""
    put("env.yaml", ENV)
    config = load(put("shop.yaml", SHOP))
    assert OmegaConf.to_container(OmegaConf.create(config.to_yaml())) == config.redacted()
    assert OmegaConf.to_container(OmegaConf.create(config.to_yaml(redacted=False))) == config.to_mapping()


def test_what_stands_only_in_env_yaml_need_not_be_used(put, load):
    """The local file holds the keys of many runs; in any other place an unused key is a mistake."""
    put("env.yaml", "judge_api_key: x\nsomething_else: {a: 1}\n")
    assert load().settings["something_else"] == {"a": 1}


def test_a_grace_that_is_shorter_than_the_drain_it_must_contain_is_a_warning(load):
    """Both keys are named; a grace that is long enough, or not set, says nothing."""
    agent = {"responses_api_agents": {"simple_agent": {"session_close_timeout_seconds": 90}}}
    (told,) = load({"a": agent, "server_shutdown_timeout_seconds": 70}).warnings
    assert "server_shutdown_timeout_seconds is 70" in told
    assert "a.responses_api_agents.simple_agent.session_close_timeout_seconds, 90" in told
    assert load({"a": agent, "server_shutdown_timeout_seconds": 100}).warnings == ()
    assert load({"a": agent}).warnings == ()
    plain = {"responses_api_agents": {"simple_agent": {}}}
    assert "(its default), 60" in load({"a": plain, "server_shutdown_timeout_seconds": 30}).warnings[0]
    run = {"a": plain, "server_shutdown_timeout_seconds": 30, "session_close_timeout_seconds": 40}
    assert "session_close_timeout_seconds, 40" in load(run).warnings[0]


def test_an_unknown_domain_is_a_warning(load):
    """A domain that this version does not know is told of and does not stop anyone."""
    (told,) = load({"s": {"resources_servers": {"s": {"domain": "gamez"}}}}).warnings
    assert told == "s.resources_servers.s.domain: 'gamez' is not a known domain; did you mean 'games'?"


def test_almost_servers_can_be_let_through(load):
    """``error_on_almost_servers: false`` turns the error into a warning, as in NeMo Gym."""
    config = load({"shop": {"resource_servers": {"shop": {}}}, "error_on_almost_servers": False})
    assert config.servers == ()
    assert "did you mean 'resources_servers'?" in config.warnings[0]


_names = st.text("abcdef_", min_size=1, max_size=4)
_trees = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("abc 1:{[", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=12,
)


@given(_trees, _trees)
def test_mappings_are_laid_over_one_another_as_omegaconf_does_it(lower, upper):
    """Merging plain containers gives what omegaconf's merge gives."""
    merged = load_config([{"_v": {"v": lower}}, {"_v": {"v": upper}}], env_yaml=False).settings["_v"]["v"]
    if isinstance(lower, dict) and isinstance(upper, dict):
        try:
            want = OmegaConf.to_container(OmegaConf.merge(OmegaConf.create(lower), OmegaConf.create(upper)))
        except TypeError:
            reject()  # omegaconf does not put a mapping in the place of a list; here anything replaces a list
        assert merged == want
    else:
        assert merged == upper


def test_objects_that_no_yaml_could_hold_pass_through(load):
    """A mapping given in Python may hold anything; interpolation beside it does not mind."""
    thing = object()
    config = load({"m": {"responses_api_models": {"mine": {"thing": thing, "x": "${limit}"}}}, "limit": 2})
    assert config.server("m").settings == {"thing": thing, "x": 2}


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}\n"])
def test_an_empty_file_holds_nothing(put, load, text):
    """An empty file, a comment and an empty mapping are the same."""
    assert load(put("e.yaml", text)).servers == ()
