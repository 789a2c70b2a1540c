"""The scores of single worlds, against formulas worked out by hand."""

from itertools import product

import gymnasium as gym
import pytest

from tests.tsr_gym_envs.retrieval_qa.fakes import qa
from tsr_gym import ConfigError
from tsr_gym.wrappers import AnswerFormat, FrozenLakeScore, RetrievalQAScore, SokobanScore, TextWorldScore, WebShopScore
from tsr_gym_envs.frozen_lake.rules import FrozenLakeState
from tsr_gym_envs.sokoban.rules import SokobanState
from tsr_gym_envs.textworld.env import TextWorldEnv
from tsr_gym_envs.textworld.state import Scene, TextWorldState
from tsr_gym_envs.webshop import compact
from tsr_gym_envs.webshop.score import fit, overlap, progress, spoken, words_of
from tsr_gym_envs.webshop.shoppers import RuleShopper
from tsr_gym_envs.zmachine.machine import Memory

LAKE = ["SFF", "FHF", "FFG"]
TO_GOAL = "Right || Right || Down || Down"
CHOICE = {"question_id": "q0", "data_source": "handmade"}
BORN, TOWN = "<search>Ada Moor born</search>", "<search>Velden town</search>"


@pytest.mark.parametrize(
    ("turn", "score"),
    [("", -4.0), ("Right", -3.0), ("Right || Right", -2.0), ("Right || Down", -12.0), ("Left", -4.0), (TO_GOAL, 0.0)],
)
def test_a_turn_is_rated_by_the_state_that_it_reached(turn, score):
    env = FrozenLakeScore(gym.make("tsr/FrozenLake-v0", desc=LAKE, is_slippery=False))
    env.reset(seed=1)
    assert env.step(turn)[4]["score"] == score


def test_the_lakes_score_has_a_penalty_and_scores_of_rooms_rate_turns():
    env = FrozenLakeScore(gym.make("tsr/FrozenLake-v0", desc=LAKE, is_slippery=False), hole_penalty=0.5)
    env.reset(seed=1)
    assert env.step("Right || Down")[4]["score"] == -2.5
    env = FrozenLakeScore(AnswerFormat(gym.make("tsr/FrozenLake-v0")))
    assert (env.score_of, gym.make(env.spec).hole_penalty) == ("state", 10.0)
    env = SokobanScore(AnswerFormat(gym.make("tsr/Sokoban-v0")), potential="estimate", weight=2.0)
    assert env.score_of == "turn"
    again = gym.make(env.spec)
    assert (again.potential, again.weight) == ("estimate", 2.0)


#        columns 0123456
LEVEL = "#######\n#@ $ .#\n#######"
ROOM = "#####\n#@  #\n# $ #\n#  .#\n#####"


def scores(level, turns, **arguments):
    env = SokobanScore(gym.make("tsr/Sokoban-v0", level=level, max_turns=None, max_actions=None), **arguments)
    env.reset(seed=1)
    results = [env.step(turn) for turn in turns]
    return [(round(result[1], 9), round(result[4]["score"], 9)) for result in results]


def test_potentials_of_sokoban_by_hand():
    # Two steps, a push, and the push that solves: -0.1, -0.1, and -0.1 + 1 + 10.
    assert scores(LEVEL, ["Right", "Right", "Right"]) == [(-0.1, -0.1), (-0.1, -0.1), (10.9, 10.9)]
    assert scores(LEVEL, ["Up"]) == [(-0.1, -0.1)]
    # Three moves from solved: every Right gains one, Left gains nothing at the wall and loses one elsewhere.
    assert scores(LEVEL, ["Right", "Left", "Left"], potential="oracle") == [(-0.1, 0.9), (-0.1, -1.1), (-0.1, -0.1)]
    assert scores(LEVEL, ["Right || Right || Right"], potential="oracle") == [(10.7, 13.7)]
    assert scores(LEVEL, ["Right"], potential="oracle", weight=0.25) == [(-0.1, 0.15)]
    assert scores(LEVEL, ["Right"], potential="oracle", weight=0.0) == [(-0.1, -0.1)]
    # Two pushes, and one field between player and box: 2 + (2 - 1) = 3; then 2 + (1 - 1) = 2.
    assert scores(LEVEL, ["Right"], potential="estimate") == [(-0.1, 0.9)]


