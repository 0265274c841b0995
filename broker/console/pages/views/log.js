/**
 * The log's last warnings and errors, as the broker wrote them.
 */

import { h, replace, timeElement } from "../dom/element.js";
import { searchField } from "../dom/parts.js";

/** Makes a row of a list for one warning. */
export function warningRow(warning) {
  return h("li", { class: warning.level.toLowerCase() },
    h("span", { class: "level" }, warning.level), timeElement(warning.atMs), h("code", {}, warning.text));
}

/** Opens the view. */
export function openLog({ live }) {
  const list = h("ol", { class: "warnings" });
  let wanted = "";
  let drawn = null;
  const draw = () => {
    // Times are relative, so a row is drawn again with each event, but not while the user selects its text.
    if (!document.getSelection().isCollapsed && drawn !== null) return;
    drawn = live.warnings.filter((one) => one.text.toLowerCase().includes(wanted));
    replace(list, drawn.length ? drawn.map(warningRow) : h("li", { class: "quiet" }, wanted ? "No warning has this text." : "None."));
  };
  const search = searchField("Search the warnings", "", (text) => { wanted = text.toLowerCase(); drawn = null; draw(); });
  const element = h("div", {},
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Log warnings"), search),
    h("p", { class: "quiet" }, "The last 200 warnings and errors of this broker, the newest first. The log itself has the rest."),
    h("section", { class: "panel", "aria-label": "Warnings" }, list));
  return { title: "Log warnings", element, close: live.watch(draw) };
}
