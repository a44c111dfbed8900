"""The child process of ``local_model``: llama.cpp's own server on a port that it binds itself.

    python -m gym_trio.models._llama_child --model PATH --slots N --context N --threads N --predict N

It writes its URL as one line to the descriptor that ``GYM_TRIO_READY_FD`` names once it answers, and ends at SIGINT or
SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]

ERRORS_ONLY = 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until told to end."""
    # Blocked before llama.cpp makes its threads: they inherit it, and the signal comes to this one alone.
    endings = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, endings)
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    for name in ("--slots", "--context", "--threads", "--predict"):
        parser.add_argument(name, type=int, required=True)
    chosen = parser.parse_args(arguments)

    # Threads that wait for each other by spinning take ten times as long as soon as anything else wants a processor,
    # and the run itself does. Read by the library when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = chosen.model
    parameters.model_alias = {chosen.alias}
    parameters.n_parallel = chosen.slots
    parameters.n_predict = chosen.predict
    parameters.n_ctx = chosen.slots * chosen.context
    parameters.cpuparams.n_threads = chosen.threads
    parameters.cpuparams_batch.n_threads = chosen.threads
    parameters.n_threads_http = chosen.slots + 4  # a call holds one; the rest answer /slots and /tokenize
    parameters.port = 0
    parameters.ui = False
    parameters.verbosity = ERRORS_ONLY
    server = xllamacpp.Server(parameters)
    # Whoever waited for it may have given up; the end follows.
    with contextlib.suppress(BrokenPipeError), os.fdopen(int(os.environ["GYM_TRIO_READY_FD"]), "wb", 0) as ready:
        ready.write(f"{server.listening_address}\n".encode())
    signal.sigwait(endings)
    sys.stdout.flush()
    os._exit(0)  # the model's memory and threads end with the process; taking them down one by one only costs time


if __name__ == "__main__":
    main()