@pytest.mark.parametrize("potential", ["estimate", "oracle"])
def test_a_push_into_a_corner_loses_as_much_as_a_lost_game(potential):
    # Shortest: Down, Right (push), Up, Right, Down (push), five moves; from below the box it takes Left and Up first
    # and no Down, six. The estimate sees two pushes and the walk to the box. Up pushes the box against the wall for
    # good, which counts as 40 moves.
    start, below = {"estimate": (-3.0, -2.0), "oracle": (-5.0, -6.0)}[potential]
    came = scores(ROOM, ["Down || Down || Right", "Up"], potential=potential)
    assert came[0] == (-0.3, round(-0.3 + below - start, 9))
    assert came[1] == (-0.1, round(-0.1 - 40.0 - below, 9))


def state(points, progress, ended=""):
    memory = Memory(b"", b"", (), b"")
    return TextWorldState(0, Scene(memory, (), "", "", "", points, (), progress, ended, ()))


@pytest.mark.parametrize(
    ("kind", "after", "score"),
    [
        ("quests", state(2, 0.4), 0.4), ("points", state(2, 0.4), 2.0), ("quests", state(2, 0.4, "lost"), -1.0),
        ("points", state(2, 0.4, "lost"), -1.0), ("quests", state(3, 1.0, "won"), 1.0),
    ],
)  # fmt: skip
def test_the_score_is_that_of_the_state_that_was_reached(kind, after, score):
    # Any environment serves: the score looks at states alone.
    assert TextWorldScore(gym.make("CartPole-v1"), kind=kind).score(state(0, 0.0), "look", after, 0.0) == score


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TSR_GYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield gym.make("tsr/WebShop-v0", num_products=20)


def shop_scores(env):
    """Return the scores of the rule shopper's episode, turn by turn, and the states it reached."""
    env.reset(seed=3)
    found, states, ended = [], [], False
    while not ended:
        *_, terminated, truncated, info = env.step(RuleShopper().act(env.unwrapped))
        found.append(info["score"])
        states.append(env.unwrapped.state)
        ended = terminated or truncated
    return found, states


@pytest.mark.parametrize(("variant", "similarity"), [("paper", overlap), ("attributes", fit)])
def test_the_score_weighs_progress_and_similarity_of_the_state_reached(bare, variant, similarity):
    found, states = shop_scores(WebShopScore(bare, alpha=2.0, beta=0.5, variant=variant))
    shop = bare.unwrapped.shop
    assert found == [2.0 * progress(shop, state) + 0.5 * similarity(shop, state) for state in states]
    assert found[0] < found[1] < found[-1]


@pytest.mark.parametrize(("variant", "alpha"), [("paper", 0.5), ("attributes", 0.1)])
def test_each_variant_has_a_weight_of_its_own(bare, variant, alpha):
    own = shop_scores(WebShopScore(bare, variant=variant))
    assert own == shop_scores(WebShopScore(bare, variant=variant, alpha=alpha))
    assert own != shop_scores(WebShopScore(bare, variant=variant, alpha=2 * alpha))


def test_scores_of_the_shop_rate_states_by_both_parts(bare):
    env = WebShopScore(AnswerFormat(bare), alpha=0.25, variant="attributes")
    assert env.score_of == "state"
    again = gym.make(env.spec)
    assert (again.alpha, again.beta, again.variant) == (0.25, 1.0, "attributes")
    again.reset(seed=1)
    *_, info = again.step("<answer>search[cup]</answer>")
    assert info["score"] == fit(again.unwrapped.shop, again.unwrapped.state)
    found, states = shop_scores(WebShopScore(bare, alpha=1.0, beta=0.0))
    assert found == [progress(bare.unwrapped.shop, state) for state in states]
    found, states = shop_scores(WebShopScore(bare, alpha=0.0))
    assert found == [overlap(bare.unwrapped.shop, state) for state in states]


