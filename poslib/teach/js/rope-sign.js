/* rope-sign: a query and a key of any direction, and the score over the lag by two conventions:
 * the same matrices applied to columns (the book) and to rows. Only the query is turned, by the lag: the score is the
 * cosine of the angle from the key to the turned query. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const FAR = 16, RAD = Math.PI / 180;
  const signed = (x) => (/^0\.?0*$/.test(fixed(x, 3)) ? '' : x > 0 ? '+' : '') + fixed(x, 3).replace('-', '−');

  F.define('rope-sign', {
    title: 'The sign of the lag: one query, one key, and their score by two conventions',
    controls: [
      { name: 'query', label: 'direction of q', unit: '°', min: -180, max: 180, step: 5, value: 0 },
      { name: 'key', label: 'direction of k', unit: '°', min: -180, max: 180, step: 5, value: 90 },
      { name: 'lag', label: 'lag i − j', unit: '', min: -FAR, max: FAR, step: 1, value: 6 },
      { name: 'omega', label: 'frequency ω', unit: 'rad', min: 0.05, max: 1, step: 0.05, value: 0.35 },
      { name: 'reading', label: 'the circle shows', type: 'choice', value: 'columns', options: [['columns', 'columns, Rᵢq (this book)'], ['rows', 'rows, qRᵢ with the same R']] },
    ],
    compute(s) {
      const apart = (s.query - s.key) * RAD, turn = s.lag * s.omega;
      const columns = Math.cos(apart + turn), rows = Math.cos(apart - turn);
      return { turn, columns, rows, blind: (s.query - s.key) % 180 === 0, turned: s.query * RAD + (s.reading === 'rows' ? -turn : turn) };
    },
    say(s) {
      const c = this.compute(s);
      return `At lag ${String(s.lag).replace('-', '−')} the score is ${signed(c.columns)} when the matrices act on columns, as in this book, and ${signed(c.rows)} when the same ones act on rows. ` +
        (c.blind ? `Query and key ${(s.query - s.key) % 360 === 0 ? 'point the same way' : 'are opposite'}: both curves are one, and no test with these two sees the sign.` :
          s.lag ? 'The curves are each other’s mirror images, left and right of lag 0.' : 'At lag 0 they meet: nothing has been turned.');
    },
    panels(s) {
      const c = this.compute(s), R = 74, cx = 132, cy = 122, H = 256;
      const x = (a, r = R) => cx + r * Math.cos(a), y = (a, r = R) => cy - r * Math.sin(a);
      const hand = (a, colour, dash, more = '') => line(cx, cy, x(a), y(a), `stroke="${colour}" stroke-width="3" ${dash} ${more}`) +
        `<circle cx="${fixed(x(a))}" cy="${fixed(y(a))}" r="6" fill="${colour}" ${more}/>`;
      const name = (a, t, r, aside = 0) => text(x(a, r), y(a, r) + 4 + aside, t, 'text-anchor="middle" font-style="italic"');
      const from = s.query * RAD, key = s.key * RAD, way = c.turned - key, r = 38, big = Math.abs(way) % (2 * Math.PI) > Math.PI ? 1 : 0;
      const near = (a, b) => Math.cos(a - b) > 0.9;
      const below = Math.abs(Math.cos(key)) < 0.6 ? Math.sin(key) < 0 : Math.sin(c.turned) < Math.sin(key);       // q turned, from k
      const on = (a) => `${fixed(x(a, r))} ${fixed(y(a, r))}`;
      const dial = `<circle cx="${cx}" cy="${cy}" r="${R}" stroke="${INK}" stroke-opacity=".45" stroke-width="1.5"/>` +
        line(cx - R, cy, cx + R, cy, `stroke="${INK}" stroke-opacity=".25"`) + line(cx, cy - R, cx, cy + R, `stroke="${INK}" stroke-opacity=".25"`) +
        (Math.abs(way) >= 2 * Math.PI ? `<circle cx="${cx}" cy="${cy}" r="${r}" stroke="${INK}" stroke-opacity=".6" stroke-width="1.5"/>` : '') +
        (way ? `<path d="M ${on(key)} A ${r} ${r} 0 ${big} ${way > 0 ? 0 : 1} ${on(c.turned)}" stroke="${INK}" stroke-opacity=".6" stroke-width="2.5"/>` : '') +
        hand(from, ORANGE, '', 'opacity=".35"') + hand(key, BLUE, 'stroke-dasharray="7 4"') + hand(c.turned, ORANGE, '') +
        name(key, near(from, key) ? 'k, q' : 'k', R + (near(from, key) ? 22 : 16)) + (near(from, key) || near(from, c.turned) ? '' : name(from, 'q', R + 16)) + name(c.turned, 'q turned', R + 20, near(c.turned, key) ? (below ? 14 : -14) : 0) +
        text(6, H - 8, `from k to q turned: ${fixed(way, 2).replace('-', '−')} rad`, 'font-size="12"');

      const W = 380, left = 34, right = W - 8, mid = 128, tall = 78;
      const px = (lag) => left + (right - left) * (lag + FAR) / (2 * FAR), py = (v) => mid - tall * v, apart = (s.query - s.key) * RAD;
      const curve = (sign) => Array.from({ length: 513 }, (_, n) => { const lag = -FAR + n * FAR / 256; return `${px(lag).toFixed(1)},${py(Math.cos(apart + sign * lag * s.omega)).toFixed(1)}`; }).join(' ');
      const dot = (v, colour) => `<circle cx="${fixed(px(s.lag))}" cy="${fixed(py(v))}" r="6" fill="${colour}"/>`;
      const plot = [1, 0, -1].map((v) => line(left, py(v), right, py(v), `stroke="${INK}" stroke-opacity="${v ? 0.2 : 0.45}"`) +
        text(left - 6, py(v) + 4, String(v).replace('-', '−'), 'text-anchor="end" font-size="12"')).join('') +
        [-16, -8, 0, 8, 16].map((lag) => text(px(lag), mid + tall + 20, String(lag).replace('-', '−'), `text-anchor="${lag === 16 ? 'end' : 'middle'}" font-size="12"`)).join('') +
        text((left + right) / 2, H - 8, 'lag i − j', 'text-anchor="middle" font-size="12"') +
        line(left, 16, left + 26, 16, `stroke="${ORANGE}" stroke-width="2.5"`) + text(left + 32, 20, 'score, columns', 'font-size="12"') +
        line(left + 150, 16, left + 176, 16, `stroke="${BLUE}" stroke-width="2.5" stroke-dasharray="7 4"`) + text(left + 182, 20, 'score, rows', 'font-size="12"') +
        line(px(s.lag), py(1.05), px(s.lag), py(-1.05), `stroke="${INK}" stroke-opacity=".45" stroke-width="1.5"`) +
        `<polyline points="${curve(1)}" stroke="${ORANGE}" stroke-width="2.5"/><polyline points="${curve(-1)}" stroke="${BLUE}" stroke-width="2.5" stroke-dasharray="7 4"/>` +
        dot(c.rows, BLUE) + dot(c.columns, ORANGE);
      return [
        panel(264, H, `A circle: the key at ${s.key} degrees, the query at ${s.query} degrees turned by ${fixed(c.turned - from, 2)} radians.`, dial),
        panel(W, H, `Two curves over the lag, ${c.blind ? 'one and the same here' : 'mirror images of each other'}; at lag ${s.lag} they are ${fixed(c.columns, 3)} and ${fixed(c.rows, 3)}.`, plot),
      ];
    },
  });
})(globalThis.PosFig);
