# SPDX-License-Identifier: Apache-2.0
"""What a connection to the API server costs, and whose rights it shows there."""

import asyncio
import base64
import contextlib
import itertools
import json
import ssl
import time
from contextlib import asynccontextmanager
from types import MappingProxyType

import psutil
import pytest
from kubernetes.aio.config import incluster_config

from muster.kube import auth, client
from muster.kube.certificates import PairFiles, self_signed
from muster.kube.client import ApiError, GarbledError

MANY = 32


@asynccontextmanager
async def _connected(folder, answer, who):
    """Give the door to a server that takes certificates, as `who` of the kubeconfig."""
    now, files = time.time(), PairFiles(folder / "served", folder / "served-key")
    served, own = (
        self_signed("server", now, 3600, hosts=("127.0.0.1",)),
        self_signed("u", now, 3600),
    )
    files.write(served)
    PairFiles(folder / "cert", folder / "key").write(own)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=own.certificate.decode())
    context.load_cert_chain(*files)
    context.verify_mode = ssl.CERT_OPTIONAL
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    vouched = base64.b64encode(served.certificate).decode()
    of_server = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": vouched}
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": of_server}],
        "users": [{"name": "u", "user": who}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    (folder / "config").write_text(json.dumps(config))
    kube = await auth.connect(str(folder / "config"))
    try:
        yield kube
    finally:
        await kube.close()
        server.close()


async def test_few_connections_of_a_burst_are_left_when_it_is_over(tmp_path, monkeypatch):
    """What follows goes over one of them, so that the others close in a while."""
    monkeypatch.setattr(auth, "LINGER", 0.0)
    monkeypatch.setattr(auth, "SPARE", 4)
    numbers, asked, gone = itertools.count(), [], []
    all_there, few_left = asyncio.Event(), asyncio.Event()

    async def answer(reader, writer):
        connection = next(numbers)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                asked.append(connection)
                if len(asked) == MANY:
                    all_there.set()
                await all_there.wait()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()
        gone.append(connection)
        if len(gone) == MANY - 4:
            few_left.set()

    async with _connected(tmp_path, answer, {"token": "t"}) as kube:
        await asyncio.gather(*(kube.get("/") for _ in range(MANY)))
        async with asyncio.timeout(120):
            await few_left.wait()
        for _ in range(MANY):
            await kube.get("/")
        assert len(gone) == MANY - 4
    assert len(set(asked[:MANY])) == MANY
    assert len(set(asked[MANY:])) == 1


async def test_a_watch_that_is_closed_leaves_no_connection(tmp_path):
    """TLS would wait until the server closes its side, which a busy one does later."""
    ports, over = [], asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\n\r\n{"type": "ADDED", "object": {}}\n')
        ports.append(writer.get_extra_info("sockname")[1])
        writer.transport.pause_reading()
        await over.wait()
        writer.transport.abort()

    async with _connected(tmp_path, answer, {"token": "own"}) as kube:
        events = kube.watch("/api/v1/pods", {})
        assert await anext(events) == client.OPENED
        assert (await anext(events))["type"] == "ADDED"
        await events.aclose()
        await kube.close()
        await asyncio.sleep(0)
        over.set()
        there = psutil.Process().net_connections()
        assert [each for each in there if each.raddr and each.raddr.port in ports] == []


@contextlib.asynccontextmanager
async def _asked(folder, own=MappingProxyType({"token": "own"}), body=b"{}",
                 status="200 OK", more=""):  # fmt: skip
    """Give a client, and who has asked its server: a certificate, and a header."""
    asked = []

    async def answer(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = (line.partition(": ") for line in head.split("\r\n"))
        who = [value for name, _, value in lines if name.lower() == "authorization"]
        asked.append((bool(writer.get_extra_info("peercert")), *who))
        head = f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        writer.close()

    async with _connected(folder, answer, dict(own)) as kube:
        yield kube, asked


@pytest.mark.parametrize("certified", [False, True])
async def test_what_is_read_for_others_is_read_by_their_rights(tmp_path, certified):
    """A server would go by this process's certificate rather than by their token."""
    own = {"client-certificate": str(tmp_path / "cert"), "client-key": str(tmp_path / "key")}
    async with _asked(tmp_path, own if certified else {"token": "own"}) as (kube, asked):
        await kube.get("/version")
        assert await kube.text_for("Bearer theirs", "/api", {}) == "{}"
    assert asked == [(True,) if certified else (False, "Bearer own"), (False, "Bearer theirs")]


@pytest.mark.parametrize("way", ["file", "config", "pod"])
async def test_a_token_that_was_replaced_is_read_at_once(tmp_path, monkeypatch, way):
    """Nothing else is sent where the file is empty, or names another server by now."""
    token, config, valid = tmp_path / "token", tmp_path / "config", "old"
    token.write_text(valid)

    async def answer(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                status = "200 OK" if f"earer {valid}\r" in head else "401 Unauthorized"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        writer.close()

    own = {"token": valid} if way == "config" else {"tokenFile": str(token)}
    async with _connected(tmp_path, answer, own) as kube:
        if way == "pod":
            await kube.close()
            _mount(json.loads(config.read_text()), token, monkeypatch)
            kube = await auth.connect()  # noqa: PLW2901
        try:
            await kube.get("/version")
            valid, text = "new", config.read_text().replace('"old"', '"new"')
            token.write_text("")
            config.write_text(text.replace("127.0.0.1", "127.0.0.2"))
            monkeypatch.setattr(auth, "RENEWAL", 0.0)
            with pytest.raises((ApiError, *client.BROKEN)):
                await kube.get("/version")
            token.write_text(valid)
            config.write_text(text)
            await asyncio.gather(*(kube.get("/version") for _ in range(3)))
        finally:
            await kube.close()


def _mount(config, token, monkeypatch):
    """Let this process pass for a pod whose account has that token."""
    cluster = config["clusters"][0]["cluster"]
    vouched, certificate = cluster["certificate-authority-data"], token.with_name("ca")
    certificate.write_bytes(base64.b64decode(vouched))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(certificate))
    host, _, port = cluster["server"].removeprefix("https://").partition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.delenv("KUBECONFIG", raising=False)


async def test_a_token_goes_nowhere_else(tmp_path):
    """Not where the server's answer says."""
    more = "Location: /other\r\n"
    async with _asked(tmp_path, status="302 Found", more=more) as (kube, asked):
        with pytest.raises(ApiError):
            await kube.text_for("Bearer theirs", "/api", {})
    assert len(asked) == 1


async def test_what_is_read_for_others_has_an_end(tmp_path, monkeypatch):
    """A log may be as long as its writer likes."""
    monkeypatch.setattr(client, "MOST_READ", 1000)
    async with _asked(tmp_path, body=b"x" * 1001) as (kube, _):
        with pytest.raises(GarbledError):
            await kube.text_for("Bearer theirs", "/api", {})


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (None, "no such file"),
        (b"", "empty, incomplete or of another format"),
        (b"not: [closed", "expected ',' or ']'"),
        (b"\xff\xfe\x00", "codec can't decode"),
        (b"[1]", "empty, incomplete or of another format"),
        (b"apiVersion: v1", "Expected key current-context"),
        ({"user": "other"}, "empty, incomplete or of another format"),
        ({"cluster": {"certificate-authority-data": "YWJj"}}, "certificate"),
        ({"cluster": {"certificate-authority": "/absent"}}, "/absent"),
    ],
)
async def test_kubeconfig_that_cannot_be_used_is_one_error_with_its_name(tmp_path, config, told):
    """A malformed file, certificate or reference is an error of the configuration."""
    file = tmp_path / "config"
    if isinstance(config, dict):
        cluster = {"server": "https://127.0.0.1", **config.get("cluster", {})}
        context = {"cluster": "c", "user": config.get("user", "u")}
        config = json.dumps(
            {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": context}],
            }
        ).encode()
    if config is not None:
        file.write_bytes(config)
    with pytest.raises(auth.ConfigurationError) as raised:
        await auth.connect(str(file))
    text = str(raised.value)
    assert text.startswith(f"no connection to a cluster: kubeconfig {file} cannot be used: ")
    assert told in text
    assert "\n" not in text
