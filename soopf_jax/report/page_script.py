"""The script of every page. A page without it shows all of its content, but does not sort, filter or copy."""

_SORT = r"""
const missing = (text) => text === "" || text === "-" || text === "n/a";
const isNumber = (text) => missing(text) || /^[\[(]?[-+]?\.?\d[-+\d.,;e%()\[\]\s\u00b1]*$/.test(text);
const value = (text) => parseFloat(text.replace(/^[\[(]/, ""));
const compare = (numbers, a, b) => numbers ? value(a) - value(b) : a.localeCompare(b);

function sortBy(header, column, body) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const rows = Array.from(body.rows, (row) => [row.cells[column].textContent.trim(), row]);
  const numbers = rows.every(([text]) => isNumber(text));
  const order = descending ? -1 : 1;
  rows.sort(([a], [b]) => missing(a) - missing(b) || order * compare(numbers, a, b) || 0);
  body.append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  Array.from(table.tHead.rows[0].cells).forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sortBy(header, column, table.tBodies[0]));
    header.append(button);
  });
}
"""
_SCROLL = r"""
// A box that is wider than the window says so; its edge fades while there is more to the right.
for (const box of document.querySelectorAll(".wide")) {
  const mark = () => {
    const hidden = box.scrollWidth - box.clientWidth;
    box.classList.toggle("scrolls", hidden > 1);
    box.classList.toggle("more", hidden - box.scrollLeft > 1);
  };
  box.addEventListener("scroll", mark);
  new ResizeObserver(mark).observe(box);
}
"""
_FIRST_VISIT = r"""
// The glossary is open on the first visit only. Where nothing can be stored, it stays open.
for (const details of document.querySelectorAll("details.first-visit")) {
  try {
    if (localStorage.getItem("soopf_jax visited")) details.open = false;
    localStorage.setItem("soopf_jax visited", "yes");
  } catch { }
}
"""
_COPY = r"""
for (const block of document.querySelectorAll("pre.copy")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy-button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(block);
      button.textContent = "Selected: press Ctrl+C or \u2318C";
    }
  });
  block.before(button);
}
"""
_FILTER = r"""
for (const place of document.querySelectorAll(".filter")) {
  const input = document.createElement("input"), count = document.createElement("span");
  input.type = "search";
  input.placeholder = "Filter: words that a row must contain";
  input.setAttribute("aria-label", input.placeholder);
  count.className = "faint";
  count.setAttribute("role", "status");
  place.append(input, " ", count);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    const fits = (text) => words.every((word) => text.toLowerCase().includes(word));
    for (const row of document.querySelectorAll("[data-words], .filtered tbody tr")) {
      row.hidden = !fits(row.dataset.words ?? row.textContent);
    }
    const arms = Array.from(document.querySelectorAll(".plot [data-words]"));
    for (const group of document.querySelectorAll(".group")) {
      group.hidden = !group.querySelector("[data-words]:not([hidden])");
    }
    count.textContent = `${arms.filter((arm) => !arm.hidden).length} of ${arms.length} arms`;
  });
}
"""

SCRIPT = _SORT + _SCROLL + _FIRST_VISIT + _COPY + _FILTER
