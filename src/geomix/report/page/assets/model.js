"use strict";
// What the scripts share: the page's data, errors and alignments of each training, differences with their intervals.
window.page = (() => {
  const data = window.geomix;
  const lines = (text, n) => (n ? text.split("\n") : []);
  const n = data.utterances ? data.utterances.number : 0;
  const column = (name) => lines(data.utterances[name], n);
  const utterances = n ? { n, id: column("id"), speaker: column("speaker"), set: column("set"), seconds: column("seconds").map(Number), reference: column("reference"), path: lines(data.audio.path, n) } : { n: 0 };
  utterances.words = n ? Float64Array.from(utterances.reference, (text) => (text ? text.split(" ").length : 0)) : [];

  const arms = data.arms || [];
  const colour = (arm) => `var(--c${Math.max(arms.indexOf(arm), 0) % 8})`;
  const many = (data.tracks || []).length > 1;
  const named = (track, arm) => (many ? `${arm} (${track})` : arm);

  // what a person may choose: an arm with all its seeds, or one seed of it
  const choices = new Map();
  for (const key of data.trainings_scored || []) {
    const [track, arm, seed] = key.split("/");
    const group = `${track}/${arm}`;
    if (!choices.has(group)) choices.set(group, { key: group, track, arm, label: named(track, arm), members: [] });
    choices.get(group).members.push(key);
    choices.set(key, { key, track, arm, seed, label: `${named(track, arm)}, seed ${seed}`, members: [key] });
  }
  for (const choice of choices.values()) if (choice.members.length > 1) choice.label += `, ${choice.members.length} seeds`;
  const groups = [...choices.values()].filter((choice) => choice.seed === undefined);

  // memory of what is worked out once
  const kept = new Map();
  const once = (name, make) => {
    if (!kept.has(name)) kept.set(name, make());
    return kept.get(name);
  };
  const editLines = (key) => once(`lines ${key}`, () => lines(data.edits[key], n));
  // an edit is {kind, at, word}: at the reference word `at`, an insertion before it
  const parse = (text) => text ? text.split(" ").map((edit) => {
    const colon = edit.indexOf(":");
    return { kind: edit[0], at: Number(edit.slice(1, colon < 0 ? undefined : colon)), word: colon < 0 ? null : edit.slice(colon + 1) };
  }) : [];
  const edits = (key, i) => parse(editLines(key)[i]);
  // errors of each utterance, the mean over a choice's seeds
  const errors = (choice) => once(`errors ${choice.key}`, () => {
    const sum = new Float64Array(n);
    for (const key of choice.members) {
      editLines(key).forEach((text, i) => { if (text) sum[i] += text.split(" ").length; });
    }
    return sum.map((value) => value / choice.members.length);
  });
  const rate = (count, words) => (words ? (100 * count) / words : count ? Infinity : 0);

  // columns of an utterance with the hypotheses of trainings below it: [{reference, cells: [{kind, word}]}]
  const align = (i, keys) => {
    const words = utterances.reference[i] ? utterances.reference[i].split(" ") : [];
    const rows = keys.map((key) => {
      const row = { inserted: words.map(() => []).concat([[]]), at: new Map() };
      for (const edit of edits(key, i)) edit.kind === "I" ? row.inserted[edit.at].push(edit.word) : row.at.set(edit.at, edit);
      return row;
    });
    const columns = [];
    for (let at = 0; at <= words.length; at++) {
      const gaps = Math.max(0, ...rows.map((row) => row.inserted[at].length));
      for (let g = 0; g < gaps; g++) columns.push({ reference: null, cells: rows.map((row) => (g < row.inserted[at].length ? { kind: "I", word: row.inserted[at][g] } : { kind: "", word: "" })) });
      if (at < words.length) columns.push({ reference: words[at], cells: rows.map((row) => row.at.has(at) ? { kind: row.at.get(at).kind, word: row.at.get(at).word ?? words[at] } : { kind: "=", word: words[at] }) });
    }
    return columns;
  };

  // difference in points of A - B over clusters of (difference in errors, words), with the 95 % t-interval of a ratio (linearised)
  const difference = (clusters) => {
    let x = 0, words = 0;
    for (const [errors, count] of clusters) { x += errors; words += count; }
    if (!words) return null;
    const ratio = x / words, k = clusters.length;
    if (k < 2) return { value: 100 * ratio, low: null, high: null, k };
    let squares = 0;
    for (const [errors, count] of clusters) squares += (errors - ratio * count) ** 2;
    const half = (data.t[k - 2] ?? 1.96) * Math.sqrt((k / (k - 1)) * squares) / words;
    return { value: 100 * ratio, low: 100 * (ratio - half), high: 100 * (ratio + half), k };
  };
  // utterances added up by a key: Map key -> {words, a, b, utterances, by: Map cluster -> [a - b, words]}
  const sums = (a, b, keyOf, clusterOf) => {
    const found = new Map(), ea = errors(a), eb = errors(b);
    for (let i = 0; i < n; i++) {
      const key = keyOf(i), cluster = clusterOf(i);
      if (!found.has(key)) found.set(key, { words: 0, a: 0, b: 0, utterances: 0, by: new Map() });
      const sum = found.get(key);
      sum.words += utterances.words[i]; sum.a += ea[i]; sum.b += eb[i]; sum.utterances++;
      const part = sum.by.get(cluster) || [0, 0];
      part[0] += ea[i] - eb[i]; part[1] += utterances.words[i];
      sum.by.set(cluster, part);
    }
    return found;
  };

  const text = (value, digits = 2, sign = false) => value === null || value === undefined || !Number.isFinite(value) ? "-" : (sign && value > 0 ? "+" : "") + value.toFixed(digits);
  const interval = (d, digits = 2) => d && d.low !== null ? `[${text(d.low, digits, true)}, ${text(d.high, digits, true)}]` : "[no interval]";
  // an element; text is always set as text, never read as HTML
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };
  const listeners = [];
  const state = { a: null, b: null };
  if (groups.length) {
    const planned = (data.contrasts || []).find((c) => c.planned && choices.has(`${c.track}/${c.a}`) && choices.has(`${c.track}/${c.b}`));
    state.a = planned ? choices.get(`${planned.track}/${planned.a}`) : groups[0];
    state.b = planned ? choices.get(`${planned.track}/${planned.b}`) : groups[Math.min(1, groups.length - 1)];
  }
  const choose = (a, b) => { state.a = a; state.b = b; for (const listener of listeners) listener(); };
  return { data, utterances, arms, colour, named, choices, groups, state, choose, changed: listeners, errors, edits, align, rate, difference, sums, text, interval, make, once };
})();
