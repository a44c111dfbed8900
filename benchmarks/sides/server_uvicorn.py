"""uvicorn (uvloop, httptools) with FastAPI; without an access log, which ours has not either by default."""

from __future__ import annotations

import socket

import uvicorn
from _side import ready
from fastapi import FastAPI

app = FastAPI()


@app.post("/echo")
async def echo(body: dict) -> dict:
    return body


class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        ready(f"http://127.0.0.1:{sockets[0].getsockname()[1]}", "uvicorn", "fastapi", "uvloop")


listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
Server(uvicorn.Config(app, access_log=False, log_level="warning")).run([listener])
