// The page of 'dovetail view'. It shows what /updates sends. All text goes into the page as text, never as HTML.
"use strict";

const $ = (id) => document.getElementById(id);
const rowHeight = 34, headingHeight = 26;
const nodes = new Map(); // by name
let head = null, timeline = [], history = [];
let shown = []; // nodes that pass the filter, in order
let selected = ""; // name of a node
let lostSince = 0;
let opener = null; // what had the focus before the panel opened

// make returns an element with a class, text and children.
function make(tag, cls, text, ...children) {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined && text !== null) e.textContent = text;
  e.append(...children);
  return e;
}

function put(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

const dollars = (v) => "$" + v.toFixed(4);

// age writes milliseconds as kubectl does, with one unit.
function age(ms) {
  const s = Math.max(ms, 0) / 1000;
  if (s < 120) return Math.floor(s) + "s";
  if (s < 7200) return Math.floor(s / 60) + "m";
  if (s < 172800) return Math.floor(s / 3600) + "h";
  return Math.floor(s / 86400) + "d";
}

const clock = (ms) => new Date(ms).toLocaleTimeString();
const cores = (m) => String(Number((m / 1000).toPrecision(3)));
const gib = (b) => (b / 2 ** 30).toFixed(1);

// old is how long ago the cluster was read that is shown.
const old = () => head && head.at ? Date.now() - head.arrived : 0;

// stale says that what is shown isn't current: on a large cluster or a busy machine looks are further apart.
const stale = () => lostSince || (head && head.problem) || old() > Math.max(3 * (head ? head.interval : 0), 10000);

// now is the cluster's time, going on while no update comes.
const now = () => head && head.at ? head.at + old() : Date.now();

function apply(u) {
  if (u.whole) {
    nodes.clear();
    timeline = u.timeline || [];
    history = u.history || [];
  }
  // What is sent may have been read a while ago: the page was just opened, the cluster can't be read, or the bound has come later.
  u.head.arrived = Date.now() - (u.now - u.head.readAt);
  head = u.head;
  for (const n of u.nodes || []) nodes.set(n.name, n);
  for (const name of u.gone || []) nodes.delete(name);
  if (u.history) history = u.history;
  if (u.point) history.push(u.point);
  if (u.timeline) timeline = u.timeline;
  drawHead();
  if (u.whole || u.nodes || u.gone) arrange();
  if (u.whole || u.timeline) drawTimeline();
  if (u.whole || u.point || u.history) drawChart();
}

function drawHead() {
  put("perHour", dollars(head.perHour));
  put("unpriced", head.unpriced ? `the prices of ${head.unpriced} are unknown` : "");
  put("bound", head.bound ? dollars(head.bound) : "-");
  put("above", boundText());
  put("nodeCount", String(head.nodeCount));
  put("running", String(head.running));
  put("noSuchNode", head.noSuchNode ? `and ${head.noSuchNode} on nodes that aren't there` : "");
  put("waitingPods", String(head.waitingPods));
  $("heldBack").replaceChildren(...(head.heldBack || []).map((t) => make("p", "warn", "Launches are held back: " + t)));
  $("notes").replaceChildren(...(head.notes || []).map((t) => make("p", "", "Note: " + t)));
  drawWaiting();
  drawState();
}

// boundText says what the bound is about, or why there is none.
function boundText() {
  if (!head.bound) return head.noBound ? "not known, because " + head.noBound : "not known yet";
  const above = 100 * Math.max(head.managedPerHour / head.bound - 1, 0);
  const compared = head.notCounted ? "without " + head.notCounted : above.toFixed(0) + " % above it";
  return `${head.boundAt ? "at " + clock(head.boundAt) + ", " : ""}nodes of pools: ${dollars(head.managedPerHour)}, ${compared}`;
}

// drawState says whether what is shown is current.
function drawState() {
  const read = head && head.at ? `read ${age(old())} ago, at ${clock(head.arrived)}` : "";
  let text = "", state = !read ? "Reading the cluster ..." : stale() ? read : "live, " + read;
  if (lostSince) {
    text = `Connection lost since ${clock(lostSince)}: 'dovetail view' doesn't answer. It is tried again.` + (read ? ` What follows was ${read}.` : "");
    state = "not live" + (read ? ", " + read : "");
  } else if (head && head.problem) {
    text = `Connection lost since ${clock(head.since)}: the cluster can't be read (${head.problem}). It is tried again.` + (read ? ` What follows was ${read}.` : "");
    state = "not live" + (read ? ", " + read : "");
  }
  put("state", state);
  $("state").classList.toggle("warn", read !== "" && Boolean(stale()));
  put("banner", text);
  $("banner").hidden = text === "";
}

function drawWaiting() {
  const list = $("waiting"), had = document.activeElement, reason = had && list.contains(had) ? had.dataset.reason : null;
  const top = list.scrollTop;
  const rows = (head.waiting || []).map((w) => {
    const b = make("button", "", "Why?");
    b.type = "button";
    b.dataset.reason = w.reason;
    b.setAttribute("aria-label", "Why does " + w.first + " wait?");
    b.addEventListener("click", () => openPod(w.first));
    const oldest = w.oldest ? ", the oldest for " + age(now() - w.oldest) : "";
    return make("li", "", null, make("b", "", String(w.pods)), make("span", "", w.reason), b, make("small", "", "for example " + w.first + oldest));
  });
  list.replaceChildren(...(rows.length ? rows : [make("li", "", null, make("b", "", "0"), make("span", "", "No pod waits for a node."))]));
  list.scrollTop = top;
  if (reason !== null) for (const b of list.querySelectorAll("button")) if (b.dataset.reason === reason) b.focus();
}

function drawTimeline() {
  $("timeline").replaceChildren(...(timeline.length ? timeline : [{at: 0, kind: "", object: "", reason: "Nothing was reported", message: ""}]).map((e) => {
    const when = make("span", "", e.at ? clock(e.at) : "");
    if (e.at) when.title = new Date(e.at).toString();
    return make("li", e.kind, null, when, make("span", "", null, make("b", "", e.reason), " " + e.object), make("small", "", e.message));
  }));
}

// drawChart draws cost and bound as steps, from 0.
function drawChart() {
  const svg = $("chart"), ns = "http://www.w3.org/2000/svg", w = 600, h = 160;
  const points = history;
  if (points.length === 0) return;
  const from = points[0].at, to = Math.max(points[points.length - 1].at, from + 1000);
  const most = Math.max(...points.map((p) => Math.max(p.perHour, p.bound)), 0.0001) * 1.1;
  const x = (p) => ((p.at - from) / (to - from) * w).toFixed(1), y = (v) => (h - v / most * h).toFixed(1);
  const path = (cls, d) => {
    const e = document.createElementNS(ns, "path");
    e.setAttribute("class", cls);
    e.setAttribute("d", d);
    return e;
  };
  // Where known is false for a value, the line has a gap.
  const steps = (of, known) => {
    let d = "", on = false;
    for (const p of points) {
      const v = of(p);
      if (known(v)) d += on ? `H${x(p)}V${y(v)}` : `M${x(p)} ${y(v)}`;
      else if (on) d += `H${x(p)}`;
      on = known(v);
    }
    return on ? d + `H${w}` : d;
  };
  const cost = steps((p) => p.perHour, () => true), least = steps((p) => p.bound, (v) => v > 0);
  svg.replaceChildren(...[0.25, 0.5, 0.75].map((q) => path("grid", `M0 ${h * q}H${w}`)), path("now", cost), path("least", least));
  const k1 = make("i", "k line bound"), k2 = make("i", "k line reserved");
  $("chartText").replaceChildren(k1, "cost ", k2, `least that the pods cost. From ${clock(from)} to ${clock(to)}, 0 to ${dollars(most)} per hour`);
}

// arrange filters and sorts the nodes, and shows those that are visible.
function arrange() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (n) => `${n.name} ${n.pool} ${n.type} ${n.zone} ${n.capacityType} ${n.state} ${n.boot.stage}`.toLowerCase();
  shown = [...nodes.values()].filter((n) => words.length === 0 || words.every((word) => text(n).includes(word)));
  const cmp = (a, b) => a < b ? -1 : a > b ? 1 : 0;
  const by = {
    pool: (a, b) => cmp(a.pool, b.pool) || b.price - a.price,
    price: (a, b) => b.price - a.price,
    free: (a, b) => b.cpu.free - a.cpu.free,
    age: (a, b) => b.created - a.created,
    state: (a, b) => (a.state === "Ready") - (b.state === "Ready") || cmp(a.state, b.state),
  }[$("sort").value];
  shown.sort((a, b) => by(a, b) || cmp(a.name, b.name));
  put("nodesTitle", shown.length === nodes.size ? `Nodes (${nodes.size})` : `Nodes (${shown.length} of ${nodes.size})`);
  const states = new Map();
  for (const n of nodes.values()) if (n.state !== "Ready") states.set(n.state, (states.get(n.state) || 0) + 1);
  $("none").hidden = shown.length > 0 || nodes.size === 0;
  put("none", `No node matches "${$("filter").value.trim()}": the words must all be in its name, pool, type, zone, capacity type or state.`);
  put("states", [...states].sort((a, b) => b[1] - a[1]).map(([s, c]) => `${c} ${s}`).join(", ") || "all Ready");
  $("space").style.height = shown.length * rowHeight + "px";
  $("nodes").classList.toggle("short", shown.length <= 12);
  drawRows();
}

