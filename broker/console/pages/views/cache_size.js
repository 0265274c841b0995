/**
 * The effect of another cache size: the miss-ratio curve, a size to compare, and the line of broker.conf that it takes.
 */

import { Curve, missRatioAt } from "../charts/curve.js";
import { freshId, h, replace, setAttributes, setText } from "../dom/element.js";
import { panel } from "../dom/parts.js";
import { bytes, counted, duration, percent } from "../format/numbers.js";
import { clockWithSeconds } from "../format/times.js";

const MIB = 1 << 20;
const STEPS = 200;

/** The section of the curve. */
export class SizePanel {
  /** The section. */
  element;
  #curve = new Curve();
  #slider;
  #answer = h("p", { class: "conclusion" });
  #line = h("code", { class: "line-of-conf" });
  #note = h("p", { class: "quiet" });
  #waiting = h("p", { class: "empty" });
  #stopped = h("p", { class: "error", role: "alert" });
  #drawing;
  #table = h("div");
  #details;
  #shown = null;

  constructor() {
    const id = freshId("size");
    this.#slider = h("input", { id, type: "range", min: 0, max: STEPS, value: STEPS / 2, oninput: () => this.#compare() });
    this.#details = h("details", { ontoggle: () => this.#fillTable() }, h("summary", {}, "Table of the curve"), this.#table);
    this.#drawing = h("div", { hidden: true }, this.#curve.element,
      h("div", { class: "field" }, h("label", { for: id }, "Compare another size"), this.#slider),
      this.#answer, h("p", {}, "In broker.conf: ", this.#line), this.#details);
    this.element = panel("The effect of another size", this.#stopped, this.#waiting, this.#drawing, this.#note);
  }

  /** Shows the answer of the cache's page. */
  show({ missRatioCurve: curve }) {
    const ready = Boolean(curve && curve.points?.length > 1);
    this.#drawing.hidden = !ready;
    this.#waiting.hidden = ready || Boolean(curve?.stopped);
    setText(this.#waiting, "The broker samples reads since this page was opened. The curve appears when there are some.");
    setText(this.#stopped, stoppedText(curve?.stopped));
    setText(this.#note, noteOf(curve, ready));
    if (!ready) return;
    const first = this.#shown === null;
    this.#shown = curve;
    if (first) this.#slider.value = this.#stepOf(curve.now.bytes);
    this.#compare();
  }

  /** Returns the size at the slider's step; the steps are even by factors. */
  #size() {
    const { now } = this.#shown;
    const step = Number(this.#slider.value);
    if (step === this.#stepOf(now.bytes)) return now.bytes;
    const [least, most] = this.#range();
    return Math.max(MIB, Math.round((least * (most / least) ** (step / STEPS)) / MIB) * MIB);
  }

  #stepOf(size) {
    const [least, most] = this.#range();
    return Math.round((Math.log(size / least) / Math.log(most / least || Math.E)) * STEPS);
  }

  #range() {
    const { points, now } = this.#shown;
    const sizes = points.map((point) => point.bytes).filter((size) => size > 0);
    const least = Math.max(MIB, Math.min(now.bytes, ...sizes));
    return [least, Math.max(now.bytes, 2 * least, ...sizes)];
  }

  #compare() {
    const { points, now } = this.#shown;
    const size = this.#size();
    const [there, here] = [missRatioAt(points, size), missRatioAt(points, now.bytes)];
    this.#curve.show(this.#shown, size);
    const measured = now.measured === null ? "" : `; measured were ${percent(now.measured)}`;
    setText(this.#answer, size === now.bytes
      ? `At the present size of ${bytes(size)} the curve expects ${percent(here)} of reads to miss${measured}.`
      : `With ${bytes(size)} the curve expects ${percent(there)} of reads to miss, ${change(here, there)}.`);
    setText(this.#line, `managedLedgerCacheSizeMB=${Math.max(1, Math.round(size / MIB))}`);
    setAttributes(this.#slider, { "aria-valuetext": `${bytes(size)}, ${percent(there)} misses` });
  }

  #fillTable() {
    if (!this.#details.open || !this.#shown) return;
    const head = ["Size", "Miss ratio", "Standard error"].map((text) => h("th", { scope: "col", class: "number" }, text));
    replace(this.#table, h("table", {}, h("caption", { class: "unseen" }, "Miss ratio by size"), h("thead", {}, h("tr", {}, head)),
      h("tbody", {}, this.#shown.points.map((point) => h("tr", {},
        [bytes(point.bytes), percent(point.missRatio), percent(point.standardError)].map((text) => h("td", { class: "number" }, text)))))));
  }
}

function change(here, there) {
  if (here === null || there === null) return "the present size lies outside of the curve";
  const points = (there - here) * 100;
  if (Math.abs(points) < 0.1) return "as many as now";
  return `${Math.abs(points).toFixed(1)} percentage points ${points < 0 ? "fewer" : "more"} than now`;
}

/** Says that the sampling failed: the curve is that of the time before, and does not follow the cache any more. */
function stoppedText(stopped) {
  if (!stopped) return "";
  return `The curve stopped at ${clockWithSeconds(Date.now() - stopped.secondsAgo * 1000)}: ${stopped.reason}. The log has the details. It begins anew when no page has asked for it for ten minutes.`;
}

/** Says how many reads were sampled, and what limits the curve once it is drawn. */
function noteOf(curve, drawn) {
  if (!curve) return "";
  const sampled = `${counted(curve.reads, "sampled read")} in ${duration(Math.round(curve.sinceSeconds))}. `;
  if (!drawn) return sampled;
  const few = curve.enough === false ? "These are few: the band shows how far the curve may be off. " : "";
  return `${sampled}${few}${curve.note ?? ""}`;
}
