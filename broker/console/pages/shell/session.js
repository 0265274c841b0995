/**
 * The credentials of the user, kept until the tab is closed: a token, or a user name with a password.
 *
 * They stay in `sessionStorage` alone. Nothing writes them to a cookie, to a URL or to storage that outlives the tab.
 */

const KEY = "magnetar-authorization";

/** Returns the value of the header Authorization, null before a login. */
export function authorization() {
  return sessionStorage.getItem(KEY);
}

/** Keeps a token (a JSON Web Token). */
export function keepToken(token) {
  sessionStorage.setItem(KEY, `Bearer ${token.trim()}`);
}

/** Keeps a user name and a password, encoded as RFC 7617 wants UTF-8. */
export function keepPassword(user, password) {
  const encoded = new TextEncoder().encode(`${user}:${password}`);
  sessionStorage.setItem(KEY, `Basic ${btoa(String.fromCharCode(...encoded))}`);
}

/** Forgets the credentials. */
export function forget() {
  sessionStorage.removeItem(KEY);
}
