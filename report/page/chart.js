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
  const figure = element("figure", {}, svg.node());
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

// Horizontal axis below, with a title at its right end.
function axisBelow(svg, scale, y, title, ticks) {
  const axis = d3.axisBottom(scale).tickSizeOuter(0);
  if (ticks) ticks(axis);
  const drawn = svg.append("g").attr("class", "axis").attr("transform", `translate(0,${y})`).call(axis);
  drawn.append("text").attr("class", "small").attr("x", scale.range()[1]).attr("y", 32).attr("text-anchor", "end").text(title);
  return drawn;
}
