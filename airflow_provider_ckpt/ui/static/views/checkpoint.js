// One checkpoint, live while it runs: who is late is named, with host and history; stragglers come first.

import { abort, pin, restore, unpin } from "../actions.js";
import { get } from "../api.js";
import { ackCurve, lane } from "../charts.js";
import { h } from "../dom.js";
import { between, count, duration, size } from "../format.js";
import { draw as redraw, look } from "../main.js";
import { acks, badge, button, card, empty, events, facts, figure, isFlying, lateness, link, marks, phase, table, time, who } from "../parts.js";

const COLUMNS = [["Participant"], ["Status"], ["Host"], ["Since the trigger", "wide"], ["Acked after", "right"], ["New", "right"], ["Before"]];
const PAGE = 50;

export function checkpoint({ pipeline, id, options }) {
  const state = { search: "", query: options.get("query") ?? "", offset: 0, opened: null, detail: null, manifest: null, trouble: null };
  const here = ["pipelines", pipeline, "checkpoints", id];
  return {
    load: async () => {
      const asked = { limit: PAGE, offset: state.offset, search: state.search, query: state.query };
      const [found, people] = await Promise.all([get(...here), get(...here, "participants", asked)]);
      return { ...found, people };
    },
    draw: (found) => draw({ pipeline, id, here, state, found }),
    every: (found) => (found === undefined || isFlying(found.checkpoint) ? 1000 : null),
  };
}

function draw(all) {
  const { found } = all;
  return [
    title(all),
    found.checkpoint.phase === "FAILED" ? blame(found) : null,
    isFlying(found.checkpoint) ? waiting(found) : null,
    progress(found),
    participants(all),
    found.sinks.length ? sinks(found) : null,
    h("div", { class: "columns" }, cut(found), about(all)),
    found.manifest_path ? manifest(all) : null,
    card("What happened", events(found.events, all.pipeline, found.now)),
  ];
}

function title({ pipeline, id, found }) {
  const { checkpoint: it, rights } = found;
  const canAbort = rights.may_act && ["TRIGGERED", "IN_PROGRESS"].includes(it.phase);
  const buttons = [
    canAbort ? button("Abort …", () => abort(pipeline, id, look), "quiet grave") : null,
    rights.may_act && it.phase === "COMPLETED" ? button("Pin …", () => pin(pipeline, id, look), "quiet") : null,
    rights.may_restore && it.phase === "COMPLETED" ? button("Restore to here …", () => restore(pipeline, id, look), "quiet grave") : null,
  ].filter(Boolean);
  const name = it.kind === "savepoint" ? `Savepoint ${it.name}` : `Checkpoint ${it.id}`;
  return h("div", { class: "title" }, h("h1", {}, name), h("div", { class: "badges" }, phase(it), marks(it)), buttons.length ? h("div", { class: "buttons" }, buttons) : null);
}

function waiting({ waits_for: late, recent, checkpoint: it, now }) {
  const left = between(now, it.deadline);
  const who = (each) =>
    h("li", { "data-key": each.name }, h("b", {}, each.name), each.host ? ` on ${each.host}` : "", `: ${each.stage} for ${duration(each.for_seconds)}`, each.late_before ? h("span", { class: "often" }, lateness(each.late_before, recent)) : null);
  const missing = it.participants === null ? late.length : it.participants - it.acked;
  if (!late.length) return h("p", { class: "lead" }, "Everybody has acknowledged: it is being decided.");
  return h(
    "section",
    { class: "card late", "aria-label": "Who is late" },
    h("h2", {}, it.phase === "COMMITTING" ? "Waiting for sinks to publish" : `Waiting for ${missing.toLocaleString()}`),
    h("ul", {}, late.map(who), missing > late.length ? h("li", { class: "dim" }, `and ${(missing - late.length).toLocaleString()} more`) : null),
    it.phase === "COMMITTING" ? null : h("p", { class: left < 30 ? "trouble" : "dim" }, left > 0 ? `It fails in ${duration(left)} unless they acknowledge.` : "Its time is over: whoever looks next fails it."),
  );
}

