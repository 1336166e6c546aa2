"use strict";

const STEP = 20; // results per page
const MOST = 200; // largest number of results
const LARGE = 4e6; // bytes of a photograph that is sent unchanged
const SIDE = 2048; // longest side of a larger photograph after its reduction
const byId = (id) => document.getElementById(id);

const state = {
  indexes: [],
  index: null, // description of the selected index
  queries: [], // photographs and items: {query, label, picture}
  k: STEP,
  asked: null, // queries of the shown results
  running: null, // AbortController of the running search
};

// -- requests --

async function send(path, body, signal) {
  const options = body === undefined ? { signal } : {
    signal,
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  let response, answer;
  try {
    response = await fetch(path, options);
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The service does not answer. Is it still running?");
  }
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

const address = (action) =>
  `indexes/${encodeURIComponent(state.index.name)}/${action}`;

// -- elements --

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function showError(error) {
  byId("error").hidden = !error;
  byId("error").textContent = error ? error.message : "";
}

// -- the query --

const FORMS = {
  text: ["Words or a sentence", "Type words, then press Enter."],
  vector: ["0.5, 1.2, ...", "Type the numbers of a vector, separated by commas."],
  record: ["{\"column\": value}", "Type the columns of a record as JSON."],
  photograph: ["", "Drop photographs on this page, paste or choose them. Several photographs are one query."],
};

function readText(text) {
  switch (state.index.query) {
    case "vector": return { vector: readNumbers(text) };
    case "record": return { record: JSON.parse(text) };
    default: return { text };
  }
}

function readNumbers(text) {
  const numbers = text.split(/[\s,;[\]]+/).filter(Boolean).map(Number);
  if (!numbers.length || numbers.some((number) => !Number.isFinite(number)))
    throw new Error("A vector consists of numbers, separated by commas.");
  return numbers;
}

// Requests are limited in size, so large photographs are reduced.
async function reduce(file) {
  if (file.size <= LARGE) return file;
  try {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
    const canvas = new OffscreenCanvas(
      Math.max(1, Math.round(scale * bitmap.width)),
      Math.max(1, Math.round(scale * bitmap.height)));
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.fillStyle = "white"; // behind transparent pixels, as in the service
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    return await canvas.convertToBlob({ type: "image/jpeg", quality: 0.95 });
  } catch {
    return file; // a format that the browser does not read
  }
}

async function addPhotographs(files) {
  if (!state.index || state.index.query !== "photograph") return;
  for (const file of files) {
    const content = await reduce(file);
    const url = await new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
      reader.readAsDataURL(content);
    });
    const photograph = url.slice(url.indexOf(",") + 1);
    const picture = URL.createObjectURL(file);
    state.queries.push({ query: { photograph }, label: file.name, picture });
  }
  showChips();
  await search();
}

function setQueries(queries) {
  for (const entry of state.queries)
    if (entry.picture?.startsWith("blob:") && !queries.includes(entry))
      URL.revokeObjectURL(entry.picture);
  state.queries = queries;
  showChips();
}

function showChips() {
  byId("chips").replaceChildren(...state.queries.map((entry, number) => {
    const remove = make("button", {
      type: "button",
      textContent: "×",
      ariaLabel: `Remove ${entry.label} from the query`,
      onclick: () => {
        setQueries(state.queries.filter((_, other) => other !== number));
        search();
      },
    });
    const parts = entry.picture
      ? [make("img", { src: entry.picture, alt: entry.label })]
      : [make("span", { textContent: entry.label, title: entry.label })];
    return make("li", {}, ...parts, remove);
  }));
}

// -- filters --

function showFilters() {
  const fields = (state.index.columns || [])
    .filter((column) => column.kind !== "other")
    .map(makeFilter)
    .filter(Boolean);
  byId("filters").hidden = !fields.length;
  byId("filters").replaceChildren(make("legend", { textContent: "Filters" }), ...fields);
}

function makeFilter(column) {
  const values = column.values || [];
  const isRange = column.kind === "number" && (values.length === 0 || values.length > 8);
  if (isRange && column.minimum !== undefined)
    return make("label", { textContent: column.name }, ...[">=", "<="].map((operator) =>
      make("input", {
        type: "number",
        step: "any",
        placeholder: String(operator === ">=" ? column.minimum : column.maximum),
        ariaLabel: `${column.name} ${operator === ">=" ? "at least" : "at most"}`,
        onchange: search,
        column: column.name,
        operator,
      })));
  if (!values.length) return null;
  const options = values.map((value) =>
    make("option", { textContent: String(value), value: JSON.stringify(value) }));
  const select = make("select", { onchange: search, column: column.name },
    make("option", { textContent: "all", value: "" }), ...options);
  return make("label", { textContent: column.name }, select);
}

