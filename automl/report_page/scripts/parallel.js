// The lines over all params: a drag along an axis writes a filter of the table, and the buttons below
// move an axis, turn it, or leave it out.
(() => {
  const picture = document.querySelector("svg.parallel");
  if (!picture) return;
  const [, first, top, base] = /M(\d+) (\d+)V(\d+)/.exec(picture.querySelector("path.axis").getAttribute("d")).map(Number);
  const axes = [...picture.querySelectorAll("[data-axis]")].map((group) => ({
    group, home: +group.dataset.x, x: +group.dataset.x, name: group.dataset.name,
    scale: JSON.parse(group.dataset.scale), rect: null, turned: false, hidden: false, family: group.dataset.group,
  }));
  // Params of one family are a group; of many axes the groups are closed at first.
  const families = new Set(axes.map((axis) => axis.family).filter(Boolean)), closed = new Set(axes.length > 8 ? families : []);
  const isShown = (axis) => !axis.hidden && !closed.has(axis.family);
  const last = axes.at(-1).home;
  // Of each line its place on each axis; a trial has no place on the axis of a param that it lacks.
  const lines = [...picture.querySelectorAll("path.line")].map((path) => {
    const ys = new Map([...path.getAttribute("d").matchAll(/[ML](\d+) (\d+)/g)].map(([, x, y]) => [+x, +y]));
    return { path, ys: new Map(axes.map((axis) => [axis, ys.get(axis.home)])) };
  });

  // --- axes are moved, turned and left out ------------------------------------------------------------
  const order = [...axes];
  const chips = document.createElement("div");
  chips.className = "axes";
  chips.setAttribute("role", "group");
  chips.setAttribute("aria-label", "axes of the lines");
  picture.parentElement.after(chips);
  const mirror = (axis) => {
    for (const text of axis.group.querySelectorAll("text[y]:not(.label)")) text.setAttribute("y", top + base - text.getAttribute("y") + 8);
    for (const box of axis.group.querySelectorAll("rect.scale")) box.setAttribute("y", top + base - box.getAttribute("y") - box.getAttribute("height"));
  };
  // Names that would overlap stand on two lines; ends of narrow axes, too. Categories take what room there is.
  const label = (shown) => {
    const gap = shown.length > 1 ? (last - first) / (shown.length - 1) : last, names = shown.map((axis) => axis.group.querySelector("text.label"));
    const isLevel = names.every((name) => name.hasAttribute("x"));
    const spans = isLevel ? names.map((name, i) => {
      const half = name.getComputedTextLength() / 2, at = Math.min(996 - half, Math.max(4 + half, shown[i].x));
      name.setAttribute("x", shown[i].home + at - shown[i].x);
      return [at - half, at + half];
    }) : [];
    const overlap = spans.some(([from], i) => i > 0 && from < spans[i - 1][1] + 6);
    shown.forEach((axis, i) => {
      if (isLevel) names[i].setAttribute("dy", overlap && i % 2 ? -15 : 0);
      for (const end of axis.group.querySelectorAll("text.end"))
        end.setAttribute("y", +end.getAttribute("y") < (top + base) / 2 ? top - (gap < 90 && i % 2 ? 20 : 7) : base + (gap < 90 && i % 2 ? 27 : 14));
      for (const text of axis.group.querySelectorAll("[data-text]")) {
        const letters = Math.max(3, Math.floor((gap - 12) / 8)), whole = text.dataset.text;
        text.textContent = whole.length > letters ? `${whole.slice(0, letters - 1)}…` : whole;
      }
    });
  };
  const draw = () => {
    const shown = order.filter(isShown);
    shown.forEach((axis, i) => {
      axis.x = Math.round(shown.length > 1 ? first + (i * (last - first)) / (shown.length - 1) : (first + last) / 2);
      axis.group.setAttribute("transform", `translate(${axis.x - axis.home} 0)`);
    });
    for (const axis of axes) axis.group.style.display = isShown(axis) ? "" : "none";
    label(shown);
    for (const { path, ys } of lines) {
      let d = "", pen = "M";
      for (const axis of shown) {
        const y = ys.get(axis);
        if (y === undefined) { pen = "M"; continue; }
        d += `${pen}${axis.x} ${axis.turned ? top + base - y : y}`;
        pen = "L";
      }
      path.setAttribute("d", d || "M0 0");
    }
    study.redrawn(picture);
  };
  const button = (text, label, act) => {
    const made = document.createElement("button");
    made.textContent = text;
    made.title = label;
    made.setAttribute("aria-label", label);
    made.onclick = () => { act(); draw(); list(label); };
    return made;
  };
  const move = (axis, step) => {
    const place = order.indexOf(axis), to = Math.min(order.length - 1, Math.max(0, place + step));
    order.splice(to, 0, ...order.splice(place, 1));
  };
  const groupChip = (family) => {
    const chip = document.createElement("span"), own = order.filter((axis) => axis.family === family), isClosed = closed.has(family);
    chip.className = "group";
    chip.append(`${family} (${own.length})`, button(isClosed ? "+" : "×", isClosed ? `open ${family}` : `close ${family}`, () => {
      if (isClosed) closed.delete(family); else closed.add(family);
      own.forEach(clear);
    }));
    return chip;
  };
  const list = (focused) => {
    chips.replaceChildren(...order.flatMap((axis) => {
      const isFirst = axis.family && order.find((each) => each.family === axis.family) === axis;
      const before = isFirst ? [groupChip(axis.family)] : [];
      if (closed.has(axis.family)) return before;
      const chip = document.createElement("span");
      chip.className = axis.hidden ? "left-out" : "";
      const name = axis.name;
      chip.append(
        button("‹", `move ${name} to the left`, () => move(axis, -1)), name,
        button("⇅", `turn ${name}`, () => { axis.turned = !axis.turned; mirror(axis); clear(axis); }),
        button(axis.hidden ? "+" : "×", axis.hidden ? `show ${name}` : `leave out ${name}`, () => { axis.hidden = !axis.hidden; clear(axis); }),
        button("›", `move ${name} to the right`, () => move(axis, 1)));
      return [...before, chip];
    }));
    [...chips.querySelectorAll("button")].find((each) => each.title === focused)?.focus();
  };

  // --- a drag along an axis ---------------------------------------------------------------------------
  const place = (event) => {
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
    return [x, y];
  };
  const clear = (axis) => {
    const column = study.data.columns.indexOf(axis.name);
    if (!axis.rect) return;
    axis.rect.remove();
    axis.rect = null;
    if (column >= 0) study.setFilter(column, "");
  };
  const valueAt = (scale, share) => {
    if (scale.log) return Math.exp(Math.log(scale.low) + share * (Math.log(scale.high) - Math.log(scale.low)));
    return scale.low + share * (scale.high - scale.low);
  };
  let axis = null, from = 0, moved = false;
  const brush = (to) => {
    const clip = (y) => Math.min(base, Math.max(top, y));
    const [upper, lower] = [Math.min(clip(from), clip(to)), Math.max(clip(from), clip(to))];
    const column = study.data.columns.indexOf(axis.name);
    axis.rect?.remove();
    axis.rect = null;
    let text = "";
    if (lower - upper > 3) {
      axis.rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      for (const [key, value] of Object.entries({ class: "brush", x: axis.home - 9, y: upper, width: 18, height: lower - upper }))
        axis.rect.setAttribute(key, value);
      axis.group.append(axis.rect);
      const share = (y) => (axis.turned ? y - top : base - y) / (base - top);
      const [low, high] = [share(upper), share(lower)].sort((a, b) => a - b);
      if (axis.scale.categories) {
        const all = axis.scale.categories;
        text = all.filter((_, i) => (i + 0.5) / all.length >= low && (i + 0.5) / all.length <= high).join("|") || "-";
      } else text = `${valueAt(axis.scale, low).toPrecision(4)}..${valueAt(axis.scale, high).toPrecision(4)}`;
    }
    if (column >= 0) study.setFilter(column, text);
  };
  picture.addEventListener("pointerdown", (event) => {
    const [x, y] = place(event);
    axis = axes.find((each) => isShown(each) && Math.abs(each.x - x) < 16) || null;
    [from, moved] = [y, false];
    if (axis) { picture.setPointerCapture(event.pointerId); event.preventDefault(); }
  });
  picture.addEventListener("pointermove", (event) => {
    if (!axis) return;
    moved ||= Math.abs(place(event)[1] - from) > 3;
    if (moved) brush(place(event)[1]);
  });
  picture.addEventListener("pointerup", () => {
    if (moved) study.draggedMs = performance.now();
    axis = null;
  });
  study.on("cleared", () => axes.forEach((each) => { each.rect?.remove(); each.rect = null; }));
  draw();
  list();
})();
