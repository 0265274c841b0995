/**
 * Starts the console: asks for the session, then shows the view that the hash of the URL names.
 */

import { h, replace } from "./dom/element.js";
import { get } from "./shell/api.js";
import { Frame } from "./shell/frame.js";
import { Live } from "./shell/live.js";
import { Notices } from "./shell/notices.js";
import { parse } from "./shell/routes.js";
import { authorization, forget } from "./shell/session.js";
import { applyTheme } from "./shell/theme.js";
import { openBookies } from "./views/bookies.js";
import { openCache } from "./views/cache.js";
import { openCluster } from "./views/cluster.js";
import { openLog } from "./views/log.js";
import { loginView } from "./views/login.js";
import { openNamespaces } from "./views/namespaces.js";
import { openOverview } from "./views/overview.js";
import { openSettings } from "./views/settings.js";
import { openTopic } from "./views/topic.js";
import { openTopics } from "./views/topics.js";

const PATH = "/admin/v2/magnetar/console";

const VIEWS = {
  overview: openOverview, topics: openTopics, topic: openTopic, namespaces: openNamespaces, cluster: openCluster, cache: openCache,
  bookies: openBookies, settings: openSettings, log: openLog,
};
/** Views for roles that are no superuser. */
const OPEN_TO_ALL = new Set(["topics", "topic"]);

/** The console of one session. */
class Console {
  notices = new Notices();
  live = new Live();
  session = null;
  rights = null;
  #frame;
  #view = null;
  #route = null;

  constructor() {
    this.#frame = new Frame(this);
    document.body.prepend(this.#frame.element, this.notices.element);
    addEventListener("hashchange", () => this.#show());
  }

  /** Goes to an address, as a link does. */
  go(hash) {
    if (location.hash === hash) this.#show();
    else location.hash = hash;
  }

  /** Asks for the session with the present credentials, and shows the view or the login. */
  async start() {
    this.#close();
    this.live.close();
    try {
      [this.session, this.rights] = await Promise.all([get(`${PATH}/session`), get(`${PATH}/rights`)]);
    } catch (error) {
      this.#refuse(error);
      return;
    }
    this.#frame.enter(this.session, this.rights);
    this.live.isBroad = this.rights.console;
    this.live.follow(null);
    this.#show();
  }

  /** Forgets the credentials. */
  leave() {
    forget();
    this.start();
  }

  #refuse(error) {
    const refused = error.status === 401 || error.status === 403;
    this.#frame.leave();
    document.title = refused ? "Sign in · Magnetar" : "Magnetar";
    replace(this.#frame.main, refused ? loginView(authorization() ? error : null, () => this.start()) : this.#unreachable(error));
    this.#frame.focusTitle();
  }

  #unreachable(error) {
    return h("div", { class: "login" }, h("h1", { tabindex: "-1" }, "The broker does not answer"),
      h("p", { class: "error", role: "alert" }, error.message),
      h("button", { type: "button", class: "primary", onclick: () => this.start() }, "Try again"));
  }

  #show() {
    if (!this.session) return;
    const route = this.#allowed(parse(location.hash));
    const samePlace = this.#route && route.view === this.#route.view && route.parts.join("/") === this.#route.parts.join("/");
    if (samePlace && this.#view?.update) {
      this.#route = route;
      this.#view.update(route);
      return;
    }
    this.#close();
    const first = this.#route === null;
    this.#route = route;
    this.#view = VIEWS[route.view](this, route);
    document.title = `${this.#view.title} · ${this.session.cluster} · Magnetar`;
    this.#frame.mark(route.view === "topic" ? "topics" : route.view);
    replace(this.#frame.main, this.#view.element);
    // After a change of view, screen readers go on at its title. At the start they begin at the top of the page.
    if (!first) this.#frame.focusTitle();
  }

  #allowed(route) {
    const known = VIEWS[route.view] ? route : { view: "overview", parts: [], query: {} };
    if (this.rights.console || OPEN_TO_ALL.has(known.view)) return known;
    return { view: "topics", parts: [], query: {} };
  }

  #close() {
    this.#view?.close();
    this.#view = null;
  }
}

applyTheme();
new Console().start();
