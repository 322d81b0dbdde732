// One step: what every stream does when, which gradients are ready when, and why a stream stands still. It is
// zoomed by buttons, keys, Ctrl and wheel, or two fingers; dragging moves it.
// SPDX-License-Identifier: Apache-2.0
"use strict";

const activityColours = {
  forward: "--forward", backward: "--backward", optimizer: "--optimizer", "bucket copies": "--copies", enqueue: "--enqueue",
  "inline collectives": "--inline", stall: "--stall", bubble: "--bubble", idle: "--idle", collective: "--collective", wait: "--gap", gap: "--gap",
  kernel: "--kernel", "host call": "--enqueue",
};

// White or black letters, whichever are read better on the colour (WCAG's luminance).
function insideClass(colour) {
  const name = colour.replace(/var\((.*)\)/, "$1");
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();  // all colours of the page are #rrggbb
  const light = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] > 0.179 ? "inside on-light" : "inside";
}

function spanColour(span) {
  if (span.what === "collective" && span.bucket !== undefined && span.bucket % 2 === 1) return "var(--collective-2)";
  return `var(${activityColours[span.what] ?? "--kernel"})`;
}

function standsStill(span) { return ["gap", "stall", "bubble", "wait"].includes(span.what); }

const rowHeight = 26;
const laneHeight = 46;  // of a rank's memory; beside a device's capacity:
const tallLaneHeight = 72;
const readyHeight = 18;

// What is drawn of one row between two moments: spans that are too narrow to see become one mark.
function visibleMarks(spans, x, left, right) {
  const marks = [];
  for (const span of spans) {
    const from = Math.max(x(span.start_us), left);
    const to = Math.min(x(span.end_us), right);
    if (to <= left || from >= right) continue;
    const last = marks.at(-1);
    const small = to - from < 0.7;
    if (small && last?.small && last.span.what === span.what && from - last.to < 0.7) {
      last.to = Math.max(last.to, to);
      ++last.count;
    } else {
      marks.push({span, from, to: Math.max(to, from + (small ? 0.5 : 0)), small, count: 1});
    }
  }
  return marks;
}

// The rows of the first rank on top, whichever the report is about.
function inRankOrder(line) {
  const order = line.rows.map((row, index) => index).sort((a, b) => line.rows[a].rank - line.rows[b].rank || a - b);
  const place = new Map(order.map((old, now) => [old, now]));
  const moved = (part) => ({...part, row: part.row === null ? null : place.get(part.row)});
  return {...line, rows: order.map((old) => line.rows[old]), spans: line.spans.map(moved), critical_path: line.critical_path?.map(moved),
    memory: [...line.memory].sort((a, b) => a.rank - b.rank), arrows: line.arrows.map((arrow) => ({...arrow, from_row: place.get(arrow.from_row), to_row: place.get(arrow.to_row)}))};
}

const memoryParts = [["rest_bytes", "--idle", "stays: parameters, optimizer, buffers, what the allocator holds"], ["gradients", "--rule-5", "gradients"],
  ["gathered", "--flat", "gathered parameters"], ["activations", "--kernel", "activations"]];

// What a rank holds over the step: areas on top of each other, from 0 on.
class MemoryLane {
  constructor(held, name, capacity) {
    this.name = name;
    this.capacity = capacity;  // of a device, in bytes; null: not known
    this.levels = held.levels.map(([at, activations, gradients, gathered]) => ({at, rest_bytes: held.rest_bytes, activations, gradients, gathered}));
    this.peak = d3.max(this.levels, (level) => this.sum(level));
    this.height = capacity ? tallLaneHeight : laneHeight;
    this.most = Math.max(this.peak, capacity ?? 0);
  }

  get exceeds() { return this.capacity !== null && this.peak > this.capacity; }

  get capacityWords() {
    const has = bytes(this.capacity);
    return this.exceeds ? `does not fit: ${bytes(this.peak - this.capacity)} above ${has}` : `a device has ${has}`;
  }

