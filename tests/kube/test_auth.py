# SPDX-License-Identifier: Apache-2.0
"""What a connection to the API server costs."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tracemalloc
from asyncio import sslproto

from muster.kube import auth
from pki import Authority

MANY = 32


async def _held(host, folder):
    """Return the bytes that the buffers of each end of a connection hold."""
    authority = Authority("test")
    identity, cert, key = authority.server(), folder / "cert", folder / "key"
    cert.write_bytes(identity.certificate)
    key.write_bytes(identity.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    come, all_there = [], asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        come.append(writer)
        if len(come) == MANY:
            all_there.set()
        await all_there.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    server = await asyncio.start_server(answer, host, 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    vouched = base64.b64encode(authority.certificate).decode()
    of_server = {"server": f"https://{host}:{port}", "certificate-authority-data": vouched}
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": of_server}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    (folder / "config").write_text(json.dumps(config))
    kube = await auth.connect(str(folder / "config"))
    tracemalloc.start()
    try:
        await asyncio.gather(*(kube.get("/") for _ in range(MANY)))
        found = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
        await kube.close()
        for writer in come:
            writer.close()
        server.close()
    wanted = tracemalloc.Filter(inclusive=True, filename_pattern=sslproto.__file__)
    kept = found.filter_traces([wanted]).statistics("filename")
    return sum(each.size for each in kept) / MANY / 2


def test_a_connection_holds_little(tmp_path):
    """A slow server has hundreds of them open."""
    assert 0 < asyncio.run(_held("127.0.0.1", tmp_path)) < 24 * 1024
