"""A fleet of NeMo Gym servers, each in a process of its own as ``gym env start`` runs it: ``python app.py`` with the
resolved configuration in its environment.

The collector reaches an agent through an environment server, which the resolution adds; so there are four. They share
one virtual environment, and there is no Ray and no head server, which nothing here asks: each would cost it more.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request

from _tool_call import CONFIG
from omegaconf import OmegaConf


def resolve():
    """The configuration, resolved as NeMo Gym does it, in the variable by which its servers get it."""
    from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig

    given = GlobalConfigDictParserConfig(
        initial_global_config_dict=OmegaConf.create(CONFIG), skip_load_from_cli=True, skip_load_from_dotenv=True
    )
    config = GlobalConfigDictParser().parse(given)
    os.environ["NEMO_GYM_CONFIG_DICT"] = OmegaConf.to_yaml(config)
    return config


@contextlib.contextmanager
def fleet():
    config = resolve()
    installed = pathlib.Path(sysconfig.get_paths()["purelib"])
    processes, ports = [], []
    try:
        for name, kind, implementation, settings in _servers(config):
            place, entry = installed / kind / implementation, "app.py"
            if kind == "responses_api_models":
                place, entry = pathlib.Path(__file__).parent, "nemo_gym_model.py"
            environment = {**os.environ, "NEMO_GYM_CONFIG_PATH": name}
            processes.append(subprocess.Popen([sys.executable, entry], cwd=place, env=environment, stdout=sys.stderr))
            ports.append((settings["host"], settings["port"]))
        for process, (host, port) in zip(processes, ports, strict=True):
            _wait_until_up(process, host, port)
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _servers(config):
    """Every block that has an entry point: name, kind, implementation, settings."""
    for name, block in config.items():
        if not OmegaConf.is_dict(block):
            continue
        for kind, blocks in block.items():
            for implementation, settings in blocks.items() if OmegaConf.is_dict(blocks) else ():
                if OmegaConf.is_dict(settings) and "entrypoint" in settings:
                    yield name, kind, implementation, settings


def _wait_until_up(process, host, port):
    while process.poll() is None:
        try:
            with socket.create_connection((host, port), timeout=1):
                break
        except OSError:
            time.sleep(0.05)
    else:
        raise RuntimeError(f"a server ended with {process.returncode} before it was up")
    with contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://{host}:{port}/").close()
