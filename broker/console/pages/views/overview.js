/**
 * The overview: throughput, latency and hit ratio now and over the last hour, counts, and the newest warnings.
 */

import { LineChart } from "../charts/line_chart.js";
import { h, replace, setAttributes, setText } from "../dom/element.js";
import { Tiles, button } from "../dom/parts.js";
import { byteRate, bytes, count, counted, duration, percent, publishLatency, rate, short, windowText } from "../format/numbers.js";
import { format } from "../shell/routes.js";
import { warningRow } from "./log.js";

/** The span that charts begin with. */
export const HOUR_MS = 3600e3;
const FIVE_MINUTES_MS = 300e3;
const WARNINGS_SHOWN = 5;

const TILES = [
  ["in", "Published"], ["out", "Delivered"], ["latency", "Publish latency"], ["hits", "Cache hit ratio"],
  ["cache", "Cache"], ["backlog", "Backlog"], ["storage", "Storage"], ["topics", "Topics"], ["clients", "Connections"],
  ["lag", "Event loop lag"],
];

const milliseconds = (value) => duration(value === null || value === undefined ? null : value / 1000);
const messages = (value) => rate(value, "msg");

/** Charts of the whole broker and of one topic. */
export const CHARTS = [
  { title: "Messages", format: messages, series: [["published", "messagesIn"], ["delivered", "messagesOut"]] },
  { title: "Throughput", format: byteRate, base: 1024, series: [["published", "bytesIn"], ["delivered", "bytesOut"]] },
  { title: "Publish latency of a minute", format: publishLatency, axis: milliseconds, series: [["median", "publishP50Ms"], ["99 %", "publishP99Ms"]] },
  { title: "Cache hit ratio", format: percent, top: 1, series: [["hits", "hitRatio"]] },
  { title: "Backlog", format: short, series: [["entries", "backlog"]] },
];
/** Of a bookie in the broker's process; of others the page of bookies tells the times. */
const JOURNAL = { title: "Latency of the last journal writes", format: milliseconds, series: [["median", "journalP50Ms"], ["99 %", "journalP99Ms"]] };
/** In its place where the journal is elsewhere. */
const LAG = { title: "Event loop lag", format: milliseconds, series: [["longest of the last 20 s", "loopLagMs"]] };

/** Opens the view. */
export function openOverview({ live }) {
  const tiles = new Tiles(TILES);
  const charts = CHARTS.map(newChart);
  const [journal, lag] = [newChart(JOURNAL), newChart(LAG)];
  const all = [...charts, journal, lag];
  const window = h("p", { class: "quiet" });
  const warnings = h("ol", { class: "warnings" });
  let spanMs = HOUR_MS;

  const draw = () => {
    if (live.overview) {
      showTiles(tiles, live.overview);
      setText(window, windowText(live.overview.windowSeconds));
    }
    const columns = live.history.rows(spanMs);
    const here = columns.column("journalP50Ms").some((value) => value !== null);
    journal.element.hidden = !here;
    lag.element.hidden = here;
    for (const chart of all) chart.show(columns, spanMs);
    replace(warnings, live.warnings.length ? live.warnings.slice(0, WARNINGS_SHOWN).map(warningRow) : h("li", { class: "quiet" }, "None."));
  };
  const spans = spanButtons((chosen) => { spanMs = chosen; draw(); });
  const element = h("div", {},
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Overview"), spans),
    window, tiles.element, h("div", { class: "charts" }, all.map((chart) => chart.element)),
    h("section", { class: "panel" }, h("h2", {}, "Newest warnings"), warnings, h("p", {}, h("a", { href: format("log") }, "All warnings"))));
  return { title: "Overview", element, close: live.watch(draw) };
}

/** Makes a chart of the history. */
export function newChart({ series, ...options }) {
  return new LineChart({ ...options, series: series.map(([label, name]) => ({ label, name })) });
}

/** Makes the buttons for the time span; `choose` gets it in ms. */
export function spanButtons(choose) {
  const choices = [["Last hour", HOUR_MS], ["Last 5 minutes", FIVE_MINUTES_MS]];
  const buttons = choices.map(([text, spanMs]) => button(text, () => mark(spanMs)));
  const mark = (chosen) => {
    choices.forEach(([, spanMs], place) => setAttributes(buttons[place], { "aria-pressed": String(spanMs === chosen) }));
    choose(chosen);
  };
  choices.forEach((_, place) => setAttributes(buttons[place], { "aria-pressed": String(place === 0) }));
  return h("div", { class: "buttons segmented", role: "group", "aria-label": "Time span of the charts" }, buttons);
}

/** Names the time that rates and the hit ratio are of. */
function showTiles(tiles, now) {
  tiles.set("in", messages(now.messagesIn), byteRate(now.bytesIn));
  tiles.set("out", messages(now.messagesOut), byteRate(now.bytesOut));
  tiles.set("latency", publishLatency(now.publishP50Ms), `median of the last minute; 99 %: ${publishLatency(now.publishP99Ms)}`);
  tiles.set("hits", percent(now.hitRatio), `since the start: ${percent(now.hitRatioTotal)}`);
  tiles.set("cache", bytes(now.cacheBytes), `of ${bytes(now.cacheMaxBytes)}, ${short(now.cacheEntries)} entries`);
  tiles.set("backlog", short(now.backlog), "entries not acknowledged");
  tiles.set("storage", bytes(now.storageBytes), now.journalP50Ms === null ? "of all topics" : `last journal writes: ${milliseconds(now.journalP50Ms)}, 99 %: ${milliseconds(now.journalP99Ms)}`);
  tiles.set("topics", count(now.topics), `open, ${counted(now.subscriptions, "subscription")}`);
  tiles.set("clients", count(now.connections), `${counted(now.producers, "producer")}, ${counted(now.consumers, "consumer")}`);
  tiles.set("lag", milliseconds(now.loopLagMs), "longest of the last 20 s");
}
