"""The three forms of a model call, and how each becomes the others.

The Responses form is the hub: a request, an answer or a stream in another form becomes Responses, and Responses becomes
any form. What only one form has travels through the hub under its own top-level name (``stop``, ``seed``, ``top_k``).

======================  =====================================================================================
`_parts`                content parts: text, images, files, audio, refusals
`_chat_requests`        Responses request ↔ Chat Completions request
`_chat_answers`         Responses object ↔ chat completion
`_chat_streams`         chat completion chunks ↔ Responses events
`_chat_turns`           items ↔ chat messages, one message for one turn of the model
`_thinking`             takes ``<think>`` out of a text that arrives in pieces
`_messages_blocks`      content blocks ↔ parts and items
`_messages_requests`    Responses request ↔ Messages request
`_messages_answers`     Responses object ↔ message
`_messages_streams`     Responses events → Messages events
`_events`               the events of a Responses stream, of a finished answer or of one that is being built
`_writers`              events as the bytes of a stream in any form
`_sse`                  server-sent events as bytes
`_error_bodies`         an error in each form
======================  =====================================================================================

Every function here is pure: it changes none of its arguments and does no I/O. **Errors**: `errors.FormError` names
what the target form cannot carry, where dropping it would change what the model is asked.
"""

from __future__ import annotations

from ._chat_answers import chat_to_responses, responses_to_chat
from ._chat_requests import CARRIED_KEYS, ChatDialect, chat_request_to_responses, responses_request_to_chat
from ._chat_streams import ChatChunkReader
from ._chat_turns import TOKEN_KEYS
from ._error_bodies import error_body, message_of_error
from ._events import FINAL_EVENTS, events_of_response
from ._messages_answers import messages_to_responses, responses_to_messages
from ._messages_requests import messages_request_to_responses, responses_request_to_messages
from ._parts import read_object
from ._sse import EventReader, ReadyPieces, SentEvent, StreamPiece
from ._writers import EventWriter, error_event, open_writer, pieces_of_whole

__all__ = [
    "CARRIED_KEYS",
    "FINAL_EVENTS",
    "TOKEN_KEYS",
    "ChatChunkReader",
    "ChatDialect",
    "EventReader",
    "EventWriter",
    "ReadyPieces",
    "SentEvent",
    "StreamPiece",
    "chat_request_to_responses",
    "chat_to_responses",
    "error_body",
    "error_event",
    "events_of_response",
    "message_of_error",
    "messages_request_to_responses",
    "messages_to_responses",
    "open_writer",
    "pieces_of_whole",
    "read_object",
    "responses_request_to_chat",
    "responses_request_to_messages",
    "responses_to_chat",
    "responses_to_messages",
]
