/**
 * The frame around all views: name, navigation, state of the connection, theme, role.
 */

import { freshId, h, replace, setAttributes, setText } from "../dom/element.js";
import { button } from "../dom/parts.js";
import { duration } from "../format/numbers.js";
import { format } from "./routes.js";
import { authorization } from "./session.js";
import { choice, choose } from "./theme.js";

const PAGES = [
  ["overview", "Overview"], ["topics", "Topics"], ["namespaces", "Namespaces"], ["cluster", "Cluster"], ["cache", "Cache"],
  ["bookies", "Bookies"], ["settings", "Settings"], ["log", "Log"],
];
const THEMES = [["system", "System"], ["light", "Light"], ["dark", "Dark"]];
/** Values of this age or older stand still: they come once a second. */
const STANDS_S = 4;
const RETRY_SHOWN_MS = 1000;

/** Header, navigation and main part of the page. */
export class Frame {
  /** The whole frame. */
  element;
  /** The main part, in which a view stands. */
  main = h("main", { id: "main" });
  #app;
  #links = new Map();
  #nav = h("nav", { "aria-label": "Pages", hidden: true });
  #cluster = h("span", { class: "cluster quiet" });
  #role = h("div", { class: "role" });
  #connection = h("p", { class: "connection", role: "status" });
  #lostText = h("p");
  #lost = h("div", { class: "lost", hidden: true }, this.#lostText, button("Try now", () => this.#app.live.retry()));

  /** @param {Object} app the console */
  constructor(app) {
    this.#app = app;
    const skip = h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); this.focusTitle(); } }, "Go to the content");
    const header = h("header", {},
      h("a", { class: "brand", href: format("overview") }, h("img", { src: "/console/icon.svg", alt: "", width: 22, height: 22 }), "Magnetar"),
      this.#cluster, this.#connection, themeField(), this.#role);
    this.element = h("div", { class: "frame" }, skip, header, this.#nav, this.#lost, this.main);
    app.live.watch(() => this.#drawConnection());
    setInterval(() => this.#drawConnection(), RETRY_SHOWN_MS);
  }

  /** Shows the navigation of a session. */
  enter(session, rights) {
    const pages = rights.console ? PAGES : PAGES.filter(([name]) => name === "topics");
    this.#links = new Map(pages.map(([name, text]) => [name, h("a", { href: format(name) }, text)]));
    replace(this.#nav, h("ul", {}, [...this.#links.values()].map((link) => h("li", {}, link))));
    this.#nav.hidden = false;
    setText(this.#cluster, `${session.cluster} ${session.version}`);
    replace(this.#role, session.role ? h("span", { class: "quiet" }, session.role) : null,
      authorization() ? button("Sign out", () => this.#app.leave()) : null);
  }

  /** Hides the navigation, the role and the state of the connection. */
  leave() {
    this.#nav.hidden = true;
    this.#lost.hidden = true;
    replace(this.#role);
    setText(this.#cluster, "");
    setText(this.#connection, "");
  }

  /** Marks the page in the navigation. */
  mark(view) {
    for (const [name, link] of this.#links) setAttributes(link, { "aria-current": name === view ? "page" : null });
    // On a phone the row of links is wider than the screen.
    const link = this.#links.get(view);
    if (link) this.#nav.scrollLeft = link.offsetLeft - (this.#nav.clientWidth - link.offsetWidth) / 2;
  }

  /** Moves the focus to the title of the view. */
  focusTitle() {
    this.main.querySelector("h1")?.focus();
  }

  #drawConnection() {
    if (this.#nav.hidden) return;
    const { name, error, retryAtMs } = this.#app.live.state;
    const texts = { idle: "", connecting: "connecting", live: "live", lost: "connection lost", refused: "no live values" };
    const age = name === "live" ? this.#app.live.ageSeconds(Date.now()) : null;
    const stands = age !== null && age >= STANDS_S;
    setText(this.#connection, stands ? `values stand still for ${duration(Math.round(age))}` : texts[name]);
    setAttributes(this.#connection, { "data-state": stands ? "still" : name });
    this.#lost.hidden = !error;
    if (!error) return;
    const wait = name === "lost" ? ` Next attempt in ${duration(Math.max(0, Math.ceil((retryAtMs - Date.now()) / 1000)))}.` : "";
    setText(this.#lostText, `${error.message}.${wait}`);
  }
}

function themeField() {
  const id = freshId("theme");
  const options = THEMES.map(([value, text]) => h("option", { value, selected: value === choice() }, text));
  const select = h("select", { id, onchange: () => choose(select.value) }, options);
  return h("div", { class: "field inline theme" }, h("label", { for: id, class: "unseen" }, "Colours"), select);
}