class Redacted:
    """A shop in which everything is replaced that no compact page shows."""

    def __init__(self, shop, goal):
        self.shop = shop
        self.want = compact.want_of(shop.goals.goal(goal).instruction_text)
        self.show_attrs = True

    def goal(self, state):
        hidden = {"row": 0, "asin": "x", "category": "x", "query": "x", "name": "x", "product_category": "x"}
        return self.shop.goal(state)._replace(**hidden, attributes=("x",), price_upper=1.0, goal_options=(), weight=9)

    def product(self, row):
        """Return a product whose title has only the words that a page of results shows of it."""
        good, shown = self.shop.product(row), compact._row(self.shop, self.want, row).text.split()
        texts = dict.fromkeys(("description", "category", "query", "product_category"), " ".join(self.want.query))
        texts["title"] = " ".join(word for word in spoken(good.title) if word in shown)
        return good._replace(**texts, bullets=(), attributes=("x",), prices=(good.prices[0], 9e9))


def test_the_guide_of_a_compact_shop_reads_nothing_that_its_pages_never_show(bare, monkeypatch):
    env = gym.make("tsr/WebShop-v0", num_products=20, observation_mode="compact")
    guide, base = WebShopScore(env, alpha=0.0, variant="attributes"), env.unwrapped
    env.reset(seed=3)
    scores = []
    for row, goal in product(range(20), range(20)):
        state = base.state._replace(page="item_page", row=row, goal=goal)
        scores.append((guide.score(base.state, "", state, 0.0), fit(base.shop, state)))
        with monkeypatch.context() as patch:
            patch.setattr(base, "shop", Redacted(base.shop, goal))
            assert guide.score(base.state, "", state, 0.0) == scores[-1][0]
    assert len(set(scores)) > 5
    # Where sub pages can be opened, their words count.
    assert any(ours < opened for ours, opened in scores)


def test_the_papers_score_of_a_compact_shop_counts_the_words_that_its_pages_show(bare):
    env = gym.make("tsr/WebShop-v0", num_products=20, observation_mode="compact")
    guide, base = WebShopScore(env, alpha=0.0), env.unwrapped
    env.reset(seed=3)
    assert guide.score(base.state, "", base.state, 0.0) == 0.0
    scores = []
    for row, goal in product(range(20), range(20)):
        state = base.state._replace(page="item_page", row=row, goal=goal)
        wanted = words_of(base.shop.goals.goal(goal).instruction_text)
        line = compact._row(base.shop, compact.want_of(base.shop.goals.goal(goal).instruction_text), row).text
        seen = words_of(f"{line} {compact.compact_page(base.shop, state).text}")
        assert guide.score(base.state, "", state, 0.0) == len(wanted & seen) / len(wanted)
        bought = state._replace(page="done")
        scores.append((guide.score(base.state, "", bought, 0.0), overlap(base.shop, bought)))
    # The full page shows the whole title and all options.
    assert len(set(scores)) > 5
    assert sum(ours for ours, _ in scores) < sum(full for _, full in scores)


@pytest.mark.parametrize("turns", [(BORN, TOWN), (BORN, "<answer>Otto Brand</answer>")])
def test_the_guide_of_questions_reads_no_label(turns):
    question = qa().questions.questions[0]
    hidden = {"golden_answers": ("x",), "supporting": (), "split": "test", "hops": 9, "steps": (("x", "x"),)}
    blind = question_scores("novelty", *turns, questions=[question._replace(**hidden)])
    assert question_scores("novelty", *turns) == blind


