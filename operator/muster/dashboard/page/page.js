// SPDX-License-Identifier: Apache-2.0
// Draws what /api/view and the differences of /api/events say. All text of others goes into the
// page as text, never as markup.
"use strict";

const byId = (id) => document.getElementById(id);
const state = {
  view: { head: {}, nodes: {}, gangs: {}, queues: {}, jobs: {} },
  version: "", live: true, skew: 0, keepsDecisions: false, namespaces: null,
  find: "", focus: "", span: 3600, by: "jobs", open: "", tab: "now",
};
const past = { version: "", rows: [], since: null, due: 0 }; // who held what before, as far as it has been asked for
const colours = new Map(); // job -> its number, in the order in which they were seen
const tiles = new Map(); // node -> its element
const drawn = new Map(); // node -> what was drawn of it
const VIEWS = ["now", "waiting", "queues", "timeline"];
const byName = new Intl.Collator("en", { numeric: true });
const OVER = { Succeeded: "good", Failed: "bad" };
const TONES = {
  Running: "good", Placed: "good", Succeeded: "good", Waiting: "warn", Queued: "warn", Restarting: "warn",
  Suspended: "", Reserved: "plan", Created: "", Degraded: "bad", Released: "bad", Failed: "bad", Invalid: "bad", Blocked: "bad",
};

// Elements.

function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, text] of Object.entries(value)) name.startsWith("--") ? made.style.setProperty(name, text) : made.style[name] = text;
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}
// What is drawn anew leaves the focus where it was.
function swap(box, ...children) {
  const spot = box.contains(document.activeElement) ? document.activeElement.dataset.spot : undefined;
  box.replaceChildren(...children);
  if (spot !== undefined) box.querySelector(`[data-spot="${CSS.escape(spot)}"]`)?.focus({ preventScroll: true });
}
const chip = (text, tone = "") => el("span", { class: `chip ${tone}` }, text);
const swatch = (key) => el("i", { class: "c", style: { background: colour(key) }, "aria-hidden": "true" });
const heading = (text, items) => items.length ? [el("h3", {}, text), el("ul", {}, items)] : [];

function settleColours() {
  // By age, so that who looks later sees the same ones.
  const { gangs } = state.view, fresh = Object.keys(gangs).filter((key) => !colours.has(key));
  fresh.sort((a, b) => (gangs[a].created || 0) - (gangs[b].created || 0) || (a < b ? -1 : 1));
  for (const key of fresh) colours.set(key, colours.size);
}
function colour(key) {
  if (!colours.has(key)) colours.set(key, colours.size);
  const number = colours.get(key);
  const step = number % 3 - 1;
  // The golden angle keeps neighbours in the order apart, the step those that come round again.
  return `oklch(calc(var(--L) + ${step * 0.07}) var(--C) ${((262 + number * 137.508) % 360).toFixed(1)})`;
}

// Words.

const now = () => state.live ? Date.now() / 1000 + state.skew : state.view.head.at || 0;
const short = (key) => key.startsWith("~") ? "a job of another namespace" : key.split("/").slice(-1)[0];
const space = (key) => key.split("/").slice(-2)[0];
const device = (name) => name.split("/").slice(-1)[0].toUpperCase();
const number = (value) => Number.isInteger(value) ? `${value}` : value.toFixed(1);
const podName = (key, role, ranges) => role ? `${short(key)}-${role}-${ranges}` : `pods ${ranges}`;

function lasting(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}
const hour = (seconds, more = {}) => new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...more });
function clock(seconds, exact) {
  const at = new Date(seconds * 1000), today = new Date(now() * 1000).toDateString() === at.toDateString();
  const time = hour(seconds, exact ? { second: "2-digit" } : {});
  return today ? time : `${at.toLocaleDateString([], { month: "short", day: "numeric" })} ${time}`;
}
function until(seconds) {
  const left = seconds - now();
  return left > 0 ? `till about ${clock(seconds)}, ${lasting(left)} more` : "longer than it was expected to";
}

// The head.

function drawHead() {
  const { nodes, gangs, head } = state.view;
  let size = 0, held = 0, others = 0, unusable = 0, count = 0;
  for (const node of Object.values(nodes)) {
    count += 1;
    unusable += node.unusable ? 1 : 0;
    if (node.device !== head.device) continue;
    size += node.size;
    held += node.held.reduce((sum, row) => sum + row[3] * indices(row[2]), 0);
    others += (node.others || 0) + (node.away || 0);
  }
  const waits = waiting().length;
  const runs = Object.values(gangs).filter((gang) => gang.started && !isWaiting(gang)).length;
  byId("count-waiting").textContent = waits ? `${waits}` : "";
  const percent = (part) => `${size ? part / size * 100 : 0}%`;
  const tile = (name, value, remark, ...more) => el("div", {}, el("dt", {}, name), el("dd", {}, value, remark ? el("small", {}, ` ${remark}`) : ""), ...more);
  byId("tiles").replaceChildren(
    tile(`${head.device ? device(head.device) : "Device"}s held`, number(held + others), `of ${number(size)} · ${size ? Math.round((held + others) / size * 100) : 0} %`,
      el("dd", { class: "meter", "aria-hidden": "true" }, el("i", { class: "mine", style: { width: percent(held) } }), el("i", { class: "rest", style: { width: percent(others) } }))),
    tile("Running", `${runs}`, state.namespaces ? "of yours" : ""),
    tile("Waiting", `${waits}`, ""),
    tile("Nodes", `${count}`, unusable ? `${unusable} not usable` : ""),
  );
}
function indices(ranges) {
  let count = 0;
  for (const run of ranges.split(",")) {
    const [from, to] = run.split("-");
    count += to === undefined ? 1 : to - from + 1;
  }
  return count;
}

// Now.

