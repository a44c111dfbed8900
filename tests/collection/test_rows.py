"""From the rows that are given to the rows that are sent."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_trio.collection import RunOptions, options_from, parse_shard, prepare_run, read_rows, stream_arguments
from gym_trio.collection._materialize import Materializer
from gym_trio.collection._source import RowSource
from gym_trio.config import load_config
from gym_trio.errors import ConfigError, RowError, UsageError

PARAMS = {"responses_create_params": {"input": "q"}}
REF = {"agent_ref": {"type": "responses_api_agents", "name": "a"}}


def test_each_row_gets_a_task_and_each_repeat_an_index(materialized, tasks, indices):
    """Repeats stand back to back, and rows keep what they had."""
    rows = materialized(tasks(3), num_repeats=2)
    assert indices(rows) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert rows[0] == {**tasks(1)[0], "_ng_task_index": 0, "_ng_rollout_index": 0}


def test_interleaved_repeats_go_round_by_round(materialized, tasks, indices):
    """Every task once before any task twice, each round in the input's order."""
    rows = materialized(tasks(3), num_repeats=2, interleave_repeats=True)
    assert indices(rows) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]


def test_identical_rows_are_one_task(materialized, tasks, indices):
    """Whatever the order of their keys, rows that say the same are repeats of one task."""
    first, second = tasks(2)
    same = dict(reversed(first.items()))
    rows = materialized([first, second, same, second], num_repeats=2)
    assert indices(rows) == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
    rounds = materialized([first, second, same], interleave_repeats=True)
    assert indices(rounds) == [(0, 0), (1, 0), (0, 1)]


def test_indices_that_rows_name_themselves_are_honoured(materialized, tasks, indices):
    """The others are numbered around them."""
    a, b, c, d, e = tasks(5)
    own = [
        {**a, "_ng_task_index": 1},
        b,
        {**c, "_ng_task_index": 1},
        d,
        {**e, "_ng_task_index": 0, "_ng_rollout_index": 7},
    ]
    assert indices(materialized(own)) == [(1, 0), (2, 0), (1, 1), (3, 0), (0, 7)]
    taken = [{**a, "_ng_task_index": 4}, {**b, "_ng_task_index": 4, "_ng_rollout_index": 0}]
    assert indices(materialized(taken)) == [(4, 1), (4, 0)]


def test_materialised_rows_are_rows_again(materialized, tasks):
    """The file of one run is the input of another, unchanged."""
    rows = materialized(tasks(3), num_repeats=2)
    assert materialized(rows) == rows
    later = [{**rows[0], "_ng_attempt_index": 2}]
    assert materialized(later) == later


