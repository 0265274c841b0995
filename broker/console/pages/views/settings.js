/**
 * All settings with their origin, and a form for those that may change while the broker runs.
 */

import { openForm } from "../dom/dialog.js";
import { freshId, h, setText } from "../dom/element.js";
import { button, prose, searchField } from "../dom/parts.js";
import { Table } from "../dom/table.js";
import { count } from "../format/numbers.js";
import { change, get } from "../shell/api.js";
import { Refresh } from "../shell/refresh.js";
import { format } from "../shell/routes.js";

const PATH = "/admin/v2/magnetar/console/settings";
const CHANGE_PATH = "/admin/v2/brokers/configuration";
const FILTERS = [["all", "All"], ["changed", "Changed from the default"], ["dynamic", "Changeable now"]];

/** Opens the view. */
export function openSettings(app, route) {
  let asked = route.query;
  let settings = [];
  const refresh = new Refresh((signal) => get(PATH, { signal }), (answer) => { settings = answer.settings; draw(); }, 0);
  const table = settingsTable(app, () => refresh.now());
  const amount = h("p", { class: "quiet", "aria-live": "polite" });
  const draw = () => {
    const found = settings.filter((one) => fits(one, asked));
    table.show(found);
    setText(amount, `${count(found.length)} of ${count(settings.length)} settings`);
  };
  refresh.now();
  const go = (changes) => app.go(format("settings", [], { ...asked, ...changes }));
  const element = h("div", {},
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Settings"),
      searchField("Search names and texts", asked.search ?? "", (search) => go({ search })), filterField(asked.show, (show) => go({ show }))),
    amount, refresh.error, table.element);
  return { title: "Settings", element, close: () => refresh.close(), update: (next) => { asked = next.query; draw(); } };
}

/** Says if a setting fits the search and the filter of the route. */
export function fits(setting, { search = "", show = "all" }) {
  if (show === "changed" && !isChanged(setting)) return false;
  if (show === "dynamic" && !setting.dynamic) return false;
  const text = `${setting.name} ${setting.description} ${setting.value}`.toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** Says if someone has chosen another value than the default. Computed values and those of a profile are nobody's choice. */
export function isChanged({ value, default: usual, origin, changed }) {
  return changed || (value !== usual && !/^(default|computed|profile)/.test(origin));
}

function filterField(chosen = "all", onChoice) {
  const id = freshId("filter");
  const options = FILTERS.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  const select = h("select", { id, onchange: () => onChoice(select.value === "all" ? "" : select.value) }, options);
  return h("div", { class: "field inline" }, h("label", { for: id, class: "unseen" }, "Show"), select);
}

function settingsTable(app, changed) {
  return new Table({
    caption: "Settings", stacked: true, key: (one) => one.name, empty: "No setting has this text.",
    columns: [
      { label: "Setting", header: true, text: (one) => one.name, node: nameCell },
      { label: "Value", text: (one) => `${one.value} ${one.default}`, node: valueCell },
      { label: "From", text: (one) => one.origin, node: (one) => h("div", { class: isChanged(one) ? "from" : "from quiet" }, one.origin) },
      { label: "Change", text: (one) => `${one.dynamic} ${one.origin}`, node: (one) => changeCell(app, one, changed) },
    ],
  });
}

function nameCell(setting) {
  const noEffect = setting.used === false ? " It has no effect in this broker." : "";
  return h("div", { class: "setting" }, h("code", {}, setting.name), h("p", { class: "quiet" }, prose(setting.description + noEffect)));
}

function valueCell(setting) {
  const value = h("code", {}, setting.value === "" ? "(empty)" : setting.value);
  if (!isChanged(setting) || setting.secret) return h("div", { class: "value-of" }, value);
  return h("div", { class: "value-of" }, value, h("p", { class: "quiet" }, `default: ${setting.default === "" ? "(empty)" : setting.default}`));
}

function changeCell(app, setting, changed) {
  if (!setting.dynamic) return h("span", { class: "quiet" }, "needs a restart");
  if (!app.rights.configure) return h("span", { class: "quiet" }, "not with this role");
  const act = (action) => async () => { if (await action(app, setting)) changed(); };
  const group = { class: "buttons small", role: "group", "aria-label": `Change ${setting.name}` };
  return h("div", group, button("Change", act(changeSetting)), setting.origin.startsWith("dynamic") ? button("Undo", act(undoSetting)) : null);
}

function changeSetting(app, setting) {
  return openForm({
    title: setting.name, action: "Change", intro: h("p", {}, prose(setting.description)),
    fields: [valueField(setting)],
    perform: async ({ value }) => {
      await change("POST", `${CHANGE_PATH}/${encodeURIComponent(setting.name)}/${encodeURIComponent(value)}`);
      app.notices.success(`${setting.name} is ${value} now`);
    },
  });
}

function valueField(setting) {
  const unit = setting.unit ? ` in ${setting.unit}` : "";
  const allowed = setting.allowed ? `Allowed: ${setting.allowed}. ` : "";
  const field = {
    name: "value", label: `Value${unit}`, value: setting.secret ? "" : setting.value, hint: `${allowed}Default: ${setting.default || "(empty)"}`,
  };
  const choices = setting.type === "bool" ? ["true", "false"] : setting.choices ?? [];
  return choices.length ? { ...field, type: "select", options: choices.map((choice) => [choice, choice]) } : field;
}

function undoSetting(app, setting) {
  return openForm({
    title: `Undo the change of ${setting.name}`, action: "Undo",
    intro: h("p", {}, "The value of the file, the environment or the default holds again."),
    perform: async () => {
      await change("DELETE", `${CHANGE_PATH}/${encodeURIComponent(setting.name)}`);
      app.notices.success(`The change of ${setting.name} is undone`);
    },
  });
}
