// Draws an observation by its content: a picture, passages, a page in parts, a board, or plain text.
"use strict";

function drawObservation(node) {
  if (node.picture) return el("img", {class: "board", src: node.picture, alt: node.observation});
  const text = node.page ?? node.observation;
  if (!text.trim()) return el("p", {class: "soft"}, "nothing");
  if (text.includes("<information>")) return drawPassages(text, node.answers);
  if (text.includes("[SEP]")) return drawPage(text, node.buttons);
  return isBoard(text) ? drawBoard(text) : el("pre", {class: "text"}, marked(text, node.answers));
}

function hasPicture(node) {
  return node.picture !== null || isBoard(node.observation);
}

// Text as nodes, with every golden answer in it marked, in any case of letters.
function marked(text, answers) {
  const markable = answers.filter(answer => answer.trim().length > 1);
  if (!markable.length) return [text];
  const literal = markable.map(answer => answer.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const parts = text.split(new RegExp(`(${literal.join("|")})`, "gi"));
  return parts.map((part, number) => number % 2 ? el("mark", {}, part) : part);
}

function drawPassages(text, answers) {
  const inside = text.split(/<\/?information>/);
  const blocks = inside.flatMap((part, number) => {
    if (number % 2 === 0) return part.trim() ? [el("pre", {class: "text"}, marked(part.trim(), answers))] : [];
    return part.split(/\n(?=Doc \d+\()/).map(passage => drawPassage(passage, answers));
  });
  return el("div", {class: "passages"}, blocks);
}

function drawPassage(passage, answers) {
  const [, number, title, body] = passage.match(/^Doc (\d+)\(Title: "?(.*?)"?\) ([^]*)$/) ?? [];
  if (body === undefined) return el("pre", {class: "text"}, marked(passage, answers));
  return el("article", {class: "passage"},
    el("h4", {}, el("span", {class: "soft"}, `${number} `), marked(title, answers)), el("p", {}, marked(body, answers)));
}

// Parts of a shop's page: clickable parts become buttons, the instruction is set apart.
function drawPage(text, buttons) {
  const clickable = new Set(buttons);
  const parts = text.split(/\s*\[SEP\]\s*/).filter(part => part.trim());
  let instruction = false;
  const drawn = parts.map(part => {
    // The part after "Instruction:" is the instruction.
    const isInstruction = instruction;
    instruction = part === "Instruction:";
    if (instruction) return null;
    if (isInstruction) return el("p", {class: "instruction"}, part);
    if (/^\[button\]/.test(part) || clickable.has(part.toLowerCase())) {
      return el("span", {class: "pressable"}, part.replace(/\[button_?\]/g, "").trim());
    }
    return el("p", {class: /^\$[\d.]/.test(part) ? "price" : ""}, part);
  });
  return el("div", {class: "shop"}, drawn);
}

// Rows of equal length made of few characters are a board.
function isBoard(text) {
  const rows = text.split("\n").filter(row => row);
  const widths = new Set(rows.map(row => row.length));
  return rows.length > 2 && widths.size === 1 && rows[0].length > 2 && rows[0].length < 60
    && new Set(text).size <= 10 && !/[a-z]{3}/.test(text);
}

function drawBoard(text) {
  const rows = text.split("\n").filter(row => row);
  const cells = rows.flatMap(row => [...row].map(character =>
    el("span", {class: character === "#" ? "wall" : "_. ".includes(character) ? "floor" : "piece"},
      "#_. ".includes(character) ? "" : character)));
  const board = el("div", {class: "grid", role: "img", "aria-label": text}, cells);
  board.style.gridTemplateColumns = `repeat(${rows[0].length}, 1fr)`;
  return board;
}

// Tokens, each with the colour of its log-probability or advantage, or all with the colour of the turn's gain.
function drawTokens(node, kind, shape) {
  if (!node.tokens.length) return el("pre", {class: "text"}, node.answer);
  const gain = shape.gain[node.node], scale = shape.estimator ? usual(shape.advantage) : 1;
  const pieces = node.tokens.map((text, number) => {
    const logprob = node.logprobs[number], advantage = node.advantages[number];
    const numbers = [logprob == null ? null : `log p ${show(logprob)}`, advantage == null ? null : `advantage ${show(advantage)}`];
    const piece = el("span", {class: "token", title: numbers.filter(word => word).join(", ") || null}, text);
    if (kind === "logprob" && logprob != null) piece.style.backgroundColor = tint("--bad", Math.min(1, -logprob / 3));
    if (kind === "advantage" && advantage != null) piece.style.backgroundColor = signed(advantage, scale);
    if (kind === "gain" && gain !== null) piece.style.backgroundColor = signed(gain, 1);
    return piece;
  });
  return el("pre", {class: "text"}, pieces);
}

// A background in one of the page's colours, from none at share 0 to one on which text can still be read at share 1.
function tint(colour, share) {
  return `color-mix(in srgb, var(${colour}) ${Math.round(40 * share)}%, var(--panel))`;
}

function signed(value, scale) {
  return tint(value < 0 ? "--bad" : "--good", Math.min(1, Math.abs(value) / (scale || 1)));
}