function parts(node) {
  const held = node.held.map((row) => ({ key: row[0], role: row[1], ranges: row[2], amount: row[3] * indices(row[2]), since: row[4] }));
  if (node.away) held.push({ key: "", kind: "away", amount: node.away });
  if (node.others) held.push({ key: "", kind: "others", amount: node.others });
  return held;
}
function paint(node) {
  const stops = [];
  let at = 0;
  for (const part of parts(node)) {
    if (!part.amount) continue;
    const faded = state.focus && part.key !== state.focus;
    const base = part.key ? colour(part.key) : `var(--${part.kind})`;
    const look = faded ? `color-mix(in oklch, ${base} 22%, var(--free))` : base;
    const end = Math.min(100, at + part.amount / (node.size || 1) * 100);
    stops.push(`${look} ${at.toFixed(2)}% ${end.toFixed(2)}%`);
    at = end;
  }
  stops.push(`var(--free) ${at.toFixed(2)}% 100%`);
  const fill = `linear-gradient(90deg, ${stops.join(", ")})`;
  // A line between two devices; CPUs are too many to be told apart.
  if (node.size > 32) return fill;
  const step = `${100 / (node.size || 1)}%`, begins = `calc(${step} - var(--gap-line))`;
  // The one behind the last of them lies outside.
  const fit = "0 0 / calc(100% + var(--gap-line)) 100%";
  return `repeating-linear-gradient(90deg, transparent 0 ${begins}, var(--card) ${begins} ${step}) ${fit}, ${fill} ${fit}`;
}
function tell(name, node) {
  const told = parts(node).map((part) => `${number(part.amount)} ${part.key ? short(part.key) : part.kind === "away" ? "another namespace" : "other pods"}`);
  const free = node.size - parts(node).reduce((sum, part) => sum + part.amount, 0);
  return `${name}: ${number(node.size)} ${device(node.device)}, ${told.length ? `held: ${told.join(", ")}; ` : ""}${number(Math.max(0, free))} free${node.unusable ? "; not usable" : ""}`;
}
function matches(name, node) {
  const wanted = state.find;
  if (!wanted) return true;
  return name.toLowerCase().includes(wanted) || node.held.some((row) => row[0].toLowerCase().includes(wanted) || (state.view.gangs[row[0]] || {}).queue === wanted);
}
function drawNow(changed) {
  const { nodes } = state.view, grid = byId("grid");
  const names = Object.keys(nodes).sort(byName.compare);
  const shown = names.filter((name) => matches(name, nodes[name]));
  const size = shown.length > 2000 ? "packed" : shown.length > 300 ? "dense" : "";
  grid.className = `grid ${size}`;
  grid.style.setProperty("--gap-line", size === "packed" ? "0.5px" : size ? "1px" : "2px");
  // Blocks of whole rows, of tiles 44 px wide that are 3 px apart.
  const block = size === "packed" ? 4 * Math.max(1, Math.floor((grid.clientWidth + 3) / 47)) : shown.length;
  const layout = `${size} ${block} ${shown.join(" ")}`;
  if (grid.layout !== layout) {
    if (grid.layout === undefined || grid.layout.split(" ", 1)[0] !== size) tiles.clear();
    grid.layout = layout;
    for (const name of tiles.keys()) if (!(name in nodes)) tiles.delete(name);
    for (const name of drawn.keys()) if (!tiles.has(name)) drawn.delete(name);
    lay(shown, block);
  }
  for (const name of changed ? shown.filter((each) => changed.has(each)) : shown) refresh(name);
  byId("no-nodes").hidden = shown.length > 0;
  drawLegend();
}
// A screen of thousands of nodes is drawn at once, what is below it when there is nothing else to do.
const SCREEN = 1600;
let below = [];
function lay(names, size) {
  const blocks = [], grid = byId("grid");
  for (let at = 0; at < names.length; at += size) {
    const block = el("div", { class: "block", role: "presentation" });
    block.names = names.slice(at, at + size);
    blocks.push(block);
  }
  const made = Math.ceil(SCREEN / size);
  below = blocks.slice(made).reverse();
  blocks.slice(0, made).forEach(fill);
  grid.replaceChildren(...blocks);
  const first = grid.querySelector(".node");
  if (first && !grid.contains(document.activeElement)) rove(first);
  if (below.length) idle(goOn);
}
const idle = (work) => requestIdleCallback(work, { timeout: 500 });
function goOn(left) {
  do { if (below.length) fill(below.pop()); } while (below.length && left.timeRemaining() > 8);
  if (below.length) idle(goOn);
}
function fill(block) {
  block.append(...block.names.map(tile));
  block.names.forEach(refresh);
}
function fillAll() {
  while (below.length) fill(below.pop());
}
function tile(name) {
  if (!tiles.has(name)) {
    const words = byId("grid").classList.length > 1 ? "" : el("b", {}, el("span", {}, name), el("span"));
    tiles.set(name, el("button", { class: "node", tabindex: "-1", "data-node": name }, words, el("i")));
  }
  return tiles.get(name);
}
function refresh(name) {
  const node = state.view.nodes[name], made = tiles.get(name), mark = state.focus;
  const was = drawn.get(name);
  if (!made || was && was.node === node && was.mark === mark) return;
  drawn.set(name, { node, mark });
  const taken = parts(node).reduce((sum, part) => sum + part.amount, 0);
  if (made.children.length > 1) made.firstChild.lastChild.textContent = `${number(taken)}/${number(node.size)}`;
  made.lastChild.style.background = paint(node);
  made.setAttribute("aria-label", tell(name, node));
  made.classList.toggle("off", Boolean(node.unusable));
}
function holdings() {
  const held = new Map();
  for (const node of Object.values(state.view.nodes)) {
    if (node.device !== state.view.head.device) continue;
    for (const row of node.held) held.set(row[0], (held.get(row[0]) || 0) + row[3] * indices(row[2]));
  }
  return [...held].filter(([, amount]) => amount > 0).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}
