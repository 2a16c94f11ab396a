// What the pipeline's owner has set, and which Dags look after it.

import { get } from "../api.js";
import { h } from "../dom.js";
import { leave } from "../outside.js";
import { badge, button, card, facts, table, time } from "../parts.js";

const MEANINGS = {
  interval: "at least this long from one trigger to the next",
  min_pause: "at least this long from an end to the next trigger",
  timeout: "from the trigger to the last acknowledgement",
  tolerable_failures: "so many failed in a row make the pipeline unhealthy",
  recovery_point: "how old the newest completed checkpoint may be",
  max_duration: "how long a checkpoint may take",
  recovery_time: "how long it may be down before people are told",
  remind_every: "people are told again of what lasts",
  attempt_ttl: "a heartbeat older than this is silence",
  claim_timeout: "from a submission until its driver has claimed the attempt",
  lease_ttl: "of cleanups and restores, renewed while they work",
  max_deferral: "how long cleanup and triggering may put each other off",
  orphan_grace: "after a checkpoint ended, before its stray files count as orphans",
  quarantine: "between finding an unexplained file and deleting it",
  keep_events: "how long events, and failed and discarded checkpoints, are shown",
  keep_audit: "how long it is known what a person did",
  restart: "when and how often a failed attempt is followed by another",
};

export function settings({ pipeline }) {
  return {
    load: () => get("pipelines", pipeline, "settings"),
    draw: (found) => [h("h1", { class: "unseen" }, `Settings of ${pipeline}`), draw(pipeline, found)],
    every: () => null,
  };
}

function draw(pipeline, found) {
  const { retention, objectives, ...plain } = found.settings;
  const rows = Object.entries({ ...plain, ...objectives }).map(([name, value]) => [h("code", {}, name), h("b", {}, value === null ? "none" : String(value)), h("span", { class: "wrap dim" }, MEANINGS[name] ?? "")]);
  const kept = Object.entries(retention).filter(([, value]) => value !== null && value !== 0);
  return [
    card("Settings", table("Settings", [["Setting"], ["Value"], ["What it is", "wide"]], rows), h("p", { class: "dim" }, "They come from the Dag file; from a shell: ", h("code", {}, `airflow ckpt pipelines ${pipeline} --set timeout=15m`))),
    card("Retention", facts(kept.map(([name, value]) => [name.replace("_", " "), String(value)]))),
    card("Queries", found.graph.length ? table("Queries", [["Query"], ["Reads"], ["Writes"]], found.graph.map((each) => [h("b", {}, each.name), each.reads.join(", ") || "–", each.writes.join(", ") || "–"])) : h("p", {}, "No attempt has declared its queries yet.")),
    card("Dags", dags(found.dags), facts([["Desired state", found.desired_state], ["Created", time(found.created_at)], ["Storage", found.storage], ["Metastore", found.metastore]])),
  ];
}

function dags(list) {
  if (!list.length) return h("p", {}, "Airflow has none of its Dags.");
  const row = (each) => [button(each.dag_id, () => leave(`dags/${encodeURIComponent(each.dag_id)}`), "plainlink"), each.is_paused ? badge("warn", "paused") : badge("good", "active"), time(each.next_run_at)];
  return table("Dags", [["Dag"], ["State"], ["Next run"]], list.map(row));
}
