// Pieces that several views share: badges, facts, tables, empty states.

import { h } from "./dom.js";
import { fullMoment, moment, size } from "./format.js";

const PHASES = {
  TRIGGERED: ["busy", "Reaching its cut"],
  IN_PROGRESS: ["busy", "Waiting for acks"],
  COMMITTING: ["busy", "Sinks are publishing"],
  COMPLETED: ["good", "Completed"],
  FAILED: ["bad", "Failed"],
  DISCARDING: ["gone", "Being let go"],
  DISCARDED: ["gone", "Let go"],
};

export function isFlying(checkpoint) {
  return ["TRIGGERED", "IN_PROGRESS", "COMMITTING"].includes(checkpoint.phase);
}

export function badge(kind, text, title) {
  return h("span", { class: `badge ${kind}`, title }, text);
}

export function phase(checkpoint) {
  const [kind, text] = PHASES[checkpoint.phase] ?? ["", checkpoint.phase];
  return badge(kind, text);
}

export function marks(checkpoint) {
  const kinds = { corrupt: "bad", validated: "good", abandoned: "gone" };
  return checkpoint.marks.map((mark) => badge(kinds[mark] ?? "plain", mark));
}

export function attemptStatus(status) {
  const kinds = { running: "good", failed: "bad", superseded: "gone", stopped: "gone", finished: "gone" };
  return badge(kinds[status] ?? "busy", status);
}

export function time(text, now) {
  return text ? h("time", { datetime: text, title: fullMoment(text) }, moment(text, now)) : "–";
}

export function link(pipeline, id, ...text) {
  return h("a", { href: `#/${pipeline}/checkpoints/${id}` }, text.length ? text : String(id));
}

export function acks(checkpoint) {
  if (checkpoint.participants === null) return "–";
  return `${checkpoint.acked?.toLocaleString() ?? "?"} of ${checkpoint.participants.toLocaleString()}`;
}

export function bytes(checkpoint) {
  if (checkpoint.full_bytes === null) return "–";
  return [size(checkpoint.new_bytes), h("span", { class: "dim" }, ` of ${size(checkpoint.full_bytes)}`)];
}

/** Names and values: [["Attempt", "3"], …]; what is null is left out. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", {}, title) : null, children);
}

/** A number that matters, with what it is and what it means. */
export function figure(label, value, note, kind = "") {
  return h("div", { class: `figure ${kind}` }, h("p", { class: "label" }, label), h("p", { class: "value" }, value), h("p", { class: "note" }, note));
}

/** Columns are [heading, class]; rows are arrays of cells, or {cells, attributes}; one cell alone takes the whole row. */
export function table(caption, columns, rows) {
  const head = h("tr", {}, columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)));
  const row = (each) => {
    const { cells, ...attributes } = Array.isArray(each) ? { cells: each } : each;
    const colspan = cells.length === 1 ? columns.length : null;
    return h("tr", attributes, cells.map((cell, index) => h("td", { class: columns[index][1], colspan }, cell)));
  };
  return h(
    "div",
    { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, head), h("tbody", {}, rows.map(row))),
  );
}

export function problem(error) {
  const title = error.status === 404 ? "Nothing here" : error.status === 403 ? "Not allowed" : "That did not work";
  return h("section", { class: "empty", role: "alert" }, h("h1", {}, title), h("p", {}, error.message), h("p", {}, h("a", { href: "#/" }, "All pipelines")));
}

export function empty(title, ...sentences) {
  return h("section", { class: "empty" }, h("h2", {}, title), sentences.map((each) => h("p", {}, each)));
}

export function button(text, onclick, kind = "") {
  return h("button", { type: "button", class: kind, onclick }, text);
}

/** "last in 9 of the last 10", or nothing where it never was. */
export function lateness(often, recent) {
  return often > 0 ? `late in ${often} of the last ${recent}` : "";
}

export function events(list, pipeline, now) {
  const row = (each) => [
    time(each.at, now),
    h("code", {}, each.kind),
    each.attempt ?? "",
    each.checkpoint === null ? "" : link(pipeline, each.checkpoint),
    who(each.actor),
    h("span", { class: "wrap" }, each.reason),
  ];
  const columns = [["When"], ["Event"], ["Attempt", "right"], ["Checkpoint", "right"], ["Who"], ["Why", "wide"]];
  return table("Events, newest first", columns, list.map(row));
}

export function rungText(attempt) {
  if (attempt.planned_at === null) return "not settled yet";
  if (attempt.rung === "fresh") return "from nothing";
  if (attempt.rung === "tip") return `from the tip of attempt ${attempt.parent}: nothing is replayed`;
  return `rewound to checkpoint ${attempt.restored_from}`;
}

/** A person's name as it is; of a task, its Dag: the rest is for those who point at it. */
export function who(actor) {
  const task = /^airflow ([^/]+)\/(.*)$/.exec(actor);
  return h("span", { title: actor }, task ? task[1] : actor);
}
