// Talking to the API. Addresses are relative to the page, so it works wherever Airflow is served.

export class Problem extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** get("pipelines", "orders", "checkpoints", {limit: 25}): path segments are escaped, nothing else is needed. */
export function get(...place) {
  return ask("GET", place);
}

export function post(body, ...place) {
  return ask("POST", place, body);
}

async function ask(method, place, body) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json", "X-Ckpt-Action": "page" };
  const answer = await fetch(address(place), {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    credentials: "same-origin",
  }).catch(() => {
    throw new Problem(0, "Airflow does not answer. The page tries again by itself.");
  });
  const said = await answer.json().catch(() => null);
  if (!answer.ok) throw new Problem(answer.status, explain(answer.status, said));
  return said;
}

function address(place) {
  const segments = place.filter((each) => typeof each !== "object").map((each) => encodeURIComponent(each));
  const url = new URL(`api/${segments.join("/")}`, document.baseURI);
  url.hash = "";
  url.search = "";
  const query = place.find((each) => typeof each === "object") ?? {};
  for (const [name, value] of Object.entries(query)) {
    for (const each of [value].flat()) if (each !== null && each !== undefined && each !== "") url.searchParams.append(name, each);
  }
  return url;
}

function explain(status, said) {
  if (status === 401) return "You are not logged in any more. Load the page again.";
  const detail = said?.detail;
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) return detail.map((each) => `${each.loc?.slice(1).join(".")}: ${each.msg}`).join("; ");
  return `Airflow answered with status ${status}.`;
}
