"""The pieces of streams: events however they are cut, thinking, refusals, free-form tools, finished answers."""

from __future__ import annotations

import itertools

import orjson
import pytest

from gym_trio.errors import FormError
from gym_trio.servers import forms
from gym_trio.servers._forms._thinking import ThinkingSplitter

CUSTOM = {"type": "custom_tool_call", "id": "ct_1", "call_id": "c1", "name": "sh", "input": 'echo "hi"'}
REFUSAL = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "refusal", "refusal": "I will not."}],
}
SUMMARY = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "s",
}


def response(*output):
    return {"id": "resp_1", "model": "m", "status": "completed", "created_at": 1.0, "output": list(output)}


def data_of(content: bytes):
    return [event.data for event in forms.EventReader().feed(content) if event.data is not None]


def played(form: str, *output):
    """The events of a finished answer in ``form``, and the whole that their writer gives."""
    whole = response(*output)
    if form == "chat_completions":
        whole = forms.responses_to_chat(whole)
    elif form == "messages":
        whole = forms.responses_to_messages(whole)
    pieces = list(forms.pieces_of_whole(form, whole, {}))
    return data_of(b"".join(piece.content for piece in pieces)), pieces[-1].whole


@pytest.mark.parametrize("cut", range(1, 12))
def test_events_are_found_however_their_bytes_are_cut(cut) -> None:
    """Line ends of both kinds, comments, several data lines and a last event without its end are read."""
    content = b': hi\n\nevent: a\r\ndata: {"n": 1}\r\n\r\ndata: {"n":\ndata: 2}\n\ndata: [DONE]\n\n\n\ndata: {"n": 3}'
    reader = forms.EventReader()
    found = [event for start in range(0, len(content), cut) for event in reader.feed(content[start : start + cut])]
    found += reader.finish()
    assert [event.data["n"] for event in found if event.data] == [1, 2, 3]
    assert list(forms.EventReader().finish()) == []


@pytest.mark.parametrize("content", [b"data: {\n\n", b"data: 5\n\n", b"data: hello\n\n"])
def test_an_event_that_is_no_object_is_refused(content) -> None:
    """It is shown, for the reader of the log."""
    with pytest.raises(FormError, match="not a JSON object"):
        list(forms.EventReader().feed(content))


def test_an_event_without_an_end_is_refused() -> None:
    """A stream cannot fill the memory with one event."""
    reader = forms.EventReader()
    for _ in range(64):
        assert list(reader.feed(b"x" * 1024 * 1024)) == []
    with pytest.raises(FormError, match="larger than"):
        list(reader.feed(b"x"))


@pytest.mark.parametrize(
    ("text", "reasoning", "rest"),
    [
        ("<think>a</think>b", "a", "b"),
        ("\n<think>\na\n</think>\n\nb </think>", "\na\n", "b </think>"),
        ("<think>never ends </thi", "never ends </thi", ""),
        ("<thin ice", "", "<thin ice"),
        ("  plain", "", "  plain"),
        ("<th", "", "<th"),
        ("<think>a</think>  ", "a", ""),
        ("", "", ""),
    ],
)
def test_thinking_is_split_the_same_at_every_cut(text, reasoning, rest) -> None:
    """Whichever two places a text is cut at, the same reasoning and the same rest come out."""
    for first, second in itertools.combinations_with_replacement(range(len(text) + 1), 2):
        splitter = ThinkingSplitter()
        pieces = [splitter.feed(part) for part in (text[:first], text[first:second], text[second:])]
        pieces.append(splitter.finish())
        assert ("".join(part[0] for part in pieces), "".join(part[1] for part in pieces).rstrip()) == (
            reasoning,
            rest.rstrip(),
        )


@pytest.mark.parametrize("form", ["responses", "chat_completions", "messages"])
def test_a_refusal_is_streamed_as_one(form) -> None:
    """In each form a refusal is told from text, where the form can."""
    events, whole = played(form, REFUSAL)
    if form == "responses":
        assert "response.refusal.delta" in [event["type"] for event in events]
        assert whole["output"] == [REFUSAL]
    elif form == "chat_completions":
        assert whole["choices"][0]["message"]["refusal"] == "I will not."
        assert [e["choices"][0]["delta"]["refusal"] for e in events if "refusal" in e["choices"][0]["delta"]]
    else:
        assert whole["stop_reason"] == "refusal"
        assert whole["content"][0]["text"] == "I will not."


@pytest.mark.parametrize("form", ["responses", "chat_completions", "messages"])
def test_a_free_form_tool_is_streamed_as_one(form) -> None:
    """Its input arrives whole; a Messages client gets the object that the form has room for."""
    events, whole = played(form, SUMMARY, CUSTOM)
    if form == "responses":
        deltas = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
        assert deltas == [CUSTOM["input"]]
        assert whole["output"] == [SUMMARY, CUSTOM]
    elif form == "chat_completions":
        calls = [e["choices"][0]["delta"]["tool_calls"][0] for e in events if "tool_calls" in e["choices"][0]["delta"]]
        assert calls[0]["custom"]["name"] == "sh"
        assert "".join(call["custom"]["input"] for call in calls) == CUSTOM["input"]
    else:
        writer = forms.open_writer("messages", {})
        content = b"".join(writer.feed(event).content for event in forms.events_of_response(response(SUMMARY, CUSTOM)))
        parts = [event["delta"] for event in data_of(content) if event["type"] == "content_block_delta"]
        assert [part["type"] for part in parts] == ["thinking_delta", "signature_delta", "input_json_delta"]
        assert orjson.loads(parts[-1]["partial_json"]) == {"input": CUSTOM["input"]}


def test_chunks_with_refusals_and_free_form_tools_are_read() -> None:
    """Refusal after text, a custom call and other choices: the reader builds the same items as a whole answer has."""
    reader = forms.ChatChunkReader({})
    chunks = [
        {"choices": [{"index": 1, "delta": {"content": "other"}}]},
        {"choices": [{"index": 0, "delta": {"content": "so"}}]},
        {"choices": [{"index": 0, "delta": {"refusal": "no"}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "custom": {"name": "sh"}}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "custom": {"input": "ls"}}]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
    ]
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    events += reader.finish()
    message, call = reader.builder.response["output"]
    assert [part["type"] for part in message["content"]] == ["output_text", "refusal"]
    assert (call["type"], call["input"], call["status"]) == ("custom_tool_call", "ls", "incomplete")
    assert events[-1]["type"] == "response.incomplete"
    assert reader.output_tokens is None


def test_an_empty_stream_is_an_empty_message() -> None:
    """A model that said nothing gave an answer in a stream too."""
    reader = forms.ChatChunkReader({})
    reader.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    events = reader.finish()
    assert reader.builder.response["output"][0]["content"][0]["text"] == ""
    assert events[-1]["type"] == "response.completed"


def test_every_event_of_a_response_is_numbered_and_placed() -> None:
    """Sequence numbers run from zero, and each item's events carry its place and id."""
    events, _ = played("responses", SUMMARY, REFUSAL, CUSTOM)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    placed = {event["output_index"]: event["item_id"] for event in events if "item_id" in event}
    assert placed == {0: "rs_1", 1: "msg_1", 2: "ct_1"}


@pytest.mark.parametrize("form", ["responses", "chat_completions", "messages"])
def test_an_error_event_has_the_form_of_its_stream(form) -> None:
    """A client of each API finds the reason where it looks for it."""
    content = forms.error_event(form, forms.error_body(form, 502, "gone"))
    (data,) = data_of(content)
    assert "gone" in (data.get("message") or data["error"]["message"])