  sum(level) { return sumOf(memoryParts, ([part]) => level[part]); }

  // Between two levels on the straight line.
  levelAt(at) {
    const after = this.levels.findIndex((level) => level.at > at);
    if (after === 0) return this.levels[0];
    if (after < 0) return this.levels.at(-1);
    const [from, to] = [this.levels[after - 1], this.levels[after]];
    const share = (at - from.at) / (to.at - from.at);
    return Object.fromEntries(Object.keys(from).map((part) => [part, from[part] + share * (to[part] - from[part])]));
  }

  draw(group, x, top, most) {
    const [left, right] = x.range();
    const [first, last] = [this.levels[0], this.levels.at(-1)];
    const levels = [{...first, at: Math.min(first.at, x.invert(left))}, ...this.levels, {...last, at: Math.max(last.at, x.invert(right))}];
    const y = d3.scaleLinear([0, most], [top + this.height - 8, this.capacity ? top + 14 : top]);
    const below = levels.map(() => 0);
    const areas = memoryParts.map(([part, colour]) => {
      const from = [...below];
      levels.forEach((level, place) => { below[place] += level[part]; });
      const edge = (heights) => levels.map((level, place) => `${x(level.at)},${y(heights[place])}`);
      return {colour, d: `M${edge(below).join("L")}L${edge(from).reverse().join("L")}Z`};
    });
    group.selectAll("rect").data([0]).join("rect").attr("x", left).attr("y", top).attr("width", right - left).attr("height", this.height - 8)
      .attr("fill", "none").attr("pointer-events", "all");  // above the areas, too
    group.selectAll("path").data(areas).join("path").attr("class", "part").attr("d", (area) => area.d).attr("fill", (area) => `var(${area.colour})`);
    if (this.capacity) this.drawCapacity(group, left, right, y(this.capacity));
    group.on("pointerdown pointermove", (event) => {
      const level = this.levelAt(x.invert(d3.pointer(event, group.node())[0]));
      tip.show(event.clientX, event.clientY, `${this.name}: ${bytes(this.sum(level))}`, [["at", time(level.at)],
        ...memoryParts.map(([part, , words]) => [words, level[part] > 0 ? bytes(level[part]) : null]),
        ["a device has", this.capacity ? bytes(this.capacity) : null]]);
    }).on("pointerleave", (event) => { if (event.pointerType !== "touch") tip.hide(); });
  }

  // A dashed line, on a stripe of the ground that tells it from the areas.
  drawCapacity(group, left, right, y) {
    group.selectAll("line").data(["stripe", "capacity"]).join("line").attr("class", (kind) => `${kind}${this.exceeds ? " exceeded" : ""}`)
      .attr("x1", left).attr("x2", right).attr("y1", y).attr("y2", y);
    group.selectAll("text").data([this.capacityWords]).join("text").attr("class", this.exceeds ? "capacity exceeded" : "capacity")
      .attr("x", right - 4).attr("y", y - 4).attr("text-anchor", "end").text((words) => shortened(words, right - left));
  }
}

