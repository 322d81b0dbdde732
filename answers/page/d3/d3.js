// What the report page uses of D3; bundle.sh makes d3.min.js of it.
export { bisector, extent, max, min } from "d3-array";
export { axisBottom, axisLeft } from "d3-axis";
export { scaleBand, scaleLinear, scaleLog } from "d3-scale";
export { pointer, select } from "d3-selection";
export { line } from "d3-shape";
export { zoom, zoomIdentity } from "d3-zoom";
