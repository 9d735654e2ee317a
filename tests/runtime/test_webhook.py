# SPDX-License-Identifier: Apache-2.0
"""The webhook as anybody may ask it: what it answers, and how much of it there may be."""

import asyncio
import contextlib
import gc
import io
import json
import socket
import ssl
import threading

import aiohttp
import pytest
from pydantic_core import to_json

from muster.frameworks import FRAMEWORKS, Site
from muster.kube.certificates import PairFiles, self_signed
from muster.local.cluster import free_port
from muster.runtime import webhook
from muster.runtime.webhook import LARGEST, Endpoint, answer
from support.apiserver.memory import tfjob
from support.rehearsal import call_count

TFJOB = {"group": "kubeflow.org", "version": "v1", "kind": "TFJob"}


def review(document, *, kind=TFJOB, operation="CREATE", **more):
    """Return the question about an object."""
    request = {"uid": "r", "kind": kind, "operation": operation, "object": document, **more}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def said(question):
    """Return what is answered."""
    made = answer(question, FRAMEWORKS)
    assert (made["kind"], made["response"]["uid"]) == ("AdmissionReview", "r")
    return made["response"]


def test_job_above_the_limit_of_the_flag_is_rejected():
    """The webhook applies the limit of the operator, which may be lower than that of the CRD."""
    question = review(tfjob(Worker=4), operation="UPDATE", oldObject=tfjob(Worker=2))
    refused = answer(question, FRAMEWORKS, Site(max_replicas=3))["response"]
    assert "must be less than or equal to 3 pods in all" in refused["status"]["message"]
    assert answer(question, FRAMEWORKS, Site(max_replicas=4))["response"]["allowed"]


BAD = tfjob(Chief=1, Master=1)
TWO = "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role"


def test_a_job_that_the_rules_forbid_is_refused_in_their_words():
    """One that they do not forbid is let in. What was wrong before a change is a warning."""
    assert said(review(tfjob()))["allowed"]
    refused = said(review(BAD))
    assert (refused["allowed"], refused["status"]) == (False, {"message": TWO, "code": 422})
    found = said(review(BAD, operation="UPDATE", oldObject=BAD))
    assert (found["allowed"], found["warnings"]) == (True, [TWO])


def test_cost_of_an_update_is_linear_in_the_problems():
    """Ten times as many problems of both versions cost about ten times as much."""

    def cost(count):
        template = {"spec": {"containers": [{"name": f"c{i}"} for i in range(count)]}}
        replicas = {"Worker": {"replicas": 1, "template": template}}
        document = {**BAD, "spec": {"tfReplicaSpecs": replicas}}
        question = review(document, operation="UPDATE", oldObject=document)
        return call_count.calls(lambda: said(question))

    assert cost(400) < 15 * cost(40)


@pytest.mark.parametrize(
    "more",
    [
        {"kind": {**TFJOB, "group": "other.org"}},
        {"kind": {**TFJOB, "kind": "Pod"}},
        {"operation": "DELETE"},
        {"subResource": "status"},
    ],
)
def test_what_is_no_job_of_ours_is_let_in(more):
    """The configuration may ask for more than it should."""
    assert said(review(BAD, **more)) == {"uid": "r", "allowed": True}


LONG_UID = {"uid": "u" * 10_000, "kind": TFJOB}


@pytest.mark.parametrize(
    "question", [None, [], {}, {"request": 1}, {"request": {"uid": 5}}, {"request": LONG_UID}]
)
def test_what_is_no_question_gets_no_answer(question):
    """Whoever sent it. The uid is returned to the sender, so its length is limited."""
    with pytest.raises(ValueError, match="no AdmissionReview"):
        answer(question, FRAMEWORKS)


HOSTILE_TEXT = "\x01\u202e" * 100_000


@pytest.mark.parametrize(
    "more",
    [
        {"object": tfjob(**{f"{HOSTILE_TEXT}{role}": 1 for role in range(5)})},
        {"object": BAD, "oldObject": BAD, "operation": "UPDATE"},
        {
            "object": tfjob(
                Worker=1, annotations={f"muster.kubeflow.org/{n}": "x" for n in range(9999)}
            )
        },
    ],
)
def test_response_to_hostile_review_is_at_most_4_kib(more):
    """The problems and warnings of a job are shortened to the limit of a response."""
    document = {**BAD, "spec": {"tfReplicaSpecs": {f"{HOSTILE_TEXT}{n}": {} for n in range(9)}}}
    for review_of in (more, {**more, "object": document}):
        question = review(None, **review_of)
        question["request"]["uid"] = "\x01" * webhook.MAX_UID_CHARS
        response = webhook.answer(question, FRAMEWORKS)
        assert len(to_json(response)) <= 4096


def test_message_beyond_the_limit_is_shortened_and_keeps_its_beginning():
    """A rejection with a long message still states the first problem."""
    roles = {f"{'x' * 1000}{n}": {"replicas": -1} for n in range(20)}
    document = {**BAD, "spec": {"tfReplicaSpecs": roles}}
    message = said(review(document))["status"]["message"]
    assert message.startswith("spec.tfReplicaSpecs")
    assert message.endswith("...")