def test_limit_takes_the_first_rows(materialized, tasks, indices):
    """Of the input, before repeats."""
    assert indices(materialized(tasks(5), limit=2, num_repeats=2)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


@given(st.integers(1, 7), st.integers(1, 30), st.integers(1, 3), st.booleans(), st.booleans())
@settings(deadline=None)
def test_shards_are_a_partition(count, rows, repeats, zero_based, interleave):
    """Together the shards are the whole run, and no two share a task; I may count from 0 or from 1."""
    given_rows = [{**PARAMS, "n": n} for n in range(rows)]
    more = {"num_repeats": repeats, "interleave_repeats": interleave, "output": "x"}

    def made(**options):
        options = RunOptions(rows=given_rows, **more, **options)
        return [
            (row["_ng_task_index"], row["_ng_rollout_index"]) for row in Materializer(RowSource(given_rows), options)
        ]

    whole = made()
    numbers = range(count) if zero_based else range(1, count + 1)
    shards = [made(shard=parse_shard(f"{number}/{count}")) for number in numbers]
    assert sorted(itertools.chain(*shards)) == sorted(whole)
    assert max(Counter(itertools.chain(*({task for task, _ in shard} for shard in shards))).values()) == 1


@pytest.mark.parametrize("text", ["3/2", "1/0", "a/b", "1", "-1/2", "1/2/3"])
def test_a_shard_that_is_none_is_refused(text):
    """The form is in the error."""
    with pytest.raises(UsageError, match="must be I/N"):
        parse_shard(text)


def test_a_seed_goes_where_model_servers_look_for_it(materialized, tasks):
    """``metadata.extra_body`` is a JSON text; what was in it stays, and no repeat shares it with another."""
    row = tasks(1)[0]
    row["responses_create_params"]["metadata"] = {"extra_body": '{"k": 1}', "x": "y"}
    rows = materialized([row], num_repeats=2, num_repeats_add_seed=True)
    metadata = [one["responses_create_params"]["metadata"] for one in rows]
    assert [json.loads(one["extra_body"]) for one in metadata] == [{"k": 1, "seed": 0}, {"k": 1, "seed": 1}]
    assert metadata[0]["x"] == "y"
    assert row["responses_create_params"]["metadata"]["extra_body"] == '{"k": 1}'
    row["responses_create_params"]["metadata"] = {"extra_body": "nonsense"}
    with pytest.raises(RowError, match="not a JSON object"):
        materialized([row], num_repeats_add_seed=True)


def test_parameters_are_laid_over_those_of_the_row(materialized, tasks):
    """Shallowly: a parameter of the run replaces the row's."""
    row = tasks(1)[0]
    row["responses_create_params"] |= {"temperature": 1, "metadata": {"a": 1}}
    (made,) = materialized([row], responses_create_params={"temperature": 0, "metadata": {"b": 2}})
    assert made["responses_create_params"] == {"input": "question 0", "temperature": 0, "metadata": {"b": 2}}


def test_a_prompt_builds_the_input_from_the_rows_fields(put, materialized):
    """System and user templates; doubled brackets are brackets; other parameters stay."""
    prompt = put("p.yaml", "system: 'Be {tone}.'\nuser: 'Is {n} prime? {{yes}}'\n")
    rows = [{"n": 91, "tone": "brief", "responses_create_params": {"temperature": 0}}, {"n": 2, "tone": "long"}]
    made = materialized(rows, prompt_config=prompt)
    assert made[0]["responses_create_params"] == {
        "temperature": 0,
        "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is 91 prime? {yes}"}],
    }
    only = put("q.yaml", "user: '{n}'\n")
    assert materialized(rows[1:], prompt_config=only)[0]["responses_create_params"]["input"][0]["content"] == "2"


def test_a_prompt_that_does_not_fit_is_refused(put, materialized, tasks):
    """A missing field, a row with an input of its own, a broken template, an unknown key."""
    with pytest.raises(RowError, match="row 1: has no field 'x'"):
        materialized([{"n": 1}], prompt_config=put("a.yaml", "user: '{x}'"))
    with pytest.raises(RowError, match=r"row 1: has no field 'n\.__class__'"):
        materialized([{"n": 1}], prompt_config=put("a.yaml", "user: '{n.__class__}'"))
    with pytest.raises(RowError, match=r"has a responses_create_params\.input of its own"):
        materialized(tasks(1), prompt_config=put("b.yaml", "user: '{n}'"))
    with pytest.raises(RowError, match="has no mapping for 'responses_create_params'"):
        materialized([{"responses_create_params": 3}], prompt_config=put("b.yaml", "user: '{n}'"))
    with pytest.raises(ConfigError, match=r"c\.yaml: user: is no template"):
        materialized([{"n": 1}], prompt_config=put("c.yaml", "user: '{n'"))
    with pytest.raises(ConfigError, match="did you mean 'user'"):
        materialized([{"n": 1}], prompt_config=put("d.yaml", "usr: '{n}'"))


def test_a_task_row_of_the_materialised_form_becomes_an_agents_row(materialized):
    """``{task_id, task_input}`` is laid flat, and its identity kept."""
    identity = {"taskset": "shop:train", "task_id": "t17"}
    row = {"task_id": identity, "task_input": {**PARAMS, "task_data": {"answer": 3}}, "agent_ref": {"name": "a"}}
    (made,) = materialized([row])
    assert made == {
        **PARAMS,
        "answer": 3,
        "agent_ref": {"name": "a"},
        "_ng_task_id": identity,
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
    }


def test_skills_are_stamped_on_every_row(materialized, tasks, tmp_path):
    """By name and by a hash of what they say."""
    (tmp_path / "skills" / "count").mkdir(parents=True)
    mark = tmp_path / "skills" / "count" / "SKILL.md"
    mark.write_text("Count.")
    first = materialized(tasks(2), skills=str(tmp_path / "skills"))[1]["skills_ref"]
    assert first["skills"] == [{"name": "count"}]
    mark.write_text("Count well.")
    assert materialized(tasks(1), skills=str(tmp_path / "skills"))[0]["skills_ref"]["hash"] != first["hash"]
    with pytest.raises(UsageError, match="there is no such folder"):
        materialized(tasks(1), skills=str(tmp_path / "no"))
    with pytest.raises(UsageError, match="holds no skill"):
        materialized(tasks(1), skills=str(tmp_path / "skills" / "count"))


