// Attempts and restores: why each ended, where the next began, how long the pipeline was away.

import { get } from "../api.js";
import { lane } from "../charts.js";
import { h } from "../dom.js";
import { between, duration } from "../format.js";
import { attemptStatus, badge, card, empty, events, link, rungText, time } from "../parts.js";

export function attempts({ pipeline, options }) {
  return {
    load: async () => {
      const [found, log] = await Promise.all([
        get("pipelines", pipeline, "attempts", { before: options.get("before") }),
        get("pipelines", pipeline, "events", { before: options.get("events"), limit: 50 }),
      ]);
      return { ...found, log };
    },
    draw: (found) => [h("h1", { class: "unseen" }, `Attempts and restores of ${pipeline}`), draw(pipeline, found)],
    every: () => 3000,
  };
}

function draw(pipeline, found) {
  const list = found.attempts.length
    ? h("ol", { class: "timeline" }, found.attempts.map((each, index) => attempt(pipeline, each, found.attempts[index + 1], found.now)))
    : empty("No attempt yet", "The restore Dag starts the first one, as soon as all Dags of the pipeline are unpaused.");
  const older = found.next_before ? h("p", {}, h("a", { href: `#/${pipeline}/attempts?before=${found.next_before}` }, "Older attempts →")) : null;
  const earlier = found.log.next_before ? h("p", {}, h("a", { href: `#/${pipeline}/attempts?events=${found.log.next_before}` }, "Earlier events →")) : null;
  return [card("Attempts, newest first", list, older), card("What happened", events(found.log.events, pipeline, found.now), earlier)];
}

function attempt(pipeline, each, before, now) {
  const ended = each.ended_at ?? now;
  return h(
    "li",
    { "data-key": each.number, class: each.status },
    h("h3", {}, `Attempt ${each.number} `, attemptStatus(each.status), each.down_seconds === null ? null : badge("plain", `away for ${duration(each.down_seconds)}`)),
    h("p", {}, start(pipeline, each), each.accepted.length ? ` Duplicates were accepted in ${each.accepted.join(", ")}.` : ""),
    steps(each, before, now),
    h("p", { class: "dim" }, [each.host, each.application_id].filter(Boolean).join(", "), each.claimed_at ? ` ran for ${duration(between(each.claimed_at, ended))}, since ` : " numbered at ", time(each.claimed_at ?? each.numbered_at, now)),
    each.failure ? h("p", { class: "trouble" }, each.failure) : null,
  );
}

function start(pipeline, each) {
  return each.restored_from === null ? `Started ${rungText(each)}.` : ["Rewound to checkpoint ", link(pipeline, each.restored_from), "."];
}

/** From the end of the one before to the first batch of this one, each step with its share. */
function steps(each, before, now) {
  const down = before ? (before.status === "failed" ? before.ended_at : before.heartbeat_at) : null;
  const moments = [down, each.numbered_at, each.planned_at, each.claimed_at, each.progressed_at];
  const names = ["noticed", "chosen and verified", "driver started", "first batch"];
  const kinds = ["waiting", "delivery", "capture", "copy"];
  const known = moments.map((text) => (text ? Date.parse(text) : null));
  const first = known.find((value) => value !== null);
  const last = Math.max(...known.filter((value) => value !== null), each.status === "running" && !each.progressed_at ? Date.parse(now) : 0);
  if (!(last > first)) return null;
  const segments = names.flatMap((name, index) => {
    const [from, to] = [known[index], known[index + 1]];
    if (from === null || to === null || to < from) return [];
    return [{ kind: kinds[index], from: (from - first) / (last - first), to: (to - first) / (last - first), title: `${name} after ${duration((to - from) / 1000)}`, text: `${name} ${duration((to - from) / 1000)}` }];
  });
  const label = segments.map((segment) => segment.text).join(", ");
  return [lane(segments, label), h("p", { class: "legend" }, segments.map((segment) => h("span", { class: `key ${segment.kind}` }, segment.text)))];
}
