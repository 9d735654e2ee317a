# SPDX-License-Identifier: Apache-2.0
"""The network of a pod for a program on this machine: its host name, and the cluster's DNS."""

from __future__ import annotations

import json
import os
import socket
from typing import Any


def play() -> None:
    """Answer as the network does that POD_NETWORK describes; in a real pod, do nothing."""
    written = os.environ.pop("POD_NETWORK", "")
    if not written:
        return
    told = json.loads(written)
    hostname: str = told["hostname"]
    known = {**told["names"], hostname: told["ip"], "localhost": "127.0.0.1"}
    lookup = socket.getaddrinfo

    def address(host: str) -> str:
        if host.replace(".", "").isdigit():
            return host
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, f"no such name: {host}")
        return str(known[host])

    def getaddrinfo(host: Any, *args: Any, **named: Any) -> Any:
        return lookup(address(host) if host else host, *args, **named)

    def name_of(host: str = "") -> str:
        return host or hostname

    socket.gethostname = lambda: hostname
    socket.getfqdn = name_of
    socket.gethostbyname = address
    socket.getaddrinfo = getaddrinfo


def say(**understood: object) -> None:
    """Print what a framework understood: one line of JSON, the last of the output."""
    print(json.dumps(understood), flush=True)
