"use strict";
// Filters and tooltips. Without this script the page shows everything, and browsers show each
// shape's title themselves.
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const root = document.documentElement;

// Theme switch: overrides the system's dark or light setting.
const theme = document.getElementById("theme");
const isDark = () =>
  (root.style.colorScheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
theme.addEventListener("click", () => {
  root.style.colorScheme = isDark() ? "light" : "dark";
  nameTheme();
});
theme.hidden = false;
nameTheme();

// Shows items whose technique and sizes are all selected. Byte streams have size 0.
const filter = document.getElementById("filter");
const boxes = (name) => all(`input[name=${name}]`, filter);
function show() {
  const [techniques, sizes] = ["t", "s"].map((name) =>
    new Set(boxes(name).filter((box) => box.checked).map((box) => box.value)));
  for (const it of all("[data-t], [data-s]")) {
    const { t, s } = it.dataset;
    const chosen = (t === undefined || techniques.has(t)) &&
      (s === undefined || s.split(" ").every((size) => size === "0" || sizes.has(size)));
    // SVG elements have no `hidden` property.
    it.toggleAttribute("hidden", !chosen);
  }
  const count = boxes("t").length;
  document.getElementById("chosen").textContent =
    techniques.size === count ? `all ${count}` : `${techniques.size} of ${count}`;
  for (const family of all("[data-family]", filter)) {
    const mine = all("input[name=t]", family.closest("fieldset"));
    family.checked = mine.every((box) => box.checked);
    family.indeterminate = !family.checked && mine.some((box) => box.checked);
  }
}
filter.addEventListener("change", ({ target }) => {
  if ("family" in target.dataset) {
    for (const box of all("input[name=t]", target.closest("fieldset"))) box.checked = target.checked;
  }
  show();
});
filter.addEventListener("click", ({ target }) => {
  if ("all" in target.dataset) {
    for (const box of boxes("t")) box.checked = target.dataset.all !== "";
    show();
  }
});
filter.addEventListener("submit", (event) => event.preventDefault());
const choose = filter.querySelector(".choose");
document.addEventListener("click", ({ target }) => { if (!choose.contains(target)) choose.open = false; });
filter.hidden = false;

// Tooltip of a mark: its title, shown beside it.
const tip = document.getElementById("tip");
const titles = new Map();
for (const mark of all("[data-mark]")) {
  const title = mark.querySelector("title");
  titles.set(mark, title.textContent);
  title.remove();
}
let current = null;
function explain(mark) {
  current?.classList.remove("on");
  current = mark;
  tip.hidden = !mark;
  if (!mark) return;
  mark.classList.add("on");
  tip.textContent = titles.get(mark);
  const at = (mark.querySelector("circle.dot, rect") ?? mark).getBoundingClientRect();
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(Math.max(at.left + at.width / 2 + 14, 8), innerWidth - width - 8);
  const above = at.top - height - 10;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 8 ? above : at.bottom + 10}px`;
}
const visible = (chart) => all("[data-mark]", chart).filter((mark) => mark.getClientRects().length > 0);
// In a plot the nearest point is chosen: points are too small to hit exactly.
function near(plot, x, y) {
  let [best, least] = [null, 30];
  for (const mark of visible(plot)) {
    const at = mark.querySelector("circle").getBoundingClientRect();
    const distance = Math.hypot(at.left + at.width / 2 - x, at.top + at.height / 2 - y);
    if (distance < least) [best, least] = [mark, distance];
  }
  return best;
}
function point({ target, clientX, clientY }) {
  const plot = target.closest?.(".plot");
  explain(plot ? near(plot, clientX, clientY) : target.closest?.(".row[data-mark]") ?? null);
}
document.addEventListener("pointermove", point);
document.addEventListener("pointerdown", point);
document.addEventListener("scroll", () => explain(null), { passive: true });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { explain(null); choose.open = false; }
  const chart = event.target.closest?.(".panel, .plot");
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (!chart || !step) return;
  event.preventDefault();
  const marks = visible(chart);
  if (marks.length === 0) return;
  const index = marks.indexOf(current);
  explain(marks[index < 0 ? (step > 0 ? 0 : marks.length - 1) : (index + step + marks.length) % marks.length]);
});
document.addEventListener("focusout", () => explain(null));

// Opens all details before printing: on paper nothing can be clicked.
addEventListener("beforeprint", () => { for (const it of all("details:not(.choose)")) it.open = true; });
