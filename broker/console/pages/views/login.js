/**
 * The login: a token, or a user name with a password. Both stay in this tab.
 */

import { h, setText } from "../dom/element.js";
import { keepPassword, keepToken } from "../shell/session.js";

/**
 * Makes the form.
 * @param {?Error} refusal the broker's answer to the last attempt, null at first
 * @param {function(): void} retry called with new credentials in the session
 */
export function loginView(refusal, retry) {
  const method = h("select", { id: "login-method" }, h("option", { value: "token" }, "Token"), h("option", { value: "basic" }, "User and password"));
  const token = field("login-token", "Token", { type: "password", autocomplete: "off" });
  const user = field("login-user", "User", { autocomplete: "username" });
  const password = field("login-password", "Password", { type: "password", autocomplete: "current-password" });
  const error = h("p", { class: "error", role: "alert" });
  setText(error, refusal ? refusal.message : "");
  const choose = () => {
    token.element.hidden = method.value !== "token";
    user.element.hidden = password.element.hidden = method.value === "token";
  };
  const submit = (event) => {
    event.preventDefault();
    try {
      if (method.value === "token") keepToken(token.input.value);
      else keepPassword(user.input.value, password.input.value);
    } catch (fault) {
      setText(error, fault.message);
      return;
    }
    retry();
  };
  method.addEventListener("change", choose);
  choose();
  return h("div", { class: "login" }, h("h1", { tabindex: "-1" }, "Sign in"),
    h("p", { class: "quiet" }, "The same credentials as for the admin API. They are kept until this tab is closed."),
    h("form", { class: "panel", onsubmit: submit },
      h("div", { class: "field" }, h("label", { for: "login-method" }, "Sign in with"), method),
      token.element, user.element, password.element, error,
      h("div", { class: "buttons" }, h("button", { class: "primary" }, "Sign in"))));
}

function field(id, label, attributes) {
  const input = h("input", { id, ...attributes });
  return { input, element: h("div", { class: "field" }, h("label", { for: id }, label), input) };
}
