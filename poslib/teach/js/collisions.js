/* collisions: a few hands, a tolerance and a number format; which lags bring all hands back together, and which neighbours merge. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const TURN = 2 * Math.PI, SLACK = 1e-9;                     // ten steps of 0.01 rad are within 0.1 rad, whatever the floats say
  const ladder = (n) => Array.from({ length: n }, (_, k) => Math.pow(10000, -k / n));
  const periods = (...p) => p.map((x) => TURN / x);
  const HANDS = {
    one: [1], slow: periods(1024), nested: periods(16, 32, 64), coprime: periods(15, 16, 17),
    free: [1, Math.sqrt(1 / 2), Math.sqrt(1 / 3)], ladder2: ladder(2), ladder3: ladder(3), ladder4: ladder(4), ladder8: ladder(8),
  };
  const FORMATS = { bf16: [8, -126, 127], fp16: [11, -14, 15], fp32: [24, -126, 127] };   // significand bits, exponents

  const group = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ',');
  const count = (x) => (x < 1000 && x !== Math.round(x) ? fixed(x, 1) : group(x));
  const short = (x) => (x >= 1e6 ? `${fixed(x / 1e6)} M` : x >= 1000 ? group(x) : fixed(x, x === Math.round(x) ? 0 : x < 100 ? 2 : 1));
  const far = (d) => (d > 0 && d < 0.001 ? d.toExponential(2) : fixed(d, 4));
  const wrapped = (angle) => Math.abs(angle - TURN * Math.round(angle / TURN));

  const view = new DataView(new ArrayBuffer(8));
  const exponent = (x) => { view.setFloat64(0, x); return ((view.getUint32(0) >> 20) & 2047) - 1023; };
  /* To nearest, ties to even, as the format does; sines and cosines do not overflow. */
  function rounded(x, dtype) {
    if (dtype === 'exact' || x === 0) return x;
    const [bits, smallest] = FORMATS[dtype], unit = Math.pow(2, Math.max(exponent(x), smallest) - bits + 1), y = x / unit;
    let r = Math.round(y);
    if (Math.abs(y - Math.trunc(y)) === 0.5) r = 2 * Math.round(y / 2);
    return r * unit;
  }

  function numbers(s) {
    const stretch = Math.pow(2, s.stretch), frequencies = HANDS[s.hands].map((w) => w / stretch), n = s.length, tolerance = s.tolerance + SLACK;
    const each = frequencies.map(() => 0), hits = frequencies.map(() => new Uint8Array(n)), together = [];
    let joint = 0, lag = 0, least = Infinity;
    for (let t = 1; t < n; t++) {
      let all = true, sum = 0;
      frequencies.forEach((w, k) => {
        const half = Math.sin(t * w / 2);
        sum += half * half;
        if (wrapped(t * w) <= tolerance) { each[k] += n - t; hits[k][t] = 1; } else all = false;
      });
      if (all) { joint += n - t; together.push(t); }
      const d = 2 * Math.sqrt(sum) < 1e-9 ? 0 : 2 * Math.sqrt(sum);         // what is left of a whole turn in float64
      if (d < least) { least = d; lag = t; }
    }
    const merged = [];
    if (s.dtype !== 'exact') {
      const same = (f, a, b) => rounded(f(a), s.dtype) === rounded(f(b), s.dtype);
      for (let m = 0; m < n - 1; m++) {                                    // fastest hand first: it mostly decides
        if (frequencies.every((w) => same(Math.sin, m * w, (m + 1) * w) && same(Math.cos, m * w, (m + 1) * w))) merged.push(m);
      }
    }
    const pairs = n * (n - 1) / 2, shown = Math.min(s.lag, n - 1);
    return { frequencies, tolerance, pairs, each, joint, together, product: each.reduce((p, e) => p * e / pairs, pairs), nearest: lag, distance: least,
      merged, lag: shown, gaps: frequencies.map((w) => wrapped(shown * w)), hits };
  }
  let last = '', kept = null;                                  // panels() and say() ask for the same state
  const numbersOnce = (s) => {
    const key = JSON.stringify(s);
    if (key !== last) { kept = numbers(s); last = key; }
    return kept;
  };
  const stored = (s, c) => (s.dtype === 'exact' ? 'Without rounding no neighbours merge.' :
    `Stored in ${s.dtype}, ${c.merged.length ? `${group(c.merged.length)} of ${group(s.length - 1)} positions equal the next one, the first at ${group(c.merged[0])}` :
      'no position equals the next one'}.`) + gaps(s, c);
  /* One slow hand: where neighbours stay apart within the strip. */
  const gaps = (s, c) => (c.merged.length && c.frequencies.length === 1 && s.length * c.frequencies[0] > TURN / 4 ?
    ' The strip has a gap at each quarter turn: there the sine or the cosine is small, and small numbers are stored finely.' : '');

  /* For each column of an axis the share of its lags that are hit. */
  function shares(hit, from, to) {
    const n = to - from, columns = Math.min(n, 260), found = [];
    for (let c = 0; c < columns; c++) {
      const a = from + Math.floor(c * n / columns), b = from + Math.floor((c + 1) * n / columns);
      let sum = 0;
      for (let t = a; t < b; t++) sum += hit[t];
      found.push(sum / (b - a));
    }
    return found;
  }
  /* Marks along an axis, as high as the share is of `top`; full height in the colour `full`. */
  function marks(share, top, left, wide, bottom, high, full) {
    const size = wide / share.length, few = share.filter((x) => x).length < 40;
    let path = '';
    share.forEach((x, c) => {
      if (x) path += `M${fixed(left + (c + 0.5) * size, 1)} ${bottom}v-${fixed(full ? high : Math.max(high * x / top, 1), 1)}`;
    });
    return path && `<path d="${path}" stroke="${full || BLUE}" stroke-width="${fixed(Math.max(size * 0.8, full ? (few ? 4 : 2) : 0.8), 1)}"/>`;
  }

  F.define('collisions', {
    title: 'Choose hands, a tolerance and a number format, and see where positions look the same',
    controls: [
      { name: 'hands', label: 'hands', type: 'choice', value: 'nested',
        options: [['one', 'one fast hand, 1 rad a step'], ['slow', 'one slow hand, period 1,024'], ['nested', 'periods 16, 32, 64'],
          ['coprime', 'periods 15, 16, 17'], ['free', '1, 1/√2, 1/√3 rad a step'], ['ladder2', 'ladder of 2 hands'],
          ['ladder3', 'ladder of 3 hands'], ['ladder4', 'ladder of 4 hands'], ['ladder8', 'ladder of 8 hands']] },
      { name: 'stretch', label: 'periods doubled', unit: 'times', min: 0, max: 8, step: 1, value: 0 },
      { name: 'length', label: 'length', unit: 'positions', min: 64, max: 4096, step: 64, value: 256 },
      { name: 'tolerance', label: 'tolerance', unit: 'rad', min: 0.01, max: 1, step: 0.01, value: 0.05 },
      { name: 'dtype', label: 'stored in', type: 'choice', value: 'exact', options: [['exact', 'no rounding'], ['bf16', 'bf16'], ['fp16', 'fp16'], ['fp32', 'fp32']] },
      { name: 'lag', label: 'lag on the dials', unit: 'steps', min: 1, max: 4095, step: 1, value: 32 },
    ],
    compute(s) {
      const { hits, ...c } = numbersOnce(s);
      return c;
    },
    say(s) {
      const c = numbersOnce(s), several = c.frequencies.length > 1;
      return `${group(c.pairs)} pairs of positions. Within ${fixed(s.tolerance)} rad, ${group(c.joint)} agree${several ? ' at every hand' : ''}` +
        (several ? `; the product of the hands’ shares predicts ${count(c.product)}` : '') +
        `. The nearest codes${s.dtype === 'exact' ? '' : ', before rounding,'} are ${group(c.nearest)} ${c.nearest === 1 ? 'step' : 'steps'} apart, at distance ${far(c.distance)}. ${stored(s, c)}` +
        (s.lag > c.lag ? ` The dials stop at lag ${group(c.lag)}, the largest of this length.` : '');
    },
    panels(s) {
      const c = numbersOnce(s), n = s.length, W = 360, left = 58, wide = 248, row = 22, top = 44, rows = c.frequencies.length;
      const x = (t) => left + wide * (t - 0.5) / (n - 1), small = 'font-size="12"', end = 'text-anchor="end" font-size="12"';
      const share = (k) => { const p = 100 * k / c.pairs; return k && p < 0.1 ? '< 0.1 %' : `${fixed(p, 1)} %`; };
      const under = (y) => line(left, y, left + wide, y, `stroke="${INK}" stroke-opacity=".35"`);
      let body = text(4, 16, `lags at which hands agree within ${fixed(s.tolerance)} rad`) + text(4, 34, 'period', small) + text(W - 2, 34, 'pairs', end);
      const each = c.hits.map((hit) => shares(hit, 1, n)), highest = Math.max(...each.map((share) => Math.max(...share)));
      c.frequencies.forEach((w, k) => {
        const y = top + row * (k + 1) - 4;
        body += text(left - 6, y - 3, short(TURN / w), end) + under(y) + marks(each[k], highest, left, wide, y, row - 8, '') + text(W - 2, y - 3, share(c.each[k]), end);
      });
      const all = new Uint8Array(n), merge = new Uint8Array(n), yJoint = top + row * (rows + 1) + 4, yMerge = yJoint + 62;
      for (const t of c.together) all[t] = 1;
      for (const m of c.merged) merge[m] = 1;
      body += text(left - 6, yJoint - 3, rows > 1 ? 'all' : 'hits', end) + under(yJoint) + marks(shares(all, 1, n), 1, left, wide, yJoint, row - 6, ORANGE) +
        text(W - 2, yJoint - 3, share(c.joint), end) +
        line(x(c.lag), top, x(c.lag), yJoint + 3, `stroke="${INK}" stroke-dasharray="3 3"`);
      [1, Math.round(n / 2), n - 1].forEach((t, i) => { body += text(x(t), yJoint + 16, i ? group(t) : 'lag 1', `text-anchor="${['start', 'middle', 'end'][i]}" ${small}`); });
      body += text(4, yMerge - 24, s.dtype === 'exact' ? 'no rounding: no neighbours merge' :
        `${s.dtype}: ${group(c.merged.length)} positions whose code is the next one’s`, small) +
        under(yMerge) + marks(shares(merge, 0, n - 1), 1, left, wide, yMerge, row - 6, INK) +
        text(left, yMerge + 14, '0', small) + text(left + wide, yMerge + 14, `position ${group(n - 2)}`, end);

      const across = Math.min(rows, 4), R = rows > 4 ? 32 : 38, cell = W / across;
      let dials = text(4, 16, `the hands at lag ${group(c.lag)}${s.lag > c.lag ? ' (the last)' : ''}, arc ± ${fixed(s.tolerance)} rad`);
      c.frequencies.forEach((w, k) => {
        const cx = cell * (k % across + 0.5), cy = 30 + R + 8 + Math.floor(k / across) * (2 * R + 44), angle = c.lag * w, at = (a, r) => [cx + r * Math.sin(a), cy - r * Math.cos(a)];
        const inside = c.gaps[k] <= c.tolerance, colour = inside ? ORANGE : BLUE, [hx, hy] = at(angle, R - 3), [ax, ay] = at(-s.tolerance, R), [bx, by] = at(s.tolerance, R);
        dials += `<circle cx="${fixed(cx)}" cy="${fixed(cy)}" r="${R}" stroke="${INK}" stroke-opacity=".4"/>` +
          `<path d="M${fixed(ax)} ${fixed(ay)}A${R} ${R} 0 0 1 ${fixed(bx)} ${fixed(by)}" stroke="${ORANGE}" stroke-width="6"/>` +
          line(cx, cy, hx, hy, `stroke="${colour}" stroke-width="3" stroke-linecap="round" ${inside ? '' : 'stroke-dasharray="7 3"'}`) +
          text(cx, cy + R + 16, `${fixed(c.gaps[k], 3)} ${inside ? 'in' : 'out'}`, `text-anchor="middle" ${small}`);
      });
      const tall = 30 + Math.ceil(rows / 4) * (2 * R + 44);
      const both = c.gaps.every((g) => g <= c.tolerance);
      dials += text(4, tall + 8, both ? `${rows > 1 ? 'all hands are' : 'the hand is'} inside: a collision within the tolerance` :
        `${rows > 1 ? 'not all hands are' : 'the hand is not'} inside: no collision`, small);
      return [
        panel(W, yMerge + 22, `For each hand, the lags at which it agrees; ${group(c.joint)} of ${group(c.pairs)} pairs agree at all. ${stored(s, c)}`, body),
        panel(W, tall + 18, `Dials at lag ${group(c.lag)}: ${c.gaps.filter((g) => g <= c.tolerance).length} of ${rows} hands are inside the arc.`, dials),
      ];
    },
  });
})(globalThis.PosFig);
