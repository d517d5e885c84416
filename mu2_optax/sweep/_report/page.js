// What report.html does: values under the pointer or the arrow keys, lines that can be hidden, curves
// at a chosen rate, lines of Python to copy. Without scripts the page shows the same, browsers show
// their own tooltips, and a click on a line of Python selects it.
"use strict";
for (const block of document.querySelectorAll(".copied")) {
  const code = block.querySelector("code");
  const button = block.appendChild(document.createElement("button"));
  button.type = "button";
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    } catch {  // no clipboard here: what is selected can be copied by hand
      getSelection().selectAllChildren(code);
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
}
addEventListener("beforeprint", () => {  // where the style sheet cannot unfold them
  for (const part of document.querySelectorAll("details:not([open])")) {
    part.open = part.dataset.folded = true;
  }
});
addEventListener("afterprint", () => {
  for (const part of document.querySelectorAll("details[data-folded]")) {
    part.open = false;
    delete part.dataset.folded;
  }
});
for (const figure of document.querySelectorAll("figure")) {
  const tip = figure.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.setAttribute("role", "status");
  const words = new Map();  // what each dot stands for, those of the line in front first
  for (const line of [...figure.querySelectorAll(".line")].reverse()) {
    for (const title of line.querySelectorAll("title")) {
      words.set(title.parentNode, title.textContent);
      title.remove();  // two tooltips are one too many
    }
  }
  const visible = () => [...words.keys()].filter((dot) => dot.getClientRects().length);
  let here = null;

  const lineOf = (dot) => dot.closest(".line").dataset.label;
  const emphasize = (label) => {
    figure.classList.toggle("dim", label !== null);
    for (const line of figure.querySelectorAll(".line")) {
      line.classList.toggle("on", line.dataset.label === label);
    }
  };
  const show = (dot) => {
    if (dot === here) return;
    here?.classList.remove("here");
    here = dot;
    tip.textContent = dot ? words.get(dot) : "";
    emphasize(dot ? lineOf(dot) : null);
    if (!dot) return;
    dot.classList.add("here");
    const frame = figure.getBoundingClientRect(), box = dot.getBoundingClientRect();
    const x = box.left + box.width / 2 - frame.left, y = box.top + box.height / 2 - frame.top;
    const left = Math.min(Math.max(x - tip.offsetWidth / 2, 0), frame.width - tip.offsetWidth);
    tip.style.left = `${left}px`;
    tip.style.top = `${y > tip.offsetHeight + 14 ? y - tip.offsetHeight - 12 : y + 14}px`;
  };
  const nearest = (event) => {
    let best = null, least = 32;  // pixels
    for (const dot of visible()) {
      const box = dot.getBoundingClientRect();
      const far = Math.hypot(box.left + box.width / 2 - event.clientX, box.top + box.height / 2 - event.clientY);
      if (far < least) [best, least] = [dot, far];
    }
    return best;
  };

  for (const chart of figure.querySelectorAll(".chart")) {
    const plot = chart.parentNode;
    plot.addEventListener("pointermove", (event) => show(nearest(event)));
    plot.addEventListener("pointerdown", (event) => show(nearest(event)));
    plot.addEventListener("pointerleave", () => show(null));
    chart.addEventListener("blur", () => show(null));
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") show(null);
      if (!step) return;
      event.preventDefault();
      const dots = visible().filter((dot) => chart.contains(dot));
      show(dots[(dots.indexOf(here) + step + dots.length) % dots.length]);
    });
  }
  for (const button of figure.querySelectorAll(".legend button")) {
    const label = button.dataset.label;
    button.addEventListener("click", () => {
      const off = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!off));
      for (const line of figure.querySelectorAll(".line")) {
        if (line.dataset.label === label) line.classList.toggle("off", off);
      }
    });
    button.addEventListener("pointerenter", () => emphasize(label));
    button.addEventListener("pointerleave", () => emphasize(null));
  }
  figure.querySelector("select")?.addEventListener("change", (event) => {
    show(null);
    for (const plot of figure.querySelectorAll(".switched")) {
      plot.classList.toggle("shown", plot.dataset.choice === event.target.value);
    }
  });
}
