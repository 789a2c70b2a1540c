"""Running an ASGI application: address, bounded requests, and a stop that lets what has begun come to its end."""

import os
import signal
import socket
import subprocess
import sys
from threading import Thread

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.conftest import ROOT
from tsr_gym_envs.serving import BodyLimit, _listening, serving


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


def test_a_body_that_says_it_is_too_long_is_refused_before_it_is_sent(url):
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_lets_requests_that_have_begun_come_to_their_end(number):
    with subprocess.Popen(
        [sys.executable, "-c", SLOW.format(seconds=1, grace=10)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        url = server.stdout.readline().strip()
        answers = []
        client = Thread(target=lambda: answers.append(httpx.get(f"{url}/slow", timeout=30).text))
        client.start()
        assert server.stdout.readline() == "begun\n"
        os.kill(server.pid, number)
        client.join()
        # Whoever runs the tests in the background may have the one signal ignored, also in their children.
        ignored = signal.getsignal(number) is signal.SIG_IGN
        assert (server.wait(timeout=30) == 0) == ignored
    assert answers == ["done"]


def test_a_stop_does_not_wait_for_longer_than_its_grace():
    with subprocess.Popen(
        [sys.executable, "-c", SLOW.format(seconds=600, grace=1)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        url = server.stdout.readline().strip()
        errors = []

        def ask():
            try:
                httpx.get(f"{url}/slow", timeout=60).raise_for_status()
            except httpx.HTTPError as error:
                errors.append(error)

        client = Thread(target=ask)
        client.start()
        assert server.stdout.readline() == "begun\n"
        server.terminate()
        server.wait(timeout=30)
        client.join()
    assert len(errors) == 1


def test_answers_do_not_wait_for_acknowledgements():
    with _listening("127.0.0.1", 0) as (listener, _), socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_an_address_that_is_taken_is_an_error_at_once(url):
    with pytest.raises(OSError, match="in use"), serving(APP, port=int(url.rpartition(":")[2])):
        pass
