"""The rules of environments that judge tool calls and documents, at their edges."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gym_trio.environments._office import Office, end_state, run
from gym_trio.environments._office._data import base_tables, people
from gym_trio.environments._xml import parse_xml
from gym_trio.environments.structured_outputs import strict
from gym_trio.errors import RequestRefused

Json = dict[str, Any]

TWO = [{"name": "f", "arguments": {"x": 1}}, {"name": "f", "arguments": {"x": 2}}]


@pytest.mark.parametrize(
    ("made", "expected", "reward"),
    [
        ([("f", {"x": 2}), ("f", {"x": 1})], TWO, 1.0),
        ([("f", {"x": 1}), ("f", {"x": 1})], TWO, 0.0),
        ([("f", {"x": 1})], TWO, 0.0),
        ([("f", {"x": 1, "more": True}), ("f", {"x": 2})], TWO, 1.0),
        ([("f", {"x": 1}), ("f", {"x": 2}), ("g", {})], TWO, 0.0),
        ([("f", "{broken"), ("f", {"x": 2})], TWO, 0.0),
        ([("f", "[1]"), ("f", {"x": 2})], TWO, 0.0),
        ([("g", {"x": 1}), ("f", {"x": 2})], TWO, 0.0),
        ([("f", {"x": "ü"})], [{"name": "f", "arguments": '{"x": "ü"}'}], 1.0),
        ([], [], 1.0),
        ([("f", {})], [], 0.0),
    ],
)
async def test_function_calls_all_and_no_others(
    judge: Any, calling: Any, made: Any, expected: Any, reward: float
) -> None:
    """Each expected call has a made one of its own, in any order, and there is none too many."""
    found = await judge("xlam_fc", {"expected_answers": expected}, *(calling(*call) for call in made))
    assert found["reward"] == reward
    assert (found["num_predicted"], found["num_expected"]) == (len(made), len(expected))


@pytest.mark.parametrize(
    ("handed", "reward", "failed_order"),
    [
        ([[7, 9]], 1.0, False),
        ([[9, 7]], 0.0, True),
        ([[7, 9, 9]], 0.0, True),
        ([[7]], 0.0, False),
        ([[1], [7, 9]], 1.0, False),
        ([[7, 9], [1]], 0.0, False),
        ([], 0.0, False),
        (["{broken"], 0.0, False),
        ([{"x": 1}], 0.0, False),
    ],
)
async def test_values_are_handed_over_in_order(
    judge: Any, calling: Any, handed: Any, reward: float, failed_order: bool
) -> None:
    """The last hand-over counts; the right values in the wrong order are told apart from wrong ones."""
    row = {"expected_synonym_values": [7, 9], "minefield_label": "Hot", "minefield_label_value": 1}
    calls = [
        calling("extract_synonym_values", values if not isinstance(values, list) else {"synonym_values": values})
        for values in handed
    ]
    found = await judge("example_multi_step", row, calling("get_synonym_value", {"synonym": "x"}), *calls)
    assert (found["reward"], found["order_instruction_following_failure"]) == (reward, failed_order)
    assert found["original_term_minefield_hit"] == (bool(handed) and handed[-1] == [1])


WEATHER = {
    "expected_call": {"name": "get_weather", "arguments": {"city": "Rome"}},
    "responses_create_params": {"tools": [{"name": "get_weather", "parameters": {"required": ["city"]}}]},
}


@pytest.mark.parametrize(
    ("calls", "text", "components"),
    [
        ([("get_weather", {"city": "Rome"})], None, (1, 1, 1)),
        ([("get_weather", {"city": "Rome"})], "Sure!", (1, 1, 0)),
        ([("get_weather", {"city": "Oslo"})], None, (0, 1, 1)),
        ([("get_weather", {})], None, (0, 0, 1)),
        ([("get_weather", "")], None, (0, 0, 1)),
        ([("get_weather", "[]")], None, (0, 0, 1)),
        ([("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})], None, (1, 1, 0)),
        ([("other", {"city": "Rome"})], None, (0, 1, 1)),
        ([], "Rome is nice", (0, 0, 0)),
        ([], None, (0, 0, 0)),
    ],
)
async def test_three_rewards_at_once(
    judge: Any, saying: Any, calling: Any, calls: Any, text: Any, components: Any
) -> None:
    """Correctness, schema and format are earned apart from each other and add up."""
    items = [calling(*call) for call in calls] + ([saying(text)] if text else [])
    found = await judge("example_tool_call_multireward", WEATHER, *items)
    names = ("correctness", "schema_valid", "format")
    assert tuple(found["reward_components"][name] for name in names) == components
    assert found["reward"] == sum(components)


async def test_nothing_is_correct_where_nothing_is_expected(judge: Any, calling: Any) -> None:
    """A row without an expected call rewards no call for correctness."""
    found = await judge("example_tool_call_multireward", {}, calling("get_weather", {"city": "Rome"}))
    assert found["reward_components"] == {"correctness": 0.0, "schema_valid": 1.0, "format": 1.0}


def step(*calls: tuple[str, Any]) -> Json:
    made = [{"type": "function_call", "name": name, "arguments": json.dumps(given)} for name, given in calls]
    return {"expected_action": made[0] if len(made) == 1 else {"type": "function_call_batch", "calls": made}}


ASK = {"expected_action": {"type": "message", "content": "Which one?"}}
NAME = "single_step_tool_use_with_argument_comparison"


@pytest.mark.parametrize(
    ("wanted", "given", "same"),
    [
        (1, 1, True),
        (1, 2, False),
        (1, 1.0, False),
        (1.5, 1.5000001, True),
        (1.5, 1.6, False),
        (1.5, 1, False),
        ("one", "One", False),
        ("one", "one", True),
        ("the old mill", "the mill", True),
        ("the old mill", "a new house", False),
        ("two words", "one", False),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {"a": "1"}, False),
        (None, None, True),
        (None, 0, False),
        (True, False, False),
    ],
)
async def test_arguments_are_compared_by_type(judge: Any, calling: Any, wanted: Any, given: Any, same: bool) -> None:
    """Numbers equal, fractions nearly, single words exactly, longer texts by the words in common."""
    found = await judge(NAME, step(("f", {"p": wanted})), calling("f", {"p": given}))
    assert found["reward"] == float(same), found


async def test_a_step_is_a_message_or_calls(judge: Any, saying: Any, calling: Any) -> None:
    """A message where one is expected, a call where one is expected; calls count before what is said."""
    act = step(("f", {}))
    assert (await judge(NAME, ASK, saying("This one?")))["reward"] == 1.0
    assert (await judge(NAME, ASK, calling("f", {})))["reward"] == 0.0
    assert (await judge(NAME, act, saying("Hm"), calling("f", {})))["reward"] == 1.0
    assert (await judge(NAME, act, saying("Hm")))["category"] == "a message, no call"
    assert (await judge(NAME, ASK))["category"] == "nothing was said or called"
    assert (await judge(NAME, act, calling("f", "{broken")))["category"] == "arguments that are no JSON"
    assert (await judge(NAME, act, calling("g", {})))["category"] == "another tool"


BATCH = step(("f", {"p": 1}), ("f", {"p": 2}))
ONE, TWO_CALLS, THREE = [("f", {"p": 1})], [("f", {"p": 2}), ("f", {"p": 1})], [("f", {"p": n}) for n in (3, 2, 1)]


@pytest.mark.parametrize(
    ("made", "settings", "reward"),
    [
        (TWO_CALLS, {}, 1.0),
        (THREE, {}, 1.0),
        (ONE, {}, 0.0),
        (TWO_CALLS, {"parallel_tool_call_rewarding": True}, 1.0),
        (THREE, {"parallel_tool_call_rewarding": True}, 0.0),
        (THREE, {"parallel_tool_call_rewarding": True, "allow_superset": True}, 1.0),
        (ONE, {"parallel_tool_call_rewarding": True, "allow_subset": True}, 1.0),
        (
            THREE,
            {"parallel_tool_call_rewarding": True, "allow_superset": True, "parallel_tool_call_reward_mode": "f1"},
            0.8,
        ),
        (
            [("f", {"p": 1}), ("f", {"p": 9})],
            {"parallel_tool_call_rewarding": True, "parallel_tool_call_reward_mode": "fractional"},
            0.5,
        ),
    ],
)
async def test_several_calls_at_once(judge: Any, calling: Any, made: Any, settings: Json, reward: float) -> None:
    """The order never matters; whether the number does is the block's to say."""
    config = {"tool_call_comparator_config": settings}
    found = await judge(NAME, BATCH, *(calling(*call) for call in made), config=config)
    assert found["reward"] == pytest.approx(reward)


