// What is stored: what each checkpoint holds alone and with others, and what a cleanup would do.

import { unpin } from "../actions.js";
import { get } from "../api.js";
import { lane } from "../charts.js";
import { h } from "../dom.js";
import { count, size } from "../format.js";
import { draw as redraw, look } from "../main.js";
import { badge, button, card, empty, facts, figure, link, marks, table, time } from "../parts.js";

const COLUMNS = [["Checkpoint", "right"], ["Taken"], ["Full", "right"], ["Its own", "right"], ["Shared and its own", "wide"], ["Files", "right"], [""]];
const FATES = [["Checkpoint", "right"], ["Fate"], ["Why", "wide"]];

export function storage({ pipeline }) {
  const state = { plan: null, trouble: null, isWorking: false };
  return {
    load: async () => {
      const [found, { rights }] = await Promise.all([get("pipelines", pipeline, "storage"), get("pipelines", pipeline)]);
      return { ...found, rights };
    },
    draw: (found) => [h("h1", { class: "unseen" }, `Storage of ${pipeline}`), draw(pipeline, found, state)],
    every: () => 15000,
  };
}

function draw(pipeline, found, state) {
  const whole = found.holdings.reduce((sum, each) => sum + each.full_bytes, 0);
  const saved = whole > 0 ? Math.round(100 * (1 - found.bytes / whole)) : 0;
  return [
    h(
      "div",
      { class: "figures" },
      figure("Stored", size(found.bytes), count(found.files, "file")),
      figure("As full copies", size(whole), whole > found.bytes ? `sharing saves ${saved} %` : "nothing is shared"),
      figure("Retained", found.holdings.length.toLocaleString(), found.holdings.length === 1 ? "checkpoint" : "checkpoints"),
      figure("Pins", found.pins.length.toLocaleString(), "cleanup never passes them"),
      figure("Condemned files", found.condemned.toLocaleString(), "wait to be deleted"),
    ),
    card("By checkpoint", found.holdings.length ? table("What each checkpoint holds", COLUMNS, found.holdings.map((each) => row(pipeline, each))) : empty("Nothing is stored", "The first completed checkpoint puts something here.")),
    pins(pipeline, found),
    cleanup(pipeline, found, state),
  ];
}

function row(pipeline, { checkpoint, full_bytes: full, unique_bytes: own, files, problem }) {
  const shared = full > 0 ? (full - own) / full : 0;
  const bar = lane(
    [
      { kind: "shared", from: 0, to: shared, title: `${size(full - own)} shared with others` },
      { kind: "own", from: shared, to: 1, title: `${size(own)} its own: what letting it go would free` },
    ],
    `${size(full - own)} shared, ${size(own)} its own`,
  );
  return {
    "data-key": checkpoint.id,
    cells: [link(pipeline, checkpoint.id), time(checkpoint.triggered_at), size(full), size(own), full ? bar : "", files.toLocaleString(), [marks(checkpoint), problem ? h("span", { class: "trouble" }, problem) : null]],
  };
}

function pins(pipeline, found) {
  if (!found.pins.length) return null;
  const lift = (each) => (found.rights.may_act && !each.owner.startsWith("restore:") ? button("Lift …", () => unpin(pipeline, each, look), "quiet small") : "");
  const rows = found.pins.map((each) => [link(pipeline, each.checkpoint), each.owner, time(each.pinned_at), h("span", { class: "wrap" }, each.reason), lift(each)]);
  return card("Pins", table("Pins", [["Checkpoint", "right"], ["Owner"], ["Since"], ["Reason", "wide"], [""]], rows));
}

function cleanup(pipeline, found, state) {
  const when = found.is_cleanup_paused === null ? "There is no cleanup Dag." : found.is_cleanup_paused ? ["Its Dag is ", badge("warn", "paused"), ": nothing is let go."] : ["It comes at ", time(found.next_cleanup_at), "."];
  const work = async () => {
    Object.assign(state, { isWorking: true, trouble: null });
    redraw();
    try {
      state.plan = await get("pipelines", pipeline, "cleanup");
    } catch (error) {
      state.trouble = error.message;
    }
    state.isWorking = false;
    redraw();
  };
  return card(
    "The next cleanup",
    h("p", {}, when),
    state.plan ? planned(pipeline, state.plan) : null,
    state.trouble ? h("p", { class: "trouble", role: "alert" }, state.trouble) : null,
    h("div", { class: "buttons" }, h("button", { type: "button", class: "quiet", disabled: state.isWorking, onclick: work }, state.isWorking ? "Listing the storage …" : "What would it delete now?")),
  );
}

function planned(pipeline, plan) {
  const fate = (each) => [link(pipeline, each.checkpoint), each.is_kept ? badge("good", "stays") : badge("warn", "would go"), h("span", { class: "wrap" }, each.why)];
  const missing = Object.values(plan.missing).flat();
  return [
    facts([
      ["Would be deleted", `${count(plan.deleted_files, "file")}, ${size(plan.deleted_bytes)}`],
      ["Orphans", plan.quarantined_files ? `${count(plan.quarantined_files, "file")} that nobody can explain: quarantined, then deleted` : "none"],
      ["Missing", missing.length ? h("span", { class: "trouble" }, missing.join(" ")) : "nothing"],
    ]),
    table("The fate of each checkpoint", FATES, plan.fates.map(fate)),
    plan.deleted.length || plan.quarantined_files ? h("details", {}, h("summary", {}, "Files"), h("ul", { class: "files" }, [...plan.deleted, ...Object.keys(plan.quarantined)].map((path) => h("li", {}, h("code", {}, path))))) : null,
  ];
}