class TimelineChart {
  constructor(given, span) {
    const line = inRankOrder(given);
    this.line = line;
    this.spansOf = line.rows.map((row, index) => line.spans.filter((span) => span.row === index));
    this.buckets = new Map(line.buckets.map((bucket) => [bucket.id, bucket]));
    this.ready = line.buckets.flatMap((bucket) => bucket.gradients.filter((gradient) => gradient.ready_us !== null)
      .map((gradient) => ({...gradient, bucket: bucket.id})));
    [this.begin, this.end] = span;
    const many = new Set(line.rows.map((row) => row.rank)).size > 1;
    this.names = line.rows.map((row) => (many ? `r${row.rank} ${row.name}` : row.name));
    if (this.ready.length > 0) this.names.push("gradients ready");
    if (line.memory.length > 0) this.names.push("r0 memory");
    this.lanes = line.memory.map((held) => new MemoryLane(held, many ? `r${held.rank} memory` : "memory", line.capacity_bytes));
    this.most = d3.max(this.lanes, (lane) => lane.most);
    this.laneHeight = d3.max(this.lanes, (lane) => lane.height) ?? 0;
    this.choice = {row: 0, span: -1};
    this.transform = d3.zoomIdentity;
    this.top = this.ready.length > 0 ? readyHeight : 4;
    this.figure = chart({
      kind: "timeline", height: this.top + line.rows.length * rowHeight + this.lanes.length * this.laneHeight + 40, draw: (svg, width) => this.draw(svg, width),
      keys: (event) => this.keys(event),
      label: `Timeline of ${line.title}: ${counted(line.rows.length, "stream")}, ${time(line.step_us)}. Left and right go from span ` +
        "to span, up and down from stream to stream, plus and minus zoom, 0 shows all. The buckets stand in the table below." + this.lanes.filter((lane) => lane.exceeds).map((lane) => ` ${lane.name}: ${lane.capacityWords}.`).join(""),
    });
  }

  draw(svg, width) {
    this.svg = svg;
    this.width = width;
    this.margin = Math.min(Math.max(...this.names.map((name) => name.length)) * letterWidth + 6, 170, Math.round(width * 0.22));
    this.lanesFrom = this.top + this.line.rows.length * rowHeight;
    const bottom = this.lanesFrom + this.lanes.length * this.laneHeight;
    this.base = d3.scaleLinear([this.begin, this.end], [this.margin, width - 8]);
    const clip = `clip-${Math.random().toString(36).slice(2)}`;
    svg.append("clipPath").attr("id", clip).append("rect").attr("x", this.margin).attr("y", 0)
      .attr("width", width - this.margin - 8).attr("height", bottom + 4);
    this.nameRows(svg);
    this.plot = svg.append("g").attr("clip-path", `url(#${clip})`);
    this.axis = svg.append("g").attr("class", "axis").attr("transform", `translate(0,${bottom + 4})`);
    svg.append("text").attr("class", "small").attr("x", width - 8).attr("y", bottom + 36).attr("text-anchor", "end")
      .text(`ms from the start of the step (${this.line.origin})`);
    this.zoom = d3.zoom().scaleExtent([1, 1e5]).extent([[this.margin, 0], [width - 8, bottom]])
      .translateExtent([[this.margin, 0], [width - 8, bottom]])
      .filter((event) => !event.button && (event.type !== "wheel" || event.ctrlKey || event.metaKey))
      .on("zoom", (event) => {
        this.transform = event.transform;
        this.marks();
      });
    svg.call(this.zoom).style("touch-action", "pan-y");
    this.marks();
  }

  nameRows(svg) {
    svg.selectAll("text.row").data(this.line.rows).join("text").attr("class", "row small").attr("x", 0)
      .attr("y", (row, index) => this.top + index * rowHeight + 17)
      .text((row, index) => shortened(this.names[index], this.margin - 4));
    this.lanes.forEach((lane, index) => [lane.name, bytes(lane.peak)].forEach((words, place) => svg.append("text").attr("class", "row small").attr("x", 0)
      .attr("y", this.lanesFrom + index * this.laneHeight + this.laneHeight / 2 - 3 + 14 * place).text(shortened(words, this.margin - 4))));
    if (this.ready.length > 0) {
      svg.append("text").attr("class", "small").attr("x", 0).attr("y", 12).text(this.margin < 15 * letterWidth ? "ready" : "gradients ready");
    }
  }

