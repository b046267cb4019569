/* patch-site: the query's side at one place is exchanged for that of another place. Where does it look, and what do trained models answer?
 * The head of the first panel is built by hand, from vectors. The line DATA is written by `python -m poslib.lab.patching_position --figure`
 * from the stored result: percent of own and of source answers of each trained model, by encoding, site and move. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const DATA = {"moves":[],"by":{}};
  const LENGTH = 32, PLACE = 16, BACK = 3, PAIRS = 8, BASE = 100, GAIN = 40;
  const ENCODINGS = { learned: 'a table, added', rotary: 'RoPE', t5: 'a bias of the lag' };
  const SITES = {
    stream: 'stream', 'stream, codes exchanged': 'stream, codes exchanged', q: 'query, before turning', 'turned q': 'query, turned',
    'turned q, turned back': 'query, turned, then turned back', ids: 'position id alone' };
  const OMEGA = Array.from({ length: PAIRS }, (_, k) => Math.pow(BASE, -k / PAIRS));

  /* Pairs (a, b), all in one list; turned by `by` positions. */
  const turn = (x, by) => x.map(([a, b], k) => [a * Math.cos(by * OMEGA[k]) - b * Math.sin(by * OMEGA[k]), a * Math.sin(by * OMEGA[k]) + b * Math.cos(by * OMEGA[k])]);
  const plus = (x, y, s) => x.map(([a, b], k) => [a + s * y[k][0], b + s * y[k][1]]);
  const dot = (x, y) => x.reduce((sum, [a, b], k) => sum + a * y[k][0] + b * y[k][1], 0);
  const ONE = OMEGA.map(() => [1, 0]), code = (p) => turn(ONE, p);

  /* The head wants lag BACK. Content is the same everywhere, so that only position speaks.
   * Table: the stream holds the code; W_Q turns it BACK positions back. RoPE: W_Q turns the content back, then R_p turns. Bias: of the lag. */
  function scores(encoding, site, j) {
    const ids = Array.from({ length: LENGTH }, (_, p) => p);
    if (site === 'ids') ids[PLACE] = j;
    const own = ids[PLACE], size = GAIN / PAIRS;
    if (encoding === 't5') return ids.map((p) => size * dot(turn(ONE, own - p - BACK), ONE));
    if (encoding === 'learned') {
      let x = code(site === 'ids' ? own : j);
      if (site === 'stream, codes exchanged') x = plus(plus(x, code(j), -1), code(PLACE), 1);
      const q = turn(x, -BACK);                          // there is no turning: "turned" is the same vector, and nothing turns it back
      const patched = site === 'stream' ? j : own;        // the stream's patch gives its place another key, too
      return ids.map((p, place) => size * dot(q, code(place === PLACE ? patched : p)));
    }
    const q = turn(ONE, -BACK);
    let turned = turn(q, site === 'turned q' || site === 'turned q, turned back' ? j : own);
    if (site === 'turned q, turned back') turned = turn(turned, PLACE - j);
    return ids.map((p) => size * dot(turned, turn(ONE, p)));
  }

  F.define('patch-site', {
    title: 'A patch across positions: where the patched query looks, and what trained models answer',
    controls: [
      { name: 'encoding', label: 'position comes by', type: 'choice', value: 'rotary', options: Object.entries(ENCODINGS) },
      { name: 'site', label: 'what is patched', type: 'choice', value: 'turned q', options: Object.entries(SITES) },
      { name: 'move', label: 'source stands', unit: 'places further on', min: -8, max: 8, step: 1, value: 6 },
    ],
    compute(s) {
      const j = PLACE + s.move, raw = scores(s.encoding, s.site, j), most = Math.max(...raw), e = raw.map((x) => Math.exp(x - most));
      const sum = e.reduce((a, b) => a + b, 0), weights = e.map((x) => x / sum), own = PLACE - BACK, source = j - BACK;
      const n = DATA.moves.indexOf(s.move), rows = (DATA.by[s.encoding] || {})[s.site];
      const looks = weights.indexOf(Math.max(...weights));
      return { scores: raw, weights, own, source, looks, trained: n < 0 || !rows ? null : { own: rows[n][0], source: rows[n][1] } };
    },
    say(s) {
      const c = this.compute(s), j = PLACE + s.move, percent = (x) => `${fixed(100 * x, 0)} %`, low = (a) => Math.min(...a), high = (a) => Math.max(...a);
      const span = (a) => (low(a) === high(a) ? `${low(a)} %` : `${low(a)} to ${high(a)} %`);
      const built = s.move === 0 ? `puts ${percent(c.weights[c.own])} on place ${c.own}: own and source coincide, as in an aligned patch.`
        : `puts ${percent(c.weights[c.own])} on its own target, place ${c.own}, and ${percent(c.weights[c.source])} on the source’s, place ${c.source}.`;
      return `${ENCODINGS[s.encoding]}; ${SITES[s.site]}, from place ${j} to place ${PLACE}. The built head ${built} ` +
        (c.trained ? `Trained models answer with their own token in ${span(c.trained.own)} of the sequences, with the source’s in ${span(c.trained.source)}.`
          : s.move === 0 ? '' : 'There is no such site in trained models of this kind.');
    },
    panels(s) {
      const c = this.compute(s), j = PLACE + s.move, W = 380, H = 190, left = 12, wide = (W - 2 * left) / LENGTH, bottom = 128, tall = 92;
      const x = (p) => left + wide * (p + 0.5);
      let g = text(4, 14, `weights of the query at place ${PLACE}, built head`);
      c.weights.forEach((w, p) => {
        const colour = p === c.own ? BLUE : p === c.source ? ORANGE : INK;
        g += `<rect x="${fixed(x(p) - wide * 0.42)}" y="${fixed(bottom - tall * w)}" width="${fixed(wide * 0.84)}" height="${fixed(Math.max(tall * w, 0.6))}" fill="${colour}" fill-opacity=".85"/>`;
      });
      g += line(left, bottom, W - left, bottom, `stroke="${INK}" stroke-opacity=".6"`);
      [0, 8, 16, 24, 31].forEach((p) => { g += text(x(p), bottom + 16, p, 'text-anchor="middle" font-size="12"'); });
      const mark = (p, colour, label, row, shape) => shape(x(p), bottom + 27 + 18 * row, colour) + text(x(p) + (p > 20 ? -9 : 9), bottom + 31 + 18 * row, label, `text-anchor="${p > 20 ? 'end' : 'start'}" font-size="12"`);
      const disc = (cx, cy, colour) => `<circle cx="${fixed(cx)}" cy="${cy}" r="5" fill="${colour}"/>`;
      const box = (cx, cy, colour) => `<rect x="${fixed(cx - 5)}" y="${cy - 5}" width="10" height="10" fill="${colour}"/>`;
      g += mark(c.own, BLUE, s.move ? `own target, ${c.own}` : `own and source’s target, ${c.own}`, 0, disc);
      if (s.move) g += mark(c.source, ORANGE, `source’s target, ${c.source}`, 1, box);

      const V = 108, from = 108, to = W - 60, at = (v) => from + (to - from) * v / 100, mean = (a) => a.reduce((p, q) => p + q, 0) / a.length;
      let h = text(4, 14, c.trained ? 'answers of trained models, a mark for each seed' : s.move ? 'trained models: there is no such site here' : 'trained models: own and source are the same token');
      [['own', 'own token', BLUE, 40, disc], ['source', 'source’s token', ORANGE, 68, box]].forEach(([key, label, colour, y, shape]) => {
        h += text(4, y + 4, label, 'font-size="12"') + line(from, y, to, y, `stroke="${INK}" stroke-opacity=".35"`);
        if (c.trained) h += c.trained[key].map((v) => shape(at(v), y, colour)).join('') + text(W - 4, y + 4, `${fixed(mean(c.trained[key]), 0)} %`, 'text-anchor="end" font-size="12"');
      });
      [0, 50, 100].forEach((v) => { h += line(at(v), 30, at(v), 78, `stroke="${INK}" stroke-opacity=".2"`) + text(at(v), 96, `${v} %`, 'text-anchor="middle" font-size="12"'); });
      const told = this.say(s);
      return [panel(W, H, `Weights of the patched query at place ${PLACE} over 32 keys; source at place ${j}. ${told}`, g),
        panel(W, V, c.trained ? `Shares of own and source answers of the trained models. ${told}` : 'No measured answers for this choice.', h)];
    },
  });
})(globalThis.PosFig);
