// Step time over how far ahead parameters are gathered, and on a second axis the memory that it takes: a solid and a
// dashed line for each curve. A ring is where a job without a setting is.
// SPDX-License-Identifier: Apache-2.0
"use strict";

function prefetchSection(report) {
  const {prefetch} = report;
  if (!prefetch || prefetch.curves.length === 0) return null;
  const {curves} = prefetch;
  const points = curves.flatMap((curve) => curve.points);
  const depths = [...new Set(points.map((point) => point.ahead))].sort((a, b) => a - b);
  const state = {curve: 0, point: -1};
  const colour = (index) => `var(--rule-${index % 6})`;
  const describe = (curve, point) => [curve.label, [["ahead", point.ahead], ["step", `${time(point.step_us)} (simulated)`],
    [prefetch.bytes_are, bytes(point.memory_bytes)], ["set by", point.setting || "as asked"]]];

  function scales(width, height, margin) {
    const inside = [height - margin.bottom, margin.top];
    const [low, high] = d3.extent(points, (point) => point.step_us / 1000);
    const room = (high - low || high * 0.01) * 0.08;
    const [least, most] = d3.extent(points, (point) => point.memory_bytes / 2 ** 30);
    const below = least < most / 2 ? 0 : least - (most - least || most * 0.01);
    return {
      // Depths stand side by side, whatever lies between them.
      x: (ahead) => margin.left + 24 + depths.indexOf(ahead) / Math.max(1, depths.length - 1) * (width - margin.left - margin.right - 48),
      y: d3.scaleLinear([low - room, high + room], inside).nice(), memory: d3.scaleLinear([below, most + 0.15 * (most - below)], inside).nice(),
    };
  }

  function drawLines(svg, curve, index, {x, y, memory}) {
    const at = (point) => x(point.ahead);
    const step = (point) => y(point.step_us / 1000);
    const held = (point) => memory(point.memory_bytes / 2 ** 30);
    const part = svg.append("g").attr("class", "prefetch");
    part.append("path").attr("class", "memory").attr("d", d3.line(at, held)(curve.points)).attr("fill", "none").attr("stroke", colour(index))
      .attr("stroke-width", 1.6).attr("stroke-dasharray", "3 4");
    part.append("path").attr("d", d3.line(at, step)(curve.points)).attr("fill", "none").attr("stroke", colour(index)).attr("stroke-width", 2.5);
    const squares = part.selectAll("rect").data(curve.points).join("rect").attr("class", "part").attr("x", (point) => at(point) - 3).attr("y", (point) => held(point) - 3)
      .attr("width", 6).attr("height", 6).attr("fill", colour(index));
    const dots = part.selectAll("circle").data(curve.points).join("circle").attr("class", (point, place) =>
      (index === state.curve && place === state.point ? "selected" : null)).attr("cx", at).attr("cy", step).attr("r", 4.5).attr("fill", colour(index));
    for (const marks of [squares, dots]) withTips(marks, (point) => describe(curve, point));
  }

  function drawUsual(svg, {x, y}, width) {
    const usual = points.find((point) => point.setting === prefetch.usual);
    if (!usual) return;
    const [at, up] = [x(usual.ahead), y(usual.step_us / 1000)];
    svg.append("circle").attr("class", "usual").attr("cx", at).attr("cy", up).attr("r", 9).attr("fill", "none").attr("stroke", "var(--ink)").attr("stroke-width", 2);
    const left = at > width * 0.6;
    svg.append("text").attr("class", "usual").attr("x", at + (left ? -13 : 13)).attr("y", up > 40 ? up - 12 : up + 22).attr("text-anchor", left ? "end" : "start")
      .text(`${prefetch.usual_words}: ${time(usual.step_us)}`);
  }

  function draw(svg, width, height) {
    const margin = {left: 56, right: 48, top: 20, bottom: 40};
    const scale = scales(width, height, margin);
    svg.append("g").attr("class", "axis").attr("transform", `translate(${margin.left},0)`).call(d3.axisLeft(scale.y).ticks(6).tickSizeOuter(0));
    const [bottom, right] = [height - margin.bottom, width - margin.right];
    const axes = svg.append("g").attr("class", "axis");
    axes.append("path").attr("d", `M${margin.left},${bottom}H${right}V${margin.top}`).attr("fill", "none");
    for (const tick of scale.memory.ticks(6)) {
      axes.append("line").attr("x1", right).attr("x2", right + 6).attr("y1", scale.memory(tick)).attr("y2", scale.memory(tick));
      axes.append("text").attr("class", "second").attr("x", right + 9).attr("y", scale.memory(tick) + 4).text(tick);
    }
    for (const ahead of depths) {
      axes.append("text").attr("class", "small").attr("x", scale.x(ahead)).attr("y", bottom + 16).attr("text-anchor", "middle").text(ahead);
    }
    svg.append("text").attr("class", "small").attr("x", 4).attr("y", 10).text("step, ms (simulated)");
    svg.append("text").attr("class", "small").attr("x", width - 4).attr("y", 10).attr("text-anchor", "end").text("memory, GiB");
    svg.append("text").attr("class", "small").attr("x", width - margin.right).attr("y", height - 6).attr("text-anchor", "end")
      .text(shortened(prefetch.axis, width - margin.left - margin.right));
    curves.forEach((curve, index) => drawLines(svg, curve, index, scale));
    drawUsual(svg, scale, width);
  }

  function keys(event) {
    const moves = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
    if (event.key !== "Escape" && !(event.key in moves)) return false;
    const [curve, point] = moves[event.key] ?? [0, 0];
    state.curve = (state.curve + curve + curves.length) % curves.length;
    state.point = event.key === "Escape" ? -1 : Math.max(0, Math.min(curves[state.curve].points.length - 1, state.point + point));
    figure.redraw();
    const mark = figure.querySelector(".selected");
    if (mark) tip.showAt(mark, ...describe(curves[state.curve], curves[state.curve].points[state.point]));
    else tip.hide();
    return true;
  }

  const figure = chart({
    kind: "prefetch", height: (width) => Math.max(240, Math.min(360, width * 0.4)), draw, keys,
    label: "Step time and memory over how far ahead parameters are gathered. Arrow keys go from point to point and from curve to curve; " +
      "the same numbers stand in the table below.",
  });
  const dashed = (index) => `repeating-linear-gradient(90deg, ${colour(index)} 0 3px, transparent 3px 6px) center / 100% 2px no-repeat`;
  return section("prefetch", "Step time over prefetching", [
    element("p", {}, kindOf("simulated"), ` Parameters are gathered this many ${prefetch.axis.split(" (")[0].replace(/ ahead$/, "")} before their use. Solid: the step; dashed, on the right axis: ${prefetch.bytes_are}.`),
    legend(curves.flatMap((curve, index) => [[colour(index), curve.label], [dashed(index), "its memory"]])), figure,
    folded("The same as a table", table("Step time over prefetching", [["", "text"], "ahead", "step ms", prefetch.bytes_are, ["set by", "text"]],
      curves.flatMap((curve) => curve.points.map((point) => [[curve.label, "text"], point.ahead, ms(point.step_us), bytes(point.memory_bytes), [point.setting || "as asked", "text code"]]))))]);
}
