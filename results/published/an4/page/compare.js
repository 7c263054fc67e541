"use strict";
// Two arms, seeds or tracks side by side: by set, utterance, length, speaker and word; what is confused with what.
(() => {
  const page = window.page, { data, utterances, choices, state, make, text, interval, rate } = page;
  if (!document.getElementById("panel-compare")) return;
  const at = (id) => document.getElementById(id);

  for (const place of document.querySelectorAll(".chooser")) {
    const select = (side) => {
      const options = [...choices.values()].map((c) => make("option", { value: c.key }, c.label));
      const box = make("select", { "aria-label": `${side.toUpperCase()}`, "data-side": side, onchange: () => page.choose(...(side === "a" ? [choices.get(box.value), state.b] : [state.a, choices.get(box.value)])) }, ...options);
      page.changed.push(() => { box.value = state[side].key; });
      box.value = state[side].key;
      return make("label", {}, side.toUpperCase(), box);
    };
    place.append(select("a"), make("button", { type: "button", class: "plain", title: "exchange A and B", onclick: () => page.choose(state.b, state.a) }, "⇄"), select("b"));
  }

  // a table with a head; cells are texts or elements
  const table = (heads, rows) => make("div", { class: "scroll", tabindex: "0" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((h) => make("th", {}, h)))), make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((c) => make("td", { class: String(c).length < 32 ? "short" : null }, c)))))));
  const coloured = (value, digits = 2) => make("span", { class: value > 0 ? "positive" : value < 0 ? "negative" : null }, text(value, digits, true));
  const go = (filters) => page.filter({ speaker: "", set: "", word: "", relation: "", search: "", ...filters });

  // what the study itself says of the two: arms on one track, all seeds
  const known = (set) => {
    const { a, b } = state;
    if (a.seed !== undefined || b.seed !== undefined || a.track !== b.track) return null;
    const found = data.contrasts.find((c) => c.set === set && c.track === a.track && ((c.a === a.arm && c.b === b.arm) || (c.a === b.arm && c.b === a.arm)));
    if (!found) return null;
    const sign = found.a === a.arm ? 1 : -1, ends = (low, high) => low === null ? "-" : page.interval(sign > 0 ? { low, high } : { low: -high, high: -low });
    const verdict = { "a better": `${found.a} better`, "b better": `${found.b} better` }[found.verdict] ?? found.verdict;
    return `${text(sign * found.difference, 2, true)} ${ends(found.low, found.high)}, t ${ends(found.t_low, found.t_high)}: ${verdict}${found.planned ? "" : " (exploratory)"}`;
  };
  const bySet = () => {
    const sums = page.sums(state.a, state.b, (i) => utterances.set[i], (i) => utterances.speaker[i]);
    const rows = [...sums].map(([set, s]) => {
      const d = page.difference([...s.by.values()]);
      return [set, String(s.utterances), String(s.words), text(rate(s.a, s.words)), text(rate(s.b, s.words)), coloured(d && d.value), interval(d), known(set) ?? "-"];
    });
    at("by-set").replaceChildren(make("h2", {}, `${state.a.label} beside ${state.b.label}`), table(["set", "utterances", "words", "WER A", "WER B", "A - B, points", "95 % over speakers", "the study's comparison"], rows),
      make("p", { class: "note" }, "WER in %, errors of an arm's seeds averaged. The interval over speakers is for looking around: it holds no variation between seeds. The study's comparison (comparisons.json), with seeds, is the one to quote."));
  };

  const scatter = () => {
    const ea = page.errors(state.a), eb = page.errors(state.b), spots = new Map();
    let top = 100;
    for (let i = 0; i < utterances.n; i++) {
      if (!utterances.words[i]) continue;
      const x = rate(ea[i], utterances.words[i]), y = rate(eb[i], utterances.words[i]);
      top = Math.max(top, x, y);
      const spot = `${Math.round(x)} ${Math.round(y)}`;
      if (!spots.has(spot)) spots.set(spot, []);
      spots.get(spot).push(i);
    }
    const points = [...spots].map(([spot, ids]) => {
      const [x, y] = spot.split(" ").map(Number), first = utterances.id[ids[0]];
      return { x, y, size: ids.length, words: `A ${x} %, B ${y} %: ${ids.length === 1 ? first : `${ids.length} utterances`}`, open: () => page.filter({ speaker: "", set: "", word: "", relation: "", search: "", only: ids, about: `the ${ids.length} with WER ${x} % in A and ${y} % in B` }) };
    }).sort((a, b) => b.size - a.size);
    at("scatter").replaceChildren(make("h2", {}, "Utterances"), page.plots.scatter({ caption: "WER of each utterance: press a spot to see what lies there", x: "WER of A, %", y: "WER of B, %", points, top }), make("p", { class: "note" }, "Below the line B does better. A spot's size is the number of utterances there."));
  };

  const byLength = () => {
    const sorted = [...utterances.words].filter(Boolean).sort((a, b) => a - b), edges = [];
    for (const q of [0.2, 0.4, 0.6, 0.8, 1]) { const edge = sorted[Math.ceil(q * sorted.length) - 1]; if (edges[edges.length - 1] !== edge) edges.push(edge); }
    const bin = (i) => edges.findIndex((edge) => utterances.words[i] <= edge);
    const sums = page.sums(state.a, state.b, bin, (i) => utterances.speaker[i]);
    const rows = edges.map((edge, k) => [k ? edges[k - 1] + 1 : sorted[0], edge, sums.get(k)]).filter(([, , s]) => s).map(([from, to, s]) => {
      const d = page.difference([...s.by.values()]);
      return [from === to ? String(to) : `${from} to ${to}`, String(s.utterances), text(rate(s.a, s.words)), text(rate(s.b, s.words)), coloured(d && d.value), interval(d)];
    });
    at("by-length").replaceChildren(make("h2", {}, "By length"), table(["words", "utterances", "WER A", "WER B", "A - B", "95 % over speakers"], rows));
  };

  const tables = {};
  const numeric = (title, field, digits = 1, more = {}) => ({ title, field, hozAlign: "right", headerHozAlign: "right", sorter: "number", width: 94, formatter: (cell) => text(cell.getValue(), digits), ...more });
  const signed = (title, field, digits = 1, more = {}) => numeric(title, field, digits, { formatter: (cell) => coloured(cell.getValue(), digits), ...more });
  // a table of Tabulator below a heading; made once, then given new rows
  const grid = (id, heading, remark, columns, rows, sort, pick) => {
    if (!tables[id]) {
      const place = make("div", { class: "grid" });
      at(id).replaceChildren(make("h2", {}, heading), make("p", { class: "note" }, remark), place);
      tables[id] = new Tabulator(place, { data: rows, columns, layout: "fitColumns", height: Math.min(360, 70 + 34 * Math.max(rows.length, 1)), initialSort: sort, columnDefaults: { headerSortTristate: false, resizable: false, minWidth: 70 }, placeholder: "nothing here" });
      tables[id].on("rowClick", (event, row) => pick(row.getData()));
    } else tables[id].replaceData(rows);
  };
  const link = (cell) => make("button", { class: "link", type: "button" }, cell.getValue() ?? "");

  const bySpeaker = () => {
    const sums = page.sums(state.a, state.b, (i) => utterances.speaker[i], (i) => i);
    const rows = [...sums].map(([speaker, s]) => {
      const d = page.difference([...s.by.values()]);
      return { speaker, utterances: s.utterances, words: s.words, a: rate(s.a, s.words), b: rate(s.b, s.words), d: d ? d.value : 0, low: d ? d.low : null, high: d ? d.high : null };
    });
    const widest = Math.max(1, ...rows.flatMap((r) => [Math.abs(r.low ?? r.d), Math.abs(r.high ?? r.d)]));
    bySpeaker.widest = widest;
    const bar = (cell) => {
      const r = cell.getData(), x = (v) => `${50 + (48 * v) / bySpeaker.widest}%`;
      const line = make("i"), dot = make("b");
      if (r.low !== null) { line.style.left = x(r.low); line.style.width = `${(48 * (r.high - r.low)) / bySpeaker.widest}%`; }
      dot.style.left = x(r.d);
      return make("div", { class: "bar", title: `${text(r.d, 2, true)} ${interval(r)}` }, line, dot);
    };
    grid("by-speaker", "By speaker", "Difference in points, with its 95 % t-interval over the speaker's utterances; left of the middle A does better. Press a speaker to see the utterances.", [
      { title: "speaker", field: "speaker", formatter: link, width: 120 }, numeric("words", "words", 0), numeric("WER A", "a"), numeric("WER B", "b"), signed("A - B", "d"),
      { title: "95 % interval", field: "low", width: 150, headerSort: false, formatter: (cell) => interval(cell.getData(), 1) }, { title: "", field: "high", formatter: bar, headerSort: false, minWidth: 140 },
    ], rows, [{ column: "d", dir: "desc" }], (row) => go({ speaker: row.speaker }));
  };

  // occurrences of each word of the references, by speaker; and what a choice makes of it
  const occurrences = () => page.once("occurrences", () => {
    const found = new Map();
    for (let i = 0; i < utterances.n; i++) for (const word of utterances.reference[i].split(" ")) {
      if (!word) continue;
      if (!found.has(word)) found.set(word, new Map());
      const by = found.get(word);
      by.set(utterances.speaker[i], (by.get(utterances.speaker[i]) || 0) + 1);
    }
    return found;
  });
  // of a choice: errors of each word by speaker, and counts of each confusion, as means over its seeds
  const wrong = (choice) => page.once(`wrong ${choice.key}`, () => {
    const words = new Map(), pairs = new Map(), share = 1 / choice.members.length;
    for (const key of choice.members) for (let i = 0; i < utterances.n; i++) {
      const found = page.edits(key, i);
      if (!found.length) continue;
      const reference = utterances.reference[i].split(" ");
      for (const edit of found) {
        const word = edit.kind === "I" ? null : reference[edit.at];
        if (word !== null) {
          if (!words.has(word)) words.set(word, new Map());
          const by = words.get(word);
          by.set(utterances.speaker[i], (by.get(utterances.speaker[i]) || 0) + share);
        }
        const pair = `${edit.kind} ${word ?? ""} ${edit.word ?? ""}`;
        pairs.set(pair, (pairs.get(pair) || 0) + share);
      }
    }
    return { words, pairs };
  });
  const total = (by) => { let sum = 0; if (by) for (const v of by.values()) sum += v; return sum; };
  const byWord = () => {
    const a = wrong(state.a).words, b = wrong(state.b).words, rows = [];
    for (const [word, by] of occurrences()) {
      const count = total(by), wa = a.get(word), wb = b.get(word);
      if (!wa && !wb) continue;
      const clusters = [...by].map(([speaker, n]) => [((wa && wa.get(speaker)) || 0) - ((wb && wb.get(speaker)) || 0), n]);
      const d = page.difference(clusters);
      rows.push({ word, count, a: total(wa), b: total(wb), ra: rate(total(wa), count), rb: rate(total(wb), count), more: total(wa) - total(wb), d: d.value, low: d.low, high: d.high });
    }
    grid("by-word", "By word", "Substitutions and deletions of each word of the references: counts (means over seeds) and rates in %, the difference with its 95 % t-interval over speakers. Press a word to see where it was said.", [
      { title: "word", field: "word", formatter: link, headerFilter: "input", headerFilterPlaceholder: "find", minWidth: 120 }, numeric("said", "count", 0), numeric("errors A", "a", 1, { width: 108 }), numeric("errors B", "b", 1, { width: 108 }),
      { title: "A - B", field: "more", width: 84, hozAlign: "right", headerHozAlign: "right", formatter: (cell) => coloured(cell.getValue(), 1), sorter: (x, y) => Math.abs(x) - Math.abs(y) },
      numeric("rate A", "ra"), numeric("rate B", "rb"), signed("points", "d"), { title: "95 % interval", field: "low", width: 150, headerSort: false, formatter: (cell) => interval(cell.getData(), 1) },
    ], rows, [{ column: "more", dir: "desc" }], (row) => go({ word: row.word }));
  };
  const kinds = { S: "substitution", I: "insertion", D: "deletion" };
  const confusions = () => {
    const a = wrong(state.a).pairs, b = wrong(state.b).pairs;
    const rows = [...new Set([...a.keys(), ...b.keys()])].map((pair) => {
      const [kind, reference, hypothesis] = pair.split(" "), x = a.get(pair) || 0, y = b.get(pair) || 0;
      return { kind: kinds[kind], reference, hypothesis, a: x, b: y, both: x + y, d: x - y };
    });
    grid("confusions", "What is taken for what", "Substitutions (confusion pairs), insertions and deletions: how often, as means over seeds.", [
      { title: "kind", field: "kind", headerFilter: "input", headerFilterPlaceholder: "S, I or D", headerFilterFunc: "starts", width: 124 }, { title: "reference", field: "reference", headerFilter: "input", headerFilterPlaceholder: "find", formatter: link, minWidth: 110 },
      { title: "hypothesis", field: "hypothesis", headerFilter: "input", headerFilterPlaceholder: "find", formatter: link, minWidth: 110 }, numeric("A", "a"), numeric("B", "b"), numeric("both", "both"), signed("A - B", "d"),
    ], rows, [{ column: "both", dir: "desc" }], (row) => go({ word: row.reference, edit: `${row.kind[0].toUpperCase()}:${row.reference}:${row.hypothesis}` }));
  };

  const draw = () => { bySet(); scatter(); byLength(); bySpeaker(); byWord(); confusions(); };
  let stale = true;
  const shown = () => !at("panel-compare").hidden;
  page.changed.push(() => { stale = true; if (shown()) page.opened.compare(); });
  page.opened = page.opened || {};
  page.opened.compare = () => { if (stale) { stale = false; draw(); } };
})();
