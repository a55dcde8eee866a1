/** The search box: a combobox over the server's items. */

import { ask, latest, withQuery } from "./api.js";
import { byId, el, setText } from "./dom.js";
import { had, learn, many, nameOf, whole } from "./names.js";
import { change, current } from "./state.js";

const LIMIT = 12;

/** Wires the box; `failed` hears of refusals. */
export function search(failed) {
  const box = byId("search");
  const list = byId("found");
  let items = [];
  let active = -1;
  let answered = true;
  let hurried = false;
  let closings = 0;

  const look = () => seek(box.value.trim(), closings);
  const seek = latest(async (stale, q, asked) => {
    try {
      const { history } = current();
      const { answer } = await ask(withQuery("v1/items", { q, limit: Math.min(100, LIMIT + history.length) }));
      // Who has picked or closed the list meanwhile does not want it back.
      if (stale() || asked !== closings || document.activeElement !== box) return;
      answered = true;
      learn(answer.items);
      items = answer.items.filter(({ item }) => !history.includes(item)).slice(0, LIMIT);
      show(q);
    } catch (error) {
      failed(error);
    }
  });

  function show(q) {
    list.replaceChildren(
      ...items.map(({ item, count }, at) =>
        el(
          "li",
          { id: `found-${at}`, role: "option", "aria-selected": "false" },
          marked(nameOf(item), q),
          el("span", { class: "uses", title: had(count) }, whole(count)),
        ),
      ),
    );
    const none = { class: "none", role: "option", "aria-disabled": "true" };
    if (!items.length) list.append(el("li", none, "Nothing is called that."));
    open(true);
    setText(byId("live"), `${many(items.length, "item")} found.`);
    point(q && items.length ? 0 : -1);
    if (hurried && active === 0) pick(0);
    hurried = false;
  }

  function type() {
    answered = false;
    hurried = false;
    look();
  }

  function open(wanted) {
    list.hidden = !wanted;
    box.setAttribute("aria-expanded", String(wanted));
    if (wanted) return;
    point(-1);
    closings += 1;
    answered = true;
    hurried = false;
  }

  function point(at) {
    list.children[active]?.setAttribute?.("aria-selected", "false");
    active = at;
    if (at < 0) {
      box.removeAttribute("aria-activedescendant");
      return;
    }
    const option = list.children[at];
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    box.setAttribute("aria-activedescendant", option.id);
  }

  function pick(at) {
    const { history } = current();
    const { item } = items[at];
    box.value = "";
    open(false);
    if (!history.includes(item)) change({ history: [...history, item] });
  }

  box.addEventListener("input", type);
  box.addEventListener("focus", look);
  box.addEventListener("click", () => list.hidden && look());
  box.addEventListener("blur", () => open(false));
  box.addEventListener("keydown", (event) => {
    const { history } = current();
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && list.hidden) look();
    else if (step && items.length) point((Math.max(active, step > 0 ? -1 : 0) + step + items.length) % items.length);
    // What is on the list may still belong to the word before: who types faster than that means the word.
    else if (event.key === "Enter" && !answered && box.value) hurried = true;
    else if (event.key === "Enter" && !list.hidden && active >= 0) pick(active);
    else if (event.key === "Escape") open(false);
    else if (event.key === "Backspace" && !box.value && history.length) change({ history: history.slice(0, -1) });
    else return;
    event.preventDefault();
  });
  // The box keeps the focus, so the list is still there when the pointer comes up.
  list.addEventListener("pointerdown", (event) => event.preventDefault());
  list.addEventListener("click", (event) => {
    const at = [...list.children].indexOf(event.target.closest("[role=option]"));
    if (at >= 0 && at < items.length) pick(at);
  });
}

/** A name with the part that was searched for in bold; accents may keep it from being found, which is no harm. */
function marked(name, q) {
  const at = q ? name.toLowerCase().indexOf(q.toLowerCase()) : -1;
  if (at < 0) return el("bdi", {}, name);
  const end = at + q.length;
  return el("bdi", {}, name.slice(0, at), el("b", {}, name.slice(at, end)), name.slice(end));
}
