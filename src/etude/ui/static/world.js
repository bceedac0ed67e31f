// A simulated world, drawn here: shapes and where they are at each step come from the server, the rest is WebGL.

import { announce, button, element } from "./dom.js";
import { flattened, lookAt, perspective, placed, product } from "./world_matrices.js";
import { trianglesOf } from "./world_shapes.js";

const LIGHT = [0.35, 0.25, 0.9];
const NUMBERS = 7; // of a pose
const TURN = Math.PI / 24; // a press of a key
const FLOOR = 40; // metres to each side, where the floor has no end
const VERTEX = `#version 300 es
layout(location = 0) in vec3 point;
layout(location = 1) in vec3 normal;
uniform mat4 view, place;
out vec3 at, facing;
void main() {
  vec4 there = place * vec4(point, 1.0);
  at = there.xyz;
  facing = mat3(place) * normal;
  gl_Position = view * there;
}`;
const FRAGMENT = `#version 300 es
precision highp float;
in vec3 at, facing;
uniform vec3 light, eye, ground;
uniform vec4 colour;
uniform float kind, reach, tile;
out vec4 shown;
void main() {
  if (kind > 1.5) { shown = colour; return; } // shadow
  vec3 normal = normalize(facing);
  if (dot(normal, eye - at) < 0.0) normal = -normal;
  float shine = 0.55 + 0.2 * normal.z + 0.35 * max(dot(normal, normalize(light)), 0.0);
  vec3 own = colour.rgb;
  if (kind > 0.5) { // floor
    vec2 cell = floor(at.xy / tile);
    own *= mod(cell.x + cell.y, 2.0) < 0.5 ? 1.0 : 0.9;
    float far = smoothstep(0.4 * reach, reach, distance(at.xy, eye.xy));
    shown = vec4(mix(own * 0.98, ground, far), 1.0);
    return;
  }
  shown = vec4(own * shine, colour.a);
}`;

// The camera of all panels: both futures are seen from the same side.
export class Camera {
  constructor() {
    Object.assign(this, { azimuth: 2.2, elevation: 0.32, zoom: 1, listeners: [] });
  }

  change(azimuth, elevation, zoom = 1) {
    this.azimuth += azimuth;
    this.elevation = Math.max(-0.1, Math.min(1.5, this.elevation + elevation));
    this.zoom = Math.max(0.15, Math.min(12, this.zoom * zoom));
    for (const listener of this.listeners) listener();
  }
}

export class WorldView {
  constructor(camera) {
    this.camera = camera;
    this.canvas = element("canvas", {
      class: "world",
      tabindex: "0",
      role: "img",
      "aria-label": "The world in three dimensions. Shift and the arrow keys turn it, + and − come nearer and go away.",
      keydown: (event) => this.key(event),
    });
    const turn = (label, name, ...by) => button(label, () => camera.change(...by), { "aria-label": name, title: name, class: "quiet" });
    this.node = element(
      "div",
      { class: "world-view", hidden: true },
      this.canvas,
      element(
        "div",
        { class: "world-buttons" },
        turn("⟲", "Turn left", -TURN * 2, 0),
        turn("⟳", "Turn right", TURN * 2, 0),
        turn("⤒", "Look from above", 0, TURN * 2),
        turn("⤓", "Look from below", 0, -TURN * 2),
        turn("+", "Nearer", 0, 0, 1 / 1.25),
        turn("−", "Away", 0, 0, 1.25),
      ),
    );
    this.poses = null;
    this.frame = 0;
    camera.listeners.push(() => this.draw());
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    new MutationObserver(() => this.draw()).observe(document.documentElement, { attributes: true });
  }

  // Return whether this browser can draw the world.
  load(world) {
    if (this.world === world) return this.gl !== null;
    this.world = world;
    this.gl ??= this.canvas.getContext("webgl2", { alpha: false, antialias: !isSoftware(), stencil: true, preserveDrawingBuffer: true });
    if (!this.gl) return false;
    this.program ??= compiled(this.gl);
    this.isUneven = !world.shapes.some((shape) => shape.kind === "plane");
    this.shapes = world.shapes.map((shape) => this.upload(shape, world.surfaces));
    this.floor ??= this.buffers(trianglesOf({ kind: "box", size: [1, 1, 0.0001] }, []));
    return true;
  }

