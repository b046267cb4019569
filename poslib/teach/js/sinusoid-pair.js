/* sinusoid-pair: one pair of a sinusoidal code, as a hand on a circle and as two waves over the positions.
 * A hand points to (sin, cos): at position 0 it stands upright, and it turns clockwise. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const TURN = 2 * Math.PI;

  const long = (x) => (x >= 100 ? String(Math.round(x)).replace(/\B(?=(\d{3})+$)/g, ',') : fixed(x, 2));
  const rate = (x) => Number(x.toPrecision(4)).toString();
  // three digits after the point, or three that are not 0; from one turn on, the turns and what is left
  const small = (x) => fixed(x, x && Math.abs(x) < 0.1 ? Math.min(12, 2 - Math.floor(Math.log10(Math.abs(x)))) : 3);
  const turned = (x) => {
    const turns = Math.floor(Math.abs(x) / TURN), back = x < 0 ? ' backwards' : '';
    return `${small(Math.abs(x))} rad${back}` + (turns ? ` (${turns} turn${turns > 1 ? 's' : ''} and ${small(Math.abs(x) - turns * TURN)} rad)` : '');
  };

  F.define('sinusoid-pair', {
    title: 'One pair of a sinusoidal code: a hand on a circle, and its sine and cosine over the positions',
    controls: [
      { name: 'span', label: 'positions shown', type: 'choice', value: '128', options: [['128', '128'], ['1024', '1,024'], ['8192', '8,192']] },
      { name: 'position', label: 'position p', unit: '', min: 0, max: (s) => 3 * Number(s.span) / 4, step: 1, value: 18 },
      { name: 'width', label: 'width d', type: 'choice', value: '8', options: ['4', '8', '16', '64', '512'].map((d) => [d, `${d} (${d / 2} pairs)`]) },
      { name: 'pair', label: 'pair k', unit: '', min: 0, max: (s) => Number(s.width) / 2 - 1, step: 1, value: 1 },
      { name: 'base', label: 'base b', type: 'choice', value: '10000', options: [['100', '100'], ['10000', '10,000'], ['500000', '500,000']] },
      { name: 'shift', label: 'shift s', unit: '', min: -32, max: 32, step: 1, value: 0 },
      { name: 'trained', label: 'shade a training text', type: 'choice', value: '0', options: [['0', 'no'], ['64', '64 positions'], ['512', '512 positions'], ['4096', '4,096 positions']] },
      { name: 'others', label: 'the other hands too', type: 'check', value: false },
    ],
    compute(s) {
      const d = Number(s.width), omega = Number(s.base) ** (-2 * s.pair / d);
      const at = (p) => ({ position: p, angle: p * omega, sine: Math.sin(p * omega), cosine: Math.cos(p * omega) });
      const arc = Math.max(0, Number(s.trained) - 1) * omega, whole = Number(s.trained) * omega >= TURN;      // what positions 0 to L - 1 show
      return { omega, wavelength: TURN / omega, turns: Number(s.span) * omega / TURN, pairs: d / 2, here: at(s.position), there: at(s.position + s.shift),
        turned: s.shift * omega, arc: whole ? TURN : arc, seen: whole || s.position * omega % TURN <= arc };
    },
    say(s) {
      const c = this.compute(s);
      const part = c.arc < TURN ? `${Number((100 * c.arc / TURN).toPrecision(2))} % of its circle; the hand stands ${c.seen ? 'inside' : 'outside, where it never stood'}` : 'its whole circle';
      return `Position ${s.position}, pair ${s.pair} of ${c.pairs} (0 to ${c.pairs - 1}): ω = ${rate(c.omega)} rad a step, one turn in ${long(c.wavelength)} steps. ` +
        `The hand stands at ${small(c.here.angle)} rad: sine ${fixed(c.here.sine, 3)}, cosine ${fixed(c.here.cosine, 3)}.` +
        (s.shift ? ` ${Math.abs(s.shift)} step${Math.abs(s.shift) > 1 ? 's' : ''} ${s.shift > 0 ? 'on' : 'back'}, it has turned by ${turned(c.turned)}, as it would from anywhere.` : '') +
        (s.trained !== '0' ? ` A training text of ${long(Number(s.trained)).replace('.00', '')} positions shows ${part}.` : '');
    },
    panels(s) {
      const c = this.compute(s), span = Number(s.span), R = 92, cx = 130, cy = 128, H = 256;
      const x = (p) => cx + R * p.sine, y = (p) => cy - R * p.cosine;
      const hand = (p, colour, dash) => line(cx, cy, x(p), y(p), `stroke="${colour}" stroke-width="3" ${dash}`) +
        `<circle cx="${fixed(x(p))}" cy="${fixed(y(p))}" r="6" fill="${colour}"/>`;
      let dial = `<circle cx="${cx}" cy="${cy}" r="${R}" stroke="${INK}" stroke-opacity=".45" stroke-width="1.5"/>` +
        line(cx - R, cy, cx + R, cy, `stroke="${INK}" stroke-opacity=".25"`) + line(cx, cy - R, cx, cy + R, `stroke="${INK}" stroke-opacity=".25"`) +
        text(cx, cy - R - 10, 'cosine 1', 'text-anchor="middle" font-size="12"') + text(cx + R + 6, cy + 4, 'sine 1', 'font-size="12"');
      if (c.arc) {
        dial += c.arc === TURN ? `<circle cx="${cx}" cy="${cy}" r="${R}" stroke="${ORANGE}" stroke-opacity=".3" stroke-width="14"/>` :
          `<path d="M ${cx} ${cy - R} A ${R} ${R} 0 ${c.arc > Math.PI ? 1 : 0} 1 ${fixed(cx + R * Math.sin(c.arc))} ${fixed(cy - R * Math.cos(c.arc))}" stroke="${ORANGE}" stroke-opacity=".3" stroke-width="14"/>`;
      }
      for (let p = 0; p < s.position; p += span / 128) {
        const dot = { sine: Math.sin(p * c.omega), cosine: Math.cos(p * c.omega) };
        dial += `<circle cx="${fixed(x(dot))}" cy="${fixed(y(dot))}" r="2.2" fill="${INK}" fill-opacity=".4"/>`;
      }
      const more = s.others ? Math.ceil(c.pairs / 32) : c.pairs + 1;             // at most 32 of the others
      for (let k = 0; k < c.pairs; k += more) {
        const angle = s.position * Number(s.base) ** (-k / c.pairs), tip = { sine: Math.sin(angle), cosine: Math.cos(angle) };
        if (k !== s.pair && s.others) dial += line(cx, cy, x(tip), y(tip), `stroke="${INK}" stroke-opacity=".5" stroke-width="1.5" data-pair="${k}"`);
      }
      if (s.shift) {
        const r = 40, big = Math.abs(c.turned) % TURN > Math.PI ? 1 : 0, ahead = s.shift > 0 ? 1 : 0;
        const on = (a) => `${fixed(cx + r * Math.sin(a))} ${fixed(cy - r * Math.cos(a))}`;
        dial += (Math.abs(c.turned) >= TURN ? `<circle cx="${cx}" cy="${cy}" r="${r}" stroke="${ORANGE}" stroke-width="1.5"/>` : '') +
          `<path d="M ${on(c.here.angle)} A ${r} ${r} 0 ${big} ${ahead} ${on(c.there.angle)}" stroke="${ORANGE}" stroke-width="2.5"/>` +
          hand(c.there, ORANGE, 'stroke-dasharray="7 4"');
      }
      dial += hand(c.here, BLUE, '') + text(6, H - 8, s.shift ? `turned by ${turned(c.turned).replace(/ \(.*/, '')}` : `angle ${small(c.here.angle)} rad`, 'font-size="12"');

      const W = 380, left = 34, right = W - 8, mid = 128, tall = 84, px = (p) => left + (right - left) * p / span, py = (v) => mid - tall * v;
      const steps = 512, wave = (f) => Array.from({ length: steps + 1 }, (_, i) =>
        `${px(i * span / steps).toFixed(1)},${py(f(i * span / steps * c.omega)).toFixed(1)}`).join(' ');
      let waves = [1, 0, -1].map((v) => line(left, py(v), right, py(v), `stroke="${INK}" stroke-opacity="${v ? 0.2 : 0.45}"`) +
        text(left - 6, py(v) + 4, v, 'text-anchor="end" font-size="12"')).join('') +
        [0, 1, 2, 3, 4].map((i) => text(px(i * span / 4), mid + tall + 20, long(i * span / 4).replace('.00', ''), `text-anchor="${i === 4 ? 'end' : 'middle'}" font-size="12"`)).join('') +
        (c.arc ? `<rect x="${left}" y="${mid - tall}" width="${fixed(px(Math.min(Number(s.trained) - 1, span)) - left)}" height="${2 * tall}" fill="${ORANGE}" fill-opacity=".14"/>` : '') +
        text((left + right) / 2, H - 8, 'position', 'text-anchor="middle" font-size="12"') +
        line(left, 20, left + 26, 20, `stroke="${BLUE}" stroke-width="2.5"`) + text(left + 32, 24, 'sine', 'font-size="12"') +
        line(left + 78, 20, left + 104, 20, `stroke="${ORANGE}" stroke-width="2.5" stroke-dasharray="7 4"`) + text(left + 110, 24, 'cosine', 'font-size="12"') +
        (c.turns > 60 ? `<rect x="${left}" y="${mid - tall}" width="${right - left}" height="${2 * tall}" fill="${BLUE}" fill-opacity=".25"/>` +
          text(left + 10, mid - 8, `${long(c.turns)} turns: too many to draw`) :
          `<polyline points="${wave(Math.sin)}" stroke="${BLUE}" stroke-width="2"/>` +
          `<polyline points="${wave(Math.cos)}" stroke="${ORANGE}" stroke-width="2" stroke-dasharray="7 4"/>`);
      for (const [p, dash] of s.shift ? [[c.there, 'stroke-dasharray="3 3"'], [c.here, '']] : [[c.here, '']]) {
        if (p.position < 0) continue;                                             // left of the axis
        waves += line(px(p.position), py(1.1), px(p.position), py(-1.1), `stroke="${INK}" stroke-width="1.5" ${dash}`) +
          `<circle cx="${fixed(px(p.position))}" cy="${fixed(py(p.sine))}" r="5" fill="${BLUE}"/>` +
          `<circle cx="${fixed(px(p.position))}" cy="${fixed(py(p.cosine))}" r="5" fill="${ORANGE}"/>`;
      }
      return [
        panel(264, H, `A circle with a hand at the angle ${small(c.here.angle)} radians, clockwise from the top` +
          (s.shift ? `, and a second hand, turned by ${turned(c.turned)}.` : '; small dots mark earlier positions.'), dial),
        panel(W, H, `Sine and cosine of pair ${s.pair} over positions 0 to ${s.span}, ${fixed(c.turns, 2)} turns. At position ${s.position}: sine ${fixed(c.here.sine, 3)}, cosine ${fixed(c.here.cosine, 3)}.`, waves),
      ];
    },
  });
})(globalThis.PosFig);
