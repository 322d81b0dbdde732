// Bars and intervals: where a step's time goes, predicted beside measured, sensitivity, gains.
// SPDX-License-Identifier: Apache-2.0
"use strict";

const stallWords = {
  "own transfer": ["--stall", "stall: the bucket's own transfer"], "other rank": ["--stall-4", "stall: the last rank had not come"],
  behind: ["--stall-2", "stall: behind other buckets in the queue"],
  "not launched": ["--stall-3", "stall: not launched yet, or already done"], "other stage": ["--bubble", "stall: for another stage (the bubble, and what it sends)"],
};

// [colour, words, us] of a timeline's step: its activities, with the stall cut by cause.
function stepParts(line) {
  const stalls = Object.entries(line.stalls_us).filter(([, us]) => us > 0);
  return Object.entries(line.breakdown_us).flatMap(([what, us]) => {
    if (what !== "stall" || stalls.length === 0) return [[activityColours[what] ?? "--kernel", what, us]];
    return stalls.map(([cause, part]) => [...stallWords[cause], part]);
  }).filter(([, , us]) => us > 0);
}

// One level bar per entry of `bars`: {name, parts: [[colour, words, us]]}.
function stackedBars(kind, label, bars) {
  const longest = d3.max(bars, (bar) => bar.parts.reduce((sum, part) => sum + part[2], 0));
  const names = bars.map((bar) => bar.name);
  const leftOf = (width) => Math.min(Math.max(...names.map((name) => name.length)) * letterWidth + 10, 220, width * 0.3);
  const rowOf = (width) => rowsHeight(names, leftOf(width) - 6, 34);
  return chart({
    kind, label, height: (width) => bars.length * rowOf(width) + 40,
    draw(svg, width) {
      const [left, row] = [leftOf(width), rowOf(width)];
      const x = d3.scaleLinear([0, longest / 1000], [left, width - 10]);
      bars.forEach((bar, index) => {
        const y = index * row + row / 2 - 13;
        nameBeside(svg, y + 12, bar.name, left - 6, "small");
        let from = 0;
        const parts = bar.parts.map(([colour, words, us]) => ({colour, words, us, from: (from += us) - us}));
        const total = from;
        const rects = svg.append("g").selectAll("rect").data(parts).join("rect").attr("class", "part").attr("y", y).attr("height", 24)
          .attr("x", (part) => x(part.from / 1000)).attr("width", (part) => Math.max(0.5, x(part.us / 1000) - x(0)))
          .attr("fill", (part) => `var(${part.colour})`);
        withTips(rects, (part) => [part.words, [["of", bar.name], ["time", `${ms(part.us)} ms`], ["share", `${(100 * part.us / total).toFixed(1)} %`]]]);
        svg.append("g").selectAll("text").data(parts.filter((part) => x(part.us / 1000) - x(0) > 62)).join("text").attr("class", (part) => insideClass(part.colour)).attr("data-on", (part) => part.colour)
          .attr("x", (part) => x(part.from / 1000) + 4).attr("y", y + 16).text((part) => `${ms(part.us)}`);
      });
      axisBelow(svg, x, bars.length * row + 4, "ms", (axis) => axis.ticks(Math.max(2, Math.floor(width / 110))));
    },
  });
}

function partsLegend(bars) {
  return legend([...new Map(bars.flatMap((bar) => bar.parts).map(([colour, words]) => [words, `var(${colour})`]))].map(([words, colour]) => [colour, words]));
}

function partsTable(caption, bars) {
  return table(caption, ["", ["what", "text"], "ms", "share"], bars.flatMap((bar) => {
    const total = bar.parts.reduce((sum, part) => sum + part[2], 0);
    return bar.parts.map(([, words, us]) => [bar.name, [words, "text"], ms(us), `${(100 * us / total).toFixed(1)} %`]);
  }));
}

