"use strict";
// Every utterance: search, sort, filter; the hypotheses aligned to the reference; the recording.
(() => {
  const page = window.page, { data, utterances, choices, groups, state, make, text, rate } = page;
  if (!document.getElementById("panel-utterances")) return;
  const at = (id) => document.getElementById(id);
  page.opened = page.opened || {};

  const NAMES = { S: "substitution", I: "insertion", D: "deletion" };
  const word = (cell, reference) => {
    if (cell.kind === "=" || cell.kind === "") return cell.word;
    const said = { S: `substitution: ${cell.word} for ${reference}`, I: `insertion: ${cell.word}`, D: `deletion: ${cell.word}` }[cell.kind];
    return make("span", { class: `edit ${cell.kind}`, "data-kind": cell.kind, title: said }, cell.word);
  };
  // tables of an utterance's words, one below the other where they are wider than `room` characters
  const aligned = (i, rows, room, head = "reference") => {
    const columns = page.align(i, rows.map((row) => row.key)), blocks = [[]];
    let width = 0;
    for (const column of columns) {
      const wide = Math.max((column.reference || "").length, ...column.cells.map((c) => c.word.length + (NAMES[c.kind] ? 1 : 0))) + 1;
      if (width + wide > room && blocks[blocks.length - 1].length) { blocks.push([]); width = 0; }
      blocks[blocks.length - 1].push(column);
      width += wide;
    }
    return blocks.map((block) => make("table", { class: "words" }, make("tbody", {},
      make("tr", { class: "reference" }, make("th", { scope: "row" }, head), ...block.map((c) => make("td", {}, c.reference ?? ""))),
      ...rows.map((row, r) => make("tr", {}, make("th", { scope: "row" }, row.label), ...block.map((c) => make("td", {}, word(c.cells[r], c.reference))))))));
  };

  // filters
  const filters = { search: "", speaker: "", set: "", word: "", relation: "", edit: "", only: null, about: "" };
  const unique = (values) => [...new Set(values)].sort();
  const select = (name, label, options) => {
    const box = make("select", { name, onchange: () => { filters[name] = box.value; apply(); } }, ...options.map(([value, title]) => make("option", { value }, title)));
    return make("label", {}, label, box);
  };
  const input = (name, label, type, placeholder) => {
    let wait;
    const box = make("input", { name, type, placeholder, autocomplete: "off", spellcheck: "false", oninput: () => { clearTimeout(wait); wait = setTimeout(() => { filters[name] = box.value; if (name === "word") filters.edit = ""; apply(); }, 150); } });
    return make("label", {}, label, box);
  };
  const relations = [["", "all"], ["a>b", "worse in A than in B"], ["a<b", "better in A than in B"], ["a", "errors in A"], ["b", "errors in B"], ["both", "errors in both"], ["differ", "A and B differ"]];
  const wide = make("input", { type: "checkbox", onchange: () => columnsFor() });
  at("filters").append(
    input("search", "search ids, references, hypotheses of A and B", "search", "words or an id"), select("speaker", "speaker", [["", "all"], ...unique(utterances.speaker).map((s) => [s, s])]),
    select("set", "set", [["", "all"], ...data.sets.map((s) => [s, s])]), input("word", "word of the reference", "search", "a word"), select("relation", "errors", relations),
    make("label", { class: "check" }, wide, "WER of every arm"), make("button", { type: "button", class: "plain", onclick: () => page.filter({}) }, "show all"));
  at("filters").addEventListener("submit", (event) => event.preventDefault());

  const heard = (choice) => choice.members;
  const contains = (i, wanted) => {
    if (utterances.id[i].toUpperCase().includes(wanted) || utterances.reference[i].toUpperCase().includes(wanted)) return true;
    return [...heard(state.a), ...heard(state.b)].some((key) => page.align(i, [key]).filter((c) => c.cells[0].kind !== "D").map((c) => c.cells[0].word).join(" ").toUpperCase().includes(wanted));
  };
  const passes = () => {
    const a = page.errors(state.a), b = page.errors(state.b), search = filters.search.trim().toUpperCase(), wanted = filters.word.trim().toUpperCase();
    const only = filters.only && new Set(filters.only);
    const relation = { "": () => true, "a>b": (i) => a[i] > b[i], "a<b": (i) => a[i] < b[i], a: (i) => a[i] > 0, b: (i) => b[i] > 0, both: (i) => a[i] > 0 && b[i] > 0, differ: (i) => a[i] !== b[i] }[filters.relation];
    const [kind, from, to] = filters.edit ? filters.edit.split(":") : [];
    const edited = (i) => !kind || [...heard(state.a), ...heard(state.b)].some((key) => page.edits(key, i).some((e) => e.kind === kind && (e.word ?? "") === to && (kind === "I" || utterances.reference[i].split(" ")[e.at] === from)));
    return (i) => (!only || only.has(i)) && (!filters.speaker || utterances.speaker[i] === filters.speaker) && (!filters.set || utterances.set[i] === filters.set) && (!wanted || utterances.reference[i].toUpperCase().split(" ").includes(wanted)) && relation(i) && edited(i) && (!search || contains(i, search));
  };

  // the table
  let table = null, ready = null, chosen = null;
  const rowsOf = () => {
    const a = page.errors(state.a), b = page.errors(state.b), every = groups.map((g) => page.errors(g));
    return Array.from({ length: utterances.n }, (_, i) => {
      const words = utterances.words[i], row = { i, id: utterances.id[i], speaker: utterances.speaker[i], set: utterances.set[i], seconds: utterances.seconds[i], words, a: rate(a[i], words), b: rate(b[i], words) };
      row.d = row.a - row.b || 0;
      groups.forEach((g, k) => { row[`arm${k}`] = rate(every[k][i], words); });
      return row;
    });
  };
  const short = (choice, side) => ({ key: choice.members[0], label: side });
  const percent = (title, field, more = {}) => ({ title, field, width: 74, hozAlign: "right", headerHozAlign: "right", sorter: "number", formatter: (cell) => text(cell.getValue(), 1), ...more });
  const narrow = matchMedia("(max-width: 760px)");
  const columns = () => {
    const small = narrow.matches;
    const found = [{ title: "utterance", field: "id", width: small ? undefined : 150, minWidth: 110, tooltip: true }];
    if (!small) {
      if (data.sets.length > 1) found.push({ title: "set", field: "set", width: 110 });
      found.push({ title: "speaker", field: "speaker", width: 104 }, percent("s", "seconds", { width: 66 }), percent("words", "words", { width: 88, formatter: (cell) => String(cell.getValue()) }));
    }
    found.push(percent("A", "a"), percent("B", "b"), percent("A - B", "d", { formatter: (cell) => make("span", { class: cell.getValue() > 0 ? "positive" : cell.getValue() < 0 ? "negative" : "" }, text(cell.getValue(), 1, true)) }));
    if (wide.checked) groups.forEach((g, k) => found.push(percent(g.label.replace(/, \d+ seeds$/, ""), `arm${k}`, { width: 110 })));
    if (!small && !wide.checked) found.push({ title: "reference, and the first seed of A and of B", field: "words", headerSort: false, minWidth: 240, formatter: (cell) => make("div", {}, ...aligned(cell.getData().i, [short(state.a, "A"), short(state.b, "B")], Infinity, "ref")) });
    return found;
  };
  const columnsFor = () => { if (table) { table.setColumns(columns()); apply(); } };
  const open = () => {
    if (table) return ready;
    table = new Tabulator(at("table"), {
      data: rowsOf(), columns: columns(), layout: "fitColumns", height: "max(260px, 44vh)", rowHeight: narrow.matches ? 34 : 66, selectableRows: 1, index: "i",
      columnDefaults: { headerSortTristate: false, resizable: false }, initialSort: [{ column: "d", dir: "desc" }], placeholder: "no utterance passes the filters",
    });
    table.on("rowSelected", (row) => detail(row.getData().i));
    ready = new Promise((resolve) => table.on("tableBuilt", () => { resolve(); apply(); }));
    return ready;
  };
  const described = () => Object.entries({ search: filters.search && `“${filters.search}”`, speaker: filters.speaker && `speaker ${filters.speaker}`, set: filters.set && `set ${filters.set}`, word: filters.word && `word ${filters.word}`, relation: filters.relation && relations.find(([v]) => v === filters.relation)[1], edit: filters.edit && filters.edit.replace(/^(.):(.*):(.*)$/, (_, k, r, h) => `${NAMES[k]} ${[r, h].filter(Boolean).join(" → ")}`), about: filters.about }).map(([, v]) => v).filter(Boolean).join("; ");
  const apply = () => {
    if (!table) return;
    const pass = passes();
    table.setFilter((row) => pass(row.i));
    const count = table.getDataCount("active");
    at("shown").textContent = `${count.toLocaleString("en")} of ${utterances.n.toLocaleString("en")} utterances${described() ? `: ${described()}` : ""}. A: ${state.a.label}; B: ${state.b.label}.`;
  };
  // show the utterances that pass: from other views, or none of the filters
  page.filter = (wanted) => {
    Object.assign(filters, { search: "", speaker: "", set: "", word: "", relation: "", edit: "", only: null, about: "" }, wanted);
    for (const name of ["search", "speaker", "set", "word", "relation"]) at("filters").elements[name].value = filters[name];
    page.show("utterances");
    open().then(apply);
  };

  // one utterance
  const address = (i) => {
    const path = utterances.path[i], base = at("panel-utterances").dataset.base ?? data.audio.base;
    if (!path || (path.startsWith("$") && !base)) return null;
    const whole = path.startsWith("$") ? base.replace(/\/?$/, "/") + path.slice(path.indexOf("/") + 1) : data.audio.base && data.audio.copied ? data.audio.base + path : path;
    return whole.split("/").map(encodeURIComponent).join("/");
  };
  const player = (i) => {
    const place = make("div"), path = utterances.path[i], url = address(i);
    const say = (...words) => place.replaceChildren(make("p", { class: "missing" }, ...words), data.audio.copied || !path.startsWith("$") ? "" : ask(i));
    if (!url) { say(path ? `The recording is ${path}, and this page does not know where that folder is.` : "The recording of this utterance was not there when the page was made."); return place; }
    const audio = make("audio", { controls: true, preload: "metadata", src: url });
    audio.addEventListener("error", () => say(`The recording is not at ${decodeURIComponent(url)}: link or copy the corpus to that place, or make the page with --audio.`));
    place.append(audio);
    if (data.audio.copied) place.prepend(make("img", { src: url.replace(/\.mp3$/, ".png"), alt: `spectrogram of ${utterances.id[i]}: 0 to 8 kHz upwards, time to the right` }));
    return place;
  };
  const ask = (i) => {
    const box = make("input", { type: "text", value: at("panel-utterances").dataset.base ?? data.audio.base, placeholder: "../../data/" });
    const form = make("form", {}, make("label", {}, `folder of ${utterances.path[i].split("/")[0]}, an address as seen from this page`, box));
    form.addEventListener("submit", (event) => { event.preventDefault(); at("panel-utterances").dataset.base = box.value; detail(i); });
    return form;
  };
  const everyone = make("input", { type: "checkbox", onchange: () => chosen !== null && detail(chosen) });
  const detail = (i) => {
    chosen = i;
    const keys = everyone.checked ? data.trainings_scored : [...state.a.members, ...state.b.members.filter((key) => !state.a.members.includes(key))];
    const label = (key) => {
      const c = choices.get(key), side = state.a.members.includes(key) ? "A" : state.b.members.includes(key) ? "B" : `${c.arm.slice(0, 8)} ${c.track.slice(0, 3)}`;
      return narrow.matches ? `${side} ${c.seed}` : c.label;
    };
    const rows = keys.map((key) => ({ key, label: label(key) }));
    const head = narrow.matches ? "ref" : "reference", side = 2 + Math.max(head.length, ...rows.map((row) => row.label.length)), room = Math.max(14, Math.floor((at("detail").parentElement.clientWidth - 20) / 8.1) - side);
    at("detail").replaceChildren(make("h3", {}, utterances.id[i]), make("p", { class: "facts" }, `speaker ${utterances.speaker[i]}, ${utterances.set[i]}, ${utterances.seconds[i]} s, ${utterances.words[i]} words; WER A ${text(rate(page.errors(state.a)[i], utterances.words[i]), 1)} %, B ${text(rate(page.errors(state.b)[i], utterances.words[i]), 1)} %`),
      player(i), make("label", { class: "check" }, everyone, "all trainings"), make("div", { class: "scroll", tabindex: "0" }, ...aligned(i, rows, room, head)),
      make("p", { class: "key-of-marks" }, ...Object.entries(NAMES).flatMap(([kind, name]) => [make("span", { class: `edit ${kind}`, "data-kind": kind }, "WORD"), name])));
    history.replaceState(null, "", `#utterances/${encodeURIComponent(utterances.id[i])}`);
  };
  page.opened.utterances = (id) => open().then(() => {
    if (!at("table").querySelector(".tabulator-row")) table.redraw(true); // it was made while the tab was being left
    const i = id ? utterances.id.indexOf(id) : -1;
    if (i >= 0 && i !== chosen) pick(i);
  });
  const pick = (i) => { table.deselectRow(); table.selectRow(i); table.scrollToRow(i, "nearest", false).catch(() => {}); };
  at("table").addEventListener("keydown", (event) => {
    if (event.target.closest("input")) return;
    const by = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
    if (by) {
      const rows = table.getRows("active"), now = rows.findIndex((row) => row.getData().i === chosen), next = rows[now < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, now + by))];
      if (next) pick(next.getData().i);
      event.preventDefault();
    } else if (event.key === " ") {
      const audio = at("detail").querySelector("audio");
      if (audio) audio.paused ? audio.play() : audio.pause();
      event.preventDefault();
    }
  }, true);
  page.changed.push(() => { if (table) { table.replaceData(rowsOf()).then(apply); if (chosen !== null) detail(chosen); } });
  narrow.addEventListener("change", columnsFor);
})();