async def test_calls_are_matched_as_well_as_they_can_be(judge: Any, calling: Any) -> None:
    """A made call that fits two expected ones is given to the one that has no other."""
    row = step(("f", {"p": "the old mill"}), ("f", {"p": "the old house"}))
    made = [("f", {"p": "the old house"}), ("f", {"p": "an old mill here"})]
    config = {"tool_call_comparator_config": {"word_count_similarity_threshold": 0.25}}
    assert (await judge(NAME, row, *(calling(*call) for call in made), config=config))["reward"] == 1.0


@pytest.mark.parametrize(
    "action", [None, {"type": "dance"}, {"type": "function_call"}, {"type": "function_call_batch"}]
)
async def test_an_expected_action_that_is_none(judge: Any, calling: Any, action: Any) -> None:
    """Is the row's mistake and says so."""
    with pytest.raises(RequestRefused):
        await judge(NAME, {"expected_action": action}, calling("f", {}))


BOOK = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "year": {"type": "integer"}, "tags": {"type": "array", "items": {}}},
}
TITLED = {
    "type": "object",
    "properties": {
        "book": {
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "year": {"type": "integer"},
                "tags": {"type": "array", "items": {}},
                "ok": {"type": "boolean"},
            },
        }
    },
}
PEOPLE = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": ["integer", "null"]}, "in": {"type": "boolean"}},
    },
}


