"use strict";
// The overview (verdicts, rates, curves, provenance), the mixers' blocks, and tables that sort.
(() => {
  const { data, arms, colour, named, make, plots } = window.page;
  const at = (id) => document.getElementById(id);
  const heading = (text) => make("h2", {}, text);
  const note = (text) => make("p", { class: "note" }, text);
  const dashes = ["", "6 4", "2 3"];
  const dash = (track) => dashes[(data.tracks || []).indexOf(track) % 3] || "";

  // a click on a column's head sorts the table by it: numbers by their value, which a cell may begin with
  const value = (cell) => {
    const text = cell.textContent.trim(), number = parseFloat(text.replace(/,/g, ""));
    return /^[+-]?[\d.]/.test(text) && !Number.isNaN(number) ? number : text.toLowerCase();
  };
  const sortable = (table) => {
    const heads = [...table.querySelectorAll("thead th")], body = table.tBodies[0];
    for (const cell of table.querySelectorAll("td")) if (cell.textContent.length < 32) cell.classList.add("short");
    if (!body || body.rows.length < 3) return;
    heads.forEach((head, i) => {
      const button = make("button", { type: "button", onclick: () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].map((row) => [value(row.cells[i]), row]);
        const order = ([a], [b]) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
        rows.sort((a, b) => (down ? -1 : 1) * order(a, b));
        body.append(...rows.map(([, row]) => row));
      } }, head.textContent);
      head.replaceChildren(button);
    });
  };
  document.querySelectorAll("table.sortable").forEach(sortable);
  if (!data.trainings.length) return;

  const verdicts = () => {
    const cards = data.verdicts.map((v) => make("li", { class: v.outcome }, make("b", {}, `${v.a} against ${v.b} ${v.where}: ${v.verdict}`), v.measured, make("small", {}, v.note)));
    if (cards.length) at("verdicts").append(make("ul", { class: "verdicts", "aria-label": "Verdicts of the planned contrasts" }, ...cards));
  };

  const rates = () => {
    const wer = data.metric === "wer";
    const figures = data.sets.map((set) => {
      const rows = data.rates.filter((r) => r.set === set && arms.includes(r.arm)).map((r) => ({ name: named(r.track, r.arm), number: arms.indexOf(r.arm), colour: colour(r.arm), value: r.value, low: r.low, high: r.high, marks: r.seeds }));
      return rows.length ? plots.rows({ caption: wer ? `Word error rate on ${set}` : `Perplexity on ${set}`, x: wer ? "WER, %" : "perplexity", rows, target: data.targets[set] ?? null }) : null;
    });
    at("rates").append(make("div", { class: "plots" }, ...figures.filter(Boolean)), note(wer ? "Lines are 95 % intervals over speakers and seeds, those of the table below." : "A dot a seed, the mark their mean."));
  };

  const titles = { train_loss: "Training loss", loss: "Training loss of a batch", dev_loss: "Loss on dev", dev_cer: "Character error rate on dev, %", dev_wer: "Word error rate on dev, %", dev_perplexity: "Validation perplexity" };
  const curves = () => {
    const found = Object.keys(titles).filter((name) => data.trainings.some((t) => t.curves[name]));
    if (!found.length) return;
    const all = found.map((name) => plots.lines({
      caption: titles[name], x: name === "loss" ? "update" : "epoch", y: "", log: true, whole: true,
      series: data.trainings.filter((t) => t.curves[name]).map((t) => ({ group: `${t.track}/${t.arm}`, name: `${named(t.track, t.arm)}, seed ${t.seed}${t.running ? ", running" : ""}`, number: arms.indexOf(t.arm), colour: colour(t.arm), dash: dash(t.track), points: t.curves[name] })),
    }));
    const entries = [...new Map(data.trainings.map((t) => [`${t.track}/${t.arm}`, { group: `${t.track}/${t.arm}`, name: named(t.track, t.arm), number: arms.indexOf(t.arm), colour: colour(t.arm), dash: dash(t.track) }])).values()];
    at("curves").append(heading("Training curves"), note("A line a seed. Point at a line for its values; press a name to hide its lines."), plots.legend(entries, all), make("div", { class: "plots" }, ...all));
  };

  const provenance = () => {
    const { columns, rows } = data.provenance;
    if (!rows.length) return;
    const body = make("tbody");
    const fill = (all) => body.replaceChildren(...rows.filter((r) => all || r.differs).map((r) => make("tr", { class: r.differs ? "differs" : null }, make("td", { class: "key" }, r.key), ...r.cells.map((cell) => make("td", {}, cell)))));
    const box = make("input", { type: "checkbox", onchange: () => fill(box.checked) });
    fill(false);
    at("provenance").append(heading("Provenance"), note("What the records of the trainings say: commit, device, packages, data, settings. Rows in which arms differ are marked; seeds of an arm that differ are listed."), make("label", { class: "check" }, box, "show what is the same, too"),
      make("div", { class: "scroll", tabindex: "0" }, make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "key"), ...columns.map((c) => make("th", {}, c)))), body)));
  };

  const mixers = () => {
    const place = at("panel-mixers");
    if (!place) return;
    const found = data.trainings.filter((t) => t.blocks.end || t.blocks.start);
    place.append(heading("Pairs, block by block"), note("What the pair mixers saw before training (dashed) and after: the sine of the angle between partners (line: median, shade: 25 to 75 %) and the gate (1 keeps the token, 0 takes the mixture)."));
    for (const track of data.tracks) for (const arm of arms) {
      const of = found.filter((t) => t.track === track && t.arm === arm);
      if (!of.length) continue;
      const series = (pick, band) => of.flatMap((t) => ["start", "end"].filter((when) => t.blocks[when]).map((when) => ({
        name: `${named(track, arm)}, seed ${t.seed}, ${when === "end" ? "after training" : "at the start"}`, number: arms.indexOf(arm), colour: colour(arm), dash: when === "start" ? "5 4" : "",
        points: t.blocks[when].filter((b) => pick(b) !== null).map((b) => [b.block, pick(b)]),
        band: band && when === "end" && of.length === 1 ? t.blocks[when].map((b) => [b.block, b.sine[1], b.sine[3]]) : null,
      }))).filter((s) => s.points.length);
      const panels = [["sine between partners", (b) => b.sine[2], true], ["mean gate", (b) => b.gate, false], ["share of partners with a sine below 0.05", (b) => b.narrow, false]];
      const shown = panels.map(([name, pick, band]) => [name, series(pick, band)]).filter(([, s]) => s.length);
      place.append(make("h3", {}, named(track, arm)), make("div", { class: "plots" }, ...shown.map(([name, s]) => plots.lines({ caption: name[0].toUpperCase() + name.slice(1), x: "block", y: "", whole: true, series: s, low: 0, high: name.startsWith("share") ? null : 1, height: 230 }))));
    }
  };

  const contents = () => {
    const heads = document.querySelectorAll("#panel-overview h2");
    at("contents").append(...[...heads].map((head) => make("button", { type: "button", class: "link", onclick: () => head.scrollIntoView({ behavior: "smooth" }) }, head.textContent)));
  };
  verdicts(); rates(); curves(); provenance(); mixers(); contents();
})();