function drawLegend() {
  const all = holdings(), most = 60;
  const items = all.slice(0, most).map(([key, amount]) => el("li", {}, el("button", {
    "data-spot": key, "aria-pressed": state.focus === key ? "true" : "false", title: `${key}: press to point out, twice to open`,
    onclick: () => { state.focus = state.focus === key ? "" : key; drawNow(); }, ondblclick: () => go(key),
  }, swatch(key), el("span", {}, short(key)), el("span", { class: "num" }, number(amount)))));
  if (all.length > most) items.push(el("li", { class: "dim" }, `and ${all.length - most} more`));
  swap(byId("legend"), ...items);
}
function rove(target) {
  for (const each of byId("grid").querySelectorAll('[tabindex="0"]')) each.tabIndex = -1;
  target.tabIndex = 0;
}
function step(event) {
  if (below.length && event.key.length > 1) fillAll();
  const all = [...byId("grid").querySelectorAll(".node")], at = all.indexOf(event.target);
  if (at < 0) return;
  const top = (each) => each.getBoundingClientRect().top;
  const next = all.findIndex((each) => top(each) > top(all[0]) + 2);
  const wide = next < 0 ? all.length : next;
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + wide, ArrowUp: at - wide, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined || !all[to]) return;
  event.preventDefault();
  rove(all[to]);
  all[to].focus();
}

// What is told of a node where somebody points.

