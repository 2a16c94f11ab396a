// Making elements, and bringing a tree that is shown up to date without losing focus, scroll or what is typed.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onsubmit", "oninput", "onchange", "onkeydown"];

/** An element: h("a", {href: "#/", class: "quiet"}, "All pipelines"). Texts are texts: nothing is ever parsed as HTML. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Let `shown` have the children that `wanted` has. What is the same stays the same element. */
export function update(shown, wanted) {
  const there = [...shown.childNodes];
  const coming = [...wanted.childNodes];
  coming.forEach((node, index) => {
    const old = there[index];
    if (old === undefined) shown.append(node);
    else if (isAlike(old, node)) refresh(old, node);
    else old.replaceWith(node);
  });
  there.slice(coming.length).forEach((node) => node.remove());
}

function isAlike(old, node) {
  return old.nodeName === node.nodeName && old.nodeType === node.nodeType && keyOf(old) === keyOf(node);
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
}

function refresh(old, node) {
  if (node.nodeType === Node.TEXT_NODE) {
    if (old.data !== node.data) old.data = node.data;
    return;
  }
  const kept = old.nodeName === "DETAILS" ? ["open"] : []; // a person opened it
  for (const { name } of [...old.attributes]) if (!node.hasAttribute(name) && !kept.includes(name)) old.removeAttribute(name);
  for (const { name, value } of [...node.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of HANDLERS) old[name] = node[name] ?? null;
  if (!(old instanceof HTMLInputElement || old instanceof HTMLSelectElement)) update(old, node);
}
