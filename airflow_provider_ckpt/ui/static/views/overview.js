// One pipeline at a glance: is it well, what happened last, what would a failure now cost.

import { takeCheckpoint, takeSavepoint } from "../actions.js";
import { get } from "../api.js";
import { spark } from "../charts.js";
import { h } from "../dom.js";
import { duration, size } from "../format.js";
import { acks, attemptStatus, badge, button, card, empty, facts, figure, isFlying, lateness, link, marks, phase, rungText, time } from "../parts.js";
import { look } from "../main.js";
import { health } from "./pipelines.js";

export function overview({ pipeline }) {
  return {
    load: async () => {
      const found = await get("pipelines", pipeline);
      const flying = found.pipeline.in_flight;
      return { ...found, flying: flying ? await get("pipelines", pipeline, "checkpoints", flying.id) : null };
    },
    draw: (found) => draw(pipeline, found),
    every: (found) => (found?.flying ? 1500 : 4000),
  };
}

function draw(name, found) {
  const { pipeline } = found;
  return [
    h("div", { class: "title" }, h("h1", {}, name), h("div", { class: "badges" }, health({ ...pipeline, problems: [""] })), actions(name, found)),
    problems(pipeline, found),
    found.flying ? flying(name, found.flying) : null,
    found.counts.total === 0 ? first(name, found) : figures(found),
    found.counts.total === 0 ? null : h("div", { class: "columns" }, latest(name, found), cost(found)),
    h("div", { class: "flat card" }, h("h2", {}, "Running now"), current(name, found)),
  ];
}

function actions(name, { rights }) {
  if (!rights.may_act) return null;
  return h("div", { class: "buttons" }, button("Take a checkpoint", () => takeCheckpoint(name, look)), button("Savepoint …", () => takeSavepoint(name, look), "quiet"));
}

function problems(pipeline, found) {
  const asleep = found.dags.filter((dag) => dag.is_paused).map((dag) => dag.dag_id);
  const paused = asleep.length ? [`${asleep.length === 1 ? "A Dag is" : "Dags are"} paused: ${asleep.join(", ")}.`] : [];
  const stale = pipeline.is_stale ? [pipeline.newest ? `The newest checkpoint is ${duration(pipeline.age_seconds)} old, its objective is ${duration(pipeline.recovery_point_seconds)}.` : "There is no checkpoint yet, and the objective asks for one."] : [];
  const deferred = found.deferred_since ? ["Triggers have been put off for a cleanup."] : [];
  const all = [...pipeline.problems.map(sentence), ...stale, ...paused, ...deferred];
  return all.length ? h("ul", { class: "alerts", role: "alert" }, all.map((each) => h("li", {}, each))) : null;
}

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
}

function flying(name, { checkpoint, waits_for: late, recent }) {
  const share = checkpoint.participants ? checkpoint.acked / checkpoint.participants : 0;
  const who = late[0];
  return h(
    "section",
    { class: "card flying", "aria-label": "In flight" },
    h("h2", {}, link(name, checkpoint.id, `${checkpoint.kind === "savepoint" ? "Savepoint" : "Checkpoint"} ${checkpoint.id}`), " ", phase(checkpoint)),
    h("progress", { max: 1, value: share, "aria-label": "acknowledged" }),
    h("p", {}, `${acks(checkpoint)} have acknowledged.`, who ? [" Waiting for ", h("b", { class: "trouble" }, who.name), who.host ? ` on ${who.host}` : "", ` for ${duration(who.for_seconds)}`, lateness(who.late_before, recent) ? `, ${lateness(who.late_before, recent)}` : "", "."] : null),
  );
}

