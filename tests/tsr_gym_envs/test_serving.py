"""Running an ASGI application: address, bounded requests, and a stop that lets what has begun come to its end."""

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from threading import Thread

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.conftest import ROOT
from tsr_gym_envs.serving import BodyLimit, ConnectionLimits, _listening, serving


async def length(request):
    return PlainTextResponse(str(len(await request.body())))


async def deaf(_):
    return PlainTextResponse("did not read")


APP = Starlette(
    routes=[Route("/length", length, methods=["POST"]), Route("/deaf", deaf, methods=["POST"])],
    middleware=[Middleware(BodyLimit, max_bytes=1000)],
)


@pytest.fixture(scope="module")
def url():
    with serving(APP) as url:
        yield url


def test_a_server_listens_at_loopback_and_nowhere_else(url):
    assert url.startswith("http://127.0.0.1:")
    assert httpx.post(f"{url}/length", content=b"abc").text == "3"
    port = int(url.rpartition(":")[2])
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", port), timeout=5)


@pytest.mark.parametrize(("size", "status"), [(0, 200), (1000, 200), (1001, 413), (10**6, 413)])
@pytest.mark.parametrize("form", ["declared", "streamed"])
def test_longer_bodies_than_allowed_are_refused_also_where_no_length_is_declared(url, size, status, form):
    body = b"x" * size
    answer = httpx.post(f"{url}/length", content=body if form == "declared" else iter([body[:600], body[600:]]))
    assert answer.status_code == status
    assert answer.text == (str(size) if status == 200 else "wanted a request of at most 1000 bytes; send it in parts")
    # A declared length that is too long is refused before the body is sent.
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


@contextmanager
def begun(seconds, grace):
    """Run a server of which a request has begun, and give it, its answers and its errors."""
    code = SLOW.format(seconds=seconds, grace=grace)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **pipes) as server:
        url = server.stdout.readline().strip()
        answers, errors = [], []

        def ask():
            try:
                answers.append(httpx.get(f"{url}/slow", timeout=60).raise_for_status().text)
            except httpx.HTTPError as error:
                errors.append(error)

        client = Thread(target=ask)
        client.start()
        assert server.stdout.readline() == "begun\n"
        yield server, answers, errors
        client.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_lets_requests_that_have_begun_come_to_their_end(number):
    with begun(seconds=1, grace=10) as (server, answers, errors):
        os.kill(server.pid, number)
        # A shell that runs the tests in the background may ignore one of the signals, in child processes too.
        ignored = signal.getsignal(number) is signal.SIG_IGN
        assert (server.wait(timeout=30) == 0) == ignored
    assert (answers, errors) == (["done"], [])


def test_a_stop_does_not_wait_for_longer_than_its_grace():
    with begun(seconds=600, grace=1) as (server, answers, errors):
        server.terminate()
        server.wait(timeout=30)
    assert (answers, len(errors)) == ([], 1)


def test_a_server_in_a_thread_stops_and_leaves_its_port():
    with serving(APP) as url:
        assert httpx.post(f"{url}/length", content=b"").text == "0"
    with pytest.raises(httpx.ConnectError):
        httpx.post(f"{url}/length", content=b"")


SLOW = """
import asyncio
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tsr_gym_envs.serving import serve

async def slow(_):
    print("begun", flush=True)
    await asyncio.sleep({seconds})
    return PlainTextResponse("done")

serve(Starlette(routes=[Route("/slow", slow)]), grace_s={grace}, ready=lambda url: print(url, flush=True))
"""


def test_answers_do_not_wait_and_a_taken_address_is_an_error(url):
    with _listening("127.0.0.1", 0) as (listener, _), socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    with pytest.raises(OSError, match="in use"), serving(APP, port=int(url.rpartition(":")[2])):
        pass


async def slow_answer(_):
    await asyncio.sleep(0.8)
    return PlainTextResponse("done")


HASTY = Starlette(routes=[*APP.routes, Route("/slow", slow_answer)])


@pytest.fixture
def hasty():
    """A server that waits a quarter of a second for requests."""
    with serving(HASTY, limits=ConnectionLimits(read_timeout_s=0.25)) as url:
        yield int(url.rpartition(":")[2])


def connect(port, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0))


def rest_of(connection):
    """Return everything that the server sends until it closes the connection."""
    parts = []
    try:
        while part := connection.recv(1000):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


POST = b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET /", POST[:-4], POST, POST + b"x" * 99])
def test_a_client_that_does_not_finish_its_request_gets_408_and_is_closed(hasty, sent):
    with connect(hasty) as connection:
        connection.sendall(sent)
        assert rest_of(connection).startswith(b"HTTP/1.1 408 ")


def test_a_client_that_sends_byte_after_byte_is_let_go_as_well(hasty):
    with connect(hasty) as connection:
        try:
            for byte in POST * 100:
                connection.sendall(bytes([byte]))
                time.sleep(0.01)
        except OSError:
            return
        pytest.fail("the server never closed the connection")


def test_later_requests_of_a_connection_have_to_be_finished_as_well(hasty):
    with connect(hasty) as connection:
        connection.sendall(POST + b"x" * 100)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        connection.sendall(POST + b"x" * 99)
        assert b"HTTP/1.1 408 " in rest_of(connection)
    with connect(hasty) as connection:
        connection.sendall(POST + b"x" * 100 + POST + b"x" * 99)
        answers = rest_of(connection)
    assert answers.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in answers


def test_an_answer_may_take_longer_than_a_request(hasty):
    assert httpx.get(f"http://127.0.0.1:{hasty}/slow", timeout=30).text == "done"


def test_a_client_has_so_many_connections_and_others_have_theirs():
    with serving(APP, limits=ConnectionLimits(max_per_client=2)) as url:
        port = int(url.rpartition(":")[2])
        with connect(port) as first, connect(port) as second:
            for connection in (first, second):
                connection.sendall(POST + b"x" * 100)
                assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
            with connect(port) as third, connect(port, source="127.0.0.2") as other:
                assert rest_of(third).startswith(b"HTTP/1.1 503 ")
                other.sendall(POST + b"x" * 100)
                assert other.recv(1000).startswith(b"HTTP/1.1 200 ")
        # Places are given back as soon as the server sees that they are free.
        assert any(httpx.post(f"{url}/length", content=b"abc").status_code == 200 for _ in range(1000))


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_client_that_leaves_in_the_middle_of_its_request_leaves_no_trace_in_the_log(how, caplog):
    with serving(APP) as url:
        port = int(url.rpartition(":")[2])
        with connect(port) as connection:
            connection.sendall(POST + b"x" * 50)
            if how == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert httpx.post(f"{url}/length", content=b"abc").text == "3"
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