  upload(shape, surfaces) {
    const triangles = trianglesOf(shape, surfaces);
    return { ...shape, buffers: triangles && this.buffers(triangles) };
  }

  buffers({ points, normals, faces }) {
    const { gl } = this;
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    [points, normals].forEach((values, place) => {
      gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
      gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, 3, gl.FLOAT, false, 0, 0);
    });
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, faces, gl.STATIC_DRAW);
    gl.bindVertexArray(null);
    return { array, count: faces.length };
  }

  get frames() {
    return this.poses ? this.poses.length / (this.world.shapes.length * NUMBERS) : 0;
  }

  show(poses, frame) {
    this.poses = poses;
    this.frame = Math.max(0, Math.min(frame, this.frames - 1));
    this.draw();
  }

  draw() {
    const { gl, canvas } = this;
    if (!gl || !this.poses || !this.frames || this.node.hidden || !canvas.clientWidth) return;
    const dense = isSoftware() ? 1 : Math.min(2, devicePixelRatio || 1);
    const size = [canvas.clientWidth, canvas.clientHeight].map((side) => Math.round(side * dense));
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    const from = this.frame * this.shapes.length * NUMBERS;
    const middle = this.middle(from);
    const { azimuth, elevation, zoom } = this.camera;
    const distance = this.world.distance * zoom;
    const flat = Math.cos(elevation) * distance;
    const eye = [middle[0] + flat * Math.cos(azimuth), middle[1] + flat * Math.sin(azimuth), middle[2] + distance * Math.sin(elevation)];
    const view = product(perspective(0.75, size[0] / size[1], distance / 50, distance * 60), lookAt(eye, middle));
    const ground = groundColour(canvas);
    gl.viewport(0, 0, ...size);
    gl.clearColor(...ground, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT | gl.STENCIL_BUFFER_BIT);
    gl.useProgram(this.program.itself);
    gl.enable(gl.DEPTH_TEST);
    this.give({ view, light: LIGHT, eye, ground, reach: Math.max(6, distance * 6), tile: tileOf(distance) });
    let level = null;
    this.shapes.forEach((shape, number) => {
      if (shape.kind === "plane") level = this.drawFloor(shape, from + number * NUMBERS, middle) ?? level;
    });
    if (level !== null) this.drawShadows(from, level);
    this.drawShapes(from, 1);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    this.drawShapes(from, 0); // what can be seen through comes last
    gl.disable(gl.BLEND);
  }

  middle(from) {
    const { follow, middle } = this.world;
    if (follow === null) return middle;
    const at = from + follow * NUMBERS;
    return [this.poses[at], this.poses[at + 1], this.isUneven ? this.poses[at + 2] : middle[2]];
  }

  give(values) {
    const { gl, program } = this;
    for (const [name, value] of Object.entries(values)) {
      const where = program.places[name];
      if (typeof value === "number") gl.uniform1f(where, value);
      else if (value.length === 16) gl.uniformMatrix4fv(where, false, value);
      else if (value.length === 4) gl.uniform4fv(where, value);
      else gl.uniform3fv(where, value);
    }
  }

  // Return the height of a floor that lies flat, for shadows.
  drawFloor(shape, start, middle) {
    const place = placed(this.poses, start);
    const [x, y] = shape.size.map((half) => half || FLOOR);
    const isEndless = !shape.size[0] || !shape.size[1];
    for (let axis = 0; axis < 3; axis += 1) {
      place[axis] *= x;
      place[4 + axis] *= y;
    }
    if (isEndless) [place[12], place[13]] = middle;
    this.give({ place, colour: shape.colour, kind: 1 });
    this.fill(this.floor);
    return place[10] > 0.99 ? place[14] : null;
  }

  drawShadows(from, level) {
    const { gl } = this;
    const flat = flattened(LIGHT, level + 0.002);
    gl.enable(gl.BLEND);
    gl.enable(gl.STENCIL_TEST); // what is dark twice is not darker
    gl.stencilFunc(gl.EQUAL, 0, 255);
    gl.stencilOp(gl.KEEP, gl.KEEP, gl.INCR);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    gl.depthMask(false);
    this.give({ colour: [0, 0, 0, 0.28], kind: 2 });
    this.shapes.forEach((shape, number) => {
      if (!shape.buffers || shape.colour[3] < 1) return;
      const place = placed(this.poses, from + number * NUMBERS);
      if (place[14] <= level) return;
      this.give({ place: product(flat, place) });
      this.fill(shape.buffers);
    });
    gl.depthMask(true);
    gl.disable(gl.STENCIL_TEST);
    gl.disable(gl.BLEND);
  }

  drawShapes(from, opaque) {
    this.give({ kind: 0 });
    this.shapes.forEach((shape, number) => {
      if (!shape.buffers || (shape.colour[3] >= 1) !== Boolean(opaque)) return;
      this.give({ place: placed(this.poses, from + number * NUMBERS), colour: shape.colour });
      this.fill(shape.buffers);
    });
  }

  fill({ array, count }) {
    this.gl.bindVertexArray(array);
    this.gl.drawElements(this.gl.TRIANGLES, count, this.gl.UNSIGNED_INT, 0);
  }

  // ---- looking about ---------------------------------------------------------------------------------------------------

  listen() {
    const { canvas, camera } = this;
    let last = null;
    canvas.addEventListener("pointerdown", (event) => {
      last = [event.clientX, event.clientY];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!last) return;
      camera.change((last[0] - event.clientX) / 120, (event.clientY - last[1]) / 160);
      last = [event.clientX, event.clientY];
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
    canvas.addEventListener("wheel", (event) => {
      if (document.activeElement !== canvas) return; // a page that scrolls by goes on scrolling
      event.preventDefault();
      camera.change(0, 0, event.deltaY > 0 ? 1.1 : 1 / 1.1);
    }, { passive: false });
    canvas.addEventListener("webglcontextlost", (event) => {
      event.preventDefault();
      this.gl = null;
      announce("the three-dimensional view was lost");
    });
  }

  key(event) {
    const turns = { ArrowLeft: [-TURN, 0], ArrowRight: [TURN, 0], ArrowUp: [0, TURN], ArrowDown: [0, -TURN] };
    if (event.shiftKey && turns[event.key]) this.camera.change(...turns[event.key]);
    else if (event.key === "+" || event.key === "=") this.camera.change(0, 0, 1 / 1.25);
    else if (event.key === "-") this.camera.change(0, 0, 1.25);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

let software = null;

// Whether the browser draws without a GPU: each pixel then counts.
function isSoftware() {
  if (software === null) {
    const gl = element("canvas").getContext("webgl2");
    const named = gl?.getExtension("WEBGL_debug_renderer_info");
    software = /swiftshader|llvmpipe|software/i.test(named ? gl.getParameter(named.UNMASKED_RENDERER_WEBGL) : "");
    gl?.getExtension("WEBGL_lose_context")?.loseContext();
  }
  return software;
}

const tileOf = (distance) => 10 ** Math.round(Math.log10(distance)) / 4;

function groundColour(canvas) {
  const found = getComputedStyle(canvas).backgroundColor.match(/[\d.]+/g) ?? [230, 232, 236];
  return found.slice(0, 3).map((value) => Number(value) / 255);
}

function compiled(gl) {
  const itself = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(itself, shader);
  }
  gl.linkProgram(itself);
  const names = ["view", "place", "light", "eye", "ground", "colour", "kind", "reach", "tile"];
  return { itself, places: Object.fromEntries(names.map((name) => [name, gl.getUniformLocation(itself, name)])) };
}
