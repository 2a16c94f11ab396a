// How long checkpoints took, how large they were, how old the newest became.

import { get } from "../api.js";
import { chart, durationTicks, sizeTicks } from "../charts.js";
import { h } from "../dom.js";
import { duration, fullMoment, size } from "../format.js";
import { card, empty, table } from "../parts.js";

const WINDOWS = [50, 200, 500, 2000];
const COLUMNS = [[""], ["Least", "right"], ["Average", "right"], ["p50", "right"], ["p90", "right"], ["p95", "right"], ["p99", "right"], ["Most", "right"]];

export function trends({ pipeline, options }) {
  const last = Number(options.get("last")) || 200;
  return {
    load: () => get("pipelines", pipeline, "trends", { last }),
    draw: (found) => [h("h1", { class: "unseen" }, `Trends of ${pipeline}`), windows(pipeline, last), found.points.length ? draw(pipeline, found) : empty("Nothing to draw yet", "Trends begin with the first checkpoint.")],
    every: () => 10000,
  };
}

function windows(pipeline, last) {
  const link = (count) => h("a", { href: `#/${pipeline}/trends?last=${count}`, "aria-current": count === last ? "true" : null }, `last ${count.toLocaleString()}`);
  return h("nav", { class: "choices", "aria-label": "How many checkpoints" }, WINDOWS.map(link));
}

function draw(pipeline, found) {
  const width = Math.max(document.getElementById("content").clientWidth - 36, 320);
  const points = found.points.map((point) => ({ ...point, at: point.triggered_at, title: titleOf(point) }));
  const common = {
    points,
    width,
    failures: points.filter((point) => point.phase === "FAILED"),
    restores: found.restores.map((each) => ({ at: each.at, title: `Attempt ${each.attempt} began ${each.restored_from ? `from checkpoint ${each.restored_from}` : `from the ${each.rung}`}` })),
    href: (point) => `#/${pipeline}/checkpoints/${point.id}`,
  };
  const took = { name: "took", kind: "first", value: (point) => (point.phase === "FAILED" ? null : point.duration_seconds) };
  const age = { name: "age", kind: "first", value: (point) => point.age_seconds };
  const sizes = [
    { name: "full", kind: "second", value: (point) => point.full_bytes },
    { name: "new", kind: "first", value: (point) => point.new_bytes },
  ];
  return [
    card(null, chart({ ...common, label: "How long they took", lines: [took], format: duration, steps: durationTicks })),
    card(null, chart({ ...common, label: "How large they were", lines: sizes, format: size, steps: sizeTicks })),
    card(null, chart({ ...common, label: "How old the newest became before the next was there", lines: [age], format: duration, steps: durationTicks, threshold: found.recovery_point_seconds })),
    card("Percentiles, without the failed ones", percentiles(found)),
  ];
}

function titleOf(point) {
  const became = point.failure_reason ?? (point.duration_seconds === null ? "in flight" : `${duration(point.duration_seconds)}, ${size(point.new_bytes)} new of ${size(point.full_bytes)}`);
  return `Checkpoint ${point.id}: ${became}\n${fullMoment(point.triggered_at)}`;
}

function percentiles(found) {
  const rows = [
    ["Took", found.duration_seconds, duration],
    ["New", found.new_bytes, (value) => size(Math.round(value))],
    ["Full", found.full_bytes, (value) => size(Math.round(value))],
    ["Age", found.age_seconds, duration],
  ];
  const cells = ([name, values, format]) => [h("b", {}, name), ...["least", "average", "p50", "p90", "p95", "p99", "most"].map((each) => (values ? format(values[each]) : "–"))];
  return table("Percentiles", COLUMNS, rows.map(cells));
}
