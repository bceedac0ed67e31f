// 4 × 4 matrices by columns, as WebGL reads them.

export function product(a, b) {
  const made = new Float32Array(16);
  for (let column = 0; column < 4; column += 1) {
    for (let row = 0; row < 4; row += 1) {
      let sum = 0;
      for (let each = 0; each < 4; each += 1) sum += a[each * 4 + row] * b[column * 4 + each];
      made[column * 4 + row] = sum;
    }
  }
  return made;
}

export function perspective(angle, aspect, near, far) {
  const focus = 1 / Math.tan(angle / 2);
  const depth = near - far;
  return new Float32Array([focus / aspect, 0, 0, 0, 0, focus, 0, 0, 0, 0, (far + near) / depth, -1, 0, 0, (2 * far * near) / depth, 0]);
}

// From `eye` to `middle`, with z up.
export function lookAt(eye, middle) {
  const back = unit(eye.map((value, axis) => value - middle[axis]));
  const right = unit([-back[1], back[0], 0]);
  const up = [back[1] * right[2] - back[2] * right[1], back[2] * right[0] - back[0] * right[2], back[0] * right[1] - back[1] * right[0]];
  const shift = [right, up, back].map((axis) => -(axis[0] * eye[0] + axis[1] * eye[1] + axis[2] * eye[2]));
  return new Float32Array([
    right[0], up[0], back[0], 0, right[1], up[1], back[1], 0, right[2], up[2], back[2], 0, shift[0], shift[1], shift[2], 1,
  ]);
}

// A pose: x, y, z and a quaternion w, x, y, z, from `start` on.
export function placed(poses, start) {
  const [px, py, pz, w, x, y, z] = poses.subarray(start, start + 7);
  return new Float32Array([
    1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y), 0,
    2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x), 0,
    2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y), 0,
    px, py, pz, 1,
  ]);
}

// Everything flattened onto the floor at a height, along the light: what lies there is shadow.
export function flattened(light, height) {
  const [x, y, z] = light;
  return new Float32Array([1, 0, 0, 0, 0, 1, 0, 0, -x / z, -y / z, 0, 0, (x / z) * height, (y / z) * height, height, 1]);
}

function unit(vector) {
  const length = Math.hypot(...vector) || 1;
  return vector.map((value) => value / length);
}
