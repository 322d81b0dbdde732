// Numbers in words, and elements. All text of the report enters the page here, as text, never as markup.
// SPDX-License-Identifier: Apache-2.0
"use strict";

// element("p", {class: "faint"}, "text", other): attributes, then children; null children are left out.
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat(3).filter((child) => child !== null && child !== undefined));
  return made;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < 4) {
    count /= 1024;
    ++unit;
  }
  return `${Number(count.toPrecision(3))} ${units[unit]}`;
}

function sumOf(items, value) { return items.reduce((sum, item) => sum + value(item), 0); }

// The item with the largest value; null of none.
function greatest(items, value) {
  return items.reduce((best, item) => (best === null || value(item) > value(best) ? item : best), null);
}

// Items that share a key, in the order of their first.
function groupsOf(items, key) {
  const groups = new Map();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return [...groups.values()];
}

function counted(count, noun) { return `${count} ${noun}${count === 1 ? "" : "s"}`; }

// Milliseconds as the tables of the tool have them.
function ms(us) { return (us / 1000).toFixed(3); }

// With a unit that suits it.
function time(us) {
  const size = Math.abs(us);
  if (size >= 1e6) return `${(us / 1e6).toPrecision(4)} s`;
  if (size >= 1000) return `${(us / 1000).toPrecision(4)} ms`;
  return `${Number(us.toPrecision(4))} us`;
}

function percent(share, digits = 1) { return `${share >= 0 ? "+" : ""}${(100 * share).toFixed(digits)} %`; }

function share(part) { return `${(100 * part).toFixed(1)} %`; }

// Buttons that take something out of the page.
function tools(...buttons) { return element("div", {class: "controls tools"}, buttons); }

function tool(text, label, action) {
  const button = element("button", {type: "button", "aria-label": label}, text);
  button.addEventListener("click", async () => {
    await action();
    button.textContent = "done";
    setTimeout(() => { button.textContent = text; }, 1200);
  });
  return button;
}

function markdownOf(head, rows) {
  const cell = (value) => String(Array.isArray(value) ? value[0] : value).replace(/\|/g, "\\|").replace(/\s+/g, " ");
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const kind = (name) => (Array.isArray(name) || name === "" ? ":--" : "--:");
  return [line(head.map(cell)), line(head.map(kind)), ...rows.map((row) => line(row.map(cell)))].join("\n");
}

// To the clipboard, also where the browser lets nobody write to it from a file.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", {"aria-hidden": "true"});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function saveAs(blob, name) {
  const link = element("a", {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// The chart as the reader sees it: the page's colours and letters are written into a copy of it.
async function savePng(svg, name) {
  const copy = svg.cloneNode(true);
  const kept = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font", "text-anchor", "paint-order"];
  const from = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((node, index) => {
    const style = getComputedStyle(from[index]);
    for (const key of kept) node.style.setProperty(key, style.getPropertyValue(key));
  });
  const {width, height} = svg.viewBox.baseVal;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], {type: "image/svg+xml"}));
  await image.decode();
  const canvas = element("canvas", {width: 2 * width, height: 2 * height});
  const pen = canvas.getContext("2d");
  pen.fillStyle = getComputedStyle(document.body).backgroundColor;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  saveAs(await new Promise((done) => canvas.toBlob(done, "image/png")), `${name}.png`);
}

// A table with its head; cells are texts, or [text, class].
function table(caption, head, rows) {
  const cell = (tag, value, index) => {
    const [text, kind] = Array.isArray(value) ? value : [value, null];
    return element(tag, {class: kind, scope: tag === "th" ? (index < 0 ? "row" : "col") : null}, String(text));
  };
  return [element("div", {class: "wide", tabindex: "0", role: "region", "aria-label": caption},
    element("table", {},
      element("thead", {}, element("tr", {}, head.map((name, index) => cell("th", name, index)))),
      element("tbody", {}, rows.map((row) => element("tr", {}, row.map((value) => cell("td", value))))))),
  tools(tool("Markdown", `Copy the table ${caption} as Markdown`, () => copyText(markdownOf(head, rows))))];
}

function folded(summary, ...children) {
  return element("details", {}, element("summary", {}, summary), ...children);
}

function legend(entries) {
  return element("ul", {class: "legend"},
    entries.map(([colour, text]) => {
      const patch = element("i", {"aria-hidden": "true"});
      patch.style.background = colour;
      return element("li", {}, patch, text);
    }));
}

// The note beside the pointer, or beside what the keyboard has chosen. Lines are [name, value].
const tip = {
  box: document.getElementById("tip"),
  show(x, y, title, lines) {
    this.box.replaceChildren(element("b", {}, title),
      element("dl", {}, lines.filter((line) => line[1] !== null && line[1] !== undefined && line[1] !== "")
        .map(([name, value]) => [element("dt", {}, name), element("dd", {}, String(value))])));
    this.box.hidden = false;
    const size = this.box.getBoundingClientRect();
    const left = x + 14 + size.width > innerWidth ? x - 14 - size.width : x + 14;
    const top = y + 14 + size.height > innerHeight ? y - 14 - size.height : y + 14;
    this.box.style.left = `${Math.max(4, Math.min(left, innerWidth - size.width - 4))}px`;
    this.box.style.top = `${Math.max(4, top)}px`;
  },
  // Beside an element of a chart.
  showAt(node, title, lines) {
    const box = node.getBoundingClientRect();
    this.show(box.left + box.width / 2, box.top + box.height / 2, title, lines);
  },
  hide() { this.box.hidden = true; },
};
