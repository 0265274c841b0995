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

/** Keeps a token (a JSON Web Token). Throws an Error for characters that no header can carry. */
export function keepToken(token) {
  const text = token.trim();
  const fault = tokenFault(text);
  if (fault) throw new Error(fault);
  sessionStorage.setItem(KEY, `Bearer ${text}`);
}

/**
 * Says what is wrong with a token; null for one that can be sent.
 *
 * A browser refuses a header with other characters before it sends anything, which would look like a broker that is away.
 */
export function tokenFault(text) {
  if (!text) return "Enter a token.";
  const place = [...text].findIndex((one) => !/^[\x21-\x7e]$/.test(one));
  if (place < 0) return null;
  const found = [...text][place];
  const code = found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  const shown = /^[\s\p{C}]$/u.test(found) ? `U+${code}` : `“${found}” (U+${code})`;
  return `Character ${place + 1} of the token is ${shown}. A token has letters, digits and signs of ASCII alone: copy it again.`;
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
