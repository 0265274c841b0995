/**
 * A dialog with a form: asks for values, acts, and stays open with the server's error if the action fails.
 */

import { h, freshId, replace } from "./element.js";

/**
 * One field of a form.
 * @typedef {Object} Field
 * @property {string} name
 * @property {string} label
 * @property {string} [type] of `input`, or "textarea" or "select"; "text" by default
 * @property {string|number} [value] at first
 * @property {string} [hint] one sentence below the field
 * @property {boolean} [optional] may stay empty
 * @property {[string, string][]} [options] value and text, of a select
 * @property {string} [mustEqual] the action is possible only with this text
 */

/**
 * Opens a dialog.
 * @param {Object} form
 * @param {string} form.title
 * @param {string|Node} [form.intro]
 * @param {Field[]} [form.fields]
 * @param {string} form.action text of the button
 * @param {boolean} [form.danger] the action destroys something
 * @param {function(Object<string, string>): Promise<*>} form.perform acts; its error is shown in the dialog
 * @returns {Promise<boolean>} true after the action, false if the user left
 */
export function openForm({ title, intro, fields = [], action, danger = false, perform }) {
  const titleId = freshId("dialog");
  const error = h("p", { class: "error", role: "alert" });
  const submit = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
  const cancel = h("button", { type: "button" }, "Cancel");
  const controls = fields.map(fieldOf);
  const form = h("form", { novalidate: true },
    h("h2", { id: titleId }, title),
    intro ? h("div", { class: "intro" }, intro) : null,
    controls.map((control) => control.element),
    error,
    h("div", { class: "buttons" }, cancel, submit));
  const dialog = h("dialog", { "aria-labelledby": titleId }, form);
  document.body.append(dialog);

  const check = () => { submit.disabled = !controls.every((control) => control.isComplete()); };
  form.addEventListener("input", check);
  check();

  return new Promise((resolve) => {
    let done = false;
    dialog.addEventListener("close", () => { dialog.remove(); resolve(done); });
    cancel.addEventListener("click", () => dialog.close());
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      replace(error);
      submit.disabled = true;
      try {
        await perform(Object.fromEntries(controls.map((control) => [control.name, control.value()])));
        done = true;
        dialog.close();
      } catch (failure) {
        error.textContent = failure.message;
        check();
      }
    });
    dialog.showModal();
  });
}

function fieldOf(field) {
  const id = freshId("field");
  const hintId = field.hint ? `${id}-hint` : null;
  const input = inputOf(field, id, hintId);
  const element = h("div", { class: "field" },
    h("label", { for: id }, field.label, field.optional ? h("span", { class: "quiet" }, " (optional)") : null),
    input,
    field.hint ? h("p", { class: "hint", id: hintId }, field.hint) : null);
  return {
    name: field.name,
    element,
    value: () => input.value,
    isComplete: () => isComplete(field, input),
  };
}

function inputOf(field, id, hintId) {
  const common = { id, name: field.name, "aria-describedby": hintId, autocomplete: "off", spellcheck: "false" };
  if (field.type === "select") {
    return h("select", common, field.options.map(([value, text]) =>
      h("option", { value, selected: value === field.value }, text)));
  }
  if (field.type === "textarea") return h("textarea", { ...common, rows: 5 }, field.value ?? "");
  return h("input", {
    ...common, type: field.type ?? "text", value: field.value ?? "", min: field.min, step: field.step,
    placeholder: field.placeholder,
  });
}

function isComplete(field, input) {
  if (field.mustEqual !== undefined) return input.value === field.mustEqual;
  return field.optional || (input.value !== "" && input.checkValidity());
}