@pytest.mark.parametrize(
    ("kind", "schema", "text", "error"),
    [
        ("json", BOOK, '{"title": "x", "year": 3, "tags": []}', None),
        ("json", BOOK, '{"title": "x", "year": 3}', "validation_error"),
        ("json", BOOK, '{"title": "x", "year": 3, "tags": [], "more": 1}', "validation_error"),
        ("json", BOOK, '{"title": "x", "year": "3", "tags": []}', "validation_error"),
        ("json", BOOK, "Here it is: {}", "parse_error"),
        ("json", BOOK, "  \n", "empty_response"),
        ("json", {"type": "nonsense"}, "{}", "validation_error"),
        ("yaml", BOOK, "title: x\nyear: 3\ntags: [a]", None),
        ("yaml", BOOK, "title: [", "parse_error"),
        ("toml", BOOK, 'title = "x"\nyear = 3\ntags = []', None),
        ("toml", BOOK, "title =", "parse_error"),
        ("csv", PEOPLE, "name,age,in\nRita,41,true\nOlaf,,0\n", None),
        ("csv", PEOPLE, "name,age,in\nRita,many,true\n", "validation_error"),
        ("csv", PEOPLE, "name,age\nRita,41\n", "validation_error"),
        ("xml", TITLED, "<book><title/><year>3</year><tags><t>a</t><t>b</t></tags><ok>1</ok></book>", None),
        ("xml", TITLED, "<book><title>x</title><year/><tags>a</tags><ok>no</ok></book>", "validation_error"),
        ("xml", TITLED, "<book>", "parse_error"),
    ],
)
async def test_documents_are_valid_or_say_why_not(
    judge: Any, saying: Any, kind: str, schema: Json, text: str, error: str | None
) -> None:
    """The whole text is the document, in its own form, with every property of the schema and no other."""
    row = {"schema_str": json.dumps(schema), "schema_type": kind, "response_mode": "text"}
    found = await judge("structured_outputs", row, saying(text))
    assert (found["error_type"], found["reward"]) == (error, float(error is None)), found