function readFilters() {
  const filter = {};
  for (const field of byId("filters").querySelectorAll("select, input")) {
    if (field.value === "") continue;
    if (field.operator)
      filter[field.column] = { ...filter[field.column], [field.operator]: Number(field.value) };
    else filter[field.column] = JSON.parse(field.value);
  }
  return Object.keys(filter).length ? filter : null;
}

// -- search --

async function search(event) {
  if (event) state.k = STEP;
  showError(null);
  state.running?.abort();
  const running = state.running = new AbortController();
  try {
    const queries = state.queries.map((entry) => entry.query);
    const text = byId("text").value.trim();
    if (text) queries.push(readText(text));
    if (!queries.length) {
      clearResults();
      return;
    }
    document.body.ariaBusy = "true";
    byId("status").textContent = "Searching ...";
    const exclude = queries.filter((query) => "id" in query).map((query) => query.id);
    const body = { queries, k: state.k, combine: true, filter: readFilters(), exclude };
    const answer = await send(address("search"), body, running.signal);
    state.asked = queries;
    // Texts without a common word have the score 0.
    const isFound = ({ score }) => state.index.query !== "text" || score !== 0;
    showResults(answer.results[0].filter(isFound));
  } catch (error) {
    if (error.name === "AbortError") return;
    clearResults();
    showError(error instanceof SyntaxError ? new Error("The record is not JSON.") : error);
  } finally {
    if (state.running === running) document.body.ariaBusy = "false";
  }
}

function clearResults() {
  byId("results").replaceChildren();
  byId("status").textContent = "";
  byId("more").hidden = true;
}

function showResults(results) {
  const hasPictures = results.some((result) => result.thumbnail);
  byId("results").className = hasPictures ? "pictures" : "";
  byId("results").replaceChildren(...results.map(makeResult));
  byId("status").textContent = results.length
    ? `${results.length} best of ${state.index.n_items.toLocaleString("en")} items`
    : "Nothing found. Remove a filter, or try another query.";
  byId("more").hidden = results.length < state.k || state.k >= MOST;
}

function makeResult(result) {
  const label = result.text || String(result.id);
  const item = make("li", { tabIndex: -1 });
  const searchWith = () => {
    byId("text").value = "";
    state.k = STEP;
    setQueries([{ query: { id: result.id }, label, picture: result.thumbnail }]);
    search();
    scrollTo(0, 0);
  };
  if (result.thumbnail) item.append(makePicture(result.thumbnail, label, searchWith));
  item.append(make("div", { className: "head" },
    make("b", { textContent: String(result.id) }),
    make("span", { textContent: formatNumber(result.score), title: "score" })));
  if (result.text) {
    const long = result.text.length > 500 ? " long" : "";
    item.append(make("p", { className: `text${long}`, textContent: result.text }));
  }
  const pairs = Object.entries(result.metadata || {}).filter(([, value]) => value !== null);
  if (pairs.length) item.append(make("dl", {}, ...pairs.map(([name, value]) => make("div", {},
    make("dt", { textContent: name }),
    make("dd", { textContent: typeof value === "object" ? JSON.stringify(value) : String(value) })))));
  const actions = make("div", { className: "actions" });
  // A picture is a button already.
  if (state.index.accepts_ids && !result.thumbnail) actions.append(make("button", {
    type: "button",
    textContent: "Similar items",
    ariaLabel: `Search with ${label.slice(0, 60)}`,
    onclick: searchWith,
  }));
  const why = make("button", {
    type: "button",
    textContent: "Why this result?",
    ariaExpanded: "false",
  });
  why.onclick = () => toggleWhy(item, why, result.id);
  actions.append(why);
  item.append(actions);
  return item;
}

function makePicture(source, label, searchWith) {
  const image = make("img", { src: source, alt: label, loading: "lazy" });
  // An item that was added without a picture has none.
  image.onerror = () => image.replaceWith(label);
  if (!state.index.accepts_ids) return image;
  return make("button", {
    type: "button",
    className: "picture",
    title: "Search with this photograph",
    ariaLabel: `Search with ${label.slice(0, 60)}`,
    onclick: searchWith,
  }, image);
}