  marks() {
    const x = this.transform.rescaleX(this.base);
    this.x = x;
    const [left, right] = [this.margin, this.width - 8];
    const ticks = Math.max(2, Math.floor(this.width / 110));
    const inMs = d3.scaleLinear(x.domain().map((at) => at / 1000), x.range());
    this.axis.call(d3.axisBottom(inMs).ticks(ticks).tickSizeOuter(0));
    const marks = this.spansOf.flatMap((spans) => visibleMarks(spans, x, left, right));
    marks.sort((a, b) => (b.span.what === "gap") - (a.span.what === "gap"));  // gaps lie under what runs
    const height = rowHeight - 6;
    const y = (mark) => this.top + mark.span.row * rowHeight + 3;
    const chosen = this.chosen();
    const rects = this.plot.selectAll("rect.span").data(marks).join("rect").attr("class", (mark) =>
      `span ${mark.span.what.replace(" ", "-")}${mark.span === chosen ? " selected" : ""}`)
      .attr("x", (mark) => mark.from).attr("y", (mark) => (mark.span.what === "gap" ? y(mark) + 7 : y(mark)))
      .attr("width", (mark) => Math.max(0.5, mark.to - mark.from)).attr("height", (mark) => (mark.span.what === "gap" ? height - 14 : height))
      .attr("fill", (mark) => spanColour(mark.span));
    withTips(rects, (mark) => this.describe(mark.span, mark.count));
    rects.style("cursor", (mark) => (standsStill(mark.span) ? "pointer" : null)).on("click", (event, mark) => this.follow(mark.span));
    this.waiting(marks, x, y, height);
    this.labels(marks, y);
    this.messages(x, left, right);
    this.plot.selectAll("g.memory").data(this.lanes).join("g").attr("class", "memory")
      .each((lane, index, nodes) => lane.draw(d3.select(nodes[index]), x, this.lanesFrom + index * this.laneHeight + 4, this.most));
    this.readyMarks(x, left, right);
    this.criticalPath(x, left, right);
  }

  // A line below what the step waited for, that goes over from stream to stream where the chain does, with what travels
  // between stages as it does.
  criticalPath(x, left, right) {
    const path = (this.line.critical_path ?? []).filter((part) => part.row !== null);
    const y = (part) => this.top + part.row * rowHeight + rowHeight - 2;
    const within = (at) => Math.min(right, Math.max(left, x(at)));
    const shown = path.filter((part) => x(part.end_us) >= left && x(part.start_us) <= right);
    const turns = shown.filter((part, place) => shown[place + 1] && shown[place + 1].row !== part.row).length;
    const lines = this.plot.selectAll("path.critical").data(shown).join("path").attr("class", turns > this.width / 16 ? "critical dense" : "critical").attr("d", (part) => {
      const next = path[path.indexOf(part) + 1];
      const turn = next && next.row !== part.row && x(part.end_us) <= right ? `L${within(next.start_us)},${y(next)}` : "";
      return `M${within(part.start_us)},${y(part)}H${within(part.end_us)}${turn}`;
    });
    withTips(lines, (part) => [`critical path: ${part.what}`, [["from", time(part.start_us)], ["takes", time(part.end_us - part.start_us)],
      ["of the step", share((part.end_us - part.start_us) / this.line.step_us)]]]);
  }

  // What stages send each other, from compute stream to compute stream.
  messages(x, left, right) {
    const shown = this.line.arrows.filter((arrow) => x(arrow.end_us) >= left && x(arrow.start_us) <= right);
    const arrows = this.plot.selectAll("path.arrow").data(shown).join("path").attr("class", shown.length > this.width / 4 ? "arrow dense" : "arrow").attr("d", (arrow) => {
      const down = arrow.to_row > arrow.from_row;
      const edge = (row, below) => this.top + row * rowHeight + (below ? rowHeight - 3 : 3);
      const [from, to, at] = [edge(arrow.from_row, down), edge(arrow.to_row, !down), x(arrow.end_us)];
      return `M${x(arrow.start_us)},${from}L${at},${to}M${at - 3},${to + (down ? -5 : 5)}L${at},${to}L${at + 3},${to + (down ? -5 : 5)}`;
    });
    withTips(arrows, (arrow) => [arrow.name, [["from", `rank ${this.line.rows[arrow.from_row].rank}`], ["to", `rank ${this.line.rows[arrow.to_row].rank}`],
      ["bytes", bytes(arrow.size_bytes)], ["at", time(arrow.start_us)], ["takes", time(arrow.end_us - arrow.start_us)]]]);
  }