@pytest.mark.parametrize(
    ("calls", "row", "error"),
    [
        ([("save", {"title": "x", "year": 1, "tags": []})], {}, None),
        ([("save", {"title": "x", "year": 1, "tags": []})], {"tool_name": "save"}, None),
        ([("save", {"title": "x", "year": 1, "tags": []})], {"tool_name": "store"}, "wrong_tool_name"),
        ([("save", {"it": {"title": "x", "year": 1, "tags": []}})], {"tool_payload_key": "it"}, None),
        ([("save", {})], {"tool_payload_key": "it"}, "missing_tool_payload_key"),
        ([("save", {"title": "x"})], {}, "validation_error"),
        ([("save", "{broken")], {}, "tool_arguments_parse_error"),
        ([("save", {}), ("save", {})], {}, "multiple_tool_calls"),
        ([], {}, "missing_tool_call"),
        ([("save", {})], {"schema_str": "{broken"}, "schema_error"),
    ],
)
async def test_arguments_as_a_document(judge: Any, calling: Any, calls: Any, row: Json, error: str | None) -> None:
    """One call, of the right tool, with a valid document where the row says it is."""
    full = {"schema_str": json.dumps(BOOK), "response_mode": "tool_call", **row}
    found = await judge("structured_outputs", full, *(calling(*call) for call in calls))
    assert found["error_type"] == error, found


async def test_a_form_that_is_none(judge: Any, saying: Any) -> None:
    """Is the row's mistake."""
    with pytest.raises(RequestRefused, match="schema_type"):
        await judge("structured_outputs", {"schema_str": "{}", "schema_type": "docx"}, saying("x"))


