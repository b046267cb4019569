/* relative-bias: what each method adds to a score, over the lag and as a matrix, head by head. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const REACH = 96, PLACES = 20, STEP = 2, FLOOR = -10;

  /* ALiBi, the authors' rule: a series for the largest power of two, then every other member of the next longer one. */
  function slopes(heads) {
    let power = 1;
    while (2 * power <= heads) power *= 2;
    const e = [];
    for (let h = 1; h <= power; h++) e.push((8 * h) / power);
    for (let h = 0; h < heads - power; h++) e.push((4 * (2 * h + 1)) / power);
    return e.map((x) => Math.pow(2, -x));
  }

  /* T5: first distance of buckets 1, 2, … of one side, in whole numbers of any size. */
  function starts(side, far) {
    const exact = Math.floor(side / 2), p = side - exact, out = [];
    for (let n = 1; n <= exact; n++) out.push(n);
    for (let k = 1; k < p; k++) {
      const want = BigInt(exact) ** BigInt(p - k) * BigInt(far) ** BigInt(k);
      let n = out[out.length - 1];
      while (BigInt(n) ** BigInt(p) < want) n++;
      out.push(n);
    }
    return out;
  }
  const bucket = (lag, first, both) => {
    const n = both ? Math.abs(lag) : Math.max(lag, 0);
    return first.filter((f) => f <= n).length + (both && lag < 0 ? first.length + 1 : 0);
  };

  /* A function (lag, query position) -> bias for head h, and its settings. */
  function head(s, h, first) {
    const reach = s.distance, steep = (s.heads - h + 1) / s.heads, both = !s.causal;
    if (s.method === 'alibi') {
      const slope = slopes(s.heads)[h - 1];
      return { slope, bias: (lag) => -slope * (both ? Math.abs(lag) : lag) };
    }
    if (s.method === 't5') {
      const near = [0, ...first].map((n) => -steep * Math.log1p(n)), table = both ? near.concat(near.map((b) => b - 1)) : near;
      return { table, bias: (lag) => table[bucket(lag, first, both)] };
    }
    if (s.method === 'clip') {
      const favourite = 4 * (h - 1), value = (lag) => -Math.abs(lag - favourite) / 4;
      return { favourite, bias: (lag) => value(Math.max(-reach, Math.min(reach, lag))) };
    }
    if (s.method === 'kerple') {
      const r1 = steep, r2 = 16 / reach;
      return { r1, r2, bias: (lag) => -r1 * Math.log1p(r2 * Math.abs(lag)) };
    }
    if (s.method === 'fire') {
      const c = 16 / reach, gain = 4 * steep;
      return { c, gain, bias: (lag, at) => -gain * Math.pow(Math.log1p(c * Math.abs(lag)) / Math.log1p(c * Math.max(reach, at)), 2) };
    }
    const window = Math.ceil((reach * h) / s.heads);
    return { window, bias: (lag) => (Math.abs(lag) < window ? 0 : -Infinity) };
  }
  const NAMES = { alibi: 'ALiBi', t5: 'T5, example table', clip: 'one number a lag, clipped', kerple: 'KERPLE, logarithmic', fire: 'FIRE, example network', window: 'window' };
  const numbers = (s) => Math.min(s.head, s.heads);

  F.define('relative-bias', {
    title: 'What is added to the score: the bias over the lag and as a matrix, for each method and head',
    controls: [
      { name: 'method', label: 'method', type: 'choice', value: 'alibi', options: Object.entries(NAMES) },
      { name: 'heads', label: 'heads', unit: '', min: 1, max: 16, step: 1, value: 8 },
      { name: 'head', label: 'head shown', unit: '', min: 1, max: 16, step: 1, value: 1 },
      { name: 'distance', label: 'reach', unit: 'tokens', min: 20, max: 128, step: 4, value: 64 },
      { name: 'buckets', label: 'T5’s buckets', unit: '', min: 4, max: 32, step: 2, value: 16 },
      { name: 'causal', label: 'causal mask', type: 'check', value: true },
    ],
    compute(s) {
      const both = !s.causal, side = both ? Math.floor(s.buckets / 2) : s.buckets, first = starts(side, s.distance);
      const low = both ? -REACH / 2 : 0, high = both ? REACH / 2 : REACH, lags = [], places = [];
      for (let t = low; t <= high; t++) lags.push(t);
      for (let n = 0; n < PLACES; n++) places.push(n * STEP);
      const all = [];
      for (let h = 1; h <= s.heads; h++) all.push(head(s, h, first));
      const mine = all[numbers(s) - 1], hidden = (x) => (Number.isFinite(x) ? x : null);     // JSON has no infinity
      const row = lags.map((t) => mine.bias(t, high)), best = Math.max(...row), odds = row.map((b) => Math.exp(b - best));
      const total = odds.reduce((a, b) => a + b, 0);
      // how many lags, nearest first, hold half of the weight when all contents are equal
      const order = lags.map((t, n) => n).sort((a, b) => Math.abs(lags[a]) - Math.abs(lags[b]));
      let sum = 0, half = 0;
      for (const n of order) { sum += odds[n] / total; half = Math.abs(lags[n]); if (sum >= 0.5) break; }
      const { bias, ...settings } = mine;
      return { head: numbers(s), lags, query: high, bias: row.map(hidden), heads: all.map((a) => lags.map((t) => hidden(a.bias(t, high)))), settings,
        starts: first, side, slopes: slopes(s.heads), places, half,
        matrix: places.map((i) => places.map((j) => (s.causal && j > i ? null : hidden(mine.bias(i - j, i))))) };
    },
    say(s) {
      const c = this.compute(s), at = c.bias[c.lags.indexOf(16)], f = c.starts, both = !s.causal;
      const what = { alibi: () => `slope ${fixed(c.settings.slope, 4)}`, t5: () => `${s.buckets} buckets, the last from distance ${f[f.length - 1]}${both ? ' on, half of them for each side' : ' on'}`,
        clip: () => `favourite lag ${c.settings.favourite}, one value from ${s.distance} on`, kerple: () => `r₁ ${fixed(c.settings.r1)}, r₂ ${fixed(c.settings.r2, 3)}`,
        fire: () => `threshold ${s.distance}; the query stands at ${c.query}`, window: () => `the last ${c.settings.window} places` }[s.method]();
      return `${NAMES[s.method]}, head ${c.head} of ${s.heads}: ${what}. Lag 16 gets ${at === null ? 'no weight at all' : `a bias of ${fixed(at)}`}` +
        ` and falls into T5’s bucket ${bucket(16, f, both)}. With equal contents half of the weight lies within lag ${c.half}.`;
    },
    panels(s) {
      const c = this.compute(s), W = 380, H = 262, left = 34, right = 8, top = 26, bottom = 190, ceiling = 1;
      const low = c.lags[0], high = c.lags[c.lags.length - 1];
      const x = (t) => left + ((t - low) / (high - low)) * (W - left - right), y = (b) => top + ((ceiling - b) / (ceiling - FLOOR)) * (bottom - top);
      /* The part of a curve above the floor, as paths. */
      const curve = (values, every) => {
        let d = '', pen = false;
        c.lags.forEach((t, n) => {
          if (n % every && n !== values.length - 1) return;
          const b = values[n];
          if (b === null || b < FLOOR) { pen = false; return; }
          d += `${pen ? 'L' : 'M'}${fixed(x(t), 1)} ${fixed(y(b), 1)}`;
          pen = true;
        });
        return d;
      };
      let body = text(left, 14, s.method === 'fire' ? `bias, query at ${c.query}; thin: the other heads` : 'bias over the lag; thin: the other heads');
      for (const b of [0, -2, -4, -6, -8, -10]) {
        body += line(left, y(b), W - right, y(b), `stroke="${INK}" stroke-opacity="${b ? 0.12 : 0.5}"`) + text(left - 5, y(b) + 4, b, 'text-anchor="end" font-size="12"');
      }
      c.heads.forEach((values, n) => { if (n !== c.head - 1) body += `<path d="${curve(values, 4)}" stroke="${INK}" stroke-opacity=".3"/>`; });
      body += `<path d="${curve(c.bias, 1)}" stroke="${BLUE}" stroke-width="2.5"/>`;
      const atZero = c.bias[c.lags.indexOf(0)];
      if (atZero !== null && atZero >= FLOOR) body += `<circle cx="${fixed(x(0))}" cy="${fixed(y(atZero))}" r="3.5" fill="${BLUE}"/>`;
      // the ruler: T5's buckets
      const edges = (sign) => [0, ...c.starts].map((f, k) => [f, k + 1 < c.side ? c.starts[k] : REACH + 1, k]).map(([a, b, k]) => (sign > 0 ? [a, b, k] : [1 - b, 1 - a, k]));
      for (const sign of s.causal ? [1] : [1, -1]) {
        edges(sign).forEach(([a, b, k]) => {
          const from = Math.max(x(low), x(a - 0.5)), to = Math.min(x(high), x(b - 0.5));
          if (to > from) body += `<rect x="${fixed(from)}" y="${bottom + 8}" width="${fixed(to - from)}" height="12" fill="${ORANGE}" fill-opacity="${k % 2 ? 0.75 : 0.25}"/>`;
        });
      }
      for (const t of s.causal ? [0, 16, 32, 48, 64, 80, 96] : [-48, -32, -16, 0, 16, 32, 48]) body += text(x(t), bottom + 36, t, 'text-anchor="middle" font-size="12"');
      body += text(left, bottom + 54, s.causal ? 'lag (tokens back); band: T5’s buckets' : 'lag (negative: keys ahead); band: T5’s buckets', 'font-size="12"') +
        text(left, bottom + 69, 'curves end where the bias falls below −10', 'font-size="11" opacity=".75"');

      const side = 190, cell = side / PLACES, gx = 34, gy = 40;
      let grid = text(gx, 14, 'e^bias for each pair, the') + text(gx, 30, 'best key of a row = 1');
      c.matrix.forEach((row, i) => {
        const best = Math.max(...row.filter((b) => b !== null));
        row.forEach((b, j) => {
          const px = gx + cell * j, py = gy + cell * i, strength = b === null ? 0 : Math.exp(b - best);
          if (strength > 0.004) grid += `<rect x="${fixed(px, 1)}" y="${fixed(py, 1)}" width="${fixed(cell, 1)}" height="${fixed(cell, 1)}" fill="${BLUE}" fill-opacity="${fixed(strength * 0.9)}"/>`;
        });
      });
      grid += `<rect x="${gx}" y="${gy}" width="${side}" height="${side}" stroke="${INK}" stroke-opacity=".4"/>`;
      if (s.causal) grid += line(gx, gy, gx + side, gy + side, `stroke="${INK}" stroke-opacity=".4"`);
      for (const p of [0, 10, 20, 30]) {
        const at = (p / STEP + 0.5) * cell;
        grid += text(gx - 5, gy + at + 4, p, 'text-anchor="end" font-size="12"') + text(gx + at, gy + side + 15, p, 'text-anchor="middle" font-size="12"');
      }
      grid += text(gx, gy + side + 31, 'keys, every second; rows: queries', 'font-size="11"');
      return [
        panel(W, H, `Bias over the lag: ${NAMES[s.method]}, head ${c.head} of ${s.heads}, with T5’s ${s.buckets} buckets below.`, body),
        panel(gx + side + 12, H + 8, `The same bias for every second query and key, darker where larger${s.causal ? '; later keys are hidden' : ''}.`, grid),
      ];
    },
  });
})(globalThis.PosFig);
