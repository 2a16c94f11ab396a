// What those who may can do. A frame may open no dialogs: every confirmation is a form on the page itself.

import { get, post } from "./api.js";
import { h } from "./dom.js";
import { count, duration } from "./format.js";
import { leave } from "./outside.js";

const place = document.getElementById("action");
const said = document.getElementById("said");
let before = null; // what had the focus

export function closeAction() {
  place.hidden = true;
  place.replaceChildren();
  before?.isConnected && before.focus();
  before = null;
}

/** Say what was done; it goes away by itself. */
export function say(...text) {
  said.replaceChildren(...text);
  clearTimeout(say.timer);
  say.timer = setTimeout(() => said.replaceChildren(), 15000);
}

function open(title, explanation, fields, confirm, act) {
  before = document.activeElement;
  const trouble = h("p", { class: "trouble", role: "alert" });
  const submit = h("button", { type: "submit", class: confirm.kind }, confirm.text);
  const form = h(
    "form",
    {
      class: "card action",
      "aria-labelledby": "action-title",
      onkeydown: (event) => event.key === "Escape" && closeAction(),
      onsubmit: async (event) => {
        event.preventDefault();
        submit.disabled = true;
        trouble.textContent = "";
        try {
          await act(new FormData(form));
        } catch (error) {
          trouble.textContent = error.message;
        } finally {
          submit.disabled = false;
        }
      },
    },
    h("h2", { id: "action-title", tabindex: "-1" }, title),
    explanation,
    fields,
    trouble,
    h("div", { class: "buttons" }, submit, h("button", { type: "button", class: "quiet", onclick: closeAction }, "Cancel")),
  );
  place.replaceChildren(form);
  place.hidden = false;
  (form.querySelector("input, textarea") ?? form.querySelector("h2")).focus();
  place.scrollIntoView({ block: "nearest" });
  return submit;
}

function field(label, name, attributes = {}) {
  return h("label", {}, h("span", {}, label), h("input", { name, autocomplete: "off", ...attributes }));
}

const reason = (attributes) => field("Reason", "reason", { maxlength: 500, placeholder: "for the record", ...attributes });

export function takeCheckpoint(pipeline, after) {
  const explain = h("p", {}, "A checkpoint is taken at once, whatever the interval says. The pipeline goes on meanwhile.");
  open("Take a checkpoint now", explain, [reason()], { text: "Take it" }, async (form) => {
    started(pipeline, await post({ reason: form.get("reason") }, "pipelines", pipeline, "checkpoints"), after);
  });
}

export function takeSavepoint(pipeline, after) {
  const explain = h("p", {}, "A savepoint is complete in itself and is kept until somebody deletes it on purpose.");
  const fields = [
    field("Name", "savepoint", { required: true, maxlength: 100, pattern: "[A-Za-z0-9][A-Za-z0-9_.\\-]*", placeholder: "before-upgrade" }),
    reason(),
  ];
  open("Take a savepoint", explain, fields, { text: "Take the savepoint" }, async (form) => {
    const body = { savepoint: form.get("savepoint"), reason: form.get("reason") };
    started(pipeline, await post(body, "pipelines", pipeline, "checkpoints"), after);
  });
}

function started(pipeline, done, after) {
  if (done.checkpoint === null) throw new Error(`Skipped (${done.skipped}): ${done.detail}.`);
  closeAction();
  say(`Checkpoint ${done.checkpoint} was started. `, h("a", { href: `#/${pipeline}/checkpoints/${done.checkpoint}` }, "Watch it"));
  after();
}

export function pin(pipeline, id, after) {
  const explain = h("p", {}, `Cleanup never passes a pin: checkpoint ${id} stays until the pin is lifted.`);
  open(`Pin checkpoint ${id}`, explain, [reason({ required: true })], { text: "Pin it" }, async (form) => {
    await post({ reason: form.get("reason") }, "pipelines", pipeline, "checkpoints", id, "pin");
    closeAction();
    say(`Checkpoint ${id} is pinned.`);
    after();
  });
}

