// Creates and changes elements. The output of runs is inserted as text, never as markup.

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

/** Returns an HTML element with attributes, `on...` listeners and children. */
export const h = (tag, properties = {}, ...children) => put(document.createElement(tag), properties, children);

/** Returns an SVG element with attributes and children. */
export const s = (tag, properties = {}, ...children) => put(document.createElementNS(SVG, tag), properties, children);

/** Sets the text of an element if the text has changed. Otherwise selections would be lost. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Announces a text to screen readers. */
export const announce = (text) => write(document.getElementById("announcement"), text);

/** Returns a link to the list of trainings. */
export const toList = () => h("a", { class: "small back", href: location.pathname }, "All trainings");