# Agents


def names(rows):
    return [(row.get("agent_ref") or {}).get("name") for row in rows]


def test_a_row_goes_where_it_is_routed(materialized):
    """The map by name, by task source, by default; then the row's own agent, its task source's, the run's."""
    rows = [{**PARAMS, **REF}, {**PARAMS, "task_source": "shop"}, {**PARAMS}]
    assert names(materialized(rows)) == ["a", None, None]
    assert names(materialized(rows, agent="z")) == ["a", "z", "z"]
    assert names(materialized(rows, agent="z", task_sources={"shop": "s"})) == ["a", "s", "z"]
    assert names(materialized(rows, agent_map={"a": "b", "shop": "c"})) == ["b", "c", None]
    assert names(materialized(rows, agent_map={"a": "b", "_default": "d"})) == ["b", "d", "d"]
    assert materialized(rows[:1])[0]["agent_ref"] == REF["agent_ref"]
    assert materialized(rows[:1], agent_map={"a": "b"})[0]["agent_ref"] == {"type": "responses_api_agents", "name": "b"}


def test_fan_out_runs_a_row_at_each_agent(materialized, indices):
    """Each copy has a repeat of its own, and repeats come per agent."""
    rows = materialized([{**PARAMS, **REF}], fan_out={"a": ["x", "y"]}, num_repeats=2)
    assert names(rows) == ["x", "x", "y", "y"]
    assert indices(rows) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_repeats_can_differ_by_agent(materialized):
    """By the agent that runs it, else by the name that the row has, else by default."""
    rows = [{**PARAMS, **REF}, {**PARAMS, "agent_ref": {"name": "b"}}, {**PARAMS, "task_source": "s"}]
    counts = {"a": 2, "s": 3, "_default": 1}
    assert names(materialized(rows, num_repeats=counts)) == ["a", "a", "b", None, None, None]
    assert len(materialized(rows[:1], num_repeats={"z": 4, "a": 2}, agent_map={"a": "z"})) == 4
    with pytest.raises(RowError, match="row 2: num_repeats says nothing of b"):
        materialized(rows[:2], num_repeats={"a": 1})


def test_options_that_name_what_no_row_has_are_told(prepare):
    """A mistyped name in a map is not silently without effect."""
    options = {"num_repeats": {"aa": 2, "_default": 1}, "agent_map": {"b": "c"}, "fan_out": {"d": ["e"]}}
    with prepare([{**PARAMS, **REF}], **options) as run:
        assert run.notes == (
            "num_repeats names 'aa', which no row has; did you mean 'a'?",
            "agent_map names 'b', which no row has; known: a",
            "fan_out names 'd', which no row has; known: a",
        )


def test_agents_that_do_not_exist_are_refused(materialized, put):
    """In a row, with its line and the nearest name; in an option; and where one of several must be named."""
    file = put("in.jsonl", [{**PARAMS, **REF}, {**PARAMS, "agent_ref": {"name": "agnt"}}])
    with pytest.raises(RowError, match=r"in\.jsonl:2: names an unknown agent 'agnt'; did you mean 'agent'\?"):
        materialized(file, agents=["a", "agent"])
    with pytest.raises(RowError, match="row 1: names no agent, and there are several"):
        materialized([PARAMS], agents=["a", "b"])
    with pytest.raises(UsageError, match="there is no agent 'c'"):
        materialized([PARAMS], agents=["a", "b"], agent_map={"_default": "c"})
    with pytest.raises(RowError, match="agent_ref must name an agent"):
        materialized([{**PARAMS, "agent_ref": {"nme": "a"}}])
    assert names(materialized([{**PARAMS, "agent_ref": "a"}], agents=["a"])) == ["a"]


