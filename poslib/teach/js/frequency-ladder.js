/* frequency-ladder: what a method of extension does to each pair's frequency, and which phases a longer text makes it meet. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const TURN = 2 * Math.PI;
  const MODELS = { llama2: ['Llama 2: 4,096 tokens', 128, 1e4, 4096], llama1: ['Llama: 2,048 tokens', 128, 1e4, 2048],
    llama3: ['Llama 3: 8,192 tokens', 128, 5e5, 8192], toy: ['toy, base 188', 32, 188, 64], usual: ['toy, base 10,000', 32, 1e4, 64] };
  const METHODS = { none: 'none', pi: 'PI: all pairs alike', ntk: 'NTK-aware: a larger base', paper: "by parts, YaRN's paper", code: "by parts, YaRN's code", llama3: 'by parts, Llama 3.1', toy: 'by parts, ½ to 2 turns' };
  const words = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ',');
  const short = (x) => (x >= 99.5 ? words(Math.round(x)) : x >= 9.95 ? fixed(x, 1) : x >= 0.995 ? fixed(x, 2) : fixed(x, 3));
  const clip = (x) => Math.min(1, Math.max(0, x));

  /* Share of each pair's frequency that is kept: 1 left alone, 0 divided by the factor. */
  function kept(method, omega, width, base, trained) {
    const turns = (trained * omega) / TURN, k = Math.round((-Math.log(omega) / Math.log(base)) * (width / 2));
    if (method === 'paper') return clip((turns - 1) / 31);
    if (method === 'llama3') return clip((turns - 1) / 3);
    if (method === 'toy') return clip((turns - 0.5) / 1.5);
    const at = (times) => (width * Math.log(trained / (TURN * times))) / (2 * Math.log(base));
    const low = Math.max(Math.floor(at(32)), 0), high = Math.min(Math.ceil(at(1)), width - 1);
    return 1 - clip((k - low) / (high === low ? 0.001 : high - low));
  }
  function stretched(method, omega, factor, width, base, trained) {
    if (method === 'none') return omega;
    if (method === 'pi') return omega / factor;
    if (method === 'ntk') return Math.pow(omega, Math.log(base * Math.pow(factor, width / (width - 2))) / Math.log(base));
    const share = kept(method, omega, width, base, trained);
    return omega * (share + (1 - share) / factor);
  }
  /* Lags from `trained` to `read` - 1 whose phase is more than `away` from the arc that the trained lags sweep; and how far the furthest is. */
  function outside(omega, now, trained, read, away) {
    if (trained * omega >= TURN || read <= trained) return { count: 0, far: 0 };
    const arc = trained * omega;
    let count = 0, far = 0;
    for (let m = 0; m * TURN <= (read - 1) * now; m++) {
      const from = Math.max(trained, Math.floor((m * TURN + arc + away) / now) + 1), to = Math.min(read - 1, Math.ceil(((m + 1) * TURN - away) / now) - 1);
      if (to >= from) count += to - from + 1;
      const middle = (m * TURN + (arc + TURN) / 2) / now;
      for (const lag of [Math.floor(middle), Math.ceil(middle), trained, read - 1]) {
        const x = lag * now - m * TURN;
        if (lag >= trained && lag < read && x > arc && x < TURN) far = Math.max(far, Math.min(x - arc, TURN - x));
      }
    }
    return { count, far };
  }

  F.define('frequency-ladder', {
    title: 'A ladder of frequencies, stretched, and the phases that it meets',
    controls: [
      { name: 'model', label: 'model', type: 'choice', value: 'llama2', options: Object.entries(MODELS).map(([key, m]) => [key, m[0]]) },
      { name: 'method', label: 'method', type: 'choice', value: 'none', options: Object.entries(METHODS) },
      { name: 'factor', label: 'factor', type: 'choice', value: '4', options: ['2', '4', '8', '16', '32'].map((f) => [f, f]) },
      { name: 'read', label: 'read length', type: 'choice', value: '4', options: ['1', '2', '4', '8', '16', '32'].map((f) => [f, f === '1' ? 'as trained' : `${f} times the trained`]) },
      { name: 'tolerance', label: 'out of the arc by over', type: 'choice', value: '0.02', options: [['0.01', '0.01 rad'], ['0.02', '0.02 rad'], ['0.1', '0.1 rad'], ['0.5', '0.5 rad']] },
      { name: 'pair', label: 'pair on the circle', min: 0, max: (s) => MODELS[s.model][1] / 2 - 1, step: 1, value: 50 },
    ],
    compute(s) {
      const [, width, base, trained] = MODELS[s.model], factor = Number(s.factor), read = Number(s.read) * trained, away = Number(s.tolerance);
      const omega = [], now = [], share = [], far = [];
      for (let k = 0; k < width / 2; k++) {
        const w = Math.pow(base, (-2 * k) / width), after = stretched(s.method, w, factor, width, base, trained), out = outside(w, after, trained, read, away);
        omega.push(w); now.push(after); far.push(out.far);
        share.push(read > trained ? out.count / (read - trained) : 0);
      }
      /* how much less the codes of neighbours differ than before */
      const apart = (w) => Math.sqrt(w.reduce((sum, x) => sum + 2 - 2 * Math.cos(x), 0));
      return { trained, read, omega, now, share, far, nearer: apart(omega) / apart(now), turns: omega.map((w) => (trained * w) / TURN),
        any: share.filter((x) => x > 0).length, most: share.filter((x) => x > 0.5).length };
    },
    say(s) {
      const c = this.compute(s), k = s.pair, n = c.omega.length, wave = (w) => short(TURN / w);
      const slower = c.now[k] === c.omega[k] ? `turns once in ${wave(c.omega[k])} tokens` : `turned once in ${wave(c.omega[k])} tokens and now does in ${wave(c.now[k])}`;
      const first = c.read === c.trained ? `At the trained length no lag is new.` :
        `At lags from ${words(c.trained)} to ${words(c.read - 1)}, ${c.any} of ${n} pairs meet phases outside what training showed, ${c.most} of them at more than half of the lags.`;
      const near = s.method === 'none' ? 'No method: the factor does nothing.' : c.nearer < 1.005 ? 'Neighbours are as far apart as before.' : `The price: neighbours are ${fixed(c.nearer, 2)} times nearer to each other than before.`;
      return `${first} ${near} Pair ${k} ${slower}; in training it made ${short(c.turns[k])} turns; ${fixed(100 * c.share[k], 0)} % of the new lags are outside, the furthest by ${fixed(c.far[k], 2)} rad.`;
    },
    panels(s) {
      const c = this.compute(s), n = c.omega.length, W = 390, H = 300, left = 62, right = 10, top = 42, bottom = 196, low = Math.log10(4), high = Math.log10(3e7);
      const x = (k) => left + ((k + 0.5) / n) * (W - left - right), y = (wave) => bottom - ((Math.log10(wave) - low) / (high - low)) * (bottom - top);
      let body = text(4, 14, 'tokens for one turn, by pair') + text(4, 31, 'circles: before; dots: after; orange: out of arc', 'font-size="12"');
      for (let e = 1; e <= 7; e++) body += line(left, y(10 ** e), W - right, y(10 ** e), `stroke="${INK}" stroke-opacity=".1"`) + (e % 2 ? '' : text(left - 5, y(10 ** e) + 4, words(10 ** e), 'text-anchor="end" font-size="11"'));
      body += line(left, y(c.trained), W - right, y(c.trained), `stroke="${INK}" stroke-opacity=".7"`) + text(left + 4, y(c.trained) - 4, 'trained length', 'font-size="11"');
      if (c.read > c.trained) body += line(left, y(c.read), W - right, y(c.read), `stroke="${INK}" stroke-opacity=".7" stroke-dasharray="5 4"`) + text(left + 4, y(c.read) - 4, 'read length', 'font-size="11"');
      body += line(x(s.pair), top, x(s.pair), 262, `stroke="${INK}" stroke-opacity=".25"`);
      const size = n > 16 ? 2.3 : 3.6, bar = ((W - left - right) / n) * 0.7, base = 262, tall = 44;
      c.omega.forEach((w, k) => {
        if (c.now[k] !== w) body += `<circle cx="${fixed(x(k))}" cy="${fixed(y(TURN / w))}" r="${size}" stroke="${INK}" stroke-opacity=".55"/>`;
        body += `<circle cx="${fixed(x(k))}" cy="${fixed(y(TURN / c.now[k]))}" r="${size}" fill="${c.share[k] > 0 ? ORANGE : BLUE}"/>`;
        if (c.share[k] > 0) body += `<rect x="${fixed(x(k) - bar / 2)}" y="${fixed(base - tall * c.share[k])}" width="${fixed(bar)}" height="${fixed(tall * c.share[k])}" fill="${ORANGE}"/>`;
      });
      body += line(left, base, W - right, base, `stroke="${INK}" stroke-opacity=".6"`) + line(left, base - tall, W - right, base - tall, `stroke="${INK}" stroke-opacity=".15"`) +
        text(left - 5, base + 4, '0', 'text-anchor="end" font-size="11"') + text(left - 5, base - tall + 4, '100 %', 'text-anchor="end" font-size="11"') +
        text(x(0), base + 15, 0, 'text-anchor="middle" font-size="11"') + text(x(n - 1), base + 15, n - 1, 'text-anchor="middle" font-size="11"') +
        text(left, base + 31, 'pair; bars: share of new lags out of the arc', 'font-size="12"');

      const w2 = 236, cx = 118, cy = 158, R = 78, k = s.pair, arc = Math.min(TURN, c.trained * c.omega[k]), whole = c.turns[k] >= 1;
      const at = (a, r) => `${fixed(cx + r * Math.cos(a), 1)} ${fixed(cy - r * Math.sin(a), 1)}`;
      let wheel = text(4, 14, `pair ${k}: phases`) + text(4, 31, 'thick: seen arc; ring: new lags', 'font-size="12"');
      wheel += `<circle cx="${cx}" cy="${cy}" r="${R}" stroke="${INK}" stroke-opacity=".25"/>`;
      wheel += whole ? `<circle cx="${cx}" cy="${cy}" r="${R}" stroke="${BLUE}" stroke-width="7" stroke-opacity=".75"/>` :
        `<path d="M${at(0, R)}A${R} ${R} 0 ${arc > Math.PI ? 1 : 0} 0 ${at(arc, R)}" stroke="${BLUE}" stroke-width="7" stroke-opacity=".75"/>`;
      const many = Math.min(180, c.read - c.trained);
      for (let m = 0; m < many; m++) {
        const lag = c.trained + Math.floor((m * (c.read - 1 - c.trained)) / Math.max(1, many - 1)), a = (lag * c.now[k]) % TURN, out = !whole && a > arc + Number(s.tolerance) && a < TURN - Number(s.tolerance);
        wheel += `<path d="M${at(a, R + 8)}L${at(a, R + (out ? 24 : 16))}" stroke="${out ? ORANGE : INK}" stroke-width="1.2" stroke-opacity="${out ? 1 : 0.5}"/>`;
      }
      wheel += text(cx, cy - 4, whole ? 'all seen' : `${fixed((100 * arc) / TURN, 0)} % seen`, 'text-anchor="middle"') + text(cx, cy + 14, `${fixed(100 * c.share[k], 0)} % of lags out`, 'text-anchor="middle" font-size="12"') +
        text(4, 285, `lag 0: right, then up; tolerance ${s.tolerance}`, 'font-size="12"');
      return [
        panel(W, H, `Wavelengths of ${n} pairs, ${METHODS[s.method]}: ${c.any} meet phases that training did not show.`, body),
        panel(w2, H, `Phases of pair ${k} on a circle: ${fixed(100 * c.share[k], 0)} % of the new lags are outside the arc that training showed.`, wheel),
      ];
    },
  });
})(globalThis.PosFig);