  // The part of a collective before its last rank had come.
  waiting(marks, x, y, height) {
    const late = marks.filter((mark) => mark.count === 1 && mark.span.transfer_start_us > mark.span.start_us);
    this.plot.selectAll("rect.late").data(late).join("rect").attr("class", "late").attr("x", (mark) => mark.from).attr("y", y)
      .attr("width", (mark) => Math.max(0, Math.min(x(mark.span.transfer_start_us), mark.to) - mark.from)).attr("height", height)
      .attr("fill", "var(--ground)").attr("opacity", 0.55).attr("pointer-events", "none");
  }

  // Behind the pale part of a collective, where the rest has room for a word.
  labelFrom(mark) {
    const begun = this.x(mark.span.transfer_start_us ?? mark.span.start_us);
    return mark.to - begun > 24 ? Math.max(mark.from, begun) : mark.from;
  }

  labels(marks, y) {
    const wide = marks.filter((mark) => mark.count === 1 && mark.to - mark.from > 16 &&
      (mark.span.what === "collective" || mark.to - mark.from > (mark.span.what === "bubble" ? 50 : 60)));
    const label = (mark) => {
      const {what, bucket, name} = mark.span;
      if (what === "gap") return "";
      const room = mark.to - this.labelFrom(mark);
      const text = ["stall", "bubble"].includes(what) ? what : (what === "collective" && bucket !== undefined ? (room < 64 ? `${bucket}` : `bucket ${bucket}`) : name);
      const fits = Math.floor((room - 6) / letterWidth);
      return text.length <= fits || fits >= 5 ? shortened(text, room - 6) : "";
    };
    this.plot.selectAll("text.inside").data(wide).join("text").attr("class", (mark) => insideClass(spanColour(mark.span)))
      .attr("data-on", (mark) => spanColour(mark.span).slice(4, -1)).attr("x", (mark) => this.labelFrom(mark) + 4)
      .attr("y", (mark) => y(mark) + 14).text(label);
  }

  readyMarks(x, left, right) {
    const shown = this.ready.filter((gradient) => x(gradient.ready_us) >= left && x(gradient.ready_us) <= right);
    const ticks = this.plot.selectAll("path.ready").data(shown).join("path").attr("class", "ready")
      .attr("d", (gradient) => `M${x(gradient.ready_us)},${readyHeight - 2}l-4,-9h8z`)
      .attr("fill", (gradient) => (gradient.bucket % 2 ? "var(--collective-2)" : "var(--collective)"));
    withTips(ticks, (gradient) => [gradient.name, [["gradient ready at", time(gradient.ready_us)], ["size", bytes(gradient.size_bytes)],
      ["travels in bucket", gradient.bucket]]]);
  }

  // What a stream that stands still waits for: its bucket on the rank that came last, else what the host of the rank did at
  // the end of it, else whatever ended last just before it goes on.
  behind(span) {
    if (!standsStill(span)) return null;
    const rank = this.line.rows[span.row].rank;
    const others = this.line.spans.filter((other) => other.row !== span.row && other.what !== "gap" && other.what !== "wait" &&
      other.what !== "stall" && other.what !== "bubble" && other.start_us < span.end_us && other.end_us > span.start_us);
    const ofBucket = others.filter((other) => span.bucket !== undefined && other.what === "collective" && other.bucket === span.bucket);
    const ofHost = others.filter((other) => this.line.rows[other.row].name === "host" && this.line.rows[other.row].rank === rank);
    if (ofBucket.length > 0) return greatest(ofBucket, (other) => other.start_us);
    return greatest(ofHost, (other) => other.end_us - other.start_us) ?? greatest(others, (other) => Math.min(other.end_us, span.end_us));
  }

