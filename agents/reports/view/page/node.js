// One node in full, its siblings side by side, and the trajectory through it.
"use strict";

function nodeData(tree, node) {
  if (!tree.nodes.has(node)) tree.nodes.set(node, load(`node/${node}/${tree.name}`));
  return tree.nodes.get(node);
}

const FATES = {kept: "kept", played: "played", expanded: "continued", ended: "ended", pruned: "pruned"};

async function drawNode(tree, node, panel, step) {
  const data = await nodeData(tree, node);
  if (place.node !== node || place.name !== tree.name) return;
  const {shape} = tree;
  const at = tree.trajectory.indexOf(node), last = tree.trajectory.length - 1;
  fill(panel,
    el("div", {class: "stepping"},
      el("button", {type: "button", title: "Previous turn (←)", disabled: at <= 0, onclick: () => step("back")}, "←"),
      el("input", {type: "range", min: 0, max: last, value: at, "aria-label": "Turn of the trajectory",
        oninput: event => step(tree.trajectory[+event.target.value])}),
      el("button", {type: "button", title: "Next turn (→)", disabled: at >= last, onclick: () => step("on")}, "→"),
      el("span", {class: "soft"}, `turn ${at} of ${last}`)),
    el("h2", {}, `Node ${node}`, el("span", {class: `badge ${shape.outcome[node].replace(" ", "-")}`}, shape.outcome[node]),
      el("span", {class: `badge ${shape.fate[node]}`}, FATES[shape.fate[node]])),
    el("p", {class: "why"}, data.why),
    node === 0 ? null : drawNumbers(shape, node),
    node === 0 ? null : el("h3", {}, "Answer"),
    node === 0 ? null : drawTokens(data, option("tokens"), shape),
    node === 0 ? null : choice("tokens by", "tokens", available(shape, TOKENS), () => drawNode(tree, node, panel, step)),
    el("h3", {}, "Observation"),
    el("div", {class: "observation"}, drawObservation(data)),
    data.page === null || data.page === data.observation ? null : el("h3", {}, "The model read"),
    data.page === null || data.page === data.observation ? null : el("pre", {class: "text"}, data.observation),
    data.prompt === null && !data.num_prompt ? null : el("details", {open: option("prompt") === "open", ontoggle: event =>
      option("prompt", event.target.open ? "open" : "")}, el("summary", {}, `Prompt, ${show(data.num_prompt)} tokens`),
      el("pre", {class: "text"}, data.prompt ?? "The text is not available: the run's tokenizer was not found.")),
    el("details", {}, el("summary", {}, "Facts of the turn"), drawFacts(data.info)));
  panel.scrollTop = 0;
}

const TOKENS = {"": "nothing", logprob: "log-probability", advantage: "advantage", gain: "gain"};
const NUMBERS = {reward: "reward", score: "score", merit: "merit", return: "return", value: "value", gain: "gain", advantage: "advantage"};
const MEANINGS = {
  reward: "of this turn", score: "the guide of the search, for this turn", merit: "by which the search ranks the path",
  return: "sum of rewards up to here", value: "mean return of the episodes below",
  gain: "reward plus value, minus the parent's value",
  advantage: "of the turn in learning, the mean over its tokens",
};

// The choices; the advantage is left out where the tree was not learned from.
function available(shape, choices) {
  return Object.fromEntries(Object.entries(choices).filter(([name]) => name !== "advantage" || shape.estimator));
}

function drawNumbers(shape, node) {
  return el("dl", {class: "numbers"}, Object.entries(available(shape, NUMBERS)).map(([name, word]) =>
    el("div", {title: name === "advantage" ? `${MEANINGS[name]}, by ${shape.estimator}` : MEANINGS[name]}, el("dt", {}, word), el("dd", {}, show(shape[name][node])))));
}

function drawFacts(info) {
  return el("table", {class: "settings"}, el("tbody", {}, Object.entries(info).map(([name, value]) =>
    el("tr", {}, el("th", {scope: "row"}, name), el("td", {}, value)))));
}

// All candidates of the parent, next to each other.
async function drawSiblings(tree, node, box) {
  const parent = tree.shape.parent[node];
  box.hidden = parent === null || option("siblings") !== "open";
  if (box.hidden) return;
  const siblings = tree.children[parent];
  const all = await Promise.all(siblings.map(sibling => nodeData(tree, sibling)));
  if (place.node !== node || place.name !== tree.name) return;
  const {shape} = tree;
  fill(box, ...siblings.map((sibling, number) => el("a", {
    href: linkTo(tree.name, sibling), class: `sibling ${shape.fate[sibling]}${sibling === node ? " here" : ""}`},
    el("b", {}, `Node ${sibling} `, el("span", {class: `badge ${shape.fate[sibling]}`}, FATES[shape.fate[sibling]]),
      SYMBOLS[shape.outcome[sibling]] ?? ""),
    drawTokens(all[number], option("tokens"), shape),
    drawObservation(all[number]),
    el("p", {class: "soft"}, `reward ${show(shape.reward[sibling])} · score ${show(shape.score[sibling])} · value ${show(shape.value[sibling])}`),
    el("p", {class: "soft"}, all[number].why))));
  box.scrollTop = 0;
  if (drawing) bringIntoView(drawing, node, false);
}
