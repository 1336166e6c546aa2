// Optional: sort and filter tables, and highlight curves.
(function () {
  "use strict";
  document.documentElement.classList.add("js");

  function value(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.value !== undefined ? cell.dataset.value : cell.textContent;
    const number = parseFloat(text);
    return Number.isNaN(number) ? text.toLowerCase() : number;
  }

  function compare(a, b) {
    if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
    return typeof a === "number" ? -1 : 1; // numbers before text
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, column) {
      function sort() {
        const falling = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        const rows = Array.from(table.tBodies[0].rows);
        rows.sort((a, b) => compare(value(a, column), value(b, column)) * (falling ? -1 : 1));
        table.tBodies[0].append(...rows);
      }
      head.tabIndex = 0;
      head.addEventListener("click", sort);
      head.addEventListener("keydown", function (event) {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          sort();
        }
      });
    });
  }

  for (const input of document.querySelectorAll("input[data-filters]")) {
    const targets = document.querySelectorAll(input.dataset.filters);
    input.addEventListener("input", function () {
      const wanted = input.value.toLowerCase();
      for (const target of targets) {
        target.hidden = !target.textContent.toLowerCase().includes(wanted);
      }
    });
  }

  const named = Array.from(document.querySelectorAll("[data-name]"));
  for (const element of named) {
    element.addEventListener("mouseenter", function () {
      for (const other of named) {
        const same = other.dataset.name === element.dataset.name;
        other.classList.toggle("lit", same);
        other.classList.toggle("dim", !same);
      }
    });
    element.addEventListener("mouseleave", function () {
      for (const other of named) other.classList.remove("lit", "dim");
    });
  }
})();
