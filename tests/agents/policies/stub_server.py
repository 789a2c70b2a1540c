"""A local server that answers OpenAI's chat completions as documented, with faults on request."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USAGE = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25, "prompt_tokens_details": {"cached_tokens": 4}}


def completion(text, reason="stop", usage=USAGE):
    """Return the documented body of an answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
    about = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "stub"}
    return about | {"choices": [choice], "usage": usage}


def error(message, code=None):
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


class Stub:
    """What the server was asked, and what it is to answer.

    Args:
        answer: From the number of a request and its body to a status, a body (an object for JSON, bytes as they are, a
            number of seconds to be silent for) and headers.
    """

    def __init__(self, answer):
        self.answer = answer
        self.asked = []
        self.headers = []
        self.open = self.most_open = 0
        self.lock = threading.Lock()


@contextmanager
def serving(answer):
    """Serve answers on a free port of the loopback, and yield the base URL and the stub."""
    stub = Stub(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with stub.lock:
                number = len(stub.asked)
                stub.asked.append((self.path, body))
                stub.headers.append(dict(self.headers))
                stub.open += 1
                stub.most_open = max(stub.most_open, stub.open)
            status, answered, headers = (*stub.answer(number, body), {})[:3]
            if isinstance(answered, float):
                time.sleep(answered)
                answered = b""
            with stub.lock:
                stub.open -= 1
            sent = answered if isinstance(answered, bytes) else json.dumps(answered).encode()
            try:
                self.send_response(status)
                for name, value in {"content-length": len(sent), **headers}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(sent)
            except OSError:
                pass

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
