"""Tree-GRPO, TSPO and GraphGPO: credit on trees, turns and graphs as training runs at equal sampled tokens."""

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.papers.plan import Method, Numbers, Scale, Setting, Table
from benchmarks.papers.published import (
    CHAIN,
    CHAIN_OF_TWO,
    GIGPO,
    GRAPH,
    GRAPH_GPO,
    GRPO,
    HOPS,
    NOT_NAMED,
    READERS,
    TREE,
    TREE_GRPO,
    TREE_GRPO_OF_TWO,
    TREE_OF_TWO,
    TSPO_GAINS,
    TSPO_OF_7B,
)
from benchmarks.papers.tsr import AS_IS, SHOP, TINY

# Search-R1's protocol, on which both papers build: its KL term and clip. Questions and passages are the user's.
SEARCH_R1 = (
    "--algorithm grpo --lr 1e-6 --kl k3 --kl-weight 0.001 --clip-low 0.2 --clip-high 0.2 --dual-clip 3 --aggregation "
    "token --groups 512 --minibatch 256 --temperature 1 --max-tokens 500 --logits parts --microbatch 4"
)
TREE_MODELS = (*READERS, NOT_NAMED)
READER = "--algorithm grpo --lr 1.5e-4 --groups 16 --minibatch 16 --entropy 0.003"
DEEP = "hops=[2,3,4] entities=1000 questions=3000 max_turns=5"
NEAR_READER = Setting(
    "retrieval_qa", "1 or 2 hops", READER, 16, 256, (), recipe="retrieval_qa --seed 0", tokens=40_000, evaluations=4
)
DEEP_READER = replace(
    NEAR_READER,
    name="2 to 4 hops",
    flags=f"--env-set {DEEP} {READER}",
    recipe=f"retrieval_qa --seed 0 --env-set {DEEP}",
)


def _qwen_reader(name: str, questions: str, settings: str, model: str, updates: int) -> Setting:
    data = f"--env-set questions=data/{questions} corpus=data/wiki-18 {settings}"
    return Setting("retrieval_qa", name, f"{data} {SEARCH_R1}", updates, 256, (), model=model)


