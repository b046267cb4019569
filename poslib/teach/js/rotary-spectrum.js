/* rotary-spectrum: the score of one query and key over the lag, as a sum of waves, and how far each pair turns in training. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const TURN = 2 * Math.PI, SAMPLES = 240, REACH = 65536, AIM = 777;

  /* Numbers in [0, 1) that are the same everywhere (mulberry32). */
  function chance(seed) {
    let a = seed;
    return () => {
      a = (a + 0x6d2b79f5) | 0;
      let t = Math.imul(a ^ (a >>> 15), 1 | a);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  }
  /* Lags 0 … REACH, dense at first, evenly spaced by ratio later; no lag twice. */
  const LAGS = [0];
  for (let n = 0; n <= SAMPLES; n++) {
    const lag = Math.round(Math.pow(REACH, n / SAMPLES));
    if (lag > LAGS[LAGS.length - 1]) LAGS.push(lag);
  }
  const words = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ',');
  const short = (x) => (x >= 9.995 ? words(Math.round(x)) : x >= 0.9995 ? fixed(x, 2) : x >= 0.00995 ? fixed(x, 3) : Number(x).toPrecision(2));
  const CONTENTS = { equal: 'query = key, all pairs equal', aimed: `aimed at lag ${AIM}`, random: 'a random query and key' };

  F.define('rotary-spectrum', {
    title: 'A rotary score over the lag, and the turns that each pair makes in training',
    controls: [
      { name: 'base', label: 'base', type: 'choice', value: '10000', options: ['100', '1000', '10000', '100000', '500000', '1000000', '10000000'].map((b) => [b, words(b)]) },
      { name: 'width', label: 'head width', type: 'choice', value: '128', options: ['16', '32', '64', '128', '256'].map((d) => [d, `${d}: ${d / 2} pairs`]) },
      { name: 'content', label: 'content', type: 'choice', value: 'equal', options: Object.entries(CONTENTS) },
      { name: 'share', label: 'pairs that turn', type: 'choice', value: '1', options: [['1', 'all'], ['0.75', 'the fastest 3/4'], ['0.5', 'the fastest half'], ['0.25', 'the fastest 1/4']] },
      { name: 'trained', label: 'trained length', type: 'choice', value: '4096', options: ['512', '2048', '4096', '8192', '32768', '131072'].map((n) => [n, words(n)]) },
      { name: 'lag', label: 'marked lag', unit: 'tokens', min: 0, max: 8192, step: 1, value: 100 },
    ],
    compute(s) {
      const n = Number(s.width) / 2, base = Number(s.base), trained = Number(s.trained), turning = Math.floor(Number(s.share) * n);
      const omega = [], amplitude = [], phase = [], next = chance(9);
      for (let k = 0; k < n; k++) {
        omega.push(k < turning ? Math.pow(base, -k / n) : 0);
        const size = -Math.log(1 - next()), turn = TURN * next();       // both drawn for every pair, whatever the content
        amplitude.push(s.content === 'random' ? size : 1);
        phase.push(s.content === 'random' ? turn : s.content === 'aimed' ? -AIM * omega[k] : 0);
      }
      const most = amplitude.reduce((a, b) => a + b, 0), turns = omega.map((w) => (trained * w) / TURN);
      /* Parts of the score, as shares of the largest possible one: pairs that finish a turn in training, pairs that do not, still ones. */
      const parts = (lag) => {
        const sum = [0, 0, 0];
        for (let k = 0; k < n; k++) sum[omega[k] === 0 ? 2 : turns[k] >= 1 ? 0 : 1] += (amplitude[k] * Math.cos(lag * omega[k] + phase[k])) / most;
        return sum;
      };
      /* Far out the drawn lags are wide apart: around the marked one and the aim every lag is drawn, so that a peak shows. */
      const near = [s.lag, AIM].flatMap((at) => Array.from({ length: 41 }, (_, m) => at - 20 + m)).filter((lag) => lag >= 0);
      const lags = [...new Set([...LAGS, ...near])].sort((a, b) => a - b), curves = lags.map(parts);
      return { omega, amplitude, phase, turns, lags, curves, marked: parts(s.lag),
        finished: turns.filter((t) => t >= 1).length, unfinished: turns.filter((t) => t > 0 && t < 1).length, still: n - turning };
    },
    say(s) {
      const c = this.compute(s), total = c.marked[0] + c.marked[1] + c.marked[2], slowest = c.turns.filter((t) => t > 0).pop();
      return `In ${words(s.trained)} tokens ${c.finished} pairs finish a turn, ${c.unfinished} do not${c.still ? `, and ${c.still} never move` : ''}; the slowest that moves makes ${short(slowest)} turns. ` +
        `At lag ${words(s.lag)} the score is ${fixed(total, 3)} of the largest possible: ${fixed(c.marked[0], 3)} from pairs that finish, ${fixed(c.marked[1], 3)} from pairs that do not` +
        `${c.still ? `, ${fixed(c.marked[2], 3)} from the still ones` : ''}.`;
    },
    panels(s) {
      const c = this.compute(s), W = 380, H = 262, left = 34, right = 10, top = 40, bottom = 206, trained = Number(s.trained);
      const x = (lag) => left + (Math.log(1 + lag) / Math.log(1 + REACH)) * (W - left - right), y = (v) => top + ((1 - v) / 1.9) * (bottom - top);
      const path = (value) => c.lags.map((lag, i) => `${i ? 'L' : 'M'}${fixed(x(lag), 1)} ${fixed(y(Math.max(-0.9, value(c.curves[i]))), 1)}`).join('');
      let body = text(left, 14, 'score over the lag, largest possible = 1') + text(left, 30, 'orange: the part of unfinished pairs', 'font-size="12"');
      if (trained < REACH) body += `<rect x="${fixed(x(trained))}" y="${top}" width="${fixed(W - right - x(trained))}" height="${bottom - top}" fill="${INK}" fill-opacity=".07"/>`;
      for (const v of [1, 0.5, 0, -0.5]) body += line(left, y(v), W - right, y(v), `stroke="${INK}" stroke-opacity="${v ? 0.12 : 0.5}"`) + text(left - 5, y(v) + 4, String(v).replace('-', '−'), 'text-anchor="end" font-size="12"');
      body += line(x(s.lag), top, x(s.lag), bottom, `stroke="${INK}" stroke-opacity=".6" stroke-dasharray="4 3"`);
      body += `<path d="${path((p) => p[0] + p[1] + p[2])}" stroke="${BLUE}" stroke-width="1.4"/>`;
      if (c.unfinished) body += `<path d="${path((p) => p[1])}" stroke="${ORANGE}" stroke-width="2.2"/>`;
      const total = c.marked[0] + c.marked[1] + c.marked[2];
      body += `<circle cx="${fixed(x(s.lag))}" cy="${fixed(y(Math.max(-0.9, total)))}" r="5" fill="${BLUE}"/>`;
      for (const lag of [0, 10, 100, 1000, 10000]) body += text(x(lag), bottom + 18, words(lag), 'text-anchor="middle" font-size="12"');
      body += text(left, bottom + 36, 'lag in tokens, by ratio; shaded: longer than training', 'font-size="12"');
      if (trained >= REACH) body += text(left, bottom + 51, 'training goes beyond this picture', 'font-size="11"');

      const w2 = 268, l2 = 46, low = -5, high = 5, n = c.omega.length;
      const px = (k) => l2 + ((k + 0.5) / n) * (w2 - l2 - 10), py = (t) => top + ((high - Math.max(low, Math.log10(t))) / (high - low)) * (bottom - top);
      let dots = text(l2 - 30, 14, `turns in ${words(trained)} tokens`);
      for (let e = low; e <= high; e++) dots += line(l2, py(10 ** e), w2 - 10, py(10 ** e), `stroke="${INK}" stroke-opacity="${e ? 0.1 : 0.6}"`);
      for (const [t, name] of [[1e4, '10,000'], [100, '100'], [1, '1'], [0.01, '0.01']]) dots += text(l2 - 5, py(t) + 4, name, 'text-anchor="end" font-size="12"');
      c.turns.forEach((t, k) => {
        if (c.omega[k] === 0) dots += line(px(k), bottom - 7, px(k), bottom - 1, `stroke="${INK}" stroke-opacity=".6"`);
        else if (t >= 1) dots += `<circle cx="${fixed(px(k))}" cy="${fixed(py(t))}" r="3" fill="${BLUE}"/>`;
        else dots += `<circle cx="${fixed(px(k))}" cy="${fixed(py(t))}" r="2.6" stroke="${ORANGE}" stroke-width="1.8"/>`;
      });
      dots += text(px(0), bottom + 18, 0, 'text-anchor="middle" font-size="12"') + text(px(n - 1), bottom + 18, n - 1, 'text-anchor="middle" font-size="12"') +
        text(l2, bottom + 36, 'pair; full: a turn or more', 'font-size="12"') + text(l2, bottom + 51, c.still ? 'open: less; strokes: still pairs' : 'open: less', 'font-size="12"');
      return [
        panel(W, H, `The score over the lag for base ${words(s.base)}: ${CONTENTS[s.content]}; at lag ${words(s.lag)} it is ${fixed(total, 3)}.`, body),
        panel(w2, H, `Turns of each pair in training: ${c.finished} finish one, ${c.unfinished} do not, ${c.still} stand still.`, dots),
      ];
    },
  });
})(globalThis.PosFig);