const rows = new Map(); // elements by name, with the node that they show

// drawRows makes elements for the visible nodes only.
function drawRows() {
  const box = $("nodes"), space = $("space");
  const first = Math.max(Math.floor(box.scrollTop / rowHeight) - 4, 0);
  const last = Math.min(first + Math.ceil(Math.max(box.clientHeight, 434) / rowHeight) + 8, shown.length);
  const keep = new Set();
  for (let i = first; i < last; i++) {
    const n = shown[i];
    keep.add(n.name);
    let r = rows.get(n.name);
    if (!r || r.node !== n) {
      const e = rowOf(n);
      if (r) r.element.replaceWith(e);
      else space.append(e);
      r = {node: n, element: e};
      rows.set(n.name, r);
    }
    r.element.style.top = i * rowHeight + "px";
    r.element.setAttribute("aria-posinset", String(i + 1));
    r.element.setAttribute("aria-setsize", String(shown.length));
    r.element.setAttribute("aria-selected", String(n.name === selected));
    tick(r);
  }
  for (const [name, r] of rows) if (!keep.has(name)) {
    r.element.remove();
    rows.delete(name);
  }
  const chosen = rows.get(selected);
  if (chosen) box.setAttribute("aria-activedescendant", chosen.element.id);
  else box.removeAttribute("aria-activedescendant");
}

