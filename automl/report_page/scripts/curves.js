// The learning curves on a logarithmic axis or on a linear one, and over steps or over the time in
// which each trial had run, by switches.
(() => {
  const picture = document.querySelector("svg.curves");
  if (!picture) return;
  const SVG = "http://www.w3.org/2000/svg";
  const [low, high, top, base, left, right] = picture.dataset.frame.split(" ").map(Number);
  const drawnLog = picture.dataset.log === "1";
  const label = picture.querySelector("text.label:not([transform])"), stepLabel = label.textContent;
  const stepTicks = [...picture.querySelectorAll("text[text-anchor=middle]:not(.label), path.grid[d*=V]")];

  // --- what is drawn, as it was made: over steps ----------------------------------------------------
  const valueAt = (y) => {
    const share = (base - y) / (base - top);
    return drawnLog ? low * (high / low) ** share : low + share * (high - low);
  };
  const marks = [...picture.querySelectorAll("path:not(.grid)")].map((path) => {
    const d = path.getAttribute("d"), numbers = path.dataset.s?.split(" ").map(Number);
    const places = [...d.matchAll(/([ML])([\d.-]+) ([\d.-]+)/g)].map(([, pen, x, y]) => ({ pen, x: +x, value: valueAt(+y) }));
    const [from, to] = [places[0].x, places.at(-1).x];
    places.forEach((place, i) => {
      if (numbers?.length === places.length) place.seconds = numbers[i];
      else if (numbers) place.seconds = numbers[0] + ((place.x - from) / (to - from)) * (numbers.at(-1) - numbers[0]);
    });
    return { path, places, end: /[^\dML. -].*$/.exec(d.split(/[ML]/).at(-1))?.[0] ?? "", numbers };
  });
  const curves = marks.filter(({ path }) => path.matches(".curve")), byTrial = new Map(curves.map((mark) => [mark.path.dataset.n, mark.places]));
  // Ends of pruned trials and the band of the best have the times of their curves.
  const winner = new Map((curves.find(({ path }) => path.matches(".winner"))?.places ?? []).map(({ x, seconds }) => [x, seconds]));
  for (const { path, places } of marks) {
    if (path.dataset.of) path.dataset.of.split(" ").forEach((n, i) => { places[i].seconds = byTrial.get(n)?.at(-1).seconds; places[i].shift = -4; });
    if (path.matches(".band")) for (const place of places) place.seconds = winner.get(Math.round(place.x));
  }
  const hasTimes = curves.every(({ numbers }) => numbers), longest = Math.max(...curves.map(({ places }) => places.at(-1).seconds));
  const [unit, unitName] = longest > 7200 ? [3600, "hours"] : longest > 180 ? [60, "minutes"] : [1, "seconds"];

  const placeOf = (value, log) => {
    if (log && value <= 0) return base + (base - top);
    const share = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return base - Math.min(5, Math.max(-4, share)) * (base - top);
  };
  const round = (from, to) => {
    const rough = (to - from) / 5, size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * size).find((each) => each >= rough);
    return Array.from({ length: 12 }, (_, i) => (Math.ceil(from / step) + i) * step).filter((value) => value <= to);
  };
  const ticks = (log) => {
    if (!log) return round(low, high);
    const powers = [], decades = Math.log10(high / low);
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const factor of decades > 3 ? [1] : decades > 1 ? [1, 3] : [1, 2, 5]) powers.push(factor * 10 ** power);
    return powers.filter((value) => value >= low && value <= high);
  };
  const grid = (d, x, y, anchor, text) => {
    const line = document.createElementNS(SVG, "path"), words = document.createElementNS(SVG, "text");
    for (const [key, value] of Object.entries({ class: "grid", d })) line.setAttribute(key, value);
    for (const [key, value] of Object.entries({ class: "tick", x, y, "text-anchor": anchor })) words.setAttribute(key, value);
    words.textContent = String(+text.toPrecision(4));
    picture.prepend(line);
    picture.append(words);
    return [line, words];
  };
  let timeTicks = [];
  const draw = (log, overTime) => {
    const across = (place) => (!overTime ? place.x : place.seconds === undefined ? -99 : left + (place.seconds / longest) * (right - left) + (place.shift ?? 0));
    for (const { path, places, end } of marks)
      path.setAttribute("d", places.map((place) => `${place.pen}${+across(place).toFixed(1)} ${placeOf(place.value, log).toFixed(1)}${place.shift ? "h8" : ""}`).join("") + (places[0].shift ? "" : end));
    picture.querySelectorAll("path.grid[d*=H], text[text-anchor=end]").forEach((old) => old.remove());
    for (const value of ticks(log)) {
      const y = placeOf(value, log).toFixed(1);
      grid(`M${left} ${y}H${right}`, left - 6, +y + 4, "end", value);
    }
    for (const mark of stepTicks) mark.style.display = overTime ? "none" : "";
    timeTicks.forEach((old) => old.remove());
    timeTicks = overTime ? round(0, longest / unit).flatMap((value) => {
      const x = (left + ((value * unit) / longest) * (right - left)).toFixed(1);
      return grid(`M${x} ${top}V${base}`, x, base + 15, "middle", value);
    }) : [];
    label.textContent = overTime ? `${unitName} in which the trial had run` : stepLabel;
    study.redrawn(picture);
  };

  const boxes = document.createElement("p"), state = { log: drawnLog, time: false };
  boxes.className = "legend";
  const add = (key, text) => {
    const box = document.createElement("input"), words = document.createElement("label");
    box.type = "checkbox";
    box.checked = state[key];
    box.onchange = () => { state[key] = box.checked; draw(state.log, state.time); };
    words.append(box, ` ${text} `);
    boxes.append(words);
  };
  if (low > 0) add("log", "logarithmic axis");  // else a logarithm has no place for it
  if (hasTimes && longest > 0) add("time", "over time");
  picture.parentElement.after(boxes);
})();
