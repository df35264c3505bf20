// Hosts as cells on a canvas, in groups: one picture of ten thousand hosts.

import { el, shown } from "./dom.js";

const HEADING = 24;
const GAP = 10;
const SMALLEST = 6;
const LARGEST = 26;
const STEPS = 64;

/**
 * A heat map. `groups` of `show` are `{title, rows}`; rows are places in the columns of the fleet.
 * `describe(row)` is what is said of a host, `open(row)` is called for the host that was chosen.
 */
export class HeatMap {
  constructor({ describe, open, signal }) {
    this.describe = describe;
    this.canvas = el("canvas", {
      id: "heat-map", tabindex: "0", role: "application", "aria-roledescription": "heat map",
      "aria-label": "Hosts. Arrow keys go from host to host, Enter opens one.", "aria-describedby": "pointed",
    });
    this.ring = el("span", { class: "ring", hidden: true });
    this.tip = el("p", { class: "tip", hidden: true });
    this.said = el("p", { id: "pointed", class: "for-readers", role: "status" });
    this.element = el("div", { class: "heat-map" }, this.canvas, this.ring, this.tip, this.said);
    this.groups = [];
    this.cells = [];
    this.pointed = null;
    this.canvas.addEventListener("pointermove", (event) => this.#pointTo(this.#at(event), false));
    this.canvas.addEventListener("pointerleave", () => this.#pointTo(null, false));
    this.canvas.addEventListener("click", (event) => {
      const place = this.#at(event);
      if (place !== null) open(this.cells[place]);
    });
    this.canvas.addEventListener("keydown", (event) => this.#key(event, open));
    this.canvas.addEventListener("blur", () => this.#pointTo(null, false));
    const observer = new ResizeObserver(() => this.element.clientWidth !== this.width && this.draw());
    observer.observe(this.element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => this.draw(), { signal });
    signal.addEventListener("abort", () => observer.disconnect());
  }

  /** Show these groups; `shareOf(row)` colours a host, null is unknown; `stateOf(row)` marks it. */
  show(groups, shareOf, stateOf) {
    const kept = this.pointed === null ? null : this.cells[this.pointed];
    Object.assign(this, { groups, shareOf, stateOf, cells: groups.flatMap((each) => each.rows) });
    this.draw();
    const place = kept === null ? -1 : this.cells.indexOf(kept);
    if (kept !== null) this.#pointTo(place < 0 ? null : place, false);
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width || !this.shareOf) return;
    this.width = width;
    this.#layOut(width);
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.blockSize = `${this.height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const colours = this.#colours();
    context.font = `600 13px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "middle";
    for (const block of this.blocks) {
      context.fillStyle = colours.text;
      context.fillText(shown(`${block.title} (${block.rows.length})`), 0, block.y - HEADING / 2, width);
      block.rows.forEach((row, at) => this.#cell(context, colours, block, row, at));
    }
  }

  #layOut(width) {
    const wanted = Math.max(320, window.innerHeight * 0.55);
    for (this.size = LARGEST; this.size >= SMALLEST; this.size -= 1) {
      this.perRow = Math.max(1, Math.floor(width / this.size));
      let y = 0;
      this.blocks = this.groups.map((group) => {
        const block = { ...group, y: y + HEADING };
        y = block.y + Math.ceil(group.rows.length / this.perRow) * this.size + GAP;
        return block;
      });
      this.height = Math.max(y, 1);
      if (y <= wanted) return;
    }
    this.size = SMALLEST;
  }

  #colours() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    const [low, high] = [value("--low"), value("--high")].map((hex) => hex.match(/[0-9a-f]{2}/gi).map((each) => parseInt(each, 16)));
    const scale = Array.from({ length: STEPS + 1 }, (_, step) =>
      `rgb(${low.map((from, at) => Math.round(from + ((high[at] - from) * step) / STEPS)).join(" ")})`);
    return { scale, over: value("--over"), unknown: value("--unknown"), mark: value("--mark"), text: value("--text") };
  }

  #cell(context, colours, block, row, at) {
    const [x, y] = [(at % this.perRow) * this.size, block.y + Math.floor(at / this.perRow) * this.size];
    const side = this.size - (this.size > 8 ? 2 : 1);
    const share = this.shareOf(row);
    if (share === null) context.fillStyle = colours.unknown;
    else context.fillStyle = share > 1.0005 ? colours.over : colours.scale[Math.round(STEPS * Math.min(1, Math.max(0, share)))];
    context.fillRect(x, y, side, side);
    const state = this.stateOf(row);
    if (state === "up") return;
    // A shape, for colours alone are not seen by everyone: a cross is down, a stroke disabled.
    context.strokeStyle = colours.mark;
    context.lineWidth = this.size > 12 ? 2 : 1.25;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + side, y + side);
    if (state === "down") {
      context.moveTo(x + side, y);
      context.lineTo(x, y + side);
    }
    context.stroke();
  }

  /** Where a place is: the corner of its cell. */
  #corner(place) {
    let first = 0;
    for (const block of this.blocks) {
      const at = place - first;
      if (at < block.rows.length) return [(at % this.perRow) * this.size, block.y + Math.floor(at / this.perRow) * this.size];
      first += block.rows.length;
    }
    return [0, 0];
  }

  #at(event) {
    const { offsetX: x, offsetY: y } = event;
    let first = 0;
    for (const block of this.blocks ?? []) {
      const [line, column] = [Math.floor((y - block.y) / this.size), Math.floor(x / this.size)];
      const at = line * this.perRow + column;
      if (line >= 0 && column < this.perRow && at < block.rows.length) return first + at;
      first += block.rows.length;
    }
    return null;
  }

  #pointTo(place, isSaid) {
    this.pointed = place;
    this.ring.hidden = this.tip.hidden = place === null;
    this.canvas.style.cursor = place === null ? "default" : "pointer";
    if (place === null) return;
    const [x, y] = this.#corner(place);
    const text = shown(this.describe(this.cells[place]));
    Object.assign(this.ring.style, { left: `${x}px`, top: `${y}px`, inlineSize: `${this.size - 1}px`, blockSize: `${this.size - 1}px` });
    this.tip.textContent = text;
    const left = Math.min(x, Math.max(0, this.element.clientWidth - this.tip.offsetWidth));
    Object.assign(this.tip.style, { left: `${left}px`, top: `${y + this.size + 4}px` });
    if (isSaid) this.said.textContent = text;
  }

  #key(event, open) {
    const last = this.cells.length - 1;
    const from = this.pointed;
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.perRow, ArrowUp: -this.perRow };
    let to = null;
    if (event.key in moves) to = from === null ? 0 : from + moves[event.key];
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = last;
    else if (event.key === "Enter" && from !== null) return open(this.cells[from]);
    if (to === null || last < 0) return undefined;
    event.preventDefault();
    return this.#pointTo(Math.min(last, Math.max(0, to)), true);
  }
}