function rowOf(n) {
  const type = n.type ? n.type + (n.capacityType && n.capacityType !== "on-demand" ? ", " + n.capacityType : "") : "-";
  const e = make("div", "row", null, make("span", "", n.name), make("span", "", n.pool || "-"), make("span", "", type), make("span", "", n.zone || "-"),
    make("span", "state", n.state), make("span", "n age", ""), make("span", "n", n.priced ? n.price.toFixed(4) : "?"), make("span", "n", String(n.pods)),
    use(n.cpu, cores, ""), use(n.memory, gib, " GiB"));
  e.setAttribute("role", "option");
  e.id = "node-" + n.name;
  e.title = n.zone ? n.name + ", " + n.zone : n.name; // a narrow page has no column for the zone
  e.addEventListener("click", () => { selected = n.name; drawRows(); openNode(n.name); });
  return e;
}

// use is a stacked bar with its amounts.
function use(bar, write, unit) {
  const stack = make("span", "stack");
  const total = Math.max(bar.total, bar.bound + bar.daemons + bar.reserved + bar.kept, 1);
  const parts = ["bound", "daemons", "reserved", "kept"];
  for (const p of parts) if (bar[p] > 0) {
    const i = make("i", p);
    i.style.width = 100 * bar[p] / total + "%";
    stack.append(i);
  }
  const text = `${write(bar.free)} of ${write(bar.total)}${unit} free`;
  const e = make("span", "use", null, stack, make("small", "", text));
  e.title = parts.map((p) => `${p === "kept" ? "kept for DaemonSets" : p} ${write(bar[p])}${unit}`).join(", ") + ", " + text;
  e.setAttribute("role", "img");
  e.setAttribute("aria-label", e.title);
  return e;
}

