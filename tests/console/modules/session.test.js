/** Tokens that a header can carry. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { tokenFault } from "../pages/shell/session.js";

test("a token of ASCII has no fault", () => {
  assert.equal(tokenFault("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.a-b_c="), null);
});

test("the first character that no header can carry is named", () => {
  assert.match(tokenFault("abé"), /^Character 3 of the token is “é” \(U\+00E9\)/);
  assert.match(tokenFault("a😀é"), /^Character 2 of the token is “😀” \(U\+1F600\)/);
  assert.match(tokenFault("a\nb"), /^Character 2 of the token is U\+000A/);
  assert.match(tokenFault("a b"), /^Character 2 of the token is U\+0020/);
  assert.match(tokenFault("a\u200bb"), /U\+200B\. A token/);
  assert.equal(tokenFault(""), "Enter a token.");
});
