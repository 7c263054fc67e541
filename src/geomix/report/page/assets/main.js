"use strict";
// The tabs: the address says which is open (#utterances, #utterances/ID); arrow keys go from one to the next.
(() => {
  const page = window.page, tabs = [...document.querySelectorAll("[role=tab]")];
  const nameOf = (tab) => tab.id.slice("tab-".length);
  page.show = (name, rest) => {
    const known = tabs.find((tab) => nameOf(tab) === name) || tabs[0], open = nameOf(known);
    for (const tab of tabs) {
      const chosen = tab === known;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !chosen;
    }
    if (location.hash.slice(1).split("/")[0] !== open) history.replaceState(null, "", `#${open}`);
    if (page.opened && page.opened[open]) page.opened[open](rest);
  };
  const follow = () => { const [name, rest] = location.hash.slice(1).split("/"); page.show(name, rest && decodeURIComponent(rest)); };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => page.show(nameOf(tab)));
    tab.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const next = tabs[(i + by + tabs.length) % tabs.length];
      next.focus();
      page.show(nameOf(next));
    });
  });
  window.addEventListener("hashchange", follow);
  follow();
  document.documentElement.dataset.ready = "yes";
})();
