// A Poincaré disc to move about in. explorer.py has embedded the points; nothing is fetched.
"use strict";
(() => {
  const EDGE_OF_DOUBLE = 1 - 4.5e-16;  // the farthest centre
  const MARGIN = 10, RIM_PIXELS = 4;  // around the disc; a grab stays so far from the rim
  const MIN_ZOOM = 0.5, MAX_ZOOM = 60, ZOOM_STEP = 1.35, WHEEL_RATE = 0.0016, LINE_PIXELS = 30;
  const PAN_PIXELS = 48, CLICK_PIXELS = 4, PICK_MOUSE = 12, PICK_TOUCH = 24;
  const TRAVEL_MS = 450, SETTLE_MS = 160;
  const NEAREST = 10, SHOWN = 40, STARTS = 8, MATCHES = 12, LISTED = 300, RINGS = 400;
  const WORDS = 12, STOPS = 12, STEPS = 64;  // colours of words, of the scale in disk.css, drawn
  const LABELS = 40, LABELS_PLAIN = 20, LABELS_MOVING = 14, LABEL_ROOM = 9000;  // pixels each
  const CANDIDATES = 160, LABEL_CHARS = 26, FONT = 14;
  const LABEL_NEAR = 0.985;  // only what is nearer to the centre is labelled
  const EDGES = 5000, EDGES_MOVING = 1500, MIN_EDGE = 1.2, STRAIGHT_PIXELS = 0.3;
  const RING_GAP = 0.06;  // 1 - |w|²; nearer to the rim rings would only smear
  const HALO_POINTS = 4000;  // clouds of so many points have their dots outlined
  const PHASES = 4;  // positions of a dot within a pixel, each way
  const HELD_FRAMES = 120;

  const byId = (id) => document.getElementById(id);
  const stage = byId("stage"), ctx = stage.getContext("2d");
  const layer = document.createElement("canvas");
  const layerContext = layer.getContext("2d", { willReadFrequently: true });
  const data = JSON.parse(byId("cloud").textContent);
  const labels = data.labels, count = labels.length;
  const X = Float64Array.from(data.x), Y = Float64Array.from(data.y);
  const all = Int32Array.from({ length: count }, (_, i) => i);
  const counted = new Intl.NumberFormat("en");
  const exact = new Intl.NumberFormat("en", { maximumSignificantDigits: 6, useGrouping: false });
  const points = (k) => `${counted.format(k)} ${k === 1 ? "point" : "points"}`;

  // ---- The hyperbolic plane -------------------------------------------------------------------
  // A view is the isometry z -> u (z - p)/(1 - conj(p) z): the point p comes to the centre, u, of
  // length 1, turns. It is z -> (a z + b)/(conj(b) z + conj(a)) with a = sqrt(u)/sqrt(1 - |p|²) and
  // b = -a p. Kept like this, |a|² - |b|² = 1 however many drags are composed, and rounding near
  // the rim costs least. It is always applied to the original coordinates.
  const HOME = Object.freeze({ x: 0, y: 0, ux: 1, uy: 0 });

  const times = (v, w) => ({ x: v.x * w.x - v.y * w.y, y: v.x * w.y + v.y * w.x });
  const conj = (v) => ({ x: v.x, y: -v.y });
  const over = (v, w) => {
    const t = times(v, conj(w)), m = w.x * w.x + w.y * w.y;
    return { x: t.x / m, y: t.y / m };
  };
  const size = (v) => Math.hypot(v.x, v.y);
  const gapOf = (r) => (1 - r) * (1 + r);
  const within = (v, limit) => {
    const r = size(v);
    return r > limit ? { x: v.x * limit / r, y: v.y * limit / r } : v;
  };

  // The view followed by the translation w -> (w + c)/(1 + conj(c) w), which does not turn the
  // picture at its centre.
  const moved = (view, c) => {
    const u = { x: view.ux, y: view.uy }, back = times(c, conj(u));
    const q = times(conj(view), back), one = { x: 1 - q.x, y: -q.y };
    const p = within(over({ x: view.x - back.x, y: view.y - back.y }, one), EDGE_OF_DOUBLE);
    const turn = times(u, over(one, conj(one))), length = size(turn);
    return { x: p.x, y: p.y, ux: turn.x / length, uy: turn.y / length };
  };
  // The c of the translation that carries one place of the disc to another.
  const carrying = (from, to) => {
    const f = from.x * from.x + from.y * from.y, t = to.x * to.x + to.y * to.y, m = 1 - f * t;
    return {
      x: (to.x * (1 - f) - from.x * (1 - t)) / m, y: (to.y * (1 - f) - from.y * (1 - t)) / m,
    };
  };
  const centredOn = (view, i) => {
    const w = within(place(view, i), EDGE_OF_DOUBLE);
    // The turn is that of the journey; the centre is known exactly.
    return { ...moved(view, { x: -w.x, y: -w.y }), x: X[i], y: Y[i] };
  };

  const WX = new Float64Array(count), WY = new Float64Array(count);  // places in the disc now
  const apply = (view) => {
    const { x: px, y: py, ux, uy } = view, gap = gapOf(Math.hypot(px, py));
    for (let i = 0; i < count; i++) {
      // 1 - conj(p) z = (1 - |p|²) - conj(p)(z - p)
      const dx = X[i] - px, dy = Y[i] - py;
      const ex = gap - px * dx - py * dy, ey = py * dx - px * dy, m = 1 / (ex * ex + ey * ey);
      const tx = (dx * ex + dy * ey) * m, ty = (dy * ex - dx * ey) * m;
      let wx = ux * tx - uy * ty, wy = ux * ty + uy * tx;
      const r2 = wx * wx + wy * wy;
      if (!(r2 <= 1)) {  // rounding beyond the rim
        const r = Math.sqrt(r2) || 1;
        wx = wx / r || 0;
        wy = wy / r || 0;
      }
      WX[i] = wx;
      WY[i] = wy;
    }
  };
  const place = (view, i) => {
    const dx = X[i] - view.x, dy = Y[i] - view.y, gap = gapOf(size(view));
    const below = { x: gap - view.x * dx - view.y * dy, y: view.y * dx - view.x * dy };
    return times({ x: view.ux, y: view.uy }, over({ x: dx, y: dy }, below));
  };

  const gaps = Float64Array.from(all, (i) => (
    Math.max(gapOf(Math.hypot(X[i], Y[i])), Number.EPSILON / 2)
  ));
  const distance = (i, k) => {
    const dx = X[i] - X[k], dy = Y[i] - Y[k];
    return 2 * Math.asinh(Math.sqrt((dx * dx + dy * dy) / (gaps[i] * gaps[k])));
  };
  const fromOrigin = Float64Array.from(all, (i) => 2 * Math.asinh(Math.hypot(X[i], Y[i])
    / Math.sqrt(gaps[i])));

  // The indices with the largest scores, best first; earlier ones first where scores are equal.
  const best = (most, score) => {
    const kept = [], scores = [];
    for (let i = 0; i < count; i++) {
      const s = score(i);
      if (s === -Infinity || (kept.length === most && s <= scores[most - 1])) continue;
      let at = kept.length;
      while (at > 0 && scores[at - 1] < s) at--;
      kept.splice(at, 0, i);
      scores.splice(at, 0, s);
      if (kept.length > most) { kept.pop(); scores.pop(); }
    }
    return kept;
  };
  // The nearest points of a point: those of the space the points are from, where the page has them.
  const listed = data.near ? data.near.length / count : 0;
  const nearestTo = (i) => {
    if (data.near) return data.near.slice(i * listed, (i + 1) * listed);
    return best(NEAREST, (k) => (k === i ? -Infinity : -distance(i, k)));
  };
  const howFar = (i, at, k) => (data.near ? data.far[i * listed + at] : distance(i, k));
  const nearTitle = data.near ? `Nearest in ${data.space}` : "Nearest in the picture";
  const FROM_ORIGIN = "Distance from the origin in the picture";

  // ---- The graph ------------------------------------------------------------------------------
  const edgeCount = data.edges.length / 2;
  const tails = Int32Array.from({ length: edgeCount }, (_, e) => data.edges[2 * e]);
  const heads = Int32Array.from({ length: edgeCount }, (_, e) => data.edges[2 * e + 1]);

  // Neighbours of i: list[start[i]] to list[start[i + 1] - 1].
  const neighbours = (from, to) => {
    const start = new Int32Array(count + 1), list = new Int32Array(from.length);
    for (const i of from) start[i + 1]++;
    for (let i = 0; i < count; i++) start[i + 1] += start[i];
    const next = start.slice();
    for (let e = 0; e < from.length; e++) list[next[from[e]]++] = to[e];
    return (i) => list.subarray(start[i], start[i + 1]);
  };
  const parents = neighbours(tails, heads), children = neighbours(heads, tails);

  // Descendants of every point along first parents, which is all of them in a tree; null where
  // edges run in a circle. Without a direction, the number of neighbours.
  const weigh = () => {
    const below = new Float64Array(count);
    if (!data.directed) {
      for (const i of all) below[i] = parents(i).length + children(i).length;
      return { below, ordered: false };
    }
    const waiting = Int32Array.from(all, (i) => children(i).length);
    const done = all.filter((i) => waiting[i] === 0), order = [...done];
    for (let k = 0; k < order.length; k++) {
      const above = parents(order[k]);
      if (above.length) below[above[0]] += below[order[k]] + 1;
      for (const p of above) if (--waiting[p] === 0) order.push(p);
    }
    return order.length === count ? { below, ordered: true }
      : { below: below.map((_, i) => parents(i).length + children(i).length), ordered: false };
  };
  const { below, ordered } = weigh();

  const reach = (start, step) => {
    const found = [], seen = new Set([start]), todo = [start];
    for (let k = 0; k < todo.length; k++) {
      for (const j of step(todo[k])) {
        if (seen.has(j)) continue;
        seen.add(j);
        found.push(j);
        todo.push(j);
      }
    }
    return found;
  };
  const adjacent = (i) => [...new Set([...parents(i), ...children(i)])];

  // ---- Colours --------------------------------------------------------------------------------
  const palette = { fills: [], pixels: new Uint32Array(0), codes: new Uint8Array(count) };
  let theme = {};
  const cssColour = (style, name) => style.getPropertyValue(name).trim();
  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const asHex = (rgb) => "#" + rgb.map((c) => Math.round(c).toString(16).padStart(2, "0")).join("");
  const asPixel = (hex) => {  // ABGR, as the bytes of an image lie on every machine of today
    const [r, g, b] = channels(hex);
    return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
  };
  const readTheme = () => {
    const style = getComputedStyle(document.body), colour = (name) => cssColour(style, name);
    const stops = Array.from({ length: STOPS }, (_, i) => channels(colour(`--d${i}`)));
    const scale = Array.from({ length: STEPS }, (_, i) => {
      const at = i * (STOPS - 1) / (STEPS - 1), low = Math.min(Math.floor(at), STOPS - 2);
      return asHex(stops[low].map((c, k) => c + (stops[low + 1][k] - c) * (at - low)));
    });
    theme = {
      ink: colour("--ink"), soft: colour("--soft"), halo: colour("--halo"), rim: colour("--rim"),
      disc: colour("--disc"), accent: colour("--accent"), other: colour("--other"), scale,
      words: Array.from({ length: WORDS }, (_, i) => colour(`--${i < 8 ? "c" : "k"}${i + 1}`)),
    };
  };

  const columnChosen = () => {
    const value = byId("colour").value;
    if (value === "none") return null;
    return value === "origin" ? { name: FROM_ORIGIN.toLowerCase(), numbers: fromOrigin }
      : data.columns[Number(value)];
  };
  const range = (numbers) => {
    let low = Infinity, high = -Infinity;
    for (const value of numbers) {
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    return { low, high };
  };
  const recolour = () => {
    const column = columnChosen(), codes = palette.codes;
    if (!column) {
      palette.fills = [theme.words[0]];
      codes.fill(0);
    } else if (column.words) {
      // The most frequent words come first, so the rare ones are those without a colour.
      palette.fills = [...theme.words.slice(0, Math.min(WORDS, column.words.length)), theme.other];
      const last = palette.fills.length - 1;
      for (let i = 0; i < count; i++) codes[i] = Math.min(column.codes[i], last);
    } else {
      const { low, high } = range(column.numbers), width = high - low;
      palette.fills = [...theme.scale, theme.other];
      for (let i = 0; i < count; i++) {
        const value = column.numbers[i], at = width > 0 ? (value - low) / width : 0;
        codes[i] = value === null ? STEPS : Math.min(STEPS - 1, Math.floor(at * STEPS));
      }
    }
    palette.pixels = Uint32Array.from(palette.fills, asPixel);
    showLegend(column);
  };

  // ---- Small pieces of the document -----------------------------------------------------------
  const make = (tag, options = {}, ...inside) => {
    const { attributes = {}, ...properties } = options;
    const element = Object.assign(document.createElement(tag), properties);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...inside);
    return element;
  };
  const dot = (colour) => {
    const element = make("i", { className: "swatch-dot", ariaHidden: "true" });
    element.style.background = colour;
    return element;
  };
  const legendItem = (colour, text, k) => make("li", {}, dot(colour),
    make("span", { textContent: text, title: text }),
    make("small", { textContent: counted.format(k) }));

  const wordLegend = (column) => {
    const found = new Array(column.words.length).fill(0);
    for (const code of column.codes) found[code]++;
    const named = column.words.slice(0, WORDS);
    const items = named.map((word, i) => legendItem(theme.words[i], word || "(empty)", found[i]));
    const rest = column.words.length - named.length;
    if (rest > 0) {
      const others = found.slice(WORDS).reduce((sum, k) => sum + k, 0);
      items.push(legendItem(theme.other, `other (${counted.format(rest)})`, others));
    }
    return make("ul", {}, ...items);
  };
  const scaleLegend = (column) => {
    const { low, high } = range(column.numbers);
    if (low > high) return make("p", { className: "note", textContent: "No values." });
    const bar = make("div", { className: "scale", ariaHidden: "true" });
    bar.style.background = `linear-gradient(to right, ${theme.scale.join(", ")})`;
    const ends = make("div", { className: "ends" },
      ...[low, high].map((end) => make("span", { textContent: exact.format(end) })));
    const box = make("div", {}, bar, ends);
    const missing = column.numbers.reduce((sum, value) => sum + (value === null), 0);
    if (missing) box.append(make("ul", {}, legendItem(theme.other, "no value", missing)));
    return box;
  };
  const showLegend = (column) => {
    const legend = byId("legend");
    if (!column) return legend.replaceChildren(make("h2", { textContent: points(count) }));
    const body = column.words ? wordLegend(column) : scaleLegend(column);
    return legend.replaceChildren(make("h2", { textContent: `Colour: ${column.name}` }), body);
  };

  // ---- State ----------------------------------------------------------------------------------
  let view = HOME, zoom = 1, selected = -1, hovered = -1, moving = false, asked = 0, journey = 0;
  let shape = { width: 1, height: 1, ratio: 1, cx: 0, cy: 0, radius: 1 };
  let offset = { x: 0, y: 0 };  // pixels from the picture's centre to the disc's
  let related = { up: [], down: [], near: [], upEdges: [], downEdges: [] };
  let shownLabels = [], drawnEdges = 0, frames = [];
  const edgesWanted = () => edgeCount > 0 && byId("edges").checked;
  const scaleNow = () => shape.radius * zoom;
  const screenX = (i) => shape.cx + scaleNow() * WX[i];
  const screenY = (i) => shape.cy + scaleNow() * WY[i];

  const measure = () => {
    const width = Math.max(1, stage.clientWidth), height = Math.max(1, stage.clientHeight);
    const ratio = window.devicePixelRatio || 1;
    shape = {
      width, height, ratio, cx: width / 2 + offset.x, cy: height / 2 + offset.y,
      radius: Math.max(1, Math.min(width, height) / 2 - MARGIN),
    };
    const w = Math.round(width * ratio), h = Math.round(height * ratio);
    if (stage.width === w && stage.height === h && pixels.length === w * h) return;
    for (const canvas of [stage, layer]) { canvas.width = w; canvas.height = h; }
    image = layerContext.createImageData(w, h);
    pixels = new Uint32Array(image.data.buffer);
  };

  // ---- Dots: stamped into an image, which is quicker than so many paths -----------------------
  let image = null, pixels = new Uint32Array(0);
  const stamps = new Map();
  const makeStamp = (radius, phaseX, phaseY) => {
    const half = Math.ceil(radius + 1), side = 2 * half + 1, cover = new Uint8Array(side * side);
    const ox = (phaseX + 0.5) / PHASES - 0.5, oy = (phaseY + 0.5) / PHASES - 0.5;
    for (let y = 0; y < side; y++) {
      for (let x = 0; x < side; x++) {
        const away = Math.hypot(x - half - ox, y - half - oy);
        cover[y * side + x] = 255 * Math.min(1, Math.max(0, radius + 0.5 - away));
      }
    }
    return { half, side, cover };
  };
  const stampFor = (halves, phaseX, phaseY) => {
    const key = (halves * PHASES + phaseX) * PHASES + phaseY;
    let found = stamps.get(key);
    if (!found) stamps.set(key, found = makeStamp(halves / 2, phaseX, phaseY));
    return found;
  };
  const blend = (old, colour, cover) => {
    const alpha = Math.max(old >>> 24, cover), t = cover / 255;
    const r = (old & 255) + ((colour & 255) - (old & 255)) * t;
    const g = (old >> 8 & 255) + ((colour >> 8 & 255) - (old >> 8 & 255)) * t;
    const b = (old >> 16 & 255) + ((colour >> 16 & 255) - (old >> 16 & 255)) * t;
    return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
  };
  const press = (x, y, halves, colour) => {
    const width = layer.width, height = layer.height, bare = colour & 0xffffff;
    const ix = Math.floor(x), iy = Math.floor(y);
    const stamp = stampFor(halves, (x - ix) * PHASES | 0, (y - iy) * PHASES | 0);
    const { half, side, cover } = stamp, left = ix - half, top = iy - half;
    const x0 = Math.max(0, -left), x1 = Math.min(side, width - left);
    const y0 = Math.max(0, -top), y1 = Math.min(side, height - top);
    for (let v = y0; v < y1; v++) {
      let from = v * side + x0, to = (top + v) * width + left + x0;
      for (let u = x0; u < x1; u++, from++, to++) {
        const c = cover[from];
        if (c === 0) continue;
        const old = pixels[to];
        if (c === 255) pixels[to] = colour;
        else if (old === 0) pixels[to] = ((c << 24) | bare) >>> 0;
        else pixels[to] = blend(old, colour, c);
      }
    }
  };

  const baseRadius = (() => {
    const plain = count <= 300 ? 5 : count <= 2000 ? 3.8 : count <= 10000 ? 3 : 2.2;
    return Float32Array.from(below, (k) => plain + 0.75 * Math.log1p(ordered ? k : 0));
  })();
  // Small dots last: they would vanish below the large ones otherwise.
  const paintOrder = edgeCount ? all.slice().sort((i, k) => baseRadius[k] - baseRadius[i]) : all;
  const dotRadius = (i) => {
    const gap = Math.max(0, 1 - WX[i] * WX[i] - WY[i] * WY[i]);
    const grown = Math.min(1.8, Math.max(0.8, zoom ** 0.3));
    return baseRadius[i] * grown * (0.25 + 0.75 * Math.sqrt(gap));
  };
  const drawDots = () => {
    const { width, height, ratio } = shape;
    const halo = count <= HALO_POINTS, paper = asPixel(theme.halo);
    pixels.fill(0);
    for (const i of paintOrder) {
      const x = screenX(i), y = screenY(i);
      if (x < -12 || y < -12 || x > width + 12 || y > height + 12) continue;
      const halves = Math.max(1, Math.round(2 * ratio * dotRadius(i)));
      if (halo) press(x * ratio, y * ratio, halves + Math.round(1.6 * ratio), paper);
      press(x * ratio, y * ratio, halves, palette.pixels[palette.codes[i]]);
    }
    layerContext.putImageData(image, 0, 0);
    ctx.save();
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.drawImage(layer, 0, 0);
    ctx.restore();
  };

  // ---- Edges ----------------------------------------------------------------------------------
  // The geodesic is the arc through p and q of the circle with 2 m·p = 1 + |p|², 2 m·q = 1 + |q|²;
  // arcs that bend by less than can be seen are drawn straight.
  const addGeodesic = (i, k) => {
    const px = WX[i], py = WY[i], qx = WX[k], qy = WY[k], s = scaleNow();
    const cross = px * qy - py * qx, chord2 = (px - qx) ** 2 + (py - qy) ** 2;
    const x0 = shape.cx + s * px, y0 = shape.cy + s * py;
    ctx.moveTo(x0, y0);
    const a = 1 + px * px + py * py, b = 1 + qx * qx + qy * qy;
    const mx = (a * qy - b * py) / (2 * cross), my = (b * px - a * qx) / (2 * cross);
    const r = Math.hypot(mx - px, my - py);
    // A chord of length l sags by l²/8r.
    if (!(s * chord2 / (8 * r) > STRAIGHT_PIXELS)) {
      ctx.lineTo(shape.cx + s * qx, shape.cy + s * qy);
      return;
    }
    const turn = (px - mx) * (qy - my) - (py - my) * (qx - mx);
    ctx.arc(shape.cx + s * mx, shape.cy + s * my, s * r, Math.atan2(py - my, px - mx),
      Math.atan2(qy - my, qx - mx), turn < 0);
  };
  const edgeLengths = new Float32Array(edgeCount);
  const measureEdges = () => {
    const s = scaleNow(), { width, height } = shape;
    for (let e = 0; e < edgeCount; e++) {
      const i = tails[e], k = heads[e];
      const length = s * Math.hypot(WX[i] - WX[k], WY[i] - WY[k]);
      const x0 = screenX(i), x1 = screenX(k), y0 = screenY(i), y1 = screenY(k);
      const out = Math.max(x0, x1) < -length || Math.min(x0, x1) > width + length
        || Math.max(y0, y1) < -length || Math.min(y0, y1) > height + length;
      edgeLengths[e] = out ? 0 : length;
    }
  };
  const shortestDrawn = (most) => {
    let least = MIN_EDGE;
    for (;;) {
      let found = 0;
      for (let e = 0; e < edgeCount; e++) if (edgeLengths[e] >= least) found++;
      if (found <= most) return { least, found };
      least *= 1.5;
    }
  };
  const drawEdges = () => {
    drawnEdges = 0;
    if (!edgesWanted()) return;
    measureEdges();
    const { least, found } = shortestDrawn(moving ? EDGES_MOVING : EDGES);
    const byColour = palette.fills.map(() => []);
    for (let e = 0; e < edgeCount; e++) {
      if (edgeLengths[e] >= least) byColour[palette.codes[tails[e]]].push(e);
    }
    ctx.lineWidth = edgeCount > 3000 ? 0.9 : 1.2;
    ctx.globalAlpha = selected >= 0 ? 0.35 : 0.55;
    byColour.forEach((edges, code) => strokeEdges(edges, palette.fills[code]));
    ctx.globalAlpha = 1;
    drawnEdges = found;
  };
  const strokeEdges = (edges, colour) => {
    if (!edges.length) return;
    ctx.beginPath();
    for (const e of edges) addGeodesic(tails[e], heads[e]);
    ctx.strokeStyle = colour;
    ctx.stroke();
  };
  const drawRelatedEdges = () => {
    if (selected < 0 || !edgesWanted()) return;
    const seen = (e) => edgeLengths[e] >= MIN_EDGE;
    ctx.lineWidth = 1.6;
    strokeEdges(related.downEdges.filter(seen).slice(0, EDGES_MOVING), theme.accent);
    ctx.lineWidth = 2.6;
    strokeEdges(related.upEdges.filter(seen), theme.ink);
  };

  // ---- Rings around what belongs to the selected point ----------------------------------------
  const drawRing = (i, away, colour, width, dash = []) => {
    ctx.beginPath();
    ctx.arc(screenX(i), screenY(i), dotRadius(i) + away, 0, 2 * Math.PI);
    ctx.lineWidth = width;
    ctx.setLineDash(dash);
    ctx.strokeStyle = colour;
    ctx.stroke();
    ctx.setLineDash([]);
  };
  const drawRings = () => {
    if (selected >= 0) {
      for (const i of related.near) drawRing(i, 5, theme.soft, 1.5, [2, 2]);
      const apart = (i) => 1 - WX[i] * WX[i] - WY[i] * WY[i] > RING_GAP;
      const ringed = related.down.filter(apart).slice(0, RINGS);
      for (const i of ringed) drawRing(i, 1.8, theme.accent, 1.6);
      for (const i of related.up.slice(0, RINGS)) drawRing(i, 2.2, theme.ink, 2);
      drawRing(selected, 3, theme.halo, 5);
      drawRing(selected, 3, theme.ink, 2.5);
    }
    if (hovered >= 0 && hovered !== selected) drawRing(hovered, 2, theme.ink, 1.5);
  };

  // ---- Labels ---------------------------------------------------------------------------------
  const widths = new Map();
  const shortLabel = (i) => {
    const letters = [...labels[i].replace(/\s+/gu, " ").trim()];
    return letters.length > LABEL_CHARS ? letters.slice(0, LABEL_CHARS - 1).join("") + "…"
      : letters.join("");
  };
  const textOf = (i) => {
    let found = widths.get(i);
    if (!found) {
      const text = shortLabel(i);
      widths.set(i, found = { text, width: ctx.measureText(text).width });
    }
    return found;
  };
  // What looms large in the picture: many descendants, and near to the centre.
  const prominence = (i) => {
    const gap = 1 - WX[i] * WX[i] - WY[i] * WY[i];
    if (gap < gapOf(LABEL_NEAR)) return -Infinity;
    const x = screenX(i), y = screenY(i);
    if (x < 0 || y < 0 || x > shape.width || y > shape.height) return -Infinity;
    return (1 + below[i]) * gap * gap;
  };
  const labelOrder = () => {
    const first = [selected, hovered].filter((i) => i >= 0);
    if (selected >= 0) {
      first.push(...related.up.slice(0, 12), ...related.near, ...related.down.slice(0, 12));
    }
    return [...new Set([...first, ...best(moving ? CANDIDATES / 4 : CANDIDATES, prominence)])];
  };
  const spots = (i, width) => {
    const x = screenX(i), y = screenY(i), away = dotRadius(i) + 4, middle = y - FONT * 0.55;
    return [
      [x - width / 2, y - away - FONT], [x + away + 2, middle], [x - width - away - 2, middle],
      [x - width / 2, y + away],
    ];
  };
  const free = (box, taken) => box[0] >= 1 && box[1] >= 1 && box[2] <= shape.width - 1
    && box[3] <= shape.height - 1
    && taken.every((b) => box[0] >= b[2] || b[0] >= box[2] || box[1] >= b[3] || b[1] >= box[3]);
  const labelsWanted = () => {
    const most = moving ? LABELS_MOVING : edgeCount ? LABELS : LABELS_PLAIN;
    return Math.min(most, Math.ceil(shape.width * shape.height / LABEL_ROOM));
  };
  const dotBox = (i) => {
    const x = screenX(i), y = screenY(i), r = dotRadius(i);
    return [x - r, y - r, x + r, y + r];
  };
  const placeLabels = () => {
    const placed = [], taken = [], most = labelsWanted();
    for (const i of labelOrder()) {
      if (placed.length === most) break;
      const { text, width } = textOf(i);
      if (!text) continue;
      for (const [left, top] of spots(i, width)) {
        const box = [left - 3, top - 1, left + width + 3, top + FONT + 3];
        if (!free(box, taken)) continue;
        placed.push({ i, text, left, top });
        taken.push(box, dotBox(i));
        break;
      }
    }
    return placed;
  };
  const drawLabels = () => {
    const placed = placeLabels();
    ctx.textBaseline = "top";
    ctx.lineJoin = "round";
    ctx.lineWidth = 3.5;
    ctx.strokeStyle = theme.halo;
    ctx.fillStyle = theme.ink;
    for (const { i, text, left, top } of placed) {
      ctx.font = fontOf(i);
      ctx.strokeText(text, left, top);
      ctx.fillText(text, left, top);
    }
    shownLabels = placed.map(({ i }) => i);
  };
  const fontOf = (i) => `${i === selected ? "600 " : ""}${FONT}px system-ui, sans-serif`;

  // ---- A frame --------------------------------------------------------------------------------
  const drawDisc = () => {
    ctx.beginPath();
    ctx.arc(shape.cx, shape.cy, scaleNow(), 0, 2 * Math.PI);
    ctx.fillStyle = theme.disc;
    ctx.fill();
    ctx.lineWidth = 1.5;
    ctx.strokeStyle = theme.rim;
    ctx.stroke();
  };
  const draw = () => {
    const began = performance.now();
    asked = 0;
    measure();
    apply(view);
    ctx.setTransform(shape.ratio, 0, 0, shape.ratio, 0, 0);
    ctx.clearRect(0, 0, shape.width, shape.height);
    ctx.font = fontOf(-1);
    drawDisc();
    drawEdges();
    drawRelatedEdges();
    drawDots();
    drawRings();
    drawLabels();
    frames = [...frames.slice(1 - HELD_FRAMES), performance.now() - began];
    if (!moving) nameView();
  };
  const ask = () => { if (!asked) asked = requestAnimationFrame(draw); };
  let settling = 0;
  // Detail comes back once nothing has moved for a moment.
  const stir = () => {
    moving = true;
    clearTimeout(settling);
    settling = setTimeout(settle, SETTLE_MS);
    ask();
  };
  const settle = () => {
    clearTimeout(settling);
    moving = false;
    ask();
  };
  const nameView = () => {
    const [centre] = best(1, (i) => -(WX[i] * WX[i] + WY[i] * WY[i]));
    const chosen = selected >= 0 ? ` Selected: ${labels[selected]}.` : "";
    stage.setAttribute("aria-label", `Poincaré disc of ${points(count)}. `
      + `Nearest to the centre: ${labels[centre]}.${chosen}`);
    byId("zoom").textContent = `${Number(zoom.toPrecision(2))}×`;
    byId("drawn").textContent = !edgesWanted() || drawnEdges === edgeCount ? ""
      : `${counted.format(drawnEdges)} of ${counted.format(edgeCount)} edges drawn; `
        + "the others are tiny here";
  };
  const say = (text) => { byId("said").textContent = text; };

  // ---- Moving ---------------------------------------------------------------------------------
  const stopJourney = () => { cancelAnimationFrame(journey); journey = 0; };
  const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
  const moveDisc = (x, y) => {
    offset = within({ x, y }, shape.radius * Math.max(0, zoom - 1));  // some of it stays in sight
    shape.cx = shape.width / 2 + offset.x;
    shape.cy = shape.height / 2 + offset.y;
  };
  const inSight = (i) => {
    const x = screenX(i), y = screenY(i);
    return x >= 0 && y >= 0 && x <= shape.width && y <= shape.height;
  };
  // What is zoomed around where there is no pointer: the selected point, or the picture's middle.
  const focus = () => (selected >= 0 && inSight(selected)
    ? { x: screenX(selected), y: screenY(selected) } : { x: shape.width / 2, y: shape.height / 2 });
  const setZoom = (value, spot = focus()) => {
    const before = zoom;
    zoom = Math.min(MAX_ZOOM, Math.max(MIN_ZOOM, value));
    const k = zoom / before;
    moveDisc(spot.x + k * (shape.cx - spot.x) - shape.width / 2,
      spot.y + k * (shape.cy - spot.y) - shape.height / 2);
    byId("zoom").textContent = `${Number(zoom.toPrecision(2))}×`;
    stir();
  };
  // Along the geodesic from the centre to w, to the view at its end.
  const travel = (w, end) => {
    stopJourney();
    const start = view, from = offset, far = Math.min(size(w), EDGE_OF_DOUBLE), length = Math.atanh(far);
    const began = performance.now();
    const step = (time) => {
      const t = still() || far === 0 ? 1 : Math.min(1, Math.max(0, (time - began) / TRAVEL_MS));
      const s = far ? Math.tanh(length * t * t * (3 - 2 * t)) / size(w) : 0;
      view = t < 1 ? moved(start, { x: -w.x * s, y: -w.y * s }) : end;
      moveDisc(from.x * (1 - t), from.y * (1 - t));
      journey = t < 1 ? requestAnimationFrame(step) : 0;
      if (t < 1) stir();
      else settle();
    };
    step(began);
  };
  const goTo = (i) => travel(place(view, i), centredOn(view, i));
  const goHome = () => {
    stopJourney();
    view = HOME;
    zoom = 1;
    moveDisc(0, 0);
    settle();
    say("Back at the start.");
  };
  const pan = (dx, dy) => {
    stopJourney();
    const c = { x: dx / shape.radius / zoom, y: dy / shape.radius / zoom };
    view = moved(view, within(c, 0.9));
    stir();
  };

  // ---- Selecting ------------------------------------------------------------------------------
  const nameOf = (i) => labels[i] || "(no label)";
  const jump = (i, note) => make("li", {}, make("button", {
    type: "button", className: "jump", onclick: () => { choose(i); focusPanel(); },
  }, make("span", { textContent: nameOf(i) }), make("small", { textContent: note })));
  const jumps = (title, ring, list, note) => {
    if (!list.length) return [];
    const parts = [
      make("h3", {}, make("i", { className: `ring ${ring}`, ariaHidden: "true" }), title),
      make("ul", {}, ...list.slice(0, SHOWN).map((i, at) => jump(i, note(i, at)))),
    ];
    const rest = list.length - SHOWN;
    if (rest > 0) {
      parts.push(make("p", { className: "note", textContent: `and ${counted.format(rest)} more` }));
    }
    return parts;
  };
  const family = (i) => {
    if (!edgeCount) return [];
    const { up, down } = related, above = new Set(parents(i)), under = new Set(children(i));
    const titled = (title, list) => `${title} (${counted.format(list.length)})`;
    if (!ordered) return jumps(titled("Neighbours", down), "down", down, () => "");
    return [
      ...jumps(titled("Ancestors", up), "up", up, (k) => (above.has(k) ? "parent" : "")),
      ...jumps(titled("Descendants", down), "down", down, (k) => (under.has(k) ? "child" : "")),
    ];
  };
  const factsOf = (i) => {
    const facts = data.columns.map((column) => [column.name, valueOf(column, i)]);
    facts.push([FROM_ORIGIN, exact.format(fromOrigin[i])]);
    return make("dl", {}, ...facts.flatMap(([name, value]) => (
      [make("dt", { textContent: name }), make("dd", { textContent: value })])));
  };
  const valueOf = (column, i) => {
    if (column.words) return column.words[column.codes[i]];
    return column.numbers[i] === null ? "–" : exact.format(column.numbers[i]);
  };
  // The points with most below them, or those nearest to the origin.
  const starts = () => best(STARTS, (i) => (edgeCount ? below[i] : -fromOrigin[i]));
  const invitation = () => {
    const edges = edgeCount ? ` and ${counted.format(edgeCount)} edges` : "";
    const hint = `${points(count)}${edges}. `
      + "Click a point, or search for one, to read about it here.";
    return [
      make("p", { className: "note", textContent: hint }),
      make("h3", { textContent: "Start with" }),
      make("ul", {}, ...starts().map((i) => jump(i, ""))),
    ];
  };
  const showPanel = () => {
    const panel = byId("panel");
    if (selected < 0) return panel.replaceChildren(...invitation());
    const close = make("button", {
      type: "button", id: "close", textContent: "Close", onclick: unselect,
    });
    const heading = make("h2", { textContent: nameOf(selected), tabIndex: -1 });
    const far = (k, at) => howFar(selected, at, k).toFixed(3);
    const near = jumps(nearTitle, "near", related.near, far);
    panel.replaceChildren(make("div", { className: "title" }, heading, close), factsOf(selected),
      ...near, ...family(selected));
    return panel.parentElement.scrollTo(0, 0);
  };
  const focusPanel = () => byId("panel").querySelector("h2")?.focus();

  const relate = (i) => {
    const up = ordered ? reach(i, parents) : [], down = ordered ? reach(i, children) : adjacent(i);
    const above = new Set([i, ...up]), under = new Set([i, ...down]);
    const inside = (e, set) => set.has(tails[e]) && set.has(heads[e]);
    const upEdges = [], downEdges = [];
    for (let e = 0; e < edgeCount; e++) {
      if (!ordered) {
        if (tails[e] === i || heads[e] === i) downEdges.push(e);
      } else if (inside(e, above)) {
        upEdges.push(e);
      } else if (inside(e, under)) {
        downEdges.push(e);
      }
    }
    return { up, down, near: nearestTo(i), upEdges, downEdges };
  };
  const select = (i) => {
    selected = i;
    related = relate(i);
    showPanel();
    const up = counted.format(related.up.length), down = counted.format(related.down.length);
    const linked = ordered ? `, ${up} above and ${down} below` : `, ${down} neighbours`;
    const kin = edgeCount ? linked : "";
    say(`Selected: ${labels[i]}${kin}.`);
    ask();
  };
  const choose = (i) => { select(i); goTo(i); };
  const unselect = () => {
    if (selected < 0) return;
    const inside = byId("panel").contains(document.activeElement);
    say(`Closed: ${labels[selected]}.`);
    selected = -1;
    related = { up: [], down: [], near: [], upEdges: [], downEdges: [] };
    showPanel();
    if (inside) stage.focus();
    ask();
  };

  // ---- Searching ------------------------------------------------------------------------------
  let keys = null, matches = [], active = -1;
  const keyOf = (text) => (
    text.normalize("NFD").replace(/\p{M}/gu, "").replaceAll("_", " ").toLowerCase());
  const found = (text) => {
    const wanted = keyOf(text.trim());
    if (!wanted) return [];
    keys ??= labels.map(keyOf);
    const rank = (key) => {
      if (key.startsWith(wanted)) return key === wanted ? 0 : 1;
      return key.includes(wanted) ? 2 : 3;
    };
    const ranked = [[], [], []];
    for (let i = 0; i < count; i++) ranked[rank(keys[i])]?.push(i);
    return ranked.flat();
  };
  const option = (i, k) => make("li", {
    id: `match-${k}`, textContent: labels[i], onclick: () => take(k),
    attributes: { role: "option", "aria-selected": String(k === active) },
  });
  const showMatches = (text) => {
    const list = byId("matches"), box = byId("find"), open = text.trim() !== "";
    list.hidden = !open;
    box.setAttribute("aria-expanded", String(open));
    const items = matches.slice(0, MATCHES).map(option), rest = matches.length - items.length;
    const more = rest > 0 ? `and ${counted.format(rest)} more` : "";
    const note = items.length ? more : "No label has that.";
    if (note) {
      items.push(make("li", {
        className: "note", textContent: note, attributes: { role: "presentation" },
      }));
    }
    list.replaceChildren(...items);
    if (active >= 0) box.setAttribute("aria-activedescendant", `match-${active}`);
    else box.removeAttribute("aria-activedescendant");
    byId(`match-${active}`)?.scrollIntoView({ block: "nearest" });
  };
  const closeMatches = () => { active = -1; showMatches(""); };
  const take = (k) => {
    byId("find").value = labels[matches[k]];
    closeMatches();
    choose(matches[k]);
  };
  const search = () => {
    const text = byId("find").value;
    matches = found(text);
    active = -1;
    showMatches(text);
    say(text.trim() ? `${points(matches.length)} found.` : "");
    listPoints(text.trim() ? matches : all, text.trim());
  };
  const onSearchKey = (event) => {
    const last = Math.min(matches.length, MATCHES) - 1, open = !byId("matches").hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (last < 0) return;
      if (event.key === "ArrowDown") active = active >= last ? 0 : active + 1;
      else active = active <= 0 ? last : active - 1;
      showMatches(byId("find").value);
    } else if (event.key === "Enter" && open && last >= 0) {
      take(Math.max(0, active));
    } else if (event.key === "Escape" && open) {
      closeMatches();
      event.stopPropagation();
    } else {
      return;
    }
    event.preventDefault();
  };

  const listRow = (i) => make("tr", {},
    make("th", { scope: "row" }, make("button", {
      type: "button", textContent: nameOf(i), onclick: () => { choose(i); focusPanel(); },
    })),
    ...data.columns.map((column) => make("td", { textContent: valueOf(column, i) })),
    make("td", { textContent: exact.format(fromOrigin[i]) }));
  const listPoints = (list, text) => {
    const box = byId("list"), shown = Math.min(LISTED, list.length);
    const first = shown < list.length ? `The first ${shown} of ` : "";
    const which = text ? ` with “${text}” in the label` : "";
    box.querySelector("caption span").textContent = first + points(list.length) + which;
    box.querySelector("tbody").replaceChildren(...Array.from(list.slice(0, shown), listRow));
  };

  // ---- Mouse, fingers and keys ----------------------------------------------------------------
  const pointers = new Map();
  let grab = null, pinch = 0;
  const spotOf = (event) => {
    const box = stage.getBoundingClientRect();
    return {
      x: event.clientX - box.left - stage.clientLeft, y: event.clientY - box.top - stage.clientTop,
    };
  };
  const inDisc = (spot) => within(
    { x: (spot.x - shape.cx) / scaleNow(), y: (spot.y - shape.cy) / scaleNow() },
    1 - Math.min(0.5, RIM_PIXELS / scaleNow()));
  const pick = (spot, tolerance) => {
    let at = -1, least = Infinity;
    for (let i = 0; i < count; i++) {
      const dx = Math.abs(screenX(i) - spot.x), dy = Math.abs(screenY(i) - spot.y);
      if (dx > tolerance || dy > tolerance) continue;
      const away = Math.hypot(dx, dy);
      if (away <= tolerance && away < least) { at = i; least = away; }
    }
    return at;
  };
  const reachOf = (event) => (event.pointerType === "touch" ? PICK_TOUCH : PICK_MOUSE);
  const spread = () => {
    const [a, b] = [...pointers.values()];
    return Math.hypot(a.x - b.x, a.y - b.y);
  };
  const middle = () => {
    const [a, b] = [...pointers.values()];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  };

  const onDown = (event) => {
    if (event.button !== 0) return;
    stopJourney();
    const spot = spotOf(event);
    pointers.set(event.pointerId, spot);
    stage.setPointerCapture(event.pointerId);
    if (pointers.size === 2) { pinch = spread() / zoom; grab = null; }
    else if (pointers.size === 1) grab = { spot, from: inDisc(spot), view, dragged: false };
  };
  const onMove = (event) => {
    const spot = spotOf(event);
    if (!pointers.has(event.pointerId)) return hover(spot, event);
    pointers.set(event.pointerId, spot);
    if (pointers.size === 2 && pinch) return setZoom(spread() / pinch, middle());
    if (!grab) return undefined;
    if (Math.hypot(spot.x - grab.spot.x, spot.y - grab.spot.y) > CLICK_PIXELS) grab.dragged = true;
    if (!grab.dragged) return undefined;
    stage.className = "dragging";
    hovered = -1;
    view = moved(grab.view, carrying(grab.from, inDisc(spot)));
    return stir();
  };
  const onUp = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    const held = grab;
    stage.className = "";
    if (pointers.size === 0) { grab = null; pinch = 0; }
    if (!held) return;
    if (held.dragged) { settle(); return; }
    const at = event.type === "pointerup" ? pick(spotOf(event), reachOf(event)) : -1;
    if (at >= 0) select(at);
  };
  const hover = (spot, event) => {
    if (event.pointerType === "touch") return;
    const at = pick(spot, PICK_MOUSE);
    stage.className = at >= 0 ? "pointing" : "";
    if (at === hovered) return;
    hovered = at;
    ask();
  };
  const onDouble = (event) => {
    const spot = spotOf(event), at = pick(spot, PICK_TOUCH);
    if (at >= 0) return choose(at);
    const w = inDisc(spot);
    return travel(w, moved(view, { x: -w.x, y: -w.y }));
  };
  const onWheel = (event) => {
    event.preventDefault();
    const pixelsDown = event.deltaMode === 0 ? event.deltaY : event.deltaY * LINE_PIXELS;
    setZoom(zoom * Math.exp(-WHEEL_RATE * pixelsDown), spotOf(event));
  };

  // An arrow moves the view that way, so the picture moves the other way.
  const stageKeys = {
    ArrowLeft: () => pan(PAN_PIXELS, 0), ArrowRight: () => pan(-PAN_PIXELS, 0),
    ArrowUp: () => pan(0, PAN_PIXELS), ArrowDown: () => pan(0, -PAN_PIXELS),
    "+": () => setZoom(zoom * ZOOM_STEP), "=": () => setZoom(zoom * ZOOM_STEP),
    "-": () => setZoom(zoom / ZOOM_STEP), Home: goHome,
    Enter: () => select(best(1, (i) => -(WX[i] * WX[i] + WY[i] * WY[i]))[0]),
  };
  const onStageKey = (event) => {
    const shortcut = event.ctrlKey || event.metaKey || event.altKey;
    if (shortcut || !Object.hasOwn(stageKeys, event.key)) return;
    event.preventDefault();
    stageKeys[event.key]();
  };

  const listen = () => {
    stage.addEventListener("pointerdown", onDown);
    stage.addEventListener("pointermove", onMove);
    stage.addEventListener("pointerup", onUp);
    stage.addEventListener("pointercancel", onUp);
    stage.addEventListener("pointerleave", () => { if (hovered >= 0) { hovered = -1; ask(); } });
    stage.addEventListener("dblclick", onDouble);
    stage.addEventListener("wheel", onWheel, { passive: false });
    stage.addEventListener("keydown", onStageKey);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") unselect(); });
    byId("zoom-in").onclick = () => setZoom(zoom * ZOOM_STEP);
    byId("zoom-out").onclick = () => setZoom(zoom / ZOOM_STEP);
    byId("home").onclick = goHome;
    byId("colour").onchange = () => { recolour(); ask(); };
    if (edgeCount) byId("edges").onchange = ask;
    byId("find").addEventListener("input", search);
    byId("find").addEventListener("focus", () => { if (matches.length) search(); });
    byId("find").addEventListener("keydown", onSearchKey);
    byId("find").addEventListener("blur", closeMatches);
    // A press on the list must not take the focus, and close the list, before it is a click.
    byId("matches").addEventListener("mousedown", (event) => event.preventDefault());
    new ResizeObserver(ask).observe(stage);
    window.addEventListener("resize", ask);
    for (const query of ["(prefers-color-scheme: dark)", "print"]) {
      // At once: a printer does not wait for the next frame.
      matchMedia(query).addEventListener("change", () => { readTheme(); recolour(); draw(); });
    }
  };

  const transform = () => {
    const k = 1 / Math.sqrt(gapOf(size(view))), half = Math.atan2(view.uy, view.ux) / 2;
    const a = { x: k * Math.cos(half), y: k * Math.sin(half) }, b = times(a, view);
    return { a: [a.x, a.y], b: [0 - b.x, 0 - b.y] };
  };
  const state = {
    get transform() { return transform(); },
    get selected() { return selected; },
    get zoom() { return zoom; },
    get moving() { return moving || journey !== 0 || asked !== 0; },
    get labels() { return shownLabels.map((i) => labels[i]); },
    get frames() { return [...frames]; },
    get edges() { return drawnEdges; },
    get disc() { return { x: shape.cx, y: shape.cy, radius: scaleNow(), ratio: shape.ratio }; },
    screen: (i) => [screenX(i), screenY(i)],
  };
  Object.defineProperty(window, "beltramiExplorer", { value: Object.freeze(state) });

  byId("list").open = false;
  byId("colour").selectedIndex = 0;
  readTheme();
  recolour();
  showPanel();
  listPoints(all, "");
  listen();
  draw();
})();
