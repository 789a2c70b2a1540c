"""A corpus that fits on a page, questions over it, and a retriever whose ranking can be worked out by hand."""

from tsr_gym import RetrievalFailed
from tsr_gym_envs.retrieval_qa.contract import Passage, Question
from tsr_gym_envs.retrieval_qa.env import make

PASSAGES = (
    ("p0", "Ada Moor", "Ada Moor is a painter. She was born in Velden."),
    ("p1", "Velden", "Velden is a town on the river Sull. Its mayor is Otto Brand."),
    ("p2", "Otto Brand", "Otto Brand studied law. He has no children, and knows nothing of painting."),
    ("p3", "River Sull", "The Sull is 61 miles long."),
    ("p4", "Karst", "Karst is a novel by Ilse Tann."),
)
QUESTIONS = (
    Question(
        "q0",
        "handmade",
        "Who is the mayor of the town where Ada Moor was born",
        ("Otto Brand", "Mayor Brand"),
        ("p0", "p1"),
        "train",
        2,
        (("Where was Ada Moor born?", "Velden"), ("Who is the mayor of #1?", "Otto Brand")),
    ),
    Question("q1", "handmade", "Does Otto Brand have children?", ("no",), ("p2",), "dev", 1),
    Question("q2", "handmade", "What is the capital of China?", ("Beijing",), (), "test"),
    Question("q0", "other", "Who wrote Karst?", ("Ilse Tann",), ("p4",), ""),
)


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
