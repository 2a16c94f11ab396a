// Charts, drawn as SVG: a line over checkpoints with failures and restores marked, small bars, a curve of acks.

import { h, s } from "./dom.js";

const HEIGHT = 190;
const EDGE = { left: 64, right: 12, top: 14, bottom: 26 };

/** Round steps for an axis: at most `most` of them from 0 to beyond `top`. */
export function ticks(top, most = 4, steps = [1, 2, 2.5, 5, 10]) {
  if (!(top > 0)) return [0, 1];
  const rough = top / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = steps.find((each) => each * power >= rough) * power;
  const found = [];
  for (let value = 0; value < top + step * 0.999; value += step) found.push(value);
  return found;
}

/** For sizes: powers of two look round there. */
export function sizeTicks(top) {
  const unit = 1024 ** Math.max(Math.floor(Math.log(Math.max(top, 1)) / Math.log(1024)), 0);
  return ticks(top / unit).map((each) => each * unit);
}

/** For durations: seconds, minutes and hours. */
export function durationTicks(top) {
  const unit = top > 7200 ? 3600 : top > 120 ? 60 : 1;
  return ticks(top / unit).map((each) => each * unit);
}

/**
 * @param options.label what it shows, in words: also for those who can not see it
 * @param options.points [{id, at, title, …}], oldest first
 * @param options.lines [{name, kind, value: point => number | null}]
 * @param options.failures points that failed; options.restores [{at, title}]
 */
export function chart({ label, points, lines, failures = [], restores = [], threshold = null, format, steps = ticks, width, href }) {
  const values = points.flatMap((point) => lines.map((line) => line.value(point))).filter((value) => value !== null);
  const scale = steps(Math.max(...values, threshold ?? 0, 0));
  const top = scale.at(-1);
  const x = (index) => EDGE.left + ((width - EDGE.left - EDGE.right) * (index + 0.5)) / Math.max(points.length, 1);
  const y = (value) => HEIGHT - EDGE.bottom - ((HEIGHT - EDGE.top - EDGE.bottom) * value) / top;
  const place = (at) => x(Math.max(points.findIndex((point) => point.at >= at), 0) - 0.5);
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, h("h3", {}, label), legend(lines, failures, restores, threshold)),
    s(
      "svg",
      { width, height: HEIGHT, role: "img", "aria-label": `${label}, over the last ${points.length} checkpoints` },
      scale.map((value) => axisLine(value, y(value), width, format)),
      restores.map((restore) => restoreMark(place(restore.at), restore)),
      lines.map((line) => drawLine(line, points, x, y)),
      threshold === null ? null : s("line", { class: "threshold", x1: EDGE.left, x2: width - EDGE.right, y1: y(threshold), y2: y(threshold) }),
      points.map((point, index) => hit(point, index, points.length, width, href, failures.includes(point))),
      endLabels(points, x, width),
    ),
  );
}