def test_the_guide_of_adventures_reads_nothing_but_points_and_the_end():
    score = TextWorldScore(gym.make("CartPole-v1"), **TextWorldEnv.guide.numbers).score
    before, other = state(1, 0.0), state(1, 0.9)
    hidden = {"facts": ("at(P, kitchen)",), "quests": (True,), "done": ("open door",)}
    other = other._replace(scene=other.scene._replace(**hidden))
    assert score(before, "look", before, 0.0) == score(before, "look", other, 0.0)


def test_states_of_grids_hold_nothing_that_their_boards_do_not_show():
    # The guides of lakes and rooms read states alone, which are what is drawn.
    assert FrozenLakeState._fields == ("desc", "position")
    assert SokobanState._fields == ("level", "boxes", "player")


def question_scores(kind, *texts, **settings):
    env = RetrievalQAScore(qa(**settings), kind=kind)
    env.reset(options=CHOICE)
    return [env.step(text)[4]["score"] for text in texts]


def test_potentials_of_questions_by_hand():
    assert question_scores("first_occurrence", BORN, "hm", TOWN, BORN) == [0.0, 0.0, 0.5, 0.5]
    assert question_scores("first_occurrence", TOWN, "<answer>Otto Brand</answer>") == [0.5, 1.0]
    assert question_scores("first_occurrence", TOWN, "<answer>Ada Moor</answer>") == [0.5, 0.0]
    assert question_scores("supporting", BORN, BORN, TOWN) == [0.5, 0.5, 1.0]
    assert question_scores("supporting", BORN, "<answer>Mayor Brand</answer>") == [0.5, 1.0]
    assert question_scores("supporting", TOWN, BORN, TOWN, max_turns=2) == [0.5, 1.0, 0.0]
    assert question_scores("first_occurrence", TOWN, "hm", max_turns=1) == [0.5, 0.0]


def test_novelty_uses_no_label_and_pays_a_passage_once():
    first, again, bridge, junk = question_scores("novelty", BORN, BORN, TOWN, "hm")
    # Of the question's 7 words the first passage holds Ada, Moor and born; the second mayor and town.
    assert (first, again, bridge, junk) == pytest.approx((3 / 7, 0.0, 2 / 7, 0.0))
    # All of Otto Brand was read, and five words of the question.
    assert question_scores("novelty", BORN, TOWN, "<answer>Otto Brand</answer>")[-1] == pytest.approx(5 / 7)
    assert question_scores("novelty", "<answer>Otto Brand</answer>") == [0.0]


def test_states_are_rated_by_labels_and_turns_without():
    rated = {kind: RetrievalQAScore(qa(), kind=kind).score_of for kind in ("first_occurrence", "supporting", "novelty")}
    assert rated == {"first_occurrence": "state", "supporting": "state", "novelty": "turn"}
    env = RetrievalQAScore(qa(), alpha=0.2)
    env.reset(options=CHOICE)
    assert env.step(TOWN)[4]["score"] == 0.2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SokobanScore(gym.make("tsr/Sokoban-v0"), potential="magic"), r"'next_push', 'oracle'\], got 'magic'"),
        (lambda: TextWorldScore(gym.make("CartPole-v1"), kind="wins"), r"\['points', 'quests'\], got 'wins'"),
        (lambda: WebShopScore(gym.make("tsr/WebShop-v0", num_products=20, observation_mode="url")), "only their addre"),
        (lambda: WebShopScore(gym.make("CartPole-v1"), variant="magic"), r"\['attributes', 'paper'\], got 'magic'"),
        (lambda: RetrievalQAScore(qa(), kind="recall"), "wanted kind of"),
        (lambda: RetrievalQAScore(gym.make("tsr/FrozenLake-v0")), "wanted a RetrievalQAEnv .*got a FrozenLakeEnv"),
    ],
)
def test_unknown_choices_and_environments_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
