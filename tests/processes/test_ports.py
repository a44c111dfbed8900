"""Ports: bound beforehand, and an error that says who has one."""

from __future__ import annotations

import os
import socket

import pytest

from gym_trio import ServerStartError
from gym_trio.processes import bind_port, check_port_free, find_port_holder


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_port_in_use_names_its_holder(host):
    """The error has the server, the port, the key and the process."""
    with bind_port("first", host) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ServerStartError) as info:
            bind_port("agent", host, port, key="agent.port")
        assert info.value.server == "agent"
        message = str(info.value)
        assert f"port {port} on {host} (key agent.port) is in use by " in message
        assert f"(pid {os.getpid()})" in message
        with pytest.raises(ServerStartError, match=f"port {port} on {host} is in use by"):
            check_port_free("agent", host, port)
    check_port_free("agent", host, port)
    assert find_port_holder(port) is None


def test_a_bound_port_accepts_at_once():
    """The socket listens before any server runs, so that early clients wait and are not refused."""
    with bind_port("s") as listener, socket.create_connection(listener.getsockname()):
        pass


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 0), ("203.0.113.1", 0), ("127.0.0.1", 99999)])
def test_what_is_no_address_is_named(host, port):
    """A host or port that cannot be bound is an error with both."""
    with pytest.raises(ServerStartError, match=f"port {port} on {host}"):
        bind_port("s", host, port)
