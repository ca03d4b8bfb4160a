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
  study.begin();
})();
