"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const table = document.getElementById("trial-table"), count = document.getElementById("count");
  let sorted = null, rising = true, most = 15;
  const filters = data.columns.map(() => "");

  // --- the table of trials: sorted by a click on a head, filtered by what is typed below it ---
  const passes = (cell, filter) => {
    filter = filter.trim();
    if (!filter) return true;
    const range = /^(-?[\d.e+-]+)?\.\.(-?[\d.e+-]+)?$/i.exec(filter);
    const compared = /^([<>]=?)\s*(-?[\d.e+-]+)$/i.exec(filter);
    if (range && typeof cell === "number")
      return (range[1] === undefined || cell >= +range[1]) && (range[2] === undefined || cell <= +range[2]);
    if (compared && typeof cell === "number") {
      const number = +compared[2];
      return { "<": cell < number, "<=": cell <= number, ">": cell > number, ">=": cell >= number }[compared[1]];
    }
    return cell !== null && filter.split("|").some((word) => String(cell).toLowerCase() === word.trim().toLowerCase()
      || (typeof cell === "string" && cell.toLowerCase().includes(word.trim().toLowerCase())));
  };
  const compare = (a, b) => {
    if (a === b) return 0;
    if (a === null) return 1;
    if (b === null) return -1;
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    return rising ? order : -order;
  };
  const show = () => {
    let rows = data.rows.filter((row) => row.every((cell, i) => passes(cell, filters[i])));
    if (sorted !== null) rows = [...rows].sort((a, b) => compare(a[sorted], b[sorted]));
    const body = document.createElement("tbody");
    for (const row of rows.slice(0, most)) {
      const line = body.insertRow();
      for (const cell of row) {
        const place = line.insertCell();
        place.className = "n";
        place.textContent = cell === null ? "" : String(cell);
      }
    }
    table.tBodies[0].replaceWith(body);
    count.textContent = `${rows.length} of ${data.rows.length} trials${rows.length > most ? `, ${most} shown ` : ""}`;
    if (rows.length > most) {
      const more = document.createElement("button");
      more.className = "copy";
      more.textContent = "show more";
      more.onclick = () => { most *= 4; show(); };
      count.append(more);
    }
    const kept = new Set(rows.map((row) => row[0]));
    for (const line of document.querySelectorAll("path.line")) line.classList.toggle("out", !kept.has(+line.dataset.n));
  };
  const inputs = [];
  if (table) {
    [...table.tHead.rows[0].cells].forEach((head, i) => {
      const button = document.createElement("button"), input = document.createElement("input");
      button.textContent = head.textContent;
      button.title = "sort";
      button.onclick = () => {
        rising = sorted === i ? !rising : true;
        sorted = i;
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        show();
      };
      input.placeholder = data.rows.length && typeof data.rows[0][i] === "number" ? "0..1, >2" : "filter";
      input.setAttribute("aria-label", `filter ${data.columns[i]}`);
      input.oninput = () => { filters[i] = input.value; most = 15; show(); };
      inputs[i] = input;
      head.replaceChildren(button, input);
    });
    show();
  }

  // --- brushing: a drag along an axis writes a filter -------------------------------------------
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
      const column = data.columns.indexOf(axis.name);
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
      if (column >= 0) { inputs[column].value = filters[column] = text; show(); }
    };
    picture.addEventListener("pointerdown", (event) => {
      const [x, y] = place(event);
      axis = axes.find((each) => Math.abs(each.x - x) < 16) || null;
      from = y;
      if (axis) { picture.setPointerCapture(event.pointerId); event.preventDefault(); }
    });
    picture.addEventListener("pointermove", (event) => { if (axis) brush(place(event)[1]); });
    picture.addEventListener("pointerup", (event) => { if (axis) brush(place(event)[1]); axis = null; });
  }

  // --- commands to copy ---------------------------------------------------------------------------
  for (const code of document.querySelectorAll("dd code")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.textContent = "copy";
    button.onclick = () => {
      const range = document.createRange(), selection = getSelection();
      range.selectNodeContents(code);
      selection.removeAllRanges();
      selection.addRange(range);
      button.textContent = document.execCommand("copy") ? "copied" : "selected";
    };
    code.after(button);
  }
})();
