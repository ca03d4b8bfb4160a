// The panel of the selected trial: its params beside the best and its neighbours, its curve, its
// attempts, and how its model is loaded.
(() => {
  const { columns, details } = study.data;
  const isTrial = (row) => typeof row[0] === "number";
  const make = (tag, text, ...children) => {
    const made = document.createElement(tag);
    if (text !== null) made.textContent = text;
    made.append(...children);
    return made;
  };
  const panel = make("aside", null);
  panel.id = "trial";
  panel.setAttribute("aria-label", "the selected trial");
  panel.tabIndex = 0;  // it scrolls
  panel.hidden = true;
  document.body.append(panel);

  const bytes = (n) => (n >= 1024 ? `${(n / 1024).toFixed(1)} GiB` : `${Math.round(n)} MiB`);
  const paramsTable = (row) => {
    const beside = [["this", row], ["the best", study.best], ["next better", study.neighbour(row[0], -1)], ["next worse", study.neighbour(row[0], 1)]]
      .filter(([, other], i) => other && (i === 0 || other[0] !== row[0]) && (i < 2 || isTrial(row)));
    const head = make("tr", null, make("th", columns[0]), ...beside.map(([name, other]) => make("th", `${name} (${other[0]})`)));
    const lines = columns.flatMap((name, i) => {
      if (i === 0 || (isTrial(row) ? beside : beside.slice(0, 1)).every(([, other]) => other[i] === null)) return [];
      return [make("tr", null, make("th", name), ...beside.map(([, other]) => {
        const cell = make("td", study.textOf(other[i]));
        if (study.plain(other[i]) !== study.plain(row[i])) cell.className = "differs";
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
  // What is behind the ensemble: its members, and the pictures of what it goes by.
  const members = (found) => found.members.map(([n, weight]) => {
    const line = make("li", null), button = make("button", `trial ${n}`);
    button.className = "copy";
    button.onclick = () => study.select(n);
    line.append(button, ` ${Math.round(100 * weight)} %`);
    return line;
  });
  const pictures = () => [...document.querySelectorAll("#why svg[role=img]")].map((picture) => picture.cloneNode(true));
  const attempts = (all, own) => all.map(([device, seconds, asked, seen, state = own]) => {
    const memory = [asked && `asked ${bytes(asked)}`, seen && `seen ${bytes(seen)}`].filter(Boolean).join(", ");
    return make("li", `${details.devices[device]}: ${seconds} s, ${state}${memory ? `; ${memory}` : ""}`);
  });

  study.on("selected", (n) => {
    panel.hidden = n === null;
    if (n === null) return;
    const row = study.row(n), found = details.trials[n], tries = details.attempts[n] ?? [], state = row[columns.indexOf("state")];
    const close = make("button", "×");
    close.className = "close";
    close.setAttribute("aria-label", "close");
    close.onclick = () => study.select(n);
    const parts = [close, make("h2", isTrial(row) ? `Trial ${n}: ${state}` : String(n))];
    if (found?.cause) parts.push(make("p", found.cause));
    const table = paramsTable(row);
    table.className = "scroll";
    parts.push(table, ...curve(n));
    if (found?.members) parts.push(make("h3", "Its members, with their weights"), make("ul", null, ...members(found)), ...pictures());
    if (tries.length) parts.push(make("h3", tries.length > 1 ? "Attempts" : "Attempt"), make("ul", null, ...attempts(tries, state)));
    if (found?.log) parts.push(make("h3", "Last lines of its log"), make("pre", found.log.join("\n")));
    if (found?.file) parts.push(make("h3", "Load its model"), make("code", details.load.replace("FILE", found.file)));
    panel.replaceChildren(...parts);
    panel.scrollTop = 0;
  });
})();
