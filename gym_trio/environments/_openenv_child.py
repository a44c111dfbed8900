"""The child process of ``openenv``: uvicorn on a listening socket that it was handed, with the app of ``module:name``.

    python _openenv_child.py FD MODULE:NAME

Run as a file by whichever Python has the environment installed, so it imports nothing of gym_trio. It ends at SIGINT.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Serve until told to end."""
    import os

    # This file's folder would shadow modules of Python's own (calendar, math); the working folder takes its place.
    sys.path[0] = os.getcwd()
    import contextlib
    import socket

    fd, app = int(sys.argv[1]), sys.argv[2]
    import uvicorn

    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn hands the signal on once it has shut down
        uvicorn.Server(config).run(sockets=[socket.socket(fileno=fd)])


if __name__ == "__main__":
    main()