function blame({ failure, checkpoint: it, now }) {
  const row = (each) => [h("b", { class: "trouble" }, each.name), each.stage, time(each.since, now), each.host ?? "–", lateness(each.late_before, failure.recent) || "never before"];
  const more = failure.missing - failure.named.length;
  return h(
    "section",
    { class: "card blame", "aria-label": "Blame report" },
    h("h2", {}, `Failed: ${failure.reason}`),
    h("p", {}, `${failure.message.charAt(0).toUpperCase()}${failure.message.slice(1)}. The pipeline goes on, and the next checkpoint covers what this one would have.`),
    failure.named.length ? table("Who was missing", [["Missing"], ["Last seen doing"], ["Since"], ["Host"], ["Before", "wide"]], failure.named.map(row)) : h("p", {}, it.participants ? "Nobody was missing." : "It had no participants yet."),
    more > 0 ? h("p", { class: "dim" }, `and ${count(more, "more participant")}`) : null,
  );
}

/** The steps of its life, each with how long it took, and how the acknowledgements came in. */
function progress(found) {
  const it = found.checkpoint;
  const end = it.ended_at ?? found.now;
  const width = Math.max(Math.min(document.getElementById("content").clientWidth - 36, 1800), 280);
  const step = (name, from, to, note) => figure(name, from ? duration(between(from, to ?? end)) : "–", note, from && !to && isFlying(it) ? "busy" : "");
  const sinkNote = found.sinks.length ? count(found.sinks.length, "sink") : "no sinks";
  return card(
    null,
    h(
      "div",
      { class: "figures steps" },
      step("Cut", it.triggered_at, found.frozen_at, found.cuts.length ? count(found.cuts.length, "query", "queries") : "no query yet"),
      step("Acknowledged", found.frozen_at, found.decided_at, `${acks(it)} participants`),
      step("Published", found.decided_at, it.ended_at, sinkNote),
      figure("Altogether", duration(between(it.triggered_at, end)), it.full_bytes === null ? "" : `${size(it.new_bytes)} new of ${size(it.full_bytes)}`),
    ),
    found.arrivals.length
      ? h("figure", { class: "chart" }, ackCurve({ arrivals: found.arrivals, expected: it.participants, until: between(it.triggered_at, found.decided_at ?? end), width }), h("figcaption", { class: "legend" }, `Acknowledgements over ${duration(between(it.triggered_at, found.decided_at ?? end))}`))
      : null,
    groups(found),
  );
}

function groups({ groups: all, checkpoint: it, now }) {
  if (all.length < 2) return null;
  const row = (each) => {
    const isDone = each.acked === each.expected;
    const bar = lane([{ kind: isDone ? "own" : "pending", from: 0, to: each.acked / each.expected, title: `${each.acked} of ${each.expected}` }], `${each.acked} of ${each.expected}`);
    return [each.query, each.kind, bar, `${each.acked.toLocaleString()} of ${each.expected.toLocaleString()}`, isDone ? duration(between(it.triggered_at, each.last_acked_at)) : h("span", { class: "trouble" }, it.ended_at ? "never" : `${duration(between(it.triggered_at, now))} and waiting`)];
  };
  return h("details", { open: true }, h("summary", {}, "By query and kind"), table("Progress by query and kind", [["Query"], ["Kind"], ["", "wide"], ["Acks", "right"], ["Last after", "right"]], all.map(row)));
}

function participants(all) {
  const { found, state } = all;
  const { people, checkpoint: it } = found;
  const set = (change) => {
    Object.assign(state, { offset: 0 }, change);
    look();
  };
  const search = h("input", { type: "search", placeholder: "name or host", value: state.search, "aria-label": "Search participants", oninput: (event) => set({ search: event.target.value }) });
  const queries = [...new Set(found.groups.map((group) => group.query))];
  const choice = queries.length > 1 ? h("select", { "aria-label": "Query", onchange: (event) => set({ query: event.target.value }) }, ["", ...queries].map((each) => h("option", { value: each, selected: state.query === each }, each || "All queries"))) : null;
  const rows = people.participants.flatMap((each) => rowsOf(all, each));
  const older = people.next_offset === null ? null : button("Next →", () => set({ offset: people.next_offset }), "quiet");
  const newer = state.offset > 0 ? button("← First", () => set({ offset: 0 }), "quiet") : null;
  const nobody = it.phase === "DISCARDED" ? "What its participants said went with its files." : state.search || state.query ? "Nobody fits." : "Nobody takes part before every query has reached its cut.";
  return card(
    `Participants${it.participants ? ` (${it.participants.toLocaleString()})` : ""}, stragglers first`,
    h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, search, choice, legend()),
    rows.length ? table("Participants, stragglers first", COLUMNS, rows) : empty("Nobody here", nobody),
    older || newer ? h("nav", { class: "pages", "aria-label": "Pages of participants" }, newer ?? h("span"), older) : null,
  );
}

