// The learning curves on a logarithmic axis, or on a linear one, by a switch.
(() => {
  const picture = document.querySelector("svg.curves");
  if (!picture) return;
  const SVG = "http://www.w3.org/2000/svg";
  const [low, high, top, base, left, right] = picture.dataset.frame.split(" ").map(Number);
  let isLog = picture.dataset.log === "1";
  if (low <= 0) return;  // a logarithm has no place for it

  const valueAt = (y, log) => {
    const share = (base - y) / (base - top);
    return log ? low * (high / low) ** share : low + share * (high - low);
  };
  const placeOf = (value, log) => {
    if (log && value <= 0) return base + (base - top);
    const share = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return base - Math.min(5, Math.max(-4, share)) * (base - top);
  };
  const ticks = (log) => {
    if (log) {
      const powers = [], decades = Math.log10(high / low);
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
        for (const factor of decades > 3 ? [1] : decades > 1 ? [1, 3] : [1, 2, 5]) powers.push(factor * 10 ** power);
      return powers.filter((value) => value >= low && value <= high);
    }
    const rough = (high - low) / 5, size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * size).find((each) => each >= rough);
    return Array.from({ length: 12 }, (_, i) => (Math.ceil(low / step) + i) * step).filter((value) => value <= high);
  };
  const draw = (log) => {
    const move = (y) => placeOf(valueAt(+y, isLog), log).toFixed(1);
    for (const path of picture.querySelectorAll("path:not(.grid)"))
      path.setAttribute("d", path.getAttribute("d").replace(/([ML])([\d.-]+) ([\d.-]+)/g, (_, pen, x, y) => `${pen}${x} ${move(y)}`));
    picture.querySelectorAll("path.grid[d*=H], text[text-anchor=end]").forEach((old) => old.remove());
    for (const value of ticks(log)) {
      const y = placeOf(value, log).toFixed(1), line = document.createElementNS(SVG, "path"), text = document.createElementNS(SVG, "text");
      line.setAttribute("class", "grid");
      line.setAttribute("d", `M${left} ${y}H${right}`);
      for (const [key, word] of Object.entries({ class: "tick", x: left - 6, y: +y + 4, "text-anchor": "end" })) text.setAttribute(key, word);
      text.textContent = String(+value.toPrecision(4));
      picture.prepend(line);
      picture.append(text);
    }
    isLog = log;
    study.redrawn(picture);
  };
  const box = document.createElement("input"), label = document.createElement("label");
  box.type = "checkbox";
  box.checked = isLog;
  box.onchange = () => draw(box.checked);
  label.className = "legend";
  label.append(box, " logarithmic axis");
  picture.parentElement.after(label);
})();
