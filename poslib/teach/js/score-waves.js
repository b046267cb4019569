/* score-waves: what each rotary pair adds to one head's score over the lag, pairs to hold still, and the weights that the sum gives.
 * The line DATA is written by `python -m poslib.lab.position_in_circuits --figure` from the stored result: for three of SmolLM2's heads
 * the mean query times the conjugate mean key of each pair, over the root of the width, real and imaginary parts in thousandths.
 * A pair that is off stands still. Zeroing it would give the same weights: with one query and one key what it adds is one constant. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const DATA = {"16, 0":[[2886,1741,1146,990,221,28,887,6,1794,44,1034,6,1410,8,38,45,-3,-219,2,-743,-1,-34,-874,19,8,-12063,-180,-40,0,-141,-137,-54],[-6697,-1930,-674,-555,-4,37,52,-53,537,59,549,26,968,5,33,38,-34,2485,0,2206,13,7,4307,8,10,18376,54,-59,6,-66,37,-136]],"11, 1":[[3237,349,1092,302,1881,16,146,65,1286,1419,10,1198,2,26,-8,590,18,10,-19,-964,-7,-32,-63,338,-9,-104,-314,-680,-7108,-1290,-1465,-162],[-2706,-1647,-1602,-127,-680,-52,-169,143,69,725,11,163,10,-46,-23,1125,3,114,-6,1914,-21,-21,-32,9813,59,39,355,207,4404,301,437,34]],"1, 2":[[1999,795,782,725,703,26,677,126,9,809,3,896,4,565,-3,2,-2,303,3,-1,3,-14,9,25,-5191,-2674,47,-572,-144,-17,-10,-93],[-2683,-567,-995,-827,-412,9,7,-66,-14,350,-8,289,-3,475,-5,2,10,1726,5,27,-3,3,32,-23,11528,4320,-31,845,66,-15,-1,44]]};
  const PAIRS = 32, BASE = 100000, LANES = [['0', 0, 1], ['1', 1, 2], ['2', 2, 3], ['3', 3, 4], ['4–7', 4, 8], ['8–15', 8, 16], ['16–31', 16, 32]];
  const HEADS = Object.keys(DATA), SIZE = 12;
  const CONTENTS = [...HEADS.map((h) => [h, `SmolLM2, layer ${h.split(', ')[0]}, head ${h.split(', ')[1]}`]),
    ['one', 'pair 0 alone, aimed at lag 1'], ['four', 'pairs 0 to 3, aimed at lag 1'], ['all', 'all pairs, aimed at lag 1']];
  const omega = (k) => Math.pow(BASE, -k / PAIRS);
  const number = (x, digits = 2) => fixed(x, digits).replace('-', '−');

  F.define('score-waves', {
    title: 'A head’s score over the lag as a sum of waves, and the weights it gives',
    controls: [
      { name: 'content', label: 'query and key', type: 'choice', value: CONTENTS[0][0], options: CONTENTS },
      ...LANES.map(([name], n) => ({ name: `on${n}`, label: n < 4 ? `pair ${name} turns` : `pairs ${name} turn`, type: 'check', value: true })),
      { name: 'keys', label: 'keys', unit: '', min: 8, max: 256, step: 8, value: 64 },
    ],
    compute(s) {
      const z = [];
      for (let k = 0; k < PAIRS; k++) {
        if (HEADS.includes(s.content)) z.push([DATA[s.content][0][k] / 1000, DATA[s.content][1][k] / 1000]);
        else {
          const count = { one: 1, four: 4, all: PAIRS }[s.content], a = k < count ? SIZE / count : 0;
          z.push([a * Math.cos(omega(k)), -a * Math.sin(omega(k))]);
        }
      }
      const on = LANES.map((_, n) => s[`on${n}`]);
      const wave = ([, from, to]) => Array.from({ length: s.keys }, (_, lag) => {
        let sum = 0;
        for (let k = from; k < to; k++) sum += z[k][0] * Math.cos(lag * omega(k)) - z[k][1] * Math.sin(lag * omega(k));
        return sum;
      });
      // what a lane adds at a lag: turned, or, where it is off, what it adds at lag 0; rows keep the scale they have when all turn
      const turning = LANES.map(wave), lanes = turning.map((v, n) => (on[n] ? v : v.map(() => v[0])));
      const high = Math.max(1e-9, ...turning.map((v) => (Math.max(...v) - Math.min(...v)) / 2));
      const total = lanes[0].map((_, lag) => lanes.reduce((sum, lane) => sum + lane[lag], 0)), most = Math.max(...total);
      const raw = total.map((v) => Math.exp(v - most)), all = raw.reduce((a, b) => a + b, 0), weights = raw.map((v) => v / all);
      const best = weights.indexOf(Math.max(...weights)), others = total.map((v, lag) => (lag === 1 ? -Infinity : v)), rival = others.indexOf(Math.max(...others));
      return { lanes, on, total, weights, best, rival, gap: total[1] - total[rival], high };
    },
    say(s) {
      const c = this.compute(s), off = LANES.filter((_, n) => !c.on[n]).map(([name]) => name);
      const made = { one: 'Pair 0 alone', four: 'Pairs 0 to 3 alone', all: 'All pairs alike' }[s.content];
      if (off.length === LANES.length) return `No pair turns: all ${s.keys} keys have one score and one weight, ${fixed(c.weights[1], 3)}.`;
      return `${made ? `${made}, the amplitudes add up to ${SIZE}. ` : ''}${off.length ? `Not turning: ${off.length === 1 && off[0].length === 1 ? 'pair' : 'pairs'} ${off.join(', ')}. ` : 'All pairs turn. '}Of ${s.keys} keys the one at lag 1 gets the weight ${fixed(c.weights[1], 3)}; ` +
        `the most goes to lag ${c.best} (${fixed(c.weights[c.best], 3)}). The score at lag 1 is ${number(Math.abs(c.gap))} ${c.gap >= 0 ? 'above' : 'below'} that of the best other lag, ${c.rival}.`;
    },
    panels(s) {
      const c = this.compute(s), W = 380, lane = 40, left = 46, right = W - 8, top = 30, n = c.lanes.length, H = top + lane * n + 108;
      const x = (lag) => left + (right - left) * lag / (s.keys - 1);
      const centred = (v) => { const m = (Math.max(...v) + Math.min(...v)) / 2; return v.map((y) => y - m); };
      const scale = 17 / c.high;
      const path = (v, y0, k) => v.map((y, lag) => `${lag ? 'L' : 'M'}${fixed(x(lag), 1)} ${fixed(y0 - k * y, 1)}`).join('');
      let g = text(4, 14, `what each pair adds, by lag; a row is ${fixed(lane / scale, 1)} high`);
      c.lanes.forEach((v, i) => {
        const y0 = top + lane * (i + 0.5);
        g += line(left, y0, right, y0, `stroke="${INK}" stroke-opacity=".18"`) + text(left - 6, y0 + 4, LANES[i][0], `text-anchor="end" font-size="12"${c.on[i] ? '' : ' fill-opacity=".55" text-decoration="line-through"'}`) +
          `<path d="${path(centred(v), y0, scale)}" stroke="${c.on[i] ? BLUE : INK}" stroke-width="1.6"${c.on[i] ? '' : ' stroke-dasharray="3 3" stroke-opacity=".6"'}/>` +
          (c.on[i] ? '' : text(right, y0 - 6, `adds ${number(v[0])} at each lag`, 'text-anchor="end" font-size="12"'));
      });
      const y1 = top + lane * n + 38, total = centred(c.total), k1 = Math.min(scale, 30 / Math.max(1e-9, ...total.map(Math.abs)));
      g += line(left, y1, right, y1, `stroke="${INK}" stroke-opacity=".4"`) + text(left - 6, y1 + 4, 'sum', 'text-anchor="end" font-size="12"') +
        `<path d="${path(total, y1, k1)}" stroke="${ORANGE}" stroke-width="2.2"/><circle cx="${fixed(x(1), 1)}" cy="${fixed(y1 - k1 * total[1], 1)}" r="4.5" fill="${ORANGE}"/>`;
      for (const lag of [0, Math.round((s.keys - 1) / 2), s.keys - 1]) g += text(x(lag), H - 20, lag, `text-anchor="${lag === s.keys - 1 ? 'end' : 'middle'}" font-size="12"`);
      g += text(left, H - 4, 'lag; waves are drawn around their middle', 'font-size="12"');

      const W2 = 260, H2 = 240, l2 = 38, b2 = 190, shown = 16, step = (W2 - l2 - 8) / shown, y = (w) => b2 - (b2 - 34) * w;
      let d = text(4, 14, 'weights of the sum, lags 0 to 15');
      for (const v of [0, 0.5, 1]) d += line(l2, y(v), W2 - 8, y(v), `stroke="${INK}" stroke-opacity="${v ? 0.15 : 0.5}"`) + text(l2 - 6, y(v) + 4, v, 'text-anchor="end" font-size="12"');
      for (let lag = 0; lag < Math.min(shown, s.keys); lag++) {
        d += `<rect x="${fixed(l2 + step * lag + 2)}" y="${fixed(y(c.weights[lag]))}" width="${fixed(step - 4)}" height="${fixed(b2 - y(c.weights[lag]))}" fill="${lag === 1 ? ORANGE : BLUE}"/>`;
        if (lag % 5 === 0 || lag === 1) d += text(l2 + step * (lag + 0.5), b2 + 17, lag, 'text-anchor="middle" font-size="12"');
      }
      const later = c.weights.slice(shown).reduce((a, b) => a + b, 0);
      d += text(l2, b2 + 36, `lag; all later lags: ${fixed(later, 3)}`, 'font-size="12"');
      return [panel(W, H, `Waves of seven groups of pairs over the lag, and their sum. ${this.say(s)}`, g), panel(W2, H2, `Weights of the lags 0 to 15; lag 1 gets ${fixed(c.weights[1], 3)}.`, d)];
    },
  });
})(globalThis.PosFig);
