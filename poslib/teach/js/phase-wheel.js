/* phase-wheel: one rotary pair at one position, with the exact angle and with the angle that a number format makes of it. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const TURN = 2 * Math.PI, WIDTH = 128, LAST = 20, SEEN = Math.pow(2, -9);
  const FORMATS = { bf16: [8, -126, 127], fp16: [11, -14, 15], fp32: [24, -126, 127] };   // significand bits, exponents
  const WHAT = { position: 'the position', frequency: 'the frequency', angle: 'the exact angle', all: 'position, frequency and product', table: 'sine and cosine' };

  const view = new DataView(new ArrayBuffer(8));
  const exponent = (x) => { view.setFloat64(0, x); return ((view.getUint32(0) >> 20) & 2047) - 1023; };
  /* To nearest, ties to even; null beyond the largest number. */
  function rounded(x, format) {
    if (x === 0) return x;
    const [bits, smallest, largest] = FORMATS[format], unit = Math.pow(2, Math.max(exponent(x), smallest) - bits + 1), y = x / unit;
    let r = Math.round(y);
    if (Math.abs(y - Math.trunc(y)) === 0.5) r = 2 * Math.round(y / 2);
    return Math.abs(r * unit) < Math.pow(2, largest + 1) ? r * unit : null;
  }
  const product = (p, w, format) => {
    const a = rounded(p, format), b = rounded(w, format);
    return a === null ? null : rounded(a * b, format);
  };
  /* The angle as computed, and its error in radians; nulls where the format ends. */
  function phase(p, w, s) {
    const exact = p * w;
    if (s.what === 'table') {
      const c = rounded(Math.cos(exact), s.format), d = rounded(Math.sin(exact), s.format), C = Math.cos(exact), D = Math.sin(exact);
      const error = Math.atan2(d * C - c * D, c * C + d * D);
      return { position: p, exact, found: exact + error, error, cosine: c, sine: d };
    }
    const found = { position: () => { const q = rounded(p, s.format); return q === null ? null : q * w; }, frequency: () => p * rounded(w, s.format),
      angle: () => rounded(exact, s.format), all: () => product(p, w, s.format) }[s.what]();
    return { position: p, exact, found, error: found === null ? null : found - exact, cosine: found === null ? null : Math.cos(found), sine: found === null ? null : Math.sin(found) };
  }

  const group = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ',');
  const rate = (x) => (x < 1e-3 ? x.toExponential(3) : Number(x.toPrecision(4)).toString());
  const small = (x) => (x === 0 ? '0' : Math.abs(x) < 1e-3 ? x.toExponential(2) : Math.abs(x) < 1000 ? Number(x.toPrecision(4)).toString() : group(x));
  const here = (s) => Math.round(Math.pow(2, s.power));
  const verdict = (c) => (c.error === null ? 'the format has no number that large' : c.error === 0 ? 'here that changes nothing' : `the hand is off by ${small(Math.abs(c.error))} rad` +
    (Math.abs(c.error) > TURN ? `, more than ${Math.floor(Math.abs(c.error) / TURN) > 1 ? `${group(Math.floor(Math.abs(c.error) / TURN))} turns` : 'a turn'}` : ''));

  F.define('phase-wheel', {
    title: 'A pair at a position: the exact angle, and the one that a number format makes of it',
    controls: [
      { name: 'power', label: 'position: 2 to the', min: 0, max: LAST, step: 0.01, value: 12.01 },
      { name: 'pair', label: 'pair k (0 to 63)', unit: '', min: 0, max: WIDTH / 2 - 1, step: 1, value: 5 },
      { name: 'base', label: 'base b', type: 'choice', value: '10000', options: [['10000', '10,000'], ['500000', '500,000']] },
      { name: 'format', label: 'number format', type: 'choice', value: 'bf16', options: [['bf16', 'bf16'], ['fp16', 'fp16'], ['fp32', 'fp32']] },
      { name: 'what', label: 'rounded is', type: 'choice', value: 'position', options: Object.entries(WHAT) },
      { name: 'next', label: 'the next position too', type: 'check', value: true },
    ],
    compute(s) {
      const p = here(s), omega = Math.pow(Number(s.base), -2 * s.pair / WIDTH), now = phase(p, omega, s), next = phase(p + 1, omega, s);
      const curve = [];
      for (let e = 0; e <= LAST; e += 0.125) {                                            // the largest of 12 positions in each eighth of an octave
        const errors = Array.from({ length: 12 }, (_, i) => phase(Math.round(Math.pow(2, e + i / 96)), omega, s).error);
        curve.push([e, errors.includes(null) ? null : Math.max(...errors.map(Math.abs))]);
      }
      return { omega, now, next, merged: now.found !== null && now.cosine === next.cosine && now.sine === next.sine, curve };
    },
    say(s) {
      const c = this.compute(s), n = c.now;
      return `Position ${group(n.position)}, pair ${s.pair}: ω = ${rate(c.omega)} rad a position, exact angle ${small(n.exact)} rad. ` +
        `In ${s.format} ${WHAT[s.what]} ${s.what === 'all' || s.what === 'table' ? 'are' : 'is'} rounded; ${verdict(n)}.` +
        (s.next ? (c.merged ? ` Position ${group(n.position + 1)} gets the same hand: the two are merged.` :
          c.next.found === null ? '' : ` Position ${group(n.position + 1)} is off by ${small(Math.abs(c.next.error))} rad.`) : '');
    },
    panels(s) {
      const c = this.compute(s), R = 88, cx = 132, cy = 122, H = 256, tip = (a, r = R) => [cx + r * Math.cos(a), cy - r * Math.sin(a)];
      const hand = (a, r, colour, wide, dash) => { const [x, y] = tip(a, r); return line(cx, cy, x, y, `stroke="${colour}" stroke-width="${wide}" ${dash}`) +
        `<circle cx="${fixed(x)}" cy="${fixed(y)}" r="${wide + 2}" fill="${colour}"/>`; };
      let wheel = `<circle cx="${cx}" cy="${cy}" r="${R}" stroke="${INK}" stroke-opacity=".45" stroke-width="1.5"/>` +
        line(cx - R, cy, cx + R, cy, `stroke="${INK}" stroke-opacity=".25"`) + line(cx, cy - R, cx, cy + R, `stroke="${INK}" stroke-opacity=".25"`) +
        text(cx + R + 6, cy + 4, '0', 'font-size="12"') + text(cx, cy - R - 8, 'a quarter turn', 'text-anchor="middle" font-size="12"');
      if (s.next) {
        wheel += hand(c.next.exact, R * 0.62, BLUE, 1.5, 'stroke-opacity=".7"');
        if (c.next.found !== null) wheel += hand(c.next.found, R * 0.62, ORANGE, 1.5, 'stroke-dasharray="4 4"');
      }
      wheel += hand(c.now.exact, R, BLUE, 3, '');
      if (c.now.found !== null) wheel += hand(c.now.found, R, ORANGE, 3, 'stroke-dasharray="7 5"');
      wheel += line(6, H - 22, 30, H - 22, `stroke="${BLUE}" stroke-width="3"`) + text(36, H - 18, 'exact', 'font-size="12"') +
        line(84, H - 22, 108, H - 22, `stroke="${ORANGE}" stroke-width="3" stroke-dasharray="7 5"`) +
        text(114, H - 18, c.now.found === null ? 'no number in fp16' : 'as computed', 'font-size="12"') +
        text(6, H - 2, s.next ? 'short hands: the next position' : '', 'font-size="12"');

      const W = 384, left = 58, right = W - 10, top = 18, bottom = 208, low = -10, high = 4;
      const px = (e) => left + (right - left) * e / LAST, py = (v) => bottom - (bottom - top) * (Math.log10(v) - low) / (high - low);
      const tick = { 4: '10,000', 0: '1', '-4': '0.0001', '-8': '1e-8' };
      let plot = [4, 0, -4, -8].map((e) => line(left, py(Math.pow(10, e)), right, py(Math.pow(10, e)), `stroke="${INK}" stroke-opacity=".18"`) +
        text(left - 6, py(Math.pow(10, e)) + 4, tick[e], 'text-anchor="end" font-size="12"')).join('') +
        [0, 4, 8, 12, 16, 20].map((e) => text(px(e), bottom + 18, e === 20 ? '1 M' : group(Math.pow(2, e)), `text-anchor="${e === 20 ? 'end' : 'middle'}" font-size="12"`)).join('') +
        text(left, bottom + 38, 'position; upwards the largest error near it, radians', 'font-size="12"') +
        [[Math.PI, 'half a turn'], [SEEN, 'half a step of bf16 below 1']].map(([v, name]) =>
          line(left, py(v), right, py(v), `stroke="${INK}" stroke-opacity=".7" stroke-dasharray="2 4"`) + text(left + 4, py(v) - 5, name, 'font-size="12"')).join('');
      let path = '', joined = false;
      for (const [e, v] of c.curve) {
        const drawn = v !== null && v > Math.pow(10, low);
        if (drawn) path += `${joined ? 'L' : 'M'}${px(e).toFixed(1)} ${py(v).toFixed(1)}h.01`;
        joined = drawn;
      }
      plot += path ? `<path d="${path}" stroke="${ORANGE}" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"/>` : text(left + 90, py(1e-6), 'no error at these positions', 'font-size="12"');
      const error = c.now.error === null ? null : Math.abs(c.now.error);
      plot += line(px(s.power), top, px(s.power), bottom, `stroke="${INK}" stroke-width="1.5"`) +
        (error !== null && error > Math.pow(10, low) ? `<circle cx="${fixed(px(s.power))}" cy="${fixed(py(error))}" r="5" fill="${ORANGE}"/>` : '');
      return [
        panel(264, H, `A circle with two hands for position ${group(c.now.position)}: exact, and with ${WHAT[s.what]} in ${s.format}; ${verdict(c.now)}.`, wheel),
        panel(W, H, `The error over positions from 1 to ${group(Math.pow(2, LAST))}, both axes logarithmic; at ${group(c.now.position)}: ${error === null ? 'none, the format ends before' : `${small(error)} radians`}.`, plot),
      ];
    },
  });
})(globalThis.PosFig);
