// A picture of any two params: each trial coloured by its value, over a map of what trials near a
// place have. It is drawn here, since there are too many pairs for the page.
(() => {
  const SVG = "http://www.w3.org/2000/svg", WIDTH = 560, HEIGHT = 340, COLOURS = 10, CELLS = [32, 20];
  const frame = { left: 90, right: 548, top: 14, base: 290 };
  const section = document.querySelector("#params .charts"), { columns, rows } = study.data;
  const scales = new Map([...document.querySelectorAll("svg.parallel [data-axis]")].map((axis) => [axis.dataset.name, JSON.parse(axis.dataset.scale)]));
  const metric = [...scales.keys()].at(-1), names = [...scales.keys()].slice(0, -1).filter((name) => columns.includes(name));
  const lines = new Map([...document.querySelectorAll("svg.parallel path.line")].map((line) => [+line.dataset.n, line]));
  if (!section || names.length < 2) return;

  // A line of the picture above knows the colour of its trial's value.
  const colourOf = (n) => +(/\bv(\d)\b/.exec(lines.get(n)?.getAttribute("class") ?? "")?.[1] ?? -1);
  const share = (scale, value, n) => {
    if (scale.categories) {
      const place = scale.categories.indexOf(String(value).replace(/^(true|false)$/, (word) => word[0].toUpperCase() + word.slice(1)));
      return place < 0 ? null : (place + 0.5 + (((n * 0.618) % 1) - 0.5) * 0.5) / scale.categories.length;
    }
    const [low, high, at] = scale.log ? [scale.low, scale.high, value].map(Math.log) : [scale.low, scale.high, value];
    return high > low ? (at - low) / (high - low) : 0.5;
  };
  const make = (tag, attributes, text) => {
    const made = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const number = (value) => String(+value.toPrecision(3));
  const ticks = (scale) => {
    if (scale.categories) return scale.categories.slice(0, 12).map((text, i) => [(i + 0.5) / scale.categories.length, text.slice(0, 10)]);
    return [0, 0.25, 0.5, 0.75, 1].map((at) => [at, number(scale.log
      ? Math.exp(Math.log(scale.low) + at * Math.log(scale.high / scale.low)) : scale.low + at * (scale.high - scale.low))]);
  };
  const x = (at) => frame.left + at * (frame.right - frame.left), y = (at) => frame.base - at * (frame.base - frame.top);
  const picture = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "pair" });
  const chosen = [null, null];

  const draw = ([first, second]) => {
    const [across, up] = [scales.get(first), scales.get(second)], [i, j] = [columns.indexOf(first), columns.indexOf(second)];
    const points = rows.filter((row) => row[i] !== null && row[j] !== null && colourOf(row[0]) >= 0)
      .map((row) => ({ n: row[0], at: share(across, row[i], row[0]), over: share(up, row[j], row[0]), colour: colourOf(row[0]) }))
      .filter((point) => point.at !== null && point.over !== null);
    picture.replaceChildren();
    picture.setAttribute("aria-label", `${metric} by ${first} and ${second}`);
    const [wide, tall] = [(frame.right - frame.left) / CELLS[0], (frame.base - frame.top) / CELLS[1]];
    for (let column = 0; column < CELLS[0]; column++) {
      for (let line = 0; line < CELLS[1]; line++) {
        const [at, over] = [(column + 0.5) / CELLS[0], (line + 0.5) / CELLS[1]];
        let [sum, weights, nearest] = [0, 0, Infinity];
        for (const point of points) {
          const distance = (point.at - at) ** 2 + (point.over - over) ** 2, weight = 1 / (distance + 0.002) ** 2;
          sum += weight * point.colour;
          weights += weight;
          nearest = Math.min(nearest, distance);
        }
        if (nearest > 0.02) continue;  // no trial is near: nothing is known here
        picture.append(make("rect", { class: `map v${Math.round(sum / weights)}`, x: x(at) - wide / 2, y: y(over) - tall / 2, width: wide, height: tall }));
      }
    }
    for (const [at, text] of ticks(across)) picture.append(make("text", { class: "tick", x: x(at), y: frame.base + 18, "text-anchor": at === 0 ? "start" : at === 1 ? "end" : "middle" }, text));
    for (const [at, text] of ticks(up)) picture.append(make("text", { class: "tick", x: frame.left - 6, y: y(at) + 4, "text-anchor": "end" }, text));
    picture.append(make("text", { class: "label", x: (frame.left + frame.right) / 2, y: HEIGHT - 12, "text-anchor": "middle" }, first + (across.log ? " (log)" : "")),
      make("text", { class: "label", transform: `translate(14 ${(frame.top + frame.base) / 2}) rotate(-90)`, "text-anchor": "middle" }, second + (up.log ? " (log)" : "")));
    for (let colour = COLOURS - 1; colour >= 0; colour--) {
      const own = points.filter((point) => point.colour === colour);
      if (own.length) picture.append(make("path", { class: `dots value v${colour}`, "data-n": own.map((point) => point.n).join(" "), d: own.map((point) => `M${x(point.at).toFixed(1)} ${y(point.over).toFixed(1)}h0`).join("") }));
    }
    study.readPicture?.(picture);
  };

  const choose = (place, name) => {
    const select = document.createElement("select");
    select.setAttribute("aria-label", place ? "param upwards" : "param to the right");
    for (const each of names) select.append(new Option(each, each, false, each === name));
    select.onchange = () => { chosen[place] = select.value; draw(chosen); };
    chosen[place] = name;
    return select;
  };
  // The two that matter most are drawn first: the importances name them in their order.
  const ordered = [...document.querySelectorAll("#params details tbody td:first-child")].map((cell) => cell.textContent).filter((name) => names.includes(name));
  const [first, second] = [...new Set([...ordered, ...names])];
  const box = document.createElement("div");
  box.className = "pairs";
  const words = document.createElement("p");
  words.append("Two params: ", choose(0, first), " and ", choose(1, second), `; the best ${metric} has the strongest colour, and the ground shows what trials nearby have.`);
  box.append(words, picture);
  section.after(box);
  draw(chosen);
})();
