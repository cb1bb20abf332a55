// Look at a Poincaré disk from any of its nodes: an isometry moves the chosen node to the centre.
// The picture is complete without this script; disk.py drew it by the same formulas and rules.
"use strict";
(() => {
  const R = 240, FONT = 15, CHAR = 0.58 * FONT, MAX_LABELS = 36, MAX_CHARS = 17, LABEL_ALL = 30;
  const NEAR = 0.97, RIM = 0.75, STRAIGHT = 1e-7, EDGE_OF_DOUBLE = 1 - 1e-12;

  // z -> (z - a) / (1 - conj(a) z), the isometry that brings a to the centre.
  const seenFrom = (a, z) => {
    const nx = z.x - a.x, ny = z.y - a.y;
    const dx = 1 - (a.x * z.x + a.y * z.y), dy = a.y * z.x - a.x * z.y;
    const n = dx * dx + dy * dy;
    return { x: (nx * dx + ny * dy) / n, y: (ny * dx - nx * dy) / n };
  };
  const inside = (z) => {
    const r = Math.hypot(z.x, z.y), f = r > EDGE_OF_DOUBLE ? EDGE_OF_DOUBLE / r : 1;
    return { x: z.x * f, y: z.y * f };
  };
  const at = (z) => `${(R * z.x).toFixed(3)} ${(R * z.y).toFixed(3)}`;
  const arc = (p, q) => {
    const cross = p.x * q.y - p.y * q.x;
    if (Math.abs(cross) < STRAIGHT) return `M${at(p)}L${at(q)}`;
    const a = 1 + p.x * p.x + p.y * p.y, b = 1 + q.x * q.x + q.y * q.y;
    const m = { x: (a * q.y - b * p.y) / (2 * cross), y: (b * p.x - a * q.x) / (2 * cross) };
    const r = (R * Math.hypot(m.x - p.x, m.y - p.y)).toFixed(3);
    const turn = (p.x - m.x) * (q.y - m.y) - (p.y - m.y) * (q.x - m.x);
    return `M${at(p)}A${r} ${r} 0 0 ${turn > 0 ? 1 : 0} ${at(q)}`;
  };
  const labelAt = (z, name) => {
    const text = name.length > MAX_CHARS ? name.slice(0, MAX_CHARS - 1) + "…" : name;
    const r = Math.hypot(z.x, z.y), w = CHAR * text.length;
    let x = R * z.x, y = R * z.y - 9, anchor = "middle";
    if (r >= RIM) {
      const ux = z.x / r, uy = z.y / r;
      x = (R + 9) * ux;
      y = (R + 9) * uy + FONT * (0.35 + 0.4 * uy);
      anchor = Math.abs(ux) < 0.3 ? "middle" : ux > 0 ? "start" : "end";
    }
    const left = x - { start: 0, middle: w / 2, end: w }[anchor];
    return { text, x, y, anchor, box: [left, y - 0.85 * FONT, left + w, y + 0.25 * FONT] };
  };
  const meet = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

  const explore = (svg) => {
    const nodes = [];
    for (const dot of svg.querySelectorAll(".node")) {
      const { node, parent, x, y, label } = dot.dataset;
      nodes[Number(node)] = { dot, parent: Number(parent), label, z: { x: +x, y: +y } };
    }
    const edges = [...svg.querySelectorAll(".edge")];
    const labels = svg.querySelector(".labels");

    const size = nodes.map(() => 0);  // descendants; parents come before their children
    for (let i = nodes.length - 1; i > 0; i--) size[nodes[i].parent] += size[i] + 1;

    const draw = (a) => {
      const now = nodes.map((n) => seenFrom(a, n.z));
      nodes.forEach((n, i) => {
        n.dot.setAttribute("cx", (R * now[i].x).toFixed(3));
        n.dot.setAttribute("cy", (R * now[i].y).toFixed(3));
      });
      for (const e of edges) e.setAttribute("d", arc(now[e.dataset.from], now[e.dataset.to]));
      const away = now.map((z) => Math.hypot(z.x, z.y)), all = now.map((_, i) => i);
      const near = all.filter((i) => away[i] < NEAR).sort((i, k) => away[i] - away[k]);
      const large = all.filter((i) => away[i] >= NEAR && (size[i] || all.length <= LABEL_ALL));
      const placed = [];
      for (const i of [...near, ...large.sort((i, k) => size[k] - size[i])]) {
        if (placed.length === MAX_LABELS) break;
        const label = labelAt(now[i], nodes[i].label);
        if (placed.every((other) => !meet(label.box, other.box))) placed.push(label);
      }
      labels.replaceChildren(...placed.map((label) => {
        const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
        text.setAttribute("x", label.x.toFixed(1));
        text.setAttribute("y", label.y.toFixed(1));
        text.setAttribute("text-anchor", label.anchor);
        text.textContent = label.text;
        return text;
      }));
    };

    let here = { x: 0, y: 0 }, frame = 0;
    // What the picture is called follows the observer; disk.py wrote the same endings.
    const start = Number(svg.dataset.centre);
    const heading = svg.closest("figure")?.querySelector("h2, h3");
    const named = [
      [svg.querySelector("title"), (name) => `, seen from ${name}`],
      [svg.querySelector("desc"), (name) => ` In the centre: ${name}.`],
    ].map(([element, ending]) => {
      const text = element.textContent, old = ending(nodes[start].label);
      return { element, ending, stem: text.slice(0, text.length - old.length) };
    });
    const headingAtStart = heading?.textContent;
    const rename = (index) => {
      const name = nodes[index].label;
      for (const { element, ending, stem } of named) element.textContent = stem + ending(name);
      if (heading) heading.textContent = index === start ? headingAtStart : `Seen from “${name}”`;
    };
    const travel = (index) => {
      rename(index);
      cancelAnimationFrame(frame);
      const from = inside(here), to = inside(nodes[index].z);
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      const goal = seenFrom(from, to), far = Math.min(Math.hypot(goal.x, goal.y), EDGE_OF_DOUBLE);
      const length = Math.atanh(far), began = performance.now(), pace = still ? 0 : 700;
      const step = (time) => {
        const t = pace ? Math.min(1, Math.max(0, (time - began) / pace)) : 1;
        const s = far ? Math.tanh(length * t * t * (3 - 2 * t)) / far : 0;
        const back = { x: -from.x, y: -from.y };
        here = t < 1 ? seenFrom(back, { x: goal.x * s, y: goal.y * s }) : nodes[index].z;
        draw(inside(here));
        if (t < 1) frame = requestAnimationFrame(step);
      };
      step(performance.now());
    };

    const depth = [];
    nodes.forEach((n, i) => { depth[i] = n.parent < 0 ? 0 : depth[n.parent] + 1; });
    const children = nodes.map(() => []);
    nodes.forEach((n, i) => { if (n.parent >= 0) children[n.parent].push(i); });
    const choice = document.createElement("select");
    // Every node, so that the keyboard reaches all: the root, then a group for each of its children.
    const list = (i, into) => {
      const todo = [i];
      while (todo.length) {
        const k = todo.pop();
        const indent = "\u00a0\u00a0".repeat(Math.max(0, depth[k] - 1));
        into.append(new Option(indent + nodes[k].label, k));
        if (k) todo.push(...[...children[k]].reverse());
      }
    };
    list(0, choice);
    for (const i of children[0]) {
      const group = size[i] ? document.createElement("optgroup") : choice;
      if (size[i]) { group.label = nodes[i].label; choice.append(group); }
      list(i, group);
    }
    const caption = document.createElement("label");
    caption.className = "view-from";
    caption.append("Look from ", choice, " or click a node");
    choice.value = svg.dataset.centre;
    svg.after(caption);
    choice.addEventListener("change", () => travel(Number(choice.value)));
    nodes.forEach((n, i) => n.dot.addEventListener("click", () => {
      choice.value = String(i);
      travel(i);
    }));
  };
  document.querySelectorAll("svg.disk").forEach(explore);
})();
