// Connects the parts of the page: addresses, keys, and the page of trees.
"use strict";

let overview = null, list = null, tree = null, drawing = null, parts = null;

const COLOUR = {"": "score", reward: "reward", merit: "merit", return: "return", value: "value", gain: "gain", advantage: "advantage", none: "nothing"};
const ONLY = {"": "all", kept: "kept", solved: "solved", failed: "failed", cut: "cut by a limit", "dead end": "dead end"};
const DRAW = {"": "as it fits", cards: "pictures", lines: "lines"};

async function visit() {
  try {
    readPlace();
    overview ??= await load("overview");
    if (!place.page) place.page = overview.runs.length ? "runs" : "trees";
    for (const link of document.querySelectorAll("nav a")) {
      link.classList.toggle("here", link.hash === `#/${place.page}`);
    }
    notify(overview.left_out ? `${overview.left_out} older trees are not in this file` : "");
    if (place.page === "runs") {
      list = tree = drawing = null;
      drawRuns(overview);
    } else await visitTrees();
  } catch (error) {
    refuse(error);
  }
  document.body.dataset.ready = location.hash;
  performance.mark("drawn");
  // The visible part is drawn first. Outcomes are requested even where the tree itself cannot be shown.
  if (list?.box.isConnected && !list.asked) readSummaries(list, overview.chunk);
}

function refuse(error) {
  const message = el("p", {class: "refused", role: "alert"}, error.message);
  if (parts?.canvas.isConnected) {
    parts.canvas.replaceChildren(message);
    // The parts of the tree that was shown before are removed.
    parts.title.replaceChildren(el("b", {}, place.name ?? ""));
    parts.panel.replaceChildren();
    parts.siblings.hidden = true;
    drawRows(list);
  } else find("#main").replaceChildren(message);
  tree = drawing = null;
}

async function visitTrees() {
  if (!list?.box.isConnected) beginTrees();
  if (!place.name && overview.trees.length) {
    place.name = overview.trees.at(-1);
    history.replaceState(null, "", address());
  }
  if (!place.name) throw new Error("There are no trees here; a run saves some at every checkpoint.");
  if (tree?.name !== place.name) {
    const name = place.name;
    const [shape, first] = await Promise.all([load(`tree/${name}`), load(`node/0/${name}`)]);
    const loaded = makeTree(name, shape);
    loaded.nodes.set(0, Promise.resolve(first));
    loaded.pictured = hasPicture(first);
    // Another tree was chosen while this one was loading.
    if (place.name !== name) return;
    tree = loaded;
    place.node = Math.min(place.node, tree.size - 1);
    tree.trajectory = pathTo(tree, endBelow(tree, place.node));
    redraw();
  }
  place.node = Math.min(place.node, tree.size - 1);
  if (!tree.trajectory.includes(place.node)) {
    tree.trajectory = pathTo(tree, endBelow(tree, place.node));
    drawVisible(drawing);
  }
  unfoldTo(place.node);
  reveal(list);
  markPlace(drawing);
  bringIntoView(drawing, place.node, false);
  await Promise.all([drawNode(tree, place.node, parts.panel, step), drawSiblings(tree, place.node, parts.siblings)]);
}

function beginTrees() {
  clearCharts();
  const canvas = el("div", {class: "canvas", tabindex: 0, "aria-label": "The tree"});
  const again = () => { if (tree) redraw(); };
  const siblings = el("div", {class: "siblings", hidden: true, "aria-label": "Siblings"});
  const title = el("div", {class: "title"});
  const tools = el("div", {class: "tools"}, choice("draw", "draw", DRAW, again), choice("colour by", "colour", COLOUR, again),
    choice("show", "only", ONLY, again),
    el("button", {type: "button", title: "Compare siblings (s)", onclick: toggleSiblings}, "siblings"));
  const panel = el("section", {class: "panel", "aria-label": "Node", tabindex: 0});
  parts = {canvas, siblings, panel, title};
  list = drawList(overview.trees);
  find("#main").replaceChildren(el("div", {class: "trees"}, list.box,
    el("section", {class: "middle"}, tools, title, canvas, siblings), panel));
  filterList(list);
}

