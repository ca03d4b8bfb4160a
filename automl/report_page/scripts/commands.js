// Commands to copy, and the begin of the page: all listeners are there by now.
(() => {
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
  // What scrolls is reached by the keyboard, too.
  const reach = () => {
    for (const box of document.querySelectorAll(".scroll, .charts, nav")) {
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  study.begin();
  reach();
  study.on("selected", reach);
  addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true);
})();
