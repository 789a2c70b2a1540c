"""Servers that tests of the engines talk to: one that says what it is told to, and our own in a process of its own."""

import json
import subprocess
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.conftest import ROOT

ROWS = [
    {"id": "sky", "contents": '"Sky"\nThe sky is blue.'},
    {"id": "sea", "contents": '"Sea"\nThe sea is blue, and the sea is deep.'},
    {"id": "wood", "contents": '"Wood"\nA wood of pines.'},
    {"id": "bare", "contents": "Coal, blue at times.\nNo title."},
]


def write_rows(path, rows=ROWS):
    """Write a corpus."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Script:
    """What a scripted server was asked, and how it answers.

    Args:
        answer: Given method, path and body, returns status, headers and body; None hangs up.
    """

    def __init__(self, answer):
        self.answer = answer
        self.asked = []


@contextmanager
def scripted(answer):
    """Run a server that answers as told; gives its address and what it was asked."""
    script = Script(answer)

    class Scripted(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer_anything(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            script.asked.append((self.command, self.path, body))
            told = script.answer(self.command, self.path, body)
            if told is None:
                self.close_connection = True
                return
            status, headers, reply = told
            self.send_response(status)
            for name, value in {"content-length": str(len(reply)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply)

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = answer_anything

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", script
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def served(index, *options):
    """Run `tsr retrieval serve` in a process of its own; gives the process and its address."""
    command = [
        sys.executable,
        "-m",
        "tsr_gym",
        "retrieval",
        "serve",
        "--index",
        str(index),
        "--port",
        "0",
        *options,
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server, server.stdout.readline().partition(": ")[0]
        finally:
            server.kill()


SLOW_SERVER = """
import sys, time
from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever
from tsr_gym_envs.retrieval_qa.server import retrieval_app
from tsr_gym_envs.serving import serve

class Slow:
    def __init__(self, retriever):
        self.digest, self.searches = retriever.digest, retriever.retrieve

    def retrieve(self, queries, k):
        if any("deep" in query for query in queries):
            print("begun", flush=True)
            time.sleep(600)
        return self.searches(queries, k)

serve(retrieval_app(Slow(BM25Retriever(sys.argv[1]))), ready=lambda url: print(url, flush=True))
"""


@contextmanager
def served_slowly(index):
    """Run a server that prints `begun` and hangs when it is asked for something deep; gives what `served` gives."""
    command = [sys.executable, "-c", SLOW_SERVER, str(index)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server, server.stdout.readline().strip()
        finally:
            server.kill()
