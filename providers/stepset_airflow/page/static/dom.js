// Elements made and changed. What runs have printed only ever becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function put(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

/** An element of HTML: its attributes, `on...` listeners among them, and its children. */
export const h = (tag, properties = {}, ...children) => put(document.createElement(tag), properties, children);

/** The same for SVG. */
export const s = (tag, properties = {}, ...children) => put(document.createElementNS(SVG, tag), properties, children);

/** Sets a text only if it is another, so that selections and screen readers are left in peace. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Says something to those who listen instead of looking. */
export const say = (text) => write(document.getElementById("said"), text);