class Certified:
    """Has a certificate."""

    def __init__(self, folder):
        """Make one."""
        files = PairFiles(folder / "tls.crt", folder / "tls.key")
        files.write(self_signed("webhook", 1_750_000_000, 1e9, hosts=("127.0.0.1",)))
        self.context = ssl.create_default_context(purpose=ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(files.certificate, files.key)
        self.ready = asyncio.Event()
        self.ready.set()


@contextlib.asynccontextmanager
async def told(tmp_path, *, certified=None, port=None):
    """Run an endpoint that serves; give a function that sends a request to it."""
    address = f"127.0.0.1:{port or free_port()}"
    url = f"https://{address}/validate"
    before = threading.active_count()
    made = Endpoint(address, certified or Certified(tmp_path), FRAMEWORKS.values())
    serving = asyncio.create_task(made.run())
    async with aiohttp.ClientSession() as session:

        async def ask(body):
            for _ in range(200):
                try:
                    async with session.post(url, data=body, ssl=False) as response:
                        return response.status, await response.text()
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.02)
            raise AssertionError("nobody serves")

        try:
            yield ask
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
    assert threading.active_count() <= before + 1


async def test_it_answers_in_a_thread_of_its_own(tmp_path, monkeypatch):
    """The allocator's loop waits for nobody."""
    threads = set()
    well = webhook.answer

    def noted(*given):
        threads.add(threading.current_thread())
        return well(*given)

    monkeypatch.setattr(webhook, "answer", noted)

    async with told(tmp_path) as ask:
        status, text = await ask(json.dumps(review(BAD)))
        assert (status, json.loads(text)["response"]["allowed"]) == (200, False)
        assert len(threads - {threading.current_thread()}) == 1


async def test_what_is_too_large_or_no_question_is_turned_away(tmp_path):
    """And the next one is answered."""
    async with told(tmp_path) as ask:
        assert (await ask(io.BytesIO(b" " * (LARGEST + 1))))[0] == 413
        assert (await ask(b"{"))[0] == 400
        assert (await ask(b"{}"))[0] == 400
        large = tfjob(annotations={"x": "y" * 1_500_000})
        assert (await ask(io.BytesIO(json.dumps(review(large)).encode())))[0] == 200


async def test_there_are_never_more_at_once_than_a_few(tmp_path, monkeypatch):
    """Who comes when as many are being read is told to come again; who is slow is let go."""
    monkeypatch.setattr(webhook, "MOST", 2)
    monkeypatch.setattr(webhook, "PATIENCE", 0.5)

    async def slowly():
        for _ in range(30):
            yield b" "
            await asyncio.sleep(0.05)

    async with told(tmp_path) as ask:
        assert (await ask(json.dumps(review(tfjob()))))[0] == 200
        slow = [asyncio.create_task(ask(slowly())) for _ in range(2)]
        await asyncio.sleep(0.2)
        assert (await ask(json.dumps(review(tfjob()))))[0] == 503
        assert {status for status, _ in await asyncio.gather(*slow)} == {408}
        assert (await ask(json.dumps(review(tfjob()))))[0] == 200


async def test_client_that_never_reads_responses_is_disconnected(tmp_path, monkeypatch):
    """One timeout covers reading a request and writing its response."""
    port = free_port()
    monkeypatch.setattr(webhook, "PATIENCE", 0.5)
    body = json.dumps(review({**BAD, "spec": {"tfReplicaSpecs": {"x" * 3000: {}}}})).encode()
    request = b"POST /v HTTP/1.1\r\nHost: me\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE

    async with told(tmp_path, port=port) as ask:
        assert (await ask(body))[0] == 200
        # The kernel stores little for this client, and the client's transport reads nothing.
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
        _, writer = await asyncio.open_connection(sock=raw, ssl=tls, server_hostname="x")
        writer.transport.pause_reading()
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(request)
                await writer.drain()
        writer.transport.abort()
        assert (await ask(body))[0] == 200


async def test_a_certificate_is_exchanged_between_two_greetings(tmp_path):
    """Certificate and key are two things: whoever comes in between would be sent away."""
    certified = Certified(tmp_path)
    threads = set()

    async with told(tmp_path, certified=certified) as ask:
        await ask(json.dumps(review(tfjob())))
        await certified.within(lambda: threads.add(threading.current_thread()))
        assert len(threads - {threading.current_thread()}) == 1


@pytest.mark.parametrize("steps", range(1, 8))
def test_it_may_end_while_it_begins(tmp_path, caplog, steps):
    """Nothing is left of it, and nobody complains."""
    port = free_port()

    async def run():
        made = Endpoint(f"127.0.0.1:{port}", Certified(tmp_path), FRAMEWORKS.values())
        serving = asyncio.create_task(made.run())
        for _ in range(steps):
            await asyncio.sleep(0)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(run())
    gc.collect()
    assert [record.getMessage() for record in caplog.records] == []
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))
