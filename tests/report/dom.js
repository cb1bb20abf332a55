// Just enough of a browser for disk.js: elements with attributes, data, text and children.
// Reads a picture (title, desc, heading, centre, nodes, edges) and what its reader does (`choose` a
// node in the list, or `click` one) as JSON from stdin, runs the script named on the command line,
// and prints what the reader then finds. Used by test_disk_script.py.
"use strict";
const fs = require("fs");
const given = JSON.parse(fs.readFileSync(0, "utf8"));

class Element {
  constructor(data = {}, text = "") {
    Object.assign(this, { dataset: data, textContent: text, attributes: {}, children: [], on: {} });
  }
  setAttribute(name, value) { this.attributes[name] = value; }
  append(...parts) { this.children.push(...parts); }
  replaceChildren(...parts) { this.children = parts; }
  addEventListener(name, action) { this.on[name] = action; }
}
const all = (element) => [element, ...(element.children ?? []).flatMap(all)];

const parts = {
  title: new Element({}, given.title), desc: new Element({}, given.desc), ".labels": new Element(),
};
const lists = {
  ".node": given.nodes.map((data) => new Element(data)),
  ".edge": given.edges.map((data) => new Element(data)),
};
const heading = new Element({}, given.heading);
const svg = new Element({ centre: given.centre });
svg.querySelector = (name) => parts[name];
svg.querySelectorAll = (name) => lists[name];
// A figure's heading is h2 at the top of a page, h3 in a section.
svg.closest = () => ({ querySelector: (name) => (name === "h2, h3" ? heading : null) });
svg.after = (element) => { svg.caption = element; };

globalThis.document = {
  createElement: (name) => Object.assign(new Element(), { name }),
  createElementNS: () => new Element(),
  querySelectorAll: () => [svg],
};
globalThis.Option = function (text, value) { return { text, value: String(value) }; };
globalThis.matchMedia = () => ({ matches: true });  // no animation
globalThis.cancelAnimationFrame = globalThis.requestAnimationFrame = () => 0;
require(process.argv[2]);

const select = svg.caption.children.find((child) => child.name === "select");
if (given.click === undefined) {
  select.value = String(given.choose);
  select.on.change();
} else {
  lists[".node"].find((dot) => dot.dataset.node === String(given.click)).on.click();
}
console.log(JSON.stringify({
  heading: heading.textContent, title: parts.title.textContent, desc: parts.desc.textContent,
  chosen: select.value,
  options: all(select).filter((o) => o.value !== undefined && o.text).map((o) => o.value),
  groups: select.children.filter((child) => child.name === "optgroup").map((g) => g.label),
  places: Object.fromEntries(lists[".node"].map((dot) =>
    [dot.dataset.node, [Number(dot.attributes.cx), Number(dot.attributes.cy)]])),
  edges: lists[".edge"].map((edge) => edge.attributes.d),
}));
