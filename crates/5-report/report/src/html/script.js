// Optional: without scripts every link leads to the same details further down the page.
(() => {
  "use strict";
  const dialog = document.createElement("dialog");
  if (!dialog.showModal) return;
  document.documentElement.classList.add("scripted");

  const details = [...document.querySelectorAll(".detail")];
  const make = (tag, text, label) => {
    const element = document.createElement(tag);
    element.textContent = text;
    if (label) element.setAttribute("aria-label", label);
    return element;
  };

  // The dialog; its body is a copy of the details in the page.
  const title = make("h2", "");
  title.id = "dialog-title";
  title.tabIndex = -1;
  const previous = make("button", "←", "Previous microbenchmark");
  const next = make("button", "→", "Next microbenchmark");
  const close = make("button", "✕", "Close");
  const head = make("div", "");
  head.className = "dialog-head";
  head.append(title, previous, next, close);
  const body = make("div", "");
  body.className = "dialog-body";
  dialog.setAttribute("aria-labelledby", title.id);
  dialog.append(head, body);
  document.body.append(dialog);

  let shown = 0;
  // The link that opened the dialog. If another microbenchmark is shown when the dialog closes,
  // the focus moves to that one's link.
  let opener = null;

  const visible = (element) => element.getClientRects().length > 0;
  const links = () => [...document.querySelectorAll("#comparison a.open")].filter(visible);

  const show = (index) => {
    shown = (index + details.length) % details.length;
    const source = details[shown];
    const copy = source.cloneNode(true);
    copy.removeAttribute("id");
    title.replaceChildren(source.dataset.name, " ", make("small", source.dataset.group));
    body.replaceChildren(copy);
    body.scrollTop = 0;
    if (!dialog.open) dialog.showModal();
    title.focus();
  };

  const open = (link) => {
    const index = details.findIndex((detail) => "#" + detail.id === link.getAttribute("href"));
    if (index < 0) return false;
    opener = { link, index };
    show(index);
    return true;
  };

  document.addEventListener("click", (event) => {
    const modified = event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
    const link = event.target.closest("a.open");
    if (link && !modified && open(link)) event.preventDefault();
  });
  previous.addEventListener("click", () => show(shown - 1));
  next.addEventListener("click", () => show(shown + 1));
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    // Only a click on the backdrop has the dialog itself as its target.
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => {
    const moved = opener === null || opener.index !== shown;
    const own = links().find((link) => link.getAttribute("href") === "#" + details[shown].id);
    const link = moved ? own : opener.link;
    if (link) link.focus();
    opener = null;
  });
  dialog.addEventListener("keydown", (event) => {
    // In a text field the arrow keys move the cursor.
    if (event.target.matches("input")) return;
    // In a box that scrolls sideways the arrow keys scroll the box.
    const box = event.target.closest(".scroll");
    if (box && box.scrollWidth > box.clientWidth) return;
    if (event.key === "ArrowLeft") show(shown - 1);
    else if (event.key === "ArrowRight") show(shown + 1);
    else return;
    event.preventDefault();
  });

  // Up and down move between the names in the visible tables.
  document.addEventListener("keydown", (event) => {
    const all = links();
    const at = all.indexOf(event.target);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined || !all[to]) return;
    event.preventDefault();
    all[to].focus();
  });

  // Flame graphs: a click on a box gives it the whole width, a search marks functions.
  const nameOf = (box) => box.querySelector("title").textContent.split("\n")[0];
  const boxes = (flame) => [...flame.querySelectorAll(".frame")];
  // Where a box is if nothing is enlarged: left end, width and row.
  const placeOf = (box) => {
    box.dataset.place ??= ["x", "width", "y"].map((name) => parseFloat(box.getAttribute(name)));
    return box.dataset.place.split(",").map(Number);
  };
  const enlarge = (flame, target) => {
    const [from, size, row] = placeOf(target);
    // Positions are rounded.
    const covers = (x, width) => x <= from + 0.02 && x + width >= from + size - 0.02;
    for (const box of boxes(flame)) {
      const [x, width, y] = placeOf(box);
      const above = y < row && covers(x, width);
      const inside = y >= row && x >= from - 0.02 && x + width <= from + size + 0.02;
      box.classList.toggle("out", !above && !inside);
      const [left, shown] = above ? [0, 100] : [(100 * (x - from)) / size, (100 * width) / size];
      box.setAttribute("x", left + "%");
      box.setAttribute("width", shown + "%");
      let text = box.querySelector("text");
      if (!text) {
        text = document.createElementNS(box.namespaceURI, "text");
        text.setAttribute("x", 3);
        text.setAttribute("y", 12);
        box.append(text);
      }
      text.textContent = shown >= 2 ? nameOf(box) : "";
    }
  };
  document.addEventListener("click", (event) => {
    const flame = event.target.closest(".flame");
    const all = flame && boxes(flame);
    if (!all || !all.length) return;
    const box = event.target.closest(".frame");
    if (box || event.target.matches("button")) enlarge(flame, box ?? all[0]);
  });
  document.addEventListener("input", (event) => {
    const flame = event.target.closest(".flame");
    if (!flame) return;
    const wanted = event.target.value.trim().toLowerCase();
    flame.classList.toggle("searching", wanted !== "");
    // What a found function calls is counted with it.
    let [sum, end] = [0, 0];
    boxes(flame).forEach((box, number) => {
      const found = wanted !== "" && number > 0 && nameOf(box).toLowerCase().includes(wanted);
      box.classList.toggle("found", found);
      const [x, width] = placeOf(box);
      if (found && x >= end - 0.02) [sum, end] = [sum + width, x + width];
    });
    flame.querySelector("output").textContent = wanted && `${sum.toFixed(1)}% of the time`;
  });

  // An address with a microbenchmark's fragment opens its details.
  const linked = details.findIndex((detail) => "#" + detail.id === location.hash);
  if (linked >= 0) show(linked);
})();
