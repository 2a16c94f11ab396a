// The page: finds the view for the address, shows it, and keeps it up to date while somebody looks.

import { Problem, get } from "./api.js";
import { h, update } from "./dom.js";
import { shareAddress } from "./outside.js";
import { problem } from "./parts.js";
import { followTheme } from "./theme.js";
import { attempts } from "./views/attempts.js";
import { checkpoint } from "./views/checkpoint.js";
import { history } from "./views/history.js";
import { overview } from "./views/overview.js";
import { pipelines } from "./views/pipelines.js";
import { settings } from "./views/settings.js";
import { storage } from "./views/storage.js";
import { trends } from "./views/trends.js";
import { closeAction } from "./actions.js";

const TABS = { overview, history, trends, attempts, storage, settings };
const TITLES = {
  overview: "Overview",
  history: "History",
  trends: "Trends",
  attempts: "Attempts and restores",
  storage: "Storage",
  settings: "Settings",
};
const top = document.getElementById("top");
const content = document.getElementById("content");
let turn = 0; // of the view that is shown: answers to earlier ones are dropped
let shown = null;
let timer = null;

/** `#/orders/history?phase=FAILED` as its parts. */
function whereAreWe() {
  const [path, search] = window.location.hash.replace(/^#\/?/, "").split("?");
  const [pipeline, tab, id] = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { pipeline, tab: tab ?? "overview", id, options: new URLSearchParams(search ?? "") };
}

function viewOf(place) {
  if (!place.pipeline) return pipelines(place);
  if (place.tab === "checkpoints" && place.id) return checkpoint(place);
  return (TABS[place.tab] ?? overview)(place);
}

async function show() {
  const place = whereAreWe();
  const mine = (turn += 1);
  closeAction();
  shown = { place, view: viewOf(place), mine };
  update(top, h("header", {}, crumbs(place), tabs(place)));
  content.setAttribute("aria-busy", "true");
  shareAddress();
  document.title = [place.id, place.pipeline, "Checkpoints"].filter(Boolean).join(" · ");
  await look();
}

/** Load what the view needs and draw it; again after a while, or when a hidden page is seen again. */
export async function look() {
  const { view, mine } = shown;
  clearTimeout(timer);
  try {
    const found = await view.load();
    if (mine !== turn) return;
    view.found = found;
    draw();
  } catch (error) {
    if (mine !== turn) return;
    if (!(error instanceof Problem)) throw error;
    if (view.found === undefined || error.status !== 0) update(content, h("main", {}, problem(error)));
  } finally {
    if (mine === turn) {
      content.removeAttribute("aria-busy");
      const pause = view.every(view.found); // null: it does not change any more
      if (pause) timer = setTimeout(() => document.hidden || look(), pause);
    }
  }
}

export function draw() {
  const { view } = shown;
  if (view.found !== undefined) update(content, h("main", {}, view.draw(view.found)));
}

function crumbs({ pipeline, tab, id }) {
  if (!pipeline) return null;
  const steps = [h("li", {}, h("a", { href: "#/" }, "Checkpoints"))];
  steps.push(h("li", {}, h("a", { href: `#/${pipeline}` }, pipeline)));
  if (tab === "checkpoints" && id) steps.push(h("li", {}, h("span", { "aria-current": "page" }, id)));
  return h("nav", { "aria-label": "Where you are" }, h("ol", { class: "crumbs" }, steps));
}

function tabs({ pipeline, tab }) {
  if (!pipeline) return null;
  const isCurrent = (name) => name === tab || (name === "history" && tab === "checkpoints");
  const link = ([name, title]) =>
    h("a", { href: `#/${pipeline}${name === "overview" ? "" : `/${name}`}`, "aria-current": isCurrent(name) ? "page" : null }, title);
  return h("nav", { class: "tabs", "aria-label": "About this pipeline" }, Object.entries(TITLES).map(link));
}

/** The tab of a Dag or of a run says which; that leads to a pipeline, or to one friendly sentence. */
async function enter() {
  const asked = new URLSearchParams(window.location.search);
  if (!asked.has("dag_id") || window.location.hash) return show();
  const dag = asked.get("dag_id");
  try {
    const found = await get("where", { dag_id: dag, run_id: asked.get("run_id") });
    if (found.pipeline) {
      const inside = found.checkpoint ? `/checkpoints/${found.checkpoint}` : found.attempt ? "/attempts" : "";
      window.location.replace(`#/${found.pipeline}${inside}`);
      return show();
    }
    update(content, h("main", {}, stranger(dag)));
  } catch (error) {
    update(content, h("main", {}, problem(error)));
  }
}

function stranger(dag) {
  return h(
    "section",
    { class: "empty" },
    h("h1", {}, "No pipeline here"),
    h("p", {}, "The Dag ", h("b", {}, dag), " does not look after a checkpointed pipeline, so there is nothing to show. "),
    h("p", {}, h("a", { href: "#/" }, "All pipelines that have checkpoints")),
  );
}

window.addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => document.hidden || (shown && look()));
new ResizeObserver(() => shown && draw()).observe(document.documentElement);
followTheme(() => shown && draw());
enter();