  follow(span) {
    const target = this.behind(span);
    if (!target) return;
    this.choice = {row: target.row, span: this.spansOf[target.row].indexOf(target)};
    this.reveal();
  }

  describe(span, count = 1) {
    const bucket = this.buckets.get(span.bucket);
    const names = bucket?.gradients.map((gradient) => gradient.name) ?? [];
    const moved = span.transfer_start_us !== undefined && span.end_us > span.transfer_start_us;
    const list = names.length > 6 ? `${names.slice(0, 5).join(", ")} and ${names.length - 5} more` : names.join(", ");
    return [count > 1 ? `${count} spans, the first: ${span.name}` : span.name, [
      ["what", span.what], ["from", time(span.start_us)], ["takes", time(span.end_us - span.start_us)],
      ["bytes", span.size_bytes === undefined ? null : `${bytes(span.size_bytes)} (${span.size_bytes})`],
      ["bucket", span.bucket], ["gradients", list === "" ? null : `${names.length}: ${list}`],
      ["last rank came at", moved ? time(span.transfer_start_us) : null], ["cause", span.why],
      ["click", this.behind(span) ? "goes to what it waits for" : null]]];
  }

  chosen() { return this.spansOf[this.choice.row]?.[this.choice.span]; }

  // By a factor, around the chosen span where there is one.
  zoomBy(factor) {
    const span = this.chosen();
    const at = span ? this.x((span.start_us + span.end_us) / 2) : (this.margin + this.width) / 2;
    this.svg.call(this.zoom.scaleBy, factor, [at, 0]);
  }

  showAll() { this.svg.call(this.zoom.transform, d3.zoomIdentity); }

  // Moves the view so that the chosen span can be seen, and tells of it.
  reveal() {
    const span = this.chosen();
    const [left, right] = [this.margin, this.width - 8];
    const [from, to] = [this.x(span.start_us), this.x(span.end_us)];
    if (to < left || from > right) {
      this.svg.call(this.zoom.translateTo, this.base((span.start_us + span.end_us) / 2), 0);
    }
    this.marks();
    const mark = this.svg.select(".selected").node();
    if (mark) tip.showAt(mark, ...this.describe(span));
  }

  keys(event) {
    const spans = this.spansOf[this.choice.row];
    const rows = this.line.rows.length;
    switch (event.key) {
      case "+": case "=": this.zoomBy(2); return true;
      case "-": this.zoomBy(0.5); return true;
      case "0": this.showAll(); return true;
      case "Escape": this.choice.span = -1; tip.hide(); this.marks(); return true;
      case "ArrowRight": this.choice.span = Math.min(spans.length - 1, this.choice.span + 1); break;
      case "ArrowLeft": this.choice.span = Math.max(0, this.choice.span - 1); break;
      case "Home": this.choice.span = 0; break;
      case "End": this.choice.span = spans.length - 1; break;
      case "ArrowUp": case "ArrowDown": {
        const from = this.chosen()?.start_us ?? 0;
        this.choice.row = (this.choice.row + (event.key === "ArrowUp" ? rows - 1 : 1)) % rows;
        const after = this.spansOf[this.choice.row].findIndex((span) => span.end_us > from);
        this.choice.span = Math.max(0, after);
        break;
      }
      default: return false;
    }
    this.reveal();
    return true;
  }
}

// The chain that makes the step as long as it is, line by line.
function pathTable(line) {
  const path = line.critical_path ?? [];
  if (path.length === 0) return null;
  return folded("Critical path of this step", table("Critical path: each line begins when the one before has ended",
    ["at ms", "takes ms", "share", ["what", "text"]], path.map((part) => [ms(part.start_us), ms(part.end_us - part.start_us),
      share((part.end_us - part.start_us) / line.step_us), [part.what, "text"]])));
}

