// Step time over bucket size, a line for each framework's rule. The flat range of the chosen rule is shaded;
// our plan and the lower bound are level lines, and a ring is where a job without a setting is.
// SPDX-License-Identifier: Apache-2.0
"use strict";

function curveSection(report) {
  const curves = report.curves.filter((curve) => curve.points.length > 0);
  if (curves.length === 0) return null;
  const state = {curve: 0, point: 0, keyboard: false};
  const bestOf = (curve) => d3.min(curve.points, (point) => point.step_us);

  const describe = (curve, point) => [curve.label, [
    ["bucket size", bytes(point.threshold_bytes)], ["step", `${ms(point.step_us)} ms (simulated)`],
    ["over our plan", report.found ? percent(point.step_us / report.found.step_us - 1, 2) : null],
    ["exposed", `${ms(point.exposed_us)} ms`], ["buckets", point.buckets], ["--policy", point.policy]]];

  // Their names stand above the chart, where no curve runs through them.
  const levelsOf = (found) => [["our plan", found.step_us, "--found", "6 3"], ["lower bound of all-reduces", found.lower_bound_us, "--bound", "2 3"]]
    .filter((level) => level[1] !== null && level[1] !== undefined);
  const levelNames = report.found ? legend(levelsOf(report.found).map(([name, at, colour, dashes]) => {
    const [ink, space] = dashes.split(" ").map(Number);
    return [`repeating-linear-gradient(90deg, var(${colour}) 0 ${ink}px, transparent ${ink}px ${ink + space}px) center / 100% 2px no-repeat`, `${name} ${time(at)}`];
  })) : null;

  const buttons = curves.map((curve, index) => {
    const patch = element("i", {"aria-hidden": "true"});
    const button = element("button", {type: "button"}, patch, curve.label);
    patch.style.cssText = `display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.35rem;background:var(--rule-${index % 6})`;
    button.addEventListener("click", () => choose(index));
    return button;
  });
  const range = element("p", {class: "faint", "aria-live": "polite"});

  function choose(index) {
    state.curve = index;
    state.point = Math.min(state.point, curves[index].points.length - 1);
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", at === index));
    const {label, flat} = curves[index];
    range.textContent = `Flat range of ${label}: from ${bytes(flat.from_bytes)} to ${bytes(flat.to_bytes)} the step is within ` +
      `${flat.within_percent} % of the best size (${time(bestOf(curves[index]))}). No size in it is worth more care than another.`;
    figure.redraw();
  }

  function scales(width, height, margin) {
    const all = curves.flatMap((curve) => curve.points);
    const levels = report.found ? [report.found.step_us, report.found.lower_bound_us ?? report.found.step_us] : [];
    const [low, high] = d3.extent([...all.map((point) => point.step_us), ...levels]);
    const sizes = d3.extent(all, (point) => point.threshold_bytes);
    if (sizes[0] === sizes[1]) sizes[1] *= 2;
    const room = (high - low || high * 0.01) * 0.06;
    return {
      x: d3.scaleLog(sizes, [margin.left, width - margin.right]).base(2),
      y: d3.scaleLinear([(low - room) / 1000, (high + room) / 1000], [height - margin.bottom, margin.top]).nice(),
    };
  }

  function drawLevels(svg, x, y, width, margin) {
    if (!report.found) return;
    for (const [name, at, colour, dashes] of levelsOf(report.found)) {
      const height = y(at / 1000);
      svg.append("line").attr("class", `level ${name.split(" ").slice(0, 2).join("-")}`).attr("x1", margin.left).attr("x2", width - margin.right)
        .attr("y1", height).attr("y2", height).attr("stroke", `var(${colour})`).attr("stroke-width", 2).attr("stroke-dasharray", dashes);
    }
  }

  function drawCurve(svg, curve, index, x, y) {
    const chosen = index === state.curve;
    const colour = `var(--rule-${index % 6})`;
    const path = d3.line((point) => x(point.threshold_bytes), (point) => y(point.step_us / 1000));
    const part = svg.append("g").attr("class", chosen ? "rule chosen" : "rule");
    part.append("path").attr("d", path(curve.points)).attr("fill", "none").attr("stroke", colour).attr("stroke-width", chosen ? 3 : 1.6);
    const dots = part.selectAll("circle").data(curve.points).join("circle").attr("cx", (point) => x(point.threshold_bytes))
      .attr("cy", (point) => y(point.step_us / 1000)).attr("r", chosen ? 4.5 : 3).attr("fill", colour);
    withTips(dots, (point) => describe(curve, point));
    if (chosen && state.keyboard) dots.filter((point, at) => at === state.point).attr("class", "selected").attr("r", 7);
  }

  function draw(svg, width, height) {
    const margin = {left: 56, right: 26, top: 22, bottom: 40};
    const {x, y} = scales(width, height, margin);
    const flat = curves[state.curve].flat;
    const [from, to] = [x(flat.from_bytes), x(flat.to_bytes)];
    svg.append("rect").attr("class", "flat").attr("x", from - 4).attr("width", to - from + 8).attr("y", margin.top)
      .attr("height", height - margin.top - margin.bottom).attr("fill", "var(--flat)").attr("opacity", 0.25);
    const wanted = Math.max(2, Math.floor(width / 90));
    const powers = [];
    for (let power = Math.ceil(Math.log2(x.domain()[0])); 2 ** power <= x.domain()[1]; ++power) powers.push(2 ** power);
    const every = Math.ceil(powers.length / wanted);
    axisBelow(svg, x, height - margin.bottom, "bucket size",
      (axis) => axis.tickValues(powers.filter((power, at) => at % every === 0)).tickFormat(bytes));
    svg.append("g").attr("class", "axis").attr("transform", `translate(${margin.left},0)`).call(d3.axisLeft(y).ticks(6).tickSizeOuter(0));
    svg.append("text").attr("class", "small").attr("x", 4).attr("y", 10).text("step, ms (simulated)");
    drawLevels(svg, x, y, width, margin);
    curves.forEach((curve, index) => { if (index !== state.curve) drawCurve(svg, curve, index, x, y); });
    drawCurve(svg, curves[state.curve], state.curve, x, y);
    drawUsual(svg, x, y, width, margin);
  }

  // Where a job is that nobody has tuned.
  function drawUsual(svg, x, y, width, margin) {
    const line = report.timelines.find((each) => each.policy === report.usual);
    const size = /(?:cap|threshold)=(\d+)MiB/.exec(report.usual ?? "");
    if (!line || !size) return;
    const point = {threshold_bytes: size[1] * 2 ** 20, step_us: line.step_us};
    const [at, up] = [x(point.threshold_bytes), y(point.step_us / 1000)];
    svg.append("circle").attr("class", "usual").attr("cx", at).attr("cy", up).attr("r", 8).attr("fill", "none").attr("stroke", "var(--ink)").attr("stroke-width", 2);
    const words = `${line.title}: ${time(point.step_us)}`;
    const left = at > width / 2;
    const beside = Math.min(width - margin.right, Math.max(at - 12, margin.left + words.length * letterWidth));
    svg.append("text").attr("class", "usual").attr("x", left ? beside : at + 12).attr("y", up > 40 ? up - 12 : up + 20)
      .attr("text-anchor", left ? "end" : "start").text(words);
  }

  function keys(event) {
    const points = curves[state.curve].points.length;
    const moves = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
    if (event.key === "Escape") {
      state.keyboard = false;
      tip.hide();
    } else if (event.key === "Home" || event.key === "End") {
      state.point = event.key === "Home" ? 0 : points - 1;
    } else if (!(event.key in moves)) {
      return false;
    } else {
      const [rule, point] = moves[event.key];
      if (state.keyboard) state.point = Math.max(0, Math.min(points - 1, state.point + point));
      state.keyboard = true;
      choose((state.curve + rule + curves.length) % curves.length);
    }
    figure.redraw();
    const mark = figure.querySelector(".selected");
    if (mark) tip.showAt(mark, ...describe(curves[state.curve], curves[state.curve].points[state.point]));
    return true;
  }

  const figure = chart({
    kind: "curve", height: (width) => Math.max(260, Math.min(440, width * 0.45)), draw, keys,
    label: `Step time over bucket size for ${counted(curves.length, "rule")}. Arrow keys go from point to point and from rule to rule; ` +
      "the same numbers stand in the table below.",
  });
  choose(0);
  const rows = curves.flatMap((curve) => curve.points.map((point) => [
    curve.label, bytes(point.threshold_bytes), point.buckets, ms(point.step_us), ms(point.exposed_us), [point.policy, "text code"]]));
  return section("curve", "Step time over bucket size", [
    element("p", {}, "Each line is the rule of a framework with its own copies and waits. Choose one to see its flat range."),
    element("div", {class: "controls rules", role: "group", "aria-label": "Rules"}, buttons), range, levelNames, figure,
    folded("The same as a table", table("Step time over bucket size",
      ["rule", "bucket size", "buckets", "step ms", "exposed ms", ["--policy", "text"]], rows))]);
}