function redraw() {
  light(tree, option("only"));
  drawing = drawTree(tree, parts.canvas);
  const {shape} = tree, ends = shape.outcome.filter((_, node) => !tree.children[node].length);
  const solved = ends.filter(outcome => outcome === "solved").length;
  const words = [`${show(tree.size)} nodes`, `${show(ends.length)} ends`, `${show(solved)} solved`,
    shape.about.env, `seed ${shape.seed}`, shape.about.clairvoyant === "true" ? "clairvoyant" : null].filter(word => word);
  parts.title.replaceChildren(el("b", {}, tree.name), el("span", {class: "soft"}, ` ${words.join(" · ")}`),
    shape.note ? el("span", {class: "damage"}, ` ${shape.note}`) : "");
  bringIntoView(drawing, place.node, false);
}

function toggleFold(shown, node) {
  shown.folded[shown.folded.has(node) ? "delete" : "add"](node);
  const {scrollLeft, scrollTop} = parts.canvas, before = drawing.places.get(node);
  redraw();
  const after = drawing.places.get(node);
  parts.canvas.scrollTo({left: scrollLeft + after.x - before.x, top: scrollTop + after.y - before.y, behavior: "instant"});
  drawVisible(drawing);
}

function unfoldTo(node) {
  const closed = pathTo(tree, node).slice(0, -1).filter(above => tree.folded.has(above));
  for (const above of closed) tree.folded.delete(above);
  if (closed.length) redraw();
}

function toggleSiblings() {
  option("siblings", option("siblings") === "open" ? "" : "open");
  drawSiblings(tree, place.node, parts.siblings);
}

// Go to a node of the tree without a new entry in the browser's history.
function goTo(node) {
  place.node = node;
  history.replaceState(null, "", address());
  visit();
}

function step(where) {
  if (!tree) return;
  const at = tree.trajectory.indexOf(place.node), parent = tree.shape.parent[place.node];
  const siblings = parent === null ? [0] : tree.children[parent], number = siblings.indexOf(place.node);
  const ends = leavesBelow(tree, 0).filter(end => !tree.lit || tree.lit.has(end));
  const end = ends.indexOf(tree.trajectory.at(-1));
  const next = {
    back: tree.trajectory[at - 1], on: tree.trajectory[at + 1], first: 0, last: tree.trajectory.at(-1),
    before: siblings[number - 1], after: siblings[number + 1],
    "end before": ends[end - 1] ?? ends.at(-1), "end after": ends[end + 1] ?? ends[0],
  };
  const node = typeof where === "number" ? where : next[where];
  if (node === undefined) return;
  if (where === "end before" || where === "end after") tree.trajectory = pathTo(tree, node), drawVisible(drawing);
  goTo(node);
}

function otherTree(by) {
  const name = list.shown[list.shown.indexOf(place.name) + by];
  if (name !== undefined) location.hash = linkTo(name);
}

const KEYS = {
  ArrowRight: ["→", "next turn of the trajectory", () => step("on")],
  ArrowLeft: ["←", "previous turn", () => step("back")],
  ArrowUp: ["↑", "previous sibling", () => step("before")],
  ArrowDown: ["↓", "next sibling", () => step("after")],
  Home: ["Home", "first node", () => step("first")],
  End: ["End", "end of the trajectory", () => step("last")],
  "]": ["]", "next trajectory", () => step("end after")],
  "[": ["[", "previous trajectory", () => step("end before")],
  n: ["n", "next tree", () => otherTree(1)],
  p: ["p", "previous tree", () => otherTree(-1)],
  s: ["s", "compare siblings", toggleSiblings],
  f: ["f", "fold or unfold the subtree", () => tree.children[place.node].length && toggleFold(tree, place.node)],
};

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, dialog")) return;
  if (event.key === "?") return showKeys();
  const key = KEYS[event.key];
  if (!key || !tree) return;
  event.preventDefault();
  key[2]();
});

function showKeys() {
  find("#keys").replaceChildren(el("h2", {}, "Keys"), el("dl", {}, Object.values(KEYS).map(([key, words]) =>
    el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, words)))),
    el("form", {method: "dialog"}, el("button", {}, "close")));
  find("#keys").showModal();
}

find("#help").addEventListener("click", showKeys);
addEventListener("hashchange", visit);
// Redraw once after a series of resizes.
let waiting = 0;
function redrawSoon() {
  clearTimeout(waiting);
  waiting = setTimeout(() => { if (place.page === "runs" && overview) drawRuns(overview); else if (drawing) drawVisible(drawing); }, 120);
}
addEventListener("resize", redrawSoon);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawSoon);
visit();
