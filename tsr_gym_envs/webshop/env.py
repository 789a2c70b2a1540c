"""The WebShop environment: shop, rules and observations put together."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import gymnasium as gym
import numpy as np

from tsr_gym import ConfigError, Limits, Step, TextEnv
from tsr_gym.codec import encode
from tsr_gym.spaces import FreeText
from tsr_gym.state_env import new_tuple
from tsr_gym.teaching import Teaching
from tsr_gym.text_env import Guide
from tsr_gym_envs.reasons import invalid, shown
from tsr_gym_envs.settings import actions_within
from tsr_gym_envs.webshop.compact import compact_actions, compact_page, read_compact, write_compact
from tsr_gym_envs.webshop.oracle import Player, best_plan, random_success
from tsr_gym_envs.webshop.pages import MODES, SEPARATOR
from tsr_gym_envs.webshop.reward import NO_PURCHASE, NounFn
from tsr_gym_envs.webshop.rules import follow, page_of, page_text, url
from tsr_gym_envs.webshop.settings import WebShopSettings, make_settings
from tsr_gym_envs.webshop.shop import Shop, Stream, begin, begin_as_original, open_shop, stream_from, suggest_queries
from tsr_gym_envs.webshop.state import ShopAction, ShopState
from tsr_gym_envs.webshop.teaching import shop_teaching

# A description in a catalogue may be as long as a book.
_MAX_PAGE = 10_000_000


class WebShopEnv(TextEnv[ShopState]):
    """Find, configure and buy the product that an instruction describes.

    ## Description
    WebShop (arXiv 2207.01206) without Java, Flask or spaCy: the pages, rules, search and rewards of the original, and
    its defects repaired where ``rules="fixed"``. Needs the extra ``envs``.

    ## Action Space
    Text: ``search[words]``, which works on every page, and ``click[name]`` for what the page shows, in any case: a
    button, a product's id, or the value of an option. Where a value stands in several option groups of a product, or
    is called like a button, it is shown and clicked as ``group: value``. Blanks around names do not matter. Text that
    means nothing changes nothing. ``rules="original"`` reads texts exactly as the original.

    ## Observation Space
    Text, by `observation_mode`: ``text_options`` (the page's texts joined by `` [SEP] ``, and the chosen options),
    ``text`` (the same without the options, as the original's default), ``rich`` (a line for each text, buttons marked,
    the original's ``text_rich``), ``html`` (the page), ``url`` (the original's address of it), ``compact`` (a few
    lower-case words, for very small models, with short names of clickable items, such as ``click [ r2 ]`` and
    ``click [ buy ]``; see `tsr_gym_envs.webshop.compact`).

    ## Starting State
    The search page with an instruction, drawn by weight among the goals of `split`.
    ``reset(options={"goal": number})`` begins with a goal of `goals`, negative numbers count from the end;
    ``reset(options={"session": key})`` with the goal of that number where the key is a number, else with a random goal
    that belongs to the key. ``rules="original"`` draws goals as the original does in a fresh process, episode by
    episode, and anew from the seed of a `reset`.

    ## Rewards
    0, and for a purchase the share of wishes that it meets, times a factor for the kind of the product
    (`tsr_gym_envs.webshop.reward`).

    ## Episode End
    Terminates with a purchase; truncates after `max_turns` turns or `max_actions` actions. With the original's rules
    the episode may continue after a purchase, and terminates again with the next one.

    ## Information
    As every `TextEnv`: ``action_is_valid``, ``invalid_reason``, ``action_is_effective``, ``executed``, ``success``
    (the reward is 1), ``turns_left``, ``actions_left``; also ``purchased``, ``noun_source`` (where the nouns of the
    title score come from), and ``available_actions``: the original's ``has_search_bar`` and ``clickables``, and
    ``actions``, the texts that mean something. The parts of the reward, 0 and False before a purchase: ``r_type``,
    ``r_att``, ``w_att``, ``query_match``, ``category_match``, ``title_score``, ``r_price``, ``w_price``,
    ``num_attr_matches``, ``num_option_matches``, and ``r_option`` and ``w_option``, 0 where no options are wanted.

    ## Arguments
    | keyword | default |
    |---|---|
    | `catalogue` | None: the embedded one; else a folder of the original's JSON files, or of an imported catalogue |
    | `rules` | ``fixed``; ``original`` is the original bit for bit, with the mode ``text`` and no limit of turns |
    | `repairs` | None: all or none, by `rules`; else the names of the repairs (`tsr_gym_envs.webshop.repairs`) |
    | `observation_mode` | ``text_options`` |
    | `max_turns`, `max_actions_per_turn`, `max_actions` | 15, 1, None; several actions are joined by ``||`` |
    | `human_goals` | False: generated instructions; True: those that people wrote |
    | `noun_fn` | None: see `tsr_gym_envs.webshop.catalogue.store`; else a function from a title to its nouns |
    | `price_seed` | 0: the seed of the original's random prices; unused with stored prices |
    | `num_products` | None: all; else how many of the catalogue's first |
    | `limit_goals` | None: all; else how many, drawn by weight |
    | `min_options` | 0: all; else the fewest options that a goal wants, such as a size and a color |
    | `split` | ``all``; ``train``, ``valid`` or ``test`` |
    | `num_prev_obs`, `num_prev_actions` | 0: how many earlier observations and actions are shown again |
    | `show_attrs` | False: whether products have a page of attributes |
    | `session_prefix` | "": the prefix of every session's key |
    | `engine` | ``lucene``; ``pyserini`` searches with the real Lucene |
    | `preset` | ``default``; ``paper``: 5 turns of 2 actions, ``tsr-code``: 9 turns of 1; both observe ``text`` |
    | `render_mode` | None or ``ansi`` |

    ## Version History
    v0: first version.
    """

    draws_noise = False
    first_facts = NO_PURCHASE
    guide = Guide("tsr_gym.wrappers:WebShopScore", {"variant": "attributes"})
    model_forms = frozenset({"observation_mode"})

    def __init__(self, settings: WebShopSettings, shop: Shop, *, render_mode: str | None = None) -> None:
        per_turn = settings.max_actions_per_turn
        super().__init__(
            # A catalogue counts by its content, not by its path.
            (replace(settings, catalogue=None), shop.catalogue.digest, shop.noun_source),
            limits=Limits(settings.max_turns, per_turn, settings.max_actions),
            separator="||" if per_turn is not None and per_turn > 1 else None,
            render_mode=render_mode,
        )
        self.observation_space = FreeText(_MAX_PAGE)
        self.settings = settings
        self.shop = shop
        self.instructions = _instructions(self.separator)
        self.continues_after_end = not shop.repairs.ends_with_purchase
        self._is_compact = settings.observation_mode == "compact"
        self._memory = max(settings.num_prev_obs, settings.num_prev_actions)

    @property
    def goals(self) -> Sequence[dict[str, Any]]:
        """All goals in the environment's order, each with the original's field names."""
        return self.shop.goals

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode; `options` may name a ``goal`` or a ``session``.

        Raises:
            ConfigError: The goal or an option is unknown.
        """
        remaining = dict(options or {})
        if unknown := sorted(set(remaining) - {"goal", "session", "snapshot"}):
            raise ConfigError(f"unknown options of reset {unknown}; known: ['goal', 'session']")
        if self.settings.is_original:
            remaining["stream"] = self._stream_for(seed)
        return super().reset(seed=seed, options=remaining)

    def _stream_for(self, seed: int | None) -> Stream:
        """Return the state of the original's random numbers at the start of an episode."""
        if seed is not None:
            return stream_from(seed)
        if self._episode is None:
            return Stream(self.shop.goals.dice)
        state: ShopState = self._episode.state
        assert state.dice is not None
        return Stream(state.dice, state.known)

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> ShopState:
        """Return the search page with the goal that the options name, or with a random one."""
        if "stream" in options:
            return begin_as_original(self.shop.goals, self.settings, options)
        return begin(self.shop.goals, self.settings, options, rng)

    def transition(self, state: ShopState, action: str, rng: np.random.Generator) -> Step:
        """Return the page after one action, and the reward of a purchase."""
        following = self._follow(state, action)
        after = state if following is None else following
        # Earlier observations are stored in the state, because a state has no access to earlier states.
        if self._memory:
            past = (*state.past, self._look(state), action)
            after = after._replace(past=past[-2 * self._memory :])
        if following is None:
            return new_tuple(Step, (after, 0.0, False, invalid(_why_nothing(action, self.shop.parse(action)))))
        if after.page != "done":
            return new_tuple(Step, (after, 0.0, False, self.first_facts))
        parts = self.shop.purchase(after)
        return new_tuple(Step, (after, float(parts.pop("reward")), True, {**self.first_facts, **parts}))

    def _follow(self, state: ShopState, action: str) -> ShopState | None:
        asked = read_compact(self.shop, state, action) if self._is_compact else self.shop.parse(action)
        return follow(self.shop, state, asked)

    def observe(self, state: ShopState) -> str:
        """Return the page in the form of `observation_mode`, after earlier observations and actions if requested."""
        page = self._look(state)
        if not state.past:
            return page
        shown = [page]
        for back in range(1, len(state.past) // 2 + 1):
            shown += [state.past[1 - 2 * back]] if back <= self.settings.num_prev_actions else []
            shown += [state.past[-2 * back]] if back <= self.settings.num_prev_obs else []
        return SEPARATOR.join(reversed(shown))

    def _look(self, state: ShopState) -> str:
        mode = self.settings.observation_mode
        if mode in MODES:
            return page_text(self.shop, state, mode)
        if mode == "compact":
            return compact_page(self.shop, state).text
        if mode == "url":
            return url(self.shop, state)
        # Templates and their parser are imported only for this mode.
        from tsr_gym_envs.webshop.web_page import page_html

        return page_html(self.shop, state)

    def state_key(self, state: ShopState) -> bytes:
        """Return the bytes of the goal and the page; opened products and the past change no rule."""
        # The original searches its address, which contains the session, for the names of pages.
        session = "" if self.shop.repairs.page_state else state.session
        choices = tuple(sorted(state.options))
        page = (state.page, state.keywords, state.number, state.row, choices, state.sub, state.drawn)
        return encode((state.goal, session, *page))

    def is_success(self, state: ShopState) -> bool:
        """Return whether the purchase meets every wish."""
        return state.page == "done" and bool(self.shop.purchase(state)["success"])

    def legal_actions(self, state: ShopState) -> tuple[str, ...]:
        """Return every click, and on the search page a few queries from the instruction."""
        if state.page == "done" and self.shop.repairs.ends_with_purchase:
            return ()
        if self._is_compact:
            return compact_actions(self.shop, state)
        if state.page in ("index", "done"):
            return tuple(f"search[{query}]" for query in suggest_queries(self.shop.goal(state).instruction_text))
        return tuple(filter(self._is_one, self.shop.layout(page_of(self.shop, state)).actions))

    def buttons(self, state: ShopState) -> tuple[str, ...]:
        """Return the labels of the buttons and links of a page, in small letters."""
        clicks = (action for action in self.legal_actions(state) if action.startswith("click[") and action[-1] == "]")
        return tuple(click[len("click[") : -1].lower() for click in clicks)

    def _is_one(self, action: str) -> bool:
        """Return whether an action contains no separator, which would split it in two."""
        return self.separator is None or self.separator not in action

    def _facts(self, state: ShopState) -> dict[str, Any]:
        if self._is_compact:
            page = compact_page(self.shop, state)
            clickables, actions = page.shown, page.actions
        else:
            layout = self.shop.layout(page_of(self.shop, state))
            clickables, actions = tuple(layout.targets), layout.actions
        return {
            "success": self.is_success(state),
            "available_actions": {
                "has_search_bar": state.page == "index",
                "clickables": list(clickables),
                "actions": list(actions),
            },
            "purchased": state.page == "done",
            "noun_source": self.shop.noun_source,
        }

    def optimal_turn(self, state: ShopState, turns_left: int | None, actions_left: int | None) -> str | None:
        """Return the first actions of the best purchase that the limits leave; None if nothing can be bought."""
        per_turn = self.limits.max_actions_per_turn or 1
        left = actions_within(turns_left, actions_left, per_turn)
        plan = best_plan(self.shop, state, left).actions[:per_turn]
        turn = takewhile(self._is_one, write_compact(self.shop, state, plan) if self._is_compact else plan)
        return f" {self.separator} ".join(turn) or None

    def teaching(self) -> Teaching | None:
        """Return the demonstrations of a shopper that reads only the pages; None with the original's rules."""
        return None if self.settings.is_original else shop_teaching(self.shop)

    def success_bars(self, state: ShopState) -> tuple[float, float] | None:
        """Return the success of uniformly random `legal_actions`, and the `best_value` of the start.

        It is None if a turn holds several actions, if an episode has no limit, and with the original's rules.
        """
        limits, repairs = self.limits, self.shop.repairs
        num_actions = actions_within(limits.max_turns, limits.max_actions, 1)
        follows_rules = repairs.page_state and repairs.plain_queries and repairs.ends_with_purchase
        if self.separator is not None or num_actions is None or not follows_rules:
            return None
        player = Player(self.shop, self.legal_actions, self._follow, self._is_compact)
        random = random_success(player, state, num_actions)
        best = self.best_value(state, limits.max_turns, limits.max_actions) or 0.0
        # With narrow limits a query other than the oracle's may save a turn, so random play can succeed where it
        # cannot.
        return random, max(best, float(random > 0))

    def best_value(self, state: ShopState, turns_left: int | None, actions_left: int | None) -> float | None:
        """Return 1.0 if a purchase that meets every wish was made or is within the oracle's reach, else 0.0.

        The oracle's plans can be carried out, so 1 is certain. 0 is certain except just before the limits, where a
        query better than a product's title might save a turn, and in catalogues of more than `oracle.MAX_SCANNED`
        products, of which only some are examined. `oracle.best_reachable` is the reward itself.
        """
        left = actions_within(turns_left, actions_left, self.limits.max_actions_per_turn or 1)
        return float(best_plan(self.shop, state, left).reward == 1)


def _why_nothing(text: str, asked: ShopAction) -> str:
    """Return the reason why an action is invalid on the page."""
    if asked.argument is None or asked.name != "click":
        return f"{shown(text)} is no action: write search[words] or click[name]"
    name = asked.argument.lower()
    if name == "search":
        return "'search' is no click: write search[words]"
    return f"the page shows no {shown(name)} to click"


def _instructions(separator: str | None) -> str:
    several = f" Several actions in one answer are joined by {separator}." if separator else ""
    return (
        "You are shopping on the web for the product that the instruction describes. Write search[words] to look for "
        "products, and click[name] for what the page shows: a button such as next >, the id of a product such as "
        "b08dxl22jn, or an option such as red. Choose every option that the instruction asks for, keep to its limit of "
        "the price, then click[buy now], which ends the episode. The reward is the share of the wishes that your "
        f"purchase meets.{several} For example: <answer>search[red running shoes]</answer>."
    )


def make(
    preset: str = "default", render_mode: str | None = None, noun_fn: NounFn | None = None, **settings: Any
) -> gym.Env[Any, Any]:
    """Make the environment behind ``gym.make("tsr/WebShop-v0", ...)``.

    Args:
        preset: ``"default"``, ``"paper"`` or ``"tsr-code"``.
        render_mode: ``"ansi"`` or None.
        noun_fn: A function from a title to its nouns in lower case; None selects the best available source.
        settings: Fields of `WebShopSettings`; they win over the preset.

    Raises:
        ConfigError: A setting is unknown or impossible.
        InvalidCatalogue: The catalogue is missing or damaged.
        MissingExtra: A library is not installed.
    """
    config = make_settings(preset, settings)
    return WebShopEnv(config, open_shop(config, noun_fn), render_mode=render_mode)