export function unpin(pipeline, found, after) {
  const explain = h("p", {}, `${found.owner} pinned it: “${found.reason}”. Without a pin, retention decides when it goes.`);
  open(`Lift the pin on checkpoint ${found.checkpoint}`, explain, [], { text: "Lift the pin" }, async () => {
    await post({ owner: found.owner }, "pipelines", pipeline, "checkpoints", found.checkpoint, "unpin");
    closeAction();
    say(`The pin on checkpoint ${found.checkpoint} is lifted.`);
    after();
  });
}

export function abort(pipeline, id, after) {
  const explain = h("p", {}, "This checkpoint fails, as if it had never been triggered. The pipeline goes on; the next one covers the same.");
  open(`Abort checkpoint ${id}`, explain, [reason()], { text: "Abort it", kind: "danger" }, async (form) => {
    await post({ reason: form.get("reason") }, "pipelines", pipeline, "checkpoints", id, "abort");
    closeAction();
    say(`Checkpoint ${id} was aborted.`);
    after();
  });
}

/** The price first; then a person decides. */
export function restore(pipeline, id, after) {
  const price = h("div", { "aria-live": "polite" }, h("p", {}, "Working out what it would cost …"));
  const submit = open(
    `Restore ${pipeline} to checkpoint ${id}`,
    price,
    [reason()],
    { text: "Restore to here", kind: "danger" },
    async (form) => {
      const body = { to: Number(id), accept_duplicates: form.getAll("accept"), reason: form.get("reason") };
      const run = await post(body, "pipelines", pipeline, "restore");
      closeAction();
      const path = `dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.run_id)}`;
      say("The restore has begun. ", h("button", { type: "button", class: "quiet", onclick: () => leave(path) }, `Run of ${run.dag_id}`));
      after();
    },
  );
  submit.disabled = true;
  const work = async () => {
    const accepted = [...place.querySelectorAll("input[name=accept]:checked")].map((each) => each.value);
    const found = await get("pipelines", pipeline, "restore", { to: id, accept_duplicates: accepted });
    submit.disabled = !found.is_possible;
    price.replaceChildren(...priceOf(found, accepted, () => work().catch(fail)));
  };
  const fail = (error) => price.replaceChildren(h("p", { class: "trouble" }, error.message));
  work().catch(fail);
}

function priceOf(found, accepted, again) {
  const lines = found.is_possible
    ? [
        `${duration(found.replay_seconds)} of input is processed again.`,
        found.living_attempt === null ? "No attempt is alive." : `Attempt ${found.living_attempt} is alive: it is fenced and ends.`,
        ...(found.left_behind.length ? [`${count(found.left_behind.length, "newer checkpoint")} (${found.left_behind.slice(0, 5).join(", ")}${found.left_behind.length > 5 ? ", …" : ""}) will be left behind on a branch.`] : []),
        ...found.rolled_back.map((sink) => `Sink ${sink} is rolled back to what it had published then.`),
        ...found.duplicated.map((sink) => `Sink ${sink} may see rows twice: you accepted that.`),
        ...Object.entries(found.passed_over).map(([id, why]) => `Checkpoint ${id} is passed over: ${why}`),
      ]
    : [];
  const refused = found.is_possible ? null : h("p", { class: "trouble" }, found.why_not);
  const choices = found.is_possible && !accepted.length ? [] : found.sinks;
  return [
    found.is_possible ? h("p", {}, h("b", {}, "The price:")) : refused,
    h("ul", {}, lines.map((line) => h("li", {}, line))),
    ...choices.map((sink) =>
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", name: "accept", value: sink, checked: accepted.includes(sink), onchange: again }),
        h("span", {}, `Rows may come twice in ${sink}: I accept that.`),
      ),
    ),
  ];
}