// Points with their intervals on one axis. rows: {name, marks: [{at, low, high, colour, words}]}; in ms.
function intervals(kind, label, rows, title, zero = false) {
  const all = rows.flatMap((row) => row.marks.flatMap((mark) => [mark.at, mark.low ?? mark.at, mark.high ?? mark.at]));
  let [low, high] = d3.extent(zero ? [...all, 0] : all);
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  [low, high] = [low - room, high + room];
  const names = rows.map((row) => row.name);
  const leftOf = (width) => Math.min(Math.max(...names.map((name) => name.length)) * letterWidth + 10, 420, width * 0.42);
  const rowOf = (width) => rowsHeight(names, leftOf(width) - 8, 30);
  return chart({
    kind, label, height: (width) => rows.length * rowOf(width) + 40,
    draw(svg, width) {
      const [left, tall] = [leftOf(width), rowOf(width)];
      const x = d3.scaleLinear([low, high], [left, width - 14]);
      if (zero) svg.append("line").attr("x1", x(0)).attr("x2", x(0)).attr("y1", 0).attr("y2", rows.length * tall).attr("stroke", "var(--line)");
      rows.forEach((row, index) => {
        const middle = (index + 0.5) * tall;
        if (row.shaded) {
          svg.append("rect").attr("class", "flat").attr("x", 0).attr("width", width).attr("y", index * tall).attr("height", tall)
            .attr("fill", "var(--flat)").attr("opacity", 0.18);
        }
        nameBeside(svg, middle, row.name, left - 8);
        row.marks.forEach((mark, at) => {
          const y = middle + (row.marks.length > 1 ? (at === 0 ? -5 : 5) : 0);
          const colour = `var(${mark.colour})`;
          if (mark.low !== undefined && mark.low !== null) {
            svg.append("line").attr("class", "spread").attr("x1", x(mark.low)).attr("x2", x(mark.high)).attr("y1", y).attr("y2", y)
              .attr("stroke", colour).attr("stroke-width", 3).attr("opacity", 0.55);
          }
          const dot = svg.append("circle").datum(mark).attr("class", "point").attr("cx", x(mark.at)).attr("cy", y).attr("r", 5).attr("fill", colour);
          withTips(dot, () => [row.name, [[mark.words, `${mark.at.toFixed(3)} ms`],
            ["interval", mark.low === undefined || mark.low === null ? null : `${mark.low.toFixed(3)} .. ${mark.high.toFixed(3)} ms`], ...(mark.more ?? [])]]);
        });
      });
      axisBelow(svg, x, rows.length * tall + 4, title, (axis) => axis.ticks(Math.max(2, Math.floor(width / 130))));
    },
  });
}

// How much the step of the plan moves when one cost is 20 % less or more.
function sensitivityChart(report) {
  const base = report.found.step_us;
  const costs = [...new Set(report.sensitivity.map((row) => row.cost))];
  const rows = costs.map((cost) => ({cost, sides: report.sensitivity.filter((row) => row.cost === cost)}));
  rows.sort((a, b) => d3.max(b.sides, (row) => Math.abs(row.plan_us - base)) - d3.max(a.sides, (row) => Math.abs(row.plan_us - base)));
  const extreme = Math.max(1e-4, d3.max(report.sensitivity, (row) => Math.abs(row.plan_us / base - 1)));
  const digits = extreme >= 0.1 ? 0 : extreme >= 0.01 ? 1 : 2;
  return chart({
    kind: "sensitivity", height: costs.length * 34 + 40,
    label: "Change of the plan's step time when a cost is 20 % lower or higher; the same numbers stand in the table below.",
    draw(svg, width) {
      const left = Math.min(180, width * 0.3);
      const x = d3.scaleLinear([-extreme, extreme], [left, width - 26]).nice();
      rows.forEach(({cost, sides}, index) => {
        const y = index * 34 + 4;
        svg.append("text").attr("x", 0).attr("y", y + 16).text(cost.slice(0, left / 6.5));
        const bars = svg.append("g").selectAll("rect").data(sides).join("rect").attr("class", "part").attr("y", y).attr("height", 22)
          .attr("x", (row) => Math.min(x(0), x(row.plan_us / base - 1))).attr("width", (row) => Math.max(1, Math.abs(x(row.plan_us / base - 1) - x(0))))
          .attr("fill", (row) => (row.factor > 1 ? "var(--measured)" : "var(--predicted)"));
        withTips(bars, (row) => [`${cost}: ${row.factor} times the time`, [["step of the plan", `${ms(row.plan_us)} ms (${percent(row.plan_us / base - 1, 2)})`],
          ["of a plan made for it", `${ms(row.best_us)} ms`], ["the plan loses", percent(row.plan_us / row.best_us - 1, 2)],
          ["usual setting", row.usual_us === null ? null : `${ms(row.usual_us)} ms`]]]);
      });
      svg.append("line").attr("x1", x(0)).attr("x2", x(0)).attr("y1", 0).attr("y2", costs.length * 34).attr("stroke", "var(--ink)");
      axisBelow(svg, x, costs.length * 34 + 4, "change of the step", (axis) => axis.ticks(Math.max(2, Math.floor(width / 160)))
        .tickFormat((at) => (at === 0 ? "0" : percent(at, digits))));
    },
  });
}