function legend() {
  const key = (kind, text) => h("span", { class: `key ${kind}` }, text);
  return h("span", { class: "legend" }, key("delivery", "delivery"), key("capture", "capture"), key("waiting", "waiting"), key("copy", "copy and ack"), key("commit", "commit"), key("pending", "late"));
}

function rowsOf(all, each) {
  const { found, state } = all;
  const isLate = each.status !== "acked";
  const isOpen = state.opened === each.name;
  const often = lateness(each.late_before, found.people.recent);
  const line = {
    "data-key": each.name,
    class: isLate ? (isFlying(found.checkpoint) ? "late live" : "late") : null,
    cells: [
      h("button", { type: "button", class: "plainlink", "aria-expanded": String(isOpen), onclick: () => open(all, each.name) }, each.name),
      status(each),
      each.host ?? "–",
      laneOf(found, each),
      isLate ? "–" : duration(between(found.checkpoint.triggered_at, each.acked_at)),
      size(each.new_bytes),
      often ? h("span", { class: each.late_before >= 3 ? "often" : "dim" }, often) : "",
    ],
  };
  if (!isOpen) return [line];
  return [line, { "data-key": `${each.name} detail`, class: "detail", cells: [detail(state)] }];
}

function status(each) {
  if (each.status === "acked") return badge("good", "acked");
  if (each.status === "declined") return [badge("bad", "declined"), h("span", { class: "wrap trouble" }, ` ${each.message}`)];
  return badge("bad", each.stage === "captured" ? "not acked" : each.stage);
}

function laneOf(found, each) {
  const it = found.checkpoint;
  const begin = Date.parse(it.triggered_at);
  const end = Date.parse(it.ended_at ?? found.now);
  const total = Math.max(end - begin, 1);
  const at = (text) => (Date.parse(text) - begin) / total;
  const captured = found.people.captured_at[each.query] ? at(found.people.captured_at[each.query]) : null;
  const segments = [];
  const add = (kind, from, to, title) => to > from && segments.push({ kind, from, to, title: `${title}: ${duration(((to - from) * total) / 1000)}` });
  if (captured === null) return "";
  const capture = Math.min(((each.timings_seconds.capture ?? 0) * 1000) / total, captured);
  add("delivery", 0, captured - capture, "delivery");
  add("capture", captured - capture, captured, "capture");
  if (each.acked_at) {
    const acked = at(each.acked_at);
    const copy = Math.min(((each.timings_seconds.copy ?? 0) * 1000) / total, Math.max(acked - captured, 0));
    add("waiting", captured, acked - copy, "waiting");
    add("copy", acked - copy, acked, "copy and ack");
  } else {
    add("pending", captured, 1, each.stage);
  }
  const sink = found.sinks.find((other) => other.name === each.name);
  if (sink && found.decided_at) add(sink.committed_at ? "commit" : "pending", at(found.decided_at), sink.committed_at ? at(sink.committed_at) : 1, `commit ${sink.status}`);
  return lane(segments, segments.map((segment) => segment.title).join(", "));
}

async function open({ here, state }, name) {
  const isOpen = state.opened === name;
  Object.assign(state, { opened: isOpen ? null : name, detail: null });
  redraw();
  if (isOpen) return;
  try {
    state.detail = await get(...here, "participants", ...name.split("/"));
  } catch (error) {
    state.detail = { trouble: error.message };
  }
  redraw();
}

function detail({ detail: found }) {
  if (!found) return "…";
  if (found.trouble) return h("p", { class: "trouble" }, found.trouble);
  const timings = Object.entries(found.participant.timings_seconds).map(([stage, seconds]) => `${stage} ${duration(seconds)}`);
  return h(
    "div",
    {},
    facts([["Positions", Object.keys(found.positions).length ? h("code", {}, JSON.stringify(found.positions)) : null], ["Timings", timings.join(", ")], ["Full", size(found.participant.full_bytes)]]),
    found.files.length ? fileList(found.files) : h("p", { class: "dim" }, "No files."),
    found.more_files ? h("p", { class: "dim" }, `and ${count(found.more_files, "more file")}`) : null,
  );
}