function axisLine(value, y, width, format) {
  return [
    s("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y }),
    s("text", { class: "tick", x: EDGE.left - 8, y: y + 4, "text-anchor": "end" }, format(value)),
  ];
}

function drawLine(line, points, x, y) {
  const known = points.map((point, index) => [index, line.value(point)]).filter(([, value]) => value !== null);
  if (!known.length) return null;
  const path = known.map(([index, value], turn) => `${turn ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const area = `${path}L${x(known.at(-1)[0]).toFixed(1)} ${y(0)}L${x(known[0][0]).toFixed(1)} ${y(0)}Z`;
  const dots = known.length <= 60 ? known.map(([index, value]) => s("circle", { class: `dot ${line.kind}`, cx: x(index), cy: y(value), r: 2.2 })) : null;
  return [s("path", { class: `area ${line.kind}`, d: area }), s("path", { class: `line ${line.kind}`, d: path }), dots];
}

function restoreMark(x, restore) {
  return s("g", { class: "restore" }, s("title", {}, restore.title), s("line", { x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }), s("path", { d: `M${x - 5} ${EDGE.top - 8}h10l-5 8z` }));
}

/** The whole height above a checkpoint can be pointed at and clicked. */
function hit(point, index, total, width, href, hasFailed) {
  const step = (width - EDGE.left - EDGE.right) / total;
  const x = EDGE.left + step * index;
  const mark = hasFailed ? s("rect", { class: "failure", x: x + step / 2 - Math.min(step, 6) / 2, y: HEIGHT - EDGE.bottom - 10, width: Math.min(step, 6), height: 10 }) : null;
  const target = s("rect", { class: "hit", x, y: EDGE.top, width: step, height: HEIGHT - EDGE.top - EDGE.bottom });
  return s("a", { href: href(point), tabindex: "-1", "aria-label": point.title }, s("title", {}, point.title), target, mark);
}

function endLabels(points, x, width) {
  if (!points.length) return null;
  const label = (at, anchor, text) => s("text", { class: "tick", x: at, y: HEIGHT - 8, "text-anchor": anchor }, text);
  return [label(EDGE.left, "start", `checkpoint ${points[0].id}`), points.length > 1 ? label(width - EDGE.right, "end", points.at(-1).id) : null];
}

function legend(lines, failures, restores, threshold) {
  const key = (kind, text) => h("span", { class: `key ${kind}` }, text);
  return h(
    "p",
    { class: "legend" },
    lines.length > 1 ? lines.map((line) => key(line.kind, line.name)) : null,
    failures.length ? key("failure", `${failures.length} failed`) : null,
    restores.length ? key("restored", `${restores.length} restored`) : null,
    threshold === null ? null : key("objective", "objective"),
  );
}

/** The last checkpoints as small bars: their height is how long each took, red are those that failed. */
export function spark(points) {
  const width = 5;
  const most = Math.max(...points.map((point) => (point.phase === "FAILED" ? 0 : point.duration_seconds ?? 0)), 0.001);
  const bar = (point, index) => {
    const kind = point.phase === "FAILED" ? "bad" : point.duration_seconds === null ? "busy" : "good";
    const height = kind === "good" ? Math.max(2, 22 * (point.duration_seconds / most)) : 22;
    return s("rect", { class: kind, x: index * width, y: 24 - height, width: width - 1.5, height, rx: 1 });
  };
  const failed = points.filter((point) => point.phase === "FAILED").length;
  const label = `the last ${points.length} checkpoints: ${failed} failed`;
  return s("svg", { class: "spark", width: Math.max(points.length * width, 1), height: 24, role: "img", "aria-label": label }, points.map(bar));
}

/** How many had acknowledged by when. */
export function ackCurve({ arrivals, expected, until, width }) {
  const height = 74;
  const right = Math.max(until, arrivals.at(-1)?.after_seconds ?? 0, 0.001);
  const x = (seconds) => (width * seconds) / right;
  const y = (acked) => height - 2 - ((height - 6) * acked) / Math.max(expected, 1);
  let path = `M0 ${y(0)}`;
  let last = 0;
  for (const { after_seconds: seconds, acked } of arrivals) {
    path += `L${x(seconds).toFixed(1)} ${y(last).toFixed(1)}L${x(seconds).toFixed(1)} ${y(acked).toFixed(1)}`;
    last = acked;
  }
  path += `L${width} ${y(last).toFixed(1)}`;
  const label = `${last} of ${expected} have acknowledged`;
  return s(
    "svg",
    { class: "curve", width, height, role: "img", "aria-label": label },
    s("line", { class: "grid", x1: 0, x2: width, y1: y(expected), y2: y(expected) }),
    s("path", { class: "area first", d: `${path}L${width} ${height}L0 ${height}Z` }),
    s("path", { class: "line first", d: path }),
  );
}

/** A bar of segments from 0 to 1 of the width: [{kind, from, to, title}]. */
export function lane(segments, label) {
  const percent = (value) => `${(Math.min(Math.max(value, 0), 1) * 100).toFixed(2)}%`;
  return s(
    "svg",
    { class: "lane", role: "img", "aria-label": label },
    segments.map(({ kind, from, to, title }) =>
      s("rect", { class: kind, x: percent(from), y: 3, width: percent(Math.max(to - from, 0.004)), height: 12, rx: 2 }, s("title", {}, title)),
    ),
  );
}