_OF_TWO: Mapping[str, Mapping[str, Numbers]] = {
    NOT_NAMED: {method: {"exact match": value} for method, value in TREE_GRPO_OF_TWO.items()}
}
TREE_PAPER = {HOPS[0]: TREE_GRPO[HOPS[0]], HOPS[1]: {**TREE_GRPO[HOPS[1]], **_OF_TWO}}
TREE_SETTINGS: dict[Scale, tuple[Setting, ...]] = {
    "tiny": (
        replace(NEAR_READER, published=HOPS[0], models=TREE_MODELS),
        replace(DEEP_READER, published=HOPS[1], models=TREE_MODELS),
    ),
    "qwen": tuple(
        replace(
            _qwen_reader(hops, f"{questions}.jsonl", "reward=tree-grpo max_turns=3", "Qwen2.5-3B", 180),
            published=hops,
            models=("Qwen2.5-3B",),
        )
        for hops, questions in zip(HOPS, ("nq", "hotpotqa"), strict=True)
    ),
}
EVERY_GROUP = "--filter varied"
CHAINS = "--search naive --trajectories {} --estimator grpo " + EVERY_GROUP
TREES = "--search random_branching(trees={},nodes=2,rounds=1) --trajectories {} --estimator tree_grpo{} " + EVERY_GROUP
TREE_BUDGET = Table(
    "tree_grpo_budget",
    "chains against trees at equal budget, on retrieval QA",
    "Tree-GRPO, arXiv 2509.21240; means over data sets from its repository, the budget of two second-hand",
    TREE_SETTINGS,
    (
        AS_IS,
        Method(CHAIN, CHAINS.format(4)),
        Method(TREE, TREES.format(2, 6, "")),
        Method(CHAIN_OF_TWO, CHAINS.format(2)),
        Method(TREE_OF_TWO, TREES.format(1, 3, "")),
        Method("tree, compared within trees alone", TREES.format(2, 6, "(inter=0.0)")),
    ),
    CHAIN,
    TREE_PAPER,
    ("exact match",),
    (
        "Four chains of a question cost about what two trees do that fork twice each: 2 + 2 x 2 / 2. Tiny runs have "
        "equal sampled tokens in every update too, and the questions of an update follow from that.",
        "A group in which all returns are equal teaches neither method anything and is left out.",
        "The published scripts warm the learning rate up; there is no warm-up here.",
        "The paper's questions are those of public data sets over 21 million passages; tiny ones are generated. "
        "Those of 1 or 2 hops are compared with the paper's one hop, those of 2 to 4 with its several.",
    ),
    quick=4,
)
TSPO = "TSPO: FOLR where all are wrong"
TSPO_ALL = "FOLR in all groups"
MORE_STEPS = "GRPO, steps of a quarter"
TSPO_PAPER: dict[str, dict[str, dict[str, Numbers]]] = {
    "retrieval_qa": {
        **{model: {TSPO: {"gain over the baseline": gain}} for model, gain in TSPO_GAINS.items()},
        "Qwen2.5-7B by data set": {TSPO: TSPO_OF_7B},
    }
}
TSPO_MODELS = tuple(TSPO_PAPER["retrieval_qa"])
TSPO_ABLATION = Table(
    "tspo_ablation",
    "reward for the first sight of the answer, where all are wrong and everywhere, on retrieval QA",
    "TSPO, arXiv 2601.22776; gains on average in per cent of the baseline, data sets second-hand",
    {
        "tiny": tuple(replace(one, models=TSPO_MODELS) for one in (NEAR_READER, DEEP_READER)),
        "qwen": tuple(
            replace(
                _qwen_reader(model, "nq_hotpotqa.jsonl", "max_turns=4", model, 500),
                models=(model,) if model != "Qwen2.5-7B" else (model, "Qwen2.5-7B by data set"),
            )
            for model in TSPO_GAINS
        ),
    },
    (
        AS_IS,
        Method(GRPO, "--search naive --trajectories 5 --estimator grpo --filter mixed_success"),
        Method(
            MORE_STEPS,
            "--search naive --trajectories 5 --estimator grpo --filter mixed_success --minibatch 4",
            scale="tiny",
        ),
        Method(TSPO, "--search naive --trajectories 5 --estimator tspo --credit first_occurrence --filter learnable"),
        Method(
            TSPO_ALL,
            "--search naive --trajectories 5 --estimator tspo(groups='all') --credit first_occurrence(groups='all') "
            "--filter none",
        ),
    ),
    MORE_STEPS,
    TSPO_PAPER,
    ("gain over the baseline", *TSPO_OF_7B),
    (
        "The paper's ablation as a table is not known here; what it claims is that its rule helps where all "
        "trajectories of a group are wrong.",
        "Its alpha, epsilon and treatment of missing turns are not published; those of `first_occurrence` and `tspo` "
        "hold here. Where all are wrong, alpha makes no difference.",
        "GRPO learns only where a group has successes and failures, so it takes fewer steps; with steps of a quarter "
        "of their trajectories it takes about as many as TSPO.",
    ),
    quick=8,
)
GRAPH_FLAGS = "--groups 16 --trajectories 8 --search naive"
GRAPH_CREDIT = Table(
    "graph_credit",
    "credit of moves in a graph of what was tried, next to GiGPO and GRPO, on Sokoban and WebShop",
    "GraphGPO, arXiv 2605.26684, second-hand: a vision-language model of 3B in Sokoban, one of 1.5B in WebShop",
    {
        "tiny": (
            replace(
                TINY["sokoban"],
                flags=f"{GRAPH_FLAGS} --minibatch 16 --entropy 0.003 --filter mixed_success --algorithm grpo --lr 5e-4",
                updates=12,
                tokens=48_000,
                evaluations=4,
                models=("VL-3B",),
            ),
            replace(
                TINY["webshop"],
                flags=f"{GRAPH_FLAGS} --minibatch 16 --entropy 0.003 --filter mixed_success --algorithm grpo --lr 3e-4",
                updates=12,
                tokens=42_000,
                models=("1.5B",),
            ),
        ),
        "qwen": tuple(
            Setting(
                world,
                f"{name}, {model}",
                f"--env-set {env_set} {GRAPH_FLAGS} --minibatch 64 --filter mixed_success --algorithm grpo --lr 1e-6 "
                "--max-tokens 512 --logits parts --microbatch 4",
                150,
                256,
                (of,),
                model=model,
            )
            for world, name, env_set, model, of in (
                (
                    "sokoban",
                    "Sokoban",
                    "generator=ragen max_actions_per_turn=1 max_turns=15",
                    "Qwen2.5-3B-Instruct",
                    "VL-3B",
                ),
                ("webshop", "WebShop", SHOP.replace("=9", "=15"), "Qwen2.5-1.5B-Instruct", "1.5B"),
            )
        ),
    },
    (
        AS_IS,
        Method(GRPO, "--estimator grpo"),
        Method(GIGPO, "--estimator gigpo(gamma=0.95,step_weight=1.0)"),
        Method(GRAPH, "--estimator graph(w=0.1,step_weight=1.0)"),
    ),
    GRPO,
    GRAPH_GPO,
    ("success",),
    (
        "All three learn from plain play, so equal tokens are equal episodes.",
        "The paper's Sokoban is seen as pictures; here it is read as text. Its groups, rates and steps are not known "
        "here: at the larger scale they are this project's choice.",
    ),
    quick=8,
)
TABLES = (TREE_BUDGET, TSPO_ABLATION, GRAPH_CREDIT)
