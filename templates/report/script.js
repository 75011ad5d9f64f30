// Shows the values under the pointer, or where the arrow keys lead. The page can be read without it.
"use strict";
(() => {
  const count = (v) => Number.isInteger(v) ? v.toLocaleString("en-US") : String(Number(v.toPrecision(6)));
  const short = (v) => Math.abs(v) >= 1000 && Math.abs(v) < 1e9 ? Math.round(v).toLocaleString("en-US") : String(Number(v.toPrecision(5)));
  const middle = (p) => p.length > 2 ? (p[0] + p[1]) / 2 : p[0];
  const nearest = (points, x, at) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const half = (low + high) >> 1;
      if (at(points[half]) < x) low = half; else high = half;
    }
    return Math.abs(at(points[low]) - x) <= Math.abs(at(points[high]) - x) ? low : high;
  };

  // The lines of text for a place of a chart of lines, and where it is.
  const readLines = (data, names, x) => {
    const main = data.lines.find((points) => points.length);
    const p = main[nearest(main, x, middle)];
    const text = [p.length > 2 ? `steps ${count(p[0])} to ${count(p[1])}` : `step ${count(p[0])}`];
    data.lines.forEach((points, i) => {
      if (!points.length) return;
      const q = points[nearest(points, middle(p), middle)];
      const where = middle(q) === middle(p) ? "" : ` at step ${count(middle(q))}`;
      text.push(q.length > 2 ? `${names[i]}: ${short(q[2])} (${short(q[3])} to ${short(q[4])})` : `${names[i]}: ${short(q[1])}${where}`);
    });
    return { x: middle(p), text };
  };
  const readStack = (data, names, x) => {
    const p = data.stack[nearest(data.stack, x, (q) => q[0])];
    const sum = p.slice(1).reduce((a, b) => a + b, 0);
    const text = [`step ${count(Math.round(p[0]))}: ${short(sum)} s`];
    p.slice(1).forEach((v, i) => { if (v >= sum / 1000) text.push(`${names[i]}: ${short(v)} s`); });
    return { x: p[0], text };
  };

  for (const source of document.querySelectorAll("figure > script[type='application/json']")) {
    const figure = source.parentElement, area = figure.querySelector(".area");
    const data = JSON.parse(source.textContent), [lo, hi] = data.x;
    const names = Array.from(figure.querySelectorAll(".legend .name"), (e) => e.textContent);
    const read = data.stack ? readStack : readLines;
    const tip = document.createElement("div"), cursor = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("role", "status");
    cursor.className = "cursor";
    let place = lo;
    const hide = () => { tip.remove(); cursor.remove(); };
    const show = (x) => {
      const found = read(data, names, Math.min(hi, Math.max(lo, x)));
      place = found.x;
      tip.replaceChildren();
      for (const line of found.text) {
        const row = document.createElement("div");
        row.textContent = line;
        tip.append(row);
      }
      const share = (place - lo) / (hi - lo), width = area.clientWidth;
      cursor.style.left = `${100 * share}%`;
      area.append(cursor, tip);
      const left = share * width + 10, fits = left + tip.offsetWidth <= width;
      tip.style.left = `${Math.max(0, fits ? left : share * width - 10 - tip.offsetWidth)}px`;
    };
    const follow = (event) => {
      const box = area.getBoundingClientRect();
      show(lo + (hi - lo) * (event.clientX - box.left) / box.width);
    };
    area.tabIndex = 0;
    area.addEventListener("pointermove", follow);
    area.addEventListener("pointerdown", follow);
    area.addEventListener("pointerleave", hide);
    area.addEventListener("blur", hide);
    area.addEventListener("focus", () => show(place));
    area.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      show(place + step * Math.max((hi - lo) / 200, Number.isInteger(lo) ? 1 : 0));
    });
  }
})();