function formatNumber(number) {
  return Math.abs(number) >= 1000 || number === 0 ? String(Math.round(number)) : number.toPrecision(3);
}

// -- why this result --

async function toggleWhy(item, button, id) {
  const open = item.querySelector(".why");
  button.ariaExpanded = String(!open);
  if (open) {
    open.remove();
    return;
  }
  const box = make("div", { className: "why" }, make("p", { textContent: "..." }));
  item.append(box);
  try {
    const answer = await send(address("explain"), { queries: state.asked, ids: [id] });
    const { parts, score } = answer.explanations[0];
    const rows = listRows(parts.slice(0, 10), "");
    const most = Math.max(...rows.map((row) => Math.abs(row.value)), 0);
    box.replaceChildren(rows.length
      ? make("table", { ariaLabel: "Contributions to the score" }, ...rows.map((row) => makeRow(row, most)))
      : make("p", { textContent: "The query and this item have nothing in common." }),
      make("p", { textContent: `The contributions add up to the score ${formatNumber(score)}.` }));
  } catch (error) {
    box.replaceChildren(make("p", { textContent: error.message }));
  }
}

function listRows(parts, className) {
  // Columns of photographs have only the name of their transformer.
  const isPhotograph = state.index.query === "photograph";
  const show = (name) => isPhotograph ? name.replace(/^[a-z]+(\d+)$/, "feature $1") : name;
  return parts.flatMap(({ name, value, parts: inner }) => [
    { name: show(name), value, className },
    ...listRows((inner || []).slice(0, 5), "part"),
  ]);
}

function makeRow({ name, value, className }, most) {
  return make("tr", {},
    make("td", { className, textContent: name }),
    make("td", { className: "number", textContent: formatNumber(value) }),
    make("td", {}, value > 0 ? make("meter", { min: 0, max: most, value, ariaLabel: name }) : ""));
}

// -- start --

function selectIndex(name) {
  state.index = state.indexes.find((index) => index.name === name);
  const isPhotograph = state.index.query === "photograph";
  const [placeholder, hint] = FORMS[state.index.query];
  byId("text").hidden = byId("label").hidden = byId("go").hidden = isPhotograph;
  byId("pick").hidden = !isPhotograph;
  document.body.classList.toggle("photographs", isPhotograph);
  byId("text").placeholder = placeholder;
  byId("text").value = "";
  byId("hint").textContent = hint;
  const { n_items, is_writable } = state.index;
  byId("size").textContent =
    `${n_items.toLocaleString("en")} items${is_writable ? "" : ", read-only"}`;
  state.k = STEP;
  setQueries([]);
  showFilters();
  showError(null);
  clearResults();
}

async function start() {
  try {
    state.indexes = (await send("indexes")).indexes;
  } catch (error) {
    showError(error);
    return;
  }
  byId("choice").hidden = state.indexes.length < 2;
  byId("index").replaceChildren(...state.indexes.map(({ name }) =>
    make("option", { textContent: name, value: name })));
  byId("index").onchange = () => selectIndex(byId("index").value);
  selectIndex(state.indexes[0].name);
  (byId("pick").hidden ? byId("text") : byId("pick")).focus();
  document.body.dataset.ready = "true";
}

byId("form").onsubmit = (event) => {
  event.preventDefault();
  search(event);
};
byId("text").oninput = () => {
  if (!byId("text").value && !state.queries.length) clearResults();
};
byId("more").onclick = () => {
  state.k = Math.min(MOST, state.k + STEP);
  search();
};
byId("pick").onclick = () => byId("files").click();
byId("files").onchange = () => {
  addPhotographs([...byId("files").files]).catch(showError);
  byId("files").value = "";
};
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dropping");
});
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  addPhotographs([...event.dataTransfer.files]).catch(showError);
});
addEventListener("paste", (event) => {
  if (event.clipboardData.files.length)
    addPhotographs([...event.clipboardData.files]).catch(showError);
});
addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select");
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    byId("text").focus();
  }
  const isUp = event.key === "ArrowUp";
  if (!isUp && event.key !== "ArrowDown") return;
  if (event.target.matches("select, input[type=number]")) return;
  const items = [...byId("results").children];
  const at = items.findIndex((item) => item.contains(document.activeElement));
  const next = items[at + (isUp ? -1 : 1)];
  if (!next && at < 0) return;
  event.preventDefault();
  (next || byId("text")).focus();
});
start();
