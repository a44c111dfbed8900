"""The three forms and back: nothing that the target can carry is lost."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gym_trio.errors import FormError
from gym_trio.servers import forms


def said(response: dict[str, Any]) -> dict[str, Any]:
    """What a Responses object says, less what no other form can hold."""
    texts, calls, thoughts = [], [], []
    for item in response["output"]:
        if item["type"] == "message":
            texts += [part.get("text") or part.get("refusal") or "" for part in item["content"]]
        elif item["type"] == "function_call":
            calls.append((item["call_id"], item["name"], json.loads(item["arguments"])))
        elif item["type"] == "reasoning":
            thoughts += [part["text"] for part in item.get("content") or item["summary"]]
    usage = response["usage"] or {}
    return {
        "id": response["id"].removeprefix("resp_").removeprefix("chatcmpl-"),
        "model": response["model"],
        "text": "".join(texts),
        "calls": calls,
        "reasoning": "".join(thoughts),
        "cut": (response.get("incomplete_details") or {}).get("reason"),
        "usage": [usage.get(key) or 0 for key in ("input_tokens", "output_tokens", "total_tokens")],
        "cached": (usage.get("input_tokens_details") or {}).get("cached_tokens", 0),
    }


def test_recorded_answers_survive_the_chat_form(recorded) -> None:
    """Text, calls, reasoning, usage, model and id of real answers are the same after Responses → chat → Responses."""
    for row in recorded:
        response = {**row["response"], "output": [i for i in row["response"]["output"] if "output" not in i]}
        before = copy.deepcopy(response)
        back = forms.chat_to_responses(forms.responses_to_chat(response))
        assert said(back) == said(response)
        assert response == before


def test_recorded_answers_survive_the_messages_form(recorded) -> None:
    """The same for Responses → Messages → Responses; sealed reasoning comes back too."""
    for row in recorded:
        response = {**row["response"], "output": [i for i in row["response"]["output"] if "output" not in i]}
        message = forms.responses_to_messages(response)
        back = forms.messages_to_responses(message)
        heard, meant = said(back), said(response)
        assert heard | {"usage": heard["usage"][:2]} == meant | {"usage": meant["usage"][:2]}  # it has no total
        sealed = [i["encrypted_content"] for i in response["output"] if i.get("encrypted_content")]
        assert [i["encrypted_content"] for i in back["output"] if i.get("encrypted_content")] == sealed


@pytest.mark.parametrize("there", [forms.responses_request_to_chat, forms.responses_request_to_messages])
def test_recorded_requests_settle_after_one_conversion(recorded, there) -> None:
    """A real request that has been in another form once is in that form the same for ever after."""
    back = {
        forms.responses_request_to_chat: forms.chat_request_to_responses,
        forms.responses_request_to_messages: forms.messages_request_to_responses,
    }[there]
    for row in recorded:
        once = there({**row["responses_create_params"], "model": "m"})
        assert there(back(once)) == once


def test_a_chat_request_comes_back_as_it_was(conversations) -> None:
    """chat → Responses → chat is the identity on everything but spellings that mean the same."""
    for _ in range(20):
        request = conversations.chat_request()
        before = copy.deepcopy(request)
        assert forms.responses_request_to_chat(forms.chat_request_to_responses(request)) == request
        assert request == before


def test_a_messages_request_comes_back_as_it_was(conversations) -> None:
    """Messages → Responses → Messages is the identity on everything that Responses can hold."""
    for _ in range(20):
        request = conversations.messages_request()
        before = copy.deepcopy(request)
        assert forms.responses_request_to_messages(forms.messages_request_to_responses(request)) == request
        assert request == before


def test_generated_answers_survive_both_forms(conversations) -> None:
    """A generated answer says the same after a way through either form, and after one through both."""
    for _ in range(20):
        response = conversations.response()
        chat, message = forms.responses_to_chat(response), forms.responses_to_messages(response)
        assert said(forms.chat_to_responses(chat)) == said(response)
        assert said(forms.messages_to_responses(message)) == said(response)
        through_both = forms.responses_to_messages(forms.chat_to_responses(chat))
        assert said(forms.messages_to_responses(through_both)) == said(response)


def test_parallel_calls_stay_in_one_message_and_meet_their_results() -> None:
    """Whatever stands between calls and their results, a chat gets one assistant message and then the results."""
    items = [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "wait"}]},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
    ]
    messages = forms.responses_request_to_chat({"input": items})["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["a", "b"]
    assert (messages[1]["reasoning_content"], messages[1]["content"]) == ("hm", "wait")


def test_two_answers_in_a_row_stay_two() -> None:
    """Without calls, each assistant message is one of its own; exact tokens end the turn that they belong to."""
    first = {"role": "assistant", "content": "a"}
    second = {"role": "assistant", "content": "b"}
    assert forms.responses_request_to_chat({"input": [first, second]})["messages"] == [first, second]
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}", "generation_token_ids": [1]}
    messages = forms.responses_request_to_chat({"input": [call, second]})["messages"]
    assert [message["content"] for message in messages] == [None, "b"]
    assert messages[0]["generation_token_ids"] == [1]


def test_pictures_in_a_tool_result_follow_it_in_a_chat() -> None:
    """A tool message has only text, so pictures come in a user message after all the results."""
    picture = {"type": "input_image", "image_url": "https://pictures.example/a.png"}
    items = [
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "see"}, picture]},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
    ]
    messages = forms.responses_request_to_chat({"input": items})["messages"]
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user"]
    assert messages[1]["content"] == [{"type": "text", "text": "see"}]
    assert messages[3]["content"][0]["image_url"]["url"] == picture["image_url"]


@pytest.mark.parametrize(
    "request_body",
    [
        {"input": [{"type": "computer_call", "call_id": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://x"}]}]},
        {"input": [{"role": "user", "content": [{"type": "hologram"}]}]},
        {"input": "x", "tools": [{"type": "web_search"}]},
        {"input": "x", "tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "mcp"}},
        {"input": "x", "previous_response_id": "resp_1"},
    ],
)
def test_what_a_chat_cannot_hold_is_refused_by_name(request_body) -> None:
    """Dropping it would change what the model is asked, so the conversion says what it is."""
    with pytest.raises(FormError):
        forms.responses_request_to_chat(request_body)


@pytest.mark.parametrize(
    "request_body",
    [
        {"input": [{"type": "computer_call", "call_id": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        {"input": "x", "tools": [{"type": "web_search"}]},
        {"input": "x", "tool_choice": {"type": "allowed_tools"}},
        {"input": "x", "background": True},
    ],
)
def test_what_messages_cannot_hold_is_refused_by_name(request_body) -> None:
    """The same for the Messages form."""
    with pytest.raises(FormError):
        forms.responses_request_to_messages(request_body)


@pytest.mark.parametrize(
    ("convert", "body"),
    [
        (forms.chat_request_to_responses, {"messages": [], "n": 2}),
        (forms.chat_request_to_responses, {"messages": [], "tools": [{"type": "magic"}]}),
        (forms.chat_request_to_responses, {"messages": [{"role": "user", "content": [{"type": "video"}]}]}),
        (forms.messages_request_to_responses, {"messages": [], "tools": [{"type": "bash_20250124", "name": "bash"}]}),
        (forms.messages_request_to_responses, {"messages": [{"role": "user", "content": [{"type": "search_result"}]}]}),
        (forms.messages_request_to_responses, {"messages": [{"role": "assistant", "content": [{"type": "fallback"}]}]}),
    ],
)
def test_what_responses_cannot_hold_is_refused_by_name(convert, body) -> None:
    """The same on the way in."""
    with pytest.raises(FormError):
        convert(body)


def test_custom_tools_keep_their_kind() -> None:
    """A free-form tool, its call and its result are custom ones in both forms."""
    request = {
        "messages": [
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "a.txt"},
        ],
        "tools": [{"type": "custom", "custom": {"name": "sh"}}],
        "tool_choice": {"type": "custom", "custom": {"name": "sh"}},
    }
    hub = forms.chat_request_to_responses(request)
    assert [item.get("type") for item in hub["input"]] == [None, "custom_tool_call", "custom_tool_call_output"]
    assert forms.responses_request_to_chat(hub) == request
    message = forms.responses_request_to_messages(hub)
    assert message["messages"][1]["content"][0]["input"] == {"input": "ls"}
    assert message["tool_choice"] == {"type": "tool", "name": "sh"}


def test_old_function_calls_are_read() -> None:
    """``functions``, ``function_call`` and function messages mean tools, a choice and results."""
    hub = forms.chat_request_to_responses(
        {
            "messages": [
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": "1"},
            ],
            "functions": [{"name": "f"}],
            "function_call": {"name": "f"},
        }
    )
    assert [item["call_id"] for item in hub["input"]] == ["f", "f"]
    assert hub["tools"][0]["name"] == "f"
    assert hub["tool_choice"] == {"type": "function", "name": "f"}


def test_dialects_write_what_their_back_end_reads() -> None:
    """Reasoning in the content, developer as system and the old name of the bound, where the back end wants them."""
    dialect = forms.ChatDialect(max_tokens_key="max_tokens", reasoning_in_content=True, developer_as_system=True)
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    items = [{"role": "developer", "content": "d"}, thought, {"role": "assistant", "content": "a"}]
    chat = forms.responses_request_to_chat({"input": items, "max_output_tokens": 3, "instructions": "i"}, dialect)
    assert [message["content"] for message in chat["messages"]] == ["i", "d", "<think>hm</think>a"]
    assert [message["role"] for message in chat["messages"]] == ["system", "system", "assistant"]
    assert chat["max_tokens"] == 3


@pytest.mark.parametrize(
    ("content", "reasoning", "text"),
    [
        ("<think>a</think>b", "a", "b"),
        (" <think>\na</think>\n\nb", "\na", "b"),
        ("a</think>b", "a", "b"),
        ("b", "", "b"),
        ("b <think>a</think>", "", "b <think>a</think>"),
    ],
)
def test_thinking_in_the_text_becomes_a_reasoning_item(content, reasoning, text) -> None:
    """Only a leading think block is reasoning; the opening tag may be missing, for templates that write it."""
    chat = {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}]}
    heard = said(forms.chat_to_responses({**chat, "model": "m"}, split_think_tags=True) | {"usage": None})
    assert (heard["reasoning"], heard["text"]) == (reasoning, text)


def test_an_answer_of_nothing_is_an_empty_message() -> None:
    """A model that said nothing gave an answer, which is one empty message."""
    chat = {"choices": [{"message": {"role": "assistant", "content": None}, "finish_reason": "stop"}]}
    (item,) = forms.chat_to_responses(chat)["output"]
    assert item["content"][0]["text"] == ""


@pytest.mark.parametrize("chat", [{}, {"choices": []}, {"choices": [{}]}, {"choices": None}])
def test_a_chat_completion_without_a_message_is_refused(chat) -> None:
    """It says so instead of failing on a missing key."""
    with pytest.raises(FormError):
        forms.chat_to_responses(chat)


def test_a_call_whose_arguments_are_not_an_object_is_kept() -> None:
    """Arguments that a model got wrong reach a Messages client, under one name."""
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "[1"}
    (block,) = forms.responses_to_messages({"output": [item]})["content"]
    assert block["input"] == {"arguments": "[1"}


def test_finish_reasons_agree_in_all_forms() -> None:
    """Stop, length, content filter, tool calls and refusal have one meaning each."""
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    cases = [
        ({"status": "completed", "output": []}, "stop", "end_turn"),
        ({"status": "completed", "output": [call]}, "tool_calls", "tool_use"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length", "max_tokens"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter", "refusal"),
        ({"status": "completed", "output": [refusal]}, "stop", "refusal"),
    ]
    for response, finish_reason, stop_reason in cases:
        assert forms.responses_to_chat(response)["choices"][0]["finish_reason"] == finish_reason
        assert forms.responses_to_messages(response)["stop_reason"] == stop_reason


def test_errors_keep_the_providers_words_in_each_form() -> None:
    """An error body is passed through in its own form and translated into the other."""
    openai = {"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}
    anthropic = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    assert forms.error_body("responses", 400, "x", openai) == openai
    assert forms.error_body("messages", 400, "x", openai)["error"] == {
        "type": "invalid_request_error",
        "message": "too long",
    }
    assert forms.error_body("messages", 529, "x", anthropic) == anthropic
    assert forms.error_body("chat_completions", 529, "x", anthropic)["error"]["message"] == "busy"
    assert forms.error_body("chat_completions", 429, "slow down")["error"]["type"] == "rate_limit_error"
    assert [forms.message_of_error(body) for body in ("x", {"detail": "d"}, {"error": "e"}, {})] == [
        None,
        "d",
        "e",
        None,
    ]