// tick writes what changes with time alone.
function tick(r) {
  // How far a node is that boots isn't known since the last look, so that it isn't late either.
  const n = r.node, took = (n.boot.stage && stale() ? head.at : now()) - n.created;
  const a = r.element.querySelector(".age"), text = n.created ? age(took) : "-";
  if (a.textContent !== text) a.textContent = text;
  if (!n.boot.stage) return;
  const s = r.element.querySelector(".state");
  const label = n.boot.typical ? `${n.boot.stage} ${age(took)} of ${age(n.boot.typical)}` : `${n.boot.stage} ${age(took)}`;
  if (s.dataset.label === label) return;
  s.dataset.label = label;
  const parts = [label];
  if (n.boot.typical) {
    const i = make("i");
    i.style.width = Math.min(100 * took / n.boot.typical, 100) + "%";
    parts.push(make("span", took > 2 * n.boot.typical ? "boot late" : "boot", null, i));
  }
  s.replaceChildren(...parts);
  s.title = n.boot.typical ? `nodes take ${age(n.boot.typical)}, the median of ${n.boot.of}` : "no node has started yet, so that it isn't known how long they take";
}

// choose selects the node at an index and scrolls to it.
function choose(i) {
  if (shown.length === 0) return;
  i = Math.min(Math.max(i, 0), shown.length - 1);
  selected = shown[i].name;
  const box = $("nodes"), top = i * rowHeight;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + headingHeight + rowHeight > box.scrollTop + box.clientHeight) box.scrollTop = top + headingHeight + rowHeight - box.clientHeight;
  drawRows();
}

function key(e) {
  const at = shown.findIndex((n) => n.name === selected), page = Math.max(Math.floor($("nodes").clientHeight / rowHeight) - 1, 1);
  const to = {ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: shown.length - 1}[e.key];
  if (to !== undefined) {
    e.preventDefault();
    choose(to);
  } else if ((e.key === "Enter" || e.key === " ") && at >= 0) {
    e.preventDefault();
    openNode(selected);
  }
}

let asked = 0; // an answer that comes late must not replace a newer one

function openPanel(title) {
  if ($("panel").hidden) opener = document.activeElement;
  put("panelTitle", title);
  $("panelBody").replaceChildren(make("p", "", "Working it out ..."));
  $("panel").hidden = false;
  $("panel").focus();
  return ++asked;
}

function closePanel() {
  asked++;
  $("panel").hidden = true;
  if (opener && opener.isConnected) opener.focus();
  opener = null;
}

async function get(path, name, value) {
  try {
    const r = await fetch(path + "?" + name + "=" + encodeURIComponent(value));
    const type = r.headers.get("Content-Type") || "";
    return type.includes("json") ? await r.json() : {error: await r.text()};
  } catch (e) {
    return {error: "'dovetail view' doesn't answer"};
  }
}

async function openPod(name) {
  const mine = openPanel("Pod " + name);
  const a = await get("/why", "pod", name);
  if (mine === asked) $("panelBody").replaceChildren(...answer(a));
}