async def test_texts_of_xml_stay_texts_where_the_block_says_so(judge: Any, saying: Any) -> None:
    """Without coercion a number in XML is a text."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    row = {"schema_str": json.dumps(schema), "schema_type": "xml"}
    assert (await judge("structured_outputs", row, saying("<n>1</n>")))["reward"] == 1.0
    config = {"xml_coerce_types": False}
    assert (await judge("structured_outputs", row, saying("<n>1</n>"), config=config))["reward"] == 0.0


def test_schemas_are_made_strict_and_left_alone() -> None:
    """Every object is closed, also within others; the given schema is not changed; lists in it stay."""
    schema = {"properties": {"a": {"properties": {"b": {}}}}, "anyOf": [{"properties": {"c": {}}}]}
    found = strict(schema)
    assert found["required"] == ["a"]
    assert found["properties"]["a"] == {"properties": {"b": {}}, "required": ["b"], "additionalProperties": False}
    assert found["anyOf"] == [{"properties": {"c": {}}}]
    assert "required" not in schema


def test_xml_as_values() -> None:
    """Repeated names are lists, attributes have a mark, empty elements are nothing, and entities are refused."""
    found = parse_xml('<r k="v"><a> 1 </a><a/><a>2</a><b>t<c/>u</b></r>')
    assert found == {"r": {"@k": "v", "a": ["1", None, "2"], "b": {"c": None, "#text": "tu"}}}
    with pytest.raises(ValueError, match="entities"):
        parse_xml('<!DOCTYPE r [<!ENTITY e "x">]><r>&e;</r>')


def test_metrics_by_what_describes_a_task(environment_class: Any) -> None:
    """The mean reward is given for each form and each field that a row has."""
    environment = environment_class("structured_outputs")(name="x", config={})
    rows = [{"reward": 1.0, "schema_type": "json", "num_tools": 2, "has_distractors": True}]
    rows += [{"reward": 0.0, "schema_type": "json", "tool_choice": ""}]
    assert environment.compute_metrics([rows]) == {
        "mean/reward_json": 0.5,
        "mean/reward_num_tools_2": 1.0,
        "mean/reward_has_distractors_true": 1.0,
    }


EMAIL, EVENT, TASK = (base_tables()[name][0] for name in ("emails", "events", "tasks"))
OTHER = "00000057"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ([], [("email_search_emails", {"query": "budget"})], True),
        ([], [("email_get_email_information_by_id", {"email_id": OTHER, "field": "body"})], True),
        ([("email_send_email", {"recipient": "A@b.c", "subject": "S", "body": "B"})], [], False),
        (
            [("email_send_email", {"recipient": "A@b.c", "subject": "S", "body": "B"})],
            [("email_send_email", {"recipient": "a@B.c", "subject": "s", "body": "b"})],
            True,
        ),
        (
            [("email_send_email", {"recipient": "a@b.c", "subject": "S", "body": "B"})] * 2,
            [("email_send_email", {"recipient": "a@b.c", "subject": "S", "body": "B"})],
            False,
        ),
        ([("email_send_email", {"recipient": "nobody", "subject": "S", "body": "B"})], [], True),
        ([("email_delete_email", {"email_id": OTHER})], [], False),
        ([("email_delete_email", {"email_id": OTHER})] * 2, [("email_delete_email", {"email_id": OTHER})], True),
        ([("email_delete_email", {"email_id": "79999999"})], [], True),
        (
            [("email_delete_email", {"email_id": i}) for i in ("00000001", "00000002")],
            [("email_delete_email", {"email_id": i}) for i in ("00000002", "00000001")],
            True,
        ),
        ([("email_reply_email", {"email_id": OTHER, "body": "x"})], [], False),
        (
            [("email_reply_email", {"email_id": OTHER, "body": "x"})],
            [("email_reply_email", {"email_id": "00000058", "body": "x"})],
            False,
        ),
        (
            [("email_forward_email", {"email_id": EMAIL["email_id"], "recipient": "a@b.c"})],
            [
                (
                    "email_send_email",
                    {"recipient": "a@b.c", "subject": f"FW: {EMAIL['subject']}", "body": EMAIL["body"]},
                )
            ],
            True,
        ),
        (
            [("calendar_update_event", {"event_id": EVENT["event_id"], "field": "duration", "new_value": "7"})],
            [],
            False,
        ),
        (
            [
                (
                    "calendar_update_event",
                    {"event_id": EVENT["event_id"], "field": "duration", "new_value": EVENT["duration"]},
                )
            ],
            [],
            True,
        ),
        ([("calendar_update_event", {"event_id": OTHER, "field": "colour", "new_value": "red"})], [], True),
        (
            [("project_management_update_task", {"task_id": OTHER, "field": "list_name", "new_value": "completed"})],
            [],
            True,
        ),
        (
            [("project_management_update_task", {"task_id": OTHER, "field": "list_name", "new_value": "Completed"})],
            [("project_management_update_task", {"task_id": OTHER, "field": "list_name", "new_value": "Backlog"})],
            False,
        ),
        ([("no_such_tool", {}), ("email_send_email", None)], [], True),
        ([("email_send_email", {"unheard": "of"})], [], True),
    ],
)
def test_states_are_compared_and_not_calls(first: Any, second: Any, same: bool) -> None:
    """Reading and refused calls leave nothing; order matters where it shows; case does not, but in a list's name."""
    assert (end_state(first) == end_state(second)) is same


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("company_directory_find_email_address", {"name": "ada"}, [people()[0]]),
        ("company_directory_find_email_address", {}, "Name not provided."),
        (
            "email_get_email_information_by_id",
            {"email_id": EMAIL["email_id"], "field": "subject"},
            {"subject": EMAIL["subject"]},
        ),
        ("email_get_email_information_by_id", {"email_id": None, "field": "subject"}, "Email ID not provided."),
        ("email_get_email_information_by_id", {"email_id": "7x", "field": "subject"}, "Email not found."),
        ("email_search_emails", {"query": "no such words"}, "No emails found."),
        ("calendar_get_event_information_by_id", {"event_id": EVENT["event_id"]}, "Field not provided."),
        ("calendar_search_events", {"time_min": "soon"}, "Invalid time_min format. Expected YYYY-MM-DD HH:MM:SS."),
        ("calendar_create_event", {"event_name": "x"}, "Event participant not provided."),
        ("calendar_delete_event", {"event_id": EVENT["event_id"]}, "Event deleted successfully."),
        ("analytics_get_visitor_information_by_id", {"visitor_id": "none"}, "Visitor not found."),
        (
            "analytics_create_plot",
            {"time_min": "a", "time_max": "b", "value_to_plot": "total_visits", "plot_type": "bar"},
            "plots/a_b_total_visits_bar.png",
        ),
        (
            "project_management_get_task_information_by_id",
            {"task_id": TASK["task_id"], "field": "board"},
            {"board": TASK["board"]},
        ),
        ("project_management_search_tasks", {}, "No search parameters provided."),
        ("project_management_create_task", {"task_name": "x"}, "Missing task details."),
        ("project_management_delete_task", {"task_id": "7x"}, "Task not found."),
        ("customer_relationship_manager_search_customers", {"customer_name": "no such name"}, "No customers found."),
        ("customer_relationship_manager_delete_customer", {"customer_id": OTHER}, "Customer deleted successfully."),
        (
            "email_search_emails",
            {"page_size": 0},
            "Error executing tool 'email_search_emails': integer division or modulo by zero",
        ),
    ],
)
def test_what_the_tools_answer(name: str, arguments: Json, answer: Any) -> None:
    """A tool answers with what was asked for, or with what is wrong, and never breaks the rollout."""
    assert run(Office(), name, arguments) == answer


