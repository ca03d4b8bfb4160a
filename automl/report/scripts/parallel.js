// The lines over all params: a drag along an axis writes a filter of the table.
(() => {
  const picture = document.querySelector("svg.parallel");
  if (picture) {
    const axes = [...picture.querySelectorAll("[data-axis]")].map((path) => {
      const [, x, top, base] = /M(\d+) (\d+)V(\d+)/.exec(path.getAttribute("d")).map(Number);
      return { x, top, base, name: path.dataset.name, scale: JSON.parse(path.dataset.scale), rect: null };
    });
    const place = (event) => {
      const box = picture.getBoundingClientRect(), view = picture.viewBox.baseVal;
      return [(event.clientX - box.left) * view.width / box.width, (event.clientY - box.top) * view.height / box.height];
    };
    let axis = null, from = 0;
    const valueAt = (scale, share) => {
      if (scale.log) return Math.exp(Math.log(scale.low) + share * (Math.log(scale.high) - Math.log(scale.low)));
      return scale.low + share * (scale.high - scale.low);
    };
    const brush = (to) => {
      const clip = (y) => Math.min(axis.base, Math.max(axis.top, y));
      const [top, base] = [Math.min(clip(from), clip(to)), Math.max(clip(from), clip(to))];
      const column = study.data.columns.indexOf(axis.name);
      if (axis.rect) axis.rect.remove();
      axis.rect = null;
      let text = "";
      if (base - top > 3) {
        axis.rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        for (const [key, value] of Object.entries({ class: "brush", x: axis.x - 9, y: top, width: 18, height: base - top }))
          axis.rect.setAttribute(key, value);
        picture.append(axis.rect);
        const height = axis.base - axis.top, low = (axis.base - base) / height, high = (axis.base - top) / height;
        if (axis.scale.categories) {
          const all = axis.scale.categories;
          text = all.filter((_, i) => (i + 0.5) / all.length >= low && (i + 0.5) / all.length <= high).join("|") || "-";
        } else text = `${valueAt(axis.scale, low).toPrecision(4)}..${valueAt(axis.scale, high).toPrecision(4)}`;
      }
      if (column >= 0) study.setFilter(column, text);
    };
    picture.addEventListener("pointerdown", (event) => {
      const [x, y] = place(event);
      axis = axes.find((each) => Math.abs(each.x - x) < 16) || null;
      from = y;
      moved = false;
      if (axis) { picture.setPointerCapture(event.pointerId); event.preventDefault(); }
    });
    let moved = false;
    picture.addEventListener("pointermove", (event) => {
      if (!axis) return;
      moved ||= Math.abs(place(event)[1] - from) > 3;
      if (moved) brush(place(event)[1]);
    });
    study.on("cleared", () => axes.forEach((each) => { each.rect?.remove(); each.rect = null; }));
    picture.addEventListener("pointerup", () => {
      if (moved) study.draggedMs = performance.now();
      axis = null;
    });
  }
})();