async function openNode(name) {
  const mine = openPanel(name);
  const a = await get("/why", "node", name);
  if (mine !== asked) return;
  const b = make("button", "", "What if it ended?");
  b.type = "button";
  b.id = "ending";
  const result = make("div");
  b.addEventListener("click", async () => {
    b.disabled = true;
    result.replaceChildren(make("p", "", "Planning ..."));
    const got = await get("/ending", "node", name);
    b.disabled = false;
    if (mine === asked) result.replaceChildren(...ending(got));
  });
  $("panelBody").replaceChildren(...answer(a), make("h3", "", "What if"), b, result);
}

// answer shows an explanation.
function answer(a) {
  if (a.error) return [make("p", "warn", a.error)];
  const out = [make("p", "", `${a.object} ${a.summary}`)];
  for (const s of a.sections || []) {
    out.push(make("h3", "", s.title));
    if (s.lines) out.push(make("ul", "", null, ...s.lines.map((l) => make("li", "", l))));
    if (s.rows) out.push(make("table", "", null, ...s.rows.map((r, i) => make("tr", "", null, ...r.map((c) => make(i ? "td" : "th", "", c))))));
  }
  for (const n of a.notes || []) out.push(make("p", "hint", "Note: " + n));
  return out;
}

// difference writes what is saved per hour.
function difference(saved) {
  if (Math.abs(saved) < 0.00005) return "as much as now";
  return saved > 0 ? dollars(saved) + "/h less" : dollars(-saved) + "/h more";
}

// ending shows what would happen without a node.
function ending(e) {
  if (e.error) return [make("p", "warn", e.error)];
  const more = e.insteadPerHour, saved = e.perHour - more;
  const homeless = e.refused && e.refused.length;
  const lines = [`${e.moved} of its pods would have to run elsewhere`];
  if (homeless) lines.push("pods would have no node, so that nothing is saved");
  else if (e.priced) lines.push(`the node costs ${dollars(e.perHour)}/h, ${dollars(more)}/h would be bought in addition: ${difference(saved)} in all`);
  else lines.push(`${dollars(more)}/h would be bought in addition; what the node costs isn't known`);
  const out = [make("ul", "", null, ...lines.map((l) => make("li", "", l)))];
  const list = (title, all) => { if (all && all.length) out.push(make("h3", "", title), make("ul", "", null, ...all.map((l) => make("li", "", l)))); };
  list("What stands against it", e.against);
  list("Lost for good: nothing would create them again", e.lost);
  list("There would be no node for", e.refused);
  list("Nodes that would be bought for all pods that then wait", e.bought);
  return out;
}

// connect opens the event source, and another if this one has given up.
function connect() {
  const source = new EventSource("/updates");
  source.onmessage = (e) => {
    const u = JSON.parse(e.data);
    if (u.head.process !== document.documentElement.dataset.process) {
      location.reload(); // another 'dovetail view' serves this address now, perhaps of another cluster
      return;
    }
    lostSince = 0; // not before: what is shown is old until something comes
    apply(u);
  };
  source.onerror = () => {
    if (!lostSince) lostSince = Date.now();
    drawState();
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  };
}

$("nodes").addEventListener("scroll", drawRows, {passive: true});
$("nodes").addEventListener("keydown", key);
$("nodes").addEventListener("focus", () => { if (!selected && shown.length) choose(0); });
$("filter").addEventListener("input", () => { $("nodes").scrollTop = 0; arrange(); });
$("sort").addEventListener("change", () => { $("nodes").scrollTop = 0; arrange(); });
$("close").addEventListener("click", closePanel);
document.addEventListener("keydown", (e) => { if (e.key === "Escape" && !$("panel").hidden) closePanel(); });
window.addEventListener("resize", drawRows);
setInterval(() => { for (const r of rows.values()) tick(r); drawState(); }, 1000);
connect();
