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
      el("button", {type: "button", title: "A turn back (←)", disabled: at <= 0, onclick: () => step("back")}, "←"),
      el("input", {type: "range", min: 0, max: last, value: at, "aria-label": "Turn of the trajectory",
        oninput: event => step(tree.trajectory[+event.target.value])}),
      el("button", {type: "button", title: "A turn on (→)", disabled: at >= last, onclick: () => step("on")}, "→"),
      el("span", {class: "soft"}, `turn ${at} of ${last}`)),
    el("h2", {}, `Node ${node}`, el("span", {class: `badge ${shape.outcome[node].replace(" ", "-")}`}, shape.outcome[node]),
      el("span", {class: `badge ${shape.fate[node]}`}, FATES[shape.fate[node]])),
    el("p", {class: "why"}, data.why),
    node === 0 ? null : drawNumbers(shape, node),
    node === 0 ? null : el("h3", {}, "Said"),
    node === 0 ? null : drawTokens(data, option("tokens"), shape),
    node === 0 ? null : choice("tokens by", "tokens", known(shape, TOKENS), () => drawNode(tree, node, panel, step)),
    el("h3", {}, "The environment showed"),
    el("div", {class: "observation"}, drawObservation(data)),
    data.page === null || data.page === data.observation ? null : el("h3", {}, "The model read"),
    data.page === null || data.page === data.observation ? null : el("pre", {class: "text"}, data.observation),
    data.prompt === null && !data.num_prompt ? null : el("details", {open: option("prompt") === "open", ontoggle: event =>
      option("prompt", event.target.open ? "open" : "")}, el("summary", {}, `Prompt, ${show(data.num_prompt)} tokens`),
      el("pre", {class: "text"}, data.prompt ?? "Its text is not known: the run's tokenizer was not found.")),
    el("details", {}, el("summary", {}, "Facts of the turn"), drawFacts(data.info)));
  panel.scrollTop = 0;
}

const TOKENS = {"": "nothing", logprob: "log-probability", advantage: "advantage", gain: "gain"};
const NUMBERS = {reward: "reward", score: "score", merit: "merit", return: "return", value: "value", gain: "gain", advantage: "advantage"};
const MEANT = {
  reward: "of this turn", score: "the guide of the search, for this turn", merit: "what the search ranks the path by",
  return: "sum of rewards up to here", value: "mean return of what was tried below",
  gain: "reward plus value, less the parent's value",
  advantage: "with which learning took the turn, the mean over its tokens",
};

// Choices without the advantage where nothing was learned from the tree.
function known(shape, choices) {
  return Object.fromEntries(Object.entries(choices).filter(([name]) => name !== "advantage" || shape.estimator));
}

function drawNumbers(shape, node) {
  return el("dl", {class: "numbers"}, Object.entries(known(shape, NUMBERS)).map(([name, word]) =>
    el("div", {title: name === "advantage" ? `${MEANT[name]}, by ${shape.estimator}` : MEANT[name]}, el("dt", {}, word), el("dd", {}, show(shape[name][node])))));
}

function drawFacts(info) {
  return el("table", {class: "settings"}, el("tbody", {}, Object.entries(info).map(([name, value]) =>
    el("tr", {}, el("th", {scope: "row"}, name), el("td", {}, value)))));
}

// All that was tried at the parent, beside one another.
async function drawSiblings(tree, node, box) {
  const parent = tree.shape.parent[node];
  box.hidden = parent === null || option("siblings") !== "open";
  if (box.hidden) return;
  const siblings = tree.children[parent];
  const all = await Promise.all(siblings.map(one => nodeData(tree, one)));
  if (place.node !== node || place.name !== tree.name) return;
  const {shape} = tree;
  fill(box, ...siblings.map((one, number) => el("a", {
    href: linkTo(tree.name, one), class: `sibling ${shape.fate[one]}${one === node ? " here" : ""}`},
    el("b", {}, `Node ${one} `, el("span", {class: `badge ${shape.fate[one]}`}, FATES[shape.fate[one]]),
      SIGNS[shape.outcome[one]] ?? ""),
    drawTokens(all[number], option("tokens"), shape),
    drawObservation(all[number]),
    el("p", {class: "soft"}, `reward ${show(shape.reward[one])} · score ${show(shape.score[one])} · value ${show(shape.value[one])}`),
    el("p", {class: "soft"}, all[number].why))));
  box.scrollTop = 0;
  if (drawing) bringIntoView(drawing, node, false);
}
