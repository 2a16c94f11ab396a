// Every checkpoint, newest first, a page at a time.

import { get } from "../api.js";
import { h } from "../dom.js";
import { duration } from "../format.js";
import { acks, bytes, empty, isFlying, link, marks, phase, table, time, who } from "../parts.js";

const COLUMNS = [["Id", "right"], ["Phase"], ["Triggered"], ["Took", "right"], ["Acks", "right"], ["New of full", "right"], ["Attempt", "right"], ["Asked by"], ["", "wide"]];
const PHASES = [["", "All phases"], ["COMPLETED", "Completed"], ["FAILED", "Failed"], ["DISCARDED", "Let go"]];
const KINDS = [["", "Checkpoints and savepoints"], ["checkpoint", "Checkpoints"], ["savepoint", "Savepoints"]];

export function history({ pipeline, options }) {
  const query = Object.fromEntries(["before", "phase", "kind", "attempt"].map((name) => [name, options.get(name)]));
  return {
    load: () => get("pipelines", pipeline, "checkpoints", { ...query, limit: 25 }),
    draw: (found) => [h("h1", { class: "unseen" }, `History of ${pipeline}`), filters(pipeline, query), list(pipeline, found, query), pages(pipeline, found, query)],
    every: () => (query.before ? null : 3000),
  };
}

function address(pipeline, query) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  return `#/${pipeline}/history?${search}`;
}

function filters(pipeline, query) {
  const go = (name) => (event) => window.location.assign(address(pipeline, { ...query, before: null, [name]: event.target.value }));
  const choice = (label, name, choices) =>
    h("label", {}, h("span", { class: "unseen" }, label), h("select", { onchange: go(name) }, choices.map(([value, text]) => h("option", { value, selected: (query[name] ?? "") === value }, text))));
  const attempt = h("label", {}, h("span", {}, "Attempt"), h("input", { type: "number", min: 1, value: query.attempt ?? "", placeholder: "any", onchange: go("attempt") }));
  return h("form", { class: "filters", "aria-label": "Filters", onsubmit: (event) => event.preventDefault() }, choice("Phase", "phase", PHASES), choice("Kind", "kind", KINDS), attempt);
}

function list(pipeline, found, query) {
  if (found.checkpoints.length) return table(`Checkpoints of ${pipeline}, newest first`, COLUMNS, found.checkpoints.map((each) => row(pipeline, each)));
  const isFiltered = Object.values(query).some(Boolean);
  return isFiltered
    ? empty("None of these", ["Nothing in the history fits. ", h("a", { href: `#/${pipeline}/history` }, "Show all")])
    : empty("No checkpoint yet", ["The overview says how to get the first one. ", h("a", { href: `#/${pipeline}` }, "Overview")]);
}

function row(pipeline, each) {
  const running = (Date.now() - Date.parse(each.triggered_at)) / 1000;
  const why = each.failure_reason ? h("span", { class: "trouble" }, `${each.failure_reason}: ${each.failure_message}`) : each.reason ? h("span", { class: "dim" }, each.reason) : null;
  return {
    "data-key": each.id,
    cells: [
      link(pipeline, each.id),
      phase(each),
      time(each.triggered_at),
      isFlying(each) ? h("span", { class: "dim" }, `${duration(Math.max(running, 0))} so far`) : duration(each.duration_seconds),
      acks(each),
      bytes(each),
      each.attempt,
      who(each.requested_by),
      [marks(each), " ", why],
    ],
  };
}

function pages(pipeline, found, query) {
  const older = found.next_before ? h("a", { href: address(pipeline, { ...query, before: found.next_before }), rel: "next" }, "Older →") : null;
  const newest = query.before ? h("a", { href: address(pipeline, { ...query, before: null }) }, "← Newest") : null;
  return newest || older ? h("nav", { class: "pages", "aria-label": "Pages" }, newest ?? h("span"), older) : null;
}
