// All pipelines: who is well, how old the newest checkpoint is, what comes next.

import { get } from "../api.js";
import { spark } from "../charts.js";
import { h } from "../dom.js";
import { duration, size } from "../format.js";
import { acks, attemptStatus, badge, empty, link, table, time } from "../parts.js";

const COLUMNS = [["Pipeline"], ["Health"], ["Newest checkpoint", "right"], ["Objective", "right"], ["Took", "right"], ["Size", "right"], ["Last 30"], ["Attempt"], ["Next", "right"]];

export function pipelines({ options }) {
  return {
    load: () => get("pipelines", { after: options.get("after") }),
    draw: (found) => [h("h1", {}, "Checkpoints"), found.pipelines.length ? list(found) : nothing()],
    every: () => 5000,
  };
}

function list(found) {
  const more = found.next_after ? h("p", {}, h("a", { href: `#/?after=${encodeURIComponent(found.next_after)}` }, "More pipelines")) : null;
  return [summary(found.pipelines), table("All pipelines", COLUMNS, found.pipelines.map((each) => row(each, found.now))), more];
}

function summary(all) {
  const ill = all.filter((each) => !each.is_well || each.is_stale);
  if (!ill.length) return h("p", { class: "lead" }, badge("good", "All is well"), ` ${all.length === 1 ? "One pipeline" : `${all.length} pipelines`}.`);
  return h("p", { class: "lead" }, badge("bad", `${ill.length} of ${all.length} need attention`), " ", ill.map((each) => h("a", { class: "named", href: `#/${each.name}` }, each.name)));
}

function row(each, now) {
  const newest = each.newest;
  return {
    "data-key": each.name,
    cells: [
      h("a", { class: "strong", href: `#/${each.name}` }, each.name),
      health(each),
      newest ? [link(each.name, newest.id), h("span", { class: each.is_stale ? "trouble" : "dim" }, ` ${duration(each.age_seconds)} old`)] : h("span", { class: "dim" }, "none yet"),
      each.recovery_point_seconds === null ? h("span", { class: "dim" }, "none") : duration(each.recovery_point_seconds),
      duration(newest?.duration_seconds),
      newest ? size(newest.full_bytes) : "–",
      each.recent.length ? spark(each.recent) : "",
      each.attempt === null ? h("span", { class: "dim" }, "not started") : [`${each.attempt} `, attemptStatus(each.attempt_status)],
      next(each, now),
    ],
  };
}

export function health(each) {
  if (each.desired_state === "stopped") return badge("gone", "Stopped");
  if (!each.is_well) return [badge("bad", "Unwell"), h("span", { class: "wrap trouble" }, ` ${each.problems[0]}`)];
  if (each.is_stale) return [badge("warn", "Stale"), h("span", { class: "wrap" }, each.newest ? " older than its objective" : " no checkpoint yet")];
  return badge("good", "Well");
}

function next(each, now) {
  if (each.in_flight) return [link(each.name, each.in_flight.id, `${each.in_flight.id} runs`), h("span", { class: "dim" }, ` ${acks(each.in_flight)}`)];
  if (each.is_paused === null) return h("span", { class: "dim" }, "no Dag");
  if (each.is_paused) return badge("warn", "Dag is paused");
  return time(each.next_run_at, now);
}

function nothing() {
  return empty(
    "No pipelines yet",
    ["A pipeline appears here with its first Dag run. Declare its Dags in a file of your Dags folder:"],
    h("code", { class: "block" }, 'from airflow_provider_ckpt import checkpoint_dags, every\n\ncheckpoint_dags("orders", application="orders.py", checkpoint=every(minutes=5))'),
    ["Then unpause all five. You see pipelines whose Dags you may read."],
  );
}
