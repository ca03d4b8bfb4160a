// What is selected, filtered, sorted and folded is kept in the address, so that it is there again
// when the page of a running sweep loads itself anew. It does so only while the sweep writes it.
(() => {
  const QUIET = 3, MIN_QUIET_SECONDS = 60;  // no page for so many turns: the sweep was killed
  const kept = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  const folds = [...document.querySelectorAll("details")];
  study.restore(kept);
  for (const [word, open] of [["opened", true], ["closed", false]])
    for (const place of (kept.get(word) ?? "").split(" ").filter(Boolean)) if (folds[place]) folds[place].open = open;

  const begun = folds.map((fold) => fold.hasAttribute("data-open"));
  const keep = () => {
    const state = study.state();
    for (const [word, open] of [["opened", true], ["closed", false]]) {
      const changed = folds.map((fold, i) => (fold.open === open && begun[i] !== open ? i : -1)).filter((i) => i >= 0);
      if (changed.length) state.set(word, changed.join(" "));
    }
    const text = state.toString();
    if (text) history.replaceState(null, "", `#${text}`);
    else if (location.hash.includes("=")) history.replaceState(null, "", "#");
  };
  if (location.protocol !== "about:") {  // a notebook's frame has no address
    study.on("selected", keep);
    study.on("filtered", keep);
    folds.forEach((fold) => fold.addEventListener("toggle", keep));
  }

  const made = document.querySelector(".made[data-refresh]");
  if (!made || location.protocol === "about:") return;
  const seconds = +made.dataset.refresh, written = +made.dataset.made;
  const isBusy = () => document.hidden || document.activeElement?.matches("input, select") || getSelection().toString();
  const next = () => {
    if (Date.now() / 1000 - written > Math.max(MIN_QUIET_SECONDS, QUIET * seconds)) {
      made.textContent = made.textContent.replace("The sweep runs; as of", "No news of the sweep since");
      made.append(". It may have been killed: python -m automl status");
    } else if (isBusy()) setTimeout(next, 1000);
    else location.reload();
  };
  setTimeout(next, 1000 * seconds);
})();