# Bad input


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"responses_create_params": {}}\n{bad\n', ":2: is not JSON"),
        ("[1]\n", ":1: must be a JSON object, not list"),
        ('"x"\n', ":1: must be a JSON object, not str"),
        ('{"n": 1}\n', ":1: lacks 'responses_create_params'"),
        ('\n\n{"responses_create_params": 3}\n', ":3: has no mapping for 'responses_create_params'"),
        ('{"responses_create_params": {}, "_ng_task_index": "x"}', ":1: _ng_task_index must be 0 or a positive"),
        ('{"responses_create_params": {}, "_ng_task_index": -1}', ":1: _ng_task_index must be 0 or a positive"),
        ('{"responses_create_params": {}, "_ng_task_index": true}', ":1: _ng_task_index must be 0 or a positive"),
        ('{"responses_create_params": {}, "_ng_task_index": 99999999999}', ":1: _ng_task_index is 99999999999"),
        ('{"responses_create_params": {}, "_ng_rollout_index": 1}', ":1: names its _ng_rollout_index and not"),
        ("\xff", ":1: is not JSON"),
        ("", ": has no rows"),
        ("\n \n", ": has no rows"),
    ],
)
def test_a_row_that_cannot_be_run_is_named_by_file_and_line(put, materialized, text, says):
    """Before anything starts: nothing is written."""
    path = put("in.jsonl", text.encode("latin-1"))
    with pytest.raises(UsageError) as caught:
        materialized(path)
    assert str(caught.value).startswith(f"{path}{says}")
    assert "\n" not in str(caught.value)
    assert not (path.parent / "out").exists()


def test_a_row_with_the_id_of_another_is_named_with_the_other(put, materialized, tasks):
    """Their captures would be mixed; an id with another attempt is another id."""
    given = [{**row, "_ng_rollout_id": "same"} for row in tasks(4)]
    given[0]["_ng_rollout_id"] = "other"
    given[2]["_ng_attempt_index"] = 1
    path = put("in.jsonl", given)
    with pytest.raises(RowError) as caught:
        materialized(path)
    assert str(caught.value).startswith(f"{path}:4: has the _ng_rollout_id of line 2, 'same'")
    assert len(materialized(put("fine.jsonl", given[:3]))) == 3


def test_a_row_that_repeats_anothers_indices_is_named_with_the_other(put, materialized, tasks):
    """Both lines are in the error; another attempt of the same rollout is another row."""
    own = [{**row, "_ng_task_index": 0, "_ng_rollout_index": 1} for row in tasks(3)]
    own[1]["_ng_attempt_index"] = 1
    path = put("in.jsonl", own)
    with pytest.raises(RowError) as caught:
        materialized(path)
    assert str(caught.value).startswith(
        f"{path}:3: repeats line 1's (_ng_task_index 0, _ng_rollout_index 1, attempt 0)"
    )
    assert len(materialized(own[:2])) == 2


def test_a_row_with_its_own_repeat_cannot_be_repeated(materialized, tasks):
    """What would the second be called?"""
    with pytest.raises(RowError, match="row 1: names its own _ng_rollout_index, so it cannot be repeated"):
        materialized([{**tasks(1)[0], "_ng_task_index": 0, "_ng_rollout_index": 1}], num_repeats=2)


def test_a_rows_own_rollout_id_is_checked_before_anything_starts(materialized, put, tasks):
    """One that cannot be an id, and one that would be several rollouts'."""
    for wrong, says in [("a b", "is not of the form"), (3, "must be a string"), ("x-a2", "ends like attempt 2")]:
        path = put("in.jsonl", [{**tasks(1)[0], "_ng_rollout_id": wrong}])
        with pytest.raises(RowError, match=rf"in\.jsonl:1: .*{says}"):
            materialized(path)
    with pytest.raises(RowError, match="row 1: names its own _ng_rollout_id, so it cannot be repeated"):
        materialized([{**tasks(1)[0], "_ng_rollout_id": "x"}], num_repeats=2)
    assert materialized([{**tasks(1)[0], "_ng_rollout_id": "x"}])[0]["_ng_rollout_id"] == "x"


def test_rows_that_are_no_mappings_or_no_json_are_named_by_position(materialized):
    """Rows that a program gives are checked like those of a file."""
    with pytest.raises(RowError, match="row 2: must be a mapping, not int"):
        materialized([PARAMS, 3])
    with pytest.raises(UsageError, match="there are no rows to run"):
        materialized([])
    assert len(materialized(iter([PARAMS]))) == 1
    with pytest.raises(RowError, match="row 1: cannot be written as JSON"):
        materialized([{**PARAMS, "x": {b"y": 1}}])


def test_files_that_are_missing_or_unreadable_are_named(materialized, tmp_path):
    """The input before all else."""
    with pytest.raises(UsageError, match=r"no\.jsonl: there is no such file"):
        materialized(tmp_path / "no.jsonl")
    with pytest.raises(UsageError, match="cannot be read"):
        materialized(tmp_path)
    with pytest.raises(UsageError, match="there is no such file"):
        list(read_rows(tmp_path / "no.jsonl"))


