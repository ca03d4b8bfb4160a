// The panel of the selected trial: its params beside the best and its neighbours, its curve, its
// attempts, and how its model is loaded.
(() => {
  const { columns, rows, details } = study.data;
  const make = (tag, text, ...children) => {
    const made = document.createElement(tag);
    if (text !== null) made.textContent = text;
    made.append(...children);
    return made;
  };
  const panel = make("aside", null);
  panel.id = "trial";
  panel.setAttribute("aria-label", "the selected trial");
  panel.hidden = true;
  document.body.append(panel);

  const bytes = (n) => (n >= 2 ** 30 ? `${(n / 2 ** 30).toFixed(1)} GiB` : `${Math.round(n / 2 ** 20)} MiB`);
  const paramsTable = (row) => {
    const beside = [["this", row], ["the best", rows[0]], ["next better", study.neighbour(row[0], -1)], ["next worse", study.neighbour(row[0], 1)]]
      .filter(([, other], i) => other && (i === 0 || other[0] !== row[0]));
    const head = make("tr", null, make("th", ""), ...beside.map(([name, other]) => make("th", `${name} (${other[0]})`)));
    const lines = columns.flatMap((name, i) => {
      if (i === 0 || beside.every(([, other]) => other[i] === null)) return [];
      return [make("tr", null, make("th", name), ...beside.map(([, other]) => {
        const cell = make("td", other[i] === null ? "" : String(other[i]));
        if (other[i] !== row[i]) cell.className = "differs";
        return cell;
      }))];
    });
    return make("div", null, make("table", null, make("thead", null, head), make("tbody", null, ...lines)));
  };
  const curve = (n) => {
    const picture = document.querySelector("#curves svg[role=img]");
    const own = picture?.querySelector(`.curve[data-n="${n}"]`);
    if (!own) return [];
    const copy = picture.cloneNode(true);
    for (const mark of copy.querySelectorAll(".curve, .hollow, circle")) {
      if (+mark.dataset.n !== n && !mark.matches(".winner")) mark.remove();
      else mark.classList.remove("hovered", "out");
    }
    copy.querySelector(`.curve[data-n="${n}"]`).classList.add("chosen");
    copy.setAttribute("aria-label", `learning curve of trial ${n}, and of the best`);
    return [copy];
  };
  const attempts = (found) => found.attempts.map(([device, seconds, state, asked, seen]) => {
    const memory = [asked && `asked ${bytes(asked)}`, seen && `seen ${bytes(seen)}`].filter(Boolean).join(", ");
    return make("li", `${details.devices[device]}: ${seconds} s, ${state}${memory ? `; ${memory}` : ""}`);
  });

  study.on("selected", (n) => {
    panel.hidden = n === null;
    if (n === null) return;
    const row = study.row(n), found = details.trials[n];
    const close = make("button", "×");
    close.className = "close";
    close.setAttribute("aria-label", "close");
    close.onclick = () => study.select(n);
    const parts = [close, make("h2", `Trial ${n}: ${row[columns.indexOf("state")]}`)];
    if (found?.cause) parts.push(make("p", found.cause));
    const table = paramsTable(row);
    table.className = "scroll";
    parts.push(table, ...curve(n));
    if (found?.attempts.length) parts.push(make("h3", found.attempts.length > 1 ? "Attempts" : "Attempt"), make("ul", null, ...attempts(found)));
    if (found?.log) parts.push(make("h3", "Last lines of its log"), make("pre", found.log.join("\n")));
    if (found?.file) parts.push(make("h3", "Load its model"), make("code", details.load.replace("FILE", found.file)));
    panel.replaceChildren(...parts);
    panel.scrollTop = 0;
  });
})();
