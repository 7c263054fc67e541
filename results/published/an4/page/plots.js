"use strict";
// Plots as SVG: lines with their values under the pointer, intervals in rows, a scatter. Drawn anew when their width changes.
window.page.plots = (() => {
  const { make } = window.page;
  const draw = (tag, attributes = {}, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const tip = document.getElementById("tip");
  const show = (event, words) => {
    tip.textContent = words;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 4))}px`;
    tip.style.top = `${event.clientY - box.height - 10 < 0 ? event.clientY + 14 : event.clientY - box.height - 10}px`;
  };
  const hide = () => { tip.hidden = true; };

  const linear = (low, high, from, to, whole = false) => {
    const scale = (v) => from + ((v - low) / (high - low || 1)) * (to - from);
    const step = 10 ** Math.floor(Math.log10((high - low || 1) / 4)), wide = (high - low) / step;
    const by = Math.max(whole ? 1 : 0, step * (wide > 20 ? 5 : wide > 8 ? 2 : 1));
    scale.ticks = [];
    for (let t = Math.ceil(low / by) * by; t <= high + by / 1e6; t += by) scale.ticks.push(Number(t.toPrecision(12)));
    return scale;
  };
  const logarithmic = (low, high, from, to) => {
    const scale = (v) => from + (Math.log(v / low) / Math.log(high / low || 2)) * (to - from);
    scale.ticks = [];
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) for (const m of [1, 2, 5]) if (power * m >= low && power * m <= high) scale.ticks.push(Number((power * m).toPrecision(6)));
    if (scale.ticks.length < 3) scale.ticks = linear(low, high, from, to).ticks.filter((t) => t > 0);
    return scale;
  };
  const marker = (number, x, y, colour, r = 4) => {
    const shapes = [null, "M-1-1H1V1H-1Z", "M0-1.3L1.2,1H-1.2Z", "M0-1.4L1.2,0L0,1.4L-1.2,0Z", "M0,1.3L1.2-1H-1.2Z", "M-1.3-.5H-.5V-1.3H.5V-.5H1.3V.5H.5V1.3H-.5V.5H-1.3Z"];
    const shape = shapes[number % shapes.length];
    return shape ? draw("path", { d: shape, transform: `translate(${x},${y}) scale(${r})`, fill: colour }) : draw("circle", { cx: x, cy: y, r, fill: colour });
  };

  // a figure that is drawn for the width that it has
  const figure = (caption, height, render) => {
    const place = make("div");
    const element = make("figure", {}, make("figcaption", {}, caption), place);
    let last = 0;
    const redraw = (force) => {
      const width = Math.floor(place.clientWidth);
      if (!width || (!force && width === last)) return;
      last = width;
      const tall = typeof height === "function" ? height(width) : height;
      const svg = draw("svg", { width, height: tall, viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": caption });
      render(svg, width, tall);
      place.replaceChildren(svg);
    };
    new ResizeObserver(() => redraw(false)).observe(place);
    element.redraw = () => redraw(true);
    return element;
  };
  const axes = (svg, x, y, box, xLabel, yLabel) => {
    for (const t of y.ticks) svg.append(draw("line", { class: "axis", x1: box.left, x2: box.right, y1: y(t), y2: y(t) }), draw("text", { x: box.left - 6, y: y(t) + 4, "text-anchor": "end" }, String(t)));
    const room = Math.max(1, Math.ceil((x.ticks.length * 42) / (box.right - box.left)));
    x.ticks.forEach((t, i) => { if (i % room === 0) svg.append(draw("line", { class: "axis", x1: x(t), x2: x(t), y1: box.bottom, y2: box.bottom + 4 }), draw("text", { x: x(t), y: box.bottom + 17, "text-anchor": "middle" }, String(t))); });
    svg.append(draw("text", { x: (box.left + box.right) / 2, y: box.bottom + 33, "text-anchor": "middle" }, xLabel), draw("text", { x: 0, y: box.top - 8 }, yLabel));
  };

  // series: [{name, number, colour, dash, points: [[x, y]], band: [[x, low, high]]}]
  const lines = ({ caption, x: xLabel, y: yLabel, series, log = false, whole = false, low = null, high = null, height = 270 }) => {
    const hidden = new Set();
    const element = figure(caption, height, (svg, width, tall) => {
      const seen = series.filter((s) => !hidden.has(s.group) && s.points.length);
      const box = { left: 46, right: width - 8, top: 24, bottom: tall - 40 };
      const points = (seen.length ? seen : series).flatMap((s) => s.points);
      const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
      const bottom = low ?? Math.min(...ys), top = high ?? Math.max(...ys), room = 0.04 * (top - bottom || Math.abs(top) || 1);
      const positive = log && bottom > 0;
      const x = linear(Math.min(...xs), Math.max(...xs), box.left, box.right, whole);
      const y = positive ? logarithmic(bottom / 1.03, top * 1.03, box.bottom, box.top) : linear(low ?? bottom - room, high ?? top + room, box.bottom, box.top);
      axes(svg, x, y, box, xLabel, yLabel);
      const near = [];
      for (const s of seen) {
        if (s.band) svg.append(draw("path", { d: `M${s.band.map(([at, , up]) => `${x(at)},${y(up)}`).join("L")}L${[...s.band].reverse().map(([at, down]) => `${x(at)},${y(down)}`).join("L")}Z`, style: `fill:${s.colour}`, opacity: 0.15 }));
        svg.append(draw("path", { d: `M${s.points.map(([at, v]) => `${x(at).toFixed(1)},${y(v).toFixed(1)}`).join("L")}`, fill: "none", style: `stroke:${s.colour}`, "stroke-width": 1.6, "stroke-dasharray": s.dash || null }));
        const last = s.points[s.points.length - 1];
        const end = marker(s.number, x(last[0]), y(last[1]), "");
        end.setAttribute("style", `fill:${s.colour}`);
        svg.append(end);
        for (const [at, v] of s.points) near.push([x(at), y(v), `${s.name}\n${xLabel} ${at}: ${v}`]);
      }
      const dot = draw("circle", { r: 5, fill: "none", stroke: "currentColor", "stroke-width": 1.5, visibility: "hidden" });
      svg.append(dot);
      svg.addEventListener("pointermove", (event) => {
        const frame = svg.getBoundingClientRect(), px = event.clientX - frame.left, py = event.clientY - frame.top;
        let best = null, least = 1600;
        for (const point of near) { const d = (point[0] - px) ** 2 + (point[1] - py) ** 2; if (d < least) { least = d; best = point; } }
        dot.setAttribute("visibility", best ? "visible" : "hidden");
        if (!best) return hide();
        dot.setAttribute("cx", best[0]); dot.setAttribute("cy", best[1]);
        show(event, best[2]);
      });
      svg.addEventListener("pointerleave", () => { dot.setAttribute("visibility", "hidden"); hide(); });
    });
    element.toggle = (group, seen) => { seen ? hidden.delete(group) : hidden.add(group); element.redraw(); };
    return element;
  };

  // rows: [{name, number, colour, value, low, high, marks: [..]}]; a mark for the value, a line for the interval
  const rows = ({ caption, x: xLabel, rows: entries, target = null }) => figure(caption, 62 + 30 * entries.length, (svg, width, tall) => {
    const left = Math.min(width * 0.38, 12 + 7.2 * Math.max(...entries.map((r) => r.name.length)));
    const box = { left, right: width - 14, top: 10, bottom: tall - 40 };
    const values = entries.flatMap((r) => [r.value, r.low, r.high, ...(r.marks || [])]).filter((v) => v !== null && v !== undefined);
    const spread = Math.max(...values) - Math.min(...values) || 1;
    if (target !== null && Math.abs(target - Math.min(...values)) < 3 * spread) values.push(target);
    const x = linear(Math.min(...values) - 0.08 * spread, Math.max(...values) + 0.08 * spread, box.left, box.right);
    for (const t of x.ticks) svg.append(draw("line", { class: "axis", x1: x(t), x2: x(t), y1: box.top, y2: box.bottom }), draw("text", { x: x(t), y: box.bottom + 17, "text-anchor": "middle" }, String(t)));
    svg.append(draw("text", { x: (box.left + box.right) / 2, y: box.bottom + 33, "text-anchor": "middle" }, xLabel));
    if (target !== null && values.includes(target)) svg.append(draw("line", { class: "target", x1: x(target), x2: x(target), y1: box.top, y2: box.bottom }), draw("text", { x: x(target) + 4, y: box.top + 6, style: "fill:var(--bad)" }, `gate's target ${target}`));
    entries.forEach((r, i) => {
      const y = box.top + 18 + 30 * i;
      const row = draw("g", { class: "point" }, draw("rect", { x: 0, y: y - 14, width, height: 28, fill: "transparent" }));
      row.append(draw("text", { class: "name", x: box.left - 10, y: y + 4, "text-anchor": "end" }, r.name));
      if (r.low !== null && r.low !== undefined) row.append(draw("line", { x1: x(r.low), x2: x(r.high), y1: y, y2: y, style: `stroke:${r.colour}`, "stroke-width": 2.5 }));
      for (const m of r.marks || []) row.append(draw("circle", { cx: x(m), cy: y, r: 3, style: `fill:${r.colour}`, opacity: 0.5 }));
      const mark = marker(r.number, x(r.value), y, "", 5);
      mark.setAttribute("style", `fill:${r.colour}`);
      row.append(mark, draw("text", { class: "name", x: x(r.value), y: y - 7, "text-anchor": "middle" }, String(r.value)));
      row.addEventListener("pointermove", (event) => show(event, r.low === null || r.low === undefined ? `${r.name}: ${r.value}` : `${r.name}: ${r.value} [${r.low}, ${r.high}]`));
      row.addEventListener("pointerleave", hide);
      svg.append(row);
    });
  });

  // points: [{x, y, size, words, open}]
  const scatter = ({ caption, x: xLabel, y: yLabel, points, top }) => figure(caption, (width) => Math.min(width, 460), (svg, width, tall) => {
    const side = Math.min(width - 60, tall - 70);
    const box = { left: 46, right: 46 + side, top: 24, bottom: 24 + side };
    const x = linear(0, top, box.left, box.right), y = linear(0, top, box.bottom, box.top);
    axes(svg, x, y, box, xLabel, yLabel);
    svg.append(draw("line", { class: "target", x1: x(0), y1: y(0), x2: x(top), y2: y(top), style: "stroke:var(--soft)" }));
    for (const p of points) {
      const dot = draw("circle", { class: "point", cx: x(p.x), cy: y(p.y), r: Math.min(3 + 1.4 * Math.sqrt(p.size - 1), 16), style: "fill:var(--accent)", "fill-opacity": 0.45, stroke: "var(--accent)" });
      dot.addEventListener("pointermove", (event) => show(event, p.words));
      dot.addEventListener("pointerleave", hide);
      dot.addEventListener("click", () => { hide(); p.open(); });
      svg.append(dot);
    }
  });

  // the arms' names with their colours and marks; a click hides an arm in the plots
  const legend = (entries, plots) => make("ul", { class: "legend" }, ...entries.map(({ group, name, number, colour, dash }) => {
    const look = draw("svg", { width: 26, height: 12, "aria-hidden": "true" }, draw("line", { x1: 0, x2: 26, y1: 6, y2: 6, style: `stroke:${colour}`, "stroke-width": 1.6, "stroke-dasharray": dash || null }));
    const mark = marker(number, 13, 6, "");
    mark.setAttribute("style", `fill:${colour}`);
    look.append(mark);
    const button = make("button", { type: "button", "aria-pressed": "true", onclick: () => {
      const seen = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(seen));
      for (const plot of plots) plot.toggle(group, seen);
    } }, look, name);
    return make("li", {}, button);
  }));
  return { lines, rows, scatter, legend };
})();