def test_a_task_has_no_more_rollouts_than_can_be_told_apart(materialized, monkeypatch):
    """However they come to be; the next one would be another task's."""
    monkeypatch.setattr("gym_trio.collection._materialize.MOST_ROLLOUTS", 3)
    assert len(materialized([PARAMS] * 3)) == 3
    with pytest.raises(RowError, match="task 0 has more than 3 rollouts"):
        materialized([PARAMS] * 4)


def test_an_output_that_cannot_be_written_is_refused_before_anything_starts(tasks, tmp_path):
    """A folder as output, a file where a folder must be, a folder in a place that takes none."""
    (tmp_path / "file").write_text("")
    for output, says in [
        (tmp_path, "must be a file"),
        (f"{tmp_path}/new/", "must be a file"),
        (tmp_path / "file" / "r.jsonl", "cannot be written"),
        ("/proc/nowhere/r.jsonl", "cannot be written"),
    ]:
        with pytest.raises(UsageError, match=says), prepare_run(RunOptions(output=output, rows=tasks(1))):
            pytest.fail("it was prepared")


def test_a_run_without_a_single_row_is_refused(materialized, tasks):
    """A shard beyond the tasks there are."""
    with pytest.raises(UsageError, match="shard 3/4 has no task"):
        materialized(tasks(2), shard=(3, 4))


# Options from a configuration


def test_options_come_from_the_run_keys_of_a_configuration():
    """NeMo Gym's key names mean what they mean there; what is given beside them comes on top."""
    agent = {"responses_api_agents": {"x": {"resources_server": {"type": "resources_servers", "name": "shop"}}}}
    config = load_config(
        {
            "shop": {"resources_servers": {"shop": {}}},
            "a": agent,
            "b": {"responses_api_agents": {"x": {}}},
            "input_jsonl_fpath": "in.jsonl",
            "output_jsonl_fpath": "out/r.jsonl",
            "agent_name": "a",
            "agent_map": {"old": "b"},
            "num_repeats": {"a": 2, "_default": 1},
            "shard": "2/2",
            "skills": {"path": "s"},
            "prompt_config": "p.yaml",
            "dispatch_longest_first": True,
            "num_samples_in_parallel": 4,
            "max_resident_rollout_tasks": 9,
            "dispatch_budget_s": 60,
            "drain_margin_s": 5,
        },
        env_yaml=False,
    )
    options = options_from(config, limit=3, resume=None)
    assert (options.rows, str(options.output), options.limit) == ("in.jsonl", "out/r.jsonl", 3)
    assert (list(options.agents), options.agent, options.task_sources) == (["a", "b"], None, {"shop": "a"})
    assert options.agent_map == {"old": "b", "_default": "a"}
    assert (options.shard, options.skills, options.longest_first) == ((0, 2), "s", True)
    assert stream_arguments(config, max_concurrent=2) == {
        "max_concurrent": 2,
        "max_resident_tasks": 9,
        "rollout_timeout_seconds": None,
        "dispatch_budget_seconds": 60,
        "drain_margin_seconds": 5,
    }


def test_what_a_run_needs_is_asked_for():
    """Rows, an output, and with a dispatch budget a bound on what is in flight."""
    config = load_config({"dispatch_budget_s": 3, "a": {"responses_api_agents": {"x": {}}}}, env_yaml=False)
    with pytest.raises(UsageError, match="--input"):
        options_from(config)
    with pytest.raises(UsageError, match="--output"):
        options_from(config, rows=[PARAMS])
    assert options_from(config, rows=[PARAMS], output="x").agent == "a"
    with pytest.raises(UsageError, match="--concurrency"):
        stream_arguments(config)
    with pytest.raises(UsageError, match="num_repeats: must be a whole number of at least 1"):
        options_from(config, rows=[PARAMS], output="x", num_repeats=0)
    with pytest.raises(UsageError, match="num_repeats: must be at most 1048576, not 1048577"):
        options_from(config, rows=[PARAMS], output="x", num_repeats={"a": 2**20 + 1})
    with pytest.raises(UsageError, match=r"responses_create_params\.top_p: must be finite, not nan"):
        options_from(config, rows=[PARAMS], output="x", responses_create_params={"top_p": math.nan})
