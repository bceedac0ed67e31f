// Triangles of the shapes that simulated worlds are made of: {points, normals, faces}, in the shape's own frame.

const ROUND = 28; // corners of a circle
const HALVES = 8; // rings from the middle of a ball to its pole

// A shape as the server describes it; surfaces are the meshes and height fields of the world.
export function trianglesOf(shape, surfaces) {
  const [x, y, z] = shape.size;
  const made = {
    sphere: () => ball(x, x, x, 0),
    ellipsoid: () => ball(x, y, z, 0),
    capsule: () => ball(x, x, x, y),
    cylinder: () => cylinder(x, y),
    box: () => box(x, y, z, shape.at ?? [0, 0, 0]),
    surface: () => surface(surfaces[shape.surface]),
  }[shape.kind];
  return made ? made() : null; // a plane is the floor, which is drawn apart
}

// A ball whose halves are 2 · half apart: a sphere, an ellipsoid or a capsule.
function ball(a, b, c, half) {
  const points = [];
  const normals = [];
  const faces = [];
  const rings = [];
  for (let ring = -HALVES; ring <= HALVES; ring += 1) {
    if (ring === 0) rings.push([0, -half], [0, half]);
    else rings.push([(ring / HALVES) * (Math.PI / 2), ring < 0 ? -half : half]);
  }
  for (const [up, shift] of rings) {
    for (let place = 0; place <= ROUND; place += 1) {
      const about = (place / ROUND) * 2 * Math.PI;
      const at = [Math.cos(up) * Math.cos(about), Math.cos(up) * Math.sin(about), Math.sin(up)];
      points.push(a * at[0], b * at[1], c * at[2] + shift);
      normals.push(...unit([at[0] / a, at[1] / b, at[2] / c]));
    }
  }
  net(faces, rings.length, ROUND + 1);
  return ready(points, normals, faces);
}

function cylinder(radius, half) {
  const points = [];
  const normals = [];
  const faces = [];
  const sides = [[-half, null], [half, null], [-half, -1], [half, 1]]; // the mantle's two circles, then the lids'
  for (const [height, facing] of sides) {
    for (let place = 0; place <= ROUND; place += 1) {
      const about = (place / ROUND) * 2 * Math.PI;
      points.push(radius * Math.cos(about), radius * Math.sin(about), height);
      normals.push(...(facing === null ? [Math.cos(about), Math.sin(about), 0] : [0, 0, facing]));
    }
  }
  net(faces, 2, ROUND + 1);
  for (const lid of [2, 3]) {
    const first = lid * (ROUND + 1);
    for (let place = 1; place < ROUND - 1; place += 1) faces.push(first, first + place, first + place + 1);
  }
  return ready(points, normals, faces);
}

function box(x, y, z, at) {
  const points = [];
  const normals = [];
  const faces = [];
  const half = [x, y, z];
  for (let axis = 0; axis < 3; axis += 1) {
    for (const side of [-1, 1]) {
      const first = points.length / 3;
      for (const [one, other] of [[-1, -1], [1, -1], [1, 1], [-1, 1]]) {
        const corner = [0, 0, 0];
        corner[axis] = side;
        corner[(axis + 1) % 3] = one;
        corner[(axis + 2) % 3] = other;
        points.push(...corner.map((value, each) => value * half[each] + at[each]));
        normals.push(...[0, 1, 2].map((each) => (each === axis ? side : 0)));
      }
      faces.push(first, first + 1, first + 2, first, first + 2, first + 3);
    }
  }
  return ready(points, normals, faces);
}

// Meshes and fields are faceted: each triangle has corners of its own, with the triangle's normal.
function surface({ points: text, faces: order }) {
  const given = new Float32Array(bytes(text));
  const corners = new Uint32Array(bytes(order));
  const points = new Float32Array(corners.length * 3);
  const normals = new Float32Array(corners.length * 3);
  for (let face = 0; face < corners.length; face += 3) {
    const [a, b, c] = [0, 1, 2].map((each) => given.subarray(corners[face + each] * 3, corners[face + each] * 3 + 3));
    const [u, v] = [b, c].map((other) => [other[0] - a[0], other[1] - a[1], other[2] - a[2]]);
    const normal = unit([u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]]);
    [a, b, c].forEach((corner, each) => {
      points.set(corner, (face + each) * 3);
      normals.set(normal, (face + each) * 3);
    });
  }
  return { points, normals, faces: Uint32Array.from(corners.keys()) };
}

function net(faces, rows, columns) {
  for (let row = 0; row < rows - 1; row += 1) {
    for (let column = 0; column < columns - 1; column += 1) {
      const here = row * columns + column;
      faces.push(here, here + 1, here + columns + 1, here, here + columns + 1, here + columns);
    }
  }
}

function unit(vector) {
  const length = Math.hypot(...vector) || 1;
  return vector.map((value) => value / length);
}

const ready = (points, normals, faces) => ({
  points: Float32Array.from(points),
  normals: Float32Array.from(normals),
  faces: Uint32Array.from(faces),
});

// Numbers come as base64.
export function bytes(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer;
}