function fileList(files) {
  return h("ul", { class: "files" }, files.map((file) => h("li", {}, h("code", {}, file.name), ` ${size(file.size)} `, file.members ? h("span", { class: "dim" }, `holds ${count(file.members, "file")} `) : null, file.is_new ? badge("plain", "new") : null, h("span", { class: "dim" }, ` ${file.sha256.slice(0, 12)}`))));
}

function sinks({ sinks: all, now }) {
  const amount = (said) => [said.rows !== undefined ? count(said.rows, "row") : null, said.files ? count(said.files, "file") : null, said.bytes ? size(said.bytes) : null].filter(Boolean).join(", ");
  const kind = { committed: "good", pending: "busy", unknown: "warn", abandoned: "gone", "rolled-back": "gone" };
  const row = (each) => [h("b", {}, each.name), badge(kind[each.status] ?? "", each.status), amount(each.staged), amount(each.published), each.published.version ?? "", each.tries, time(each.committed_at, now), h("span", { class: "wrap trouble" }, each.last_error ?? "")];
  return card("Sinks", table("Sinks", [["Sink"], ["Status"], ["Staged"], ["Published"], ["Version"], ["Tries", "right"], ["At"], ["Last error", "wide"]], all.map(row)));
}

function cut({ cuts, in_flight: ranges }) {
  const rows = cuts.map((each) => [h("b", {}, each.query), each.batch === null ? "none yet" : each.batch.toLocaleString(), h("span", { class: "wrap" }, each.consumed.join(", "))]);
  const moving = ranges.map((each) => h("li", {}, `${each.channel}: batches ${each.first} to ${each.last} of ${each.writer} were on their way to ${each.reader}.`));
  return card("The cut", rows.length ? table("The cut", [["Query"], ["Batch", "right"], ["Had consumed", "wide"]], rows) : h("p", { class: "dim" }, "No query has reached its cut, or what is known of it went with its files."), moving.length ? h("ul", {}, moving) : null);
}

function about({ pipeline, found }) {
  const it = found.checkpoint;
  const lift = (each) => (found.rights.may_act && !each.owner.startsWith("restore:") ? [" ", button("Lift …", () => unpin(pipeline, each, look), "quiet small")] : null);
  const evidence = Object.entries(found.evidence).map(([outcome, number]) => `${number} ${outcome}`);
  return card(
    "About it",
    facts([
      ["Asked by", who(it.requested_by)],
      ["Why", it.reason],
      ["Attempt", h("a", { href: `#/${pipeline}/attempts` }, String(it.attempt))],
      ["Triggered", time(it.triggered_at, found.now)],
      ["Ended", it.ended_at ? time(it.ended_at, found.now) : null],
      ["Retry of", found.retry_of ? link(pipeline, found.retry_of) : null],
      ["Last to acknowledge", it.last_participant],
      ["Verdict", found.verdict_detail ?? found.verdict],
      ["Acks that changed nothing", evidence.join(", ")],
      ["Pinned", found.pins.length ? h("ul", {}, found.pins.map((each) => h("li", {}, `${each.owner}: ${each.reason}`, lift(each)))) : null],
    ]),
  );
}

function manifest({ here, state, found }) {
  const load = async (offset) => {
    try {
      state.manifest = await get(...here, "manifest", { offset });
      state.trouble = null;
    } catch (error) {
      state.trouble = error.message;
    }
    redraw();
  };
  const shown = state.manifest;
  return card(
    "Manifest and files",
    facts([["Path", h("code", {}, found.manifest_path)], ["SHA-256", h("code", {}, found.manifest_sha256)], ["Files", `${found.new_files.toLocaleString()} new of ${found.full_files.toLocaleString()}`], ["Timeline", shown?.timeline.join(" ← ")], ["Its size", shown ? size(shown.size) : null]]),
    shown ? fileList(shown.files) : null,
    state.trouble ? h("p", { class: "trouble", role: "alert" }, state.trouble) : null,
    h("div", { class: "buttons" }, shown ? null : button("Read it from the storage", () => load(0), "quiet"), shown?.next_offset ? button(`Next files (${shown.next_offset} of ${shown.total_files} seen)`, () => load(shown.next_offset), "quiet") : null),
  );
}
