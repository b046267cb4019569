/* sinusoid-pair: one pair of a sinusoidal code, as a hand on a circle and as two waves over the positions.
 * A hand points to (sin, cos): at position 0 it stands upright, and it turns clockwise. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const SHOWN = 128;                                    // positions on the waves' axis

  const long = (x) => (x >= 100 ? String(Math.round(x)).replace(/\B(?=(\d{3})+$)/g, ',') : fixed(x, 2));
  const rate = (x) => Number(x.toPrecision(4)).toString();

  F.define('sinusoid-pair', {
    title: 'One pair of a sinusoidal code: a hand on a circle, and its sine and cosine over the positions',
    controls: [
      { name: 'position', label: 'position p', unit: '', min: 0, max: 96, step: 1, value: 18 },
      { name: 'width', label: 'width d', type: 'choice', value: '8', options: ['4', '8', '16', '64', '512'].map((d) => [d, `${d} (${d / 2} pairs)`]) },
      { name: 'pair', label: 'pair k', unit: '', min: 0, max: (s) => Number(s.width) / 2 - 1, step: 1, value: 1 },
      { name: 'base', label: 'base b', type: 'choice', value: '10000', options: [['100', '100'], ['10000', '10,000'], ['500000', '500,000']] },
      { name: 'shift', label: 'shift s', unit: '', min: 0, max: 32, step: 1, value: 0 },
    ],
    compute(s) {
      const d = Number(s.width), omega = Number(s.base) ** (-2 * s.pair / d);
      const at = (p) => ({ position: p, angle: p * omega, sine: Math.sin(p * omega), cosine: Math.cos(p * omega) });
      return { omega, wavelength: 2 * Math.PI / omega, turns: SHOWN * omega / (2 * Math.PI), pairs: d / 2, here: at(s.position), there: at(s.position + s.shift),
        turned: s.shift * omega };
    },
    say(s) {
      const c = this.compute(s);
      return `Position ${s.position}, pair ${s.pair} of ${c.pairs} (0 to ${c.pairs - 1}): ω = ${rate(c.omega)} rad a step, one turn in ${long(c.wavelength)} steps. ` +
        `The hand stands at ${fixed(c.here.angle, 3)} rad: sine ${fixed(c.here.sine, 3)}, cosine ${fixed(c.here.cosine, 3)}.` +
        (s.shift ? ` ${s.shift} step${s.shift > 1 ? 's' : ''} on, it has turned by ${fixed(c.turned, 3)} rad, as it would from anywhere.` : '');
    },
    panels(s) {
      const c = this.compute(s), R = 92, cx = 130, cy = 128, H = 256;
      const x = (p) => cx + R * p.sine, y = (p) => cy - R * p.cosine;
      const hand = (p, colour, dash) => line(cx, cy, x(p), y(p), `stroke="${colour}" stroke-width="3" ${dash}`) +
        `<circle cx="${fixed(x(p))}" cy="${fixed(y(p))}" r="6" fill="${colour}"/>`;
      let dial = `<circle cx="${cx}" cy="${cy}" r="${R}" stroke="${INK}" stroke-opacity=".45" stroke-width="1.5"/>` +
        line(cx - R, cy, cx + R, cy, `stroke="${INK}" stroke-opacity=".25"`) + line(cx, cy - R, cx, cy + R, `stroke="${INK}" stroke-opacity=".25"`) +
        text(cx, cy - R - 10, 'cosine 1', 'text-anchor="middle" font-size="12"') + text(cx + R + 6, cy + 4, 'sine 1', 'font-size="12"');
      for (let p = 0; p < s.position; p++) {
        const dot = { sine: Math.sin(p * c.omega), cosine: Math.cos(p * c.omega) };
        dial += `<circle cx="${fixed(x(dot))}" cy="${fixed(y(dot))}" r="2.2" fill="${INK}" fill-opacity=".4"/>`;
      }
      if (s.shift) {
        const r = 40, big = (c.turned % (2 * Math.PI)) > Math.PI ? 1 : 0;
        const on = (a) => `${fixed(cx + r * Math.sin(a))} ${fixed(cy - r * Math.cos(a))}`;
        dial += (c.turned >= 2 * Math.PI ? `<circle cx="${cx}" cy="${cy}" r="${r}" stroke="${ORANGE}" stroke-width="1.5"/>` : '') +
          `<path d="M ${on(c.here.angle)} A ${r} ${r} 0 ${big} 1 ${on(c.there.angle)}" stroke="${ORANGE}" stroke-width="2.5"/>` +
          hand(c.there, ORANGE, 'stroke-dasharray="7 4"');
      }
      dial += hand(c.here, BLUE, '') + text(6, H - 8, s.shift ? `turned by ${fixed(c.turned, 3)} rad` : `angle ${fixed(c.here.angle, 3)} rad`, 'font-size="12"');

      const W = 380, left = 34, right = W - 8, mid = 128, tall = 84, px = (p) => left + (right - left) * p / SHOWN, py = (v) => mid - tall * v;
      const steps = 4 * SHOWN, wave = (f) => Array.from({ length: steps + 1 }, (_, i) =>
        `${px(i * SHOWN / steps).toFixed(1)},${py(f(i * SHOWN / steps * c.omega)).toFixed(1)}`).join(' ');
      let waves = [1, 0, -1].map((v) => line(left, py(v), right, py(v), `stroke="${INK}" stroke-opacity="${v ? 0.2 : 0.45}"`) +
        text(left - 6, py(v) + 4, v, 'text-anchor="end" font-size="12"')).join('') +
        [0, 32, 64, 96, 128].map((p) => text(px(p), mid + tall + 20, p, `text-anchor="${p === 128 ? 'end' : 'middle'}" font-size="12"`)).join('') +
        text((left + right) / 2, H - 8, 'position', 'text-anchor="middle" font-size="12"') +
        line(left, 20, left + 26, 20, `stroke="${BLUE}" stroke-width="2.5"`) + text(left + 32, 24, 'sine', 'font-size="12"') +
        line(left + 78, 20, left + 104, 20, `stroke="${ORANGE}" stroke-width="2.5" stroke-dasharray="7 4"`) + text(left + 110, 24, 'cosine', 'font-size="12"') +
        `<polyline points="${wave(Math.sin)}" stroke="${BLUE}" stroke-width="2"/>` +
        `<polyline points="${wave(Math.cos)}" stroke="${ORANGE}" stroke-width="2" stroke-dasharray="7 4"/>`;
      for (const [p, dash] of s.shift ? [[c.there, 'stroke-dasharray="3 3"'], [c.here, '']] : [[c.here, '']]) {
        waves += line(px(p.position), py(1.1), px(p.position), py(-1.1), `stroke="${INK}" stroke-width="1.5" ${dash}`) +
          `<circle cx="${fixed(px(p.position))}" cy="${fixed(py(p.sine))}" r="5" fill="${BLUE}"/>` +
          `<circle cx="${fixed(px(p.position))}" cy="${fixed(py(p.cosine))}" r="5" fill="${ORANGE}"/>`;
      }
      return [
        panel(264, H, `A circle with a hand at the angle ${fixed(c.here.angle, 3)} radians, clockwise from the top` +
          (s.shift ? `, and a second hand ${fixed(c.turned, 3)} radians further on.` : '; small dots mark the earlier positions.'), dial),
        panel(W, H, `Sine and cosine of pair ${s.pair} over positions 0 to ${SHOWN}, ${fixed(c.turns, 2)} turns. At position ${s.position}: sine ${fixed(c.here.sine, 3)}, cosine ${fixed(c.here.cosine, 3)}.`, waves),
      ];
    },
  });
})(globalThis.PosFig);
