// The marks of all pictures: what lies under the pointer is told, a click selects its trial in every
// picture, and a filter of the table leaves out the others. A mark names its trials in `data-n`.
(() => {
  const SVG = "http://www.w3.org/2000/svg", NEAR = 14;
  const column = (name) => study.data.columns.indexOf(name);
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);

  // Lines of many tell each place from the one before; from here on all places are absolute.
  const absolute = (d) => d.replace(/M(\d+) (-?\d+)l([^M]*)/g, (_, x, y, steps) => {
    let [path, right, down] = [`M${x} ${y}`, +x, +y];
    const numbers = steps.match(/-?\d+/g).map(Number);
    for (let i = 0; i < numbers.length; i += 2) path += `L${(right += numbers[i])} ${(down += numbers[i + 1])}`;
    return path;
  });
  for (const path of document.querySelectorAll("path.line, path.curve")) path.setAttribute("d", absolute(path.getAttribute("d")));

  const placesOf = (d) => [...d.matchAll(/([ML])([\d.-]+) ([\d.-]+)/g)].map(([, pen, x, y]) => [pen, +x, +y]);
  const read = (svg) => {
    const picture = { svg, paths: [], points: [], lines: [], bars: [] };
    for (const mark of svg.querySelectorAll("[data-n]")) {
      const numbers = mark.dataset.n.split(" ").map(Number), d = mark.getAttribute("d");
      mark.querySelector("title")?.remove();
      if (mark.matches(".bars")) {
        const bars = d.match(/M[^M]*/g).map((piece, i) => {
          const [x, y, width, height] = /M([\d.-]+) ([\d.-]+)h([\d.]+)v([\d.]+)/.exec(piece).slice(1).map(Number);
          return { n: numbers[i], x, y, width, height, piece };
        });
        picture.bars.push(...bars);
        picture.paths.push({ mark, points: bars });
      } else if (mark.matches(".line, .curve")) {
        picture.lines.push({ mark, n: numbers[0], places: placesOf(d) });
      } else {
        const pieces = d.match(/M[^M]*/g), shift = mark.matches(".failed") ? 3 : mark.matches(".hollow") ? 2 : 0;
        const points = pieces.map((piece, i) => {
          const [, x, y] = /M([\d.-]+) ([\d.-]+)/.exec(piece);
          return { n: numbers[i], x: +x + shift, y: +y + shift, piece };
        });
        picture.points.push(...points);
        picture.paths.push({ mark, points });
      }
    }
    return picture;
  };
  const pictures = [...document.querySelectorAll("svg[role=img]")].map(read)
    .filter((picture) => picture.points.length + picture.lines.length + picture.bars.length);
  /** Read the marks of a picture that was drawn anew. */
  study.readPicture = (svg) => {
    const place = pictures.findIndex((each) => each.svg === svg);
    Object.assign(pictures[place], read(svg));
    leaveOut(pictures[place]);
  };

  // --- what lies under the pointer ----------------------------------------------------------------
  const toSegment = (x, y, [, ax, ay], [, bx, by]) => {
    const length = (bx - ax) ** 2 + (by - ay) ** 2;
    const t = length ? Math.min(1, Math.max(0, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length)) : 0;
    return Math.hypot(x - ax - t * (bx - ax), y - ay - t * (by - ay));
  };
  const nearest = (picture, event) => {
    const matrix = picture.svg.getScreenCTM();
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    let best = { distance: NEAR / matrix.a, n: null };
    const take = (distance, n) => { if (distance < best.distance) best = { distance, n }; };
    for (const point of picture.points) if (passes(point.n)) take(Math.hypot(x - point.x, y - point.y), point.n);
    if (best.n !== null) return best.n;
    for (const bar of picture.bars) {
      if (!passes(bar.n)) continue;
      const outside = (at, from, size) => Math.max(from - at, 0, at - from - size);
      take(Math.hypot(outside(x, bar.x, bar.width), outside(y, bar.y, bar.height)) * 2, bar.n);
    }
    for (const line of picture.lines) {
      if (!passes(line.n)) continue;
      for (let i = 1; i < line.places.length; i++)
        if (line.places[i][0] === "L") take(toSegment(x, y, line.places[i - 1], line.places[i]) * 1.5, line.n);
    }
    return best.n;
  };
  let kept = null;
  const passes = (n) => kept === null || kept.has(n);

  const tell = (n, event) => {
    const row = study.row(n);
    if (!row) { tip.hidden = true; return; }
    const state = row[column("state")], lines = [`trial ${n}: ${state}`];
    study.data.columns.forEach((name, i) => {
      if (i > 0 && name !== "state" && row[i] !== null && lines.length < 12) lines.push(`${name} ${study.textOf(row[i])}`);
    });
    tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${Math.max(4, event.clientY + 14 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 14)}px`;
  };

  // --- rings around what is hovered or selected ---------------------------------------------------
  const ring = (picture, n, css) => {
    for (const old of picture.svg.querySelectorAll(`.${css}`)) {
      if (old.matches("circle, rect")) old.remove(); else old.classList.remove(css);
    }
    if (n === null) return;
    const draw = (tag, attributes) => {
      const made = document.createElementNS(SVG, tag);
      for (const [key, value] of Object.entries({ class: css, ...attributes })) made.setAttribute(key, value);
      picture.svg.append(made);
    };
    for (const { n: own, x, y } of picture.points) if (own === n) draw("circle", { cx: x, cy: y, r: 7 });
    for (const { n: own, x, y, width, height } of picture.bars) if (own === n) draw("rect", { x, y, width, height });
    for (const { mark, n: own } of picture.lines) if (own === n) mark.classList.add(css);
  };
  const leaveOut = (picture) => {
    for (const { mark, points } of picture.paths)
      mark.setAttribute("d", points.filter((point) => passes(point.n)).map((point) => point.piece).join("") || "M0 0");
    for (const { mark, n } of picture.lines) mark.classList.toggle("out", !passes(n));
    ring(picture, study.selected, "chosen");
  };
  for (const picture of pictures) {
    picture.svg.addEventListener("pointermove", (event) => {
      const n = event.buttons ? null : nearest(picture, event);
      if (n === null) tip.hidden = true; else tell(n, event);
      ring(picture, n, "hovered");
      picture.svg.style.cursor = n === null ? "" : "pointer";
    });
    picture.svg.addEventListener("pointerleave", () => { tip.hidden = true; ring(picture, null, "hovered"); });
    picture.svg.addEventListener("click", (event) => {
      const n = nearest(picture, event);
      if (n === null || performance.now() - study.draggedMs < 100) return;  // the end of a drag
      study.select(n);
      if (event.pointerType !== "mouse") tell(n, event);
    });
  }
  study.redrawn = (svg) => {
    const picture = pictures.find((each) => each.svg === svg);
    for (const line of picture?.lines ?? []) line.places = placesOf(line.mark.getAttribute("d"));
  };
  study.on("selected", (n) => pictures.forEach((picture) => ring(picture, n, "chosen")));
  study.on("filtered", (numbers) => {
    kept = numbers;
    pictures.forEach(leaveOut);
  });
})();
