"""Output: split into lines in bounded memory, relayed to the end, to wherever it is wanted."""

from __future__ import annotations

import contextlib
import io
import os
import random
import resource
import sys

import pytest
import trio

from gym_trio.processes import open_supervisor
from gym_trio.processes._output import KEPT_LINES, MAX_LINE_BYTES, LineSplitter

PYTHON = [sys.executable, "-I", "-S", "-c"]


def split(data: bytes, sizes: list[int], limit: int = MAX_LINE_BYTES) -> list[str]:
    splitter = LineSplitter(limit)
    lines = []
    for size in sizes:
        lines += splitter.feed(data[:size])
        data = data[size:]
    return lines + splitter.feed(data) + splitter.flush()


def test_lines_do_not_depend_on_the_chunks():
    """However the bytes arrive, the lines are the same."""
    data = "one\r\ntwo\n\nthree é ü 漢字 \r four\nno end".encode()
    expected = ["one", "two", "", "three é ü 漢字 \r four", "no end"]
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    for _ in range(200):
        assert split(data, [draw.randint(0, 5) for _ in range(20)]) == expected, f"seed {seed}"


def test_invalid_utf8_is_replaced_within_its_line():
    """A broken sequence at the end of a line does not reach into the next."""
    assert split(b"\xff\xfe\nab\xe6\xbc\nc\xe6", []) == ["��", "ab�", "c�"]


def test_long_lines_are_cut_between_characters():
    """A line above the limit comes in pieces; none is longer, no character is torn, and nothing is lost."""
    text = "漢é" * 50
    for limit in (8, 9, 10, 11):
        pieces = split(text.encode() + b"\nend\n", [7] * 10, limit)
        assert "".join(pieces[:-1]) == text
        assert pieces[-1] == "end"
        assert all(len(piece.encode()) <= limit for piece in pieces)


def test_a_line_that_is_no_text_is_cut_all_the_same():
    """Continuation bytes without an end do not grow the buffer."""
    assert [len(piece) for piece in split(b"\x80" * 20, [], 8)] == [8, 8, 4]


def test_a_partial_line_is_held_within_the_limit():
    """Whatever is fed, what is held is at most the limit."""
    splitter = LineSplitter(100)
    for _ in range(50):
        splitter.feed(b"x" * 77)
        assert len(splitter.partial) <= 100


async def test_both_streams_come_in_order_and_a_partial_line_at_the_end(lines):
    """Standard output and error are one stream; the last line needs no newline."""
    talk = "import os; os.write(1, b'a\\n'); os.write(2, b'b\\n'); os.write(1, b'c'); os.write(2, b'\\xff\\nd')"
    async with open_supervisor(output=lines) as supervisor:
        process = await supervisor.start("s", [*PYTHON, talk])
        await process.wait_gone()
        assert lines.lines == ["(s) a", "(s) b", "(s) c�", "(s) d"]
        assert process.last_lines() == ("a", "b", "c�", "d")


async def test_a_partial_line_that_stays_is_shown(lines):
    """A prompt without a newline appears while the server waits; the rest follows as its own line."""
    talk = "import os, signal; os.write(1, b'loading... '); signal.pause()"
    async with open_supervisor(0, output=lines) as supervisor:
        process = await supervisor.start("s", [*PYTHON, talk])
        await lines.wait_for("(s) loading... ")
        assert process.last_lines() == ("loading... ",)


async def test_last_words_are_relayed(lines, program):
    """What a server says while it is stopped, and right before it is killed, is relayed before the block is left."""
    async with open_supervisor(0.3, output=lines) as supervisor:
        await supervisor.start("polite", program())
        await supervisor.start("stubborn", program(slow=1000, count=True))
        await lines.wait_for("up ", 2)
    assert "(polite) bye" in lines.lines
    assert "(stubborn) interrupt 1" in lines.lines


async def test_a_hundred_megabytes_do_not_bloat(lines, program):
    """100 MB of output pass through; memory stays, nothing blocks, and only the last lines are kept."""
    seen = 0

    def count(line: str) -> None:
        nonlocal seen
        seen += len(line)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with open_supervisor(output=count) as supervisor:
        process = await supervisor.start("s", program(noise=100_000_000, exit_after=0))
        with trio.fail_after(50):
            await process.wait_gone()
    assert seen > 100_000_000
    assert len(process.last_lines()) == KEPT_LINES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB


async def test_one_line_without_an_end(lines):
    """A line of many megabytes is relayed in pieces of a bounded length."""
    talk = "import sys; sys.stdout.write('x' * 5_000_000)"
    async with open_supervisor(output=lines) as supervisor:
        process = await supervisor.start("s", [*PYTHON, talk])
        await process.wait_gone()
    assert sum(len(line) - len("(s) ") for line in lines.lines) == 5_000_000
    assert max(map(len, lines.lines)) <= MAX_LINE_BYTES + len("(s) ")


async def test_by_default_output_goes_to_standard_error(program, capfd):
    """Without an output, lines go to sys.stderr."""
    async with open_supervisor() as supervisor:
        process = await supervisor.start("s", program(says="hello", exit_after=0))
        await process.wait_gone()
    assert "(s) hello\n" in capfd.readouterr().err


async def test_output_to_a_stream(program):
    """A text stream gets whole lines, also from several servers at once."""
    stream = io.StringIO()
    async with open_supervisor(output=stream) as supervisor:
        for name in "ab":
            await supervisor.start(name, program(noise=100_000, exit_after=0))
        for process in supervisor.processes.values():
            await process.wait_gone()
    written = stream.getvalue().splitlines()
    noise = [line for line in written if line.endswith("x")]
    assert sorted(set(noise)) == [f"(a) {'x' * 99}", f"(b) {'x' * 99}"]
    assert len(noise) == 2000


async def test_a_stream_that_blocks_holds_up_neither_the_stop_nor_the_block(program, marked):
    """When nobody reads what is relayed, stopping is bounded all the same."""
    read, write = os.pipe()
    stream = os.fdopen(write, "w")
    with trio.fail_after(20):
        async with open_supervisor(0.2, 0.5, output=stream) as supervisor:
            await supervisor.start("s", program(noise=10_000_000), env=marked.env)
            await trio.sleep(0.3)
    assert marked.alive() == set()
    os.close(read)
    with contextlib.suppress(BrokenPipeError):
        stream.close()


async def test_an_output_that_raises_ends_the_block(program, marked):
    """The caller's own exception arrives bare, once, and after the servers have gone; a server is still heard out."""

    def broken(line: str) -> None:
        raise LookupError(line)

    async def block() -> None:
        async with open_supervisor(10, output=broken) as supervisor:
            await supervisor.start("s", program(noise=1_000_000), env=marked.env)
            await trio.sleep_forever()

    with pytest.raises(LookupError, match=r"\(s\) x"):
        await block()
    assert marked.alive() == set()


async def test_a_standard_error_without_a_reader_is_no_error(program):
    """A server's output without anywhere to go is dropped, and the supervisor runs on."""
    code = (
        "import os, sys, trio\n"
        "from gym_trio.processes import open_supervisor\n"
        "async def main():\n"
        "    async with open_supervisor() as supervisor:\n"
        "        await (await supervisor.start('s', sys.argv[1:])).wait_gone()\n"
        "    print(supervisor.report.exits[0].returncode)\n"
        "read, write = os.pipe()\n"
        "os.dup2(write, 2)\n"
        "os.close(read)\n"
        "os.close(write)\n"
        "trio.run(main)\n"
    )
    command = [sys.executable, "-c", code, *program(exit_after=0, noise=1_000_000)]
    result = await trio.run_process(command, capture_stdout=True, check=False)
    assert result.stdout == b"0\n"


async def test_a_log_gets_the_bytes_as_they_came(lines, tmp_path):
    """A log is appended to, in a folder that is made, exactly as the server wrote."""
    log = tmp_path / "logs" / "s.log"
    talk = "import os; os.write(1, b'a\\xff\\r\\nb')"
    async with open_supervisor(output=lines) as supervisor:
        for name in "xy":
            process = await supervisor.start(name, [*PYTHON, talk], log_path=log)
            await process.wait_gone()
    assert log.read_bytes() == b"a\xff\r\nb" * 2


async def test_a_log_that_takes_no_more_is_given_up(lines, program, caplog):
    """A full disk costs the log, not the server."""
    async with open_supervisor(output=lines) as supervisor:
        await supervisor.start("s", program(), log_path="/dev/full")
        await lines.wait_for("up ")
    assert "No space left" in caplog.text
    assert lines.lines[-1] == "(s) bye"