function figures({ pipeline, counts }) {
  const { newest } = pipeline;
  const objective = pipeline.recovery_point_seconds;
  return h(
    "div",
    { class: "figures" },
    figure("Age of the newest", newest ? duration(pipeline.age_seconds) : "none", objective === null ? "no objective is set" : `objective ${duration(objective)}`, pipeline.is_stale ? "bad" : ""),
    figure("It took", duration(newest?.duration_seconds), newest ? `${acks(newest)} acknowledged` : ""),
    figure("Its size", newest ? size(newest.full_bytes) : "–", newest ? `${size(newest.new_bytes)} of it was new` : ""),
    figure("Completed", counts.completed.toLocaleString(), `of the last ${counts.total.toLocaleString()}`),
    figure("Failed", counts.failed.toLocaleString(), pipeline.failures_in_a_row ? `${pipeline.failures_in_a_row} in a row now` : "none in a row now", pipeline.failures_in_a_row ? "bad" : ""),
    h("div", { class: "figure" }, h("p", { class: "label" }, "The last 30"), spark(pipeline.recent)),
  );
}

function latest(name, found) {
  const { pipeline, latest_failed: failed, latest_savepoint: savepoint, latest_restore: restore } = found;
  const line = (each) => [link(name, each.id), " ", time(each.triggered_at, found.now), " ", isFlying(each) ? phase(each) : null, marks(each)];
  return card(
    "Latest",
    facts([
      ["Completed", pipeline.newest ? line(pipeline.newest) : "none"],
      ["Failed", failed ? [line(failed), h("p", { class: "why" }, `${failed.failure_reason}: ${failed.failure_message}`)] : "none"],
      ["Savepoint", savepoint ? line(savepoint) : "none"],
      ["Restore", restore ? [h("a", { href: `#/${name}/attempts` }, `attempt ${restore.number}`), " ", time(restore.planned_at, found.now), h("p", { class: "why" }, rungText(restore))] : "none"],
    ]),
  );
}

function cost({ forecast, pipeline }) {
  const replay = forecast.replay_seconds === null ? "Everything: there is no checkpoint to start from." : `Nothing from the tip; where that is lost, ${duration(forecast.replay_seconds)} of input since checkpoint ${pipeline.newest?.id}.`;
  const recovery = forecast.recovery_seconds === null ? "Not known: it was never recovered." : `${duration(forecast.recovery_seconds)}, ${forecast.recoveries === 1 ? "as the one time before" : `the median of the last ${forecast.recoveries} times`}.`;
  return card("If it failed now", facts([["Replayed", replay], ["Back after", recovery]]));
}

function current(name, found) {
  const attempt = found.current_attempt;
  const leases = found.leases.map((lease) => h("p", {}, badge("busy", lease.kind), ` by ${lease.owner} until `, time(lease.expires_at, found.now)));
  if (!attempt) return h("p", {}, "No attempt was ever started. The restore Dag starts the first one.");
  return [
    facts([
      ["Attempt", [h("a", { href: `#/${name}/attempts` }, String(attempt.number)), " ", attemptStatus(attempt.status)]],
      ["Start", rungText(attempt)],
      ["Application", attempt.application_id],
      ["Host", attempt.host],
      ["Since", time(attempt.claimed_at ?? attempt.numbered_at, found.now)],
      ["Heartbeat", attempt.status === "running" ? `${duration((Date.parse(found.now) - Date.parse(attempt.heartbeat_at)) / 1000)} ago` : time(attempt.heartbeat_at, found.now)],
      ["Next checkpoint", found.pipeline.is_paused === null ? "no checkpoint Dag" : found.pipeline.is_paused ? badge("warn", "Dag is paused") : time(found.pipeline.next_run_at, found.now)],
    ]),
    leases,
  ];
}

function first(name, { pipeline, dags, rights }) {
  const runs = pipeline.attempt_status === "running";
  return empty(
    "No checkpoint yet",
    runs ? "The pipeline runs, and its first checkpoint comes with the next run of its checkpoint Dag." : "The pipeline is not running. Its first checkpoint comes soon after its first attempt has started.",
    dags.length ? `Unpause all of its Dags (${dags.map((dag) => dag.dag_id).join(", ")}): the sla Dag starts what is missing.` : ["Airflow has none of its Dags. Declare them with ", h("code", {}, `checkpoint_dags("${name}", …)`), "."],
    rights.may_act && runs ? button("Take the first one now", () => takeCheckpoint(name, look)) : ["Or from a shell: ", h("code", {}, `airflow ckpt trigger ${name}`)],
  );
}