// What each rank holds where it holds most.
function memoryTable(line) {
  if (line.memory.length === 0) return null;
  const held = (count) => (count > 0 ? bytes(count) : "");
  const rows = line.memory.map(({rank, rest_bytes, levels}) => {
    const [at, ...parts] = greatest(levels, (level) => level[1] + level[2] + level[3]);
    const sum = sumOf(parts, (part) => part) + rest_bytes;
    const device = line.capacity_bytes ? [bytes(line.capacity_bytes), [sum > line.capacity_bytes ? "does not fit" : "fits", "text"]] : [];
    return [rank, ms(at), ...parts.map(held), held(rest_bytes), bytes(sum), ...device];
  });
  return folded("Memory of this step", table("Memory where it is highest", ["rank", "at ms", "activations", "gradients", "gathered", "rest", "sum",
    ...(line.capacity_bytes ? ["a device has", ["", "text"]] : [])], rows));
}

// From where to where a step goes.
function spanOf(line) {
  return [Math.min(0, d3.min(line.spans, (span) => span.start_us) ?? 0), Math.max(line.step_us, d3.max(line.spans, (span) => span.end_us) ?? 0)];
}

// One scale for all of these steps, so that a longer one looks longer; null where the shorter would be hard to see.
function sharedSpan(lines) {
  const spans = lines.map(spanOf);
  const lengths = spans.map(([begin, end]) => end - begin);
  return Math.max(...lengths) > 3 * Math.min(...lengths) ? null : [d3.min(spans, (span) => span[0]), d3.max(spans, (span) => span[1])];
}

function timelineParts(line, shared) {
  const made = new TimelineChart(line, shared ?? spanOf(line));
  const button = (text, label, action) => {
    const node = element("button", {type: "button", "aria-label": label}, text);
    node.addEventListener("click", action);
    return node;
  };
  const used = [...new Set(line.spans.map((span) => span.what))].filter((what) => what !== "gap" && what !== "wait");
  const rows = line.buckets.map((bucket) => {
    const sent = line.spans.filter((span) => span.what === "collective" && span.bucket === bucket.id);
    const ready = d3.max(bucket.gradients, (gradient) => gradient.ready_us);
    const wait = line.spans.find((span) => span.what === "stall" && span.bucket === bucket.id);
    return [bucket.id, bytes(bucket.size_bytes), bucket.gradients.length, ready === undefined || ready === null ? "" : ms(ready),
      sent.length > 0 ? ms(sent[0].start_us) : "", sent.length > 0 ? ms(sent.at(-1).end_us) : "", [wait?.why ?? "", "text"]];
  });
  return [
    element("div", {class: "controls", role: "group", "aria-label": "Zoom"}, button("+", "Zoom in", () => made.zoomBy(2)),
      button("\u2212", "Zoom out", () => made.zoomBy(0.5)), button("all", "Show the whole step", () => made.showAll()),
      element("span", {class: "faint"}, "or Ctrl and wheel, or the keys + \u2212 0 and the arrows; drag to move")),
    legend([...used.map((what) => [`var(${activityColours[what] ?? "--kernel"})`, what]), ["var(--gap)", "nothing under way (hover says why)"],
      ...(line.arrows.length > 0 ? [["var(--ink)", "arrow: what one stage sends another"]] : []),
      ...(line.critical_path?.length > 0 ? [["var(--critical)", "line: critical path, what the step waited for"]] : [])]),
    line.memory.length === 0 ? null : legend(memoryParts.filter(([part]) => made.lanes.some((lane) => lane.levels.some((level) => level[part] > 0)))
      .map(([, colour, words]) => [`var(${colour})`, `memory: ${words}`])),
    made.figure,
    pathTable(line),
    memoryTable(line),
    rows.length === 0 ? null : folded("Buckets of this step", table("Buckets",
      ["bucket", "size", "gradients", "ready ms", "begins ms", "ends ms", ["stall", "text"]], rows))];
}
