/**
 * Makes and changes elements. All text goes into text nodes, so no name of a topic can become markup.
 */

import { absolute, ago } from "../format/times.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * Makes an HTML element.
 * @param {string} tag
 * @param {Object<string, *>} [attributes] `on…` are listeners; true is an empty attribute; null and false leave it out;
 *   `value`, `checked`, `disabled` and other properties of forms are given as attributes
 * @param {...(Node|string|number|null|Array)} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Makes an SVG element; arguments as for `h`. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...nodes(children));
  return element;
}

/** Returns the children as `append` takes them: flat, without null and false. */
function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Replaces the children of an element. */
export function replace(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/** Sets a text only if it differs: an unchanged text keeps the selection of the user. */
export function setText(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

/** Sets or removes attributes; null and false remove. */
export function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value === true ? "" : value);
  }
}

/**
 * Makes a relative time with the absolute one as tooltip.
 * @param {?number} ms since 1970
 */
export function timeElement(ms, nowMs = Date.now()) {
  if (ms === null || ms === undefined) return h("span", { class: "quiet" }, "never");
  return h("time", { datetime: new Date(ms).toISOString(), title: absolute(ms) }, ago(ms, nowMs));
}

let lastId = 0;

/** Returns an id that no other element has. */
export function freshId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}
