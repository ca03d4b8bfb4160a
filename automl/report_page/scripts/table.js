"use strict";
// The table of trials: sorted by a click on a head, filtered by what is typed below it. `study` is
// what the scripts of the page share: which trials pass the filters, and which one is selected.
const study = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  for (const [i, words] of Object.entries(data.words)) for (const row of data.rows) if (row[i] !== null) row[i] = words[row[i]];
  const table = document.getElementById("trial-table"), count = document.getElementById("count");
  const byNumber = new Map(data.rows.map((row, place) => [row[0], { row, place }]));
  const filters = data.columns.map(() => ""), inputs = [], listeners = { filtered: [], selected: [] };
  const trials = data.rows.filter((row) => typeof row[0] === "number");  // others are made of them
  const FEW = data.rows.length <= 25 ? 25 : 15;  // rows shown at first
  let sorted = null, rising = true, most = FEW, shown = [], kept = null, selected = null;

  // A cell may hold a number and the text of its uncertainty, which only people read.
  const plain = (cell) => (Array.isArray(cell) ? cell[0] : cell);
  const textOf = (cell) => (cell === null ? "" : Array.isArray(cell) ? cell.join(" ").replaceAll(" ", "\u00a0") : String(cell));
  const passes = (cell, filter) => {
    [cell, filter] = [plain(cell), filter.trim()];
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
    [a, b] = [plain(a), plain(b)];
    if (a === b) return 0;
    if (a === null) return 1;
    if (b === null) return -1;
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    return rising ? order : -order;
  };
  const copyText = (text, button) => {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand("copy") ? "copied" : "not copied";
    area.remove();
  };
  // Uncertainties have columns of their own in a CSV, so that the values stay numbers.
  const isUncertain = data.columns.map((_, i) => data.rows.some((row) => Array.isArray(row[i])));
  const spread = (row, name) => row.flatMap((cell, i) => (isUncertain[i] ? [plain(cell), name ? `${cell} (uncertainty)` : Array.isArray(cell) ? cell[1] : null] : [cell]));
  const csv = (rows) => [spread(data.columns, true), ...rows.map((row) => spread(row, false))].map((row) => row.map((cell) => {
    const text = cell === null ? "" : String(cell);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",")).join("\n") + "\n";
  const button = (text, act) => {
    const made = document.createElement("button");
    made.className = "copy";
    made.textContent = text;
    made.onclick = () => act(made);
    return made;
  };
  // An empty column says nothing; the state is always there.
  const isEmpty = data.columns.map((name, i) => name !== "state" && data.rows.every((row) => row[i] === null));

  const markSorted = () => {
    for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
    table.tHead.rows[0].cells[sorted].setAttribute("aria-sort", rising ? "ascending" : "descending");
  };
  const mark = () => {
    for (const line of table?.tBodies[0].rows ?? []) line.setAttribute("aria-selected", String(line.dataset.trial === String(selected)));
  };
  const show = () => {
    shown = data.rows.filter((row) => row.every((cell, i) => passes(cell, filters[i])));
    if (sorted !== null) shown = [...shown].sort((a, b) => compare(a[sorted], b[sorted]));
    const body = document.createElement("tbody");
    body.tabIndex = 0;
    body.setAttribute("aria-label", "trials: arrow keys select one");
    for (const row of shown.slice(0, most)) {
      const line = body.insertRow();
      line.dataset.trial = row[0];
      row.forEach((cell, i) => {
        if (isEmpty[i]) return;
        const place = line.insertCell();
        place.className = data.columns[i] === "state" ? "n state" : "n";
        place.textContent = textOf(cell);
      });
    }
    body.onclick = (event) => {
      const key = event.target.closest("tr").dataset.trial;
      study.select(shown.find((row) => String(row[0]) === key)[0]);
    };
    body.onkeydown = (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !shown.length) return;
      event.preventDefault();
      const place = shown.findIndex((row) => row[0] === selected);
      const next = Math.min(shown.length - 1, Math.max(0, place < 0 ? 0 : place + step));
      if (next >= most) { most *= 4; show(); table.tBodies[0].focus(); }
      study.select(shown[next][0]);
    };
    table.tBodies[0].replaceWith(body);
    count.textContent = `${shown.length} of ${data.rows.length} ${data.columns[0]}s${shown.length > most ? `, ${most} shown ` : " "}`;
    if (shown.length > most) count.append(button("show more", () => { most *= 4; show(); }));
    count.append(button("copy as CSV", (made) => copyText(csv(shown), made)));
    if (filters.some(Boolean)) count.append(button("show all", () => {
      filters.fill("");
      inputs.forEach((input) => { if (input) input.value = ""; });
      show();
      for (const heard of listeners.cleared ?? []) heard();
    }));
    kept = filters.some(Boolean) ? new Set(shown.map((row) => row[0])) : null;
    mark();
    for (const heard of listeners.filtered) heard(kept);
  };

  const self = {
    data,
    /** When a drag in a picture ended: the click that follows it selects nothing. */
    draggedMs: -1000,
    inputs,
    row: (number) => byNumber.get(number)?.row,
    /** Return the row that lies `step` places from a trial in the order of values. */
    neighbour: (number, step) => trials[trials.indexOf(byNumber.get(number)?.row) + step],
    best: trials[0],
    plain,
    textOf,
    get selected() { return selected; },
    on: (what, heard) => (listeners[what] ??= []).push(heard),
    /** Return what is selected, filtered and sorted, for the address of the page. */
    state: () => {
      const state = new URLSearchParams();
      if (selected !== null) state.set("trial", selected);
      filters.forEach((text, i) => { if (text) state.set(`filter.${data.columns[i]}`, text); });
      if (sorted !== null) state.set("sort", `${rising ? "" : "-"}${data.columns[sorted]}`);
      return state;
    },
    restore: (state) => {
      const sort = state.get("sort") ?? "", place = data.columns.indexOf(sort.replace(/^-/, ""));
      if (table && place >= 0) { [sorted, rising] = [place, !sort.startsWith("-")]; markSorted(); }
      data.columns.forEach((name, i) => { if (inputs[i] && state.has(`filter.${name}`)) inputs[i].value = filters[i] = state.get(`filter.${name}`); });
      if (table && (place >= 0 || filters.some(Boolean))) show();
      const row = data.rows.find((each) => String(each[0]) === state.get("trial"));
      if (row && selected === null) self.select(row[0]);
    },
    setFilter: (column, text) => { inputs[column].value = filters[column] = text; most = FEW; show(); },
    select: (number) => {
      if (number !== null && !byNumber.has(number)) return;
      selected = number === selected ? null : number;
      mark();
      const line = table?.querySelector('[aria-selected="true"]');
      if (line && document.activeElement === table.tBodies[0]) line.scrollIntoView({ block: "nearest" });
      for (const heard of listeners.selected) heard(selected);
    },
    copyText,
  };
  self.begin = () => {
    if (!table) return;
    [...table.tHead.rows[0].cells].forEach((head, i) => {
      if (isEmpty[i]) { head.hidden = true; return; }
      const sort = document.createElement("button"), input = document.createElement("input");
      sort.textContent = head.textContent;
      sort.title = "sort";
      sort.onclick = () => {
        rising = sorted === i ? !rising : true;
        sorted = i;
        markSorted();
        show();
      };
      input.placeholder = data.rows.length && data.rows.some((row) => i > 0 && typeof plain(row[i]) === "number") ? "0..1, >2" : "filter";
      input.setAttribute("aria-label", `filter ${data.columns[i]}`);
      input.oninput = () => { filters[i] = input.value; most = FEW; show(); };
      inputs[i] = input;
      head.replaceChildren(sort, input);
    });
    show();
  };
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && selected !== null) self.select(selected); });
  return self;
})();
