"""Doubles for retrieval: encoders, servers and clients, and a naive world."""

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.conftest import ROOT
from tsr_gym import RetrievalFailed
from tsr_gym_envs.retrieval_qa.contract import Passage, Question
from tsr_gym_envs.retrieval_qa.env import make
from tsr_gym_envs.retrieval_qa.world.facts import Literal
from tsr_gym_envs.retrieval_qa.world.sentences import grammar

PASSAGES = (
    ("p0", "Ada Moor", "Ada Moor is a painter. She was born in Velden."),
    ("p1", "Velden", "Velden is a town on the river Sull. Its mayor is Otto Brand."),
    ("p2", "Otto Brand", "Otto Brand studied law. He has no children, and knows nothing of painting."),
    ("p3", "River Sull", "The Sull is 61 miles long."),
    ("p4", "Karst", "Karst is a novel by Ilse Tann."),
)
QUESTIONS = (
    Question(
        "q0", "handmade", "Who is the mayor of the town where Ada Moor was born", ("Otto Brand", "Mayor Brand"),
        ("p0", "p1"), "train", 2, (("Where was Ada Moor born?", "Velden"), ("Who is the mayor of #1?", "Otto Brand")),
    ),
    Question("q1", "handmade", "Does Otto Brand have children?", ("no",), ("p2",), "dev", 1),
    Question("q2", "handmade", "What is the capital of China?", ("Beijing",), (), "test"),
    Question("q0", "other", "Who wrote Karst?", ("Ilse Tann",), ("p4",), ""),
)  # fmt: skip


class WordRetriever:
    """Rank passages by how many of the query's words they hold; ties by place, none without a shared word."""

    digest = "word-retriever-1"

    def __init__(self, corpus=PASSAGES):
        self.corpus = corpus
        self.asked = []

    def retrieve(self, queries, k):
        self.asked.append((tuple(queries), k))
        return [self._best(query, k) for query in queries]

    def _best(self, query, k):
        words = set(query.lower().split())
        found = []
        for place, (name, title, text) in enumerate(self.corpus):
            shared = words & set(f"{title} {text}".lower().replace(".", " ").split())
            if shared:
                found.append((-len(shared), place, Passage(name, title, text, float(len(shared)))))
        return [passage for _, _, passage in sorted(found)[:k]]


class BrokenRetriever(WordRetriever):
    """Fail as long as `broken`."""

    broken = True

    def retrieve(self, queries, k):
        if self.broken:
            raise RetrievalFailed("wanted passages, got no answer: start the server")
        return super().retrieve(queries, k)


def qa(**settings):
    """Return the environment over the page."""
    settings = {"questions": QUESTIONS, "retriever": WordRetriever(), "top_k": 1, **settings}
    return make(**settings)


def at(number, **settings):
    """Return the environment, at the start of a question."""
    env = qa(**settings)
    question = QUESTIONS[number]
    env.reset(seed=0, options={"question_id": question.id, "data_source": question.data_source})
    return env


def search_r1_world():
    return qa()


def skyrl_world():
    return qa(protocol="skyrl", history="transcript", top_k=2)


def verl_world():
    return qa(protocol={"preset": "verl", "ends_on_invalid": False, "invalid": "No tool was called."}, top_k=2)


def graded_world():
    return qa(reward="search-r1", history="transcript")


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
    """Run a server with scripted answers; yield its address and the requests."""
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
    """Run `tsr retrieval serve` in a child process; yield the process and its address."""
    command = [sys.executable, "-m", "tsr_gym", "retrieval", "serve", "--index", str(index), "--port", "0", *options]
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


SLOT = re.compile(r"\\\{(\w+)\\\}")


@cache
def words(text):
    """Return the words that count in SQuAD's comparison, found with another method than the project's."""
    plain = re.sub(r"[^\w\s]|_", "", text.lower(), flags=re.ASCII if text.isascii() else 0)
    return [word for word in plain.split() if word not in ("a", "an", "the")]


def holds(text, phrase):
    """Return whether the words of a phrase stand one after the other in a text."""
    there, wanted = words(text), words(phrase)
    return any(there[i : i + len(wanted)] == wanted for i in range(len(there) - len(wanted) + 1))


def says(text, relation, said):
    """Return whether a sentence of a text has a pattern of a relation with this object."""
    named = f"(the )?{re.escape(said)}"
    for pattern in grammar().relations[relation].state:
        regex = SLOT.sub(lambda slot: named if slot[1] == "o" else r"[^.]{0,60}?", re.escape(pattern))
        if re.search(rf"(^|[.] ){regex}", text, re.IGNORECASE):
            return True
    return False


def ways(facts, start, hops):
    """Return every way along relations from a start, as its facts and its end."""
    found = [((), start)]
    for hop in hops:
        fitting = [fact for fact in facts if fact.relation == hop.relation]
        if hop.is_inverse:
            found = [((*way, fact), fact.subject) for way, at in found for fact in fitting if fact.object == at]
        else:
            found = [((*way, fact), fact.object) for way, at in found for fact in fitting if fact.subject == at]
    return found


def solve_naively(form, world, facts):
    """Return every answer that a form has, each with the facts that it rests on, by going through all facts."""
    if form.kind == "same":
        (first, a), (second, b) = (ways(facts, start, form.hops)[0] for start in form.starts)
        return [(("yes",) if a == b else ("no",), first + second)]
    compared = ()
    start = form.starts[0]
    if form.criterion:
        found = [fact for start in form.starts for fact in facts if fact[:2] == (start, form.criterion)]
        compared = tuple(found)
        first, second = (fact.object.order for fact in found)
        if form.kind == "before":
            return [(("yes",) if first < second else ("no",), compared)]
        start = form.starts[[first, second].index((max if form.wants_more else min)(first, second))]
    return [(_named(end, world), compared + way) for way, end in ways(facts, start, form.hops)]


def _named(end, world):
    if isinstance(end, Literal):
        return end.answers
    entity = world.knowledge.entities[end]
    return (entity.name, entity.alias) if entity.alias else (entity.name,)