def test_what_the_tools_do() -> None:
    """Records are found by what they hold, entered with the next identifier, and refused where a choice is limited."""
    office = Office()
    page = run(office, "email_search_emails", {"date_min": "2031-01-01", "page": 99})
    assert page["pagination"]["page"] == page["pagination"]["total_pages"]
    events = run(office, "calendar_search_events", {"time_min": "2031-03-01 00:00:00", "page_size": 3})
    assert len(events["events"]) == 3
    start, team = "2031-05-01 10:00:00", people()[3]
    given = {"event_name": "x", "participant_email": "A@B.c", "event_start": start, "duration": "30"}
    assert run(office, "calendar_create_event", given) == "70000060"
    assert office.events.records["70000060"]["participant_email"] == "a@b.c"
    for bad in ({"duration": "0"}, {"duration": "long"}, {"event_start": "soon"}):
        assert "70000061" not in str(run(office, "calendar_create_event", {**given, **bad}))
    task = {"task_name": "t", "assigned_to_email": team, "list_name": "Backlog", "due_date": "d", "board": "Design"}
    assert run(office, "project_management_create_task", task) == "70000060"
    for bad in ({"board": "Chess"}, {"list_name": "Later"}, {"assigned_to_email": "nobody@harbour.example"}):
        assert "not valid" in run(office, "project_management_create_task", {**task, **bad})
    found = run(office, "project_management_search_tasks", {"assigned_to_email": team.upper(), "task_name": "t"})
    assert any(record["task_id"] == "70000060" for record in found)
    customer = {"customer_name": "New", "assigned_to_email": team.upper(), "status": "Lead", "customer_email": "N@x.y"}
    assert run(office, "customer_relationship_manager_add_customer", customer) == "70000060"
    assert office.customers.records["70000060"]["customer_email"] == "n@x.y"
    assert "required" in run(office, "customer_relationship_manager_add_customer", {"customer_name": "New"})
    ranged = {"status": "lead", "last_contact_date_min": "2031-01-01", "follow_up_by_max": "2031-12-31"}
    assert run(office, "customer_relationship_manager_search_customers", ranged)["customers"]
    change = {"customer_id": "70000060", "field": "status", "new_value": "Friend"}
    assert "not valid" in run(office, "customer_relationship_manager_update_customer", change)
    change |= {"field": "product_interest"}
    assert "not valid" in run(office, "customer_relationship_manager_update_customer", change)
    days = run(office, "analytics_total_visits_count", {"time_min": "2031-03-01"})
    assert min(days) >= "2031-03-01"
    assert sum(run(office, "analytics_engaged_users_count", {}).values()) < 60
    assert sum(run(office, "analytics_traffic_source_count", {"traffic_source": "direct"}).values()) < 60
    assert sum(run(office, "analytics_traffic_source_count", {}).values()) == 60
    assert all(value > 0 for value in run(office, "analytics_get_average_session_duration", {}).values())
    assert run(office, "analytics_get_visitor_information_by_id", {"visitor_id": "0001"})


async def test_the_gold_of_a_row_must_be_calls(judge: Any, calling: Any) -> None:
    """A list, or one in a string; anything else is the row's mistake."""
    truth = [{"name": "email_delete_email", "arguments": json.dumps({"email_id": OTHER})}]
    made = calling("email_delete_email", {"email_id": OTHER})
    assert (await judge("workplace_assistant", {"ground_truth": json.dumps(truth)}, made))["reward"] == 1.0
    with pytest.raises(RequestRefused, match="ground_truth"):
        await judge("workplace_assistant", {"ground_truth": "nothing"}, made)