function point(target, x, y, cell) {
  const name = target.dataset.node, node = state.view.nodes[name], tip = byId("tip");
  if (!node) return;
  let at = 0;
  const rows = parts(node).map((part) => {
    const here = cell >= at && cell < at + part.amount;
    at += part.amount;
    const gang = state.view.gangs[part.key] || {};
    const who = part.key ? `${podName(part.key, part.role, part.ranges)}` : part.kind === "away" ? "another namespace" : "other pods";
    const when = part.since ? `since ${clock(part.since)}${gang.ends ? `, ${until(gang.ends)}` : ""}` : "";
    const mark = part.key ? swatch(part.key) : el("i", { class: `c ${part.kind}` });
    return el("li", { class: here ? "here" : "" }, mark, el("span", {}, `${number(part.amount)} · ${who}`, part.key ? el("small", {}, `${space(part.key)}${when ? `, ${when}` : ""}`) : ""));
  });
  const free = node.size - at;
  if (free > 0) rows.push(el("li", { class: cell >= at ? "here" : "" }, el("i", { class: "c free" }), `${number(free)} · free`));
  tip.replaceChildren(el("b", {}, name), el("span", { class: "dim" }, `${number(node.size)} × ${node.device}${node.unusable ? " · not usable" : ""}`), el("ul", {}, rows.slice(0, 12)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 14, document.documentElement.clientWidth - box.width - 10))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(8, y - box.height - 14) : y + 18}px`;
}
function hover(event) {
  const target = event.target.closest(".node");
  if (!target) { byId("tip").hidden = true; return; }
  const box = target.lastChild.getBoundingClientRect(), node = state.view.nodes[target.dataset.node];
  const inside = event.clientY >= box.top - 3 && event.clientY <= box.bottom + 3;
  point(target, event.clientX, event.clientY, inside && node ? (event.clientX - box.left) / box.width * node.size : -1);
}

// Waiting.

const isWaiting = (gang) => Boolean(gang.position) || ["Waiting", "Reserved", "Released", "Degraded"].includes(gang.state);
function waiting() {
  const found = Object.entries(state.view.gangs).filter(([, gang]) => isWaiting(gang));
  const order = ([key, gang]) => [gang.queue, gang.position || 0, gang.created || 0, key];
  return found.sort((a, b) => { const [x, y] = [order(a), order(b)]; const i = x.findIndex((value, n) => value !== y[n]); return i < 0 ? 0 : x[i] < y[i] ? -1 : 1; });
}
function drawWaiting() {
  const all = waiting(), most = 200;
  if (!all.length) {
    swap(byId("waiting"), el("p", { class: "none" }, el("b", {}, "Nobody waits."), "Every job that was sent has its place."));
    return;
  }
  const held = holdings(), cards = all.slice(0, most).map(([key, gang]) => gang.least === undefined ? stranger(gang) : waitingCard(key, gang, held));
  if (all.length > most) cards.push(el("p", { class: "none" }, `and ${all.length - most} more behind them`));
  swap(byId("waiting"), ...cards);
}
function stranger(gang) {
  return el("article", { class: "card gang stranger" }, place(gang), el("p", {}, "a job of another namespace ", el("span", { class: "dim" }, `in queue ${gang.queue}`)));
}
const place = (gang) => el("p", { class: "place", "aria-label": `Position ${gang.position || "none"} in queue ${gang.queue}` }, gang.position ? `${gang.position}` : "·", el("small", {}, gang.queue));
function start(gang) {
  if (!gang.eta) return gang.reason && gang.helps && gang.helps.some((text) => text.startsWith("no wait")) ? ["never as things are", ""] : ["nobody knows when", ""];
  const left = gang.eta - now();
  return [left > 0 ? `in about ${lasting(left)}` : "any moment", `${clock(gang.eta)}, promised`];
}
function needs(gang) {
  return Object.entries(gang.asks || {}).map(([name, amount]) => `${amount} ${name.split("/").slice(-1)[0]}`);
}
function waitingCard(key, gang, held) {
  const [when, remark] = start(gang);
  const head = state.view.head.device, lacking = (gang.short || []).includes(head);
  const way = (gang.behind || []).map((other) => person(other, ""));
  if (lacking) for (const [other, amount] of held.slice(0, 4)) if (!(gang.behind || []).includes(other)) way.push(person(other, `holds ${number(amount)} ${device(head)}`));
  for (const [text, count] of Object.entries(gang.ruledOut || {})) way.push(el("li", {}, `${count} ${count === 1 ? "node" : "nodes"}: ${text}`));
  return el("article", { class: "card gang", "data-gang": key }, place(gang),
    el("h2", {}, el("button", { "data-spot": key, onclick: () => go(key) }, short(key)), " ", el("span", { class: "dim mono" }, space(key))),
    el("p", { class: "when" }, when, el("small", {}, remark)),
    el("p", { class: "sentence" }, gang.summary || gang.message || gang.state),
    el("div", { class: "facts" }, chip(gang.state, TONES[gang.state]), gang.reason ? chip(gang.reason, "warn") : "", chip(`waits ${lasting(now() - gang.created)}`), chip(`asks ${needs(gang).join(", ")}`),
      chip(`${gang.ready} of ${gang.least} pods`), gang.priority ? chip(`priority ${gang.priority}`) : ""),
    el("div", { class: "two" }, el("div", {}, heading("In the way", way)), el("div", {}, heading("What would help", (gang.helps || []).map((text) => el("li", {}, text))))));
}
function person(key, remark) {
  const known = key in state.view.gangs, gang = state.view.gangs[key] || {};
  const note = [remark, gang.ends ? until(gang.ends) : ""].filter(Boolean).join(", ");
  return el("li", {}, known ? swatch(key) : "", el("span", {}, known ? el("button", { class: "link", "data-spot": `${remark} ${key}`, onclick: () => go(key) }, short(key)) : key, note ? el("span", { class: "dim" }, ` ${note}`) : ""));
}

// Queues.

function drawQueues() {
  const { queues, head } = state.view, names = Object.keys(queues);
  if (!names.length) { swap(byId("queues"), el("p", { class: "none" }, el("b", {}, "No queue is in use."), "Queues are shown once a gang is in one.")); return; }
  const depth = (name, seen = 0) => queues[name] && queues[name].parent && seen < 9 ? 1 + depth(queues[name].parent, seen + 1) : 0;
  const path = (name, seen = 0) => queues[name] && queues[name].parent && seen < 9 ? `${path(queues[name].parent, seen + 1)}/${name}` : name;
  const total = Object.values(state.view.nodes).reduce((sum, node) => sum + (node.device === head.device ? node.size : 0), 0);
  swap(byId("queues"), ...names.sort((a, b) => path(a) < path(b) ? -1 : 1).map((name) => queueCard(name, queues[name], total, depth(name))));
}
function queueCard(name, queue, total, depth) {
  const what = state.view.head.device, of = (amounts) => amounts[what] || 0;
  const due = of(queue.due), held = of(queue.held), want = of(queue.wanted), most = Math.max(total, held, due, 1);
  const part = (amount) => `${Math.min(amount / most, 1) * 100}%`, borrowed = Math.max(0, held - due);
  const unit = what ? device(what) : "";
  const told = `holds ${number(held)} of ${number(due)} ${unit} due${borrowed ? `, ${number(borrowed)} borrowed` : ""}, ${number(Math.max(0, want - held))} more wanted`;
  const rest = Object.keys(queue.held).filter((each) => each !== what).map((each) => `${amount(each, queue.held[each])}${queue.due[each] ? ` of ${amount(each, queue.due[each])}` : ""}`);
  return el("article", { class: "card queue", style: { marginLeft: `${Math.min(depth, 4) * 18}px` } }, el("h2", {}, name),
    el("div", { class: "track", role: "img", "aria-label": `${name} ${told}` },
      el("i", { class: "want", style: { width: part(Math.max(want, held)) } }), el("i", { style: { width: part(Math.min(held, due)) } }),
      borrowed ? el("i", { class: "over", style: { left: part(due), width: part(borrowed), right: "auto" } }) : "", el("u", { style: { left: `calc(${part(due)} - 1px)` }, title: `due: ${number(due)}` })),
    el("div", { class: "chips" }, queue.state === "Open" ? "" : chip(queue.state, "bad"), chip(`${queue.running} running`, queue.running ? "good" : ""), chip(`${queue.waiting} waiting`, queue.waiting ? "warn" : ""), queue.broken ? chip(`${queue.broken} not whole`, "bad") : ""),
    el("p", { class: "amounts num" }, told, rest.length ? ` · ${rest.join(", ")}` : ""));
}
const amount = (name, value) => name === "memory" || name.startsWith("ephemeral") ? `${(value / 2 ** 30).toFixed(0)} GiB ${name}` : `${number(value)} ${name.split("/").slice(-1)[0]}`;

// Timeline.

function lives() {
  const { gangs, jobs } = state.view, found = new Map();
  for (const [key, job] of Object.entries(jobs)) found.set(key, { key, came: job.created, began: job.started, ended: job.ended, tone: OVER[job.state] || "", word: job.state });
  for (const [key, gang] of Object.entries(gangs)) {
    if (key.startsWith("~")) continue;
    const life = found.get(key) || { key, came: gang.created, tone: "" };
    const waits = isWaiting(gang);
    found.set(key, { ...life, queue: gang.queue, came: life.came || gang.created, began: gang.started || (waits ? undefined : life.began), ends: gang.ends, eta: waits ? gang.eta : undefined, lasts: gang.lasts, waits, word: life.word || gang.state });
  }
  return [...found.values()];
}
function choice(label, field, options) {
  return el("div", { class: "spans", role: "group", "aria-label": label }, options.map(([value, text]) =>
    el("button", { "data-spot": text, "aria-pressed": state[field] === value ? "true" : "false", onclick: () => { state[field] = value; drawTimeline(); } }, text)));
}
function drawTimeline() {
  const at = now(), all = lives();
  const far = Math.max(0, ...all.map((life) => (life.eta ? life.eta + (life.lasts || 0) : life.ends || at) - at));
  // Before the first of all jobs there is nothing to be seen.
  const back = Math.min(state.span, Math.max(60, ...all.map((life) => (at - life.came) * 1.05)));
  const from = at - back, to = at + Math.min(Math.max(far * 1.05, back / 6), state.span * 1.5);
  const spans = choice("How far back", "span", [[900, "15 min"], [3600, "1 h"], [21600, "6 h"]]);
  const by = choice("In rows", "by", [["jobs", "by job"], ["nodes", "by node"]]);
  const sign = (word, style) => el("span", {}, el("i", { class: "c", style }), word);
  const waits = { background: "repeating-linear-gradient(135deg, var(--others) 0 2px, transparent 2px 6px)", border: "1px solid var(--others)" };
  const key = el("p", { class: "key", "aria-hidden": "true" }, state.by === "jobs" ? sign("waits", waits) : "", sign(state.by === "jobs" ? "runs" : "held", { background: "var(--accent)" }), sign("is expected", { background: "var(--accent)", opacity: ".38" }));
  const place = (time) => Math.max(0, Math.min(100, (time - from) / (to - from) * 100));
  const [rows, words] = (state.by === "nodes" ? nodeRows : jobRows)({ all, place, at, from, to });
  swap(byId("timeline"), el("div", { class: "tools" }, by, spans, key), rows.length ? el("div", { class: "card" }, axis(from, to, place, at), el("ul", {}, rows)) : el("p", { class: "none" }, "Nothing was there in this time."),
    words ? el("p", { class: "none" }, words) : "");
  if (state.by === "nodes") recall().catch(() => {});
}
function jobRows({ all, place, at, from, to }) {
  const shown = all.filter((life) => (life.ended || Infinity) > from && (!state.find || life.key.toLowerCase().includes(state.find)));
  shown.sort((a, b) => (a.began || Infinity) - (b.began || Infinity) || a.came - b.came);
  const most = 250;
  return [shown.slice(-most).map((life) => row(life, place, at, from, to)), shown.length > most ? `the youngest ${most} of ${shown.length}` : ""];
}

// Who held which device: what has ended is asked for, a little later than it is seen to be held no more.

async function recall() {
  if (Date.now() < past.due) return;
  past.due = Date.now() + 3000;
  // What has just ended is told later than that it is held no more, when nothing else may happen.
  setTimeout(() => { if (state.tab === "timeline" && state.by === "nodes") recall().catch(() => {}); }, 3100);
  const told = await (await load(`api/past?from=${encodeURIComponent(past.version)}`)).json();
  const same = told.version.split("-")[0] === past.version.split("-")[0], oldest = now() - 21600;
  if (same && !told.rows.length && told.since === past.since) return;
  Object.assign(past, { version: told.version, since: told.since, rows: [...(same ? past.rows.filter((row) => row[7] > oldest) : []), ...told.rows] });
  if (state.tab === "timeline" && state.by === "nodes") drawTimeline();
}
function nodeRows({ place, at, from, to }) {
  const { nodes, gangs } = state.view, found = new Map();
  for (const [, name, key, , ranges, each, since, until] of past.rows) {
    if (until <= from) continue;
    if (!found.has(name)) found.set(name, []);
    found.get(name).push({ key, amount: each * indices(ranges), since, to: until });
  }
  for (const [key, gang] of Object.entries(gangs)) {
    if (!isWaiting(gang) || !gang.eta) continue;
    const since = Math.max(gang.eta, at);
    for (const [name, amount] of Object.entries(gang.room || {})) {
      if (!found.has(name)) found.set(name, []);
      found.get(name).push({ key, amount, since, to: gang.lasts ? since + gang.lasts : to, coming: true });
    }
  }
  const names = [...new Set([...Object.keys(nodes), ...found.keys()])].sort(byName.compare)
    .filter((name) => (nodes[name] && matches(name, nodes[name])) || (found.get(name) || []).some((span) => span.key.toLowerCase().includes(state.find)));
  const most = 40;
  const rows = names.slice(0, most).map((name) => {
    const node = nodes[name], spans = found.get(name) || [];
    for (const part of node ? parts(node) : []) {
      const ends = (gangs[part.key] || {}).ends;
      // Since when the pods of others are there nobody has said.
      spans.push({ ...part, since: part.since || at - (to - from) / 150, to: at, ends, held: true });
    }
    return nodeRow(name, node ? node.size : Math.max(...spans.map((span) => span.amount)), spans, { place, at, from, to });
  });
  const words = [past.since ? `Who held what before is known since ${clock(past.since)}.` : "Who held what before is not known here.", names.length > most ? `${most} of ${names.length} nodes: find the others by name.` : ""];
  return [rows, words.filter(Boolean).join(" ")];
}
function nodeRow(name, size, spans, { place, at, from, to }) {
  // Which devices a pod has nobody knows: it is drawn on the first that are free then.
  const slots = Math.max(1, Math.min(Math.round(size), 32)), busy = Array(slots).fill(-Infinity), bars = [], told = [];
  const bar = ({ kind = "", key = "", style = {} }, title, a, b, top, high) => {
    if (b > a && b > from && a < to) bars.push(el("i", { class: kind, title, onclick: () => go(key), style: { left: `${place(a)}%`, width: `${Math.max(place(b) - place(a), 0.1)}%`, top: `${top / slots * 100}%`, height: `${high / slots * 100}%`, ...style } }));
  };
  if ((past.since || at) > from) bar({ kind: "unknown" }, "not known", from, past.since || at, 0, slots);
  spans.sort((a, b) => a.since - b.since || (a.key < b.key ? -1 : 1));
  for (const span of spans) {
    const who = span.key ? short(span.key) : span.kind === "others" ? "other pods" : "another namespace";
    const when = span.coming ? `from about ${clock(span.since)}` : span.held ? `since ${clock(span.since)}${span.ends ? `, ${until(span.ends)}` : ""}` : `from ${clock(span.since)} to ${clock(span.to)}`;
    told.push(`${number(span.amount)} ${who}${span.held && !span.key ? "" : ` ${when}`}`);
    const free = busy.map((till, slot) => [till > span.since + 3 ? till : -Infinity, slot]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const mine = free.slice(0, Math.max(1, Math.round(span.amount / (size || 1) * slots))).map(([, slot]) => slot).sort((a, b) => a - b);
    const look = { key: span.key, kind: span.coming ? "plan" : "", style: { background: span.key ? colour(span.key) : `var(--${span.kind || "away"})` } };
    for (const [top, high] of runs(mine)) {
      bar(look, told[told.length - 1], span.since, span.to, top, high);
      if (span.ends) bar({ ...look, kind: "plan" }, told[told.length - 1], at, Math.max(span.ends, at), top, high);
    }
    for (const slot of mine) busy[slot] = span.held ? span.ends || Infinity : span.to;
  }
  return el("li", { class: "row" }, el("div", { class: "who mono" }, name),
    el("div", { class: "lane devices", role: "img", "aria-label": `${name}: ${told.slice(-12).join("; ") || "nobody in this time"}`, style: { "--slots": `${slots}` } }, bars, el("u", { style: { left: `${place(at)}%` } })));
}
function runs(slots) {
  const found = [];
  for (const slot of slots) {
    const last = found[found.length - 1];
    if (last && last[0] + last[1] === slot) last[1] += 1;
    else found.push([slot, 1]);
  }
  return found;
}
function axis(from, to, place, at) {
  // A time is 64 px wide at the most, the word "now" half of it: none is written over another, or beside the card.
  const wide = Math.max(120, innerWidth < 720 ? innerWidth - 52 : Math.min(innerWidth, 1480) - 340), half = 32 / wide * 100;
  const step = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400].find((each) => (to - from) / each <= wide / 70) || 28800;
  const marks = [];
  for (let time = Math.ceil(from / step) * step; time < to; time += step) {
    const spot = place(time);
    if (spot > half && spot < 100 - half && Math.abs(spot - place(at)) > 1.5 * half) marks.push(el("span", { style: { left: `${spot}%` } }, hour(time)));
  }
  marks.push(el("span", { style: { left: `${place(at)}%`, color: "var(--bad)", fontWeight: "600" } }, "now"));
  return el("div", { class: "axis" }, el("b"), el("div", { "aria-hidden": "true" }, marks));
}
function row(life, place, at, from, to) {
  const bars = [], bar = (kind, a, b, look) => { if (b > a && a < to && b > from) bars.push(el("i", { class: kind, style: { left: `${place(a)}%`, width: `${Math.max(place(b) - place(a), 0.1)}%`, ...look } })); };
  const fill = { background: colour(life.key) }, end = life.ended || at, began = life.began;
  bar("wait", life.came, began || Math.min(end, at), {});
  if (began) bar(life.tone, began, end, fill);
  if (began && !life.ended && life.ends) bar("plan", at, Math.max(life.ends, at), fill);
  if (life.waits && life.eta) { bar("wait plan", at, life.eta, {}); bar("plan", Math.max(life.eta, at), life.lasts ? life.eta + life.lasts : to, fill); }
  const words = [life.word, began ? `began ${clock(began)} after ${lasting(began - life.came)}` : `waits ${lasting(end - life.came)}`,
    life.ended ? `ended ${clock(life.ended)}` : life.ends ? until(life.ends) : life.eta ? `starts about ${clock(life.eta)}` : ""].filter(Boolean).join(", ");
  return el("li", { class: "row", title: `${life.key}: ${words}` }, el("div", { class: "who" }, swatch(life.key), el("button", { class: "link", "data-spot": life.key, onclick: () => go(life.key), "aria-label": `${short(life.key)}: ${words}` }, short(life.key)), life.tone === "bad" ? chip("failed", "bad") : ""),
    el("div", { class: "lane", "aria-hidden": "true" }, bars, el("u", { style: { left: `${place(at)}%` } })));
}

// One job.

const go = (key) => { if (key && !key.startsWith("~")) location.hash = `/job/${encodeURIComponent(key)}`; };
let detail = null, decided = null, happened = null, workload = null, log = null, asked = 0;
async function openSheet(key) {
  const sheet = byId("sheet");
  if (state.open !== key) { detail = decided = happened = workload = log = null; state.open = key; }
  drawSheet();
  if (!sheet.open) sheet.showModal();
  await ask(key);
}
async function ask(key) {
  const turn = ++asked;
  try {
    const found = await (await load(`api/gang?key=${encodeURIComponent(key)}`)).json();
    const log = state.keepsDecisions ? await (await load(`api/why?key=${encodeURIComponent(key)}`)).json() : null;
    const events = state.reads && key in state.view.jobs ? await eventsOf(`key=${encodeURIComponent(key)}`) : null;
    const work = state.reads && (state.view.jobs[key] || {}).dispatched ? await workloadOf(key) : null;
    if (turn !== asked || state.open !== key) return;
    [detail, decided, happened, workload] = [found, log, events, work];
    drawSheet();
  } catch (error) { if (error.status !== 404) throw error; }
}
function drawSheet() {
  const key = state.open, gang = state.view.gangs[key], job = state.view.jobs[key], sheet = byId("sheet");
  const word = (job && job.state) || (gang && gang.state) || "gone";
  const pair = (name, value) => value ? [el("dt", {}, name), el("dd", {}, value)] : [];
  const facts = gang || {}, past = job || {}, queue = facts.queue && `${facts.queue}${facts.position ? `, position ${facts.position}` : ""}`, began = facts.started || past.started, came = past.created || facts.created;
  const body = [
    el("div", { class: "head" }, swatch(key), el("h2", { id: "sheet-title" }, short(key), el("div", { class: "dim mono" }, `${key.split("/")[0]} in ${space(key)}`)), el("button", { class: "close", "data-spot": "close", "aria-label": "Close", onclick: () => sheet.close() }, "×")),
    el("p", { class: "facts" }, chip(word, TONES[word]), facts.state && facts.state !== word ? chip(facts.state, TONES[facts.state]) : "", past.dispatched ? chip(past.dispatched, "plan") : "", past.restarts ? chip(`${past.restarts} pods restarted`, "warn") : ""),
    facts.summary || facts.message ? el("p", { class: "card sentence" }, facts.summary || facts.message) : "",
    past.wrong && past.wrong !== past.failed ? el("p", { class: "failed" }, past.wrong) : "",
    failure(past),
    el("h3", {}, "In short"),
    el("dl", { class: "pairs" }, pair("Queue", past.localQueue || queue), pair("Scheduler's queue", past.localQueue && queue), pair("Asks", needs(facts).join(", ")), pair("Roles", (facts.roles || []).map(([role, total, has]) => `${role || "pods"}: ${has} of ${total} placed`).join(", ")),
      pair("Starts with", facts.least ? `${facts.least} pods together, ${facts.ready} ready` : ""), pair("Created", came ? clock(came, true) : ""), pair("Began", began ? clock(began, true) : ""), pair("Ended", past.ended ? clock(past.ended, true) : ""),
      pair("Expected", facts.ends ? until(facts.ends) : isWaiting(facts) ? start(facts).filter(Boolean).join(", ") : ""), pair("Kept for it", Object.keys(facts.room || {}).sort(byName.compare).join(", ")), pair("Priority", facts.priority)),
    heading("In the way", (facts.behind || []).map((other) => person(other, ""))), heading("What would help", (facts.helps || []).map((text) => el("li", {}, text))),
    ...placement(key), ...pods(), ...logged(), ...conditions(), ...workloads(), ...events("Events", happened), ...decisions(),
  ];
  const top = sheet.scrollTop;
  swap(sheet, ...body.flat().filter(Boolean));
  sheet.scrollTop = top;
}
function failure(past) {
  if (!past.failed) return "";
  const said = detail && detail.failed;
  return el("div", { class: "failed" }, el("b", {}, "First failure"), el("div", {}, past.failed), said && said.message ? el("pre", {}, said.message) : "");
}
function placement(key) {
  const nodes = Object.entries(state.view.nodes).filter(([, node]) => node.held.some((row) => row[0] === key));
  if (!nodes.length) return [];
  const levels = Object.entries((detail && detail.levels) || {}).map(([level, found]) => el("li", {}, el("span", { class: "mono" }, level), `: ${Object.entries(found).map(([name, count]) => `${name} (${count})`).join(", ")}`));
  const grid = el("div", { class: `grid ${nodes.length > 24 ? "dense" : ""}`, style: { "--tile": "150px" } }, nodes.slice(0, 200).map(([name, node]) => {
    const mine = { ...node, held: node.held.filter((row) => row[0] === key), away: 0, others: 0 };
    const made = el("div", { class: "node", "data-node": name, title: tell(name, node) }, el("b", {}, el("span", {}, name), el("span", {}, mine.held.map((row) => row[2]).join(" "))), el("i"));
    made.lastChild.style.background = paint({ ...mine });
    return made;
  }));
  grid.style.setProperty("--gap-line", "2px");
  return [el("h3", {}, `Placement: ${nodes.length} ${nodes.length === 1 ? "node" : "nodes"}`), levels.length ? el("ul", {}, levels) : "", grid];
}
function table(title, names, all) {
  // A column in which nothing stands takes room from the others.
  const told = names.map((_, i) => all.some((cells) => cells[i] !== ""));
  const [columns, ...rows] = [names, ...all].map((cells) => cells.filter((_, i) => told[i]));
  return rows.length ? [el("h3", {}, title), el("div", { class: "wide" }, el("table", { "aria-label": title }, el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))))))] : [];
}
function pods() {
  const order = (pod) => [pod.role, pod.index === null ? 0 : pod.index];
  const all = ((detail && detail.pods) || []).sort((a, b) => order(a)[0] < order(b)[0] ? -1 : order(a)[0] > order(b)[0] ? 1 : order(a)[1] - order(b)[1]);
  const rows = all.slice(0, 300).map((pod) => [podOf(pod), chip(pod.phase === "Running" && !pod.ready ? "Running, not ready" : pod.phase, { Running: "good", Succeeded: "good", Failed: "bad" }[pod.phase] || "warn"),
    pod.node || "", pod.restarts ? `${pod.restarts}` : "", clock(pod.since, true), [pod.reason, pod.message].filter(Boolean).join(": ")]);
  return table(`Pods: ${all.length}`, ["Pod", "Phase", "Node", "Restarts", "Since", "Why"], rows);
}
function podOf(pod) {
  if (!state.reads) return el("span", { class: "mono" }, pod.name);
  return el("button", { class: "link mono", "data-spot": `pod ${pod.name}`, title: "Show its log", "aria-label": `${pod.name}: show its log`, onclick: () => readLog(pod.name) }, pod.name);
}
async function readLog(name) {
  const key = state.open, query = `key=${encodeURIComponent(key)}&pod=${encodeURIComponent(name)}`;
  let text = "";
  try { text = await (await load(`api/log?${query}`)).text() || "It has written nothing."; } catch (error) { text = error.message; }
  const events = await eventsOf(query);
  if (state.open !== key) return;
  log = { name, text, events };
  drawSheet();
  const shown = byId("sheet").querySelector(".log");
  shown.scrollTop = shown.scrollHeight;
  shown.scrollIntoView({ block: "nearest" });
}
const logged = () => log ? [el("h3", {}, `The end of the log of ${log.name}`), el("pre", { class: "log", tabindex: "0", role: "log" }, log.text), ...events(`Events of ${log.name}`, log.events)] : [];
// Or why they may not be read: whoever looks may see pods, and not events.
async function eventsOf(query) {
  try { return await (await load(`api/happened?${query}`)).json(); } catch (error) { return [{ type: "", reason: "", message: error.message }]; }
}
function events(title, found) {
  const rows = (found || []).slice(-50).reverse().map((each) => [each.at ? clock(each.at, true) : "", each.reason ? chip(each.reason, each.type === "Warning" ? "warn" : "") : "", each.count > 1 ? `${each.count} times` : "", each.message]);
  return table(title, ["Last", "Event", "", "What happened"], rows);
}
const conditions = () => conditionTable("Conditions", (detail && detail.conditions) || []);
function conditionTable(title, found) {
  const rows = found.map((each) => [chip(each.type, each.status === "True" ? TONES[each.type] || "plan" : ""), each.status, clock(each.since, true), `${each.reason}${each.message ? `: ${each.message}` : ""}`]);
  return table(title, ["Condition", "Status", "Since", "Why"], rows);
}
// The Workload of a job that MultiKueue dispatches, or why it cannot be read.
async function workloadOf(key) {
  try { return await (await load(`api/workload?key=${encodeURIComponent(key)}`)).json(); } catch (error) { return { wrong: error.message }; }
}
function workloads() {
  if (!workload) return [];
  const told = workload.wrong || (workload.name ? `${workload.name}, ${workload.place}` : "Kueue has not created its Workload.");
  return [el("h3", {}, "Workload"), el("p", { class: "card sentence" }, told), workload.checks && workload.checks.length ? el("ul", {}, workload.checks.map((text) => el("li", {}, text))) : "", ...conditionTable("Conditions of the Workload", workload.conditions || [])];
}
function decisions() {
  const rows = (decided || []).slice(-20).reverse().map((each) => [clock(Date.parse(each.at) / 1000, true), each.verdict.state, each.verdict.summary || each.verdict.message || each.verdict.reason || (each.placed ? `${each.placed} pods placed` : "")]);
  return table("What was decided", ["At", "State", "Why"], rows);
}

// What comes in.

class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}
async function load(path) {
  const token = sessionStorage.getItem("token"), known = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers: known, cache: "no-store" });
  if (!answer.ok) throw new Refused(answer.status, (await answer.text()).trim());
  return answer;
}
function pulse(word, kind) {
  const shown = byId("pulse");
  if (shown.textContent !== word) shown.textContent = word;
  shown.className = `pulse ${kind}`;
}
async function begin() {
  const answer = await load("api/view"), whole = await answer.json(), date = Date.parse(answer.headers.get("Date"));
  Object.assign(state, { view: whole.view, version: whole.version, keepsDecisions: whole.keepsDecisions, reads: whole.reads, namespaces: whole.namespaces, live: whole.live });
  if (date) state.skew = Math.abs(date - Date.now()) > 2000 ? (date - Date.now()) / 1000 : 0;
  const words = [whole.words, whole.namespaces ? `You see the jobs of ${whole.namespaces.join(", ") || "no namespace that has any"}; what others hold and where they wait is shown without names.` : ""].filter(Boolean).join(" ");
  byId("words").textContent = words;
  byId("words").hidden = !words;
  draw();
  if (state.open) { drawSheet(); ask(state.open).catch(() => {}); }
}
async function follow() {
  const answer = await load(`api/events?from=${encodeURIComponent(state.version)}`);
  pulse(state.live ? "live" : "a snapshot", state.live ? "live" : "");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return true;
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      // A new attempt would end another page of this viewer.
      if (event.startsWith("event: replaced")) { reader.cancel(); return false; }
      if (!take(event)) { reader.cancel(); return true; }
    }
  }
}
function take(event) {
  if (event.startsWith("event: again")) return false;
  const fields = Object.fromEntries(event.split("\n").map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]));
  if (!fields.data) return true;
  const changes = JSON.parse(fields.data);
  for (const [section, documents] of Object.entries(changes)) {
    for (const [key, document] of Object.entries(documents)) {
      if (document === null) delete state.view[section][key];
      else state.view[section][key] = document;
    }
  }
  state.version = fields.id;
  later(changes);
  return true;
}
const pending = new Set(); // nodes and jobs that are to be drawn anew
let drawing = false;
function later(changes) {
  for (const documents of Object.values(changes)) for (const key of Object.keys(documents)) pending.add(key);
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const changed = new Set(pending);
    pending.clear();
    draw(changed);
    if (changed.has(state.open)) { drawSheet(); ask(state.open).catch(() => {}); }
  });
}
function draw(changed) {
  settleColours();
  drawHead();
  if (state.tab === "now") drawNow(changed);
  if (state.tab === "waiting") drawWaiting();
  if (state.tab === "queues") drawQueues();
  if (state.tab === "timeline") drawTimeline();
}
async function run() {
  for (;;) {
    let pause = 1500;
    try {
      await begin();
      if (!await follow()) { pulse("too many pages are open: reload to follow this one", "lost"); return; }
      pause = 200;
    } catch (error) {
      pulse(error.status ? error.message : "connection lost, trying again", "lost");
      if (error.status === 401 || error.status === 403) await login(error.status);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
function login(status) {
  const dialog = byId("login");
  byId("login-why").textContent = status === 403 ? "That account may not look at this page, by its roles." : "Who looks at this page is asked for a token of the cluster.";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    sessionStorage.setItem("token", byId("token").value.trim());
    resolve();
  }, { once: true }));
}
function route() {
  const [view, key] = location.hash.slice(2).split(/\/(.*)/s);
  if (view === "job" && key) { openSheet(decodeURIComponent(key)).catch(() => {}); return; }
  state.open = "";
  if (byId("sheet").open) byId("sheet").close();
  state.tab = VIEWS.includes(view) ? view : "now";
  show();
  draw();
}
function show() {
  for (const name of VIEWS) byId(name).hidden = name !== state.tab;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === state.tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  byId("finder").hidden = !["now", "timeline"].includes(state.tab);
  byId("cells").hidden = state.tab !== "now";
  byId("tip").hidden = true;
}

byId("grid").addEventListener("pointermove", hover);
byId("grid").addEventListener("pointerleave", () => { byId("tip").hidden = true; });
byId("grid").addEventListener("keydown", step);
byId("grid").addEventListener("focusin", (event) => {
  const box = event.target.getBoundingClientRect();
  if (event.target.matches(".node:focus-visible")) point(event.target, box.left, box.bottom - 16, -1);
});
byId("grid").addEventListener("focusout", () => { byId("tip").hidden = true; });
byId("grid").addEventListener("click", (event) => {
  const target = event.target.closest(".node");
  if (!target) return;
  const node = state.view.nodes[target.dataset.node], box = target.lastChild.getBoundingClientRect();
  const cell = event.detail ? (event.clientX - box.left) / box.width * node.size : 0;
  let at = 0;
  for (const part of parts(node)) {
    at += part.amount;
    if (part.key && cell < at) { go(part.key); return; }
  }
  hover(event);
});
byId("find").addEventListener("input", (event) => { state.find = event.target.value.trim().toLowerCase(); draw(); });
byId("sheet").addEventListener("close", () => { if (location.hash.startsWith("#/job/")) location.hash = `/${state.tab}`; });
byId("sheet").addEventListener("click", (event) => { if (event.target === byId("sheet") && event.offsetX < 0) byId("sheet").close(); });
window.addEventListener("hashchange", route);
window.addEventListener("resize", () => { if (["now", "timeline"].includes(state.tab)) draw(new Set()); });
setInterval(() => { if (state.live && !document.hidden && state.tab !== "now") draw(new Set()); }, 10000);
show();
route();
run();
