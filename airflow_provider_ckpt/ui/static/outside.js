// The Airflow UI around the page: its address shows where we are, and links lead out of the frame.

const ROUTE = "/plugin/checkpoints/";

/** Let the address bar of Airflow's UI name the place that is shown, so that it can be sent to somebody. */
export function shareAddress() {
  try {
    const { pathname } = window.parent.location;
    const end = pathname.indexOf(ROUTE);
    const isBare = pathname.endsWith(ROUTE.slice(0, -1));
    if (window.parent === window || (end < 0 && !isBare)) return;
    const base = isBare ? pathname : pathname.slice(0, end + ROUTE.length - 1);
    const here = `${window.location.pathname}${window.location.search}${window.location.hash}`;
    window.parent.history.replaceState(window.parent.history.state, "", `${base}${here}`);
  } catch {
    // not inside Airflow, or not allowed to look
  }
}

/** Go to a page of Airflow's own, as "dags/orders__restore/runs/…": the frame may not navigate what is around it. */
export function leave(path) {
  const root = window.location.pathname.replace(/\/ckpt\/$/, "");
  const address = `${root}/${path}`;
  if (window.parent === window) {
    window.location.assign(address);
    return;
  }
  window.parent.history.pushState({}, "", address);
  window.parent.dispatchEvent(new PopStateEvent("popstate", { state: {} }));
}
