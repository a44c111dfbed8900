"""A program that misbehaves as it is told: ``program.py JSON``. Only the standard library, so that it starts fast.

The JSON object may have: ``ignore`` (SIGINT and SIGTERM have no effect), ``slow`` (seconds it needs after SIGINT,
when it says ``ending``),
``returncode``, ``exit_after`` (seconds until it ends by itself), ``noise`` (bytes to write first), ``says`` (text to
write first), ``clean`` (start over with an empty environment), ``comet`` (fork and exit for ever), ``count`` (report
each interrupt), ``children``: more of these, each with ``how`` = ``fork`` | ``session`` | ``daemon``.
"""

import json
import os
import select
import signal
import sys
import time


def say(text):
    os.write(1, (text + "\n").encode())


def begin(spec):
    pid = os.fork()
    if pid:
        if spec.get("how") == "daemon":
            os.waitpid(pid, 0)
        return
    if spec.get("how") in ("session", "daemon"):
        os.setsid()
    if spec.get("how") == "daemon" and os.fork():
        os._exit(0)
    try:
        live(spec)
    finally:
        os._exit(0)


def shoot():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(0.001)
        if os.fork():
            os._exit(0)


def make_noise(count):
    line = b"x" * 99 + b"\n"
    for _ in range(count // len(line) // 100):
        os.write(1, line * 100)


def wait_for_the_end(spec, interrupts, awake):
    """Return when it is time to end. The pipe tells of signals, since a sleep would go on after the handler."""
    end = time.monotonic() + spec.get("exit_after", 1e9)
    seen = 0
    while time.monotonic() < end:
        if len(interrupts) > seen:
            seen += 1
            if spec.get("count"):
                say(f"interrupt {seen}")
            if spec.get("slow"):
                say("ending")
            end = min(end, interrupts[0] + spec.get("slow", 0))
        if select.select([awake], [], [], min(max(end - time.monotonic(), 0), 3600))[0]:
            os.read(awake, 100)


def live(spec):
    if spec.pop("clean", False):
        os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, json.dumps(spec)], {})
    interrupts = []
    awake, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    signal.signal(signal.SIGINT, lambda *_: interrupts.append(time.monotonic()))
    if spec.get("ignore"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for child in spec.get("children", ()):
        begin(child)
    make_noise(spec.get("noise", 0))
    if "says" in spec:
        say(spec["says"])
    say(f"up {os.getpid()}")
    if spec.get("comet"):
        shoot()
    wait_for_the_end(spec, interrupts, awake)
    if interrupts:
        say("bye")
    os._exit(spec.get("returncode", 0))


live(json.loads(sys.argv[1]))
