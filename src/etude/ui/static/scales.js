// Numbers to pixels and back, and where an axis has its ticks.

export class Scale {
  constructor(low, high, from, to, log) {
    this.log = log && high > 0;
    if (this.log && low <= 0) low = high * 1e-6;
    if (!(high > low)) {
      const room = Math.abs(low) * 0.05 || 1;
      [low, high] = this.log ? [low / 2, low * 2] : [low - room, low + room];
    }
    Object.assign(this, { low, high, from, to });
    [this.a, this.b] = this.log ? [Math.log10(low), Math.log10(high)] : [low, high];
    this.factor = (to - from) / (this.b - this.a);
  }

  at(value) {
    return this.from + ((this.log ? Math.log10(value) : value) - this.a) * this.factor;
  }

  back(pixel) {
    const place = this.a + (pixel - this.from) / this.factor;
    return this.log ? 10 ** place : place;
  }

  ticks(count) {
    return this.log ? logTicks(this.low, this.high, count) : evenTicks(this.low, this.high, count);
  }
}

function evenTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((each) => each * size >= rough) * size;
  const ticks = [];
  for (let place = Math.ceil(low / step); place * step <= high + step * 1e-9 && ticks.length < 50; place++) ticks.push(place * step);
  return ticks;
}

function logTicks(low, high, count) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const decades = last - first;
  const within = decades <= 2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / count));
  const ticks = [];
  for (let power = first; power <= last; power += every) {
    for (const part of within) {
      const tick = part * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks.length >= 2 ? ticks : evenTicks(low, high, count);
}

// The place of the last position that is not after x, in an array that only grows.
export function placeBefore(positions, x) {
  let low = 0;
  let high = positions.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (positions[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
