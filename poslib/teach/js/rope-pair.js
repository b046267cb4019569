/* rope-pair: a query and a key, both (1, 0), turned to their positions; and their dot product over the lag.
 * Angles run counter-clockwise from the right, as Rot does. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const TURN = 2 * Math.PI, FAR = 32;
  const number = (x, digits) => fixed(x, digits).replace('-', '−');

  F.define('rope-pair', {
    title: 'One rotary pair: a query and a key turned to their positions, and their dot product over the lag',
    controls: [
      { name: 'i', label: 'query position i', unit: '', min: 0, max: FAR, step: 1, value: 10 },
      { name: 'j', label: 'key position j', unit: '', min: 0, max: FAR, step: 1, value: 4 },
      { name: 'omega', label: 'frequency ω', unit: 'rad', min: 0.05, max: 1, step: 0.05, value: 0.35 },
      { name: 'shift', label: 'move both by', unit: '', min: 0, max: FAR, step: 1, value: 0 },
    ],
    compute(s) {
      const at = (p) => ({ position: p, angle: p * s.omega, x: Math.cos(p * s.omega), y: Math.sin(p * s.omega) });
      const query = at(s.i + s.shift), key = at(s.j + s.shift), lag = s.i - s.j;
      return { lag, query, key, between: lag * s.omega, score: query.x * key.x + query.y * key.y, wavelength: TURN / s.omega };
    },
    say(s) {
      const c = this.compute(s);
      return `The query stands at position ${c.query.position} and is turned by ${fixed(c.query.angle, 2)} rad, the key at ${c.key.position} by ${fixed(c.key.angle, 2)} rad. ` +
        `The lag is ${number(c.lag, 0)}, the query is ${c.lag < 0 ? `${fixed(-c.between, 2)} rad behind` : `${fixed(c.between, 2)} rad ahead`}, and the dot product is cos(${number(c.between, 2)}) = ${number(c.score, 3)}.` +
        (s.shift ? ` Both moved by ${s.shift}: both hands turned, the dot product stayed.` : '');
    },
    panels(s) {
      const c = this.compute(s), R = 92, cx = 130, cy = 122, H = 256;
      const x = (a, r = R) => cx + r * Math.cos(a), y = (a, r = R) => cy - r * Math.sin(a);
      const hand = (h, name, colour, dash, far = R + 15) => line(cx, cy, x(h.angle), y(h.angle), `stroke="${colour}" stroke-width="3" ${dash}`) +
        `<circle cx="${fixed(x(h.angle))}" cy="${fixed(y(h.angle))}" r="6" fill="${colour}"/>` +
        text(x(h.angle, far), y(h.angle, far) + 4, name, 'text-anchor="middle" font-style="italic"');
      let dial = `<circle cx="${cx}" cy="${cy}" r="${R}" stroke="${INK}" stroke-opacity=".45" stroke-width="1.5"/>` +
        line(cx - R, cy, cx + R, cy, `stroke="${INK}" stroke-opacity=".25"`) + line(cx, cy - R, cx, cy + R, `stroke="${INK}" stroke-opacity=".25"`);
      // the query's way from the key: counter-clockwise where the lag is positive
      const r = 38, size = Math.abs(c.between), big = size % TURN > Math.PI ? 1 : 0, sweep = c.between > 0 ? 0 : 1;
      const on = (a) => `${fixed(x(a, r))} ${fixed(y(a, r))}`;
      if (c.lag) {
        dial += (size >= TURN ? `<circle cx="${cx}" cy="${cy}" r="${r}" stroke="${INK}" stroke-opacity=".6" stroke-width="1.5"/>` : '') +
          `<path d="M ${on(c.key.angle)} A ${r} ${r} 0 ${big} ${sweep} ${on(c.query.angle)}" stroke="${INK}" stroke-opacity=".6" stroke-width="2.5"/>`;
      }
      dial += hand(c.key, 'k', BLUE, 'stroke-dasharray="7 4"') + hand(c.query, 'q', ORANGE, '', R + (c.score > 0.96 ? 30 : 15)) +
        text(6, H - 8, `query ahead by ${number(c.between, 2)} rad`, 'font-size="12"');

      const W = 380, left = 34, right = W - 8, mid = 122, tall = 84;
      const px = (lag) => left + (right - left) * (lag + FAR) / (2 * FAR), py = (v) => mid - tall * v;
      const curve = Array.from({ length: 513 }, (_, n) => { const lag = -FAR + n * FAR / 256; return `${px(lag).toFixed(1)},${py(Math.cos(lag * s.omega)).toFixed(1)}`; }).join(' ');
      let plot = [1, 0, -1].map((v) => line(left, py(v), right, py(v), `stroke="${INK}" stroke-opacity="${v ? 0.2 : 0.45}"`) +
        text(left - 6, py(v) + 4, String(v).replace('-', '−'), 'text-anchor="end" font-size="12"')).join('') +
        [-32, -16, 0, 16, 32].map((lag) => text(px(lag), mid + tall + 20, String(lag).replace('-', '−'), `text-anchor="${lag === 32 ? 'end' : 'middle'}" font-size="12"`)).join('') +
        text((left + right) / 2, H - 8, 'lag i − j', 'text-anchor="middle" font-size="12"') +
        text(left, 18, 'dot product', 'font-size="12"') +
        `<polyline points="${curve}" stroke="${BLUE}" stroke-width="2"/>`;
      for (let lag = -FAR; lag <= FAR; lag++) plot += `<circle cx="${fixed(px(lag))}" cy="${fixed(py(Math.cos(lag * s.omega)))}" r="2" fill="${BLUE}"/>`;
      plot += line(px(c.lag), py(0), px(c.lag), py(c.score), `stroke="${ORANGE}" stroke-width="2"`) +
        `<circle cx="${fixed(px(c.lag))}" cy="${fixed(py(c.score))}" r="6" fill="${ORANGE}"/>`;
      return [
        panel(264, H, `A circle with a query's hand at ${fixed(c.query.angle, 2)} radians and a key's at ${fixed(c.key.angle, 2)}, counter-clockwise from the right.`, dial),
        panel(W, H, `The dot product over the lag, a cosine with wavelength ${fixed(c.wavelength, 1)}; at lag ${c.lag} it is ${fixed(c.score, 3)}.`, plot),
      ];
    },
  });
})(globalThis.PosFig);
