// The frame that all charts share: a figure whose SVG is as wide as the page, is drawn again when that
// changes, has a name for screen readers, and takes the keyboard.
// SPDX-License-Identifier: Apache-2.0
"use strict";

// Of a chart on paper, so that its letters are as large as those of the text: A4 and Letter less margins.
const printWidth = 680;

// chart({kind, label, height, draw}): `draw(svg, width)` fills an empty selection. `kind` names it in tests.
// `keys(event)` may be given; it returns true where it has used the key.
function chart(options) {
  const svg = d3.select(document.createElementNS("http://www.w3.org/2000/svg", "svg"));
  const focusable = Boolean(options.keys);
  svg.attr("data-chart", options.kind).attr("role", focusable ? "application" : "img")
    .attr("aria-label", options.label).attr("aria-roledescription", "chart");
  if (focusable) {
    svg.attr("tabindex", 0).on("keydown", (event) => {
      if (event.altKey || event.metaKey || event.ctrlKey || !options.keys(event)) return;
      event.preventDefault();
    }).on("blur", () => tip.hide());
  }
  const figure = element("figure", {}, svg.node(), tools(tool("PNG", `Save the chart ${options.kind} as PNG`, () => savePng(svg.node(), options.kind))));
  let drawn = 0;
  const draw = (width) => {
    if (width < 50 || width === drawn) return;
    drawn = width;
    const height = typeof options.height === "function" ? options.height(width) : options.height;
    svg.attr("viewBox", `0 0 ${width} ${height}`).attr("width", width).attr("height", height);
    svg.selectAll("*").remove();
    options.draw(svg, width, height);
  };
  new ResizeObserver((entries) => draw(Math.round(entries[0].contentRect.width))).observe(figure);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => figure.redraw());
  addEventListener("beforeprint", () => draw(printWidth));
  addEventListener("afterprint", () => draw(Math.round(figure.clientWidth)));
  figure.redraw = () => {
    const width = drawn;
    drawn = 0;
    draw(width);
  };
  return figure;
}

// Shows a note for each of these marks; `describe(datum)` gives [title, lines]. A finger's note stays until
// the next touch.
function withTips(marks, describe) {
  return marks.on("pointerdown pointermove", (event, datum) => tip.show(event.clientX, event.clientY, ...describe(datum)))
    .on("pointerleave", (event) => { if (event.pointerType !== "touch") tip.hide(); });
}
addEventListener("pointerdown", (event) => { if (event.pointerType === "touch") tip.hide(); }, {capture: true});

// A name in lines of at most this many pixels, cut after spaces and signs; four lines at most.
const letterWidth = 7;
function linesOf(name, room) {
  const most = Math.max(4, Math.floor(room / letterWidth));
  const lines = [""];
  for (const part of name.split(/(?<=[\s,:_/#=-])/).flatMap((word) => word.match(new RegExp(`.{1,${most}}`, "gs")) ?? [])) {
    if ((lines.at(-1) + part).trimEnd().length > most) lines.push("");
    lines[lines.length - 1] += part;
  }
  return lines.length > 4 ? [...lines.slice(0, 3), shortened(lines.slice(3).join(""), room)] : lines;
}

function shortened(text, room) {
  const most = Math.max(1, Math.floor(room / letterWidth));
  return text.length <= most ? text : `${text.slice(0, most - 1)}\u2026`;
}

// A name beside a row, in the middle of it.
const lineHeight = 13;
function nameBeside(svg, middle, name, room, kind) {
  const lines = linesOf(name, room);
  lines.forEach((line, index) => svg.append("text").attr("class", kind).attr("x", 0)
    .attr("y", middle + 4 + (index - (lines.length - 1) / 2) * lineHeight).text(line.trimEnd()));
}

// Of rows that have these names beside them.
function rowsHeight(names, room, least) {
  return Math.max(least, ...names.map((name) => linesOf(name, room).length * lineHeight + 6));
}

// Horizontal axis below, with a title at its right end.
function axisBelow(svg, scale, y, title, ticks) {
  const axis = d3.axisBottom(scale).tickSizeOuter(0);
  if (ticks) ticks(axis);
  const drawn = svg.append("g").attr("class", "axis").attr("transform", `translate(0,${y})`).call(axis);
  drawn.append("text").attr("class", "small").attr("x", scale.range()[1]).attr("y", 32).attr("text-anchor", "end").text(title);
  return drawn;
}
